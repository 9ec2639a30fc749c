"""What turns, savings and summaries use, counted through the whole engine."""

from __future__ import annotations

import asyncio
import html
import re
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from prometheus_client import generate_latest
from typer.testing import CliRunner

from bot.agent.models import Reply, Request, TextDelta, Usage
from bot.cli.main import cli
from bot.dashboard import usage
from bot.dashboard.usage import MOST_PEOPLE
from bot.errors import ModelOverloaded
from bot.messages import Message, Text, ToolUse
from bot.money import Allowance
from bot.testing import ScriptedModel
from tests.fakes.brain import Brain, current, query, says, settled, writing
from tests.fakes.page_people import browser, browsers, key_in, serving
from tests.integration.test_context_engine import (
    FLUSH_FROM,
    FULL,
    LONG,
    ask,
    begun,
    command,
    done,
    reaching,
    talk,
)
from tests.support import FakeClock, make_config, running, until

SUMS = (
    "sum(input_tokens), sum(output_tokens), sum(cache_read_tokens), sum(cache_write_tokens), "
    "sum(runs)"
)


def used(folder: Path, where: str = "1 = 1") -> tuple[Any, ...]:
    (row,) = query(folder, f"SELECT {SUMS} FROM usage_counts WHERE {where}")
    return row


def replying(usage: Usage, words: str = "All right.") -> Reply:
    return Reply(Message("assistant", (Text(words),)), "end", usage)


async def test_a_turn_counts_for_who_asked_in_which_conversation_with_which_model(tmp_path):
    model = ScriptedModel(script=lambda _: replying(Usage(100, 10, 9_000, 50)))
    async with running(
        tmp_path, model=model, agent={"model": "anthropic/one", "timezone": "UTC"}
    ) as e:
        await e.ask("hello")
        await e.ask("hello", sender="bob")
        await e.ask("hello again")
    names = "person, model, purpose, runs, input_tokens, cache_read_tokens, cache_write_tokens"
    rows = query(tmp_path, f"SELECT {names} FROM usage_counts ORDER BY person")
    assert rows == [
        ("memory:ada", "anthropic/one", "chat", 2, 200, 18_000, 100),
        ("memory:bob", "anthropic/one", "chat", 1, 100, 9_000, 50),
    ]
    ids = query(tmp_path, "SELECT session_id FROM usage_counts ORDER BY person")
    found = query(tmp_path, "SELECT id FROM sessions ORDER BY person")
    assert ids == found


async def test_every_step_of_a_turn_counts_and_a_failure_keeps_what_came_before(tmp_path):
    brain = Brain(chat=replying(Usage(70, 7)))
    async with running(tmp_path, model=brain) as engine:
        await engine.ask("hello")
        brain.chat = ModelOverloaded()
        await engine.ask("again")
    assert used(tmp_path) == (70, 7, 0, 0, 1)


class Telling(ScriptedModel):
    """Says what a request comes to when it begins, as services do; then it waits."""

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        if request.on_usage is not None:
            request.on_usage(Usage(30, 5, 4_000))
        async for event in super().stream(request):
            yield event


async def test_a_turn_that_is_stopped_counts_what_it_used(tmp_path):
    model = Telling(gate=asyncio.Event(), script=lambda _: "Once upon a time there was")
    async with running(tmp_path, model=model) as engine:
        await engine.say("tell me a story")
        await asyncio.wait_for(model.started.wait(), 30)
        await engine.ask("/stop")
        await until(lambda: bool(query(tmp_path, "SELECT 1 FROM usage_counts")))
    (row,) = query(tmp_path, f"SELECT {SUMS} FROM usage_counts")
    assert row == (30, 5, 4_000, 0, 1)


async def test_a_turn_that_ends_with_the_program_counts_and_the_one_made_again_too(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.01)
    model = Telling(gate=asyncio.Event())
    async with running(tmp_path, model=model) as engine:
        await engine.say("hello")
        await asyncio.wait_for(model.started.wait(), 30)
    assert used(tmp_path) == (30, 5, 4_000, 0, 1)
    again = ScriptedModel(script=lambda _: replying(Usage(100, 10)))
    async with running(tmp_path, model=again) as engine:
        await engine.channel.wait_sent(1)
    assert used(tmp_path) == (130, 15, 4_000, 0, 2)


@pytest.mark.parametrize("purpose", ["flush", "summary"])
async def test_a_saving_or_a_summary_that_ends_with_the_program_counts(tmp_path, purpose):
    brain = Brain(held={purpose: asyncio.Event()})
    async with begun(tmp_path, brain) as engine:
        await talk(engine, 5)
        await engine.ask("/compact")
        await until(lambda: bool(brain.asked(purpose)))
    tokens = used(tmp_path, f"purpose = '{purpose}'")
    assert tokens[0] is not None
    assert tokens[0] > 0


@pytest.mark.usefixtures("believes_every_figure")
async def test_saving_and_summaries_count_apart(tmp_path):
    brain = Brain(
        flush=lambda request: _with(writing("Ada likes boats.")(request), Usage(11, 1)),
        summary=replying(Usage(13, 2), "- They talked about the harbour and its boats."),
    )
    async with begun(tmp_path, brain) as engine:
        await talk(engine, 5)
        await reaching(engine, FLUSH_FROM + 1)
        assert used(tmp_path, "purpose = 'flush'")[:2] == (11, 1)
        await reaching(engine, FULL + 1)
        calls = len(brain.asked("summary"))
        assert calls
        assert used(tmp_path, "purpose = 'summary'") == (13 * calls, 2 * calls, 0, 0, 1)
        assert used(tmp_path, "person <> 'memory:ada'")[0] is None


def _with(answer: Any, usage: Usage) -> Any:
    if isinstance(answer, str):
        return replying(usage, answer)
    return Reply(answer.message, answer.stop, usage)


async def test_a_summary_that_fails_counts_what_it_used(tmp_path):
    brain = Brain(summary=replying(Usage(13, 2), "No."))  # twice no summary: it is given up
    async with begun(tmp_path, brain) as engine:
        await talk(engine, 5)
        await engine.ask("/compact")
        await done(engine)
        await settled()
        calls = len(brain.asked("summary"))
        assert calls
        assert used(tmp_path, "purpose = 'summary'")[:2] == (13 * calls, 2 * calls)


async def test_what_is_counted_is_there_after_a_restart_and_nothing_twice(tmp_path):
    model = ScriptedModel(script=lambda _: replying(Usage(100, 10)))
    for _ in range(3):
        async with running(tmp_path, model=model) as engine:
            await engine.ask("hello")
    assert used(tmp_path) == (300, 30, 0, 0, 3)


# --- /usage --------------------------------------------------------------------------------------

PAID = {"model": "claude-sonnet-5-5", "timezone": "UTC"}  # 2 dollars in, 10 out


def spending(usage: Usage) -> ScriptedModel:
    return ScriptedModel(script=lambda _: replying(usage))


async def test_usage_shows_today_this_month_and_conversations_in_money(tmp_path):
    clock = FakeClock()
    model = spending(Usage(100_000, 10_000))  # 0.30 dollars
    session = {"reset": {"mode": "none"}}
    async with running(tmp_path, model=model, clock=clock, agent=PAID, session=session) as engine:
        await engine.ask("hello")
        clock.advance(days=1)
        await engine.ask_each("/new", "hello", "hello again")
        await engine.ask("hello", sender="bob")
        said = (await engine.ask("/usage")).splitlines()
    assert said[0].startswith("This conversation: 200\u202f000 tokens in")
    assert said[1] == (
        "Today, everything of yours: 200\u202f000 tokens in, 0 more read from a cache, "
        "20\u202f000 out; $0.6000."
    )
    assert said[2].startswith("This month: 300\u202f000 tokens in")
    assert "$0.9000" in said[2]
    assert [line.partition(", memory: ")[0] for line in said[4:6]] == [
        "- begun today at 12:00",
        "- begun yesterday at 12:00",
    ]
    assert "list prices as of 2026-11-22" in said[6]


async def test_usage_days_are_those_of_the_person(tmp_path):
    clock = FakeClock()
    zones = {"timezones": {"ada": "Asia/Shanghai"}, "identity_links": {"ada": ["memory:ada"]}}
    model = spending(Usage(1_000, 10))
    async with running(tmp_path, model=model, clock=clock, session=zones) as engine:
        await engine.ask("hello")  # 20:00 in Shanghai
        await engine.ask("hello", sender="bob")
        clock.advance(hours=5)  # 01:00 there, 17:00 in UTC
        assert "Today, everything of yours: 0 tokens in" in await engine.ask("/usage")
        bob = await engine.ask("/usage", sender="bob")
        assert "Today, everything of yours: 1\u202f000 tokens in" in bob


async def test_usage_says_whose_price_is_not_known(tmp_path):
    agent, model = {"model": "anthropic/other", "timezone": "UTC"}, spending(Usage(1_000, 10))
    prices = {"models": {"anthropic/scripted": {"input": 2, "output": 10}}}
    async with running(tmp_path, model=model, agent=agent, prices=prices) as engine:
        await engine.ask("hello")
        said = await engine.ask("/usage")
        assert "10 out; I don't know the price of `anthropic/other`." in said
        assert "$" not in said
        await engine.ask_each("/model scripted", "hello")
        said = await engine.ask("/usage")
        assert "20 out; $0.0021 without `anthropic/other`, whose price I don't know." in said
        assert "价格" in await engine.ask("/usage", locale="zh")


async def test_a_configured_price_counts_and_may_be_nothing(tmp_path):
    prices = {"models": {"anthropic/other": {"input": 1_000, "cache_read": 1, "output": 2}}}
    agent, model = (
        {"model": "anthropic/other", "timezone": "UTC"},
        spending(Usage(1_000, 10, 10, 1_000)),
    )
    async with running(tmp_path, model=model, agent=agent, prices=prices) as engine:
        await engine.ask("hello")
        assert "out; $2.00." in await engine.ask("/usage")
        await engine.ask("/usage tokens")
        assert (await engine.ask("hello")).endswith("· $2.00_")
    async with running(tmp_path, agent=agent, prices={"models": {"anthropic/other": {}}}) as engine:
        assert "out; $0.00." in await engine.ask("/usage")


async def test_in_a_room_usage_tells_nothing_of_anywhere_else(tmp_path):
    model, channels = spending(Usage(4_000, 10)), {"memory": {"group_policy": "open"}}
    async with running(tmp_path, model=model, agent=PAID, channels=channels) as engine:
        await engine.ask("hello")
        room: dict[str, Any] = {"chat": "ada", "chat_type": "group", "mentions_bot": True}
        said = await engine.ask("/usage", **room)
    assert "Today" not in said
    assert "4\u202f000" not in said
    assert "in a direct chat" in said


async def test_metrics_count_tokens_and_money_and_name_nobody(tmp_path):
    brain = Brain(chat=replying(Usage(1_000, 10, 500, 20)), flush=replying(Usage(7), "NO_REPLY"))
    context = {"enable_memory_flush": True}
    async with running(tmp_path, model=brain, agent=PAID, context=context) as engine:
        for _ in range(2):
            await engine.ask("hello")
        await engine.ask("/new")
        await until(lambda: bool(query(tmp_path, "SELECT 1 FROM usage_counts WHERE runs = 1")))
        await settled()
        shown = generate_latest(engine.app.core.metrics.registry).decode()
    labels = 'model="anthropic/claude-sonnet-5-5",purpose="chat"'
    assert f'confidant_tokens_total{{kind="input",{labels}}} 2000.0' in shown
    assert f'confidant_tokens_total{{kind="cache_write",{labels}}} 40.0' in shown
    assert f"confidant_cost_dollars_total{{{labels}}} 0.0044" in shown
    assert 'kind="input",model="anthropic/claude-sonnet-5-5",purpose="flush"} 7.0' in shown
    assert re.search(r"\bada\b", shown) is None


# --- for the owner -------------------------------------------------------------------------------


async def test_the_page_has_everybodys_numbers_and_is_the_owners(tmp_path):
    dashboard = {"port": 0, "token": "a-long-enough-token"}
    model = spending(Usage(1_000, 10, 5_000))
    async with (
        running(tmp_path, model=model, agent=PAID, serves=True, dashboard=dashboard) as engine,
        aiohttp.ClientSession() as client,
    ):
        await engine.ask("hello")
        await engine.ask("hello", sender="<b>bob")
        assert engine.app.address is not None
        url = engine.app.address.url
        for path in ("usage", "api/usage"):
            async with client.get(f"{url}{path}") as refused:
                assert refused.status == 401
        known = {"Authorization": "Bearer a-long-enough-token"}
        async with client.get(f"{url}api/usage", headers=known) as answer:
            found = await answer.json()
        assert [line["name"] for line in found["by_person"]] == ["memory:<b>bob", "memory:ada"]
        assert found["by_model"][0]["usd"] == 0.0052
        assert found["by_day"][0]["name"] == "2026-11-21"
        async with client.get(f"{url}usage", headers={**known, "Accept-Language": "zh"}) as answer:
            page = await answer.text()
    assert "<h1>用量与费用</h1>" in page
    assert "memory:&lt;b&gt;bob" in page
    assert page.count('<th scope="row">') == page.count("<tr>") - 4 - 4
    assert page.count("<caption>") == 4
    assert page.count('<figure class="picture">') == page.count("<details>") == 4
    assert page.count('role="region" tabindex="0" aria-label=') == 8
    assert (
        "<title>2026-11-21\nmemory:&lt;b&gt;bob: 6\u202f010\nmemory:ada: 6\u202f010</title>" in page
    )
    assert "anthropic/claude-sonnet-5-5: $0.0052</title>" in page


async def test_the_page_says_how_much_of_the_limits_for_all_is_used(tmp_path):
    caps = {"in_all": {"day_usd": 1, "month_tokens": 1_000_000}}
    clock, model = FakeClock(), spending(Usage(200_000, 20_000))  # 0.60 dollars
    async with (
        running(tmp_path, model=model, clock=clock, agent=PAID, serves=True, limits=caps) as engine,
        aiohttp.ClientSession() as client,
    ):
        assert engine.app.address is not None
        url = f"{engine.app.address.url}usage"
        await engine.ask("hello")
        async with client.get(url) as answer:
            today = await answer.text()
        clock.advance(days=1)
        await engine.ask("hello", sender="bob")
        await engine.ask("hello", sender="eve")
        async with client.get(url) as answer:
            tomorrow = await answer.text()
    day, month = "Everyone&#39;s daily limit", "monthly limit"
    assert f"{day}: 60 % ($0.6000 of $1.00)" in today
    assert f"{month}: 22 % (220\u202f000 of 1\u202f000\u202f000 tokens)" in today
    assert f"{day}: 120 % ($1.20 of $1.00)" in tomorrow
    assert 'value="100"' in tomorrow
    assert f"{month}: 66 %" in tomorrow


async def test_many_people_are_summed_up_and_days_that_are_over_stay_as_they_were(tmp_path):
    clock, model = FakeClock(), spending(Usage(1_000, 10))
    session = {"reset": {"mode": "none"}}
    async with (
        running(
            tmp_path, model=model, clock=clock, agent=PAID, session=session, serves=True
        ) as engine,
        aiohttp.ClientSession() as client,
    ):
        assert engine.app.address is not None
        url = f"{engine.app.address.url}usage"
        for number in range(MOST_PEOPLE + 2):
            await engine.ask("hello", sender=f"p{number:02}")
        pages = []
        for _ in range(3):
            async with client.get(url) as answer:
                pages.append(await answer.text())
            clock.advance(days=1)
        await engine.ask("hello", sender="p00")
        async with client.get(url) as answer:
            pages.append(await answer.text())
    row = '<th scope="row">Everyone and everything else</th><td>2</td><td>2\u202f000</td>'
    assert [row in page for page in pages] == [True] * 4
    assert pages[0].count("$0.1092") == pages[2].count("$0.1092") > 4  # of 52 times
    assert '<th scope="row">memory:p00</th><td>2</td><td>2\u202f000</td>' in pages[3]
    together = '<th scope="row">Total</th><td>53</td>'
    assert pages[3].count(together) == 4


@pytest.mark.usefixtures("logs_stay")
async def test_the_command_line_shows_what_was_used(tmp_path):
    clock = FakeClock(time.time_ns() // 1_000_000)
    (tmp_path / "c.toml").write_text(f'[storage]\ndir = "{tmp_path}"\n')
    command = ["usage", "--config", str(tmp_path / "c.toml")]
    async with running(tmp_path, model=spending(Usage(1_000, 10)), clock=clock) as engine:
        assert "Nothing was used" in await invoked(command)
        await engine.ask_each("hello", "/model scripted", "hello")
    shown = await invoked(command)
    assert [word in shown for word in ("person", "model", "day", "memory:ada")] == [True] * 4
    assert "≥ $0.0021" in shown
    assert "The price of anthropic/scripted is unknown" in shown
    (one, other) = orjson.loads(await invoked([*command, "--by", "model", "--json"]))["by_model"]
    assert (one["name"], one["usd"]) == ("anthropic/claude-sonnet-5-5", 0.0021)
    assert (other["name"], other["unpriced"]) == ("anthropic/scripted", ["anthropic/scripted"])


async def invoked(arguments: list[str]) -> str:
    done = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
    assert done.exit_code == 0, done.output
    return done.output


PLAIN = re.compile(r"<[^>]+>")


def rows(page: str) -> list[str]:
    """What each row of the page's tables says."""
    found = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    return [re.sub("[ \n]+", " ", html.unescape(PLAIN.sub(" ", each))).strip() for each in found]


async def test_the_owner_sees_how_much_of_their_limits_people_have_used(tmp_path):
    caps = {
        "each": {"day_usd": 1, "month_tokens": 1_000_000},
        "people": {"memory:eve": {}, "memory:<b>bob": {"day_usd": 0.5}},
        "exempt_owner": True,
    }
    zones = {"timezones": {"memory:ada": "Asia/Shanghai"}, "owner": ("memory:me",)}
    model = spending(Usage(100_000, 10_000))  # 0.30 dollars
    async with serving(tmp_path, model=model, agent=PAID, limits=caps, session=zones) as engine:
        for sender in ("ada", "eve", "<b>bob", "me"):
            await engine.ask("hello", sender=sender)
        async with browser(engine) as owner:
            await owner.log_in()
            _, page = await owner.get("/usage")
    assert "<b>bob" not in page
    assert "You 1 100\u202f000 0 0 10\u202f000 $0.3000" in rows(page)
    of_limits = [each for each in rows(page) if " day " in each or " month " in each]
    assert of_limits == [
        "memory:<b>bob 60 % 60 day $0.3000 $0.5000 2026-11-22 00:00",
        "memory:ada 30 % 30 day $0.3000 $1.00 2026-11-21 16:00",
        "memory:ada 11 % 11 month 110\u202f000 1\u202f000\u202f000 tokens 2026-11-30 16:00",
    ]


async def test_of_many_limits_those_that_are_nearly_used_up_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(usage, "MOST_PEOPLE", 2)
    model = spending(Usage(100_000, 10_000))
    caps = {"each": {"day_usd": 1}, "people": {"memory:p1": {"day_usd": 9}}}
    async with serving(tmp_path, model=model, agent=PAID, limits=caps) as engine:
        for number in range(3):
            await engine.ask("hello", sender=f"p{number}")
        async with browser(engine) as owner:
            await owner.log_in()
            _, page = await owner.get("/usage")
    people = [each.split()[0] for each in rows(page) if " day " in each]
    assert people == ["memory:p0", "memory:p2"]
    assert "Not shown: 1 with less used." in page


async def test_people_see_what_they_used_themselves_and_their_own_limits(tmp_path):
    caps = {"each": {"day_usd": 1}, "in_all": {"day_usd": 50}}
    model = spending(Usage(100_000, 10_000))
    async with (
        serving(tmp_path, model=model, agent=PAID, limits=caps) as engine,
        browsers(engine, 2) as (ada, bob),
    ):
        await engine.ask("hello")
        for _ in range(2):
            await engine.ask("hello", sender="bob")
        for sender, page in (("ada", ada), ("bob", bob)):
            await page.post("/enter", key=key_in(await engine.ask("/web", sender=sender)))
        _, adas = await ada.get("/usage")
        _, bobs = await bob.get("/usage")
        assert (await ada.get("/api/usage"))[0] == 403
    assert "Your daily limit: 30 % ($0.3000 of $1.00)" in adas
    assert "Resets 2026-11-22 00:00." in adas
    assert "Your daily limit: 60 % ($0.6000 of $1.00)" in bobs
    assert "everyone" not in adas.lower()
    assert ("bob" in adas, "ada" in bobs, "0.9000" in adas + bobs) == (False, False, False)
    assert adas.count("<caption>") == 3
    assert "Total 1 100\u202f000 0 0 10\u202f000 $0.3000" in rows(adas)


async def test_whoever_used_nothing_is_told_so(tmp_path):
    async with (
        serving(tmp_path, limits={"each": {"day_usd": 1}}) as engine,
        browsers(engine, 2) as (owner, ada),
    ):
        await owner.log_in()
        await ada.post("/enter", key=await owner.link("ada"))
        _, page = await ada.get("/usage")
        _, everybodys = await owner.get("/usage")
    for each in (page, everybodys):
        assert ("Nothing has been used yet." in each, "<table>" in each) == (True, False)
    assert "Your daily limit: 0 % ($0.00 of $1.00)" in page


OPEN = {"memory": {"group_policy": "open", "require_mention": False}}


async def test_a_limit_is_told_once_then_refuses_and_ends_with_the_day(tmp_path):
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
        assert told.text.startswith("Your daily limit is 84 % used. ")
        assert "before Sun 2026-11-22 00:00 (UTC)" in told.text
        assert told.text.endswith("($0.2100 of $0.2500)")
        assert await engine.ask("one more") == "All right."  # it may be exceeded by this one
        asked = len(model.requests)
        refused = await engine.ask("we need milk")
        assert refused.startswith("Your daily limit is used up, so I can't answer before")
        assert "Your message is saved" in refused
        assert "[limits]" in refused
        assert len(model.requests) == asked
        assert "- Your daily limit: 112 % used until Sun" in await engine.ask("/usage")
    async with running(tmp_path, model=model, **config) as engine:  # a restart lifts nothing
        assert "is used up" in await engine.ask("hello?")
        assert await engine.ask("hello", sender="bob") == "All right."
        clock.advance(hours=12)
        assert await engine.ask("what was it?") == "All right."
        assert "we need milk" in str(model.requests[-1].messages)  # kept, and in sight


async def test_whatever_ends_conversations_exceeds_a_limit_by_one_call(tmp_path):
    """Savings of many conversations that wait at once."""
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
            await engine.ask_each("I have a boat in the harbour", "/new")
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
        assert len(brain.asked("flush")) == 4  # nobody else is held up


async def test_at_a_limit_nothing_is_summarised_and_the_history_stays(tmp_path):
    brain = Brain(chat=replying(Usage(10_000, 10)))
    limits = {"each": {"day_tokens": 40_000}}
    async with running(tmp_path, model=brain, limits=limits) as engine:
        for _ in range(4):
            await ask(engine, LONG)
        await command(engine, "/compact")
        await settled()
        assert brain.asked("summary") == []
        assert current(tmp_path)["compaction"] is None


async def test_turns_that_run_at_the_same_time_exceed_a_limit_by_one_call(tmp_path, monkeypatch):
    looked, look = set[str](), Allowance._look

    def looking(self: Allowance, *given: Any, **named: Any) -> Any:
        looked.update({named.get("key", "")} - {""})
        return look(self, *given, **named)

    monkeypatch.setattr(Allowance, "_look", looking)
    model = ScriptedModel(script=lambda _: replying(Usage(1_000)), gate=asyncio.Event())
    limits, people = {"in_all": {"day_tokens": 1_000}}, [f"p{n}" for n in range(6)]
    async with running(tmp_path, model=model, limits=limits) as engine:
        for who in people:
            await engine.say("hello", sender=who)
            await engine.say("and again", sender=who)
        await asyncio.wait_for(model.started.wait(), 30)
        await until(lambda: len(looked) == len(people))  # all come to a call while the first runs
        assert model.gate is not None
        model.gate.set()
        await engine.channel.wait_until(lambda sent: len(sent) >= 12)
        assert len(model.requests) == 1
        refused = [each for each in engine.channel.sent if "is used up" in each.text]
        assert len(refused) == 2 * len(people) - 1
        # What everybody uses is the owner's to know.
        assert not any("1\u202f000" in each.text for each in refused)


async def test_a_loop_of_tools_ends_at_a_limit_with_what_was_said_so_far(tmp_path):
    def looking(request: Request) -> Reply:
        use = ToolUse(f"c{len(request.messages)}", "memory_get", {"path": "MEMORY.md"})
        return says("I look again.", 1_000, use)

    brain = Brain(chat=looking)
    limits = {"each": {"day_tokens": 2_500}}
    async with running(tmp_path, model=brain, limits=limits) as engine:
        said = await engine.ask("look in your notes")
        assert len(brain.requests) == 3  # the third one exceeds it
        assert said.startswith(
            "I look again.\n\nI look again.\n\nI look again.\n\nYour daily limit"
        )
        assert "is used up, so I can't answer before Sun 2026-11-22 00:00 (UTC)" in said
        assert used(tmp_path)[4] == 1


async def test_linked_accounts_share_a_limit_also_when_both_write_at_once(tmp_path):
    model = ScriptedModel(script=lambda _: replying(Usage(1_000)), gate=asyncio.Event())
    session = {"identity_links": {"ada": ["memory:ada", "memory:ada2"]}}
    limits = {"each": {"day_tokens": 1_000}}
    async with running(tmp_path, model=model, limits=limits, session=session) as engine:
        for who in ("ada", "ada2"):
            await engine.say("hello", sender=who)
        await asyncio.wait_for(model.started.wait(), 30)
        assert model.gate is not None
        model.gate.set()
        await engine.channel.wait_until(
            lambda _: all(engine.sent_to(who) for who in ("ada", "ada2"))
        )
        answers = sorted(engine.sent_to(who)[0] for who in ("ada", "ada2"))
        assert answers[0] == "All right."
        assert answers[1].startswith("Your daily limit is used up")
        assert len(model.requests) == 1
        assert await engine.ask("hello", sender="bob") == "All right."  # nobody else waits


async def test_in_a_room_each_is_charged_for_what_they_asked(tmp_path):
    room: dict[str, Any] = {"chat": "room", "chat_type": "group", "mentions_bot": True}
    model = ScriptedModel(script=lambda _: replying(Usage(1_000)), gate=asyncio.Event())
    limits = {"each": {"day_tokens": 1_000}}
    async with running(tmp_path, model=model, limits=limits, channels=OPEN) as engine:
        await engine.say("one", **room)
        await asyncio.wait_for(model.started.wait(), 30)
        await engine.say("two", **room)  # these two wait together
        await engine.say("three", sender="bob", **room)
        assert model.gate is not None
        model.gate.set()
        await engine.channel.wait_until(lambda _: len(engine.sent_to("room")) == 3)
        assert [each[:10] for each in engine.sent_to("room")] == [
            *("All right.", "Your daily", "All right."),
        ]
    people = query(tmp_path, "SELECT person, input_tokens FROM usage_counts ORDER BY person")
    assert people == [("memory:ada", 1_000), ("memory:bob", 1_000)]


async def test_a_limit_that_is_set_while_it_runs_holds_for_the_next_call(tmp_path):
    model = spending(Usage(1_000))
    async with running(tmp_path, model=model) as engine:
        await engine.ask("hello")
        config, _ = make_config(tmp_path, limits={"each": {"day_tokens": 1_000}})
        await engine.app.adopt(config)
        assert "is used up" in await engine.ask("hello")
        assert len(model.requests) == 1


async def test_at_a_limit_commands_and_resets_ask_no_model_and_say_when_it_goes_on(tmp_path):
    clock, brain = FakeClock(), Brain(chat=replying(Usage(10_000, 10)))
    limits = {"each": {"day_tokens": 40_000}}
    context = {"enable_memory_flush": True, "notices": "on"}
    tomorrow = "Sun 2026-11-22 00:00 (UTC)"
    async with running(
        tmp_path, model=brain, limits=limits, clock=clock, context=context
    ) as engine:
        for _ in range(4):
            await ask(engine, LONG)
        asked = len(brain.requests)
        said = await command(engine, "/compact")
        assert said.startswith("Your daily limit is used up, so I can't summarise the older part")
        assert f"before {tomorrow}" in said
        in_chinese = await command(engine, "/compact", locale="zh")
        assert in_chinese.startswith("你每天可用的额度已用完")
        kept = await ask(engine, "remember that my boat is called Alma")
        assert "is used up" in kept
        assert "✓" in kept  # by the program
        before = len(engine.channel.sent)
        assert "New conversation" in await command(engine, "/new")
        await engine.channel.wait_until(lambda sent: len(sent) == before + 2)
        told = engine.channel.sent[-1].text
        assert "isn't saved to memory yet" in told
        assert f"Next try: {tomorrow}" in told
        await ask(engine, "in a new topic", thread="t1")
        assert len(brain.requests) == asked
        clock.advance(hours=12)
        await engine.app.maintenance.upkeep.look()
        await settled()
        assert len(brain.asked("flush")) == 1  # it went on by itself
        assert current(tmp_path)["compaction"] is None


async def test_a_reset_at_a_limit_says_with_the_next_message_what_is_not_saved_yet(tmp_path):
    clock, brain = FakeClock(), Brain(chat=replying(Usage(10_000, 10)))
    limits = {"each": {"month_tokens": 10_000}}
    context = {"enable_memory_flush": True}
    async with running(
        tmp_path, model=brain, limits=limits, clock=clock, context=context
    ) as engine:
        await ask(engine, LONG)
        clock.advance(days=1)
        assert await engine.app.maintenance.sweeper.sweep(clock()) == 1
        await settled()
        await ask(engine, "good morning")
        told = [each.text for each in engine.channel.sent if "isn't saved to memory" in each.text]
        assert len(told) == 1
        assert "2026-12-01 00:00 (UTC)" in told[0]
        assert len(brain.requests) == 1


async def test_the_owner_is_told_of_what_everybody_uses_and_may_be_exempt(tmp_path):
    limits = {"in_all": {"month_tokens": 10_000}, "exempt_owner": True}
    session, model = {"owner": ["memory:boss"]}, spending(Usage(8_000))
    async with running(tmp_path, model=model, limits=limits, session=session) as engine:
        await engine.ask("/status", sender="boss")
        await engine.ask("hello")
        await engine.channel.wait_until(lambda _: len(engine.sent_to("boss")) == 2)
        told = engine.sent_to("boss")[1]
        assert told.startswith("Everyone's monthly limit is 80 % used.")
        assert "(8\u202f000 of 10\u202f000 tokens)" in told
        await engine.ask("hello")
        refused = await engine.ask("hello")
        assert "before Tue 2026-12-01 00:00 (UTC)" in refused
        assert "10\u202f000" not in refused
        assert await engine.ask("hello", sender="boss") == "All right."


async def test_in_a_room_nobody_reads_how_much_somebody_used(tmp_path):
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
        assert "1\u202f000" not in engine.sent_to("room")[2]


async def test_the_refusal_is_in_the_persons_language_and_time(tmp_path):
    session = {"timezones": {"memory:ada": "Asia/Shanghai"}}
    model, limits = spending(Usage(5_000)), {"each": {"month_tokens": 1_000}}
    async with running(tmp_path, model=model, limits=limits, session=session) as engine:
        await engine.ask("hello")
        await engine.channel.wait_until(lambda sent: len(sent) == 2)
        refused = await engine.ask("你好", locale="zh")
    assert "2026-12-01 00:00 (Asia/Shanghai)" in refused
    assert refused.startswith("你每月可用的额度已用完")
