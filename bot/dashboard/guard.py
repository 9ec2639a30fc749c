"""Access to pages: one middleware in front of every page, and the headers behind it.

Whoever is let in is a `Visitor`: the owner, or somebody the owner let in, who may use what is
shared (`bot.channel.contract`) and nothing else.

Without a token only this machine may look, by a loopback name: a page elsewhere that points its own
name at 127.0.0.1 (DNS rebinding) is refused. With a token everything but health and login needs it.
Everything that changes something, and every WebSocket, must come from our own page.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from array import array
from asyncio import sleep
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from pydantic import SecretStr

from bot.channel import reveal
from bot.channel.http import INLINE, VISITOR, Visitor, network_of
from bot.config import DashboardConfig, is_loopback
from bot.dashboard import pages
from bot.dashboard.push import ICONS
from bot.errors import ConfigError, PoolFull
from bot.shares import REQUESTS, WRONG, Pool

if TYPE_CHECKING:
    from bot.dashboard.browsers import Browsers

HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
FAVICON = "/static/favicon.svg"  # which the login page has as well
# A page without any rights, not even a cookie, that others show in a frame; and its scripts.
DRAWING = frozenset(f"/drawing/{name}" for name in ("frame.html", "frame.js", "mermaid.js"))
# What answers everybody alike, whatever the database does …
ANYBODYS = HEALTH_PATHS | DRAWING | {FAVICON, *pages.STYLES, *ICONS}
# … and what else needs nobody to be known.
OPEN_PATHS = ANYBODYS | {"/login", "/enter"}
HOOKS = "/hooks/"  # where programs report events, each signed
# What programs use with a key of their own; no cookie or token counts there.
PROGRAMS = ("/v1/", "/mcp", HOOKS)
TEMPORARY = "/api/temporary"  # where a browser waits as long
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
PROXY_HEADERS = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP")

COOKIE = "confidant_session"
COOKIE_SECONDS = 30 * 24 * 3600
FAILURE_WINDOW = 60.0  # seconds in which the free failures of a network come back
FIRST_DELAY, LONGEST_DELAY = 0.5, 4.0  # seconds
BUCKETS = 4096  # for each kind of network

POLICY = "Content-Security-Policy"
SECURITY_HEADERS = {
    POLICY: "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; media-src data:; worker-src 'self'; "
    "frame-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Under no-referrer a browser sends our own forms with "Origin: null", which is refused.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self)",
    "Server": "Confidant",
}


DRAWING_HEADERS = {
    POLICY: "sandbox allow-scripts; default-src 'none'; script-src 'self'; "
    "style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
    "Cross-Origin-Resource-Policy": "cross-origin",  # to itself: without rights it is nobody's
}


Verdict = Literal["right", "wrong", "too_many"]
"""Of a secret: "too_many" when wrong ones come too fast to be checked."""


def host_of(authority: str) -> str:
    """The host of a Host header's `host[:port]`, or empty if it is malformed."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


async def add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler for `on_response_prepare`: every response, errors included."""
    response.headers.update(SECURITY_HEADERS)
    if request.path in DRAWING:
        response.headers.update(DRAWING_HEADERS)
    for part, digest in response.get(INLINE, {}).items():  # of files of the program
        policy = response.headers[POLICY].replace(f"{part} 'self'", f"{part} 'self' {digest}")
        response.headers[POLICY] = policy


class Guard:
    """Decides, for each request, whether it goes on to its page.

    Raises:
        ConfigError: an address others can reach, without a token or with a short one.
    """

    def __init__(
        self,
        config: DashboardConfig,
        refused: Callable[[str], None],
        browsers: Browsers,
        *,
        shared: Collection[tuple[str, str]] = (),
        files: Collection[str] = (),
    ) -> None:
        """`shared` are the routes that every visitor may use, as method and path.

        `files` are paths of what holds nothing of anybody: there it is enough to have known a
        cookie a moment ago.
        """
        self._host = config.host
        self.tokens: Tokens | None = None
        self.renew(config.token)
        self._shared = frozenset(shared)
        self._browsers = browsers
        self._files = frozenset(files)
        self._failures = Failures()
        self._wrong, self._requests = Pool(WRONG), Pool(REQUESTS)
        self._refused = refused
        self._origins = frozenset(origin.rstrip("/").lower() for origin in config.allowed_origins)

    def renew(self, secret: SecretStr | None) -> None:
        """Let in whoever knows this token, and no cookie of another one.

        Raises:
            ConfigError: an address others can reach, without a token or with a short one.
        """
        token = reveal(secret)
        if not token and not is_loopback(self._host):
            raise ConfigError(
                f"The dashboard would listen on {self._host!r}, which other machines can reach, "
                "without a token. Set CONFIDANT_DASHBOARD__TOKEN to a long random text, or set "
                '[dashboard] host = "127.0.0.1".'
            )
        self.tokens = Tokens(token) if token else None

    @property
    def middleware(self) -> Middleware:
        """The aiohttp middleware."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if (refusal := self._not_local(request)) is not None:
                self._refused("elsewhere")
            elif request.path.startswith(PROGRAMS):
                refusal = await self._bad_key(request)
            elif (refusal := await self._bad_bearer(request)) is not None:
                pass  # counted where it was tried
            elif (refusal := self._foreign(request)) is not None:
                self._refused("origin")
            else:
                refusal = await self._let_in(request)
            if refusal is not None:
                return refusal
            visitor = request.get(VISITOR)
            if visitor is None or not _wants_websocket(request):
                return await self._answered(request, handler)
            with self._browsers.sockets.holding(visitor.login, request.transport):
                # Once more: their login may have ended before there was a connection to end.
                refusal = await self._let_in(request)
                return refusal if refusal is not None else await handler(request)

        return guard

    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer when it is the visitor's turn; before anybody has logged in, their network's."""
        visitor = request.get(VISITOR)
        whose = visitor.name if visitor is not None else network_of(request.remote or "")
        # Programs wait long for their answers, in places of their own.
        is_free = request.path in ANYBODYS or request.path.startswith(PROGRAMS)
        is_free = is_free or request.path == TEMPORARY or _wants_websocket(request)
        try:
            async with nullcontext() if is_free else self._requests.place(whose):
                return await handler(request)
        except PoolFull:
            self._refused("too_much")
            return pages.refuse(request, 429, "too_much")

    async def prove(self, request: web.Request, candidate: str) -> Verdict:
        """Check a token; slowly, where wrong ones came from lately.

        The right one is always taken: many people may share an address, through a proxy all do.
        """
        is_right = self.tokens is not None and self.tokens.accepts(candidate.strip())
        return await self.answer(request, is_right=is_right)

    async def answer(self, request: web.Request, *, is_right: bool, name: str = "") -> Verdict:
        """Say whether a secret was right, as slowly as the last tries from there deserve.

        With a `name` also as those for that name do, wherever they came from. Of one network only
        few wrong ones are held back; the others are refused, and do not slow the name down: nobody
        can do that from one address.
        """
        remote, named = request.remote or "", f"@{name}" if name else ""
        seconds = max(map(self._failures.delay, (remote, named) if named else (remote,)))
        if is_right:
            await sleep(seconds)
            return "right"
        self._failures.add(remote)
        try:
            async with self._wrong.place(network_of(remote)) if seconds else nullcontext():
                if named:
                    self._failures.add(named)
                await sleep(seconds)
        except PoolFull:
            self._refused("too_many")
            return "too_many"
        self._refused("token_wrong")
        return "wrong"

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
        return _refusal(request, await self.prove(request, candidate), "token_wrong")

    async def _bad_key(self, request: web.Request) -> web.Response | None:
        if request.path.startswith(HOOKS):
            id_, body = request.path.removeprefix(HOOKS), await request.read()
            visitor = await self._browsers.of_hook(id_, request.headers, body)
        else:
            visitor = await self._browsers.of_program(_bearer(request) or "")
        if visitor is not None:
            request[VISITOR] = visitor
        verdict = await self.answer(request, is_right=visitor is not None)
        return _refusal(request, verdict, "key_wrong")

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

    async def _let_in(self, request: web.Request) -> web.Response | None:
        """Say who the visitor is; the answer for nobody, and for what is not theirs."""
        if request.path in ANYBODYS:
            return None
        visitor = await self._visitor(request)
        if visitor is None:
            return None if request.path in OPEN_PATHS else self._unknown(request)
        request[VISITOR] = visitor
        resource = request.match_info.route.resource
        method = "GET" if request.method == "HEAD" else request.method
        # What there is not is told as such.
        is_theirs = resource is None or (method, resource.canonical) in self._shared
        if visitor.is_owner or request.path in OPEN_PATHS or is_theirs:
            return None
        self._refused("not_theirs")
        return pages.refuse(request, 403, "owners")

    def _unknown(self, request: web.Request) -> web.Response:
        self._refused("token_needed")
        if request.method == "GET" and pages.wants_html(request):
            return pages.see("/login")
        response = pages.refuse(request, 401, "token_needed")
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    async def _visitor(self, request: web.Request) -> Visitor | None:
        cookie = request.cookies.get(COOKIE, "")
        if self.tokens is not None and _bearer(request) is not None:
            return Visitor()
        found = self._browsers.found_lately(cookie) if request.path in self._files else None
        found = found or await self._browsers.find(cookie)
        if self.tokens is None:
            return found or Visitor()
        is_known = found is not None and (not found.is_owner or self.tokens.remembers(cookie))
        return found if is_known else None

    def _is_ours(self, origin: str, host: str) -> bool:
        if origin in self._origins:
            return True
        try:
            authority = urlsplit(origin).netloc
        except ValueError:
            return False
        return bool(authority) and authority == host


def _refusal(request: web.Request, verdict: Verdict, wrong: str) -> web.Response | None:
    if verdict == "right":
        return None
    is_wrong = verdict == "wrong"
    return pages.refuse(request, 401 if is_wrong else 429, wrong if is_wrong else verdict)


def _bearer(request: web.Request) -> str | None:
    """The token a program sent along; by the time pages are served it was found right."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _wants_websocket(request: web.Request) -> bool:
    return request.headers.get("Upgrade", "").lower() == "websocket"


# --- proof of being allowed in: the token, and the cookie a browser gets for it -------------------


@dataclass(frozen=True, slots=True)
class Network:
    """A kind of network: how many bits name one, and how many failures cost nothing there."""

    v4: int
    v6: int
    free: int


# Whoever has one address of IPv6 has a whole /64, and often a /48.
NETWORKS = (Network(32, 64, 5), Network(24, 48, 20), Network(16, 32, 80))


class Tokens:
    """Checks tokens and makes cookies that prove one was known, without containing it.

    A cookie is `<expiry>-<nonce>.<HMAC of both under a key derived from the token>`: a new token
    logs the owner out everywhere.
    """

    def __init__(self, token: str, clock: Callable[[], float] = time.time) -> None:
        self._digest = hashlib.sha256(token.encode()).digest()
        self._key = hmac.digest(token.encode(), b"confidant dashboard session v1", "sha256")
        self._clock = clock

    def accepts(self, candidate: str) -> bool:
        """True if this is the token, in constant time."""
        digest = hashlib.sha256(candidate.encode("utf-8", "surrogatepass")).digest()
        return hmac.compare_digest(digest, self._digest)

    def issue(self) -> str:
        """A new cookie value."""
        said = f"{int(self._clock()) + COOKIE_SECONDS}-{secrets.token_hex(16)}"
        return f"{said}.{self._sign(said)}"

    def remembers(self, cookie: str) -> bool:
        """True if a cookie was issued for this token and still holds."""
        said, _, signature = cookie.partition(".")
        expected = self._sign(said).encode()
        genuine = hmac.compare_digest(signature.encode("utf-8", "surrogatepass"), expected)
        return genuine and int(said.partition("-")[0]) > self._clock()

    def _sign(self, said: str) -> str:
        message = said.encode("utf-8", "surrogatepass")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()


class Failures:
    """Counts wrong tokens by network, near and wide, so guessing is slow from wherever one does it.

    Each network has a bucket that empties within a minute, in a table of fixed size: there is
    nothing to push out, and no flood that makes one's own bucket be forgotten. Two networks may
    share a bucket; that makes one of them wait for the other's sake, and refuses nobody.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(16)  # nobody can choose whose bucket they share
        self._counts = [array("d", bytes(8 * BUCKETS)) for _ in NETWORKS]
        self._at = [array("d", bytes(8 * BUCKETS)) for _ in NETWORKS]

    def delay(self, address: str) -> float:
        """Seconds the next try from an address has to wait for its answer."""
        return max(
            delay_of(math.ceil(self._count(level, bucket)), NETWORKS[level].free)
            for level, bucket in self._buckets(address)
        )

    def add(self, address: str) -> None:
        """Remember one wrong token."""
        for level, bucket in self._buckets(address):
            self._counts[level][bucket] = self._count(level, bucket) + 1
            self._at[level][bucket] = self._clock()

    def _buckets(self, address: str) -> Iterator[tuple[int, int]]:
        for level, network in enumerate(NETWORKS):
            if address.startswith("@") and level < len(NETWORKS) - 1:
                continue  # a name is tried from everywhere: it has what the widest network has
            name = network_of(address, v4=network.v4, v6=network.v6).encode()
            digest = hashlib.blake2b(name, key=self._secret, digest_size=8).digest()
            yield level, int.from_bytes(digest) % BUCKETS

    def _count(self, level: int, bucket: int) -> float:
        gone = (self._clock() - self._at[level][bucket]) / FAILURE_WINDOW * NETWORKS[level].free
        return max(0.0, self._counts[level][bucket] - gone)


def delay_of(failures: float, free: int) -> float:
    """Seconds of waiting after so many failures: none for the first, then twice as many each time.

    "Each time" is as many failures again as are free.
    """
    if failures < free:
        return 0.0
    return min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(16.0, failures / free - 1))
