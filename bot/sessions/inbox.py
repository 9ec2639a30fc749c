"""The inbox table: what people said, until its turn is committed. Functions over a transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import orjson

from bot.channel import Address, Inbound
from bot.identity import Conversation
from bot.storage import Row, Transaction, marks, scalar, scalars
from bot.storage.records import HERE, from_json, place, read_alone
from bot.unicode import well_formed

UNREADABLE = 1_000_000  # tries of a row that is no message any more: there is no use in another


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A stored message that has no answer yet, bound to the session it was said in.

    `conversation` is what was known of it when it was received, or read back. `tries` counts the
    turns that failed because of it, `deaths` the ends of the program while its turn was prepared.
    """

    id: int
    key: str
    session_id: str
    inbound: Inbound
    conversation: Conversation
    tries: int = 0
    deaths: int = 0

    @property
    def is_suspect(self) -> bool:
        """True when its turn failed or ended the program before."""
        return self.tries > 0 or self.deaths > 0

    @property
    def is_readable(self) -> bool:
        """False for one that is no message any more."""
        return self.tries < UNREADABLE


@dataclass(frozen=True, slots=True)
class SetAside:
    """A message whose turn failed every time; `at` is when it came, `error` the last failure."""

    channel: str
    at: int
    error: str


def storable(inbound: Inbound) -> tuple[Inbound, str]:
    """The message as it can be stored, and the JSON that is."""
    try:
        return inbound, orjson.dumps(inbound).decode()
    except TypeError:
        body = well_formed(json.dumps(asdict(inbound), ensure_ascii=False))
        return revived(body), body


def store(
    tx: Transaction, inbound: Inbound, body: str, key: str, now: int, *, is_command: bool = False
) -> int | None:
    """Store a message; None when a copy of it is there already. `body` is its `storable` JSON.

    A command is being answered already; no lane takes it up unless the program is started again.
    """
    state, node = ("command", tx.node) if is_command else ("waiting", "")
    return scalar(
        tx,
        "INSERT INTO inbox(channel, account, chat, thread, message_id, state, key, body, "
        "received_at, node) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT(channel, account, chat, thread, message_id) DO NOTHING RETURNING id",
        *(inbound.channel, inbound.account, inbound.chat, inbound.thread, inbound.message_id),
        *(state, key, body, now, node),
    )


def bind(tx: Transaction, row: int, session_id: str, inbound: Inbound | None = None) -> None:
    """Say which session a message belongs to; with `inbound`, what is left of it for a lane."""
    if inbound is None:
        tx.execute("UPDATE inbox SET session_id = ? WHERE id = ?", (session_id, row))
    else:
        tx.execute(
            "UPDATE inbox SET session_id = ?, body = ?, state = 'waiting' WHERE id = ?",
            (session_id, orjson.dumps(inbound).decode(), row),
        )


def heard(tx: Transaction, row: int, inbound: Inbound) -> None:
    """Keep what was understood of a message that waits, so that nobody has to listen again."""
    tx.execute("UPDATE inbox SET body = ? WHERE id = ?", (storable(inbound)[1], row))


def rehome(tx: Transaction, row: int, key: str, session_id: str) -> None:
    """Let a message that waits be answered in another conversation."""
    tx.execute("UPDATE inbox SET key = ?, session_id = ? WHERE id = ?", (key, session_id, row))


def reclaim(tx: Transaction) -> int:
    """Let lanes take up the commands that were being answered when the program ended.

    Returns the id of the newest message there is.
    """
    tx.execute("UPDATE inbox SET state = 'waiting' WHERE state = 'command'")
    return scalar(tx, "SELECT coalesce(max(id), 0) FROM inbox")


def reclaim_of(tx: Transaction, node: str) -> list[str]:
    """Let lanes take up the commands that a node was answering which is gone: their keys."""
    commands = "state = 'command' AND node = ?"
    return scalars(tx, f"UPDATE inbox SET state = 'waiting' WHERE {commands} RETURNING key", node)


def hand_over(tx: Transaction, row: int) -> bool:
    """Let a lane take up one command; False when that was done, or it is answered."""
    command = "id = ? AND state = 'command'"
    return bool(
        tx.execute(f"UPDATE inbox SET state = 'waiting' WHERE {command} RETURNING id", (row,))
    )


def endanger_first(tx: Transaction, key: str) -> None:
    """A program has ended, or was given up, while it answered a key's first message."""
    tx.execute(
        "UPDATE inbox SET deaths = deaths + 1 WHERE id = "
        "(SELECT min(id) FROM inbox WHERE key = ? AND state = 'waiting')",
        (key,),
    )


def tried(tx: Transaction, row: int) -> int:
    """A turn failed because of this message; how many did by now."""
    return scalar(tx, "UPDATE inbox SET tries = tries + 1 WHERE id = ? RETURNING tries", row) or 0


def endanger(tx: Transaction, rows: Sequence[int]) -> None:
    """Count, before it happens, that the program ends while these messages' turn is prepared."""
    for row in rows:
        tx.execute("UPDATE inbox SET deaths = deaths + 1 WHERE id = ?", (row,))


def clear(tx: Transaction, rows: Sequence[int]) -> None:
    """These messages' turn was prepared to its end: none of them ended the program."""
    for row in rows:
        tx.execute("UPDATE inbox SET deaths = 0 WHERE id = ?", (row,))


def set_aside(tx: Transaction, row: int, error: str, now: int) -> int:
    """Give up a message, keeping that it came and by what its turn failed; when it came."""
    return scalar(
        tx,
        "UPDATE inbox SET state = 'aside', body = '', error = ?, done_at = ? WHERE id = ? "
        "RETURNING received_at",
        *(error, now, row),
    )


def aside(tx: Transaction, since: int) -> list[SetAside]:
    """The messages that were set aside from a moment on, oldest first."""
    rows = tx.execute(
        "SELECT channel, received_at, error FROM inbox WHERE state = 'aside' AND done_at >= ? "
        "ORDER BY done_at, id",
        (since,),
    )
    return [SetAside(*row) for row in rows]


def done(tx: Transaction, rows: Sequence[int], now: int, failed: str = "") -> None:
    """These messages have their answer; their words are in the transcript.

    It tells that there is none when the turn `failed` by an error of this name, or was "stopped".
    """
    for row in rows:
        tx.execute(
            "UPDATE inbox SET state = 'done', body = '', done_at = ?, error = ? WHERE id = ?",
            (now, failed, row),
        )


def refuse(
    tx: Transaction, row: int, now: int, why: Literal["unpaired", "denied", "silenced"]
) -> None:
    """This message is not for us; only that it came, and why it is not, is kept."""
    tx.execute(
        "UPDATE inbox SET state = 'refused', body = '', done_at = ?, error = ? WHERE id = ?",
        (now, why, row),
    )


def withdraw(tx: Transaction, address: Address, message_id: str, now: int) -> bool:
    """Let a message not be answered, as whoever sent it wishes; True when it is not.

    The first of its key is, as its turn may have begun. Nothing of the others is kept.
    """
    this = f"{HERE} AND message_id = ?"
    values = (*place(address), message_id)
    first = "SELECT min(id) FROM inbox AS others WHERE key = inbox.key AND state = 'waiting'"
    tx.execute(
        "UPDATE inbox SET state = 'refused', body = '', done_at = ?, error = 'withdrawn' "
        f"WHERE {this} AND state = 'waiting' AND id > ({first})",
        (now, *values),
    )
    return bool(tx.execute(f"SELECT 1 FROM inbox WHERE {this} AND error = 'withdrawn'", values))


def dismiss(tx: Transaction, row: QueuedMessage, now: int) -> None:
    """Refuse a message that waits, as whoever sent it is not served any more."""
    refuse(tx, row.id, now, "silenced" if row.conversation.is_admitted else "denied")


def waiting(
    tx: Transaction, key: str, limit: int, resolve: Callable[[Inbound], Conversation]
) -> list[QueuedMessage]:
    """A key's messages that have no answer yet, in order."""
    rows = tx.execute(
        "SELECT id, key, session_id, tries, deaths, body, channel, account, chat, thread, "
        "message_id FROM inbox WHERE key = ? AND state = 'waiting' "
        "ORDER BY id LIMIT ?",
        (key, limit),
    )
    return [_queued(row, resolve) for row in rows]


def is_waiting(tx: Transaction, row: int) -> bool:
    """True while a message has no answer."""
    return bool(still_waiting(tx, [row]))


def still_waiting(tx: Transaction, rows: Sequence[int]) -> set[int]:
    """Those of some messages that have no answer and are to get one."""
    among = f"id IN ({marks(rows)}) AND state = 'waiting'"
    return set(scalars(tx, f"SELECT id FROM inbox WHERE {among}", *rows))


def waiting_count(tx: Transaction, key: str) -> int:
    """The number of messages of a key without an answer yet."""
    return scalar(tx, "SELECT count(*) FROM inbox WHERE key = ? AND state = 'waiting'", key)


def waiting_keys(tx: Transaction) -> list[str]:
    """Every key with a message that has no answer yet."""
    return scalars(tx, "SELECT DISTINCT key FROM inbox WHERE state = 'waiting'")


def held_by(tx: Transaction, keys: Sequence[str]) -> list[tuple[int, str, str]]:
    """The waiting messages in some keys' conversations: number, session and stored JSON."""
    waiting = f"key IN ({marks(keys)}) AND state = 'waiting'"
    return tx.execute(f"SELECT id, session_id, body FROM inbox WHERE {waiting} ORDER BY id", keys)


def last_seen(tx: Transaction, channel: str, account: str) -> dict[str, str]:
    """The newest message id of each chat of an account; what people pressed is none."""
    rows = tx.execute(
        "SELECT chat, message_id FROM inbox WHERE id IN (SELECT max(id) FROM inbox "
        "WHERE channel = ? AND account = ? AND message_id NOT LIKE 'press-%' GROUP BY chat)",
        (channel, account),
    )
    return dict(rows)


def last_received(tx: Transaction) -> dict[tuple[str, str], int]:
    """The time each account of each channel last received something (ms), within some weeks."""
    rows = tx.execute(
        "SELECT channel, account, max(received_at) FROM inbox GROUP BY channel, account"
    )
    return {(channel, account): int(at) for channel, account, at in rows}


def prune(tx: Transaction, before: int) -> None:
    """Forget that messages came before a moment; platforms do not offer them again so late."""
    tx.execute("DELETE FROM inbox WHERE state <> 'waiting' AND done_at < ?", (before,))


def revived(body: str | bytes) -> Inbound:
    """The message of its stored JSON; fields a newer version added are left out."""
    return from_json(Inbound, body)


def read_back(row: int, body: str) -> Inbound | None:
    """The message of its stored JSON; None when it is damaged, or another version's."""
    return read_alone("inbox", str(row), revived, body)


def _queued(row: Row, resolve: Callable[[Inbound], Conversation]) -> QueuedMessage:
    id_, key, session_id, tries, deaths, body, channel, account, chat, thread, message_id = row
    inbound = read_back(id_, body)
    if inbound is None:
        kind = "group"  # so that nothing private is said there
        inbound = Inbound(channel, account, chat, kind, "", message_id, "", 0, thread=thread)
        tries = UNREADABLE
    return QueuedMessage(id_, key, session_id or "", inbound, resolve(inbound), tries, deaths)


# --- counted --------------------------------------------------------------------------------------


# Those that were for the bot and are done with, by when that was: `inbox_done` finds them.
_THEN = "state <> 'waiting' AND done_at >= ? AND done_at < ?"


@dataclass(frozen=True, slots=True)
class Traffic:
    """The messages of some time, by channel, and how long answers took, in ms.

    `middle` is the median and `slow` what nine of ten answers stayed within, from the moment a
    message was stored to the one its answer was; None where nothing was answered.
    """

    channels: Mapping[str, int]
    middle: int | None
    slow: int | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """Counts of what waits: messages for an answer, texts to be sent, reminders for their time."""

    messages: int
    texts: int
    unsent: int
    reminders: int


def traffic(tx: Transaction, start: int, end: int) -> Traffic:
    """The traffic from `start` to, not including, `end` (ms since the epoch)."""
    channels = tx.execute(
        f"SELECT channel, count(*) FROM inbox WHERE {_THEN} "
        "AND state IN ('done', 'aside') GROUP BY channel ORDER BY channel",
        (start, end),
    )
    spans = scalars(
        tx,
        "SELECT span FROM (SELECT done_at - received_at AS span, "
        "row_number() OVER (ORDER BY done_at - received_at) AS place, count(*) OVER () AS of_all "
        f"FROM inbox WHERE {_THEN} AND state = 'done') AS ended "
        "WHERE place = (of_all + 1) / 2 OR place = (9 * of_all + 9) / 10 ORDER BY place",
        *(start, end),
    )
    middle, slow = (spans[0], spans[-1]) if spans else (None, None)
    return Traffic(dict(channels), middle, slow)


def backlog(tx: Transaction) -> Backlog:
    """The counts of what waits now."""
    counts = [
        scalar(tx, f"SELECT count(*) FROM {where}")
        for where in (
            "inbox WHERE state = 'waiting'",
            "outbox WHERE state = 'waiting'",
            "outbox WHERE state = 'parked' AND again = 1",
            "reminders WHERE state = 'waiting'",
            "repeats WHERE state = 'waiting'",
        )
    ]
    return Backlog(counts[0], counts[1], counts[2], counts[3] + counts[4])
