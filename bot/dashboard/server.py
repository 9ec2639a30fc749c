"""The one HTTP server: starts, listens, answers, stops."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, Counter
from pydantic import SecretStr

from bot.channel import HttpRoutes
from bot.channel.http import HttpServer, Limits, Refusals
from bot.channel.kit import assets
from bot.channel.visitor import SharedRoute, shared
from bot.config import DashboardConfig
from bot.dashboard import pages
from bot.dashboard.api import HealthPages, ReadinessProvider
from bot.dashboard.browsers import Browsers
from bot.dashboard.guard import FindGuest, Guard, add_security_headers
from bot.dashboard.logins import Entrance, Passwords
from bot.dashboard.push import InstallPages
from bot.errors import ConfigError, StorageError

log = structlog.stdlib.get_logger(__name__)

MAX_BODY = 64 * 1024  # bytes; nothing here takes uploads
LIMITS = Limits(shutdown=3.0)  # how long open requests may finish when the server stops


@dataclass(frozen=True, slots=True)
class Listening:
    """The address the server really has."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Where a person on this machine opens it."""
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
        channels: Iterable[HttpRoutes] = (),
        guest: FindGuest | None = None,
        name: Callable[[], str] = lambda: "Confidant",
        browsers: Browsers | None = None,
        passwords: Passwords | None = None,
    ) -> None:
        """`channels` are pages and channels with pages; `name` is what the bot is called.

        `browsers` know whose a cookie is; without them `guest` finds that, if anybody does.
        """
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
            *shared(assets.routes("bot.dashboard", pages.ASSETS)),
            *(route for channel in channels for route in channel.routes()),
        )
        files = assets.versions(brought)
        self._install = InstallPages(name, files)
        install = self._install.routes()
        self._guard = Guard(
            config,
            self._refused,
            shared={(r.method, r.path) for r in (*brought, *install) if isinstance(r, SharedRoute)},
            guest=browsers.find if browsers is not None else guest,
            sockets=browsers.sockets if browsers is not None else None,
            files=files.keys() - {"/"},  # a page, which leads whoever is out to the login
            lately=browsers.found_lately if browsers is not None else None,
        )
        entrance = Entrance(self._guard, browsers, passwords)
        self.routes: tuple[web.RouteDef, ...] = (
            *self._health.routes(),
            *entrance.routes(),
            *brought,
            *install,
        )
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
        app = web.Application(
            client_max_size=MAX_BODY, middlewares=[_plain_errors, self._guard.middleware]
        )
        app.on_response_prepare.append(add_security_headers)
        app.add_routes(self.routes)
        return app


@web.middleware
async def _plain_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
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
    except StorageError as error:
        log.warning("dashboard.storage_failed", error=type(error).__name__)
        return pages.refuse_status(request, 503)
    except Exception:
        log.exception("dashboard.request.failed", method=request.method)
        return pages.refuse_status(request, 500)


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
