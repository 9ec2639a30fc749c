"""The open pages of one person: what one of them shows, all of them show, and nobody else's do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import structlog
from cachetools import LRUCache, TTLCache

from adapters.web import extras, nodes, protocol
from adapters.web.files import frame_of
from adapters.web.nodes import Away, OtherNodes, ToldDrafts, ToldThoughts
from adapters.web.protocol import Socket
from bot.channel import Activity, HistoryItem, Media, Piece
from bot.channel.kit.drafts import Draft, Drafts
from bot.channel.kit.json_access import Json
from bot.channel.kit.markdown_html import render, takes_long
from bot.clock import system_clock

log = structlog.stdlib.get_logger(__name__)

HISTORY_CHARS = 2_000_000  # of text in one history frame …
OLDER_CHARS = 300_000  # … and in one with what stands before it
RENDERS_AT_ONCE = 8  # history lines rendered before others get a turn
LONG_TEXT = 2_000  # characters from which rendering is done in a thread; 1 000 take some 5 ms
INTERVAL = 0.08  # seconds between two frames of one draft
MAX_DOING = 64  # activities known, and steps of one turn, for at most …
DOING_SECONDS = 900.0  # … so long: the end of one of another node's may be missed
MAX_TURNS = 16  # turns whose steps are known
MARKS = (
    "begins",
    "failed",
    "aside",
    "stopped",
    "answers",
    "sources",
)  # are told where there is any
STEPS = frozenset({"searching", "calling"})  # what is told of a reply once it is there
REMEMBERED = 1024  # messages of other nodes
BUSY_SHARE = 10  # rendering may take one tenth of the time: long drafts update less often


class PersonPages:
    """Shows on every open page of one person, on this node and on the others."""

    def __init__(self, person: str, others: OtherNodes, away: Away) -> None:
        self._person = person
        self._others = others
        self._away = away
        self.sockets: set[Socket] = set()
        self._drafts = WebDrafts(self)
        self._told = ToldDrafts(self._tell)
        self._thoughts = ToldThoughts(self._tell)
        self._shelf = extras.Shelf()
        # What goes on now, by id, and the messages of other nodes that were shown.
        self._doing: TTLCache[str, Activity] = TTLCache(
            MAX_DOING, DOING_SECONDS, timer=time.monotonic
        )
        # What was done on the way to a reply, by its draft and by id; and the drafts that ended.
        self._steps: TTLCache[str, dict[str, Activity]] = TTLCache(
            MAX_TURNS, DOING_SECONDS, timer=time.monotonic
        )
        self._over: LRUCache[str, None] = LRUCache(REMEMBERED)
        self._shown: LRUCache[str, None] = LRUCache(REMEMBERED)
        self._asides: LRUCache[str, None] = LRUCache(REMEMBERED)  # commands that were answered

    def end(self) -> None:
        """Show no more of what is being written."""
        self._drafts.clear()
        self._told.clear()
        self._thoughts.clear()
        self._away.end()

    # --- on every node ----------------------------------------------------------------------------

    async def send(self, piece: Piece) -> None:
        """Show a message; with no page open it waits in the history."""
        self._away.sent(piece)  # first: a page may say it has seen it before other nodes are told
        more = extras.fields(piece)
        message = {
            "id": piece.id,
            "text": piece.text,
            "at": piece.at or system_clock(),
            "draft": piece.draft,
            "is_reply": piece.kind == "reply",
            "begins": piece.whole.begins,
            "failed": piece.failed,
            "sources": piece.whole.sources,
            "aside": piece.whole.aside,
            "stopped": piece.whole.stopped,
            "answers": piece.whole.answers,
        }
        await self._show(message, more)
        fits = extras.size(more) <= nodes.MAX_BODY
        more = more if fits else extras.without_data(more)
        await self._tell("message", **message, more=more)

    async def said(
        self,
        message_id: str,
        text: str,
        at: int,
        files: Sequence[Json] = (),
        *,
        besides: Socket | None = None,
    ) -> None:
        """Show what the person typed on one page on the others, with its files."""
        self._show_said(message_id, text, at, files, besides)
        await self._tell("said", id=message_id, text=text, at=at, files=files)

    async def withdrawn(self, message_id: str) -> None:
        """Take a message away that was taken back."""
        self._show_withdrawn(message_id)
        await self._tell("withdrawn", id=message_id)

    async def seen(self, message_id: str) -> None:
        """A page that can be seen has shown it; the node that sent it hears of that."""
        self._away.seen(message_id)
        if message_id in self._shown:
            await self._tell("seen", id=message_id)

    async def typing(self) -> None:
        """Show that a reply is being written."""
        self._show_typing()
        await self._tell("typing")

    async def draft(self, draft_id: str, text: str) -> None:
        """Show a reply as it grows, rendered at a calm pace."""
        if not text and self._forget(draft_id):
            await self._tell("draft", id=draft_id, text="")
        await self._drafts.show(draft_id, draft_id, text)
        await self._told.show(draft_id, draft_id, text)

    async def activity(self, activity: Activity) -> None:
        """Show what goes on beside the replies, and what it came to."""
        self._show_activity(activity)
        if activity.kind == "thinking":
            grows = activity.state == "begun"
            thought = activity.text if grows else ""
            await self._thoughts.show(activity.draft, activity.id, thought)
            if thought:
                return
        await self._tell("activity", activity=asdict(activity))

    async def heard(self, said: Json) -> None:
        """Show on this node's pages what another node told of this person."""
        match said.get("show"):
            case "message" if said["id"] not in self._shown:
                self._shown[said["id"]] = None
                await self._show(said, said["more"])
            case "said":
                self._show_said(said["id"], said["text"], said["at"], said.get("files", ()))
            case "draft":
                if not said["text"]:
                    self._forget(said["id"])
                await self._drafts.show(said["id"], said["id"], said["text"])
            case "typing":
                self._show_typing()
            case "seen":
                self._away.seen(said["id"])
            case "withdrawn":
                self._show_withdrawn(said["id"])
            case "activity":
                self._show_activity(Activity(**said["activity"]))
            case _:  # heard before, or of a newer version
                pass

    async def _tell(self, kind: str, **fields: Any) -> None:
        await self._others.tell(self._person, kind, **fields)

    # --- this node's pages ------------------------------------------------------------------------

    async def _show(self, message: Mapping[str, Any], more: extras.Fields) -> None:
        for drafts in (self._drafts, self._told):
            drafts.replied(message["draft"], message["draft"])
        replaces: list[str] = []
        if message["is_reply"]:
            self._told.clear()
            self._thoughts.clear()
            replaces = self._drafts.clear()
        html = await self.html(message["text"])
        line = {"id": message["id"], "role": "bot", "text": message["text"], "at": message["at"]}
        if message["draft"]:
            line |= {"draft": message["draft"], "steps": self._taken(message["draft"])}
        line |= {name: message[name] for name in MARKS if message.get(name)}
        if aside := message.get("aside"):
            self._asides[aside] = None
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
        self,
        message_id: str,
        text: str,
        at: int,
        files: Sequence[Json],
        besides: Socket | None = None,
    ) -> None:
        if message_id in self._asides:
            return  # its answer is there, and takes its place
        line = _line(message_id, "user", text, at) | ({"files": list(files)} if files else {})
        shown = protocol.encode("message", **line, replaces=[])
        for socket in self._greeted():
            if socket is not besides:
                socket.put(shown)

    def _show_withdrawn(self, message_id: str) -> None:
        self._broadcast(lambda _as_html: protocol.encode("withdrawn", id=message_id))

    def _show_typing(self) -> None:
        self._broadcast(lambda _as_html: protocol.encode("typing"))

    def _show_activity(self, activity: Activity) -> None:
        if activity.draft in self._over:
            return  # it comes after its reply, from another node
        if activity.kind in STEPS:
            steps = self._steps.get(activity.draft, {})
            if activity.id in steps or len(steps) < MAX_DOING:
                steps[activity.id] = activity
            self._steps[activity.draft] = steps  # it is known for as long again
        elif activity.state == "begun":
            self._doing[activity.id] = activity
        else:
            self._doing.pop(activity.id, None)
        newest = activity.id if activity.kind == "thinking" else ""
        self._broadcast(lambda _as_html: _activity_frame(activity), draft=newest)

    def _taken(self, draft_id: str) -> list[Json]:
        """Forget the activities of a reply that is there now; no page is told them again."""
        self._over[draft_id] = None
        steps = self._steps.pop(draft_id, {})
        for activity in tuple(self._doing.values()):
            if activity.draft == draft_id:
                self._doing.pop(activity.id, None)
        return [_step(activity) for activity in steps.values()]

    def _forget(self, draft_id: str) -> bool:
        """Show no more what was done for a reply that never comes, if anything was."""
        was_known = self._steps.pop(draft_id, None) is not None
        if was_known:
            self.show_draft(draft_id, "", "")
        return was_known

    async def html(self, text: str) -> str:
        """A text as HTML, if a page wants that; else empty."""
        wanted = any(socket.format == "html" for socket in self._greeted())
        return await _rendered(text) if wanted else ""

    def show_draft(self, draft_id: str, text: str, html: str) -> None:
        """Show a reply so far on every page; empty takes it away."""
        self._broadcast(
            lambda as_html: _draft_frame(draft_id, text, html, as_html=as_html), draft=draft_id
        )

    # --- what was forgotten -----------------------------------------------------------------------

    async def anew(
        self,
        kind: Literal["switched", "forgotten"],
        items: Sequence[HistoryItem],
        known: Mapping[str, Media],
    ) -> None:
        """Show on this node's pages no word of what was forgotten, or of another branch."""
        self._drafts.clear()  # what goes on of these comes again
        self._thoughts.clear()
        self._steps.clear()
        self._doing.clear()
        self._shelf.drop(item.id for item in items if not item.text)
        for socket in tuple(self.sockets):
            if socket.format == "none":
                if kind == "forgotten":
                    socket.put(protocol.encode("forgotten"))
            elif socket.greeted and socket.format == "html":  # what is printed stays
                socket.put(await self.frame(kind, socket, items, known))

    def close(self) -> None:
        """Have every page come back, to what it may show."""
        for socket in tuple(self.sockets):
            socket.abort()

    # --- a page that was opened -------------------------------------------------------------------

    async def first_frames(
        self, socket: Socket, items: Sequence[HistoryItem], known: Mapping[str, Media]
    ) -> list[str]:
        """The history, and what is being written and done now."""
        first = [await self.frame("history", socket, items, known)]
        as_html = socket.format == "html"
        drafts = [
            (draft_id, _draft_frame(draft_id, text, await _rendered(text), as_html=as_html))
            for draft_id, text in self._drafts.texts.items()
        ]
        # Read after the last await: a draft finished meanwhile must not come back.
        first += [frame for draft_id, frame in drafts if draft_id in self._drafts.texts]
        first += map(_activity_frame, self._doing.values())
        first += [
            _activity_frame(each) for steps in self._steps.values() for each in steps.values()
        ]
        return first

    async def frame(
        self,
        kind: Literal["history", "older", "forgotten", "switched"],
        socket: Socket,
        items: Sequence[HistoryItem],
        known: Mapping[str, Media],
    ) -> str:
        """The newest of these lines, as a page shows them; `known` are files that are there."""
        most = OLDER_CHARS if kind == "older" else HISTORY_CHARS
        lines = await self._lines(items, socket, most, known)
        before = lines[0].get("place", "") if lines else ""
        return protocol.encode(kind, items=lines, before=before)

    async def _lines(
        self,
        items: Sequence[HistoryItem],
        socket: Socket,
        most: int,
        known: Mapping[str, Media],
    ) -> list[dict[str, object]]:
        """The newest lines that fit one frame, but one at least, as the page takes them."""
        as_html = socket.format == "html"
        lines: list[dict[str, object]] = []
        size = 0
        for number, item in enumerate(reversed(items), start=1):
            size += len(item.text)
            if size > most and lines:
                break
            what = (item.id, item.role, item.text, item.at)
            html = await _rendered(item.text) if as_html and item.role == "bot" else ""
            line = _line(*what, html)
            if item.place:
                line["place"] = item.place
            if item.files:
                line["files"] = [frame_of(known.get(ref), ref) for ref in item.files]
            if item.failed and item.text:
                line["failed"] = item.failed
            if item.sources and item.text:
                line["sources"] = item.sources
            if item.versions:
                line["versions"] = item.versions
            line |= {name: True for name in ("stopped", "waits") if getattr(item, name)}
            lines.append(line | dict(_for_client(self._shelf.of(item.id), as_html=as_html)))
            if number % RENDERS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return lines[::-1]

    # --- every page -------------------------------------------------------------------------------

    def _broadcast(self, frame: Callable[[bool], str], *, draft: str = "") -> None:
        """Queue a frame for every page, made once for each format in use."""
        made: dict[str, str] = {}
        for socket in self._greeted():
            if socket.format not in made:
                made[socket.format] = frame(socket.format == "html")
            socket.put(made[socket.format], draft=draft)

    def _greeted(self) -> list[Socket]:
        return [socket for socket in self.sockets if socket.greeted and socket.format != "none"]


class WebDrafts(Drafts[str]):
    """The replies that are being written, each in a place of its own."""

    def __init__(self, pages: PersonPages) -> None:
        super().__init__(asyncio.create_task)
        self._pages = pages

    async def put(self, draft: Draft[str]) -> float:
        """Show a draft on every page; see `Drafts.put`."""
        loop = asyncio.get_running_loop()
        began, text = loop.time(), draft.text
        draft.message = draft.id
        try:
            html = await self._pages.html(text)
        except Exception:
            log.exception("web.draft.failed")
        else:
            if not draft.closing.is_set():
                self._pages.show_draft(draft.id, text, html)
        return max(INTERVAL, (loop.time() - began) * BUSY_SHARE)

    async def remove(self, draft: Draft[str]) -> None:
        """Take a draft away on every page."""
        self._pages.show_draft(draft.id, "", "")


async def _rendered(markdown: str) -> str:
    """A text as HTML; one that takes a while is rendered beside everything else."""
    if len(markdown) > LONG_TEXT or takes_long(markdown):
        return await asyncio.to_thread(render, markdown, rich=True)
    return render(markdown, rich=True)


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
    shown = {"html": html} if as_html else {"text": text}
    return protocol.encode("draft", id=draft_id, **shown)


def _activity_frame(activity: Activity) -> str:
    return protocol.encode(
        "activity",
        id=activity.id,
        where=activity.where,
        draft=activity.draft,
        **_step(activity),
    )


def _step(activity: Activity) -> Json:
    return {
        "what": activity.kind,
        "state": activity.state,
        "text": activity.text,
        "found": activity.found,
    }
