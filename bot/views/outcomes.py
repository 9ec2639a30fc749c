"""Findings of the doctor, and the state of each message of a chat, without anybody's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from bot import errors
from bot.channel import Finding, Level
from bot.delivery import outbox
from bot.i18n import DEFAULT_LANGUAGE
from bot.i18n import finding as said
from bot.invocation import confidant
from bot.storage import Transaction


@dataclass(frozen=True, slots=True)
class Told:
    """A finding as a person reads it; `fix` is what to do, empty for nothing.

    `language` is that of its words, which are English where a package brought them.
    """

    level: Level
    text: str
    fix: str
    account: str
    language: str = DEFAULT_LANGUAGE


def told(finding: Finding, language: str) -> Told:
    """A finding in somebody's language; one that a package brought keeps its own words. Pure."""
    if finding.text or not finding.id:
        return Told(finding.level, finding.text, finding.fix, finding.account)
    text = said(language, f"{finding.id}.text", **finding.values)
    fix = said(language, f"{finding.id}.fix", **finding.values)
    return Told(finding.level, text or finding.id, fix, finding.account, language)


def named(language: str, check: str) -> str:
    """The name of a part of the program; a channel has its own. Pure."""
    return said(language, f"check.{check}") or check


# --- messages of a chat ---------------------------------------------------------------------------


MOST: Final = 20  # of each, the newest

Outcome = Literal[
    "answered",
    "failed",
    "stopped",
    "refused",
    "waiting",
    "aside",
    "sent",
    "unsent",
    "later",
    "unreached",
    "given_up",
]
_REASONS: Final = {
    "unpaired": f"Who wrote it is not paired: `{confidant('pairing list')}`.",
    "denied": "dm_policy, group_policy or a block does not let its sender talk there.",
    "silenced": "[send_policy] lets nobody be answered there.",
    "withdrawn": "Whoever wrote it took it back before its turn had come.",
}
_PARKED: Final[dict[int, Outcome]] = {
    outbox.NEVER: "given_up",
    outbox.LATER: "later",
    outbox.REACHED: "unreached",
}


@dataclass(frozen=True, slots=True)
class Happened:
    """One message that came, or one text that was to go out; times are ms since the epoch.

    `tries` counts what failed of it so far, `why` is a sentence for whoever runs the program.
    `other` is the number of the message it was answered together with, or of what comes first
    while it waits; 0 for none.
    """

    what: Literal["message", "text"]
    number: int
    at: int
    outcome: Outcome
    done_at: int | None = None
    tries: int = 0
    why: str = ""
    other: int = 0


def of_chat(tx: Transaction, channel: str, chat: str) -> list[Happened]:
    """Recent messages of a chat and their outcomes, oldest first; an empty `channel` is any."""
    here = "chat = ?" + (" AND channel = ?" if channel else "")
    place = (chat, channel) if channel else (chat,)
    messages = tx.execute(
        "SELECT id, received_at, state, done_at, tries, error, session_id, "
        "(SELECT min(id) FROM inbox AS first WHERE first.key = inbox.key "
        f"AND first.state = 'waiting') FROM inbox WHERE {here} ORDER BY id DESC LIMIT ?",
        (*place, MOST),
    )
    turns: dict[tuple[str, int | None], int] = {}  # one stores all of its messages at once
    for number, *_, done_at, _, _, session, _ in messages:
        turns[session, done_at] = number
    texts = tx.execute(
        "SELECT id, created_at, state, done_at, tries, error, again FROM outbox "
        f"WHERE {here} ORDER BY id DESC LIMIT ?",
        (*place, MOST),
    )
    found = [*(_message(row, turns) for row in messages), *map(_text, texts)]
    return sorted(found, key=lambda each: (each.at, each.what, each.number))


def _message(
    row: tuple[int, int, str, int | None, int, str, str, int | None],
    turns: Mapping[tuple[str, int | None], int],
) -> Happened:
    number, at, state, done_at, tries, error, session, first = row
    outcome: Outcome = "waiting"
    if state == "done":
        first = turns[session, done_at]
        outcome = "stopped" if error == "stopped" else "failed" if error else "answered"
    elif state in {"refused", "aside"}:
        outcome = "refused" if state == "refused" else "aside"
    other = (first or 0) if state in {"done", "waiting"} and first != number else 0
    return Happened("message", number, at, outcome, done_at, tries, _why(error), other)


def _text(row: tuple[int, int, str, int | None, int, str, int]) -> Happened:
    number, at, state, done_at, tries, error, again = row
    outcome: Outcome = "sent" if state == "sent" else "unsent"
    if state == "parked":
        outcome = _PARKED.get(again, "given_up")
    return Happened("text", number, at, outcome, done_at, tries, _why(error))


def _why(error: str) -> str:
    """A stored reason as a sentence; the name of an error is what its class says of itself."""
    if error in {"", "stopped"}:
        return ""
    kind = getattr(errors, error, None)
    said = (kind.__doc__ or "").partition("\n")[0] if isinstance(kind, type) else ""
    return _REASONS.get(error, said or error)
