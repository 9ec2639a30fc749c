"""What the owner may want to change, as their notes are."""

from __future__ import annotations

from collections.abc import Sequence

from cachetools import LRUCache

from bot.channel import Finding
from bot.findings import Told, told
from bot.identity.view import MemoryView
from bot.memory.embed import chinese
from bot.memory.files import Listed
from bot.memory.memory import Memory, Overview

SAMPLE = 24  # notes whose language is looked at, the newest
CHARACTERS = 10_000  # of each of them
REMEMBERED = 4  # views


class Hints:
    """Looks at the notes again only when one was edited."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        # How much of each view's notes is Chinese, after which edit.
        self._shares: LRUCache[MemoryView, tuple[int, float]] = LRUCache(REMEMBERED)

    async def of(
        self, view: MemoryView, listed: Sequence[Listed], overview: Overview, language: str
    ) -> Sequence[Told]:
        """What the doctor says of these notes too: that another embedder knows their language."""
        if self._memory.embedder.provider != "local" or overview.vectors_off:
            return ()
        if await self._share(view, listed) <= chinese.MUCH:
            return ()
        return (told(Finding.of("warning", "memory.chinese"), language),)

    async def _share(self, view: MemoryView, listed: Sequence[Listed]) -> float:
        edits, known = self._memory.index.edits, self._shares.get(view)
        if known is not None and known[0] == edits:
            return known[1]
        newest = sorted(listed, key=lambda each: -each.changed_at)[:SAMPLE]
        files = self._memory.files
        texts = [await files.text(view, each.path, CHARACTERS) for each in newest]
        share = chinese.share("".join(texts))
        if edits is not None:
            self._shares[view] = edits, share
        return share
