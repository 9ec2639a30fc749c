"""The index over every space's notes and over what was said: derived, and deletable at any time.

`service` is what the program asks. An edit is noticed by `note_files` and brought in by `writer`
and `sync`, into the tables of `schema` through `store`. `search` gets candidates from `queries`, or
from the notes while there is no index, and `bot.memory.ranking` puts them in order.
"""

from bot.memory.index.service import MemoryIndex
from bot.memory.search import Document, Findings, Forgotten, Hit, Mode, Probe, Status

__all__ = ["Document", "Findings", "Forgotten", "Hit", "MemoryIndex", "Mode", "Probe", "Status"]
