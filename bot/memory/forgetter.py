"""Forgetting words everywhere they are kept: notes, their versions, index and conversations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bot.errors import ToolError
from bot.identity.view import SHARED_SPACE, MemoryView
from bot.memory import uses, versions
from bot.memory.memory import Cleared, Memory, Spot
from bot.memory.night import edits, record
from bot.memory.note_store import MAX_WRITE
from bot.sessions import forgetting, store
from bot.sessions.forgetting import Gone, Held
from bot.storage import Database, Transaction


@dataclass(frozen=True, slots=True)
class Preview:
    """What forgetting would remove: entries of files, and what holds the words elsewhere."""

    spots: tuple[Spot, ...]
    held: Held
    versions: int

    @property
    def is_empty(self) -> bool:
        """True when nothing holds the words."""
        held = self.held
        elsewhere = held.results or held.titles or held.planned or self.versions
        return not (self.spots or held.mentions or elsewhere)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was removed where.

    `sessions` are those whose conversation has to be read again, `keys` those of all that were
    looked at.
    """

    cleared: Cleared
    gone: Gone
    versions: int
    sessions: frozenset[str]
    keys: tuple[str, ...]


Complete = Callable[[Transaction], Forgotten]
"""The last step of forgetting, in a transaction of the caller's."""


class Forgetter:
    """The one way to forget: the chat, the page and the command line go by it."""

    def __init__(
        self,
        memory: Memory,
        database: Database,
        forgot: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`forgot` is called when words were forgotten; other nodes hear of it by themselves."""
        self._memory = memory
        self._database = database
        self._forgot = forgot

    async def preview(self, view: MemoryView, words: str) -> Preview:
        """What forgetting these words would remove.

        Raises:
            StorageError: the database cannot be read.
        """
        found = await self._memory.find(view, words)
        spots = tuple(each for each in found if not each.path.startswith(f"{SHARED_SPACE}/"))
        held = await forgetting.find(self._database, view, words)
        kept = await self._database.read(lambda tx: versions.holding(tx, view.space, words))
        return Preview(spots, held, len(kept))

    @asynccontextmanager
    async def forgetting(self, view: MemoryView, words: str, now: int) -> AsyncGenerator[Complete]:
        """Remove words; what is yielded is to be called in a transaction, within.

        Until that is on disk, whatever is begun would read the words once more.

        Raises:
            ToolError: a note could not be written; what was removed so far is gone.
            StorageError: the database cannot be read or written.
        """
        async with self._memory.notes.forgetting(view, words):
            cleared = await self._memory.forget(view, words)
            claims, entries = await self._standing(view)
            held = await forgetting.find(self._database, view, words)
            await forgetting.hide(self._database, held, now)

            def complete(tx: Transaction) -> Forgotten:
                gone = forgetting.complete(tx, held, now)
                kept = versions.forget(tx, view.space, words)
                uses.forget(tx, view.space, claims)
                record.forget(tx, view.space, entries, now)
                # Those that go on may have begun with the words, and have stored nothing yet.
                keys = tuple(sorted({*held.keys, *view.keys}))
                current = (store.current(tx, key) for key in keys)
                going_on = (each.id for each in current if each is not None)
                said = (mention.session_id for mention in gone.mentions)
                stale = frozenset((*gone.prompts, *said, *going_on))
                return Forgotten(cleared, gone, kept, stale, keys)

            yield complete
        if self._forgot is not None:
            await self._forgot()

    async def _standing(self, view: MemoryView) -> tuple[set[str], set[str]]:
        """The digests of the claims in a view's own notes, and of their entries as they stand.

        What is kept of any other may be of the words: an entry that was changed before they were
        forgotten held them, too.
        """
        claims, entries = set[str](), set[str]()
        for each in await self._memory.files.names(view):
            if not each.path.startswith(f"{SHARED_SPACE}/"):
                try:
                    data = await self._memory.files.data(view, each.path, MAX_WRITE)
                except ToolError:
                    continue
                text = data.decode("utf-8", "replace")
                claims |= await asyncio.to_thread(uses.digests_of, text)
                entries |= await asyncio.to_thread(edits.digests_of, text)
        return claims, entries
