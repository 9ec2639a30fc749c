"""The web chat as a channel: every open page sees the same conversation, live."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, cast

import structlog
from aiohttp import WSCloseCode, WSMessage, WSMsgType, web
from cachetools import LRUCache, TTLCache

from adapters.web import assets, extras, nodes, protocol
from adapters.web.markdown import render
from adapters.web.nodes import OtherNodes, ToldDrafts
from adapters.web.protocol import AskModels, BadFrame, Send
from adapters.web.socket import Socket
from bot.channel import (
    DEFAULT_ACCOUNT,
    Activity,
    Address,
    Capabilities,
    Engine,
    Health,
    HistoryItem,
    Inbound,
    Piece,
)
from bot.channel.kit.drafts import Draft, Drafts
from bot.channel.kit.pieces import TakesMarkdown
from bot.errors import StorageError

log = structlog.stdlib.get_logger(__name__)

OWNER = "owner"
ADDRESS = Address("web", DEFAULT_ACCOUNT, OWNER)
HISTORY_ITEMS = 200
HISTORY_CHARS = 2_000_000  # of text in one history frame
HELLO_SECONDS = 10.0  # a connection that says nothing for so long is closed
HEARTBEAT_SECONDS = 25.0
STOP_SECONDS = 5.0
MAX_SOCKETS = 64
RENDERS_AT_ONCE = 8  # history lines rendered before others get a turn
LONG_TEXT = 2_000  # characters from which rendering is done in a thread; 1 000 take some 5 ms
BURST = 40  # frames a page may send at once …
FRAMES_PER_SECOND = 20.0  # … and then at this pace; faster ones wait
INTERVAL = 0.08  # seconds between two frames of one draft
MAX_DOING = 64  # activities known, for at most …
DOING_SECONDS = 900.0  # … so long: the end of one of another node's may be missed
REMEMBERED = 1024  # messages of other nodes
BUSY_SHARE = 10  # rendering may take one tenth of the time: long drafts update less often


class Web(TakesMarkdown):
    """Serves the page and its WebSocket; `routes` go behind the dashboard's guard.

    Whoever can open the page is the owner, so there is one chat, "owner". It has many methods: one
    for each ability, one for each step of a visit.
    """

    name = "web"
    capabilities = Capabilities(
        max_length=100_000,
        typing=True,
        drafts=True,
        buttons=True,
        attachments=True,
        activities=True,
    )

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._sockets: set[Socket] = set()
        self._visits: set[asyncio.Task[Any]] = set()
        self._others = OtherNodes()
        self._drafts = WebDrafts(self)
        self._told = ToldDrafts(self._others)
        self._shelf = extras.Shelf()
        # What goes on now, by id, and the messages of other nodes that were shown.
        self._doing: TTLCache[str, Activity] = TTLCache(
            MAX_DOING, DOING_SECONDS, timer=time.monotonic
        )
        self._shown: LRUCache[str, None] = LRUCache(REMEMBERED)

    def routes(self) -> Iterable[web.RouteDef]:
        """The page, its files and its WebSocket."""
        return [*assets.routes(), web.get("/chat/ws", self._visit)]

    async def start(self, engine: Engine) -> None:
        """Take visitors from now on."""
        self._engine = engine
        self._others.begin(engine)
        engine.report(self.name, DEFAULT_ACCOUNT, Health.UP)

    async def stop(self) -> None:
        """Say goodbye to every page, after what it sent is stored."""
        self._engine = None
        self._others.end()
        self._drafts.clear()
        self._told.clear()
        for socket in tuple(self._sockets):
            socket.close()
        if self._visits:
            await asyncio.wait(self._visits, timeout=STOP_SECONDS)
        for socket in tuple(self._sockets):
            socket.abort()

    async def send(self, piece: Piece) -> str:
        """Show it on every open page; with none open it waits in the history."""
        more = extras.fields(piece)
        message = {
            "id": piece.id,
            "text": piece.text,
            "at": piece.at or _now(),
            "draft": piece.draft,
            "is_reply": piece.kind == "reply",
        }
        await self._show(message, more)
        fits = extras.size(more) <= nodes.MAX_BODY
        more = more if fits else extras.without_data(more)
        await self._others.tell("message", **message, more=more)
        return piece.id

    async def typing(self, address: Address) -> None:
        """Show on every page that a reply is being written."""
        self._show_typing()
        await self._others.tell("typing")

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """Show a reply as it grows, rendered at a calm pace."""
        await self._drafts.show(draft_id, draft_id, text)
        await self._told.show(draft_id, draft_id, text)

    async def activity(self, address: Address, activity: Activity) -> None:
        """Show on every page what goes on beside the replies, and what it came to."""
        self._show_activity(activity)
        if not activity.text:  # what is thought stays here: on its way it would be stored
            await self._others.tell("activity", activity=asdict(activity))

    async def heard(self, body: str) -> None:
        """Show on this node's pages what another node told; see `Broadcasts.heard`."""
        said = self._others.heard(body) if self._engine is not None else {}
        match said.get("show"):
            case "message" if said["id"] not in self._shown:
                self._shown[said["id"]] = None
                await self._show(said, said["more"])
            case "said":
                self._show_said(said["id"], said["text"], said["at"])
            case "draft":
                await self._drafts.show(said["id"], said["id"], said["text"])
            case "typing":
                self._show_typing()
            case "activity":
                self._show_activity(Activity(**said["activity"]))
            case _:  # our own, heard before, or of a newer version
                pass

    # --- this node's pages ----------------------------------------------------------------------

    async def _show(self, message: Mapping[str, Any], more: extras.Fields) -> None:
        for drafts in (self._drafts, self._told):
            drafts.replied(message["draft"], message["draft"])
        replaces: list[str] = []
        if message["is_reply"]:
            self._told.clear()
            replaces = self._drafts.clear()
        html = await self.html(message["text"])
        line = {"id": message["id"], "role": "bot", "text": message["text"], "at": message["at"]}
        if more:
            self._shelf.keep(message["id"], more)
        self._broadcast(
            lambda as_html: protocol.encode(
                "message",
                **line,
                html=html if as_html else "",
                replaces=replaces,
                **_for_client(more, as_html=as_html),
            )
        )

    def _show_said(
        self, message_id: str, text: str, at: int, besides: Socket | None = None
    ) -> None:
        """Show what a person typed on one page on the others."""
        shown = protocol.encode("message", **_line(message_id, "user", text, at), replaces=[])
        for socket in self._greeted():
            if socket is not besides:
                socket.put(shown)

    def _show_typing(self) -> None:
        self._broadcast(lambda _as_html: protocol.encode("typing"))

    def _show_activity(self, activity: Activity) -> None:
        if activity.state == "begun":
            self._doing[activity.id] = activity
        else:
            self._doing.pop(activity.id, None)
        newest = activity.id if activity.kind == "thinking" else ""
        self._broadcast(lambda _as_html: _activity_frame(activity), draft=newest)

    # --- one visitor ----------------------------------------------------------------------------

    async def _visit(self, request: web.Request) -> web.StreamResponse:
        engine = self._engine
        if engine is None or len(self._sockets) >= MAX_SOCKETS:
            raise web.HTTPServiceUnavailable
        ws = web.WebSocketResponse(
            heartbeat=HEARTBEAT_SECONDS,
            max_msg_size=protocol.MAX_FRAME,
            timeout=STOP_SECONDS / 2,
            compress=False,
        )
        await ws.prepare(request)
        socket = Socket(ws, request.transport)
        visit = asyncio.current_task()
        if visit is not None:
            self._visits.add(visit)
            visit.add_done_callback(self._visits.discard)
        self._sockets.add(socket)
        try:
            if await self._greet(ws, socket, engine):
                await self._listen(ws, socket, engine)
        except Exception:
            log.exception("web.visit.failed")
            socket.abort()
        finally:
            self._sockets.discard(socket)
            await socket.finished()
        return ws

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
            try:
                items = await engine.history(ADDRESS, HISTORY_ITEMS)
            except StorageError:
                log.warning("web.history.failed")
                socket.open([protocol.error("history", socket.locale)])
                socket.close(WSCloseCode.TRY_AGAIN_LATER)
            else:
                await self._open(socket, engine, items)
                return True
        await _until_closed(ws)
        return False

    async def _open(self, socket: Socket, engine: Engine, items: Sequence[HistoryItem]) -> None:
        commands = [
            {"name": command.name, "description": command.description, "usage": command.usage}
            for command in engine.commands(socket.locale)
        ]
        first = [
            protocol.encode("commands", items=commands),
            protocol.encode("history", items=await self._lines(items, socket)),
        ]
        as_html = socket.format == "html"
        drafts = [
            (draft_id, _draft_frame(draft_id, text, await _rendered(text), as_html=as_html))
            for draft_id, text in self._drafts.texts.items()
        ]
        # Read after the last await: a draft finished meanwhile must not come back.
        first += [frame for draft_id, frame in drafts if draft_id in self._drafts.texts]
        first += map(_activity_frame, self._doing.values())
        socket.open(first)

    async def _lines(self, items: Sequence[HistoryItem], socket: Socket) -> list[dict[str, object]]:
        """The newest lines that fit one frame, as the page takes them."""
        as_html = socket.format == "html"
        lines: list[dict[str, object]] = []
        size = 0
        for number, item in enumerate(reversed(items), start=1):
            size += len(item.text)
            if size > HISTORY_CHARS:
                break
            what = (item.id, item.role, item.text, item.at)
            html = await _rendered(item.text) if as_html and item.role == "bot" else ""
            line = _line(*what, html)
            lines.append(line | dict(_for_client(self._shelf.of(item.id), as_html=as_html)))
            if number % RENDERS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return lines[::-1]

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
                if isinstance(frame, AskModels):
                    await _tell_models(socket, engine)
                else:
                    await self._receive(frame, socket, engine)

    async def _receive(self, frame: Send, socket: Socket, engine: Engine) -> None:
        at = _now()
        locale = frame.locale or socket.locale
        inbound = Inbound(
            channel=ADDRESS.channel,
            account=ADDRESS.account,
            chat=ADDRESS.chat,
            chat_type="direct",
            sender=OWNER,
            message_id=frame.id,
            text=frame.text,
            sent_at=at,
            locale=locale,
        )
        try:
            await engine.receive(inbound)
        except StorageError:
            log.warning("web.receive.not_stored")
            socket.put(protocol.error("storage", locale, frame.id))
            return
        except Exception:
            log.exception("web.receive.failed")
            socket.put(protocol.error("unexpected", locale, frame.id))
            return
        socket.put(protocol.encode("ack", id=frame.id, at=at))
        self._show_said(frame.id, frame.text, at, socket)
        await self._others.tell("said", id=frame.id, text=frame.text, at=at)

    # --- every visitor --------------------------------------------------------------------------

    async def html(self, text: str) -> str:
        """A text as HTML, if a page wants that; else empty."""
        return await _rendered(text) if self._wants_html() else ""

    def show_draft(self, draft_id: str, text: str, html: str) -> None:
        """Show a reply so far on every page; empty takes it away."""
        self._broadcast(
            lambda as_html: _draft_frame(draft_id, text, html, as_html=as_html), draft=draft_id
        )

    def _broadcast(self, frame: Callable[[bool], str], *, draft: str = "") -> None:
        """Queue a frame for every page, made once for each format in use."""
        made: dict[str, str] = {}
        for socket in self._greeted():
            if socket.format not in made:
                made[socket.format] = frame(socket.format == "html")
            socket.put(made[socket.format], draft=draft)

    def _greeted(self) -> list[Socket]:
        return [socket for socket in self._sockets if socket.greeted]

    def _wants_html(self) -> bool:
        return any(socket.format == "html" for socket in self._greeted())


class WebDrafts(Drafts[str]):
    """The replies that are being written, each in a place of its own."""

    def __init__(self, web: Web) -> None:
        super().__init__(asyncio.create_task)
        self._web = web

    async def put(self, draft: Draft[str]) -> float:
        """Show a draft on every page; see `Drafts.put`."""
        loop = asyncio.get_running_loop()
        began, text = loop.time(), draft.text
        draft.message = draft.id
        try:
            html = await self._web.html(text)
        except Exception:
            log.exception("web.draft.failed")
        else:
            if not draft.closing.is_set():
                self._web.show_draft(draft.id, text, html)
        return max(INTERVAL, (loop.time() - began) * BUSY_SHARE)

    async def remove(self, draft: Draft[str]) -> None:
        """Take a draft away on every page."""
        self._web.show_draft(draft.id, "", "")


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


async def _until_closed(ws: web.WebSocketResponse) -> None:
    """Let the closing handshake happen; whatever still comes in is not read."""
    async for _message in ws:
        pass


async def _rendered(markdown: str) -> str:
    """A text as HTML; one that takes a while is rendered beside everything else."""
    if len(markdown) > LONG_TEXT:
        return await asyncio.to_thread(render, markdown)
    return render(markdown)


def _line(
    message_id: str,
    role: Literal["user", "bot", "divider"],
    text: str,
    at: int,
    html: str = "",
) -> dict[str, object]:
    return {"id": message_id, "role": role, "html": html, "text": text, "at": at}


def _for_client(more: extras.Fields, *, as_html: bool) -> extras.Fields:
    return more if as_html else extras.without_data(more)


def _draft_frame(draft_id: str, text: str, html: str, *, as_html: bool) -> str:
    if as_html:
        return protocol.encode("draft", id=draft_id, html=html)
    return protocol.encode("draft", id=draft_id, text=text)


async def _tell_models(socket: Socket, engine: Engine) -> None:
    try:
        found = await engine.models(ADDRESS, OWNER)
    except StorageError:
        log.warning("web.models.failed")
        return
    socket.put(protocol.encode("models", **asdict(found)), draft="models")


def _activity_frame(activity: Activity) -> str:
    return protocol.encode(
        "activity",
        id=activity.id,
        what=activity.kind,
        state=activity.state,
        where=activity.where,
        text=activity.text,
    )


def _now() -> int:
    return time.time_ns() // 1_000_000
