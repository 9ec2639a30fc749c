"""Keeps the index in step with the notes: opens, syncs and rebuilds it, one change at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import apsw
import structlog

from bot.clock import Clock
from bot.errors import EmbedderError, IndexElsewhere, StorageError
from bot.memory import chunking, claims, layout, note_store, vectors
from bot.memory.chunking import Passage
from bot.memory.embed import Embedder, TextsRefused, identity
from bot.memory.index import note_files
from bot.memory.index.cache import Cache, digest
from bot.memory.index.engine import Header, Packed, Rows, SourceRow, Store, Writing
from bot.memory.index.file_rows import REPAIRABLE
from bot.memory.note_store import NoteStore
from bot.memory.search import BEING_BUILT, Building, Counts
from bot.memory.vectors import Vectors
from bot.memory.versions import Versions

T = TypeVar("T")

Item = tuple[SourceRow, list[Passage]]

GROUP = 256  # chunks whose vectors are asked for, and that are committed, together
REFUSED = "the embedder refuses a part of it, which is found by its words alone"
PATIENCE = 1.0  # seconds that the words of a note wait for its vectors

ATTEMPTS = 3  # at a sync, each with what the one before asked for
FAILURES = (apsw.Error, OSError, StorageError)  # what a place for rows raises

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Outcome:
    """A sync's result: `failure` is why vectors are missing, `again` that a file kept changing.

    `refused` are folders that could not be looked into, each ending in "/", and why.
    """

    written: int = 0
    removed: int = 0
    failure: str = ""
    again: bool = False
    refused: dict[str, str] = field(default_factory=dict[str, str])


class Writer:
    """The writing side of the index.

    It runs beside searches, which see each note whole. Disk and database work runs in one thread;
    only the embedder is awaited.
    """

    def __init__(
        self,
        rows: Rows,
        notes: NoteStore,
        embedder: Embedder,
        cache: Cache,
        clock: Clock,
        *,
        versions: Versions | None,
        asked: Mapping[bytes, Vectors],
    ) -> None:
        """`versions` keeps what notes said that somebody else has changed.

        `asked` has vectors that searches made, by the digests of their texts.
        """
        self.rows = rows
        self.left = 0  # notes that a sync has found and not stored yet
        self.again = False  # a note was being written while it was read
        self.last_sync = 0
        self._notes = notes
        self._embedder = embedder
        self._cache = cache
        self._clock = clock
        self._versions = versions
        self._asked = asked
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="confidant-memory-writer")
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None  # a sync that has not begun yet
        self._syncs: set[asyncio.Task[None]] = set()
        self._problem = ""
        self._embed_failure = ""
        self._closed = False

    def needs_attention(self) -> bool:
        """True if a sync has something to repair, and none runs."""
        return not self._syncs and self.rows.need_attention()

    async def open(self) -> None:
        """Open the index file; the next sync replaces one that cannot be opened."""

        def work() -> None:
            self._cache.prune(self._clock())
            with suppress(IndexElsewhere):
                self.rows.store()

        async with self._lock:
            try:
                await self._run(work)
            except FAILURES as error:
                self.rows.broken |= isinstance(error, REPAIRABLE)
                self._problem = _words(error)

    async def close(self) -> None:
        """Finish the transaction that is being written, and release the files."""
        self._closed = True
        # A sync may wait for an embedder for minutes; what it has not done is done after the start.
        for task in self._syncs:
            task.cancel()
        await asyncio.gather(*self._syncs, return_exceptions=True)
        async with self._lock:
            await self._run(self._release)
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
        await self._changed(lambda store: self._put_documents(store, documents, Outcome()))

    async def put_passages(self, items: Sequence[Item]) -> None:
        """As `put`, of files that are cut already; `fill` gives them vectors."""
        await self._changed(lambda store: self._run(lambda: self._store(store, items, {})))

    async def fill(self, most: int) -> int:
        """Give vectors to some chunks of folders; how many got them."""
        return await self._changed(
            lambda store: self._fill(store, most, Outcome(), of_folders=True)
        )

    async def change(self, work: Callable[[Store, Cache], T]) -> T:
        """Do something with the index and the cache, which are there then.

        Raises:
            StorageError: the index file cannot be written.
        """
        return await self._changed(lambda store: self._run(lambda: work(store, self._cache)))

    async def status(self) -> tuple[Counts | None, tuple[str, ...], Building | None]:
        """The counts of the index if it is live, the problems, and how far it is built."""

        def work() -> tuple[Counts | None, Building | None]:
            store = self.rows.known()
            if store is None:
                return None, None
            header = store.header()
            is_live = header is not None and header.is_live
            return store.counts() if is_live else None, store.building(self._embedder)

        building: Building | None = None
        try:
            known, building = await self._run(work)
            missing = BEING_BUILT if known is None and not self._problem else ""
        except FAILURES as error:
            why = f": {error}" if isinstance(error, StorageError) else f" ({type(error).__name__})"
            known, missing = None, f"the index cannot be read{why}"
        if self._problem or self._embed_failure:  # nothing goes on
            building = None
        if building is not None and self.left:
            building = replace(building, total=building.done + self.left)
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
        """Compare the index with the notes, after it was begun empty if it is damaged or gone.

        Raises:
            apsw.Error: the file cannot be written, nor another one made.
            OSError: the same.
            IndexElsewhere: another program builds it, or makes it again.
        """
        for left in reversed(range(ATTEMPTS)):
            self.rows.outdated = False
            try:
                is_ours = await self._run(self.rows.take_turn)
                outcome = await self._compare(await self._run(self.rows.store), is_ours=is_ours)
                if not self.rows.outdated:
                    return outcome
            except apsw.Error as error:
                if not await self._run(lambda error=error: self.rows.can_repair(error)) or not left:
                    raise
            finally:
                await asyncio.shield(self._run(self.rows.end_turn))
        return Outcome(failure="the embedder's vectors keep changing their length")

    async def _changed(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Run a change on the index, which is built first if that was not done yet.

        Where the file turns out to be damaged, the change is made to what was built in its place.
        """
        async with self._lock:
            for left in (1, 0):
                try:
                    store = await self._run(self.rows.store)
                    header = await self._run(store.header)
                    if header is None or not header.is_live:
                        with suppress(IndexElsewhere):
                            await self._bring_up_to_date()
                        store = await self._run(self.rows.store)
                    return await work(store)
                except IndexElsewhere:
                    raise
                except FAILURES as error:
                    is_repairable = await self._run(lambda error=error: self.rows.can_repair(error))
                    if not (is_repairable and left):
                        self._problem = _words(error)
                        raise StorageError(self._problem) from error
        raise StorageError("The memory index cannot be opened.")

    async def _compare(self, store: Store, *, is_ours: bool) -> Outcome:
        """Read what changed on disk since the last time, and give vectors to what lacks them.

        Where the index `is_ours` to build, it is made with today's embedder and chunks first.

        Raises:
            apsw.Error: the index file cannot be written.
            StorageError: the shared database does not take it.
            IndexElsewhere: it has to be made again by another program.
        """
        header = await self._run(store.header)
        is_whole = header is not None and header.is_whole(self._embedder)
        if header is None or not (is_whole or is_ours):
            raise IndexElsewhere(BEING_BUILT)
        if not is_whole:
            await self._adapt(store, header)
        outcome, since = Outcome(), None
        if self._versions is not None and header.is_live:
            since = await self._versions.numbers()
        changed, gone = await self._run(lambda: store.differences(self._notes, outcome.refused))
        if gone:
            await self._run(lambda: store.remove(gone))
            outcome.removed = len(gone)
        self.left = len(changed)
        try:
            await self._put(store, self._read(changed, outcome), outcome, since)
        finally:
            self.left = 0
        if not is_whole:
            while documents := await self._run(lambda: store.stale_documents(GROUP)):
                await self._put_documents(store, documents, outcome)
        if is_ours:
            await self._fill_all(store, outcome)
        if not is_whole:
            await self._run(store.finish)
        return outcome

    async def _adapt(self, store: Store, header: Header) -> None:
        """Let the index be made with today's embedder and chunks from now on.

        What was cut in another way looks changed then. Vectors of another embedder are taken out;
        `_fill_all` makes them again. Either is gone on with where it was interrupted.
        """
        if header.chunker not in {0, chunking.VERSION}:
            await self._run(lambda: store.commit(lambda each: each.mark_stale()))
        if header.suits(self._embedder):
            return
        last: int | None = 0
        while last is not None:
            last = await self._run(lambda last=last: store.commit(lambda each: each.clear(last)))
        made = identity(self._embedder)
        await self._run(lambda: store.commit(lambda each: each.made_by(made)))

    async def _fill_all(self, store: Store, outcome: Outcome) -> None:
        """Give vectors to all notes and documents that were stored or left without."""
        try:
            while done := await self._fill(store, GROUP, outcome):
                self.rows.is_filling = done >= GROUP
        finally:
            self.rows.is_filling = False

    async def _fill(
        self, store: Store, most: int, outcome: Outcome, *, of_folders: bool = False
    ) -> int:
        """Give vectors to some chunks that lack them, of notes or of folders; how many got them."""
        if outcome.failure or self._embedder.provider == "none":
            return 0
        bare = await self._run(lambda: store.bare(most, of_folders=of_folders))
        texts = [text for windows in bare.values() for text in windows]
        known = await self._embed(store, texts, outcome) if texts else {}
        if not known:
            return 0
        return await self._run(lambda: self._set_vectors(store, bare, known))

    async def _put_documents(
        self, store: Store, documents: Iterable[SourceRow], outcome: Outcome
    ) -> None:
        """Index documents, each in the place of what it was before."""
        said = ((row, chunking.of_document(row.text or "", row.at)) for row in documents)
        await self._put(store, said, outcome)

    def _read(self, notes: Iterable[note_files.Note], outcome: Outcome) -> Iterator[Item]:
        for seen, located in notes:
            try:
                content = note_files.read(self._notes, seen)
            except note_files.Changed:
                outcome.again = True
                continue
            except OSError as error:
                content = note_files.Content("", b"", note_store.reason(error))
            row = SourceRow(
                kind="memory",
                partition=located.partition,
                name=seen.path,
                space=located.space,
                path=located.path,
                hash=content.hash,
                # What could not be read is looked at again each time.
                mtime=seen.look[0] if content.hash or not seen.size else -1,
                size=seen.size,
                inode=seen.look[2],
                problem=content.problem,
            )
            yield row, chunking.of_note(located.path, content.text)

    async def _keep(
        self, store: Store, batch: Sequence[Item], since: Mapping[str, int] | None
    ) -> None:
        """Keep what notes said before, where more than their end is another one now."""
        if self._versions is None or since is None:
            return
        befores = await self._run(lambda: [store.text_of(row.name) for row, _ in batch])
        for (row, passages), before in zip(batch, befores, strict=True):
            now = chunking.joined((p.start_line, p.end_line, p.body) for p in passages)
            if before is not None and not _goes_on(before, now):
                path = layout.shown(row.space, row.path)
                await self._versions.changed(row.space, path, before, since, "hand")

    async def _put(
        self,
        store: Store,
        items: Iterator[Item],
        outcome: Outcome,
        since: Mapping[str, int] | None = None,
    ) -> None:
        """Store sources, some in each transaction, with their vectors as far as these are quick.

        With `since`, what they said before is kept, as far as it is known.
        """
        while batch := await self._run(lambda: _some(items)):
            await self._keep(store, batch, since)
            outcome.written += len(batch)
            texts = [text for _, passages in batch for each in passages for text in each.windows]
            embedding = asyncio.ensure_future(self._embed(store, texts, outcome))
            try:
                done, _ = await asyncio.wait({embedding}, timeout=PATIENCE)
                if not done:  # found by its words for now; its vectors will be in the cache
                    await self._run(lambda batch=batch: self._store(store, batch, {}))
                    self.left = max(0, self.left - len(batch))
                known = await embedding
            finally:
                embedding.cancel()
            if done:
                await self._run(lambda batch=batch, known=known: self._store(store, batch, known))
                self.left = max(0, self.left - len(batch))

    async def _embed(
        self, store: Store, texts: Sequence[str], outcome: Outcome
    ) -> dict[bytes, bytes]:
        """The packed vectors of these texts by hash, as far as they can be had."""
        header = await self._run(store.header)
        who, now = identity(self._embedder), self._clock()
        if header is None or header.embedder != who:  # whoever makes it again gives them theirs
            return {}
        if self._embedder.provider == "none" or outcome.failure:
            return {}
        wanted = {digest(text): text for text in texts}
        cached = await self._run(lambda: self._cache.get(who, list(wanted), now))
        asked = wanted.keys() & self._asked.keys()
        kept = {**{key: vectors.pack(self._asked[key])[0] for key in asked}, **cached}
        # Empty is what marks a text that is refused.
        dims = header.dims or self._embedder.dims
        known = {key: each for key, each in kept.items() if len(each) in {0, dims or len(each)}}
        if missing := {key: text for key, text in wanted.items() if key not in known}:
            known |= await self._ask(missing, outcome)
        made = {key: each for key, each in known.items() if cached.get(key) != each}
        dims = next((len(each) for each in (*made.values(), *known.values()) if each), 0)
        if made:
            await self._run(lambda: self._cache.put(who, made, dims, now))
        if dims and not header.dims:
            await self._run(lambda: store.fit(who, dims))
        self.rows.outdated |= header.dims not in {0, dims or header.dims}
        return known

    async def _ask(self, missing: Mapping[bytes, str], outcome: Outcome) -> dict[bytes, bytes]:
        """The packed vectors of texts by hash, as far as they can be had; empty when refused."""
        hashes = list(missing)
        try:
            rows = await self._embedder.embed(list(missing.values()))
        except TextsRefused as error:
            if len(error.done) + len(error.refused) < len(hashes):
                outcome.failure = str(error)
            log.warning("memory.texts_refused", texts=len(error.refused), reason=str(error))
            done = [hashes[at] for at in error.done]
            refused = dict.fromkeys((hashes[at] for at in error.refused), b"")
            return {**dict(zip(done, vectors.pack(error.rows), strict=True)), **refused}
        except EmbedderError as error:
            outcome.failure = str(error)
            log.warning("memory.embed_failed", texts=len(missing), reason=str(error))
        except Exception as error:  # an embedder from elsewhere must not keep words out
            log.exception("memory.embedder_raised")
            outcome.failure = type(error).__name__
        else:
            return dict(zip(hashes, vectors.pack(rows), strict=False))
        return {}

    async def _run(self, work: Callable[[], T]) -> T:
        """Do something in the writer's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _store(self, store: Store, batch: Sequence[Item], known: Mapping[bytes, bytes]) -> None:
        """Store sources with those of the vectors that the index takes."""

        def work(writing: Writing) -> None:
            fitting, dims = self._fitting(writing, known)
            for source, passages in batch:
                texts = (text for each in passages for text in each.windows)
                if source.kind != "transcript" and any(
                    fitting.get(digest(text)) == b"" for text in texts
                ):
                    source = replace(source, problem=source.problem or REFUSED)  # noqa: PLW2901
                chunks = [(each, _joined(each.windows, fitting, dims)) for each in passages]
                writing.put(source, chunks)

        store.commit(work)

    def _set_vectors(
        self, store: Store, bare: Mapping[int, tuple[str, ...]], known: Mapping[bytes, bytes]
    ) -> int:
        """Give chunks those of the vectors that the index takes; how many got any."""

        def work(writing: Writing) -> int:
            fitting, dims = self._fitting(writing, known)
            done = 0
            for chunk, windows in bare.items():
                packed = _joined(windows, fitting, dims)
                is_refused = any(fitting.get(digest(text)) == b"" for text in windows)
                writing.set_vectors(chunk, packed, REFUSED if is_refused else "")
                done += packed is not None
            return done

        return store.commit(work)

    def _fitting(
        self, writing: Writing, known: Mapping[bytes, bytes]
    ) -> tuple[Mapping[bytes, bytes], int]:
        """The vectors that the index takes, and their length.

        Another program may have made it its own embedder's meanwhile.
        """
        header = writing.header()
        if header is None or header.embedder != identity(self._embedder):
            return {}, 0
        lengths = {0, header.dims}
        return {key: each for key, each in known.items() if len(each) in lengths}, header.dims

    def _release(self) -> None:
        for part in (self.rows, self._cache):
            try:
                part.close()
            except FAILURES as error:  # a full disk; what is not written is derived again
                log.warning("memory.close_failed", error=type(error).__name__)


def _goes_on(before: str, now: str) -> bool:
    """True when a text says all that it said, and perhaps more at its end, or a confirmation."""
    plain = before.replace("\r\n", "\n").rstrip()
    is_longer = now.startswith(plain) and now[len(plain) : len(plain) + 1] in {"", "\n"}
    bare = (claims.unconfirmed(text).rstrip("\n") for text in (before, now))
    return is_longer or len({*bare}) == 1


def _some(waiting: Iterator[Item]) -> list[Item]:
    """The next sources, as many as are worth one transaction."""
    batch: list[Item] = []
    chunks = 0
    for item in waiting:
        batch.append(item)
        chunks += len(item[1])
        if chunks >= GROUP:
            break
    return batch


def _joined(windows: Sequence[str], known: Mapping[bytes, bytes], dims: int) -> Packed | None:
    """A chunk's vectors, or None while one is missing.

    Windows that are refused are left out; a chunk of nothing else is like nothing.
    """
    packed = [known.get(digest(text)) for text in windows]
    whole = [each for each in packed if each is not None]
    if not dims or not whole or len(whole) < len(packed):
        return None
    blob = b"".join(whole) or bytes(dims)
    rows = vectors.unpack(blob, dims)
    return Packed(blob, vectors.signs(rows), vectors.mean_signs(rows))


def _unread(refused: Mapping[str, str]) -> str:
    """The problem with folders that cannot be read, without their names."""
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
