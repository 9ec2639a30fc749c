"""What lanes do with messages that are safe in the database, with a turn that is only noted."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast
from zoneinfo import ZoneInfo

import pytest

from bot.agent.running import RunningTurns, Stop
from bot.channel import Inbound
from bot.errors import StorageFull
from bot.gateway.admission import Admitted
from bot.gateway.lanes import MAX_TRIES, Lanes
from bot.identity import ConversationResolver, Parsed, Policy
from bot.sessions import inbox
from bot.sessions.inbox import QueuedMessage
from bot.storage import Database, Transaction
from bot.unit_of_work import Committer
from tests.support import PATIENCE, core_of, make_config, settings_of, until


class Program:
    """Everything around the lanes: what was said is stored, what they do is noted in order."""

    def __init__(self, database: Database, **config: object) -> None:
        self.database = database
        self.did: list[object] = []
        self.told = 0  # how often it was said that more waits
        self.running = 0
        self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.errors: list[Exception] = []
        self.gives_up = False
        self._number = 0
        self.resolver = ConversationResolver(
            Policy.of(make_config(Path("unused"))[0], ZoneInfo("UTC"))
        )
        self.lanes = self.begin(**config)

    def begin(self, *, max_turns: int = 4, **config: object) -> Lanes:
        queue = {"debounce": 0, **config}
        settings = settings_of(session={"queue": queue, "max_turns": max_turns})
        return Lanes(
            core_of(self.database, settings=settings, resolver=self.resolver),
            cast("Committer", self),
            commander=self,
            attempts=self,
            admit=self.admit,
            run_turn=self.turn,
            running=RunningTurns(),
        )

    # --- what people do ---

    async def store(
        self, text: str, *, key: str = "k", session: str = "s", tries: int = 0, sender: str = ""
    ) -> QueuedMessage:
        self._number += 1
        inbound = Inbound(
            "memory", "default", key, "direct", sender or key, f"m{self._number}", text, 1
        )

        def work(tx: Transaction) -> int:
            row = inbox.store(tx, *inbox.storable(inbound), key, 1)
            assert row is not None
            inbox.bind(tx, row, session)
            for _ in range(tries):
                inbox.tried(tx, row)
            return row

        row = await self.database.write(work)
        return QueuedMessage(row, key, session, inbound, self.resolver.resolve(inbound), tries)

    async def say(self, *texts: str, **where: object) -> None:
        for row in [await self.store(text, **where) for text in texts]:
            await self.lanes.put(row)

    async def begun(self, *texts: str) -> None:
        """Say something, and have the first turn of it begin and wait."""
        self.gate.clear()
        await self.say(*texts)
        await until(lambda: self.running == 1)

    async def idle(self) -> None:
        self.gate.set()
        await until(lambda: not self.lanes._workers.active)

    async def done(self, rows: Sequence[QueuedMessage]) -> None:
        await self.database.write(lambda tx: inbox.done(tx, [row.id for row in rows], 2))

    # --- what lanes are given ---

    async def run(self, waiting: QueuedMessage, parsed: Parsed) -> QueuedMessage | None:
        self.did.append(f"/{parsed.name}")
        if parsed.rest:
            return replace(waiting, inbound=replace(waiting.inbound, text=parsed.rest))
        await self.done([waiting])
        return None

    @asynccontextmanager
    async def preparing(self, rows: Sequence[QueuedMessage]) -> AsyncGenerator[None]:
        self.did.append([f"prepare {row.inbound.text}" for row in rows])
        yield
        self.did.append("prepared")

    async def admit(self, _key: str, rows: Sequence[QueuedMessage]) -> Admitted:
        return Admitted(tuple(rows), ())

    async def turn(self, rows: Sequence[QueuedMessage], _stop: Stop) -> None:
        assert len({row.key for row in rows}) == 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate.wait()
            if self.errors:
                raise self.errors.pop(0)
            self.did.append([row.inbound.text for row in rows])
            await self.done(rows)
        finally:
            self.running -= 1

    async def failed(self, rows: Sequence[QueuedMessage], error: Exception) -> bool:
        self.did.append((type(error).__name__, [row.inbound.text for row in rows]))
        if self.gives_up:
            await self.done(rows)
        return self.gives_up

    async def set_aside(self, waiting: QueuedMessage) -> None:
        self.did.append(f"aside {waiting.inbound.text}")
        await self.done([waiting])

    async def commit(self, _now: int, _say: object) -> None:
        self.told += 1


@pytest.fixture
async def database(each_database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bot.workers.RETRY_DELAY", 0)
    return each_database


@pytest.fixture
def program(database: Database) -> Program:
    return Program(database)


async def test_one_person_takes_a_quarter_of_the_turns_and_all_of_theirs_are_answered(
    database: Database,
):
    program = Program(database, max_turns=8)
    program.gate.clear()
    for number in range(6):
        await program.say(f"eve {number}", key=f"e{number}", sender="eve")
    await program.say("ada", key="a")
    await until(lambda: program.running == 3)
    for _ in range(10):
        await asyncio.sleep(0)
    assert program.running == 3  # two of Eve's and Ada's
    await program.idle()
    assert program.did[2] == ["ada"]
    assert sorted(text for (text,) in program.did) == ["ada", *(f"eve {n}" for n in range(6))]


async def test_each_message_has_a_turn_of_its_own_in_order(program):
    await program.say("one", "two", "three")
    await program.idle()
    assert program.did == [["one"], ["two"], ["three"]]
    assert program.told == 0


async def test_a_lane_has_one_turn_at_a_time_and_others_run_beside_it(program):
    program.gate.clear()
    await program.say("a1", "a2", key="a")
    await program.say("b1", key="b")
    await until(lambda: program.running == 2)
    await program.idle()
    assert program.most == 2
    assert sorted(map(str, program.did)) == ["['a1']", "['a2']", "['b1']"]


async def test_no_more_turns_than_allowed_run_at_once(database: Database):
    program = Program(database, max_turns=2)
    program.gate.clear()
    for key in "abcd":
        await program.say(f"to {key}", key=key)
    await until(lambda: program.running == 2)
    await program.idle()
    assert program.most == 2
    assert len(program.did) == 4


@pytest.mark.parametrize(
    ("cap", "turns"), [(3, [["one", "two", "three"]]), (2, [["one", "two"], ["three"]])]
)
async def test_where_the_operator_wants_it_what_waits_is_answered_together_up_to_the_cap(
    database, cap, turns
):
    program = Program(database, mode="collect", cap=cap)
    await program.say("one", "two", "three")
    await program.idle()
    assert program.did == turns


async def test_it_waits_until_nothing_more_comes(database: Database):
    program = Program(database, mode="collect", debounce=0.5)
    rows = [await program.store(text) for text in ("one", "two", "three")]
    await program.lanes.put(rows[0])
    for row in rows[1:]:
        await asyncio.sleep(0)  # the lane waits by now
        await program.lanes.put(row)
    await program.idle()
    assert program.did == [["one", "two", "three"]]


@pytest.mark.parametrize(
    ("mode", "texts", "answered"),
    [
        ("followup", ["one"], [["one"]]),
        ("collect", ["one", "two", "three"], [["one", "two"], ["three"]]),  # more than fits
    ],
)
async def test_it_does_not_wait_for_more_where_each_is_answered_alone_or_too_many_wait_already(
    database, mode, texts, answered
):
    program = Program(database, mode=mode, cap=2, debounce=60)
    async with asyncio.timeout(PATIENCE / 2):
        await program.say(*texts)
        await program.idle()
    assert program.did == answered


@pytest.mark.parametrize("mode", ["followup", "collect"])
async def test_a_full_lane_says_so_once_and_answers_all_that_waits_together(database, mode):
    program = Program(database, mode=mode, cap=2)
    await program.begun("one", "two")
    await program.say(*(f"n{number}" for number in range(4)))
    assert program.told == 1
    await program.idle()
    answered = [text for rows in program.did for text in rows]
    assert answered == ["one", "two", "n0", "n1", "n2", "n3"]
    assert len(program.did) < 6
    assert max(map(len, program.did)) == 2
    # When it has been emptied the next flood is told again, and what comes alone is answered alone.
    program.did.clear()
    await program.begun("x0")
    await program.say(*(f"x{number}" for number in range(1, 5)))
    assert program.told == 2
    await program.idle()
    program.did.clear()
    await program.begun("y0")
    await program.say("y1")
    await program.idle()
    assert program.did == [["y0"], ["y1"]]
    assert program.told == 2


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        # Of another conversation: said after /new.
        ([("a", "s1", 0), ("b", "s1", 0), ("c", "s2", 0), ("d", "s2", 0)], ["ab", "cd"]),
        # A turn failed because of it: it has one of its own.
        ([("a", "s", 0), ("b", "s", 1), ("c", "s", 0), ("d", "s", 0)], ["a", "b", "cd"]),
        ([("a", "s", 2), ("b", "s", 0), ("c", "s", 0)], ["a", "bc"]),
        # A command is never answered by the model.
        ([("a", "s", 0), ("/help", "s", 0), ("b", "s", 0)], ["a", "/help", "b"]),
        ([("/help", "s", 0), ("a", "s", 0), ("b", "s", 0)], ["/help", "ab"]),
    ],
)
async def test_only_what_belongs_together_is_answered_together(database: Database, messages, turns):
    program = Program(database, mode="collect")
    for text, session, tries in messages:
        await program.store(text, session=session, tries=tries)
    assert await program.lanes.recover() == 1
    await program.idle()
    done = [each for each in program.did if not str(each).count("prepare")]
    assert ["".join(each) for each in done] == turns


async def test_a_command_is_prepared_and_what_is_left_of_it_is_the_first_message(program):
    await program.say("/new hello", "/help", "bye")
    await program.idle()
    assert program.did == [
        *(["prepare /new hello"], "/new", "prepared", ["hello"]),
        *(["prepare /help"], "/help", "prepared", ["bye"]),
    ]


async def test_a_turn_that_fails_is_counted_and_tried_again(program):
    program.errors = [RuntimeError("planned")]
    await program.say("one", "two")
    await program.idle()
    assert program.did == [("RuntimeError", ["one"]), ["one"], ["two"]]


async def test_what_is_given_up_is_not_tried_again(program):
    program.errors, program.gives_up = [RuntimeError("planned")], True
    await program.say("one", "two")
    await program.idle()
    assert program.did == [("RuntimeError", ["one"]), ["two"]]


async def test_a_full_disk_is_nobodys_fault(program):
    program.errors, program.gives_up = [StorageFull()], True
    await program.say("one")
    await program.idle()
    assert program.did == [["one"]]


@pytest.mark.parametrize("tries", [MAX_TRIES - 1, MAX_TRIES, MAX_TRIES + 1])
async def test_what_failed_too_often_is_set_aside_without_another_turn(tries, program):
    await program.store("bad", tries=tries)
    await program.store("good")
    await program.lanes.recover()
    await program.idle()
    first = "aside bad" if tries >= MAX_TRIES else ["bad"]
    assert program.did == [first, ["good"]]


async def test_after_a_restart_every_lane_goes_on(database: Database):
    program = Program(database, cap=2)
    assert await program.lanes.recover() == 0
    for number in range(5):
        await program.store(f"a{number}", key="a")
    await program.store("b", key="b")
    assert await program.lanes.recover() == 2
    await program.idle()
    assert sorted(text for rows in program.did for text in rows) == [
        *(f"a{number}" for number in range(5)),
        "b",
    ]


async def test_stopping_lets_the_turn_that_runs_finish_and_begins_no_other(program):
    await program.begun("one", "two")
    stopping = asyncio.create_task(program.lanes.stop(30))
    await asyncio.sleep(0)
    program.gate.set()
    await stopping
    assert program.did == [["one"]]
    program.lanes = program.begin()
    await program.lanes.recover()
    await program.idle()
    assert program.did == [["one"], ["two"]]


async def test_stopping_does_not_wait_longer_than_it_may(program):
    await program.begun("one")
    await program.lanes.stop(0)
    assert program.running == 0


async def test_a_command_of_somebody_who_may_not_talk_any_more_is_not_given(program):
    row = await program.store("/help")
    closed, _ = make_config(Path("unused"), channels={"memory": {"dm_policy": "disabled"}})
    program.resolver.adopt(Policy.of(closed, ZoneInfo("UTC")))
    await program.lanes.put(row)
    await program.idle()
    assert program.did == [["/help"]]  # who lets messages on to the model refuses it
