"""Approvals of tool calls: questions, their answers, and that each call is begun but once.

Functions over a transaction. A question names its call by the place in the transcript, so what is
run is what was shown, and what was forgotten meanwhile is run by nobody. Every step is one way:
open, then allowed or denied by one message, then begun by the turn of that message.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final, Literal

from bot.sessions import inbox
from bot.storage import Transaction
from bot.storage.records import Form, Records, drop_under, keep, under

VALID_MS = 3_600_000  # a question may be answered that long, and what was allowed be begun
KEPT_MS = 7 * 24 * VALID_MS  # questions are remembered that long

State = Literal["open", "allowed", "denied", "begun"]
Verdict = Literal["allowed", "denied", "begun", "late"]
"""The fate of a call; "late" is one that was allowed too long ago, "begun" one that was begun
before: by a program that ended, so its result is unknown.
"""

Asker = tuple[str, str, str]
"""The person asked: the channel, the account, and their id there."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that was asked; times are ms since the epoch.

    `entry` and `call` are the ids of the transcript's entry and of the call in it.
    """

    id: str
    session_id: str
    entry: str
    call: str
    asker: Asker
    state: State
    asked_at: int
    answered_at: int = 0

    def is_open(self, now: int) -> bool:
        """True while it can be answered."""
        return self.state == "open" and now - self.asked_at <= VALID_MS


QUESTIONS: Final = Records("approvals", Question, asker=Form("channel account sender"))


def ask(
    tx: Transaction, asker: Asker, now: int, *, session_id: str, entry: str, call: str
) -> Question:
    """Keep that somebody is asked; old questions go."""
    tx.execute("DELETE FROM approvals WHERE asked_at < ? AND state <> 'allowed'", (now - KEPT_MS,))
    id_ = secrets.token_hex(4)
    return QUESTIONS.add(tx, Question(id_, session_id, entry, call, asker, "open", now))


def of_id(tx: Transaction, id_: str) -> Question | None:
    """A question by its id."""
    return QUESTIONS.get(tx, id_)


def open_in(tx: Transaction, session_id: str, asker: Asker, now: int) -> list[Question]:
    """The questions somebody may answer in a session, the oldest first."""
    return QUESTIONS.where(
        tx,
        "session_id = ? AND state = 'open' AND channel = ? AND account = ? AND sender = ? "
        "AND asked_at >= ?",
        *(session_id, *asker, now - VALID_MS),
        order="asked_at, id",
    )


def answer(tx: Transaction, question: Question, now: int, *, is_allowed: bool) -> None:
    """A question was answered; the turn of the message that did so carries it out."""
    tx.execute(
        "UPDATE approvals SET state = ?, answered_at = ? WHERE id = ? AND state = 'open'",
        ("allowed" if is_allowed else "denied", now, question.id),
    )


def begin(tx: Transaction, id_: str, now: int) -> tuple[Question, Verdict] | None:
    """The answer to a question; a call that was allowed is begun by this, once for ever."""
    question = QUESTIONS.get(tx, id_)
    if question is None:
        return None
    if question.state == "denied":
        return question, "denied"
    if question.state != "allowed":
        return question, "begun"
    tx.execute("UPDATE approvals SET state = 'begun' WHERE id = ?", (id_,))
    return question, "allowed" if now - question.answered_at <= VALID_MS else "late"


def drop_all(tx: Transaction) -> None:
    """Let nothing that was asked be answered any more.

    A database that was restored does not know what was carried out since.
    """
    tx.execute("DELETE FROM approvals")


# Calls that nobody has to allow, and that must not be made twice all the same: each is noted before
# it begins, and the note goes with the turn that is stored. One that is found by another turn of
# the same message was begun, and its result is lost.

STARTED: Final = "started:"  # what the keys of `meta` begin with: "started:ROW:NUMBER"


def start(tx: Transaction, row: int, call: str, now: int) -> None:
    """Note that a call of a message's turn begins."""
    keep(tx, f"{STARTED}{row}:{len(started(tx, row)):04}", call, now)


def started(tx: Transaction, row: int) -> list[str]:
    """The calls that turns of a message have begun, in order."""
    return list(under(tx, f"{STARTED}{row}:").values())


def forget_started(tx: Transaction, row: int) -> None:
    """A message's turn is stored, or there is none: nothing is to be remembered."""
    drop_under(tx, f"{STARTED}{row}:")


def tidy_started(tx: Transaction) -> None:
    """Let go of what was noted for messages that wait no more."""
    for row in {int(key.partition(":")[0]) for key in under(tx, STARTED)}:
        if not inbox.is_waiting(tx, row):
            forget_started(tx, row)
