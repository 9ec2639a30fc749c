"""The proxy and the PostgreSQL of the tests do what they say."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fakes import postgres
from tests.fakes.tcp_proxy import TcpProxy


@dataclass
class Echo:
    """A server that gives back each line."""

    heard: list[bytes] = field(default_factory=list)
    serving: list[asyncio.Task[None] | None] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving.append(asyncio.current_task())
        with suppress(ConnectionError):
            while line := await reader.readline():
                self.heard.append(line)
                writer.write(line)
        writer.close()


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Echo, TcpProxy]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    with TcpProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        yield echo, proxy
    server.close()
    await asyncio.wait([task for task in echo.serving if task], timeout=10)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def of(cls, proxy: TcpProxy) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", proxy.port))

    async def ask(self, line: bytes) -> bytes:
        self.writer.write(line)
        return await self.answer()

    async def answer(self) -> bytes:
        """The answer, or nothing when the connection has ended."""
        try:
            return await asyncio.wait_for(self.reader.readline(), 60)
        except ConnectionError:
            return b""

    def close(self) -> None:
        self.writer.transport.abort()


async def test_a_cut_ends_connections_and_takes_none_until_it_is_mended():
    async with echoing() as (_, proxy):
        client = await Client.of(proxy)
        assert await client.ask(b"one\n") == b"one\n"
        assert proxy.open == 1
        proxy.cut()
        assert await client.answer() == b""
        other = await Client.of(proxy)
        assert await other.answer() == b""
        proxy.mend()
        again = await Client.of(proxy)
        assert await again.ask(b"two\n") == b"two\n"
        for each in (client, other, again):
            each.close()


async def test_a_dropped_connection_can_be_made_anew_at_once():
    async with echoing() as (_, proxy):
        client = await Client.of(proxy)
        assert await client.ask(b"one\n") == b"one\n"
        proxy.drop()
        assert await client.answer() == b""
        client.close()
        again = await Client.of(proxy)
        assert await again.ask(b"two\n") == b"two\n"
        again.close()


async def test_what_is_frozen_arrives_once_it_is_mended():
    async with echoing() as (echo, proxy):
        client = await Client.of(proxy)
        assert await client.ask(b"one\n") == b"one\n"
        proxy.freeze()
        asking = asyncio.create_task(client.ask(b"two\n"))
        done, _ = await asyncio.wait([asking], timeout=0.05)
        assert not done
        assert echo.heard == [b"one\n"]
        proxy.mend()
        assert await asking == b"two\n"
        client.close()


@pytest.mark.parametrize("done", [True, False])
async def test_an_answer_is_lost_once_with_the_thing_done_or_not(done):
    async with echoing() as (echo, proxy):
        client = await Client.of(proxy)
        assert await client.ask(b"one\n") == b"one\n"
        proxy.lose_answer(b"COMMIT", done=done)
        assert await client.ask(b"COMMIT\n") == b""
        assert echo.heard == [b"one\n", b"COMMIT\n"][: 1 + done]
        assert proxy.lost == 1
        client.close()
        again = await Client.of(proxy)
        assert await again.ask(b"COMMIT\n") == b"COMMIT\n"
        again.close()


async def test_a_server_that_is_not_there_ends_the_connection():
    with TcpProxy("127.0.0.1", 1) as gone:
        nothing = gone.port
    with TcpProxy("127.0.0.1", nothing) as proxy:
        client = await Client.of(proxy)
        assert await client.answer() == b""
        client.close()


async def test_a_statement_that_is_only_named_is_known_by_its_words():
    parse, bind = (
        b"P\x00\x00\x00\x1e_pg3_7\x00COMMIT\x00\x00\x00\n",
        b"B\x00\x00\x00\x10\x00_pg3_7\x00\n",
    )
    async with echoing() as (echo, proxy):
        client = await Client.of(proxy)
        assert await client.ask(parse) == parse
        proxy.lose_answer(b"COMMIT", done=False)
        assert await client.ask(b"B\x00\x00\x00\x10\x00_pg3_70\x00\n")  # another one
        assert await client.ask(bind) == b""
        client.close()
    assert proxy.lost == 1
    assert len(echo.heard) == 2


def test_copied_programs_find_their_libraries(tmp_path: Path) -> None:
    programs = postgres.copied(postgres.installed(16), tmp_path)  # all others here use 18
    for name in ("initdb", "postgres"):
        said = subprocess.run(
            [programs / name, "--version"], capture_output=True, text=True, check=False
        )
        assert (said.returncode, said.stderr) == (0, "")
        assert "PostgreSQL) 16." in said.stdout
