"""Remembering and recalling with no key at all, in English and Chinese."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.app import App, Parts
from bot.memory.memory import Memory
from bot.testing import InMemoryChannel, ScriptedModel
from tests.fakes.memory_search import WordSearcher
from tests.support import Engine, FakeClock, make_config

TODAY = "memory/2026-11-21.md"


@asynccontextmanager
async def offline(folder: Path, synonyms: dict[str, str]) -> AsyncIterator[Engine]:
    config, plugins = make_config(folder)
    channel, clock = InMemoryChannel(), FakeClock()
    searcher = WordSearcher(folder / "workspace", synonyms)
    parts = Parts(clock=clock, searcher=searcher, channels={"memory": channel}, dashboard=False)
    async with App(config, plugins, parts) as app:
        yield Engine(app, channel, ScriptedModel(), clock, folder)


@pytest.mark.parametrize(
    ("locale", "told", "confirmed", "asked"),
    [
        (
            "en",
            "Remember that my daughter is allergic to peanuts",
            f"Noted: “my daughter is allergic to peanuts”\n\n✓ Stored in {TODAY}:3",
            (
                "what can't my child eat?",
                f"In {TODAY}:3: “12:00 my daughter is allergic to peanuts”",
            ),
        ),
        (
            "zh",
            "请记住：我 女儿对花生过敏",
            f"记下了：“我 女儿对花生过敏”\n\n✓ 已存入 {TODAY}:3",
            ("孩子不能吃什么？", f"{TODAY}:3 里写着：“12:00 我 女儿对花生过敏”"),
        ),
    ],
)
async def test_what_it_was_told_is_found_in_other_words_after_new(
    tmp_path: Path, locale: str, told: str, confirmed: str, asked: tuple[str, str]
):
    question, answer = asked
    synonyms = {"child": "daughter", "孩子不能吃什么": "女儿对花生过敏"}
    async with offline(tmp_path, synonyms) as engine:
        assert await engine.ask(told, locale=locale) == confirmed
        await engine.ask("/new", locale=locale)
        assert answer in await engine.ask(question, locale=locale)
        again = await engine.ask(told, locale=locale)
        assert f"{TODAY}" in again
        assert "✓" not in again  # it is there already: nothing was written


@pytest.mark.usefixtures("built_in_embedder")
@pytest.mark.parametrize(
    ("told", "asked", "answer"),
    [
        ("记住我的薪水是每月一万元", "我工资是多少？", "我的薪水是每月一万元"),
        ("记住我的薪水是每月一万元", "What is my salary?", "我的薪水是每月一万元"),
        ("remember that I am allergic to penicillin", "我对哪种药物过敏？", "penicillin"),
        ("remember that we rent a flat in Berlin", "Where is our apartment?", "Berlin"),
    ],
)
async def test_the_real_search_finds_other_words_in_either_language(
    tmp_path: Path, told: str, asked: str, answer: str
):
    config, plugins = make_config(tmp_path, memory={"embedder": {"provider": "multilingual"}})
    channel, clock = InMemoryChannel(), FakeClock()
    parts = Parts(clock=clock, channels={"memory": channel}, dashboard=False)
    async with App(config, plugins, parts) as app:
        engine = Engine(app, channel, ScriptedModel(), clock, tmp_path)
        for words in (told, "remember that the boiler was repaired", "记住周三打羽毛球"):
            await engine.ask(words)
        await engine.ask("/new")
        async with asyncio.timeout(60):  # until what was said is in the index too
            while "**said " not in await engine.ask(f"/memory search {told}"):
                pass
        assert answer in await engine.ask(asked)
        assert "found nothing" in await engine.ask("How do submarines dive?")


@pytest.mark.usefixtures("built_in_embedder")
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            "Which countries did I visit?",
            ("I visited Norway", "I was in Peru", "my holidays were in Japan", "I flew to Chile"),
        ),
        ("我去过哪些城市？", ("我去过上海", "我在成都待过", "去年我去了西安", "我到过昆明")),
    ],
)
async def test_a_list_is_shown_as_one_though_one_line_has_its_words(
    tmp_path: Path, asked: str, told: tuple[str, ...]
):
    config, plugins = make_config(tmp_path, memory={"embedder": {"provider": "multilingual"}})
    channel, clock = InMemoryChannel(), FakeClock()
    parts = Parts(clock=clock, channels={"memory": channel}, dashboard=False)
    async with App(config, plugins, parts) as app:
        engine = Engine(app, channel, ScriptedModel(), clock, tmp_path)
        for words in (*told, "the boiler was repaired", "the rent is due on Friday"):
            await engine.ask(f"remember that {words}")
        await engine.app.memory.index.sync("test")
        answer = await engine.ask(asked)
        assert sum(words in answer for words in told) == 3, answer


@pytest.mark.usefixtures("built_in_embedder")
@pytest.mark.parametrize(
    "asked", ["Who did we meet in May?", "五月份我们见了谁 (who did we meet)？"]
)
async def test_what_was_noted_at_the_time_that_is_asked_about_is_told_first(
    tmp_path: Path, asked: str
):
    config, plugins = make_config(
        tmp_path,
        memory={"embedder": {"provider": "multilingual"}},
        session={"owner": ["memory:ada"]},
    )
    notes = tmp_path / "workspace" / "memory"
    notes.mkdir(parents=True)
    for day in ("2026-03-02", "2026-05-10", "2026-08-14", "2026-11-20"):
        note = f"# {day}\n\n- 15:30 We met Jonas at harbour {day[-2:]}\n"
        (notes / f"{day}.md").write_text(note, "utf-8")
    memory = Memory.of(config, FakeClock())
    await memory.open()
    await memory.index.sync("test")  # every note is in it before the question comes
    await memory.close()
    channel, clock = InMemoryChannel(), FakeClock()
    parts = Parts(clock=clock, channels={"memory": channel}, dashboard=False)
    async with App(config, plugins, parts) as app:
        answer = await Engine(app, channel, ScriptedModel(), clock, tmp_path).ask(asked)
    quoted = [line for line in answer.splitlines() if "harbour" in line]
    assert quoted
    assert quoted[0].endswith("harbour 10”"), quoted


@pytest.mark.parametrize(
    ("locale", "asked", "answers"),
    [
        (
            "en",
            "What did we talk about last time?",
            ("The conversation before, until 2026-11-21 12:00:", "> - You: Trains are great"),
        ),
        (
            "zh",
            "上次聊了什么？",
            ("之前的那段对话，到 2026-11-21 12:00", "> - 你：Trains are great"),
        ),
    ],
)
async def test_who_asks_for_the_conversation_before_gets_its_end(
    tmp_path: Path, locale: str, asked: str, answers: tuple[str, ...]
):
    async with offline(tmp_path, {}) as engine:
        assert "> - " not in await engine.ask(asked, locale=locale)  # there was none
        await engine.ask("Trains are great")
        await engine.ask("/new")
        await engine.ask("Hello again")
        for _ in range(2):
            answer = await engine.ask(asked, locale=locale)
            assert all(part in answer for part in answers)


async def test_nobody_else_finds_it(tmp_path: Path):
    async with offline(tmp_path, {"child": "daughter"}) as engine:
        await engine.ask("Remember that my daughter is allergic to peanuts")
        assert "peanuts" not in await engine.ask("what can't my child eat?", sender="eve")


@pytest.mark.parametrize(
    ("locale", "asked", "confirmed", "due"),
    [
        (
            "en",
            "remind me in 2 hours to call mum",
            "I will remind you on Sat 2026-11-21 14:00 (UTC): call mum",
            "⏰ call mum",
        ),
        (
            "zh",
            "两小时后提醒我开会",
            "我会在 周六 2026-11-21 14:00 (UTC) 提醒你：开会",
            "⏰ 开会",
        ),
    ],
)
async def test_it_reminds_when_it_was_asked_to_in_plain_words(
    tmp_path: Path, locale: str, asked: str, confirmed: str, due: str
):
    async with offline(tmp_path, {}) as engine:
        assert await engine.ask(asked, locale=locale) == confirmed
        assert due.removeprefix("⏰ ") in await engine.ask("/reminders", locale=locale)
        engine.clock.advance(hours=2)
        await engine.app.reminders.wake()
        await engine.channel.wait_until(lambda _: engine.sent_to("ada")[-1] == due)


async def test_what_was_offered_is_kept_only_for_who_said_it_and_not_once_it_is_forgotten(
    tmp_path: Path,
):
    async with offline(tmp_path, {}) as engine:
        await engine.ask("My sister Ines lives in Bergen.")
        (button,) = engine.channel.sent[-1].buttons
        assert button.label == "Keep this"
        gone = "I can't keep that any more: the message is not here, or it is not yours."
        assert await engine.ask(button.command, sender="eve") == gone
        assert await engine.ask("/memory keep 17") == gone
        await engine.ask("/memory forget Bergen")
        await engine.ask("/memory forget yes")
        assert await engine.ask(button.command) == gone
        assert not list((tmp_path / "workspace").rglob("2026-11-21.md"))
