"""What people see while a reply is written: signs, drafts, previews, silence."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.agent.models import Reply, Request, TextDelta
from bot.agent.tools import ToolContext
from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import (
    TOKENS,
    Turn,
    TurnRequest,
    TurnResult,
    is_silent,
    may_become_silent,
    spoken,
)
from bot.channel import Activity, Address, Inbound
from bot.channel.kit.drafts import Draft, Drafts
from bot.coordination import Event
from bot.delivery import delivery
from bot.delivery.delivery import LiveSigns
from bot.gateway import turns
from bot.gateway.turns import ReplyPreview
from bot.identity.view import MemoryView
from bot.messages import Message, Text
from bot.sessions import inbox
from bot.storage.sqlite import SqliteDatabase
from bot.testing import InMemoryChannel, ScriptedModel, says
from tests.fakes.nodes import FakeNode, joined
from tests.support import beside, core_of, limits_of, until

NAME = "memory/default"
ADA = Address("memory", "default", "ada")


class Board(Drafts[Address]):
    """The drafts of a platform, with what its sender and its watchers see."""

    def __init__(self) -> None:
        super().__init__(asyncio.create_task)
        self.seen: list[str] = []

    async def put(self, draft: Draft[Address]) -> float:
        self.seen.append(draft.text)
        draft.message = "m1"
        return 0.0

    async def remove(self, draft: Draft[Address]) -> None:
        self.seen.append("")


class Drawing(InMemoryChannel):
    """A channel whose drafts are those of the kit."""

    def __init__(self) -> None:
        super().__init__()
        self.board = Board()

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """Show it, and wait until it shows."""
        self.drafts.append(text)
        await self.board.show(address, draft_id, text)
        await self.board.shown(address)


class Side:
    """One node: its channel, and what shows life there."""

    def __init__(self, database: SqliteDatabase, node: FakeNode) -> None:
        self.node, self.channel = node, Drawing()
        self.live = LiveSigns(
            core_of(database, channels={"memory": self.channel}, coordination=node)
        )


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    async with beside(tmp_path) as opened:
        yield opened


@pytest.fixture
async def asked(database: SqliteDatabase) -> str:
    """A message that waits for its answer."""
    said = Inbound("memory", "default", "ada", "direct", "ada", "m1", "hello", 1)
    row = await database.write(lambda tx: inbox.store(tx, *inbox.storable(said), "key", 1))
    return str(row)


@pytest.fixture
async def sides(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Side, Side]]:
    """The node that runs a turn, and the one that has the account."""
    monkeypatch.setattr(delivery, "DRAFT_SECONDS", 0.0)
    turn, owner = (Side(database, node) for node in joined(2))
    await owner.node.give(NAME)
    yield turn, owner
    for side in (turn, owner):
        await side.live.stop()


async def test_all_goes_out_where_the_account_is(sides: tuple[Side, Side], asked: str):
    turn, owner = sides
    await turn.live.typing(ADA)
    await turn.live.draft(ADA, asked, "half a")
    begun = Activity("s.saving", "saving", "begun")
    await turn.live.activity(ADA, begun)
    await until(lambda: bool(owner.channel.drafts and owner.channel.activities))
    assert owner.channel.typed == [ADA]
    assert owner.channel.drafts == ["half a"]
    assert owner.channel.activities == [begun]
    assert not turn.channel.typed + turn.channel.activities
    assert turn.channel.drafts == []


async def test_who_has_the_account_tells_nobody(sides: tuple[Side, Side], asked: str):
    _, owner = sides
    await owner.live.typing(ADA)
    await owner.live.draft(ADA, asked, "half a")
    assert owner.channel.typed == [ADA]
    assert owner.channel.drafts == ["half a"]
    assert owner.node.told == []


async def test_a_node_without_the_account_shows_nothing_for_others(sides, asked):
    turn, owner = sides
    await turn.node.give(NAME)
    body = '{"chat":"ada","thread":"","draft":"1","text":"late"}'
    await owner.node.hear(Event("account", NAME, body))
    assert not owner.live._tasks


async def test_of_many_states_the_newest_is_shown_and_the_end_always(sides, asked):
    turn, owner = sides
    for number in range(50):
        await turn.live.draft(ADA, asked, "word " * number + ".")
    await turn.live.draft(ADA, asked, "")
    await until(lambda: owner.channel.drafts[-1:] == [""])
    await until(lambda: not owner.live._tasks)
    assert owner.channel.board.texts == {}
    assert owner.channel.board.seen[-1:] in ([], [""])


async def test_a_state_that_comes_after_the_reply_does_not_bring_the_draft_back(sides, asked):
    turn, owner = sides
    await turn.live.draft(ADA, asked, "half a")
    await until(lambda: owner.channel.board.seen == ["half a"])
    await owner.channel.board.take(ADA, asked)  # the reply takes its place
    await turn.live.draft(ADA, asked, "half a reply")
    await until(lambda: len(owner.channel.drafts) == 2 and not owner.live._tasks)
    assert owner.channel.board.texts == {}
    assert owner.channel.board.seen == ["half a"]


async def test_what_is_heard_again_long_after_the_reply_shows_nothing(sides, database, asked):
    turn, owner = sides
    await database.write(lambda tx: inbox.done(tx, [int(asked)], 2))
    await turn.live.draft(ADA, asked, "half a")
    await until(lambda: not owner.live._tasks)
    assert owner.channel.drafts == []


async def test_what_cannot_be_told_holds_nothing_up(sides: tuple[Side, Side], asked: str):
    turn, owner = sides
    turn.node.is_cut_off = True
    await turn.live.typing(ADA)
    await turn.live.draft(ADA, asked, "half a")
    assert owner.channel.typed == []


async def test_a_draft_is_told_at_a_calm_pace_and_no_longer_than_it_can_show(
    sides, asked, monkeypatch
):
    turn, _ = sides
    monkeypatch.setattr(delivery, "DRAFT_SECONDS", 3600.0)
    drafting = asyncio.create_task(turn.live.draft(ADA, asked, "x" * 10_000))
    await until(lambda: len(turn.node.told) == 1)
    assert not drafting.done()
    assert len(turn.node.told[0].body) < 4_200
    drafting.cancel()
    await asyncio.gather(drafting, return_exceptions=True)


async def test_what_a_model_thinks_goes_where_the_account_is_at_a_calm_pace(sides, monkeypatch):
    turn, owner = sides
    begun = Activity("7.thinking", "thinking", "begun")
    await turn.live.activity(ADA, begun)
    thought = replace(begun, text="One and two")
    await turn.live.activity(ADA, thought)
    done = replace(begun, state="done")
    await turn.live.activity(ADA, done)
    await until(lambda: len(owner.channel.activities) == 3)
    assert owner.channel.activities == [begun, thought, done]
    assert ["One and two" in each.body for each in turn.node.told] == [False, True, False]
    assert turn.node.mentioned == [turn.node.told[1]]
    monkeypatch.setattr(delivery, "DRAFT_SECONDS", 3600.0)
    thinking = asyncio.create_task(turn.live.activity(ADA, thought))
    await until(lambda: len(owner.channel.activities) == 4)
    assert not thinking.done()
    thinking.cancel()
    await asyncio.gather(thinking, return_exceptions=True)


REST = 0.01  # seconds between two changes


class Wall(Drafts[str]):
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


@pytest.fixture
def board() -> Wall:
    return Wall()


async def test_of_many_states_few_are_shown_and_the_last_one_always():
    board, text = Wall(), "0 "
    await board.show("a", "d", text)
    await board.shown("a")
    for number in range(500):
        text += f"{number} "
        await board.show("a", "d", text)
    await board.shown("a")
    assert board.seen == [("d", "0 "), ("d", text)]


async def test_a_draft_that_takes_long_holds_up_no_other_and_is_shown_once_at_a_time(board):
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


async def test_a_draft_that_was_taken_while_it_was_put_is_not_shown(board):
    board.gate.clear()
    await board.show("a", "d", "one")
    await until(lambda: board.showing == 1)
    taking = asyncio.create_task(board.take("a", "d"))
    await until(lambda: not board.texts)
    board.gate.set()
    assert await taking is None
    assert await board.take("a", "d") is None
    assert board.seen == []


async def test_cleared_drafts_are_never_shown_again(board):
    await board.show("a", "d", "one")
    await board.show("a", "d", "one two")
    assert board.clear() == ["d"]
    await board.show("a", "e", "later")
    await board.shown("a")
    assert board.seen == [("e", "later")]
    assert board.gone == []


async def test_a_quick_reply_has_no_draft_and_waits_for_none():
    board = Wall(first=600.0)
    await board.show("a", "d", "one")
    async with asyncio.timeout(60):
        assert await board.take("a", "d") is None
    assert board.seen == []


async def test_another_draft_in_a_place_takes_the_one_before_away_and_so_does_nothing(board):
    for draft in ("d", "e"):
        await board.show("a", draft, "one")
        await board.shown("a")
    await board.show("a", "e", "")
    await board.show("a", "e", "")
    assert board.gone == ["m-1", "m-2"]


async def test_what_a_reply_could_not_replace_is_there_for_its_next_try(board):
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


async def test_what_holds_a_change_back_is_waited_for_and_a_dead_draft_is_left(board):
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


async def test_what_is_still_said_of_a_draft_after_its_reply_comes_too_late(board):
    await board.show("a", "d", "half")
    await board.shown("a")
    await board.take("a", "d")
    await board.show("a", "d", "half a reply")
    await board.show("a", "d", "")
    await board.show("a", "e", "the next")
    await board.shown("a")
    assert board.seen == [("d", "half"), ("e", "the next")]


async def test_a_reply_that_nobody_saw_being_written_ends_its_draft_too(board):
    assert await board.take("a", "d") is None
    await board.show("a", "d", "late")
    assert board.texts == {}


async def test_a_draft_that_was_taken_away_may_come_again(board):
    for text in ("half", "", "half again"):
        await board.show("a", "d", text)
        await board.shown("a")
    assert board.texts == {"d": "half again"}


async def test_whoever_waits_for_a_draft_waits_for_its_first_moment_too_and_not_past_its_end():
    board = Wall(first=REST)
    await board.show("a", "d", "one")
    assert not board.seen
    await board.shown("a")
    assert board.seen == [("d", "one")]
    later = Wall(first=600.0)
    await later.show("a", "d", "one")
    async with asyncio.timeout(60):
        waiting = asyncio.create_task(later.shown("a"))
        await asyncio.sleep(0)
        later.close()
        await waiting
    assert later.seen == []


async def test_typing_ends_although_its_lane_is_cancelled_while_it_ends(database, monkeypatch):
    monkeypatch.setattr(turns, "TYPING_DELAY", 0)
    channel = InMemoryChannel()
    live = LiveSigns(core_of(database, channels={"memory": channel}))

    async def lane() -> None:
        preview = ReplyPreview(channel, live, Address("memory", "default", "ada"), "1")
        async with preview:
            await until(lambda: bool(channel.typed))
            preview.show("hello")
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)

    before = asyncio.all_tasks()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(lane())
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


WORDS = st.text(max_size=12) | st.sampled_from(
    ["Hello.", "No.", "NO", "no reply", "N", "[", "[s", "- an item", "我没有", "NO_REPLYING", "(x)"]
)
TOKEN = st.sampled_from((*TOKENS, "no_reply", "No_Reply", "[silent]", "**NO_REPLY**", "`NO_REPLY`"))
GAP = st.sampled_from(["", " ", "\n", "\n\n", ": ", " — ", "."])
REPLIES = st.one_of(
    WORDS,
    TOKEN,
    st.tuples(GAP, TOKEN, GAP, WORDS).map("".join),
    st.tuples(TOKEN, GAP, TOKEN, GAP, WORDS).map("".join),
    st.tuples(WORDS, GAP, TOKEN).map("".join),
)


@pytest.mark.parametrize(
    "reply",
    ["NO_REPLY", " no_reply\n", "[SILENT]", "[silent]", "No_Reply", "**NO_REPLY**", "`NO_REPLY`."],
)
def test_the_whole_token_is_silence(reply):
    assert is_silent(reply)


@pytest.mark.parametrize(
    "reply",
    ["", "NO", "No", "NO_REPLY_TO", "[silent](https://x)"],
)
def test_a_reply_that_does_not_begin_with_it_is_none_and_stays_as_it_is(reply):
    assert not is_silent(reply)
    assert spoken(reply) == reply


@pytest.mark.parametrize(
    ("reply", "seen"),
    [
        ("NO_REPLY\n\nBut the shop is closed.", "But the shop is closed."),
        ("NO_REPLY: the shop is closed.", "the shop is closed."),
        ("no_reply — closed", "closed"),
        ("**NO_REPLY**\n- an item", "- an item"),
        ("[SILENT] NO_REPLY closed", "closed"),
        ("NO_REPLY我不知道", "我不知道"),
        ("NO_REPLY *closed*", "*closed*"),
        ("I have nothing to add. NO_REPLY", "I have nothing to add."),
    ],
)
def test_a_reply_that_begins_or_ends_with_it_is_shown_without_it(reply, seen):
    assert spoken(reply) == seen
    assert not is_silent(reply)


@given(st.sampled_from(TOKENS), st.data())
def test_nothing_is_shown_while_it_may_still_be_a_token(token, data):
    length = data.draw(st.integers(0, len(token)))
    assert may_become_silent(token[:length].lower())


@pytest.mark.parametrize("end", ["**NO_REPLY**", "`[SILENT]`", '"no_reply".'])
def test_a_marked_token_right_behind_a_word_leaves_no_half_of_its_marks(end):
    assert spoken("00" + end) == "00"


@given(REPLIES)
def test_a_reply_is_silent_when_nothing_but_tokens_is_in_it(reply):
    assert is_silent(reply) == bool(reply.strip() and not spoken(reply).strip())
    assert spoken(spoken(reply)) == spoken(reply)


@dataclass
class Pieces(ScriptedModel):
    """A model that streams a reply cut where a test cuts it."""

    pieces: tuple[str, ...] = ()

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        for piece in self.pieces:
            yield TextDelta(piece)
        yield says("".join(self.pieces))


async def run(pieces: tuple[str, ...]) -> tuple[TurnResult, list[str]]:
    drafts: list[str] = []
    view = MemoryView(space="", keys=(), private=False)
    request = TurnRequest(
        limits=limits_of(Pieces(pieces=pieces)),
        system="",
        history=(),
        messages=(Message("user", (Text("hello"),)),),
        context=ToolContext(view, "s", datetime(2026, 11, 21, tzinfo=UTC)),
        language="en",
        max_steps=1,
        timeout=60,
    )
    result = await Turn(request, Toolbox(()), drafts.append).run()
    return result, drafts


async def test_what_may_open_a_token_is_no_draft():
    assert (await run(("[N", "o, thanks]")))[1] == ["[No, thanks]"]


@given(st.data())
@example(None)
async def test_however_a_stream_is_cut_no_draft_and_no_reply_begins_with_a_part_of_a_token(data):
    reply = "NO_REPLY\nI am here." if data is None else data.draw(REPLIES)
    places = st.lists(st.integers(0, len(reply)), max_size=6)
    cuts = range(len(reply) + 1) if data is None else sorted({0, len(reply), *data.draw(places)})
    result, drafts = await run(tuple(reply[a:b] for a, b in pairwise(cuts)))
    assert result.error is None
    assert result.silent == is_silent(reply)
    assert not (is_silent(reply) and (drafts or result.reply))
    for draft in drafts:
        assert spoken(reply).strip().startswith(draft)  # it only grows, and loses nothing
        assert not may_become_silent(draft)
    assert result.reply == spoken(reply).strip()
    assert spoken(result.reply) == result.reply
