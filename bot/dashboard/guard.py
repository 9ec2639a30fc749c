"""Who may ask for what: one middleware in front of every page, and the headers behind it.

Without a token only this machine may look, by a loopback name: a page elsewhere that points its own
name at 127.0.0.1 (DNS rebinding) is refused. With a token everything but health and login needs it.
Everything that changes something, and every WebSocket, must come from our own page.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable
from typing import Literal
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from bot.channel import reveal
from bot.config import SHORTEST_TOKEN, DashboardConfig, is_loopback
from bot.dashboard import pages
from bot.dashboard.sessions import COOKIE, Failures, Tokens
from bot.errors import ConfigError

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
OPEN_PATHS = HEALTH_PATHS | {"/login", pages.STYLE_PATH}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
MOST_HELD = 32  # wrong tokens whose answer waits; those beyond get theirs at once
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
        ConfigError: an address others can reach, without a token or with a short one.
    """

    def __init__(self, config: DashboardConfig, refused: Callable[[str], None]) -> None:
        token = reveal(config.token)
        if not token and not is_loopback(config.host):
            raise ConfigError(
                f"The dashboard would listen on {config.host!r}, which other machines can reach, "
                "without a token. Set CONFIDANT_DASHBOARD__TOKEN to a long random text, or set "
                '[dashboard] host = "127.0.0.1".'
            )
        if token and len(token) < SHORTEST_TOKEN and not is_loopback(config.host):
            raise ConfigError(
                f"The dashboard would listen on {config.host!r}, which other machines can reach, "
                f"with a token of fewer than {SHORTEST_TOKEN} characters, which can be guessed. "
                "Set CONFIDANT_DASHBOARD__TOKEN to a long random text, such as this prints: "
                "python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        self.tokens = Tokens(token) if token else None
        self._failures = Failures()
        self._held = 0
        self._refused = refused
        self._origins = frozenset(origin.rstrip("/").lower() for origin in config.allowed_origins)

    @property
    def middleware(self) -> Middleware:
        """The aiohttp middleware."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if (refusal := self._not_local(request)) is not None:
                self._refused("elsewhere")
            elif (refusal := await self._bad_bearer(request)) is not None:
                pass  # counted where it was tried
            elif (refusal := self._foreign(request)) is not None:
                self._refused("origin")
            elif (refusal := self._stranger(request)) is not None:
                self._refused("token_needed")
            return await handler(request) if refusal is None else refusal

        return guard

    async def prove(
        self, request: web.Request, candidate: str
    ) -> Literal["right", "wrong", "too_many"]:
        """Look at a token; slowly, where wrong ones came from lately.

        The right one is always taken: many people may share an address, through a proxy all do.
        """
        address = request.remote or ""
        is_right = self.tokens is not None and self.tokens.accepts(candidate.strip())
        seconds = self._failures.delay(address)
        if not is_right:
            self._failures.add(address)
            if seconds and self._held >= MOST_HELD:
                self._refused("too_many")
                return "too_many"
        self._held += 1
        try:
            await sleep(seconds)
        finally:
            self._held -= 1
        if not is_right:
            self._refused("token_wrong")
        return "right" if is_right else "wrong"

    def _not_local(self, request: web.Request) -> web.Response | None:
        if self.tokens is not None:
            return None
        if not is_loopback(host_of(request.headers.get("Host", ""))):
            return pages.refuse(request, 403, "host")
        # A reverse proxy on this machine would hand strangers the owner's chat.
        if any(name in request.headers for name in PROXY_HEADERS):
            return pages.refuse(request, 403, "proxy")
        return None

    async def _bad_bearer(self, request: web.Request) -> web.Response | None:
        candidate = _bearer(request)
        if self.tokens is None or candidate is None or request.path in HEALTH_PATHS:
            return None
        match await self.prove(request, candidate):
            case "right":
                return None
            case "wrong":
                return pages.refuse(request, 401, "token_wrong")
            case "too_many":
                return pages.refuse(request, 429, "too_many")

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
