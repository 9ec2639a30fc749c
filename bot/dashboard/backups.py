"""`/backups`, for the owner: when backups are made, one made now, downloaded, and put back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from bot.channel import reveal
from bot.clock import DAY_MS
from bot.config import Settings
from bot.dashboard.pages import NO_STORE, Pages, Visit, in_menu, route, see
from bot.errors import StorageError
from bot.storage.backup_state import BackupFiles

PATH: Final = "/backups"
WAIT_SECONDS: Final = 20.0  # for one to be made; then the page says that it goes on

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class File:
    """One backup that can be downloaded; `size` is in bytes, `made_at` in ms."""

    path: Path
    made_at: int
    size: int


@in_menu(PATH, is_owners=True)
class BackupPages(Pages):
    """The page of backups, for the owner alone: a backup has everybody's data."""

    def __init__(
        self,
        files: Callable[[], Awaitable[BackupFiles]],
        make: Callable[[], Awaitable[None]],
        settings: Settings,
    ) -> None:
        """`make` makes one; why it could not is in the state of the `files` then."""
        self._files = files
        self._make_now = make
        self._settings = settings
        self._making: asyncio.Task[None] | None = None

    @route("GET", PATH)
    async def _page(self, visit: Visit) -> web.Response:
        kept, rules = await self._files(), self._settings.now.backup
        made = kept.state.made
        is_making = self._making is not None and not self._making.done()
        return visit.page(
            "backups.html",
            files=await asyncio.to_thread(_listed, kept.found),
            problem=kept.problem,
            state=kept.state,
            next_at=made.at + round(rules.every_hours * DAY_MS / 24) if made.at else 0,
            is_scheduled=rules.folder is not None,
            is_sealed=bool(reveal(rules.passphrase)),
            folder=str(kept.folder),
            is_making=is_making,
            is_done=visit.query("told") == "made" and not is_making and not made.failed_at,
        )

    @route("POST", f"{PATH}/make")
    async def _make(self, _visit: Visit) -> web.Response:
        """Make one; a second press while one is made waits for the same."""
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._made())
        await asyncio.wait({self._making}, timeout=WAIT_SECONDS)
        return see(f"{PATH}?told=made")

    async def _made(self) -> None:
        try:
            await self._make_now()
        except StorageError as error:
            log.warning("backup.failed", what="made", error=type(error).__name__)

    async def stop(self) -> None:
        """Make none any more; of one that is being made nothing is left."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait({self._making})

    @route("POST", f"{PATH}/download")  # a form, which no other site's page can send
    async def _download(self, visit: Visit) -> web.StreamResponse:
        name = (await visit.form()).get("name", "")
        found = (await self._files()).found.values()
        path = next((each for each in found if each.name == name), None)
        if path is None:
            raise web.HTTPNotFound
        log.info("backup.downloaded", name=name)
        said = {"Content-Disposition": f'attachment; filename="{path.name}"', **NO_STORE}
        return web.FileResponse(path, headers={"Content-Type": "application/octet-stream", **said})


def _listed(found: Mapping[int, Path]) -> list[File]:
    """The newest first; one that is removed meanwhile is left out."""
    files = list[File]()
    for made_at, path in sorted(found.items(), reverse=True):
        try:
            files.append(File(path, made_at, path.stat().st_size))
        except OSError:
            continue
    return files
