"""A turn that cannot even be prepared must not hold up its chat for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
import structlog
from structlog.testing import capture_logs

from bot.agent.tools.search import MemorySearch
from bot.channel import Media
from bot.commands.base import COMMANDS
from bot.context import prompt
from bot.errors import ModelUnreachable, SendRefused, SendTransient, StorageFull
from bot.gateway import lanes
from bot.gateway.lanes import MAX_DEATHS, MAX_TRIES, PLAIN_DEATHS, SETTLED_DEATHS, Attempts
from bot.testing import InMemoryChannel, ScriptedModel, calls
from bot.views import outcomes
from tests.fakes.brain import change, query
from tests.support import FakeClock, killed_in_a_turn, running, until

YEAR_19391 = 549_755_813_888_000  # ms since the epoch


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("bot.workers.RETRY_DELAY", 0.001)
    monkeypatch.setattr("bot.workers.LAST_DELAY", 0.001)
    monkeypatch.setattr(lanes, "SETTLED", 0.0)


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


async def test_a_date_no_calendar_has_is_no_reason_not_to_answer(engine):
    assert await engine.ask("hello", sent_at=YEAR_19391) == "You said: hello"
    shown = engine.model.requests[-1].messages[-1].blocks
    assert any(block.text.startswith("[Sat 2026-11-21 12:00]") for block in shown)
    assert await engine.ask("and", sent_at=-YEAR_19391 * 1000) == "You said: and"


async def test_such_a_date_that_was_stored_before_is_none_either(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.gateway.admission.timely", lambda inbound, _now: inbound)
    async with running(tmp_path) as engine:
        assert await engine.ask("hello", sent_at=YEAR_19391 * 10**6) == "You said: hello"


async def test_a_message_whose_turn_always_fails_is_told_and_the_chat_goes_on(tmp_path, poison):
    async with running(tmp_path) as engine:
        await engine.ask("before")
        told = await engine.ask("poison")
        assert told.startswith("I couldn't answer your message of 2026-11-21 12:00")
        assert len(poison) == MAX_TRIES
        assert await engine.ask("after") == "You said: after"
        said = [message.text for message in engine.model.requests[-1].messages]
        assert said == ["before", "You said: before", "after"]
        metrics = engine.app.core.metrics.registry.get_sample_value
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
async def test_it_is_said_which_message_it_was(poison, locale, changes, words, engine):
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
        assert told.startswith("I couldn't answer")


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
        assert engine.sent_to("ada")[0].startswith("I couldn't answer")
    assert len(poison) == MAX_TRIES


@pytest.mark.parametrize(
    ("deaths", "is_answered"), [(MAX_DEATHS - 1, True), (MAX_DEATHS, False), (1, True)]
)
async def test_who_is_only_there_when_the_program_is_killed_is_answered(
    tmp_path, monkeypatch, deaths, is_answered
):
    """As often as a busy night of kills may hit one message; more is the message's own doing."""
    await killed_in_a_turn(tmp_path, monkeypatch, "hello")
    change(tmp_path, "UPDATE inbox SET deaths = ?", deaths)
    async with running(tmp_path) as engine:
        await engine.channel.wait_sent(1)
        assert (engine.sent_to("ada") == ["You said: hello"]) is is_answered


async def test_whom_the_program_ended_at_often_waits_until_it_has_lived_for_a_while(
    tmp_path, monkeypatch
):
    """What ends the program again and again soon after its start is not blamed on a message."""
    await killed_in_a_turn(tmp_path, monkeypatch, "hello")
    change(tmp_path, "UPDATE inbox SET deaths = ?", SETTLED_DEATHS)
    monkeypatch.setattr(lanes, "SETTLED", 3_600.0)
    async with running(tmp_path) as engine:
        assert await engine.ask("hi", sender="bob")
        assert engine.sent_to("ada") == []
    deaths = query(tmp_path, "SELECT deaths FROM inbox WHERE state = 'waiting'")
    assert deaths == [(SETTLED_DEATHS,)]
    monkeypatch.setattr(lanes, "SETTLED", 0.0)
    async with running(tmp_path) as engine:
        await engine.channel.wait_until(lambda _: bool(engine.sent_to("ada")))


@pytest.mark.parametrize(("deaths", "is_recalled"), [(1, True), (PLAIN_DEATHS, False)])
async def test_whom_the_program_ended_at_twice_is_answered_without_recall(
    tmp_path, monkeypatch, deaths, is_recalled
):
    """What is recalled, or what recalls it, may be the cause."""
    async with running(tmp_path) as engine:
        await engine.ask("my boat is called Orinoco")
    await killed_in_a_turn(tmp_path, monkeypatch, "/new what is my boat called?")
    change(tmp_path, "UPDATE inbox SET deaths = ? WHERE state = 'waiting'", deaths)
    async with running(tmp_path) as engine:
        await engine.channel.wait_sent(1)
        assert ("Orinoco" in str(engine.model.requests[-1].messages)) is is_recalled


async def test_a_turn_that_was_prepared_ends_all_suspicion(tmp_path, monkeypatch):
    for said in (("hello",), ()):
        await killed_in_a_turn(tmp_path, monkeypatch, *said)
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
    def help(*_: object):  # noqa: A001 - the command's name
        raise KeyError("ours")

    for name in ("help", "start"):
        monkeypatch.setitem(COMMANDS, name, replace(COMMANDS[name], method=help))
    monkeypatch.setattr("bot.commands.info.InfoCommands.help", help)
    async with running(tmp_path) as engine:
        assert "your command of 2026-11-21 12:00" in await engine.ask("/help")
        assert await engine.ask("hello") == "You said: hello"


async def test_a_row_that_is_no_message_any_more_is_told_and_the_chat_goes_on(
    tmp_path, monkeypatch
):
    await killed_in_a_turn(tmp_path, monkeypatch, "one", "two")
    change(tmp_path, "UPDATE inbox SET body = '{\"torn' WHERE id = 1")
    async with running(tmp_path) as engine:
        await engine.channel.wait_sent(2)
        told, answer = engine.sent_to("ada")
        assert told.startswith("I couldn't answer your message")
        assert answer == "You said: two"


async def test_readyz_says_so_for_a_day_and_what_could_not_be_sent_till_it_is(
    tmp_path, poison, monkeypatch
):
    monkeypatch.setattr("bot.delivery.delivery.FIRST_RETRY", 0.001)
    monkeypatch.setattr("bot.delivery.delivery.LAST_RETRY", 0.001)
    monkeypatch.setattr("bot.housekeeping.FRESH", 0)
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
        assert "won't go through" in await engine.ask("bad")
        assert await engine.ask("good") == "You said: good"
        checks = await readyz(engine)
        assert checks["answers"]["state"] == checks["delivery"]["state"] == "degraded"
        assert checks["answers"]["detail"].startswith("1 message was set aside")
        assert checks["delivery"]["detail"].startswith("1 message could not be sent")
        clock.advance(days=2)
        checks = await readyz(engine)
        assert (checks["answers"]["state"], checks["delivery"]["state"]) == ("ok", "degraded")


async def readyz(engine):
    url = engine.app.address.url.split("?")[0].rstrip("/")
    async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as response:
        assert response.status == 200
        return (await response.json())["checks"]


async def test_every_line_of_a_turn_names_it_whatever_of_it_fails_and_why(tmp_path, monkeypatch):
    monkeypatch.setattr(MemorySearch, "run", broken)
    steps = iter((calls("memory_search", query="secret"), ModelUnreachable("secret"), "fine"))
    channel, model = InMemoryChannel(), ScriptedModel(lambda _: next(steps))
    channel.errors = [SendRefused("secret")]
    async with running(tmp_path, channel=channel, model=model) as engine:
        with capture_logs([structlog.contextvars.merge_contextvars]) as logs:
            assert "not accepted here" in await engine.ask("secret")
            assert await engine.ask("next") == "fine"
            engine.app.core.scheduler.once("later", 0, broken)
            await until(lambda: any(each["event"] == "job.failed" for each in logs))
        rows = await engine.app.core.database.read(
            lambda tx: tx.execute("SELECT id FROM inbox ORDER BY id")
        )
    told = {each["event"]: (each.get("turn"), each.get("error")) for each in logs}
    turn = str(rows[0][0])
    assert told["tool.failed"] == (turn, "RuntimeError")
    assert told["model.passed_on"] == (turn, "ModelUnreachable")
    assert told["delivery.parked"] == (turn, "SendRefused")
    assert told["job.failed"] == (None, "RuntimeError")
    assert "secret" not in str(logs)


async def test_why_names_the_messages_that_were_answered_together_and_what_one_waits_for(tmp_path):
    clock, gate = FakeClock(), asyncio.Event()
    model = ScriptedModel(lambda _: "fine", gate=gate)
    queue = {"mode": "collect", "debounce": 0}
    rules = [{"action": "deny", "chat": "bob"}]
    sections = {"session": {"queue": queue}, "send_policy": {"rules": rules}}
    async with running(tmp_path, clock=clock, model=model, **sections) as engine:

        async def outcome(chat: str = "ada") -> list[tuple[str, int, str]]:
            found = await engine.app.core.database.read(
                lambda tx: outcomes.of_chat(tx, "memory", chat)
            )
            messages = [each for each in found if each.what == "message"]
            first = messages[0].number - 1
            return [(e.outcome, e.other and e.other - first, e.why) for e in messages]

        await engine.say("one")
        await model.started.wait()
        await engine.say("two")
        await engine.say("three")
        assert await outcome() == [("waiting", 0, ""), ("waiting", 1, ""), ("waiting", 1, "")]
        model.script = lambda _: clock.advance(seconds=1) or "fine"
        gate.set()
        await engine.channel.wait_sent(2)
        assert await outcome() == [("answered", 0, ""), ("answered", 0, ""), ("answered", 2, "")]
        await engine.say("hello", sender="bob")
        silenced = "[send_policy] lets nobody be answered there."
        assert await outcome("bob") == [("refused", 0, silenced)]


async def broken(*_: object) -> None:
    raise RuntimeError("secret")
