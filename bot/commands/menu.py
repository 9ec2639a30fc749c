"""Every command there is: what runs it, and how people see it in menus, completion and `/help`.

A new one is a line in `COMMANDS`, a handler in one of the `Services`, and its words in the
catalogs: `command.<name>.description` and `command.<name>.usage`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.channel import Command
from bot.commands.base import Handler
from bot.commands.context import ContextCommands
from bot.commands.conversation import ConversationCommands
from bot.commands.info import InfoCommands, UsageCommands
from bot.commands.link import LinkCommands, RoomCommands, WebCommands
from bot.commands.memory import MemoryCommands
from bot.commands.remind import RemindCommands, TimezoneCommands
from bot.commands.tools import ApprovalCommands, ToolCommands
from bot.i18n import LANGUAGES, language_of, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What carries out commands."""

    conversation: ConversationCommands
    context: ContextCommands
    usage: UsageCommands
    info: InfoCommands
    memory: MemoryCommands
    remind: RemindCommands
    rooms: RoomCommands
    link: LinkCommands
    timezone: TimezoneCommands
    tools: ToolCommands
    approvals: ApprovalCommands
    web: WebCommands


@dataclass(frozen=True, slots=True)
class Declared:
    """A command. An answer that `is_private` is shown to nobody else, where a platform can do that.

    What is not `is_listed` is in no menu: what buttons give, or what a platform sends by itself.
    """

    handler: Callable[[Services], Handler]
    is_private: bool = False
    is_listed: bool = True


# In the order of menus.
COMMANDS: Mapping[str, Declared] = {
    "new": Declared(lambda has: has.conversation.new),
    "reset": Declared(lambda has: has.conversation.new),
    "undo": Declared(lambda has: has.conversation.undo),
    "stop": Declared(lambda has: has.conversation.stop),
    "status": Declared(lambda has: has.info.status, is_private=True),
    "context": Declared(lambda has: has.context.context, is_private=True),
    "compact": Declared(lambda has: has.context.compact),
    "usage": Declared(lambda has: has.usage.usage, is_private=True),
    "notices": Declared(lambda has: has.context.notices),
    "remind": Declared(lambda has: has.remind.remind),
    "task": Declared(lambda has: has.remind.task),
    "reminders": Declared(lambda has: has.remind.reminders, is_private=True),
    "timezone": Declared(lambda has: has.timezone.timezone, is_private=True),
    "memory": Declared(lambda has: has.memory.memory, is_private=True),
    "whosees": Declared(lambda has: has.memory.whosees, is_private=True),
    "model": Declared(lambda has: has.conversation.model),
    "think": Declared(lambda has: has.conversation.think),
    "tools": Declared(lambda has: has.tools.tools),
    "activation": Declared(lambda has: has.rooms.activation),
    "link": Declared(lambda has: has.link.link),
    "unlink": Declared(lambda has: has.link.unlink),
    "web": Declared(lambda has: has.web.web),
    "whoami": Declared(lambda has: has.info.whoami, is_private=True),
    "help": Declared(lambda has: has.info.help, is_private=True),
    "start": Declared(lambda has: has.info.help, is_listed=False),  # what Telegram sends first
    "allow": Declared(lambda has: has.approvals.allow, is_listed=False),
    "deny": Declared(lambda has: has.approvals.deny, is_listed=False),
}
KNOWN = frozenset(COMMANDS)


def handlers(services: Services) -> Mapping[str, Handler]:
    """What runs each command, by its name."""
    return {name: each.handler(services) for name, each in COMMANDS.items()}


def menus() -> dict[str, Sequence[Command]]:
    """The menu in every language; in English for whoever speaks another one."""
    return {"": menu("en"), **{language: menu(language) for language in LANGUAGES}}


def menu(locale: str) -> tuple[Command, ...]:
    """Every command that is listed, described in the person's language."""
    language = language_of(locale)
    return tuple(
        Command(
            name,
            text(language, f"command.{name}.description"),
            text(language, f"command.{name}.usage"),
            is_private=each.is_private,
        )
        for name, each in COMMANDS.items()
        if each.is_listed
    )
