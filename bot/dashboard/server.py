"""The one HTTP server: starts, listens, answers, stops."""

from __future__ import annotations

import errno
import gzip
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    generate_latest,
)
from pydantic import SecretStr

from bot.channel import http
from bot.channel.http import VISITOR, HttpServer, Limits, Refusals, SharedRoute, shared
from bot.clock import Clock, system_clock
from bot.config import DashboardConfig
from bot.dashboard import pages
from bot.dashboard.browsers import Browsers
from bot.dashboard.guard import Guard, add_security_headers
from bot.dashboard.people import Entrance, Passwords
from bot.dashboard.push import InstallPages
from bot.errors import ConfigError, NotVisible, StorageClosed, StorageError, ToolError
from bot.health import STATES, Readiness, in_public
from bot.identity import ConversationResolver
from bot.memory import layout
from bot.memory.exchange import ExchangeError
from bot.memory.memory import OWNER_VIEW, Memory
from bot.views.outcomes import told

# What programs read: `/healthz`, `/readyz`, `/metrics`, and the owner's memory.

log = structlog.stdlib.get_logger(__name__)

MAX_QUERY = 2_000  # characters
MAX_RESULTS = 50
DEFAULT_SPACE = "main"

ReadinessProvider = Callable[[], Awaitable[Readiness]]
Waiting = Callable[[], Awaitable[Mapping[str, int]]]


class HasRoutes(Protocol):
    """Pages of the dashboard, or a channel that has some."""

    def routes(self) -> Iterable[web.RouteDef]:
        """Their routes, for the owner alone but for those that are `shared`."""
        ...


class HealthPages:
    """Health and metrics, as far as the outside may know them."""

    def __init__(self, readiness: ReadinessProvider, registry: CollectorRegistry) -> None:
        self._readiness = readiness
        self._registry = registry
        self._states = Gauge(
            "confidant_health",
            "1 for the state that a part is in, 0 for the others.",
            ("check", "state"),
            registry=registry,
        )

    def routes(self) -> list[web.RouteDef]:
        """The routes."""
        return [
            web.get("/healthz", self._alive),
            web.get("/readyz", self._ready),
            web.get("/metrics", self._metrics),
        ]

    async def _alive(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "alive"}, headers={"Cache-Control": "no-store"})

    async def _ready(self, request: web.Request) -> web.Response:
        readiness, language = await self._readiness(), pages.language(request)
        checks: dict[str, dict[str, object]] = {}
        for check in readiness.checks:
            found = in_public(check.finding)
            said = told(found, language)
            checks[check.name] = {"state": check.state, "detail": said.text, "fix": said.fix}
            checks[check.name] |= {"id": found.id, "values": found.values}
        return web.json_response(
            {"ready": readiness.ready, "state": readiness.state, "checks": checks},
            status=200 if readiness.ready else 503,
            headers={"Cache-Control": "no-store"},
        )

    async def _metrics(self, _request: web.Request) -> web.Response:
        readiness = await self._readiness()
        self._states.clear()  # a part may be gone
        for check in readiness.checks:
            for state in STATES.values():
                self._states.labels(check.name, state).set(check.state == state)
        return web.Response(
            body=generate_latest(self._registry),
            headers={"Content-Type": CONTENT_TYPE_LATEST, "Cache-Control": "no-store"},
        )


class MemoryPages:
    """`/api/memory/search`: the owner's memory, for other programs of the owner's."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def routes(self) -> list[web.RouteDef]:
        """The route."""
        return [web.get("/api/memory/search", self._search)]

    async def _search(self, request: web.Request) -> web.Response:
        query = request.query.get("q", "").strip()
        if not query or len(query) > MAX_QUERY:
            return _refused(400, f"q must be 1 to {MAX_QUERY} characters")
        most = pages.whole(request.query["k"], 0) if "k" in request.query else None
        if most is not None and not 1 <= most <= MAX_RESULTS:
            return _refused(400, f"k must be a whole number from 1 to {MAX_RESULTS}")
        space = request.query.get("space", "") or DEFAULT_SPACE
        found = await self._memory.search_space(OWNER_VIEW, space, query, most)
        if found is None:
            return _refused(404, "there is no such space here")
        results = [
            {
                "path": layout.shown(hit.space, hit.path),
                "start_line": hit.start_line,
                "end_line": hit.end_line,
                "score": hit.score,
                "snippet": hit.snippet,
                "source": hit.source,
            }
            for hit in found.hits[:most]
        ]
        return web.json_response(
            {"results": results, "mode": found.mode}, headers={"Cache-Control": "no-store"}
        )


def _refused(status: int, why: str) -> web.Response:
    return web.json_response({"error": why}, status=status)


MAX_BODY = 64 * 1024  # bytes; nothing here takes uploads
LIMITS = Limits(shutdown=3.0)  # how long open requests may finish when the server stops


@dataclass(frozen=True, slots=True)
class Listening:
    """The address the server really has."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address to open on this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"


class DashboardServer:
    """Health, metrics, login and the channels' own pages, behind the guard.

    Raises:
        ConfigError: the configuration would let strangers in.
    """

    def __init__(
        self,
        config: DashboardConfig,
        *,
        readiness: ReadinessProvider,
        registry: CollectorRegistry,
        browsers: Browsers,
        channels: Iterable[HasRoutes] = (),
        name: Callable[[], str] = lambda: "Confidant",
        language: Callable[[], str] = lambda: "auto",
        resolver: ConversationResolver | None = None,
        clock: Clock = system_clock,
        passwords: Passwords | None = None,
        waiting: Waiting | None = None,
    ) -> None:
        """`channels` are pages and channels with pages; `name` is what the bot is called.

        `language` is the one it speaks, or "auto". `resolver` and `clock` are for pages that ask
        for a visitor's conversation or the time. `waiting` counts who waits for the owner, by the
        path of the page.
        """
        self._language = language
        self._resolver = resolver
        self._clock = clock
        refused = Counter(
            "confidant_page_refused",
            "Requests to the page that came to nothing, by reason.",
            ("reason",),
            registry=registry,
        )
        refusals = Refusals("dashboard.refused", lambda reason: refused.labels(reason).inc())
        self._refused = refusals.add
        self._config = config
        self._health = HealthPages(readiness, registry)
        brought = (
            *shared(http.asset_routes("bot.dashboard", pages.ASSETS)),
            *(route for channel in channels for route in channel.routes()),
        )
        files = http.asset_versions(brought)
        self._install = InstallPages(name, files)
        install = self._install.routes()
        self._guard = Guard(
            config,
            self._refused,
            browsers,
            shared={(r.method, r.path) for r in (*brought, *install) if isinstance(r, SharedRoute)},
            files=files.keys() - {"/"},  # a page, which leads whoever is out to the login
        )
        entrance = Entrance(self._guard, browsers, passwords or Passwords())
        self.routes: tuple[web.RouteDef, ...] = (
            *self._health.routes(),
            *entrance.routes(),
            *brought,
            *install,
        )
        self._waiting = waiting
        self._server: HttpServer | None = None

    async def start(self) -> Listening:
        """Listen.

        Raises:
            ConfigError: the address cannot be used; the sentence says why and what to change.
        """
        server = HttpServer(self._application(), LIMITS, self._refused)
        try:
            listening = Listening(*await server.start(self._config.host, self._config.port))
        except OSError as error:
            await server.stop()
            raise ConfigError(_why_not(error, self._config)) from error
        self._server = server
        log.info("dashboard.listening", url=listening.url)
        return listening

    def renew(self, token: SecretStr | None) -> None:
        """Let this token in from now on; whoever came by another one has to log in again.

        Raises:
            ConfigError: others can reach the page, and this would let strangers in.
        """
        self._guard.renew(token)

    async def stop(self) -> None:
        """Stop listening and let open requests finish for a moment; may be called twice."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    def _application(self) -> web.Application:
        middlewares = [_plain_errors, self._guard.middleware]
        if self._waiting is not None:
            middlewares.append(_counted(self._waiting))
        if self._config.path:
            middlewares.insert(0, _below(self._config.path))
        app = web.Application(client_max_size=MAX_BODY, middlewares=middlewares)
        app.on_response_prepare.append(add_security_headers)
        app[pages.LANGUAGE] = self._language
        app[pages.CLOCK] = self._clock
        if self._resolver is not None:
            app[pages.RESOLVER] = self._resolver
        app.add_routes(self.routes)
        return app


def _counted(waiting: Waiting) -> Middleware:
    """Lets the owner's pages know who waits; they are shown all the same when nobody can tell."""

    @web.middleware
    async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
        visitor = request.get(VISITOR)
        if visitor is not None and visitor.is_owner and _has_menu(request):
            with suppress(StorageError):
                request[pages.WAITING] = dict(await waiting())
        return await handler(request)

    return counted


def _has_menu(request: web.Request) -> bool:
    return pages.wants_html(request) or request.path == "/api/ways"


# What begins an address of ours, in what the server sends; scripts find theirs by their own place.
_ADDRESSES = {
    "text/html": b'="/',
    "application/manifest+json": b'"/',
    "text/javascript": b'"/',
}


def _below(path: str) -> Middleware:
    """Makes every address that leads to the server begin with a path, for whoever is in front."""

    @web.middleware
    async def below(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPException as error:
            _move(error, path)
            raise
        _move(response, path)
        mark = _ADDRESSES.get(response.content_type)
        is_script = response.content_type == "text/javascript" and request.path != "/sw.js"
        if mark is None or is_script or not isinstance(response, web.Response):
            return response
        if isinstance(response.body, bytes):
            is_packed = response.headers.get("Content-Encoding") == "gzip"
            body = gzip.decompress(response.body) if is_packed else response.body
            body = body.replace(mark, mark + f"{path[1:]}/".encode())
            response.body = gzip.compress(body, mtime=0) if is_packed else body
        return response

    return below


def _move(response: web.StreamResponse, path: str) -> None:
    location = response.headers.get("Location", "")
    if location.startswith("/"):
        response.headers["Location"] = path + location


@web.middleware
async def _plain_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Make every error a page, or JSON for a program."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        response = pages.refuse_status(request, error.status)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except (ConnectionError, web.RequestPayloadError):
        return web.Response(status=400)  # whoever asked went away in the middle: nobody's fault
    except NotVisible:
        status, key = 404, "not_found"
    except (ToolError, ExchangeError) as error:
        path = request.query.get("path", "")
        return pages.page(request, "memory_unreadable.html", 409, path=path, why=str(error))
    except StorageError as error:
        log.warning("dashboard.storage_failed", error=type(error).__name__)
        status, key = 503, "stopping" if isinstance(error, StorageClosed) else "failed"
    except Exception:
        log.exception("dashboard.request.failed", method=request.method)
        status, key = 500, "failed"
    return pages.refuse(request, status, key)


def _why_not(error: OSError, config: DashboardConfig) -> str:
    where = f"{config.host}:{config.port}"
    change = "Change [dashboard] {what} (or CONFIDANT_DASHBOARD__{name})."
    port, host = change.format(what="port", name="PORT"), change.format(what="host", name="HOST")
    if error.errno == errno.EADDRINUSE:
        return (
            f"The dashboard cannot listen on {where}: another program uses that port, perhaps "
            f"Confidant itself. {port} Port 0 takes any free one."
        )
    if error.errno == errno.EACCES:
        return f"The dashboard may not listen on {where}: ports below 1024 need rights. {port}"
    # From Python 3.13 on asyncio tells this with an error that has no number.
    if error.errno in {errno.EADDRNOTAVAIL, None} or isinstance(error, socket.gaierror):
        return f"The dashboard cannot listen on {where}: this machine has no such address. {host}"
    return f"The dashboard cannot listen on {where}: {error.strerror or error}. {host}"
