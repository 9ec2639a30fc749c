"""Bringing a generation up to the notes on disk. Runs beside searches, which see each note whole.

Disk and database work runs in one thread; only the embedder is awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from bot.clock import Clock
from bot.errors import EmbedderError
from bot.memory import chunking, claims, disk, layout, vectors
from bot.memory.chunking import Passage
from bot.memory.embed import Embedder, TextsRefused, identity
from bot.memory.index import note_files
from bot.memory.index.cache import digest
from bot.memory.index.engine import Cache, Packed, SourceRow, Store, StoreWriting
from bot.memory.note_store import NoteStore
from bot.memory.vectors import Vectors
from bot.memory.versions import Versions

T = TypeVar("T")

Item = tuple[SourceRow, list[Passage]]

GROUP = 256  # chunks whose vectors are asked for, and that are committed, together
REFUSED = "the embedder refuses a part of it, which is found by its words alone"
PATIENCE = 1.0  # seconds that the words of a note wait for its vectors

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Outcome:
    """What a sync did; `failure` is why vectors are missing, `again` that a file kept changing.

    `refused` are folders that could not be looked into, each ending in "/", and why.
    """

    written: int = 0
    removed: int = 0
    failure: str = ""
    again: bool = False
    refused: dict[str, str] = field(default_factory=dict[str, str])


class Builder:
    """Syncs one generation at a time; the caller sees to it that only one sync runs."""

    def __init__(
        self,
        notes: NoteStore,
        embedder: Embedder,
        cache: Cache,
        clock: Clock,
        thread: ThreadPoolExecutor,
        *,
        versions: Versions | None = None,
        asked: Mapping[bytes, Vectors] | None = None,
    ) -> None:
        """`versions` keeps what notes said that somebody else has changed.

        `asked` has vectors that searches made, by the digests of their texts.
        """
        self._asked = asked if asked is not None else dict[bytes, Vectors]()
        self._versions = versions
        self._notes = notes
        self._embedder = embedder
        self._cache = cache
        self._clock = clock
        self._thread = thread
        self.left = 0  # notes that a sync has found and not stored yet

    async def sync(self, store: Store) -> Outcome:
        """Read what changed on disk since the last time, and give vectors to what lacks them.

        Raises:
            apsw.Error: the index file cannot be written.
            StorageError: the shared database does not take it.
            DimsChanged: it must be built anew.
        """
        outcome = Outcome()
        since = await self._versions.numbers() if self._versions is not None else None
        changed, gone = await self._run(lambda: self._differences(store, outcome.refused))
        if gone:
            await self._run(lambda: store.remove(gone))
            outcome.removed = len(gone)
        self.left = len(changed)
        try:
            await self._put(store, self._read(changed, outcome), outcome, since)
        finally:
            self.left = 0
        # Chunks that were stored while the embedder was slow or failed.
        while not outcome.failure and self._embedder.provider != "none":
            bare = await self._run(lambda: store.bare(GROUP))
            if not bare:
                break
            texts = [text for windows in bare.values() for text in windows]
            known = await self._embed(store, texts, outcome)
            if not await self._run(lambda bare=bare, known=known: _fill(store, bare, known)):
                break
        return outcome

    async def put(self, store: Store, documents: Iterable[SourceRow]) -> Outcome:
        """Index documents, each in the place of what it was before."""
        outcome = Outcome()
        said = ((row, chunking.of_document(row.text or "", row.at)) for row in documents)
        await self._put(store, said, outcome)
        return outcome

    # --- disk -------------------------------------------------------------------------------------

    def _differences(
        self, store: Store, refused: dict[str, str]
    ) -> tuple[list[note_files.Note], list[int]]:
        """The notes that are new or look different, and the sources whose note is gone."""
        seen, gone = store.differences(self._notes, refused)
        return [note for each in seen if (note := note_files.note(each)) is not None], gone

    def _read(self, notes: Iterable[note_files.Note], outcome: Outcome) -> Iterator[Item]:
        for note in notes:
            try:
                content = note_files.read(self._notes, note)
            except note_files.Changed:
                outcome.again = True
                continue
            except OSError as error:
                content = note_files.Content("", b"", disk.reason(error))
            seen, located = note.seen, note.located
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

    # --- vectors ----------------------------------------------------------------------------------

    async def _keep(
        self, store: Store, batch: Sequence[Item], since: Mapping[str, int] | None
    ) -> None:
        """Keep what notes said before, where more than their end is another one now."""
        if self._versions is None or since is None or not store.generation.is_live:
            return
        befores = await self._run(lambda: [store.text_of(row.name) for row, _ in batch])
        for (row, passages), before in zip(batch, befores, strict=True):
            now = chunking.joined((p.start_line, p.end_line, p.body) for p in passages)
            if before is not None and not (_goes_on(before, now) or _says_the_same(before, now)):
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
                    await self._run(lambda batch=batch: _put(store, batch, {}))
                    self.left = max(0, self.left - len(batch))
                known = await embedding
            finally:
                embedding.cancel()
            if done:
                await self._run(lambda batch=batch, known=known: _put(store, batch, known))
                self.left = max(0, self.left - len(batch))

    async def _embed(
        self, store: Store, texts: Sequence[str], outcome: Outcome
    ) -> dict[bytes, bytes]:
        """The packed vectors of these texts by hash, as far as they can be had."""
        if self._embedder.provider == "none" or outcome.failure:
            return {}
        who, now = identity(self._embedder), self._clock()
        wanted = {digest(text): text for text in texts}
        dims = self._embedder.dims
        kept = await self._run(lambda: self._cache.get(who, list(wanted), now))
        # Empty is what marks a text that is refused.
        known = {
            hashed: vector
            for hashed, vector in kept.items()
            if len(vector) in {0, dims or len(vector)}
        }
        missing = {hashed: text for hashed, text in wanted.items() if hashed not in known}
        asked = missing.keys() & self._asked.keys()
        made = {hashed: vectors.pack(self._asked[hashed])[0] for hashed in asked}
        if left := {hashed: text for hashed, text in missing.items() if hashed not in asked}:
            made |= await self._ask(left, outcome)
        dims = next((len(each) for each in (*made.values(), *known.values()) if each), 0)
        if dims:
            await self._run(lambda: store.fit(dims))
        if made:
            await self._run(lambda: self._cache.put(who, made, dims, now))
        return {
            hashed: vector
            for hashed, vector in {**known, **made}.items()
            if len(vector) in {0, dims}
        }

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
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _says_the_same(before: str, now: str) -> bool:
    """True when nothing but what was confirmed is another one."""
    return claims.unconfirmed(before).rstrip("\n") == claims.unconfirmed(now).rstrip("\n")


def _goes_on(before: str, now: str) -> bool:
    """True when a text says all that it said, and perhaps more at its end."""
    plain = before.replace("\r\n", "\n").rstrip()
    return now.startswith(plain) and now[len(plain) : len(plain) + 1] in {"", "\n"}


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


def _put(store: Store, batch: Sequence[Item], known: Mapping[bytes, bytes]) -> None:
    dims = store.dims()

    def work(writing: StoreWriting) -> None:
        for source, passages in batch:
            texts = (text for each in passages for text in each.windows)
            if source.kind == "memory" and any(known.get(digest(text)) == b"" for text in texts):
                source = replace(source, problem=source.problem or REFUSED)  # noqa: PLW2901
            chunks = [(each, _joined(each.windows, known, dims)) for each in passages]
            writing.put(source, chunks)

    store.commit(work)


def _fill(store: Store, bare: Mapping[int, tuple[str, ...]], known: Mapping[bytes, bytes]) -> int:
    dims = store.dims()

    def work(writing: StoreWriting) -> int:
        done = 0
        for chunk, windows in bare.items():
            packed = _joined(windows, known, dims)
            is_refused = any(known.get(digest(text)) == b"" for text in windows)
            writing.set_vectors(chunk, packed, REFUSED if is_refused else "")
            done += packed is not None
        return done

    return store.commit(work)


def _joined(windows: Sequence[str], known: Mapping[bytes, bytes], dims: int) -> Packed | None:
    """A chunk's vectors, or None while one is missing.

    Windows that are refused are left out; a chunk of nothing else is like nothing.
    """
    packed = [known.get(digest(text)) for text in windows]
    whole = [each for each in packed if each is not None]
    if not whole or len(whole) < len(packed) or not (dims := dims or max(map(len, whole))):
        return None
    blob = b"".join(whole) or bytes(dims)
    rows = vectors.unpack(blob, dims)
    return Packed(vectors.signature(rows), blob, vectors.signs(rows))
