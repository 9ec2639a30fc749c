"""A census of the nodes: what each does, and what waits, as the database knows it. Only reads."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import blake2b

import orjson

from bot.storage import Database, Row, Transaction, scalar

_NODES = """SELECT name, version, facts,
    CAST(extract(epoch FROM started_at) * 1000 AS BIGINT),
    CAST(extract(epoch FROM clock_timestamp() - beat_at) * 1000 AS BIGINT)
    FROM nodes ORDER BY started_at, name"""
# All fences but those of lanes and nodes, of which there may be very many.
_FENCES = """SELECT name, node FROM fences
    WHERE name < 'lane/' OR name >= 'lane0' AND name < 'node/' OR name >= 'node0' ORDER BY name"""
# Which advisory locks somebody holds: a node lets go of them without a word in the table.
_LOCKS = """SELECT CAST(classid AS BIGINT), CAST(objid AS BIGINT) FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
_LANES = """SELECT fences.node, count(*) FROM procrastinate_jobs AS jobs
    JOIN fences ON fences.name = 'lane/' || jobs.lock
    WHERE jobs.status = 'doing' GROUP BY fences.node"""
# How many turns wait, and for how long the first of them: the one with the lowest number.
JOBS = """SELECT count(*), CAST(coalesce((SELECT
    extract(epoch FROM clock_timestamp() - events.at) * 1000 FROM procrastinate_events AS events
    WHERE events.job_id = min(jobs.id) AND events.type = 'deferred' LIMIT 1), 0) AS BIGINT)
    FROM procrastinate_jobs AS jobs WHERE jobs.status = 'todo'"""
_MESSAGES = "SELECT count(*) FROM inbox WHERE state = 'waiting'"
_TEXTS = "SELECT count(*) FROM outbox WHERE state = 'waiting'"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts that a node reports with each sign of life, in ms.

    Attributes:
        clock_ahead: by how much the database's clock is ahead of the node's own.
        database: how long the database took to answer.
        loop: how long one round of the node's event loop took.
        page_token: a mark of the token of its page (`mark_of`), 0 where it tells none.
    """

    clock_ahead: float = 0
    database: float = 0
    loop: float = 0
    page_token: float = 0

    @classmethod
    def parse(cls, facts: Mapping[str, object]) -> NodeFacts:
        """As they stand in the table; zero for what another version of the program told not."""
        told = {name: facts.get(name) for name in cls.__slots__}
        return cls(**{name: n for name, n in told.items() if isinstance(n, int | float)})

    def told(self) -> str:
        """As JSON; of a page without a token nothing is told."""
        facts = asdict(self)
        if not self.page_token:
            del facts["page_token"]
        return orjson.dumps(facts).decode()


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node. `since` is in ms since the epoch, `silent` in ms since its last sign of life.

    `owns` is what it alone does ("telegram/default"), `lanes` how many it is answering.
    """

    name: str
    version: str
    since: int
    silent: int
    owns: tuple[str, ...]
    lanes: int
    facts: NodeFacts


@dataclass(frozen=True, slots=True)
class Census:
    """All nodes, and what waits for any of them; `oldest_job` is in ms since it was deferred."""

    nodes: tuple[NodeStatus, ...] = ()
    jobs: int = 0
    oldest_job: int = 0
    messages: int = 0
    texts: int = 0
    unowned: tuple[str, ...] = field(default=())


def take(tx: Transaction) -> Census:
    """Look who is there; nobody in a database on which no node ever ran."""
    if not scalar(tx, "SELECT to_regclass('nodes') IS NOT NULL"):
        return Census()
    held = {_lock_id(row) for row in tx.execute(_LOCKS)}
    owned: dict[str, list[str]] = {}
    fences = [(str(name), str(node)) for name, node in tx.execute(_FENCES)]
    for name, node in fences:
        if lock_id(name) in held:
            owned.setdefault(node, []).append(name)
    lanes = {str(node): int(count) for node, count in tx.execute(_LANES)}
    nodes = tuple(
        NodeStatus(
            name=str(name),
            version=str(version),
            since=int(since),
            silent=max(0, int(silent)),
            owns=tuple(owned.get(name, ())),
            lanes=lanes.get(name, 0),
            facts=NodeFacts.parse(facts),
        )
        for name, version, facts, since, silent in tx.execute(_NODES)
    )
    jobs, oldest = waiting(tx.execute(JOBS)[0])
    there = {name for node in nodes for name in node.owns}
    return Census(
        nodes=nodes,
        jobs=jobs,
        oldest_job=oldest,
        messages=scalar(tx, _MESSAGES),
        texts=scalar(tx, _TEXTS),
        unowned=tuple(name for name, _ in fences if name not in there),
    )


def waiting(row: Row) -> tuple[int, int]:
    """The result of `JOBS`: how many turns wait, and for how long the first one has, in ms."""
    jobs, oldest = row
    return int(jobs), max(0, int(oldest))


def mark_of(token: str) -> int:
    """A number that nodes with the same token of the page have in common.

    It has 12 bits, so nobody finds a token by it; one pair in 4 096 of different ones is not told.
    Without a token it is 0: such a page is opened on its own machine alone.
    """
    digest = hmac.digest(token.encode(), b"confidant page of a node v1", "sha256")
    return 4096 + int.from_bytes(digest[:2]) % 4096 if token else 0


def differing(found: Census, within: float) -> tuple[str, ...]:
    """The nodes of the last `within` seconds, if their pages do not all have the same token."""
    there = [node for node in found.nodes if node.silent < within * 1000 and node.facts.page_token]
    marks = {node.facts.page_token for node in there}
    return tuple(node.name for node in there) if len(marks) > 1 else ()


def alive(tx: Transaction, within: float) -> int:
    """The number of nodes with a sign of life within so many seconds; 0 if none ever ran."""
    if not scalar(tx, "SELECT to_regclass('nodes') IS NOT NULL"):
        return 0
    late = "beat_at > clock_timestamp() - make_interval(secs => ?)"
    return scalar(tx, f"SELECT count(*) FROM nodes WHERE {late}", within)


def _lock_id(row: Row) -> int:
    """The signed number of an advisory lock, of which the server shows the halves."""
    number = (int(row[0]) << 32) | int(row[1])
    return number - (1 << 64) if number >= 1 << 63 else number


# The tables that many nodes need beside those of every database, and SQL over them.

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


def acquire(tx: Transaction, name: str, node: str) -> int:
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
