from __future__ import annotations

import asyncio

from bot.channel.kit.drafts import Draft, Drafts
from tests.support import until

REST = 0.01  # seconds between two changes


class Board(Drafts[str]):
    """A platform on which a draft is a message; `gate` makes every showing take its time."""

    def __init__(self, first: float = 0.0) -> None:
        super().__init__(asyncio.create_task, first)
        self.seen: list[tuple[str, str]] = []
        self.gone: list[str] = []
        self.showing = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.wait = 0.0
        self.dies = False

    async def put(self, draft: Draft[str]) -> float:
        text = draft.text
        self.showing += 1
        await self.gate.wait()
        if not draft.closing.is_set():
            self.seen.append((draft.id, text))
            draft.message = f"m-{draft.serial}"
        draft.is_dead = self.dies
        return REST

    async def remove(self, draft: Draft[str]) -> None:
        self.gone.append(draft.message)

    def held(self, draft: Draft[str]) -> float:
        return self.wait


async def test_of_many_states_few_are_shown_and_the_last_one_always():
    board, text = Board(), "0 "
    await board.show("a", "d", text)
    await board.shown("a")
    for number in range(500):
        text += f"{number} "
        await board.show("a", "d", text)
    await board.shown("a")
    assert board.seen == [("d", "0 "), ("d", text)]


async def test_a_draft_that_takes_long_holds_up_no_other_and_is_shown_once_at_a_time():
    board = Board()
    board.gate.clear()
    for text in ("one", "one two", "one two three"):
        await board.show("a", "d", text)
        await until(lambda: board.showing == 1)
    await board.show("b", "e", "other")
    await until(lambda: board.showing == 2)
    assert board.texts == {"d": "one two three", "e": "other"}
    board.gate.set()
    await board.shown("a")
    assert [text for draft, text in board.seen if draft == "d"] == ["one", "one two three"]


async def test_a_draft_that_was_taken_while_it_was_put_is_not_shown():
    board = Board()
    board.gate.clear()
    await board.show("a", "d", "one")
    await until(lambda: board.showing == 1)
    taking = asyncio.create_task(board.take("a", "d"))
    await until(lambda: not board.texts)
    board.gate.set()
    assert await taking is None
    assert await board.take("a", "d") is None
    assert board.seen == []


async def test_cleared_drafts_are_never_shown_again():
    board = Board()
    await board.show("a", "d", "one")
    await board.show("a", "d", "one two")
    assert board.clear() == ["d"]
    await board.show("a", "e", "later")
    await board.shown("a")
    assert board.seen == [("e", "later")]
    assert board.gone == []


async def test_a_quick_reply_has_no_draft_and_waits_for_none():
    board = Board(first=600.0)
    await board.show("a", "d", "one")
    async with asyncio.timeout(60):
        assert await board.take("a", "d") is None
    assert board.seen == []


async def test_another_draft_in_a_place_takes_the_one_before_away_and_so_does_nothing():
    board = Board()
    for draft in ("d", "e"):
        await board.show("a", draft, "one")
        await board.shown("a")
    await board.show("a", "e", "")
    await board.show("a", "e", "")
    assert board.gone == ["m-1", "m-2"]


async def test_what_a_reply_could_not_replace_is_there_for_its_next_try():
    board = Board()
    await board.show("a", "d", "one")
    await board.shown("a")
    draft = await board.take("a", "d")
    assert draft is not None
    board.leave(draft)
    await board.show("a", "e", "next")
    await board.shown("a")
    assert not board.holds("a", "d")
    assert board.holds("a", "e")
    assert board.shows("a", "m-2")
    assert await board.take("a", "d") is draft
    assert await board.take("a", "d") is None
    board.leave(draft)
    await board.show("a", "d", "one two")  # its turn is run again: it goes on in the same message
    await board.shown("a")
    assert board.gone == ["m-2"]
    again = await board.take("a", "d")
    assert again is not None


async def test_what_holds_a_change_back_is_waited_for_and_a_dead_draft_is_left():
    board = Board()
    board.wait = 60.0
    await board.show("a", "d", "one")
    board.close()
    await board.shown("a")
    assert board.seen == []
    board.wait, board.dies = 0.0, True
    for text in ("two", "three"):
        await board.show("b", "e", text)
        await board.shown("b")
    assert board.seen == [("e", "two")]


async def test_what_is_still_said_of_a_draft_after_its_reply_comes_too_late():
    board = Board()
    await board.show("a", "d", "half")
    await board.shown("a")
    await board.take("a", "d")
    await board.show("a", "d", "half a reply")
    await board.show("a", "d", "")
    await board.show("a", "e", "the next")
    await board.shown("a")
    assert board.seen == [("d", "half"), ("e", "the next")]


async def test_a_reply_that_nobody_saw_being_written_ends_its_draft_too():
    board = Board()
    assert await board.take("a", "d") is None
    await board.show("a", "d", "late")
    assert board.texts == {}


async def test_a_draft_that_was_taken_away_may_come_again():
    board = Board()
    for text in ("half", "", "half again"):
        await board.show("a", "d", text)
        await board.shown("a")
    assert board.texts == {"d": "half again"}


async def test_whoever_waits_for_a_draft_waits_for_its_first_moment_too_and_not_past_its_end():
    board = Board(first=REST)
    await board.show("a", "d", "one")
    assert not board.seen
    await board.shown("a")
    assert board.seen == [("d", "one")]
    later = Board(first=600.0)
    await later.show("a", "d", "one")
    async with asyncio.timeout(60):
        waiting = asyncio.create_task(later.shown("a"))
        await asyncio.sleep(0)
        later.close()
        await waiting
    assert later.seen == []
