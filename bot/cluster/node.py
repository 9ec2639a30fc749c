"""One node of many: what it tells the others, hears from them, and is alone in doing.

It has one direct connection, on which it listens, tells that it lives, and holds advisory locks.
A node that told nothing for too long is gone: another one ends its connections at the server, which
takes its locks away, and what it had begun is given back. Should it only have been paused, it finds
that out by its own clock before it does anything else.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
import structlog

from bot import __version__
from bot.backoff import Backoff
from bot.clock import Clock
from bot.cluster import census, takeover
from bot.cluster.signals import Hearing, InlineEvent, NodeSignals, Notification
from bot.coordination import MOST_MENTIONED, Event, Hear, Standing, Topic
from bot.errors import StorageClosed, StorageError
from bot.fencing import Fence
from bot.sessions import artifacts, compactions
from bot.storage import Database, months, postgres_link
from bot.storage.months import Dropped
from bot.storage.postgres import PostgresDatabase
from bot.storage.postgres_link import PREPARED_AFTER, once, place_of, when_there
from bot.storage.records import must_be_whole

BEATS = 4  # signs of life within the time after which a node counts as gone
TICK = 0.5  # seconds between tries to be the one that does something
FEW_UNHEARD = 2  # signs of life: one may still be on its way
DEAF_SECONDS = 1.0  # between looks for what others said, while nothing that is told arrives
COUNT_SECONDS = 10.0  # between counts of the turns that wait, for the metrics
PRUNE_SECONDS = 60.0  # between prunings of events
KEPT_SECONDS = 300  # for which events are kept
CAUGHT_UP_SECONDS = 60  # of events that are heard again after the connection was lost
FIRST_RETRY, LAST_RETRY = 0.2, 5.0  # seconds between connections

log = structlog.get_logger(__name__)

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class GivenUp(Exception):
    """The others took this node for gone; it is counted anew."""


@dataclass(slots=True)
class _Held:
    """Something this node alone does; `users` are the parts of the program that want it."""

    gained: asyncio.Event
    lost: asyncio.Event
    users: int = 0
    epoch: int = 0  # 0 while another one does it


class Node:
    """`bot.coordination.Coordination` over PostgreSQL. Make it with `open`.

    It is there for the others from then on; it hears them from `hear_others` on.

    It has more than fifteen methods because the seam has nine, and one connection serves all of
    them, one after another.
    """

    is_shared = True

    def __init__(self, url: str, clock: Clock, gone_after: float, direct: str = "") -> None:
        """`gone_after` so many seconds without a sign of life a node counts as gone.

        `direct` is the same database without a pooler in between, for the one connection that must
        have its own process at the server. Without it `url` leads to the server itself, and plans
        are kept there.
        """
        self.name = f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(3)}"
        self.application = takeover.application(self.name)
        self.gone_after = gone_after
        self.database = PostgresDatabase(
            url, NodeSignals(self.name, self.owns), name=self.application, prepares=not direct
        )
        self.url = url
        self._direct = direct or url
        self._own_clock = clock
        self._ahead = 0  # ms that the server's clock is ahead of ours
        self._hearing = Hearing()
        self._on_work: set[asyncio.Event] = set()
        self.work_seen = 0  # how often there may have been a turn to run
        self._held: dict[str, _Held] = {}
        self._epoch = 0  # of what this node began by itself
        self._sure_until = 0.0  # monotonic: until then nobody takes away what this node has
        self._wanted = asyncio.Event()
        self._sign = Notification(self.name).payload()  # that it lives: it hears itself
        self._facts = census.NodeFacts()
        self.page_token = 0  # what the others may know of it; see `census.mark_of`
        self._is_connected = False
        self._nodes = self._jobs = self._oldest_job = self._takeovers = 0
        self._hears = False
        self._is_behind = True  # with what others said
        self._unheard = 0  # signs of life of its own that it was not told of, one after the other
        self._task: asyncio.Task[None] | None = None
        self._giving_up: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, url: str, clock: Clock, gone_after: float, *, direct: str = "", cluster: str = ""
    ) -> Node:
        """Connect to the database and make what is missing there.

        Raises:
            StorageError: it cannot be used; the message says what to do.
        """
        node = cls(url, clock, gone_after, direct)
        place = place_of(direct, "direct_url") if direct else node.database.place
        try:
            await when_there(place, partial(postgres_link.check_server, url, direct))
            await node.database.start(takeover.prepare, cluster=cluster, wait=True)
            await node.database.read(must_be_whole)
            await node._register()
        except BaseException:
            await node.database.close()
            raise
        node._task = asyncio.create_task(node._run())
        return node

    async def close(self) -> None:
        """Let others have what this node had, and disconnect."""
        for task in (self._task, self._giving_up):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._hearing.close()
        self._lose_all()
        with suppress(StorageError):
            await self.database.write(lambda tx: takeover.give_up(tx, self.name))
        await self.database.close()

    def clock(self) -> int:
        """The server's time, in ms since the epoch: the same for all nodes."""
        return self._own_clock() + self._ahead

    def standing(self) -> Standing:
        """The standing of this node among all, as it last looked."""
        return Standing(
            nodes=self._nodes,
            is_registered=time.monotonic() < self._sure_until,
            is_connected=self._is_connected,
            owned=sum(self.owns(name) for name in self._held),
            jobs=self._jobs,
            oldest_job=self._oldest_job,
            takeovers=self._takeovers,
            reruns=self.database.reruns,
            is_deaf=self._unheard >= FEW_UNHEARD,
            clock_ahead=self._ahead,
        )

    # --- bot.coordination.Coordination -----------------------------------------------------------

    def on(self, topic: Topic, hear: Hear) -> None:
        """See `Coordination.on`."""
        self._hearing.on(topic, hear)

    @contextmanager
    def hearing_of_work(self) -> Generator[asyncio.Event]:
        """An event that is set when there may be a turn to run, within a `with`."""
        work = asyncio.Event()
        self._on_work.add(work)
        try:
            yield work
        finally:
            self._on_work.discard(work)

    def look_for_work(self) -> None:
        """Let this node see whether there is a turn to run."""
        self.work_seen += 1
        for work in self._on_work:
            work.set()

    async def publish(self, event: Event) -> None:
        """See `Coordination.publish`."""
        await self.database.write(lambda tx: tx.publish(event.topic, event.name, event.body))

    async def mention(self, event: Event) -> None:
        """See `Coordination.mention`."""
        payload = InlineEvent(self.name, event).payload()
        if len(payload.encode()) > MOST_MENTIONED:
            log.debug("node.not_mentioned", topic=event.topic, bytes=len(payload.encode()))
            return
        await self.database.write(
            lambda tx: tx.execute("SELECT pg_notify(?, ?)", (census.CHANNEL, payload))
        )

    @asynccontextmanager
    async def owning(self, name: str) -> AsyncGenerator[asyncio.Event]:
        """See `Coordination.owning`. Parts of one node own something together."""
        held = self._held.setdefault(name, _Held(asyncio.Event(), asyncio.Event()))
        held.users += 1
        self._wanted.set()
        try:
            while True:
                await held.gained.wait()
                if self.owns(name):
                    break
                await asyncio.sleep(self.gone_after / BEATS / 2)  # it is being lost just now
            yield held.lost
        finally:
            held.users -= 1
            self._wanted.set()

    def owns(self, name: str) -> bool:
        """See `Coordination.owns`."""
        held = self._held.get(name)
        return held is not None and held.epoch > 0 and time.monotonic() < self._sure_until

    def fence(self, name: str) -> Fence | None:
        """See `Coordination.fence`."""
        held = self._held.get(name)
        return Fence(name, held.epoch if held is not None else 0)

    def own_fence(self) -> Fence | None:
        """See `Coordination.own_fence`."""
        return Fence(census.of_node(self.name), self._epoch)

    # --- the direct connection -------------------------------------------------------------------

    async def hear_others(self) -> None:
        """Pass on what others say from now on, and what they said lately; after the last `on`."""
        self._hears = True
        self._wanted.set()

    async def _run(self) -> None:
        """Be there for the others, until cancelled; a lost connection is made again."""
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        while True:
            try:
                self._is_behind = True
                self._unheard = 0
                async with await self._connect() as connection:
                    backoff.reset()
                    self._is_connected = True
                    await self._serve(connection)
            except (psycopg.Error, OSError) as error:
                log.warning("node.disconnected", error=type(error).__name__)
            except StorageError as error:
                log.warning("node.not_registered", error=type(error).__name__)
            except GivenUp:  # its locks may still be held by that connection: it is closed
                pass
            except Exception:  # a fault of ours must not make this node deaf for good
                log.exception("node.failed")
            finally:
                self._is_connected = False
                self._lose_all()
            await asyncio.sleep(backoff.next())

    async def _connect(self) -> Connection:
        connection = await psycopg.AsyncConnection.connect(
            self._direct,
            autocommit=True,
            application_name=self.application,
            prepare_threshold=PREPARED_AFTER,
            connect_timeout=max(1, int(self.gone_after)),
        )
        try:
            await connection.execute(f"LISTEN {census.CHANNEL}")  # pyright: ignore[reportArgumentType]
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _serve(self, connection: Connection) -> None:
        every = self.gone_after / BEATS
        next_beat = next_count = next_pruning = 0.0
        while True:
            now = time.monotonic()
            is_due = now >= next_beat
            if is_due:
                async with asyncio.timeout(self.gone_after):
                    await self._beat(connection)
                next_beat = now + every
            await self._see_to_leases(connection)
            is_deaf = self._unheard >= FEW_UNHEARD
            if self._hears and (self._is_behind or is_deaf):
                lately = CAUGHT_UP_SECONDS if self._is_behind else 2 * DEAF_SECONDS
                self._is_behind = False
                await self._catch_up(connection, lately)
            if is_due:
                await self._look_around(connection)
            if now >= next_count:
                await self._count(connection)
                next_count = now + COUNT_SECONDS
            if now >= next_pruning:
                await connection.execute(takeover.PRUNE_EVENTS, (KEPT_SECONDS,))
                next_pruning = now + PRUNE_SECONDS
            waits = not self._hears or any(
                held.users and not held.epoch for held in self._held.values()
            )
            pause = min(TICK, every / 2) if waits else max(0.01, next_beat - time.monotonic())
            await self._listen(connection, min(pause, DEAF_SECONDS) if is_deaf else pause)

    async def _beat(self, connection: Connection) -> None:
        """Tell that this node lives; if the others thought otherwise, begin anew."""
        began, ours = time.monotonic(), self._own_clock()
        await connection.execute("SELECT pg_notify(%s, %s)", (census.CHANNEL, self._sign))
        self._unheard += 1
        if self._unheard == FEW_UNHEARD:
            log.warning("node.deaf")
        rows = await connection.execute(
            "UPDATE nodes SET beat_at = clock_timestamp(), facts = %s::jsonb WHERE name = %s "
            "RETURNING (extract(epoch FROM clock_timestamp()) * 1000)::bigint",
            (self._facts.told(), self.name),
        )
        found = await rows.fetchone()
        answered = time.monotonic()
        if found is None:
            log.warning("node.was_given_up")
            self._lose_all()
            await self._register()
            raise GivenUp
        self._set_clock(ours, int(found[0]))
        # The server may have taken it at any time since: what is counted is from before.
        self._sure_until = began + self.gone_after
        await asyncio.sleep(0)  # one round of the loop
        self._facts = census.NodeFacts(
            clock_ahead=self._ahead,
            database=round((answered - began) * 1000, 1),
            loop=round((time.monotonic() - answered) * 1000, 1),
            page_token=self.page_token,
        )

    async def _register(self) -> None:
        ours = self._own_clock()
        self._epoch, theirs = await self.database.write(
            lambda tx: takeover.register(tx, self.name, __version__)
        )
        self._set_clock(ours, theirs)

    def _set_clock(self, asked: int, theirs: int) -> None:
        """Learn the server's time, which it told between `asked` and now by our own clock."""
        self._ahead = theirs - (asked + self._own_clock()) // 2

    async def _listen(self, connection: Connection, seconds: float) -> None:
        """Hear what is told within some time, or until this node wants something."""
        self._wanted.clear()
        told: list[Notification] = []
        async for notify in connection.notifies(timeout=min(seconds, TICK), stop_after=1):
            self._unheard = 0
            if (found := Notification.parse(notify.payload)) is not None:
                told.append(found)
            heard = InlineEvent.parse(notify.payload)
            if heard is not None and heard.node != self.name and self._hears:
                self._hearing.put([heard.event])
        if any(each.work for each in told):
            self.look_for_work()
        others = [each for each in told if each.node != self.name and each.last and self._hears]
        for each in others:
            await self._read_events(connection, each)

    async def _read_events(self, connection: Connection, told: Notification) -> None:
        which, given = (
            ("id = ANY(%s)", [list(told.ids)])
            if told.ids
            else ("id BETWEEN %s AND %s AND node = %s", [told.first, told.last, told.node])
        )
        rows = await connection.execute(
            f"SELECT topic, name, body FROM events WHERE {which} ORDER BY id",  # pyright: ignore[reportArgumentType]
            given,
        )
        self._hearing.put([Event(*row) for row in await rows.fetchall()])

    async def _catch_up(self, connection: Connection, lately: float) -> None:
        """Hear what was told lately, for so many seconds: this node was away, or is deaf."""
        rows = await connection.execute(
            "SELECT topic, name, body FROM events WHERE node <> %s "
            "AND at > now() - make_interval(secs => %s) ORDER BY id",
            (self.name, lately),
        )
        missed = [Event(*row) for row in await rows.fetchall()]
        # Also what is no longer there to be heard.
        told: tuple[Topic, ...] = ("books", "outbox", "notes", "settings")
        self._hearing.put([*missed, *map(Event, told)])
        self.look_for_work()

    # --- what only one does ----------------------------------------------------------------------

    async def _see_to_leases(self, connection: Connection) -> None:
        for name, held in list(self._held.items()):
            if held.users and not held.epoch:
                await self._try_to_own(connection, name, held)
            elif not held.users:
                del self._held[name]  # whoever wants it from now on waits for another one
                if held.epoch:
                    self._lose(held)
                    await connection.execute(
                        "SELECT pg_advisory_unlock(%s)", (census.lock_id(name),)
                    )

    async def _try_to_own(self, connection: Connection, name: str, held: _Held) -> None:
        number = census.lock_id(name)
        got = await connection.execute("SELECT pg_try_advisory_lock(%s)", (number,))
        if (await got.fetchone() or (False,))[0]:
            taken = await connection.execute(census.TAKE, (name, self.name))
            held.epoch = int((await taken.fetchone() or (0,))[0])
            held.lost = asyncio.Event()
            held.gained.set()
            log.info("node.owns", what=name)

    def _lose(self, held: _Held) -> None:
        held.epoch = 0
        held.gained.clear()
        held.lost.set()

    def _lose_all(self) -> None:
        self._sure_until = 0.0
        for name, held in self._held.items():
            if held.epoch:
                log.warning("node.lost", what=name)
                self._lose(held)

    async def _look_around(self, connection: Connection) -> None:
        """Look for nodes and turns that are gone, and have them given up beside the heartbeat."""
        look = await takeover.look(connection, self.name, self.gone_after)
        self._nodes = look.alive
        if look.has_work:  # this node may have missed that it was told
            self.look_for_work()
        for name in look.gone:
            ended = await connection.execute(takeover.END, (takeover.application(name),))
            log.warning("node.gone", node=name, connections=len(await ended.fetchall()))
        is_found = look.gone or look.stalled or look.left
        if is_found and (self._giving_up is None or self._giving_up.done()):
            self._giving_up = asyncio.create_task(self._give_up(look))

    async def _give_up(self, look: takeover.Look) -> None:
        """Give back what gone nodes had; it is looked at again in a transaction each."""
        try:
            for name in look.gone:
                await self.database.write(partial(takeover.give_up, node=name))
                self._takeovers += 1
            for job in look.stalled:
                work = partial(takeover.take_back, job=job, timeout=self.gone_after)
                self._takeovers += await self.database.write(work)
            if look.left:
                await self.database.write(partial(takeover.wake_again, keys=look.left))
        except StorageError as error:
            log.warning("node.sweep_failed", error=type(error).__name__)

    async def _count(self, connection: Connection) -> None:
        """Count the turns that wait, which is more work the more there are."""
        rows = await connection.execute(census.JOBS)
        (row,) = await rows.fetchall()
        self._jobs, self._oldest_job = census.waiting(row)


# Months of what was said: made before they begin, dropped when the operator does not keep them.
#
# Every node sees to it and the server lets one at a time, in transactions of their own: making
# and dropping tables is nothing that others should wait or collide for. What the months are, and
# which may go, is decided by the server and its clock (`bot.storage.months`).

FIRST_SECONDS = 30.0  # a start has better things to do
ROUND_SECONDS = 3600.0
RETRY_SECONDS = 60.0  # after a round that failed: somebody may be reading a table for long
NOTICE_SECONDS = 600.0  # between telling what will be dropped and dropping it
SLICE = 100  # rows that are removed together


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
