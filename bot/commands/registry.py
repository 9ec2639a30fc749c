"""The commands there are, by name."""

from __future__ import annotations

from collections.abc import Mapping

from bot.commands.base import Desk, Handler
from bot.commands.conversation import ConversationCommands
from bot.commands.info import InfoCommands
from bot.commands.memory import MemoryCommands, MemoryDesk


def handlers(desk: Desk, memory_desk: MemoryDesk) -> Mapping[str, Handler]:
    """Every command's handler, by name; "start" is what Telegram sends first."""
    conversation = ConversationCommands(desk)
    info = InfoCommands(desk)
    memory = MemoryCommands(memory_desk)
    return {
        "new": conversation.new,
        "reset": conversation.new,
        "undo": conversation.undo,
        "stop": conversation.stop,
        "memory": memory.memory,
        "whosees": memory.whosees,
        "model": conversation.model,
        "status": info.status,
        "whoami": info.whoami,
        "help": info.help,
        "start": info.help,
    }
