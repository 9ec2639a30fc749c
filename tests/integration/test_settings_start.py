"""Quick setup in the page: a model, Telegram and names, tried at once, used without a restart."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from adapters.discord.channel import Discord
from adapters.nextcloud_talk.channel import NextcloudTalk
from adapters.telegram.channel import Telegram
from adapters.telegram.webhook import SECRET_HEADER
from bot.channel import Channel, Trial
from bot.cluster import census, visitor
from bot.cluster.census import Census, NodeFacts, NodeStatus, mark_of
from bot.push.pusher import PUBLIC
from bot.settings import changes
from bot.storage import Database
from bot.testing import ScriptedModel
from tests.fakes import (
    completions_api,
    discord_channel,
    messages_api,
    nextcloud,
    synapse,
    telegram_channel,
)
from tests.fakes.discord import FakeDiscord
from tests.fakes.nextcloud import SECRET, WITH_API_USER, FakeBot, FakeNextcloud, Fault
from tests.fakes.page_nodes import on_postgres, page_node
from tests.fakes.page_people import TOKEN as TOKEN_OF_PAGE
from tests.fakes.ports import free_port
from tests.fakes.started import Started, load, started, unchanged
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.support import PATIENCE, pause

__all__ = ["unchanged"]

KEY = "sk-test-0123456789abcdef"


def lists_models(*names: str) -> dict[str, object]:
    return {"/v1/models": lambda _body: completions_api.models(*names)}


async def test_a_key_of_openai_is_tried_kept_and_answers_the_next_message(tmp_path):
    async with completions_api.running(completions_api.says("I am the model.")) as api:
        api.pages |= lists_models("gpt-one", "gpt-two")
        place = {"CONFIDANT_MODELS__OPENAI__BASE_URL": api.base_url}
        async with started(tmp_path, **place) as program:
            before = await program.ask("hello")
            assert "I am the model." not in before["text"]
            status, page = await program.post(
                "/settings/start/model", service="openai", key=KEY, address=""
            )
            assert (status, "gpt-two" in page, KEY in page) == (200, True, False)
            assert program.kept == ""
            status, page = await program.post("/settings/start/use", model="gpt-two")
            assert (status, "openai/gpt-two" in page, KEY in page) == (200, True, False)
            after = await program.ask("hello", "m2")
            assert "I am the model." in after["text"]
            assert api.headers[-1]["Authorization"] == f"Bearer {KEY}"
            mode = stat.S_IMODE((program.folder / ".env").stat().st_mode)
            assert (mode, KEY in program.kept) == (0o600, True)
    again = load(tmp_path, **place).config
    assert again.agent.model == "openai/gpt-two"
    assert again.models.openai.api_key is not None


async def test_a_key_of_anthropic_answers_while_a_turn_of_the_old_one_goes_on(tmp_path):
    gate = asyncio.Event()

    async def late(request):
        await gate.wait()
        return await messages_api.says("The old one.")(request)

    models = {"claude-sonnet-5-5": messages_api.model_info("claude-sonnet-5-5", 200_000, 8_000)}
    async with (
        messages_api.running(late) as old,
        messages_api.running(messages_api.says("The new one.")) as new,
    ):
        old.models, new.models = models, models
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / ".env").write_text(
            f"# mine\nCONFIDANT_MODELS__ANTHROPIC__BASE_URL={old.base_url}\n"
        )
        async with started(tmp_path) as program:
            first = asyncio.create_task(program.ask("hello"))
            async with asyncio.timeout(30):
                while not old.bodies:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            text = (program.folder / ".env").read_text()
            (program.folder / ".env").write_text(text.replace(old.base_url, new.base_url))
            status, _ = await program.post("/settings/start/model", service="anthropic", key=KEY)
            assert status == 200
            status, _ = await program.post("/settings/start/use", model="claude-sonnet-5-5")
            assert status == 200
            gate.set()
            assert "The old one." in (await first)["text"]
            assert "The new one." in (await program.ask("and now?", "m2"))["text"]
            assert new.headers[-1]["x-api-key"] == KEY
            assert program.kept.startswith("# mine\n")


async def test_an_address_is_asked_as_an_ollama_is_and_needs_no_key(tmp_path):
    async with completions_api.running(completions_api.says("Hi from here.")) as api:
        api.pages |= completions_api.ollama(32_768)
        async with started(tmp_path) as program:
            status, page = await program.post(
                "/settings/start/model", service="address", key="", address=api.root
            )
            assert (status, "qwen3" in page) == (200, True)
            status, _ = await program.post("/settings/start/use", model="qwen3:latest")
            for number in range(2):  # also once its window is known
                assert "Hi from here." in (await program.ask("hello", f"m{number}"))["text"]
            assert f"BASE_URL={api.root}\n" in program.kept
            assert api.bodies[-1]["model"] == "qwen3:latest-ctx32768"


async def test_a_model_whose_window_is_too_small_and_stays_so_is_not_taken(tmp_path):
    async with completions_api.running(completions_api.says("Hi.")) as api:
        small = completions_api.models({"id": "small", "max_model_len": 2_048})
        api.pages["/v1/models"] = lambda _body: small
        async with started(tmp_path) as program:
            await program.post("/settings/start/model", service="address", address=api.root)
            status, page = await program.post("/settings/start/use", model="small")
            assert (status, "fewer than 4 000 tokens" in page) == (422, True)
            assert program.kept == ""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"service": "openai", "key": ""}, "Enter the key."),
        ({"service": "address", "address": ""}, "Enter the address"),
        ({"service": "nobody", "key": KEY}, "Choose where"),
        ({"service": "openai", "key": f"{KEY}\nCONFIDANT_AGENT__NAME=Eve"}, "one line of text"),
        ({"service": "openai", "key": f"{KEY}\x1b[31m"}, "one line of text"),
        ({"service": "openai", "key": "k" * 5_000}, "too long"),
        ({"service": "openai", "key": "file:/etc/passwd"}, "name of a file"),
        ({"service": "address", "address": "ftp://example.org"}, "is not an address"),
        ({"service": "address", "address": "http://[::1"}, "is not an address"),
        ({"service": "address", "address": "http://x:99999"}, "is not an address"),
        ({"service": "address", "address": "<script>alert(1)</script>"}, "Nothing answers"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_what_cannot_be_used_is_said_and_nothing_is_written(unchanged, fields, said):
    status, page = await unchanged.post("/settings/start/model", **fields)
    assert (status, said in page) == (422, True), page
    assert "<script>" not in page
    assert KEY not in page
    assert unchanged.kept == ""


async def test_a_refused_key_and_a_dead_address_are_told_apart(tmp_path):
    async with completions_api.running() as api:
        refused = {"error": {"message": "no", "code": "invalid_api_key"}}
        api.pages["/v1/models"] = lambda _body: completions_api.web.json_response(
            refused, status=401
        )
        async with started(tmp_path, CONFIDANT_MODELS__OPENAI__BASE_URL=api.base_url) as program:
            _, page = await program.post("/settings/start/model", service="openai", key=KEY)
            assert "This key was rejected." in page
            _, page = await program.post(
                "/settings/start/model", service="address", address="http://127.0.0.1:9/v1"
            )
            assert "Nothing answers at this address" in page
            assert 'value="http://127.0.0.1:9/v1"' in page
            _, page = await program.post(
                "/settings/start/model", service="address", address=f"{api.root}/elsewhere"
            )
            assert "it lists no models" in page
            assert program.kept == ""


# --- Telegram -------------------------------------------------------------------------------------


async def test_a_token_begins_to_work_and_another_one_takes_its_place(tmp_path):
    tokens = (TOKEN, "987654321:AAOtherTokenForTestsOnly_0123456789ab")
    async with FakeTelegram(*tokens) as telegram:
        place = {"CONFIDANT_CHANNELS__TELEGRAM__API_ROOT": telegram.url}
        async with started(tmp_path, **place) as program:
            for number, token in enumerate(tokens):
                status, page = await program.post("/settings/start/telegram", token=token)
                name = telegram.bots[token].username
                assert (status, f"@{name}" in page, token in page) == (200, True, False)
                telegram.push_text(7 + number, "hello", token)
                sent = await telegram.wait_sent(number + 1, within=30)
                assert "code" in sent[-1].text.lower()
            assert tokens[0] not in program.kept
            assert [key[0] for key in program.app.core.channels.items()] == ["web", "telegram"]
    found = load(tmp_path, **place).config.channels.get("telegram")
    assert found.token.get_secret_value() == tokens[1]  # type: ignore[attr-defined]


async def test_a_token_nobody_knows_is_refused_and_not_written(tmp_path):
    async with FakeTelegram() as telegram:
        place = {"CONFIDANT_CHANNELS__TELEGRAM__API_ROOT": telegram.url}
        async with started(tmp_path, **place) as program:
            unknown = "111:AAnobodys"
            status, page = await program.post("/settings/start/telegram", token=unknown)
            assert (status, "rejected this token" in page) == (422, True)
            assert (unknown in page, program.kept) == (False, "")
        async with started(
            tmp_path, CONFIDANT_CHANNELS__TELEGRAM__API_ROOT="http://127.0.0.1:9"
        ) as program:
            _, page = await program.post("/settings/start/telegram", token=TOKEN)
            assert "can&#39;t be reached" in page


# --- names, and files that cannot be written ------------------------------------------------------


async def test_who_is_who_counts_at_once_and_a_wrong_zone_keeps_what_was_typed(tmp_path):
    async with started(tmp_path) as program:
        status, page = await program.post(
            "/settings/start/self", name='<b>"Heron"', timezone="Europe/Berlin", language="zh"
        )
        assert (status, "<b>" in page) == (200, False)
        async with program.page.get(f"{program.url}/api/ways") as answer:
            assert (await answer.json())["bot"] == '<b>"Heron"'

        policy = program.app.core.resolver.policy
        assert (str(policy.zone), policy.config.agent.language) == ("Europe/Berlin", "zh")
        status, page = await program.post(
            "/settings/start/self", name="Heron", timezone="Europe/Berlinn", language="en"
        )
        assert (status, "例如 Europe/Berlin。" in page) == (422, True)
        assert 'value="Heron"' in page
        assert 'value="Europe/Berlinn"' in page
        assert load(tmp_path).config.agent.name == '<b>"Heron"'


async def test_what_the_owner_is_called_is_kept_shown_as_it_is_and_taken_out_again(tmp_path):
    name = '<b>Ada</b> **"'

    async def greeted(program: Started) -> str:
        async with program.page.get(f"{program.url}/api/ways") as answer:
            return (await answer.json())["called"]

    async with started(tmp_path) as program:
        assert await greeted(program) == ""
        assert "is called" not in await program.get("/people")
        status, page = await program.post("/settings/start/self", owner_name=name)
        assert (status, "<b>" in page) == (200, False)
        assert "Saved. In effect now." in page
        assert "Saved. In effect now." not in await program.get("/settings/start")
        assert await greeted(program) == name
        people = await program.get("/people")
        assert "is called &lt;b&gt;Ada&lt;/b&gt; **&#34;" in people
        assert "data/.env:1: CONFIDANT_SESSION__OWNER_NAME" in people
        assert load(tmp_path).config.session.owner_name == name
        status, page = await program.post("/settings/start/self", owner_name="x" * 81)
        assert (status, "at most 80 characters" in page) == (422, True)
        assert await greeted(program) == name
        await program.post("/settings/start/self", owner_name="")
        assert (await greeted(program), program.kept) == ("", "")


async def test_a_file_that_cannot_be_written_is_told_and_the_key_waits_for_another_try(
    tmp_path, monkeypatch
):
    async with completions_api.running(completions_api.says("Hello.")) as api:
        api.pages |= lists_models("gpt-one")
        place = {"CONFIDANT_MODELS__OPENAI__BASE_URL": api.base_url}
        async with started(tmp_path, **place) as program:
            await program.post("/settings/start/model", service="openai", key=KEY)
            with monkeypatch.context() as patched:
                patched.setattr("bot.settings.sources.files.put", refuse)
                status, page = await program.post("/settings/start/use", model="gpt-one")
            assert (status, "cannot be written: Read-only file system" in page) == (422, True)
            assert "gpt-one" in page
            status, page = await program.post("/settings/start/use", model="gpt-one")
            assert (status, "openai/gpt-one is connected" in page) == (200, True)


async def test_what_the_environment_sets_is_not_changed_here(tmp_path):
    async with started(tmp_path, CONFIDANT_AGENT__NAME="Crane") as program:
        status, page = await program.post("/settings/start/self", name="Heron")
        assert (status, "set by CONFIDANT_AGENT__NAME" in page) == (422, True)
        assert program.kept == ""


def refuse(*_: object) -> int:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


OTHER_SECRET = "another-secret-that-is-long-enough-for-talk-0123"
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


def of_discord(fake: FakeDiscord | None, **values: Any) -> Channel:
    return Discord(discord_channel.settings(fake or FakeDiscord(), **values))


def of_talk(fake: FakeNextcloud, **values: Any) -> Channel:
    return NextcloudTalk(nextcloud.settings(fake, free_port(), **values))


def elsewhere(name: str, url: str) -> tuple[Channel, str]:
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
async def test_talk_takes_a_signed_call_where_the_bot_is_known(abilities):
    async with FakeNextcloud(abilities=abilities) as fake:
        good, where = of_talk(fake, groups=ROOM), fake.url
        assert await good.tried("bot_secret") == Trial("signed", where)
        assert await of_talk(fake).tried("bot_secret") == Trial("server", where)
        assert await of_talk(fake, **WITH_API_USER).tried("bot_secret") == Trial("signed", where)
        other = of_talk(fake, bot_secret=OTHER_SECRET, groups=ROOM)
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
async def test_a_nextcloud_that_does_not_tell_is_said_as_what_it_is(status, outcome):
    async with FakeNextcloud() as fake:
        fake.fail_next("/capabilities", Fault(status))
        assert (await of_talk(fake).tried("bot_secret")).outcome == outcome
        fake.abilities = []
        assert (await of_talk(fake).tried("bot_secret")).outcome == "lacking"


# --- hostile and wrong servers --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["discord", "talk"])
@pytest.mark.parametrize("handler", [page_of_words, a_list, nested, broken, endless])
async def test_what_answers_as_something_else_is_strange(name, handler):
    async with answering(handler) as url:
        channel, option = elsewhere(name, url)
        assert await channel.tried(option) == Trial("strange")


@pytest.mark.parametrize("name", ["discord", "talk"])
async def test_no_secret_follows_a_redirect(name):
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
async def test_where_nothing_listens_it_cannot_be_reached(name):
    channel, option = elsewhere(name, f"http://127.0.0.1:{free_port()}")
    assert await channel.tried(option) == Trial("unreachable")


# --- in the page ----------------------------------------------------------------------------------


async def replace_secret(program: Started, option: str, value: str) -> tuple[int, str]:
    return await program.post("/settings/secret", option=option, value=value)


async def test_discords_token_is_kept_once_discord_knows_it(tmp_path):
    async with FakeDiscord() as fake:
        place = {
            "CONFIDANT_CHANNELS__DISCORD__API_ROOT": fake.api_root,
            "CONFIDANT_CHANNELS__DISCORD__GATEWAY_URL": fake.gateway_url,
        }
        async with started(tmp_path, **place) as program:
            status, page = await replace_secret(program, "channels.discord.token", "wrong.token")
            assert (status, "Discord rejected this token" in page) == (422, True)
            assert ("Nothing was changed." in page, "wrong.token" in page) == (True, False)
            assert (program.kept, list(program.app.core.channels)) == ("", ["web"])
            status, page = await replace_secret(program, "channels.discord.token", fake.token)
            assert (status, "Discord says it belongs to Confidant." in page) == (200, True)
            assert fake.token in program.kept
            assert "discord" in program.app.core.channels
            _, page = await program.post("/settings/unset", option="channels.discord.token")
            assert ("belongs to Confidant" in page, program.kept) == (False, "")


async def test_matrixs_token_is_kept_once_its_homeserver_knows_it(tmp_path):
    server = await asyncio.to_thread(synapse.shared)
    login, option = await server.register(), "channels.matrix.token"
    place = {"CONFIDANT_CHANNELS__MATRIX__HOMESERVER": server.url}
    async with started(tmp_path, **place) as program:
        status, page = await replace_secret(program, option, "syt_wrong")
        assert (status, "Matrix rejected this token" in page) == (422, True)
        assert (program.kept, "matrix" in program.app.core.channels) == ("", False)
        status, page = await replace_secret(program, option, login["access_token"])
        assert (status, f"Matrix says it belongs to {login['user_id']}." in page) == (200, True)
        assert login["access_token"] in program.kept
        assert "matrix" in program.app.core.channels


async def test_what_was_not_checked_of_talks_secret_is_said(tmp_path):
    async with FakeNextcloud() as fake:
        fake.bots.append(FakeBot(SECRET, "http://127.0.0.1:1/"))
        place = {"CONFIDANT_CHANNELS__NEXTCLOUD_TALK__WEBHOOK_PORT": str(free_port())}
        option = "channels.nextcloud_talk.bot_secret"
        async with started(tmp_path, **place) as program:
            status, page = await replace_secret(program, option, SECRET)
            assert (status, "Not checked: Nextcloud Talk cannot be asked" in page) == (200, True)
        place["CONFIDANT_CHANNELS__NEXTCLOUD_TALK__BASE_URL"] = fake.url
        async with started(tmp_path, **place) as program:
            status, page = await replace_secret(program, option, OTHER_SECRET)
            assert (status, "Not checked: the secret itself." in page) == (200, True)
            assert OTHER_SECRET in program.kept
            status, page = await replace_secret(program, option, "x" * 30)
            assert (status, "needs 40 to 128 characters" in page) == (422, True)
            assert OTHER_SECRET in program.kept


async def test_a_platform_that_never_answers_is_given_up_and_nothing_is_kept(tmp_path, monkeypatch):
    async def silent(_request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(changes, "TRIAL_SECONDS", 0.05)
    async with answering(silent) as url:
        place = {"CONFIDANT_CHANNELS__DISCORD__API_ROOT": url}
        async with started(tmp_path, **place) as program:
            status, page = await replace_secret(program, "channels.discord.token", "any.token")
            assert (status, "did not answer in time" in page) == (422, True)
            assert program.kept == ""


async def test_a_bots_name_is_shown_as_text(tmp_path):
    async def named(_request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"id": "1", "username": "<b>x</b>\n[y](z) {0} " + "n" * 9_000})

    async with answering(named) as url:
        place = {
            "CONFIDANT_CHANNELS__DISCORD__API_ROOT": url,
            "CONFIDANT_CHANNELS__DISCORD__GATEWAY_URL": "ws://127.0.0.1:1/",
        }
        async with started(tmp_path, **place) as program:
            status, page = await replace_secret(program, "channels.discord.token", "any.token")
            assert (status, "&lt;b&gt;x&lt;/b&gt; (y)" in page) == (200, True)
            assert "n" * 500 not in page


OTHER_TOKEN = "987654321:AAOtherTokenForTestsOnly_0123456789ab"
PREFIX = "CONFIDANT_CHANNELS__TELEGRAM__"


def kept(folder: Path, **values: str) -> None:
    (folder / "data").mkdir()
    lines = [f"{PREFIX}{name}={value}\n" for name, value in values.items()]
    (folder / "data" / ".env").write_text("".join(lines))


async def replace_token(program: Started, option: str, value: str) -> str:
    name = f"channels.telegram.{option}"
    status, page = await program.post("/settings/secret", option=name, value=value)
    assert status == 200
    assert value not in page
    return page


async def answered(telegram: FakeTelegram, user: int, token: str) -> None:
    """Somebody writes to the bot of a token, and is given a code by it."""
    telegram.push_text(user, "hello", token)
    await telegram.wait_for(lambda: any("code" in text for text in telegram.texts(user)), 30)


async def test_a_token_that_was_replaced_is_used_no_more(tmp_path):
    async with FakeTelegram(TOKEN, OTHER_TOKEN) as telegram:
        kept(tmp_path, TOKEN=TOKEN, API_ROOT=telegram.url)
        async with started(tmp_path) as program:
            await answered(telegram, 7, TOKEN)
            await telegram.wait_acknowledged(TOKEN)
            await replace_token(program, "token", OTHER_TOKEN)
            calls = len(telegram.calls)
            await answered(telegram, 8, OTHER_TOKEN)
            # Who writes to the bot of before is heard by nobody, and nothing asks there any more.
            telegram.push_text(9, "is anybody there?", TOKEN)
            await answered(telegram, 10, OTHER_TOKEN)
            assert {call.token for call in telegram.calls[calls:]} == {OTHER_TOKEN}
            assert (telegram.pending(TOKEN), telegram.texts(9)) == (1, [])
            assert program.kept.count(OTHER_TOKEN) == 1
            assert TOKEN not in program.kept
        async with started(tmp_path):  # and so after a start
            calls = len(telegram.calls)
            await answered(telegram, 11, OTHER_TOKEN)
            assert {call.token for call in telegram.calls[calls:]} == {OTHER_TOKEN}


@pytest.mark.parametrize("how", ["replaced", "taken back"])
async def test_a_webhooks_secret_that_was_replaced_lets_nobody_in(tmp_path, how):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with FakeTelegram() as telegram:
        kept(
            tmp_path,
            TOKEN=TOKEN,
            API_ROOT=telegram.url,
            MODE="webhook",
            WEBHOOK_URL=url,
            WEBHOOK_PORT=str(port),
            WEBHOOK_SECRET="first-secret",
        )
        async with started(tmp_path) as program, aiohttp.ClientSession() as http:
            await answered(telegram, 7, TOKEN)
            await replace_token(program, "webhook_secret", "second-secret")
            old, new = "first-secret", "second-secret"
            if how == "taken back":
                page = await program.get("/settings?section=advanced")
                change = page.partition('name="change" value="')[2].partition('"')[0]
                assert (await program.post("/settings/take-back", change=change))[0] == 200
                old, new = new, old
            await answered(telegram, 8, TOKEN)  # Telegram was told the new one
            hook = telegram.bots[TOKEN].webhook
            assert hook is not None
            assert hook["secret"] == new
            where = f"{url}/telegram/default"
            said = {"update_id": 1}
            async with http.post(where, json=said, headers={SECRET_HEADER: old}) as answer:
                assert answer.status in {401, 403}
            async with http.post(where, json=said, headers={SECRET_HEADER: new}) as answer:
                assert answer.status == 200


@asynccontextmanager
async def visiting_url(url: str) -> AsyncGenerator[Database]:
    async with visitor.visiting(url, "", migrates=False) as here:
        yield here.database


def member(name: str, mark: int, silent: int = 0) -> NodeStatus:
    return NodeStatus(name, "1", 0, silent, (), 0, NodeFacts(page_token=mark))


def test_a_mark_says_little_and_is_the_same_for_the_same_token():
    assert mark_of("a" * 20) == mark_of("a" * 20)
    assert len({mark_of(f"token number {n}") for n in range(500)}) > 400
    assert all(4096 <= mark_of(f"{n}") < 8192 for n in range(50))
    assert mark_of("") == 0
    assert "page_token" not in NodeFacts(1, 2, 3, mark_of("")).told()


@pytest.mark.parametrize(
    ("nodes", "differ"),
    [
        ([member("one", 5000), member("two", 5000)], ()),
        ([member("one", 5000), member("two", 5001)], ("one", "two")),
        ([member("one", 5000), member("older", 0)], ()),
        ([member("one", 5000), member("gone", 5001, silent=60_000)], ()),
    ],
)
def test_nodes_that_are_there_are_compared(nodes, differ):
    assert census.differing(Census(tuple(nodes)), 10.0) == differ


@pytest.mark.slow
async def test_a_node_with_another_token_is_noticed(postgres_url, tmp_path):
    text = on_postgres(postgres_url)
    other = "x" * 24

    async def told(*tokens: str) -> Census:
        """All nodes, once they have told these."""
        async with asyncio.timeout(PATIENCE), visiting_url(postgres_url) as database:
            while True:
                found = await database.read(census.take)
                if {node.facts.page_token for node in found.nodes} == {*map(mark_of, tokens)}:
                    return found
                await pause(0.05)

    async with page_node(tmp_path / "one", text, ScriptedModel(), PUBLIC):
        assert census.differing(await told(TOKEN_OF_PAGE), 60.0) == ()
        async with page_node(tmp_path / "other", text, ScriptedModel(), PUBLIC, other):
            found = await told(TOKEN_OF_PAGE, other)
            assert len(census.differing(found, 60.0)) == 2
            assert other not in repr(found)
