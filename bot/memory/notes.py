"""Daily notes: Markdown files that are only ever appended to, inside one view's space.

Every path is walked one component at a time from the workspace down, never through a symlink, so
no name and no race leads out of the space. What cannot be reached for whatever reason is answered
with the same words.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import stat
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bot.errors import NotVisible, ToolError
from bot.scope import MAIN_SPACE, MemoryView

NOTES_FOLDER = "memory"
MAX_NAME = 200  # bytes of one component
MAX_DEPTH = 8  # folders below the space
REPLACED_RETRIES = 3  # an editor may put a new file in the place of the one just written

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a named pipe must fail, not wait for its other end.
_FILE_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_HIDDEN_ERRORS = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ENOENT})
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: a path within the space, and a line counted from 1."""

    path: str
    line: int


class Notes:
    """The daily notes of every space under one workspace."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()  # one append at a time, in whatever thread

    async def remember(self, view: MemoryView, text: str, now: datetime) -> Place:
        """Append a bullet to the note of `now`'s own date; returns once it is on disk.

        Raises:
            NotVisible: the view has no space, or its path is not one of plain folders and files.
            ToolError: the disk did not take it.
        """
        path = f"{NOTES_FOLDER}/{now:%Y-%m-%d}.md"
        return await self.append(view, path, bullet(text, now), heading=f"# {now:%Y-%m-%d}\n\n")

    async def append(self, view: MemoryView, path: str, lines: str, *, heading: str = "") -> Place:
        """Append whole lines to a note; an empty or new one begins with `heading`.

        Raises:
            NotVisible: no note by that name can be in this view.
            ToolError: the disk did not take it.
        """
        folders = (*space_folders(view), *note_parts(path))
        return await asyncio.to_thread(self._append, folders, path, lines, heading)

    def _append(self, parts: tuple[str, ...], path: str, lines: str, heading: str) -> Place:
        try:
            with self._lock:
                self._workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
                with _folder(self._workspace, parts[:-1]) as folder:
                    return Place(path, _append_file(folder, parts[-1], lines, heading))
        except OSError as error:
            if error.errno in _HIDDEN_ERRORS:
                raise NotVisible from error
            reason = os.strerror(error.errno) if error.errno else "unknown"
            raise ToolError(f"the note could not be written: {reason}") from error


def space_folders(view: MemoryView) -> tuple[str, ...]:
    """The folders of a view's space, below the workspace.

    Raises:
        NotVisible: the view has no space.
    """
    if view.space == MAIN_SPACE:
        return ()
    parts = tuple(view.space.split("/"))
    if len(parts) != 2 or parts[0] not in {"people", "rooms"} or not _is_plain(parts[1]):
        raise NotVisible
    return parts


def note_parts(path: str) -> tuple[str, ...]:
    """The components of a note's path within its space: Markdown below `memory/`.

    Raises:
        NotVisible: it is anything else.
    """
    parts = tuple(path.split("/"))
    if (
        not 2 <= len(parts) <= MAX_DEPTH
        or parts[0] != NOTES_FOLDER
        or not parts[-1].endswith(".md")
        or not all(_is_plain(part) for part in parts)
    ):
        raise NotVisible
    return parts


def bullet(text: str, now: datetime) -> str:
    """Text as one Markdown bullet with the time; further lines are indented below it."""
    lines = [_CONTROL.sub("", line).rstrip() for line in text.strip().splitlines()]
    first, *rest = lines or [""]
    indented = [f"  {line}" if line else "" for line in rest]
    return "\n".join([f"- {now:%H:%M} {first}", *indented]) + "\n"


def _is_plain(name: str) -> bool:
    """Whether a component is a visible name and nothing but a name."""
    return (
        bool(name)
        and not name.startswith(".")
        and not any(c in "\\:" or not c.isprintable() for c in name)
        and len(name.encode("utf-8", "surrogatepass")) <= MAX_NAME
    )


@contextmanager
def _folder(root: Path, parts: tuple[str, ...]) -> Generator[int]:
    """The descriptor of a folder below `root`, made if need be, reached through no symlink."""
    # The operator may keep the workspace itself behind a link; below it there are none.
    current = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            following = _open_folder(current, part)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


def _open_folder(parent: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    except FileNotFoundError:
        with suppress(FileExistsError):  # another process was quicker
            os.mkdir(name, 0o700, dir_fd=parent)
        os.fsync(parent)
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)


def _append_file(folder: int, name: str, lines: str, heading: str) -> int:
    """Append, and return the line it begins at."""
    line = 0
    for _ in range(REPLACED_RETRIES):
        file = os.open(name, _FILE_FLAGS, 0o600, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise NotVisible
            line = _append_once(file, lines, heading)
            os.fsync(file)
            os.fsync(folder)
            if _is_still(file, folder, name):
                return line
        finally:
            os.close(file)
    raise ToolError("the note could not be written: another program keeps replacing it")


def _append_once(file: int, lines: str, heading: str) -> int:
    size = os.fstat(file).st_size
    ends_line = size > 0 and os.pread(file, 1, size - 1) == b"\n"
    lead = heading if size == 0 else "" if ends_line else "\n"
    data = (lead + lines).encode("utf-8", "replace")
    written = os.write(file, data)  # one call: nothing another program appends comes in between
    end = os.lseek(file, 0, os.SEEK_CUR)
    if written < len(data):
        if os.fstat(file).st_size == end:
            os.ftruncate(file, end - written)  # half a note is worse than none
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    start = end - written + len(lead.encode())
    return _newlines_before(file, start) + 1


def _newlines_before(file: int, end: int) -> int:
    count, position = 0, 0
    while position < end:
        piece = os.pread(file, min(1 << 16, end - position), position)
        if not piece:
            break
        count += piece.count(b"\n")
        position += len(piece)
    return count


def _is_still(file: int, folder: int, name: str) -> bool:
    """Whether the name still means the file that was written."""
    try:
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(file))
