"""The live JSONL copy of every transcript, for people and other programs to read.

There is a folder for each month, of the sessions that began in it, and one for what was imported.
The database is the truth and knows how long each file must be, so a file that a crash, a full disk
or an editor left different is noticed by its length and written again.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from bot.backoff import keep
from bot.errors import StorageError
from bot.sessions import entries, store
from bot.storage import Database, files

SUFFIX = ".jsonl"
IMPORTED = "imported"  # the folder of what took place elsewhere, whenever that was
GATHER_SECONDS = 0.05  # what many conversations add is written together
SYNC_SECONDS = 5.0  # what was written may wait so long for the disk; the database has it meanwhile
STOP_SECONDS = 10.0  # for what is pending when the program stops
MAX_PENDING_BYTES = 8_000_000  # beyond it a session is written again from the database instead
PAGE = 2_000  # sessions that are compared with their files at once
_BEGAN = re.compile(r"(\d{4})(0[1-9]|1[0-2])\d\d-")

log = structlog.get_logger(__name__)


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


def all_transcripts(folder: Path) -> Iterator[Path]:
    """All files there are, also those that were set aside."""
    for place in transcript_places(folder):
        yield from (path for path in place.iterdir() if not path.is_dir() or path.is_symlink())


def append(folder: Path, session_id: str, offset: int, data: bytes) -> bool:
    """Add to the end of a session's file; False, and nothing is added, if it ends elsewhere.

    Raises:
        OSError: the disk does not take it.
    """
    path = f"{folder}/{transcript_place(session_id)}/{session_id}{SUFFIX}"
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    try:
        file = files.opener(path, flags)
    except FileNotFoundError:  # the first one of a month
        Path(path).parent.mkdir(mode=0o700, exist_ok=True)
        file = files.opener(path, flags)
    try:
        if os.fstat(file).st_size != offset:
            return False
        while data:
            data = data[os.write(file, data) :]
    finally:
        os.close(file)
    return True


class Mirror:
    """Keeps the transcript files in step with the database."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder
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
                await asyncio.to_thread(_sync_all, self._folder, names)
            if is_last:
                return

    async def _write(self) -> None:
        pending, self._pending, self._pending_bytes = self._pending, {}, 0
        appends = {id_: items for id_, items in pending.items() if items}
        rewrites = [id_ for id_, items in pending.items() if items is None]
        rewrites += await asyncio.to_thread(_append_all, self._folder, appends)
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
    """The sizes of the files in one folder, by session."""
    if not place.is_dir():
        return {}
    with os.scandir(place) as found:
        return {
            each.name.removesuffix(SUFFIX): each.stat().st_size
            for each in found
            if each.name.endswith(SUFFIX) and each.is_file(follow_symlinks=False)
        }


def _append_all(folder: Path, pending: Mapping[str, list[store.Appended]]) -> list[str]:
    """Append to each file; the ids of those that were not as long as expected."""
    wrong: list[str] = []
    for session_id, items in pending.items():
        ends = [item.offset + len(item.data) for item in items]
        is_whole = all(item.offset == end for item, end in zip(items[1:], ends, strict=False))
        data = b"".join(item.data for item in items)
        try:
            if not (is_whole and append(folder, session_id, items[0].offset, data)):
                wrong.append(session_id)
        except OSError as exc:
            log.warning("mirror.write_failed", session=session_id, error=type(exc).__name__)
    return wrong


def _sync_all(folder: Path, names: Collection[str]) -> None:
    """Let these files reach the disk."""
    for session_id in names:
        try:
            with path_of(folder, session_id).open("rb") as file:
                os.fsync(file.fileno())
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
