"""Claude, or anything else that speaks the Messages API."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import structlog

from bot.agent.models import Request, StopReason, Usage, Window
from bot.agent.models.capabilities import Capabilities
from bot.agent.models.output import OutputFilter
from bot.agent.models.service import NO_KEY, ServiceModel
from bot.agent.models.wire import (
    GONE_PICTURE,
    NO_OUTPUT,
    OPENING,
    Json,
    ReplyReader,
    Words,
    arguments_in,
    converted,
    count,
    dump,
    listed,
    use_of,
    written_calls,
)
from bot.channel.kit.json_access import children, number, text
from bot.messages import Block, Message, Opaque, Picture, Text, ToolResult, ToolUse

if TYPE_CHECKING:
    from bot.agent.models.anthropic_client import Client
    from bot.agent.models.connection import ServiceConnection


# Our messages and the Messages API's JSON, both ways. Pure: no SDK, no network.
#
# The messages of a conversation are converted once, those of its newest turn for each call.

CACHE_MARK: Final[Json] = {"type": "ephemeral"}
CACHEABLE = frozenset({"text", "tool_use", "tool_result"})

# --- to the service ------------------------------------------------------------------------------


def body_of(request: Request, max_tokens: int, able: Capabilities) -> bytes:
    """The JSON of a request, with prompt-cache breakpoints on its prefix and its last message.

    Raises:
        ModelRejected: there is nothing to answer.
    """
    closed, messages = converted(request, "anthropic", able.reasoning, merge)
    messages[-1]["content"] = _marked(messages[-1]["content"])
    body: Json = {
        "model": request.model,
        "max_tokens": max_tokens,
        "messages": listed(closed, messages),
        "stream": True,
    }
    if able.thinking and request.on_thought is not None:
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
    tools = [
        {"name": spec.name, "description": spec.description, "input_schema": spec.schema}
        for spec in request.tools
    ]
    if request.system.strip():
        # Tools come before the system prompt in the cached prefix, so this mark covers both.
        body["system"] = [{"type": "text", "text": request.system, "cache_control": CACHE_MARK}]
    elif tools:
        tools[-1]["cache_control"] = CACHE_MARK
    if tools:
        body["tools"] = tools
        if (
            not request.may_call and able.tool_choice
        ):  # without the list earlier calls would make no sense
            body["tool_choice"] = {"type": "none"}
    return dump({**body, **request.extra})


def merge(merged: list[Json], message: Message, *, thinks: bool = True) -> None:
    """Put a message behind others, or into the last of them if that is of the same side.

    So roles alternate, a user begins, and no text is blank. A tool result's place is in front of
    the words beside it.
    """
    said = [b for b in message.blocks if thinks or not (isinstance(b, Opaque) and b.is_thought)]
    blocks = [raw for block in said if (raw := _block_to_json(block)) is not None]
    if not blocks:
        return
    if merged and merged[-1]["role"] == message.role:
        blocks = [*merged.pop()["content"], *blocks]
    elif not merged and message.role == "assistant":
        merged.append({"role": "user", "content": [{"type": "text", "text": OPENING}]})
    if results := [raw for raw in blocks if raw["type"] == "tool_result"]:
        blocks = [*results, *(raw for raw in blocks if raw["type"] != "tool_result")]
    merged.append({"role": message.role, "content": blocks})


def _marked(content: Sequence[Json]) -> list[Json]:
    """The blocks of a message, the last one that may carry it with a mark for the cache."""
    marked = list(content)
    for place in reversed(range(len(marked))):
        if marked[place]["type"] in CACHEABLE:  # thinking may not carry a mark
            marked[place] = {**marked[place], "cache_control": CACHE_MARK}
            break
    return marked


def _block_to_json(block: Block) -> Json | None:
    match block:
        case Text(text):
            return {"type": "text", "text": text} if text.strip() else None
        case ToolUse(id_, name, arguments):
            return {"type": "tool_use", "id": id_, "name": name, "input": arguments}
        case ToolResult(id_, text, is_error):
            told = text if text.strip() else NO_OUTPUT
            result: Json = {"type": "tool_result", "tool_use_id": id_, "content": told}
            return {**result, "is_error": True} if is_error else result
        case Picture(data=""):
            return {"type": "text", "text": GONE_PICTURE}
        case Picture(media_type, _, data):
            source = {"type": "base64", "media_type": media_type, "data": data}
            return {"type": "image", "source": source}
        case Opaque(data):
            return dict(data)


# --- from the service ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Block:
    """A block of the reply as far as it came, with what is not yet in its JSON."""

    raw: Json
    output: OutputFilter | None = None  # of words
    arguments: list[str] = field(default_factory=list[str])  # of a call
    thoughts: list[str] = field(default_factory=list[str])


_KINDS: Final[Mapping[str, tuple[str, str]]] = {  # of deltas: the block they belong to, their field
    "text_delta": ("text", "text"),
    "input_json_delta": ("tool_use", "partial_json"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
}


@dataclass(eq=False)
class Accumulator(ReplyReader):
    """Puts the events of one streamed message together."""

    _blocks: list[_Block] = field(default_factory=list[_Block], init=False)
    # By the number that the service gives it.
    _open: dict[object, _Block] = field(default_factory=dict[object, _Block], init=False)
    _usage: dict[str, int] = field(default_factory=dict[str, int], init=False)
    _words: Words = field(default_factory=Words, init=False)

    def _take(self, event: Json) -> str:
        match event["type"]:
            case "content_block_delta":
                return self._delta(event.get("index"), event["delta"])
            case "content_block_start":
                return self._start(event.get("index"), dict(event["content_block"]))
            case "content_block_stop":
                self._open.pop(event.get("index"), None)
            case "message_start" | "message_delta":
                told: Json = event.get("delta") or event.get("message") or {}
                self._stop = told.get("stop_reason") or self._stop
                usage: Json = (event.get("message") or event).get("usage") or {}
                # Figures are cumulative: the latest count.
                self._usage |= {name: count(usage, name) for name, n in usage.items() if n}
            case "message_stop":
                self.done = True
            case _:  # pings, and kinds of events that are yet to be invented
                pass
        return ""

    def _start(self, index: object, raw: Json) -> str:
        known = self._open.get(index)
        if (
            known is not None
            and known.raw.get("type") == raw["type"]
            and known.raw.get("id") == raw.get("id")
        ):
            return ""  # it is told twice
        words, thought = raw.get("text"), raw.get("thinking")
        self._add(index, raw)
        if raw["type"] == "text":  # it may begin with words: its first delta
            return self._delta(index, {"type": "text_delta", "text": words or ""})
        if raw["type"] == "thinking":
            self._delta(index, {"type": "thinking_delta", "thinking": thought or ""})
        return ""

    def _add(self, index: object, raw: Json) -> _Block:
        is_text = raw["type"] == "text"
        offered = {spec.name: spec.schema for spec in self.tools}
        output = OutputFilter(offered, self._thoughts, waits=self.waits) if is_text else None
        block = _Block(raw, output)
        self._open[index], self._words = block, Words()
        self._blocks.append(block)
        return block

    def _delta(self, index: object, delta: Json) -> str:
        kind, name = _KINDS.get(delta["type"], ("", ""))
        if not kind:
            return ""
        block, piece = self._open.get(index), delta[name]
        # Some servers leave out the start of a block, or number all of them alike.
        if block is None or kind not in str(block.raw.get("type")):
            block = self._add(index, {"type": kind})
        if block.output is not None:
            words = block.output.feed(self._words.feed(piece))
            self.replaced = block.output.replaced
            if self.replaced:
                words = self._text()
            return words
        if name == "partial_json":
            block.arguments.append(piece)
        elif name == "signature":
            block.raw["signature"] = piece
        else:
            block.thoughts.append(self._words.feed(piece))
            self._thoughts += block.thoughts[-1:]
        return ""

    def end(self) -> str:
        """The words that were held back until the last."""
        outputs = [block.output for block in self._blocks if block.output is not None]
        rest = "".join([output.end() for output in outputs])
        self.replaced = any(output.replaced for output in outputs)
        return self._text() if self.replaced else rest

    def _text(self) -> str:
        return "".join([block.output.text for block in self._blocks if block.output is not None])

    @property
    def usage(self) -> Usage:
        """The tokens so far, as the service says; its first event has those of the request."""
        return Usage(
            input_tokens=count(self._usage, "input_tokens"),
            output_tokens=count(self._usage, "output_tokens"),
            cache_read_tokens=count(self._usage, "cache_read_input_tokens"),
            cache_write_tokens=count(self._usage, "cache_creation_input_tokens"),
        )

    def _made(self, stop: StopReason) -> Sequence[Block]:
        blocks: list[Block] = []
        calls: list[ToolUse] = []
        for block in self._blocks:
            if block.output is not None:
                calls += block.output.calls
                blocks += [Text(block.output.text)] if block.output.text else []
            elif (made := _wordless(block, stop)) is not None:
                blocks.append(made)
        uses = [each for each in blocks if isinstance(each, ToolUse)]
        return [*blocks, *written_calls(calls, uses, stop)] if calls else blocks


def _wordless(block: _Block, stop: StopReason) -> Block | None:
    """A block that holds no words; None for a call within which the reply was cut off."""
    raw = block.raw
    if block.thoughts:
        raw["thinking"] = "".join(block.thoughts)
    if raw["type"] == "tool_use":
        text = "".join(block.arguments) or dump(raw.get("input") or {}).decode()
        return use_of(raw.get("id"), str(raw.get("name") or ""), text, stop)
    if block.arguments:  # of a tool that the service itself runs
        raw["input"] = arguments_in("".join(block.arguments)) or {}
    return Opaque(raw)


KNOWN_NAMES = ("claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-5-5", "claude-fable-5-2")
VERSION: Final = "2026-10-21"  # of the protocol, as its makers' own SDK asks for it
MOST_NAMES = 1000
_SDK: Final = "bot.agent.models.anthropic_client"

log = structlog.get_logger(__name__)


class AnthropicModel(ServiceModel):
    """A `Model` on the Messages API."""

    name = "anthropic"
    default_url = "https://api.anthropic.com"
    path = "/v1/messages"
    reader = Accumulator
    known_names = KNOWN_NAMES
    _sdk: asyncio.Task[None] | None = None  # loads the SDK
    _client: Callable[[ServiceConnection, str], Client] | None = None  # that of a connection

    def usual(self, model: str) -> Capabilities:
        """The capabilities assumed of a model: known ones also tell their thoughts if asked."""
        if self.has_own_endpoint:
            return Capabilities(thinking=False)
        # Anthropic itself takes thoughts back only behind the very same messages.
        return Capabilities(thinking=model in KNOWN_NAMES, reasoning="turn")

    def headers(self, key: str) -> Mapping[str, str]:
        """The key. Others than Anthropic's own service read it from the header it had at first."""
        said = {"anthropic-version": VERSION, "Authorization": f"Bearer {key}"}
        return {**said, "X-Api-Key": key} if self.has_own_endpoint else said

    async def body(self, request: Request, able: Capabilities) -> bytes:
        """The JSON of a request."""
        return body_of(request, able.longest(request.max_tokens), able)

    @asynccontextmanager
    async def opened(
        self, connection: ServiceConnection, body: bytes, silence: float | None
    ) -> AsyncGenerator[AsyncIterator[Json]]:
        """The events of a reply; while the SDK is still being loaded they come without it."""
        client = self._client
        way = client(connection, self.key or NO_KEY) if client is not None else connection
        try:
            async with way.stream(self.path, body, silence) as events:
                yield events
        finally:
            if not self._closed:  # for the next one: beside this it would take half of the time
                self._sdk = self._sdk or asyncio.create_task(self._load_sdk())

    async def load_sdk(self) -> None:
        """Load the SDK, in a thread; no request waits for it."""
        self._sdk = self._sdk or asyncio.create_task(self._load_sdk())
        await asyncio.wait({self._sdk})

    async def close(self) -> None:
        """Release connections."""
        if self._sdk is not None:
            self._sdk.cancel()
        await super().close()

    async def _load_sdk(self) -> None:
        try:
            module = await asyncio.to_thread(importlib.import_module, _SDK)
            self._client = cache(module.Client)
        except Exception:
            log.exception("model.sdk_not_loaded")

    async def check(self, model: str) -> Window:
        """Ask the service for a model's sizes now.

        Raises:
            ModelError: it does not take the key, does not know the model, or nobody answered.
        """
        info = await self.ask(f"/v1/models/{quote(model, safe='')}")
        return Window(number(info, "max_input_tokens"), number(info, "max_tokens"))

    async def fetch_names(self) -> Sequence[str]:
        """The names of the service's models.

        Raises:
            ModelError: it does not tell them.
        """
        page = await self.ask(f"/v1/models?limit={MOST_NAMES}")
        listed = children(page, "data")
        return [text(each, "id") for each in listed if each.get("lifecycle") != "retired"]
