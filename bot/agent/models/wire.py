"""Parts shared by wire formats: JSON both ways, and words that are cut anywhere. Pure."""

from __future__ import annotations

import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self, SupportsIndex, cast

import orjson

from bot.agent.models import Reply, Request, StopReason, Thoughts, ToolSpec, Usage
from bot.errors import ModelBadReply, ModelRejected
from bot.messages import Block, Message, ToolUse
from bot.unicode import well_formed

Json = dict[str, Any]
DONE: Final[Json] = {}  # the end of a stream, by its own word

# Both APIs' words, as some servers mix them.
STOPS: Final[Mapping[str, StopReason]] = {
    "end_turn": "end",
    "stop": "end",
    "eos": "end",
    "stop_sequence": "end",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "tool_use": "tool_use",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "refusal": "refusal",
    "content_filter": "refusal",
    "pause_turn": "paused",
    "model_length": "context_full",
    "model_context_window_exceeded": "context_full",
}

OPENING: Final = "(Earlier messages are left out.)"  # when the history begins with the assistant
GONE_PICTURE: Final = "(a picture that is no longer kept)"
NO_OUTPUT: Final = "(no output)"  # services take no blank text
# After these a tool call may be cut off.
UNFINISHED: Final[frozenset[StopReason]] = frozenset({"max_tokens", "refusal", "context_full"})

REPAIRABLE = 4_000  # characters
MOST_READS = 25  # of each of them on average, after which a repair is given up

_LONGEST_END = 200  # characters in which that is looked for
# What templates put after arguments.
_BEHIND = re.compile(r"(?:\s|<[|｜/][^<>]{1,40}>|<[^<>]{1,40}[|｜]>|```)+\Z")

_HIGH = ("\ud800", "\udbff")


@dataclass(eq=False)
class ReplyReader(ABC):
    """Puts the events of one streamed reply together.

    Attributes:
        tools: those that are offered.
        waits: as for an `OutputFilter`.
        done: true after the last event that counts.
        replaced: true when the words so far turned out to be no part of the reply: it begins with
            what `feed` or `end` returned last.
        unknown_stop: a reason to stop that nobody here knows.
    """

    tools: Sequence[ToolSpec] = ()
    waits: bool = field(default=False, kw_only=True)
    done: bool = field(default=False, init=False)
    replaced: bool = field(default=False, init=False)
    unknown_stop: str = field(default="", init=False)
    _stop: str | None = field(default=None, init=False)  # why it ended, as the service says it
    _thoughts: list[str] = field(default_factory=list[str], init=False)  # and not told yet

    def feed(self, event: Json) -> str:
        """Take one event; returns the new words, often none.

        Raises:
            ModelBadReply: the event is not what the protocol says.
        """
        self.replaced = False
        try:
            return self._take(event)
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            raise ModelBadReply("an event of the reply is malformed") from error

    def thought(self) -> str:
        """Thoughts since the last call, mostly none."""
        thought = "".join(self._thoughts)
        self._thoughts.clear()
        return thought

    def reply(self) -> Reply:
        """The whole reply.

        Raises:
            ModelBadReply: the stream ended too early.
        """
        if self._stop is None and not self.done:
            error = ModelBadReply("the reply broke off")
            error.again = True  # a connection ended, or a server was restarted
            raise error
        stop, self.unknown_stop = stop_of(self._stop, calls=True)
        blocks = tuple(self._made(stop))
        stop, _ = stop_of(self._stop, calls=any(isinstance(each, ToolUse) for each in blocks))
        return Reply(Message("assistant", blocks), stop, self.usage)

    @abstractmethod
    def _take(self, event: Json) -> str:
        """Take one event; returns the new words."""

    @abstractmethod
    def end(self) -> str:
        """The words that were held back until the stream had ended, mostly none."""

    @property
    @abstractmethod
    def usage(self) -> Usage:
        """The tokens so far, as the service says."""

    @abstractmethod
    def _made(self, stop: StopReason) -> Sequence[Block]:
        """The blocks of a reply that may have been cut off."""


@dataclass(slots=True)
class Words:
    """Joins words that come in pieces: half of a surrogate pair waits for the other."""

    _held: str = ""

    def feed(self, piece: str) -> str:
        """The words that can be shown now."""
        words, self._held = self._held + piece, ""
        if words and _HIGH[0] <= words[-1] <= _HIGH[1]:
            words, self._held = words[:-1], words[-1]
        return well_formed(words)


Written = tuple[bytearray, list[Json]]  # messages that are complete, as JSON; and the others


def converted(
    request: Request, api: str, reasoning: Thoughts, merge: Callable[..., None]
) -> Written:
    """The messages of a request in the format of an API.

    `merge(merged, message, thinks=…)` puts a message behind others, or into the last of them if
    that is of the same side. That one is another dict then or has other values, while lists and
    blocks in it stay as they are. Without `thinks`, what the model thought is left out.

    Messages from before the turn that are complete are JSON, each with a comma after it, and made
    once; the last of them is apart, as the turn's own may belong to it.

    Raises:
        ModelRejected: there is nothing to answer.
    """

    def add(written: Written, message: Message) -> Written:
        closed, last = written
        merge(last, message, thinks=reasoning in {"kept", "needed"})
        for complete in last[:-1]:
            closed += dump(complete)
            closed += b","
        del last[:-1]
        return written

    history = request.messages[: request.begins]
    name = f"{api}.{reasoning}"
    closed, last = request.folding.of(name, history, lambda: (bytearray(), []), add)
    messages = [dict(message) for message in last]
    for message in request.messages[request.begins :]:
        merge(messages, message, thinks=reasoning != "never")
    if not messages:
        raise ModelRejected("there is nothing to answer")
    return closed, messages


def listed(closed: bytes | bytearray, rest: Sequence[Json]) -> orjson.Fragment:
    """A list of messages: those that are JSON, and the rest of them."""
    return orjson.Fragment(b"[" + closed + dump(rest)[1:])


def dump(body: Json | Sequence[Json]) -> bytes:
    """A body as JSON."""
    try:
        return orjson.dumps(body, default=_plain)
    except TypeError:  # half of a surrogate pair cannot be written as UTF-8
        return orjson.dumps(whole(body), default=_plain)


def load(text: str | bytes) -> Any:
    """Parse JSON. Halves of surrogate pairs, which orjson refuses, come through as they are.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        words = text if isinstance(text, str) else text.decode("utf-8", "replace")
        if "\\ud" not in words and "\\uD" not in words:
            raise
        return json.loads(words)


def stop_of(said: str | None, *, calls: bool) -> tuple[StopReason, str]:
    """Why a reply ended, and the reason itself if nobody here knows it.

    Many servers say of calls that they ended like any reply, and some the other way round.
    """
    stop = STOPS.get(said or "stop")
    unknown = "" if stop else str(said)
    if calls and stop in {None, "end", "paused"}:
        return "tool_use", unknown
    return ("end" if stop in {None, "tool_use"} and not calls else stop or "end"), unknown


def call_of(name: str, arguments: Json, garbled: str = "", *, id_: object = "") -> ToolUse:
    """A tool call; one without an id gets a new one."""
    return ToolUse(str(id_ or f"call_{secrets.token_hex(6)}"), name, arguments, garbled)


def use_of(id_: object, name: str, arguments: str, stop: StopReason) -> ToolUse | None:
    """A tool call; None when the reply was cut off within it."""
    found = None if stop in UNFINISHED else arguments_in(arguments)
    if stop in UNFINISHED:
        with suppress(ValueError):
            found = load(arguments or "{}")
    if isinstance(found, dict) and name:
        return call_of(name, whole(cast("Json", found)), id_=id_)
    if stop in UNFINISHED:
        return None
    return call_of(name or "unnamed", {}, arguments or "no name", id_=id_)


def written_calls(
    calls: Sequence[ToolUse], others: Sequence[ToolUse], stop: StopReason
) -> list[ToolUse]:
    """The calls that were written as text, without those that came in another way as well."""
    known = [(use.name, use.input) for use in others]
    return [
        call
        for call in calls
        if (call.name, call.input) not in known and not (call.garbled and stop in UNFINISHED)
    ]


def count(told: Mapping[str, Any], name: str) -> int:
    """A number of tokens, which some servers tell as a text; 0 for what is none."""
    value: object = told.get(name)
    try:
        return max(0, int(value)) if isinstance(value, int | float | str) else 0
    except (ValueError, OverflowError):
        return 0


def arguments_in(text: str) -> Json | None:
    """The arguments of a tool call, repaired when they are broken; None when they are no object.

    What ends in the middle is not repaired: nobody knows what would have followed.
    """
    value: object = None
    try:
        value = load(text) if text.strip() else {}
        if isinstance(value, str):  # JSON within JSON
            value = load(value)
    except (ValueError, RecursionError):
        bare = text.strip() if len(text) <= REPAIRABLE else ""
        bare = bare[:-_LONGEST_END] + _BEHIND.sub("", bare[-_LONGEST_END:])
        if bare and bare[0] in '{["' and bare[-1] in "}]\"'":
            value = _repaired(bare)
    return whole(cast("Json", value)) if isinstance(value, dict) else None


def _repaired(text: str) -> object:
    from json_repair import repair_json  # noqa: PLC0415 - seldom needed

    try:
        return repair_json(_Metered(text), return_objects=True, skip_json_loads=True) or None
    except (ValueError, RecursionError):  # too much work, or nested too deep
        return None


class _Metered(str):
    """A text that can be read so often: to repair some, the library takes seconds and more."""

    __slots__ = ("_left",)

    _left: int

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made._left = MOST_READS * len(text)
        return made

    def __getitem__(self, at: SupportsIndex | slice) -> str:
        found = super().__getitem__(at)
        self._left -= len(found)
        if self._left < 0:
            raise ValueError("too much work")
        return found


def whole(value: Any) -> Any:
    """The same JSON with lone surrogates replaced."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        return {well_formed(key): whole(item) for key, item in mapping.items()}
    if isinstance(value, list | tuple):
        return [whole(item) for item in cast("Iterable[Any]", value)]
    return value


def _plain(value: object) -> object:
    """A mapping of any kind as a dict, for the serialiser."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(type(value).__name__)
