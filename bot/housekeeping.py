"""What the program does beside answering: backups, pruning, looking around, saying how it is."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog

from bot import recovery
from bot.channel import Health
from bot.clock import DAY_MS, Clock
from bot.config import BackupConfig, StorageConfig
from bot.coordination import Standing
from bot.dashboard.api import Check, Readiness
from bot.delivery import outbox
from bot.errors import StorageClosed, StorageError
from bot.gateway.gateway import Connections
from bot.memory.memory import INDEX_FOLDER, Memory
from bot.metrics import Metrics
from bot.money import allowance, counts
from bot.recovery import TRANSCRIPTS
from bot.sessions import inbox, page_logins, uploads
from bot.sessions.mirror import Mirror
from bot.storage import Database, backup, backup_state, files
from bot.storage.meta import MetaStore
from bot.storage.sqlite import SqliteDatabase

LAG_SECONDS = 5.0
FIRST_BACKUP_SECONDS = 30.0  # a start has better things to do
RETRY_SECONDS = 600.0  # after a backup that failed
PRUNE_SECONDS = 24 * 3600.0  # between prunings
COPY_LOOK_SECONDS = 30.0  # between looks whether a copy is due
KEPT_MS = 30 * 24 * 60 * 60_000  # answered messages are remembered this long, for copies of them
HOUR_MS = 60 * 60_000
_NOT_YET: Final = frozenset({"never_made", "never_tested"})  # as after every first start

log = structlog.get_logger(__name__)


async def mend_modes(folder: Path) -> None:
    """Take others' rights from files that were made when the program left that to the umask.

    Only of what the program itself keeps in a storage folder; notes have the modes people chose.
    """
    transcripts = folder / TRANSCRIPTS  # which may be many: nobody enters a folder that is closed

    def mend() -> None:
        files.mend(path for path in made_in(folder) if path != transcripts or files.is_open(path))

    await asyncio.to_thread(mend)


async def repair_mirror(mirror: Mirror) -> None:
    """Bring the transcript files in step with the database, once."""
    try:
        await mirror.repair()
    except (OSError, StorageError) as exc:
        log.warning("mirror.repair_failed", error=type(exc).__name__)


async def prune_regularly(
    database: Database, clock: Clock, prune_more: Callable[[Database], Awaitable[None]]
) -> None:
    """Drop what is no longer needed, once a day; `prune_more` does what only many nodes need."""
    await asyncio.sleep(FIRST_BACKUP_SECONDS)
    while True:
        try:
            await _prune(database, clock)
            await prune_more(database)
            await asyncio.sleep(PRUNE_SECONDS)
        except StorageClosed:
            return
        except StorageError as exc:
            log.warning("storage.prune_failed", error=type(exc).__name__)
            await asyncio.sleep(RETRY_SECONDS)


async def keep_copies(config: StorageConfig, database: SqliteDatabase, clock: Clock) -> None:
    """Make verified copies of a database, and prune what is no longer needed, every `backup_hours`.

    One is made sooner when the log of changes is full, or does not lead here from the last copy.
    """
    pruned = -PRUNE_SECONDS
    await asyncio.sleep(FIRST_BACKUP_SECONDS)
    while True:
        path, hours = database.path, config.backup_hours
        is_due = hours > 0 and _newest_ms(path, clock()) + hours * HOUR_MS <= clock()
        try:
            if is_due or pruned + PRUNE_SECONDS <= time.monotonic():
                await _prune(database, clock)
                await asyncio.to_thread(backup.drop_old, path, clock())
                pruned = time.monotonic()
            if is_due or database.needs_copy or database.is_log_full:
                await copy(config, database, clock())
            await asyncio.sleep(COPY_LOOK_SECONDS)
        except StorageClosed:
            return
        except StorageError as exc:
            log.warning("storage.backup_failed", error=type(exc).__name__)
            await asyncio.sleep(RETRY_SECONDS)


async def copy(config: StorageConfig, database: SqliteDatabase, now: int) -> None:
    """Make a verified copy, with which the log of changes begins anew.

    Raises:
        StorageError: the disk does not take it.
    """
    needed, database.needs_copy = database.needs_copy, False
    every = config.backup_hours * HOUR_MS * 0.9
    try:
        await asyncio.to_thread(backup.make, database.path, config.backups_kept, now, every)
    except BaseException:
        database.needs_copy = database.needs_copy or needed
        raise
    await recovery.begin_log(database)


async def watch_loop(metrics: Metrics) -> None:
    """Measure how late the event loop is."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_SECONDS
        await asyncio.sleep(LAG_SECONDS)
        metrics.loop_lag.set(max(0.0, loop.time() - due))


async def _prune(database: Database, clock: Clock) -> None:
    before = clock() - KEPT_MS
    await database.write(lambda tx: (inbox.prune(tx, before), outbox.prune(tx, before)))
    await database.write(lambda tx: uploads.prune(tx, clock()))
    await database.write(lambda tx: (counts.prune(tx, clock()), allowance.prune(tx, clock())))
    await database.write(lambda tx: page_logins.prune(tx, clock()))


def _newest_ms(path: Path, now: int) -> float:
    try:
        newest = backup.newest_first(path, now)[:1]
        return newest[0].stat().st_mtime * 1000 if newest else 0.0
    except OSError:  # somebody has just removed it
        return 0.0


def count_nodes(metrics: Metrics, standing: Callable[[], Standing]) -> None:
    """Let the metrics say how this node stands among all."""
    metrics.follow("nodes", "Nodes that are alive.", lambda: standing().nodes)
    metrics.follow("node_owned", "Accounts that this node listens for.", lambda: standing().owned)
    metrics.follow("jobs_waiting", "Turns that wait for any node.", lambda: standing().jobs)
    metrics.follow(
        "jobs_oldest_seconds",
        "For how long the first of the turns that wait has waited.",
        lambda: standing().oldest_job / 1000,
    )
    metrics.follow(
        "node_takeovers",
        "Nodes that this one gave up, and turns of such nodes that it gave back.",
        lambda: standing().takeovers,
    )
    metrics.follow(
        "transactions_rerun",
        "Transactions run again after a collision or a lost connection.",
        lambda: standing().reruns,
    )


async def readiness(
    database: Database,
    connections: Connections,
    memory: Memory,
    clock: Clock,
    standing: Callable[[], Standing] | None = None,
    *,
    backups: BackupConfig | None = None,
) -> Readiness:
    """Whether each part of the program works, for /readyz."""
    checks: list[Check] = []
    try:
        await MetaStore(database, clock).set("readyz", "")
        checks.append(Check("storage", "ok"))
    except StorageError as exc:
        checks.append(Check("storage", "down", str(exc)))
    if standing is not None:
        checks.append(among_nodes(standing()))
    for channel, account, state, detail in connections.all():
        name = channel if account == "default" else f"{channel}/{account}"
        checks.append(Check(name, "ok" if state is Health.UP else "degraded", detail))
    checks += await _left_over(database, clock() - DAY_MS)
    if backups is not None and backups.folder is not None:
        checks += await _backups(database, backups, clock())
    status = await memory.index.status()
    # This page is open to everybody: what notes are called is told to their owner, by /memory.
    troubled = Counter(status.problems.values())
    problems = [*status.degraded, *(f"notes: {n}, {why}" for why, n in sorted(troubled.items()))]
    checks.append(Check("memory", "degraded" if problems else "ok", "; ".join(problems)))
    return Readiness(tuple(checks))


def among_nodes(standing: Standing) -> Check:
    """What /readyz says of a node among others."""
    if not standing.is_connected:
        return Check("nodes", "degraded", "this node's direct connection is gone; it is made again")
    if not standing.is_registered:
        return Check("nodes", "degraded", "the other nodes do not count on this one")
    return Check("nodes", "ok", f"{standing.nodes} alive")


async def _left_over(database: Database, since: int) -> list[Check]:
    """Messages that got no answer, and texts that could not be sent; nothing when it is unknown."""
    try:
        aside, unsent = await database.read(
            lambda tx: (len(inbox.aside(tx, since)), outbox.waiting_again(tx))
        )
    except StorageError:  # said by its own check
        return []
    answered = f"{aside} set aside within a day: `confidant doctor` says more" if aside else ""
    sent = f"{unsent} could not be sent and are tried again later" if unsent else ""
    return [
        Check("answers", "degraded" if aside else "ok", answered),
        Check("delivery", "degraded" if unsent else "ok", sent),
    ]


async def _backups(database: Database, config: BackupConfig, now: int) -> list[Check]:
    """How backups of everything are doing; nothing when it is unknown."""
    try:
        state = await database.read(backup_state.read)
    except StorageError:  # said by its own check
        return []
    troubles = [each for each in state.troubles(config, now) if each not in _NOT_YET]
    more = f"{', '.join(troubles)}: `confidant doctor` says more" if troubles else ""
    return [Check("backups", "degraded" if troubles else "ok", more.replace("_", " "))]


def made_in(folder: Path) -> list[Path]:
    """What the program itself keeps in a storage folder; what is in the workspace is people's."""
    parts = (
        folder / name for name in (backup.FOLDER, backup.BEFORE_UPGRADE, TRANSCRIPTS, INDEX_FOLDER)
    )
    return [*folder.glob("confidant.*"), *(path for path in parts if path.exists())]
