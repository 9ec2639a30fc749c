"""`[heartbeat]`: the bot looks in on whoever has a HEARTBEAT.md, and speaks only when it must."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.agent.models import Request
from bot.config import HeartbeatConfig
from bot.errors import ModelOverloaded
from bot.testing import ScriptedModel
from bot.upkeep.heartbeat import is_awake
from tests.fakes.brain import query
from tests.integration.test_memory_commands import ADA
from tests.integration.test_tasks import due, ran
from tests.support import NOON, Engine, running, write_file

FILE = "# Now and then\n\n- Tell me when the tide turns.\n"
WAITS = "SELECT count(*) FROM repeats WHERE made_by = 'program' AND state = 'waiting'"


def answering(words: str, seen: list[Request] | None = None) -> ScriptedModel:
    """A model that says these words to heartbeats, and repeats anything else."""

    def reply(request: Request) -> str:
        if "tide" not in str(request.messages[-1]):
            return "Hello."
        if seen is not None:
            seen.append(request)
        return words

    return ScriptedModel(script=reply)


@asynccontextmanager
async def looked_in(folder: Path, model: ScriptedModel, every: str = "30m", **more: Any):
    write_file(folder / "workspace" / ADA / "HEARTBEAT.md", FILE)
    async with running(folder, model=model, heartbeat={"every": every, **more}) as engine:
        await engine.ask("hello")
        await look(engine)
        yield engine


async def adopt(engine: Engine, every: str) -> None:
    """Change the option while the program runs."""
    heartbeat = HeartbeatConfig(every=every)
    await engine.app.adopt(engine.app.settings.now.model_copy(update={"heartbeat": heartbeat}))


async def look(engine: Engine) -> None:
    await engine.app.maintenance.heartbeats.look()


async def beat(engine: Engine, **ahead: float) -> None:
    await due(engine, **ahead or {"minutes": 31})
    await ran(engine)


async def test_it_speaks_when_there_is_something_to_say(tmp_path):
    seen: list[Request] = []
    async with looked_in(tmp_path, answering("The tide turns at two.", seen)) as engine:
        await engine.ask("/remind in 20 minutes tea")
        await beat(engine)
        await engine.channel.wait_until(lambda _: "tide turns" in engine.sent_to("ada")[-1])
        shown = str(seen[-1].messages[-1])
        assert "Tell me when the tide turns" in shown
        assert "Messages from the person since the last look" in shown
        assert "nobody wrote it" in shown
        assert "HEARTBEAT.md" in await engine.ask("/reminders")


async def test_it_is_silent_otherwise(tmp_path):
    seen: list[Request] = []
    async with looked_in(tmp_path, answering("HEARTBEAT_OK", seen)) as engine:
        before = len(engine.sent_to("ada"))
        for _ in range(3):
            await beat(engine)
        assert (len(seen), len(engine.sent_to("ada"))) == (3, before)


@pytest.mark.parametrize(
    ("every", "text", "tasks"),
    [
        ("30m", FILE, 1),
        ("", FILE, 0),
        ("30m", "# Now and then\n\n<!-- nothing -->\n", 0),
        ("30m", "", 0),
    ],
)
async def test_only_whoever_wants_it_is_looked_in_on(tmp_path, every, text, tasks):
    write_file(tmp_path / "workspace" / ADA / "HEARTBEAT.md", text)
    async with running(tmp_path, heartbeat={"every": every}) as engine:
        await engine.ask("hello")
        await engine.say("hello", sender="eve", chat="eve")
        await look(engine)
        assert query(tmp_path, WAITS) == [(tasks,)]


async def test_the_file_is_in_no_other_prompt(tmp_path):
    write_file(tmp_path / "workspace" / "HEARTBEAT.md", FILE)
    async with running(tmp_path) as engine:
        await engine.ask("hello")
        assert "tide" not in engine.model.requests[-1].system


async def test_it_follows_the_options_and_the_file(tmp_path):
    async with looked_in(tmp_path, answering("HEARTBEAT_OK")) as engine:
        rule = "SELECT rule FROM repeats WHERE made_by = 'program' AND state = 'waiting'"
        assert query(tmp_path, rule) == [("FREQ=MINUTELY;INTERVAL=30",)]
        await adopt(engine, "2h")
        await look(engine)
        assert query(tmp_path, rule) == [("FREQ=MINUTELY;INTERVAL=120",)]
        await adopt(engine, "")
        await look(engine)
        assert query(tmp_path, WAITS) == [(0,)]


async def test_what_was_cancelled_comes_back_when_the_file_changes(tmp_path):
    async with looked_in(tmp_path, answering("HEARTBEAT_OK")) as engine:
        await engine.ask("/reminders cancel 1")
        await look(engine)
        assert query(tmp_path, WAITS) == [(0,)]
        write_file(tmp_path / "workspace" / ADA / "HEARTBEAT.md", f"{FILE}- And the moon.\n")
        await look(engine)
        assert query(tmp_path, WAITS) == [(1,)]


async def test_it_sleeps_outside_its_hours(tmp_path):
    seen: list[Request] = []
    model = answering("The tide turns.", seen)
    async with looked_in(tmp_path, model, hours="0-1") as engine:  # it is noon
        await beat(engine)
        assert seen == []
        assert query(tmp_path, WAITS) == [(1,)]


async def test_three_failures_pause_it_and_are_told(tmp_path):
    def fail(request: Request) -> str:
        if "tide" in str(request.messages[-1]):
            raise ModelOverloaded("busy")
        return "Hello."

    async with looked_in(tmp_path, ScriptedModel(script=fail)) as engine:
        for _ in range(3):
            await beat(engine)
        await engine.channel.wait_until(lambda _: "HEARTBEAT.md" in engine.sent_to("ada")[-1])
        assert query(tmp_path, WAITS) == [(0,)]
        await look(engine)
        assert query(tmp_path, WAITS) == [(0,)]


@pytest.mark.parametrize("every", ["5m", "0m", "m", "30", "30s", "-1h", "99999m"])
def test_how_often_is_checked(every):
    with pytest.raises(ValueError, match=r"every|pattern"):
        HeartbeatConfig(every=every)


@pytest.mark.parametrize(
    ("hours", "awake"), [("8-22", True), ("0-24", True), ("22-8", False), ("13-12", False)]
)
def test_hours_may_go_over_midnight(hours, awake):
    assert is_awake(HeartbeatConfig(hours=hours), NOON, ZoneInfo("UTC")) == awake


async def test_that_of_the_main_memory_comes_before_one_of_an_agent_with_its_own(tmp_path):
    main = write_file(tmp_path / "workspace" / ADA / "HEARTBEAT.md", FILE)
    family = {"memory": "own", "bind": [{"chat": "attic"}]}
    changes = {"agents": {"family": family}, "heartbeat": {"every": "30m"}}
    async with running(tmp_path, model=answering("HEARTBEAT_OK"), **changes) as engine:
        await engine.ask("hello")
        await look(engine)
        engine.clock.advance(minutes=1)
        await engine.say("hello there", chat="attic")  # where no file says anything
        await engine.channel.wait_until(lambda _: engine.sent_to("attic"))
        await look(engine)
        kept = "SELECT key FROM repeats WHERE made_by = 'program' AND state = 'waiting'"
        assert query(tmp_path, kept) == [("agent:main:memory:dm:ada",)]
        main.rename(write_file(tmp_path / "workspace" / "agents" / "family" / ADA / main.name, ""))
        await look(engine)
        assert query(tmp_path, kept) == [("agent:family:memory:dm:ada",)]
