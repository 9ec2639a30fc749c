"""Things that go wrong, on demand: a disk that is full."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw


@dataclass
class Disk:
    """What SQLite writes to; once `full`, every write to a file below `folder` fails.

    It becomes full by itself after so many writes as `fills_after` says.
    """

    folder: Path
    full: bool = False
    refused: int = 0
    fills_after: int | None = None
    opened: list[str] = field(default_factory=list)


def watched_files(
    name: str,
    write: Callable[[str], object],
    opened: Callable[[str], object] = str,
    settle: Callable[[str], object] = str,
) -> apsw.VFS:
    """Hear of each path that SQLite opens from now on, and of each write before it is done.

    `settle` hears, before that is done, that a file is synced, cut off or removed.
    """
    real = apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
            super().__init__(real, name, flags)
            self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
            opened(self._path)

        def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
            write(self._path)
            super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]

        def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
            settle(self._path)
            super().xSync(flags)

        def xTruncate(self, size: int) -> None:  # noqa: N802 - SQLite's name
            settle(self._path)
            super().xTruncate(size)

        def xLock(self, level: int) -> None:  # noqa: N802 - SQLite's name
            try:
                super().xLock(level)
            except apsw.IOError as error:  # SQLite takes it so, where a file is only read
                raise apsw.BusyError from error

    class Files(apsw.VFS):
        def __init__(self) -> None:
            super().__init__(name, real, makedefault=True)

        def xOpen(  # noqa: N802 - SQLite's name
            self, name: str | apsw.URIFilename | None, flags: list[int]
        ) -> File:
            return File(name, flags)

        def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802, FBT001 - SQLite's
            settle(filename)
            super().xDelete(filename, syncdir)

    return Files()


@contextmanager
def faulty_disk(folder: Path) -> Generator[Disk]:
    """Every database opened meanwhile lives on the disk that is returned."""
    disk = Disk(folder)

    def write(path: str) -> None:
        if not path.startswith(str(folder)):
            return
        if disk.fills_after is not None:
            disk.full = disk.full or disk.fills_after == 0
            disk.fills_after -= not disk.full
        if disk.full:
            disk.refused += 1
            raise apsw.FullError("no space left on device")

    files = watched_files(f"faulty-{id(disk)}", write, disk.opened.append)
    try:
        yield disk
    finally:
        files.unregister()
