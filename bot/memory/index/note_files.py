"""The notes as the index sees them: which there are, what they say, and when one is edited."""

from __future__ import annotations

import asyncio
import codecs
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

import structlog
import watchfiles

from bot.errors import NotVisible
from bot.memory import disk, layout
from bot.memory.disk import Seen
from bot.memory.layout import Located

MAX_BYTES = 8_000_000  # of a note; a longer file is no note, and is named in the status instead
MAX_FILES = 50_000
STEP_MS = 50  # how long the operating system's events are gathered
RETRY = 60.0  # seconds until watching is tried again after it failed

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Note:
    """A file that belongs into the index; `seen` has its path below the workspace."""

    seen: Seen
    located: Located


@dataclass(frozen=True, slots=True)
class Content:
    """What a note holds; `problem` says what of it could not be taken as it is."""

    text: str
    hash: bytes
    problem: str = ""


class Changed(Exception):
    """The file was written since it was come across."""


def files(workspace: Path, refused: dict[str, str] | None = None) -> Iterator[Seen]:
    """Every Markdown file below the workspace; `refused` as `disk.walk` has it.

    Raises:
        OSError: the workspace itself cannot be read.
    """
    found = disk.walk(workspace, (), layout.is_note, layout.MAX_PARTS, refused)
    return islice(found, MAX_FILES)


def note(seen: Seen) -> Note | None:
    """A file as a note, or None when it is none."""
    located = layout.locate(PurePosixPath(seen.path))
    return Note(seen, located) if located is not None else None


def read(workspace: Path, note: Note) -> Content:
    """A note's text. What is not UTF-8 is read as well as it can be.

    Raises:
        Changed: it was just written; it will be read the next time.
        OSError: it cannot be read.
    """
    if (size := note.seen.size) > MAX_BYTES:
        reason = f"too long: {size // 1_000_000} MB of at most {MAX_BYTES // 1_000_000} MB"
        return Content("", b"", reason)
    data = _read_bytes(workspace, note)
    hashed = hashlib.blake2b(data, digest_size=16).digest()
    try:
        return Content(data.decode("utf-8-sig"), hashed)
    except UnicodeDecodeError:
        return Content(_decoded(data), hashed, "not UTF-8: some characters may be wrong")


def _read_bytes(workspace: Path, note: Note) -> bytes:
    *folders, name = PurePosixPath(note.seen.path).parts
    try:
        data, after = disk.read(workspace, tuple(folders), name, MAX_BYTES + 1)
    except NotVisible as error:  # something else took its place
        raise Changed from error
    if (after.st_mtime_ns, after.st_size, after.st_ino) != note.seen.look:
        raise Changed
    return data


def _decoded(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("gb18030")
    except UnicodeDecodeError:
        return data.decode("latin-1")


async def watch(
    workspace: Path,
    on_change: Callable[[], None],
    on_state: Callable[[str], None],
    stop: asyncio.Event,
) -> None:
    """Call `on_change` for every edit of a note, until `stop` is set.

    `on_state` gets why watching does not work, or an empty text when it does again.
    """
    while not stop.is_set():
        try:
            on_state("")
            await _watch(workspace, on_change, stop)
        except (OSError, RuntimeError) as error:
            # Too many watches, or a file system without events: the interval still finds edits.
            on_state(f"edits are noticed late: {type(error).__name__}")
            log.warning("memory.watch_failed", error=type(error).__name__)
        if stop.is_set():
            return
        try:
            async with asyncio.timeout(RETRY):
                await stop.wait()
        except TimeoutError:
            continue


async def _watch(workspace: Path, on_change: Callable[[], None], stop: asyncio.Event) -> None:
    root = str(workspace)

    def is_note(_: watchfiles.Change, path: str) -> bool:
        relative = PurePosixPath(path.removeprefix(root).lstrip("/"))
        return path.startswith(root) and (
            layout.locate(relative) is not None or not relative.suffix
        )

    changes = watchfiles.awatch(  # pyright: ignore[reportUnknownMemberType]
        workspace,
        watch_filter=is_note,
        debounce=STEP_MS * 2,
        step=STEP_MS,
        stop_event=stop,
        recursive=True,
        ignore_permission_denied=True,
    )
    async for _ in changes:
        on_change()
