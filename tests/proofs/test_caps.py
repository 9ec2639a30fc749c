"""Nobody spends more than one call beyond a limit, in whatever order things happen.

Linked accounts, topics, tool loops, commands, resets, nights, tasks and restarts on the whole
program, all at once, beside a model that says honestly what each call comes to.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bot.agent.models import Reply, Request, TextDelta, ToolSpec, Usage
from bot.clock import DAY_MS
from bot.context import tokens
from bot.memory import guard
from bot.messages import ToolResult
from bot.testing import InMemoryChannel, ScriptedModel, calls, says
from tests.fakes.brain import LONG, SUMMARY, query, settled
from tests.proofs.rounds import lengths
from tests.support import Engine, FakeClock, running, until

ACCOUNTS = ("ada", "ada2", "bob", "eve")  # the first two are one person
EACH, IN_ALL = 30_000, 70_000
STEPS = 60

pytestmark = pytest.mark.timeout(600)


class Till(ScriptedModel):
    """Writes as much as it may, or less, and counts what each call comes to."""

    def __init__(self, chance: random.Random, clock: FakeClock) -> None:
        super().__init__(script=self._answer)
        self.chance = chance
        self.clock = clock
        self.spent: Counter[int] = Counter()  # by day (UTC)
        self.dearest = 0

    def _answer(self, request: Request) -> Reply:
        match request.purpose:
            case "summary":
                return says(SUMMARY)
            case "flush" | "night":
                return says(guard.NO_DECISION)
            case _:
                looping = isinstance(request.messages[-1].blocks[-1], ToolResult)
                again = self.chance.random() < (0.7 if looping else 0.3)
                return calls("bake") if again and request.may_call else says("All right.")

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        sent = sum(tokens.estimate(each.text) for each in request.messages)
        sent = max(request.tokens, sent + tokens.estimate(request.system))
        usage = Usage(sent, self.chance.randint(1, request.max_tokens))
        async for event in super().stream(request):
            for _ in range(self.chance.choice((0, 1, 30))):
                await asyncio.sleep(0)
            if isinstance(event, TextDelta):
                yield event
            else:
                self.spent[self.clock() // DAY_MS] += usage.context_tokens
                self.dearest = max(self.dearest, usage.context_tokens)
                yield replace(event, usage=usage)


class Oven:
    """A tool to loop with."""

    spec = ToolSpec("bake", "Bake.", {"type": "object", "properties": {}}, repeatable=True)

    async def run(self, arguments: object, context: object) -> str:
        await asyncio.sleep(0)
        return "baked"


class World:
    """The program, and people who do what costs."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)  # noqa: S311 - chance, not a secret
        self.clock = FakeClock()
        self.model = Till(self.chance, self.clock)
        self.channel = InMemoryChannel()
        self.stack = AsyncExitStack()
        self.doing: set[asyncio.Task[object]] = set()

    async def start(self) -> None:
        self.engine: Engine = await self.stack.enter_async_context(
            running(
                self.folder,
                model=self.model,
                clock=self.clock,
                channel=self.channel,
                tools=(Oven(),),
                tool_rules=({"tools": ("bake",), "action": "allow", "ask": False},),
                session={"identity_links": {"ada": ["memory:ada", "memory:ada2"]}},
                context={"enable_memory_flush": True},
                limits={"each": {"day_tokens": EACH}, "in_all": {"day_tokens": IN_ALL}},
                channels={"memory": {"group_policy": "open", "require_mention": False}},
            )
        )

    async def rest(self) -> None:
        """Let everything that was begun come to its end."""
        await asyncio.gather(*self.doing)
        self.doing.clear()
        for table in ("inbox", "outbox"):
            sql = f"SELECT 1 FROM {table} WHERE state IN ('waiting', 'command')"
            await until(lambda sql=sql: not query(self.folder, sql))
        engine = self.engine.app.engine
        await until(lambda: not engine.lanes._workers.active and not engine.tasks._running)
        await settled()

    async def step(self) -> None:
        who, chance, app = self.chance.choice(ACCOUNTS), self.chance, self.engine.app
        where = {"thread": chance.choice(("", "", "t1", "t2"))}
        if chance.random() < 0.2:
            where |= {"chat": "room", "chat_type": "group", "mentions_bot": True}
        wants = ("/new", "/new and tell me of boats", "/compact", "/undo", "/stop", "/memory save")
        match chance.choices(range(6), (12, 9, 2, 1, 1, 1))[0]:
            case 0:
                self.tell(chance.choice((LONG, "hello")), who, where)
            case 1:
                self.tell(chance.choice(wants), who, where)
            case 2:  # what is over is closed and saved, and nights and tasks begin
                await self.rest()
                self.clock.advance(hours=chance.choice((1, 5, 24)))
                self.do(app.maintenance.sweeper.sweep(self.clock()))
                self.do(app.maintenance.nights.look())
                self.do(app.maintenance.upkeep.look())
                self.do(app.engine.tasks.begin())
            case 3:
                self.tell("/task every day at 15:00 tell me of boats", who, where)
            case 4:
                self.do(app.maintenance.nights.look())
            case _:
                await self.rest()
                await self.stack.aclose()
                self.stack = AsyncExitStack()
                await self.start()
        for _ in range(chance.choice((0, 1, 40))):
            await asyncio.sleep(0)

    def tell(self, words: str, who: str, where: dict[str, object]) -> None:
        inbound = self.engine.message(words, sender=who)
        self.do(self.channel.push(replace(inbound, **where)))  # pyright: ignore[reportArgumentType]

    def do(self, work: object) -> None:
        self.doing.add(asyncio.ensure_future(work))  # pyright: ignore[reportArgumentType]

    def check(self) -> int:
        """How many days somebody's limit was reached on."""
        days = f"at - at % {DAY_MS}"
        used = "sum(input_tokens + output_tokens + cache_read_tokens + cache_write_tokens)"
        sql = f"SELECT {used} FROM usage_counts GROUP BY {days}"
        by_person = [spent for (spent,) in query(self.folder, f"{sql}, person")]
        in_all = [spent for (spent,) in query(self.folder, sql)]
        assert max(by_person) <= EACH + self.model.dearest
        assert max(in_all) <= IN_ALL + self.model.dearest
        assert sum(in_all) >= sum(self.model.spent.values())  # stopped ones are estimated
        assert not query(self.folder, "SELECT 1 FROM meta WHERE key LIKE 'running_cost:%'")
        return sum(spent >= EACH for spent in by_person)


@lengths("seeds", 2, 30)
async def test_no_order_of_events_spends_more_than_one_call_beyond_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seeds: int
):
    reached = asked = 0
    for seed in range(seeds):
        world = World(tmp_path / str(seed), seed)
        await world.start()
        for _ in range(STEPS):
            await world.step()
        await world.rest()
        await world.stack.aclose()
        reached += world.check()
        asked += len(world.model.requests)
    assert reached
    with capsys.disabled():
        print(f"\n{seeds} seeds: {asked} calls, {reached} limits reached, one call beyond at most")
