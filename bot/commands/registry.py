"""The commands there are, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from bot.commands.base import Desk, Handler
from bot.commands.context import ContextCommands
from bot.commands.conversation import ConversationCommands
from bot.commands.info import InfoCommands, SessionDesk
from bot.commands.link import LinkCommands
from bot.commands.memory import MemoryCommands, MemoryDesk
from bot.commands.remind import RemindCommands, ReminderDesk
from bot.commands.rooms import RoomCommands, RoomDesk
from bot.storage import Database


class PeopleDesk(RoomDesk, SessionDesk, Protocol):
    """What commands about people and rooms may ask of the running program."""


def handlers(
    desk: Desk,
    memory_desk: MemoryDesk,
    reminder_desk: ReminderDesk,
    people_desk: PeopleDesk,
    database: Database,
) -> Mapping[str, Handler]:
    """Every command's handler, by name; "start" is what Telegram sends first."""
    conversation = ConversationCommands(desk)
    context = ContextCommands(desk)
    info = InfoCommands(desk, people_desk)
    memory = MemoryCommands(memory_desk, database)
    remind = RemindCommands(reminder_desk)
    link = LinkCommands()
    return {
        "new": conversation.new,
        "reset": conversation.new,
        "undo": conversation.undo,
        "stop": conversation.stop,
        "memory": memory.memory,
        "whosees": memory.whosees,
        "remind": remind.remind,
        "reminders": remind.reminders,
        "model": conversation.model,
        "context": context.context,
        "compact": context.compact,
        "usage": context.usage,
        "notices": context.notices,
        "activation": RoomCommands(people_desk).activation,
        "link": link.link,
        "unlink": link.unlink,
        "status": info.status,
        "whoami": info.whoami,
        "help": info.help,
        "start": info.help,
    }
