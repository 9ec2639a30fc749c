"""The seams between an index and where its rows are: a file of this machine, or a shared database.

`Rows` knows the generations, `Store` writes one of them, `Reader` finds candidates in the live one,
and `Cache` keeps vectors that were made before. All wait, so they are used in threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from bot.identity.view import FOLDERS
from bot.memory import chunking, layout
from bot.memory.chunking import Passage
from bot.memory.embed import Identity
from bot.memory.index import note_files
from bot.memory.index.note_files import Known, Note
from bot.memory.note_store import NoteStore
from bot.memory.ranking import Candidates, Request
from bot.memory.search import Building, Counts, Forgotten, Probe, Source
from bot.memory.words import Tokenize
from bot.storage import Row, Value

T = TypeVar("T")


class DimsChanged(Exception):
    """The embedder's vectors have another length than those in the index."""

    def __init__(self, dims: int) -> None:
        super().__init__(f"vectors have {dims} dimensions now")
        self.dims = dims


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

    def row(self, partition: int) -> tuple[Value, ...]:
        """As a row of the sources: kind, partition, and everything from `name` on."""
        return (
            *(self.kind, partition, self.name, self.space, self.path),
            *(*self.look, self.text),
        )


class Packed(NamedTuple):
    """A chunk's vectors: the signs of their mean, and its windows' with their signs, in a row."""

    bits: bytes
    vectors: bytes
    signs: bytes


@dataclass(frozen=True, slots=True)
class Generation:
    """One set of rows, and what it was made with; vectors of another embedder are no match.

    `epoch` moves when chunks get vectors later than others after them.
    """

    id: int
    is_live: bool
    chunker: int
    embedder: Identity
    dims: int
    epoch: int = 0

    def is_made_by(self, embedder: Identity) -> bool:
        """True when its rows are what an embedder and today's chunks would give."""
        return (self.embedder, self.chunker) == (embedder, chunking.VERSION)


class StoreWriting(Protocol):
    """A transaction on one generation."""

    def put(self, source: SourceRow, chunks: Sequence[tuple[Passage, Packed | None]]) -> None:
        """Store a source with its chunks and their vectors, in the place of what it was before.

        One that another program has stored just so meanwhile is left as it is.
        """
        ...

    def set_vectors(self, chunk: int, packed: Packed | None, problem: str) -> None:
        """Give a chunk its vectors, if there are any, and say what is wrong with its note."""
        ...


_OF = "sources@ s JOIN partitions@ p ON p.id = s.partition"


class Store(ABC):
    """The writing side of one generation; used by one thread at a time.

    In its SQL the tables of the generation are called `sources@`, `chunks@` and `partitions@`.
    """

    bare_column: ClassVar[str]
    """A column of chunks that is NULL until they have vectors."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation

    @abstractmethod
    def run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """The rows of one statement."""

    @abstractmethod
    def commit(self, work: Callable[[StoreWriting], T]) -> T:
        """Do something in one transaction; it may be run more than once."""

    @abstractmethod
    def dims(self) -> int:
        """The length of the vectors; 0 until there are any."""

    @abstractmethod
    def fit(self, dims: int) -> None:
        """Make the length of the first vectors the index's."""

    @abstractmethod
    def remove(self, sources: Iterable[int]) -> None:
        """Take sources out."""

    @abstractmethod
    def forget(
        self, paths: Sequence[str], texts: Sequence[str], partitions: Sequence[str]
    ) -> tuple[Forgotten, list[str]]:
        """Remove notes by path, and every source in some partitions that holds one of the texts.

        Nothing of them is left. Also the texts that their vectors were of.
        """

    def counts(self) -> Counts:
        """The contents in numbers; `size` is 0."""
        files, documents = self.run(
            "SELECT count(*) FILTER (WHERE s.kind = 'memory'),"
            f" count(*) FILTER (WHERE s.kind = 'transcript') FROM {_OF}"
        )[0]
        spaces = Counter[str]()
        for name, chunks in self.run("SELECT name, chunks FROM partitions@ p WHERE chunks > 0"):
            spaces[layout.space_of(name)] += chunks
        problems = self.run(f"SELECT s.name, s.problem FROM {_OF} WHERE s.problem <> ''")
        bare = self.run(
            "SELECT count(*) FROM chunks@ c JOIN partitions@ p ON p.id = c.partition"
            f" WHERE c.{self.bare_column} IS NULL"
        )
        return Counts(
            files=files,
            documents=documents,
            chunks=spaces.total(),
            vectors=spaces.total() - bare[0][0],
            dims=self.dims(),
            spaces=dict(spaces),
            problems=dict(problems),
        )

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

    def documents(self) -> list[SourceRow]:
        """Every document with its text."""
        rows = self.run(
            "SELECT p.name, s.name, s.space, s.path, s.hash, s.mtime, s.size, s.inode, s.at,"
            f" s.problem, s.text FROM {_OF} WHERE s.kind = 'transcript'"
        )
        return [SourceRow("transcript", *row) for row in rows]

    def text_of(self, name: str) -> str | None:
        """The exact text of a note when it was indexed; None when that is not known."""
        where = "s.kind = 'memory' AND s.name = ?"
        for source, hashed in self.run(f"SELECT s.id, s.hash FROM {_OF} WHERE {where}", (name,)):
            chunks = self.run(
                "SELECT start_line, end_line, body FROM chunks@ WHERE source = ? ORDER BY id",
                (source,),
            )
            return note_files.restored(chunks, bytes(hashed))
        return None

    def bare(self, limit: int, *, of_folders: bool = False) -> dict[int, tuple[str, ...]]:
        """Chunks that have no vectors yet, and the texts to make them of.

        Those of folders of documents are many, and notes do not wait for them.
        """
        rows = self.run(
            "SELECT c.id, c.heading, c.body FROM chunks@ c"
            f" JOIN partitions@ p ON p.id = c.partition WHERE c.{self.bare_column} IS NULL"
            f" AND p.name {'' if of_folders else 'NOT '}LIKE '{FOLDERS}%' LIMIT ?",
            (limit,),
        )
        return {int(r[0]): chunking.windows_of(str(r[1]), str(r[2])) for r in rows}


class Cache(Protocol):
    """Vectors by (provider, model, endpoint, hash of the text); it never makes anything fail.

    An empty vector marks a text that the embedder refuses, so that it is not asked for it again.
    """

    def get(self, identity: Identity, hashes: Sequence[bytes], now: int) -> dict[bytes, bytes]:
        """The packed vectors that are known, by hash."""
        ...

    def put(self, identity: Identity, vectors: Mapping[bytes, bytes], dims: int, now: int) -> None:
        """Keep packed vectors."""
        ...

    def forget(self, hashes: Iterable[bytes]) -> int:
        """Drop what was kept for these texts, from whatever embedder; returns how many."""
        ...

    def prune(self, now: int) -> None:
        """Drop what was not used for a long time."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class Reader(Protocol):
    """The reading side of the live generation; used by one thread at a time."""

    tokenize: Tokenize

    @property
    def slow(self) -> str:
        """Why vectors are compared in a slower way; empty when they are not."""
        ...

    def is_current(self) -> bool:
        """False when it must be opened again."""
        ...

    def snapshot(self, deadline: float) -> AbstractContextManager[Generation | None]:
        """Search the live generation as it is now; None while there is none.

        After `deadline` (monotonic) a search is interrupted.
        """
        ...

    def find(self, request: Request, most: int, *, by_words: bool) -> Candidates:
        """The chunks that the words and the vector of a search find, at most `most` by each.

        When the time is up they are those that were found until then.
        """
        ...

    def chunks(self, partition: str, path: str) -> list[Row]:
        """The first line, last line and text of each chunk of a file in the live generation."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class Rows(Protocol):
    """The generations: of which one it is that is written to, and whether another one is due.

    `broken` says that what is there cannot be used; `generation` is another one after each rebuild,
    by whatever program. `outdated` is the id of the generation whose vectors have another length
    than the embedder's, or 0.
    """

    broken: bool
    outdated: int
    generation: str

    @property
    def are_there(self) -> bool:
        """True if there is something that can be read."""
        ...

    def need_attention(self) -> bool:
        """True if a sync has something to repair, or a rebuild is due."""
        ...

    def can_mend(self, error: Exception) -> bool:
        """Note what is wrong; True when other rows mend it."""
        ...

    def tidy(self) -> None:
        """Open it at the start, without what earlier programs left."""
        ...

    def take_turn(self) -> bool:
        """Take the right to build; False while another program has it."""
        ...

    def end_turn(self) -> None:
        """Give it back."""
        ...

    def fitting(self) -> Store | None:
        """The live rows, or None when there are none or others have to be made."""
        ...

    def begin(self) -> tuple[Store, list[SourceRow]]:
        """Rows to fill, and the documents that were in the live ones."""
        ...

    def put_live(self, store: Store) -> None:
        """Let searches read what was built, and drop all else."""
        ...

    def live(self) -> Store | None:
        """The rows that searches read; None while there are none that can be written to."""
        ...

    def count(self, *, is_well: bool) -> tuple[Counts | None, str]:
        """The contents in numbers, and what is missing."""
        ...

    def building(self) -> Building | None:
        """The progress of a rebuild; None while the live rows will do."""
        ...

    def reader(self) -> Reader:
        """Something to search with, for one thread."""
        ...

    def probe(self) -> Probe:
        """Check that vectors can be compared in the quick way here."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...
