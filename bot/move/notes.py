"""Notes of every space, as files or as rows, to be moved from one to the other byte by byte."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from bot.errors import ConfidantError, StorageError
from bot.memory import disk, layout
from bot.memory.row_notes import space_of
from bot.storage import Database, Transaction, files, upsert

SHOWN = 5  # names in a message
_ALL = 1 << 40  # bytes of a note that are read
_MS = 1_000_000  # ns


@dataclass(frozen=True, slots=True)
class Note:
    """One note: its path below the workspace, its content, and when it changed (ms)."""

    path: str
    data: bytes
    changed_at: int


class Notes(Protocol):
    """Where notes are."""

    async def paths(self) -> Sequence[str]:
        """The paths of all notes, in order.

        Raises:
            ConfidantError: some cannot be looked at.
        """
        ...

    async def read(self, path: str) -> Note:
        """One of them.

        Raises:
            ConfidantError: it cannot be read.
        """
        ...

    async def write(self, note: Note) -> None:
        """Put a note there, in the place of one with its path.

        Raises:
            ConfidantError: it cannot be written.
        """
        ...

    async def others(self) -> int:
        """How many files there are that are no notes, and are not moved."""
        ...


class Files:
    """Notes as files of a workspace."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def paths(self) -> Sequence[str]:
        """See `Notes.paths`."""
        return await asyncio.to_thread(self._paths)

    def _paths(self) -> Sequence[str]:
        if not self._root.is_dir():
            return ()
        refused: dict[str, str] = {}
        try:
            found = disk.walk(self._root, (), layout.is_note, layout.MAX_PARTS, refused)
            paths = sorted(seen.path for seen in found)
        except OSError as exc:
            raise ConfidantError(f"{self._root} cannot be read: {exc.strerror}.") from exc
        if refused:
            names = ", ".join(sorted(refused)[:SHOWN])
            raise ConfidantError(
                f"These folders of {self._root} cannot be looked into: {names}. Nothing is moved "
                "without them: mend their permissions, or take them out of the workspace."
            )
        return paths

    async def read(self, path: str) -> Note:
        """See `Notes.read`."""
        *folders, name = path.split("/")
        try:
            data, status = await asyncio.to_thread(
                disk.read, self._root, tuple(folders), name, _ALL
            )
        except OSError as exc:
            raise ConfidantError(f"The note {path} cannot be read: {exc.strerror}.") from exc
        return Note(path, data, status.st_mtime_ns // _MS)

    async def write(self, note: Note) -> None:
        """See `Notes.write`; it has the time of its last change."""
        try:
            await asyncio.to_thread(self._write, note)
        except OSError as exc:
            raise ConfidantError(
                f"The note {note.path} cannot be written: {exc.strerror}."
            ) from exc

    def _write(self, note: Note) -> None:
        target = self._root / PurePosixPath(note.path)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # No note has such a name, so what a kill leaves of it is none.
        beside = target.with_name(".moving")
        with open(beside, "wb", opener=files.opener) as stream:
            stream.write(note.data)
            stream.flush()
            os.fsync(stream.fileno())
        os.utime(beside, ns=(note.changed_at * _MS, note.changed_at * _MS))
        beside.replace(target)
        files.sync_folder(target.parent)

    async def others(self) -> int:
        """See `Notes.others`."""
        return await asyncio.to_thread(self._others)

    def _others(self) -> int:
        count = sum(len(names) for _, _, names in os.walk(self._root))
        return count - len(self._paths())


class Rows:
    """Notes as rows of the table `notes`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def paths(self) -> Sequence[str]:
        """See `Notes.paths`."""
        rows = await self._database.read(
            lambda tx: tx.execute("SELECT path FROM notes ORDER BY path")
        )
        return [str(path) for (path,) in rows]

    async def read(self, path: str) -> Note:
        """See `Notes.read`."""
        rows = await self._database.read(
            lambda tx: tx.execute("SELECT text, changed_at FROM notes WHERE path = ?", (path,))
        )
        if not rows:
            raise StorageError(f"The note {path} has gone meanwhile.")
        return Note(path, str(rows[0][0]).encode(), int(rows[0][1]))

    async def write(self, note: Note) -> None:
        """See `Notes.write`."""
        text = note.data.decode()
        row = {
            "path": note.path,
            "space": space_of(note.path),
            "version": 1,
            "text": text,
            "size": len(note.data),
            "made_at": note.changed_at,
            "changed_at": note.changed_at,
        }

        def work(tx: Transaction) -> None:
            upsert(tx, "notes", ("path",), row)

        await self._database.write(work)

    async def others(self) -> int:
        """None: there are only rows."""
        return 0


def must_be_text(notes: Sequence[Note]) -> None:
    """Make sure that notes can be rows.

    Raises:
        ConfidantError: some are no text.
    """
    bad = [note.path for note in notes if not _is_text(note.data)]
    if bad:
        names = ", ".join(bad[:SHOWN]) + (", …" if len(bad) > SHOWN else "")
        raise ConfidantError(
            f"These notes are not written in UTF-8, which a database asks for: {names}. Nothing "
            "was moved: save them as UTF-8, or take them out of the workspace."
        )


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
