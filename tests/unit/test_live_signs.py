"""Typing, drafts and activities go out on the node that has the account, wherever a turn runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.channel import Activity, Address, Inbound
from bot.channel.kit.drafts import Draft, Drafts
from bot.coordination import Event
from bot.delivery import live
from bot.delivery.live import LiveSigns
from bot.sessions import inbox
from bot.storage.sqlite import SqliteDatabase
from bot.testing import InMemoryChannel
from tests.fakes.nodes import FakeNode, joined
from tests.support import until

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
        self.live = LiveSigns(database, {"memory": self.channel}, node)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    opened = await SqliteDatabase.open(tmp_path / "confidant.db")
    yield opened
    await opened.close()


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
    monkeypatch.setattr(live, "DRAFT_SECONDS", 0.0)
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


async def test_a_node_without_the_account_shows_nothing_for_others(
    sides: tuple[Side, Side], asked: str
):
    turn, owner = sides
    await turn.node.give(NAME)
    body = '{"chat":"ada","thread":"","draft":"1","text":"late"}'
    await owner.node.hear(Event("account", NAME, body))
    assert not owner.live._tasks


async def test_of_many_states_the_newest_is_shown_and_the_end_always(
    sides: tuple[Side, Side], asked: str
):
    turn, owner = sides
    for number in range(50):
        await turn.live.draft(ADA, asked, "word " * number + ".")
    await turn.live.draft(ADA, asked, "")
    await until(lambda: owner.channel.drafts[-1:] == [""])
    await until(lambda: not owner.live._tasks)
    assert owner.channel.board.texts == {}
    assert owner.channel.board.seen[-1:] in ([], [""])


async def test_a_state_that_comes_after_the_reply_does_not_bring_the_draft_back(
    sides: tuple[Side, Side], asked: str
):
    turn, owner = sides
    await turn.live.draft(ADA, asked, "half a")
    await until(lambda: owner.channel.board.seen == ["half a"])
    await owner.channel.board.take(ADA, asked)  # the reply takes its place
    await turn.live.draft(ADA, asked, "half a reply")
    await until(lambda: len(owner.channel.drafts) == 2 and not owner.live._tasks)
    assert owner.channel.board.texts == {}
    assert owner.channel.board.seen == ["half a"]


async def test_what_is_heard_again_long_after_the_reply_shows_nothing(
    sides: tuple[Side, Side], database: SqliteDatabase, asked: str
):
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
    sides: tuple[Side, Side], asked: str, monkeypatch: pytest.MonkeyPatch
):
    turn, _ = sides
    monkeypatch.setattr(live, "DRAFT_SECONDS", 3600.0)
    drafting = asyncio.create_task(turn.live.draft(ADA, asked, "x" * 10_000))
    await until(lambda: len(turn.node.told) == 1)
    assert not drafting.done()
    assert len(turn.node.told[0].body) < 4_200
    drafting.cancel()
    await asyncio.gather(drafting, return_exceptions=True)


async def test_what_a_model_thinks_goes_where_the_account_is_at_a_calm_pace(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
):
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
    monkeypatch.setattr(live, "DRAFT_SECONDS", 3600.0)
    thinking = asyncio.create_task(turn.live.activity(ADA, thought))
    await until(lambda: len(owner.channel.activities) == 4)
    assert not thinking.done()
    thinking.cancel()
    await asyncio.gather(thinking, return_exceptions=True)
