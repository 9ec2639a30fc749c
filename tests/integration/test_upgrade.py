"""A newer version on an older folder, and the way back to the older one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bot.cli.main import cli
from bot.errors import StorageBusy, StorageError
from bot.storage import backup, schema
from bot.storage.files import DATABASE_NAME, DataDirLock
from bot.storage.sqlite import _connect_and_migrate
from tests.support import running

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
        await engine.ask_each("said before", "/remind in 3 hours water the plants", "zqsecret")
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
    assert "The next start applies what was said since then" in done.output
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
    assert f"has schema version {schema.VERSION}. Nothing was changed." in looked.output
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
        assert f"An earlier version of Confidant is running on {tmp_path}" in said
        assert "Nothing was changed: restart it with this version first." in said
        assert changed(tmp_path) == before
        assert invoke(tmp_path, "sessions", "list").exit_code == 0  # nobody runs: it is upgraded
        assert backup.tables_of(tmp_path / DATABASE_NAME)[0] == schema.VERSION
        with DataDirLock(tmp_path):
            assert invoke(tmp_path, "sessions", "list").exit_code == 0
    assert changed(tmp_path)[1] == [f"confidant-version-{schema.VERSION}.db"]
