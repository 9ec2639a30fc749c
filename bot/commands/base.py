"""The input and output of a command, and `command`, which declares one at its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from bot.channel import Inbound
from bot.clock import moment
from bot.delivery.outbox import Extra
from bot.i18n import text
from bot.identity import Activation, Conversation, Link, Place
from bot.identity.view import MemoryView
from bot.sessions.due_time import shown
from bot.sessions.store import Session
from bot.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class Call:
    """One command from one person. `now` is in ms since the epoch.

    `scope` is closed once the command's transaction is on disk, or has failed.
    """

    name: str
    rest: str
    inbound: Inbound
    conversation: Conversation
    now: int
    scope: AsyncExitStack = field(default_factory=AsyncExitStack, compare=False)

    @property
    def place(self) -> Place:
        """The conversation it was sent in, with its session key."""
        return self.conversation.place

    @property
    def person(self) -> str:
        """The canonical identity of the sender."""
        return self.conversation.person

    @property
    def language(self) -> str:
        """The language to answer in."""
        return self.conversation.language

    def text(self, key: str, /, **values: object) -> str:
        """A sentence of the catalog in that language."""
        return text(self.language, key, **values)

    def when(self, at: int) -> str:
        """A time in ms as the person reads it: "today at 14:49"."""
        zone = self.conversation.zone
        return shown(self.language, moment(at, zone), moment(self.now, zone))

    @property
    def view(self) -> MemoryView:
        """The memory view of the conversation."""
        return self.conversation.view

    @property
    def is_direct(self) -> bool:
        """True if only the sender sees the reply."""
        return self.conversation.is_direct

    @property
    def typed(self) -> str:
        """The command as a person types it."""
        return f"/{self.name} {self.rest}".strip()


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The answer of a command, in Markdown, and the rest of its text as a first message.

    `extra` holds buttons and attachments. `links` are all links, if it changed any, and `zones` all
    chosen time zones; `activation` is what was chosen for the room. `question` is the id of the
    tool approval that it answered. `noted` is what the transcript keeps if `text` holds a secret,
    `typed` what it keeps if the command does.
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


Apply = Callable[[UnitOfWork, Session], CommandAnswer]
"""Runs inside the command's one transaction; the session is the caller's current one."""

Handler = Callable[[Call], Awaitable[Apply]]
Method = TypeVar("Method", bound=Callable[..., Awaitable[Apply]])


@dataclass(frozen=True, slots=True)
class Declared:
    """A command: the method that runs it, and who sees it."""

    method: Callable[[Any, Call], Awaitable[Apply]]
    is_private: bool
    is_listed: bool
    is_aside: bool


COMMANDS: dict[str, Declared] = {}
"""Every command, by its name."""


def command(
    *names: str, is_private: bool = False, is_listed: bool = True, is_aside: bool = False
) -> Callable[[Method], Method]:
    """Declare the method below it as a command, or as several; without names, by its own.

    An answer that `is_private` is shown to the sender only, where a platform can do that. A command
    that is not `is_listed` is in no menu, such as those of buttons. One that `is_aside` is not part
    of the conversation: the page shows its answer between the messages, unless it has buttons.
    """

    def declare(method: Method) -> Method:
        for name in names or (method.__name__,):
            COMMANDS[name] = Declared(method, is_private, is_listed, is_aside)
        return method

    return declare


def saying(words: str) -> Apply:
    """An answer that changes nothing."""
    return lambda _unit, _session: CommandAnswer(words)


def switched(call: Call) -> str:
    """The choice a person typed, in English: on, off, or the word itself."""
    wishes = {"on": ("开", "開", "打开", "打開"), "off": ("关", "關", "关闭", "關閉")}
    return next((wish for wish, words in wishes.items() if call.rest in words), call.rest.lower())
