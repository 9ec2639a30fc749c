"""Writing what must not be lost: again and again until the disk takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import structlog

from bot import errors
from bot.storage import Database, Transaction

FIRST_RETRY = 0.5  # seconds; doubles with each try
LAST_RETRY = 15.0  # seconds

T = TypeVar("T")
log = structlog.get_logger(__name__)


async def insist(database: Database, work: Callable[[Transaction], T]) -> T:
    """Run `work` as `Database.write` does, trying again while the disk is full or failing.

    What has happened already (a message sent, a turn finished) can only be noted, not undone.

    Raises:
        StorageClosed: the database was closed meanwhile.
    """
    delay = FIRST_RETRY
    while True:
        try:
            return await database.write(work)
        except errors.StorageClosed:
            raise
        except errors.StorageError as exc:
            log.warning("storage.retry", error=type(exc).__name__, seconds=delay)
            await asyncio.sleep(delay)
            delay = min(delay * 2, LAST_RETRY)
