"""Ten ways in which one hostile person tries to keep everybody else waiting.

Each is a task that goes on until it is cancelled. `MALLORY` may talk to the bot, like anybody who
was let in; what comes over HTTP comes from one address that proves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

from PIL import Image

from tests.fakes.telegram import FakeTelegram

MALLORY = 66
ROOM, MORE_ROOMS = -100, range(-220, -200)
AHEAD = 20  # updates of hers that wait at Telegram at any moment
CALLERS = 16  # requests at once
IDLE = 200  # half-sent requests of each kind that are kept open
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"
SIGNED = (
    b"X-Nextcloud-Talk-Random: %b\r\nX-Nextcloud-Talk-Signature: %b\r\n"
    b"X-Nextcloud-Talk-Backend: http://x\r\n" % (b"r" * 64, b"0" * 64)
)
SIDE = 4000  # pixels; the largest picture that is opened


@dataclass(frozen=True, slots=True)
class Targets:
    """Where the program listens."""

    telegram: FakeTelegram
    page: int  # ports on 127.0.0.1
    telegram_webhook: int
    talk_webhook: int


Flood = Callable[[Targets], Awaitable[None]]


@asynccontextmanager
async def under(flood: Flood, targets: Targets) -> AsyncIterator[None]:
    """While the block runs, so does the flood; one that ends by itself proves nothing."""
    running = asyncio.ensure_future(flood(targets))
    try:
        yield
        assert not running.done(), "the flood ended by itself"
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


# --- what she writes ------------------------------------------------------------------------------


async def _keep_writing(targets: Targets, write: Callable[[int], object]) -> None:
    """Write as fast as the bot takes it."""
    for number in count():
        await targets.telegram.wait_for(lambda: targets.telegram.pending() < AHEAD, 60)
        write(number)
        await asyncio.sleep(0)


async def pictures(targets: Targets) -> None:
    """Albums of ten, each picture another file and as large as is taken."""
    out = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), "red").save(out, "PNG", compress_level=1)
    fake, picture = targets.telegram, out.getvalue()

    def send(number: int) -> None:
        name = f"bomb{number}"
        fake.downloads[name] = picture + name.encode()
        photo = [{"file_id": name, "file_unique_id": name, "file_size": len(picture)}]
        fake.push_text(MALLORY, None, media_group_id=f"album{number // 10}", photo=photo)

    await _keep_writing(targets, send)


async def commands(targets: Targets) -> None:
    """The commands that read most, in a room and in her own chat."""
    texts = ("/whosees", "/memory forget everything", "/status", "/memory", "/context", "/new")

    def send(number: int) -> None:
        text = texts[number % len(texts)]
        targets.telegram.say(ROOM, MALLORY, f"{text}@confidant_bot")
        targets.telegram.push_text(MALLORY, text)

    await _keep_writing(targets, send)


async def pastes(targets: Targets) -> None:
    """Long texts, each as long as one message may be."""
    await _keep_writing(targets, lambda n: targets.telegram.push_text(MALLORY, f"{n:04}" * 1024))


async def brackets(targets: Targets) -> None:
    """Texts that take longest to read as Markdown, which the model repeats."""
    units = ("![", "[[](", "*a_ ")
    await _keep_writing(
        targets, lambda n: targets.telegram.push_text(MALLORY, (units[n % 3] * 2048)[:4000])
    )


async def searches(targets: Targets) -> None:
    """Searches with as many words as a message holds, and things to forget."""

    def send(number: int) -> None:
        words = " ".join(f"word{number}x{index}" for index in range(350))
        targets.telegram.push_text(MALLORY, f"/memory {words}"[:4000])
        targets.telegram.push_text(MALLORY, f"/memory forget {words}"[:4000])

    await _keep_writing(targets, send)


async def streams(targets: Targets) -> None:
    """Long replies that are written slowly and shown meanwhile, in twenty rooms at once."""

    def send(number: int) -> None:
        room = MORE_ROOMS[number % len(MORE_ROOMS)]
        targets.telegram.say(room, MALLORY, "@confidant_bot slowly " + "and on " * 500)

    await _keep_writing(targets, send)


async def strangers(targets: Targets) -> None:
    """People nobody knows, each of whom asks to be let in."""
    await _keep_writing(targets, lambda n: targets.telegram.push_text(100_000 + n, "let me in"))


# --- what she does over HTTP ----------------------------------------------------------------------


async def half_requests(targets: Targets) -> None:
    """Requests that are never finished, hundreds at a time, on every server."""
    head = b"GET / HTTP/1.1\r\nHost: x\r\nX-"
    login = b"POST /login HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\n%b" % FORM
    call = b"POST /nextcloud-talk HTTP/1.1\r\nHost: x\r\n" + SIGNED
    halves = (
        (targets.page, head),
        (targets.page, login + b"Content-Length: 9\r\n\r\ntok"),
        (targets.telegram_webhook, head),
        (targets.talk_webhook, head),
        (targets.talk_webhook, call + b"Content-Length: 9\r\n\r\n{"),
    )
    held: list[socket.socket] = []
    try:
        while True:
            for port, half in halves:
                await _connect(held, port, half)
            while len(held) > IDLE * len(halves):
                held.pop(0).close()
    finally:
        for peer in held:
            peer.close()


async def logins(targets: Targets) -> None:
    """Wrong tokens, many at a time."""
    body = b"token=not-the-right-token"
    host = f"127.0.0.1:{targets.page}".encode()
    request = (
        b"POST /login HTTP/1.1\r\nHost: " + host + b"\r\nOrigin: http://" + host + b"\r\n"
        b"Connection: close\r\n" + FORM + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    await _keep_calling([(targets.page, request)])


async def rubbish(targets: Targets) -> None:
    """Calls to the webhooks that prove nothing, some of them large."""
    big = b"x" * 200_000
    calls = [
        (targets.telegram_webhook, b"/telegram/hook", b"", b"{}"),
        (targets.telegram_webhook, b"/telegram/nobody", b"", big),
        (targets.talk_webhook, b"/nextcloud-talk", SIGNED, big),
        (targets.talk_webhook, b"/nextcloud-talk", b"", b"[" * 5000),
    ]
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%bContent-Length: %d\r\n\r\n%b"
    await _keep_calling(
        [(port, head % (path, more, len(body), body)) for port, path, more, body in calls]
    )


async def _keep_calling(requests: list[tuple[int, bytes]]) -> None:
    """Send these requests as fast as they are answered."""

    async def caller(turn: Iterator[int]) -> None:
        for number in turn:
            port, request = requests[number % len(requests)]
            with contextlib.suppress(ConnectionError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(request)
                    await reader.read()
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(CALLERS):
            group.create_task(caller(count(number)))


async def _connect(held: list[socket.socket], port: int, text: bytes) -> None:
    peer = socket.socket()
    held.append(peer)
    peer.setblocking(False)
    with contextlib.suppress(ConnectionError):
        await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", port))
        await asyncio.get_running_loop().sock_sendall(peer, text)


FLOODS: tuple[Flood, ...] = (
    pictures,
    commands,
    half_requests,
    pastes,
    brackets,
    logins,
    strangers,
    searches,
    rubbish,
    streams,
)
