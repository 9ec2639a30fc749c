from __future__ import annotations

import asyncio

from adapters.web.socket import MAX_WAITING, Socket


class Pipe:
    """As much of a WebSocket as a socket needs; `gate` holds every write back."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.gate = asyncio.Event()
        self.closed = asyncio.Event()
        self.code = 0

    async def send_str(self, frame: str) -> None:
        await self.gate.wait()
        self.sent.append(frame)

    async def close(self, *, code: int) -> None:
        self.code = code
        self.closed.set()


class Transport:
    aborted = False

    def abort(self) -> None:
        self.aborted = True


async def test_frames_queued_before_opening_come_after_the_first_ones() -> None:
    pipe = Pipe()
    pipe.gate.set()
    socket = Socket(pipe, None, "ada")  # type: ignore[arg-type]
    socket.put("later")
    socket.open(["history", "draft"])
    socket.close(1001)
    await pipe.closed.wait()
    assert pipe.sent == ["history", "draft", "later"]
    assert pipe.code == 1001
    await socket.finished()


async def test_newer_drafts_replace_those_still_waiting() -> None:
    pipe = Pipe()
    socket = Socket(pipe, None, "ada")  # type: ignore[arg-type]
    socket.open(["history"])
    for number in range(MAX_WAITING * 4):
        socket.put(f"draft {number}", draft="a")
    socket.put("message")
    pipe.gate.set()
    socket.close()
    await pipe.closed.wait()
    assert pipe.sent == ["history", f"draft {MAX_WAITING * 4 - 1}", "message"]
    await socket.finished()


async def test_a_page_that_does_not_read_is_disconnected() -> None:
    pipe, transport = Pipe(), Transport()
    socket = Socket(pipe, transport, "ada")  # type: ignore[arg-type]
    socket.open(["history"])
    for number in range(MAX_WAITING + 2):
        socket.put(f"message {number}")
    assert transport.aborted
    assert len(socket._waiting) == 0
    socket.put("dropped")
    assert len(socket._waiting) == 0
    pipe.gate.set()
    await socket.finished()
