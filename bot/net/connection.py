"""Connections that go to the addresses that were checked, and to no others.

A name may have another address a moment later. So a host is looked up once, what was found is
checked and handed to the connection, and a socket is made for nothing else.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from bot.errors import AddressRefused
from bot.net.addresses import Guard

LOOKUPS = 4  # names looked up at once: in threads of their own, as nobody can stop a lookup
MOST_ADDRESSES = 8  # of one host that a connection may try
CONNECTIONS = 4

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
    """What aiohttp asks for a host's addresses."""

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


def connector(resolver: CheckedResolver) -> aiohttp.TCPConnector:
    """Connections for one visit: another one looks hosts up again."""

    def checked_socket(address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, place = address  # as getaddrinfo() tells it
        if not resolver.may_connect(place[0], place[1]):
            raise AddressRefused
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made

    return aiohttp.TCPConnector(
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
