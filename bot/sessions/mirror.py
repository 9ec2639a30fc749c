"""The live JSONL copy of every transcript, for people and other programs to read.

The database is the truth and knows how long each file must be, so a file that a crash, a full disk
or an editor left different is noticed by its length and written again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from bot.errors import StorageError
from bot.sessions import store, transcript_files
from bot.sessions.transcript_files import OpenFiles, path_of, set_aside
from bot.storage import Database, files

GATHER_SECONDS = 0.05  # what many conversations add is written together
SYNC_SECONDS = 5.0  # what was written may wait so long for the disk; the database has it meanwhile
MAX_PENDING_BYTES = 8_000_000  # beyond it a session is written again from the database instead
PAGE = 2_000  # sessions that are compared with their files at once

log = structlog.get_logger(__name__)


class Mirror:
    """Keeps the files of `bot.sessions.transcript_files` in step with the database."""

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
        self._task = asyncio.create_task(self._run(), name="mirror")

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

    async def repair(self) -> int:
        """Write again every file whose length is not what the database says; how many."""
        wrong, after, place = 0, "", None
        found: Mapping[str, int] = {}
        while page := await self._database.read(
            lambda tx, after=after: store.mirror_sizes(tx, after, PAGE)
        ):
            for session_id, size in page.items():
                if place != (place := transcript_files.place_of(session_id)):
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
        """Write what is pending, then end."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task

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
            await self._sync(at_once=is_last)
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

    async def _sync(self, *, at_once: bool) -> None:
        """Let what was written reach the disk.

        Not each time, because that would cost more than the database itself.
        """
        now = asyncio.get_running_loop().time()
        if self._sync_at is None or not (at_once or now >= self._sync_at):
            return
        names, self._unsynced, self._sync_at = self._unsynced, set(), None
        await asyncio.to_thread(_sync_all, self._folder, self._files, names)

    async def _rewrite(self, session_id: str) -> None:
        try:
            lines = await self._database.read(lambda tx: store.lines(tx, session_id))
            data = "".join(f"{line}\n" for line in lines).encode()
            await asyncio.to_thread(_replace, path_of(self._folder, session_id), data)
        except (OSError, StorageError) as exc:
            # The next start repairs it; the database has everything meanwhile.
            log.warning("mirror.write_failed", session=session_id, error=type(exc).__name__)


def _sizes(place: Path) -> Mapping[str, int]:
    return {each.id: each.size for each in transcript_files.found_in(place)}


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
        set_aside(path)
    beside = path.with_suffix(".jsonl.tmp")
    with open(beside, "wb", opener=files.opener) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
