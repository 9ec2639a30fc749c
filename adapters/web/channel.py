"""The web chat as a channel: every open page sees the same conversation, live."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import structlog
from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from adapters.web import hooks, protocol
from adapters.web.completions import Completions, told
from adapters.web.files import FilePages, address_of, frame_of
from adapters.web.nodes import Away, OtherNodes
from adapters.web.pages import PersonPages
from adapters.web.protocol import BadFrame, Send, Socket, Wish
from bot.channel import (
    DEFAULT_ACCOUNT,
    PAGE_OWNER,
    Activity,
    Address,
    Capabilities,
    Engine,
    Health,
    HistoryItem,
    Inbound,
    Media,
    Piece,
    http,
)
from bot.channel.http import shared, visitor_of
from bot.channel.kit.text import TakesMarkdown
from bot.clock import system_clock
from bot.errors import OutOfSight, PoolFull, StorageError
from bot.shares import HISTORIES, Budget, Pool

log = structlog.stdlib.get_logger(__name__)

ADDRESS = address_of(PAGE_OWNER)
INLINE = {  # stands in the page
    "/assets/base.css": "bot.dashboard",
    "/static/app.css": "adapters.web",
    "/static/theme.js": "adapters.web",
}
DRAWING = Path(__file__).with_name("drawing")
ANSWER = "answer"  # what other nodes are told of one to a program
SWITCHED = "switched"  # … and when another branch of a conversation is in sight
HISTORY_ITEMS = 200
OLDER_ITEMS = 100  # lines that are read further back at once
HELLO_SECONDS = 10.0  # a connection that says nothing for so long is closed
HEARTBEAT_SECONDS = 25.0
STOP_SECONDS = 5.0
MAX_SOCKETS = 64
OWNERS_SOCKETS = 16  # of them are for the owner, so that nobody keeps them out …
MAX_OF_ONE = 12  # … and so many for anybody else, so that one keeps no other out
EVENTS = 30  # of one webhook at once …
EVENT_SECONDS = 10.0  # … and then one in so many
BURST = 40  # frames a page may send at once …
FRAMES_PER_SECOND = 20.0  # … and then at this pace; faster ones wait


class Web(TakesMarkdown):
    """Serves the page and its WebSocket; `routes` go behind the dashboard's guard.

    Each visitor has a direct chat of their own, under their name: the owner's is "owner". It has
    many methods: one for each ability, one for each step of a visit.
    """

    name = "web"
    capabilities = Capabilities(
        max_length=100_000,
        typing=True,
        drafts=True,
        buttons=True,
        attachments=True,
        activities=True,
        pages=True,
        files=True,
        voice=True,
    )

    def __init__(self) -> None:
        self._sockets: set[Socket] = set()
        self._visits: set[asyncio.Task[Any]] = set()
        self._others = OtherNodes()
        self._files = FilePages()
        self._programs = Completions()
        self._reported = Budget(EVENTS, 1 / EVENT_SECONDS, time.monotonic)
        self._people: dict[str, PersonPages] = {}
        self._histories = Pool(HISTORIES)
        self._use(None)

    def _use(self, engine: Engine | None) -> None:
        self._engine = self._others.engine = self._files.engine = self._programs.engine = engine

    def routes(self) -> Iterable[web.RouteDef]:
        """The page, its files and its WebSocket."""
        files = http.asset_routes("adapters.web", "/static", index="index.html", inline=INLINE)
        page = files[0].handler

        async def temporary(request: web.Request) -> web.StreamResponse:
            """The same page: its scripts see where they are, and keep nothing."""
            return await page(request)

        async def drawing(request: web.Request) -> web.FileResponse:
            """A file of the frame that draws diagrams; its library is kept in gzip alone."""
            file = DRAWING / request.path.rpartition("/")[2]
            return web.FileResponse(file, headers={"Cache-Control": "public, max-age=86400"})

        files.append(web.get("/temporary", temporary))
        drawn = ("frame.html", "frame.js", "mermaid.js")
        files += [web.get(f"/drawing/{name}", drawing) for name in drawn]
        own = shared([*files, *self._files.routes(), web.get("/chat/ws", self._visit)])
        return [*own, *self._programs.routes(), *shared([web.post("/hooks/{id}", self._event)])]

    async def start(self, engine: Engine) -> None:
        """Take visitors from now on."""
        self._use(engine)
        engine.report(self.name, DEFAULT_ACCOUNT, Health.UP)

    async def stop(self) -> None:
        """Say goodbye to every page, after what it sent is stored."""
        self._use(None)
        for pages in self._people.values():
            pages.end()
        for socket in tuple(self._sockets):
            socket.close()
        if self._visits:
            await asyncio.wait(self._visits, timeout=STOP_SECONDS)
        for socket in tuple(self._sockets):
            socket.abort()

    async def send(self, piece: Piece) -> str:
        """Show it on the person's open pages; with none open it waits in the history."""
        person = piece.address.chat
        if piece.address.thread and piece.kind != "reminder":
            said = told(piece)
            await self._programs.sent({"person": person, **said})
            await self._others.tell(person, ANSWER, **said)
        else:
            await self._pages_of(person).send(piece)
        return piece.id

    async def typing(self, address: Address) -> None:
        """Show the person that a reply is being written."""
        if not address.thread:
            await self._pages_of(address.chat).typing()

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """Show a reply as it grows."""
        if address.thread:
            self._programs.draft(address.thread, text)
        else:
            await self._pages_of(address.chat).draft(draft_id, text)

    async def activity(self, address: Address, activity: Activity) -> None:
        """Show what goes on beside the replies, and what it came to."""
        if not address.thread:
            await self._pages_of(address.chat).activity(activity)

    async def heard(self, body: str) -> None:
        """Show on this node's pages what another node told; see `Channel.heard`."""
        said = self._others.heard(body) if self._engine is not None else {}
        if said.get("show") == ANSWER:
            await self._programs.sent(said)
        elif said.get("show") == SWITCHED:
            await self._show_anew(said.get("person", PAGE_OWNER))
        elif said:  # else it is our own
            await self._pages_of(said.get("person", PAGE_OWNER)).heard(said)

    async def forgotten(self, is_about: Callable[[Address], bool]) -> None:
        """Take what was forgotten from every open page; see `Channel.forgotten`."""
        for person in tuple(self._people):
            if is_about(address_of(person)):
                await self._show_anew(person, "forgotten")

    async def _show_anew(
        self, person: str, kind: Literal["switched", "forgotten"] = "switched"
    ) -> None:
        """Have a person's pages on this node show the conversation as it is now."""
        engine, pages = self._engine, self._people.get(person)
        if engine is None or pages is None or not pages.sockets:
            return
        try:
            items = await engine.history(address_of(person), HISTORY_ITEMS)
            known = await self._files.known(person)
        except StorageError:
            log.warning("web.history.failed")
            pages.close()
        else:
            async with self._histories.place(person):
                await pages.anew(kind, items, known)

    async def _show_switched(self, person: str) -> None:
        """Have all of a person's pages show the branch that is in sight now."""
        await self._show_anew(person)
        await self._others.tell(person, SWITCHED)

    async def fetch(self, address: Address, media: Media, most: int) -> bytes:
        """The bytes of what came with a message; see `Channel.fetch`."""
        return await self._files.fetch(address, media, most)

    def _pages_of(self, person: str) -> PersonPages:
        pages = self._people.get(person)
        if pages is None:
            away = Away(partial(self._reach, person))
            pages = self._people[person] = PersonPages(person, self._others, away)
        return pages

    def _reach(self, person: str, text: str) -> None:
        if self._engine is not None:
            self._engine.reach(address_of(person), text)

    # --- one visitor ----------------------------------------------------------------------------

    async def _visit(self, request: web.Request) -> web.StreamResponse:
        engine = self._engine
        if engine is None or not self._has_room(visitor_of(request).name):
            raise web.HTTPServiceUnavailable
        ws = web.WebSocketResponse(
            heartbeat=HEARTBEAT_SECONDS,
            max_msg_size=protocol.MAX_FRAME,
            timeout=STOP_SECONDS / 2,
            compress=False,
        )
        socket = Socket(ws, request.transport, visitor_of(request).name)
        self._sockets.add(socket)  # before anything else is waited for: its place is taken
        try:
            await ws.prepare(request)
        except BaseException:
            self._sockets.discard(socket)
            raise
        pages = self._pages_of(socket.person)
        visit = asyncio.current_task()
        if visit is not None:
            self._visits.add(visit)
            visit.add_done_callback(self._visits.discard)
        pages.sockets.add(socket)
        try:
            if await self._greet(ws, socket, engine):
                await self._listen(ws, socket, engine)
        except Exception:
            log.exception("web.visit.failed")
            socket.abort()
        finally:
            self._sockets.discard(socket)
            pages.sockets.discard(socket)
            await socket.finished()
        return ws

    def _has_room(self, person: str) -> bool:
        if person == PAGE_OWNER:
            return len(self._sockets) < MAX_SOCKETS
        guests = [socket.person for socket in self._sockets if socket.person != PAGE_OWNER]
        free = MAX_SOCKETS - max(OWNERS_SOCKETS, len(self._sockets) - len(guests))
        return len(guests) < free and guests.count(person) < MAX_OF_ONE

    async def _greet(self, ws: web.WebSocketResponse, socket: Socket, engine: Engine) -> bool:
        """Read the hello and answer with commands, history and open drafts."""
        try:
            message = await ws.receive(timeout=HELLO_SECONDS)
            hello = protocol.parse_hello(_text_of(message))
        except TimeoutError:
            socket.close(WSCloseCode.POLICY_VIOLATION)
        except BadFrame as bad:
            socket.open([protocol.error(bad.key, socket.locale)])
            socket.close(WSCloseCode.POLICY_VIOLATION)
        else:
            socket.greet(hello)
            if hello.format == "none":
                socket.open([])
                return True
            try:
                items = await engine.history(address_of(socket.person), HISTORY_ITEMS)
                known = await self._files.known(socket.person)
            except StorageError:
                log.warning("web.history.failed")
                socket.open([protocol.error("history", socket.locale)])
                socket.close(WSCloseCode.TRY_AGAIN_LATER)
            else:
                await self._open(socket, engine, items, known)
                return True
        async for _message in ws:
            pass  # whatever still comes before the closing handshake is not read
        return False

    async def _open(
        self,
        socket: Socket,
        engine: Engine,
        items: Sequence[HistoryItem],
        known: Mapping[str, Media],
    ) -> None:
        commands = [
            {"name": command.name, "description": command.description, "usage": command.usage}
            for command in engine.commands(socket.locale)
        ]
        pages = self._pages_of(socket.person)
        async with self._histories.place(socket.person):
            drawn = await pages.first_frames(socket, items, known)
        socket.open([protocol.encode("commands", items=commands), *drawn])

    async def _listen(self, ws: web.WebSocketResponse, socket: Socket, engine: Engine) -> None:
        pace = _Pace()
        async for message in ws:
            if message.type is WSMsgType.ERROR:
                break
            await pace.wait()
            try:
                frame = protocol.parse_frame(_text_of(message))
            except BadFrame as bad:
                socket.put(protocol.error(bad.key, socket.locale, bad.id))
            else:
                await self._take(frame, socket, engine)

    async def _take(self, frame: Send | Wish, socket: Socket, engine: Engine) -> None:
        match frame:
            case Wish("models"):
                await _tell_models(socket, engine)
            case Wish("older", before):
                await self._tell_older(before, socket, engine)
            case Wish("seen", id_):
                await self._pages_of(socket.person).seen(id_)
            case Wish("withdraw", id_):
                await self._withdraw(id_, socket, engine)
            case Wish(_, id_):
                await self._switch(id_, socket, engine)
            case Send():
                await self._receive(frame, socket, engine)

    async def _event(self, request: web.Request) -> web.Response:
        """Say to somebody's conversation what a program of theirs reports."""
        engine, hook = self._engine, visitor_of(request)
        if engine is None:
            raise web.HTTPServiceUnavailable
        if self._reported.is_used_up(hook.key):
            raise PoolFull
        self._reported.add(hook.key, 1)
        inbound = hooks.event(hook, request.headers, await request.read(), system_clock())
        await engine.receive(inbound)
        pages = self._pages_of(hook.name)
        await pages.said(inbound.message_id, inbound.shown, inbound.sent_at)
        return web.Response(status=202)

    async def _tell_older(self, before: str, socket: Socket, engine: Engine) -> None:
        try:
            items = await engine.history(address_of(socket.person), OLDER_ITEMS, before)
            known = await self._files.known(socket.person)
        except StorageError:
            log.warning("web.history.failed")
            socket.put(protocol.error("older", socket.locale))
            return
        async with self._histories.place(socket.person):
            pages = self._pages_of(socket.person)
            socket.put(await pages.frame("older", socket, items, known))

    async def _withdraw(self, message_id: str, socket: Socket, engine: Engine) -> None:
        try:
            is_done = await engine.withdraw(address_of(socket.person), message_id)
        except StorageError:
            log.warning("web.withdraw.failed")
            is_done = False
        if is_done:
            await self._pages_of(socket.person).withdrawn(message_id)
        else:
            socket.put(protocol.error("begun", socket.locale))

    async def _switch(self, message_id: str, socket: Socket, engine: Engine) -> None:
        try:
            async with self._histories.place(socket.person):
                is_done = await engine.switch(address_of(socket.person), message_id)
        except OutOfSight:
            await self._show_anew(socket.person)
            socket.put(protocol.error("gone", socket.locale))
        except StorageError:
            log.warning("web.switch.failed")
            socket.put(protocol.error("switch", socket.locale))
        else:
            if is_done:
                await self._show_switched(socket.person)
            else:
                socket.put(protocol.error("busy", socket.locale))

    async def _receive(self, frame: Send, socket: Socket, engine: Engine) -> None:
        at = system_clock()
        locale = frame.locale or socket.locale
        try:
            media = await self._files.of(socket.person, frame.files)
        except StorageError:
            socket.put(protocol.error("storage", locale, frame.id))
            return
        if media is None:
            socket.put(protocol.error("files", locale, frame.id))
            return
        inbound = Inbound(
            channel=ADDRESS.channel,
            account=ADDRESS.account,
            chat=socket.person,
            chat_type="direct",
            sender=socket.person,
            message_id=frame.id,
            text=frame.text,
            sent_at=at,
            locale=locale,
            zone=socket.zone,
            media=media,
            replaces=frame.replaces,
        )
        try:
            await engine.receive(inbound)
        except OutOfSight:
            await self._show_anew(socket.person)
            socket.put(protocol.error("gone", locale, frame.id))
            return
        except StorageError:
            log.warning("web.receive.not_stored")
            socket.put(protocol.error("storage", locale, frame.id))
            return
        except Exception:
            log.exception("web.receive.failed")
            socket.put(protocol.error("unexpected", locale, frame.id))
            return
        socket.put(protocol.encode("ack", id=frame.id, at=at))
        if frame.replaces:
            await self._show_switched(socket.person)
            return
        pages = self._pages_of(socket.person)
        await pages.said(frame.id, frame.text, at, tuple(map(frame_of, media)), besides=socket)


class _Pace:
    """A token bucket: a flood is slowed down, never dropped."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tokens = float(BURST)
        self._at = self._loop.time()

    async def wait(self) -> None:
        now = self._loop.time()
        self._tokens = min(BURST, self._tokens + (now - self._at) * FRAMES_PER_SECOND) - 1
        self._at = now
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / FRAMES_PER_SECOND)


def _text_of(message: WSMessage) -> str:
    if message.type is not WSMsgType.TEXT:
        raise BadFrame("malformed")
    return cast("str", message.data)


async def _tell_models(socket: Socket, engine: Engine) -> None:
    try:
        found = await engine.models(address_of(socket.person), socket.person)
    except StorageError:
        log.warning("web.models.failed")
        return
    socket.put(protocol.encode("models", **asdict(found)), draft="models")
