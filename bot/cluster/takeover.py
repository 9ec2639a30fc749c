"""Being one of the nodes, and taking over from those that are gone: SQL over a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import psycopg
import structlog

from bot.cluster import census
from bot.sessions import inbox
from bot.storage import Transaction, postgres_schema, scalar
from bot.storage.postgres_sql import PostgresTransaction

# Of the same role as ours, which needs no further right. They hold its locks, and what it has begun
# to write.
END = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = %s AND pid <> pg_backend_pid()"""
PRUNE_EVENTS = "DELETE FROM events WHERE at < now() - make_interval(secs => %s)"

_OF_GONE = """FROM procrastinate_jobs AS jobs
    LEFT JOIN procrastinate_workers AS workers ON workers.id = jobs.worker_id
    WHERE jobs.status = 'doing' AND (workers.id IS NULL
    OR workers.last_heartbeat < clock_timestamp() - make_interval(secs => {seconds}))"""
_SILENT = "beat_at < clock_timestamp() - make_interval(secs => %(seconds)s)"
# All in one, for every node asks this several times within the time after which one is gone.
_LOOK = f"""SELECT
    ARRAY(SELECT name FROM nodes WHERE name <> %(node)s AND {_SILENT}),
    ARRAY(SELECT jobs.id {_OF_GONE.format(seconds="%(seconds)s")}),
    ARRAY(SELECT DISTINCT key FROM inbox WHERE state = 'waiting' AND NOT EXISTS
        (SELECT 1 FROM procrastinate_jobs WHERE lock = key AND status IN ('todo', 'doing'))),
    (SELECT count(*) FROM nodes WHERE NOT {_SILENT}),
    EXISTS(SELECT 1 FROM procrastinate_jobs AS jobs WHERE status = 'todo' AND NOT EXISTS
        (SELECT 1 FROM procrastinate_jobs AS others
        WHERE others.lock = jobs.lock AND others.status = 'doing'))"""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Look:
    """One node's view of the others, and of their work.

    Attributes:
        gone: nodes that gave no sign of life for too long.
        stalled: jobs of workers that are gone.
        left: keys whose messages have no job, such as those of a node that stopped.
        alive: how many nodes there are, this one among them.
        has_work: there is a turn that any node might take up.
    """

    gone: tuple[str, ...]
    stalled: tuple[int, ...]
    left: tuple[str, ...]
    alive: int
    has_work: bool


async def look(
    connection: psycopg.AsyncConnection[tuple[Any, ...]], node: str, seconds: float
) -> Look:
    """Look for what is gone after so many seconds without a sign of life."""
    rows = await connection.execute(_LOOK.encode(), {"node": node, "seconds": seconds})
    ((gone, stalled, left, alive, has_work),) = await rows.fetchall()
    return Look(tuple(gone), tuple(stalled), tuple(left), int(alive), bool(has_work))


def application(node: str) -> str:
    """The application name of a node's connections; the server keeps 63 bytes of it."""
    return f"confidant {node}"[:63]


def prepare(tx: PostgresTransaction) -> None:
    """Make the tables that many nodes need, if they are missing."""
    postgres_schema.once(tx, "nodes", census.STATEMENTS)
    if scalar(tx, "SELECT to_regclass('procrastinate_jobs') IS NULL"):
        sql = resources.files("procrastinate").joinpath("sql", "schema.sql").read_text("utf-8")
        tx.connection.execute(sql.encode())
        # A NOTIFY for each job would be one for each row; ours is one for each transaction.
        tx.execute(
            "DROP TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1 ON procrastinate_jobs"
        )


def is_prepared(tx: PostgresTransaction) -> None:
    """Make sure that all tables that many nodes need are there; changes nothing.

    Raises:
        StorageNotMade: they are missing, or older than this version.
    """
    postgres_schema.check_made(tx, nodes=census.STATEMENTS)


def register(tx: Transaction, node: str, version: str) -> tuple[int, int]:
    """Be one of the nodes: the epoch of what it begins by itself, and the server's time in ms."""
    tx.execute(
        "INSERT INTO nodes(name, beat_at, started_at, version) "
        "VALUES (?, clock_timestamp(), clock_timestamp(), ?) "
        "ON CONFLICT (name) DO UPDATE SET beat_at = clock_timestamp()",
        (node, version),
    )
    epoch = census.acquire(tx, census.of_node(node), node)
    return epoch, scalar(tx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")


def give_up(tx: Transaction, node: str) -> None:
    """A node is gone: nothing it began by itself counts, and others do it."""
    tx.execute("DELETE FROM fences WHERE name = ?", (census.of_node(node),))
    tx.execute("DELETE FROM nodes WHERE name = ?", (node,))
    for key in inbox.reclaim_of(tx, node):
        tx.wake(key)


def take_back(tx: Transaction, job: int, timeout: float) -> int:
    """Give back the turn of a worker that is gone, if it still is: how many there were.

    Its first message is counted as one that a program may have ended for.
    """
    which = _OF_GONE.format(seconds="?")
    found = tx.execute(
        f"SELECT jobs.lock {which} AND jobs.id = ? FOR UPDATE OF jobs", (timeout, job)
    )
    for (key,) in found:
        tx.execute("SELECT procrastinate_finish_job_v1(?, 'failed', true)", (job,))
        census.acquire(tx, census.lane(key), tx.node)
        inbox.endanger_first(tx, key)
        tx.wake(key)
        log.warning("turn.taken_back", job=job)
    return len(found)


def wake_again(tx: Transaction, keys: Sequence[str]) -> None:
    """Have messages answered whose turn ended without it, such as those of a node that stopped."""
    for key in keys:
        if inbox.waiting_count(tx, key):
            tx.wake(key)
