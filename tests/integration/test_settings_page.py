"""Every option in the page: what counts, what may change while running, and the way back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import AsyncMock

import aiohttp
import pytest
from structlog.testing import capture_logs

from bot.channel import Address, ChannelPlugin, Finding, Health, reveal
from bot.config import Config, Settings
from bot.dashboard.channels import ChannelPages
from bot.dashboard.overview import DAYS
from bot.dashboard.settings.pages import SECTIONS, SettingsPages
from bot.dashboard.settings.start import StartPages
from bot.delivery import outbox
from bot.doctor.services import examined
from bot.errors import ConfigError, StorageError
from bot.memory.selftest import GROWTH_KEPT, MemoryGrowth
from bot.sessions import inbox
from bot.sessions.inbox import Traffic
from bot.settings import config_model
from bot.settings.changes import ServedSettings
from bot.settings.fields import is_live
from bot.storage.records import MetaStore
from bot.storage.sqlite import SqliteDatabase
from bot.testing import InMemoryChannel
from tests.fakes.brain import query
from tests.fakes.owner_page import OwnerPage, browser
from tests.fakes.started import Started, load, started, unchanged
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.fakes.text_store import TextStoreInMemory
from tests.integration.test_page_visitors import TOKEN as TOKEN_OF_PAGE
from tests.integration.test_page_visitors import served
from tests.support import (
    PATIENCE,
    Engine,
    FakeClock,
    OpenConfig,
    beside,
    core_of,
    pause,
    running,
    write_file,
)

CHANGED = {
    "agent.name": "Heron",
    "session.owner_name": "Ada",
    "agent.language": "zh",
    "agent.timezone": "Asia/Tokyo",
    "agent.model": "offline",
    "agent.fallback": "offline",
    "agent.chores": "offline",
    "agent.choices": "local/*, offline",
    "agent.max_tokens": "4096",
    "agent.max_steps": "7",
    "agent.turn_timeout": "30",
    "session.queue.mode": "collect",
    "session.queue.debounce": "1.5",
    "session.reset.mode": "none",
    "session.reset.at_hour": "5",
    "session.reset.idle_minutes": "90",
    "context.context_tokens": "64000",
    "context.notices": "on",
    "context.notice_percent": "50, 60",
    "context.enable_memory_flush": "false",
    "memory.max_injected_chars": "500",
    "memory.max_results": "3",
    "memory.citations": "on",
    "memory.retention_days": "9",
    **{f"limits.in_all.{cap}": "5" for cap in ("day_usd", "day_tokens")},
    **{f"limits.in_all.{cap}": "6" for cap in ("month_usd", "month_tokens")},
    **{f"limits.each.{cap}": "7" for cap in ("day_usd", "day_tokens")},
    **{f"limits.each.{cap}": "8" for cap in ("month_usd", "month_tokens")},
    "limits.exempt_owner": "true",
}


OFFERED = frozenset(key for groups in SECTIONS.values() for group in groups for key in group.keys)
CHANGING = [name for name, groups in SECTIONS.items() if groups]

__all__ = ["unchanged"]

ADVANCED = "/settings?section=advanced"


def ids(page: str) -> list[str]:
    """The changes that can be taken back, the newest first."""
    return re.findall(r'name="change" value="(\w+)"', page)


async def change(program: Started, section: str, **fields: str) -> str:
    dotted = {name.replace("__", "."): value for name, value in fields.items()}
    status, page = await program.post("/settings/change", section=section, **dotted)
    assert status == 200, page
    return page


def test_what_is_offered_counts_at_once_and_each_has_a_value_here():
    assert {".".join(key) for key in OFFERED} == set(CHANGED)
    assert all(is_live(key) for key in OFFERED)


async def test_each_option_is_kept_read_back_and_taken_back(tmp_path):
    async with started(tmp_path) as program:
        before = program.app.core.resolver.policy.config
        for section in CHANGING:
            keys = [key for group in SECTIONS[section] for key in group.keys]
            await change(
                program, section, **{".".join(key): CHANGED[".".join(key)] for key in keys}
            )
        assert "由 data/.env:1: CONFIDANT_AGENT__NAME 设定" in await program.get("/settings")
        page = await program.get(ADVANCED)
        now = program.app.core.resolver.policy.config
        fresh = load(tmp_path).config
        for key in OFFERED:
            found, was, again = now, before, fresh
            for name in key:
                found, was, again = (getattr(each, name) for each in (found, was, again))
            assert found != was, key
            assert found == again, key
            assert f"CONFIDANT_{'__'.join(key).upper()}=" in program.kept, key
        assert len(ids(page)) == len(CHANGING)
        for each in ids(page):
            status, page = await program.post("/settings/take-back", change=each)
            assert status == 200
        assert program.app.core.resolver.policy.config.agent == before.agent
        assert program.kept.strip() == ""
        assert load(tmp_path).config.limits == before.limits


async def test_a_limit_and_a_notice_begin_to_hold(tmp_path):
    async with started(tmp_path) as program:
        await change(program, "notifications", context__notices="off")
        words = (await program.ask("/usage"))["text"]
        await change(program, "limits", limits__each__day_usd="12.5")
        assert "12.50" not in words
        assert "12.50" in (await program.ask("/usage", "m2"))["text"]
        await change(program, "general", agent__language="zh")
        assert "今天" in (await program.ask("/usage", "m3"))["text"]


@pytest.mark.parametrize(
    ("section", "name", "value", "said"),
    [
        ("general", "session.reset.at_hour", "24", "Enter a whole number from 0 to 23."),
        ("general", "session.reset.at_hour", "four", "Enter a whole number from 0 to 23."),
        ("general", "session.reset.mode", "idle", "how many minutes of silence"),
        ("general", "session.queue.debounce", "99", "Enter a number from 0 to 60."),
        ("general", "agent.turn_timeout", "0", "Enter a number above 0."),
        ("general", "agent.timezone", "Europe/Berlinn", "from the list, such as Europe/Berlin."),
        ("general", "agent.timezone", "\u6771\u4eac", "from the list, such as Europe/Berlin."),
        ("general", "agent.name", "Eve\nCONFIDANT_DASHBOARD__HOST=0.0.0.0", "a name of one line"),
        ("general", "agent.name", "x" * 5_000, "a name of one line"),
        ("general", "agent.name", "file:/etc/passwd", "a name of one line"),
        ("general", "session.owner_name", "x" * 81, "at most 80 characters"),
        ("general", "session.owner_name", "Ada\x07", "a name of one line"),
        ("general", "session.owner_name", "Ada\u202e", "a name of one line"),
        ("general", "agent.language", "fr", "Enter one line of text."),
        ("models", "agent.model", "nowhere/x", "No connected service has this model."),
        ("models", "agent.fallback", "offline, nowhere/x", "One of these models"),
        ("models", "context.context_tokens", "1", "Enter a whole number, 4000 or more."),
        ("notifications", "context.notice_percent", "70, many", "such as 70, 85."),
        ("limits", "limits.each.day_usd", "-1", "Enter a number, 0 or more."),
        ("limits", "limits.each.day_usd", "nan", "Enter a number, 0 or more."),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_wrong_value_is_kept_in_its_field_which_says_what_to_enter(
    unchanged, section, name, value, said
):
    status, page = await unchanged.post("/settings/change", section=section, **{name: value})
    assert (status, said in page, "Not saved yet" in page) == (422, True, True), page
    assert unchanged.kept == ""
    at = "session.reset.idle_minutes" if name == "session.reset.mode" else name
    (field,) = re.findall(r'<[^>]*aria-invalid="true"[^>]*>', page)
    assert f'name="{at}"' in field
    assert "autofocus" in field
    assert "CONFIDANT_" not in re.sub(r'value="[^"]*"', "", page.replace(value, ""))
    if "\n" not in value and name not in {"session.reset.mode", "agent.language"}:
        assert f'value="{value}"' in field


@pytest.mark.asyncio(loop_scope="module")
async def test_a_section_is_shown_at_a_time_and_the_first_for_a_name_of_none(unchanged):
    for section in SECTIONS:
        page = await unchanged.get(f"/settings?section={section}")
        assert page.count('class="options-form"') == (section in CHANGING)
        assert f'href="/settings?section={section}" aria-current="page"' in page
        # Names of options stand in details only.
        shown = re.sub(r"(?s)<details.*?</details>", "", page)
        assert "<code>" not in shown.replace("data/.env", ""), section
    assert '<option value="offline"></option>' in await unchanged.get("/settings?section=models")
    assert '<option value="Asia/Tokyo"></option>' in await unchanged.get("/settings")
    for other in ("", "?section=nobody", "?section=<b>"):
        assert 'name="agent.name"' in await unchanged.get(f"/settings{other}")


@pytest.mark.parametrize(
    ("wanted", "language", "found"),
    [
        ("time zone", "en", 'href="/settings?section=general#agent-timezone"'),
        ("berechnet", "en", "Nothing found"),
        ("LIMITS day", "en", 'href="/settings?section=limits#limits-in_all-day_usd"'),
        ("memory.max_results", "en", 'href="/settings?section=memory#memory-max_results"'),
        ("\u65f6\u533a", "zh", 'href="/settings?section=general#agent-timezone"'),
        ("port", "en", "<code>dashboard.port</code> = <code>0</code>"),
        ("telegram token", "en", 'href="/settings?section=channels#at-channels-telegram-token"'),
        ("<script>alert(1)</script>", "en", "&lt;script&gt;"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_options_are_found_by_their_words_in_the_pages_language_and_by_name(
    unchanged, wanted, language, found
):
    headers = {"Accept-Language": language}
    url = f"{unchanged.url}/settings"
    async with unchanged.page.get(url, params={"q": wanted}, headers=headers) as answer:
        page = await answer.text()
    assert found in page
    assert "<script>alert" not in page


async def test_no_limit_is_an_empty_field_and_emptying_one_takes_a_limit_away(tmp_path):
    write_file(tmp_path / "confidant.toml", "[limits.each]\nday_usd = 5.0\n")
    async with started(tmp_path) as program:
        page = await program.get("/settings?section=limits")
        assert re.search(r'name="limits.each.day_usd" value="5"', page)
        assert re.search(r'name="limits.each.month_usd" value=""[^>]*placeholder="No limit"', page)
        await change(program, "limits", limits__each__day_usd="", limits__each__month_usd="")
        assert program.app.core.resolver.policy.config.limits.each.day_usd == 0
        assert program.kept == "CONFIDANT_LIMITS__EACH__DAY_USD=0\n"


async def test_the_page_is_made_private_with_a_token_of_its_own_making_and_no_short_one(tmp_path):
    async with started(tmp_path) as program:
        page = await program.get("/settings?section=people")
        assert "Make this page private" in page
        (token,) = re.findall(r'<input id="dashboard-token" name="value" value="([\w-]+)"', page)
        assert len(token) >= 32
        assert token not in await program.get("/settings?section=people")
        for short in ("x" * 15, " " * 40, f"{'x' * 15}          "):
            fields = {"option": "dashboard.token", "value": short}
            status, page = await program.post("/settings/secret", **fields)
            assert status == 422
            assert "at least 16 characters" in page or "Enter a new value" in page
            assert short.strip() == "" or short not in page
        with pytest.raises(ConfigError, match="fewer than 16"):
            load(tmp_path, CONFIDANT_DASHBOARD__TOKEN="x" * 15)
        status, page = await program.post("/settings/secret", option="dashboard.token", value=token)
        assert 'name="token"' in page  # the login page
        assert (await program.post("/login", token=token))[0] == 200
        assert "This page is private" in await program.get("/settings?section=people")


async def test_many_changes_make_no_long_page(tmp_path):
    async with started(tmp_path) as program:
        for number in range(14):
            await change(program, "general", agent__name=f"Heron {number}")
        page = await program.get(ADVANCED)
        assert "4 earlier changes" in page


async def test_names_of_nothing_and_of_what_waits_for_a_start_are_refused(tmp_path):
    async with started(tmp_path) as program:
        for path, fields in (
            ("change", {"section": "nobody"}),
            ("change", {"section": "channels"}),
            ("change", {}),
            ("unset", {"option": "storage.dir"}),
            ("unset", {"option": "x.y"}),
            ("secret", {"option": "storage.url", "value": "postgresql://x"}),
            ("secret", {"option": "__class__", "value": "x"}),
        ):
            assert (await program.post(f"/settings/{path}", **fields))[0] == 400
        status, page = await program.post("/settings/take-back", change="0" * 16)
        assert (status, "cannot be taken back" in page) == (422, True)
        assert (await program.post("/settings/change", section="general", storage__dir="x"))[
            0
        ] == 200
        assert program.kept == ""


async def test_other_lines_stay_and_what_was_changed_again_is_not_taken_back(tmp_path):
    (tmp_path / "data").mkdir()
    mine = "# mine\nexport OTHER='two\nlines' # kept\n\nCONFIDANT_LOG__LEVEL=debug\n"
    (tmp_path / "data" / ".env").write_text(mine)
    async with started(tmp_path) as program:
        await change(
            program, "general", agent__name="Heron\r\n"
        )  # what is around it is nothing of it
        await change(program, "general", agent__name='It\'s \\ "this" #1')
        assert program.kept.startswith(mine)
        assert load(tmp_path).config.agent.name == 'It\'s \\ "this" #1'
        newest, *rest = ids(await program.get(ADVANCED))
        assert rest == []
        await program.post("/settings/take-back", change=newest)
        assert program.app.core.resolver.policy.config.agent.name == "Heron"
        (oldest,) = ids(await program.get(ADVANCED))[-1:]
        await program.post("/settings/unset", option="agent.name")
        assert program.kept == mine
        assert oldest


async def test_no_secret_is_shown_and_a_channels_token_is_replaced_and_taken_back(tmp_path):
    other = "987654321:AAOtherTokenForTestsOnly_0123456789ab"
    async with FakeTelegram(TOKEN, other) as telegram:
        place = {"CONFIDANT_CHANNELS__TELEGRAM__API_ROOT": telegram.url}
        write_file(tmp_path / "data" / ".env", f"TELEGRAM_BOT_TOKEN={TOKEN}\n")
        async with started(tmp_path, **place) as program:
            page = await program.get("/settings?section=channels")
            assert "telegram · token: set" in page
            status, page = await program.post(
                "/settings/secret", option="channels.telegram.token", value=other
            )
            assert status == 200
            telegram.push_text(7, "hello", other)
            await telegram.wait_sent(1, within=30)
            (change_id,) = ids(await program.get(ADVANCED))
            status, page = await program.post("/settings/take-back", change=change_id)
            telegram.push_text(8, "hello", TOKEN)
            await telegram.wait_sent(2, within=30)
            assert TOKEN not in page
            assert other not in page
            await program.post("/settings/unset", option="channels.telegram.token")
            assert list(program.app.core.channels) == ["web"]
            assert program.kept == ""


async def test_another_token_of_the_page_ends_every_session_and_is_not_taken_back(tmp_path):
    old, new = "0123456789abcdef-old", "0123456789abcdef-new"
    write_file(tmp_path / "data" / ".env", f"CONFIDANT_DASHBOARD__TOKEN={old}\n")
    async with started(tmp_path) as program:
        await program.post("/login", token=old)
        socket = await program.page.ws_connect(
            f"{program.url}/chat/ws", headers={"Origin": program.url}
        )
        await socket.send_json({"type": "hello", "version": 1})
        while (await socket.receive_json(timeout=30))["type"] != "history":
            pass
        status, page = await program.post("/settings/secret", option="dashboard.token", value=new)
        assert (status, 'name="token"' in page) == (200, True)  # the login page
        while (await socket.receive(timeout=30)).type is aiohttp.WSMsgType.TEXT:
            pass
        assert socket.closed
        with pytest.raises(aiohttp.WSServerHandshakeError, match="login"):
            await program.page.ws_connect(f"{program.url}/chat/ws", headers={"Origin": program.url})
        assert (await program.post("/login", token=old))[0] == 401
        status, page = await program.post("/login", token=new)
        assert status == 200
        page = await program.get(ADVANCED)
        assert (ids(page), new in page, old in page) == ([], False, False)
        assert old not in (program.folder / "settings-changes.jsonl").read_text()
        assert "<textarea" not in (await program.ask("hello"))["text"]


async def test_what_the_file_says_meanwhile_and_waits_is_marked(tmp_path):
    (tmp_path / "confidant.toml").write_text("[session]\nmax_turns = 30\n")
    async with started(tmp_path) as program:
        assert "confidant.toml:2" in await program.get(ADVANCED)
        (tmp_path / "confidant.toml").write_text("[session]\n\nmax_turns = 90\n")
        await change(program, "general", agent__name="Heron")
        page = await program.get(ADVANCED)
        assert "applies after a restart" in page
        assert "confidant.toml:3" in page
        assert program.app.core.resolver.policy.config.session.max_turns == 30
        (tmp_path / "confidant.toml").write_text("[session]\nmax_turns = 'x'\n")
        fields = {"agent.name": "Eve"}
        status, page = await program.post("/settings/change", section="general", **fields)
        assert (status, "confidant.toml:2" in page) == (422, True)
        assert program.app.core.resolver.policy.config.agent.name == "Heron"


async def no_models() -> Sequence[str]:
    return ()


async def test_where_others_share_the_database_the_page_says_whose_file_it_is(tmp_path):
    async def apply(_found: Config) -> None: ...

    loaded = load(tmp_path)
    settings = ServedSettings(
        Settings(loaded.config), loaded, loaded.plugins, apply, database=cast("Any", object())
    )
    pages = (
        *SettingsPages(settings, no_models).routes(),
        *StartPages(settings, list, TextStoreInMemory(), cast("Any", None)).routes(),
    )
    headers = {"Authorization": f"Bearer {TOKEN_OF_PAGE}", "Accept-Language": "en"}
    async with served(*pages) as url, aiohttp.ClientSession(headers=headers) as client:
        for path in ("settings", "settings/start"):
            async with client.get(f"{url}{path}") as answer:
                assert "data/.env of this node only" in await answer.text()


async def test_a_secret_that_is_kept_counts_also_while_the_database_is_away(tmp_path):
    counts: list[Config] = []

    async def apply(found: Config) -> None:
        counts.append(found)

    class Away:
        async def read(self, _work: object) -> object:
            raise StorageError("away")

        write = read

    loaded = load(tmp_path)
    settings = ServedSettings(
        Settings(loaded.config), loaded, loaded.plugins, apply, database=cast("Any", Away())
    )
    await settings.change({("models", "openai", "api_key"): "sk-1"})
    assert reveal(counts[-1].models.openai.api_key) == "sk-1"
    with pytest.raises(StorageError):  # for all nodes, or not at all
        await settings.change({("agent", "name"): "Heron"})
    assert (len(counts), settings.config.agent.name) == (1, "Confidant")
    assert "Heron" not in (tmp_path / "data" / ".env").read_text()


async def test_a_program_that_was_not_started_from_files_changes_nothing(tmp_path):
    loaded = load(tmp_path)
    settings = ServedSettings(Settings(loaded.config), None, loaded.plugins, AsyncMock())
    with pytest.raises(ConfigError, match="not started from files"):
        await settings.change({("agent", "name"): "Heron"})
    assert await settings.changes() == []


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
    async with beside(folder) as database:
        await database.write(work)


async def test_each_account_says_how_it_is_what_to_do_and_when_it_was_heard_from(tmp_path):
    async with channels(tmp_path) as page:
        shown = await page.shows()
        assert '<span class="state up">connected</span>' in shown
        assert "No messages in the last weeks." in shown
        assert "Nothing is waiting to be sent." in shown
        await page.engine.ask("hello")
        assert "Last message today at 12:00." in await page.shows()
        page.report("work", Health.DOWN, f"No answer {HOSTILE}")
        shown = await page.shows()
        assert '<span class="state down">not connected</span>' in shown
        assert "No answer &#34;&gt;&lt;script&gt;" in shown
        assert "It keeps trying to reconnect." in shown
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
        assert "2 could not be sent. Retried every ten minutes for a week." in shown
        assert "1 was refused" in shown
        assert "1 text waits to be sent." in shown
        assert "secret words" not in shown


async def test_a_channel_looks_at_its_own_set_up_when_it_is_asked_to(tmp_path, monkeypatch):
    looks: list[object] = []

    async def examine(self: InMemoryChannel) -> Sequence[Finding]:
        looks.append(self)
        await asyncio.sleep(0)
        return [
            Finding("ok", "the token belongs to @heron"),
            Finding("error", f"no rights {HOSTILE}", "Give it some.", "work"),
        ]

    async with channels(tmp_path) as page:
        assert await page.does("check", channel="memory") == "checked"
        assert "nothing to check" in await page.shows()
        page.engine.clock.advance(minutes=1)
        monkeypatch.setattr(InMemoryChannel, "examine", examine, raising=False)
        await asyncio.gather(*(page.does("check", channel="memory") for _ in range(3)))
        assert len(looks) == 1
        assert looks[0] is not page.engine.channel
        shown = await page.shows()
        assert "the token belongs to @heron" in shown
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
        assert "No one has spoken to the bot in a room yet." in await page.shows()
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
        assert "It answers everything." in await page.shows()
        assert '<option value="always" selected>' in await page.shows()
        assert await in_the_den(page.engine, "still me?", mentions_bot=False)
        assert await page.does("activation", key=key, activation="") == "room"
        assert '<option value="" selected>' in await page.shows()
        before = len(page.engine.sent_to("den"))
        await page.engine.say("nobody", mentions_bot=False, **DEN)
        await page.engine.ask("are you there?")
        assert len(page.engine.sent_to("den")) == before


async def test_only_a_room_that_is_known_takes_a_choice_that_there_is(tmp_path):
    async with channels(tmp_path) as page:
        await in_the_den(page.engine, "hello")
        await page.engine.ask("hello")
        key = await page.key_of("den")
        for fields in (
            {},
            {"key": key},
            {"key": key, "activation": "never"},
            {"key": "agent:main:memory:group:nowhere", "activation": "always"},
            {"key": "agent:main:memory:dm:ada", "activation": "always"},
            {"key": "\0'; --", "activation": "always"},
        ):
            assert await page.does("activation", **fields) == "gone", fields
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
        assert "It answers everything." in shown
        assert "confidant.toml:12" in shown
        assert ".env:3: ROOMS" in shown
        assert "enabled = <bdi>false</bdi>" in shown
        assert "* (every other room)" in shown
        assert "<script>" not in shown
    async with channels(tmp_path, channels={"memory": {}}) as page:
        assert "It doesn&#39;t talk there" in await page.shows()
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
        core_of(database, config),
        connections=list,
        plugins=plugins,
        examine=examined,
        origins=dict,
        read_books=read_books,
    )
    headers = {"Authorization": f"Bearer {TOKEN_OF_PAGE}"}
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
    assert "Set PIGEON_TOKEN to turn it on" in shown
    assert "Off: its section" in shown
    assert "Check now" not in shown


HOSTILE_NAME = "<img src=x onerror=alert(1)>"
NOTHING_WAITS = [
    f'<th scope="row">{what}</th><td>0</td>'
    for what in ("Unanswered messages", "Waiting to be sent")
]


async def counted(client: aiohttp.ClientSession, url: str) -> str:
    """The page, once the last answer is noted as sent."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with client.get(url) as answer:
                shown = await answer.text()
            if all(each in shown for each in NOTHING_WAITS):
                return shown
            await pause(0.02)


async def test_it_counts_messages_by_channel_and_day_and_says_what_waits(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.housekeeping.FRESH", 0.0)
    clock = FakeClock()
    session = {"reset": {"mode": "none"}}
    async with (
        running(tmp_path, clock=clock, session=session, serves=True) as engine,
        aiohttp.ClientSession() as client,
    ):
        assert engine.app.address is not None
        url = f"{engine.app.address.url}overview"
        async with client.get(url) as answer:
            empty = await answer.text()
        await engine.ask("my secret words")
        await engine.ask("hello", sender=HOSTILE_NAME)
        clock.advance(days=1)
        await engine.ask("hello again")
        shown = await counted(client, url)
        async with client.get(url) as second:
            again = await second.text()
        engine.app.maintenance.health.held = lambda: 7.4
        async with client.get(url, headers={"Accept-Language": "zh"}) as answer:
            chinese = await answer.text()
        clock.advance(days=DAYS + 1)
        async with client.get(url) as answer:
            later = await answer.text()
    assert "Messages by channel" not in empty
    assert '<th scope="row">Unanswered messages</th><td>0</td>' in empty
    assert "<title>2026-11-21\nmemory: 2</title>" in shown
    assert "<title>2026-11-22\nmemory: 1</title>" in shown
    assert shown == again
    assert '<th scope="row" class="part">replies</th><td><span class="state up">OK</span>' in empty
    assert "<h1>动态</h1>" in chinese
    assert '<span class="state degraded">部分受限</span> <span lang="zh">有一步操作' in chinese
    assert "loop.held" in chinese
    assert "Messages by channel" not in later
    for page in (shown, chinese):
        assert "secret" not in page
        assert "<img" not in page


async def test_half_and_nine_of_ten_are_those_of_the_days_answers(tmp_path):
    async with running(tmp_path) as engine:
        await engine.ask("hello")
    async with beside(tmp_path) as database:
        for state, count in (("done", 10), ("refused", 5), ("aside", 1)):
            for number in range(count):
                row = (f"{state}{number}", state, 1_000, 1_000 + (number + 1) * 100)
                await database.write(
                    lambda tx, row=row: tx.execute(
                        "INSERT INTO inbox(channel, account, chat, thread, message_id, state, key, "
                        "body, received_at, done_at) VALUES ('t', '', '', '', ?, ?, '', '', ?, ?)",
                        row,
                    )
                )
        found = await database.read(lambda tx: inbox.traffic(tx, 1_000, 5_000))
        assert found == Traffic({"t": 11}, 500, 900)
        assert await database.read(lambda tx: inbox.traffic(tx, 0, 1_000)) == Traffic(
            {}, None, None
        )
        plan = query(
            tmp_path,
            "EXPLAIN QUERY PLAN SELECT channel, count(*) FROM inbox WHERE state <> 'waiting' "
            "AND done_at >= 1 AND done_at < 2 AND state IN ('done', 'aside') GROUP BY channel",
        )
        assert "inbox_done" in str(plan)


async def test_growth_keeps_one_line_a_day_and_not_for_ever(tmp_path):
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as engine:
        await engine.ask("hello")
    database = await SqliteDatabase.open(tmp_path / "confidant.db")

    class Status:
        files, chunks = 3, 12

    class Index:
        async def status(self) -> Status:
            return Status()

    class Memory:
        index = Index()

    try:
        growth = MemoryGrowth(Memory(), database, clock)  # type: ignore[arg-type]
        await growth.note()
        Status.chunks = 14
        await growth.note()
        assert await growth.days() == {"2026-11-21": (3, 14)}
        kept = MetaStore(database, clock)
        for number in range(GROWTH_KEPT):
            await kept.set(f"growth:2024-{number:04}", "1 1")
        clock.advance(days=1)
        await growth.note()
        days = await growth.days()
        assert len(days) == GROWTH_KEPT
        assert list(days)[-2:] == ["2026-11-21", "2026-11-22"]
    finally:
        await database.close()
