"""Noticing edits to notes, whichever program made them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import structlog
import watchfiles

from bot.memory.spaces import locate

STEP_MS = 50  # how long the operating system's events are gathered
RETRY = 60.0  # seconds until watching is tried again after it failed

log = structlog.get_logger(__name__)


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
        return path.startswith(root) and (locate(relative) is not None or not relative.suffix)

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
