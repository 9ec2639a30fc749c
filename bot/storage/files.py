"""Files that only the account the program runs under may read, from their first moment."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog

FILE_MODE = 0o600
OTHERS = 0o077

log = structlog.get_logger(__name__)


def opener(path: str, flags: int) -> int:
    """For `open(…, opener=opener)`: a file that is made is private at once, whatever the umask."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def create(path: Path) -> None:
    """Make an empty private file, unless there is one already, whose mode is mended.

    What SQLite makes beside a database gets the database's own mode.

    Raises:
        OSError: it cannot be made.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    except FileExistsError:
        _mend(path.resolve())


def sync_folder(path: Path) -> None:
    """Let the names in a folder reach the disk.

    Raises:
        OSError: the disk failed.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def mend(paths: Iterable[Path]) -> int:
    """Take everybody else's rights from files and from all that is in folders; how many had any.

    Links are not followed, and what belongs to another account is left alone.
    """
    mended = sum(_mended(each) for path in paths for each in _below(path))
    if mended:
        log.info("storage.modes_mended", files=mended)
    return mended


def _below(path: Path) -> Iterator[Path]:
    """A file; of a folder itself first, which at once closes what is in it."""
    yield path
    if path.is_dir() and not path.is_symlink():
        for parent, folders, files in os.walk(path):
            yield from (Path(parent, name) for name in (*folders, *files))


def _mended(path: Path) -> bool:
    try:
        return _mend(path)
    except OSError as exc:
        if not isinstance(exc, FileNotFoundError):  # files come and go meanwhile
            log.warning("storage.mode_not_mended", error=type(exc).__name__)
        return False


def _mend(path: Path) -> bool:
    found = path.lstat()
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid() or not mode & OTHERS:
        return False
    path.chmod(mode & ~OTHERS)
    return True
