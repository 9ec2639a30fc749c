"""One app at work: its socket, its events, and what was said while nobody listened."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import structlog
from cachetools import LRUCache, TTLCache
from yarl import URL

from adapters.slack import CHANNEL, PUBLIC_API, SlackConfig, inbound
from adapters.slack.api import APPS, SOCKET, Api, Lacking, TokenRefused, lacks
from adapters.slack.inbound import REACTED, UNREACTED, Identity, Reason, number_in, thread_of
from adapters.slack.send import MARK, UPLOAD, Sender
from bot.channel import Address, ChatType, Engine, Health, Inbound, Media, Piece, Reaction, reveal
from bot.channel.kit import accounts
from bot.channel.kit.client import download, session, why
from bot.channel.kit.intake import MAX_AGE, MAX_MISSED, Intake, Where, listens, newest_chats
from bot.channel.kit.json_access import Json, child, children, label, mapping, parse_json, text
from bot.channel.kit.supervisor import Stopped, Supervisor
from bot.clock import system_clock
from bot.errors import ChannelError, SendLater, SendRefused

FILES = "https://files.slack.com"
MAX_FRAME = 4 << 20  # bytes of what the socket brings at once
HELLO, BEAT = 30.0, 15.0  # seconds until a connection says hello, and between two pings
KNOWN, AN_HOUR = 4096, 3600.0  # people and chats whose names are kept, and seconds
_HEARD = frozenset(
    {"message", "app_mention", "slash_commands", "block_actions", REACTED, UNREACTED}
)
MAX_CHATS = 50  # read back at once: Slack lets an app do some 50 such calls a minute
_TOLD = {"direct": "im", "group": "mpim"}  # what Slack calls a kind of chat

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pace:
    """Waits in seconds; tests make them short."""

    first: float = 2.0  # after the first failure, doubled after each further one
    longest: float = 30.0
    rejected: float = 120.0  # after a refused token, which only a person can replace
    draft_first: float = 1.0  # before a reply shows while it is being written
    draft: float = 1.3  # between two edits of it; Slack takes some 50 a minute


class Account(accounts.Account):
    """One app of the channel."""

    def __init__(
        self, name: str, config: SlackConfig, tokens: tuple[str, str], engine: Engine, pace: Pace
    ) -> None:
        supervisor = Supervisor(
            *(CHANNEL, name, engine),
            waiting="Slack brings them again",
            first=pace.first,
            longest=pace.longest,
        )
        calls = session(reveal(config.proxy))
        super().__init__(supervisor, calls)
        self._config, self._pace, self._calls = config, pace, calls
        self._token, self._app_token = tokens
        self._api = Api(self._token, config.api_root, calls, supervisor)
        self.drafts = self._sender = Sender(self._api, supervisor, pace.draft_first, pace.draft)
        self._intake = Intake[Json](supervisor, read=self._missed, store=self._store)
        self._private = frozenset(each.name for each in engine.commands("") if each.is_private)
        self.me = Identity()
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._known = TTLCache[str, Json](KNOWN, AN_HOUR)  # people and chats
        self._started = LRUCache[str, None](KNOWN)  # threads whose beginning is known

    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`."""
        return await self._sender.send(piece)

    async def is_admin(self, address: Address, sender: str) -> bool:
        """True for an admin or owner of this workspace; a guest's own one does not count."""
        person = child(await self._api.quick("users_info", user=sender), "user")
        is_ours = text(person, "team_id") == (self.me.team or text(person, "team_id"))
        return is_ours and True in {person.get("is_admin"), person.get("is_owner")}

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file, if they are no more than `most`; the token goes nowhere else.

        Raises:
            SendLater, SendTransient: it may work later.
            Lacking: the app may not read files.
            SendRefused: it never will.
        """
        root = self._config.api_root
        if not any(_lies_at(media.ref, each) for each in {FILES, root} - {PUBLIC_API}):
            raise SendRefused("the file does not lie at Slack")
        return await download(self._file(media), most, "Slack")

    @asynccontextmanager
    async def _file(self, media: Media) -> AsyncGenerator[aiohttp.ClientResponse]:
        limits = aiohttp.ClientTimeout(total=UPLOAD, sock_connect=HELLO)
        headers = {"Authorization": f"Bearer {self._token}"}
        call = self._calls.get(media.ref, headers=headers, timeout=limits, allow_redirects=False)
        async with call as response:
            # Who may not read a file is led or shown to the page to sign in.
            is_page = response.content_type == "text/html" != media.mime
            if 300 <= response.status < 400 or is_page:
                error = lacks("files:read")
                self._api.tell(error)
                raise error
            yield response

    # --- the connection --------------------------------------------------------------------------

    async def run(self) -> None:
        """Listen on one node at a time."""

        def serve() -> Awaitable[None]:
            return self.supervisor.unless_stopped(self._serve())

        await self.supervisor.listen(serve, self._failed, end=self._end)

    def _end(self) -> None:
        """Forget what is another node's now."""
        self._intake.hold()
        self._sender.clear()

    async def _serve(self) -> None:
        """Hand on what one connection after the other brings, until one ends by itself.

        The SDK's own client of the socket connects again without saying so, queues without a
        bound, and writes the address that lets anybody connect into the log.
        """
        who = await self._api("auth_test")
        self.me = Identity(text(who, "user_id"), label(text(who, "user")), text(who, "team_id"))
        self._intake.hold()
        socket = await self._connected()
        self.supervisor.well("receiving")
        self.supervisor.well("rights")  # as far as is known
        self.supervisor.spawn(self._begin())
        try:
            while await self._heard(socket):
                # The new one is there before the old one goes: nothing is missed in between.
                old, socket = socket, await self._connected()
                await old.close()
        finally:
            await socket.close()
        raise ConnectionError

    async def _connected(self) -> aiohttp.ClientWebSocketResponse:
        url = text(await self._api(SOCKET, app_token=self._app_token), "url")
        try:
            async with asyncio.timeout(HELLO):
                socket = await self._calls.ws_connect(url, heartbeat=BEAT, max_msg_size=MAX_FRAME)
                await socket.receive_str()  # hello
        except (aiohttp.ClientError, OSError, TypeError) as error:
            raise ConnectionError(why(error)) from None
        self._socket = socket
        _log.info("slack.connected", account=self.name)
        return socket

    async def _heard(self, socket: aiohttp.ClientWebSocketResponse) -> bool:
        """Take what comes until a connection ends; True when Slack asks to connect again."""
        async for frame in socket:
            try:
                envelope = mapping(parse_json(frame.data))
            except (ValueError, TypeError):
                envelope = {}
            if text(envelope, "type") != "disconnect":
                self._hear(envelope)
            elif text(envelope, "reason") == "link_disabled":
                raise TokenRefused(f"Socket Mode is off: switch it on for the app at {APPS}.")
            else:
                return text(envelope, "reason") != "too_many_websockets"
        return False

    def _failed(self, error: Exception) -> float | None:
        """Say why there is no connection; the seconds to wait, if the error is known."""
        if not isinstance(error, ChannelError):
            return None
        wait = error.seconds if isinstance(error, SendLater) else self._pace.first
        if isinstance(error, TokenRefused | Lacking):
            wait = self._pace.rejected
        _log.error("slack.connection.failed", account=self.name, error=str(error), retry_in=wait)
        self.supervisor.trouble("receiving", Health.DOWN, str(error))
        return wait

    def _hear(self, envelope: Json) -> None:
        event = _event(envelope)
        chat = text(event, "channel") or text(event, "channel_id")
        chat = chat or text(child(event, "channel"), "id") or text(child(event, "item"), "channel")
        kind = text(event, "type") or text(envelope, "type")
        if chat and kind in _HEARD:
            new = "" if text(event, "subtype") == "message_changed" else text(event, "ts")
            self._intake.offer(chat, envelope, number_in(new))
        else:
            self.supervisor.drop("unknown")
            self.supervisor.spawn(self._acknowledge(envelope))

    async def _acknowledge(self, envelope: Json) -> None:
        number, socket = text(envelope, "envelope_id"), self._socket
        if number and socket is not None:
            # Slack brings again what could not be acknowledged.
            with contextlib.suppress(ConnectionError, aiohttp.ClientError, RuntimeError):
                await socket.send_json({"envelope_id": number})

    # --- one event → one stored message ----------------------------------------------------------

    async def _store(self, chat: str, envelope: Json) -> None:
        event = _event(envelope)
        try:
            found = await self._read(chat, event)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it holds, the others must go on
            name = type(error).__name__
            _log.warning("slack.event.unreadable", account=self.name, error=name)
            found = "malformed"
        if isinstance(found, Inbound):
            await self.supervisor.receive(found)
        elif isinstance(found, Reaction):
            await self.engine.reacted(found)
        else:
            self.supervisor.drop(found)
        await self._acknowledge(envelope)
        message = child(event, "message")
        if text(event, "type") == "block_actions" and text(message, "ts"):
            # A message takes one press: the text stays, and the buttons go.
            blocks = children(message, "blocks", 1)
            words = {"ts": text(message, "ts"), "text": text(message, "text"), "blocks": blocks}
            self.supervisor.spawn(self._without_buttons(chat, words))

    async def _without_buttons(self, chat: str, words: Json) -> None:
        await self._api.quick("chat_update", channel=chat, **words)

    async def _read(self, chat: str, event: Json) -> Inbound | Reaction | Reason:
        kind = text(event, "type")
        if kind in {REACTED, UNREACTED}:
            base = await self._base(chat, text(event, "user"), event)
            return inbound.reaction_of(event, base, self.me) or "reaction"
        is_said = kind not in {"", "block_actions"}
        if is_said and (reason := inbound.unwanted(event, self.me)) is not None:
            return reason
        message, _ = inbound.written(event)
        sender = text(message if is_said else event, "user") or text(event, "user_id")
        base = await self._base(chat, sender or text(child(event, "user"), "id"), event)
        if not is_said:
            return (
                inbound.press(event, base) if kind else inbound.command(event, base, self._private)
            )
        root: Json = {}
        thread = thread_of(message)
        if thread and (base.chat_type == "direct" or inbound.mentions(event, self.me)):
            root = await self._root(chat, thread)
        named = {*inbound.named_in(message), *inbound.named_in(root), text(root, "user")}
        names = {each: await self._name_of(each) for each in named if each}
        return inbound.normalise(event, base, self.me, names, root)

    async def _base(self, chat: str, sender: str, event: Json) -> Inbound:
        """The known sender and place of an event."""
        person = child(await self._asked("users_info", user=sender), "user") if sender else {}
        kind = await self._kind(chat, sender, event)
        return replace(
            Inbound(CHANNEL, self.name, chat, kind, sender, "", "", system_clock()),
            sender_name=inbound.name_of(person),
            locale=text(person, "locale")[:20],
            zone=text(person, "tz")[:64],
            server=self.me.team,
        )

    async def _kind(self, chat: str, sender: str, event: Json) -> ChatType:
        """The kind of a chat: direct only if Slack says that nobody else is in it."""
        told = text(event, "channel_type")
        info = child(await self._asked("conversations_info", channel=chat), "channel")
        if told == "im" or (not told and info.get("is_im") and text(info, "user") == sender):
            return "direct"
        is_small = info.get("is_mpim") or (info.get("is_im") and told != "channel")
        return "group" if told == "mpim" or (not told and is_small) else "channel"

    async def _name_of(self, number: str) -> str:
        if number.startswith(("C", "G")):
            asked = await self._asked("conversations_info", channel=number)
            return label(text(child(asked, "channel"), "name"))
        return inbound.name_of(child(await self._asked("users_info", user=number), "user"))

    async def _asked(self, method: str, **values: str) -> Json:
        """Slack's answer about somebody or a chat, at most an hour old."""
        (key,) = values.values()
        if key not in self._known:
            more = {"include_locale": True} if method == "users_info" else {}
            found = await self._api.quick(method, **values, **more)
            if not found:
                return {}
            self._known[key] = found
        return self._known[key]

    async def _root(self, chat: str, thread: str) -> Json:
        """The message with which a thread began, the first time it is asked for."""
        if thread in self._started:
            return {}
        self._started[thread] = None
        asked = await self._api.quick("conversations_replies", channel=chat, ts=thread, limit=1)
        return next(iter(children(asked, "messages")), Json())

    # --- what was said while nobody listened -----------------------------------------------------

    async def _begin(self) -> None:
        """Let messages in, after those that were missed."""
        seen = await self.supervisor.insist(
            "last_seen.failed", lambda: self.engine.last_seen(CHANNEL, self.name)
        )
        after = {chat: number_in(message) for chat, message in seen.items()}
        if newest := max(after.values(), default=0):
            # Somebody may have written for the first time; a command has no time of its own.
            listed = await self._api.quick("users_conversations", types="im,mpim", limit=200)
            strangers = {text(each, "id"): newest for each in children(listed, "channels")}
            after = {chat: at or newest for chat, at in {**strangers, **after}.items() if chat}
        self._intake.release(dict(list(newest_chats(after).items())[:MAX_CHATS]))

    async def _missed(self, chat: str, after: int) -> Collection[int]:
        """Store what was said and edited in a chat and its threads after a moment (μs)."""
        info = child(await self._asked("conversations_info", channel=chat), "channel")
        kind = await self._kind(chat, text(info, "user"), {})
        if not info or not listens(self._config, Where(kind, chat)):
            return ()
        found = await self._pages("conversations_history", channel=chat)
        for root in tuple(found):
            if number_in(text(root, "latest_reply")) > after:
                found += await self._pages(
                    "conversations_replies", channel=chat, ts=text(root, "ts")
                )
        since = max(after, (system_clock() - MAX_AGE) * 1000)
        news: dict[tuple[int, str], Json] = {}
        for message in found:
            await self._clean(chat, message)
            stamp, edited = text(message, "ts"), number_in(text(child(message, "edited"), "ts"))
            if number_in(stamp) > since:
                news[number_in(stamp), stamp] = message
            elif edited > since:
                news[edited, stamp] = {"subtype": "message_changed", "message": message}
        missed = sorted(news)[-MAX_MISSED:]
        for key in missed:
            told = {"type": "message", "channel_type": _TOLD.get(kind, "channel")}
            await self._store(chat, {"type": "events_api", "payload": {"event": news[key] | told}})
        return {number_in(stamp) for _, stamp in missed}

    async def _pages(self, method: str, **where: Any) -> list[Json]:
        """The messages of a chat or thread, asked for until Slack answers; none if it refuses."""
        try:
            found = await self.supervisor.patiently(
                lambda: self._api(method, limit=MAX_MISSED, **where)
            )
        except ChannelError as error:
            _log.info("slack.history.refused", account=self.name, error=str(error))
            return []
        return children(found, "messages")

    async def _clean(self, chat: str, message: Json) -> None:
        """Take away a reply that was never finished."""
        place = Address(CHANNEL, self.name, chat, thread_of(message))
        is_draft = text(message, "user") == self.me.id and text(message, "text").endswith(MARK)
        if is_draft and not self._sender.shows(place, text(message, "ts")):
            await self._api.quick("chat_delete", channel=chat, ts=text(message, "ts"))


def _event(envelope: Json) -> Json:
    payload = child(envelope, "payload")
    return child(payload, "event") if text(envelope, "type") == "events_api" else payload


def _lies_at(ref: str, root: str) -> bool:
    try:
        url, host = URL(ref), URL(root)
    except ValueError:
        return False
    return (url.scheme, url.authority) == (host.scheme, host.authority)
