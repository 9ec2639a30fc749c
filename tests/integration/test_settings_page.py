"""Every option in the page: what counts, what may change while running, and the way back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from bot.channel import reveal
from bot.config import Config
from bot.dashboard.settings.options import groups
from bot.dashboard.settings.pages import SettingsPages
from bot.dashboard.settings.served import ServedSettings
from bot.dashboard.settings.start import StartPages
from bot.errors import ConfigError, StorageError
from bot.settings.changes import ChangeableSettings
from bot.settings.live import is_live
from tests.fakes.started import Started, load, started
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.integration.test_page_visitors import TOKEN as TOKEN_OF_PAGE
from tests.integration.test_page_visitors import served

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


GROUPS = groups(Config())
OFFERED = frozenset(key for group in GROUPS for key in group.keys)


def ids(page: str) -> list[str]:
    """The changes that can be taken back, the newest first."""
    return re.findall(r'name="change" value="(\w+)"', page)


async def change(program: Started, group: str, **fields: str) -> str:
    dotted = {name.replace("__", "."): value for name, value in fields.items()}
    status, page = await program.post("/settings/change", group=group, **dotted)
    assert status == 200, page
    return page


def test_what_is_offered_counts_at_once_and_each_has_a_value_here():
    assert {".".join(key) for key in OFFERED} == set(CHANGED)
    assert all(is_live(key) for key in OFFERED)


async def test_each_option_is_kept_read_back_and_taken_back(tmp_path: Path):
    async with started(tmp_path) as program:
        before = program.app.resolver.policy.config
        for group in GROUPS:
            fields = {".".join(key): CHANGED[".".join(key)] for key in group.keys}
            await change(program, group.name, **fields)
        page = await program.get("/settings")
        now = program.app.resolver.policy.config
        fresh = load(tmp_path).config
        for key in OFFERED:
            found, was, again = now, before, fresh
            for name in key:
                found, was, again = (getattr(each, name) for each in (found, was, again))
            assert found != was, key
            assert found == again, key
            assert f"CONFIDANT_{'__'.join(key).upper()}=" in program.kept, key
        assert "set by data/.env:1: CONFIDANT_AGENT__NAME" in page
        assert len(ids(page)) == len(GROUPS)
        for each in ids(page):
            status, page = await program.post("/settings/take-back", change=each)
            assert status == 200
        assert program.app.resolver.policy.config.agent == before.agent
        assert program.kept.strip() == ""
        assert load(tmp_path).config.limits == before.limits


async def test_a_limit_and_a_notice_begin_to_hold(tmp_path: Path):
    async with started(tmp_path) as program:
        await change(program, "window", context__notices="off")
        words = (await program.ask("/usage"))["text"]
        await change(program, "each", limits__each__day_usd="12.5")
        assert "12.50" not in words
        assert "12.50" in (await program.ask("/usage", "m2"))["text"]
        await change(program, "bot", agent__language="zh")
        assert "今天" in (await program.ask("/usage", "m3"))["text"]


@pytest.mark.parametrize(
    ("group", "name", "value", "said"),
    [
        ("reset", "session.reset.at_hour", "24", "it must be at most 23"),
        ("reset", "session.reset.at_hour", "four", "is not a whole number"),
        ("reset", "session.reset.mode", "idle", "needs idle_minutes above 0"),
        ("bot", "agent.timezone", "Europe/Berlinn", "did you mean &#34;Europe/Berlin&#34;?"),
        ("bot", "agent.name", "Eve\nCONFIDANT_DASHBOARD__HOST=0.0.0.0", "one line of text"),
        ("bot", "agent.name", "Eve\r\n", ""),
        ("bot", "agent.name", "x" * 5_000, "too long"),
        ("bot", "session.owner_name", "x" * 81, "too long: it may have 80 characters"),
        ("bot", "session.owner_name", "Ada\x07", "without control characters"),
        ("bot", "session.owner_name", "Ada\u202e", "without control characters"),
        ("models", "agent.model", "nowhere/x", "there is no [models.nowhere]"),
        ("window", "context.context_tokens", "1", "it must be at least 16000"),
        ("window", "context.notice_percent", "70, many", "is not a whole number"),
        ("each", "limits.each.day_usd", "-1", "it must be at least 0"),
        ("each", "limits.each.day_usd", "nan", "finite number"),
    ],
)
async def test_a_wrong_value_is_told_in_the_words_of_the_start_and_kept_in_its_field(
    tmp_path: Path, group: str, name: str, value: str, said: str
):
    async with started(tmp_path) as program:
        status, page = await program.post("/settings/change", group=group, **{name: value})
        if not said:  # what is around a value is nothing of it
            assert (status, "CONFIDANT_AGENT__NAME=Eve\n") == (200, program.kept)
            return
        assert (status, said in page) == (422, True), page
        assert program.kept == ""
        if "\n" not in value and name != "session.reset.mode":
            assert f'value="{value}"' in page
        assert "CONFIDANT_DASHBOARD__HOST" not in program.kept


async def test_names_of_nothing_and_of_what_waits_for_a_start_are_refused(tmp_path: Path):
    async with started(tmp_path) as program:
        for path, fields in (
            ("change", {"group": "nobody"}),
            ("unset", {"option": "storage.dir"}),
            ("unset", {"option": "x.y"}),
            ("secret", {"option": "storage.url", "value": "postgresql://x"}),
            ("secret", {"option": "__class__", "value": "x"}),
        ):
            assert (await program.post(f"/settings/{path}", **fields))[0] == 400
        status, page = await program.post("/settings/take-back", change="0" * 16)
        assert (status, "cannot be taken back" in page) == (422, True)
        assert (await program.post("/settings/change", group="bot", storage__dir="x"))[0] == 200
        assert program.kept == ""


async def test_other_lines_stay_and_what_was_changed_again_is_not_taken_back(tmp_path: Path):
    (tmp_path / "data").mkdir()
    mine = "# mine\nexport OTHER='two\nlines' # kept\n\nCONFIDANT_LOG__LEVEL=debug\n"
    (tmp_path / "data" / ".env").write_text(mine)
    async with started(tmp_path) as program:
        await change(program, "bot", agent__name="Heron")
        await change(program, "bot", agent__name='It\'s \\ "this" #1')
        assert program.kept.startswith(mine)
        assert load(tmp_path).config.agent.name == 'It\'s \\ "this" #1'
        newest, *rest = ids(await program.get("/settings"))
        assert rest == []
        await program.post("/settings/take-back", change=newest)
        assert program.app.resolver.policy.config.agent.name == "Heron"
        (oldest,) = ids(await program.get("/settings"))[-1:]
        await program.post("/settings/unset", option="agent.name")
        assert program.kept == mine
        assert oldest


async def test_no_secret_is_shown_and_a_channels_token_is_replaced_and_taken_back(tmp_path: Path):
    other = "987654321:AAOtherTokenForTestsOnly_0123456789ab"
    async with FakeTelegram(TOKEN, other) as telegram:
        place = {"CONFIDANT_CHANNELS__TELEGRAM__API_ROOT": telegram.url}
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / ".env").write_text(f"TELEGRAM_BOT_TOKEN={TOKEN}\n")
        async with started(tmp_path, **place) as program:
            page = await program.get("/settings")
            assert "<code>channels.telegram.token</code>: set" in page
            status, page = await program.post(
                "/settings/secret", option="channels.telegram.token", value=other
            )
            assert status == 200
            telegram.push_text(7, "hello", other)
            await telegram.wait_sent(1, within=30)
            (change_id,) = ids(page)
            status, page = await program.post("/settings/take-back", change=change_id)
            telegram.push_text(8, "hello", TOKEN)
            await telegram.wait_sent(2, within=30)
            assert TOKEN not in page
            assert other not in page
            await program.post("/settings/unset", option="channels.telegram.token")
            assert list(program.app.channels) == ["web"]
            assert program.kept == ""


async def test_another_token_of_the_page_ends_every_session_and_is_not_taken_back(tmp_path: Path):
    old, new = "0123456789abcdef-old", "0123456789abcdef-new"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".env").write_text(f"CONFIDANT_DASHBOARD__TOKEN={old}\n")
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
        page = await program.get("/settings")
        assert (ids(page), new in page, old in page) == ([], False, False)
        assert old not in (program.folder / "settings-changes.jsonl").read_text()
        assert "<textarea" not in (await program.ask("hello"))["text"]


async def test_what_the_file_says_meanwhile_and_waits_is_marked(tmp_path: Path):
    (tmp_path / "confidant.toml").write_text("[session]\nmax_turns = 30\n")
    async with started(tmp_path) as program:
        assert "confidant.toml:2" in await program.get("/settings")
        (tmp_path / "confidant.toml").write_text("[session]\n\nmax_turns = 90\n")
        page = await change(program, "bot", agent__name="Heron")
        assert "it counts after the next start" in page
        assert "confidant.toml:3" in page
        assert program.app.resolver.policy.config.session.max_turns == 30
        (tmp_path / "confidant.toml").write_text("[session]\nmax_turns = 'x'\n")
        status, page = await program.post("/settings/change", group="bot", **{"agent.name": "Eve"})
        assert (status, "confidant.toml:2" in page) == (422, True)
        assert program.app.resolver.policy.config.agent.name == "Heron"


async def test_where_others_share_the_database_the_page_says_whose_file_it_is(tmp_path: Path):
    async def apply(found: Config) -> Config:
        return found

    loaded = load(tmp_path)
    kept = ChangeableSettings(loaded.config, loaded)
    settings = ServedSettings(kept, loaded.plugins, apply, cast("Any", object()))
    pages = (*SettingsPages(settings).routes(), *StartPages(settings, list).routes())
    headers = {"Authorization": f"Bearer {TOKEN_OF_PAGE}", "Accept-Language": "en"}
    async with served(*pages) as url, aiohttp.ClientSession(headers=headers) as client:
        for path in ("settings", "settings/start"):
            async with client.get(f"{url}{path}") as answer:
                assert "data/.env of this node only" in await answer.text()


async def test_a_secret_that_is_kept_counts_also_while_the_database_is_away(tmp_path: Path):
    counts: list[Config] = []

    async def apply(found: Config) -> Config:
        counts.append(found)
        return found

    class Away:
        async def read(self, _work: object) -> object:
            raise StorageError("away")

        write = read

    loaded = load(tmp_path)
    kept = ChangeableSettings(loaded.config, loaded)
    settings = ServedSettings(kept, loaded.plugins, apply, cast("Any", Away()))
    await settings.change({("models", "openai", "api_key"): "sk-1"})
    assert reveal(counts[-1].models.openai.api_key) == "sk-1"
    with pytest.raises(StorageError):  # for all nodes, or not at all
        await settings.change({("agent", "name"): "Heron"})
    assert (len(counts), settings.config.agent.name) == (1, "Confidant")
    assert "Heron" not in (tmp_path / "data" / ".env").read_text()


async def test_a_program_that_was_not_started_from_files_changes_nothing(tmp_path: Path):
    kept = ChangeableSettings(load(tmp_path).config, None)
    with pytest.raises(ConfigError, match="not started from files"):
        kept.change({("agent", "name"): "Heron"})
    assert kept.changes() == []
