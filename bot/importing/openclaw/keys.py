"""Whose a session of OpenClaw is, from its key. Pure.

In doubt it is nobody's: then it is named, and not brought.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bot.channel import DEFAULT_ACCOUNT
from bot.identity import MessageOrigin, PolicySnapshot, routing
from bot.importing.storing import Owner

# What it did by itself, in which nobody was talked with.
_WORK: Final = frozenset({"cron", "hook", "subagent", "acp", "heartbeat", "dreaming", "node"})
_DIRECT: Final = frozenset({"direct", "dm"})
_ROOMS: Final = frozenset({"group", "channel", "room"})
_HERE: Final = frozenset({"webchat", "web", "tui", "cli", "dashboard"})  # the owner's own places
_OTHER_NAMES: Final = {"nextcloud-talk": "nextcloud_talk", "nextcloudtalk": "nextcloud_talk"}


@dataclass(frozen=True, slots=True)
class Key:
    """A session key taken apart: a peer of a channel, a room, work, or the main session.

    `kind` is the chat type of a room, "group" or "channel".
    """

    channel: str = ""
    account: str = DEFAULT_ACCOUNT
    peer: str = ""
    room: str = ""
    kind: str = "group"
    thread: str = ""
    is_work: bool = False
    is_unclear: bool = False


def parse(key: str) -> Key:
    """Take a key apart."""
    parts = key.strip().lower().split(":")
    if parts[0] == "agent" and len(parts) > 2:
        parts = parts[2:]
    elif parts != ["main"] and parts[0] not in _WORK:
        return Key(is_unclear=True)  # of a time when keys named no channel
    if parts[0] in _WORK:
        return Key(is_work=True)
    if parts[0] in _DIRECT:
        return Key(is_unclear=True)  # an id, but not on which platform
    for at, part in enumerate(parts[1:3], start=1):
        if part in _DIRECT | _ROOMS and len(parts) > at + 1:
            return _chat(parts, at)
    return Key()


def _chat(parts: list[str], at: int) -> Key:
    """A key that names a chat of a channel, its kind at a place of it."""
    channel = channel_of(parts[0])
    account = parts[1] if at == 2 else DEFAULT_ACCOUNT
    rest, thread = parts[at + 1 :], ""
    for name in ("topic", "thread"):
        if name in rest[1:]:
            where = rest.index(name, 1)
            rest, thread = rest[:where], ":".join(rest[where + 1 :])
    id_ = ":".join(rest)
    if parts[at] in _DIRECT:
        return Key() if channel in _HERE else Key(channel, account, peer=id_)
    kind = "channel" if parts[at] == "channel" else "group"
    return Key(channel, account, room=id_, kind=kind, thread=thread)


def channel_of(name: str) -> str:
    """What a channel is called here."""
    return _OTHER_NAMES.get(name.lower(), name.lower())


def owner_of(key: Key, snapshot: PolicySnapshot) -> Owner | None:
    """Whose a session is; None for what is nobody's."""
    if key.is_work or key.is_unclear:
        return None
    if key.peer:
        return Owner(snapshot.person_of((key.channel, key.peer)).identity)
    if key.room:
        origin = MessageOrigin(key.channel, key.account, key.room, key.kind, "", key.thread)
        session = snapshot.policy.config.session
        person = routing.person_of(session, (key.channel, ""))
        return Owner(room=routing.session_key(session, origin, person))
    return Owner(routing.OWNER)
