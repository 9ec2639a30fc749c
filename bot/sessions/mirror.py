"""The live JSONL copy of every transcript, for people and other programs to read.

The database is the truth and knows how long each file must be, so a file that a crash, a full disk
or an editor left different is noticed by its length and written again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from bot.errors import StorageError
from bot.sessions import entries, store
from bot.storage import Database, files

SYNC_SECONDS = 5.0  # what was written may wait so long for the disk; the database has it meanwhile
MAX_PENDING_BYTES = 8_000_000  # beyond it a session is written again from the database instead

log = structlog.get_logger(__name__)


class Mirror:
    """Keeps `<folder>/<session id>.jsonl` in step with the database, off the event loop."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder
        self._pending: dict[str, list[store.Appended] | None] = {}  # None: write it all again
        self._pending_bytes = 0
        self._wake = asyncio.Event()
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
        self._wake.set()

    async def repair(self) -> int:
        """Write again every file whose length is not what the database says; how many."""
        expected = await self._database.read(store.mirror_sizes)
        found = await asyncio.to_thread(sizes, self._folder)
        wrong = [id_ for id_, size in expected.items() if found.get(id_) != size]
        for session_id in wrong:
            if session_id not in self._pending:
                self._pending[session_id] = None
        self._wake.set()
        if wrong:
            log.info("mirror.repair", sessions=len(wrong))
        return len(wrong)

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
            pending, self._pending, self._pending_bytes = self._pending, {}, 0
            appends = {id_: items for id_, items in pending.items() if items}
            rewrites = [id_ for id_, items in pending.items() if items is None]
            rewrites += await asyncio.to_thread(_append_all, self._folder, appends)
            for session_id in rewrites:
                await self._rewrite(session_id)
            is_last = self._closing and not self._pending
            await self._sync(appends, at_once=is_last)
            if is_last:
                return

    async def _sync(self, appended: Iterable[str], *, at_once: bool) -> None:
        """Let what was written reach the disk: together with the database it must not be lost.

        Not each time, because that would cost more than the database itself.
        """
        now = asyncio.get_running_loop().time()
        self._unsynced.update(appended)
        if self._sync_at is None and self._unsynced:
            self._sync_at = now + SYNC_SECONDS
        if self._sync_at is not None and (at_once or now >= self._sync_at):
            names, self._unsynced, self._sync_at = self._unsynced, set(), None
            await asyncio.to_thread(_sync_all, self._folder, names)

    async def _rewrite(self, session_id: str) -> None:
        try:
            lines = await self._database.read(lambda tx: store.lines(tx, session_id))
            data = "".join(f"{line}\n" for line in lines).encode()
            await asyncio.to_thread(_replace, self._folder / f"{session_id}.jsonl", data)
        except (OSError, StorageError) as exc:
            # The next start repairs it; the database has everything meanwhile.
            log.warning("mirror.write_failed", session=session_id, error=type(exc).__name__)


def sizes(folder: Path) -> dict[str, int]:
    """How long each session's file is, in bytes."""
    with os.scandir(folder) as found:
        return {
            entry.name.removesuffix(".jsonl"): entry.stat().st_size
            for entry in found
            if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False)
        }


def _append_all(folder: Path, pending: Mapping[str, list[store.Appended]]) -> list[str]:
    """Append to each file; the ids of those that were not as long as expected."""
    wrong: list[str] = []
    for session_id, items in pending.items():
        try:
            with open(folder / f"{session_id}.jsonl", "ab", opener=files.opener) as file:
                ends = (file.tell(), *(item.offset + len(item.data) for item in items))
                if any(item.offset != end for item, end in zip(items, ends, strict=False)):
                    wrong.append(session_id)
                else:
                    file.write(b"".join(item.data for item in items))
        except OSError as exc:
            log.warning("mirror.write_failed", session=session_id, error=type(exc).__name__)
    return wrong


def _sync_all(folder: Path, names: Iterable[str]) -> None:
    for session_id in names:
        try:
            with (folder / f"{session_id}.jsonl").open("rb") as file:
                os.fsync(file.fileno())
        except OSError as exc:
            log.warning("mirror.sync_failed", session=session_id, error=type(exc).__name__)
    with suppress(OSError):  # a folder that is gone is made again by the next start
        files.sync_folder(folder)


def _replace(path: Path, data: bytes) -> None:
    """Write the file beside and swap it in; lines the database does not know are set aside."""
    if path.exists() and not _knows(data, path.read_bytes()):
        path.rename(_free_name(path))
    beside = path.with_suffix(".jsonl.tmp")
    with open(beside, "wb", opener=files.opener) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _knows(data: bytes, there: bytes) -> bool:
    """True when a file holds nothing else than `data` does; its session's key may be another."""
    if data.startswith(there):
        return True
    (head, _, lines), (new_head, _, new_lines) = there.partition(b"\n"), data.partition(b"\n")
    was, now = entries.parse_header(head), entries.parse_header(new_head)
    if was is None or now is None or not new_lines.startswith(lines):
        return False
    changing = {"key": "", "previous": ""}
    return {**was, **changing} == {**now, **changing}


def _free_name(path: Path) -> Path:
    number = 1
    while (kept := path.with_suffix(f".jsonl.kept-{number}")).exists():
        number += 1
    return kept
