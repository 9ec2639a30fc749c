"""Months of what was said: made before they begin, dropped when the operator does not keep them.

Every node sees to it and the server lets one at a time, in transactions of their own: making and
dropping tables is nothing that others should wait or collide for. What the months are, and which
may go, is decided by the server and its clock (`bot.storage.months`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

import structlog

from bot.errors import StorageClosed, StorageError
from bot.sessions import artifacts, compactions
from bot.storage import Database, months
from bot.storage.months import Dropped
from bot.storage.postgres_server import once

FIRST_SECONDS = 30.0  # a start has better things to do
ROUND_SECONDS = 3600.0
RETRY_SECONDS = 60.0  # after a round that failed: somebody may be reading a table for long
NOTICE_SECONDS = 600.0  # between telling what will be dropped and dropping it
SLICE = 100  # rows that are removed together

log = structlog.get_logger(__name__)


class Retention:
    """Sees to the months of one database; one of them for each node."""

    def __init__(self, url: str, database: Database, kept: int) -> None:
        """`kept` whole months beside the current one stay; 0 for all of them."""
        self._url = url
        self._database = database
        self._kept = kept
        self._changed = asyncio.Event()
        self._wish = 0  # how often `kept` was another one
        self._told: tuple[int, set[str]] = (0, set())  # what was said to go because of which wish
        self._cleared = ""  # the month up to which nothing is left over

    def keep(self, kept: int) -> None:
        """Keep so many months from now on; what is dropped because of that is told before."""
        if kept != self._kept:
            self._kept = kept
            self._wish += 1
            self._changed.set()

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            self._changed.clear()
            try:
                pause = await self.look()
            except StorageClosed:
                return
            except StorageError as exc:
                log.warning("retention.postponed", reason=str(exc), seconds=RETRY_SECONDS)
                pause = RETRY_SECONDS
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), pause)

    async def look(self) -> float:
        """See to the months once; for how many seconds that will do.

        Raises:
            StorageError: a table is in use, or something is refused; what was done so far stays.
        """
        if made := await asyncio.to_thread(once, self._url, months.see_to):
            log.info("retention.made", months=made)
        kept = self._kept
        if self._told[0] != self._wish:
            self._told = (self._wish, set())
        told = self._told[1]
        due = await self._database.read(lambda tx: months.due(tx, kept))
        if set(due) - told:
            told.update(due)
            log.warning("retention.due", months=due, keep_months=kept, seconds=NOTICE_SECONDS)
            return NOTICE_SECONDS
        while dropped := await self._drop(kept):
            log.warning(
                "retention.dropped",
                month=dropped.month,
                entries=dropped.entries,
                sessions=dropped.sessions,
            )
        await self._clear()
        return ROUND_SECONDS

    async def _drop(self, kept: int) -> Dropped | None:
        return await asyncio.to_thread(once, self._url, lambda tx: months.drop(tx, kept))

    async def _clear(self) -> None:
        """Remove what is large and belongs to months that are gone, some at a time."""
        last = await self._database.read(months.last_dropped)
        if last <= self._cleared:
            return
        before = months.end_of(last)
        ids, names = await self._database.read(
            lambda tx: (artifacts.before(tx, before), compactions.before(tx, before))
        )
        for at in range(0, len(ids), SLICE):
            await self._database.write(partial(artifacts.remove, ids=ids[at : at + SLICE]))
        for at in range(0, len(names), SLICE):
            await self._database.write(partial(compactions.drop_old, names=names[at : at + SLICE]))
        self._cleared = last
        if ids or names:
            log.info("retention.cleared", results=len(ids), prompts=len(names))
