"""A store of small texts that survives nothing, or refuses everything."""

from __future__ import annotations

import asyncio

from bot.errors import StorageError


class TextStoreInMemory:
    def __init__(self, **texts: str) -> None:
        self.texts = texts
        self.broken = False
        self.written = asyncio.Event()  # set by every attempt to write

    async def get(self, key: str) -> str | None:
        self._check()
        return self.texts.get(key)

    async def set(self, key: str, text: str) -> None:
        self.written.set()
        self._check()
        self.texts[key] = text

    def _check(self) -> None:
        if self.broken:
            raise StorageError
