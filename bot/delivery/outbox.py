"""The outbox table: what is to be said, until it has been said. Functions over a transaction."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import orjson

from bot.channel import Address, Attachment, Button, Capabilities, Outbound, OutboundKind
from bot.coordination import account_name
from bot.storage import Transaction, fulltext, marks
from bot.storage.records import HERE, Records, from_json, packed, place


@dataclass(frozen=True, slots=True)
class Extra:
    """Everything that comes with a text, for channels that take it.

    `draft`, `begins`, `failed`, `sources`, `aside`, `stopped` and `answers` are as in `Outbound`.
    `aloud` are words to say in a voice message of its own, which has no text. `turn` is the one it
    comes from, for the log.
    """

    buttons: tuple[Button, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    draft: str = ""
    aloud: str = ""
    begins: str = ""
    failed: tuple[str, ...] = ()
    turn: str = ""
    sources: int = 0
    aside: str = ""
    stopped: bool = False
    answers: tuple[str, ...] = ()


NOTHING = Extra()
UNREADABLE = Extra(failed=("",))  # in the place of what was damaged, or is another version's


@dataclass(frozen=True, slots=True)
class Queue:
    """Texts that are sent in order: those for one person in a room, or all of a direct chat."""

    address: Address
    asker: str = ""


@dataclass(frozen=True, slots=True)
class Letter:
    """One text for one address; it may take several pieces.

    `entry` is the id of the transcript entry it tells, or empty. Times are ms since the epoch.
    `tries` counts the sends of its next piece that failed. `language` is the one to speak there of
    what becomes of it, `asker` whom it is for where several people talk.
    """

    id: int
    address: Address
    kind: OutboundKind
    text: str
    reply_to: str
    pieces_sent: int
    entry: str
    created_at: int
    extra: Extra = NOTHING
    tries: int = 0
    language: str = ""
    asker: str = ""
    state: Literal["waiting", "parked", "sent"] = "waiting"

    @property
    def parked(self) -> bool:
        """True when it was taken out of its place in the order, for sends that failed."""
        return self.state == "parked"

    @property
    def queue(self) -> Queue:
        """The queue it waits in."""
        return Queue(self.address, self.asker)

    def outbound(self, able: Capabilities) -> Outbound:
        """The message for a channel, with only what that can show."""
        return Outbound(
            id=self.entry or f"letter-{self.id}",
            address=self.address,
            text=self.text,
            kind=self.kind,
            reply_to=self.reply_to,
            at=self.created_at,
            buttons=self.extra.buttons if able.buttons else (),
            attachments=self.extra.attachments if able.attachments else (),
            draft=self.extra.draft,
            begins=self.extra.begins,
            aside=self.extra.aside,
            stopped=self.extra.stopped,
            answers=self.extra.answers,
            failed=self.extra.failed,
            asker=self.asker,
            sources=self.extra.sources,
        )


@dataclass(frozen=True, slots=True)
class Backlog:
    """Counts of an account's texts that wait, are parked to be tried again, or were refused."""

    waiting: int = 0
    again: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class _Stored:
    """An `Extra` as JSON has it."""

    buttons: tuple[tuple[str, str], ...] = ()
    attachments: tuple[tuple[str, str, str], ...] = ()
    draft: str = ""
    aloud: str = ""
    begins: str = ""
    failed: tuple[str, ...] = ()
    turn: str = ""
    sources: int = 0
    aside: str = ""
    stopped: bool = False
    answers: tuple[str, ...] = ()


def _to_json(extra: Extra) -> str:
    if extra == NOTHING:
        return ""
    buttons = [(button.label, button.command) for button in extra.buttons]
    files = [(f.name, f.mime, b64encode(f.data).decode()) for f in extra.attachments]
    found = {"buttons": buttons, "attachments": files, "draft": extra.draft}
    found |= {"aloud": extra.aloud, "begins": extra.begins, "failed": extra.failed}
    found |= {"turn": extra.turn, "sources": extra.sources, "aside": extra.aside}
    found |= {"stopped": extra.stopped, "answers": extra.answers}
    return orjson.dumps({name: value for name, value in found.items() if value}).decode()


def _from_json(text: str) -> Extra:
    try:
        return _extra(from_json(_Stored, text)) if text else NOTHING
    except ValueError:
        return UNREADABLE


def _extra(stored: _Stored) -> Extra:
    return Extra(
        tuple(Button(*each) for each in stored.buttons),
        tuple(Attachment(name, mime, b64decode(data)) for name, mime, data in stored.attachments),
        *(stored.draft, stored.aloud, stored.begins, stored.failed, stored.turn),
        *(stored.sources, stored.aside, stored.stopped, stored.answers),
    )


NEVER, LATER, REACHED = 0, 1, 2  # when what is parked is tried again
_LATER: Final = f"state = 'parked' AND again = {LATER}"

LETTERS: Final = Records(
    "outbox", Letter, "error", is_numbered=True, extra=packed("extra", _from_json, _to_json)
)


def add(
    tx: Transaction,
    address: Address,
    text: str,
    now: int,
    *,
    kind: OutboundKind = "reply",
    reply_to: str = "",
    entry: str = "",
    extra: Extra | None = None,
    language: str = "",
    asker: str = "",
) -> Letter:
    """Store a text to send; hand the result to `Delivery.post` once it is committed."""
    kept = extra or NOTHING
    letter = Letter(
        0, address, kind, text, reply_to, 0, entry, now, kept, language=language, asker=asker
    )
    tx.publish("outbox", account_name(address))
    return LETTERS.add(tx, letter, "")


def waiting(tx: Transaction, queue: Queue, limit: int) -> list[Letter]:
    """The texts waiting in a queue, in order."""
    here = f"{HERE} AND asker = ? AND state = 'waiting'"
    return LETTERS.where(tx, here, *place(queue.address), queue.asker, limit, order="id LIMIT ?")


def queues(tx: Transaction) -> list[Queue]:
    """Every queue in which something waits."""
    rows = tx.execute(
        "SELECT DISTINCT channel, account, chat, thread, asker FROM outbox WHERE state = 'waiting'"
    )
    return [Queue(Address(*place), asker) for *place, asker in rows]


def unsent_addresses(tx: Transaction) -> list[Address]:
    """Every address to which something is still to be sent."""
    unsent = f"state = 'waiting' OR ({_LATER})"
    rows = tx.execute(f"SELECT DISTINCT channel, account, chat, thread FROM outbox WHERE {unsent}")
    return [Address(*row) for row in rows]


def progress(tx: Transaction, letter: int, pieces_sent: int) -> bool:
    """So many pieces have been sent; False when the rest is not to be sent any more."""
    left = tx.execute(
        "UPDATE outbox SET pieces_sent = ?, tries = 0 WHERE id = ? AND state <> 'sent' "
        "RETURNING id",
        (pieces_sent, letter),
    )
    return bool(left)


def tried(tx: Transaction, letter: int, tries: int) -> None:
    """Sending its next piece has failed so often."""
    tx.execute("UPDATE outbox SET tries = ? WHERE id = ?", (tries, letter))


def sent(tx: Transaction, letter: int, now: int) -> None:
    """All of it has been sent; its words are in the transcript, so they need not stay here."""
    tx.execute(
        "UPDATE outbox SET state = 'sent', text = '', extra = '', again = 0, done_at = ? "
        "WHERE id = ?",
        (now, letter),
    )


MAX_UNREACHED = 100  # texts kept for an address that cannot be reached
MAX_LATE = 10  # of them that are sent once it can be


def park(tx: Transaction, letter: int, error: str, now: int, again: int) -> None:
    """Take it out of its place in the order; it is kept, and `/status` counts it.

    It is tried again never, `LATER` at leisure, or once somebody can be `REACHED` there.
    """
    tx.execute(
        "UPDATE outbox SET state = 'parked', again = ?, error = ?, done_at = ? "
        "WHERE id = ? AND state <> 'sent'",  # it may have been withdrawn meanwhile
        (again, error, now, letter),
    )


def unreached(tx: Transaction, address: Address) -> list[Letter]:
    """The texts kept until somebody can be reached at an address, in order."""
    here = f"{HERE} AND state = 'parked' AND again = {REACHED}"
    return LETTERS.where(tx, here, *place(address), order="id")


def reached(tx: Transaction, address: Address) -> list[Letter]:
    """Send the newest of what waited for that; the rest is kept as never to be sent."""
    found = unreached(tx, address)
    for letter in found:
        tx.execute("UPDATE outbox SET again = ? WHERE id = ?", (NEVER, letter.id))
    sent_now = found[-MAX_LATE:]
    for letter in sent_now:
        tx.execute("UPDATE outbox SET state = 'waiting', tries = 0 WHERE id = ?", (letter.id,))
    return [replace(letter, state="waiting", tries=0) for letter in sent_now]


def drop(tx: Transaction, letter: int, now: int) -> None:
    """Send nothing more of a text. Its row stays: its number must not become another text's.

    Whoever is about to send it knows it by its number, and would take the other for it.
    """
    sent(tx, letter, now)


def withdraw(tx: Transaction, keys: Sequence[str], words: str, now: int) -> int:
    """Send nothing of some keys' conversations any more that holds these words; how many.

    What was sent, its row does not have any more.
    """
    wanted = fulltext.folded(words)
    rows = tx.execute(
        "SELECT id, text, extra FROM outbox WHERE state IN ('waiting', 'parked') AND EXISTS "
        "(SELECT 1 FROM sessions WHERE sessions.channel = outbox.channel "
        "AND sessions.account = outbox.account AND sessions.chat = outbox.chat "
        f"AND sessions.thread = outbox.thread AND key IN ({marks(keys)}))",
        tuple(keys),
    )
    held = [
        letter
        for letter, text, extra in rows
        if wanted and any(wanted in fulltext.folded(each) for each in (text, _beside(extra)))
    ]
    for letter in held:
        drop(tx, letter, now)
    return len(held)


def withdraw_of(
    tx: Transaction, session_id: str, now: int, *, where: Literal["all", "unseen"] = "all"
) -> None:
    """Send nothing more of what a conversation has in its transcript, or has there out of sight."""
    unseen = "" if where == "all" else "AND entries.seq IN (SELECT seq FROM unseen)"
    rows = tx.execute(
        "SELECT outbox.id FROM outbox JOIN entries ON entries.id = outbox.entry "
        f"WHERE outbox.state IN ('waiting', 'parked') AND session_id = ? {unseen}",
        (session_id,),
    )
    for (letter,) in rows:
        drop(tx, letter, now)


def withdraw_all(tx: Transaction, address: Address, now: int) -> int:
    """Send nothing more of what was said to whoever is at an address; how many texts.

    What is not noted in their conversation, such as a code for whoever asks to be let in, is sent.
    """
    noted = f"{HERE} AND state IN ('waiting', 'parked') AND (kind <> 'notice' OR entry <> '')"
    found = LETTERS.where(tx, noted, *place(address))
    for letter in found:
        drop(tx, letter.id, now)
    return len(found)


def words_of(file: Attachment) -> str:
    """The name of a file and, of one that is text, what it says."""
    is_text = file.mime.startswith("text/")
    return f"{file.name}\n{file.data.decode(errors='replace') if is_text else ''}"


def _beside(extra: str) -> str:
    """The words that come with a text: those to say aloud, and files; all of what is unreadable."""
    found = _from_json(extra)
    words = "\n".join((found.aloud, *map(words_of, found.attachments)))
    return extra if found == UNREADABLE else words


def is_there(tx: Transaction, letter: int) -> bool:
    """False for a text that was sent, withdrawn or dropped."""
    return LETTERS.count(tx, "id = ? AND state <> 'sent'", letter) > 0


def to_try_again(tx: Transaction, limit: int) -> list[Letter]:
    """Parked texts that may still get through: those that were tried least, oldest first."""
    return LETTERS.where(tx, _LATER, limit, order="tries, id LIMIT ?")


def waiting_again(tx: Transaction) -> int:
    """The number of parked texts that are tried again later."""
    return LETTERS.count(tx, _LATER)


def parked_by_channel(tx: Transaction) -> list[tuple[str, bool, int]]:
    """Parked texts, counted: their channel, whether they are tried again, and how many."""
    rows = tx.execute(
        f"SELECT channel, again <> {NEVER} AS is_kept, count(*) FROM outbox "
        "WHERE state = 'parked' GROUP BY channel, is_kept ORDER BY channel, is_kept"
    )
    return [(channel, bool(is_kept), count) for channel, is_kept, count in rows]


def backlogs(tx: Transaction) -> dict[tuple[str, str], Backlog]:
    """The unsent texts, counted by channel and account."""
    rows = tx.execute(
        "SELECT channel, account, 'waiting', count(*) FROM outbox WHERE state = 'waiting' "
        "GROUP BY channel, account UNION ALL "
        f"SELECT channel, account, CASE again WHEN {NEVER} THEN 'refused' ELSE 'again' END "
        "AS name, count(*) FROM outbox WHERE state = 'parked' GROUP BY channel, account, name"
    )
    found: dict[tuple[str, str], Backlog] = {}
    for channel, account, name, count in rows:
        found[channel, account] = replace(
            found.get((channel, account), Backlog()), **{name: int(count)}
        )
    return found


def move_parked(tx: Transaction, letter: int, chat: str) -> None:
    """Send a parked text to another chat the next time it is tried."""
    tx.execute("UPDATE outbox SET chat = ? WHERE id = ?", (chat, letter))


def move(tx: Transaction, address: Address, chat: str) -> int:
    """Send everything that waits for an address to another chat; how much there was."""
    return len(
        tx.execute(
            f"UPDATE outbox SET chat = ? WHERE {HERE} AND state = 'waiting' RETURNING id",
            (chat, *place(address)),
        )
    )


def parked(tx: Transaction, address: Address) -> int:
    """The number of texts that could never be sent to an address."""
    return LETTERS.count(tx, f"{HERE} AND state = 'parked'", *place(address))


def prune(tx: Transaction, before: int) -> None:
    """Drop what was sent, or given up for good, before a moment."""
    tx.execute(
        "DELETE FROM outbox WHERE state <> 'waiting' AND again = 0 AND done_at < ?", (before,)
    )
