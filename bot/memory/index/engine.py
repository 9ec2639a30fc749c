"""The seams between an index and where its rows are: a file of this machine, or a shared database.

`Rows` knows the generations, `Store` writes one of them, in transactions that are a `Writing` each,
and `Reader` finds candidates in the live one. All wait, so they are used in threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

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


class Packed(NamedTuple):
    """The vectors of a chunk's windows, their signs, and the signs of their mean."""

    vectors: bytes
    signs: bytes
    mean: bytes


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


Chunks = Sequence[tuple[Passage, Packed | None]]
"""The chunks of a source, each with its vectors if it has any."""


class Writing(ABC):
    """A transaction on one generation.

    In its SQL the tables are called `generations@`, `sources@`, `chunks@` and `partitions@`; what
    is read from the last are the generation's own.
    """

    @abstractmethod
    def run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """The rows of one statement."""

    def put(self, source: SourceRow, chunks: Chunks) -> None:
        """Store a source with its chunks and their vectors, in the place of what it was before.

        One that another program has stored just so meanwhile is left as it is.
        """
        named = (source.partition,)
        known = self.run("SELECT id FROM partitions@ WHERE name = ?", named)
        partition = int((known or self._add_partition(source.partition))[0][0])
        old = self.run(
            "SELECT id, hash, mtime, size, inode, at, problem FROM sources@"
            " WHERE kind = ? AND partition = ? AND name = ?",
            (source.kind, partition, source.name),
        )
        for identifier, hashed, *rest in old:
            if (bytes(hashed), *rest) == source.look:
                return
            self.drop(int(identifier))
        rows = self.run(
            """INSERT INTO sources@(kind, partition, name, space, path, hash, mtime, size, inode,
                   at, problem, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id""",
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
                "UPDATE sources@ SET problem = ? WHERE problem = '' AND kind <> 'transcript' "
                "AND id = (SELECT source FROM chunks@ WHERE id = ?)",
                (problem, chunk),
            )
        rows = self.run("SELECT partition FROM chunks@ WHERE id = ?", (chunk,))
        if packed is not None and rows:
            self._put_vectors(chunk, int(rows[0][0]), packed)

    def drop(self, source: int) -> list[bool]:
        """Take a source out; for each of its chunks, whether it had vectors."""
        rows = self.run(
            "SELECT id, partition, length, vectors IS NOT NULL FROM chunks@ WHERE source = ?",
            (source,),
        )
        self._unindex([int(row[0]) for row in rows])
        self.run("DELETE FROM chunks@ WHERE source = ?", (source,))
        self.run("DELETE FROM sources@ WHERE id = ?", (source,))
        if rows:
            self._count(int(rows[0][1]), -len(rows), -sum(int(row[2]) for row in rows))
        return [bool(row[3]) for row in rows]

    def erase(
        self, paths: Sequence[str], texts: Sequence[str], partitions: Sequence[str]
    ) -> tuple[Forgotten, list[str]]:
        """See `Store.forget`; the texts are folded."""
        wanted = {*self._holding(texts, partitions)} if texts and partitions else set[int]()
        if paths:
            named = f"kind = 'memory' AND name IN ({marks(paths)})"
            wanted |= {int(r[0]) for r in self.run(f"SELECT id FROM sources@ WHERE {named}", paths)}
        of_vectors: list[str] = []
        removed: list[bool] = []
        documents = 0
        for source in sorted(wanted):
            chunks = self.run("SELECT heading, body FROM chunks@ WHERE source = ?", (source,))
            for heading, body in chunks:
                of_vectors += chunking.windows_of(str(heading), str(body))
            own = self.run(f"SELECT s.kind FROM {_OF} WHERE s.id = ?", (source,))
            gone = self.drop(source)
            for (kind,) in own:
                removed += gone
                documents += kind == "transcript"
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
    def _unindex(self, chunks: Sequence[int]) -> None:
        """Let chunks be found no more."""

    @abstractmethod
    def _holding(self, texts: Sequence[str], partitions: Sequence[str]) -> Iterable[int]:
        """Every source in some partitions that holds one of the folded texts."""

    def _count(self, partition: int, chunks: int, length: int) -> None:
        self.run(
            "UPDATE partitions@ SET chunks = chunks + ?, length = length + ? WHERE id = ?",
            (chunks, length, partition),
        )


_OF = "sources@ s JOIN partitions@ p ON p.id = s.partition"


class Store(ABC):
    """The writing side of one generation; used by one thread at a time.

    Its SQL is as that of `Writing`.
    """

    def __init__(self, generation: Generation) -> None:
        self.generation = generation

    @abstractmethod
    def run(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """The rows of one statement."""

    @abstractmethod
    def commit(self, work: Callable[[Writing], T]) -> T:
        """Do something in one transaction; it may be run more than once."""

    @abstractmethod
    def fit(self, dims: int) -> None:
        """Make the length of the first vectors the index's."""

    def dims(self) -> int:
        """The length of the vectors; 0 until there are any."""
        rows = self.run("SELECT dims FROM generations@ WHERE id = ?", (self.generation.id,))
        return int(rows[0][0]) if rows else 0

    def remove(self, sources: Iterable[int]) -> None:
        """Take sources out."""
        gone = tuple(sources)
        self.commit(lambda each: [each.drop(source) for source in gone])

    def forget(
        self, paths: Sequence[str], texts: Sequence[str], partitions: Sequence[str]
    ) -> tuple[Forgotten, list[str]]:
        """Remove notes by path, and every source in some partitions that holds one of the texts.

        Nothing of them is left, in no generation. Also the texts that their vectors were of.
        """
        wanted = [each for each in map(fulltext.folded, texts) if each]
        return self.commit(lambda each: each.erase(paths, wanted, partitions))

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
            " WHERE c.vectors IS NULL"
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
            " JOIN partitions@ p ON p.id = c.partition WHERE c.vectors IS NULL"
            f" AND p.name {'' if of_folders else 'NOT '}LIKE '{FOLDERS}%' LIMIT ?",
            (limit,),
        )
        return {int(r[0]): chunking.windows_of(str(r[1]), str(r[2])) for r in rows}


class Reader(Protocol):
    """The reading side of the live generation; used by one thread at a time."""

    tokenize: Tokenize

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


class Rows(ABC):
    """The generations: of which one it is that is written to, and whether another one is due.

    `broken` says that what is there cannot be used; `generation` is another one after each rebuild,
    by whatever program. `outdated` is the id of the generation whose vectors have another length
    than the embedder's, or 0.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.broken = False
        self.outdated = 0
        self.generation = ""
        self._embedder = embedder
        self._at_work = 0  # the generation that is written to, or was last
        self._opened: int = 0  # how often a place for rows was
        self._known: Counts | None = None  # what is in the live rows, or was

    @property
    def are_there(self) -> bool:
        """True if there is something that can be read."""
        return True

    @abstractmethod
    def need_attention(self) -> bool:
        """True if a sync has something to repair, or a rebuild is due."""

    def can_repair(self, error: Exception) -> bool:
        """Note what is wrong; True if a rebuild repairs it."""
        if isinstance(error, DimsChanged):
            self.outdated = self._at_work
            return True
        return False

    def tidy(self) -> None:  # noqa: B027 - not all have to
        """Open it at the start, without what earlier programs left."""

    @abstractmethod
    def take_turn(self) -> bool:
        """Take the right to build; False while another program has it."""

    def end_turn(self) -> None:  # noqa: B027 - not all have to
        """Give it back."""

    def fitting(self) -> Store | None:
        """The live rows, or None when there are none or others have to be made."""
        live = self._usable(self._live())
        if live is None or not live.is_made_by(identity(self._embedder)):
            return None
        self.outdated = 0
        return self._at(live)

    @abstractmethod
    def begin(self) -> tuple[Store, list[SourceRow]]:
        """Rows to fill, and the documents that were in the live ones."""

    @abstractmethod
    def put_live(self, store: Store) -> None:
        """Let searches read what was built, and drop all else."""

    def live(self) -> Store | None:
        """The rows that searches read; None while there are none that can be written to."""
        live = None if self.need_attention() else self._live()
        return self._at(live) if live is not None else None

    def count(self) -> Counts | None:
        """The contents in numbers: those of the rows before while others are made, if there are."""
        if (live := self._live()) is not None:
            self._known = self._store(live).counts()
        return self._known

    def building(self) -> Building | None:
        """The progress of a rebuild; None while the live rows will do."""
        live, made = self._live(), identity(self._embedder)
        usable = self._usable(live)
        if usable is not None and usable.is_made_by(made):
            return None
        filling = self._filling()
        done = self._store(filling).counts().files if filling is not None else 0
        before = self._store(live).counts() if live is not None else self._known
        return Building(
            done,
            max(done, before.files if before is not None else 0),
            beside=live is not None,
            by_meaning=usable is not None and usable.embedder == made,
        )

    @abstractmethod
    def reader(self) -> Reader:
        """Something to search with, for one thread."""

    @abstractmethod
    def close(self) -> None:
        """Release what it holds."""

    @abstractmethod
    def _generations(self, which: str, parameters: Sequence[Value] = ()) -> Sequence[Generation]:
        """The generations that a condition names, in their order."""

    @abstractmethod
    def _store(self, generation: Generation) -> Store:
        """The writing side of a generation."""

    def _live(self) -> Generation | None:
        """The generation that searches read, if there is one."""
        return next(iter(self._generations("is_live = 1")), None)

    def _filling(self) -> Generation | None:
        """The generation that was begun for the embedder and is not outdated, if there is one."""
        found = self._generations(FILLING, filling_for(self._embedder, self.outdated))
        return next(iter(found), None)

    def _usable(self, live: Generation | None) -> Generation | None:
        is_usable = live is not None and live.id != self.outdated and not self.broken
        return live if is_usable else None

    def _at(self, generation: Generation) -> Store:
        """The writing side of a generation, which is worked at from now on."""
        self._at_work = generation.id
        if generation.is_live:
            self.generation = f"{self._opened}.{generation.id}"
        return self._store(generation)


FILLING = "is_live = 0 AND (chunker, provider, model, endpoint) = (?, ?, ?, ?) AND id <> ?"


def filling_for(embedder: Embedder, outdated: int) -> Sequence[Value]:
    """The parameters of `FILLING`: of rows that an embedder made, but those that are outdated."""
    made = identity(embedder)
    return (chunking.VERSION, made.provider, made.model, made.endpoint, outdated)
