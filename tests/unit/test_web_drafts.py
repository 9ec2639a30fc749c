from __future__ import annotations

import asyncio

from adapters.web.drafts import DraftBoard
from adapters.web.socket import MAX_WAITING, Socket
from tests.support import until


class Board:
    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []
        self.changed = asyncio.Event()
        self.gate = asyncio.Event()  # shut, it makes every showing take its time
        self.gate.set()
        self.board = DraftBoard(self._publish)

    async def _publish(self, draft_id: str, text: str) -> None:
        await self.gate.wait()
        self.shown.append((draft_id, text))
        self.changed.set()

    async def until_shown(self, draft_id: str, text: str) -> None:
        while (draft_id, text) not in self.shown:
            self.changed.clear()
            await self.changed.wait()


async def test_of_many_states_few_are_shown_and_the_last_one_always() -> None:
    seen = Board()
    text = "0 "
    seen.board.show("a", text)
    await seen.until_shown("a", "0 ")
    for number in range(500):
        text += f"{number} "
        seen.board.show("a", text)
    await seen.until_shown("a", text)
    assert len(seen.shown) == 2


async def test_a_draft_that_takes_long_to_show_holds_up_no_other_and_is_shown_once_at_a_time() -> (
    None
):
    seen = Board()
    seen.gate.clear()
    seen.board.show("a", "one")
    await until(lambda: seen.board._drafts["a"].showing is not None)
    seen.board.show("a", "one two")
    seen.board.show("a", "one two three")
    assert seen.board.texts == {"a": "one two three"}
    assert seen.board._drafts["a"].timer is None
    seen.gate.set()
    await seen.until_shown("a", "one two three")
    assert seen.shown == [("a", "one"), ("a", "one two three")]


async def test_drafts_are_paced_apart_from_each_other() -> None:
    seen = Board()
    seen.board.show("a", "one")
    seen.board.show("b", "two")
    await seen.until_shown("b", "two")
    assert seen.shown == [("a", "one"), ("b", "two")]
    assert seen.board.texts == {"a": "one", "b": "two"}


async def test_a_draft_that_was_forgotten_while_it_was_rendered_is_not_shown() -> None:
    seen = Board()
    seen.gate.clear()
    seen.board.show("a", "one")
    await until(lambda: seen.board._drafts["a"].showing is not None)
    showing = seen.board._drafts["a"].showing
    assert seen.board.forget("a")
    assert not seen.board.forget("a")
    await asyncio.wait([showing])
    assert seen.shown == []
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
