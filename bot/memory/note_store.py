"""The store of notes: its seam, through which everything reaches them, and notes as files.

A note is named by its path below the workspace. `bot.memory.layout` says which paths a view may
use; a store asks nothing about views. Its methods wait for a disk or a server, so they are called
in threads, but for those that are `async`. `bot.memory.row_notes` keeps notes as rows.

Files are Markdown in a folder, which people edit as they like. They are reached one component at a
time and never through a symlink: no name and no race leads out of a folder that was opened. What
is changed is written beside, flushed, and swapped in only while the file is still the one that was
read.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import stat
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol

import structlog

from bot.errors import NotVisible, ToolError
from bot.memory import layout
from bot.storage import Transaction, files, scalar, scalars

MAX_WRITE = 1_000_000  # bytes of a note that is written to
TRIES = 8  # another program may change the note just while it is being written
KEEPS_CHANGING = "another program keeps changing this file; nothing was written"
FORGOTTEN = (
    "the person has just had something forgotten, so nothing was written that may come from before "
    "that"
)


class Seen(NamedTuple):
    """A note that was come across: its path below the workspace, and how it looked.

    `look` is another one after each change: when that was (ns), its size, and the number of its
    file or of its version.
    """

    path: str
    look: tuple[int, int, int]

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return self.look[1]


class NotesUnreachable(OSError):
    """The database that holds the notes does not answer."""


@dataclass(eq=False, slots=True)
class Watch:
    """The words forgotten in a space since somebody began to read it.

    `number` is that of the last forgetting before it, where other nodes may forget as well.
    """

    space: str = ""
    number: int | None = None
    words: list[str] = field(default_factory=list[str])


class NoteStore(Protocol):
    """The notes of every space."""

    def walk(
        self,
        folders: tuple[str, ...],
        wanted: Callable[[str], bool],
        depth: int,
        refused: dict[str, str] | None = None,
    ) -> Iterator[Seen]:
        """Every note below some folders whose name is `wanted`, each folder's own first.

        `depth` is how many components a path below `folders` may have. `refused` gets the folders
        that cannot be looked into, each ending in "/", and why.

        Raises:
            OSError: the folder to begin with cannot be read.
        """
        ...

    def read(self, path: str, limit: int) -> tuple[bytes, Seen]:
        """The first `limit` bytes of a note, and how it looked right after.

        Raises:
            NotVisible: it is no plain note.
            OSError: it cannot be read.
        """
        ...

    def append(self, path: str, lines: str, heading: str, watch: Watch | None = None) -> int:
        """Add whole lines to the end of a note, for good; the line they begin at.

        An empty or new one begins with `heading`.

        Raises:
            NotVisible: it is no plain note.
            ToolError: it is full, another program keeps replacing it, or something was forgotten.
            OSError: it was not taken; the note is as it was.
        """
        ...

    def rewrite(
        self, path: str, change: Callable[[bytes], bytes], watch: Watch | None = None
    ) -> bytes:
        """Put `change` of a note's content in its place, for good; what it holds now.

        `change` gets empty bytes for a note that is not there yet, and is asked again when another
        program changes the note meanwhile, so that neither side's words are lost.

        Raises:
            NotVisible: it is no plain note.
            ToolError: it would be too large, another program keeps changing it, or something was
                forgotten.
            OSError: it was not taken; the note is as it was.
        """
        ...

    def remove(self, path: str, before: bytes) -> bool:
        """Remove a note, for good, while it says what it said `before`; False if it does not.

        Raises:
            NotVisible: it is no plain note.
            OSError: it was not taken; the note is as it was.
        """
        ...

    def can_write(self, folders: tuple[str, ...]) -> bool:
        """True if notes can be written into these folders."""
        ...

    def make(self) -> None:
        """See to it that there is a place for notes.

        Raises:
            OSError: there can be none.
        """
        ...

    def prepare(self) -> int:
        """Begin a new workspace with the templates; how many were copied."""
        ...

    async def tidy(self) -> None:
        """Let go of what is kept for a while only; now and then, by one node. Never raises."""
        ...

    async def watch(
        self, on_change: Callable[[], None], on_state: Callable[[str], None], stop: asyncio.Event
    ) -> None:
        """Call `on_change` when somebody else changes a note, until `stop` is set.

        `on_state` gets why watching does not work, or an empty text when it does.
        """
        ...

    async def begin_watch(self, watch: Watch) -> None:
        """Let a watch know where it begins, before anything of its space is read.

        Raises:
            StorageError: the database cannot be read.
        """
        ...

    async def forgot(self, space: str, words: str) -> None:
        """Refuse what others write with a watch from before this, on whatever node.

        Raises:
            StorageError: the database does not take it.
        """
        ...


def must_fit(size: int) -> None:
    """Refuse a note that is too long to be written to.

    Raises:
        ToolError: it is.
    """
    if size > MAX_WRITE:
        raise ToolError(f"this file is full: at most {MAX_WRITE // 1000} kB; use another one")


# What was forgotten of late, for nodes that do not hear each other at once.
#
# A turn or a flush reads first and writes later, and meanwhile another node may forget what it
# has read. Each forgetting has the next number of its space; who reads remembers the last one,
# and looks in the very transaction that writes whether there were others since.

FORGETTINGS_KEPT_MS = (
    3_600_000  # words are cleared after so long: no turn that began before is at work still
)


def last_forgetting(tx: Transaction, space: str) -> int:
    """The number of a space's last forgetting; 0 when there was none."""
    return scalar(tx, "SELECT coalesce(max(number), 0) FROM forgettings WHERE space = ?", space)


def tell_forgetting(tx: Transaction, space: str, words: str, now: int) -> None:
    """Let whoever watches a space know, on whatever node, what was forgotten there."""
    tx.execute(
        "INSERT INTO forgettings(space, number, words, at) VALUES (?, ?, ?, ?)",
        (space, last_forgetting(tx, space) + 1, words, now),
    )


def heard_forgetting(tx: Transaction, watch: Watch) -> tuple[str, ...]:
    """The words forgotten since a watch began; an empty text stands for words that were cleared."""
    if watch.number is None:
        return tuple(watch.words)
    since = "SELECT words FROM forgettings WHERE space = ? AND number > ? ORDER BY number"
    return tuple(dict.fromkeys((*watch.words, *scalars(tx, since, watch.space, watch.number))))


def clear_forgettings(tx: Transaction, now: int) -> None:
    """Let go of words that nobody can write any more."""
    tx.execute(
        "UPDATE forgettings SET words = '' WHERE words <> '' AND at < ?",
        (now - FORGETTINGS_KEPT_MS,),
    )


# --- notes as files -------------------------------------------------------------------------------


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

STEP_MS = 50  # how long the operating system's events are gathered
RETRY = 60.0  # seconds until watching is tried again after it failed

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Version:
    """A file as it was read."""

    data: bytes
    mode: int


class FolderNotes:
    """`bot.memory.note_store.NoteStore` over the files of a workspace."""

    def __init__(
        self, root: Path, is_wanted: Callable[[PurePosixPath], object] = layout.locate
    ) -> None:
        """`is_wanted` says of which files, below the root, changes are told; usually of notes."""
        self.root = root
        self._is_wanted = is_wanted

    def walk(
        self,
        folders: tuple[str, ...],
        wanted: Callable[[str], bool],
        depth: int,
        refused: dict[str, str] | None = None,
    ) -> Iterator[Seen]:
        """See `NoteStore.walk`. Links are no notes.

        A folder is entered unless its name is one that a file would be wanted by.
        """
        with folder(self.root, folders, create=False) as start:
            prefix = "".join(f"{part}/" for part in folders)
            yield from _walk(start, prefix, wanted, depth, {} if refused is None else refused)

    def read(self, path: str, limit: int) -> tuple[bytes, Seen]:
        """See `NoteStore.read`."""
        with self._parent(path) as (parent, name), opened(parent, name) as file:
            return b"".join(pieces(file, limit)), _seen(path, os.fstat(file))

    def append(self, path: str, lines: str, heading: str, watch: Watch | None = None) -> int:
        """See `NoteStore.append`. Nobody else forgets here, so `watch` is known already."""
        with self._parent(path, create=True) as (parent, name):
            return append(parent, name, lines, heading)

    def rewrite(
        self, path: str, change: Callable[[bytes], bytes], watch: Watch | None = None
    ) -> bytes:
        """See `NoteStore.rewrite`; two names are exchanged, so an editor may save meanwhile."""
        with self._parent(path, create=True) as (parent, name):
            return rewrite(parent, name, change)

    def remove(self, path: str, before: bytes) -> bool:
        """See `NoteStore.remove`."""
        with self._parent(path) as (parent, name):
            return remove(parent, name, before)

    def can_write(self, folders: tuple[str, ...]) -> bool:
        """True if a folder, or the nearest one there is above it, is writable."""
        folder = self.root.joinpath(*folders)
        there = next(path for path in (folder, *folder.parents) if path.exists())
        return os.access(there, os.W_OK | os.X_OK)

    def make(self) -> None:
        """See `NoteStore.make`."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def prepare(self) -> int:
        """See `NoteStore.prepare`; nothing is raised, and what a person has written stays."""
        return layout.prepare(self.root)

    async def tidy(self) -> None:
        """Nothing is kept."""

    async def watch(
        self, on_change: Callable[[], None], on_state: Callable[[str], None], stop: asyncio.Event
    ) -> None:
        """See `NoteStore.watch`: every edit is one, also our own."""
        told = ""
        while not stop.is_set():
            try:
                on_state("")
                await _awatch(self.root, self._is_wanted, on_change, stop)
            except (OSError, RuntimeError) as error:
                # Too many watches, or a file system without events: the interval still finds edits.
                on_state(f"edits are noticed late: {type(error).__name__}")
                if told != type(error).__name__:  # a network drive may be away for days
                    told = type(error).__name__
                    log.warning("memory.watch_failed", error=told)
            if stop.is_set():
                return
            try:
                async with asyncio.timeout(RETRY):
                    await stop.wait()
            except TimeoutError:
                continue

    async def begin_watch(self, watch: Watch) -> None:
        """Nothing: this program alone forgets in a folder, and tells all who watch."""

    async def forgot(self, space: str, words: str) -> None:
        """Nothing: as above."""

    @contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Generator[tuple[int, str]]:
        """The descriptor of a note's folder, and its name there."""
        *folders, name = path.split("/")
        with folder(self.root, tuple(folders), create=create) as parent:
            yield parent, name


async def _awatch(
    workspace: Path,
    is_wanted: Callable[[PurePosixPath], object],
    on_change: Callable[[], None],
    stop: asyncio.Event,
) -> None:
    import watchfiles  # noqa: PLC0415 - commands watch nothing

    root = str(workspace)

    def is_told(_: watchfiles.Change, path: str) -> bool:
        relative = PurePosixPath(path.removeprefix(root).lstrip("/"))
        return path.startswith(root) and bool(is_wanted(relative) or not relative.suffix)

    changes = watchfiles.awatch(  # pyright: ignore[reportUnknownMemberType]
        workspace,
        watch_filter=is_told,
        debounce=STEP_MS * 2,
        step=STEP_MS,
        stop_event=stop,
        recursive=True,
        ignore_permission_denied=True,
    )
    async for _ in changes:
        on_change()


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
        files.sync_names(parent)
        return os.open(name, _FOLDER_FLAGS, dir_fd=parent)


def _walk(
    parent: int, path: str, wanted: Callable[[str], bool], depth: int, refused: dict[str, str]
) -> Iterator[Seen]:
    inner: list[str] = []
    with os.scandir(parent) as entries:
        ordered = sorted(
            (entry for entry in entries if layout.is_plain(entry.name)), key=lambda each: each.name
        )
    for entry in ordered:
        with suppress(OSError):  # it went away meanwhile
            if wanted(entry.name):
                if entry.is_file(follow_symlinks=False):
                    yield _seen(path + entry.name, entry.stat(follow_symlinks=False))
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


def _seen(path: str, status: os.stat_result) -> Seen:
    return Seen(path, (status.st_mtime_ns, status.st_size, status.st_ino))


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
    """The content of a file in pieces, at most `limit` bytes of it."""
    position = 0
    while position < limit and (piece := os.pread(file, min(_PIECE, limit - position), position)):
        yield piece
        position += len(piece)


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
            files.sync_names(parent)
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
        must_fit(len(data))
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
        _link(parent, beside, name)  # unless an editor has saved it again by now
    files.sync_names(parent)
    with suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=parent)
    return is_gone


def _read(parent: int, name: str) -> Version | None:
    try:
        with opened(parent, name) as file:
            status = os.fstat(file)
            must_fit(status.st_size)
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
        files.sync_names(parent)
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
        _write_all(file, tail)
        os.fsync(file)
    finally:
        os.close(file)


def _write_new(parent: int, name: str, data: bytes, mode: int) -> None:
    file = os.open(name, _NEW_FLAGS, 0o600, dir_fd=parent)
    try:
        _write_all(file, data)
        os.fchmod(file, mode)
        os.fsync(file)
    finally:
        os.close(file)


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        written = os.write(file, rest)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[written:]


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
    must_fit(size + len(data))
    written = os.write(file, data)  # one call: nothing another program appends comes in between
    end = os.lseek(file, 0, os.SEEK_CUR)
    if written < len(data):
        if os.fstat(file).st_size == end:
            os.ftruncate(file, end - written)  # half a note is worse than none
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    start = end - written + len(lead.encode())
    return sum(piece.count(b"\n") for piece in pieces(file, start)) + 1


def _is_still(file: int, parent: int, name: str) -> bool:
    """True if the name still means the file that was written."""
    try:
        there = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(file))


def _must_be_plain(file: int) -> None:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise NotVisible
