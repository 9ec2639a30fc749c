"""`MemoryIndex`: searching, and keeping the index up with the notes, never in the way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import fields, replace
from datetime import date
from pathlib import Path
from typing import Any

from bot.backoff import kept
from bot.clock import Clock
from bot.config import Settings
from bot.errors import EmbedderError, StorageError
from bot.memory import chunking
from bot.memory.embed import Embedder, NoEmbedder
from bot.memory.index.cache import Cache, EmbeddingCache, RowCache, digest
from bot.memory.index.engine import Rows, SourceRow, Store
from bot.memory.index.file_rows import FileRows
from bot.memory.index.note_files import Known
from bot.memory.index.queries import NAME, remove
from bot.memory.index.search import Searches
from bot.memory.index.shared_rows import SharedRows
from bot.memory.index.writer import Item, Writer
from bot.memory.note_store import NoteStore
from bot.memory.search import Counts, Document, Findings, Forgotten, Probe, Status
from bot.memory.uses import Uses
from bot.memory.versions import Versions
from bot.storage import SharedDatabase, Transaction, marks, scalars

DEBOUNCE = 1.5  # seconds after an edit, so that a burst of them is one sync
FRESHEN = 0.3  # seconds a search waits for edits that were noticed and are not indexed yet
REST = 2.0  # seconds between the syncs that searches ask for when nothing watches


CACHE = "embeddings.db"  # beside the index file


class MemoryIndex:
    """Searches memory by words and by meaning; `start` it, or sync by hand.

    No error of the disk, of a database or of the embedder leaves a search: the answer says what was
    missing.
    """

    def __init__(
        self,
        settings: Settings,
        notes: NoteStore,
        rows: Rows,
        cache: Cache,
        embedder: Embedder,
        *,
        clock: Clock,
        owns: Callable[[], bool] = lambda: True,
        versions: Versions | None = None,
        uses: Uses | None = None,
    ) -> None:
        """See `in_folder` and `shared`."""
        self._owns = owns
        self._settings = settings
        self._notes = notes
        self._embedder = embedder
        self._searches = Searches(settings, notes, embedder, clock, rows, uses=uses)
        given = (rows, notes, embedder, cache, clock)
        self._writer = Writer(*given, versions=versions, asked=self._searches.asked)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._edited = asyncio.Event()
        self._edits = 0
        self._watching = "not started"
        self._asked_at = 0.0

    @classmethod
    def in_folder(
        cls,
        settings: Settings,
        notes: NoteStore,
        folder: Path,
        embedder: Embedder,
        clock: Clock,
        *,
        versions: Versions | None = None,
        uses: Uses | None = None,
    ) -> MemoryIndex:
        """An index in a file of its own; deleting it costs a rebuild and nothing else.

        Here and below `versions` keeps what notes said before somebody else changed them, and
        `uses` tells what has faded.
        """
        rows = FileRows(notes, folder, embedder)
        cache = EmbeddingCache(folder / CACHE)
        given = (settings, notes, rows, cache, embedder)
        return cls(*given, clock=clock, versions=versions, uses=uses)

    @classmethod
    def shared(
        cls,
        settings: Settings,
        notes: NoteStore,
        database: SharedDatabase,
        embedder: Embedder,
        clock: Clock,
        *,
        owns: Callable[[], bool],
        versions: Versions | None = None,
        uses: Uses | None = None,
    ) -> MemoryIndex:
        """An index in a database that many nodes share; the one that `owns` it builds it."""
        rows, cache = SharedRows(database, embedder, owns), RowCache(database)
        given = (settings, notes, rows, cache, embedder)
        return cls(*given, clock=clock, owns=owns, versions=versions, uses=uses)

    # --- starting and closing ---------------------------------------------------------------------

    async def start(self) -> None:
        """Open or build the index, and keep it up to date from now on, in the background."""
        await self._writer.open()
        self._spawn(self.sync("start"))
        seconds, watch = self._settings.now.memory.sync_minutes * 60, self._notes.watch
        self._spawn(kept("memory.sync", lambda: self._every(seconds)))
        if self._settings.now.memory.watch:
            self._spawn(kept("memory.edited", self._debounced))
            work = (self.noticed, self._watch_state, self._stop)
            self._spawn(kept("memory.watch", lambda: watch(*work)))
        else:
            self._watching = "off"

    async def close(self) -> None:
        """Stop watching, finish what is being written, release the files."""
        self._stop.set()
        self._edited.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._writer.close()
        await self._searches.close()

    # --- searching --------------------------------------------------------------------------------

    async def search(
        self,
        query: str,
        partitions: Sequence[str],
        limit: int | None = None,
        *,
        today: date | None = None,
        room: int = 0,
        without: Collection[str] = (),
    ) -> Findings:
        """See `Searcher`; within the configured time. Never raises.

        `today` is the day it is for whoever asks; None is that of the program's own zone.
        """
        deadline = time.monotonic() + self._settings.now.memory.search_timeout
        if not query.strip() or not partitions:
            return Findings((), self._searches.mode(has_vector=True))
        await self._freshen()
        answer = await self._searches.search(
            query, partitions, limit, deadline, today, room=room, without=without
        )
        if self._writer.needs_attention():  # it was this search that noticed
            self._spawn(self.sync("search"))
        return answer

    async def _freshen(self) -> None:
        """See to it that what was edited before a search is found by it, if that is quick."""
        if self._edited.is_set():
            task = self._spawn(self.sync("search"))
            await asyncio.wait({task}, timeout=FRESHEN)
            return
        now = time.monotonic()
        if self._watching and now - self._asked_at > REST:
            self._asked_at = now
            self._spawn(self.sync("search"))
        elif self._writer.needs_attention():
            self._spawn(self.sync("search"))

    # --- keeping up -------------------------------------------------------------------------------

    async def sync(self, reason: str) -> None:
        """Bring the index up to the notes; calls while one runs share the next. Never raises."""
        self._edited.clear()
        await self._writer.sync(reason)
        if self._writer.again:
            self._edited.set()

    def noticed(self) -> None:
        """A note was just written, by whatever program: the next search knows, or the next sync."""
        self._edits += 1
        self._edited.set()

    @property
    def edits(self) -> int | None:
        """Another number after each edit of a note; None while edits may go unnoticed."""
        return None if self._watching else self._edits

    @property
    def left(self) -> int:
        """The number of notes that a running sync has found and not stored yet."""
        return self._writer.left

    @property
    def generation(self) -> str:
        """Another one after each time that the index was begun empty, so without any document."""
        return self._writer.rows.generation

    async def add_documents(self, documents: Iterable[Document]) -> None:
        """Index texts that are no files, each in the place of what it was before."""
        rows = [
            SourceRow(
                kind="transcript",
                partition=each.partition,
                name=each.id,
                space=each.partition,
                path=each.id,
                hash=digest(each.text),
                at=each.at,
                text=each.text,
            )
            for each in documents
        ]
        await self._writer.put(rows)

    async def remove_documents(self, documents: Iterable[tuple[str, str]]) -> None:
        """Take documents out, by partition and id."""
        named = tuple(documents)

        def work(store: Store, _: Cache) -> None:
            known = store.sources("transcript")
            store.remove(known[key].id for key in named if key in known)

        await self._writer.change(work)

    async def document_ids(self) -> frozenset[tuple[str, str]]:
        """Every document in the index, by partition and id: after a rebuild some may be missing."""
        return await self._writer.change(lambda store, _: frozenset(store.sources("transcript")))

    async def documents_of_folders(self) -> Mapping[tuple[str, str], Known]:
        """The indexed files of folders of documents, by partition and name.

        Raises:
            StorageError: the index cannot be read.
        """
        return await self._writer.change(lambda store, _: store.sources("folder"))

    async def put_passages(self, items: Sequence[Item]) -> None:
        """Index files that are cut already by their words, each in the place of what it was.

        Raises:
            StorageError: the index cannot be written.
        """
        await self._writer.put_passages(items)

    async def fill(self, most: int) -> int:
        """Give vectors to some chunks of folders that lack them; how many got them.

        Raises:
            StorageError: the index cannot be written.
        """
        return await self._writer.fill(most)

    async def remove(self, sources: Sequence[int]) -> None:
        """Take sources out.

        Raises:
            StorageError: the index cannot be written.
        """
        await self._writer.change(lambda store, _: store.remove(sources))

    async def text_of(self, partition: str, path: str) -> str:
        """The text of a document in a folder as the index has it; empty when it has none.

        Raises:
            StorageError: the index cannot be read.
        """
        deadline = time.monotonic() + self._settings.now.memory.search_timeout
        return await self._searches.text_of(partition, path, deadline)

    @property
    def is_ours(self) -> bool:
        """True where this program keeps the index up, and no other node does."""
        return self._owns()

    async def forget(
        self,
        *,
        paths: Sequence[str] = (),
        texts: Sequence[str] = (),
        partitions: Sequence[str] = (),
    ) -> Forgotten:
        """Remove from the index and the cache every trace of notes, or of what holds a text.

        `paths` are notes' paths below the workspace; `texts` are looked for in `partitions`. A note
        that still stands on disk comes back, as it is then, with the sync that follows.

        Raises:
            StorageError: the index file cannot be written; it is rebuilt as soon as possible.
        """

        def work(store: Store, cache: Cache) -> Forgotten:
            forgotten, of_vectors = store.forget(paths, texts, partitions)
            return replace(forgotten, cached=cache.forget(map(digest, of_vectors)))

        try:
            forgotten = await self._writer.change(work)
        except StorageError:
            self._writer.rows.broken = True
            raise
        await self._searches.run(self._searches.drop_reader)
        return forgotten

    # --- status -----------------------------------------------------------------------------------

    async def status(self) -> Status:
        """The state of the index: its contents, and what does not work."""
        known, told, building = await self._writer.status()
        counts, is_open = known or Counts(), known is not None
        failure = self._searches.query_failure
        degraded = list(told)
        if self._searches.uses_vectors and failure:
            degraded.append(f"vectors are not used: {failure}")
        if self._watching and self._settings.now.memory.watch:
            degraded.append(self._watching)
        mode = self._searches.mode(has_vector=counts.vectors > 0 and not failure)
        if isinstance(self._embedder, NoEmbedder):
            # The embedder that is wanted may not exist here.
            why = self._embedder.why
            off = "disabled" if self._settings.now.memory.embedder.provider == "none" else why
        elif not self._settings.now.memory.vector_weight:
            off, why = "weight", "vectors are turned off"
        elif building is not None and not building.by_meaning:
            off, why = "building" if building.is_first else "rebuilding", failure
        elif not (counts.vectors or failure):
            off, why = "empty", "no note has a vector yet"
        else:
            off = why = failure
        return Status(
            **{each.name: getattr(counts, each.name) for each in fields(Counts)},
            mode=mode if is_open else "keyword",
            why=why if mode == "keyword" else "",
            last_sync=self._writer.last_sync,
            provider=self._embedder.provider,
            model=self._embedder.model,
            endpoint=self._embedder.endpoint,
            degraded=tuple(dict.fromkeys(degraded)),
            # Without an index the notes themselves are searched, and that is by words.
            words_off="weight" if is_open and not self._settings.now.memory.text_weight else "",
            vectors_off=off if is_open or not self._searches.uses_vectors else "building",
            building=building,
        )

    async def probe_embeddings(self) -> Probe:
        """Check that the embedder answers."""
        if isinstance(self._embedder, NoEmbedder):
            return Probe(ok=False, detail=self._embedder.why)
        try:
            async with asyncio.timeout(self._settings.now.memory.search_timeout):
                rows = await self._embedder.embed(["probe"])
        except (EmbedderError, TimeoutError) as error:
            return Probe(ok=False, detail=str(error) or "it did not answer in time")
        return Probe(ok=True, detail=f"{rows.shape[1]} dimensions")

    def _watch_state(self, problem: str) -> None:
        self._watching = problem

    async def _debounced(self) -> None:
        while True:
            await self._edited.wait()
            await asyncio.sleep(DEBOUNCE)
            # Elsewhere a search does it, when one comes before the node that has the index.
            if self._owns() and self._edited.is_set():
                await self.sync("watch")

    async def _every(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            if self._owns():
                await self.sync("interval")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


# Taking whole partitions out of an index that nothing uses just now, and out of the cache.

_ROWS = 500  # hashes in one statement


def leave_folder(folder: Path) -> None:
    """Remove the index and the cache in a folder: the next start makes both from what is left.

    So nothing stays that somebody's notes once said, or of how an earlier version cut them.

    Raises:
        OSError: a file cannot be removed.
    """
    for name in (NAME, CACHE):
        remove(folder / name)


def leave_rows(tx: Transaction, partitions: Sequence[str]) -> None:
    """Take partitions out of the index in a database, and what is cached of their texts."""
    named = f"SELECT id FROM memory_partitions WHERE name IN ({marks(partitions)})"
    texts: list[str] = []
    for partition in scalars(tx, named, *partitions):
        for heading, body in tx.execute(
            "SELECT heading, body FROM memory_chunks WHERE partition = ?", (partition,)
        ):
            texts += chunking.windows_of(str(heading), str(body))
        for table in ("memory_signs", "memory_chunks", "memory_sources"):
            tx.execute(f"DELETE FROM {table} WHERE partition = ?", (partition,))
        tx.execute("DELETE FROM memory_partitions WHERE id = ?", (partition,))
    hashes = sorted({*map(digest, texts)})
    for at in range(0, len(hashes), _ROWS):
        some = hashes[at : at + _ROWS]
        tx.execute(f"DELETE FROM memory_embeddings WHERE hash IN ({marks(some)})", some)
