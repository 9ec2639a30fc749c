"""A backup that takes the database's place: what was answered since is not answered again."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.sessions import entries
from bot.storage import backup
from bot.testing import ScriptedModel
from tests.fakes.brain import query
from tests.integration.test_restore_changes import by_hand, damaged
from tests.support import NOON, running, until

DATABASE = "confidant.db"


def states(folder: Path) -> list[tuple[str, str]]:
    return query(folder, "SELECT message_id, state FROM inbox ORDER BY id")


def said(folder: Path) -> list[str]:
    rows = query(folder, "SELECT line FROM entries WHERE kind = 'message' ORDER BY seq")
    return [entries.parse(row[0]).text for row in rows]


@pytest.mark.parametrize("restored", [damaged, by_hand])
async def test_what_waited_in_the_backup_and_was_answered_since_is_done(
    tmp_path: Path, restored: Callable[[Path, Path], None]
):
    model = ScriptedModel(gate=asyncio.Event())
    assert model.gate is not None
    async with running(tmp_path, model=model) as engine:
        await engine.say("first", message_id="1")
        await model.started.wait()
        await engine.say("second", message_id="2")
        copy = await asyncio.to_thread(backup.make, tmp_path / DATABASE, 3, NOON)
        assert states(tmp_path) == [("1", "waiting"), ("2", "waiting")]
        model.gate.set()
        await engine.channel.wait_sent(2)
        await engine.ask("/status", message_id="3")
        await engine.ask("third", message_id="4")
    lines = said(tmp_path)
    assert len(lines) == 6
    restored(tmp_path, copy)
    async with running(tmp_path) as engine:
        assert await engine.ask("fourth", message_id="5") == "You said: fourth"
        assert len(engine.channel.sent) == 1
        assert len(engine.model.requests) == 1
    assert said(tmp_path)[:6] == lines
    assert states(tmp_path) == [(id_, "done") for id_ in "12345"]
    assert not list((tmp_path / "sessions").rglob("*.kept-*"))


async def test_what_waited_and_was_not_answered_since_is_answered_once(tmp_path: Path):
    model = ScriptedModel(gate=asyncio.Event())
    assert model.gate is not None
    old, new = tmp_path / "old", tmp_path / "new"
    async with running(old) as engine:
        await engine.ask("before", message_id="1")
    async with running(old, model=model) as engine:
        await engine.say("waits", message_id="2")
        await model.started.wait()
        copy = await asyncio.to_thread(backup.make, old / DATABASE, 3, NOON)
        await asyncio.to_thread(shutil.copytree, old / "sessions", new / "sessions")
        await asyncio.to_thread(shutil.copyfile, copy, new / DATABASE)
        model.gate.set()
    async with running(new) as engine:
        await engine.channel.wait_sent(1)
        assert engine.sent_to("ada") == ["You said: waits"]
        await until(lambda: states(new) == [("1", "done"), ("2", "done")])
    assert said(new) == ["before", "You said: before", "waits", "You said: waits"]
