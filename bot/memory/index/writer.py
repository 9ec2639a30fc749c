"""Keeps the index up with the notes: opened, synced, built anew, one change at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import apsw
import structlog

from bot.clock import Clock
from bot.errors import IndexElsewhere, StorageError
from bot.memory.embed import Embedder
from bot.memory.index.engine import Cache, DimsChanged, Rows, SourceRow, Store
from bot.memory.index.file_rows import MENDED
from bot.memory.index.sync import Builder, Outcome
from bot.memory.note_store import NoteStore
from bot.memory.search import Building, Counts
from bot.memory.vectors import Vectors
from bot.memory.versions import Versions

T = TypeVar("T")

ATTEMPTS = 3  # at a sync, each with the file or the generation that the one before asked for
LOOK_AGAIN = 0.1  # seconds between looks whether another program has finished its rebuild
LOOKS = 200
FAILURES = (apsw.Error, OSError, StorageError)  # what a place for rows raises

log = structlog.get_logger(__name__)


class Writer:
    """The writing side of the index, in a thread of its own."""

    def __init__(
        self,
        notes: NoteStore,
        rows: Rows,
        cache: Cache,
        embedder: Embedder,
        clock: Clock,
        *,
        versions: Versions | None = None,
        asked: Mapping[bytes, Vectors] | None = None,
    ) -> None:
        """See `Builder`."""
        self.again = False  # a note was being written while it was read
        self.last_sync = 0
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="confidant-memory-writer")
        self.rows = rows
        self._cache = cache
        self._builder = Builder(
            notes, embedder, self._cache, clock, self._thread, versions=versions, asked=asked
        )
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None  # a sync that has not begun yet
        self._syncs: set[asyncio.Task[None]] = set()
        self._problem = ""
        self._embed_failure = ""
        self._closed = False

    def needs_attention(self) -> bool:
        """Whether the file is damaged or gone, or a rebuild is due, and no sync sees to it."""
        return not self._syncs and self.rows.need_attention()

    @property
    def left(self) -> int:
        """Notes that a sync has found and not stored yet."""
        return self._builder.left

    async def open(self) -> None:
        """Open the index file; what cannot be opened is made anew by the next sync."""

        def work() -> None:
            self._cache.prune(self._clock())
            self.rows.tidy()

        async with self._lock:
            try:
                await self.run(work)
            except FAILURES as error:
                self.rows.broken |= isinstance(error, MENDED)
                self._problem = _words(error)

    async def close(self) -> None:
        """Finish the transaction that is being written, and release the files."""
        self._closed = True
        # A sync may wait for an embedder for minutes; what it has not done is done after the start.
        for task in self._syncs:
            task.cancel()
        await asyncio.gather(*self._syncs, return_exceptions=True)
        async with self._lock:
            await self.run(self._release)
        await asyncio.to_thread(self._thread.shutdown)

    async def sync(self, reason: str) -> None:
        """Bring the index up to the notes; whoever asks while one runs shares the next one."""
        if self._closed:
            return
        if self._next is None:
            self._next = asyncio.create_task(self._sync(reason))
            self._syncs.add(self._next)
            self._next.add_done_callback(self._syncs.discard)
        await asyncio.wait({self._next})  # nobody who waits is cancelled with it

    async def put(self, documents: list[SourceRow]) -> None:
        """Index documents, each in the place of what it was before.

        Raises:
            StorageError: the index file cannot be written.
        """
        await self._changed(lambda store: self._builder.put(store, documents))

    async def change(self, work: Callable[[Store, Cache], T]) -> T:
        """Do something with the live rows and the cache, which are there then.

        Raises:
            StorageError: the index file cannot be written.
        """
        return await self._changed(lambda store: self.run(lambda: work(store, self._cache)))

    async def run(self, work: Callable[[], T]) -> T:
        """Do something in the writer's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def status(self) -> tuple[Counts | None, tuple[str, ...], Building | None]:
        """What is in the file, if there is one, what went wrong, and how far a new one is."""
        building: Building | None = None
        try:
            known, missing = await self.run(lambda: self.rows.count(is_well=not self._problem))
            if not self._problem:  # else nothing goes on
                building = await self.run(self.rows.building)
        except FAILURES as error:
            known, missing = None, f"the index cannot be read ({type(error).__name__})"
        if building is not None and self._builder.left:
            building = replace(building, total=building.done + self._builder.left)
        told = (self._problem, self._embed_failure, missing)
        return known, tuple(each for each in told if each), building

    async def _sync(self, reason: str) -> None:
        async with self._lock:
            self._next = None
            try:
                outcome = await self._bring_up_to_date()
            except IndexElsewhere:  # until it is there, `status` says that it is being built
                self._problem = ""
                return
            except FAILURES as error:
                self._problem = _words(error)
                log.warning("memory.sync_failed", error=type(error).__name__, reason=reason)
                return
            except Exception:  # a fault of ours must end neither a search nor the program
                log.exception("memory.sync_raised", reason=reason)
                self._problem = "the index could not be brought up to date; the log says why"
                return
            self._problem = _unread(outcome.refused)
            self.again = outcome.again
            self._embed_failure = f"no vectors: {outcome.failure}" if outcome.failure else ""
            self.last_sync = self._clock()
            if outcome.written or outcome.removed:
                log.info("memory.synced", written=outcome.written, removed=outcome.removed)

    async def _bring_up_to_date(self) -> Outcome:
        """Sync the live generation, or fill another one where it does not do, and let that be live.

        Raises:
            apsw.Error: the file cannot be written, nor another one made.
            OSError: the same.
        """
        for left in reversed(range(ATTEMPTS)):
            try:
                store = await self.run(self.rows.fitting)
                return await (self._build() if store is None else self._builder.sync(store))
            except (DimsChanged, apsw.Error) as error:
                mended = await self.run(lambda error=error: self.rows.can_mend(error))
                if not mended or (not left and isinstance(error, apsw.Error)):
                    raise
        return Outcome(failure="the embedder's vectors keep changing their length")

    async def _build(self) -> Outcome:
        """Fill a generation beside the live one, or wait until another program has."""
        try:
            for _ in range(LOOKS):
                if await self.run(self.rows.take_turn):
                    break
                await asyncio.sleep(LOOK_AGAIN)
            else:
                raise apsw.BusyError("another program is building the index")
            if (store := await self.run(self.rows.fitting)) is not None:
                return await self._builder.sync(store)
            store, documents = await self.run(self.rows.begin)
            carried = await self._builder.put(store, documents)
            outcome = await self._builder.sync(store)
            await self.run(lambda: self.rows.put_live(store))
        finally:
            await asyncio.shield(self.run(self.rows.end_turn))
        outcome.written += carried.written
        outcome.failure = outcome.failure or carried.failure
        return outcome

    async def _changed(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Run a change on the live rows, which are built first if there are none.

        Where the file turns out to be damaged, or made for other vectors, the change is made to
        what was built in its place.
        """
        async with self._lock:
            for left in (1, 0):
                try:
                    store = await self.run(self.rows.live)
                    if store is None:
                        await self._bring_up_to_date()
                        store = await self.run(self.rows.live)
                    if store is not None:
                        return await work(store)
                except (DimsChanged, *FAILURES) as error:
                    mended = await self.run(lambda error=error: self.rows.can_mend(error))
                    if not (mended and left):
                        self._problem = _words(error)
                        raise StorageError(self._problem) from error
        raise StorageError("The memory index cannot be opened.")

    def _release(self) -> None:
        for part in (self.rows, self._cache):
            try:
                part.close()
            except FAILURES as error:  # a full disk; what is not written is derived again
                log.warning("memory.close_failed", error=type(error).__name__)


def _unread(refused: Mapping[str, str]) -> str:
    """What is told of folders that cannot be looked into: not their names."""
    reasons = ", ".join(sorted(set(refused.values())))
    return f"folders of notes cannot be read: {len(refused)}, {reasons}" if refused else ""


def _words(error: Exception) -> str:
    if isinstance(error, apsw.FullError):
        return "the disk is full: the index is not up to date"
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return "another program has locked the index: it is not up to date"
    if isinstance(error, StorageError):
        return str(error)
    if isinstance(error, OSError) and error.errno:
        return f"the notes or the index cannot be read: {os.strerror(error.errno)}"
    return f"the index cannot be written ({type(error).__name__})"
