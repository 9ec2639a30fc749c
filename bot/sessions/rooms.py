"""Facts about rooms beside their conversations: plain functions over one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.identity import Activation, ChatRef, MessageOrigin
from bot.storage import Transaction, upsert

# Where a task of a room is carried out is no room.
_ROOMS = (
    "FROM conversations c JOIN sessions s ON s.id = c.session_id "
    "WHERE s.chat_type <> 'direct' AND s.started_by <> 'task'"
)


@dataclass(frozen=True, slots=True)
class Room:
    """A room by its session key; `origin` is where somebody last spoke to the bot, at `last_at`."""

    key: str
    last_at: int
    origin: MessageOrigin


def activations(tx: Transaction, limit: int) -> dict[str, Activation]:
    """The choices made for rooms, by session key; the newest `limit` of them."""
    rows = tx.execute(
        "SELECT key, activation FROM rooms WHERE activation <> '' "
        "ORDER BY changed_at DESC, key LIMIT ?",
        (limit,),
    )
    return dict(rows)


def activate(tx: Transaction, key: str, activation: Activation, now: int) -> None:
    """Choose when the bot answers in a room."""
    tx.execute(
        "INSERT INTO rooms(key, activation, warned_at, changed_at) VALUES (?, ?, 0, ?) "
        "ON CONFLICT(key) DO UPDATE SET activation = excluded.activation, "
        "changed_at = excluded.changed_at",
        (key, activation, now),
    )
    tx.publish("books")


def latest(tx: Transaction, limit: int) -> list[Room]:
    """The rooms that have a conversation, those that were talked in last first."""
    rows = tx.execute(
        "SELECT s.key, s.last_user_at, s.channel, s.account, s.chat, s.chat_type, s.sender, "
        f"s.thread, s.parent, s.server, s.locale {_ROOMS} ORDER BY s.last_user_at DESC, s.key "
        "LIMIT ?",
        (limit,),
    )
    return [Room(key, last_at, MessageOrigin(*origin)) for key, last_at, *origin in rows]


def chats(tx: Transaction) -> set[tuple[str, str]]:
    """The channel and id of every chat that somebody has written in, also those it had before."""
    rows = tx.execute(
        "SELECT channel, chat FROM sessions UNION SELECT channel, chat FROM moved_chats"
    )
    return {(channel, chat) for channel, chat in rows}


def is_known(tx: Transaction, key: str) -> bool:
    """True when a session key is that of a room with a conversation."""
    return bool(tx.execute(f"SELECT 1 {_ROOMS} AND s.key = ?", (key,)))


def warn(tx: Transaction, key: str, now: int, every: int) -> bool:
    """True if a room may be told now that it is none of ours; then not again for `every` ms."""
    # A time from further ahead was noted by a clock that was wrong.
    rows = tx.execute(
        "INSERT INTO rooms(key, activation, warned_at, changed_at) VALUES (?, '', ?, ?) "
        "ON CONFLICT(key) DO UPDATE SET warned_at = excluded.warned_at "
        "WHERE abs(rooms.warned_at - excluded.warned_at) >= ? RETURNING key",
        (key, now, now, every),
    )
    return bool(rows)


def decline(tx: Transaction, key: str, room: MessageOrigin) -> None:
    """Note where a room is that was warned, so that the owner can let it in."""
    tx.execute(
        "UPDATE rooms SET channel = ?, account = ?, chat = ?, chat_type = ? WHERE key = ?",
        (room.channel, room.account, room.chat, room.chat_type, key),
    )


def declined(tx: Transaction, limit: int) -> list[Room]:
    """The rooms that were declined, the latest first, and those let in since."""
    rows = tx.execute(
        "SELECT key, warned_at, channel, account, chat, chat_type FROM rooms "
        "WHERE channel <> '' ORDER BY warned_at DESC, key LIMIT ?",
        (limit,),
    )
    return [Room(key, at, MessageOrigin(*where, sender="")) for key, at, *where in rows]


def admit(tx: Transaction, key: str, now: int, *, is_admitted: bool) -> bool:
    """Let the bot answer in a room that was declined, or no more; False for one nobody knows."""
    rows = tx.execute(
        "UPDATE rooms SET admitted_at = ?, changed_at = ? WHERE key = ? AND channel <> '' "
        "RETURNING key",
        (now if is_admitted else 0, now, key),
    )
    tx.publish("books")
    return bool(rows)


def admitted(tx: Transaction) -> frozenset[ChatRef]:
    """The rooms that the owner let the bot answer in, by their first ids."""
    rows = tx.execute("SELECT channel, account, chat FROM rooms WHERE admitted_at > 0")
    return frozenset((channel, account, chat) for channel, account, chat in rows)


def prune(tx: Transaction, before: int) -> None:
    """Forget the rooms nothing was chosen for and that were warned before a moment."""
    tx.execute(
        "DELETE FROM rooms WHERE activation = '' AND admitted_at = 0 AND warned_at < ?", (before,)
    )


def moved(tx: Transaction) -> Mapping[ChatRef, str]:
    """The first id of every chat that has another one now."""
    rows = tx.execute("SELECT channel, account, chat, first FROM moved_chats")
    return {(channel, account, chat): first for channel, account, chat, first in rows}


def move(tx: Transaction, chat_ref: ChatRef, first: str, now: int) -> None:
    """Note that a chat is the one that was called `first`; nothing to note if it still is."""
    if chat_ref[2] == first:
        gone = tx.execute(
            "DELETE FROM moved_chats WHERE channel = ? AND account = ? AND chat = ? RETURNING chat",
            chat_ref,
        )
        if gone:
            tx.publish("books")
        return
    channel, account, chat = chat_ref
    row = {"channel": channel, "account": account, "chat": chat, "first": first}
    upsert(tx, "moved_chats", **row, moved_at=now)
    tx.publish("books")
