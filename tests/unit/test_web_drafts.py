from __future__ import annotations

import asyncio

from adapters.web.drafts import DraftBoard
from adapters.web.socket import MAX_WAITING, Socket


class Board:
    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []
        self.changed = asyncio.Event()
        self.board = DraftBoard(self._publish)

    def _publish(self, draft_id: str, text: str) -> None:
        self.shown.append((draft_id, text))
        self.changed.set()

    async def until_shown(self, draft_id: str, text: str) -> None:
        while (draft_id, text) not in self.shown:
            self.changed.clear()
            await self.changed.wait()


async def test_the_first_state_shows_at_once_and_the_last_one_always() -> None:
    seen = Board()
    text = ""
    for number in range(500):
        text += f"{number} "
        seen.board.show("a", text)
    assert seen.shown == [("a", "0 ")]
    await seen.until_shown("a", text)
    assert len(seen.shown) == 2


async def test_drafts_are_paced_apart_from_each_other() -> None:
    seen = Board()
    seen.board.show("a", "one")
    seen.board.show("b", "two")
    assert seen.shown == [("a", "one"), ("b", "two")]
    assert seen.board.texts == {"a": "one", "b": "two"}


async def test_an_empty_text_takes_the_draft_away_at_once() -> None:
    seen = Board()
    seen.board.show("a", "one")
    seen.board.show("a", "one two")
    seen.board.show("a", "")
    seen.board.show("a", "")
    assert seen.shown == [("a", "one"), ("a", "")]
    assert seen.board.texts == {}


async def test_cleared_drafts_are_never_shown_again() -> None:
    seen = Board()
    seen.board.show("a", "one")
    seen.board.show("a", "one two")
    assert seen.board.clear() == ["a"]
    seen.board.show("b", "later")
    seen.board.show("b", "later still")
    await seen.until_shown("b", "later still")
    assert ("a", "one two") not in seen.shown


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
    socket = Socket(pipe, None)  # type: ignore[arg-type]
    socket.put("later")
    socket.open(["history", "draft"])
    socket.close(1001)
    await pipe.closed.wait()
    assert pipe.sent == ["history", "draft", "later"]
    assert pipe.code == 1001
    await socket.finished()


async def test_newer_drafts_replace_those_still_waiting() -> None:
    pipe = Pipe()
    socket = Socket(pipe, None)  # type: ignore[arg-type]
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
    socket = Socket(pipe, transport)  # type: ignore[arg-type]
    socket.open(["history"])
    for number in range(MAX_WAITING + 2):
        socket.put(f"message {number}")
    assert transport.aborted
    assert len(socket._waiting) == 0
    socket.put("dropped")
    assert len(socket._waiting) == 0
    pipe.gate.set()
    await socket.finished()
