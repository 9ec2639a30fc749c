"""Looking through the workspace for notes, and reading them, without following any symlink."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from bot.memory.spaces import MAX_PARTS, Located, locate

MAX_BYTES = 8_000_000  # of a note; a longer file is no note, and is named in the status instead
MAX_FILES = 50_000
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})  # or a link or a file now
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Seen(NamedTuple):
    """A Markdown file on disk, by its path below the workspace; `look` is (mtime, size, inode)."""

    name: str
    look: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Found:
    """A note on disk: a file that belongs into the index."""

    name: str
    located: Located
    look: tuple[int, int, int]

    @property
    def size(self) -> int:
        """How long it is, in bytes."""
        return self.look[1]


@dataclass(frozen=True, slots=True)
class Content:
    """What a note holds; `problem` says what of it could not be taken as it is."""

    text: str
    hash: bytes
    problem: str = ""


class Changed(Exception):
    """The file was written while it was read."""


def notes(workspace: Path) -> Iterator[Found]:
    """Every note below the workspace.

    Raises:
        OSError: the workspace itself cannot be read.
    """
    return (found for seen in scan(workspace) if (found := located(seen)) is not None)


def located(seen: Seen) -> Found | None:
    """A file as a note, or None when it is none."""
    where = locate(PurePosixPath(seen.name))
    return Found(seen.name, where, seen.look) if where is not None else None


def scan(workspace: Path, refused: dict[str, str] | None = None) -> Iterator[Seen]:
    """Every Markdown file below the workspace that is no symlink, nor behind one.

    `refused` gets the folders that cannot be looked into, each ending in "/", and why.

    Raises:
        OSError: the workspace itself cannot be read.
    """
    folder = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        left = MAX_FILES
        for seen in _walk(folder, "", 1, {} if refused is None else refused):
            yield seen
            left -= 1
            if not left:
                return
    finally:
        os.close(folder)


def read(workspace: Path, found: Found) -> Content:
    """A note's text. What is not UTF-8 is read as well as it can be.

    Raises:
        Changed: it is being written; it will be read the next time.
        OSError: it cannot be read.
    """
    if found.size > MAX_BYTES:
        reason = f"too long: {found.size // 1_000_000} MB of at most {MAX_BYTES // 1_000_000} MB"
        return Content("", b"", reason)
    data = _read_bytes(workspace, found)
    hashed = hashlib.blake2b(data, digest_size=16).digest()
    try:
        return Content(data.decode("utf-8-sig"), hashed)
    except UnicodeDecodeError:
        return Content(_decoded(data), hashed, "not UTF-8: some characters may be wrong")


def reason(error: OSError) -> str:
    """Why a file cannot be read, in words."""
    return os.strerror(error.errno) if error.errno else type(error).__name__


def _decoded(data: bytes) -> str:
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    try:
        return data.decode("gb18030")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _walk(folder: int, path: str, depth: int, refused: dict[str, str]) -> Iterator[Seen]:
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=_name)
    for entry in ordered:
        name = entry.name
        if name.startswith(".") or not name.isprintable():
            continue
        try:
            if name.endswith(".md"):
                if entry.is_file(follow_symlinks=False):
                    look = entry.stat(follow_symlinks=False)
                    yield Seen(path + name, (look.st_mtime_ns, look.st_size, look.st_ino))
            elif depth < MAX_PARTS and entry.is_dir(follow_symlinks=False):
                yield from _enter(folder, name, f"{path}{name}/", depth + 1, refused)
        except OSError:  # it went away meanwhile
            continue


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def _enter(
    parent: int, name: str, path: str, depth: int, refused: dict[str, str]
) -> Iterator[Seen]:
    try:
        folder = os.open(name, _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno not in _GONE:
            refused[path] = reason(error)
        return
    try:
        yield from _walk(folder, path, depth, refused)
    finally:
        os.close(folder)


def _read_bytes(workspace: Path, found: Found) -> bytes:
    *folders, name = PurePosixPath(found.name).parts
    current = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            following = os.open(part, _FOLDER, dir_fd=current)
            os.close(current)
            current = following
        file = os.open(name, _READ, dir_fd=current)
    finally:
        os.close(current)
    with os.fdopen(file, "rb") as stream:
        before = os.fstat(file)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        data = stream.read(MAX_BYTES + 1)
        after = os.fstat(file)
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        raise Changed
    if len(data) > MAX_BYTES or len(data) != after.st_size:
        raise Changed
    return data
