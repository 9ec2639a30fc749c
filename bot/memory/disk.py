"""Files below the workspace, reached one component at a time and never through a symlink.

No name and no race leads out of a folder that was opened. What is changed is written beside,
flushed, and swapped in only while the file is still the one that was read. `FolderNotes` is what
the rest of memory sees of it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bot.errors import NotVisible, ToolError
from bot.memory.layout import is_plain
from bot.memory.note_store import KEEPS_CHANGING, MAX_WRITE, TRIES, Seen
from bot.memory.note_store import must_fit as _must_fit

SETTLING = 0.03  # seconds an editor that opened a file may take until it has written to it

# What an open says about links, pipes and missing files; none of it may be told apart.
HIDDEN_ERRORS = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ENOENT})

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a named pipe must fail, not wait for its other end.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_APPEND_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE = 1 << 16
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)


@dataclass(frozen=True, slots=True)
class Version:
    """A file as it was read."""

    data: bytes
    mode: int


@contextmanager
def folder(root: Path, parts: tuple[str, ...], *, create: bool) -> Generator[int]:
    """The descriptor of a folder below `root`, reached through no symlink; made if `create`."""
    if create:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The operator may keep the workspace itself behind a link; below it there are none.
    current = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            following = open_folder(current, part, create=create)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


def open_folder(parent: int, name: str, *, create: bool = False) -> int:
    """The descriptor of a folder inside another; the caller closes it."""
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    except FileNotFoundError:
        if not create:
            raise
        with suppress(FileExistsError):  # another process was quicker
            os.mkdir(name, 0o700, dir_fd=parent)
        os.fsync(parent)
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)


def walk(
    root: Path,
    folders: tuple[str, ...],
    wanted: Callable[[str], bool],
    depth: int,
    refused: dict[str, str] | None = None,
) -> Iterator[Seen]:
    """Every plain file below `root` and `folders` whose name is `wanted`, each folder's own first.

    Links are no files, and a folder is entered unless its name is one that a file would be wanted
    by. `depth` is how many components a path below `folders` may have. `refused` gets the folders
    that cannot be looked into, each ending in "/", and why.

    Raises:
        OSError: the folder to begin with cannot be read.
    """
    with folder(root, folders, create=False) as start:
        prefix = "".join(f"{part}/" for part in folders)
        yield from _walk(start, prefix, wanted, depth, {} if refused is None else refused)


def _walk(
    parent: int, path: str, wanted: Callable[[str], bool], depth: int, refused: dict[str, str]
) -> Iterator[Seen]:
    inner: list[str] = []
    with os.scandir(parent) as entries:
        ordered = sorted((entry for entry in entries if is_plain(entry.name)), key=_name)
    for entry in ordered:
        with suppress(OSError):  # it went away meanwhile
            if wanted(entry.name):
                if entry.is_file(follow_symlinks=False):
                    look = entry.stat(follow_symlinks=False)
                    at = (look.st_mtime_ns, look.st_size, look.st_ino)
                    yield Seen(path + entry.name, at)
            elif entry.is_dir(follow_symlinks=False):
                inner.append(entry.name)
    for name in inner if depth > 1 else ():
        try:
            following = open_folder(parent, name)
        except OSError as error:
            if error.errno not in HIDDEN_ERRORS:
                refused[f"{path}{name}/"] = reason(error)
            continue
        try:
            yield from _walk(following, f"{path}{name}/", wanted, depth - 1, refused)
        finally:
            os.close(following)


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def reason(error: OSError) -> str:
    """Why a file cannot be read, in words."""
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__


@contextmanager
def opened(parent: int, name: str) -> Generator[int]:
    """The descriptor of a plain file, to read."""
    file = os.open(name, _READ_FLAGS, dir_fd=parent)
    try:
        _must_be_plain(file)
        yield file
    finally:
        os.close(file)


def pieces(file: int, limit: int) -> Iterator[bytes]:
    """What a file holds, in pieces, at most `limit` bytes of it."""
    position = 0
    while position < limit and (piece := os.pread(file, min(_PIECE, limit - position), position)):
        yield piece
        position += len(piece)


def read(
    root: Path, folders: tuple[str, ...], name: str, limit: int
) -> tuple[bytes, os.stat_result]:
    """The first `limit` bytes of a plain file below `root`, and how it looked right after.

    Raises:
        NotVisible: it is not a plain file.
        OSError: it cannot be read.
    """
    with folder(root, folders, create=False) as parent, opened(parent, name) as file:
        return b"".join(pieces(file, limit)), os.fstat(file)


def append(parent: int, name: str, lines: str, heading: str) -> int:
    """Add whole lines to the end of a file, on disk; the line they begin at.

    Raises:
        NotVisible: it is not a plain file.
        ToolError: it is full, or another program keeps replacing it.
        OSError: the disk did not take it; the file is as it was.
    """
    for _ in range(TRIES):
        file = os.open(name, _APPEND_FLAGS, 0o600, dir_fd=parent)
        try:
            _must_be_plain(file)
            line = _append_once(file, lines, heading)
            os.fsync(file)
            os.fsync(parent)
            if _is_still(file, parent, name):
                return line
        finally:
            os.close(file)
    raise ToolError(KEEPS_CHANGING)


def rewrite(parent: int, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """Put `change` of a file's content in its place, on disk; what it holds now.

    `change` gets empty bytes for a file that is not there yet, and is asked again when an editor
    saves the file meanwhile, so that neither side's words are lost.

    Raises:
        NotVisible: it is not a plain file.
        ToolError: it would be too large, or another program keeps changing it.
        OSError: the disk did not take it; the file is as it was.
    """
    for _ in range(TRIES):
        before = _read(parent, name)
        data = change(before.data if before is not None else b"")
        if before is not None and data == before.data:
            return data
        _must_fit(len(data))
        if _swap_in(parent, name, data, before):
            return data
    raise ToolError(KEEPS_CHANGING)


def remove(parent: int, name: str, before: bytes) -> bool:
    """Remove a file while it says what it said `before`; False when it says something else.

    Raises:
        NotVisible: it is not a plain file.
        OSError: the disk did not take it; the file is as it was.
    """
    beside, found = f".{name}.tmp", _read(parent, name)
    if found is None or found.data != before:
        return False
    os.rename(name, beside, src_dir_fd=parent, dst_dir_fd=parent)
    time.sleep(SETTLING)  # an editor that had it open may still be writing
    is_gone = _read(parent, beside) == found
    if not is_gone:
        _link(parent, beside, name)  # but where an editor has saved it anew by now
    os.fsync(parent)
    with suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=parent)
    return is_gone


def _read(parent: int, name: str) -> Version | None:
    try:
        with opened(parent, name) as file:
            status = os.fstat(file)
            _must_fit(status.st_size)
            data = b"".join(pieces(file, MAX_WRITE + 1))
            return Version(data, stat.S_IMODE(status.st_mode))
    except FileNotFoundError:
        return None


def _swap_in(parent: int, name: str, data: bytes, before: Version | None) -> bool:
    """Put `data` in the place of what was read; False when that is not there any more."""
    beside = f".{name}.tmp"
    with suppress(FileNotFoundError):  # left by a crash
        os.unlink(beside, dir_fd=parent)
    try:
        _write_new(parent, beside, data, 0o600 if before is None else before.mode)
        if before is None:
            if not _link(parent, beside, name):
                return False
        elif _read(parent, name) != before:
            return False
        elif not _exchange(parent, beside, name):
            os.replace(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
        elif not _settle(parent, beside, name, data, before):
            return False
        os.fsync(parent)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=parent)
    return True


def _settle(parent: int, beside: str, name: str, data: bytes, before: Version) -> bool:
    """See to what an editor wrote just now into the file that was swapped out; False: try again.

    An editor that had it open already may still be writing: it is given a moment to finish. What it
    added is added to the new file. What it changed otherwise goes back to its place.
    """
    late = _read(parent, beside)
    if late == before:
        time.sleep(SETTLING)
        late = _read(parent, beside)
    if late is None or late == before:
        return True
    if late.mode == before.mode and late.data.startswith(before.data):
        _add(parent, name, late.data[len(before.data) :])
        return True
    _exchange(parent, beside, name)
    ours = _read(parent, beside)
    if ours is not None and ours.data.startswith(data):  # it may have been added to meanwhile
        _add(parent, name, ours.data[len(data) :])
    return False


def _add(parent: int, name: str, tail: bytes) -> None:
    """Add what an editor wrote elsewhere to the end of a file."""
    if not tail:
        return
    file = os.open(name, _APPEND_FLAGS & ~os.O_CREAT, dir_fd=parent)
    try:
        while tail:
            tail = tail[os.write(file, tail) :]
        os.fsync(file)
    finally:
        os.close(file)


def _write_new(parent: int, name: str, data: bytes, mode: int) -> None:
    file = os.open(name, _NEW_FLAGS, 0o600, dir_fd=parent)
    try:
        rest = memoryview(data)
        while rest:
            written = os.write(file, rest)
            if written == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            rest = rest[written:]
        os.fchmod(file, mode)
        os.fsync(file)
    finally:
        os.close(file)


def _link(parent: int, beside: str, name: str) -> bool:
    """Give a new file its name; False when there is one by that name already."""
    try:
        os.link(beside, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:  # a file system without hard links
        if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}:
            raise
        os.replace(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
    return True


def _exchange(parent: int, one: str, other: str) -> bool:
    """Swap two names in one step; False where the system cannot."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    done: int = call(parent, os.fsencode(one), parent, os.fsencode(other), _EXCHANGE)
    if done == 0:
        return True
    code = ctypes.get_errno()
    if code in {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP}:
        return False
    raise OSError(code, os.strerror(code))


def _append_once(file: int, lines: str, heading: str) -> int:
    size = os.fstat(file).st_size
    ends_line = size > 0 and os.pread(file, 1, size - 1) == b"\n"
    lead = heading if size == 0 else "" if ends_line else "\n"
    data = (lead + lines).encode("utf-8", "replace")
    _must_fit(size + len(data))
    written = os.write(file, data)  # one call: nothing another program appends comes in between
    end = os.lseek(file, 0, os.SEEK_CUR)
    if written < len(data):
        if os.fstat(file).st_size == end:
            os.ftruncate(file, end - written)  # half a note is worse than none
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    start = end - written + len(lead.encode())
    return sum(piece.count(b"\n") for piece in pieces(file, start)) + 1


def _is_still(file: int, parent: int, name: str) -> bool:
    """Whether the name still means the file that was written."""
    try:
        there = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(file))


def _must_be_plain(file: int) -> None:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise NotVisible
