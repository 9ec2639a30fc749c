"""A newer version on an older folder, and the way back to the older one."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from typer.testing import CliRunner, Result

from bot.cli.main import cli
from bot.errors import StorageBusy, StorageError
from bot.storage import backup, schema
from bot.storage.files import DATABASE_NAME, DataDirLock
from bot.storage.sqlite import _connect_and_migrate
from tests.fakes.earlier import VERSIONS, Earlier, earlier
from tests.support import PATIENCE, Engine, running

_numbers = itertools.count(1)

pytestmark = pytest.mark.usefixtures("logs_stay")


@contextmanager
def the_next_version() -> Iterator[None]:
    """This program, with a step more than it has."""
    with pytest.MonkeyPatch.context() as patch:
        step = ("ALTER TABLE sessions ADD COLUMN more TEXT NOT NULL DEFAULT ''",)
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, step))
        patch.setattr(schema, "VERSION", schema.VERSION + 1)
        yield


def invoke(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, list(words), env={"CONFIDANT_STORAGE__DIR": str(folder)})


async def test_back_from_an_upgrade_nothing_is_lost_that_was_said_after_it(tmp_path):
    async with running(tmp_path) as engine:
        await engine.ask("said before")
        await engine.ask("/remind in 3 hours water the plants")
        await engine.ask("zqsecret")
    with the_next_version():
        async with running(tmp_path) as engine:
            await engine.ask("said after", message_id="a1")
            await engine.ask("/remind in 4 hours feed the cat", message_id="a2")
            await engine.ask("/memory forget zqsecret", message_id="a3")
            await engine.ask("/memory forget yes", message_id="a4")
    with pytest.raises(StorageError, match="go back to the copy") as refused:
        async with running(tmp_path):
            pass
    named = re.search(r"`confidant (restore) (.+)`", str(refused.value))
    assert named
    done = invoke(tmp_path, *named.groups())
    assert done.exit_code == 0, done.exception
    assert "What was said since then is read back at the start" in done.output
    async with running(tmp_path) as engine:
        told = await engine.ask("/reminders", message_id="b1")
        assert "water the plants" in told
        assert "feed the cat" in told
        await engine.ask("and now?", message_id="b2")
        shown = [message.text for message in engine.model.requests[-1].messages]
        assert "said before" in shown[0]
        assert any("said after" in text for text in shown)
        assert not any("zqsecret" in text for text in shown)
    (aside,) = [path for path in tmp_path.iterdir() if "before-restore" in path.name]
    assert backup.tables_of(aside)[0] == schema.VERSION + 1


async def test_a_copy_is_looked_at_and_not_put_back_while_the_bot_runs(tmp_path):
    async with running(tmp_path) as engine:
        await engine.ask("hello")
    with the_next_version():
        async with running(tmp_path):
            (copy,) = backup.before_upgrades(tmp_path / DATABASE_NAME)
            refused = invoke(tmp_path, "restore", str(copy))
            assert isinstance(refused.exception, StorageBusy)
    before = (tmp_path / DATABASE_NAME).read_bytes()
    looked = invoke(tmp_path, "restore", "--check", str(copy))
    assert f"has tables of version {schema.VERSION}. Nothing was changed." in looked.output
    assert (tmp_path / DATABASE_NAME).read_bytes() == before


def changed(folder: Path) -> tuple[bytes, list[str]]:
    database = folder / DATABASE_NAME
    return database.read_bytes(), [path.name for path in backup.before_upgrades(database)]


def test_a_command_of_a_newer_version_changes_nothing_below_a_bot_that_runs(tmp_path):
    _connect_and_migrate(tmp_path / DATABASE_NAME).close()
    before = changed(tmp_path)
    with the_next_version():
        with DataDirLock(tmp_path):
            refused = invoke(tmp_path, "sessions", "list")
        assert isinstance(refused.exception, StorageError)
        said = str(refused.exception)
        assert f"An earlier version of Confidant runs on {tmp_path}" in said
        assert "Nothing was changed: start it again with this version first." in said
        assert changed(tmp_path) == before
        assert invoke(tmp_path, "sessions", "list").exit_code == 0  # nobody runs: it is upgraded
        assert backup.tables_of(tmp_path / DATABASE_NAME)[0] == schema.VERSION
        with DataDirLock(tmp_path):
            assert invoke(tmp_path, "sessions", "list").exit_code == 0
    assert changed(tmp_path)[1] == [f"confidant-version-{schema.VERSION}.db"]


# --- every version there ever was ----------------------------------------------------------------

# What each of these came with: from then on it is in the folders, and must be there afterwards.
SINCE = {"forgotten": 2, "reminder": 4, "linked": 4, "zone": 17, "repeat": 21, "task": 22}
UNSEEN = {3}  # of two steps that landed at once


def test_there_is_a_folder_of_every_version():
    """The one of today is made, by scripts/earlier_folders.py, with the step that ends it."""
    assert {*VERSIONS} | {schema.VERSION} == {*range(1, schema.VERSION + 1)} - UNSEEN


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_folder_of_every_version_is_walked_forward(tmp_path, version):
    old = earlier(version, tmp_path)
    had = {name for name, since in SINCE.items() if version >= since}
    assert had == {name for name in SINCE if came(old, name)}
    entries = rows(old.database, "SELECT id, line FROM entries ORDER BY seq")
    async with running(tmp_path) as engine:
        await engine.channel.wait_until(lambda _: engine.sent_to("ada"))
        assert engine.sent_to("ada") == ["You said: what waits?"]
        assert "the second conversation is about rowing" in shown(engine)[0]
        assert "zqforgotten" not in str(shown(engine))

        async def ask(words: str, sender: str = "ada") -> str:
            id_ = f"later-{next(_numbers)}"
            return await engine.ask(words, sender=sender, message_id=id_)

        async def find(query: str, words: str, sender: str = "ada") -> None:
            async with asyncio.timeout(PATIENCE):  # what was said is indexed beside
                while words not in await ask(f"/memory search {query}", sender):
                    pass

        await find("harbour code", "the harbour code is 4711")
        assert "afraid of the boat" in await ask("/memory show MEMORY.md")
        await find("bicycle", "the bicycle is green")
        await find("trams", "bo likes trams", "bo")
        assert ("zqforgotten is" in await ask("/memory search zqforgotten", "bo")) == (
            "forgotten" not in had
        )
        assert ("water the plants" in (reminders := await ask("/reminders"))) == ("reminder" in had)
        assert ("take the pills" in reminders) == ("repeat" in had)
        assert ("sum up the day" in reminders) == ("task" in had)
        assert ("Europe/Paris" in await ask("/timezone")) == ("zone" in had)
        assert ("memory:ada" in await ask("/whoami", "cleo")) == ("linked" in had)
        await ask("/undo")
        await ask("and before?")
        assert "the bicycle is green 水母" in shown(engine)[-1]
    found = rows(old.database, "SELECT id, line FROM entries ORDER BY seq")
    assert found[: len(entries)] == entries
    assert columns(old.database) == columns_of_a_new_one(tmp_path / "new")
    copies = {backup.number_of(path): path for path in backup.before_upgrades(old.database)}
    if version < schema.VERSION:
        assert rows(copies[version], "SELECT id, line FROM entries ORDER BY seq") == entries


def came(old: Earlier, name: str) -> bool:
    """True when a step of the story was understood by the program of then."""
    known = ("Forgotten:", "I will", "Done:", "From now on")
    return old.said.get(name, "").startswith(known)


def shown(engine: Engine) -> list[list[str]]:
    """What the model was asked with, each time."""
    return [[message.text for message in request.messages] for request in engine.model.requests]


def rows(database: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(database))
    try:
        return list(connection.execute(sql))
    finally:
        connection.close()


def columns(database: Path) -> set[tuple[Any, ...]]:
    """Every column, and every index as it was made."""
    tables = rows(
        database,
        """SELECT found.name, has.name, has.type, has."notnull", has.dflt_value, has.pk
            FROM sqlite_schema AS found, pragma_table_info(found.name) AS has
            WHERE found.type = 'table'""",
    )
    indexes = rows(database, "SELECT name, sql FROM sqlite_schema WHERE type = 'index'")
    return {*tables, *indexes}


def columns_of_a_new_one(folder: Path) -> set[tuple[Any, ...]]:
    _connect_and_migrate(folder / DATABASE_NAME).close()
    return columns(folder / DATABASE_NAME)
