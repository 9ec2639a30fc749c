"""The seams between the index and where its rows are: a file of this machine, or a shared database.

`Rows` opens the index, `Store` writes it, in transactions that are a `Writing` each, and `Reader`
finds candidates. All wait, so they are used in threads. Tables have the same names in both places.

There is one index, which is changed in place. When the embedder changes, its vectors are taken out
and made again one by one; when the way notes are cut changes, every note looks edited and is read
again. Meanwhile searches find the words of everything, and compare no vector of another embedder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from bot.identity.view import FOLDERS
from bot.memory import chunking, layout
from bot.memory.chunking import Passage
from bot.memory.embed import Embedder, Identity, identity
from bot.memory.index import note_files
from bot.memory.index.note_files import Known, Note
from bot.memory.note_store import NoteStore
from bot.memory.ranking import Candidates, Request
from bot.memory.search import Building, Counts, Forgotten, Source
from bot.memory.words import Tokenize
from bot.storage import Row, Value, fulltext, marks

T = TypeVar("T")

CLEARED = 500  # chunks that lose their vectors in one transaction
STALE = -1  # the mtime of a source that was cut in another way, and is read again
NOBODY = Identity("", "", "")  # made the vectors, while they are taken out
COLUMNS = "id, is_live, chunker, provider, model, endpoint, dims"  # of a header
FIRST = "ORDER BY is_live DESC, id LIMIT 1"  # versions before had several in a shared database
_MADE = "(provider, model, endpoint, dims)"
_OF = "memory_sources s JOIN memory_partitions p ON p.id = s.partition"


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A note or a document, as the index knows it."""

    kind: Source
    partition: str
    name: str
    space: str
    path: str
    hash: bytes
    mtime: int = 0
    size: int = 0
    inode: int = 0
    at: int = 0
    problem: str = ""
    text: str | None = None

    @property
    def look(self) -> tuple[bytes, int, int, int, int, str]:
        """A value that differs once it has changed."""
        return self.hash, self.mtime, self.size, self.inode, self.at, self.problem


class Packed(NamedTuple):
    """The vectors of a chunk's windows, their signs, and the signs of their mean."""

    vectors: bytes
    signs: bytes
    mean: bytes


@dataclass(frozen=True, slots=True)
class Header:
    """The embedder and the chunks that the index is made with.

    It `is_live`, and searches read it, once every note was in it; an index that is begun empty has
    another `id`. `epoch` moves when chunks get vectors later than others after them.
    """

    id: int
    is_live: bool
    chunker: int
    embedder: Identity
    dims: int
    epoch: int = 0

    def suits(self, embedder: Embedder) -> bool:
        """True when its vectors can be compared with those of an embedder."""
        lengths = {0, embedder.dims or self.dims}
        return self.embedder == identity(embedder) and self.dims in lengths

    def is_whole(self, embedder: Embedder) -> bool:
        """True when all is in it, cut as today; vectors of this embedder may be missing."""
        return self.is_live and self.chunker == chunking.VERSION and self.suits(embedder)


Chunks = Sequence[tuple[Passage, Packed | None]]
"""The chunks of a source, each with its vectors if it has any."""


def header_of(rows: Sequence[Row]) -> Header | None:
    """The header that was read, if there is one."""
    if not rows:
        return None
    number, is_live, chunker, provider, model, endpoint, *others = rows[0]
    made = Identity(str(provider), str(model), str(endpoint))
    return Header(int(number), bool(is_live), int(chunker), made, *map(int, others))


class Tables(ABC):
    """The tables of the index; the header is in `table`, and `read_header` selects it."""

    table: ClassVar[str]
    read_header: ClassVar[str]

    @abstractmethod
    def run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """The rows of one statement."""

    def header(self) -> Header | None:
        """The index's header; None while there is no index."""
        return header_of(self.run(self.read_header))


class Writing(Tables):
    """A transaction on the index."""

    def put(self, source: SourceRow, chunks: Chunks) -> None:
        """Store a source with its chunks and their vectors, in the place of what it was before.

        One that another program has stored just so meanwhile is left as it is.
        """
        named = (source.partition,)
        known = self.run("SELECT id FROM memory_partitions WHERE name = ?", named)
        partition = int((known or self._add_partition(source.partition))[0][0])
        old = self.run(
            "SELECT id, hash, mtime, size, inode, at, problem FROM memory_sources"
            " WHERE kind = ? AND partition = ? AND name = ?",
            (source.kind, partition, source.name),
        )
        for identifier, hashed, *rest in old:
            if (bytes(hashed), *rest) == source.look:
                return
            self.drop(int(identifier))
        rows = self.run(
            """INSERT INTO memory_sources(kind, partition, name, space, path, hash, mtime, size,
                   inode, at, problem, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
               RETURNING id""",
            (
                *(source.kind, partition, source.name, source.space, source.path),
                *(*source.look, source.text),
            ),
        )
        length = self._put_chunks(int(rows[0][0]), partition, chunks)
        self._count(partition, len(chunks), length)

    def set_vectors(self, chunk: int, packed: Packed | None, problem: str) -> None:
        """Give a chunk its vectors, if there are any, and say what is wrong with its note."""
        if problem:
            self.run(
                "UPDATE memory_sources SET problem = ? WHERE problem = '' AND kind <> 'transcript' "
                "AND id = (SELECT source FROM memory_chunks WHERE id = ?)",
                (problem, chunk),
            )
        rows = self.run("SELECT partition FROM memory_chunks WHERE id = ?", (chunk,))
        if packed is not None and rows:
            self._put_vectors(chunk, int(rows[0][0]), packed)

    def drop(self, source: int) -> list[bool]:
        """Take a source out; for each of its chunks, whether it had vectors."""
        rows = self.run(
            "SELECT id, partition, length, vectors IS NOT NULL FROM memory_chunks WHERE source = ?",
            (source,),
        )
        self._unindex([int(row[0]) for row in rows])
        self.run("DELETE FROM memory_chunks WHERE source = ?", (source,))
        self.run("DELETE FROM memory_sources WHERE id = ?", (source,))
        if rows:
            self._count(int(rows[0][1]), -len(rows), -sum(int(row[2]) for row in rows))
        return [bool(row[3]) for row in rows]

    def mark_stale(self) -> None:
        """Let everything look changed, as it was cut in another way; `Store.finish` ends it."""
        self.run("UPDATE memory_sources SET mtime = ?", (STALE,))
        self.run(f"UPDATE {self.table} SET chunker = 0")

    def clear(self, after: int) -> int | None:
        """Take the vectors out of some chunks after an id; the last of them, None without any.

        Until `made_by` nothing is compared with what is left of them.
        """
        self.made_by(NOBODY)
        rows = self.run(
            "SELECT id FROM memory_chunks WHERE id > ? AND vectors IS NOT NULL ORDER BY id LIMIT ?",
            (after, CLEARED),
        )
        chunks = [int(row[0]) for row in rows]
        if chunks:
            self._clear(chunks)
        return max(chunks, default=None)

    def made_by(self, embedder: Identity) -> None:
        """Let an embedder be the one whose vectors these are; there are none yet."""
        self.run(f"UPDATE {self.table} SET {_MADE} = (?, ?, ?, 0)", embedder)

    def erase(
        self, paths: Sequence[str], texts: Sequence[str], partitions: Sequence[str]
    ) -> tuple[Forgotten, list[str]]:
        """See `Store.forget`; the texts are folded."""
        wanted = {*self._holding(texts, partitions)} if texts and partitions else set[int]()
        if paths:
            named = f"memory_sources WHERE kind = 'memory' AND name IN ({marks(paths)})"
            wanted |= {int(row[0]) for row in self.run(f"SELECT id FROM {named}", paths)}
        of_vectors: list[str] = []
        removed: list[bool] = []
        documents = 0
        for source in sorted(wanted):
            chunks = self.run("SELECT heading, body FROM memory_chunks WHERE source = ?", (source,))
            for heading, body in chunks:
                of_vectors += chunking.windows_of(str(heading), str(body))
            kinds = self.run("SELECT kind FROM memory_sources WHERE id = ?", (source,))
            documents += kinds == [("transcript",)]
            removed += self.drop(source)
        return Forgotten(len(removed), sum(removed), documents), of_vectors

    @abstractmethod
    def _add_partition(self, name: str) -> list[Row]:
        """Add a partition; its id in a row."""

    @abstractmethod
    def _put_chunks(self, source: int, partition: int, chunks: Chunks) -> int:
        """Store chunks of a source so that they are found; how many words they have."""

    @abstractmethod
    def _put_vectors(self, chunk: int, partition: int, packed: Packed) -> None:
        """Store the vectors of a chunk that has none."""

    @abstractmethod
    def _clear(self, chunks: Sequence[int]) -> None:
        """Take the vectors out of chunks."""

    @abstractmethod
    def _unindex(self, chunks: Sequence[int]) -> None:
        """Let chunks be found no more."""

    @abstractmethod
    def _holding(self, texts: Sequence[str], partitions: Sequence[str]) -> Iterable[int]:
        """Every source in some partitions that holds one of the folded texts."""

    def _count(self, partition: int, chunks: int, length: int) -> None:
        self.run(
            "UPDATE memory_partitions SET chunks = chunks + ?, length = length + ? WHERE id = ?",
            (chunks, length, partition),
        )


class Store(Tables):
    """The writing side of the index; used by one thread at a time."""

    @abstractmethod
    def commit(self, work: Callable[[Writing], T]) -> T:
        """Do something in one transaction; it may be run more than once."""

    def fit(self, embedder: Identity, dims: int) -> None:
        """Make the length of an embedder's first vectors the index's."""
        sql = f"UPDATE {self.table} SET dims = ? WHERE {_MADE} = (?, ?, ?, 0)"
        self.commit(lambda each: each.run(sql, (dims, *embedder)))

    def finish(self) -> None:
        """Let searches read it: everything is in it, as it is cut today."""
        sql = f"UPDATE {self.table} SET is_live = 1, chunker = ?"
        self.commit(lambda each: each.run(sql, (chunking.VERSION,)))

    def remove(self, sources: Iterable[int]) -> None:
        """Take sources out."""
        gone = tuple(sources)
        self.commit(lambda each: [each.drop(source) for source in gone])

    def forget(
        self, paths: Sequence[str], texts: Sequence[str], partitions: Sequence[str]
    ) -> tuple[Forgotten, list[str]]:
        """Remove notes by path, and every source in some partitions that holds one of the texts.

        Nothing of them is left. Also the texts that their vectors were of.
        """
        wanted = [each for each in map(fulltext.folded, texts) if each]
        return self.commit(lambda each: each.erase(paths, wanted, partitions))

    def counts(self) -> Counts:
        """The contents in numbers; `size` is 0."""
        files, documents = self.run(
            "SELECT count(*) FILTER (WHERE kind = 'memory'),"
            " count(*) FILTER (WHERE kind = 'transcript') FROM memory_sources"
        )[0]
        spaces = Counter[str]()
        for name, chunks in self.run("SELECT name, chunks FROM memory_partitions WHERE chunks > 0"):
            spaces[layout.space_of(name)] += chunks
        problems = self.run("SELECT name, problem FROM memory_sources WHERE problem <> ''")
        bare = self.run("SELECT count(*) FROM memory_chunks WHERE vectors IS NULL")
        header = self.header()
        return Counts(
            files=files,
            documents=documents,
            chunks=spaces.total(),
            vectors=spaces.total() - bare[0][0],
            dims=header.dims if header is not None else 0,
            spaces=dict(spaces),
            problems=dict(problems),
        )

    def building(self, embedder: Embedder) -> Building | None:
        """The progress of the first build, or of making everything again; None when it is done."""
        header = self.header()
        files = "SELECT count(*) FROM memory_sources s WHERE s.kind = 'memory'"
        total = int(self.run(files)[0][0])
        if header is None or not header.is_live:
            return Building(total, total, is_first=True, by_meaning=False)
        if not header.suits(embedder):
            return Building(0, total, is_first=False, by_meaning=False) if total else None
        left = f"s.mtime = {STALE} AND s.problem = ''"
        if embedder.provider != "none":
            left += " OR s.id IN (SELECT source FROM memory_chunks WHERE vectors IS NULL)"
        count = int(self.run(f"{files} AND ({left})")[0][0])
        is_meant = header.dims > 0
        done = total - count
        return Building(done, total, is_first=False, by_meaning=is_meant) if count else None

    def sources(self, kind: Source) -> dict[tuple[str, str], Known]:
        """Every source of a kind, by partition and name."""
        columns = "p.name, s.name, s.id, s.mtime, s.size, s.inode"
        rows = self.run(f"SELECT {columns} FROM {_OF} WHERE s.kind = ?", (kind,))
        return {(r[0], r[1]): Known(r[2], (r[3], r[4], r[5])) for r in rows}

    def differences(
        self, notes: NoteStore, refused: dict[str, str]
    ) -> tuple[list[Note], list[int]]:
        """The notes that are new or look different, and the sources whose note is gone.

        `refused` is as `NoteStore.walk` has it.

        Raises:
            OSError: the notes cannot be looked through.
        """
        known = {name: each for (_, name), each in self.sources("memory").items()}
        return note_files.differences(notes, known, refused)

    def stale_documents(self, limit: int) -> list[SourceRow]:
        """Some documents that were cut in another way, with their texts."""
        rows = self.run(
            f"SELECT p.name, s.name, s.space, s.path, s.hash, s.at, s.text FROM {_OF}"
            f" WHERE s.kind = 'transcript' AND s.mtime = {STALE} LIMIT ?",
            (limit,),
        )
        return [SourceRow("transcript", *named, at=at, text=text) for *named, at, text in rows]

    def text_of(self, name: str) -> str | None:
        """The exact text of a note when it was indexed; None when that is not known."""
        found = "SELECT id, hash FROM memory_sources WHERE kind = 'memory' AND name = ?"
        for source, hashed in self.run(found, (name,)):
            chunks = self.run(
                "SELECT start_line, end_line, body FROM memory_chunks WHERE source = ? ORDER BY id",
                (source,),
            )
            return note_files.restored(chunks, bytes(hashed))
        return None

    def bare(self, limit: int, *, of_folders: bool = False) -> dict[int, tuple[str, ...]]:
        """Chunks that have no vectors yet, and the texts to make them of.

        Those of folders of documents are many, and notes do not wait for them.
        """
        rows = self.run(
            "SELECT c.id, c.heading, c.body FROM memory_chunks c"
            " JOIN memory_partitions p ON p.id = c.partition WHERE c.vectors IS NULL"
            f" AND p.name {'' if of_folders else 'NOT '}LIKE '{FOLDERS}%' LIMIT ?",
            (limit,),
        )
        return {int(r[0]): chunking.windows_of(str(r[1]), str(r[2])) for r in rows}


class Reader(Protocol):
    """The reading side of the index; used by one thread at a time."""

    tokenize: Tokenize

    def is_current(self) -> bool:
        """False when it must be opened again."""
        ...

    def snapshot(self, deadline: float) -> AbstractContextManager[Header | None]:
        """Search the index as it is now; None while it is not live.

        After `deadline` (monotonic) a search is interrupted.
        """
        ...

    def find(self, request: Request, most: int, *, by_words: bool) -> Candidates:
        """The chunks that the words and the vector of a search find, at most `most` by each.

        When the time is up they are those that were found until then.
        """
        ...

    def chunks(self, partition: str, path: str) -> list[Row]:
        """The first line, last line and text of each chunk of a file."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class Rows(ABC):
    """The place of the index: it opens the index, and begins an empty one where there is none.

    `broken` says that a file cannot be used. `outdated` says that the embedder's vectors
    have another length than the index's, `is_filling` that many are missing still. `generation` is
    another one after each time that the index was begun empty, by whatever program.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.broken = False
        self.outdated = False
        self.is_filling = False
        self.generation = ""

    @property
    def are_there(self) -> bool:
        """True if there is something that can be read."""
        return True

    @abstractmethod
    def need_attention(self) -> bool:
        """True if a sync has something to repair."""

    def can_repair(self, _error: Exception) -> bool:
        """Note what is wrong; True if beginning empty repairs it."""
        return False

    @abstractmethod
    def take_turn(self) -> bool:
        """Take the right to build and to make what is missing; False while another has it."""

    def end_turn(self) -> None:  # noqa: B027 - not all have to
        """Give it back."""

    @abstractmethod
    def store(self) -> Store:
        """The index, or an empty one.

        Raises:
            IndexElsewhere: another program has to begin it.
        """

    @abstractmethod
    def known(self) -> Store | None:
        """The index as far as it is there already."""

    @abstractmethod
    def reader(self) -> Reader:
        """Something to search with, for one thread."""

    @abstractmethod
    def close(self) -> None:
        """Release what it holds."""
