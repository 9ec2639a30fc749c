"""The values of the fake Bot API server, and how it reads requests and checks text."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from tests.fakes.telegram_entities import EntityError, as_html, check, is_blank, trimmed, units

MAX_TEXT = 4096  # UTF-16 units
MAX_REQUEST_TEXT = 1 << 15  # bytes
PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF")  # how they begin

Json = dict[str, Any]


class ApiError(Exception):
    """An answer with ok = false."""

    def __init__(self, code: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


@dataclass
class Fault:
    """What goes wrong with the next calls of a method."""

    status: int = 500
    description: str = "Internal Server Error"
    parameters: Json = field(default_factory=dict)
    drop: bool = False  # close the connection without an answer
    after: bool = False  # do the work first, then fail: the answer is what gets lost
    body: bytes | None = None  # answer with exactly these bytes
    delay: float = 0.0  # seconds before anything happens
    chat: int | None = None  # only for this chat
    match: str = ""  # only for texts that contain this


@dataclass(frozen=True, slots=True)
class Call:
    """A request as it came in."""

    at: float  # time.monotonic()
    token: str
    method: str
    params: Json


@dataclass(frozen=True, slots=True)
class Sent:
    """A message a bot sent, as the person sees it."""

    at: float
    token: str
    chat_id: int
    message_id: int
    text: str  # what shows
    entities: list[Json]
    thread_id: int | None
    reply_to: int | None
    buttons: list[list[tuple[str, str]]] = field(default_factory=list)  # labels and data, by row
    kind: str = (
        ""  # "photo", "voice" or "document", with the name, type and bytes of what was uploaded
    )
    file: str = ""
    mime: str = ""
    size: int = 0

    @property
    def html(self) -> str:
        """What shows, with its formatting as tags."""
        return as_html(self.text, self.entities)


@dataclass
class BotState:
    """What the server knows of one bot."""

    token: str
    id: int
    username: str
    updates: deque[Json] = field(default_factory=deque)
    next_update: int = 1
    allowed: tuple[str, ...] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    poller: int = 0  # number of the newest getUpdates
    webhook: Json | None = None
    delivery: asyncio.Task[None] | None = None
    commands: dict[str, list[Json]] = field(default_factory=dict)


def bot_user(bot: BotState) -> Json:
    return {"id": bot.id, "is_bot": True, "first_name": "Confidant", "username": bot.username}


def shown_text(params: Json, limit: int = MAX_TEXT, name: str = "text") -> tuple[str, list[Json]]:
    """The text that shows and its entities, after every check the real server makes."""
    source = params.get(name)
    source = source if isinstance(source, str) else ""
    found = params.get("entities" if name == "text" else "caption_entities") or []
    entities: list[Json] = json.loads(found) if isinstance(found, str) else found
    if len(source.encode("utf-8", "surrogatepass")) > MAX_REQUEST_TEXT:
        raise ApiError(400, "Bad Request: text is too long")
    if params.get("parse_mode"):
        raise ApiError(400, "Bad Request: unsupported parse_mode")
    try:
        check(source, entities)
    except EntityError as error:
        raise ApiError(400, f"Bad Request: {error}") from None
    text, entities = trimmed(source, entities)
    if is_blank(text):
        raise ApiError(400, f"Bad Request: message {name} is empty")
    if units(text) > limit:
        called = "message" if name == "text" else f"message {name}"
        raise ApiError(400, f"Bad Request: {called} is too long")
    return text, entities


def keyboard_of(params: Json) -> list[list[Json]]:
    """The rows of an inline keyboard, after every check the real server makes."""
    rows: list[list[Json]] = nested(params.get("reply_markup")).get("inline_keyboard") or []
    for button in (button for row in rows for button in row):
        if not str(button.get("text", "")).strip():
            raise ApiError(400, "Bad Request: can't parse inline keyboard button: text is empty")
        if not 1 <= len(str(button.get("callback_data", "")).encode()) <= 64:
            raise ApiError(400, "Bad Request: BUTTON_DATA_INVALID")
    if sum(map(len, rows)) > 100:
        raise ApiError(400, "Bad Request: reply markup is too long")
    return rows


def upload_of(params: Json, kind: str) -> tuple[str, str, bytes]:
    """The name, type and bytes of an uploaded file, after every check the real server makes."""
    upload = params.get(kind)
    if not isinstance(upload, web.FileField):
        raise ApiError(400, f"Bad Request: there is no {kind} in the request")
    data = upload.file.read()
    if not data:
        raise ApiError(400, "Bad Request: file must be non-empty")
    if kind == "photo" and len(data) > 10 << 20:
        raise ApiError(400, "Bad Request: file is too big for a photo")
    if kind == "photo" and not data.startswith(PICTURES):
        raise ApiError(400, "Bad Request: IMAGE_PROCESS_FAILED")
    if kind == "voice" and not data.startswith(b"OggS"):
        raise ApiError(400, "Bad Request: wrong voice message")
    return upload.filename, upload.content_type, data


def keep_allowed(bot: BotState, params: Json) -> None:
    """Keep the kinds of updates a bot wants, when it says."""
    allowed = params.get("allowed_updates")
    if isinstance(allowed, str):
        allowed = json.loads(allowed)
    if allowed is not None:
        bot.allowed = tuple(allowed) or None


def nested(value: Any) -> Mapping[str, Any]:
    """A nested object, which form posts carry as JSON text."""
    if isinstance(value, str):
        value = json.loads(value)
    return value if isinstance(value, dict) else {}


async def parameters_of(request: web.BaseRequest) -> Json:
    """The parameters of a call, from the query and a JSON, form or multipart body."""
    params: Json = dict(request.query) if request.query_string else {}
    kind = request.content_type
    if kind == "multipart/form-data":
        params.update(await request.post())
        return params
    body = await request.read()
    if body and kind == "application/json":
        params.update(json.loads(body))
    elif body:
        params.update(parse_qsl(body.decode(), keep_blank_values=True))
    return params


def answer(value: Any, status: int = 200) -> web.Response:
    return web.Response(
        body=json.dumps(value).encode(), status=status, content_type="application/json"
    )


def failure(error: ApiError) -> web.Response:
    body: Json = {"ok": False, "error_code": error.code, "description": error.description}
    if error.parameters:
        body["parameters"] = error.parameters
    return answer(body, error.code)
