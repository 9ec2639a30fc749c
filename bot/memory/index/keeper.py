"""Owns the index files: opens, syncs, rebuilds and swaps them. One change at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import apsw
import structlog

from bot.clock import Clock
from bot.errors import StorageError
from bot.memory import chunking
from bot.memory.embed import Embedder, identity
from bot.memory.index import generations, pieces
from bot.memory.index.builder import Builder, DimsChanged, Outcome
from bot.memory.index.cache import EmbeddingCache, digest
from bot.memory.index.connection import Extension, run
from bot.memory.index.store import SourceRow, Store
from bot.memory.index.values import Document, Forgotten

T = TypeVar("T")

CACHE = "embeddings.db"
LOOK_AGAIN = 0.1  # seconds between looks whether another program has finished its rebuild
LOOKS = 200
# What a rebuild mends: a file that is damaged, missing, or not what it should be.
_MENDED = (
    DimsChanged,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.SQLError,
    apsw.CantOpenError,
    apsw.IOError,
    apsw.ReadOnlyError,
)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is in the index files, and what went wrong with them."""

    is_open: bool = False
    files: int = 0
    chunks: int = 0
    documents: int = 0
    vectors: int = 0
    dims: int = 0
    size: int = 0
    spaces: Mapping[str, int] = field(default_factory=dict[str, int])
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    degraded: tuple[str, ...] = ()


class Keeper:
    """The writing side of the index. `live` is the file that searches read."""

    def __init__(
        self,
        workspace: Path,
        folder: Path,
        embedder: Embedder,
        clock: Clock,
        extension: Extension,
    ) -> None:
        self.live: Path | None = None
        self.broken = False  # a search found the live file damaged
        self.again = False  # a note was being written while it was read
        self.last_sync = 0
        self.last_reason = ""
        self._workspace = workspace
        self._folder = folder
        self._embedder = embedder
        self._clock = clock
        self._extension = extension
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="confidant-memory-writer")
        self._cache = EmbeddingCache(folder / CACHE)
        self._builder = Builder(workspace, embedder, self._cache, clock, self._run)
        self._store: Store | None = None
        self._inode = 0
        self._turn: int | None = None
        self._lock = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None
        self._queued: asyncio.Task[None] | None = None
        self._problem = ""
        self._embed_failure = ""
        self._closed = False

    @property
    def syncing(self) -> bool:
        """Whether a sync runs now."""
        return self._running is not None

    async def open(self) -> None:
        """Find the newest index file; what cannot be opened is built anew by the next sync."""
        async with self._lock:
            await self._open()

    async def close(self) -> None:
        """Finish the transaction that is being written, and release the files."""
        self._closed = True
        # A sync may wait for an embedder for minutes; what it has not done is done after the start.
        running = [task for task in (self._queued, self._running) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        async with self._lock:
            await self._run(self._release)
        await asyncio.to_thread(self._thread.shutdown)

    def mismatch(self, meta: Mapping[str, str], dims: int) -> str:
        """Why vectors of the embedder cannot be compared with an index's; empty when they can."""
        who = identity(self._embedder)
        have = (meta.get("provider"), meta.get("model"), meta.get("endpoint"))
        if have != (who.provider, who.model, who.endpoint):
            return "the embedder was changed; the index is being rebuilt for it"
        stored = int(meta.get("dims", "0"))
        if dims and stored and dims != stored:
            self.broken = True
            return f"vectors have {dims} dimensions now; the index is being rebuilt for them"
        return ""

    def needs_attention(self) -> bool:
        """Whether the live file is damaged or gone."""
        return self._running is None and (self.broken or not self._is_there())

    async def sync(self, reason: str) -> None:
        """Bring the index up to the notes; whoever asks while one runs shares the next one."""
        if self._closed:
            return
        if self._running is None:
            self._running = asyncio.create_task(self._first(reason))
            await asyncio.wait({self._running})
            return
        if self._queued is None:
            self._queued = asyncio.create_task(self._next(self._running, reason))
        await asyncio.wait({self._queued})

    async def _first(self, reason: str) -> None:
        try:
            await self._sync(reason)
        finally:
            self._running = None

    async def _next(self, before: asyncio.Task[None], reason: str) -> None:
        await asyncio.wait({before})
        self._running, self._queued = self._queued, None
        await self._first(reason)

    async def add(self, documents: tuple[Document, ...]) -> None:
        """Index documents.

        Raises:
            StorageError: the index file cannot be written.
        """
        rows = [_row(document) for document in documents]
        async with self._lock:
            await self._change(lambda store: self._builder.put(store, rows))

    async def remove(self, documents: tuple[tuple[str, str], ...]) -> int:
        """Take documents out.

        Raises:
            StorageError: the index file cannot be written.
        """

        def work(store: Store) -> int:
            known = store.sources("transcript")
            gone = [known[key].id for key in documents if key in known]
            with store.transaction:
                for source in gone:
                    store.remove(source)
            return len(gone)

        async with self._lock:
            return await self._change(lambda store: self._run(lambda: work(store)))

    async def document_ids(self) -> frozenset[tuple[str, str]]:
        """Every document in the index."""
        async with self._lock:
            return await self._change(
                lambda store: self._run(lambda: frozenset(store.sources("transcript")))
            )

    async def forget(
        self, paths: tuple[str, ...], texts: tuple[str, ...], partitions: tuple[str, ...]
    ) -> Forgotten:
        """Remove every trace of notes, and of what holds a text.

        Raises:
            StorageError: the index file cannot be written.
        """
        async with self._lock:
            return await self._change(
                lambda store: self._run(lambda: self._forget(store, paths, texts, partitions))
            )

    async def status(self) -> Kept:
        """What is in the files, and what went wrong."""
        degraded = tuple(each for each in (self._problem, self._embed_failure) if each)
        path = self.live
        if path is None:
            return Kept(degraded=degraded or ("the index is being built",))
        try:
            return await self._run(lambda: self._kept(path, degraded))
        except (apsw.Error, OSError) as error:
            reason = f"the index cannot be read ({type(error).__name__})"
            return Kept(degraded=(*degraded, reason))

    # --- syncing ----------------------------------------------------------------------------------

    async def _sync(self, reason: str) -> None:
        async with self._lock:
            if self._closed:
                return
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
            self.last_sync, self.last_reason = self._clock(), reason
            if outcome.written or outcome.removed:
                log.info("memory.synced", written=outcome.written, removed=outcome.removed)

    async def _bring_up_to_date(self) -> Outcome:
        if self._store is None:
            await self._open()
        store = self._store
        if store is None or self.broken or not self._is_there():
            return await self._rebuild()
        try:
            if await self._run(lambda: self._is_other(store)):
                return await self._rebuild()
            return await self._builder.sync(store)
        except _MENDED as error:
            log.warning("memory.index_rebuilt", reason=type(error).__name__)
            return await self._rebuild()

    async def _rebuild(self) -> Outcome:
        """Build a new file beside the live one, and let searches have it when it is whole."""
        try:
            await self._wait_turn()
            other = await self._run(self._made_elsewhere)
            if other is None:
                return await self._build()
            old = self._store
            self._live(other)
            await self._run(lambda: self._retire(old))
        finally:
            await asyncio.shield(self._run(self._end_turn))
        return await self._builder.sync(other)

    async def _wait_turn(self) -> None:
        for _ in range(LOOKS):
            if await self._run(self._take_turn):
                return
            await asyncio.sleep(LOOK_AGAIN)
        raise apsw.BusyError("another program is building the index")

    async def _build(self) -> Outcome:
        old = self._store
        documents = await self._run(lambda: _documents(old))
        for attempt in range(2):
            path = await self._run(self._next_path)
            who = identity(self._embedder)
            store = await self._run(
                lambda path=path, who=who: Store.create(
                    path, self._extension, who, chunking.VERSION
                )
            )
            try:
                outcome = await self._builder.put(store, documents)
                whole = await self._builder.sync(store)
                await self._run(lambda store=store: _complete(store))
                self._live(store)
            except BaseException as error:
                await asyncio.shield(self._run(lambda store=store: _discard(store)))
                # The first vectors may show that those of the cache have another length.
                if isinstance(error, DimsChanged) and not attempt:
                    continue
                raise
            await self._run(lambda: self._retire(old))
            whole.written += outcome.written
            whole.failure = whole.failure or outcome.failure
            return whole
        return Outcome(failure="the embedder's vectors keep changing their length")

    async def _open(self) -> None:
        try:
            store = await self._run(self._open_newest)
        except (apsw.Error, OSError) as error:
            self._problem = _words(error)
            return
        if store is not None:
            self._live(store)

    def _live(self, store: Store) -> None:
        self._inode = store.path.stat().st_ino
        self._store = store
        self.live = store.path
        self.broken = False

    async def _change(
        self, work: Callable[[Store], asyncio.Future[T] | object], *, again: bool = True
    ) -> T:
        """Run a change on the store, which is built first if there is none.

        A file that turns out to be damaged, or made for other vectors, is built anew, and the
        change is made to the new one.

        Raises:
            StorageError: it cannot be written.
        """
        try:
            if self._store is None or not self._is_there() or self.broken:
                await self._bring_up_to_date()
            store = self._store
            if store is None:
                raise StorageError("The memory index cannot be opened.")
            return await work(store)  # type: ignore[misc]
        except (DimsChanged, apsw.Error, OSError) as error:
            self.broken |= isinstance(error, _MENDED)
            if again and self.broken:
                return await self._change(work, again=False)
            self._problem = _words(error)
            raise StorageError(self._problem) from error

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _is_there(self) -> bool:
        try:
            return self.live is not None and self.live.stat().st_ino == self._inode
        except OSError:
            return False

    # --- in the writer's thread -------------------------------------------------------------------

    def _open_newest(self) -> Store | None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._cache.prune(self._clock())
        path = generations.newest(self._folder, self._extension)
        if self._take_turn():  # else another program builds one, and will tidy up
            generations.remove_others(self._folder, path)
            self._end_turn()
        if path is None:
            return None
        store = Store.open(path, self._extension)
        with store.transaction:
            store.rebuild_vectors()
        return store

    def _take_turn(self) -> bool:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._turn = generations.claim(self._folder)
        return self._turn is not None

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            os.close(turn)

    def _made_elsewhere(self) -> Store | None:
        """The index another program built in the meantime, if it is what is wanted."""
        path = generations.newest(self._folder, self._extension)
        if path is None or path == self.live:
            return None
        with suppress(apsw.Error):  # what is damaged is what a new one is built for
            store = Store.open(path, self._extension)
            if not self._is_other(store):
                return store
            store.close()
        return None

    def _next_path(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        return generations.following(self._folder, self.live)

    def _is_other(self, store: Store) -> bool:
        meta = store.meta()
        return bool(self.mismatch(meta, 0)) or meta.get("chunker") != str(chunking.VERSION)

    def _retire(self, old: Store | None) -> None:
        if old is not None:
            old.close()
        generations.remove_others(self._folder, self.live)

    def _release(self) -> None:
        store, self._store = self._store, None
        for part in (store, self._cache):
            try:
                if part is not None:
                    part.close()
            except apsw.Error as error:  # a full disk; what is not written is derived again
                log.warning("memory.close_failed", error=type(error).__name__)

    def _forget(
        self,
        store: Store,
        paths: tuple[str, ...],
        texts: tuple[str, ...],
        partitions: tuple[str, ...],
    ) -> Forgotten:
        notes, said = store.sources("memory"), store.sources("transcript")
        documents = {known.id for known in said.values()}
        sources = {known.id for (_, name), known in notes.items() if name in paths}
        if partitions:
            sources.update(s for text in texts if text for s in store.holding(text, partitions))
        hashes = [
            digest(window)
            for source in sources
            for heading, body in store.bodies(source)
            for window in pieces.windows_of(heading, body)
        ]
        chunks = vectors = 0
        with store.transaction:
            for source in sources:
                removed = store.remove(source)
                chunks += removed[0]
                vectors += removed[1]
        store.scrub()
        return Forgotten(chunks, vectors, len(sources & documents), self._cache.forget(hashes))

    def _kept(self, path: Path, degraded: tuple[str, ...]) -> Kept:
        store = self._store
        if store is None:
            return Kept(degraded=degraded)
        counts = store.counts()
        missing = () if store.has_vec else ("sqlite-vec cannot be loaded: a slower way is used",)
        uses_vectors = self._embedder.provider != "none"
        return Kept(
            is_open=True,
            files=counts.files,
            chunks=counts.chunks,
            documents=counts.documents,
            vectors=counts.vectors,
            dims=int(store.meta().get("dims", "0")),
            size=sum(p.stat().st_size for p in path.parent.glob(f"{path.name}*")),
            spaces=counts.spaces,
            problems=counts.problems,
            degraded=(*degraded, *(missing if uses_vectors else ())),
        )


def _row(document: Document) -> SourceRow:
    return SourceRow(
        kind="transcript",
        partition=document.partition,
        name=document.id,
        space=document.partition,
        path=document.id,
        hash=digest(document.text),
        at=document.at,
        text=document.text,
    )


def _documents(store: Store | None) -> list[SourceRow]:
    """The documents of an index that is given up, as far as it can still be read."""
    if store is None:
        return []
    try:
        return store.documents()
    except apsw.Error:
        return []


def _complete(store: Store) -> None:
    with store.transaction:
        store.set_meta(complete="1")
    run(store.transaction, "PRAGMA wal_checkpoint(TRUNCATE)")


def _discard(store: Store) -> None:
    store.close()
    generations.remove(store.path)


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
