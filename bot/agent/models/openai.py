"""OpenAI, or anything else that speaks chat completions."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, cast
from urllib.parse import urlsplit

import structlog

from bot.agent.models import Request, StopReason, ToolSpec, Usage, Window
from bot.agent.models.capabilities import Capabilities
from bot.agent.models.output import OutputFilter, own_name
from bot.agent.models.service import ServiceModel
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
from bot.channel.kit.json_access import child, children, mapping
from bot.errors import ModelBadReply, ModelError, ModelNotFound, ModelRejected
from bot.messages import Block, Message, Opaque, Picture, Text, ToolResult, ToolUse

# Our messages and the JSON of chat completions, both ways. Pure: no SDK, no network.
#
# The servers that speak it differ in what they leave out and in what they refuse: `Capabilities`
# are what one of them is known to take, and reading takes whatever any of them sends.

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
    """The assistant's message, with what its server wants back."""
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
                if each.get("type") == THOUGHT and each.get("field") in {*REASONING, DETAILS}
            }
    yield message


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
        self._offered = {spec.name: spec.schema for spec in tools}
        self._output = OutputFilter(self._offered, self._thoughts, waits=waits)
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
        if words:
            words = self._output.feed(self._words.feed(words))
            self.replaced = self._output.replaced
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
        known.name = known.name or own_name(name, self._offered)
        if arguments:
            known.arguments.append(piece)
        if isinstance(extra := delta.get("extra_content"), dict):
            known.extra["extra_content"] = extra

    def end(self) -> str:
        """The words that were held back until the last."""
        words = self._output.end()
        self.replaced = self._output.replaced
        return words

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
    inner = mapping(told.get("prompt_tokens_details"))
    read = count(inner, "cached_tokens") or count(told, "prompt_cache_hit_tokens")
    written = count(inner, "cache_write_tokens")
    sent = count(told, "prompt_tokens")
    return Usage(
        input_tokens=max(0, sent - read - written),
        output_tokens=count(told, "completion_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


# How large the windows of models are, as the servers that speak chat completions tell it.
#
# The API itself does not say. Some servers say it in their list of models, others in an API of
# their own below the same address, which is asked only where the list says nothing.

GUESS = 32_000  # tokens, where nobody says it
OLLAMA_DEFAULT = 4_096  # tokens that it gives a model for which nothing else is set

# What OpenAI lists beside the models that converse.
OTHER_MODELS: Final = re.compile(
    "audio|babbage|dall-e|davinci|embed|image|moderation|realtime|rerank|sora|transcribe|tts|whisper"
)

# What servers call it in their lists: vLLM, OpenRouter, Groq, Mistral, others.
_INPUT: Final = ("max_model_len", "context_length", "context_window", "max_context_length")
_OUTPUT: Final = ("max_completion_tokens", "max_output_tokens")
_LOADED: Final = ("context_length",)  # … and Ollama, of a model that runs
_NUM_CTX: Final = re.compile(r"^num_ctx\s+(\d+)\s*$", re.MULTILINE)
_WIDENED: Final = re.compile(r"-ctx\d+$")
# What a server answers that has no list of its models.
_UNKNOWN: Final = (ModelNotFound, ModelRejected, ModelBadReply)


# Asks a server by a path of its API, or a whole address; what is beside that is posted. Answers
# that are no JSON object are empty.
Asks = Callable[[str, Json | None], Awaitable[Json]]


async def sizes(ask: Asks, root: str, model: str) -> Window:
    """The sizes of a model, 0 being one that the server does not tell.

    `root` is the address above the API, where servers have others; empty when there is none.

    Raises:
        ModelError: the server does not take the key, does not know the model, or is not there.
    """
    listed = await _listed(ask)
    entry = next((each for each in listed if _is_named(each, model)), None)
    if listed and entry is None:
        raise ModelNotFound(f"it is not among the {len(listed)} models there")
    told = told_by(entry or {})
    if told.max_input_tokens or not root:
        return told
    for tokens in (_ollama, _llama_cpp, _lm_studio):
        if found := await tokens(ask, root, model):
            return Window(found, told.max_output_tokens)
    return told


def told_by(entry: Mapping[str, Any]) -> Window:
    """The sizes in an entry of the list of models."""
    places = (entry, mapping(entry.get("top_provider")))
    first = next((n for each in places for n in _counts(each, _INPUT)), 0)
    return Window(first, next((n for each in places for n in _counts(each, _OUTPUT)), 0))


def conversing(listed: Sequence[Json]) -> list[str]:
    """The names in a list of models, without those that do not converse or were made here."""
    names = [str(each.get("id") or "") for each in listed]
    return [n for n in names if n and not (_WIDENED.search(n) or OTHER_MODELS.search(n))]


async def widened(ask: Asks, root: str, model: str, window: int) -> str:
    """The name under which Ollama runs a model with so large a window, made there if need be.

    Its chat completions take no window with a request, so a model is derived that has it: the
    weights are shared, and nothing is downloaded. On any other server the name stays.

    Raises:
        ModelError: it could not be made.
    """
    shown = await _answer(ask, f"{root}/api/show", {"model": model})
    if not _is_ollamas(shown) or _set_window(shown) == window:
        return model
    tagged = model if ":" in model.rpartition("/")[2] else f"{model}:latest"
    name = f"{tagged}-ctx{window}"
    if not _is_ollamas(await _answer(ask, f"{root}/api/show", {"model": name})):
        wanted: Json = {"from": model, "parameters": {"num_ctx": window}, "stream": False}
        await ask(f"{root}/api/create", {"model": name, **wanted})
    return name


# --- servers with an API of their own -------------------------------------------------------------


async def _ollama(ask: Asks, root: str, model: str) -> int:
    """The window Ollama gives a model, not the largest it could have: it cuts the rest silently."""
    shown = await _answer(ask, f"{root}/api/show", {"model": model})
    if not _is_ollamas(shown):
        return 0
    if found := _set_window(shown) or await _running(ask, root, model):
        return found
    await _answer(ask, f"{root}/api/generate", {"model": model, "stream": False})  # loads it
    return await _running(ask, root, model) or OLLAMA_DEFAULT


async def _running(ask: Asks, root: str, model: str) -> int:
    loaded = children(await _answer(ask, f"{root}/api/ps"), "models")
    found = (n for each in loaded if _is_named(each, model) for n in _counts(each, _LOADED))
    return next(found, 0)


def _is_ollamas(shown: Mapping[str, Any]) -> bool:
    return isinstance(shown.get("model_info") or shown.get("details"), dict)


def _set_window(shown: Mapping[str, Any]) -> int:
    """The window that was set for a model itself; 0 when none was."""
    found = _NUM_CTX.search(str(shown.get("parameters") or ""))
    return int(found[1]) if found else 0


async def _llama_cpp(ask: Asks, root: str, model: str) -> int:
    told = child(await _answer(ask, f"{root}/props"), "default_generation_settings")
    return next(_counts(told, ("n_ctx",)), 0)


async def _lm_studio(ask: Asks, root: str, model: str) -> int:
    told = await _answer(ask, f"{root}/api/v0/models/{model}")
    return next(_counts(told, ("loaded_context_length",)), 0)


# --- reading answers ------------------------------------------------------------------------------


async def _listed(ask: Asks) -> list[Json]:
    try:
        return children(await ask("/models", None), "data")
    except _UNKNOWN:
        return []


async def _answer(ask: Asks, where: str, body: Json | None = None) -> Json:
    """The answer beside the API; empty for an error, as other servers may answer anything."""
    try:
        return await ask(where, body)
    except ModelError:
        return {}


def _is_named(entry: Mapping[str, Any], model: str) -> bool:
    """True for a model's entry; Ollama adds a tag, Gemini a folder."""
    names = {entry.get(name) for name in ("id", "model", "name")}
    return not names.isdisjoint({model, f"{model}:latest", f"models/{model}"})


def _counts(told: Mapping[str, Any], names: Sequence[str]) -> Iterator[int]:
    values = (told.get(name) for name in names)
    return (value for value in values if type(value) is int and value > 0)


log = structlog.get_logger(__name__)


class OpenAIModel(ServiceModel):
    """A `Model` on chat completions."""

    name = "openai"
    default_url = "https://api.openai.com/v1"
    path = "/chat/completions"
    reader = CompletionReader

    def located(self, address: str) -> str:
        """The address of the API; people often leave out its path."""
        is_whole = not address or urlsplit(address).path not in {"", "/"}
        return address if is_whole else f"{address.rstrip('/')}/v1"

    @cached_property
    def _root(self) -> str:
        """The address above the API, where servers have others; empty when there is none."""
        has_more = self.has_own_endpoint and self.url.endswith("/v1")
        return self.url.removesuffix("/v1") if has_more else ""

    @cached_property
    def _names(self) -> dict[str, str]:
        """Names of models derived with the configured window, by the model's own name."""
        return {}

    def headers(self, key: str) -> Mapping[str, str]:
        """The key."""
        return {"Authorization": f"Bearer {key}"}

    def usual(self, model: str) -> Capabilities:
        """The capabilities assumed of a model before anything was learned of it."""
        return Capabilities(
            limit="max_tokens" if self.has_own_endpoint else "max_completion_tokens"
        )

    async def body(self, request: Request, able: Capabilities) -> bytes:
        """The JSON of a request."""
        longest = able.longest(request.max_tokens)
        return body_of(replace(request, model=await self._name(request.model)), longest, able)

    async def window(self, model: str) -> Window:
        """The sizes of a model as the server told them; never raises."""
        known = await super().window(model)
        return Window(known.max_input_tokens, known.max_output_tokens, assumed=GUESS)

    async def check(self, model: str) -> Window:
        """Ask the server for a model's sizes now.

        Raises:
            ModelError: it does not take the key, does not know the model, or nobody answered.
        """
        return await sizes(self.ask, self._root, model)

    async def can_widen(self, model: str, window: int) -> bool:
        """True when the server gives a model another window on being asked, as Ollama does.

        Raises:
            ModelError: it could not.
        """
        return bool(self._root) and await widened(self.ask, self._root, model, window) != model

    async def fetch_names(self) -> Sequence[str]:
        """The names of the server's models that converse.

        Raises:
            ModelError: it does not tell them.
        """
        return conversing(children(await self.ask("/models"), "data"))

    async def _name(self, model: str) -> str:
        """The name to ask for a model by, where its window was configured."""
        if not self.config.window or not self._root:
            return model
        if model not in self._names:
            try:
                name = await widened(self.ask, self._root, model, self.config.window)
                self._names[model] = name
            except ModelError as error:
                log.warning("model.window_not_set", model=model, error=str(error))
                return model
        return self._names[model]
