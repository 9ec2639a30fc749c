"""Power is lost at any moment: every acknowledged message is there, and has exactly its one answer.

Each life of the program runs on a disk that forgets what was not synced; the next one begins with
what survived. With less than `synchronous = FULL` the same proof fails, so it can see.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

from bot.agent.models import Request
from bot.channel import Inbound, Piece
from bot.sessions import entries
from bot.storage import sqlite
from bot.testing import InMemoryChannel, ScriptedModel
from tests.fakes.brain import query
from tests.proofs import power
from tests.proofs.rounds import rounds
from tests.support import FakeClock, running

LIVES = 8
MOST = 300  # writes and syncs of the disk until the power goes, at most
PEOPLE = ("ada", "bob", "eve")
SEED = int(os.environ.get("PROOF_SEED", "20261122"))
PATIENCE = 30.0  # seconds until a missing answer counts as lost
# The log is written back to the database often, so that power is lost then too.
LOG = ("wal_autocheckpoint = 2000", "wal_autocheckpoint = 40")

pytestmark = pytest.mark.slow


class Lost(AssertionError):
    """A message, an answer or something forgotten is not as it was acknowledged."""


@dataclass
class World:
    """What people and their platform know; it lives on when the power goes."""

    chance: random.Random
    acknowledged: dict[str, str] = field(default_factory=dict)  # message id → text
    delivered: list[Piece] = field(default_factory=list)
    repeats: int = 0
    losses: int = 0


def answer(request: Request) -> str:
    return f"{request.messages[-1].text} is answered"


async def live(world: World, folder: Path, then: Path, life: int) -> None:
    """Run the program while people write; at some moment the power goes."""
    lost = asyncio.Event()
    loop = asyncio.get_running_loop()
    channel = InMemoryChannel()
    owed = waiting(folder)
    with power.disk(world.chance.randrange(2**32)) as disk:
        taken: list[tuple[dict[str, str], list[Piece]]] = []

        def lose() -> None:
            taken.append((dict(world.acknowledged), list(channel.sent)))
            disk.lose_power(folder, then)
            loop.call_soon_threadsafe(lost.set)

        at_start = world.chance.random() < 0.2
        if at_start:
            disk.after(world.chance.randint(1, MOST), lose)
        async with running(
            folder, model=ScriptedModel(script=answer), channel=channel, clock=FakeClock()
        ) as engine:
            if not at_start:
                disk.after(world.chance.randint(1, MOST), lose)

            async def write(number: int) -> None:
                name = f"l{life}m{number}"
                who = PEOPLE[number % len(PEOPLE)]
                await channel.push(
                    Inbound("memory", "default", who, "direct", who, name, name, engine.clock())
                )
                world.acknowledged[name] = who

            number = 0
            await wait_for(lambda: len(channel.sent) >= owed, channel, lost)
            while not lost.is_set():
                await asyncio.gather(*(write(number + more) for more in range(3)))
                number += 3
                # So few wait at a time that each gets an answer of its own.
                goal = owed + number - world.chance.randint(0, 6)
                await wait_for(
                    lambda g=goal: len(channel.sent) >= g or lost.is_set(), channel, lost
                )
        acknowledged, sent = taken[0]
        world.acknowledged = acknowledged
        check_repeats(world, sent)
        world.delivered += sent
        world.losses += 1


def waiting(folder: Path) -> int:
    """How many messages the program has not answered, acknowledged or not."""
    try:
        rows = query(folder, "SELECT count(*) FROM inbox WHERE state = 'waiting'")
    except apsw.Error:  # there is no database yet
        return 0
    return rows[0][0]


def check_stored(world: World, folder: Path) -> None:
    """Just after the loss, before any program looks at it."""
    if not world.acknowledged:
        return
    try:
        stored = {row[0] for row in query(folder, "SELECT message_id FROM inbox")}
    except apsw.Error:  # its tables are gone with it, or it is damaged
        stored = set[str]()
    if missing := world.acknowledged.keys() - stored:
        raise Lost(f"{len(missing)} acknowledged messages are gone")


async def wait_for(
    ready: Callable[[], bool], channel: InMemoryChannel, lost: asyncio.Event
) -> None:
    answered = asyncio.create_task(channel.wait_until(lambda _: ready()))
    gone = asyncio.create_task(lost.wait())
    await asyncio.wait({answered, gone}, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
    for task in (answered, gone):
        task.cancel()
    await asyncio.gather(answered, gone, return_exceptions=True)


def check_repeats(world: World, sent: list[Piece]) -> None:
    """What came again must have been in flight: the last one its chat got before the loss."""
    before = {each.address.chat: each.text for each in world.delivered}
    known = {(each.address.chat, each.text) for each in world.delivered}
    for each in sent:
        if (each.address.chat, each.text) in known:
            if before[each.address.chat] != each.text:
                raise Lost(f"{each.text} came again and was not in flight")
            world.repeats += 1


async def finish(world: World, folder: Path) -> None:
    """Let the program answer what is left, and count."""
    channel = InMemoryChannel()
    async with running(
        folder, model=ScriptedModel(script=answer), channel=channel, clock=FakeClock()
    ):
        done = {each.text for each in world.delivered}

        def ready() -> bool:
            texts = done | {each.text for each in channel.sent}
            return all(f"{name} is answered" in texts for name in world.acknowledged)

        try:
            async with asyncio.timeout(PATIENCE):
                if not ready():
                    await channel.wait_until(lambda _: ready())
        except TimeoutError:
            raise Lost("a message got no answer") from None
    check_repeats(world, channel.sent)
    rows = query(folder, "SELECT line FROM entries WHERE kind = 'message'")
    said = [entries.parse(row[0]) for row in rows]
    asked = Counter(entry.source for entry in said if entry.role == "user")
    answers = Counter(entry.text for entry in said if entry.role == "assistant")
    for name in world.acknowledged:
        if asked[name] != 1:
            raise Lost(f"{name} is in the transcript {asked[name]} times")
        if answers[f"{name} is answered"] != 1:
            raise Lost(f"{name} was answered {answers[f'{name} is answered']} times")


async def prove(home: Path, lives: int) -> World:
    world = World(random.Random(SEED))  # noqa: S311 - chance, not a secret
    folder = home / "0"
    for life in range(lives):
        then = home / str(life + 1)
        await live(world, folder, then, life)
        check_stored(world, then)
        folder = then
    await finish(world, folder)
    return world


async def test_no_loss_of_power_loses_or_doubles_a_message(tmp_path, monkeypatch, capsys):
    say_instead(monkeypatch, *LOG)
    world = await prove(tmp_path, rounds(LIVES))
    assert world.losses == rounds(LIVES)
    assert len(world.acknowledged) > world.losses
    with capsys.disabled():
        print(
            f"\nPower: {world.losses} losses, {len(world.acknowledged)} messages acknowledged, "
            f"0 lost, 0 answered twice, {world.repeats} sends in flight repeated"
        )


@pytest.mark.parametrize("level", ["OFF", "NORMAL"])
async def test_the_proof_sees_a_database_that_does_not_wait_for_the_disk(
    tmp_path, monkeypatch, level
):
    say_instead(monkeypatch, "synchronous = FULL", f"synchronous = {level}")
    say_instead(monkeypatch, *LOG)
    with pytest.raises(Lost):  # a message, or that it was answered
        await prove(tmp_path, LIVES)


def say_instead(monkeypatch: pytest.MonkeyPatch, words: str, others: str) -> None:
    pragmas = tuple(line.replace(words, others) for line in sqlite._PRAGMAS)
    assert pragmas != sqlite._PRAGMAS
    monkeypatch.setattr(sqlite, "_PRAGMAS", pragmas)
