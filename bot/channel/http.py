"""The HTTP server of every page and webhook: one that strangers cannot exhaust.

A request has a while to arrive whole, an answer a while to be read, and connections are counted, by
address and in all. Where there is no room for one more, the one that has kept the bot waiting
longest makes room: so a crowd that connects and says nothing keeps nobody out.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import ipaddress
import logging
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, cast

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from bot.channel.contract import PAGE_OWNER

log = structlog.stdlib.get_logger(__name__)

# aiohttp quotes the raw bytes of malformed requests in its log; those may hold a secret.
_protocol_log = logging.getLogger("bot.channel.http.protocol")
_protocol_log.setLevel(logging.CRITICAL)

MOST_CONNECTIONS = 512
LEAST_CONNECTIONS = 16
BACKLOG = 1_024  # that wait to be let in; where there is no room, a call takes a second more
SHARE_OF_DESCRIPTORS = 8  # three servers at most, and everything else needs files too


def _connections() -> int:
    """The connections one server may have, well below what the process may open."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return MOST_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(LEAST_CONNECTIONS, min(MOST_CONNECTIONS, soft // SHARE_OF_DESCRIPTORS))


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one server; times are in seconds."""

    head: float = 30.0  # for a request's head, from connecting or from the answer before
    body: float = 10.0  # for the rest of the request
    unread: float = 30.0  # that nothing of an answer is read
    total: int = 0  # connections; 0 is as many as the process can spare
    per_address: int = 0  # of these, from one IPv4 address or IPv6 /64; 0 is half of them
    linger: float = 0.5  # to read what nobody wants, so that the caller sees the answer
    shutdown: float = 20.0  # that requests being answered may take when the server stops

    @property
    def most(self) -> int:
        """The most connections there may be."""
        return self.total or _connections()

    @property
    def most_per_address(self) -> int:
        """The most connections from one address."""
        return self.per_address or max(1, self.most // 2)


def network_of(address: str, *, v4: int = 32, v6: int = 64) -> str:
    """The network an address is in, so many bits long; what is no address is its own network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    bits = v4 if found.version == 4 else v6
    return str(ipaddress.ip_network((found, bits), strict=False))


class Refusals:
    """Counts what was refused; anybody can cause that, so the log hears of few.

    Args:
        event: what the log calls it.
        count: counts one for the metrics; it gets the reason, a word of the program's own.
        every: seconds between two lines about the same reason.
        now: the time in seconds.
    """

    def __init__(
        self,
        event: str,
        count: Callable[[str], None],
        *,
        every: float = 60.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._event, self._count, self._every, self._now = event, count, every, now
        self._since: dict[str, tuple[float, int]] = {}  # when it was told, and how many came since

    def add(self, reason: str) -> None:
        """Count one more; the first is told at once, those of a minute together."""
        self._count(reason)
        told, count = self._since.get(reason, (-self._every, 0))
        now, count = self._now(), count + 1
        if now - told >= self._every:
            log.warning(self._event, reason=reason, count=count)
            told, count = now, 0
        self._since[reason] = (told, count)


class HttpServer:
    """Serves one aiohttp application.

    `refused` hears one word for each connection or request that came to nothing: "crowded", "slow"
    (its body), "unread".
    """

    def __init__(
        self,
        app: web.Application,
        limits: Limits | None = None,
        refused: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._limits = limits or Limits()
        self._refused = refused
        self._networks: dict[str, dict[_Connection, None]] = {}  # in the order in which they came
        self._count = 0
        self._by_protocol: dict[Any, _Connection] = {}
        self._server: asyncio.Server | None = None
        app.middlewares.insert(0, self._arriving)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_protocol_log,
            shutdown_timeout=self._limits.shutdown,
            lingering_time=self._limits.linger,
            keepalive_timeout=self._limits.head,
        )

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the address and port it really has. May be called again after an error.

        Raises:
            OSError: the address cannot be used.
        """
        if self._runner.server is None:
            await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, host, port, backlog=BACKLOG)
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address

    async def stop(self) -> None:
        """Stop listening and let open requests finish; may be called twice."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        await self._runner.cleanup()

    # --- connections ------------------------------------------------------------------------------

    def _connection(self) -> _Connection:
        return _Connection(self._limits, self._enter, self._leave, self._refused)

    def _enter(self, connection: _Connection) -> asyncio.Protocol | None:
        """Let a connection in; what answers it, or None when there is no room."""
        server = self._runner.server
        peers = self._networks.get(connection.network, ())
        is_full = self._count >= self._limits.most
        if len(peers) >= self._limits.most_per_address:
            is_in = self._make_room(peers)
        else:
            everybody = (each for peers in self._networks.values() for each in peers)
            is_in = not is_full or self._make_room(everybody)
        if not is_in or server is None:
            self._refused("crowded")
            return None
        self._networks.setdefault(connection.network, {})[connection] = None
        self._count += 1
        protocol = server()
        self._by_protocol[protocol] = connection
        return protocol

    def _leave(self, connection: _Connection) -> None:
        peers = self._networks.get(connection.network, {})
        if connection in peers:
            del peers[connection]
            self._count -= 1
            if not peers:
                del self._networks[connection.network]
        self._by_protocol.pop(connection.protocol, None)

    def _make_room(self, candidates: Iterable[_Connection]) -> bool:
        """Drop one that is not being answered: the oldest of the busiest network."""
        waiting = [each for each in candidates if not each.is_answered]
        if not waiting:
            return False
        last = min(waiting, key=lambda each: (-len(self._networks[each.network]), each.since))
        self._leave(last)
        last.drop()
        self._refused("crowded")
        return True

    # --- requests ---------------------------------------------------------------------------------

    @property
    def _arriving(self) -> Any:
        @web.middleware
        async def arriving(request: web.Request, handler: Handler) -> web.StreamResponse:
            connection = self._by_protocol.get(request.protocol)
            limit = asyncio.timeout(self._limits.body)
            is_over = False

            def arrived() -> None:
                if connection is not None and not is_over:
                    connection.is_answered = True
                if not is_over and not limit.expired():
                    limit.reschedule(None)

            try:
                async with limit:
                    request.content.on_eof(arrived)
                    return await handler(request)
            except TimeoutError:
                if not limit.expired():
                    raise
                self._refused("slow")
                response = web.Response(status=408)
                response.force_close()
                return response
            finally:
                is_over = True
                if connection is not None:
                    connection.is_answered = False
                    connection.since = asyncio.get_running_loop().time()

        return arriving


class _Connection(asyncio.Protocol):
    """One connection: passes everything on to aiohttp's protocol, once it was let in."""

    def __init__(
        self,
        limits: Limits,
        enter: Callable[[_Connection], asyncio.Protocol | None],
        leave: Callable[[_Connection], None],
        refused: Callable[[str], None],
    ) -> None:
        self._limits, self._enter, self._leave, self._refused = limits, enter, leave, refused
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unread: asyncio.TimerHandle | None = None
        self.protocol: asyncio.Protocol | None = None
        self.network = ""
        self.since = self._loop.time()  # when it began to keep the bot waiting
        self.is_answered = False  # True while a request that has arrived whole is being answered

    def drop(self) -> None:
        """End it without a word."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are no subclass of it, although they are one.
        self._transport = stream = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.network = network_of(str(peer[0])) if peer else ""
        self.protocol = self._enter(self)
        if self.protocol is None:
            stream.abort()
        else:
            self.protocol.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.resume_writing()
        if self.protocol is not None:
            self.protocol.connection_lost(exc)
        self._leave(self)

    def data_received(self, data: bytes) -> None:
        if self.protocol is not None:
            self.protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self.protocol.eof_received() if self.protocol is not None else None

    def pause_writing(self) -> None:
        self._unread = self._loop.call_later(self._limits.unread, self._give_up)
        if self.protocol is not None:
            self.protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
            if self.protocol is not None:
                self.protocol.resume_writing()

    def _give_up(self) -> None:
        self._refused("unread")
        self.drop()


# The files of a page, read once and served with what lets a browser keep them.

# Of a response: what stands within the page, as parts of its content policy have to let through.
INLINE = web.ResponseKey("inline", dict[str, str])
PACKED = "-gzip"  # ends the tag of what is packed: it is another body
WEIGHTLESS = re.compile(r"q\s*=\s*0(\.0*)?")
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json; charset=utf-8",
    "svg": "image/svg+xml; charset=utf-8",
    "png": "image/png",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is sent."""

    body: bytes
    content_type: str
    etag: str
    packed: bytes = b""  # the same in gzip, where that is smaller
    # The hashes of what stands within it, by the part of a content policy that lets it through.
    inline: Mapping[str, str] = field(default_factory=dict[str, str])

    async def serve(self, request: web.Request) -> web.Response:
        """Send it, unless the browser has it."""
        # Kept by the browser, but asked about each time: an upgrade shows at the next load.
        headers = {"Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
        is_packed = bool(self.packed) and takes_gzip(request.headers.get("Accept-Encoding", ""))
        etag = f"{self.etag}{PACKED}" if is_packed else self.etag
        known = request.if_none_match or ()
        if any(tag.value in {etag, "*"} for tag in known):
            response = web.Response(status=304, headers=headers)
        else:
            headers["Content-Type"] = self.content_type
            if is_packed:
                headers["Content-Encoding"] = "gzip"
            response = web.Response(body=self.packed if is_packed else self.body, headers=headers)
        response.etag = etag
        if self.inline:
            response[INLINE] = dict(self.inline)
        return response


def takes_gzip(accepted: str) -> bool:
    """True when an `Accept-Encoding` header names gzip, and does not refuse it."""
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return not WEIGHTLESS.fullmatch(weight.strip())
    return False


def asset_routes(
    package: str, prefix: str, *, index: str = "", inline: Mapping[str, str] | None = None
) -> list[web.RouteDef]:
    """One route for each file in the `static` folder of a package, and for nothing else there.

    With `index`, the file of that name is served at "/" as well, where the sheets and scripts of
    `inline`, the package of each by its address, stand in it: it is drawn without waiting for
    another answer.
    """
    assets = _load_assets(package)
    found = [web.get(f"{prefix}/{name}", asset.serve) for name, asset in assets.items()]
    if not index:
        return found
    parts = {
        path: (assets if owner == package else _load_assets(owner))[path.rpartition("/")[2]].body
        for path, owner in (inline or {}).items()
    }
    return [web.get("/", _whole(assets[index], parts).serve), *found]


def asset_versions(served: Iterable[web.RouteDef]) -> dict[str, str]:
    """The version of each file among these routes, by path."""
    owners = ((route.path, getattr(route.handler, "__self__", None)) for route in served)
    return {path: asset.etag for path, asset in owners if isinstance(asset, Asset)}


def _load_assets(package: str) -> dict[str, Asset]:
    assets: dict[str, Asset] = {}
    for file in resources.files(package).joinpath("static").iterdir():
        content_type = TYPES.get(file.name.rpartition(".")[2])
        if content_type is not None:
            assets[file.name] = _asset(file.read_bytes(), content_type)
    return assets


def _whole(page: Asset, parts: Mapping[str, bytes]) -> Asset:
    """A page with its sheets and scripts, by the addresses that name them, in itself."""
    body, style, script = page.body, b"", b""
    for path, part in parts.items():
        if path.endswith(".css"):
            body = body.replace(b'  <link rel="stylesheet" href="%s">\n' % path.encode(), b"")
            style += part
        else:
            body = body.replace(b'  <script src="%s"></script>\n' % path.encode(), b"")
            script += part
    found = {"style": style, "script": script}
    tags = b"".join(b"<%s>%s</%s>\n" % (n.encode(), p, n.encode()) for n, p in found.items() if p)
    inline = {
        f"{name}-src": f"'sha256-{b64encode(hashlib.sha256(part).digest()).decode()}'"
        for name, part in found.items()
        if part
    }
    return _asset(body.replace(b"</head>", tags + b"</head>", 1), page.content_type, inline)


def _asset(body: bytes, content_type: str, inline: Mapping[str, str] | None = None) -> Asset:
    # These files say the same to everybody, so what they come to in gzip tells nothing. No page
    # with somebody's words in it is packed: its length would tell what it holds.
    packed = gzip.compress(body, mtime=0)
    etag = hashlib.sha256(body).hexdigest()[:32]
    return Asset(body, content_type, etag, packed if len(packed) < len(body) else b"", inline or {})


# Who looks at a page: what the guard found out, for whatever serves the page.


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody with a browser, or a program of theirs.

    `name` is the id of their account in the web channel: "owner", or the one they were let in by.
    `login` is the id of what their browser is known by, or empty; `key` that of what a
    `program` is known by. With `is_apart` each conversation of the program is one of its own. An
    event that it reports is told by `template`.
    """

    name: str = PAGE_OWNER
    login: str = ""
    key: str = ""
    program: str = ""
    is_apart: bool = False
    template: str = ""

    @property
    def is_owner(self) -> bool:
        """True for whoever owns the bot; settings and people are theirs alone."""
        return self.name == PAGE_OWNER


VISITOR = web.RequestKey("visitor", Visitor)


def visitor_of(request: web.Request) -> Visitor:
    """The visitor of a request; only one that passed the guard has it.

    Raises:
        KeyError: the guard has not seen the request.
    """
    return request[VISITOR]


class SharedRoute(web.RouteDef):
    """A route that every visitor may use, for what is theirs; any other is the owner's alone."""


def shared(routes: Iterable[web.RouteDef]) -> list[web.RouteDef]:
    """Open routes to every visitor; each of them shows a visitor nothing but their own."""
    return [SharedRoute(each.method, each.path, each.handler, each.kwargs) for each in routes]
