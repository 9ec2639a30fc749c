"""The protocol of page and server: JSON text frames over one WebSocket.

From the page: `hello` first (`version`, `locale`, `format`, `zone`), then `send` (`id`, `text`,
`locale`, `files` by the ids they were brought under, and `replaces`, the id of a message whose
place this one takes), `models`, which asks for the frame of that name, `seen` (`id`): somebody can
see a message, `withdraw` (`id`): a message that waits is taken back, `switch` (`id`): the
conversation goes on from another one of a line's `versions`, and `older` (`before`, as the last
`history` or `older` had it), which asks for what stands before that. To the page: `commands`,
`history`, `ack`, `message`, `draft`, `typing`, `activity`, `models`, `older`, `forgotten`,
`switched`, `withdrawn`, `error`. It keeps a message until its `ack`, and sends it again under the
same id after a reconnect. A press on a button below the message X is a `send` with the id
`press-X`, so that one message takes one press, whatever the number of pages and tries; what X says
was not answered is asked again as `again-X`, and the N-th version after X, with the same words, is
`redo-X-N`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import count
from typing import Any, Literal, cast

import structlog
from aiohttp import WSCloseCode, web

VERSION = 1
MAX_TEXT = 64 * 1024  # bytes of UTF-8 in one message
LONGEST_ID = 200  # characters of the id of a message of the bot
MAX_FILES = 10  # of one message
MAX_FRAME = 8 * MAX_TEXT  # bytes; JSON may escape one byte as six

Format = Literal["html", "text", "none"]

_PLACE = re.compile(r"[!-~]{1,200}")
_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ZONE = re.compile(r"[A-Za-z0-9_+/-]{1,64}")
_FILE = re.compile(r"[A-Za-z0-9]{8,64}")
_LOCALE = re.compile(r"[A-Za-z0-9_-]{0,35}")


class BadFrame(Exception):
    """A frame that cannot be used; `key` names the sentence, `id` the message if it had one."""

    def __init__(self, key: str, message_id: str = "") -> None:
        super().__init__(key)
        self.key = key
        self.id = message_id


@dataclass(frozen=True, slots=True)
class Hello:
    """The first frame of a connection; `format` is what the client shows replies as.

    A client that shows none of them (`none`) is told of what was forgotten, and of nothing else.

    `zone` is the IANA name of the time zone the client is in, or empty.
    """

    locale: str = ""
    format: Format = "html"
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    """One message; `id` is the client's own, the same on every try, as are those of its `files`.

    It takes the place of the one that it `replaces`, if any.
    """

    id: str
    text: str
    locale: str = ""
    files: tuple[str, ...] = ()
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class Wish:
    """Another request of a client, about the message with an `id`; of "older" it is a place.

    "models" asks which models there are, "older" for the lines before a place. A message was "seen"
    on a page, is to be taken back before it is answered ("withdraw"), or is the version of a turn
    that the conversation is to go on from ("switch").
    """

    kind: Literal["models", "older", "seen", "withdraw", "switch"]
    id: str = ""


def parse_hello(raw: str) -> Hello:
    """The first frame of a client.

    Raises:
        BadFrame: it is something else, or speaks another version.
    """
    frame = _frame(raw, "hello")
    if frame.get("version") != VERSION:
        raise BadFrame("version")
    zone = frame.get("zone")
    known = zone if isinstance(zone, str) and _ZONE.fullmatch(zone) else ""
    wanted = frame.get("format")
    shown: Format = wanted if wanted in ("text", "none") else "html"
    return Hello(_locale(frame), shown, known)


def parse_frame(raw: str) -> Send | Wish:
    """A message of a client, or what else it wants.

    Raises:
        BadFrame: it is something else, or holds something that cannot be taken.
    """
    frame = _frame(raw, "send", "models", "older", "seen", "withdraw", "switch")
    if frame["type"] != "send":
        return _wish(frame)
    message_id = frame.get("id")
    text = frame.get("text")
    if not isinstance(message_id, str) or not _ID.fullmatch(message_id):
        raise BadFrame("malformed")
    if not isinstance(text, str):
        raise BadFrame("malformed", message_id)
    # JSON can carry halves of surrogate pairs and NUL, which a database cannot.
    text = text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")
    files = _files(frame, message_id)
    if not text.strip() and not files:
        raise BadFrame("empty", message_id)
    if len(text.encode()) > MAX_TEXT:
        raise BadFrame("too_long", message_id)
    replaces = frame.get("replaces", "")
    if not isinstance(replaces, str) or (replaces and not _ID.fullmatch(replaces)):
        raise BadFrame("malformed", message_id)
    return Send(message_id, text, _locale(frame), files, replaces)


def _wish(frame: Mapping[str, object]) -> Wish:
    """Another request of a client; see `parse_frame`."""
    kind = cast("Literal['models', 'older', 'seen', 'withdraw', 'switch']", frame["type"])
    if kind == "models":
        return Wish(kind)
    about = frame.get("before" if kind == "older" else "id")
    if not isinstance(about, str) or len(about) > LONGEST_ID:
        raise BadFrame("malformed")
    if kind == "older" and not _PLACE.fullmatch(about):
        raise BadFrame("malformed")
    return Wish(kind, about)


def _files(frame: Mapping[str, object], message_id: str) -> tuple[str, ...]:
    listed = frame.get("files", [])
    if not isinstance(listed, list):
        raise BadFrame("malformed", message_id)
    ids = cast("list[object]", listed)
    found = tuple(id_ for id_ in ids if isinstance(id_, str) and _FILE.fullmatch(id_))
    if len(found) != len(ids) or len(set(found)) != len(ids) or len(ids) > MAX_FILES:
        raise BadFrame("malformed", message_id)
    return found


def _frame(raw: str, *kinds: str) -> Mapping[str, object]:
    try:
        value: object = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadFrame("malformed") from error
    frame = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if frame.get("type") not in kinds:
        raise BadFrame("malformed")
    return frame


def _locale(frame: Mapping[str, object]) -> str:
    locale = frame.get("locale")
    return locale if isinstance(locale, str) and _LOCALE.fullmatch(locale) else ""


def encode(kind: str, **fields: Any) -> str:
    """A frame of the server."""
    text = json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode("utf-8")


def error(key: str, locale: str, message_id: str = "") -> str:
    """An `error` frame; `text` is for clients without a catalog of their own."""
    return encode("error", key=key, id=message_id, text=sentence(locale, f"error.{key}"))


def sentence(locale: str, key: str) -> str:
    """A sentence of the page's catalog in the language of a locale."""
    return _catalogs()["zh" if locale.lower().startswith("zh") else "en"][key]


@cache
def _catalogs() -> dict[str, dict[str, str]]:
    raw = resources.files("adapters.web").joinpath("static/strings.json").read_text("utf-8")
    return cast("dict[str, dict[str, str]]", json.loads(raw))


# One open page: a bounded queue of frames and the task that writes them.

log = structlog.stdlib.get_logger(__name__)

MAX_WAITING = 256  # frames …
MAX_WAITING_CHARS = 4 * 1024 * 1024  # … or characters a page may lag behind
WRITE_SECONDS = 15.0  # how long one frame may take before the page counts as gone


class Socket:
    """Writes frames to one page, `person`'s, without ever making anyone else wait.

    A page that reads too slowly is disconnected: it comes back and gets the history.
    """

    def __init__(
        self, ws: web.WebSocketResponse, transport: asyncio.Transport | None, person: str
    ) -> None:
        self.person = person
        self.format: Format = "html"
        self.locale = ""
        self.zone = ""
        self.greeted = False
        self._ws = ws
        self._transport = transport
        self._waiting: OrderedDict[str, str] = OrderedDict()
        self._size = 0
        self._numbers = count()
        self._wake = asyncio.Event()
        self._close_code: int | None = None
        self._writer: asyncio.Task[None] | None = None

    def greet(self, hello: Hello) -> None:
        """Take part in what is broadcast from now on; nothing is written before `open`."""
        self.format, self.locale, self.zone = hello.format, hello.locale, hello.zone
        self.greeted = True

    def open(self, first: Iterable[str]) -> None:
        """Begin writing: these frames first, then whatever was queued meanwhile."""
        for frame in reversed(list(first)):
            key = self._key()
            self._waiting[key] = frame
            self._waiting.move_to_end(key, last=False)
        self._writer = asyncio.create_task(self._write())
        self._wake.set()

    def put(self, frame: str, *, draft: str = "") -> None:
        """Queue a frame; a newer state of a draft takes the place of one still waiting."""
        if self._close_code is not None:
            return
        key = f"draft {draft}" if draft else self._key()
        self._size += len(frame) - len(self._waiting.get(key, ""))
        self._waiting[key] = frame
        if len(self._waiting) > MAX_WAITING or self._size > MAX_WAITING_CHARS:
            log.warning("web.socket.slow", waiting=len(self._waiting))
            self.abort()
            return
        self._wake.set()

    def close(self, code: int = WSCloseCode.GOING_AWAY) -> None:
        """Close once everything queued is written."""
        if self._close_code is None:
            self._close_code = code
            self._wake.set()
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())

    def abort(self) -> None:
        """Drop the connection at once; nothing is owed to a page that comes back to history."""
        self._close_code = WSCloseCode.TRY_AGAIN_LATER
        self._waiting.clear()
        self._wake.set()
        if self._transport is not None:
            self._transport.abort()

    async def finished(self) -> None:
        """Release the writer, after the reading side ended."""
        if self._writer is None:
            return
        if self._close_code is None:
            self._writer.cancel()
        # A writer that is closing is let through, so the other side learns why.
        await asyncio.wait([self._writer], timeout=WRITE_SECONDS)

    def _key(self) -> str:
        return str(next(self._numbers))

    async def _write(self) -> None:
        try:
            while self._waiting or self._close_code is None:
                if not self._waiting:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                _, frame = self._waiting.popitem(last=False)
                self._size = max(0, self._size - len(frame))
                async with asyncio.timeout(WRITE_SECONDS):
                    await self._ws.send_str(frame)
            await self._ws.close(code=self._close_code)
        except TimeoutError:
            log.warning("web.socket.stalled")
            self.abort()
        except (ConnectionError, RuntimeError):
            self.abort()  # the page went away in the middle
