"""Titles of conversations, by the model for chores."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.errors import ModelUnreachable
from bot.sessions import browsing
from bot.upkeep.summary import title_in
from tests.fakes.brain import Brain, settled
from tests.support import beside, running, until

AGENT = {"model": "one", "chores": "anthropic/small"}


async def titles(folder: Path) -> list[str]:
    async with beside(folder) as database:
        return await database.read(
            lambda tx: [each.title for each in browsing.listed(tx, ("memory:ada",), 9)]
        )


async def test_after_the_second_turn_a_conversation_has_its_title_once(tmp_path):
    brain = Brain(title="**Where herons nest**")
    async with running(tmp_path, model=brain, agent=AGENT) as engine:
        await engine.ask("where do herons nest?")
        assert brain.asked("title") == []
        await engine.ask("and in winter?")
        await settled()
        assert await titles(tmp_path) == ["Where herons nest"]
        await engine.ask("and storks?")
        (request,) = brain.asked("title")
        assert request.model == "small"
        assert "where do herons nest?" in request.messages[0].text
        # It is counted as what its person used.
        usage = await engine.app.core.database.read(
            lambda tx: tx.execute("SELECT person, runs FROM usage_counts WHERE purpose = 'title'")
        )
        assert usage == [("memory:ada", 1)]
        await engine.ask("/new")
        assert len(brain.asked("title")) == 1


async def test_one_of_a_single_turn_has_its_title_at_its_end(tmp_path):
    brain = Brain(title="苍鹭的巢")
    async with running(tmp_path, model=brain, agent=AGENT) as engine:
        await engine.ask_each("苍鹭在哪里筑巢？", "/new")
        await settled()
        assert "苍鹭的巢" in await titles(tmp_path)
        assert len(brain.asked("title")) == 1


async def test_a_name_that_its_person_gave_stays(tmp_path):
    brain = Brain(title="Of the model")
    async with running(tmp_path, model=brain, agent=AGENT) as engine:
        await engine.ask("where do herons nest?")
        async with beside(tmp_path) as database:
            (one,) = await database.read(lambda tx: browsing.listed(tx, ("memory:ada",), 9))
            await database.write(lambda tx: browsing.name(tx, one.id, "Of its person", 1))
        await engine.ask_each("and in winter?", "/new", "next")
        assert brain.asked("title") == []
        assert "Of its person" in await titles(tmp_path)


async def test_what_is_named_or_forgotten_meanwhile_is_not_called_by_the_model(tmp_path):
    held = {"title": asyncio.Event()}
    brain = Brain(title="Of zebras", held=held)  # type: ignore[arg-type]
    async with running(tmp_path, model=brain, agent=AGENT) as engine:
        await engine.ask_each("the locker is zebra", "and the other?")
        await until(lambda: len(brain.asked("title")) == 1)
        await engine.ask_each("/memory forget zebra", "/memory forget yes")
        held["title"].set()
        await settled()
        assert await titles(tmp_path) == [""]
        held["title"].clear()
        await engine.ask_each("/new", "of boats", "and sails?")
        await until(lambda: len(brain.asked("title")) > 1)
        async with beside(tmp_path) as database:
            (one, *_) = await database.read(lambda tx: browsing.listed(tx, ("memory:ada",), 9))
            await database.write(lambda tx: browsing.name(tx, one.id, "Of boats", 1))
        held["title"].set()
        await settled()
        assert (await titles(tmp_path))[0] == "Of boats"


@pytest.mark.parametrize(
    "answer",
    [
        ModelUnreachable(),
        "",
        "NO_REPLY",
        "Here is a title.\n\nHerons",
        "long " * 40,
        "The password: hunter2-8814",
    ],
)
async def test_what_is_no_title_leaves_the_first_words(tmp_path, answer):
    brain = Brain(title=answer)
    async with running(tmp_path, model=brain, agent=AGENT) as engine:
        await engine.ask_each("where do herons nest?", "and in winter?")
        await settled()
        assert len(brain.asked("title")) == 1
        assert await engine.ask("and what of winter?") == "All right."
    assert await titles(tmp_path) == [""]


@pytest.mark.parametrize("agent", [{"model": "one"}, {**AGENT, "model": "two"}])
async def test_without_a_model_for_chores_and_in_rooms_there_is_none(
    tmp_path, agent: Mapping[str, str]
):
    brain = Brain(title="A title")
    channels = {"memory": {"group_policy": "open"}}
    async with running(tmp_path, model=brain, agent=dict(agent), channels=channels) as engine:
        room: dict[str, Any] = {"chat": "den", "chat_type": "group", "mentions_bot": True}
        for number in range(3):
            await engine.say(f"number {number}", **room)
            await engine.channel.wait_sent(number + 1)
        if "chores" not in agent:
            await engine.ask_each("one", "two", "/new")
    assert brain.asked("title") == []


async def test_markup_in_a_title_is_kept_as_text(tmp_path):
    brain = Brain(title="<b>Herons</b> & co")
    async with running(tmp_path, model=brain, agent=AGENT) as engine:
        await engine.ask_each("where do herons nest?", "and in winter?")
        await settled()
        assert await titles(tmp_path) == ["<b>Herons</b> & co"]


async def test_nothing_is_asked_for_whoever_has_nothing_left(tmp_path):
    brain, limits = Brain(title="A title"), {"each": {"day_tokens": 1_500}}
    async with running(tmp_path, model=brain, agent=AGENT, limits=limits) as engine:
        await engine.ask_each("where do herons nest?", "and in winter?")
        await settled()
    assert brain.asked("title") == []
    assert await titles(tmp_path) == [""]


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Herons", "Herons"),
        ("# “Herons and storks.”", "Herons and storks"),
        ("「苍鹭」", "苍鹭"),
        ("  a   b\t", "a b"),
        ("two\nlines", ""),
        ("x" * 81, ""),
    ],
)
def test_a_title_is_one_short_line_without_marks(answer, title):
    assert title_in(answer) == title
