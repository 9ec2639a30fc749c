"""Where the JSONL copy of each transcript is, and how it is written: for threads.

There is a folder for each month, of the sessions that began in it, and one for what was imported.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bot.sessions import imported
from bot.storage import files

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


def place_of(session_id: str) -> str:
    """The folder of a session's file, by its id; empty for an id that says nothing of it."""
    if imported.is_of(session_id):
        return IMPORTED
    began = _BEGAN.match(session_id)
    return f"{began[1]}-{began[2]}" if began else ""


def path_of(folder: Path, session_id: str) -> Path:
    """Where the file of a session belongs."""
    return folder / place_of(session_id) / f"{session_id}{SUFFIX}"


def places(folder: Path) -> list[Path]:
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


def everything(folder: Path) -> Iterator[Path]:
    """All files there are, also those that were set aside."""
    for place in places(folder):
        yield from (path for path in place.iterdir() if not path.is_dir() or path.is_symlink())


def set_aside(path: Path) -> None:
    """Give a file the next free name beside its own.

    Raises:
        OSError: it cannot be renamed.
    """
    path.rename(free_name(path))


def free_name(path: Path) -> Path:
    """The next name beside a file for what is set aside of it."""
    number = 1
    while (kept := path.with_suffix(f"{SUFFIX}.kept-{number}")).exists():
        number += 1
    return kept


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
        path = f"{self._folder}/{place_of(session_id)}/{session_id}{SUFFIX}"
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
    """How long a file is; None when it is not the one that was opened."""
    try:
        status = os.stat(known.path)  # noqa: PTH116 - a Path for each line costs more than this
    except OSError:
        return None
    is_same = (status.st_dev, status.st_ino) == (known.device, known.inode)
    return status.st_size if is_same else None
