"""What a page draws of what was said at its address, and reads back, from the engine's database."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot.channel import Address, HistoryItem
from bot.identity.view import MemoryView
from bot.sessions import browsing, entries, forgetting, store
from bot.sessions.entries import Entry
from bot.storage.sqlite import SqliteDatabase
from bot.testing import ScriptedModel
from tests.fakes.brain import query
from tests.support import NOON, Engine, FakeClock, running, until

ADA = Address("memory", "default", "ada")


async def history(engine: Engine, limit: int = 100, before: str = "") -> list[HistoryItem]:
    return list(await engine.channel.engine.history(ADA, limit, before))


def words(items: list[HistoryItem]) -> list[str]:
    return [item.text.partition(".")[0] if item.text else f"({item.role})" for item in items]


async def test_it_is_read_back_to_its_beginning_across_conversations(tmp_path: Path):
    async with running(tmp_path) as engine:
        for talk in range(3):
            for number in range(4):
                await engine.ask(f"{talk}.{number}")
            await engine.ask("/new")
        await engine.ask("of bob", sender="bob")
        whole = await history(engine)
        read: list[HistoryItem] = []
        before = ""
        while found := await history(engine, 5, before):
            read = found + read
            before = found[0].place
            assert len([item for item in found if item.role != "divider"]) <= 5
    assert [(i.id, i.text) for i in read] == [(i.id, i.text) for i in whole]
    assert [item.role for item in whole].count("divider") == 3
    assert whole[0].role == "user"
    assert "of bob" not in words(whole)


@pytest.mark.parametrize("before", ["nothing.1", "%", "x" * 200])
async def test_before_a_place_that_is_not_there_there_is_nothing(tmp_path: Path, before: str):
    async with running(tmp_path) as engine:
        await engine.ask("hello")
        assert await history(engine, 5, before) == []


async def test_a_divider_stands_where_a_conversation_begins_and_nowhere_else(tmp_path: Path):
    async with running(tmp_path) as engine:
        await engine.ask("first")
        (old,) = query(tmp_path, "SELECT id FROM sessions")[0]
        await engine.ask("/new")
        await engine.ask("second")
        # What is noted late in the conversation before begins nothing.
        late = entries.NewEntry("notice", "assistant", "Saved")
        database = await SqliteDatabase.open(tmp_path / "confidant.db")
        await database.write(lambda tx: store.append(tx, old, [late], NOON))
        await database.close()
        await engine.ask("third")
        shown = words(await history(engine))
    assert shown.count("(divider)") == 1
    assert shown[shown.index("(divider)") + 1] == "/new"


async def test_a_text_that_tells_of_another_conversation_says_with_what_it_begins(tmp_path: Path):
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as engine:
        await engine.ask("first")
        said = await engine.say("/new")
        await engine.channel.wait_until(lambda found: len(found) > 1)
        assert [piece.whole.begins for piece in engine.channel.sent] == ["", said.message_id]
        await engine.ask("/new")  # there is nothing to begin
        await engine.ask("second")
        clock.advance(days=2)
        said = await engine.say("another day")
        await engine.channel.wait_until(lambda found: len(found) > 5)
        assert [piece.whole.begins for piece in engine.channel.sent[2:]] == [
            "", "", said.message_id, "",
        ]  # fmt: skip
        shown = words(await history(engine))
    at = shown.index("another day")
    assert shown[at - 2] == "(divider)"  # and between them the text that tells of it


async def test_stopping_stands_below_the_question_that_was_stopped(tmp_path: Path):
    """The question is stored with what there is of its answer, after the command that ended it."""
    clock = FakeClock()
    model = ScriptedModel(gate=asyncio.Event())
    async with running(tmp_path, clock=clock, model=model) as engine:
        await engine.say("a long question")
        await model.started.wait()
        clock.advance(seconds=5)
        await engine.ask("/stop")
        await until(lambda: len(query(tmp_path, "SELECT 1 FROM entries")) >= 3)
        shown = await history(engine)
    assert words(shown)[:2] == ["a long question", "/stop"]
    assert shown[0].at == NOON


def line(kind: str, number: int, at: int, said_at: int) -> Entry:
    what: Any = "message" if kind in {"asked", "answer"} else kind
    role: Any = "user" if kind in {"asked", "command"} else "assistant"
    return Entry(f"s.{number}", None, what, role, at, f"{number}", (), "", said_at=said_at)


@pytest.mark.parametrize(
    ("said", "order"),
    [
        # A command beside a turn, and what it said.
        ([("command", 5, 5), ("notice", 5, 0), ("asked", 9, 1)], "312"),
        # What was asked before, and answered, stays before.
        ([("answer", 5, 0), ("asked", 9, 1)], "12"),
        # Said after the command.
        ([("command", 5, 4), ("notice", 5, 0), ("asked", 9, 6)], "123"),
        # Between the command and its answer: those two stay together.
        ([("command", 5, 3), ("notice", 5, 0), ("asked", 9, 4)], "123"),
        # Before the notice that its conversation has begun.
        ([("notice", 5, 0), ("asked", 9, 4)], "21"),
        # When it was said is not known.
        ([("command", 5, 0), ("asked", 9, 0)], "12"),
    ],
)  # fmt: skip
def test_lines_stand_as_they_were_said(said: list[Any], order: str):
    lines = [line(kind, n, at, then) for n, (kind, at, then) in enumerate(said, 1)]
    assert "".join(each.text for each in browsing.in_order(lines)) == order


async def test_when_something_was_said_is_kept_in_its_line(tmp_path: Path):
    new = entries.NewEntry("message", "user", "hi", source="m1", said_at=5)
    entry = entries.parse(entries.line_of(new, "s.1", None, 9))
    assert (entry.at, entry.said_at, entry.said_or_at) == (9, 5, 5)
    assert "saidAt" not in entries.line_of(new, "s.1", None, 5)


async def test_what_was_forgotten_has_no_words_in_the_history(tmp_path: Path):
    async with running(tmp_path) as engine:
        await engine.ask("my sister is Leonor")
        view = MemoryView("people/ada", (), private=True, people=("memory:ada",))
        database = await SqliteDatabase.open(tmp_path / "confidant.db")
        await forgetting.forget(database, view, "Leonor", NOON)
        await database.close()
        shown = await history(engine)
    assert words(shown) == ["(user)", *words(shown)[1:]]
    assert len(shown) == 2
