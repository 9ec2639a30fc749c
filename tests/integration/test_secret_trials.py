"""Channels' secrets are tried before they are kept, and the page says what was checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from adapters.discord.channel import Discord
from adapters.nextcloud_talk.channel import NextcloudTalk
from adapters.telegram.channel import Telegram
from bot.channel import Trial, TriesSecrets
from bot.dashboard.settings import served
from tests.fakes import discord_channel, nextcloud, telegram_channel
from tests.fakes.discord import FakeDiscord
from tests.fakes.nextcloud import SECRET, WITH_API_USER, FakeBot, FakeNextcloud, Fault
from tests.fakes.ports import free_port
from tests.fakes.started import Started, started
from tests.fakes.telegram import FakeTelegram

OTHER = "another-secret-that-is-long-enough-for-talk-0123"
ROOM = {"n3xtc10ud": {}}
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[str]:
    """A server that answers everything in its own way; its address."""
    runner = web.ServerRunner(web.Server(handler, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def page_of_words(_request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="<h1>It works!</h1>", content_type="text/html")


async def a_list(_request: web.BaseRequest) -> web.StreamResponse:
    return web.json_response(["<script>", {"ocs": 7}])


async def nested(_request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="[" * 50_000, content_type="application/json")


async def endless(request: web.BaseRequest) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(b" " * (1 << 20))


async def broken(_request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(status=500, text="Bad token: do not show")


def of_discord(fake: FakeDiscord | None, **values: Any) -> TriesSecrets:
    return Discord(discord_channel.settings(fake or FakeDiscord(), **values))


def of_talk(fake: FakeNextcloud, **values: Any) -> TriesSecrets:
    return NextcloudTalk(nextcloud.settings(fake, free_port(), **values))


def elsewhere(name: str, url: str) -> tuple[TriesSecrets, str]:
    """A channel whose platform is at some other server, and the option of its secret."""
    if name == "discord":
        return of_discord(None, api_root=url, gateway_url="ws://127.0.0.1:1/"), "token"
    return of_talk(FakeNextcloud(), base_url=url, groups=ROOM), "bot_secret"


# --- what platforms say ---------------------------------------------------------------------------


async def test_discord_says_whose_a_token_is_and_which_it_does_not_know():
    async with FakeDiscord() as fake:
        assert await of_discord(fake).tried("token") == Trial("known", "Confidant")
        assert await of_discord(fake, token="wrong").tried("token") == Trial("refused")
        assert await of_discord(fake, token="t\u00f6k\u6587").tried("token") == Trial("refused")
        fake.fail("GET /users/@me", status=429, retry_after=3.0)
        assert await of_discord(fake).tried("token") == Trial("busy")
        assert {call.method for call in fake.calls} == {"GET"}


async def test_telegram_is_asked_about_its_token_and_nobody_about_a_webhooks_secret():
    async with FakeTelegram() as fake:
        channel = Telegram(telegram_channel.settings(fake))
        assert await channel.tried("token") == Trial("known", "@confidant_bot")
        assert await channel.tried("webhook_secret") == Trial("untried")
        wrong = Telegram(telegram_channel.settings(fake, token="1:AAnobodys"))
        assert await wrong.tried("token") == Trial("refused")


@pytest.mark.parametrize("abilities", [["bots-v1", "bot-features-api"], ["bots-v1"]])
async def test_talk_takes_a_signed_call_where_the_bot_is_known(abilities: list[str]):
    async with FakeNextcloud(abilities=abilities) as fake:
        good, where = of_talk(fake, groups=ROOM), fake.url
        assert await good.tried("bot_secret") == Trial("signed", where)
        assert await of_talk(fake).tried("bot_secret") == Trial("server", where)
        assert await of_talk(fake, **WITH_API_USER).tried("bot_secret") == Trial("signed", where)
        other = of_talk(fake, bot_secret=OTHER, groups=ROOM)
        assert await other.tried("bot_secret") == Trial("unsigned", where)
        short = of_talk(fake, bot_secret="x" * 39)
        assert await short.tried("bot_secret") == Trial("malformed")
        assert (fake.posted, fake.reactions) == ([], [])


async def test_talks_password_is_tried_by_logging_in():
    async with FakeNextcloud() as fake:
        assert await of_talk(fake, **WITH_API_USER).tried("api_password") == Trial(
            "known", "confidant"
        )
        wrong = of_talk(fake, **WITH_API_USER | {"api_password": "no"})
        assert await wrong.tried("api_password") == Trial("refused")
        assert await of_talk(fake).tried("api_password") == Trial("untried")


@pytest.mark.parametrize(
    ("status", "outcome"), [(503, "closed"), (429, "busy"), (404, "strange"), (301, "moved")]
)
async def test_a_nextcloud_that_does_not_tell_is_said_as_what_it_is(status: int, outcome: str):
    async with FakeNextcloud() as fake:
        fake.fail_next("/capabilities", Fault(status))
        assert (await of_talk(fake).tried("bot_secret")).outcome == outcome
        fake.abilities = []
        assert (await of_talk(fake).tried("bot_secret")).outcome == "lacking"


# --- hostile and wrong servers --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["discord", "talk"])
@pytest.mark.parametrize("handler", [page_of_words, a_list, nested, broken, endless])
async def test_what_answers_as_something_else_is_strange(name: str, handler: Handler):
    async with answering(handler) as url:
        channel, option = elsewhere(name, url)
        assert await channel.tried(option) == Trial("strange")


@pytest.mark.parametrize("name", ["discord", "talk"])
async def test_no_secret_follows_a_redirect(name: str):
    asked: list[web.BaseRequest] = []

    async def other(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request)
        return web.json_response({"id": "1", "username": "thief"})

    async with answering(other) as thief:

        async def leads_away(_request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=302, headers={"Location": f"{thief}/x"})

        async with answering(leads_away) as url:
            channel, option = elsewhere(name, url)
            assert await channel.tried(option) == Trial("moved")
    assert asked == []


@pytest.mark.parametrize("name", ["discord", "talk"])
async def test_where_nothing_listens_it_cannot_be_reached(name: str):
    channel, option = elsewhere(name, f"http://127.0.0.1:{free_port()}")
    assert await channel.tried(option) == Trial("unreachable")


# --- in the page ----------------------------------------------------------------------------------


async def replace(program: Started, option: str, value: str) -> tuple[int, str]:
    return await program.post("/settings/secret", option=option, value=value)


async def test_discords_token_is_kept_once_discord_knows_it(tmp_path: Path):
    async with FakeDiscord() as fake:
        place = {
            "CONFIDANT_CHANNELS__DISCORD__API_ROOT": fake.api_root,
            "CONFIDANT_CHANNELS__DISCORD__GATEWAY_URL": fake.gateway_url,
        }
        async with started(tmp_path, **place) as program:
            status, page = await replace(program, "channels.discord.token", "wrong.token")
            assert (status, "Discord does not know this token" in page) == (422, True)
            assert ("Nothing was changed." in page, "wrong.token" in page) == (True, False)
            assert (program.kept, list(program.app.channels)) == ("", ["web"])
            status, page = await replace(program, "channels.discord.token", fake.token)
            assert (status, "Discord says that it belongs to Confidant." in page) == (200, True)
            assert fake.token in program.kept
            assert "discord" in program.app.channels
            _, page = await program.post("/settings/unset", option="channels.discord.token")
            assert ("belongs to Confidant" in page, program.kept) == (False, "")


async def test_what_was_not_checked_of_talks_secret_is_said(tmp_path: Path):
    async with FakeNextcloud() as fake:
        fake.bots.append(FakeBot(SECRET, "http://127.0.0.1:1/"))
        place = {"CONFIDANT_CHANNELS__NEXTCLOUD_TALK__WEBHOOK_PORT": str(free_port())}
        option = "channels.nextcloud_talk.bot_secret"
        async with started(tmp_path, **place) as program:
            status, page = await replace(program, option, SECRET)
            assert (status, "Not checked: Nextcloud Talk cannot be asked" in page) == (200, True)
        place["CONFIDANT_CHANNELS__NEXTCLOUD_TALK__BASE_URL"] = fake.url
        async with started(tmp_path, **place) as program:
            status, page = await replace(program, option, OTHER)
            assert (status, "Not checked: the secret itself." in page) == (200, True)
            assert OTHER in program.kept
            status, page = await replace(program, option, "x" * 30)
            assert (status, "takes 40 to 128 characters" in page) == (422, True)
            assert OTHER in program.kept


async def test_a_platform_that_never_answers_is_given_up_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def silent(_request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(served, "TRIAL_SECONDS", 0.05)
    async with answering(silent) as url:
        place = {"CONFIDANT_CHANNELS__DISCORD__API_ROOT": url}
        async with started(tmp_path, **place) as program:
            status, page = await replace(program, "channels.discord.token", "any.token")
            assert (status, "did not answer in time" in page) == (422, True)
            assert program.kept == ""


async def test_a_bots_name_is_shown_as_text(tmp_path: Path):
    async def named(_request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"id": "1", "username": "<b>x</b>\n[y](z) {0} " + "n" * 9_000})

    async with answering(named) as url:
        place = {
            "CONFIDANT_CHANNELS__DISCORD__API_ROOT": url,
            "CONFIDANT_CHANNELS__DISCORD__GATEWAY_URL": "ws://127.0.0.1:1/",
        }
        async with started(tmp_path, **place) as program:
            status, page = await replace(program, "channels.discord.token", "any.token")
            assert (status, "&lt;b&gt;x&lt;/b&gt; (y)" in page) == (200, True)
            assert "n" * 500 not in page
