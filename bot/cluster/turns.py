"""Turns as jobs: whichever node is free takes up the lane of a session key, one node at a time.

A job stands for everything that waits for its key when it is begun, not for one message, and is
tried once: what becomes of a job whose node is gone is seen to outside of the queue (`takeover`),
and what fails within a turn by the lane. No job is ever put off until later, as that would block
its key.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, LiteralString

import psycopg
import structlog
from procrastinate import App, JobContext, PsycopgConnector, exceptions
from procrastinate.connector import Notify
from procrastinate.worker import Worker
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from bot import fencing
from bot.backoff import Backoff, keep
from bot.cluster import census
from bot.cluster.node import BEATS, Node
from bot.cluster.signals import QUEUE, TASK
from bot.errors import StorageError
from bot.fencing import Fence

POLL_SECONDS = 5.0  # between looks for work that nobody told of; a node's own are more frequent
AGAIN_SECONDS = 0.02  # after a turn, by when its job is over: one of its key may wait for that
FIRST_RETRY, LAST_RETRY = 0.5, 10.0
CLOSE_SECONDS = 5.0  # that the end of a job may take once its turn has ended
PATIENCE = 15.0  # seconds for a server that went away, at the end of a job
POOL = 3  # connections of a node for its jobs

log = structlog.get_logger(__name__)

_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)

RunLane = Callable[[str], Awaitable[None]]


class Turns:
    """Runs lanes on this node, up to some at a time, as jobs of all nodes."""

    def __init__(self, node: Node, most: int) -> None:
        """At most so many lanes run on this node at the same time."""
        self._node = node
        self._run_lane: RunLane | None = None
        self._task: asyncio.Task[None] | None = None
        self._epochs: dict[str, int] = {}
        self._stopping = False
        self._app = App(connector=_Connector(node))
        self._app.task(name=TASK, queue=QUEUE, pass_context=True)(self._turn)
        self._worker = Worker(
            self._app,
            queues=[QUEUE],
            name=node.name,
            concurrency=most,
            fetch_job_polling_interval=POLL_SECONDS,
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=node.gone_after / BEATS,
            stalled_worker_timeout=node.gone_after * 10,  # only forgotten here; see `takeover`
        )
        # It tells of each job, by its key.
        logging.getLogger("procrastinate").setLevel(logging.CRITICAL)
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)

    def fence_of(self, key: str) -> Fence:
        """The fence behind which a lane writes."""
        return Fence(census.lane(key), self._epochs.get(key, 0))

    def start(self, run_lane: RunLane) -> None:
        """Take up work from now on; `run_lane` answers all that waits for a session key."""
        self._run_lane = run_lane
        self._task = keep("turns", self._run)

    def stop(self) -> None:
        """Begin no more turns; those that run go on."""
        self._stopping = True
        self._worker.stop()

    async def close(self) -> None:
        """Let go of the connections, once the turns that ran have ended."""
        self.stop()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Have jobs run until stopped; a lost connection is made again."""
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        while not self._stopping:
            try:
                async with self._app.open_async():
                    if self._stopping:  # meanwhile: a worker that begins forgets that
                        return
                    await self._worker.run()
                    backoff.reset()
            except (exceptions.ProcrastinateException, OSError) as error:
                log.warning("turns.interrupted", error=type(error).__name__)
            if not self._stopping:
                await asyncio.sleep(backoff.next())

    async def _turn(self, context: JobContext) -> None:
        key = context.job.lock or ""
        epoch, seen = 0, self._node.work_seen
        try:
            epoch = self._epochs[key] = await self._node.database.write_alone(
                lambda tx: census.acquire(tx, census.lane(key), self._node.name)
            )
            with fencing.behind(self.fence_of(key)):
                if self._run_lane is not None:
                    await self._run_lane(key)
        except StorageError as error:  # it is taken up again, here or elsewhere
            log.warning("turn.not_run", error=type(error).__name__)
        finally:
            if self._epochs.get(key) == epoch:  # else it came back to this node meanwhile
                del self._epochs[key]
            if not self._stopping:
                asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._look_again, seen)

    def _look_again(self, seen: int) -> None:
        """A turn is over: if anybody told of work meanwhile, that may have been for its key."""
        if self._node.work_seen != seen:
            self._node.look_for_work()


class _Connector(PsycopgConnector):
    """Hears of work through the node's own connection instead of one more.

    What ends a job is tried again while the server is away. What fetches one is not: its answer may
    have been lost, so the worker begins anew as another one, and its jobs are found (`takeover`).
    """

    def __init__(self, node: Node) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            conninfo=node.url,
            min_size=1,
            max_size=POOL,
            # Each statement is a transaction of its own: no more ways to the server than needed.
            kwargs={
                "application_name": node.application,
                "prepare_threshold": node.database.prepare_threshold,
                "autocommit": True,
            },
            pool_factory=checked_pool,
        )
        self._node = node
        self._told = 0  # how often it was passed on that there may be work

    async def execute_query_one_async(
        self, query: LiteralString, **arguments: Any
    ) -> dict[str, Any]:
        """Run a statement that answers one row, such as what fetches a job.

        The worker forgets what it is told while it fetches one, and that may have come too late
        to be fetched: it is told once more.
        """
        told = self._told
        try:
            return await super().execute_query_one_async(query, **arguments)
        finally:
            if self._told != told:
                self._node.look_for_work()

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        """Run a statement that changes something and may be run twice."""
        backoff = Backoff(FIRST_RETRY, LAST_RETRY)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return await super().execute_query_async(query, **arguments)
            except exceptions.ConnectorException as error:
                if isinstance(error.__cause__, psycopg.errors.RaiseException):
                    log.info("turn.ended_elsewhere")  # it was taken back meanwhile
                    return None
                if time.monotonic() > end or not isinstance(error.__cause__, _AWAY):
                    raise
            await asyncio.sleep(backoff.next())

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        """Pass on that there may be work, for as long as the worker runs."""
        channel = next(iter(channels))
        inserted = '{"type": "job_inserted", "job_id": 0}'
        with self._node.hearing_of_work() as work:
            while True:
                await work.wait()
                work.clear()
                self._told += 1
                await on_notification(channel=channel, payload=inserted)


def checked_pool(*, check: object, **arguments: Any) -> AsyncConnectionPool:
    """The pool that procrastinate asks for, but with our check of a connection before its use."""
    return AsyncConnectionPool(check=_check, **arguments)


async def _check(connection: AsyncConnection[Any]) -> None:
    """See whether a connection still stands, before it is used.

    The server says nothing by itself but that it ends it: only then is it asked.

    Raises:
        OperationalError: it is over.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        has_something = bool(selector.select(0))
    if has_something:
        await AsyncConnectionPool.check_connection(connection)
