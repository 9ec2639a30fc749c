"""The list of tables is complete and right on both engines."""

from __future__ import annotations

import re

import psycopg

from bot.storage.sqlite import SqliteDatabase
from bot.storage.tables import TABLES
from tests.support import beside

# Parts of a virtual table, of a partitioned one, and what the library for jobs makes.
PARTS = re.compile(r"entries_text_\w+|entries_\d{4}_\d\d|procrastinate_\w+|sqlite_\w+")

KEYS = """SELECT c.relname, ARRAY(SELECT a.attname FROM pg_index i
    JOIN unnest(i.indkey) WITH ORDINALITY k(number, place) ON true
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
    WHERE i.indrelid = c.oid AND i.indisprimary ORDER BY k.place)
    FROM pg_class c WHERE relkind IN ('r', 'p')
    AND relnamespace = current_schema()::regnamespace"""


def listed(engine: str) -> dict[str, tuple[str, ...]]:
    return {each.name: each.key for each in TABLES if each.engine in {"", engine}}


async def test_every_table_of_a_folder_is_listed_with_its_key(tmp_path):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    keys = await database.read(
        lambda tx: tx.execute(
            """SELECT t.name, (SELECT group_concat(name, ' ') FROM
                (SELECT name FROM pragma_table_info(t.name) WHERE pk ORDER BY pk))
                FROM sqlite_schema t WHERE type = 'table'"""
        )
    )
    await database.close()
    found = {name: tuple((key or "").split()) for name, key in keys if not PARTS.fullmatch(name)}
    assert found == listed("sqlite")


async def test_every_table_of_a_server_is_listed_with_its_key(postgres_url):
    with psycopg.connect(postgres_url) as connection:
        keys = connection.execute(KEYS).fetchall()
    found = {name: tuple(key) for name, key in keys if not PARTS.fullmatch(name)}
    assert found == listed("postgres")


async def test_exported_columns_are_columns_and_no_secrets(tmp_path):
    async with beside(tmp_path) as database:
        for table in TABLES:
            if table.export:
                assert table.owner
                await database.read(
                    lambda tx, t=table: tx.execute(
                        f"SELECT {', '.join(t.export.split())} FROM {t.name}"
                    )
                )
                assert not {"code", "password", "digest", "auth", "p256dh"} & {
                    *table.export.split()
                }
