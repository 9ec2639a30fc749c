import gc
import sys

import aiohttp
import pytest
from telegram.error import TelegramError
from yarl import URL

from adapters.telegram.api import AiohttpRequest, LeanBot, new_session
from bot.channel.kit.client import proxy_for
from bot.channel.kit.json_access import parse_json

TOKEN = "123456:AAbbccddeeffgghhiijjkkllmmnn"


async def test_a_bot_uses_our_transport_alone_and_makes_no_other_client():
    async with new_session() as session:
        bot = LeanBot(TOKEN, "https://api.telegram.org/", session)
        assert {type(request) for request in bot._request} == {AiohttpRequest}
        assert bot.base_url == f"https://api.telegram.org/bot{TOKEN}"
        httpx = sys.modules["httpx"]
        assert not [o for o in gc.get_objects() if type(o) is httpx.AsyncClient]


async def test_a_bot_does_not_show_its_token():
    async with new_session() as session:
        assert TOKEN not in repr(LeanBot(TOKEN, "https://api.telegram.org", session))


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'"\\ud83d"', "\ud83d"),
        (b'"\xff"', "\ufffd"),
        (b"1" * 30, int("1" * 30)),
    ],
)
def test_json_is_read_however_odd_its_text(payload, value):
    found = parse_json(payload)
    assert found == pytest.approx(value) if isinstance(value, int) else found == value


@pytest.mark.parametrize("payload", [b"", b"{", b"<html>", b"[" * 100_000])
def test_what_is_not_json_is_an_error_without_its_words(payload):
    with pytest.raises(ValueError):  # noqa: PT011  # any of its kinds
        parse_json(payload)
    with pytest.raises(TelegramError, match=r"^Invalid server response$"):
        AiohttpRequest.parse_json_payload(payload)


@pytest.mark.parametrize(
    ("environment", "proxy", "user"),
    [
        ({}, None, None),
        ({"https_proxy": "http://p.example:3128"}, URL("http://p.example:3128"), None),
        ({"https_proxy": "http://u:pw@p.example:3128"}, URL("http://p.example:3128"), "u"),
        ({"https_proxy": "http://p.example:3128", "no_proxy": "api.telegram.org"}, None, None),
        ({"http_proxy": "http://p.example:3128"}, None, None),
    ],
)
def test_the_environments_proxy_is_used(monkeypatch, environment, proxy, user):
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    login = {"Proxy-Authorization": aiohttp.encode_basic_auth(user, "pw")} if user else None
    assert proxy_for("https://api.telegram.org") == (proxy, login)
