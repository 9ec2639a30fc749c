"""Our messages and the JSON of chat completions, both ways. Pure: no SDK, no network.

The servers that speak it differ in what they leave out and in what they refuse: `Capabilities` are
what one of them is known to take, and reading takes whatever any of them sends.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from bot.agent.models import Reply, Request, StopReason, Usage
from bot.agent.models.capabilities import Capabilities
from bot.agent.models.thinking import ThinkingFilter
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

STOPS: Final[Mapping[str, StopReason]] = {
    "stop": "end",
    "eos": "end",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "model_length": "context_full",
}
REASONING = ("reasoning_content", "reasoning")  # where servers put what a model thinks
THOUGHT = "thought"  # the kind of our blocks that hold it, one of `THOUGHTS`
CALL = "call"  # … and of those that hold what a server wants back with a tool call

# --- to the service ------------------------------------------------------------------------------


def body_of(request: Request, max_tokens: int, able: Capabilities) -> bytes:
    """The JSON of a request, in the dialect of servers which take so much.

    Raises:
        ModelRejected: there is nothing to answer.
    """
    thinks = able.reasoning == "needed"

    def merge(merged: list[Json], message: Message) -> None:
        _merge(merged, message, thinks=thinks)

    history, messages = opened(request, f"openai {thinks}", merge)
    for message in request.messages[request.begins :]:
        _merge(messages, message, thinks=True)
    if not messages:
        raise ModelRejected("there is nothing to answer")
    system: Json = {"role": "system", "content": request.system}
    before = dump(system) + b"," if request.system.strip() else b""
    body: Json = {"model": request.model}
    if able.limit:
        body[able.limit] = max_tokens
    body |= {"messages": listed(before + history, messages), "stream": True}
    if able.usage:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": spec.name,
                    "description": spec.description,
                    "parameters": spec.schema,
                },
            }
            for spec in request.tools
        ]
        if not request.may_call and able.tool_choice:
            body["tool_choice"] = "none"
    return dump({**body, **request.extra})


def messages_of(messages: Sequence[Message], begins: int = 0) -> list[Json]:
    """Messages as chat templates take them: a user begins, roles alternate, results are their own.

    What was thought goes back only within the turn that `begins` there.
    """
    merged: list[Json] = []
    for number, message in enumerate(messages):
        _merge(merged, message, thinks=number >= begins)
    return merged


def _merge(merged: list[Json], message: Message, *, thinks: bool = False) -> None:
    """Put a message behind others, or into the last of them if that is of the same side."""
    made = (
        _from_person(message.blocks)
        if message.role == "user"
        else _from_model(message.blocks, thinks=thinks)
    )
    for raw in made:
        if not merged and raw["role"] == "assistant":
            merged.append({"role": "user", "content": OPENING})
        if merged and raw["role"] == merged[-1]["role"] != "tool":
            _join(merged[-1], raw)
        else:
            merged.append(raw)


def _from_person(blocks: Sequence[Block]) -> Iterator[Json]:
    """The results of tools, each a message, and then what was said and shown."""
    parts: list[Json] = []
    for block in blocks:
        match block:
            case ToolResult(id_, text):
                content = text if text.strip() else NO_OUTPUT
                yield {"role": "tool", "tool_call_id": id_, "content": content}
            case Text(text) if text.strip():
                parts.append({"type": "text", "text": text})
            case Picture(data=""):
                parts.append({"type": "text", "text": GONE_PICTURE})
            case Picture(media_type, _, data):
                url = f"data:{media_type};base64,{data}"
                parts.append({"type": "image_url", "image_url": {"url": url}})
            case _:
                pass
    if parts:
        yield {"role": "user", "content": _content(parts)}


def _content(parts: list[Json]) -> str | list[Json]:
    """Words as one text: many servers take nothing else."""
    if any(part["type"] != "text" for part in parts):
        return parts
    return "\n\n".join(part["text"] for part in parts)


def _from_model(blocks: Sequence[Block], *, thinks: bool) -> Iterator[Json]:
    """What the model said and called, with what its server wants back."""
    words = "".join(block.text for block in blocks if isinstance(block, Text))
    ours = [block.data for block in blocks if isinstance(block, Opaque)]
    beside = {str(each.get("id")): each.get("extra") for each in ours if each.get("type") == CALL}
    uses = [
        {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": dump(dict(block.input)).decode()},
            **cast("Json", beside.get(block.id) or {}),
        }
        for block in blocks
        if isinstance(block, ToolUse)
    ]
    if not words.strip() and not uses:
        return
    message: Json = {"role": "assistant", "content": words if words.strip() else None}
    if uses:
        message["tool_calls"] = uses
        if thinks:
            message |= {str(each["field"]): each["text"] for each in ours if _is_thought(each)}
    yield message


def _is_thought(data: Mapping[str, Any]) -> bool:
    return data.get("type") == THOUGHT and data.get("field") in REASONING


def _join(before: Json, after: Json) -> None:
    """Put two messages of one side together."""
    if before["role"] == "assistant":
        texts = [text for text in (before["content"], after["content"]) if text]
        before["content"] = "\n\n".join(texts) or None
        if calls := [*before.get("tool_calls", ()), *after.get("tool_calls", ())]:
            before["tool_calls"] = calls
        before |= {name: after[name] for name in REASONING if name in after}
        return
    parts = [part for each in (before, after) for part in _parts(each["content"])]
    before["content"] = _content(parts)


def _parts(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


# --- from the service ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Call:
    """A tool call as far as it came; `extra` is what its server wants back with it."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    extra: Json = field(default_factory=dict[str, Any])


class CompletionReader:
    """Puts the chunks of one streamed completion together. See `ReplyReader`."""

    __slots__ = (
        "_calls",
        "_places",
        "_said",
        "_stop",
        "_thinking",
        "_thought",
        "_thoughts",
        "_untold",
        "_usage",
        "_words",
        "done",
        "unknown_stop",
    )

    def __init__(self) -> None:
        self._words = Words()
        self._thinking = ThinkingFilter()
        self._said: list[str] = []
        self._thought: dict[str, list[str]] = {}  # by the field it came in
        self._thoughts = Words()
        self._untold: list[str] = []  # of what was thought
        self._calls: list[_Call] = []
        self._places: dict[object, int] = {}  # of calls, by the server's number for them
        self._usage: Mapping[str, Any] = {}
        self._stop: str | None = None
        self.done = False
        self.unknown_stop = ""

    def feed(self, event: Json) -> str:
        """Take one chunk; returns the new words, often none.

        Raises:
            ErrorEvent: it tells that the service failed.
            ModelBadReply: it is not what the protocol says.
        """
        try:
            if event.get("error"):
                raise ErrorEvent(event)
            if event.get("usage"):
                self._usage = event["usage"]
            choices = event.get("choices")
            if not choices:  # of usage alone, or a sign of life
                return ""
            choice: Json = choices[0]
            self._stop = choice.get("finish_reason") or self._stop
            # A server that does not stream sends the whole message at once.
            delta: Json = choice.get("delta") or choice.get("message") or {}
            for call in delta.get("tool_calls") or ():
                self._call(call)
            thought = [(name, piece) for name in REASONING if (piece := delta.get(name))]
            for name, piece in thought:
                self._thought.setdefault(name, []).append(piece)
            for _, piece in thought[:1]:  # some send the same in both
                self._untold.append(self._thoughts.feed(piece))
            content = delta.get("content")
            return self._say(_text_of(content) if content else "")
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            raise ModelBadReply("an event of the reply is malformed") from error

    def _say(self, piece: str) -> str:
        words = self._thinking.feed(self._words.feed(piece)) if piece else ""
        self._untold.append(self._thinking.thought())
        if words:
            self._said.append(words)
        return words

    def _call(self, delta: Json) -> None:
        """A piece of a tool call: some servers number them, some only name them."""
        id_, function = delta.get("id") or "", cast("Json", delta.get("function") or {})
        place = self._places.get(delta.get("index"))
        known = self._calls[place] if place is not None else None
        if delta.get("index") is None and self._calls and not function.get("name"):
            known = self._calls[-1]
        if known is None or (id_ and known.id and id_ != known.id):
            known = _Call()
            self._places[delta.get("index")] = len(self._calls)
            self._calls.append(known)
        known.id = known.id or str(id_)
        known.name = known.name or str(function.get("name") or "")
        if arguments := function.get("arguments"):
            known.arguments.append(
                arguments if isinstance(arguments, str) else dump(arguments).decode()
            )
        if isinstance(extra := delta.get("extra_content"), dict):
            known.extra["extra_content"] = extra

    def thought(self) -> str:
        """What the model thought since this was asked last."""
        thought, self._untold = "".join(self._untold), []
        return thought

    def end(self) -> str:
        """The words that were held back until the last."""
        if rest := self._thinking.end():
            self._said.append(rest)
        return rest

    @property
    def usage(self) -> Usage:
        """The tokens so far, as the service says; most say them with the last event."""
        return _usage(self._usage)

    def reply(self) -> Reply:
        """The whole reply.

        Raises:
            ModelBadReply: the stream ended too early.
        """
        if self._stop is None and not self.done:
            error = ModelBadReply("the reply broke off")
            error.again = True  # a connection ended, or a server was restarted
            raise error
        stop = STOPS.get(self._stop or "stop")
        if stop is None:
            self.unknown_stop, stop = str(self._stop), "end"
        uses = [(each, use) for each in self._calls if (use := _use(each, stop)) is not None]
        blocks: list[Block] = []
        if uses:  # then its server may want to have it back with the results
            blocks += (
                Opaque({"type": THOUGHT, "field": name, "text": "".join(pieces)})
                for name, pieces in self._thought.items()
            )
        if words := "".join(self._said):
            blocks.append(Text(words))
        for call, use in uses:
            if call.extra:
                blocks.append(Opaque({"type": CALL, "id": use.id, "extra": call.extra}))
            blocks.append(use)
        if uses and stop == "end":  # many servers say so of calls too
            stop = "tool_use"
        elif stop == "tool_use" and not uses:
            stop = "end"
        return Reply(Message("assistant", tuple(blocks)), stop, self.usage)


def _text_of(content: object) -> str:
    """The words of a content, which some servers send in parts."""
    if isinstance(content, str):
        return content
    parts = cast("Sequence[Mapping[str, Any]]", content)
    return "".join(str(part["text"]) for part in parts if part.get("type") == "text")


def _use(call: _Call, stop: StopReason) -> ToolUse | None:
    """A tool call; None when the reply was cut off within it."""
    text = "".join(call.arguments)
    id_ = call.id or f"call_{secrets.token_hex(6)}"
    try:
        arguments: object = load(text) if text.strip() else {}
    except ValueError:
        arguments = None
    if isinstance(arguments, dict) and call.name:
        return ToolUse(id_, call.name, whole(cast("Json", arguments)))
    if stop in UNFINISHED:
        return None
    return ToolUse(id_, call.name or "unnamed", {}, garbled=text or "no name")


def _usage(told: Mapping[str, Any]) -> Usage:
    """The tokens of a call; what was read from a cache is told within those that went in."""
    details = told.get("prompt_tokens_details")
    inner = cast("Mapping[str, Any]", details if isinstance(details, Mapping) else {})
    read = _count(inner, "cached_tokens") or _count(told, "prompt_cache_hit_tokens")
    written = _count(inner, "cache_write_tokens")
    sent = _count(told, "prompt_tokens")
    return Usage(
        input_tokens=max(0, sent - read - written),
        output_tokens=_count(told, "completion_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _count(told: Mapping[str, Any], name: str) -> int:
    value = told.get(name)
    return max(0, value) if isinstance(value, int) else 0
