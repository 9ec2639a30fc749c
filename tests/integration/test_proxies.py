"""Every client that calls out, through real proxies from PyPI.

The servers have a name that only the proxies know: what arrives came through one.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from pydantic import SecretStr, ValidationError
from yarl import URL

from adapters.discord import DiscordConfig
from adapters.discord.channel import Discord
from adapters.matrix import MatrixConfig
from adapters.matrix.channel import Matrix
from adapters.nextcloud_talk import NextcloudTalkConfig
from adapters.nextcloud_talk import doctor as nextcloud_doctor
from adapters.nextcloud_talk import doctor as nextcloud_trial
from adapters.slack import SlackConfig
from adapters.slack.channel import Slack
from adapters.telegram import TelegramConfig
from adapters.telegram.channel import Telegram
from bot import errors
from bot.agent.models import Request
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.openai import OpenAIModel
from bot.agent.tools.web.fetch import Browser
from bot.agent.tools.web.search import SearchFailed, SearXNG, service_of
from bot.channel import Address, Finding, Outbound
from bot.config import Config, ServiceConfig, WebConfig
from bot.messages import Message, Text
from bot.net.addresses import Guard
from bot.net.connection import session
from bot.testing import RecordingEngine
from tests.fakes import (
    completions_api,
    discord_channel,
    messages_api,
    nextcloud,
    proxies,
    search_engines,
    telegram_channel,
)
from tests.fakes.discord import FakeDiscord
from tests.fakes.ports import free_port
from tests.fakes.telegram import FakeTelegram
from tests.fakes.text_store import TextStoreInMemory
from tests.support import PATIENCE, post

KINDS = ["http", "socks5"]
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
SECRET = proxies.LOGIN.partition(":")[2]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest_asyncio.fixture(scope="module", params=KINDS, loop_scope="module")
async def proxy(request) -> AsyncIterator[str]:
    """A proxy that wants a login, in the whole address that has it."""
    async with proxies.running(request.param, proxies.LOGIN) as address:
        yield address


@pytest.fixture(params=["option", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "without a scheme"])
def option(request, proxy, monkeypatch) -> str:
    """What is configured, with the environment in its place where it is empty."""
    if request.param == "option":
        return proxy
    if request.param == "without a scheme":
        return proxy.removeprefix("http://")
    monkeypatch.setenv(request.param, proxy)
    return ""


def secret(option: str) -> SecretStr | None:
    return SecretStr(option) if option else None


# --- what goes through it -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "api"), [(OpenAIModel, completions_api), (AnthropicModel, messages_api)]
)
async def test_a_models_service_is_reached_through_it(kind, api, option):
    async with api.running(api.says("Hello")) as server:
        config = ServiceConfig(
            base_url=proxies.through(server.base_url),
            api_key=SecretStr("k"),
            proxy=secret(option),
        )
        assert await said(kind(config, window_store=TextStoreInMemory())) == "Hello"


async def said(model: Any) -> str:
    try:
        request = Request("m", "", (Message("user", (Text("hi"),)),))
        events = [event async for event in model.stream(request)]
    finally:
        await model.close()
    return events[-1].message.text


async def test_telegram_is_reached_through_it(option):
    engine, answer = RecordingEngine(), Outbound("o", Address("telegram", "default", "7"), "hi")
    async with FakeTelegram() as fake:
        config = telegram_channel.settings(fake, api_root=proxies.through(fake.url), proxy=option)
        assert (await Telegram(config).tried("token")).outcome == "known"
        async with telegram_channel.running(engine, config) as channel:
            fake.push({"message": fake.message(7, "hello")})
            await engine.wait_until(lambda now: now.received)
            await post(channel, answer)
            assert [sent.text for sent in await fake.wait_sent(1)] == ["hi"]
    assert [inbound.text for inbound in engine.received] == ["hello"]


async def test_discord_is_reached_through_it(option):
    engine = RecordingEngine()
    async with FakeDiscord() as fake:
        config = discord_channel.settings(
            fake,
            api_root=proxies.through(fake.api_root),
            gateway_url=proxies.through(fake.gateway_url),
            proxy=option,
        )
        assert (await Discord(config).tried("token")).outcome == "known"
        async with discord_channel.running(engine, config) as channel:
            await fake.wait_online()
            await fake.say("7", "hello")
            await engine.wait_until(lambda now: now.received)
            await post(channel, Outbound("o", engine.received[0].address, "hi"))
            assert [sent["content"] for sent in await fake.wait_sent(1)] == ["hi"]
    assert [inbound.text for inbound in engine.received] == ["hello"]


async def test_nextcloud_talk_is_reached_through_it(option):
    engine, answer = (
        RecordingEngine(),
        Outbound("o", Address("nextcloud_talk", "default", ROOM), "hi"),
    )
    async with nextcloud.FakeNextcloud() as fake:
        url = fake.backend = proxies.through(fake.url)
        values = {"base_url": url, "proxy": option, **nextcloud.WITH_API_USER}
        config = nextcloud.settings(fake, free_port(), **values)
        assert (await nextcloud_trial.tried(config, "api_password")).outcome == "known"
        async with nextcloud.running(engine, config) as channel:
            await post(channel, answer)
            assert [posted.text for posted in await fake.wait_posted(1)] == ["hi"]


ROOM = "n3xtc10ud"


@asynccontextmanager
async def site(context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A page on this machine; its port."""

    async def page(_request: web.Request) -> web.Response:
        return web.json_response({"results": [{"title": "T", "url": "https://a.b", "content": ""}]})

    app, port = web.Application(), free_port()
    app.router.add_get("/search", page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    try:
        yield port
    finally:
        await runner.cleanup()


async def test_servers_behind_tls_are_reached_through_it(proxy):
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(search_engines.TLS / "server.pem")
    client = ssl.create_default_context(cafile=search_engines.AUTHORITY)
    async with site(server) as port, session(proxy) as opened:
        address = f"https://secure.example:{port}/search"
        for _ in range(2):
            async with opened.get(address, ssl=client) as answer:
                assert answer.status == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await opened.get(f"https://other.example:{port}/search", ssl=client)


async def test_the_web_is_searched_through_it(option):
    async with site() as port:
        service = SearXNG(f"http://{proxies.HOST}:{port}", proxy=option)
        assert [hit.title for hit in await service.search("tea", 1)] == ["T"]


def looking_up(address: str) -> Any:
    async def lookup(_host: str) -> list[str]:
        return [address]

    return lookup


async def test_pages_are_read_through_it_at_the_address_that_was_checked(proxy):
    async with site() as port:
        guard = Guard.from_hosts([f"wiki.test:{port}"])  # the proxies do not know it
        browser = Browser(guard, proxy=proxy, lookup=looking_up("127.0.0.1"))
        found = await browser.open(f"http://wiki.test:{port}/search")
        browser.close()
    assert b"results" in found.data


@pytest.mark.parametrize("address", ["10.0.0.7", "127.0.0.1", "169.254.169.254", "fd00:ec2::254"])
async def test_a_page_that_may_not_be_opened_is_not_asked_of_a_proxy_either(address):
    async with taking(b"") as (port, taken):
        proxy = f"http://127.0.0.1:{port}"
        browser = Browser(Guard(), proxy=proxy, lookup=looking_up(address))
        with pytest.raises(errors.AddressRefused):
            await browser.open("https://public.example/")
        browser.close()
        assert not taken


# --- what goes wrong ------------------------------------------------------------------------------


@asynccontextmanager
async def taking(answer: bytes | None) -> AsyncIterator[tuple[int, list[bytes]]]:
    """Something that is no proxy: it says the same to everybody, or with None nothing."""
    taken: list[bytes] = []
    writers: list[asyncio.StreamWriter] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        taken.append(await reader.read(1000))
        if answer is not None:
            writer.write(answer)
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], taken
        for writer in writers:
            writer.close()


TARGETS = ["http://server.example/v1", "https://server.example/v1"]


async def fault(model: Any) -> str:
    with pytest.raises(errors.ModelUnreachable) as failed:
        await said(model)
    return str(failed.value)


def service(url: str, proxy: str, kind: Any = OpenAIModel) -> Any:
    config = ServiceConfig(
        base_url=url, api_key=SecretStr("k"), proxy=SecretStr(proxy), timeout=PATIENCE
    )
    return kind(config, window_store=TextStoreInMemory(), max_retries=0)


@pytest.mark.parametrize("kind", [OpenAIModel, AnthropicModel])
@pytest.mark.parametrize("url", TARGETS)
@pytest.mark.parametrize("scheme", KINDS)
async def test_one_that_is_not_there_is_named(scheme, url, kind):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{closed.getsockname()[1]}"
        told = await fault(service(url, f"{scheme}://ada:{SECRET}@{where}", kind))
    assert told == f"the proxy {scheme}://{where} cannot be reached"


@pytest.mark.parametrize("url", TARGETS)
@pytest.mark.parametrize("login", ["", "ada:wrong@"])
async def test_one_that_wants_a_password_is_named_without_it(proxy, url, login):
    scheme, _, rest = proxy.partition("://")
    where = rest.partition("@")[2]
    told = await fault(service(url, f"{scheme}://{login}{where}"))
    assert told.startswith(f"the proxy {scheme}://{where} ")
    assert "user and password" in told


@pytest.mark.parametrize("url", TARGETS)
@pytest.mark.parametrize("scheme", KINDS)
async def test_one_that_says_nothing_is_named(scheme, url, monkeypatch):
    monkeypatch.setattr("bot.net.connection.PROXY_SECONDS", 0.2)
    async with taking(None) as (port, _):
        config = ServiceConfig(
            base_url=url, proxy=SecretStr(f"{scheme}://127.0.0.1:{port}"), timeout=0.3
        )
        told = await fault(OpenAIModel(config, window_store=TextStoreInMemory(), max_retries=0))
    assert told.startswith(f"the proxy {scheme}://127.0.0.1:{port} ")


@pytest.mark.parametrize("url", TARGETS)
@pytest.mark.parametrize("scheme", KINDS)
@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"", b"\x00" * 40, b"\x05\xff"])
async def test_what_is_no_proxy_is_named(scheme, url, answer):
    async with taking(answer) as (port, _):
        told = await fault(service(url, f"{scheme}://127.0.0.1:{port}"))
    assert told.startswith(f"the proxy {scheme}://127.0.0.1:{port} ")


async def test_one_that_refuses_is_named_with_its_reason():
    async with taking(b"HTTP/1.1 403 Filtered\r\nContent-Length: 0\r\n\r\n") as (port, _):
        told = await fault(service(TARGETS[1], f"http://127.0.0.1:{port}"))
    assert told == f"the proxy http://127.0.0.1:{port} does not connect (403)"


async def test_a_server_that_one_does_not_reach_is_told_apart_from_it(proxy):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        told = await fault(service(f"https://{proxies.HOST}:{closed.getsockname()[1]}", proxy))
    assert "does not connect" in told or "brings no answer" in told


@pytest.mark.parametrize("scheme", KINDS)
async def test_the_web_tools_name_it(scheme):
    async with taking(b"") as (port, _):
        proxy = f"{scheme}://127.0.0.1:{port}"
        with pytest.raises(SearchFailed, match=f"the proxy {proxy} "):
            await SearXNG("http://server.example", proxy=proxy).search("tea", 1)
        browser = Browser(Guard(), proxy=proxy, lookup=looking_up("8.8.8.8"))
        with pytest.raises(errors.ToolError, match=f"the proxy {proxy} "):
            await browser.open("https://public.example/")
        browser.close()


async def test_each_section_says_which_proxy_is_asked():
    async with taking(b"") as (port, _):
        proxy = f"socks5://ada:{SECRET}@127.0.0.1:{port}"
        told = [await fault(service(TARGETS[0], proxy))]
        web = WebConfig(search="searxng", search_url=TARGETS[0], proxy=SecretStr(proxy))
        with pytest.raises(SearchFailed) as failed:
            await service_of(web).search("tea", 1)
        told.append(str(failed.value))
        own = {"proxy": proxy, "token": "1:a", "api_root": TARGETS[0]}
        told += map(why, await Telegram(TelegramConfig.model_validate(own)).examine())
        told += map(why, await Discord(DiscordConfig.model_validate(own)).examine())
        seat = {"proxy": proxy, "base_url": TARGETS[0], "bot_secret": "x" * 64}
        talk = await nextcloud_doctor.examine(NextcloudTalkConfig.model_validate(seat))
        told += [why(each) for each in talk if each.id == "nextcloud_talk.unreachable"]
        app = {"proxy": proxy, "bot_token": "xoxb-1", "app_token": "xapp-1", "api_root": TARGETS[0]}
        told += map(why, await Slack(SlackConfig.model_validate(app)).examine())
        home = {"proxy": proxy, "homeserver": TARGETS[0], "token": "t"}
        told += map(why, await Matrix(MatrixConfig.model_validate(home)).examine())
    assert len(told) == 8
    for each in told:
        assert f"the proxy socks5://127.0.0.1:{port} " in each
        assert SECRET not in each


def why(finding: Finding) -> str:
    return str(finding.values.get("why"))


async def test_a_variable_that_names_none_is_named(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", f"gopher://ada:{SECRET}@p.lan")
    told = await fault(service(TARGETS[0], ""))
    assert told.startswith("ALL_PROXY cannot be used: ")
    assert SECRET not in told


def test_an_option_that_names_none_is_refused_without_repeating_it():
    for table in ({"models": {"own": {}}}, {"tools": {"web": {}}}):
        (name,), (section,) = table, table.values()
        section[next(iter(section))] = {"proxy": f"gopher://ada:{SECRET}@p.lan"}
        with pytest.raises(ValidationError, match="a proxy's address begins with") as refused:
            Config.model_validate(table)
        assert SECRET not in str(refused.value), name


# --- what does not go through it ------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIABLES[:3])
async def test_a_server_on_this_machine_is_not_asked_through_the_environments_proxy(
    name, monkeypatch
):
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with completions_api.running(completions_api.says("Hello")) as server:
        config = ServiceConfig(base_url=server.base_url)
        assert await said(OpenAIModel(config, window_store=TextStoreInMemory())) == "Hello"
        config = ServiceConfig(base_url=server.base_url, proxy=SecretStr("http://127.0.0.1:1"))
        with pytest.raises(errors.ModelUnreachable):
            await said(OpenAIModel(config, window_store=TextStoreInMemory(), max_retries=0))


async def test_none_is_no_proxy_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with session("none") as direct, session("") as usual:
        assert direct.connector.proxy_for(URL("https://a.example.org")) is None
        assert usual.connector.proxy_for(URL("https://a.example.org")) is not None
