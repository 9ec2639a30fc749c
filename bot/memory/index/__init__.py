"""The index over every space's notes and over what was said: derived, and deletable at any time.

The program calls `service`. `writer` compares the notes, as `note_files` reads them, with a `Store`
of `engine` and stores what changed: in the index file (`file_rows`), or in a shared database
(`shared_rows`). `search` gets candidates from either (`queries`), or from the notes while there is
no index, and `bot.memory.ranking` puts them in order.
"""

from bot.memory.index.service import MemoryIndex
from bot.memory.search import Document, Findings, Forgotten, Hit, Mode, Probe, Status

__all__ = ["Document", "Findings", "Forgotten", "Hit", "MemoryIndex", "Mode", "Probe", "Status"]
