"""What wire formats have in common: JSON both ways, and words that are cut anywhere. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

import orjson

from bot.agent.models import Reply, Request, StopReason, Usage
from bot.messages import Message
from bot.unicode import well_formed

Json = dict[str, Any]

OPENING: Final = "(Earlier messages are left out.)"  # when the history begins with the assistant
GONE_PICTURE: Final = "(a picture that is no longer kept)"
NO_OUTPUT: Final = "(no output)"  # services take no blank text
# After these a tool call may be cut off.
UNFINISHED: Final[frozenset[StopReason]] = frozenset({"max_tokens", "refusal", "context_full"})

_HIGH = ("\ud800", "\udbff")


class ReplyReader(Protocol):
    """Puts the events of one streamed reply together.

    `done` is true after the last event that counts, `unknown_stop` a reason to stop that nobody
    here knows.
    """

    done: bool
    unknown_stop: str

    def feed(self, event: Json) -> str:
        """Take one event; returns the new words, often none.

        Raises:
            ErrorEvent: the event tells that the service failed.
            ModelBadReply: the event is not what the protocol says.
        """
        ...

    def thought(self) -> str:
        """What the model thought since this was asked last, mostly nothing."""
        ...

    def end(self) -> str:
        """The words that were held back until the stream had ended, mostly none."""
        ...

    @property
    def usage(self) -> Usage:
        """The tokens so far, as the service says."""
        ...

    def reply(self) -> Reply:
        """The whole reply.

        Raises:
            ModelBadReply: the stream ended too early, or what it brought cannot be read.
        """
        ...


class ErrorEvent(Exception):
    """The service told of a failure within the stream of a reply, in this event."""

    def __init__(self, event: Json) -> None:
        super().__init__("an event of the reply tells of a failure")
        self.event = event


class Refused(Exception):
    """A service answered with a status that is an error, or with a page for people.

    `body` is what it says of it, as JSON where it is that; no message of ours quotes it.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: object) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = headers
        self.body = body


class Words:
    """Joins words that come in pieces: half of a surrogate pair waits for the other."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        words, self._held = self._held + piece, ""
        if words and _HIGH[0] <= words[-1] <= _HIGH[1]:
            words, self._held = words[:-1], words[-1]
        return well_formed(words)


Written = tuple[bytearray, list[Json]]  # messages that are complete, as JSON; and the last one


def opened(request: Request, name: str, merge: Callable[[list[Json], Message], None]) -> Written:
    """The messages of a request from before its turn, in the format of that name.

    Those that are complete are JSON, each with a comma after it. The last one is apart, as the
    turn's own may belong to it: `merge` puts a message behind others, or into the last of them,
    which is another dict then or has other values, while lists and blocks in it stay as they are.
    """

    def add(written: Written, message: Message) -> Written:
        closed, last = written
        merge(last, message)
        for complete in last[:-1]:
            closed += dump(complete)
            closed += b","
        del last[:-1]
        return written

    history = request.messages[: request.begins]
    closed, last = request.folding.of(name, history, lambda: (bytearray(), []), add)
    return closed, [dict(message) for message in last]


def listed(closed: bytes | bytearray, rest: Sequence[Json]) -> orjson.Fragment:
    """A list of messages: the `opened` ones, and the rest of them."""
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
