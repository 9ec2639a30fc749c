"""Places that a bot is in: kinds of channels, their parents, roles, names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cachetools import LRUCache

from adapters.discord.api import identity, moment
from bot.channel import ChatType
from bot.channel.kit.json_access import Json, child, children, integer, label, text

MAX_UNLISTED = 10_000  # direct chats and channels learnt one by one

DM, GROUP_DM = 1, 3
_THREADS = frozenset({10, 11, 12})  # of news, public, private; a forum's posts are public ones
# Where people write: a forum's or gallery's newest "message" is its newest post, and a post is a
# thread that is listed itself.
_WRITTEN_IN = frozenset({0, 2, 5, 13}) | _THREADS

ADMINISTRATOR = 1 << 3
MANAGE_GUILD = 1 << 5

DESCRIBED: Final = "GUILD_CREATE"
EVENTS: Final = (
    DESCRIBED,
    "GUILD_UPDATE",
    "GUILD_DELETE",
    "GUILD_ROLE_CREATE",
    "GUILD_ROLE_UPDATE",
    "GUILD_ROLE_DELETE",
    "CHANNEL_CREATE",
    "CHANNEL_UPDATE",
    "CHANNEL_DELETE",
    "THREAD_CREATE",
    "THREAD_UPDATE",
    "THREAD_DELETE",
    "THREAD_LIST_SYNC",
)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a message."""

    kind: ChatType
    parent: str = ""
    server: str = ""


@dataclass(frozen=True, slots=True)
class Room:
    """A place, and what its server calls things; `ours` are the roles that stand for the bot."""

    place: Place
    ours: frozenset[str] = frozenset()
    roles: Mapping[str, str] = field(default_factory=dict[str, str])
    channels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class _Guild:
    owner: str = ""
    joined: int = 0  # ms since the epoch
    roles: dict[str, str] = field(default_factory=dict[str, str])  # names by id
    powers: dict[str, int] = field(default_factory=dict[str, int])  # permissions by id
    ours: set[str] = field(default_factory=set[str])
    names: dict[str, str] = field(default_factory=dict[str, str])  # of channels
    places: dict[str, Place] = field(default_factory=dict[str, Place])
    newest: dict[str, int] = field(default_factory=dict[str, int])  # messages, by channel


def place_of(channel: Json, server: str = "") -> Place:
    """The place of a described channel; an unknown kind is a group, never a direct chat."""
    kind = integer(channel, "type")
    server = identity(channel, "guild_id") or server
    if kind == DM and not server:
        return Place("direct")
    if not server:
        return Place("group")
    # A channel's parent is its category, which is no chat.
    parent = identity(channel, "parent_id") if kind in _THREADS else ""
    return Place("thread" if kind in _THREADS else "channel", parent, server)


class Places:
    """Kept up to date by the gateway's events; everything else is learnt when it is met.

    It has many methods because servers, roles, channels and threads come and go each in its way.
    """

    def __init__(self) -> None:
        self.me = ""  # the bot's own id
        self.described = asyncio.Event()  # set while every server of the session is
        self._guilds: dict[str, _Guild] = {}
        self._servers: dict[str, str] = {}  # of channels, by id
        self._unlisted: LRUCache[str, Place] = LRUCache(MAX_UNLISTED)
        self._missing: set[str] = set()  # servers that are yet to be described

    def connected(self, ready: Json) -> None:
        """A new session begins: its servers are described next."""
        self._missing = {identity(guild, "id") for guild in children(ready, "guilds")} - {""}
        self.described.clear()
        self._know("")

    def forget(self) -> None:
        """Know nothing: from now on nobody tells what changes."""
        self._guilds.clear()
        self._servers.clear()
        self._unlisted.clear()

    def hear(self, event: str, data: Json) -> None:
        """One of `EVENTS`."""
        server = identity(data, "guild_id") or identity(data, "id")
        if event == DESCRIBED:
            self._describe(server, data)
        elif event == "GUILD_DELETE":
            self._know(server)
            if data.get("unavailable") is not True:
                self._forget(server)
        elif event == "GUILD_UPDATE":
            self._outline(self._guilds.setdefault(server, _Guild()), data)
        elif event == "GUILD_ROLE_DELETE":
            self._drop_role(server, identity(data, "role_id"))
        elif event.startswith("GUILD_ROLE"):
            self._role(self._guilds.setdefault(server, _Guild()), child(data, "role"))
        elif event == "THREAD_LIST_SYNC":
            for thread in children(data, "threads"):
                self.learn(thread, server)
        elif event.endswith("_DELETE"):
            self._drop(identity(data, "id"))
        else:
            self.learn(data)

    def learn(self, channel: Json, server: str = "") -> Place:
        """A channel's description, from wherever it came."""
        place, number = place_of(channel, server), identity(channel, "id")
        if not number:
            return place
        guild = self._guilds.get(place.server)
        if guild is None:
            self._unlisted[number] = place
            return place
        self._unlisted.pop(number, None)
        self._servers[number] = place.server
        guild.places[number] = place
        guild.names[number] = label(text(channel, "name"))
        newest = identity(channel, "last_message_id")
        if newest and integer(channel, "type") in _WRITTEN_IN:
            guild.newest[number] = int(newest)
        return place

    def keep(self, chat: str, place: Place) -> None:
        """Remember the place of an event that names it, unless it is known."""
        if self.place(chat) is None:
            self._unlisted[chat] = place

    def place(self, chat: str) -> Place | None:
        """The place of a chat; None if it is not known yet."""
        guild = self._guilds.get(self._servers.get(chat, ""))
        if guild is not None:
            return guild.places.get(chat)
        return self._unlisted.get(chat)

    def newest(self, server: str = "") -> dict[str, int]:
        """The newest message of each listed channel and thread, of one server or of all.

        It is as of when Discord described them; the message itself may be gone.
        """
        guilds = [self._guild(server)] if server else self._guilds.values()
        return {chat: newest for guild in guilds for chat, newest in guild.newest.items()}

    def joined(self, server: str) -> int:
        """The time the bot came to a server, in ms since the epoch; 0 if it is not known."""
        return self._guild(server).joined

    def room(self, place: Place) -> Room:
        """A place with what its server calls things."""
        guild = self._guild(place.server)
        return Room(place, frozenset(guild.ours), guild.roles, guild.names)

    def powers(self, server: str, person: str, roles: list[str]) -> int:
        """A person's permissions in a whole server, by their roles."""
        guild = self._guild(server)
        if guild.owner == person:
            return ADMINISTRATOR
        found = guild.powers.get(server, 0)  # everyone's role has the server's own id
        for role in roles:
            found |= guild.powers.get(role, 0)
        return found

    def _guild(self, server: str) -> _Guild:
        """The known facts of a server; none if it was not described."""
        return self._guilds.get(server) or _Guild()

    def _know(self, server: str) -> None:
        self._missing.discard(server)
        if not self._missing:
            self.described.set()

    def _describe(self, server: str, data: Json) -> None:
        self._know(server)
        if not server or data.get("unavailable") is True:
            return
        self._forget(server)
        self._outline(self._guilds.setdefault(server, _Guild()), data)
        for channel in (*children(data, "channels"), *children(data, "threads")):
            self.learn(channel, server)

    def _outline(self, guild: _Guild, data: Json) -> None:
        guild.owner = identity(data, "owner_id") or guild.owner
        guild.joined = moment(text(data, "joined_at")) or guild.joined
        if isinstance(data.get("roles"), list):
            guild.roles.clear()
            guild.powers.clear()
            guild.ours.clear()
        for role in children(data, "roles"):
            self._role(guild, role)

    def _role(self, guild: _Guild, role: Json) -> None:
        number = identity(role, "id")
        if not number:
            return
        guild.roles[number] = label(text(role, "name"))
        powers = text(role, "permissions")
        guild.powers[number] = int(powers) if powers.isascii() and powers.isdecimal() else 0
        # The role Discord made for this bot; mentioning it is how many people mention a bot.
        if self.me and identity(child(role, "tags"), "bot_id") == self.me:
            guild.ours.add(number)

    def _drop_role(self, server: str, role: str) -> None:
        guild = self._guild(server)
        guild.roles.pop(role, None)
        guild.powers.pop(role, None)
        guild.ours.discard(role)

    def _drop(self, chat: str) -> None:
        guild = self._guild(self._servers.pop(chat, ""))
        guild.places.pop(chat, None)
        guild.names.pop(chat, None)
        guild.newest.pop(chat, None)
        self._unlisted.pop(chat, None)

    def _forget(self, server: str) -> None:
        for chat in self._guilds.pop(server, _Guild()).places:
            self._servers.pop(chat, None)
