"""The tables that many nodes need beside those of every database, and SQL over them."""

from __future__ import annotations

from hashlib import blake2b

from bot.storage import Transaction

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
)

TAKE = """INSERT INTO fences AS f(name, epoch, node, taken_at) VALUES (%s, 1, %s, now())
    ON CONFLICT (name) DO UPDATE SET epoch = f.epoch + 1, node = excluded.node, taken_at = now()
    RETURNING epoch"""


def take(tx: Transaction, name: str, node: str) -> int:
    """Take something over; the epoch that holds for it from now on, and no other."""
    return int(tx.execute(TAKE.replace("%s", "?"), (name, node))[0][0])


def lock_id(name: str) -> int:
    """The number of the advisory lock of what one node is alone in doing."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)


def lane(key: str) -> str:
    """The name of the fence of a session key's lane."""
    return f"lane/{key}"


def of_node(name: str) -> str:
    """The name of the fence of what a node began by itself."""
    return f"node/{name}"
