"""What a command is given and what it gives back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from bot.channel import Inbound
from bot.delivery.outbox import Extra
from bot.identity import Activation, Conversation, Link, Place
from bot.identity.view import MemoryView
from bot.sessions.store import Session
from bot.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class Call:
    """One command from one person. `now` is in ms since the epoch.

    What is entered into `scope` is left once the command's transaction is on disk, or has failed.
    """

    name: str
    rest: str
    inbound: Inbound
    conversation: Conversation
    now: int
    scope: AsyncExitStack = field(default_factory=AsyncExitStack, compare=False)

    @property
    def place(self) -> Place:
        """The conversation it was given in, with its session key."""
        return self.conversation.place

    @property
    def person(self) -> str:
        """The canonical identity of whoever gave it."""
        return self.conversation.person

    @property
    def language(self) -> str:
        """The language to answer in."""
        return self.conversation.language

    @property
    def view(self) -> MemoryView:
        """What may be seen and written there."""
        return self.conversation.view

    @property
    def is_direct(self) -> bool:
        """True when nobody else reads the answer."""
        return self.conversation.is_direct

    @property
    def typed(self) -> str:
        """The command as a person types it."""
        return f"/{self.name} {self.rest}".strip()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command says, in Markdown, and what is left of its text as a first message.

    `extra` is what comes with it where the channel takes it. `links` are all there are now, if it
    changed any, and `zones` all time zones people chose; `activation` is what was chosen for the
    room it was given in. `question` is the one whether a tool may be called that it has answered.
    `noted` is what the transcript keeps where `text` holds a secret, `typed` what it keeps where
    the command does.
    """

    text: str
    message: str = ""
    extra: Extra | None = None
    links: tuple[Link, ...] | None = None
    zones: Mapping[str, ZoneInfo] | None = None
    activation: Activation | None = None
    question: str = ""
    noted: str = ""
    typed: str = ""


Apply = Callable[[UnitOfWork, Session], Answer]
"""Runs inside the command's one transaction; the session is the caller's current one."""

Handler = Callable[[Call], Awaitable[Apply]]


def saying(words: str) -> Apply:
    """A command that changes nothing and only answers."""
    return lambda _unit, _session: Answer(words)


def switched(call: Call) -> str:
    """What was chosen of a command's few words, in one language."""
    return {"开": "on", "打开": "on", "关": "off", "关闭": "off"}.get(call.rest, call.rest.lower())
