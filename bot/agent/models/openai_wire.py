"""Our messages and the JSON of chat completions, both ways. Pure: no SDK, no network.

The servers that speak it differ in what they leave out and in what they refuse: `Capabilities` are
what one of them is known to take, and reading takes whatever any of them sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from bot.agent.models import Request, StopReason, ToolSpec, Usage
from bot.agent.models.capabilities import Capabilities
from bot.agent.models.output import OutputFilter
from bot.agent.models.text_calls import own_name
from bot.agent.models.wire import (
    GONE_PICTURE,
    NO_OUTPUT,
    OPENING,
    Json,
    ReplyReader,
    Words,
    converted,
    count,
    dump,
    listed,
    use_of,
    written_calls,
)
from bot.messages import Block, Message, Opaque, Picture, Text, ToolResult, ToolUse

REASONING = ("reasoning_content", "reasoning", "thinking")  # where servers put what a model thinks
DETAILS = "reasoning_details"  # … and OpenRouter, with what has to come back untouched
THOUGHT = "thought"  # the kind of our blocks that hold it, one of `THOUGHTS`
CALL = "call"  # … and of those that hold what a server wants back with a tool call

# --- to the service ------------------------------------------------------------------------------


def body_of(request: Request, max_tokens: int, able: Capabilities) -> bytes:
    """The JSON of a request, in the dialect of servers which take so much.

    Raises:
        ModelRejected: there is nothing to answer.
    """
    history, messages = converted(request, "openai", able.reasoning, merge)
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


def merge(merged: list[Json], message: Message, *, thinks: bool = True) -> None:
    """Put a message behind others, or into the last of them if that is of the same side.

    So a user begins, roles alternate, and results stand alone, as chat templates take them.
    """
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
            message |= {
                each["field"]: each.get("text") or each.get("details")
                for each in ours
                if _is_thought(each)
            }
    yield message


def _is_thought(data: Mapping[str, Any]) -> bool:
    return data.get("type") == THOUGHT and data.get("field") in {*REASONING, DETAILS}


def _join(before: Json, after: Json) -> None:
    """Put two messages of one side together."""
    if before["role"] == "assistant":
        texts = [text for text in (before["content"], after["content"]) if text]
        before["content"] = "\n\n".join(texts) or None
        if calls := [*before.get("tool_calls", ()), *after.get("tool_calls", ())]:
            before["tool_calls"] = calls
        before |= {name: after[name] for name in (*REASONING, DETAILS) if after.get(name)}
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


class CompletionReader(ReplyReader):
    """Puts the chunks of one streamed completion together."""

    def __init__(self, tools: Sequence[ToolSpec] = (), *, waits: bool = False) -> None:
        """See `ReplyReader`."""
        super().__init__(tools, waits=waits)
        self._output = OutputFilter(self._tools, waits=waits)
        self._thought: dict[str, list[str]] = {}  # by the field it came in
        self._details: list[Json] = []
        self._words, self._thinking = Words(), Words()
        self._calls: list[_Call] = []
        self._places: dict[str, int] = {}  # of calls, by the server's number for them
        self._usage: Mapping[str, Any] = {}
        self._has_deltas = False

    def _take(self, event: Json) -> str:
        choices: Sequence[Json] = event.get("choices") or ()
        choice: Json = (choices[0] if choices else None) or {}
        if usage := event.get("usage") or choice.get("usage"):  # Kimi tells it there
            self._usage = usage if isinstance(usage, Mapping) else {}
        self._stop = choice.get("finish_reason") or self._stop
        delta: Json = choice.get("delta") or {}
        self._has_deltas = self._has_deltas or bool(delta)
        # A server that does not stream sends the whole message at once, and some do so as well.
        if not self._has_deltas:
            delta = choice.get("message") or {}
        calls = delta.get("tool_calls") or ()
        if old := delta.get("function_call"):  # as it was before there were several
            calls = ({"index": 0, "function": old},)
        for call in calls:
            self._call(call)
        words, aloud = _parts_of(delta.get("content") or delta.get("refusal"))
        thought = [(name, piece) for name in REASONING if (piece := _words_of(delta.get(name)))]
        thought += [("", aloud)] if aloud else []
        details: Sequence[Json] = delta.get(DETAILS) or ()
        for detail in details:
            _add_detail(self._details, detail)
        for name, piece in thought:
            self._thought.setdefault(name, []).append(piece)
        if not thought:
            thought = [("", _words_of(each.get("text") or each.get("summary"))) for each in details]
        for _, piece in thought[:1]:  # some send the same in both
            self._thoughts.append(self._thinking.feed(piece))
        return self._shown(self._output.feed(self._words.feed(words))) if words else ""

    def _shown(self, words: str) -> str:
        self.replaced = self._output.replaced
        self._thoughts.append(self._output.thought())
        return words

    def _call(self, delta: Json) -> None:
        """A piece of a tool call: some servers number them, some name them, some do neither."""
        function = cast("Json", delta.get("function") or {})
        id_, name = str(delta.get("id") or ""), str(function.get("name") or "")
        arguments = function.get("arguments")
        piece = arguments if isinstance(arguments, str) else dump(arguments or {}).decode()
        index = delta.get("index")
        place = self._places.get(str(index))
        known = self._calls[place] if place is not None else None
        if index is None and self._calls:
            known = self._calls[-1] if not name or (id_ and id_ == self._calls[-1].id) else None
        if known and name and known.name and piece.startswith("{"):  # one number for all of them
            known = None if "".join(known.arguments[-1:]).endswith("}") else known
        if known is None or (id_ and known.id and id_ != known.id):
            known = _Call()
            self._places[str(index)] = len(self._calls)
            self._calls.append(known)
        known.id = known.id or id_
        known.name = known.name or own_name(name, self._tools)
        if arguments:
            known.arguments.append(piece)
        if isinstance(extra := delta.get("extra_content"), dict):
            known.extra["extra_content"] = extra

    def end(self) -> str:
        """The words that were held back until the last."""
        return self._shown(self._output.end())

    @property
    def usage(self) -> Usage:
        """The tokens so far, as the service says; most say them with the last event."""
        return _usage(self._usage)

    def _made(self, stop: StopReason) -> Sequence[Block]:
        uses = [
            (call.extra, use)
            for call in self._calls
            if (use := use_of(call.id, call.name, "".join(call.arguments), stop))
        ]
        written = written_calls(self._output.calls, [use for _, use in uses], stop)
        blocks: list[Block] = []
        if uses or written:  # then its server may want to have it back with the results
            blocks += self._kept_thoughts()
        if words := self._output.text:
            blocks.append(Text(words))
        for extra, use in uses:
            if extra:
                blocks.append(Opaque({"type": CALL, "id": use.id, "extra": extra}))
            blocks.append(use)
        return [*blocks, *written]

    def _kept_thoughts(self) -> list[Opaque]:
        if self._details:
            return [Opaque({"type": THOUGHT, "field": DETAILS, "details": self._details})]
        return [
            Opaque({"type": THOUGHT, "field": name, "text": "".join(pieces)})
            for name, pieces in self._thought.items()
            if name
        ]


def _words_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def _parts_of(content: object) -> tuple[str, str]:
    """The words of a content and what in it was thought: some servers send it in parts."""
    if not content or isinstance(content, str):
        return str(content or ""), ""
    words, thought = "", ""
    for part in cast("Sequence[Mapping[str, Any]]", content):
        if part.get("type") == "thinking":  # Mistral's, in parts of its own
            thought += _parts_of(part["thinking"])[0]
        elif part.get("type") in {"text", "output_text"}:
            words += str(part["text"])
    return words, thought


def _add_detail(details: list[Json], piece: Json) -> None:
    """Put a piece of what OpenRouter wants back behind the others, or into the last of them."""
    last = details[-1] if details else {}
    if any(last.get(key) != piece.get(key) for key in ("type", "index")) or not last:
        details.append(dict(piece))
        return
    for key, value in piece.items():
        is_piece = key in {"text", "summary", "data"} and isinstance(last.get(key), str)
        if value is not None:
            last[key] = last[key] + str(value) if is_piece else value


def _usage(told: Mapping[str, Any]) -> Usage:
    """The tokens of a call; what was read from a cache is told within those that went in."""
    details = told.get("prompt_tokens_details")
    inner = cast("Mapping[str, Any]", details if isinstance(details, Mapping) else {})
    read = count(inner, "cached_tokens") or count(told, "prompt_cache_hit_tokens")
    written = count(inner, "cache_write_tokens")
    sent = count(told, "prompt_tokens")
    return Usage(
        input_tokens=max(0, sent - read - written),
        output_tokens=count(told, "completion_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
