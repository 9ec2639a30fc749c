"""OpenAI's chat completions, for other programs: a key talks as one person, with their memory.

The bot keeps the conversation, so of the messages a program sends only the last one is said to it.
What the program was told before stands in the bot's own transcript, and what its "system" message
says is passed on as somebody else's words. With a key for conversations that are apart, each one of
the program has its own here; else all that comes with a key is one.

https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import secrets
import time
from base64 import b64decode
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import structlog
from aiohttp import web
from cachetools import LRUCache, TTLCache

from adapters.web.files import CHANNEL
from adapters.web.protocol import MAX_FILES, MAX_TEXT
from bot.channel import (
    DEFAULT_ACCOUNT,
    MAX_REPLY_TEXT,
    MOST_UPLOAD,
    MOST_UPLOAD_PART,
    UPLOAD_MARK,
    Address,
    Engine,
    Foreign,
    Inbound,
    Media,
    Piece,
)
from bot.channel.http import Visitor, shared, visitor_of
from bot.channel.kit.json_access import (
    Json,
    child,
    children,
    integer,
    mapping,
    media_kind,
    parse_json,
    text,
)
from bot.clock import system_clock
from bot.shares import TALKS, Pool

MODEL: Final = "confidant"
MARK: Final = "api-"  # what the threads of programs begin with
MOST_BODY: Final = 24_000_000  # bytes: pictures come as text
LARGE: Final = 100_000  # bytes of a body that is read beside everything else
HISTORY: Final = 60  # lines among which an answer is looked for
ANSWER_SECONDS: Final = 600.0  # after which a program is told to ask again
ALIVE_SECONDS: Final = 15.0  # between signs of life, so that no proxy ends the connection
AGAIN_SECONDS: Final = 600.0  # in which the same request is the same message
MOST_KNOWN: Final = 2_000  # such requests, and conversations whose instructions are known
CHAT_HEADER: Final = "X-OpenWebUI-Chat-Id"  # which names the conversation of a program

log = structlog.stdlib.get_logger(__name__)


class Refused(Exception):
    """A request that cannot be answered, in words for whoever wrote the program."""

    def __init__(self, words: str, param: str | None = None, *, status: int = 400) -> None:
        super().__init__(words)
        self.param, self.status = param, status

    @property
    def body(self) -> Json:
        """As OpenAI's clients read it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        said = {"message": str(self), "type": kind, "param": self.param, "code": None}
        return {"error": said}


@dataclass(frozen=True, slots=True)
class File:
    """A file that came in a message."""

    name: str
    mime: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: the last message, and what tells which conversation it belongs to.

    `first` is what the conversation began with, and `is_first` says that this is it.
    """

    text: str
    files: tuple[File, ...]
    instructions: str
    first: str
    is_first: bool
    stream: bool


def parse(body: bytes) -> Asked:
    """A request as it came.

    Raises:
        Refused: it is none, or asks for what the bot does not do.
    """
    try:
        request = mapping(parse_json(body))
    except (ValueError, RecursionError) as error:
        raise Refused("The body is not JSON.") from error
    if text(request, "model") != MODEL:
        raise Refused(f'There is one model here: "{MODEL}".', "model", status=404)
    if request.get("tools") or request.get("functions"):
        raise Refused(
            "The bot calls its own tools and none of the client's. Leave them out.", "tools"
        )
    if (integer(request, "n") or 1) != 1:
        raise Refused("One answer is given to each request.", "n")
    messages = children(request, "messages")
    said = [each for each in messages if text(each, "role") == "user"]
    if not said or said[-1] is not messages[-1]:
        raise Refused('The last of "messages" has to be the user\'s.', "messages")
    words, files = _content(said[-1])
    if len(words.encode()) > MAX_TEXT:
        raise Refused(f"A message may have {MAX_TEXT} bytes of text.", "messages")
    if not words.strip() and not files:
        raise Refused("The last message says nothing.", "messages")
    told = [_content(each)[0] for each in messages if text(each, "role") in {"system", "developer"}]
    return Asked(
        words,
        files,
        "\n\n".join(filter(None, told))[:MAX_REPLY_TEXT],
        _content(said[0])[0],
        len(said) == 1,
        request.get("stream") is True,
    )


def _content(message: Json) -> tuple[str, tuple[File, ...]]:
    """The text and files of a message."""
    if isinstance(message.get("content"), str):
        return text(message, "content"), ()
    words, files = list[str](), list[File]()
    for part in children(message, "content"):
        match text(part, "type"):
            case "text" | "input_text":
                words.append(text(part, "text"))
            case "image_url":
                files.append(_file(text(child(part, "image_url"), "url"), "picture"))
            case "file":
                named = child(part, "file")
                files.append(_file(text(named, "file_data"), text(named, "filename") or "file"))
            case kind:
                raise Refused(f'A part of type "{kind[:40]}" is not understood here.', "messages")
    if len(files) > MAX_FILES:
        raise Refused(f"A message may have {MAX_FILES} files.", "messages")
    return "\n\n".join(words), tuple(files)


def _file(url: str, name: str) -> File:
    head, is_data, packed = url.partition(",")
    if not is_data or not head.startswith("data:") or not head.endswith(";base64"):
        raise Refused("Files are taken as data URLs in base64, not by an address.", "messages")
    try:
        data = b64decode(packed, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused("A file is not in base64.", "messages") from error
    if not 0 < len(data) <= MOST_UPLOAD:
        raise Refused(f"A file may have {MOST_UPLOAD} bytes.", "messages")
    mime = head.removeprefix("data:").partition(";")[0].lower()[:100]
    return File(name[:100], mime or "application/octet-stream", data)


def thread_of(visitor: Visitor, asked: Asked, chat: str) -> str:
    """The conversation of a request: that of its key, or one for what the program calls a chat."""
    if not visitor.is_apart:
        return f"{MARK}{visitor.key}"
    return f"{MARK}{visitor.key}-{hashlib.sha256((chat or asked.first).encode()).hexdigest()[:16]}"


class Waiter:
    """A request that waits for its answer; `text` is what is there of it so far."""

    def __init__(self, message_id: str, *, is_command: bool) -> None:
        self.id = message_id
        self.is_command = is_command  # whatever is said next answers it
        self.text = ""
        self.is_over = False
        self._changed = asyncio.Event()

    def grow(self, words: str) -> None:
        """Show the answer so far."""
        self.text = words
        self._changed.set()

    def end(self, words: str) -> None:
        """Show the whole answer."""
        self.is_over = True
        self.grow(words)

    async def change(self, seconds: float) -> bool:
        """Wait until there is more; False when there was none for so long."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False
        self._changed.clear()
        return True


class Completions:
    """`/v1/chat/completions` and `/v1/models`."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self._waiting: dict[str, list[Waiter]] = {}  # by thread, in the order they asked
        self._pool = Pool(TALKS)
        self._ids: TTLCache[str, str] = TTLCache(MOST_KNOWN, AGAIN_SECONDS, timer=time.monotonic)
        self._told: LRUCache[str, str] = LRUCache(MOST_KNOWN)  # the instructions, by thread

    def routes(self) -> list[web.RouteDef]:
        """The routes."""
        return shared(
            [
                web.post("/v1/chat/completions", self._complete),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{model}", self._model),
            ]
        )

    # --- what the engine says ---------------------------------------------------------------------

    def draft(self, thread: str, words: str) -> None:
        """Show a reply as it grows to whoever asked first."""
        if words and (waiters := self._waiting.get(thread)):
            waiters[0].grow(words)

    async def sent(self, said: Json) -> None:
        """Give a message, as `told` of it on any node, to whoever waits for it."""
        waiters = self._waiting.get(said["thread"], ())
        if not waiters or self.engine is None:
            return
        address = Address(CHANNEL, DEFAULT_ACCOUNT, said["person"], said["thread"])
        lines = [each.id for each in await self.engine.history(address, HISTORY)]
        before = lines[: lines.index(said["id"])] if said["id"] in lines else []
        for waiter in tuple(waiters):
            is_answer = waiter.id in before and (said["is_answer"] or waiter.is_command)
            if is_answer or waiter.id in said["failed"]:
                waiter.end(said["text"])

    # --- what programs ask ------------------------------------------------------------------------

    async def _models(self, _request: web.Request) -> web.Response:
        return _json({"object": "list", "data": [_described()]})

    async def _model(self, request: web.Request) -> web.Response:
        if request.match_info["model"] != MODEL:
            refused = Refused(f'There is one model here: "{MODEL}".', "model", status=404)
            return _json(refused.body, refused.status)
        return _json(_described())

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        engine, visitor = self.engine, visitor_of(request)
        if engine is None:
            raise web.HTTPServiceUnavailable
        try:
            async with self._pool.place(visitor.name):
                body = await _body(request)
                read = asyncio.to_thread(parse, body) if len(body) > LARGE else None
                asked = await read if read is not None else parse(body)
                return await self._answer(request, engine, asked, body)
        except Refused as why:
            return _json(why.body, why.status)

    async def _answer(
        self, request: web.Request, engine: Engine, asked: Asked, body: bytes
    ) -> web.StreamResponse:
        visitor = visitor_of(request)
        thread = thread_of(visitor, asked, request.headers.get(CHAT_HEADER, "")[:200])
        address = Address(CHANNEL, DEFAULT_ACCOUNT, visitor.name, thread)
        # A program that lost its connection asks the same again: it is the same message.
        digest = hashlib.sha256(f"{thread}\0".encode() + body).hexdigest()
        is_again = digest in self._ids
        message_id = self._ids.setdefault(digest, f"{MARK}{secrets.token_hex(12)}")
        waiter = Waiter(message_id, is_command=asked.text.startswith("/"))
        self._waiting.setdefault(thread, []).append(waiter)
        try:
            if is_again and (words := await _answer_in(engine, address, message_id)):
                waiter.end(words)
            if not waiter.is_over:
                await self._say(engine, address, visitor, asked, message_id)
            give = self._stream if asked.stream else self._whole
            response = await give(request, waiter)
        finally:
            self._waiting[thread].remove(waiter)
            if not self._waiting[thread]:
                del self._waiting[thread]
        if request.transport is not None:  # it got its answer: asked again, it is another message
            self._ids.pop(digest, None)
        return response

    async def _say(
        self, engine: Engine, address: Address, visitor: Visitor, asked: Asked, message_id: str
    ) -> None:
        """Store the message.

        Raises:
            StorageError: it could not be stored.
            Refused: there is no room for its files.
        """
        media = list[Media]()
        for number, file in enumerate(asked.files):
            ref = f"{UPLOAD_MARK}{message_id.removeprefix(MARK)}{number}"
            kept = Media(media_kind(file.mime), file.name, file.mime, len(file.data), ref)
            for part in range(0, len(file.data), MOST_UPLOAD_PART):
                data = file.data[part : part + MOST_UPLOAD_PART]
                if not await engine.put_file(address, kept, part // MOST_UPLOAD_PART, data):
                    raise Refused("There is no room for more files today.", status=413)
            media.append(kept)
        words = asked.text
        if visitor.is_apart and asked.is_first and await engine.history(address, 1):
            words = f"/new {words}"  # it begins as one did before
        foreign = ()
        if asked.instructions and self._told.get(address.thread) != asked.instructions:
            foreign = (Foreign("forwarded", asked.instructions, visitor.program),)
        await engine.receive(
            Inbound(
                channel=address.channel,
                account=address.account,
                chat=address.chat,
                chat_type="direct",
                sender=visitor.name,
                message_id=message_id,
                text=words,
                sent_at=system_clock(),
                thread=address.thread,
                media=tuple(media),
                foreign=foreign,
            )
        )
        self._told[address.thread] = asked.instructions

    async def _whole(self, _request: web.Request, waiter: Waiter) -> web.Response:
        until = time.monotonic() + ANSWER_SECONDS
        while not waiter.is_over:
            if not await waiter.change(until - time.monotonic()):
                raise _late()
        message = {"role": "assistant", "content": waiter.text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return _json(_completion(waiter, "chat.completion", choice))

    async def _stream(self, request: web.Request, waiter: Waiter) -> web.StreamResponse:
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        until, shown = time.monotonic() + ANSWER_SECONDS, ""
        delta: Json = {"role": "assistant", "content": ""}
        await response.write(_event(waiter, delta))
        while True:
            is_over, words = waiter.is_over, waiter.text
            if words.startswith(shown) and words != shown:
                await response.write(_event(waiter, {"content": words[len(shown) :]}))
                shown = words
            elif is_over and words != shown:  # what was shown of it was put otherwise since
                await response.write(_event(waiter, {"content": f"\n\n{words}"}))
            if is_over:
                await response.write(_event(waiter, {}, "stop") + b"data: [DONE]\n\n")
                break
            if not await waiter.change(ALIVE_SECONDS):
                if time.monotonic() > until:
                    await response.write(b"data: " + orjson.dumps(_late().body) + b"\n\n")
                    break
                await response.write(b": waiting\n\n")
        await response.write_eof()
        return response


def told(piece: Piece) -> Json:
    """The state of a message in the conversation of a program."""
    asks = any(button.command.startswith("/allow ") for button in piece.buttons)
    return {
        "thread": piece.address.thread,
        "id": piece.whole.id,
        "text": piece.text,
        "failed": list(piece.failed),
        "is_answer": asks or piece.kind == "reply",
    }


def _late() -> Refused:
    why = "The answer takes longer. Send the same request again to get it."
    return Refused(why, status=504)


async def _answer_in(engine: Engine, address: Address, message_id: str) -> str:
    """The answer to a message, as the history has it."""
    lines = await engine.history(address, HISTORY)
    at = next((n for n, line in enumerate(lines) if line.id == message_id), len(lines))
    return next((line.text for line in lines[at + 1 :] if line.role == "bot"), "")


def _described() -> Json:
    return {"id": MODEL, "object": "model", "created": 0, "owned_by": MODEL}


def _completion(waiter: Waiter, kind: str, choice: Json) -> Json:
    made = {"id": f"chatcmpl-{waiter.id}", "object": kind, "created": int(time.time())}
    return {**made, "model": MODEL, "choices": [choice]}


def _event(waiter: Waiter, delta: Json, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + orjson.dumps(_completion(waiter, "chat.completion.chunk", choice)) + b"\n\n"


def _json(body: Json, status: int = 200) -> web.Response:
    return web.json_response(
        body, status=status, headers={"Cache-Control": "no-store"}, dumps=_dumps
    )


def _dumps(body: Any) -> str:
    return orjson.dumps(body).decode()


async def _body(request: web.Request) -> bytes:
    """A whole body; the server's own bound is for forms, and smaller.

    Raises:
        Refused: it is larger than `MOST_BODY`.
    """
    held = bytearray()
    async for chunk in request.content.iter_chunked(64 * 1024):
        held += chunk
        if len(held) > MOST_BODY:
            raise Refused(f"A request may have {MOST_BODY} bytes.", status=413)
    return bytes(held)
