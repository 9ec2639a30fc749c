"""The database is lost: what was forgotten stays forgotten, and what people set up stands again."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bot.agent.models import Request
from bot.storage import backup
from bot.testing import ScriptedModel
from tests.fakes.brain import query
from tests.integration.test_cli import doctor
from tests.integration.test_link import two
from tests.support import NOON, FakeClock, running, until

DATABASE = "confidant.db"
SECRET = "my locker is number 4711"
OWNER = {"owner": ["memory:ada"]}

Loss = Callable[[Path, Path], None]


def deleted(folder: Path, copy: Path) -> None:
    """Somebody removes the database."""
    for part in ("", "-wal", "-shm"):
        (folder / f"{DATABASE}{part}").unlink(missing_ok=True)


def emptied(folder: Path, copy: Path) -> None:
    """A disk that failed left nothing in it, and no copy was made yet."""
    deleted(folder, copy)
    (folder / DATABASE).touch()
    copy.unlink()


def damaged(folder: Path, copy: Path) -> None:
    """The database breaks; the program finds the backup itself."""
    with (folder / DATABASE).open("r+b") as file:
        file.write(os.urandom(100))


def by_hand(folder: Path, copy: Path) -> None:
    """Somebody puts the backup in its place, as the documentation says."""
    for part in ("-wal", "-shm"):
        (folder / f"{DATABASE}{part}").unlink(missing_ok=True)
    shutil.copyfile(copy, folder / DATABASE)


ALL = pytest.mark.parametrize("loss", [deleted, emptied, damaged, by_hand])


async def back_up(folder: Path) -> Path:
    """A backup while nothing is on its way."""
    await until(lambda: query(folder, "SELECT 1 FROM outbox WHERE state = 'waiting'") == [])
    return await asyncio.to_thread(backup.make, folder / DATABASE, 3, NOON)


def shown(requests: list[Request]) -> str:
    """Everything a model was shown; a deadline is a number in which any digits may stand."""
    return repr([replace(each, deadline=None) for each in requests])


@ALL
async def test_what_was_forgotten_is_not_shown_or_found_again(tmp_path: Path, loss: Loss):
    async with running(tmp_path) as engine:
        await engine.ask_each(SECRET, "something harmless about boats")
        copy = await back_up(tmp_path)
        await engine.ask("/memory forget 4711")
        assert "4711" not in (await engine.ask("/memory forget yes")).replace("“4711”", "")
        await engine.ask("the latest words about boats")
    loss(tmp_path, copy)
    model = ScriptedModel()
    async with running(tmp_path, model=model) as engine:
        await engine.ask_each("what was my locker again?", "/new")
        await engine.ask("what was my locker again, and the boats?")
        assert "4711" not in shown(model.requests)
        assert "boats" in shown(model.requests)
        found = await engine.ask("/memory search locker number")
        assert "4711" not in found
    transcripts = [path.read_text() for path in (tmp_path / "sessions").rglob("*.jsonl")]
    assert any(SECRET in lines for lines in transcripts)  # they only grow
    assert not list(tmp_path.rglob("*.kept-*"))


@ALL
async def test_reminders_come_once_and_what_was_cancelled_does_not(tmp_path: Path, loss: Loss):
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as engine:
        await engine.ask_each("/remind in 10 minutes early tea", "/remind in 2 hours stretch")
        await engine.ask("/remind in 3 hours nothing")
        copy = await back_up(tmp_path)
        await engine.ask_each("/remind in 4 hours supper", "/reminders cancel 3")
        clock.advance(minutes=11)
        before = len(engine.channel.sent)
        await engine.app.engine.reminders.wake()
        await engine.channel.wait_sent(before + 1)
    loss(tmp_path, copy)
    async with running(tmp_path, clock=clock) as engine:
        listed = await engine.ask("/reminders")
        assert ("stretch" in listed, "supper" in listed) == (True, True)
        assert ("early tea" in listed, "nothing" in listed) == (False, False)
        await engine.ask("/remind in 5 hours a new one")
        clock.advance(hours=6)
        before = len(engine.channel.sent)
        await engine.app.engine.reminders.wake()
        await engine.channel.wait_sent(before + 3)
        said = [each.text for each in engine.channel.sent[before:]]
        assert [any(word in text for text in said) for word in ("stretch", "supper", "new")] == [
            True,
            True,
            True,
        ]
        assert len(said) == 3


@ALL
async def test_linked_accounts_stay_linked_and_parted_ones_parted(tmp_path: Path, loss: Loss):
    async with two(tmp_path) as both:
        await both.link("other:7", "memory:ada")
        copy = await back_up(tmp_path)
        await both.link("other:8", "memory:ada")
        await both.ask("other:7", "/unlink")
    loss(tmp_path, copy)
    async with two(tmp_path) as both:
        assert await both.person("other:8") == await both.person("memory:ada")
        assert await both.person("other:7") == "other:7"


@ALL
async def test_what_was_chosen_in_a_conversation_holds(tmp_path: Path, loss: Loss):
    async with running(tmp_path) as engine:
        await engine.ask("first words")
        copy = await back_up(tmp_path)
        await engine.ask_each("/usage tokens", "/notices off", "/new", "second words", "/undo")
    loss(tmp_path, copy)
    async with running(tmp_path) as engine:
        await engine.ask("third words")
        assert "first words" in shown(engine.model.requests)
        rows = query(tmp_path, "SELECT usage, notices FROM sessions ORDER BY id")
        assert rows == [("tokens", "off"), ("tokens", "off")]


@ALL
async def test_the_owner_is_told_once_what_came_back_and_what_did_not(tmp_path: Path, loss: Loss):
    async with running(tmp_path, session=OWNER) as engine:
        await engine.ask("hello")
        await engine.ask("hi there", sender="bob")
        copy = await back_up(tmp_path)
        await engine.ask_each("/remind in 2 hours stretch", "/memory forget hello")
        await engine.ask("/memory forget yes")
    loss(tmp_path, copy)
    async with running(tmp_path, session=OWNER) as engine:
        await engine.channel.wait_sent(1)
        (told,) = engine.channel.sent
        assert told.address.chat == "ada"
        assert "1 reminders" in told.text
        assert "0 links" in told.text
        assert "open approvals" in told.text
        assert ("copy confidant-" in told.text) == (loss in {deleted, damaged})
    async with running(tmp_path, session=OWNER) as engine:
        await engine.ask("bye")
        assert len(engine.channel.sent) == 1
    _, out, _ = await doctor(tmp_path, CONFIDANT_STORAGE__DIR=str(tmp_path))
    (line,) = (each for each in out.splitlines() if "from the log" in each)
    assert " 3 settings" in line  # the reminder, and what was asked and forgotten


async def test_an_ordinary_start_tells_nothing(tmp_path: Path):
    for _ in range(3):
        async with running(tmp_path, session=OWNER) as engine:
            await engine.ask_each("hello", "/remind in 2 hours stretch")
            assert len(engine.channel.sent) == 2
    assert query(tmp_path, "SELECT value FROM meta WHERE key = 'restored'") == []


async def test_a_database_that_was_built_again_answers_nothing_twice_and_goes_on(tmp_path: Path):
    async with running(tmp_path) as engine:
        await engine.ask_each("one", "two")
    (tmp_path / DATABASE).unlink()
    async with running(tmp_path) as engine:
        assert await engine.ask("three") == "You said: three"
        assert len(engine.model.requests) == 1
        assert "two" in shown(engine.model.requests)
