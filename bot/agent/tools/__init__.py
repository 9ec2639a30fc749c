"""Tools the model may use: each one a `Tool`, all of them reading through `MemoryView`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from bot.agent.models import ToolSpec
from bot.identity.access import ToolRights
from bot.identity.view import MemoryView
from bot.memory import markdown
from bot.memory.note_store import Watch
from bot.memory.notes import Place
from bot.messages import Message
from bot.sessions.reminders import ReplyTarget
from bot.tool_results import Quoted, ToolValue


@dataclass(frozen=True, slots=True)
class MemoryPassage:
    """A passage of memory that was put before the model in this turn."""

    place: Place
    text: str


def passages(quoted: Quoted) -> Iterator[MemoryPassage]:
    """The passages of memory files among some quotes."""
    for quote in quoted.quotes:
        if quote.path:
            text = markdown.unattributed(quote.text)
            yield MemoryPassage(Place(quote.path, quote.line), text)


@dataclass(slots=True)
class TurnMemory:
    """What one turn has to do with memory.

    `words` are what the person wrote in the messages it answers, `seen` is what the model was shown
    when it began, each block with its origin. Tools add to
    `recalled`, to `foreign` what they showed of somebody else's words and, once it is on disk, to
    `written`; `shown` is all that other tools than memory's own showed.
    """

    words: tuple[str, ...] = ()
    seen: tuple[Message, ...] = ()
    foreign: list[str] = field(default_factory=list[str])
    shown: list[str] = field(default_factory=list[str])
    recalled: list[MemoryPassage] = field(default_factory=list[MemoryPassage])
    written: list[Place] = field(default_factory=list[Place])


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Who a tool works for. `now` carries the person's time zone, `window` is in tokens.

    `target` is where what a tool has said later goes, or asks; None where nothing can be. `watch`
    hears of what is forgotten while the work goes on. `rights` are those of everybody who is
    answered; left out, there are only the built-in tools.
    """

    view: MemoryView
    session_id: str
    now: datetime
    window: int = 200_000
    memory: TurnMemory = field(default_factory=TurnMemory)
    target: ReplyTarget | None = None
    watch: Watch = field(default_factory=Watch)
    rights: tuple[ToolRights, ...] = (ToolRights(),)


class Tool(Protocol):
    """Something a model can ask for."""

    @property
    def spec(self) -> ToolSpec:
        """How the model sees it; the same bytes every time."""
        ...

    async def run(self, arguments: Mapping[str, Any], context: ToolContext, /) -> str | ToolValue:
        """Do it and answer; the model is shown the answer's words, `str(answer)`.

        Raises:
            ToolError: wrong arguments, or it could not be done; the model is told the message.
        """
        ...
