"""A disk that forgets what was not synced: for SQLite's files a VFS, for others a watched `fsync`.

Everything is written to real files; beside them the disk knows what would have survived. When
power is lost, that is what a new folder gets, with any of the writes under way, in any order, whole
or torn.
"""

from __future__ import annotations

import os
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512  # bytes a disk writes at once
NAME = "power"

Write = tuple[int, bytes | None]  # where, and what; None cuts the file off there


class Disk:
    """What of a folder's files has reached the disk; `lose_power` puts it elsewhere."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - chance, not a secret
        self.lock = threading.RLock()
        self._safe: dict[Path, bytearray] = {}
        self._under_way: dict[Path, list[Write]] = defaultdict(list)
        self._synced: dict[int, bytes] = {}  # of files that are not SQLite's, by inode
        self._left = 0
        self._then: Callable[[], object] | None = None

    def after(self, operations: int, then: Callable[[], object]) -> None:
        """Call this once, in the middle of whatever is the n-th operation from now."""
        with self.lock:
            self._left, self._then = operations, then

    def opened(self, path: Path) -> None:
        with self.lock:
            if path not in self._safe:
                self._safe[path] = bytearray(path.read_bytes() if path.exists() else b"")

    def wrote(self, path: Path, write: Write) -> None:
        with self.lock:
            self._under_way[path].append(write)
            self._count()

    def synced(self, path: Path) -> None:
        with self.lock:
            self._count()  # power may be lost just before
            for write in self._under_way.pop(path, []):
                _apply(self._safe[path], write)

    def removed(self, path: Path) -> None:
        with self.lock:
            self._safe.pop(path, None)
            self._under_way.pop(path, None)

    def fsynced(self, file: int) -> None:
        with self.lock:
            found = os.fstat(file)
            path = Path(f"/proc/self/fd/{file}")
            if path.is_file():
                self._synced[found.st_ino] = path.read_bytes()

    def lose_power(self, folder: Path, to: Path) -> None:
        """Write what survives of a folder into another one."""
        with self.lock:
            for path in folder.rglob("*"):
                target = to / path.relative_to(folder)
                if path.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                elif path.is_file() and not path.name.endswith("-shm"):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(self._survivor(path))

    def _survivor(self, path: Path) -> bytes:
        if path not in self._safe:
            now = path.read_bytes()
            safe = self._synced.get(path.stat().st_ino, now if path.suffix == ".md" else b"")
            return (
                now[: self.chance.randint(len(safe), len(now))]
                if now[: len(safe)] == safe
                else safe
            )
        data = bytearray(self._safe[path])
        kept = [write for write in self._under_way.get(path, []) if self.chance.random() < 0.5]
        if self.chance.random() < 0.5:
            kept = []
        self.chance.shuffle(kept)
        for at, what in kept:
            if what is None or self.chance.random() < 0.5:
                _apply(data, (at, what))
                continue
            for start in range(0, len(what), SECTOR):
                if self.chance.random() < 0.5:
                    _apply(data, (at + start, what[start : start + SECTOR]))
        return bytes(data)

    def _count(self) -> None:
        self._left -= 1
        if self._left <= 0 and self._then is not None:
            then, self._then = self._then, None
            then()


def _apply(data: bytearray, write: Write) -> None:
    at, what = write
    if what is None:
        del data[at:]
        return
    data.extend(bytes(max(0, at - len(data))))
    data[at : at + len(what)] = what


class _File(apsw.VFSFile):
    def __init__(self, base: str, name: Any, flags: Any, disk: Disk) -> None:
        super().__init__(base, name, flags)
        self._path = Path(name.filename() if hasattr(name, "filename") else name)
        self._disk = disk
        disk.opened(self._path)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        with self._disk.lock:
            super().xWrite(data, offset)
            self._disk.wrote(self._path, (offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        with self._disk.lock:
            super().xTruncate(newsize)
            self._disk.wrote(self._path, (newsize, None))

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        with self._disk.lock:
            super().xSync(flags)
            self._disk.synced(self._path)


class _Vfs(apsw.VFS):
    def __init__(self, base: str, disk: Disk) -> None:
        self._base = base
        self._disk = disk
        super().__init__(NAME, base=base, makedefault=True)

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        if name is None:
            return super().xOpen(name, flags)
        return _File(self._base, name, flags, self._disk)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802, FBT001 - SQLite's
        with self._disk.lock:
            super().xDelete(filename, syncdir)
            self._disk.removed(Path(filename))


@contextmanager
def disk(seed: int) -> Generator[Disk]:
    """Let all databases that are opened meanwhile, and every `os.fsync`, use such a disk."""
    made = Disk(seed)
    before = apsw.vfs_names()[0]
    vfs = _Vfs(before, made)
    fsync = os.fsync

    def watched(file: int) -> None:
        fsync(file)
        made.fsynced(file)

    os.fsync = watched
    try:
        yield made
    finally:
        os.fsync = fsync
        apsw.set_default_vfs(before)
        vfs.unregister()
