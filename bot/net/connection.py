"""Connections out: through a proxy where there is one, and to checked addresses where it matters.

A name may have another address a moment later. So a host that somebody else named is looked up
once, what was found is checked and handed to the connection, and a socket is made for nothing else.
A proxy changes nothing about that: the name is looked up here all the same, and the proxy is asked
for the address that was checked, never for the name.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from multidict import CIMultiDict
from python_socks import ProxyConnectionError, ProxyError, ProxyTimeoutError, ProxyType
from python_socks.async_.asyncio import Proxy as Tunnel
from yarl import URL

from bot.errors import AddressRefused
from bot.net.addresses import Guard
from bot.net.proxy import HTTP, Proxy, choose

LOOKUPS = 4  # names looked up at once: in threads of their own, as nobody can stop a lookup
MOST_ADDRESSES = 8  # of one host that a connection may try
CONNECTIONS = 4
PROXY_SECONDS = 10.0  # until a proxy has connected

Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""The IP addresses of a host name; it raises OSError when there are none."""


class SystemLookup:
    """Names looked up as this machine does it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="lookup")

    async def __call__(self, host: str) -> Sequence[str]:
        """The addresses of a name.

        Raises:
            OSError: it has none, or nobody can be asked now.
        """
        loop = asyncio.get_running_loop()
        work = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        found = await loop.run_in_executor(self._threads, work)
        return list(dict.fromkeys(str(each[4][0]) for each in found))

    def close(self) -> None:
        """Begin no other lookup."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class CheckedResolver(AbstractResolver):
    """aiohttp's resolver, which returns checked addresses only."""

    def __init__(self, guard: Guard, lookup: Lookup) -> None:
        self._guard = guard
        self._lookup = lookup
        self._checked: set[str] = set()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host.

        One that may not be opened is enough to refuse all: such a host is no public one.

        Raises:
            AddressRefused: one of them is such.
            OSError: there are none.
        """
        found = (await self._lookup(host))[:MOST_ADDRESSES]
        if not found:
            raise OSError("no addresses")
        if not all(self._guard.may_connect(host, port, address) for address in found):
            raise AddressRefused
        self._checked.update(found)
        return [_result(host, address, port) for address in found]

    def may_connect(self, address: str, port: int) -> bool:
        """True for what a host was found to have, and for what may be opened by itself.

        aiohttp asks for no address of a host that is an address.
        """
        return address in self._checked or self._guard.may_connect(address, port, address)

    async def close(self) -> None:
        """Nothing is kept."""


class ProxyTrouble(aiohttp.ClientConnectionError):
    """The way through a proxy failed; the message names it, and never its password."""


class ProxyFailed(ProxyTrouble):
    """A proxy does not connect: nothing was sent to anybody else."""

    def __init__(self, proxy: Proxy, what: str) -> None:
        super().__init__(f"the proxy {proxy.url} {what}")


def why(error: BaseException) -> str:
    """The reason a connection failed, fit to be told: its proxy's fault, or the kind of error."""
    return str(error) if isinstance(error, ProxyTrouble) else type(error).__name__


class Connector(aiohttp.TCPConnector):
    """aiohttp's connections, each through the proxy for its address.

    Args:
        proxy: the option; empty asks the environment.
        checked: with it, proxies are asked for addresses that this resolver found, not for names.
        options: what `aiohttp.TCPConnector` takes.
    """

    def __init__(
        self, proxy: str = "", *, checked: CheckedResolver | None = None, **options: Any
    ) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType] - aiohttp's
        self._chosen = proxy
        self._environment = {} if proxy else urllib.request.getproxies()
        self._checked = checked

    def proxy_for(self, url: URL) -> Proxy | None:
        """The proxy for an address.

        Raises:
            ProxyTrouble: what is configured is none.
        """
        try:
            return choose(url, self._chosen, self._environment)
        except ValueError as error:
            raise ProxyTrouble(str(error)) from None

    async def connect(  # the signature is aiohttp's
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> Connection:
        """See `aiohttp.BaseConnector`."""
        proxy = self.proxy_for(req.url)
        is_plain = self._checked is None and req.url.scheme != "ws"  # RFC 6455, 4.1: by a tunnel
        if proxy is not None and proxy.scheme in HTTP and is_plain:
            # aiohttp asks it itself: for the whole address of http://, for a tunnel to https://.
            login = _login(proxy)
            req.proxy, req.proxy_headers = proxy.url, CIMultiDict(login)
            if not req.is_ssl():
                req.headers.update(login)
        return await super().connect(req, traces, timeout)

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> ResponseHandler:
        proxy = self.proxy_for(req.url)
        if proxy is None:
            return await super()._create_connection(req, traces, timeout)
        host, port = await self._place(req)
        try:
            async with asyncio.timeout(PROXY_SECONDS):
                if req.proxy is not None:
                    return await super()._create_connection(req, traces, timeout)
                opened = await _tunnel(proxy, host, port)
        except (TimeoutError, ProxyTimeoutError):
            raise ProxyFailed(proxy, "does not answer") from None
        except (aiohttp.ClientSSLError, ProxyFailed):  # of the server behind it; said already
            raise
        except (ProxyError, aiohttp.ClientError, OSError, ValueError) as error:
            raise ProxyFailed(proxy, _fault(error)) from error
        name = (req.server_hostname or req.url.raw_host or "").rstrip(".")
        context = self._get_ssl_context(req)
        _, protocol = await self._wrap_existing_connection(
            self._factory,
            timeout=timeout,
            ssl=context,
            sock=opened,
            server_hostname=name if context else None,
            req=req,
        )
        return protocol

    async def _place(self, req: aiohttp.ClientRequest) -> tuple[str, int]:
        """The host and port that a proxy is asked for."""
        host, port = req.url.raw_host or "", req.url.port or 0
        if self._checked is None:
            return host, port
        try:
            return (await self._checked.resolve(host, port))[0]["host"], port
        except OSError as error:
            raise aiohttp.ClientConnectorDNSError(req.connection_key, error) from error


async def _tunnel(proxy: Proxy, host: str, port: int) -> socket.socket:
    """A connection that a proxy made."""
    if proxy.scheme == "https":
        raise ProxyFailed(proxy, "is itself reached by TLS, which does not go with this")
    kind = ProxyType.HTTP if proxy.scheme in HTTP else ProxyType.SOCKS5
    tunnel = Tunnel(kind, proxy.host, proxy.port, proxy.user or None, proxy.password or None)
    return await tunnel.connect(host, port)


def session(
    proxy: str = "",
    *,
    connector: Connector | None = None,
    limit: int = 100,
    keepalive: float = 15.0,
    **options: Any,
) -> aiohttp.ClientSession:
    """A client that goes through a proxy where there is one, and says so when that fails.

    Args:
        proxy: the option; empty asks the environment, "none" asks no proxy.
        connector: connections of another kind, with a proxy of their own.
        limit: connections at once.
        keepalive: seconds that one is kept for the next request.
        options: what `aiohttp.ClientSession` takes.
    """
    way = connector or Connector(proxy, limit=limit, keepalive_timeout=keepalive, ssl=trusted())
    return aiohttp.ClientSession(
        connector=way,
        cookie_jar=aiohttp.DummyCookieJar(),
        middlewares=(partial(_through, way),),
        **options,
    )


async def _through(
    way: Connector, req: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send a request, and name its proxy where that is what fails.

    Raises:
        ProxyTrouble: it wants a password, or nothing comes through it.
    """
    proxy = way.proxy_for(req.url)
    if proxy is None:
        return await handler(req)
    try:
        answer = await handler(req)
    except (ProxyTrouble, aiohttp.ClientSSLError, aiohttp.ClientConnectorDNSError):
        raise
    except (aiohttp.ClientConnectionError, aiohttp.ClientResponseError) as error:
        kind = type(error).__name__
        raise ProxyTrouble(f"the proxy {proxy.url} brings no answer ({kind})") from error
    if answer.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        answer.close()
        raise ProxyFailed(proxy, _LOGIN)
    return answer


_LOGIN: Final = "wants a user and password, or other ones"


def _fault(error: Exception) -> str:
    """The fault of a proxy that did not connect."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "has a name that cannot be looked up"
        case ProxyConnectionError() | aiohttp.ClientConnectorError():
            return "cannot be reached"
        case aiohttp.ClientHttpProxyError(status=status):
            code = status
        case ProxyError(error_code=code):
            pass
        case _:
            code = None
    is_login = code is None and isinstance(error, ProxyError) and "auth" in str(error).lower()
    if is_login or code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        return _LOGIN
    if code:  # SOCKS has numbers below 10, for which the library has words
        return f"does not connect ({error if code < 100 else code})"
    return "does not connect: it is no such proxy, or wants another user and password"


def _login(proxy: Proxy) -> dict[str, str]:
    if not proxy.user:
        return {}
    return {"Proxy-Authorization": aiohttp.encode_basic_auth(proxy.user, proxy.password)}


def trusted() -> ssl.SSLContext | bool:
    """The trusted certificates: the system's, which Python does not find on macOS."""
    if sys.platform != "darwin":
        return True
    import truststore  # noqa: PLC0415 - not on every system

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def connector(resolver: CheckedResolver, proxy: str = "") -> Connector:
    """Connections for one visit: another one looks hosts up again."""

    def checked_socket(address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, place = address  # as getaddrinfo() tells it
        if not resolver.may_connect(place[0], place[1]):
            raise AddressRefused
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made

    return Connector(
        proxy,
        checked=resolver,
        resolver=resolver,
        use_dns_cache=False,
        socket_factory=checked_socket,
        limit=CONNECTIONS,
    )


def _result(host: str, address: str, port: int) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
        proto=0,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )
