"""The files of the storage folder: private from their first moment, and served by one process."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import structlog

from bot.errors import StorageBusy, StorageError
from bot.invocation import confidant

FILE_MODE = 0o600
OTHERS = 0o077
DATABASE_NAME = "confidant.db"
BACKUPS = "backups"  # a folder: verified copies of the database, and the log of what changed since
LOCK_NAME = "confidant.lock"
PAGE_NAME = "confidant.page"  # who serves the page of a folder, and where
RESTORING = "restoring"  # a folder: what a restore is about to put in place
ERASING = "erasing.json"  # says whom an erasing that is not complete removes
RESTORE_BEGUN = "begun.json"  # in it, once all of it is there: from then on it is only completed

_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "sshfs"})

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


@contextmanager
def made(path: Path, beside: str = "") -> Generator[BinaryIO]:
    """A file that gets its name when all of it is on the disk, in the place of one that has it.

    Until then it is called `beside`. Nothing is left of one that was not finished.

    Raises:
        OSError: the disk does not take it.
    """
    unfinished = path.with_name(beside or f".{path.name}.partial")
    try:
        unfinished.unlink(missing_ok=True)
        with open(unfinished, "x+b", opener=opener) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def put(path: Path, data: bytes, beside: str = "", changed_at: int = 0) -> None:
    """Let a file have this content, or leave it as it is; see `made`. Its folder is made.

    `changed_at` (ns) is told as the time of its change, unless it is 0.

    Raises:
        OSError: the disk does not take it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with made(path, beside) as file:
        file.write(data)
        file.flush()
        if changed_at:
            os.utime(file.fileno(), ns=(changed_at, changed_at))


def free_name(path: Path) -> Path:
    """The first of `path`, `path-2`, `path-3` and so on that nothing is called yet."""
    others = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(each for each in chain([path], others) if not os.path.lexists(each))


def set_aside(path: Path) -> Path:
    """Give a file the first of `path.kept-1`, `path.kept-2` and so on that is free, and return it.

    Raises:
        OSError: it cannot be renamed.
    """
    names = (path.with_name(f"{path.name}.kept-{number}") for number in count(1))
    return path.rename(next(each for each in names if not os.path.lexists(each)))


def sync_folder(path: Path) -> bool:
    """Let the names in a folder reach the disk; False where that cannot be done.

    Raises:
        OSError: the disk failed.
    """
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return sync_names(folder)
    finally:
        os.close(folder)


def sync_names(folder: int) -> bool:
    """The same for a descriptor. On SMB a folder cannot be synced: there the server does it.

    Raises:
        OSError: the disk failed.
    """
    try:
        os.fsync(folder)
    except OSError as exc:
        if exc.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
        return False
    return True


def network_kind(path: Path, mounts: str) -> str:
    """The kind of network folder that a path is on ("nfs4"), by /proc/mounts; else empty."""
    found: dict[str, str] = {}
    for line in mounts.splitlines():
        _, place, kind, *_ = [*line.split(" "), "", "", ""]
        found[place.replace("\\040", " ")] = kind
    here = next((found[each] for each in map(str, (path, *path.parents)) if each in found), "")
    return here if here.removeprefix("fuse.") in _NETWORK else ""


def mend(paths: Iterable[Path]) -> int:
    """Take everybody else's rights from files and from all that is in folders; how many had any.

    Links are not followed, and what belongs to another account is left alone.
    """
    mended = sum(_mended(each) for path in paths for each in _below(path))
    if mended:
        log.info("storage.modes_mended", files=mended)
    return mended


def open_to_others(paths: Iterable[Path]) -> list[Path]:
    """The files, and what is in folders, that others than their owner may do something with."""
    return [each for path in paths for each in _below(path) if is_open(each)]


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
    mode = _mode_for_others(path)
    if mode:
        path.chmod(mode & ~OTHERS)
    return bool(mode)


def is_open(path: Path) -> bool:
    """True for what is ours and others may do something with."""
    try:
        return bool(_mode_for_others(path))
    except OSError:  # files come and go meanwhile
        return False


def _mode_for_others(path: Path) -> int:
    """The mode of what is ours and others may do something with; 0 for anything else."""
    found = path.lstat()
    mode = stat.S_IMODE(found.st_mode)
    is_ours = not stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid()
    return mode if is_ours and mode & OTHERS else 0


def must_not_be_erasing(folder: Path) -> None:
    """Make sure that nobody is half erased from a storage folder.

    Raises:
        StorageError: an erasing was interrupted.
    """
    if (folder / ERASING).exists():
        raise StorageError(
            f"Somebody is being erased from {folder}, and that is not complete, so nothing runs on "
            f"it yet: `{confidant('erase --finish')}` completes it."
        )


def must_not_be_restoring(folder: Path) -> None:
    """Make sure that a storage folder is not half of one and half of another.

    Raises:
        StorageError: a restore into it was interrupted.
    """
    if (folder / RESTORING / RESTORE_BEGUN).exists():
        raise StorageError(
            f"A restore into {folder} was interrupted, so nothing runs on it yet. Nothing is lost: "
            f"`{confidant('doctor --fix')}` completes it, and so does "
            f"`{confidant('restore --finish')}`."
        )


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that has a storage folder, or had it: 0 where nobody is named."""

    is_running: bool
    process: int = 0


def holder(folder: Path) -> Holder:
    """The holder of a storage folder's lock; nothing is changed.

    Raises:
        OSError: the lock cannot be looked at.
    """
    try:
        file = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Holder(is_running=False)
    try:
        said = os.read(file, 32).decode(errors="replace").strip()
        process = int(said) if said.isascii() and said.isdigit() else 0
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return Holder(is_running=True, process=process)
        return Holder(is_running=False, process=process)
    finally:
        os.close(file)


def restored_workspace(workspace: Path) -> Path:
    """The folder of a backup's notes before they take the place of a workspace elsewhere."""
    return workspace.with_name(f".{workspace.name}.restoring")


def clear_unbegun_restore(folder: Path, workspace: Path) -> None:
    """Remove what a restore left that ended before it changed a name; with the folder's lock."""
    if not (folder / RESTORING / RESTORE_BEGUN).exists():
        for path in (folder / RESTORING, restored_workspace(workspace.resolve())):
            shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Served:
    """The address of a running program's page, and the folder it was started in."""

    url: str
    started_in: Path


@contextmanager
def serving(folder: Path, url: str) -> Generator[None]:
    """Let others know where the page is, for the length of a `with` within that of the lock.

    Raises:
        OSError: the disk does not take it.
    """
    path = folder / PAGE_NAME
    with open(path, "w", encoding="utf-8", errors="surrogateescape", opener=opener) as file:
        file.write(f"{os.getpid()}\n{url}\n{Path.cwd()}\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def served(folder: Path) -> Served | None:
    """The page of the program that runs on a folder; None when none does, or has none."""
    try:
        said = (folder / PAGE_NAME).read_text("utf-8", "surrogateescape").split("\n")
        found = holder(folder)
    except OSError:
        return None
    if len(said) != 4 or not found.is_running or said[0] != str(found.process):
        return None
    return Served(said[1], Path(said[2]))


class DataDirLock:
    """Holds a storage folder for the length of a `with`.

    The lock belongs to the process and goes with it, however it ends; the number inside the file
    only tells others whom to look for.

    Raises:
        StorageBusy: another process has it; the message says which.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME
        self._file: int | None = None

    def __enter__(self) -> Self:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise StorageError(
                f"The storage folder {self._path.parent} cannot be used: {exc.strerror}. "
                "Check its permissions or choose another with [storage] dir."
            ) from exc
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = os.read(file, 32).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise StorageBusy(
                f"Confidant already runs on {self._path.parent} (process {holder}). Stop that one "
                "first, or choose another folder with [storage] dir."
            ) from exc
        except OSError as exc:
            os.close(file)
            raise StorageError(
                f"The storage folder {self._path.parent} cannot be locked ({exc.strerror}), as is "
                "the case on some network folders, so nothing would keep two programs from writing "
                "there at once. Choose a folder of this machine with [storage] dir; backups may go "
                "to a network folder."
            ) from exc
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        self._file = file
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None
