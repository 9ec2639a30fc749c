"""`confidant reminders`: what waits, for whom, what is paused and why, and no words of others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bot.cli.main import cli
from bot.clock import system_clock
from bot.errors import ModelOverloaded
from bot.sessions.repeats import MAX_FAILURES
from bot.testing import ScriptedModel
from tests.support import FakeClock, running, until

OWNER = {"owner": ("memory:ada",)}


def told(folder: Path, *arguments: str, url: str = "") -> str:
    path = folder / "confidant.toml"
    storage = f'url = "{url}"' if url else ""
    path.write_text(f'[storage]\ndir = "{folder}"\n{storage}\n')
    done = CliRunner(env={"COLUMNS": "300"}).invoke(
        cli, ["reminders", "--config", str(path), *arguments]
    )
    assert done.exit_code == 0, done.output
    return done.output


async def set_some(folder: Path, url: str) -> None:
    """The owner's and somebody else's, one of them a task that fails until it is paused."""

    def failing(request: Any) -> str:
        if "the boats" in request.messages[-1].text:
            raise ModelOverloaded
        return "Well."

    clock = FakeClock(system_clock())
    model = ScriptedModel(script=failing)
    storage = {"url": url} if url else {}
    async with running(folder, model=model, clock=clock, session=OWNER, storage=storage) as engine:
        await engine.ask("/task every day at 15:00 count the boats", sender="bob")
        for _ in range(MAX_FAILURES):
            clock.advance(days=1)
            await engine.app.tasks.begin()
            await until(lambda: not engine.app.tasks._running)
        await engine.ask("/remind in 50 hours call the bank")
        await engine.ask("/remind in 2 days my secret illness", sender="bob")
        await engine.ask("/remind every weekday at 8 take the bins out")


@pytest.mark.usefixtures("logs_stay")
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_it_lists_what_waits_and_shows_the_owners_words_alone(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
):
    url = request.getfixturevalue("postgres_url") if engine == "postgres" else ""
    asyncio.run(set_some(tmp_path, url))
    rows = json.loads(told(tmp_path, "--json", url=url))
    found = {(row["kind"], row["often"], row["person"], row["state"], row["text"]) for row in rows}
    assert found == {
        ("once", "", "main", "waiting", "call the bank"),
        ("once", "", "memory:bob", "waiting", ""),
        ("again", "every weekday at 08:00", "main", "waiting", "take the bins out"),
        ("task", "every day at 15:00", "memory:bob", "paused", ""),
    }
    due = [row["due_at"] for row in rows[:-1]]
    assert due == sorted(due)
    assert (rows[-1]["state"], rows[-1]["last"], rows[-1]["place"]) == (
        *("paused", "failed"),
        "memory:bob",
    )
    assert rows[-1]["why"]
    table = told(tmp_path, url=url)
    assert "call the bank" in table
    assert "task, every day at 15:00" in table
    assert "failed: " in table
    for words in ("illness", "boats"):
        assert words not in table
        assert words not in str(rows)


@pytest.mark.usefixtures("logs_stay")
def test_what_should_have_been_said_is_overdue_and_nothing_is_nothing(tmp_path: Path):
    async def work(words: str) -> None:
        ago = FakeClock(system_clock() - 10 * 3_600_000)  # it has not run since
        async with running(tmp_path, clock=ago, session=OWNER) as engine:
            await engine.ask(words)

    asyncio.run(work("hello"))
    assert told(tmp_path) == "Nothing waits.\n"
    assert json.loads(told(tmp_path, "--json")) == []
    asyncio.run(work("/remind in 2 hours call \x1b[31mBob"))
    (row,) = json.loads(told(tmp_path, "--json"))
    assert (row["state"], row["text"]) == ("overdue", "call \x1b[31mBob")
    table = told(tmp_path)
    assert "overdue" in table
    assert "call [31mBob" in table
