"""Backups of a PostgreSQL, which are those of a storage folder: what is there is moved into one.

All of it is read in one transaction, so it is of one moment whatever the nodes write meanwhile. A
backup is put into an empty database by the same way back; what is elsewhere is only read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from bot.archive import container, forgotten
from bot.archive.forgotten import Forgotten
from bot.archive.making import stage
from bot.archive.restore import Done, Passphrase, Since, Unpacked, settle, unpack
from bot.archive.work import Advance, Copying, nobody, unheard
from bot.channel import reveal
from bot.clock import Clock
from bot.cluster import census
from bot.cluster.extra import needing_extra
from bot.config import Config
from bot.errors import StorageBusy, StorageClosed
from bot.memory.row_notes import space_of
from bot.move import places
from bot.move.moving import Move
from bot.move.notes import Files, Rows
from bot.move.places import Place
from bot.storage import Transaction
from bot.storage.meta import MOVE, must_be_whole

with needing_extra():
    import psycopg

    from bot.storage import fulltext, postgres_schema
    from bot.storage.postgres_link import OPTIONS, place_of, unusable
    from bot.storage.postgres_sql import PostgresTransaction, Signals, configure, mapped

T = TypeVar("T")

log = structlog.get_logger(__name__)

# However long others take with what is read, the server must not end the transaction meanwhile.
_BEGIN = """BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
    SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0"""


async def copied(
    url: str, cluster: str, folder: Path, clock: Clock, copying: Copying = nobody
) -> None:
    """Make an empty folder a storage folder with everything that a server has, notes as files.

    `copying` hears how far that is.

    Raises:
        StorageError: the server cannot be used, or the disk does not take it.
        ConfidantError: a note cannot be written.
    """
    async with _now(url, cluster) as source, places.new_folder(folder) as target:
        await Move(source, target, clock, lambda _told: None, copying).run()
        # It is nothing that was moved, but what was there.
        await target.database.write(
            lambda tx: tx.execute("DELETE FROM meta WHERE substr(key, 1, ?) = ?", (len(MOVE), MOVE))
        )


async def restore(
    archive: Path,
    url: str,
    config: Config,
    passphrase: Passphrase,
    *,
    clock: Clock,
    since: Since | None = None,
    advance: Advance = unheard,
    copying: Copying = nobody,
) -> Done | None:
    """Put what a backup holds into an empty database, or go on with that; None if it is there.

    `advance` hears of what is read of the archive, then `copying` how far the database is.

    `since` finds out what was forgotten where people talk now. Until all is in the database nothing
    runs on it.

    Raises:
        ArchiveRefused: the file cannot be restored; nothing was touched.
        StorageBusy: nodes run on the database.
        StorageError: it is not empty, or cannot be used.
        ConfidantError: a note cannot be a row; nothing was touched.
    """
    async with stage(config.storage.folder) as place:
        scratch = place / "restored"
        workspace = scratch / container.WORKSPACE
        workspace.mkdir(mode=0o700, parents=True)
        found = await unpack(archive, passphrase, lambda name: scratch / name, advance)
        known = await since(found, place) if since is not None else Forgotten(workspace)
        kept, count = await settle(found, workspace, known, archive.name, clock())
        name = f"{archive.name} ({found.manifest.digest[:16]})"
        async with (
            places.old_folder(scratch, workspace) as source,
            places.server(url, config.storage.node_timeout) as target,
        ):
            named = replace(source, name=name)
            move = Move(named, target, clock, lambda _told: None, copying)
            moved = await move.run()
    if moved.was_done:
        return None
    log.info("archive.restored", members=len(found.manifest.members), forgotten=count)
    return Done(found.manifest, forgotten=count, kept=kept, others=moved.others)


async def forgotten_in(config: Config, found: Unpacked, place: Path) -> Forgotten:
    """What was forgotten on a server since a backup that was unpacked; `place` takes its notes.

    Raises:
        StorageBusy: nodes run on it, so more may be forgotten.
        StorageError: it cannot be reached.
    """
    url, workspace = reveal(config.storage.url), place / "now"
    within = config.storage.node_timeout
    async with _now(url, config.storage.cluster) as here:
        if await here.database.read(lambda tx: census.alive(tx, within)):
            raise StorageBusy(f"Confidant runs on {here.name}. Stop all nodes first.")
        known = await here.database.read(partial(forgotten.of_database, workspace=workspace))
        spaces = dict(known.spaces)
        notes = Files(workspace)
        for path in await here.notes.paths():
            if space_of(path) in spaces:
                await notes.write(await here.notes.read(path))
    return known


@asynccontextmanager
async def _now(url: str, cluster: str) -> AsyncGenerator[Place]:
    """Everything on a server as it is at this moment; nodes may run on it.

    Raises:
        StorageError: it cannot be reached, has no tables or newer ones, or is another cluster's.
    """
    database = _Snapshot(url)
    try:
        await database.begin(cluster)
        yield Place(place_of(url), database, Rows(database), is_shared=True)
    finally:
        await database.close()


class _Snapshot:
    """`bot.storage.Database` as it was when this began; nothing can be written."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="confidant-snapshot")
        self._tx: PostgresTransaction | None = None

    async def begin(self, cluster: str) -> None:
        """Connect; what is committed until then is seen.

        Raises:
            StorageError: see `_now`.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._begin, cluster)

    def _begin(self, cluster: str) -> None:
        try:
            connection = psycopg.connect(self._url, **OPTIONS)
            configure(connection)
            self._tx = PostgresTransaction(connection, Signals(), fulltext.Words())
            connection.execute(_BEGIN)
            postgres_schema.check_made(self._tx)
            postgres_schema.check_cluster(self._tx, cluster)
            must_be_whole(self._tx)
        except psycopg.Error as exc:
            raise unusable(exc, place_of(self._url)) from exc

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Never.

        Raises:
            StorageClosed: always.
        """
        raise StorageClosed("What is backed up is not written to.")

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, work)

    def _read(self, work: Callable[[Transaction], T]) -> T:
        if self._tx is None:
            raise StorageClosed
        try:
            return work(self._tx)
        except psycopg.Error as exc:
            raise mapped(exc) from exc

    async def close(self) -> None:
        """Disconnect."""
        self._thread.shutdown()
        if self._tx is not None:
            self._tx.connection.close()
