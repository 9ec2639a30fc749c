"""What the first version of the tables left: a storage folder, a backup of it, a PostgreSQL.

They were made once, by the program of then, and are never made again: whatever it stored must be
there in every later version. Ada, bo, cleo and boss talked, something was forgotten, a room moved
to another id, the program was killed while a message waited, and every table has a row.
"""

from __future__ import annotations

import gzip
import json
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import psycopg

from bot.storage.files import DATABASE_NAME

DATA = Path(__file__).parents[1] / "data" / "baseline"
BACKUP = DATA / "confidant.backup"
SECTIONS: dict[str, Any] = {
    "channels": {"memory": {"group_policy": "open"}},
    "session": {"owner": ["memory:boss"]},
}


@dataclass(frozen=True)
class Baseline:
    """The folder; `said` are the answers of then."""

    folder: Path
    said: dict[str, str]

    @property
    def database(self) -> Path:
        return self.folder / DATABASE_NAME


def unpack(folder: Path) -> Baseline:
    """Make the folder anew."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(DATA / "folder.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    dump, said = folder / "confidant.sql", folder / "said.json"
    connection = apsw.Connection(str(folder / DATABASE_NAME))
    connection.execute(dump.read_text("utf-8"))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    found = Baseline(folder, json.loads(said.read_text("utf-8")))
    dump.unlink()
    said.unlink()
    return found


def load_postgres(url: str) -> None:
    """Put what the PostgreSQL held into an empty database."""
    dump = gzip.decompress((DATA / "postgres.sql.gz").read_bytes())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(dump)


def rows(database: Path, sql: str) -> list[tuple[Any, ...]]:
    """What a database answers."""
    connection = apsw.Connection(str(database))
    try:
        return list(connection.execute(sql))
    finally:
        connection.close()


def content(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, but for those of the full text."""
    names = rows(database, "SELECT name FROM sqlite_schema WHERE type = 'table'")
    return {
        name: sorted(rows(database, f"SELECT * FROM {name}"), key=repr)
        for (name,) in names
        if not name.startswith("entries_text")
    }


def shape(database: Path) -> set[tuple[Any, ...]]:
    """Every column in its place, and every index."""
    tables = rows(
        database,
        """SELECT found.name, has.cid, has.name, has.type, has."notnull", has.dflt_value, has.pk
            FROM sqlite_schema AS found, pragma_table_info(found.name) AS has
            WHERE found.type = 'table'""",
    )
    indexes = rows(database, "SELECT name, sql FROM sqlite_schema WHERE type = 'index'")
    return {*tables, *((name, re.sub(r"\s+", " ", sql or "")) for name, sql in indexes)}
