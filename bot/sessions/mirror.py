"""The live JSONL copy of every transcript, for people and other programs to read.

The database is the truth and knows how long each file must be, so a file that a crash, a full disk
or an editor left different is noticed by its length and written again.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import structlog

from bot.backoff import keep
from bot.errors import StorageError
from bot.sessions import entries, store
from bot.storage import Database, files

# Where the JSONL copy of each transcript is, and how it is written: for threads.
#
# There is a folder for each month, of the sessions that began in it, and one for what was
# imported.

SUFFIX = ".jsonl"
IMPORTED = "imported"  # the folder of what took place elsewhere, whenever that was
MOST_OPEN = 128  # files that are kept open
_BEGAN = re.compile(r"(\d{4})(0[1-9]|1[0-2])\d\d-")


@dataclass(frozen=True, slots=True)
class Found:
    """The file of a session, and how long it is in bytes."""

    id: str
    path: Path
    size: int


def transcript_place(session_id: str) -> str:
    """The folder of a session's file, by its id; empty for an id that says nothing of it."""
    if entries.is_imported(session_id):
        return IMPORTED
    began = _BEGAN.match(session_id)
    return f"{began[1]}-{began[2]}" if began else ""


def path_of(folder: Path, session_id: str) -> Path:
    """The path of a session's file."""
    return folder / transcript_place(session_id) / f"{session_id}{SUFFIX}"


def transcript_places(folder: Path) -> list[Path]:
    """The folder, and those in it: wherever a file may be. None while there is no folder."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as found:
        inner = [Path(each.path) for each in found if each.is_dir(follow_symlinks=False)]
    return [folder, *sorted(inner)]


def found_in(place: Path) -> list[Found]:
    """The files of sessions in one folder."""
    if not place.is_dir():
        return []
    with os.scandir(place) as found:
        return [
            Found(each.name.removesuffix(SUFFIX), Path(each.path), each.stat().st_size)
            for each in found
            if each.name.endswith(SUFFIX) and each.is_file(follow_symlinks=False)
        ]


def all_transcripts(folder: Path) -> Iterator[Path]:
    """All files there are, also those that were set aside."""
    for place in transcript_places(folder):
        yield from (path for path in place.iterdir() if not path.is_dir() or path.is_symlink())


# --- writing --------------------------------------------------------------------------------------


class _Open(NamedTuple):
    """A file that is open: what it is called, and which one that is."""

    file: int
    path: str
    device: int
    inode: int


class OpenFiles:
    """Appends to files and keeps those open that were written to last; for one thread at a time."""

    def __init__(self, folder: Path, most: int = MOST_OPEN) -> None:
        self._folder = folder
        self._most = most
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def append(self, session_id: str, offset: int, data: bytes) -> bool:
        """Add to the end of a file; False, and nothing is added, when that is not at `offset`.

        A file that was deleted, renamed or changed by somebody else meanwhile is noticed.

        Raises:
            OSError: the disk does not take it.
        """
        known = self._open.get(session_id)
        size = _size_of(known) if known is not None else None
        if known is None or size is None:
            self.close(session_id)
            known, size = self._opened(session_id)
        else:
            self._open.move_to_end(session_id)
        if size != offset:
            return False
        try:
            while data:
                data = data[os.write(known.file, data) :]
        except OSError:
            self.close(session_id)
            raise
        return True

    def sync(self, session_id: str) -> None:
        """Let what was added to a file reach the disk.

        Raises:
            OSError: the disk failed, or the file is gone.
        """
        if session_id in self._open:
            os.fsync(self._open[session_id].file)
            return
        with path_of(self._folder, session_id).open("rb") as file:
            os.fsync(file.fileno())

    def close(self, session_id: str) -> None:
        """Keep a file open no more."""
        if (known := self._open.pop(session_id, None)) is not None:
            os.close(known.file)

    def close_all(self) -> None:
        """Keep none open."""
        for session_id in list(self._open):
            self.close(session_id)

    def _opened(self, session_id: str) -> tuple[_Open, int]:
        """A file to write to, and how long it is."""
        path = f"{self._folder}/{transcript_place(session_id)}/{session_id}{SUFFIX}"
        flags = os.O_WRONLY | os.O_APPEND
        try:
            file = files.opener(path, flags)
        except FileNotFoundError:
            Path(path).parent.mkdir(mode=0o700, exist_ok=True)
            file = files.opener(path, flags | os.O_CREAT)
        status = os.fstat(file)
        known = self._open[session_id] = _Open(file, path, status.st_dev, status.st_ino)
        if len(self._open) > self._most:
            self.close(next(iter(self._open)))
        return known, status.st_size


def _size_of(known: _Open) -> int | None:
    """The size of a file; None when it is not the one that was opened."""
    try:
        status = os.stat(known.path)  # noqa: PTH116 - a Path for each line costs more than this
    except OSError:
        return None
    is_same = (status.st_dev, status.st_ino) == (known.device, known.inode)
    return status.st_size if is_same else None


GATHER_SECONDS = 0.05  # what many conversations add is written together
SYNC_SECONDS = 5.0  # what was written may wait so long for the disk; the database has it meanwhile
STOP_SECONDS = 10.0  # for what is pending when the program stops
MAX_PENDING_BYTES = 8_000_000  # beyond it a session is written again from the database instead
PAGE = 2_000  # sessions that are compared with their files at once

log = structlog.get_logger(__name__)


class Mirror:
    """Keeps the files of `bot.sessions.mirror` in step with the database."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder
        self._files = OpenFiles(folder)
        self._pending: dict[str, list[store.Appended] | None] = {}  # None: write it all again
        self._pending_bytes = 0
        self._wake = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._unsynced: set[str] = set()
        self._sync_at: float | None = None  # the loop's time; None while everything is synced

    async def start(self) -> None:
        """Begin writing."""
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True, mode=0o700)
        self._task = keep("mirror", self._run)

    def add(self, appended: Iterable[store.Appended]) -> None:
        """Take over what a committed transaction appended; returns at once."""
        for item in appended:
            waiting = self._pending.setdefault(item.session_id, [])
            if waiting is None:
                continue
            if self._pending_bytes + len(item.data) > MAX_PENDING_BYTES:
                self._pending_bytes -= sum(len(kept.data) for kept in waiting)
                self._pending[item.session_id] = None
            else:
                waiting.append(item)
                self._pending_bytes += len(item.data)
        if self._pending and self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._wake.set)

    async def renew(self, session_id: str) -> None:
        """Write a file again and keep nothing of what it said: some was removed for good."""
        await asyncio.to_thread(path_of(self._folder, session_id).unlink, missing_ok=True)
        waiting = self._pending.get(session_id) or []
        self._pending_bytes -= sum(len(kept.data) for kept in waiting)
        self._pending[session_id] = None
        self._wake.set()

    async def repair(self) -> int:
        """Write again every file whose length is not what the database says; how many."""
        wrong, after, place = 0, "", None
        found: Mapping[str, int] = {}
        while page := await self._database.read(
            lambda tx, after=after: store.mirror_sizes(tx, after, PAGE)
        ):
            for session_id, size in page.items():
                if place != (place := transcript_place(session_id)):
                    found = await asyncio.to_thread(_sizes, self._folder / place)
                if found.get(session_id) != size:
                    wrong += 1
                    self._pending.setdefault(session_id, None)
            after = next(reversed(page))
        self._wake.set()
        if wrong:
            log.info("mirror.repair", sessions=wrong)
        return wrong

    async def stop(self) -> None:
        """Write what is pending, then end; what takes too long, the next start repairs."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=STOP_SECONDS)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._sync_at):
                    await self._wake.wait()
            self._wake.clear()
            if self._soon is not None:
                self._soon.cancel()
                self._soon = None
            if self._pending:
                await self._write()
            is_last = self._closing and not self._pending
            # Not each time, because that would cost more than the database itself.
            now = asyncio.get_running_loop().time()
            if self._sync_at is not None and (is_last or now >= self._sync_at):
                names, self._unsynced, self._sync_at = self._unsynced, set(), None
                await asyncio.to_thread(_sync_all, self._folder, self._files, names)
            if is_last:
                await asyncio.to_thread(self._files.close_all)
                return

    async def _write(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, {}, 0
        appends = {id_: items for id_, items in pending.items() if items}
        rewrites = [id_ for id_, items in pending.items() if items is None]
        rewrites += await asyncio.to_thread(_append_all, self._files, appends)
        for session_id in rewrites:
            await self._rewrite(session_id)
        self._unsynced.update(appends)
        if self._sync_at is None:
            self._sync_at = asyncio.get_running_loop().time() + SYNC_SECONDS

    async def _rewrite(self, session_id: str) -> None:
        try:
            lines = await self._database.read(lambda tx: store.lines(tx, session_id))
            data = "".join(f"{line}\n" for line in lines).encode()
            await asyncio.to_thread(_replace, path_of(self._folder, session_id), data)
        except (OSError, StorageError) as exc:
            # The next start repairs it; the database has everything meanwhile.
            log.warning("mirror.write_failed", session=session_id, error=type(exc).__name__)


def _sizes(place: Path) -> Mapping[str, int]:
    return {each.id: each.size for each in found_in(place)}


def _append_all(opened: OpenFiles, pending: Mapping[str, list[store.Appended]]) -> list[str]:
    """Append to each file; the ids of those that were not as long as expected."""
    wrong: list[str] = []
    for session_id, items in pending.items():
        ends = [item.offset + len(item.data) for item in items]
        is_whole = all(item.offset == end for item, end in zip(items[1:], ends, strict=False))
        data = b"".join(item.data for item in items)
        try:
            if not (is_whole and opened.append(session_id, items[0].offset, data)):
                wrong.append(session_id)
        except OSError as exc:
            log.warning("mirror.write_failed", session=session_id, error=type(exc).__name__)
    return wrong


def _sync_all(folder: Path, opened: OpenFiles, names: Collection[str]) -> None:
    """Let these files reach the disk."""
    for session_id in names:
        try:
            opened.sync(session_id)
        except OSError as exc:
            log.warning("mirror.sync_failed", session=session_id, error=type(exc).__name__)
    with suppress(OSError):  # a folder that is gone is made again by the next start
        for place in {folder, *(path_of(folder, each).parent for each in names)}:
            files.sync_folder(place)


def _replace(path: Path, data: bytes) -> None:
    """Write the file beside and swap it in; lines the database does not know are set aside."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if path.exists() and not data.startswith(path.read_bytes()):
        files.set_aside(path)
    beside = path.with_suffix(".jsonl.tmp")
    with open(beside, "wb", opener=files.opener) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
