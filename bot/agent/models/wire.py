"""Our messages and the Messages API's JSON, both ways. Pure: no SDK, no network.

Conversion costs a few microseconds a message, so the history is converted anew for each call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import orjson

from bot.agent.models import Reply, Request, StopReason, Usage
from bot.errors import ModelBadReply, ModelRejected
from bot.messages import Block, Message, Opaque, Picture, Text, ToolResult, ToolUse

Json = dict[str, Any]

CACHE_MARK: Final[Json] = {"type": "ephemeral"}
OPENING = "(Earlier messages are left out.)"  # when the history begins with the assistant
GONE_PICTURE = "(a picture that is no longer kept)"
NO_OUTPUT = "(no output)"  # the API takes no blank text
CACHEABLE = frozenset({"text", "tool_use", "tool_result"})
STOPS: Final[Mapping[str, StopReason]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "pause_turn": "paused",
    "model_context_window_exceeded": "context_full",
}
UNFINISHED = frozenset({"max_tokens", "refusal", "context_full"})  # a tool call may be cut off

_HIGH = ("\ud800", "\udbff")


# --- to the service ------------------------------------------------------------------------------


def body_of(request: Request, max_tokens: int) -> bytes:
    """The JSON of a request, with prompt-cache breakpoints on its prefix and its last message.

    Raises:
        ModelRejected: there is nothing to answer.
    """
    messages = messages_of(request.messages)
    if not messages:
        raise ModelRejected("there is nothing to answer")
    _mark_last(messages[-1]["content"])
    body: Json = {
        "model": request.model,
        "max_tokens": max_tokens,
        "messages": messages,
        "stream": True,
    }
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
        if not request.may_call:  # without the list earlier calls would make no sense
            body["tool_choice"] = {"type": "none"}
    try:
        return orjson.dumps(body, default=_plain)
    except TypeError:  # half of a surrogate pair cannot be written as UTF-8
        return orjson.dumps(_whole(body), default=_plain)


def messages_of(messages: Iterable[Message]) -> list[Json]:
    """Messages as the API takes them: roles alternate, a user begins, no blank text.

    A tool result's place is in front of the words beside it.
    """
    merged: list[Json] = []
    for message in messages:
        blocks = [raw for block in message.blocks if (raw := _block_to_json(block)) is not None]
        if not blocks:
            continue
        if merged and merged[-1]["role"] == message.role:
            merged[-1]["content"].extend(blocks)
        else:
            if not merged and message.role == "assistant":
                merged.append({"role": "user", "content": [{"type": "text", "text": OPENING}]})
            merged.append({"role": message.role, "content": blocks})
    for message in merged:
        if message["role"] == "user":
            message["content"].sort(key=_behind_results)
    return merged


def _behind_results(block: Json) -> bool:
    return block["type"] != "tool_result"


def _block_to_json(block: Block) -> Json | None:
    if isinstance(block, Text):
        return {"type": "text", "text": block.text} if block.text.strip() else None
    if isinstance(block, ToolUse):
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
    if isinstance(block, ToolResult):
        text = block.text if block.text.strip() else NO_OUTPUT
        result: Json = {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": text}
        if block.is_error:
            result["is_error"] = True
        return result
    if isinstance(block, Picture):
        return _picture_to_json(block)
    return dict(block.data)


def _picture_to_json(picture: Picture) -> Json:
    if not picture.data:
        return {"type": "text", "text": GONE_PICTURE}
    source = {"type": "base64", "media_type": picture.media_type, "data": picture.data}
    return {"type": "image", "source": source}


def _mark_last(content: list[Json]) -> None:
    """Put a cache breakpoint on the last block that may carry one (thinking may not)."""
    for block in reversed(content):
        if block["type"] in CACHEABLE:
            block["cache_control"] = CACHE_MARK
            return


def _plain(value: object) -> object:
    """A mapping of any kind as a dict, for the serialiser."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(type(value).__name__)


def _whole(value: Any) -> Any:
    """The same JSON with lone surrogates replaced."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        return {whole_text(key): _whole(item) for key, item in mapping.items()}
    if isinstance(value, list | tuple):
        return [_whole(item) for item in cast("Iterable[Any]", value)]
    return value


def whole_text(text: str) -> str:
    """The text with surrogate pairs joined and lone halves replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# --- from the service ----------------------------------------------------------------------------


class Accumulator:
    """Puts the events of one streamed reply together.

    `feed` takes an event and returns the words it adds, `reply` is the whole once `done` is true.
    """

    __slots__ = ("_blocks", "_held", "_json", "_stop", "_usage", "done", "unknown_stop")

    def __init__(self) -> None:
        self._blocks: dict[int, Json] = {}
        self._json: dict[int, list[str]] = {}  # tool arguments, still as text
        self._usage: dict[str, int] = {}
        self._stop: str | None = None
        self._held = ""  # half of a surrogate pair, waiting for the other
        self.done = False
        self.unknown_stop = ""

    def feed(self, event: Json) -> str:
        """Take one event; returns the new words, often none.

        Raises:
            ModelBadReply: the event is not what the protocol says.
        """
        try:
            return self._feed(event)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ModelBadReply("an event of the reply is malformed") from error

    def _feed(self, event: Json) -> str:
        kind = event["type"]
        if kind == "content_block_delta":
            return self._delta(event["index"], event["delta"])
        if kind == "content_block_start":
            return self._start(event["index"], event["content_block"])
        if kind == "message_start":
            self._count(event["message"].get("usage"))
        elif kind == "message_delta":
            self._stop = event["delta"].get("stop_reason") or self._stop
            self._count(event.get("usage"))
        elif kind == "message_stop":
            self.done = True
        return ""  # pings, ends of blocks, and kinds of events that are yet to be invented

    def _start(self, index: int, block: Json) -> str:
        self._blocks[index] = dict(block)
        self._held = ""
        if block["type"] == "text":
            self._blocks[index]["text"] = ""
            return self._words(index, block.get("text") or "")
        return ""

    def _delta(self, index: int, delta: Json) -> str:
        block, kind = self._blocks[index], delta["type"]
        if kind == "text_delta":
            return self._words(index, delta["text"])
        if kind == "input_json_delta":
            self._json.setdefault(index, []).append(delta["partial_json"])
        elif kind == "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
        elif kind == "signature_delta":
            block["signature"] = delta["signature"]
        return ""

    def _words(self, index: int, text: str) -> str:
        text = self._held + text
        self._held = ""
        if text and _HIGH[0] <= text[-1] <= _HIGH[1]:
            text, self._held = text[:-1], text[-1]
        text = whole_text(text)
        self._blocks[index]["text"] += text
        return text

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        for name, value in (usage or {}).items():
            if isinstance(value, int):
                self._usage[name] = value  # figures are cumulative: the latest counts

    def reply(self) -> Reply:
        """The whole reply.

        Raises:
            ModelBadReply: the stream ended too early, or a tool call in it cannot be read.
        """
        if self._stop is None:
            error = ModelBadReply("the reply broke off")
            error.again = True  # a connection ended, or a server was restarted
            raise error
        stop = STOPS.get(self._stop)
        if stop is None:
            self.unknown_stop, stop = self._stop, "end"
        blocks = [
            block
            for index in sorted(self._blocks)
            if (block := self._block(index, stop)) is not None
        ]
        return Reply(Message("assistant", tuple(blocks)), stop, self._counted())

    def _block(self, index: int, stop: StopReason) -> Block | None:
        raw = self._blocks[index]
        if raw["type"] == "text":
            return Text(raw["text"]) if raw["text"] else None
        if index in self._json:
            arguments = self._arguments(index, stop)
            if arguments is None:
                return None
            raw["input"] = arguments
        if raw["type"] == "tool_use":
            return ToolUse(str(raw["id"]), str(raw["name"]), raw.get("input") or {})
        return Opaque(raw)

    def _arguments(self, index: int, stop: StopReason) -> Json | None:
        """A tool's arguments; None when the reply was cut off within them."""
        text = "".join(self._json[index])
        try:
            arguments: object = load(text) if text.strip() else {}
        except ValueError as error:
            if stop in UNFINISHED:
                return None
            raise ModelBadReply("the arguments of a tool call are not JSON") from error
        if not isinstance(arguments, dict):
            raise ModelBadReply("the arguments of a tool call are not an object")
        return _whole(cast("Json", arguments))

    def _counted(self) -> Usage:
        get = self._usage.get
        return Usage(
            input_tokens=get("input_tokens", 0),
            output_tokens=get("output_tokens", 0),
            cache_read_tokens=get("cache_read_input_tokens", 0),
            cache_write_tokens=get("cache_creation_input_tokens", 0),
        )


def load(text: str) -> Any:
    """Parse JSON. Halves of surrogate pairs, which orjson refuses, come through as they are.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        if "\\ud" not in text and "\\uD" not in text:
            raise
        return json.loads(text)
