"""Our messages and the Messages API's JSON, both ways. Pure: no SDK, no network.

The messages of a conversation are converted once, those of its newest turn for each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from bot.agent.models import Reply, Request, StopReason, Usage
from bot.agent.models.capabilities import Capabilities
from bot.agent.models.wire import (
    GONE_PICTURE,
    NO_OUTPUT,
    OPENING,
    UNFINISHED,
    ErrorEvent,
    Json,
    Words,
    dump,
    listed,
    load,
    opened,
    whole,
)
from bot.errors import ModelBadReply, ModelRejected
from bot.messages import Block, Message, Opaque, Picture, Text, ToolResult, ToolUse

CACHE_MARK: Final[Json] = {"type": "ephemeral"}
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

# --- to the service ------------------------------------------------------------------------------


def body_of(request: Request, max_tokens: int, able: Capabilities) -> bytes:
    """The JSON of a request, with prompt-cache breakpoints on its prefix and its last message.

    Raises:
        ModelRejected: there is nothing to answer.
    """
    closed, messages = opened(request, "anthropic", _merge)
    for message in request.messages[request.begins :]:
        _merge(messages, message)
    if not messages:
        raise ModelRejected("there is nothing to answer")
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


def messages_of(messages: Iterable[Message]) -> list[Json]:
    """Messages as the API takes them: roles alternate, a user begins, no blank text.

    A tool result's place is in front of the words beside it.
    """
    merged: list[Json] = []
    for message in messages:
        _merge(merged, message)
    return merged


def _merge(merged: list[Json], message: Message) -> None:
    """Put a message behind others, or into the last of them if that is of the same side."""
    blocks = [raw for block in message.blocks if (raw := _block_to_json(block)) is not None]
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
    for number in reversed(range(len(marked))):
        if marked[number]["type"] in CACHEABLE:  # thinking may not carry a mark
            marked[number] = {**marked[number], "cache_control": CACHE_MARK}
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


class Accumulator:
    """Puts the events of one streamed reply together. See `ReplyReader`."""

    __slots__ = (
        "_arguments",
        "_blocks",
        "_stop",
        "_thought",
        "_usage",
        "_words",
        "done",
        "unknown_stop",
    )

    def __init__(self) -> None:
        self._blocks: dict[int, Json] = {}
        self._arguments: dict[int, list[str]] = {}  # of tool calls, still as text
        self._usage: dict[str, int] = {}
        self._stop: str | None = None
        self._words = Words()
        self._thought: list[str] = []  # and not told yet
        self.done = False
        self.unknown_stop = ""

    def feed(self, event: Json) -> str:
        """Take one event; returns the new words, often none.

        Raises:
            ErrorEvent: the event tells that the service failed.
            ModelBadReply: the event is not what the protocol says.
        """
        try:
            match event["type"]:
                case "content_block_delta":
                    return self._delta(event["index"], event["delta"])
                case "content_block_start":
                    index, block = event["index"], dict(event["content_block"])
                    self._blocks[index], self._words = block, Words()
                    if block["type"] == "text":  # it may begin with words: its first delta
                        words, block["text"] = block.get("text") or "", ""
                        return self._delta(index, {"type": "text_delta", "text": words})
                case "message_start" | "message_delta":
                    self._stop = event.get("delta", {}).get("stop_reason") or self._stop
                    usage: Json = event.get("message", event).get("usage") or {}
                    # Figures are cumulative: the latest count.
                    self._usage |= {name: n for name, n in usage.items() if isinstance(n, int)}
                case "message_stop":
                    self.done = True
                case "error":
                    raise ErrorEvent(event)
                case _:  # pings, ends of blocks, and kinds of events that are yet to be invented
                    pass
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ModelBadReply("an event of the reply is malformed") from error
        return ""

    def _delta(self, index: int, delta: Json) -> str:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                words = self._words.feed(delta["text"])
                block["text"] += words
                return words
            case "input_json_delta":
                self._arguments.setdefault(index, []).append(delta["partial_json"])
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
                self._thought.append(self._words.feed(delta["thinking"]))
            case "signature_delta":
                block["signature"] = delta["signature"]
            case _:
                pass
        return ""

    def thought(self) -> str:
        """What the model thought since this was asked last."""
        thought, self._thought = "".join(self._thought), []
        return thought

    def end(self) -> str:
        """Nothing is held back."""
        return ""

    @property
    def usage(self) -> Usage:
        """The tokens so far, as the service says; its first event has those of the request."""
        count = self._usage.get
        return Usage(
            input_tokens=count("input_tokens", 0),
            output_tokens=count("output_tokens", 0),
            cache_read_tokens=count("cache_read_input_tokens", 0),
            cache_write_tokens=count("cache_creation_input_tokens", 0),
        )

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
        blocks: list[Block] = []
        for index, raw in sorted(self._blocks.items()):
            if raw["type"] == "text":
                blocks += [Text(raw["text"])] if raw["text"] else []
                continue
            if index in self._arguments:
                arguments = _arguments("".join(self._arguments[index]), stop)
                if arguments is None:
                    continue
                raw["input"] = arguments
            if raw["type"] == "tool_use":
                blocks.append(ToolUse(str(raw["id"]), str(raw["name"]), raw.get("input") or {}))
            else:
                blocks.append(Opaque(raw))
        return Reply(Message("assistant", tuple(blocks)), stop, self.usage)


def _arguments(text: str, stop: StopReason) -> Json | None:
    """A tool's arguments; None when the reply was cut off within them.

    Raises:
        ModelBadReply: they are no JSON object.
    """
    try:
        arguments: object = load(text) if text.strip() else {}
    except ValueError as error:
        if stop in UNFINISHED:
            return None
        raise ModelBadReply("the arguments of a tool call are not JSON") from error
    if not isinstance(arguments, dict):
        raise ModelBadReply("the arguments of a tool call are not an object")
    return whole(cast("Json", arguments))
