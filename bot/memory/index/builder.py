"""Bringing an index file up to the notes on disk. Runs beside searches, which see each file whole.

Disk and database work runs in one thread; only the embedder is awaited.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import structlog

from bot.clock import Clock
from bot.errors import EmbedderError
from bot.memory import vectors
from bot.memory.embed import Embedder, identity
from bot.memory.index import pieces, scan
from bot.memory.index.cache import EmbeddingCache, digest
from bot.memory.index.pieces import Draft
from bot.memory.index.store import Bare, ChunkRow, SourceRow, Store

T = TypeVar("T")
InThread = Callable[[Callable[[], T]], Awaitable[T]]

GROUP = 256  # chunks whose vectors are asked for, and that are committed, together

log = structlog.get_logger(__name__)


class DimsChanged(Exception):
    """The embedder's vectors have another length than those in the index."""

    def __init__(self, dims: int) -> None:
        super().__init__(f"vectors have {dims} dimensions now")
        self.dims = dims


@dataclass(slots=True)
class Outcome:
    """What a sync did; `failure` is why vectors are missing, `again` that a file kept changing."""

    written: int = 0
    removed: int = 0
    failure: str = ""
    again: bool = False


@dataclass(slots=True)
class _Pending:
    """Sources that wait for their vectors."""

    sources: list[tuple[SourceRow, list[Draft]]] = field(
        default_factory=list[tuple[SourceRow, list[Draft]]]
    )
    chunks: int = 0


class Builder:
    """Syncs one index file at a time; the caller sees to it that only one sync runs."""

    def __init__(
        self,
        workspace: Path,
        embedder: Embedder,
        cache: EmbeddingCache,
        clock: Clock,
        run: Callable[[Callable[[], object]], Awaitable[object]],
    ) -> None:
        self._workspace = workspace
        self._embedder = embedder
        self._cache = cache
        self._clock = clock
        self._run = run

    async def sync(self, store: Store) -> Outcome:
        """Read what changed on disk since the last time, and give vectors to what lacks them.

        Raises:
            apsw.Error: the index file cannot be written.
            DimsChanged: it must be built anew.
        """
        outcome = Outcome()
        changed, gone = await self._thread(lambda: self._differences(store))
        if gone:
            await self._thread(lambda: _remove(store, gone))
            outcome.removed = len(gone)
        pending = _Pending()
        for found in changed:
            read = await self._thread(lambda found=found: self._read(store, found))
            if read is None:
                continue
            if isinstance(read, scan.Changed):
                outcome.again = True
                continue
            await self._add(store, pending, read, outcome)
        await self._flush(store, pending, outcome)
        await self._fill(store, outcome)
        return outcome

    async def put(self, store: Store, documents: Iterable[SourceRow]) -> Outcome:
        """Index documents, each in the place of what it was before."""
        outcome = Outcome()
        pending = _Pending()
        for document in documents:
            drafts = pieces.of_document(document.text or "", document.at)
            await self._add(store, pending, (document, drafts), outcome)
        await self._flush(store, pending, outcome)
        return outcome

    # --- disk -------------------------------------------------------------------------------------

    def _differences(self, store: Store) -> tuple[list[scan.Found], list[int]]:
        known = store.sources("memory")
        changed: list[scan.Found] = []
        seen: set[tuple[str, str]] = set()
        for found in scan.scan(self._workspace):
            key = (found.located.partition, found.name)
            seen.add(key)
            row = known.get(key)
            same = row is not None and (row[1].mtime, row[1].size, row[1].inode) == (
                *(found.mtime, found.size, found.inode),
            )
            if not same:
                changed.append(found)
        return changed, [row[0] for key, row in known.items() if key not in seen]

    def _read(
        self, store: Store, found: scan.Found
    ) -> tuple[SourceRow, list[Draft]] | scan.Changed | None:
        try:
            content = scan.read(self._workspace, found)
        except scan.Changed as changed:
            return changed
        except OSError as error:
            content = scan.Content("", b"", scan.reason(error))
        located = found.located
        row = SourceRow(
            kind="memory",
            partition=located.partition,
            name=found.name,
            space=located.space,
            path=located.path,
            hash=content.hash,
            # What could not be read is looked at again each time.
            mtime=found.mtime if content.hash or not found.size else -1,
            size=found.size,
            inode=found.inode,
            problem=content.problem,
        )
        return row, pieces.of_note(located.path, content.text)

    # --- vectors ----------------------------------------------------------------------------------

    async def _add(
        self,
        store: Store,
        pending: _Pending,
        item: tuple[SourceRow, list[Draft]],
        outcome: Outcome,
    ) -> None:
        pending.sources.append(item)
        pending.chunks += len(item[1])
        outcome.written += 1
        if pending.chunks >= GROUP:
            await self._flush(store, pending, outcome)

    async def _flush(self, store: Store, pending: _Pending, outcome: Outcome) -> None:
        sources, pending.sources, pending.chunks = pending.sources, [], 0
        if not sources:
            return
        texts = [text for _, drafts in sources for draft in drafts for text in draft.windows]
        known = await self._embed(store, texts, outcome)
        await self._thread(lambda: _put(store, sources, known))

    async def _fill(self, store: Store, outcome: Outcome) -> None:
        """Give vectors to chunks that were stored while the embedder failed."""
        while not outcome.failure and self._embedder.provider != "none":
            bare = await self._thread(lambda: store.bare(GROUP))
            if not bare:
                return
            windows = {each.id: pieces.windows_of(each.heading, each.body) for each in bare}
            texts = [text for group in windows.values() for text in group]
            known = await self._embed(store, texts, outcome)
            if not await self._thread(lambda bare=bare, known=known: _fill(store, bare, known)):
                return

    async def _embed(
        self, store: Store, texts: Sequence[str], outcome: Outcome
    ) -> dict[bytes, bytes]:
        """The packed vectors of these texts by hash, as far as they can be had."""
        if self._embedder.provider == "none" or outcome.failure:
            return {}
        who, now = identity(self._embedder), self._clock()
        wanted = {digest(text): text for text in texts}
        dims = self._embedder.dims
        kept = await self._thread(lambda: self._cache.get(who, list(wanted), now))
        known = {
            hashed: kept[hashed]
            for hashed in kept
            if len(kept[hashed]) == (dims or len(kept[hashed]))
        }
        missing = {hashed: text for hashed, text in wanted.items() if hashed not in known}
        made: dict[bytes, bytes] = {}
        if missing:
            try:
                rows = await self._embedder.embed(list(missing.values()))
            except EmbedderError as error:
                outcome.failure = str(error)
                log.warning("memory.embed_failed", texts=len(missing), reason=str(error))
                rows = np.zeros((0, 0), np.float32)
            made = {
                hashed: vectors.pack(rows[[at]]) for at, hashed in enumerate(missing) if len(rows)
            }
        dims = len(next(iter((made or known).values()), b""))
        if dims:
            await self._thread(lambda: _fit(store, dims))
            await self._thread(lambda: self._cache.put(who, made, dims, now))
        return {
            hashed: vector for hashed, vector in {**known, **made}.items() if len(vector) == dims
        }

    async def _thread(self, work: Callable[[], T]) -> T:
        return await self._run(work)  # type: ignore[return-value]


def _remove(store: Store, sources: Sequence[int]) -> None:
    with store.transaction:
        for source in sources:
            store.remove(source)


def _put(
    store: Store, sources: Sequence[tuple[SourceRow, list[Draft]]], known: dict[bytes, bytes]
) -> None:
    with store.transaction:
        for source, drafts in sources:
            store.put(source, (_row(draft, known) for draft in drafts))


def _row(draft: Draft, known: dict[bytes, bytes]) -> ChunkRow:
    packed = _joined(draft.windows, known)
    chunk = draft.chunk
    return ChunkRow(
        start_line=chunk.start_line,
        end_line=chunk.end_line,
        day=draft.day,
        heading=draft.heading,
        body=chunk.text,
        bits=packed[0] if packed else None,
        vectors=packed[1] if packed else None,
    )


def _fill(store: Store, bare: Sequence[Bare], known: dict[bytes, bytes]) -> int:
    done = 0
    with store.transaction:
        for each in bare:
            packed = _joined(pieces.windows_of(each.heading, each.body), known)
            if packed is not None:
                store.set_vectors(each.id, *packed)
                done += 1
    return done


def _joined(windows: Sequence[str], known: dict[bytes, bytes]) -> tuple[bytes, bytes] | None:
    """A chunk's signs and its windows' vectors, or None while one is missing."""
    packed = [known.get(digest(text)) for text in windows]
    whole = [each for each in packed if each is not None]
    if not whole or len(whole) < len(packed):
        return None
    blob = b"".join(whole)
    return vectors.signature(vectors.unpack(blob, len(whole[0]))), blob


def _fit(store: Store, dims: int) -> None:
    """Make the first vectors' length the index's, and hold it to that.

    Raises:
        DimsChanged: it has vectors of another length.
    """
    have = int(store.meta().get("dims", "0"))
    if not have:
        with store.transaction:
            store.set_dims(dims)
    elif have != dims:
        raise DimsChanged(dims)
