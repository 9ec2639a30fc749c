"""A turn that cannot even be prepared must not hold up its chat for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from bot.channel import Media
from bot.context import prompt
from bot.errors import SendTransient, StorageFull
from bot.gateway import attempts
from bot.gateway.attempts import MAX_DEATHS, MAX_TRIES, PLAIN_DEATHS, SETTLED_DEATHS, Attempts
from bot.testing import InMemoryChannel, ScriptedModel
from tests.fakes.brain import change, query
from tests.support import FakeClock, running

YEAR_19391 = 549_755_813_888_000  # ms since the epoch


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("bot.workers.RETRY_DELAY", 0.001)
    monkeypatch.setattr("bot.workers.LAST_DELAY", 0.001)
    monkeypatch.setattr(attempts, "SETTLED", 0.0)


@pytest.fixture
def poison(monkeypatch):
    """Requests with the word "poison" cannot be put together; how often that was tried."""
    tried: list[str] = []
    notes = prompt.notes

    def failing(inbound, now):
        if "poison" in inbound.text:
            tried.append(inbound.text)
            raise ValueError("no such thing")
        return notes(inbound, now)

    monkeypatch.setattr(prompt, "notes", failing)
    return tried


async def test_a_date_no_calendar_has_is_no_reason_not_to_answer(tmp_path):
    async with running(tmp_path) as engine:
        assert await engine.ask("hello", sent_at=YEAR_19391) == "You said: hello"
        shown = engine.model.requests[-1].messages[-1].blocks
        assert any(block.text.startswith("[Sat 2026-11-21 12:00]") for block in shown)
        assert await engine.ask("and", sent_at=-YEAR_19391 * 1000) == "You said: and"


async def test_such_a_date_that_was_stored_before_is_none_either(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.sessions.inbox.timely", lambda inbound, _now: inbound)
    async with running(tmp_path) as engine:
        assert await engine.ask("hello", sent_at=YEAR_19391 * 10**6) == "You said: hello"


async def test_a_message_whose_turn_always_fails_is_told_and_the_chat_goes_on(tmp_path, poison):
    async with running(tmp_path) as engine:
        await engine.ask("before")
        told = await engine.ask("poison")
        assert told.startswith("I could not answer your message of 2026-11-21 12:00")
        assert len(poison) == MAX_TRIES
        assert await engine.ask("after") == "You said: after"
        said = [message.text for message in engine.model.requests[-1].messages]
        assert said == ["before", "You said: before", "after"]
        metrics = engine.app.metrics.registry.get_sample_value
        assert metrics("confidant_messages_set_aside_total", {"channel": "memory"}) == 1
        lines = await engine.channel.engine.history(engine.message("").address, 10)
        assert [line.text for line in lines][2:4] == ["poison", told]
    async with running(tmp_path) as engine:  # it is not tried once more
        assert await engine.ask("later") == "You said: later"
        assert len(poison) == MAX_TRIES


@pytest.mark.parametrize(
    ("locale", "changes", "words"),
    [
        ("zh", {"media": (Media("photo"),)}, "你 2026-11-21 12:00 发来的图片"),
        ("en", {"media": (Media("voice"),)}, "your voice message of 2026-11-21 12:00"),
        ("en", {}, "your message of 2026-11-21 12:00"),
    ],
)
async def test_it_is_said_which_message_it_was(tmp_path, poison, locale, changes, words):
    async with running(tmp_path) as engine:
        assert words in await engine.ask("poison", locale=locale, **changes)


async def test_those_that_wait_together_are_told_apart(tmp_path, poison):
    model = ScriptedModel(gate=asyncio.Event())
    queue = {"mode": "collect", "debounce": 0}
    async with running(tmp_path, model=model, session={"queue": queue}) as engine:
        await engine.say("first")
        await model.started.wait()
        for words in ("good", "poison", "fine"):
            await engine.say(words)
        model.gate.set()
        await engine.channel.wait_until(lambda _: "You said: fine" in engine.sent_to("ada"))
        first, good, told, fine = engine.sent_to("ada")
        assert (first, good, fine) == ("You said: first", "You said: good", "You said: fine")
        assert told.startswith("I could not answer")


async def test_how_often_it_was_tried_is_known_after_a_restart(tmp_path, poison, monkeypatch):
    monkeypatch.setattr("bot.workers.RETRY_DELAY", 3600)
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.01)
    is_counted, failed = asyncio.Event(), Attempts.failed

    async def told(*arguments: Any):
        result = await failed(*arguments)
        is_counted.set()
        return result

    monkeypatch.setattr(Attempts, "failed", told)
    for number in range(1, MAX_TRIES):
        async with running(tmp_path) as engine:
            if number == 1:
                await engine.say("poison")
            await is_counted.wait()
            is_counted.clear()
            assert len(poison) == number
    async with running(tmp_path) as engine:
        await engine.channel.wait_sent(1)
        assert engine.sent_to("ada")[0].startswith("I could not answer")
    assert len(poison) == MAX_TRIES


@pytest.mark.parametrize(
    ("deaths", "is_answered"), [(MAX_DEATHS - 1, True), (MAX_DEATHS, False), (1, True)]
)
async def test_who_is_only_there_when_the_program_is_killed_is_answered(
    tmp_path, monkeypatch, deaths, is_answered
):
    """As often as a busy night of kills may hit one message; more is the message's own doing."""
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.01)
    model = ScriptedModel(gate=asyncio.Event())
    async with running(tmp_path, model=model) as engine:
        await engine.say("hello")
        await model.started.wait()
    change(tmp_path, "UPDATE inbox SET deaths = ?", deaths)
    async with running(tmp_path) as engine:
        await engine.channel.wait_sent(1)
        assert (engine.sent_to("ada") == ["You said: hello"]) is is_answered


async def test_whom_the_program_ended_at_often_waits_until_it_has_lived_for_a_while(
    tmp_path, monkeypatch
):
    """What ends the program again and again soon after its start is not blamed on a message."""
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.01)
    model = ScriptedModel(gate=asyncio.Event())
    async with running(tmp_path, model=model) as engine:
        await engine.say("hello")
        await model.started.wait()
    change(tmp_path, "UPDATE inbox SET deaths = ?", SETTLED_DEATHS)
    monkeypatch.setattr(attempts, "SETTLED", 3_600.0)
    async with running(tmp_path) as engine:
        assert await engine.ask("hi", sender="bob")
        assert engine.sent_to("ada") == []
    deaths = query(tmp_path, "SELECT deaths FROM inbox WHERE state = 'waiting'")
    assert deaths == [(SETTLED_DEATHS,)]
    monkeypatch.setattr(attempts, "SETTLED", 0.0)
    async with running(tmp_path) as engine:
        await engine.channel.wait_until(lambda _: bool(engine.sent_to("ada")))


@pytest.mark.parametrize(("deaths", "is_recalled"), [(1, True), (PLAIN_DEATHS, False)])
async def test_whom_the_program_ended_at_twice_is_answered_without_recall(
    tmp_path, monkeypatch, deaths, is_recalled
):
    """What is recalled, or what recalls it, may be the cause."""
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.01)
    async with running(tmp_path) as engine:
        await engine.ask("my boat is called Orinoco")
    model = ScriptedModel(gate=asyncio.Event())
    async with running(tmp_path, model=model) as engine:
        await engine.say("/new what is my boat called?")
        await model.started.wait()
    change(tmp_path, "UPDATE inbox SET deaths = ? WHERE state = 'waiting'", deaths)
    async with running(tmp_path) as engine:
        await engine.channel.wait_sent(1)
        assert ("Orinoco" in str(engine.model.requests[-1].messages)) is is_recalled


async def test_a_turn_that_was_prepared_ends_all_suspicion(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.01)
    for number in range(2):
        model = ScriptedModel(gate=asyncio.Event())
        async with running(tmp_path, model=model) as engine:
            if not number:
                await engine.say("hello")
            await model.started.wait()
        assert query(tmp_path, "SELECT deaths FROM inbox") == [(0,)]
        change(tmp_path, "UPDATE inbox SET deaths = ?", MAX_DEATHS - 1)


async def test_a_disk_that_is_full_sets_nothing_aside(tmp_path, monkeypatch):
    tried = 0
    notes = prompt.notes

    def failing(inbound, now):
        nonlocal tried
        tried += 1
        if tried <= 3 * MAX_TRIES:
            raise StorageFull
        return notes(inbound, now)

    monkeypatch.setattr(prompt, "notes", failing)
    async with running(tmp_path) as engine:
        assert await engine.ask("patience") == "You said: patience"


async def test_a_command_that_always_fails_is_told_too(tmp_path, monkeypatch):
    def broken(*_: object):
        raise KeyError("ours")

    monkeypatch.setattr("bot.commands.info.InfoCommands.help", broken)
    async with running(tmp_path) as engine:
        assert "your command of 2026-11-21 12:00" in await engine.ask("/help")
        assert await engine.ask("hello") == "You said: hello"


async def test_a_row_that_is_no_message_any_more_is_told_and_the_chat_goes_on(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.01)
    model = ScriptedModel(gate=asyncio.Event())
    async with running(tmp_path, model=model) as engine:
        await engine.say("one")
        await engine.say("two")
        await model.started.wait()
    change(tmp_path, "UPDATE inbox SET body = '{\"torn' WHERE id = 1")
    async with running(tmp_path) as engine:
        await engine.channel.wait_sent(2)
        told, answer = engine.sent_to("ada")
        assert told.startswith("I could not answer your message")
        assert answer == "You said: two"


async def test_readyz_says_so_for_a_day_and_what_could_not_be_sent_till_it_is(
    tmp_path, poison, monkeypatch
):
    monkeypatch.setattr("bot.delivery.delivery.FIRST_RETRY", 0.001)
    monkeypatch.setattr("bot.delivery.delivery.LAST_RETRY", 0.001)
    clock, channel = FakeClock(), InMemoryChannel()
    send = channel.send

    async def failing(outbound):
        if "bad" in outbound.text:
            raise SendTransient
        return await send(outbound)

    monkeypatch.setattr(channel, "send", failing)
    async with running(tmp_path, clock=clock, channel=channel, serves=True) as engine:
        checks = await readyz(engine)
        assert checks["answers"]["state"] == checks["delivery"]["state"] == "ok"
        await engine.ask("poison")
        assert "does not get through" in await engine.ask("bad")
        assert await engine.ask("good") == "You said: good"
        checks = await readyz(engine)
        assert checks["answers"]["state"] == checks["delivery"]["state"] == "degraded"
        assert checks["answers"]["detail"].startswith("1 set aside")
        assert checks["delivery"]["detail"].startswith("1 could not be sent")
        clock.advance(days=2)
        checks = await readyz(engine)
        assert (checks["answers"]["state"], checks["delivery"]["state"]) == ("ok", "degraded")


async def readyz(engine):
    url = engine.app.address.url.split("?")[0].rstrip("/")
    async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as response:
        assert response.status == 200
        return (await response.json())["checks"]
