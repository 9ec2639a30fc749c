"""Keeps the index file up with the notes: opened, synced, built anew, one change at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import apsw
import structlog

from bot.clock import Clock
from bot.errors import StorageError
from bot.memory import chunking
from bot.memory.embed import Embedder, identity
from bot.memory.index import schema
from bot.memory.index.cache import EmbeddingCache
from bot.memory.index.schema import Extension, Generation, IndexFile
from bot.memory.index.store import DimsChanged, SourceRow, Store
from bot.memory.index.sync import Builder, Outcome
from bot.memory.note_store import NoteStore
from bot.memory.search import Counts

T = TypeVar("T")

CACHE = "embeddings.db"
ATTEMPTS = 3  # at a sync, each with the file or the generation that the one before asked for
LOOK_AGAIN = 0.1  # seconds between looks whether another program has finished its rebuild
LOOKS = 200
# What a new file mends: one that is damaged, missing, or not what it should be.
MENDED = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.SQLError,
    apsw.CantOpenError,
    apsw.IOError,
    apsw.ReadOnlyError,
)

log = structlog.get_logger(__name__)


class Writer:
    """The writing side of the index, in a thread of its own."""

    def __init__(
        self,
        notes: NoteStore,
        folder: Path,
        embedder: Embedder,
        clock: Clock,
        extension: Extension,
    ) -> None:
        self.again = False  # a note was being written while it was read
        self.last_sync = 0
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="confidant-memory-writer")
        self._cache = EmbeddingCache(folder / CACHE)
        self.rows = Rows(notes, folder, embedder, extension)
        self._builder = Builder(notes, embedder, self._cache, clock, self._thread)
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None  # a sync that has not begun yet
        self._syncs: set[asyncio.Task[None]] = set()
        self._problem = ""
        self._embed_failure = ""
        self._closed = False

    def needs_attention(self) -> bool:
        """Whether the file is damaged or gone, or a rebuild is due, and no sync sees to it."""
        return not self._syncs and self.rows.need_attention()

    async def open(self) -> None:
        """Open the index file; what cannot be opened is made anew by the next sync."""

        def work() -> None:
            self._cache.prune(self._clock())
            self.rows.tidy()

        async with self._lock:
            try:
                await self.run(work)
            except (apsw.Error, OSError) as error:
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

    async def change(self, work: Callable[[Store, EmbeddingCache], T]) -> T:
        """Do something with the live rows and the cache, which are there then.

        Raises:
            StorageError: the index file cannot be written.
        """
        return await self._changed(lambda store: self.run(lambda: work(store, self._cache)))

    async def run(self, work: Callable[[], T]) -> T:
        """Do something in the writer's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def status(self) -> tuple[Counts | None, tuple[str, ...]]:
        """What is in the file, if there is one, and what went wrong."""
        try:
            known, missing = await self.run(lambda: self.rows.count(is_well=not self._problem))
        except (apsw.Error, OSError) as error:
            known, missing = None, f"the index cannot be read ({type(error).__name__})"
        told = (self._problem, self._embed_failure, missing)
        return known, tuple(each for each in told if each)

    async def _sync(self, reason: str) -> None:
        async with self._lock:
            self._next = None
            try:
                outcome = await self._bring_up_to_date()
            except (apsw.Error, OSError) as error:
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
                except (DimsChanged, apsw.Error, OSError) as error:
                    mended = await self.run(lambda error=error: self.rows.can_mend(error))
                    if not (mended and left):
                        self._problem = _words(error)
                        raise StorageError(self._problem) from error
        raise StorageError("The memory index cannot be opened.")

    def _release(self) -> None:
        for part in (self.rows, self._cache):
            try:
                part.close()
            except apsw.Error as error:  # a full disk; what is not written is derived again
                log.warning("memory.close_failed", error=type(error).__name__)


class Rows:  # one file and its generations, as they come and go: they share what is known of them
    """The rows that are written to: of which file, and of which generation; in one thread.

    `broken` says that the file was found damaged.
    """

    def __init__(
        self, notes: NoteStore, folder: Path, embedder: Embedder, extension: Extension
    ) -> None:
        self.path = folder / schema.NAME
        self.broken = False
        self.generation = ""  # another one after each rebuild, by whatever program
        self._notes = notes
        self._embedder = embedder
        self._extension = extension
        self._file: IndexFile | None = None
        self._opened = 0  # how often a file was
        self._turn: int | None = None  # held while this program builds
        self._at_work = 0  # the generation that is written to, or was last
        self._outdated = 0  # the generation whose vectors have another length than the embedder's
        self._saved: list[SourceRow] = []  # the documents of one that is given up
        self._known: Counts | None = None  # what is in the file, or was

    @property
    def are_there(self) -> bool:
        """Whether there is a file that can be read."""
        opened = self._file
        return opened is not None and opened.is_there()

    def need_attention(self) -> bool:
        """Whether the file is damaged or gone, or a rebuild is due."""
        return self.broken or bool(self._outdated) or not self.are_there

    def mismatch(self, live: Generation, dims: int) -> str:
        """Why vectors of the embedder cannot be compared with an index's; empty when they can."""
        if live.embedder != identity(self._embedder):
            return "the embedder was changed; the index is being rebuilt for it"
        if live.dims and dims != live.dims:
            self._outdated = live.id
            return f"vectors have {dims} dimensions now; the index is being rebuilt for them"
        return ""

    def can_mend(self, error: Exception) -> bool:
        """Note what is wrong with the file; True when another one, or other rows, mend it."""
        if isinstance(error, DimsChanged):
            self._outdated = self._at_work
        elif isinstance(error, MENDED):
            self.broken = not self._are_superseded()
            log.warning("memory.index_rebuilt", reason=type(error).__name__)
        else:
            return False
        return True

    def tidy(self) -> None:
        """Open the file at the start, without what earlier versions or programs left."""
        opened = self._opened_file()
        schema.remove_older(self.path.parent)
        if (live := opened.live()) is not None:
            store = Store(opened, live)
            with store.transaction:
                store.rebuild_vectors()

    def close(self) -> None:
        """Release the file."""
        opened, self._file = self._file, None
        if opened is not None:
            opened.close()

    def take_turn(self) -> bool:
        """Take the right to build; False while another program has it."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._turn = schema.claim(self.path.parent)
        return self._turn is not None

    def end_turn(self) -> None:
        """Give it back."""
        turn, self._turn = self._turn, None
        if turn is not None:
            os.close(turn)

    def fitting(self) -> Store | None:
        """The live rows, or None when there are none or others have to be made."""
        opened = self._opened_file()
        live = opened.live()
        made = (identity(self._embedder), chunking.VERSION)
        if live is None or live.id == self._outdated or (live.embedder, live.chunker) != made:
            return None
        self._outdated = 0
        return self._store(opened, live)

    def begin(self) -> tuple[Store, list[SourceRow]]:
        """Rows to fill, and the documents that were in the live ones."""
        opened = self._opened_file()
        self._save(opened)
        begun = opened.begin(chunking.VERSION, identity(self._embedder), self._outdated)
        return self._store(opened, begun), self._saved

    def put_live(self, store: Store) -> None:
        """Let searches read what was built."""
        self._opened_file().put_live(store.generation)
        self._outdated, self._saved = 0, []

    def live(self) -> Store | None:
        """The rows that searches read; None while there are none that can be written to."""
        if self._file is None or self.need_attention():
            return None
        live = self._file.live()
        return self._store(self._file, live) if live is not None else None

    def count(self, *, is_well: bool) -> tuple[Counts | None, str]:
        """What there is of what, and what is missing; before the first rows only while all is well.

        While the file is made anew it is what it held before.
        """
        live = self._file.live() if self._file is not None else None
        if self._file is not None and live is not None:
            size = sum(p.stat().st_size for p in self.path.parent.glob(f"{self.path.name}*"))
            self._known = replace(Store(self._file, live).counts(), size=size)
            if not self._file.has_vec and self._embedder.provider != "none":
                return self._known, "sqlite-vec cannot be loaded: a slower way is used"
        elif self._known is None and is_well:
            return None, "the index is being built"
        return self._known, ""

    def _opened_file(self) -> IndexFile:
        """The file that is there; a damaged one is replaced by an empty one."""
        known = self._file
        if known is not None and (self.broken or not known.is_there()):
            self._save(known)
            self._file = None
            known.remove()
        elif known is None and self.broken:
            schema.remove(self.path)
        if self._file is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._notes.make()
            self._file = IndexFile(self.path, self._extension)
            self._opened += 1
            self._at_work = 0
            self.broken = False
        return self._file

    def _store(self, opened: IndexFile, generation: Generation) -> Store:
        self._at_work = generation.id
        if generation.is_live:
            self.generation = f"{self._opened}.{generation.id}"
        return Store(opened, generation)

    def _save(self, opened: IndexFile) -> None:
        """Keep the documents of an index that is given up, as far as it can still be read."""
        try:
            live = opened.live()
            self._saved = Store(opened, live).documents() if live is not None else self._saved
        except apsw.Error as error:  # what was said is added again from the transcripts
            log.warning("memory.documents_unread", error=type(error).__name__)

    def _are_superseded(self) -> bool:
        """Whether another program has built other rows, and dropped those that were at work."""
        try:
            opened = self._file
            return (
                opened is not None
                and opened.is_there()
                and self._at_work > 0
                and not opened.has(self._at_work)
            )
        except apsw.Error:
            return False


def _unread(refused: Mapping[str, str]) -> str:
    """What is told of folders that cannot be looked into: not their names."""
    reasons = ", ".join(sorted(set(refused.values())))
    return f"folders of notes cannot be read: {len(refused)}, {reasons}" if refused else ""


def _words(error: Exception) -> str:
    if isinstance(error, apsw.FullError):
        return "the disk is full: the index is not up to date"
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return "another program has locked the index: it is not up to date"
    if isinstance(error, OSError) and error.errno:
        return f"the notes or the index cannot be read: {os.strerror(error.errno)}"
    return f"the index cannot be written ({type(error).__name__})"
