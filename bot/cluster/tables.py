"""The tables that many nodes need beside those of every database, and SQL over them."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b

from bot.storage import Database, Transaction, scalar

CHANNEL = "confidant"  # what NOTIFY and LISTEN are about

# Times are the server's, so that no node's clock counts.
STATEMENTS = (
    # Who is there. `pid` and `began` are those of its direct connection.
    """CREATE TABLE IF NOT EXISTS nodes(
        name TEXT COLLATE "C" PRIMARY KEY, beat_at TIMESTAMPTZ NOT NULL,
        started_at TIMESTAMPTZ NOT NULL, version TEXT NOT NULL, worker BIGINT,
        facts JSONB NOT NULL DEFAULT '{}')""",
    # Who may write about what: see `bot.fencing`.
    """CREATE TABLE IF NOT EXISTS fences(
        name TEXT COLLATE "C" PRIMARY KEY, epoch BIGINT NOT NULL, node TEXT NOT NULL,
        taken_at TIMESTAMPTZ NOT NULL)""",
    # What nodes tell each other, for a few minutes.
    """CREATE TABLE IF NOT EXISTS events(
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at TIMESTAMPTZ NOT NULL DEFAULT now(), node TEXT NOT NULL, topic TEXT NOT NULL,
        name TEXT NOT NULL, body TEXT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS events_at ON events(at)",
    # One for all names, so that no epoch is given twice, also of a name whose row was removed: who
    # was paused for however long finds another epoch there, or none, and writes nothing.
    "CREATE SEQUENCE IF NOT EXISTS fence_epochs",
)

# The epoch of a row that is there is drawn once it is locked: it is higher than the one before.
TAKE = """INSERT INTO fences(name, epoch, node, taken_at)
    VALUES (%s, nextval('fence_epochs'), %s, now())
    ON CONFLICT (name) DO UPDATE
    SET epoch = nextval('fence_epochs'), node = excluded.node, taken_at = now()
    RETURNING epoch"""

LANE_KEPT_HOURS = 24  # after a turn was begun there; one that still runs has its job
SLICE = 1_000  # rows looked at in one transaction
_PRUNE_LANES = """WITH slice AS (
        SELECT name, taken_at FROM fences WHERE name > ? AND name >= 'lane/' AND name < 'lane0'
        ORDER BY name LIMIT ?),
    gone AS (
        DELETE FROM fences USING slice WHERE fences.name = slice.name
        AND slice.taken_at < now() - make_interval(hours => ?) AND NOT EXISTS (
            SELECT 1 FROM procrastinate_jobs AS jobs
            WHERE jobs.status = 'doing' AND 'lane/' || jobs.lock = slice.name))
    SELECT max(name) FROM slice"""


def take(tx: Transaction, name: str, node: str) -> int:
    """Take something over; the epoch that holds for it from now on, and no other."""
    return scalar(tx, TAKE.replace("%s", "?"), name, node)


async def prune_lanes(database: Database) -> None:
    """Remove the fences of lanes in which nothing was answered of late, a slice at a time.

    A turn that runs keeps its own; one that was taken from its node must lose it anyway.

    Raises:
        StorageError: the database does not take it.
    """
    after: str | None = ""
    while after is not None:
        after = await database.write(partial(_prune_slice, after=after))


def _prune_slice(tx: Transaction, after: str) -> str | None:
    """Prune some fences of lanes: the name of the last that was looked at, None at the end."""
    last = scalar(tx, _PRUNE_LANES, after, SLICE, LANE_KEPT_HOURS)
    return None if last is None else str(last)


def lock_id(name: str) -> int:
    """The number of the advisory lock of what one node is alone in doing."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)


def lane(key: str) -> str:
    """The name of the fence of a session key's lane."""
    return f"lane/{key}"


def of_node(name: str) -> str:
    """The name of the fence of what a node began by itself."""
    return f"node/{name}"
