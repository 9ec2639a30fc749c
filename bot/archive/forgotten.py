"""What was forgotten after a backup was made, which stays forgotten when that is restored.

The journal and the database that are there say what that was; or the tables of a server, which has
no journal.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import apsw
import structlog

from bot.archive import container
from bot.errors import ArchiveError
from bot.memory import layout, uses, versions
from bot.memory.night import record as nights
from bot.recovery import TRANSCRIPTS, Restored, note
from bot.sessions import approvals, erasing, journal_records, page_logins, transcript_files
from bot.sessions.belongings import Belongings
from bot.sessions.erasing import Mark
from bot.storage import Database, Transaction, journal
from bot.storage.files import DATABASE_NAME
from bot.storage.sqlite_sql import SqliteTransaction

_MODE = 0o700
Sizes = Mapping[str, int]
_SAYS = frozenset(
    {"forgotten", "dropped", "erased"}
)  # lines of a journal that hold whatever came before

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was forgotten where people talk now.

    `lines` are those of the journal, `spaces` how often something was in each space, and
    `workspace` is where the notes are that say nothing of it any more.
    """

    workspace: Path
    lines: tuple[str, ...] = ()
    spaces: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """How much was forgotten since, and whom a backup still held who was erased since."""

    count: int
    erased: tuple[Belongings, ...] = ()


def of_folder(folder: Path, workspace: Path) -> Forgotten:
    """What was forgotten in a storage folder, by its journal and its database; for a thread.

    Raises:
        ArchiveError: the journal cannot be read.
    """
    lines: dict[str, None] = {}
    spaces: dict[str, int] = {}
    path = folder / DATABASE_NAME
    try:
        for file in (journal.file_of(path), *sorted(folder.glob(f"{container.JOURNAL}.kept-*"))):
            position = 0
            while batch := journal.lines(file, position):
                position += sum(map(len, batch))
                lines |= dict.fromkeys(forgettings(batch))
    except OSError as exc:
        raise ArchiveError(
            f"The journal in {folder} cannot be read: {exc.strerror}. It says what was forgotten, "
            "so nothing is restored without it. Nothing was changed: mend that, or move it away."
        ) from exc
    if path.exists():
        try:
            connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            try:
                tx = SqliteTransaction(connection)
                rows = tx.execute("SELECT line FROM journal ORDER BY seq")
                lines |= dict.fromkeys(forgettings([str(row[0]).encode() for row in rows]))
                spaces = versions.numbers(tx)
            finally:
                connection.close()
        except apsw.Error as exc:  # it may be what a backup is restored for
            log.warning("archive.database_unreadable", error=type(exc).__name__)
    return Forgotten(workspace, tuple(lines), tuple(spaces.items()))


def forgettings(batch: Iterable[bytes]) -> Iterator[str]:
    """Those lines of a journal that say what was forgotten."""
    for raw in batch:
        clean = raw.strip(b"\0\n")
        record = journal_records.parse(clean)
        if record is not None and record.kind in _SAYS:
            yield clean.decode()


async def settle(database: Database, forgotten: Forgotten, name: str, now: int) -> Settled:
    """Let a restored database know what was forgotten since.

    What was asked, who was let in and what notes said before may be over since, too.

    Raises:
        StorageError: the disk does not take it.
    """
    known = await database.read(journal.digests)
    new = [line for line in forgotten.lines if hash(line) not in known]

    def work(tx: Transaction) -> Settled:
        if journal.end(tx) == len(journal.HEADER):  # it comes from a server, which has none
            for line in journal_records.everything(tx):
                tx.note(line)
        subjects: set[str] = set()
        erased: list[Belongings] = []
        for line in new:
            record = journal_records.parse(line.encode())
            if record is not None:
                if (again := erasing.apply(tx, line, record, now)) is not None:
                    erased.append(again.theirs)
                tx.note(line)
                subjects.add(record.subject)
        for space, number in forgotten.spaces:
            tx.execute(
                "INSERT INTO forgotten_spaces(space, number) VALUES (?, ?) ON CONFLICT(space) "
                "DO UPDATE SET number = max(forgotten_spaces.number, excluded.number)",
                (space, number),
            )
        approvals.drop_all(tx)
        page_logins.drop_all(tx)
        versions.clear(tx)
        uses.clear(tx)
        nights.clear(tx)
        note(tx, Restored(now, name, counts={"forgotten": len(subjects)}))
        return Settled(len(subjects), tuple(erased))

    return await database.write(work)


def marks(forgotten: Forgotten, known: frozenset[int]) -> list[Mark]:
    """Who was erased, by lines that a restored journal does not know."""
    lines = (line for line in forgotten.lines if hash(line) not in known)
    records = (journal_records.parse(line.encode()) for line in lines)
    return [erasing.mark_of(each.data) for each in records if each and each.kind == "erased"]


def leave(
    marked: Collection[Mark], settled: Settled, unpacked: Path, workspace: Path, sizes: Sizes
) -> None:
    """Take the files out of a backup of whoever was erased since; for a thread.

    `unpacked` is its database, with transcripts and journals beside it, and `sizes` how long the
    transcripts must be now: the others are written anew by the next start, or not at all.

    Raises:
        ArchiveError: one cannot be removed.
    """
    transcripts, people = unpacked.parent / TRANSCRIPTS, workspace / layout.PEOPLE
    try:
        for folder in [*people.iterdir()] if people.is_dir() else []:
            if any(mark.is_of(f"{layout.PEOPLE}/{folder.name}") for mark in marked):
                shutil.rmtree(folder)
        for path in [*transcript_files.everything(transcripts)]:
            name, _, kept = path.name.partition(".jsonl")
            if kept or sizes.get(name) != path.stat().st_size:
                path.unlink()
        for theirs in settled.erased:
            journal.drop_kept(journal.file_of(unpacked), partial(erasing.is_about, theirs))
    except OSError as exc:
        raise ArchiveError(f"{exc.filename} cannot be removed: {exc.strerror}.") from exc


def keep_notes(workspace: Path, forgotten: Forgotten, before: Mapping[str, int]) -> int:
    """Have the notes as they are now of whoever had something forgotten since; how many there are.

    Nothing says which words those were, so what the backup has of these notes is taken out of its
    `workspace`. `before` is how often something had been forgotten when it was made.

    Raises:
        ArchiveError: the disk does not take them.
    """
    spaces = {space for space, number in forgotten.spaces if number > before.get(space, 0)}
    if not spaces:
        return 0
    try:
        for path in _notes(workspace, spaces):
            (workspace / path).unlink()
        kept = 0
        for path in _notes(forgotten.workspace, spaces):
            target = workspace / path
            target.parent.mkdir(mode=_MODE, parents=True, exist_ok=True)
            shutil.copy2(forgotten.workspace / path, target)
            with target.open("rb") as file:
                os.fsync(file.fileno())
            kept += 1
    except OSError as exc:
        raise ArchiveError(f"A note cannot be kept: {exc.strerror}. Nothing was changed.") from exc
    return kept


def _notes(workspace: Path, spaces: set[str]) -> list[PurePosixPath]:
    """The notes of these spaces, by their paths below the workspace."""
    found: list[PurePosixPath] = []
    for parent, _, names in os.walk(workspace):
        for name in names:
            path = PurePosixPath(Path(parent, name).relative_to(workspace).as_posix())
            located = layout.locate(path)
            is_plain = Path(parent, name).is_file() and not Path(parent, name).is_symlink()
            if located is not None and located.space in spaces and is_plain:
                found.append(path)
    return found
