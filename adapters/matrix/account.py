"""One bot: what its homeserver brings it with each `/sync`, and what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import uuid4

import orjson
import structlog
from cachetools import LRUCache

from adapters.matrix import MatrixConfig
from adapters.matrix.api import Api, Refused, TokenRefused, escaped
from adapters.matrix.inbound import (
    CHANNEL,
    ENCRYPTED,
    MESSAGE,
    Identity,
    Room,
    location,
)
from adapters.matrix.keys import Keys, opened, sealed
from adapters.matrix.rooms import REMEMBERED, Rooms
from adapters.matrix.send import file_content, transaction, words_content
from bot.channel import (
    Address,
    Engine,
    Health,
    Media,
    Piece,
    reveal,
)
from bot.channel.kit import accounts
from bot.channel.kit.client import session
from bot.channel.kit.json_access import Json, child, integer, label, text, texts
from bot.channel.kit.supervisor import Stopped, Supervisor
from bot.errors import ChannelError, SendLater, SendRefused, SendTransient, SendUnreachable

ADMIN = 50  # the power level that may change a room
OLD_ROOMS = frozenset(map(str, range(1, 12)))  # versions in which creators have a power level
_WANTED: Json = {
    "presence": {"types": []},
    "account_data": {"types": ["m.direct"]},
    "room": {
        "account_data": {"types": []},
        "ephemeral": {"types": []},
        "state": {"lazy_load_members": True, "include_redundant_members": True},
        "timeline": {"limit": 50, "lazy_load_members": True},
    },
}
_FILTER = orjson.dumps(_WANTED).decode()

_log = structlog.get_logger()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pace:
    """Waits in seconds."""

    first: float = 2.0
    longest: float = 60.0
    rejected: float = 60.0  # before a token that was refused is tried again
    poll: float = 30.0
    settle: float = 15.0  # that a message waits for the first sync


class Account(accounts.Account):
    """One account of a homeserver."""

    def __init__(
        self, name: str, config: MatrixConfig, token: str, engine: Engine, pace: Pace
    ) -> None:
        supervisor = Supervisor(
            *(CHANNEL, name, engine),
            waiting="they stay on the homeserver",
            first=pace.first,
            longest=pace.longest,
        )
        calls = session(reveal(config.proxy))
        super().__init__(supervisor, calls)
        self._pace = pace
        self.api = Api(config.address, token, calls)
        self.rooms = Rooms(self.api, config, supervisor, self._keep, self._say)
        self._backoff = supervisor.backoff()
        self.me = Identity("")
        self._keys: Keys | None = None
        self._signs: LRUCache[tuple[str, str], str] = LRUCache(REMEMBERED)
        self.connected = asyncio.Event()

    @property
    def link(self) -> str:
        """The link at which people find the bot."""
        return f"https://matrix.to/#/{self.me.id}" if self.me.id else ""

    # --- listening -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Listen on one node at a time."""
        await self.supervisor.listen(self._serve, self._failed, end=self.connected.clear)

    def _failed(self, error: Exception) -> float | None:
        """Say why a connection ended; how long to wait in seconds."""
        if not isinstance(error, ChannelError):
            return None
        if isinstance(error, TokenRefused):
            delay, health = self._pace.rejected, Health.DOWN
        else:
            delay = error.seconds if isinstance(error, SendLater) else self._backoff.next()
            health = Health.DEGRADED
        why = "The homeserver asks to wait" if isinstance(error, SendLater) else str(error)
        _log.warning("matrix.connection.failed", account=self.name, error=why, retry_in=delay)
        self.supervisor.trouble("receiving", health, f"{why}. Trying again in {delay:g} s.")
        return delay

    async def _keep(self, name: str, value: str) -> None:
        keep = self.engine.keep
        await self.supervisor.insist("keep.failed", lambda: keep(CHANNEL, self.name, name, value))

    async def _serve(self) -> None:
        kept = self.engine.kept
        notes = await self.supervisor.insist("kept.failed", lambda: kept(CHANNEL, self.name))
        await self._begin(notes)
        since, poll, full = notes.get("since", ""), 0, "true"
        while True:
            query = {"timeout": str(poll), "full_state": full, "filter": _FILTER}
            query |= {"since": since} if since else {}
            patience = 2 * self._pace.poll + 30
            call = self.api.call("GET", "/sync", query=query, patience=patience)
            sync = await self.supervisor.unless_stopped(call)
            if not text(sync, "next_batch"):
                raise SendTransient("The homeserver answers with something else than a sync")
            if self._keys is not None:
                self._keys.hear(sync)
                await self._keys.flush()
            await self.rooms.take(sync, since)
            since, poll, full = text(sync, "next_batch"), int(self._pace.poll * 1000), "false"
            await self._keep("since", since)
            self._backoff.reset()
            self.connected.set()
            self.supervisor.well("receiving")
            if self._keys is not None:
                await self._keys.tidy()

    async def _begin(self, notes: Any) -> None:
        """Ask who the bot is, and take up what an earlier run left."""
        self.connected.clear()  # until it knows the rooms again
        who = await self.api.call("GET", "/account/whoami")
        me = Identity(text(who, "user_id"), text(who, "device_id"))
        shown = await self.api.asked(f"/profile{escaped(me.id)}/displayname")
        self.me = replace(me, name=label(text(shown, "displayname")))
        self._keys = Keys(self.api, self.me, notes, self._keep) if me.device else None
        if self._keys is not None:
            await self._keys.tidy()  # before it goes anywhere: people encrypt for known devices
            await self._keys.sign()
        await self.rooms.begin(self.me, self._keys, notes)
        key = self._keys.fingerprint if self._keys is not None else ""
        _log.info("matrix.connected", account=self.name, device=me.device, fingerprint=key)

    # --- saying ----------------------------------------------------------------------------------

    async def send(self, piece: Piece) -> str:
        """Send one message, or one file; see `Channel.send`."""
        try:
            async with asyncio.timeout(self._pace.settle):
                await self.connected.wait()
        except TimeoutError:
            raise SendTransient("Matrix is not connected") from None
        room = self.rooms.rooms.get(piece.address.chat)
        if room is None:
            raise SendUnreachable("the bot is not in this room")
        content = words_content(piece)
        if piece.attachments:
            content = file_content(piece, await self._upload(piece, room))
        return await self._told(self._say(piece.address.chat, content, transaction(piece.id)))

    async def _upload(self, piece: Piece, room: Room) -> Json:
        """The address of an uploaded file: as "url", or with its key as "file"."""
        file = piece.attachments[0]
        locked: Json = {}
        data = file.data
        if room.encrypted:
            data, locked = await asyncio.to_thread(sealed, data)
        path, mime = "/_matrix/media/v3/upload", "application/octet-stream" if locked else file.mime
        answer = await self._told(self.api.call("POST", path, data, mime=mime, patience=120.0))
        url = text(answer, "content_uri")
        return {"file": locked | {"url": url}} if locked else {"url": url}

    async def _say(self, room_id: str, content: Json, number: str) -> str:
        room, kind = self.rooms.rooms[room_id], MESSAGE
        if room.encrypted:
            if self._keys is None:
                raise SendRefused("this access token belongs to no device, which encryption needs")
            people = await self.rooms.people(room_id, room)
            content = await self._keys.encrypt(room_id, MESSAGE, content, people)
            kind = ENCRYPTED
        path = f"/rooms{escaped(room_id)}/send{escaped(kind, number)}"
        return text(await self.api.call("PUT", path, content), "event_id")

    async def _told(self, work: Awaitable[T]) -> T:
        """The result of a call, with the errors of the contract."""
        try:
            return await work
        except TokenRefused as error:
            raise SendTransient(str(error)) from None
        except Stopped:
            raise SendTransient("Matrix is not connected") from None
        except Refused as error:
            kind = SendUnreachable if error.status in {403, 404} else SendRefused
            raise kind(str(error)) from None

    async def typing(self, address: Address) -> None:
        """Show that a reply is being written."""
        path = f"/rooms{escaped(address.chat)}/typing{escaped(self.me.id)}"
        await self.api.call("PUT", path, {"typing": True, "timeout": 8000})

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a sign below a message, or take ours away."""
        place, sign = f"/rooms{escaped(address.chat)}", (address.chat, message_id)
        before = self._signs.pop(sign, "")
        if before:
            path = f"{place}/redact{escaped(before, str(uuid4()))}"
            await self.api.call("PUT", path, {})
        if emoji:
            link: Json = {"rel_type": "m.annotation", "event_id": message_id, "key": emoji}
            path = f"{place}/send/m.reaction{escaped(str(uuid4()))}"
            answer = await self.api.call("PUT", path, {"m.relates_to": link})
            self._signs[sign] = text(answer, "event_id")

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file; see `Channel.fetch`."""
        server, number, locked = location(media.ref)
        if not server:
            raise SendRefused("this file is none of Matrix")
        data = await self.api.download(server, number, most)
        return await asyncio.to_thread(opened, data, locked) if locked else data

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True if somebody may change the room."""
        place = f"/rooms{escaped(address.chat)}/state"
        powers = await self.api.asked(f"{place}/m.room.power_levels")
        level = integer(child(powers, "users"), sender)
        if level is None:
            level = integer(powers, "users_default") or 0
        if level >= ADMIN:
            return True
        made = await self.api.call("GET", f"{place}/m.room.create", query={"format": "event"})
        content = child(made, "content")
        is_creator = sender in {made.get("sender"), *texts(content, "additional_creators")}
        return is_creator and text(content, "room_version") not in {"", *OLD_ROOMS}
