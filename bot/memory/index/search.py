"""Answering searches: from the index, or from the notes themselves while it cannot be read.

Either gives candidates, and `bot.memory.ranking` puts them in order: how they are found is all that
another kind of index would do differently.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import PurePosixPath
from typing import TypeVar

import apsw
import structlog

from bot.clock import Clock, moment
from bot.config import Settings
from bot.errors import EmbedderError, StorageError
from bot.identity.conversation import local_zone
from bot.memory import chunking, layout, periods, ranking, words
from bot.memory.embed import Embedder, identity
from bot.memory.index import note_files
from bot.memory.index.cache import digest
from bot.memory.index.engine import Reader, Rows
from bot.memory.listing import asks_for_many
from bot.memory.note_store import NoteStore
from bot.memory.ranking import Candidate, Candidates, Request
from bot.memory.search import BEING_BUILT, Findings, Hit, Mode
from bot.memory.uses import Uses
from bot.memory.vectors import Vectors
from bot.storage.fulltext import tokenizer

T = TypeVar("T")

THREADS = 2
QUERY_SHARE = 0.6  # of the time of a search that its embedding may take
GRACE = 0.5  # seconds after its time that a search is waited for
MAX_CANDIDATES = 200  # of each leg
ASKED = 256  # queries whose vectors are kept: a message is searched for, then indexed itself
MAX_BYTES = 4_000_000  # of notes that one search reads, while there is no index to ask
READING_SHARE = 0.6  # of the time left may go into reading them

log = structlog.get_logger(__name__)


class Searches:
    """Some threads that search, each with its own reader of the index file.

    They note what is wrong with the file for the writer, which repairs it.
    """

    def __init__(
        self,
        settings: Settings,
        notes: NoteStore,
        embedder: Embedder,
        clock: Clock,
        rows: Rows,
        *,
        uses: Uses | None = None,
    ) -> None:
        self.asked: dict[bytes, Vectors] = {}  # vectors of queries, by the digests of their texts
        self.query_failure = ""  # why the last query got no vector
        self._settings = settings
        self._notes = notes
        self._embedder = embedder
        self._clock = clock
        self._rows = rows
        self._uses = uses or Uses(settings, None, clock)
        # Settled for as long as the program runs, as what is stored depends on it.
        weight = settings.now.memory.vector_weight
        self.uses_vectors = embedder.provider != "none" and weight > 0
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="confidant-memory-reader")
        self._local = threading.local()
        self._open: list[Reader] = []

    def mode(self, *, has_vector: bool) -> Mode:
        """The mode of a search with or without a vector of its query."""
        by_vector = has_vector and self.uses_vectors
        if self._settings.now.memory.text_weight > 0:
            return "vector+keyword" if by_vector else "keyword"
        return "vector" if by_vector else "none"

    async def close(self) -> None:
        """Release the file, once the searches that run are done."""
        await asyncio.to_thread(self._threads.shutdown)
        for reader in self._open:
            reader.close()
        self._open.clear()

    async def search(
        self,
        query: str,
        partitions: Sequence[str],
        limit: int | None,
        deadline: float,
        today: date | None = None,
        *,
        room: int = 0,
        without: Collection[str] = (),
    ) -> Findings:
        """The best passages of these partitions until `deadline`, which is of time.monotonic."""
        degraded: list[str] = []
        today = today or moment(self._clock(), local_zone(self._settings.now)).date()
        request = Request(
            query=query,
            partitions=tuple(dict.fromkeys(partitions)),
            limit=limit or self._settings.now.memory.max_results,
            vector=await self._query_vector(query, deadline, degraded),
            today=today,
            deadline=deadline,
            aging=await self._uses.aging(map(layout.space_of, partitions), today),
            times=periods.asked(query, today),
            many=asks_for_many(query),
            room=room,
            without=frozenset(without),
        )
        try:
            async with asyncio.timeout(deadline - time.monotonic() + GRACE):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, self._answer, request, degraded)
        except TimeoutError:
            late = (*degraded, "the search took too long")
            return Findings((), "none", late, is_partial=True)

    async def run(self, work: Callable[[], T]) -> T:
        """Do something in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _query_vector(
        self, query: str, deadline: float, degraded: list[str]
    ) -> Vectors | None:
        if not self.uses_vectors:
            return None
        self.query_failure = ""
        key = digest(query)
        if (known := self.asked.get(key)) is not None:
            return known
        try:
            async with asyncio.timeout((deadline - time.monotonic()) * QUERY_SHARE):
                rows = await self._embedder.embed([query])
        except (EmbedderError, TimeoutError) as error:
            self.query_failure = str(error) or "it did not answer in time"
        except Exception as error:  # an embedder from elsewhere must not end a search
            log.exception("memory.embedder_raised")
            self.query_failure = type(error).__name__
        else:
            if not rows.any():
                return None
            if len(self.asked) >= ASKED:
                del self.asked[next(iter(self.asked))]
            self.asked[key] = rows
            return rows
        degraded.append(f"vectors are not used: {self.query_failure}")
        return None

    async def text_of(self, partition: str, path: str, deadline: float) -> str:
        """The text of a document as the index has it; empty when it has none.

        Raises:
            StorageError: the index cannot be read.
        """

        def work() -> str:
            reader = self._reader()
            if reader is None:
                return ""
            with reader.snapshot(deadline):
                return chunking.joined(reader.chunks(partition, path))

        try:
            return await self.run(work)
        except apsw.Error as error:
            raise StorageError(f"the index cannot be read ({type(error).__name__})") from error

    # --- in a reader's thread ---------------------------------------------------------------------

    def _answer(self, request: Request, degraded: list[str]) -> Findings:
        """Search the index, or the notes themselves when that fails."""
        try:
            answer = self._from_index(request, degraded)
            if answer is not None:
                return answer
            degraded.append(BEING_BUILT)
        except apsw.InterruptError:
            degraded.append("the search took too long")
        except apsw.BusyError:
            degraded.append("another program has locked the index")
        except apsw.Error as error:
            log.warning("memory.index_unreadable", error=type(error).__name__)
            degraded.append(f"the index cannot be read ({type(error).__name__}); it is rebuilt")
            self.drop_reader()
            self._rows.broken = True
        except StorageError as error:
            degraded.append(f"the index cannot be read: {error}")
        except Exception:  # a fault of ours must not end the conversation either
            log.exception("memory.search_failed")
            degraded.append("the search failed; the log says why")
            return Findings((), "none", tuple(degraded), is_partial=True)
        return self._from_notes(request, degraded)

    def _from_index(self, request: Request, degraded: list[str]) -> Findings | None:
        """The results from the index; None while there is none."""
        reader = self._reader()
        if reader is None:
            return None
        with reader.snapshot(request.deadline) as live:
            if live is None:
                return None
            vector = request.vector
            if vector is not None:
                dims = len(vector[0])
                if live.embedder != identity(self._embedder):
                    degraded.append("the embedder was changed; the index is being rebuilt for it")
                    vector = None
                elif live.dims != dims:
                    vector = None
                    if live.dims:  # nobody knew
                        self._rows.outdated = True
                        why = f"vectors have {dims} dimensions now; the index is being rebuilt"
                        degraded.append(f"{why} for them")
                elif self._rows.is_filling:
                    degraded.append("many notes have no vector yet")
            request = replace(request, vector=vector)
            config = self._settings.now.memory
            most = request.limit * config.candidate_multiplier + len(request.without)
            most = min(MAX_CANDIDATES, most)
            found = reader.find(request, most, by_words=config.text_weight > 0)
            hits = ranking.answer(found, request, config, reader.tokenize)
        is_empty = found.known is not None and not found.known.chunks
        if not (live.dims or is_empty) and self.uses_vectors and not degraded:
            degraded.append("no note has a vector yet")
        return self._findings(hits, found, degraded, request)

    def _from_notes(self, request: Request, degraded: list[str]) -> Findings:
        """The results from the notes themselves, as far as there is time to read them."""
        with closing(apsw.Connection(":memory:")) as connection:
            tokenize = tokenizer(connection)
            query = words.parse(request.query, tokenize)
            items, late = _read(self._notes, request)
            found = Candidates(query, items, late=late)
            hits = ranking.answer(found, request, self._settings.now.memory, tokenize)
        return self._findings(hits, found, degraded, replace(request, vector=None))

    def _findings(
        self, hits: tuple[Hit, ...], found: Candidates, degraded: Sequence[str], request: Request
    ) -> Findings:
        mode = self.mode(has_vector=request.vector is not None)
        late = ("the search took too long: some notes were not looked at",) if found.late else ()
        told = (*degraded, *late)
        return Findings(hits, mode, told, request.many, is_partial=bool(told))

    def _reader(self) -> Reader | None:
        """This thread's reader of the index file, or None while there is none."""
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is not None and not reader.is_current():
            self.drop_reader()
            reader = None
        if reader is None and self._rows.are_there:
            reader = self._local.reader = self._rows.reader()
            self._open.append(reader)
        return reader

    def drop_reader(self) -> None:
        """Let go of this thread's reader."""
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is not None:
            self._local.reader = None
            self._open.remove(reader)
            reader.close()


def _read(notes: NoteStore, request: Request) -> tuple[list[Candidate], bool]:
    """The passages of the notes in some partitions, and whether there was no time for more."""
    now = time.monotonic()
    until = now + (request.deadline - now) * READING_SHARE
    found: list[Candidate] = []
    left = MAX_BYTES
    try:
        for seen in note_files.files(notes):
            located = layout.locate(PurePosixPath(seen.path))
            if located is None or located.partition not in request.partitions:
                continue
            if time.monotonic() > until or left <= 0:
                return found, True
            left -= seen.size
            try:
                text = note_files.read(notes, seen).text
            except (OSError, note_files.Changed):
                continue
            for each in chunking.of_note(located.path, text):
                lines = (each.start_line, each.end_line)
                hit = Hit(located.space, located.path, *lines, 0.0, "", "memory")
                found.append(Candidate(len(found), hit, each.body, each.heading, each.day))
    except OSError:
        return found, True
    return found, False
