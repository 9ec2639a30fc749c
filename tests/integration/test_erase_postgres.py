"""Erasing one person from a PostgreSQL: one transaction, and nothing of theirs in any table."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from typer.testing import CliRunner, Result

from bot.cli.main import cli
from tests.fakes.persons import ADA, BO, OPEN_ROOMS, space_of, talk
from tests.support import running

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("logs_stay")]

NAMES = (ADA, "memory:ada", space_of("ada"))


async def live(folder: Path, url: str) -> None:
    async with running(folder, channels=OPEN_ROOMS, storage={"url": url}) as engine:
        await talk(engine)


def note(url: str) -> None:
    """Notes are rows there."""
    with psycopg.connect(url, autocommit=True) as connection:
        for sender, word in (("ada", ADA), ("bo", BO)):
            space, text = space_of(sender), f"- {word} by train\n"
            connection.execute(
                "INSERT INTO notes VALUES (%s, %s, 1, %s, %s, 1, 1)",
                (f"{space}/memory/trip.md", space, text, len(text)),
            )


def holding(url: str, *words: str) -> list[str]:
    """Every table that holds one of some words in any of its rows."""
    found: list[str] = []
    with psycopg.connect(url, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT c.oid::regclass::text FROM pg_class c WHERE relkind IN ('r', 'p') "
            "AND relnamespace = current_schema()::regnamespace ORDER BY 1"
        ).fetchall()
        for (name,) in tables:
            rows = connection.execute(
                sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(str(name)))
            ).fetchall()
            if any(word.lower() in str(row[0]).lower() for row in rows for word in words):
                found.append(str(name))
    return found


def invoke(folder: Path, url: str, *words: str) -> Result:
    where = {
        "CONFIDANT_STORAGE__DIR": str(folder),
        "CONFIDANT_STORAGE__URL": url,
        "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
    }
    return CliRunner().invoke(cli, list(words), env=where)


def test_nothing_is_left_in_any_table_and_everything_of_others(
    tmp_path: Path, postgres_url: str
) -> None:
    asyncio.run(live(tmp_path / "home", postgres_url))
    note(postgres_url)
    assert invoke(tmp_path / "home", postgres_url, "memory", "index").exit_code == 0
    assert {"entries", "notes", "memory_chunks"} <= set(holding(postgres_url, *NAMES))
    others = set(holding(postgres_url, BO))
    done = invoke(tmp_path / "home", postgres_url, "erase", "memory:ada", "--yes")
    assert done.exit_code == 0, done.exception
    assert not holding(postgres_url, *NAMES)
    assert {"entries", "notes", "memory_chunks"} <= set(holding(postgres_url, BO)) <= others
    again = invoke(tmp_path / "home", postgres_url, "erase", "memory:ada", "--yes")
    assert "Nothing is kept about memory:ada" in str(again.exception)


async def test_not_while_a_node_runs(tmp_path: Path, postgres_url: str) -> None:
    home = tmp_path / "home"
    async with running(home, channels=OPEN_ROOMS, storage={"url": postgres_url}) as engine:
        await engine.ask("hello")
        done = await asyncio.to_thread(invoke, home, postgres_url, "erase", "memory:ada", "--yes")
        assert "Stop all nodes first" in str(done.exception)
        assert "hello" in await engine.ask("hello again")
