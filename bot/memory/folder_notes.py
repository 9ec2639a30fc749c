"""Notes as Markdown files in a folder, which people edit as they like."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import structlog
import watchfiles

from bot.memory import disk, layout
from bot.memory.note_store import Seen, Watch

STEP_MS = 50  # how long the operating system's events are gathered
RETRY = 60.0  # seconds until watching is tried again after it failed

log = structlog.get_logger(__name__)


class FolderNotes:
    """`bot.memory.note_store.NoteStore` over the files of a workspace."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def walk(
        self,
        folders: tuple[str, ...],
        wanted: Callable[[str], bool],
        depth: int,
        refused: dict[str, str] | None = None,
    ) -> Iterator[Seen]:
        """See `NoteStore.walk`. Links are no notes."""
        return disk.walk(self.root, folders, wanted, depth, refused)

    def read(self, folders: tuple[str, ...], name: str, limit: int) -> tuple[bytes, Seen]:
        """See `NoteStore.read`."""
        data, status = disk.read(self.root, folders, name, limit)
        look = (status.st_mtime_ns, status.st_size, status.st_ino)
        return data, Seen("/".join((*folders, name)), look)

    def append(
        self,
        folders: tuple[str, ...],
        name: str,
        lines: str,
        heading: str,
        watch: Watch | None = None,
    ) -> int:
        """See `NoteStore.append`. Nobody else forgets here, so `watch` is known already."""
        with disk.folder(self.root, folders, create=True) as parent:
            return disk.append(parent, name, lines, heading)

    def rewrite(
        self,
        folders: tuple[str, ...],
        name: str,
        change: Callable[[bytes], bytes],
        watch: Watch | None = None,
    ) -> bytes:
        """See `NoteStore.rewrite`; two names are exchanged, so an editor may save meanwhile."""
        with disk.folder(self.root, folders, create=True) as parent:
            return disk.rewrite(parent, name, change)

    def remove(self, folders: tuple[str, ...], name: str, before: bytes) -> bool:
        """See `NoteStore.remove`."""
        with disk.folder(self.root, folders, create=False) as parent:
            return disk.remove(parent, name, before)

    def can_write(self, folders: tuple[str, ...]) -> bool:
        """Whether something can be put into a folder, or into the nearest one there is above it."""
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
        await _watch_folder(self.root, on_change, on_state, stop)

    async def begin_watch(self, watch: Watch) -> None:
        """Nothing: this program alone forgets in a folder, and tells all who watch."""

    async def forgot(self, space: str, words: str) -> None:
        """Nothing: as above."""


async def _watch_folder(
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
            await _awatch(workspace, on_change, stop)
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


async def _awatch(workspace: Path, on_change: Callable[[], None], stop: asyncio.Event) -> None:
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
