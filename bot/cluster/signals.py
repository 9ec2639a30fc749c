"""Signals of a node's transactions to the others: events and work, in one NOTIFY."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import orjson
import psycopg
import structlog
from procrastinate import App, SyncPsycopgConnector, exceptions
from psycopg.errors import SerializationFailure
from psycopg.sql import SQL, Composable

from bot.cluster import census
from bot.coordination import Event, Hear, Topic
from bot.storage.postgres_sql import PostgresTransaction, Signals

QUEUE = "turns"
TASK = "turn"
MOST_IDS = 500  # events named in one NOTIFY, which holds 8 000 bytes; of more, the range is named

Owns = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Notification:
    """The content of a NOTIFY: the sender, the ids of its events, and if there is work."""

    node: str
    first: int = 0
    last: int = 0
    ids: tuple[int, ...] = ()
    work: bool = False

    def payload(self) -> str:
        """As NOTIFY carries it."""
        return orjson.dumps([self.node, self.first, self.last, self.ids, self.work]).decode()

    @classmethod
    def parse(cls, payload: str) -> Notification | None:
        """The other way round; None for what is none of ours."""
        try:
            node, first, last, ids, work = orjson.loads(payload)
            return cls(str(node), int(first), int(last), tuple(map(int, ids)), bool(work))
        except (ValueError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class InlineEvent:
    """An event that stands in a NOTIFY and nowhere else, and the node that told it."""

    node: str
    event: Event

    def payload(self) -> str:
        """As NOTIFY carries it."""
        event = self.event
        return orjson.dumps([self.node, [event.topic, event.name, event.body]]).decode()

    @classmethod
    def parse(cls, payload: str) -> InlineEvent | None:
        """The other way round; None for what is none of ours."""
        try:
            node, (topic, name, body) = orjson.loads(payload)
        except (ValueError, TypeError):
            return None
        is_ours = all(isinstance(each, str) for each in (node, topic, name, body))
        return cls(node, Event(topic, name, body)) if is_ours else None


class NodeSignals(Signals):
    """`bot.storage.postgres.Signals` of a node; used by its writer's thread only."""

    def __init__(self, node: str, owns: Owns) -> None:
        """`owns` says what this node alone does: nobody else sends what is for its accounts."""
        self.node = node
        self._owns = owns
        self._told: list[int] = []
        self._has_work = False
        # It is never opened: what it defers goes through the writer's connection.
        self._app = App(connector=SyncPsycopgConnector())

    def begin(self) -> None:
        """A transaction begins."""
        self._told.clear()
        self._has_work = False

    def wake(self, tx: PostgresTransaction, key: str) -> None:
        """Have the lane of a key taken up: one job for all that comes before it is begun.

        The job that waits is locked until the COMMIT, so nobody begins it and misses this.
        """
        self._has_work = True
        if tx.execute(
            "SELECT 1 FROM procrastinate_jobs WHERE queueing_lock = ? AND status = 'todo' "
            "FOR UPDATE",
            (key,),
        ):
            return
        deferrer = self._app.configure_task(
            TASK, queue=QUEUE, lock=key, queueing_lock=key, connection=tx.connection
        )
        try:
            deferrer.defer()
        except exceptions.AlreadyEnqueued as error:
            # Another node was quicker; done once more, this finds its job.
            raise SerializationFailure("a job was deferred by another node") from error
        except exceptions.ConnectorException as error:
            # As any other statement fails, so that the transaction is run again.
            if isinstance(error.__cause__, psycopg.Error):
                raise error.__cause__ from None
            raise

    def publish(self, tx: PostgresTransaction, topic: str, name: str, body: str) -> None:
        """Store an event that other nodes hear of."""
        if topic == "outbox" and self._owns(name):
            return
        rows = tx.execute(
            "INSERT INTO events(node, topic, name, body) VALUES (?, ?, ?, ?) RETURNING id",
            (self.node, topic, name, body),
        )
        self._told.append(int(rows[0][0]))

    def ending(self) -> Composable:
        """One NOTIFY for all of a transaction, as its COMMIT waits for those of all others then."""
        if not self._told and not self._has_work:
            return SQL("")
        ids = self._told
        told = Notification(
            self.node,
            min(ids, default=0),
            max(ids, default=0),
            tuple(ids) if len(ids) <= MOST_IDS else (),
            self._has_work,
        )
        return SQL("SELECT pg_notify({}, {}); ").format(census.CHANNEL, told.payload())


MOST_WAITING = 1_000  # events of one topic

# What these say is missed when there is too much of it; what others say stands for all of them.
_PASSING: frozenset[Topic] = frozenset({"show", "account"})

log = structlog.get_logger(__name__)


class Hearing:
    """Calls whoever listens to a topic, in a task for each topic; nobody waits for it."""

    def __init__(self) -> None:
        self._hear: dict[Topic, list[Hear]] = {}
        self._waiting: dict[Topic, dict[Event, None]] = {}  # the same one twice says nothing more
        self._tasks: dict[Topic, asyncio.Task[None]] = {}

    def on(self, topic: Topic, hear: Hear) -> None:
        """Have `hear` called for the events of a topic; what it raises is logged."""
        self._hear.setdefault(topic, []).append(hear)

    def put(self, events: Iterable[Event]) -> None:
        """Pass these on; returns at once."""
        for event in events:
            topic = event.topic
            if topic not in self._hear:
                continue
            waiting = self._waiting.setdefault(topic, {})
            if len(waiting) >= MOST_WAITING:
                if topic in _PASSING:
                    del waiting[next(iter(waiting))]
                else:
                    waiting.clear()
                    event = Event(topic)  # noqa: PLW2901 - it stands for all of them
            waiting[event] = None
            if topic not in self._tasks:
                self._tasks[topic] = asyncio.create_task(self._pass_on(topic, waiting))

    async def close(self) -> None:
        """Pass on nothing more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass_on(self, topic: Topic, waiting: dict[Event, None]) -> None:
        try:
            while waiting:
                event = next(iter(waiting))
                del waiting[event]
                for hear in self._hear[topic]:
                    try:
                        await hear(event)
                    except Exception:
                        log.exception("node.event_failed", topic=topic)
        finally:
            del self._tasks[topic]
