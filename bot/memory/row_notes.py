"""Notes as rows of a database, which many nodes read and write: still Markdown, each a whole text.

Where files exchange names, here a row is changed only while it has the version that was read.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeVar

import structlog

from bot.clock import Clock
from bot.coordination import Coordination, Event
from bot.errors import FenceLost, NotVisible, StorageError, ToolError
from bot.identity.view import MAIN_SPACE
from bot.invocation import confidant
from bot.memory import layout, note_store
from bot.memory.note_store import (
    FORGOTTEN,
    KEEPS_CHANGING,
    TRIES,
    NotesUnreachable,
    Seen,
    Watch,
    must_fit,
)
from bot.storage import SharedDatabase, Transaction, marks

T = TypeVar("T")

log = structlog.get_logger(__name__)


class RowNotes:
    """`bot.memory.note_store.NoteStore` over the table `notes`."""

    def __init__(
        self,
        database: SharedDatabase,
        coordination: Coordination,
        clock: Clock,
        *,
        instead_of: Path | None = None,
    ) -> None:
        """Before `coordination` starts, for it tells what other nodes write.

        That the notes of the folder `instead_of` are not read is said once.
        """
        self._database = database
        self._instead_of = instead_of
        self._clock = clock
        self._on_change: Callable[[], None] = lambda: None
        coordination.on("notes", self._heard)

    def walk(
        self,
        folders: tuple[str, ...],
        wanted: Callable[[str], bool],
        depth: int,
        refused: dict[str, str] | None = None,
    ) -> Iterator[Seen]:
        """See `NoteStore.walk`. No folder is refused: there are only rows."""
        above = "".join(f"{part}/" for part in folders)

        def work(tx: Transaction) -> list[Seen]:
            columns = "SELECT path, changed_at, size, version FROM notes"
            # "0" follows "/": what begins with a folder lies between the two.
            rows = (
                tx.execute(f"{columns} WHERE path >= ? AND path < ?", (above, f"{above[:-1]}0"))
                if above
                else tx.execute(columns)
            )
            return [seen_of(*row) for row in rows]

        found: list[tuple[list[tuple[int, str]], Seen]] = []
        for seen in self._read(work):
            *inner, name = seen.path[len(above) :].split("/")
            if len(inner) < depth and wanted(name) and not any(map(wanted, inner)):
                found.append(([*((1, part) for part in inner), (0, name)], seen))
        return iter([seen for _, seen in sorted(found)])

    def read(self, path: str, limit: int) -> tuple[bytes, Seen]:
        """See `NoteStore.read`."""
        _must_be_plain(path)
        rows = self._read(
            lambda tx: tx.execute(
                "SELECT text, path, changed_at, size, version FROM notes WHERE path = ?", (path,)
            )
        )
        if not rows:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        text, *seen = rows[0]
        return str(text).encode()[:limit], seen_of(*seen)

    def append(self, path: str, lines: str, heading: str, watch: Watch | None = None) -> int:
        """See `NoteStore.append`."""
        _must_be_plain(path)
        added = lines.encode("utf-8", "replace").decode()

        def work(tx: Transaction) -> int:
            before, version = _note(tx, path)
            lead = heading if not before else "" if before.endswith("\n") else "\n"
            _put(tx, path, before + lead + added, version, self._clock())
            return (before + lead).count("\n") + 1

        return self._write(work, watch)

    def rewrite(
        self, path: str, change: Callable[[bytes], bytes], watch: Watch | None = None
    ) -> bytes:
        """See `NoteStore.rewrite`."""
        _must_be_plain(path)
        for _ in range(TRIES):
            text, version = self._read(lambda tx: _note(tx, path))
            before = text.encode()
            must_fit(len(before))
            data = change(before)
            if version and data == before:
                return data
            swap = partial(_swap, path=path, text=data.decode(), version=version, now=self._clock())
            if self._write(swap, watch):
                return data
        raise ToolError(KEEPS_CHANGING)

    def remove(self, path: str, before: bytes) -> bool:
        """See `NoteStore.remove`."""
        _must_be_plain(path)

        def work(tx: Transaction) -> bool:
            text, version = _note(tx, path)
            if not version or text.encode() != before:
                return False
            tx.execute("DELETE FROM notes WHERE path = ?", (path,))
            tx.publish("notes", path)
            return True

        return self._write(work, None)

    def can_write(self, folders: tuple[str, ...]) -> bool:
        """Always: whether the database takes it is seen when it is asked."""
        return True

    def make(self) -> None:
        """Nothing: the table is made with all others."""

    def prepare(self) -> int:
        """See `NoteStore.prepare`; templates are copied where there is no persona file at all."""
        if self._instead_of is not None and next(self._instead_of.rglob(f"*{layout.SUFFIX}"), None):
            log.warning(
                "workspace.not_read",
                folder=str(self._instead_of),
                why="[storage] url is set: notes are rows of the database",
                do=f"`{confidant('move')}` copies what the folder holds there",
            )
        templates = layout.templates()

        def work(tx: Transaction) -> int:
            among = f"path IN ({marks(layout.BOOTSTRAP)})"
            if tx.execute(f"SELECT 1 FROM notes WHERE {among}", layout.BOOTSTRAP):
                return 0
            for name, text in templates.items():
                _put(tx, name, text, 0, self._clock())
            return len(templates)

        if copied := self._write(work, None):
            log.info("workspace.prepared", notes=copied)
        return copied

    async def tidy(self) -> None:
        """Let go of forgotten words that nobody can write any more."""
        now = self._clock()
        try:
            await self._database.write(lambda tx: note_store.clear_forgettings(tx, now))
        except StorageError as error:  # the next time will do
            log.warning("memory.not_tidied", error=type(error).__name__)

    async def watch(
        self, on_change: Callable[[], None], on_state: Callable[[str], None], stop: asyncio.Event
    ) -> None:
        """See `NoteStore.watch`: other nodes tell it."""
        self._on_change = on_change
        on_state("")
        await stop.wait()

    async def begin_watch(self, watch: Watch) -> None:
        """See `NoteStore.begin_watch`."""
        watch.number = await self._database.read(
            lambda tx: note_store.last_forgetting(tx, watch.space)
        )

    async def forgot(self, space: str, words: str) -> None:
        """See `NoteStore.forgot`."""
        now = self._clock()

        def work(tx: Transaction) -> None:
            note_store.clear_forgettings(tx, now)
            note_store.tell_forgetting(tx, space, words, now)

        await self._database.write(work)

    async def _heard(self, _event: Event) -> None:
        self._on_change()

    def _read(self, work: Callable[[Transaction], T]) -> T:
        try:
            return self._database.read_now(work)
        except StorageError as error:
            raise NotesUnreachable(str(error)) from error

    def _write(self, work: Callable[[Transaction], T], watch: Watch | None) -> T:
        """Run `work` unless something was forgotten since `watch` began, in its transaction."""

        def checked(tx: Transaction) -> T:
            if watch is not None and (words := note_store.heard_forgetting(tx, watch)):
                raise _Forgotten(words)
            return work(tx)

        try:
            return self._database.write_now(checked)
        except _Forgotten as error:
            if watch is not None:
                watch.words[:] = error.words
            raise ToolError(FORGOTTEN) from error
        except FenceLost:
            raise
        except StorageError as error:
            raise NotesUnreachable(str(error)) from error


class _Forgotten(Exception):
    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__()
        self.words = words


def space_of(path: str) -> str:
    """The space that a path below the workspace lies in."""
    space, inner = layout.space_within(PurePosixPath(path).parts)
    return space if inner else MAIN_SPACE


def _must_be_plain(path: str) -> None:
    if not all(map(layout.is_plain, path.split("/"))):
        raise NotVisible


def seen_of(path: str, changed_at: int, size: int, version: int) -> Seen:
    """A row as it was come across."""
    return Seen(path, (changed_at * 1_000_000, size, version))


def _note(tx: Transaction, path: str) -> tuple[str, int]:
    """The text of a note and its version, which is 0 when there is none."""
    found = tx.execute("SELECT text, version FROM notes WHERE path = ?", (path,))
    return (str(found[0][0]), int(found[0][1])) if found else ("", 0)


def _put(tx: Transaction, path: str, text: str, version: int, now: int) -> None:
    """Store a note in the transaction that has read its version, 0 for one that is new."""
    size = len(text.encode())
    must_fit(size)
    if version:
        tx.execute(
            "UPDATE notes SET version = ?, text = ?, size = ?, changed_at = ? WHERE path = ?",
            (version + 1, text, size, now, path),
        )
    else:
        tx.execute(
            "INSERT INTO notes(path, space, version, text, size, made_at, changed_at) "
            "VALUES (?, ?, 1, ?, ?, ?, ?)",
            (path, space_of(path), text, size, now, now),
        )
    tx.publish("notes", path)


def _swap(tx: Transaction, *, path: str, text: str, version: int, now: int) -> bool:
    """Store a note unless it has another version by now."""
    if _note(tx, path)[1] != version:
        return False
    _put(tx, path, text, version, now)
    return True
