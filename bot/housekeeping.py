"""Background work of the program: backups, pruning, noticing changes, health."""

from __future__ import annotations

import asyncio
import stat
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from bot import backoff, money, plugins, recovery
from bot.channel import Finding, Health
from bot.clock import DAY_MS, Clock, ahead_of_others
from bot.config import BackupConfig, Config, StorageConfig
from bot.coordination import Standing
from bot.core import Core
from bot.delivery import outbox
from bot.errors import StorageAway, StorageClosed, StorageError
from bot.gateway.gateway import Connections
from bot.health import WELL, Check, Readiness, Tries
from bot.memory.memory import INDEX_FOLDER, Memory
from bot.memory.search import Status
from bot.metrics import Metrics
from bot.recovery import TRANSCRIPTS
from bot.sessions import compactions, inbox, page_logins, uploads
from bot.sessions.mirror import Mirror
from bot.storage import Database, Transaction, backup, backup_state, files, records
from bot.storage.backup_state import BackupState
from bot.storage.records import MetaStore
from bot.storage.sqlite import SqliteDatabase

FIRST_BACKUP_SECONDS = 30.0  # a start has better things to do
RETRY_SECONDS = 600.0  # after a backup that failed
PRUNE_SECONDS = 24 * 3600.0  # between prunings
COPY_LOOK_SECONDS = 30.0  # between looks whether a copy is due
KEPT_MS = 30 * 24 * 60 * 60_000  # answered messages are remembered this long, for copies of them
HOUR_MS = 60 * 60_000
FRESH = 1.0  # seconds for which a report is as good as new
PATIENCE = 0.25  # seconds that whoever asks waits for a newer one
HANGS = 3.0  # seconds after which a look that has not ended means that something hangs
HELD_SECONDS = 5.0  # for which the event loop may be held without a word
WRONG_SECONDS = 60  # that a clock may be off
SLICE = 200  # rows that one transaction drops
_NOT_YET: Final = frozenset({"never_made", "never_tested"})  # as after every first start
STARTING: Final = Readiness((Check("health", Finding.of("error", "health.starting")),))

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


async def _prune(database: Database, clock: Clock) -> None:
    before = clock() - KEPT_MS
    await database.write(lambda tx: (inbox.prune(tx, before), outbox.prune(tx, before)))
    await drop_prefixes(database, before)
    await database.write(lambda tx: uploads.prune(tx, clock()))
    await database.write(lambda tx: (money.prune(tx, clock()), money.prune_notices(tx, clock())))
    await database.write(lambda tx: page_logins.prune(tx, clock()))


async def drop_prefixes(database: Database, before: int) -> None:
    """Drop what the requests of sessions began with that were last spoken in before a moment."""
    names = await database.read(lambda tx: compactions.before(tx, before))
    for at in range(0, len(names), SLICE):
        part = names[at : at + SLICE]
        await database.write(partial(compactions.drop_old, names=part))


def _newest_ms(path: Path, now: int) -> float:
    try:
        newest = backup.newest_first(path, now)[:1]
        return newest[0].stat().st_mtime * 1000 if newest else 0.0
    except OSError:  # somebody has just removed it
        return 0.0


def count_nodes(metrics: Metrics, standing: Callable[[], Standing]) -> None:
    """Let the metrics say how this node stands among all."""
    follow = metrics.follow
    follow("nodes", "Nodes that are alive.", lambda: standing().nodes)
    follow("node_owned", "Accounts that this node listens for.", lambda: standing().owned)
    follow("jobs_waiting", "Turns that wait for any node.", lambda: standing().jobs)
    follow("jobs_oldest_seconds", "Age of the oldest one.", lambda: standing().oldest_job / 1000)
    follow("node_takeovers", "Nodes and turns given up by this one.", lambda: standing().takeovers)
    follow("transactions_rerun", "Transactions that were run again.", lambda: standing().reruns)


class Monitor:
    """The health of every part now, for whoever asks, however often that is.

    Asking costs a look at most once within `FRESH` seconds. Nobody waits longer than `PATIENCE` for
    one that takes its time; one that takes longer than `HANGS` means that the database is away.
    """

    def __init__(
        self,
        core: Core,
        connections: Connections,
        memory: Memory,
        standing: Callable[[], Standing] | None,
        speech: Tries,
    ) -> None:
        """`speech` is noted where voice messages are heard and spoken."""
        self.replies = Tries("replies", core.clock)
        self.speech = speech
        self.held: Callable[[], float] = lambda: 0.0  # seconds a step held the event loop lately
        self._core = core
        self._connections = connections
        self._memory = memory
        self._standing = standing
        self._last: Readiness | None = None
        self._at = -FRESH  # when that was, by the loop's clock …
        self._began = 0.0  # … and when the last look began
        self._looking: asyncio.Task[None] | None = None

    async def report(self) -> Readiness:
        """The health of all parts."""
        now = asyncio.get_running_loop().time()
        if self._last is not None and now - self._at < FRESH:
            return self._last
        looking = self._looking
        if looking is None:
            self._looking = looking = asyncio.create_task(self._look())
            self._began = now
        left = self._began + HANGS - now
        if left > 0:
            await asyncio.wait([looking], timeout=min(PATIENCE, left))
        if not looking.done() and left <= PATIENCE:
            return self._unanswered()
        return self._last or STARTING

    async def _look(self) -> None:
        try:
            self._last = Readiness(tuple([each async for each in self._checks()]))
        except Exception as error:
            log.exception("health.failed")
            failed = Finding.of("error", "health.unknown", why=type(error).__name__)
            self._last = Readiness((Check("health", failed),))
        finally:
            self._at, self._looking = asyncio.get_running_loop().time(), None

    async def close(self) -> None:
        """Look no longer."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    def _unanswered(self) -> Readiness:
        known = () if self._last is None else self._last.checks
        others = [each for each in known if each.name not in {"storage", "replies"}]
        # The last look may have waited long enough to hear why.
        why = [each for each in known if each.name == "storage" and each.state == "down"]
        silent = Check("storage", Finding.of("error", "health.silent"))
        return Readiness((*(why or [silent]), self.replies.check(), *others))

    async def _checks(self) -> AsyncGenerator[Check]:
        database, clock, config = self._core.database, self._core.clock, self._core.settings.now
        try:
            await MetaStore(database, clock).set("readyz", "")
            yield Check("storage")
        except StorageError as exc:
            kind = "away" if isinstance(exc, StorageAway) else "storage"
            yield Check("storage", Finding.of("error", f"health.{kind}", why=str(exc)))
        yield self.replies.check()
        yield self.speech.check()
        standing = self._standing() if self._standing is not None else None
        if standing is not None:
            yield among_nodes(standing)
        yield right_time(standing)
        for channel, account, state, detail in self._connections.all():
            name = channel if account == "default" else f"{channel}/{account}"
            is_up, value = state is Health.UP, f"health.channel_{'says' if detail else 'silent'}"
            found = Finding.of("warning", value, name=channel, detail=detail)
            yield Check(name, Finding("ok", detail) if is_up else found)
        for check in await _stored(database, config.backup, clock()):
            yield check
        for check in of_program(self.held()):
            yield check
        if names := ", ".join(each.name for each in await asyncio.to_thread(writable, config)):
            yield Check("folders", Finding.of("warning", "storage.writable", names=names))
        for check in in_memory(await self._memory.index.status()):
            yield check


def of_program(seconds: float) -> Iterator[Check]:
    """Problems beside replies; one step held the event loop for so many `seconds` lately."""
    if failed := backoff.down():
        names = ", ".join(f"{name} ({kind})" for name, kind in sorted(failed.items()))
        yield Check("background", Finding.of("warning", "health.background", names=names))
    if failing := plugins.failing():
        names = "; ".join(f"{name}: {why}" for name, why in sorted(failing.items()))
        yield Check("plugins", Finding.of("warning", "health.plugins", names=names))
    if rows := records.unreadable():
        yield Check("rows", Finding.of("warning", "health.rows", count=rows))
    if seconds >= HELD_SECONDS:
        yield Check("loop", Finding.of("warning", "health.loop", seconds=round(seconds)))


def in_memory(status: Status) -> Iterator[Check]:
    """The state of searching notes, and problems of some of them."""
    why = "; ".join(status.degraded)
    yield Check("memory", Finding.of("warning", "health.memory", why=why) if why else WELL)
    # This page is open to everybody: what notes are called is told to their owner, by /memory.
    if troubled := Counter(status.problems.values()):
        why = "; ".join(f"{n}: {why}" for why, n in sorted(troubled.items()))
        found = Finding.of("warning", "health.notes", count=troubled.total(), why=why)
        yield Check("notes", found)


def among_nodes(standing: Standing) -> Check:
    """The health of a node among the others."""
    if not standing.is_connected:
        return Check("nodes", Finding.of("warning", "health.nodes_cut_off"))
    if not standing.is_registered:
        return Check("nodes", Finding.of("warning", "health.nodes_given_up"))
    if standing.is_deaf:
        return Check("nodes", Finding.of("warning", "health.nodes_deaf"))
    return Check("nodes", Finding.of("ok", "health.nodes", count=standing.nodes))


def right_time(standing: Standing | None) -> Check:
    """Check the clock by the database's, else by those of the models' servers."""
    if standing is not None and abs(standing.clock_ahead) >= WRONG_SECONDS * 1000:
        seconds = abs(round(standing.clock_ahead / 1000))
        return Check("clock", Finding.of("warning", "clock.unlike_server", seconds=seconds))
    ahead, count = ahead_of_others()
    if abs(ahead) < WRONG_SECONDS:
        return Check("clock")
    id_, seconds = f"clock.{'fast' if ahead > 0 else 'slow'}", abs(round(ahead))
    return Check("clock", Finding.of("warning", id_, seconds=seconds, count=count))


def writable(config: Config) -> list[Path]:
    """The storage folder and the workspace, each if everybody on this machine may write into it."""
    both = (config.storage.folder, config.workspace)
    return [each for each in both if each.is_dir() and each.stat().st_mode & stat.S_IWOTH]


async def _stored(database: Database, config: BackupConfig, now: int) -> list[Check]:
    """Messages without an answer, texts not sent, late backups; nothing if that is unknown."""

    def look(tx: Transaction) -> tuple[int, int, BackupState]:
        aside = inbox.aside(tx, now - DAY_MS)
        return len(aside), outbox.waiting_again(tx), backup_state.read(tx)

    try:
        aside, unsent, state = await database.read(look)
    except StorageError:  # said by its own check
        return []
    answers = Finding.of("warning", "health.aside", count=aside) if aside else WELL
    delivery = Finding.of("warning", "health.unsent", count=unsent) if unsent else WELL
    found = [Check("answers", answers), Check("delivery", delivery)]
    if config.folder is not None:
        troubles = [each for each in state.troubles(config, now) if each not in _NOT_YET]
        wrong = Finding.of("warning", f"health.backups_{troubles[0]}") if troubles else WELL
        found.append(Check("backups", wrong))
    return found


def made_in(folder: Path) -> list[Path]:
    """The program's own files in a storage folder; those in the workspace are people's."""
    parts = (
        folder / name for name in (backup.FOLDER, backup.BEFORE_UPGRADE, TRANSCRIPTS, INDEX_FOLDER)
    )
    return [*folder.glob("confidant.*"), *(path for path in parts if path.exists())]
