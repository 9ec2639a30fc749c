"""The index over every space's notes and over what was said: derived, and deletable at any time."""

from bot.memory.index.service import MemoryIndex
from bot.memory.index.values import Answer, Document, Forgotten, Hit, Mode, Probe, Status

__all__ = ["Answer", "Document", "Forgotten", "Hit", "MemoryIndex", "Mode", "Probe", "Status"]
