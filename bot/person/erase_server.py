"""Erasing one person from a PostgreSQL on which no node runs: in one transaction.

So there is nothing that could be half of it. What was on pages that are free now is written over
afterwards, where the role may do that.
"""

from __future__ import annotations

import asyncio

from bot.clock import Clock
from bot.cluster.extra import needing_extra
from bot.memory.index.leaving import leave_rows
from bot.person.erase import Plan
from bot.sessions import belongings, erasing
from bot.storage import Database, Transaction

_REWRITTEN = """SELECT c.oid::regclass::text, pg_has_role(c.relowner, 'USAGE') FROM pg_class c
    WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1"""


def notes_of(tx: Transaction, plan: Plan) -> int:
    """How many notes are somebody's."""
    where, spaces = belongings.within("space", plan.theirs.spaces)
    return int(tx.execute(f"SELECT count(*) FROM notes WHERE {where}", spaces)[0][0])


async def erase(database: Database, plan: Plan, clock: Clock) -> None:
    """Remove everything of somebody.

    Raises:
        StorageError: the server does not take it; nothing was changed.
    """
    await database.write(lambda tx: _erase(tx, plan, clock()))


def _erase(tx: Transaction, plan: Plan, now: int) -> None:
    theirs = plan.theirs
    erasing.erase_for_good(tx, theirs, plan.at, now)
    leave_rows(tx, plan.partitions)
    where, spaces = belongings.within("space", theirs.spaces)
    tx.execute(f"DELETE FROM notes WHERE {where}", spaces)
    tx.execute(f"DELETE FROM forgettings WHERE {where}", spaces)
    # No node runs: what they told each other is old, and lanes begin anew. Jobs stand for messages
    # that wait; a lane without any takes up nothing.
    tx.execute("DELETE FROM events")
    tx.execute("DELETE FROM fences WHERE name >= 'lane/' AND name < 'lane0'")
    tx.execute(
        "DELETE FROM procrastinate_jobs WHERE lock IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM sessions WHERE key = procrastinate_jobs.lock)"
    )


async def write_over(url: str) -> list[str]:
    """Write tables anew, so that nothing is left on free pages; those that belong to others.

    Raises:
        StorageError: the server cannot be reached.
    """
    return await asyncio.to_thread(_write_over, url)


def _write_over(url: str) -> list[str]:
    with needing_extra():
        import psycopg  # noqa: PLC0415 - its packages are an extra
        from psycopg import sql  # noqa: PLC0415

        from bot.storage.postgres_link import place_of, unusable  # noqa: PLC0415
    left: list[str] = []
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            for name, is_owner in connection.execute(_REWRITTEN).fetchall():
                if not is_owner:
                    left.append(str(name))
                    continue
                connection.execute(sql.SQL("VACUUM (FULL) {}").format(sql.SQL(name)))
    except psycopg.Error as error:
        raise unusable(error, place_of(url)) from error
    return left
