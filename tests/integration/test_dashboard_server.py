from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter
from pydantic import ValidationError

from bot.channel import Finding
from bot.channel.http import Limits
from bot.config import DashboardConfig
from bot.dashboard import Check, DashboardServer, Readiness
from bot.dashboard.guard import COOKIE, NETWORKS, SECURITY_HEADERS
from bot.errors import ConfigError
from bot.shares import Share
from tests.fakes.browsers import BrowsersInMemory
from tests.support import PATIENCE

TOKEN = "correct-horse-battery-staple"


class Pages:
    """A channel's pages: one to read, one to change something, one that breaks, one socket."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", self._hello),
            web.post("/change", self._change),
            web.get("/broken", self._broken),
            web.get("/ws", self._ws),
        ]

    async def _hello(self, _request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def _change(self, request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    async def _broken(self, _request: web.Request) -> web.Response:
        raise RuntimeError("a secret detail")

    async def _ws(self, request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        await ws.send_str("hello")
        await ws.close()
        return ws


async def fine() -> Readiness:
    return Readiness((Check("storage"),))


@asynccontextmanager
async def running(
    token: str | None = None,
    *,
    readiness: Callable[[], Awaitable[Readiness]] = fine,
    registry: CollectorRegistry | None = None,
    **config: object,
) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """A server on a free port, and a client that keeps cookies and follows no redirect."""
    server = DashboardServer(
        DashboardConfig.model_validate({"port": 0, "token": token, **config}),
        readiness=readiness,
        registry=registry or CollectorRegistry(),
        browsers=BrowsersInMemory(),
        channels=[Pages()],
    )
    url = (await server.start()).url
    try:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
            yield url, client
    finally:
        await server.stop()


def origin(url: str) -> dict[str, str]:
    return {"Origin": url.rstrip("/")}


# --- health ---------------------------------------------------------------------------------------


async def test_alive_as_long_as_the_process_runs():
    async with running() as (url, client), client.get(f"{url}healthz") as answer:
        assert answer.status == 200
        assert await answer.json() == {"status": "alive"}


@pytest.mark.parametrize(
    ("level", "state", "status"),
    [("ok", "ok", 200), ("warning", "degraded", 200), ("error", "down", 503)],
)
async def test_readiness_names_every_check(level, state, status):
    async def readiness() -> Readiness:
        return Readiness((Check("storage"), Check("model", Finding(level, "It is slow.", "Wait."))))

    async with running(readiness=readiness) as (url, client), client.get(f"{url}readyz") as answer:
        assert answer.status == status
        assert await answer.json() == {
            "ready": status == 200,
            "state": state,
            "checks": {
                "storage": {"state": "ok", "detail": "", "fix": "", "id": "", "values": {}},
                "model": {
                    "state": state,
                    "detail": "It is slow.",
                    "fix": "Wait.",
                    "id": "",
                    "values": {},
                },
            },
        }
    async with running(readiness=readiness) as (url, client), client.get(f"{url}metrics") as answer:
        said = await answer.text()
    for each in ("ok", "degraded", "down"):
        value = 1.0 if each == state else 0.0
        assert f'confidant_health{{check="model",state="{each}"}} {value}\n' in said


async def test_readyz_tells_nobody_where_the_database_is():
    async def away() -> Readiness:
        why = 'The database server at db.internal:5432/people cannot be used: no role "bot".'
        return Readiness((Check("storage", Finding.of("error", "health.away", why=why)),))

    async with running(readiness=away) as (url, client), client.get(f"{url}readyz") as answer:
        said = await answer.text()
    assert answer.status == 503
    assert "database does not answer" in said
    assert "db.internal" not in said
    assert "role" not in said


async def test_readiness_speaks_the_language_that_is_asked_for():
    async def readiness() -> Readiness:
        return Readiness((Check("rows", Finding.of("warning", "health.rows", count=2)),))

    async with running(readiness=readiness) as (url, client):
        for language, words in (("en", "2 stored rows were skipped"), ("zh-CN", "2 行存储的数据")):
            async with client.get(f"{url}readyz", headers={"Accept-Language": language}) as answer:
                said = (await answer.json())["checks"]["rows"]
            assert said["detail"].startswith(words)
            assert "storage.row_unreadable" in said["fix"]


async def test_metrics_come_from_the_registry_given():
    registry = CollectorRegistry()
    Counter("confidant_turns", "Turns.", registry=registry).inc(3)
    async with running(registry=registry) as (url, client), client.get(f"{url}metrics") as answer:
        assert answer.status == 200
        assert "confidant_turns_total 3.0" in await answer.text()


# --- starting -------------------------------------------------------------------------------------


async def test_a_port_in_use_says_what_to_change():
    async with running() as (url, _client):
        port = int(url.rstrip("/").rpartition(":")[2])
        second = DashboardServer(
            DashboardConfig(port=port),
            readiness=fine,
            registry=CollectorRegistry(),
            browsers=BrowsersInMemory(),
        )
        with pytest.raises(
            ConfigError, match=r"another program uses that port.*\[dashboard\] port"
        ):
            await second.start()
        await second.stop()


async def test_an_address_this_machine_lacks_says_what_to_change():
    server = DashboardServer(
        DashboardConfig.model_validate({"host": "192.0.2.1", "port": 0, "token": TOKEN}),
        readiness=fine,
        registry=CollectorRegistry(),
        browsers=BrowsersInMemory(),
    )
    with pytest.raises(ConfigError, match=r"no such address.*\[dashboard\] host"):
        await server.start()


async def test_stopping_frees_the_port():
    async with running() as (url, _client):
        port = int(url.rstrip("/").rpartition(":")[2])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


# --- without a token: this machine only -----------------------------------------------------------


async def test_a_foreign_host_name_and_a_proxy_are_refused():
    foreign = [{"Host": f"{name}evil.example"} for name in ("", "127.0.0.1.")]
    foreign += [{"Host": "evil.example:8420"}, {"Host": ""}, {"X-Forwarded-For": "203.0.113.9"}]
    async with running() as (url, client):
        for path in ("", "healthz", "readyz", "metrics", "nowhere"):
            for headers in foreign:
                async with client.get(url + path, headers=headers) as answer:
                    assert (path, headers, answer.status) == (path, headers, 403)
                    assert "CONFIDANT_DASHBOARD__TOKEN" in (await answer.json())["error"]


# --- where requests come from ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "foreign",
    ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "", "http://["],
)
async def test_changes_and_sockets_from_foreign_pages_are_refused(foreign):
    async with running() as (url, client):
        async with client.post(f"{url}change", headers={"Origin": foreign}) as answer:
            assert answer.status == 403
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await client.ws_connect(f"{url}ws", headers={"Origin": foreign})
        assert caught.value.status == 403


async def test_changes_and_sockets_of_our_own_page_are_taken():
    async with running() as (url, client):
        async with client.post(f"{url}change", data=b"four", headers=origin(url)) as answer:
            assert await answer.text() == "4"
        async with client.ws_connect(f"{url}ws", headers=origin(url)) as ws:
            assert await ws.receive_str() == "hello"


@pytest.mark.parametrize(
    ("path", "found"), [("", ""), ("/", ""), ("a.b/", "/a.b"), ("//outer//inner/", "/outer/inner")]
)
def test_a_path_is_brought_into_one_form(path, found):
    config = DashboardConfig(path=path, allowed_origins=("https://example.org/",))
    assert (config.path, config.public_url) == (found, f"https://example.org{found}")


@pytest.mark.parametrize("path", ["/a b", "/..", '/"onload=', "/ä", "/a?b", "https://example.org"])
def test_a_path_that_is_none_is_refused(path):
    with pytest.raises(ValidationError):
        DashboardConfig(path=path)


async def test_no_origin_needs_the_token():
    async with running(TOKEN) as (url, client):
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await client.ws_connect(f"{url}ws")
        async with client.ws_connect(f"{url}ws", headers=bearer) as ws:
            assert await ws.receive_str() == "hello"
        async with client.post(f"{url}change", headers=bearer) as answer:
            assert answer.status == 200
    async with running() as (url, client):
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await client.ws_connect(f"{url}ws", headers={"Authorization": "Bearer anything"})


# --- with a token ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "metrics", "ws", "broken", "nowhere"])
async def test_everything_needs_the_token(path):
    async with running(TOKEN) as (url, client):
        async with client.get(url + path) as answer:
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        wrong = {"Authorization": "Bearer wrong"}
        async with client.get(url + path, headers=wrong) as answer:
            assert answer.status == 401
        for cookie in ("", "1.2", "99999999999.00", TOKEN, "a.b", "٣.x"):
            async with client.get(url + path, cookies={COOKIE: cookie}) as answer:
                assert answer.status == 401


async def test_health_and_login_need_no_token():
    async with running(TOKEN) as (url, client):
        for path in ("healthz", "readyz", "login", "assets/page.css"):
            async with client.get(url + path) as answer:
                assert (path, answer.status) == (path, 200)


async def test_a_stale_token_does_not_make_a_monitor_fail():
    async with running(TOKEN) as (url, client):
        headers = {"Authorization": "Bearer old"}
        for _ in range(NETWORKS[0].free + 2):
            async with client.get(f"{url}healthz", headers=headers) as answer:
                assert answer.status == 200


async def test_a_browser_is_sent_to_the_login():
    async with running(TOKEN) as (url, client):
        headers = {"Accept": "text/html"}
        async with client.get(url, headers=headers, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/login")


async def log_in(client: aiohttp.ClientSession, url: str, token: str) -> aiohttp.ClientResponse:
    async with client.post(
        f"{url}login", data={"token": token}, headers=origin(url), allow_redirects=False
    ) as answer:
        await answer.read()
        return answer


async def test_logging_in_gives_a_cookie_that_opens_pages_and_sockets():
    async with running(TOKEN) as (url, client):
        answer = await log_in(client, url, f" {TOKEN}\n")
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "Secure" not in cookie
        assert TOKEN not in cookie
        async with client.get(url) as page:
            assert page.status == 200
        async with client.ws_connect(f"{url}ws", headers=origin(url)) as ws:
            assert await ws.receive_str() == "hello"
        async with client.get(f"{url}login", allow_redirects=False) as again:
            assert again.status == 303


async def test_behind_tls_the_cookie_is_secure():
    async with running(TOKEN, allowed_origins=["https://bot.example.org"]) as (url, client):
        headers = {"Origin": "https://bot.example.org"}
        async with client.post(
            f"{url}login", data={"token": TOKEN}, headers=headers, allow_redirects=False
        ) as answer:
            assert "Secure" in answer.headers["Set-Cookie"]


async def test_logging_in_from_a_foreign_page_is_refused():
    async with running(TOKEN) as (url, client):
        headers = {"Origin": "https://evil.example"}
        async with client.post(f"{url}login", data={"token": TOKEN}, headers=headers) as answer:
            assert answer.status == 403
            assert "Set-Cookie" not in answer.headers


@pytest.fixture
def waits(monkeypatch):
    """How long each try would have waited, in seconds; none really does."""
    asked: list[float] = []

    async def noted(seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr("bot.dashboard.guard.sleep", noted)
    return asked


async def test_guessing_is_slowed_whichever_way_and_the_right_token_is_always_taken(waits):
    async with running(TOKEN) as (url, client):
        for _ in range(NETWORKS[0].free):
            assert (await log_in(client, url, "wrong")).status == 401
        assert max(waits) == 0
        async with client.get(url, headers={"Authorization": "Bearer wrong"}) as answer:
            assert answer.status == 401
        assert waits[-1] > 0
        async with client.get(url, headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
            assert answer.status == 200
        assert (await log_in(client, url, TOKEN)).status == 303
        assert waits[-2:] == [waits[-1]] * 2
        assert waits[-1] > 0


def hold(monkeypatch) -> tuple[asyncio.Semaphore, asyncio.Event]:
    """Whoever has to wait is counted by the first, and waits for the second."""
    held, go = asyncio.Semaphore(0), asyncio.Event()

    async def sleep(seconds: float) -> None:
        if seconds:
            held.release()
            await go.wait()

    monkeypatch.setattr("bot.dashboard.guard.sleep", sleep)
    return held, go


async def test_a_crowd_that_guesses_at_once_holds_few_connections_and_keeps_nobody_out(monkeypatch):
    held, go = hold(monkeypatch)
    monkeypatch.setattr("bot.dashboard.guard.WRONG", Share(at_once=9, each=3, waiting=0))
    async with running(TOKEN) as (url, client):
        for _ in range(NETWORKS[0].free):
            await log_in(client, url, "wrong")
        guesses = [asyncio.create_task(log_in(client, url, "wrong")) for _ in range(10)]
        async with asyncio.timeout(PATIENCE):
            for _ in range(3):
                await held.acquire()
            done, waiting = set[asyncio.Task[aiohttp.ClientResponse]](), set(guesses)
            while len(done) < 7:
                more, waiting = await asyncio.wait(waiting, return_when="FIRST_COMPLETED")
                done |= more
            assert {guess.result().status for guess in done} == {429}
            right = asyncio.create_task(log_in(client, url, TOKEN))
            await held.acquire()
            go.set()
            assert (await right).status == 303
            assert [(await guess).status for guess in waiting] == [401] * 3


async def test_what_is_refused_is_counted_and_told_in_few_lines(logs):
    registry = CollectorRegistry()
    async with running(registry=registry) as (url, client):
        for _ in range(20):
            async with client.get(url, headers={"Host": "evil.example"}) as answer:
                assert answer.status == 403
    lines = [line for line in logs if line["event"] == "dashboard.refused"]
    assert [(line["reason"], line["count"]) for line in lines] == [("elsewhere", 1)]
    counted = registry.get_sample_value("confidant_page_refused_total", {"reason": "elsewhere"})
    assert counted == 20


async def test_whoever_leaves_in_the_middle_of_a_request_is_no_line_in_the_log(logs):
    async with running(TOKEN) as (url, client):
        host = url.removeprefix("http://").rstrip("/")
        address, _, port = host.partition(":")
        _, writer = await asyncio.open_connection(address, int(port))
        writer.write(
            f"POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\n"
            "Content-Length: 11\r\n\r\ntok".encode()
        )
        await writer.drain()
        await (await client.get(f"{url}healthz")).read()  # until the half was read
        writer.transport.abort()
        await (await client.get(f"{url}healthz")).read()
    assert [line for line in logs if line["log_level"] == "error"] == []


async def test_half_a_login_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("bot.dashboard.server.LIMITS", Limits(body=0.05, head=0.05))
    async with running(TOKEN) as (url, _client):
        host = url.removeprefix("http://").rstrip("/")
        address, _, port = host.partition(":")
        head = f"POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
        head += "Content-Type: application/x-www-form-urlencoded\r\n"
        body = "Content-Length: 11\r\n\r\ntok"
        for text, status in ((head + body, [b"408"]), (head, [])):
            reader, writer = await asyncio.open_connection(address, int(port))
            writer.write(text.encode())
            assert (await reader.readline()).split()[1:2] == status
            writer.close()


@pytest.mark.parametrize("body", [b"", b"token=%ED%A0%80", b"token=%FF", b"x" * 1000, b"\xff\xfe"])
async def test_odd_login_forms_are_refused_in_words(body):
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    async with (
        running(TOKEN) as (url, client),
        client.post(f"{url}login", data=body, headers=headers | origin(url)) as answer,
    ):
        assert answer.status in {400, 401}


async def test_without_a_token_there_is_nothing_to_log_in_to():
    async with (
        running() as (url, client),
        client.get(f"{url}login", allow_redirects=False) as answer,
    ):
        assert (answer.status, answer.headers["Location"]) == (303, "/")


@pytest.mark.parametrize(
    ("language", "word"), [("zh-CN,zh;q=0.9", "访问令牌"), ("fr", "Access token")]
)
async def test_the_login_page_speaks_the_persons_language(language, word):
    async with (
        running(TOKEN) as (url, client),
        client.get(f"{url}login", headers={"Accept-Language": language}) as answer,
    ):
        assert word in await answer.text()


# --- every answer ---------------------------------------------------------------------------------


async def test_every_answer_has_the_security_headers():
    async with running() as (url, client):
        for path in ("", "healthz", "broken", "nowhere", "assets/page.css", "metrics"):
            async with client.get(url + path) as answer:
                assert SECURITY_HEADERS.items() <= answer.headers.items(), path
                assert "aiohttp" not in str(answer.headers)


async def test_a_page_may_say_which_page_its_form_came_from_and_that_to_nobody_else():
    async with running(TOKEN) as (url, client):
        for path in ("login", "", "nowhere"):
            async with client.get(url + path) as answer:
                assert answer.headers.getall("Referrer-Policy") == ["same-origin"]


async def test_errors_are_short_and_tell_no_details():
    async with running() as (url, client):
        async with client.get(f"{url}broken") as answer:
            assert answer.status == 500
            assert json.loads(await answer.text()).keys() == {"error"}
        async with client.get(f"{url}broken", headers={"Accept": "text/html"}) as answer:
            text = await answer.text()
            assert answer.content_type == "text/html"
            assert "secret" not in text
            assert "Traceback" not in text
        async with client.get(f"{url}<script>") as answer:
            assert answer.status == 404
            assert "script" not in await answer.text()
        async with client.post(url, headers=origin(url)) as answer:
            assert answer.status == 405
            assert "GET" in answer.headers["Allow"]


async def test_large_bodies_are_refused():
    async with (
        running() as (url, client),
        client.post(f"{url}change", data=b"x" * (64 * 1024 + 1), headers=origin(url)) as answer,
    ):
        assert answer.status == 413


async def test_what_is_not_http_leaves_nothing_in_the_log(caplog, capsys):
    async with running() as (url, _client):
        port = int(url.rstrip("/").rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /?token=SECRET HTTP/1.1\r\nHost : x\r\n\x00bad header SECRET\r\n\r\n")
        await writer.drain()
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert b"400" in answer.split(b"\r\n")[0]
    assert "SECRET" not in caplog.text + "".join(capsys.readouterr())


def counted(registry: CollectorRegistry, reason: str) -> float | None:
    return registry.get_sample_value("confidant_page_refused_total", {"reason": reason})


async def test_each_refusal_is_counted_by_its_reason(monkeypatch):
    held, go = hold(monkeypatch)
    monkeypatch.setattr("bot.dashboard.guard.WRONG", Share(at_once=9, each=1, waiting=0))
    registry = CollectorRegistry()
    async with running(TOKEN, registry=registry) as (url, client):
        async with client.get(url) as answer:
            assert answer.status == 401
        async with client.post(f"{url}change", headers={"Origin": "https://evil.example"}) as no:
            assert no.status == 403
        wrong = {"Authorization": "Bearer wrong"}
        for _ in range(NETWORKS[0].free):
            async with client.get(url, headers=wrong) as answer:
                assert answer.status == 401
        first = asyncio.create_task(log_in(client, url, "wrong"))
        async with asyncio.timeout(PATIENCE):
            await held.acquire()
            async with client.get(url, headers=wrong) as answer:
                assert answer.status == 429
            go.set()
            assert (await first).status == 401
    assert counted(registry, "token_needed") == 1
    assert counted(registry, "origin") == 1
    assert counted(registry, "token_wrong") == NETWORKS[0].free + 1
    assert counted(registry, "too_many") == 1


async def test_a_program_proves_itself_by_a_bearer_token():
    said = {f"Bearer {TOKEN}": 200, f"bearer  {TOKEN} ": 200}
    said |= {f"Basic {TOKEN}": 401, TOKEN: 401, "Bearer": 401}
    async with running(TOKEN) as (url, client):
        for value, status in said.items():
            async with client.get(url, headers={"Authorization": value}) as answer:
                assert (value, answer.status) == (value, status)


@pytest.mark.parametrize(
    ("allowed", "origin", "status"),
    [
        ((), "https://bot.example.org", 403),
        (("https://bot.example.org",), "https://bot.example.org", 200),
        (("https://Bot.example.org/",), "https://BOT.example.org", 200),
        (("https://BOT.EXAMPLE.MX",), "https://bot.example.mx", 200),
        (("https://bot.example.org",), "http://bot.example.org", 403),
        (("https://bot.example.org",), "https://bot.example.org.evil.example", 403),
        ((), "null", 403),
        ((), "", 403),
        ((), "http://[", 403),
    ],
)
async def test_only_the_pages_the_operator_names_may_change_something(allowed, origin, status):
    async with (
        running(allowed_origins=list(allowed)) as (url, client),
        client.post(f"{url}change", data=b"abc", headers={"Origin": origin}) as answer,
    ):
        assert answer.status == status


async def test_host_names_are_the_same_in_any_case():
    headers = {"Host": "LocalHost:8420", "Origin": "http://LOCALHOST:8420"}
    async with running() as (url, client), client.post(f"{url}change", headers=headers) as answer:
        assert answer.status == 200


async def test_what_names_no_host_is_not_our_own_page():
    async with running(TOKEN) as (url, _client):
        host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /change HTTP/1.0\r\nOrigin: https://evil.example\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        writer.close()
    assert answer.split(b" ")[1] == b"403"
