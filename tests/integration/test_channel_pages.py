"""The owner's page of channels: how they are doing, and when the bot answers in rooms."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from bot.channel import Address, ChannelPlugin, Finding, Health
from bot.dashboard.channels import ChannelPages
from bot.delivery import outbox
from bot.doctor.channels import examined
from bot.identity import ConversationResolver, Policy
from bot.identity.zone import local_zone
from bot.settings import config_model
from bot.storage.sqlite import SqliteDatabase
from bot.testing import InMemoryChannel
from tests.fakes.owner_page import OwnerPage, browser
from tests.integration.test_page_visitors import TOKEN, served
from tests.support import Engine, OpenConfig, running

OPEN: dict[str, Any] = {"memory": {"group_policy": "open"}}
DEN: dict[str, Any] = {"chat": "den", "chat_type": "group"}
HOSTILE = '"><script>alert(1)</script>\u202e'


class Page(OwnerPage):
    """The page of channels."""

    def report(self, account: str, health: Health, detail: str = "") -> None:
        engine = self.engine.channel.engine
        assert engine is not None
        engine.report("memory", account, health, detail)

    async def key_of(self, chat: str) -> str:
        """The session key of a room, as its form has it."""
        shown = await self.shows(f"?q={chat}")
        return shown.partition('name="key" value="')[2].partition('"')[0]


@asynccontextmanager
async def channels(folder: Path, **sections: Any) -> AsyncIterator[Page]:
    """An engine that talks in every room, and the owner's browser."""
    async with (
        running(folder, serves=True, **{"channels": OPEN, **sections}) as engine,
        browser(engine) as client,
    ):
        yield Page(client, engine, "/channels")


async def in_the_den(engine: Engine, text: str, **changes: Any) -> str:
    """What the bot answers to something that is said to it in the den."""
    before = len(engine.sent_to("den"))
    await engine.say(text, **{**DEN, "mentions_bot": True, **changes})
    await engine.channel.wait_until(lambda _: len(engine.sent_to("den")) > before)
    return engine.sent_to("den")[before]


async def written(folder: Path, work: Any) -> None:
    database = await SqliteDatabase.open(folder / "confidant.db")
    try:
        await database.write(work)
    finally:
        await database.close()


async def test_each_account_says_how_it_is_what_to_do_and_when_it_was_heard_from(tmp_path):
    async with channels(tmp_path) as page:
        shown = await page.shows()
        assert '<span class="state up">connected</span>' in shown
        assert "Not heard from in the last weeks." in shown
        assert "Nothing waits to be sent." in shown
        await page.engine.ask("hello")
        assert "Last heard from 2026-11-21 12:00." in await page.shows()
        page.report("work", Health.DOWN, f"No answer {HOSTILE}")
        shown = await page.shows()
        assert '<span class="state down">not connected</span>' in shown
        assert "No answer &#34;&gt;&lt;script&gt;" in shown
        assert "It is tried again by itself." in shown
        assert "<h3>work</h3>" in shown
        assert "未连接" in await page.shows(language="zh")


async def test_what_waits_and_what_is_parked_is_counted_for_its_account(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.coordination.LOOK_SECONDS", 1_000)  # nobody sends what is put there
    async with channels(tmp_path) as page:

        def fill(tx: Any) -> None:
            for again in (True, True, False):
                letter = outbox.add(tx, Address("memory", "work", "ada"), "secret words", 1)
                outbox.park(tx, letter.id, "refused", 2, again=again)
            outbox.add(tx, Address("memory", "default", "ada"), "secret words", 1)

        await written(tmp_path, fill)
        page.report("work", Health.DEGRADED)
        shown = await page.shows()
        assert "2 could not be sent: tried again every ten minutes for a week." in shown
        assert "1 was refused" in shown
        assert "1 text waits to be sent." in shown
        assert "secret words" not in shown


async def test_a_channel_looks_at_its_own_set_up_when_it_is_asked_to(tmp_path, monkeypatch):
    looks: list[object] = []

    async def examine(self: InMemoryChannel) -> Sequence[Finding]:
        looks.append(self)
        await asyncio.sleep(0)
        return [
            Finding("ok", "the token is that of @heron"),
            Finding("error", f"no rights {HOSTILE}", "Give it some.", "work"),
        ]

    async with channels(tmp_path) as page:
        assert await page.does("check", channel="memory") == "checked"
        assert "there is nothing to check" in await page.shows()
        page.engine.clock.advance(minutes=1)
        monkeypatch.setattr(InMemoryChannel, "examine", examine, raising=False)
        await asyncio.gather(*(page.does("check", channel="memory") for _ in range(3)))
        assert len(looks) == 1
        assert looks[0] is not page.engine.channel
        shown = await page.shows()
        assert "the token is that of @heron" in shown
        assert "work: no rights &#34;&gt;&lt;script&gt;" in shown
        assert "→ Give it some." in shown
        assert await page.does("check", channel="nowhere") == "gone"
        assert await page.does("check") == "gone"


async def test_what_a_channel_finds_is_said_in_the_language_of_the_page(tmp_path, monkeypatch):
    async def examine(self: InMemoryChannel) -> Sequence[Finding]:
        await asyncio.sleep(0)
        return [
            Finding("ok", "a package's own words"),
            Finding.of("error", "messages.paused", count=2),
        ]

    monkeypatch.setattr(InMemoryChannel, "examine", examine, raising=False)
    async with channels(tmp_path) as page:
        assert await page.does("check", channel="memory") == "checked"
        shown = await page.shows(language="zh-CN")
        assert '<li class="error" lang="zh">' in shown
        assert "2 个任务连续失败三次，已暂停" in shown
        assert '<li class="ok" lang="en">' in shown
        assert "a package&#39;s own words" in shown


async def test_when_it_answers_in_a_room_is_chosen_and_counts_at_once_and_after_a_restart(tmp_path):
    async with channels(tmp_path) as page:
        assert "Nobody has spoken to the bot in a room yet." in await page.shows()
        await in_the_den(page.engine, "hello")
        shown = await page.shows()
        assert "It answers when it is mentioned or replied to." in shown
        assert "hello" not in shown
        key = await page.key_of("den")
        with capture_logs() as logs:
            assert await page.does("activation", key=key, activation="always") == "room"
        assert {"event": "room.activated", "activation": "always", "log_level": "info"} in logs
        assert await in_the_den(page.engine, "and me?", mentions_bot=False)
    async with channels(tmp_path) as page:
        assert "It answers everything that is said there." in await page.shows()
        assert '<option value="always" selected>' in await page.shows()
        assert await in_the_den(page.engine, "still me?", mentions_bot=False)
        assert await page.does("activation", key=key, activation="") == "room"
        assert '<option value="" selected>' in await page.shows()
        before = len(page.engine.sent_to("den"))
        await page.engine.say("nobody", mentions_bot=False, **DEN)
        await page.engine.ask("are you there?")
        assert len(page.engine.sent_to("den")) == before


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"key": "KEY"},
        {"key": "KEY", "activation": "never"},
        {"key": "agent:main:memory:group:nowhere", "activation": "always"},
        {"key": "agent:main:memory:dm:ada", "activation": "always"},
        {"key": "\0'; --", "activation": "always"},
    ],
)
async def test_only_a_room_that_is_known_takes_a_choice_that_there_is(tmp_path, fields):
    async with channels(tmp_path) as page:
        await in_the_den(page.engine, "hello")
        await page.engine.ask("hello")
        key = await page.key_of("den")
        named = {name: value.replace("KEY", key) for name, value in fields.items()}
        assert await page.does("activation", **named) == "gone"
        assert '<option value="" selected>' in await page.shows()


async def test_rooms_show_what_holds_there_and_the_configurations_where_it_stands(tmp_path):
    memory = {
        "groups": {
            "den": {"require_mention": False, "mention_patterns": [f"hey{HOSTILE}"]},
            "*": {"enabled": False},
        }
    }
    above = ("channels", "memory", "groups")
    origins = {
        (*above, "den", "require_mention"): "confidant.toml:12",
        (*above, "*", "enabled"): ".env:3: ROOMS",
    }
    async with channels(tmp_path, channels={"memory": memory}, origins=origins) as page:
        assert await in_the_den(page.engine, "hello", mentions_bot=False)
        shown = await page.shows()
        assert "It answers everything that is said there." in shown
        assert "confidant.toml:12" in shown
        assert ".env:3: ROOMS" in shown
        assert "enabled = <bdi>false</bdi>" in shown
        assert "* (every other room)" in shown
        assert "<script>" not in shown
    async with channels(tmp_path, channels={"memory": {}}) as page:
        assert "It does not talk there" in await page.shows()
        assert "The configuration lists no room." in await page.shows()


async def test_hundreds_of_rooms_with_hostile_names_come_in_parts(tmp_path):
    groups = {f"{HOSTILE}{number}": {"enabled": True} for number in range(120)}
    async with channels(tmp_path, channels={"memory": {"groups": groups}}) as page:
        for number in range(60):
            room = {"chat": f"{HOSTILE}{number}", "chat_type": "group", "mentions_bot": True}
            await page.engine.say("/status", **room)
        await page.engine.channel.wait_until(lambda found: len(found) >= 60)
        first, second = await page.shows(), await page.shows("?rooms=2&groups=3")
        for shown in (first, second):
            assert "<script>" not in shown
            assert "\u202e" not in re.sub(r'<input type="hidden"[^>]*>', "", shown)
        assert "(60)" in first
        assert "(120)" in first
        assert first.count('name="key"') == 50
        assert second.count('name="key"') == 10
        assert second.count("enabled = <bdi>true</bdi>") == 20
        assert (await page.shows("?q=alert(1)")).count('name="key"') == 50


async def test_what_does_not_run_says_why_and_what_to_set(tmp_path):
    plugins = {
        "pigeon": ChannelPlugin(
            "pigeon",
            OpenConfig,
            lambda _config: InMemoryChannel(),
            ready=lambda _config: False,
            needs="PIGEON_TOKEN",
        ),
        "owl": ChannelPlugin("owl", OpenConfig, lambda _config: InMemoryChannel()),
    }
    config = config_model(plugins).model_validate({"channels": {"owl": {"enabled": False}}})
    database = await SqliteDatabase.open(tmp_path / "confidant.db")

    async def read_books() -> None:
        raise AssertionError("nothing is changed")

    page = ChannelPages(
        database=database,
        resolver=ConversationResolver(Policy.of(config, local_zone(config))),
        connections=list,
        plugins=plugins,
        examine=examined,
        origins=dict,
        read_books=read_books,
        clock=lambda: 1,
    )
    headers = {"Authorization": f"Bearer {TOKEN}"}
    try:
        async with (
            served(*page.routes()) as url,
            aiohttp.ClientSession(url, headers=headers) as client,
        ):
            async with client.get("/channels") as answer:
                shown = await answer.text()
            async with client.post("/channels/check", data={"channel": "owl"}) as answer:
                assert answer.url.query["told"] == "gone"
    finally:
        await database.close()
    assert "It runs once PIGEON_TOKEN is set" in shown
    assert "Switched off" in shown
    assert "Check now" not in shown
