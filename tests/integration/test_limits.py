"""`[limits]` through the whole engine: told at 80 %, refused at 100 %, and over with the period."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.agent.models import Reply, Request, Usage
from bot.testing import ScriptedModel
from tests.fakes.brain import Brain, current, query, says, settled, writing
from tests.integration.test_context_engine import LONG, ask, command
from tests.integration.test_usage import PAID, replying, spending
from tests.support import FakeClock, running, until

OPEN = {"memory": {"group_policy": "open", "require_mention": False}}


async def test_a_limit_is_told_once_then_refuses_and_ends_with_the_day(tmp_path: Path):
    clock, model = FakeClock(), spending(Usage(30_000, 1_000))  # 7 cents
    limits = {"each": {"day_usd": 0.25}}
    config: dict[str, Any] = {"agent": PAID, "limits": limits, "clock": clock}
    async with running(tmp_path, model=model, **config) as engine:
        for _ in range(2):
            assert await engine.ask("hello") == "All right."
        await engine.ask("and on")  # 21 of 25 cents
        await engine.channel.wait_until(lambda sent: len(sent) == 4)
        told = engine.channel.sent[-1]
        assert told.kind == "notice"
        assert told.text.startswith("What you may use in a day is 84 % used. ")
        assert "before Sun 2026-11-22 00:00 (UTC)" in told.text
        assert told.text.endswith("($0.2100 of $0.2500)")
        assert await engine.ask("one more") == "All right."  # it may be exceeded by this one
        asked = len(model.requests)
        refused = await engine.ask("remember the milk")
        assert refused.startswith("What you may use in a day is used up, so I do not answer before")
        assert "Your message is kept" in refused
        assert "[limits]" in refused
        assert len(model.requests) == asked
        assert "- What you may use in a day: 112 % used until Sun" in await engine.ask("/usage")
    async with running(tmp_path, model=model, **config) as engine:  # a restart lifts nothing
        assert "is used up" in await engine.ask("hello?")
        assert await engine.ask("hello", sender="bob") == "All right."
        clock.advance(hours=12)
        assert await engine.ask("what was it?") == "All right."
        assert "remember the milk" in str(model.requests[-1].messages)  # kept, and in sight


async def test_whatever_ends_conversations_exceeds_a_limit_by_one_call(tmp_path: Path):
    """Savings of many conversations that wait at once, each of two calls."""
    flush, held = writing("Ada has a boat in the harbour"), asyncio.Event()

    def costly(request: Request) -> Reply:
        wanted = flush(request)
        reply = wanted if isinstance(wanted, Reply) else says(str(wanted))
        return replace(reply, usage=Usage(10_000))

    brain = Brain(chat=replying(Usage(100)), flush=costly)
    limits = {"each": {"day_tokens": 25_000}}
    context = {"enable_memory_flush": True}
    async with running(tmp_path, model=brain, limits=limits, context=context) as engine:
        brain.held["flush"] = held
        for _ in range(12):
            await engine.ask("I have a boat in the harbour")
            await engine.ask("/new")
        held.set()
        await settled()
        assert len(brain.asked("flush")) == 3  # two make 20 000, one more may exceed it
        assert "is used up" in await engine.ask("hello")
        for _ in range(12):
            await command(engine, "/new")
            await command(engine, "/compact")
        await settled()
        ((used,),) = query(tmp_path, "SELECT sum(input_tokens) FROM usage_counts")
        assert used <= 25_000 + 10_000
        brain.held.clear()
        await engine.ask("I have a boat in the harbour", sender="bob")
        await command(engine, "/new", sender="bob")
        await settled()
        assert len(brain.asked("flush")) == 5  # nobody else is held up


async def test_at_a_limit_nothing_is_summarised_and_the_history_stays(tmp_path: Path):
    brain = Brain(chat=replying(Usage(10_000, 10)))
    limits = {"each": {"day_tokens": 40_000}}
    async with running(tmp_path, model=brain, limits=limits) as engine:
        for _ in range(4):
            await ask(engine, LONG)
        await command(engine, "/compact")
        await settled()
        assert brain.asked("summary") == []
        assert current(tmp_path)["compaction"] is None


async def test_turns_that_run_at_the_same_time_exceed_a_limit_by_one_for_each_conversation(
    tmp_path: Path,
):
    model = ScriptedModel(script=lambda _: replying(Usage(1_000)), gate=asyncio.Event())
    limits, people = {"in_all": {"day_tokens": 1_000}}, [f"p{n}" for n in range(6)]
    async with running(tmp_path, model=model, limits=limits) as engine:
        for who in people:
            await engine.say("hello", sender=who)
            await engine.say("and again", sender=who)
        await until(lambda: len(model.requests) == len(people))
        assert model.gate is not None
        model.gate.set()
        await engine.channel.wait_until(lambda sent: len(sent) >= 12)
        assert len(model.requests) == len(people)
        refused = [each for each in engine.channel.sent if "is used up" in each.text]
        assert len(refused) == len(people)
        # What everybody uses is the owner's to know.
        assert not any("1\u202f000" in each.text for each in refused)


async def test_the_owner_is_told_of_what_everybody_uses_and_may_be_exempt(tmp_path: Path):
    limits = {"in_all": {"month_tokens": 10_000}, "exempt_owner": True}
    session, model = {"owner": ["memory:boss"]}, spending(Usage(8_000))
    async with running(tmp_path, model=model, limits=limits, session=session) as engine:
        await engine.ask("/status", sender="boss")
        await engine.ask("hello")
        await engine.channel.wait_until(lambda _: len(engine.sent_to("boss")) == 2)
        told = engine.sent_to("boss")[1]
        assert told.startswith("What everybody together may use in a month is 80 % used.")
        assert "(8\u202f000 tokens of 10\u202f000 tokens)" in told
        await engine.ask("hello")
        refused = await engine.ask("hello")
        assert "before Tue 2026-12-01 00:00 (UTC)" in refused
        assert "tokens of" not in refused
        assert await engine.ask("hello", sender="boss") == "All right."


async def test_in_a_room_nobody_reads_how_much_somebody_used(tmp_path: Path):
    room: dict[str, Any] = {"chat": "room", "chat_type": "group", "mentions_bot": True}
    model, limits = spending(Usage(900)), {"each": {"day_tokens": 1_000}}
    async with running(tmp_path, model=model, limits=limits, channels=OPEN) as engine:
        await engine.ask("/status")
        await engine.say("hello", **room)
        await engine.channel.wait_until(lambda _: len(engine.sent_to("ada")) == 2)
        assert "is 90 % used" in engine.sent_to("ada")[1]
        await engine.say("hello", **room)
        await engine.say("hello", **room)
        await engine.channel.wait_until(lambda _: len(engine.sent_to("room")) == 3)
        assert engine.sent_to("room")[:2] == ["All right.", "All right."]
        assert "is used up" in engine.sent_to("room")[2]
        assert "tokens of" not in engine.sent_to("room")[2]


async def test_a_model_without_a_price_counts_as_the_dearest_and_says_so(tmp_path: Path):
    agent, model = (
        {"model": "anthropic/other", "timezone": "UTC"},
        spending(Usage(100_000)),
    )  # 80 cents
    async with running(tmp_path, model=model, agent=agent, limits={"each": {"day_usd": 1}}) as e:
        await e.ask("hello")
        await e.channel.wait_until(lambda sent: len(sent) == 2)
        told = e.channel.sent[-1].text
        assert "80 % used" in told
        assert told.endswith(
            "I do not know the price of `anthropic/other`: it counts as the dearest I know."
        )


async def test_the_offline_model_is_never_refused(tmp_path: Path):
    model, limits = spending(Usage(5_000)), {"each": {"day_tokens": 1_000}}
    async with running(tmp_path, model=model, limits=limits) as engine:
        await engine.ask("hello")
        await engine.channel.wait_until(lambda sent: len(sent) == 2)  # it is told at once
        assert "so I do not answer" in await engine.ask("hello")
        await engine.ask("/model offline")
        assert "is used up" not in await engine.ask("what can you do?")
    assert len(query(tmp_path, "SELECT 1 FROM usage_counts")) == 1


async def test_the_refusal_is_in_the_persons_language_and_time(tmp_path: Path):
    session = {"timezones": {"memory:ada": "Asia/Shanghai"}}
    model, limits = spending(Usage(5_000)), {"each": {"month_tokens": 1_000}}
    async with running(tmp_path, model=model, limits=limits, session=session) as engine:
        await engine.ask("hello")
        await engine.channel.wait_until(lambda sent: len(sent) == 2)
        refused = await engine.ask("你好", locale="zh")
    assert "2026-12-01 00:00 (Asia/Shanghai)" in refused
    assert refused.startswith("你每月可用的额度已用完")
