"""The index over every space's notes and over what was said: derived, and deletable at any time."""

from bot.memory.index.service import MemoryIndex
from bot.memory.search import Document, Findings, Forgotten, Hit, Mode, Probe, Status

__all__ = ["Document", "Findings", "Forgotten", "Hit", "MemoryIndex", "Mode", "Probe", "Status"]
