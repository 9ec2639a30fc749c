"""The seam between a turn and whatever writes the reply.

A `Model` streams one reply to one `Request`; the tool loop is the turn's, so every model, the
offline one too, uses the same tools the same way. `anthropic` speaks the Messages API, `openai`
chat completions, `offline` needs nothing at all; `registry` knows which of them are configured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, Protocol

from bot.config import Thinking
from bot.context.budget import DEFAULT_WINDOW
from bot.context.quoting import Said
from bot.context.tokens import Folding
from bot.messages import Message

Thoughts = Literal["never", "turn", "kept", "needed"]
"""The thoughts of a model that are sent back to it.

None; what came before calls of the turn that runs; before calls of all turns; or that, and calls of
which no thought is known are told as words.
"""

Purpose = Literal["chat", "flush", "summary", "speech", "night", "title", "trial"]
StopReason = Literal["end", "tool_use", "max_tokens", "refusal", "context_full", "paused"]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it.

    Attributes:
        name: letters, digits, `_` and `-`.
        description: what it does, for the model.
        schema: a JSON Schema of an object.
        tells_origins: it adds what is somebody else's to `TurnMemory.foreign`, and the rest of its
            answer is the program's or memory's; without this all of it is somebody else's words.
        built_in: everybody may use it. Any other is for the owner's direct chats, until a rule of
            the configuration says otherwise.
        changes: the person is asked before it is called.
        timeout: seconds for a call; None is as long as most tools may take.
        short: the same in few words, for a small window or a model that reads slowly; a tool
            without is left out there.
        repeatable: it only reads, or comes to the same when it is called twice. Any other is not
            called again after a crash.
        of_memory: it is offered only where there is a memory.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    tells_origins: bool = False
    built_in: bool = False
    changes: bool = False
    timeout: float | None = None
    short: ToolSpec | None = None
    repeatable: bool = False
    of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, as the service reported them."""

    input_tokens: int = 0  # not counting the two cache figures
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )

    @property
    def context_tokens(self) -> int:
        """Tokens of this call in the model's window, its reply included."""
        return (
            self.input_tokens
            + self.cache_read_tokens
            + self.cache_write_tokens
            + self.output_tokens
        )


@dataclass(frozen=True, slots=True)
class Request:
    """Everything a model needs for one reply.

    `system` and `tools` are byte-stable within a session so that prompt caches hit. What a real
    model reads in the prompt, the offline one takes from `language`, `now`, `cite` and `said`.

    Attributes:
        model: its name; the full one for `Models`, the service's own for an adapter.
        system: the system prompt.
        messages: the conversation.
        tools: the tools that are offered.
        max_tokens: the longest reply to ask for.
        language: the person's ("en", "zh").
        purpose: what the reply is for.
        now: the time on the person's clocks.
        begins: the index of the first message that this turn answers.
        cite: files may be named.
        said: the conversation that is to be summarised or saved.
        may_call: without it the reply is to be words alone, although tools are listed.
        deadline: no pause between tries lasts beyond this, by the running loop's clock.
        must_see: raise `ModelBlind` rather than leave out this turn's pictures.
        on_usage: hears what the service says of its tokens before the reply is whole; should it end
            before that, this counts.
        on_asked: hears the full name of each model that is asked, where others may stand in for the
            first; empty when one is asked once more.
        on_thought: hears pieces of what the model thinks, which is no part of the reply.
        folding: that of the conversation whose messages come before `begins`.
        thinking: how much of it the person asked for.
        extra: fields that options add to the body.
        tokens: about how many there are to read; 0 when nobody counted.
        is_awaited: somebody waits for it, although it is a chore.
        silence: seconds without a word before the first one; None is as configured.
        fallback: models that may stand in for it, for `Models`; None is those of `[agent]`.
    """

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 8192
    language: str = "en"
    purpose: Purpose = "chat"
    now: datetime | None = None
    begins: int = 0
    cite: bool = True
    said: tuple[Said, ...] = ()
    may_call: bool = True
    deadline: float | None = None
    must_see: bool = False
    on_usage: Callable[[Usage], None] | None = field(default=None, repr=False, compare=False)
    on_asked: Callable[[str], None] | None = field(default=None, repr=False, compare=False)
    on_thought: Callable[[str], None] | None = field(default=None, repr=False, compare=False)
    folding: Folding = field(default_factory=Folding, repr=False, compare=False)
    thinking: Thinking = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tokens: int = 0
    is_awaited: bool = False
    silence: float | None = None
    fallback: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More words of the reply being written; with `anew` it begins with them.

    What came before was no part of it then.
    """

    text: str
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The whole reply; always the last event of a stream.

    `model` is the full name of the model that wrote it, where several could have. `left_out` is
    what the model did not take of the request, as far as a person has to know it: one of the
    sentences `turn.left_out.…`.
    """

    message: Message
    stop: StopReason
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """The sizes of a model in tokens; 0 is a window that its service does not tell.

    `assumed` is what is counted with then: 200 000 is the least that any Claude takes. `configured`
    is the window that the operator chose for the service, or 0.
    """

    max_input_tokens: int
    max_output_tokens: int
    assumed: int = DEFAULT_WINDOW
    configured: int = 0


UNKNOWN_WINDOW: Final = Window(max_input_tokens=0, max_output_tokens=8_192)


class Writer(Protocol):
    """Something that writes replies."""

    def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        """Write one reply: any number of `TextDelta`, then exactly one `Reply`.

        Raises:
            ModelError: one of its subclasses for everything that can go wrong.
        """
        ...


class Model(ABC):
    """A provider of models; what it does not define, its service does not tell.

    Attributes:
        name: the provider's name, such as "anthropic".
    """

    name: str

    @abstractmethod
    def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        """Write one reply; see `Writer.stream`."""

    async def window(self, model: str) -> Window:
        """The sizes of a model as its service tells them; never raises."""
        return UNKNOWN_WINDOW

    async def names(self) -> tuple[str, ...]:
        """The model names this provider is known to take, for `/model`; never raises."""
        return ()

    async def check(self, model: str) -> Window | None:
        """Ask for a model's sizes now: does the service take the key, does it know the model?

        None if it cannot be asked.

        Raises:
            ModelError: its subclass says which of these is not so, or that nobody answered.
        """
        return None

    async def fetch_names(self) -> Sequence[str] | None:
        """Ask the service for the names of its models now; None if it cannot be asked.

        Raises:
            ModelError: it does not tell them.
        """
        return None

    async def close(self) -> None:  # noqa: B027 - many have nothing open
        """Release connections."""
