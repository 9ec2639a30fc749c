"""What a connection is made of: the addresses that were found and checked, and nothing else."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from bot.errors import AddressRefused
from bot.net import connection
from bot.net.addresses import Guard
from bot.net.connection import (
    CONNECTIONS,
    LOOKUPS,
    MOST_ADDRESSES,
    CheckedResolver,
    SystemLookup,
)
from tests.support import PATIENCE, until

V4, V6 = "93.184.216.34", "2607:f8b0::1"
TCP = socket.IPPROTO_TCP


def resolver(*addresses: str) -> CheckedResolver:
    async def lookup(_host: str) -> Sequence[str]:
        return addresses

    return CheckedResolver(Guard(), lookup)


async def test_what_was_found_is_handed_on_as_numbers():
    found = await resolver(V4, V6).resolve("a.example", 8443)
    numbers = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    common = {"hostname": "a.example", "port": 8443, "proto": 0, "flags": numbers}
    assert found == [
        {**common, "host": V4, "family": socket.AF_INET},
        {**common, "host": V6, "family": socket.AF_INET6},
    ]


async def test_no_more_addresses_are_tried_than_may_be():
    many = [f"8.8.{number}.8" for number in range(MOST_ADDRESSES + 1)]
    found = await resolver(*many).resolve("a.example", 80)
    assert [each["host"] for each in found] == many[:MOST_ADDRESSES]


async def test_a_host_without_addresses_cannot_be_connected():
    with pytest.raises(OSError, match=r"^no addresses$"):
        await resolver().resolve("a.example", 80)


async def test_one_address_that_may_not_be_opened_closes_the_host():
    checked = resolver(V4, "10.0.0.1")
    with pytest.raises(AddressRefused):
        await checked.resolve("a.example", 80)
    assert not checked.may_connect("10.0.0.1", 80)


async def test_a_socket_is_of_the_kind_that_was_asked_for_and_never_blocks():
    checked = resolver(V4)
    made: Any = connection.connector(checked)
    try:
        await checked.resolve("a.example", 80)
        place = (socket.AF_INET, socket.SOCK_STREAM, TCP, "", (V4, 80))
        assert (made.limit, made.use_dns_cache) == (CONNECTIONS, False)
        with made._socket_factory(place) as opened:
            assert (opened.family, opened.proto) == (socket.AF_INET, TCP)
            assert not opened.getblocking()
        closed = (socket.AF_INET, socket.SOCK_STREAM, TCP, "", ("10.0.0.1", 80))
        with pytest.raises(AddressRefused):
            made._socket_factory(closed)
    finally:
        await made.close()


async def test_names_are_looked_up_in_threads_of_their_own(monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, str]] = []

    def found(host: str, *_: object, **__: object) -> list[Any]:
        asked.append((host, threading.current_thread().name))
        return [(socket.AF_INET, 0, 0, "", (V4, 0)), (socket.AF_INET, 0, 0, "", (V4, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    lookup = SystemLookup()
    try:
        assert await lookup("a.example") == [V4]
    finally:
        lookup.close()
    ((host, thread),) = asked
    assert host == "a.example"
    assert thread.startswith("lookup")


async def test_names_that_take_long_hold_up_neither_the_end_nor_anything_else(
    monkeypatch: pytest.MonkeyPatch,
):
    asked: list[str] = []
    answered = threading.Event()

    def slow(host: str, *_: object, **__: object) -> list[Any]:
        asked.append(threading.current_thread().name)
        answered.wait()
        return [(socket.AF_INET, 0, 0, "", (V4, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    lookup = SystemLookup()
    looking = [asyncio.ensure_future(lookup("a.example")) for _ in range(3 * LOOKUPS)]
    try:
        await until(lambda: len(asked) >= LOOKUPS)
        await asyncio.wait_for(asyncio.to_thread(lookup.close), PATIENCE)
    finally:
        answered.set()
    found = await asyncio.gather(*looking, return_exceptions=True)
    assert found.count([V4]) == len(asked) == len(set(asked)) == LOOKUPS
    assert sum(isinstance(each, asyncio.CancelledError) for each in found) == 2 * LOOKUPS
