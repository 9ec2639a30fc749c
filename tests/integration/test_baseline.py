"""What the first version of the tables left opens, restores, and loses nothing."""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from bot.cli.main import cli
from bot.errors import ArchiveRefused, StorageError
from bot.recovery import open_database
from bot.storage import backup, schema
from bot.storage.files import DATABASE_NAME
from bot.storage.postgres import PostgresDatabase
from bot.storage.sqlite import _connect_and_migrate
from tests.fakes import baseline
from tests.support import NOON, PATIENCE, Engine, FakeClock, running

Rows = dict[str, list[tuple[Any, ...]]]

_numbers = itertools.count(1)

pytestmark = pytest.mark.usefixtures("logs_stay")


async def ask(engine: Engine, words: str, sender: str = "ada") -> str:
    return await engine.ask(words, sender=sender, message_id=f"later-{next(_numbers)}")


async def find(engine: Engine, query: str, words: str, sender: str = "ada") -> None:
    async with asyncio.timeout(PATIENCE):  # what was said is indexed beside
        while words not in await ask(engine, f"/memory search {query}", sender):
            pass


def shown(engine: Engine) -> list[list[str]]:
    """What the model was asked with, each time."""
    return [[message.text for message in request.messages] for request in engine.model.requests]


def of_old_columns(new: Rows, old: Rows, names: set[str]) -> Rows:
    """The rows without the columns that were added since, which come last."""
    widths = {name: len(old[name][0]) if old[name] else None for name in names}
    return {name: [row[: widths[name]] for row in new[name]] for name in names}


async def test_every_row_of_the_folder_is_there_after_it_was_opened(tmp_path):
    old = baseline.unpack(tmp_path)
    before = baseline.content(old.database)
    database = await open_database(tmp_path, FakeClock())
    await database.close()
    after = baseline.content(old.database)
    kept = {*before} - {"journal", "ahead", "snapshots", "schema_versions"}
    assert of_old_columns(after, before, kept) == {name: before[name] for name in kept}
    assert {*before["schema_versions"]} < {*after["schema_versions"]}
    (copy,) = backup.before_upgrades(old.database)
    assert baseline.content(copy) == before


async def test_a_new_folder_has_the_same_tables(tmp_path):
    old = baseline.unpack(tmp_path / "old")
    new = tmp_path / "new" / DATABASE_NAME
    for path in (old.database, new):
        _connect_and_migrate(path).close()
    assert baseline.shape(new) == baseline.shape(old.database)


async def test_people_go_on_in_the_folder_where_they_were(tmp_path):
    baseline.unpack(tmp_path)
    async with running(tmp_path, **baseline.SECTIONS) as engine:
        await goes_on(engine)


async def test_the_backup_restores_and_people_go_on_in_it(tmp_path):
    environ = {"CONFIDANT_STORAGE__DIR": str(tmp_path / "new"), "HOME": str(tmp_path)}
    done = await asyncio.to_thread(
        CliRunner().invoke, cli, ["restore", str(baseline.BACKUP)], env=environ
    )
    assert done.exit_code == 0, done.output
    old = baseline.content(baseline.unpack(tmp_path / "old").database)
    new = baseline.content(tmp_path / "new" / DATABASE_NAME)
    # Who was let in, what was asked and what notes said before may be over since.
    over = {"approvals", "page_people", "page_links", "page_logins", "note_versions", "claim_uses"}
    kept = {*old} & {*new} - over - {"meta", "schema_versions", "prefixes", "prefix_texts"}
    assert of_old_columns(new, old, kept) == {name: old[name] for name in kept}
    async with running(tmp_path / "new", **baseline.SECTIONS) as engine:
        await goes_on(engine)


async def goes_on(engine: Engine) -> None:
    await engine.channel.wait_until(lambda _: engine.sent_to("ada"))
    assert engine.sent_to("ada")[-1] == "You said: what waits?"
    assert "the second conversation is about rowing" in shown(engine)[0]
    await find(engine, "harbour code", "the harbour code is 4711")
    assert "afraid of the boat" in await ask(engine, "/memory show MEMORY.md")
    await find(engine, "bicycle", "the bicycle is green")
    await find(engine, "trams", "bo likes trams", "bo")
    assert "zqforgotten is" not in await ask(engine, "/memory search zqforgotten", "bo")
    reminders = await ask(engine, "/reminders")
    for planned in ("water the plants", "take the pills", "sum up the day"):
        assert planned in reminders
    assert "Europe/Paris" in await ask(engine, "/timezone")
    assert "memory:ada" in await ask(engine, "/whoami", "cleo")
    room: dict[str, Any] = {"chat_type": "group", "chat": "newden", "sender": "boss"}
    await engine.say("still there?", message_id="room", **room)
    await engine.channel.wait_until(lambda _: engine.sent_to("newden"))
    assert engine.sent_to("newden") == ["You said: still there?"]
    assert "hello all" in shown(engine)[-1]
    await ask(engine, "/undo")
    await ask(engine, "and before?")
    assert "the bicycle is green 水母" in shown(engine)[-1]
    assert "zqforgotten" not in str(shown(engine))


async def test_people_go_on_in_the_postgresql(tmp_path, empty_postgres_url):
    baseline.load_postgres(empty_postgres_url)
    storage = {"url": empty_postgres_url}
    # The server's clock is today's, and no day begins between the two.
    session = {"reset": {"mode": "none"}}
    async with running(tmp_path, storage=storage, session=session) as engine:
        await find(engine, "bicycle", "the bicycle is green")
        assert "zqforgotten is" not in await ask(engine, "/memory search zqforgotten", "bo")
        assert "water the plants" in await ask(engine, "/reminders")
        assert "Europe/Paris" in await ask(engine, "/timezone")
        await ask(engine, "and now?")
        assert "the bicycle is green 水母" in shown(engine)[-1]


# --- older ones -----------------------------------------------------------------------------------

OLDER = schema.BASELINE - 1
REFUSED = (
    rf"tables of version {OLDER}, made by a Confidant from before 0\.1\.0; this is .* and reads "
    rf"version {schema.BASELINE} and later\. Nothing was changed: .*\.$"
)


def older(folder: Path) -> Path:
    """A folder whose tables say that they are of the version before."""
    path = baseline.unpack(folder).database
    baseline.rows(path, f"DELETE FROM schema_versions WHERE version > {OLDER}")
    return path


async def test_an_older_folder_is_refused_in_one_sentence_and_not_changed(tmp_path):
    path = older(tmp_path)
    before = path.read_bytes()
    with pytest.raises(StorageError, match=f"^{re.escape(str(tmp_path))} has {REFUSED}") as refused:
        await open_database(tmp_path, FakeClock())
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == before
    assert not (tmp_path / backup.BEFORE_UPGRADE).exists()
    with pytest.raises(StorageError, match=f"^{re.escape(str(path))} has {REFUSED}"):
        backup.put_back(path, path, NOON)


async def test_an_older_backup_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(schema, "BASELINE", schema.BASELINE + 1)
    environ = {"CONFIDANT_STORAGE__DIR": str(tmp_path / "new"), "HOME": str(tmp_path)}
    refused = await asyncio.to_thread(
        CliRunner().invoke, cli, ["restore", str(baseline.BACKUP)], env=environ
    )
    assert isinstance(refused.exception, ArchiveRefused)
    assert "confidant.backup has tables of version 32" in str(refused.exception)
    assert not (tmp_path / "new").exists()


async def test_older_tables_of_a_postgresql_are_refused(empty_postgres_url):
    baseline.load_postgres(empty_postgres_url)
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        connection.execute("DELETE FROM schema_versions WHERE version > %s", (OLDER,))
    with pytest.raises(StorageError, match=f"^The database has {REFUSED}"):
        await PostgresDatabase.open(empty_postgres_url)
