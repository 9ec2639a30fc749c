"""Webhooks: what programs report, in somebody's conversation, and never as their words."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.web.hooks import MOST, told
from bot.agent.models import Request
from bot.dashboard.browsers import is_signed
from bot.testing import ScriptedModel
from tests.fakes.brain import query
from tests.fakes.page_people import Browser, browser, serving
from tests.support import Engine, until

SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]{32}")
BODY = b'{"title": "Disk full", "host": "nas"}'


async def hook_of(page: Browser, template: str = "", name: str = "alerts") -> tuple[str, str]:
    """Where a program reports to somebody, and the secret."""
    status, text = await page.post("/programs/hooks", name=name, template=template)
    secret, where = SECRET.search(text), re.findall(r"/hooks/[0-9a-f]{16}", text)
    assert secret is not None, (status, text)
    return where[0], secret[0]


@asynccontextmanager
async def owners(engine: Engine) -> AsyncIterator[Browser]:
    async with browser(engine) as page:
        await page.log_in()
        yield page


async def report(page: Browser, where: str, headers: Mapping[str, str], body: bytes = BODY) -> int:
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{page.url}{where}", data=body, headers=headers) as answer,
    ):
        return answer.status


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def test_an_event_is_told_and_is_nobodys_words(tmp_path):
    seen: list[Request] = []

    def tell(request: Request) -> str:
        seen.append(request)
        return "Your NAS is nearly full."

    async with (
        serving(tmp_path, model=ScriptedModel(script=tell)) as engine,
        owners(engine) as page,
    ):
        where, secret = await hook_of(page, "{host}: {title}")
        async with page.chat() as chat:
            assert await report(page, where, bearer(secret)) == 202
            said = await chat.until("message", role="user")
            assert said["text"] == "[event from alerts]\nnas: Disk full"
            assert (await chat.until("message", role="bot"))["text"] == "Your NAS is nearly full."
    shown = str(seen[-1].messages[-1])
    assert "nobody wrote it" in shown
    assert "origin='event'" in shown
    assert "origin='person'" not in shown


async def test_the_model_may_stay_silent(tmp_path):
    model = ScriptedModel(script=lambda _: "NO_REPLY")
    async with serving(tmp_path, model=model) as engine, owners(engine) as page:
        where, secret = await hook_of(page)
        assert await report(page, where, bearer(secret)) == 202
        await until(lambda: not query(tmp_path, "SELECT 1 FROM inbox WHERE state = 'waiting'"))
        assert query(tmp_path, "SELECT 1 FROM outbox") == []


async def test_a_delivery_counts_once_and_a_flood_is_held_back(tmp_path):
    async with serving(tmp_path) as engine, owners(engine) as page:
        where, secret = await hook_of(page)
        once = bearer(secret) | {"X-GitHub-Delivery": "7"}
        assert [await report(page, where, once) for _ in range(2)] == [202, 202]
        assert query(tmp_path, "SELECT count(*) FROM inbox") == [(1,)]
        many = [await report(page, where, bearer(secret)) for _ in range(30)]
        assert 28 <= many.count(202) <= 29  # one place may come back meanwhile
        assert many[-1] == 429


async def test_who_does_not_sign_is_refused(tmp_path):
    async with serving(tmp_path) as engine, owners(engine) as page, browser(engine) as bo:
        where, secret = await hook_of(page)
        assert await report(page, where, {}) == 401
        assert await report(page, where, bearer(secret + "x")) == 401
        assert await report(page, "/hooks/0123456789abcdef", bearer(secret)) == 401
        assert await report(page, where, bearer(secret), b"x" * 70_000) == 413
        assert (await page.post(where))[0] == 401  # the owner's cookie is no signature
        await bo.post("/enter", key=await page.link("bo"))
        theirs, other = await hook_of(bo)
        assert await report(page, where, bearer(other)) == 401
        status, text = await bo.get("/programs")
        assert (status, where in text, theirs in text) == (200, False, True)
        await bo.post("/programs/hooks/delete", hook=where.removeprefix("/hooks/"))
        assert await report(page, where, bearer(secret)) == 202  # it was not Bo's to delete
        await page.post("/logins/out", name="bo")
        assert await report(page, theirs, bearer(other)) == 401
        await page.post("/programs/hooks/delete", hook=where.removeprefix("/hooks/"))
        assert await report(page, where, bearer(secret)) == 401
        assert (await page.post("/programs/hooks", name="[]"))[0] == 200
        assert (await page.post("/programs/hooks", name=" "))[0] == 400
        assert (await page.post("/programs/hooks", name="a", template="x" * 2_001))[0] == 400


WHSEC = f"whsec_{b64encode(b'0123456789abcdef01234567').decode()}"
AT = 1_800_000_000


def standard(at: int = AT, body: bytes = BODY, version: str = "v1") -> dict[str, str]:
    made = hmac.digest(b64decode(WHSEC[6:]), f"m1.{at}.".encode() + body, "sha256")
    signature = f"v1a,x {version},{b64encode(made).decode()}"
    return {"webhook-id": "m1", "webhook-timestamp": str(at), "webhook-signature": signature}


def github(body: bytes = BODY) -> dict[str, str]:
    made = hmac.new(WHSEC.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={made}"}


@pytest.mark.parametrize(
    ("headers", "right"),
    [
        (bearer(WHSEC), True),
        (bearer(WHSEC[:-1]), False),
        (github(), True),
        (github(b"{}"), False),
        (standard(), True),
        (standard(body=b"{}"), False),
        (standard(at=AT - 400), False),
        (standard(version="v2"), False),
        (standard() | {"webhook-timestamp": "9" * 90}, False),
        (standard() | {"webhook-timestamp": "now"}, False),
        ({}, False),
    ],
)
def test_signatures(headers, right):
    assert is_signed(WHSEC, headers, BODY, AT * 1000) == right


@pytest.mark.parametrize(
    ("template", "body", "words"),
    [
        ("", b'{"a": 1}', '{\n "a": 1\n}'),
        ("", b"plain words", "plain words"),
        ("", b"", "(empty)"),
        ("", b"\xff", "\ufffd"),
        ("{a.0.b} and {a.1} {none}", b'{"a": [{"b": "x"}, {"c": 2}]}', 'x and {"c": 2}'),
        ("{a}", b"[1]", "(empty)"),
        ("{0} {-1}", b"[1]", "1"),
        ("{a", b'{"a": 1}', "{a"),
        ("{a}" * 600, orjson.dumps({"a": ["x" * 60_000]}), ('["' + "x" * 998) * 4),
        ("{a}", b'{"a": "{a}"}', "{a}"),
    ],
)
def test_how_an_event_is_told(template, body, words):
    assert told(template, body) == words


@given(st.text(max_size=200), st.binary(max_size=200))
def test_whatever_is_reported_is_told_in_bounds(template, body):
    assert 0 < len(told(template, body)) <= MOST
