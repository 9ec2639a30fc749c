"""`MemoryIndex`: searching, and keeping the index up with the notes, never in the way."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar, cast

import apsw
import structlog

from bot.clock import Clock
from bot.config import MemoryConfig
from bot.errors import EmbedderError, StorageError
from bot.memory.embed import Embedder, NoEmbedder
from bot.memory.index import fallback
from bot.memory.index.connection import Extension, load_vec
from bot.memory.index.keeper import Keeper, Kept
from bot.memory.index.lookup import Reader
from bot.memory.index.reading import watch
from bot.memory.index.search import Found, Request, search
from bot.memory.index.values import Answer, Document, Forgotten, Mode, Probe, Status
from bot.memory.matching import WordVectors
from bot.memory.vectors import Vectors
from bot.storage.sqlite import run

T = TypeVar("T")

READERS = 2
DEBOUNCE = 1.5  # seconds after an edit, so that a burst of them is one sync
FRESHEN = 0.3  # seconds a search waits for edits that were noticed and are not indexed yet
QUERY_SHARE = 0.6  # of the time of a search that its embedding may take
REST = 2.0  # seconds between the syncs that searches ask for when nothing watches

log = structlog.get_logger(__name__)


class MemoryIndex:
    """Searches memory by words and by meaning; `start` it, or sync by hand.

    Its files are its own, in `folder`; deleting them costs a rebuild and nothing else. No error of
    the disk, of SQLite or of the embedder leaves a search: the answer says what was missing.
    """

    def __init__(
        self,
        config: MemoryConfig,
        workspace: Path,
        folder: Path,
        embedder: Embedder,
        clock: Clock,
        *,
        extension: Extension = load_vec,
    ) -> None:
        self._config = config
        self._workspace = workspace
        self._embedder = embedder
        self._clock = clock
        self._extension = extension
        self._keeper = Keeper(workspace, folder, embedder, clock, extension)
        can_tell_words = hasattr(embedder, "word_vectors")
        self._similar = cast("WordVectors", embedder) if can_tell_words else None
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="confidant-memory-reader")
        self._local = threading.local()
        self._open: list[Reader] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._edited = asyncio.Event()
        self._watching = "not started"
        self._query_failure = ""
        self._asked_at = 0.0

    # --- its life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open or build the index, and keep it up to date from now on, in the background."""
        await self._keeper.open()
        self._spawn(self.sync("start"))
        self._spawn(self._every(self._config.sync_minutes * 60))
        if self._config.watch:
            self._spawn(self._debounced())
            self._spawn(watch(self._workspace, self._edited.set, self._watch_state, self._stop))
        else:
            self._watch_state("off")

    async def close(self) -> None:
        """Stop watching, finish what is being written, release the files."""
        self._stop.set()
        self._edited.set()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._keeper.close()
        await asyncio.to_thread(self._readers.shutdown)
        for reader in self._open:
            reader.close()
        self._open.clear()

    # --- searching --------------------------------------------------------------------------------

    async def search(
        self, query: str, partitions: Sequence[str], limit: int | None = None
    ) -> Answer:
        """The best passages of these partitions, within the configured time. Never raises."""
        deadline = time.monotonic() + self._config.search_timeout
        if not query.strip() or not partitions:
            return Answer((), self._mode(has_vector=True))
        await self._freshen()
        degraded: list[str] = []
        vector = await self._query_vector(query, deadline, degraded)
        request = Request(
            query=query,
            partitions=tuple(dict.fromkeys(partitions)),
            limit=limit or self._config.max_results,
            vector=vector,
            today=datetime.fromtimestamp(self._clock() / 1000, UTC).date(),
            deadline=deadline,
        )
        try:
            async with asyncio.timeout_at(_loop_time(deadline) + 0.5):
                answer = await self._read(lambda: self._answer(request, degraded))
        except TimeoutError:
            return Answer((), "none", (*degraded, "the search took too long"))
        if self._keeper.needs_attention():  # it was this search that noticed
            self._spawn(self.sync("search"))
        return answer

    def _answer(self, request: Request, degraded: list[str]) -> Answer:
        """Search the index, or the notes themselves when that fails. Runs in a reader's thread."""
        try:
            reader = self._reader()
            if reader is not None:
                return self._from_index(reader, request, degraded)
            degraded.append("the index is being built")
        except apsw.InterruptError:
            degraded.append("the search took too long")
        except apsw.BusyError:
            degraded.append("another program has locked the index")
        except apsw.Error as error:
            log.warning("memory.index_unreadable", error=type(error).__name__)
            degraded.append(f"the index cannot be read ({type(error).__name__}); it is rebuilt")
            self._drop_reader()
            self._keeper.broken = True
        except Exception:  # a fault of ours must not end the conversation either
            log.exception("memory.search_failed")
            degraded.append("the search failed; the log says why")
            return Answer((), "none", tuple(degraded))
        found = fallback.search(self._workspace, request, self._config)
        return _answered(found, "keyword", degraded)

    def _from_index(self, reader: Reader, request: Request, degraded: list[str]) -> Answer:
        meta = reader.meta()
        dims = int(meta.get("dims", "0"))
        vector = request.vector
        why = self._keeper.mismatch(meta, len(vector[0]) if vector is not None else 0)
        if vector is not None and (why or not dims):
            degraded.append(why or "no note has a vector yet")
            vector = None
        if vector is not None and not reader.has_vec:
            degraded.append("sqlite-vec cannot be loaded; vectors are compared in memory")
        changed = Request(
            *(request.query, request.partitions, request.limit, vector),
            *(request.today, request.deadline),
        )
        similar = self._similar if vector is not None else None
        found = search(reader, changed, self._config, dims=dims, similar=similar)
        return _answered(found, self._mode(has_vector=vector is not None), degraded)

    def _mode(self, *, has_vector: bool) -> Mode:
        by_vector = has_vector and self._config.vector_weight > 0
        if self._config.text_weight > 0:
            return "vector+keyword" if by_vector and self._uses_vectors else "keyword"
        return "vector" if by_vector and self._uses_vectors else "none"

    @property
    def _uses_vectors(self) -> bool:
        return self._embedder.provider != "none" and self._config.vector_weight > 0

    async def _query_vector(
        self, query: str, deadline: float, degraded: list[str]
    ) -> Vectors | None:
        if not self._uses_vectors:
            return None
        left = (deadline - time.monotonic()) * QUERY_SHARE
        try:
            async with asyncio.timeout(left):
                rows = await self._embedder.embed([query])
        except (EmbedderError, TimeoutError) as error:
            reason = str(error) or "it did not answer in time"
            self._query_failure = reason
            degraded.append(f"vectors are not used: {reason}")
            return None
        except Exception as error:  # an embedder from elsewhere must not end a search
            log.exception("memory.embedder_raised")
            self._query_failure = type(error).__name__
            degraded.append(f"vectors are not used: {type(error).__name__}")
            return None
        self._query_failure = ""
        return rows if rows.any() else None

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
        elif self._keeper.needs_attention():
            self._spawn(self.sync("search"))

    # --- keeping up -------------------------------------------------------------------------------

    async def sync(self, reason: str) -> None:
        """Bring the index up to the notes; calls while one runs share the next. Never raises."""
        self._edited.clear()
        await self._keeper.sync(reason)
        if self._keeper.again:
            self._edited.set()

    def noticed(self) -> None:
        """A note was just written by this program: the next search knows, or the next sync."""
        self._edited.set()

    async def add_documents(self, documents: Iterable[Document]) -> None:
        """Index texts that are no files, each in the place of what it was before."""
        await self._keeper.add(tuple(documents))

    async def remove_documents(self, documents: Iterable[tuple[str, str]]) -> int:
        """Take documents out, by partition and id; returns how many there were."""
        return await self._keeper.remove(tuple(documents))

    @property
    def generation(self) -> str:
        """Another one after each rebuild, which may not have found every document again."""
        live = self._keeper.live
        return live.name if live is not None else ""

    async def document_ids(self) -> frozenset[tuple[str, str]]:
        """Every document in the index, by partition and id: after a rebuild some may be missing."""
        return await self._keeper.document_ids()

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
            StorageError: the index file cannot be written; it is built anew as soon as it can be.
        """
        try:
            forgotten = await self._keeper.forget(tuple(paths), tuple(texts), tuple(partitions))
        except StorageError:
            self._keeper.broken = True
            raise
        await self._read(self._drop_reader)
        return forgotten

    # --- how it is doing --------------------------------------------------------------------------

    async def status(self) -> Status:
        """What is in the index, and what does not work."""
        kept = await self._keeper.status()
        degraded = list(kept.degraded)
        if self._uses_vectors and self._query_failure:
            degraded.append(f"vectors are not used: {self._query_failure}")
        if self._watching and self._config.watch:
            degraded.append(self._watching)
        mode = self._mode(has_vector=kept.vectors > 0 and not self._query_failure)
        return Status(
            files=kept.files,
            chunks=kept.chunks,
            documents=kept.documents,
            spaces=kept.spaces,
            vectors=kept.vectors,
            mode=mode if kept.is_open else "keyword",
            why=self._why(mode, kept.vectors),
            last_sync=self._keeper.last_sync,
            last_sync_reason=self._keeper.last_reason,
            syncing=self._keeper.syncing,
            provider=self._embedder.provider,
            model=self._embedder.model,
            endpoint=self._embedder.endpoint,
            dims=kept.dims,
            size=kept.size,
            degraded=tuple(dict.fromkeys(degraded)),
            problems=kept.problems,
            # Without an index the notes themselves are searched, and that is by words.
            words_off="weight" if kept.is_open and not self._config.text_weight else "",
            vectors_off=self._vectors_off(kept),
        )

    async def probe_vectors(self) -> Probe:
        """Whether sqlite-vec can be loaded here."""
        return await asyncio.to_thread(_probe_vectors, self._extension)

    async def probe_embeddings(self) -> Probe:
        """Whether the embedder answers."""
        if isinstance(self._embedder, NoEmbedder):
            return Probe(ok=False, detail=self._embedder.why)
        try:
            async with asyncio.timeout(self._config.search_timeout):
                rows = await self._embedder.embed(["probe"])
        except (EmbedderError, TimeoutError) as error:
            return Probe(ok=False, detail=str(error) or "it did not answer in time")
        return Probe(ok=True, detail=f"{rows.shape[1]} dimensions")

    def _vectors_off(self, kept: Kept) -> str:
        if isinstance(self._embedder, NoEmbedder):
            # The embedder that is wanted may not exist here.
            return "disabled" if self._config.embedder.provider == "none" else self._embedder.why
        if not self._config.vector_weight:
            return "weight"
        if not kept.is_open:
            return "building"
        return self._query_failure or ("" if kept.vectors else "empty")

    def _why(self, mode: Mode, vectors: int) -> str:
        if mode != "keyword":
            return ""
        if isinstance(self._embedder, NoEmbedder):
            return self._embedder.why
        if not self._config.vector_weight:
            return "vectors are turned off"
        return self._query_failure or ("" if vectors else "no note has a vector yet")

    # ----------------------------------------------------------------------------------------------

    def _reader(self) -> Reader | None:
        """This thread's reader of the live index, or None while there is none."""
        path = self._keeper.live
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is not None and reader.path != path:
            self._drop_reader()
            reader = None
        if reader is None and path is not None:
            reader = self._local.reader = Reader(path, self._extension)
            self._open.append(reader)
        return reader

    def _drop_reader(self) -> None:
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is not None:
            self._local.reader = None
            self._open.remove(reader)
            reader.close()

    async def _read(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    def _watch_state(self, problem: str) -> None:
        self._watching = problem

    async def _debounced(self) -> None:
        while True:
            await self._edited.wait()
            await asyncio.sleep(DEBOUNCE)
            if self._edited.is_set():
                await self.sync("watch")

    async def _every(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self.sync("interval")

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        async def quietly() -> None:
            with suppress(asyncio.CancelledError):
                await work

        task = asyncio.create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _answered(found: Found, mode: Mode, degraded: Sequence[str]) -> Answer:
    late = ("the search took too long: some notes were not looked at",) if found.late else ()
    return Answer(found.hits, mode, (*degraded, *late))


def _loop_time(deadline: float) -> float:
    return asyncio.get_running_loop().time() + deadline - time.monotonic()


def _probe_vectors(extension: Extension) -> Probe:
    connection = apsw.Connection(":memory:")
    try:
        extension(connection)
        return Probe(ok=True, detail=f"sqlite-vec {run(connection, 'SELECT vec_version()')[0][0]}")
    except (ImportError, OSError, AttributeError, apsw.Error) as error:
        return Probe(ok=False, detail=f"sqlite-vec cannot be loaded: {type(error).__name__}")
    finally:
        connection.close()
