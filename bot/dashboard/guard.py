"""Who may ask for what: one middleware in front of every page, and the headers behind it.

Without a token only this machine may look, by a loopback name: a page elsewhere that points its own
name at 127.0.0.1 (DNS rebinding) is refused. With a token everything but health and login needs it.
Everything that changes something, and every WebSocket, must come from our own page.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from bot.channel import reveal
from bot.config import DashboardConfig
from bot.dashboard import pages
from bot.dashboard.sessions import COOKIE, Failures, Tokens
from bot.errors import ConfigError

log = structlog.stdlib.get_logger(__name__)

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
OPEN_PATHS = HEALTH_PATHS | {"/login", pages.STYLE_PATH}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PROXY_HEADERS = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP")

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Server": "Confidant",
}


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str:
    """The host of a Host header's `host[:port]`, or empty if it is malformed."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


async def add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler for `on_response_prepare`: every response, errors included."""
    response.headers.update(SECURITY_HEADERS)
    if request.path == "/login":
        # Under no-referrer a browser sends its own form with "Origin: null", which is refused.
        response.headers["Referrer-Policy"] = "same-origin"


class Guard:
    """Decides, for each request, whether it goes on to its page.

    Raises:
        ConfigError: an address others can reach, without a token.
    """

    def __init__(self, config: DashboardConfig) -> None:
        token = reveal(config.token)
        if not token and not is_loopback(config.host):
            raise ConfigError(
                f"The dashboard would listen on {config.host!r}, which other machines can reach, "
                "without a token. Set CONFIDANT_DASHBOARD__TOKEN to a long random text, or set "
                '[dashboard] host = "127.0.0.1".'
            )
        self.tokens = Tokens(token) if token else None
        self.failures = Failures()
        self._origins = frozenset(origin.rstrip("/").lower() for origin in config.allowed_origins)

    @property
    def middleware(self) -> Middleware:
        """The aiohttp middleware."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            for check in (self._not_local, self._bad_bearer, self._foreign, self._stranger):
                refusal = check(request)
                if refusal is not None:
                    log.info("dashboard.refused", status=refusal.status, method=request.method)
                    return refusal
            return await handler(request)

        return guard

    def may_try(self, request: web.Request) -> web.Response | None:
        """A 429 when this address tried too many wrong tokens lately."""
        seconds = self.failures.wait(request.remote or "")
        if seconds <= 0:
            return None
        response = pages.refuse(request, 429, "too_many")
        response.headers["Retry-After"] = str(int(seconds) + 1)
        return response

    def _not_local(self, request: web.Request) -> web.Response | None:
        if self.tokens is not None:
            return None
        if not is_loopback(host_of(request.headers.get("Host", ""))):
            return pages.refuse(request, 403, "host")
        # A reverse proxy on this machine would hand strangers the owner's chat.
        if any(name in request.headers for name in PROXY_HEADERS):
            return pages.refuse(request, 403, "proxy")
        return None

    def _bad_bearer(self, request: web.Request) -> web.Response | None:
        candidate = _bearer(request)
        if self.tokens is None or candidate is None or request.path in HEALTH_PATHS:
            return None
        if (wait := self.may_try(request)) is not None:
            return wait
        if self.tokens.accepts(candidate):
            return None
        self.failures.add(request.remote or "")
        return pages.refuse(request, 401, "token_wrong")

    def _foreign(self, request: web.Request) -> web.Response | None:
        if request.method in SAFE_METHODS and not _wants_websocket(request):
            return None
        origin = request.headers.get("Origin")
        if origin is None:
            # Browsers always say where these come from; a program proves itself by the token.
            known = self.tokens is not None and _bearer(request) is not None
        else:
            known = self._is_ours(origin.lower(), request.headers.get("Host", "").lower())
        return None if known else pages.refuse(request, 403, "origin")

    def _stranger(self, request: web.Request) -> web.Response | None:
        if self.tokens is None or request.path in OPEN_PATHS or _bearer(request) is not None:
            return None
        if self.tokens.remembers(request.cookies.get(COOKIE, "")):
            return None
        if request.method == "GET" and pages.wants_html(request):
            return web.Response(status=303, headers={"Location": "/login"})
        response = pages.refuse(request, 401, "token_needed")
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    def _is_ours(self, origin: str, host: str) -> bool:
        if origin in self._origins:
            return True
        try:
            authority = urlsplit(origin).netloc
        except ValueError:
            return False
        return bool(authority) and authority == host


def _bearer(request: web.Request) -> str | None:
    """The token a program sent along; by the time pages are served it was found right."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _wants_websocket(request: web.Request) -> bool:
    return request.headers.get("Upgrade", "").lower() == "websocket"
