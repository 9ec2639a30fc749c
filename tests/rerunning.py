"""A pytest plugin that runs each piece of work for a database twice, the first time in vain.

PostgreSQL runs a transaction again that collided with another node's. So whatever is given to
`Database.write` must do the same the second time: it has no effect outside of the transaction.
`pytest -p tests.rerunning` shows of any test whether that is so, with one node on SQLite; of one
whose own works count their runs or write files it says nothing.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from bot.storage import sqlite
from bot.storage.writing import Outcome, Savepoints, Work, attempt


def twice(tx: Savepoints, work: Work) -> Outcome:
    """Run some work, take it back, and run it again."""
    tx.execute("SAVEPOINT vain")
    try:
        # What fails will fail again, unless it has an effect outside.
        with suppress(Exception):
            work(tx)
    finally:
        tx.execute("ROLLBACK TO SAVEPOINT vain")
        tx.execute("RELEASE SAVEPOINT vain")
    return attempt(tx, work)


def pytest_configure(config: pytest.Config) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(sqlite, "attempt", twice)
    config.add_cleanup(patch.undo)
