"""One server for the page and both webhooks: strangers who say half of it keep nobody out."""

import asyncio
import socket
from contextlib import asynccontextmanager

import aiohttp
import pytest
import uvloop
from aiohttp import web

from bot.channel.http import HttpServer, Limits, Refusals, network_of

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@asynccontextmanager
async def serving(limits, handler=None, refused=None):
    async def answer(request):
        return web.Response(text=str(len(await request.read())))

    app = web.Application()
    app.router.add_route("*", "/", handler or answer)
    reasons = [] if refused is None else refused
    server = HttpServer(app, limits, reasons.append)
    _, port = await server.start("127.0.0.1", 0)
    opened = []

    async def connect(text=b"", source="127.0.0.1", size=None):
        peer = socket.socket()
        if size:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        peer.setblocking(False)
        peer.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=peer)
        opened.append(writer)
        writer.write(text)
        return reader, writer

    try:
        yield connect
    finally:
        for writer in opened:
            writer.transport.abort()
        await server.stop()


async def rest(reader):
    """What is still said before the connection ends."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def status(reader):
    return (await reader.readline()).split()[1:2]


@pytest.mark.parametrize("text", [b"", b"GET / HTT", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_a_request_whose_head_never_ends_is_dropped(text):
    async with serving(Limits(head=0.05)) as connect:
        reader, _ = await connect(text)
        assert await rest(reader) == b""


async def test_a_head_that_comes_letter_by_letter_gains_no_time():
    async with serving(Limits(head=0.1)) as connect:
        reader, writer = await connect(b"GET / HTTP/1.1\r\n")
        ended = asyncio.create_task(rest(reader))
        while not ended.done():
            writer.write(b"x")
            await asyncio.sleep(0.01)
        assert await ended == b""


async def test_a_second_head_on_the_same_connection_is_bounded_too():
    async with serving(Limits(head=0.05)) as connect:
        reader, _ = await connect(GET + b"GET / HTT")
        answer = await reader.read()
        assert answer.count(b"200 OK") == 1


@pytest.mark.parametrize("head", [b"Content-Length: 10", b"Transfer-Encoding: chunked"])
async def test_a_body_that_never_ends_gets_408(head):
    reasons = []
    async with serving(Limits(body=0.05), refused=reasons) as connect:
        reader, _ = await connect(b"POST / HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n1")
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 408")
    assert reasons == ["slow"]


async def test_work_on_a_whole_request_is_not_hurried():
    ready = asyncio.Event()

    async def slow(request):
        await request.read()
        await ready.wait()
        return web.Response()

    async with serving(Limits(body=0.05, head=0.05), slow) as connect:
        reader, _ = await connect(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1")
        asyncio.get_running_loop().call_later(0.2, ready.set)
        assert await status(reader) == [b"200"]


async def test_an_answer_nobody_reads_is_given_up():
    gone = asyncio.Event()

    async def endless(request):
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
        except ConnectionError:
            gone.set()
            raise

    reasons = []
    async with serving(Limits(unread=0.05), endless, reasons) as connect:
        await connect(GET, size=4096)
        await gone.wait()
    assert reasons == ["unread"]


async def test_hundreds_of_idle_connections_of_one_address_keep_nobody_out():
    reasons = []
    async with serving(Limits(total=40, per_address=20), refused=reasons) as connect:
        for _ in range(300):
            await connect(b"GET / HTTP/1.1\r\nHos")
        reader, _ = await connect(GET, source="127.0.0.2")
        assert await status(reader) == [b"200"]
        # Nor the address they come from: a proxy may stand there.
        reader, _ = await connect(GET)
        assert await status(reader) == [b"200"]
    assert set(reasons) == {"crowded"}


async def test_as_many_addresses_as_one_likes_keep_nobody_out():
    async with serving(Limits(total=10, per_address=5)) as connect:
        for number in range(60):
            await connect(b"GET", source=f"127.0.1.{number + 1}")
        reader, _ = await connect(GET, source="127.0.0.9")
        assert await status(reader) == [b"200"]


async def test_the_busiest_address_makes_room_first():
    async with serving(Limits(total=6, per_address=5)) as connect:
        quiet, _ = await connect(b"GET / HTTP/1.1\r\n", source="127.0.0.2")
        crowd = [await connect(b"GET", source="127.0.0.3") for _ in range(5)]
        reader, _ = await connect(GET, source="127.0.0.4")
        assert await status(reader) == [b"200"]
        assert await rest(crowd[0][0]) == b""
        assert not quiet.at_eof()


async def test_who_is_being_answered_stays():
    began, ready = asyncio.Semaphore(0), asyncio.Event()

    async def slow(_request):
        began.release()
        await ready.wait()
        return web.Response()

    async with serving(Limits(total=3, per_address=3), slow) as connect:
        answered = [await connect(GET) for _ in range(3)]
        for _ in answered:
            await began.acquire()
        late, _ = await connect(GET)
        assert await rest(late) == b""
        ready.set()
        for reader, _ in answered:
            assert await status(reader) == [b"200"]
        reader, _ = await connect(GET)  # there is room again
        assert await status(reader) == [b"200"]


async def test_a_websocket_lives_on_in_a_crowd():
    async def socket_page(request):
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        async for message in ws:
            await ws.send_str(message.data)
        return ws

    app = web.Application()
    app.router.add_get("/ws", socket_page)
    server = HttpServer(app, Limits(head=0.1, body=0.05, total=4, per_address=4))
    _, port = await server.start("127.0.0.1", 0)
    peers = []
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{port}/ws") as ws,
    ):
        await asyncio.sleep(0.3)  # longer than a head and a body may take
        for _ in range(20):
            peer = await asyncio.open_connection("127.0.0.1", port)
            peers.append(peer)
        await ws.send_str("still here")
        assert await ws.receive_str() == "still here"
    for _, writer in peers:
        writer.transport.abort()
    await server.stop()


@pytest.mark.parametrize(
    "holds",
    [
        test_a_head_that_comes_letter_by_letter_gains_no_time,
        test_a_second_head_on_the_same_connection_is_bounded_too,
        test_work_on_a_whole_request_is_not_hurried,
        test_an_answer_nobody_reads_is_given_up,
        test_hundreds_of_idle_connections_of_one_address_keep_nobody_out,
        test_the_busiest_address_makes_room_first,
        test_who_is_being_answered_stays,
        test_a_websocket_lives_on_in_a_crowd,
    ],
)
def test_the_same_holds_on_the_loop_the_program_runs_on(holds):
    uvloop.run(holds())


async def test_bytes_that_are_no_request_leave_nothing_in_the_log(caplog):
    async with serving(Limits()) as connect:
        reader, _ = await connect(b"GET /?token=SECRET HTTP/1.1\r\nHost : x\r\n\x00SECRET\r\n\r\n")
        assert await status(reader) == [b"400"]
    assert "SECRET" not in caplog.text


def test_a_flood_of_refusals_is_a_few_lines_and_every_one_is_counted(logs):
    now, counted = 0.0, []
    refusals = Refusals("page.refused", counted.append, every=60, now=lambda: now)
    for _ in range(1000):
        refusals.add("slow")
    now = 61.0
    refusals.add("slow")
    refusals.add("crowded")
    assert [(line["reason"], line["count"]) for line in logs] == [
        ("slow", 1),
        ("slow", 1000),
        ("crowded", 1),
    ]
    assert len(counted) == 1002


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7/32"),
        ("::ffff:192.0.2.7", "192.0.2.7/32"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("not an address", "not an address"),
    ],
)
def test_the_network_of_an_address(address, network):
    assert network_of(address) == network


def test_there_are_always_descriptors_left_for_everything_else():
    resource = pytest.importorskip("resource")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert Limits().most * 3 < soft
    assert Limits().most_per_address < Limits().most
