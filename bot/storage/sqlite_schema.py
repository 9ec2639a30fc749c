"""The tables of a file: made, migrated after a copy of what there was, refused where newer."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path

import apsw

from bot import __version__, errors
from bot.invocation import confidant
from bot.storage import backup, changes, fulltext, schema
from bot.storage.sqlite_sql import SqliteTransaction

_VERSIONS = """CREATE TABLE IF NOT EXISTS schema_versions(
    version BIGINT PRIMARY KEY, applied_at TEXT NOT NULL, program TEXT NOT NULL DEFAULT '')"""
# 'text' is not stored again: the entries hold it, the index only points at them.
FULLTEXT = f"""CREATE VIRTUAL TABLE IF NOT EXISTS entries_text USING fts5(
    text, content = '', contentless_delete = 1,
    tokenize = '{fulltext.TOKENIZER[0]} {" ".join(fulltext.TOKENIZER[1])}')"""


def migrate(tx: SqliteTransaction, database: Path, *, keeps: bool = True) -> None:
    """Bring the tables to the current version, in one transaction; with `keeps` after a copy.

    Raises:
        StorageError: a newer version of the program made this file, or one from before the first
            tables, or it cannot be copied; nothing was changed.
    """
    if _known(tx, database) == schema.VERSION:
        return
    tx.execute("BEGIN IMMEDIATE")  # so that the copy has all that was ever written before
    try:
        current = _known(tx, database)
        if keeps and current not in {0, schema.VERSION}:
            backup.keep(database, current)
        _step(tx, current)
        tx.execute("COMMIT")
    except BaseException:
        with suppress(apsw.Error):
            if tx.connection.in_transaction:
                tx.execute("ROLLBACK")
        raise


def _step(tx: SqliteTransaction, current: int) -> None:
    tx.execute(_VERSIONS)
    for version, step in schema.steps(current):
        for statement in step:
            tx.execute(statement.replace("{serial}", "INTEGER PRIMARY KEY"))
        tx.execute(
            "INSERT INTO schema_versions(version, applied_at, program) "
            "VALUES (?, datetime('now'), ?)",
            (version, __version__),
        )
    tx.execute(FULLTEXT)
    tx.execute(changes.TABLE)
    tx.execute(changes.FIRST)


def _known(tx: SqliteTransaction, database: Path) -> int:
    """The version of the tables; 0 while there are none.

    Raises:
        StorageError: it is newer than this program, or too old for it.
    """
    current, program = backup.version_of(tx)
    schema.must_be_known(current, str(database.parent))
    if current <= schema.VERSION:
        return current
    copies = backup.before_upgrades(database)
    fitting = next((each for each in copies if backup.number_of(each) <= schema.VERSION), None)
    if fitting is not None:
        restore = confidant(f"restore {shlex.quote(str(fitting))}")
        back = f"the copy from before the upgrade with `{restore}`"
    else:
        back = "a backup from before the upgrade; there is no copy of then any more"
    raise errors.StorageError(
        f"{database.parent} has tables of version {current}, made by a newer Confidant"
        f"{f' ({program})' if program else ''}; this is {__version__} and knows version "
        f"{schema.VERSION}. Nothing was changed: start the newer one again, or go back to {back}."
    )
