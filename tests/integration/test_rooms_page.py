"""Rooms that were declined, by the page: let in at once and out again, and a mark in the menu."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.testing import InMemoryChannel
from tests.fakes.started import started
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.integration.test_settings_page import DEN, channels, in_the_den
from tests.support import PATIENCE, pause

CLOSED: dict[str, Any] = {"memory": {"group_policy": "allowlist", "dm_policy": "pairing"}}
DECLINED = "not allowed to talk here"


async def key_of(page: Any, what: str = "admit") -> str:
    """The key in the form that lets a room in, or out."""
    shown = await page.shows()
    return (
        shown.partition(f'action="/channels/{what}"')[2]
        .partition('name="key" value="')[2]
        .partition('"')[0]
    )


async def test_a_declined_room_is_let_in_and_answered_at_once_and_after_a_restart(tmp_path):
    async with channels(tmp_path, channels=CLOSED) as page:
        assert "Rooms that want the bot" not in await page.shows()
        assert DECLINED in await in_the_den(page.engine, "my secret words")
        shown = await page.shows()
        assert "Rooms that want the bot (1)" in shown
        assert ">den<" in shown
        assert "secret" not in shown
        assert await page.does("admit", key=await key_of(page)) == "let_in"
        assert DECLINED not in await in_the_den(page.engine, "and now?")
        shown = await page.shows()
        assert "Rooms that want the bot" not in shown
        assert "Rooms you let it answer in (1)" in shown
    async with channels(tmp_path, channels=CLOSED) as page:
        assert DECLINED not in await in_the_den(page.engine, "still?")
        assert await page.does("dismiss", key=await key_of(page, "dismiss")) == "sent_out"
        before = len(page.engine.sent_to("den"))
        await page.engine.say("again?", mentions_bot=True, **DEN)
        async with asyncio.timeout(PATIENCE):
            while "Rooms that want the bot (1)" not in await page.shows():
                await pause(0.02)
        assert all(DECLINED in text for text in page.engine.sent_to("den")[before:])


@pytest.mark.parametrize(
    "memory",
    [
        {"group_policy": "disabled"},
        {"group_policy": "allowlist", "groups": {"den": {"enabled": False}}},
        {"group_policy": "open", "group_allow_from": ["ada"]},
    ],
)
async def test_what_the_configuration_decides_is_not_offered(tmp_path, memory):
    async with channels(tmp_path, channels={"memory": {"dm_policy": "pairing", **memory}}) as page:
        await page.engine.say("hello", sender="eve", mentions_bot=True, **DEN)
        shown = await page.shows()
        assert "Rooms that want the bot" not in shown


async def test_the_configuration_still_shuts_out_a_room_that_was_let_in(tmp_path):
    async with channels(tmp_path, channels=CLOSED) as page:
        await in_the_den(page.engine, "hello")
        await page.does("admit", key=await key_of(page))
    shut = {"memory": {**CLOSED["memory"], "groups": {"den": {"enabled": False}}}}
    async with channels(tmp_path, channels=shut) as page:
        await page.engine.say("hello?", mentions_bot=True, **DEN)
        assert all(DECLINED in text for text in page.engine.sent_to("den"))


async def test_only_a_room_that_was_declined_is_let_in(tmp_path):
    async with channels(tmp_path, channels=CLOSED) as page:
        for key in ("", "nowhere", "agent:main:memory:group:den", "<b>", "'; --"):
            for act in ("admit", "dismiss"):
                assert await page.does(act, key=key) == "gone"
        assert DECLINED in await in_the_den(page.engine, "hello")


async def test_the_menu_counts_who_waits_for_the_owner(tmp_path):
    async with channels(tmp_path, channels=CLOSED) as page:
        assert 'class="badge"' not in await page.shows()
        await in_the_den(page.engine, "hello")
        await page.engine.ask("let me in", sender="bob")
        await page.engine.ask("let me in", sender="eve")
        shown = await page.shows()
        assert 'Administration <span class="badge">3<' in shown
        assert 'Chat users <span class="badge">2<' in shown
        assert 'Channels <span class="badge">1<' in shown
        async with page.client.get("/api/ways") as answer:
            found = {way["path"]: way["badge"] for way in (await answer.json())["ways"]}
        assert (found["/people"], found["/channels"], found["/memory"]) == ("2", "1", "")


async def test_an_invitation_is_shown_where_the_platform_has_one(tmp_path, monkeypatch):
    async with channels(tmp_path) as page:
        assert "Invite people" not in await page.shows()
        link = "https://chat.example/heron?a=1&b=2"
        monkeypatch.setattr(
            InMemoryChannel, "invitation", lambda _self, _account: link, raising=False
        )
        shown = await page.shows()
        assert 'href="https://chat.example/heron?a=1&amp;b=2"' in shown
        assert "data-copy=" in shown


async def test_telegrams_invitation_is_the_address_of_the_bots_chat(tmp_path):
    async with FakeTelegram(TOKEN) as telegram:
        place = {
            "CONFIDANT_CHANNELS__TELEGRAM__API_ROOT": telegram.url,
            "TELEGRAM_BOT_TOKEN": TOKEN,
        }
        async with started(tmp_path, **place) as program:
            async with asyncio.timeout(PATIENCE):
                while "https://t.me/confidant_bot" not in await program.get("/channels"):
                    await pause(0.02)


async def test_a_thread_of_a_room_that_was_let_in_is_answered_too(tmp_path):
    async with channels(tmp_path, channels=CLOSED) as page:
        thread = {"chat": "t1", "chat_type": "thread", "parent": "den", "mentions_bot": True}
        await page.engine.say("hello", **thread)
        await page.engine.channel.wait_until(lambda _: bool(page.engine.sent_to("t1")))
        assert DECLINED in page.engine.sent_to("t1")[0]
        assert ">den<" in await page.shows()
        await page.does("admit", key=await key_of(page))
        await page.engine.say("and now?", **thread)
        await page.engine.channel.wait_until(lambda _: len(page.engine.sent_to("t1")) > 1)
        assert DECLINED not in page.engine.sent_to("t1")[1]
        assert DECLINED not in await in_the_den(page.engine, "and here?")
        assert DECLINED in await in_another(page)


async def in_another(page: Any) -> str:
    await page.engine.say("hello", chat="cave", chat_type="group", mentions_bot=True)
    await page.engine.channel.wait_until(lambda _: bool(page.engine.sent_to("cave")))
    return page.engine.sent_to("cave")[0]
