"""Faults at exact places of a cluster, each with what must come of it.

What a protection is for is seen by doing without it (`tests.proofs.cluster.without`): the last
test proves that these can fail.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.fakes.telegram_parts import Sent
from tests.proofs.cluster.cluster import NODE_TIMEOUT, Cluster, Node
from tests.proofs.cluster.people import LOOK, QUIET, People
from tests.proofs.cluster.without import CLOCK_OFF, WITHOUT

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SOON = 30.0  # seconds
CLOCK = 300  # seconds that a clock is off
IDLE_CHAT = 4  # whose conversation ends after four minutes of silence
MANY = 500
_TURNS = """SELECT 1 FROM (SELECT count(*) AS turns FROM entries WHERE role = 'assistant'
    AND line LIKE %s) AS found WHERE turns = %s"""


@dataclass
class World:
    """Nodes that run, and the people who write to them."""

    cluster: Cluster
    people: People

    async def asking(self, chat: int) -> tuple[str, Node]:
        """Ask something; its name, and the node that has all of the answer but its end."""
        found: asyncio.Future[Node] = asyncio.get_running_loop().create_future()
        held = asyncio.Event()

        async def hold(asked: str, port: int) -> None:
            if asked == name and not found.done():
                found.set_result(self.cluster.asking(port))
                await held.wait()

        self.cluster.model.before_end = hold
        name = self.people.ask(chat)
        node = await asyncio.wait_for(found, SOON)
        self.cluster.model.before_end = None
        self._held = held
        return name, node

    def answer(self) -> None:
        """Let the answer that is held back have its end."""
        self._held.set()

    def answers(self, name: str) -> list[Sent]:
        """The answers to a message so far."""
        return [sent for sent in self.cluster.telegram.sent if sent.text.startswith(f"re {name} ")]

    async def answered(self, name: str) -> None:
        """Return once a message has an answer."""
        await self.cluster.telegram.wait_for(lambda: bool(self.answers(name)), SOON)

    async def until(self, ready: Callable[[], bool]) -> None:
        """Return once something is true that no call of Telegram goes along with."""
        async with asyncio.timeout(SOON):
            while not ready():  # noqa: ASYNC110 - in other processes
                await asyncio.sleep(LOOK)

    async def stored(self, sql: str, *values: object) -> None:
        """Return once a question to the database has an answer."""
        async with asyncio.timeout(SOON):
            while not await self.cluster.query(sql, *values):  # noqa: ASYNC110 - other processes
                await asyncio.sleep(LOOK)

    def owner(self) -> Node:
        owner = self.cluster.owner()
        assert owner is not None
        return owner

    async def restart(self, **more: str) -> None:
        """End every node as hard as can be, and start all of them."""
        for node in self.cluster.nodes:
            await self.cluster.kill(node)
        await self.cluster.start(**more)

    async def judge(self) -> int:
        """All is answered once; how many sends were repeated."""
        await self.people.settled()
        return (await self.people.judge()).repeats


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with Cluster(tmp_path_factory.mktemp("places") / "cluster") as cluster:
        await cluster.start()
        yield World(cluster, People(cluster, seed=1))


async def woken_in_a_turn(world: World) -> str:
    """Let a node sleep before it stores an answer, and wake up when another one has answered."""
    name, node = await world.asking(1)
    world.cluster.pause(node)
    world.answer()
    await world.answered(name)
    world.cluster.resume(node)
    # It has come back to itself when it knows that its turn was taken over, or that it was given
    # up itself: which of the two the others noticed first is theirs.
    await world.until(lambda: _lives(node))
    await world.cluster.ready(node)
    return name


def _lives(node: Node) -> bool:
    log = node.log()
    ways = ("node.was_given_up", "node.disconnected", "worker.fenced", "turn.ended_elsewhere")
    return any(way in log for way in ways)


@pytest.mark.proof
async def test_a_node_that_wakes_up_in_a_turn_that_was_taken_over_changes_and_sends_nothing(world):
    name = await woken_in_a_turn(world)
    await world.judge()
    assert world.cluster.model.asked[name] == 2
    assert len(world.answers(name)) == 1


async def offered_again(world: World) -> str:
    """Kill the owner when it has stored a message and Telegram was not told so."""
    await world.answered(world.people.ask(2))
    await world.cluster.telegram.wait_acknowledged(within=QUIET)  # by a poll that waits now
    owner = world.owner()
    world.cluster.telegram.drop_next("getUpdates", times=100)
    ((before,),) = await world.cluster.query("SELECT count(*) FROM inbox")
    name = world.people.ask(2)
    await world.stored("SELECT 1 FROM inbox HAVING count(*) > %s", before)
    await world.cluster.kill(owner)
    world.cluster.telegram.recover("getUpdates")
    await world.cluster.start(owner)
    await world.cluster.telegram.wait_acknowledged(within=QUIET)
    return name


async def test_a_message_that_telegram_offers_to_the_next_owner_again_is_answered_once(world):
    name = await offered_again(world)
    await world.judge()
    assert len(world.answers(name)) == 1


async def listening(world: World) -> set[int]:
    """The nodes that listen while somebody writes."""
    began = time.monotonic()
    for chat in (1, 2, 3):
        await world.answered(world.people.ask(chat))
    return {call.node for call in world.cluster.telegram.polls(began)}


async def test_one_node_alone_listens(world):
    assert await listening(world) == {world.owner().number}


async def test_the_turn_of_a_killed_node_is_taken_over_by_another(world):
    name, node = await world.asking(2)
    began = time.monotonic()
    await world.cluster.kill(node)
    world.answer()
    await world.answered(name)
    assert time.monotonic() - began < 5 * NODE_TIMEOUT
    assert world.cluster.model.asked[name] == 2
    await world.cluster.start(node)
    await world.judge()


async def test_what_is_stored_and_not_sent_is_sent_by_the_next_owner_and_only_by_that(world):
    name, _ = await world.asking(3)
    owner = world.owner()
    owner.telegram.freeze()
    world.answer()
    await world.stored("SELECT 1 FROM outbox WHERE state = 'waiting'")
    await world.cluster.kill(owner)
    owner.telegram.cut()  # with what it may have tried to send
    await world.answered(name)
    owner.telegram.mend()
    await world.cluster.start(owner)
    assert await world.judge() == 0
    assert world.cluster.model.asked[name] == 1


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
async def test_a_commit_without_an_answer_is_neither_forgotten_nor_made_twice(world, done):
    name, node = await world.asking(1)
    lost = node.database.lost
    node.database.lose_answer(b"COMMIT", done=done)
    world.answer()
    await world.answered(name)
    assert node.database.lost == lost + 1
    assert await world.judge() == 0
    assert world.cluster.model.asked[name] == 1


async def test_a_command_whose_node_is_killed_while_it_answers_is_answered_once(world):
    owner = world.owner()
    lost = owner.database.lost
    owner.database.lose_answer(b"INSERT INTO outbox", done=False, cut=True)  # and once only
    world.people.command(2, "/new")
    await world.until(lambda: owner.database.lost > lost)
    owner.database.cut()
    await world.cluster.kill(owner)
    owner.database.mend()
    await world.cluster.start(owner)
    await world.judge()


@pytest.mark.proof
async def test_a_clock_that_is_off_changes_neither_reminders_nor_resets(world):
    """By the clock of a node five minutes ahead both would be due long ago."""
    cluster, people = world.cluster, world.people
    people.ask(IDLE_CHAT)
    await world.judge()
    for node in cluster.nodes:
        await cluster.kill(node)
    for node, ahead in zip(cluster.nodes, (CLOCK, CLOCK, -CLOCK), strict=True):
        await cluster.start(node, **{CLOCK_OFF: str(ahead)})
    assert world.owner() is cluster.nodes[0]
    people.ask(IDLE_CHAT)  # two minutes after the first one, and no reset
    await people.settled()
    began = time.monotonic()
    people.command(3, "/remind in 4 seconds tea")
    await cluster.telegram.wait_for(lambda: "⏰ tea" in cluster.telegram.texts(3), SOON)
    assert 4 <= time.monotonic() - began < 10
    await people.settled()
    assert cluster.telegram.texts(3).count("⏰ tea") == 1
    cluster.telegram.sent[:] = [sent for sent in cluster.telegram.sent if sent.text != "⏰ tea"]
    await world.restart()
    await world.judge()


@pytest.mark.proof
async def test_five_hundred_messages_of_one_chat_are_two_jobs_at_most(world):
    name, _ = await world.asking(1)
    for _ in range(MANY):
        world.cluster.telegram.push_text(1, "more")
    await world.cluster.telegram.wait_acknowledged(within=QUIET)
    key = "agent:main:telegram:dm:1"
    jobs = await world.cluster.query("SELECT status FROM procrastinate_jobs WHERE lock = %s", key)
    assert sorted(jobs) in ([("doing",)], [("doing",), ("todo",)])
    ((waiting,),) = await world.cluster.query(
        "SELECT count(*) FROM inbox WHERE key = %s AND state = 'waiting'", key
    )
    assert waiting == MANY + 1
    await world.cluster.query('DELETE FROM inbox WHERE body LIKE \'%%"text":"more"%%\' RETURNING 1')
    world.answer()
    await world.answered(name)
    await world.judge()


# --- without a protection ----------------------------------------------------------------------


@pytest.mark.proof
async def test_without_a_protection_each_of_these_fails(tmp_path):
    async with Cluster(tmp_path / "cluster", nodes=2) as cluster:
        world = World(cluster, People(cluster, seed=1))
        # Without its fence a woken node's turn is still not stored: its message waits no more.
        await cluster.start(**{WITHOUT: "fence"})
        name = await woken_in_a_turn(world)
        await world.stored(_TURNS, f"%re {name} %", 1)
        await world.restart(**{WITHOUT: "deduplication"})
        name = await offered_again(world)
        await cluster.telegram.wait_for(lambda: len(world.answers(name)) == 2, SOON)
        began = time.monotonic()
        await world.restart(**{WITHOUT: "lease"})
        polls = cluster.telegram.polls
        await cluster.telegram.wait_for(
            lambda: {call.node for call in polls(began)} == {1, 2}, SOON
        )
