"""The index file and its generations, as they come and go."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import structlog

from bot.memory import chunking
from bot.memory.embed import Embedder, identity
from bot.memory.index import schema
from bot.memory.index.engine import DimsChanged, SourceRow, Store, mismatch
from bot.memory.index.engine import Generation as AnyGeneration
from bot.memory.index.queries import FileReader
from bot.memory.index.schema import EXTENSION_ERRORS, Extension, Generation, IndexFile
from bot.memory.index.store import FileStore
from bot.memory.note_store import NoteStore
from bot.memory.search import BEING_BUILT, Building, Counts, Probe

# What a new file mends: one that is damaged, missing, or not what it should be.
MENDED = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.SQLError,
    apsw.CantOpenError,
    apsw.IOError,
    apsw.ReadOnlyError,
)

log = structlog.get_logger(__name__)


class FileRows:  # they share what is known of the file
    """`bot.memory.index.engine.Rows` in a file; used by one thread, but for `reader` and `probe`.

    `broken` says that the file was found damaged.
    """

    def __init__(
        self, notes: NoteStore, folder: Path, embedder: Embedder, extension: Extension
    ) -> None:
        self.path = folder / schema.NAME
        self.broken = False
        self.generation = ""  # another one after each rebuild, by whatever program
        self._notes = notes
        self._embedder = embedder
        self._extension = extension
        self._file: IndexFile | None = None
        self._opened = 0  # how often a file was
        self._turn: int | None = None  # held while this program builds
        self._at_work = 0  # the generation that is written to, or was last
        self._outdated = 0  # the generation whose vectors have another length than the embedder's
        self._saved: list[SourceRow] = []  # the documents of one that is given up
        self._known: Counts | None = None  # what is in the file, or was

    @property
    def are_there(self) -> bool:
        """Whether there is a file that can be read."""
        opened = self._file
        return opened is not None and opened.is_there()

    def need_attention(self) -> bool:
        """Whether the file is damaged or gone, or a rebuild is due."""
        return self.broken or bool(self._outdated) or not self.are_there

    def mismatch(self, live: AnyGeneration, dims: int) -> str:
        """Why vectors of the embedder cannot be compared with an index's; empty when they can."""
        why, is_outdated = mismatch(live, self._embedder, dims)
        if is_outdated:
            self._outdated = live.id
        return why

    def can_mend(self, error: Exception) -> bool:
        """Note what is wrong with the file; True when another one, or other rows, mend it."""
        if isinstance(error, DimsChanged):
            self._outdated = self._at_work
        elif isinstance(error, MENDED):
            self.broken = not self._are_superseded()
            log.warning("memory.index_rebuilt", reason=type(error).__name__)
        else:
            return False
        return True

    def tidy(self) -> None:
        """Open the file at the start, without what earlier programs left."""
        opened = self._opened_file()
        if (live := opened.live()) is not None:
            FileStore(opened, live).commit(FileStore.rebuild_vectors)

    def close(self) -> None:
        """Release the file."""
        opened, self._file = self._file, None
        if opened is not None:
            opened.close()

    def take_turn(self) -> bool:
        """Take the right to build; False while another program has it."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._turn = schema.claim(self.path.parent)
        return self._turn is not None

    def end_turn(self) -> None:
        """Give it back."""
        turn, self._turn = self._turn, None
        if turn is not None:
            os.close(turn)

    def fitting(self) -> FileStore | None:
        """The live rows, or None when there are none or others have to be made."""
        opened = self._opened_file()
        live = opened.live()
        if (
            live is None
            or live.id == self._outdated
            or not live.is_made_by(identity(self._embedder))
        ):
            return None
        self._outdated = 0
        return self._store(opened, live)

    def begin(self) -> tuple[FileStore, list[SourceRow]]:
        """Rows to fill, and the documents that were in the live ones."""
        opened = self._opened_file()
        self._save(opened)
        begun = opened.begin(chunking.VERSION, identity(self._embedder), self._outdated)
        return self._store(opened, begun), self._saved

    def put_live(self, store: Store) -> None:
        """Let searches read what was built."""
        self._opened_file().put_live(store.generation.id)
        self._outdated, self._saved = 0, []
        self.generation = f"{self._opened}.{store.generation.id}"

    def live(self) -> FileStore | None:
        """The rows that searches read; None while there are none that can be written to."""
        if self._file is None or self.need_attention():
            return None
        live = self._file.live()
        return self._store(self._file, live) if live is not None else None

    def count(self, *, is_well: bool) -> tuple[Counts | None, str]:
        """What there is of what, and what is missing; before the first rows only while all is well.

        While the file is made anew it is what it held before.
        """
        live = self._file.live() if self._file is not None else None
        if self._file is not None and live is not None:
            size = sum(p.stat().st_size for p in self.path.parent.glob(f"{self.path.name}*"))
            self._known = replace(FileStore(self._file, live).counts(), size=size)
            if not self._file.has_vec and self._embedder.provider != "none":
                return self._known, "sqlite-vec cannot be loaded: a slower way is used"
        elif self._known is None and is_well:
            return None, BEING_BUILT
        return self._known, ""

    def building(self) -> Building | None:
        """See `Rows.building`."""
        opened = self._file
        if opened is None:
            return None
        live, made = opened.live(), identity(self._embedder)
        is_usable = live is not None and live.id != self._outdated
        usable = live if is_usable else None
        if usable is not None and usable.is_made_by(made):
            return None
        filling = opened.filling(chunking.VERSION, made, self._outdated)
        done = FileStore(opened, filling).counts().files if filling is not None else 0
        before = FileStore(opened, live).counts() if live is not None else self._known
        return Building(
            done,
            max(done, before.files if before is not None else 0),
            beside=live is not None,
            by_meaning=usable is not None and usable.embedder == made,
        )

    def reader(self) -> FileReader:
        """See `Rows.reader`."""
        return FileReader(self.path, self._extension)

    def probe(self) -> Probe:
        """Whether sqlite-vec can be loaded here."""
        with closing(apsw.Connection(":memory:")) as connection:
            try:
                self._extension(connection)
                ((version,),) = schema.run(connection, "SELECT vec_version()")
            except EXTENSION_ERRORS as error:
                why = f"sqlite-vec cannot be loaded: {type(error).__name__}"
                return Probe(ok=False, detail=why)
            return Probe(ok=True, detail=f"sqlite-vec {version}")

    def _opened_file(self) -> IndexFile:
        """The file that is there; a damaged one is replaced by an empty one."""
        known = self._file
        if known is not None and (self.broken or not known.is_there()):
            self._save(known)
            self._file = None
            known.remove()
        elif known is None and self.broken:
            schema.remove(self.path)
        if self._file is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._notes.make()
            self._file = IndexFile(self.path, self._extension)
            self._opened += 1
            self._at_work = 0
            self.broken = False
        return self._file

    def _store(self, opened: IndexFile, generation: Generation) -> FileStore:
        self._at_work = generation.id
        if generation.is_live:
            self.generation = f"{self._opened}.{generation.id}"
        return FileStore(opened, generation)

    def _save(self, opened: IndexFile) -> None:
        """Keep the documents of an index that is given up, as far as it can still be read."""
        try:
            live = opened.live()
            self._saved = FileStore(opened, live).documents() if live is not None else self._saved
        except apsw.Error as error:  # what was said is added again from the transcripts
            log.warning("memory.documents_unread", error=type(error).__name__)

    def _are_superseded(self) -> bool:
        """Whether another program has built other rows, and dropped those that were at work."""
        try:
            opened = self._file
            return (
                opened is not None
                and opened.is_there()
                and self._at_work > 0
                and not opened.has(self._at_work)
            )
        except apsw.Error:
            return False
