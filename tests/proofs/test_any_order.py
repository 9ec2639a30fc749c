"""People, commands, tools, blocks, clock jumps, restarts and failing writes in random order.

On the whole program, with everything around it in memory: nothing is lost, answered twice or shown
to others, nothing forgotten is seen again, nothing is sent to the blocked, and nothing is left.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bot.agent.models import Request, ToolSpec
from bot.errors import StorageError
from bot.messages import ToolResult
from bot.sessions import pairing
from bot.storage import Transaction
from bot.storage.sqlite import SqliteDatabase
from bot.testing import InMemoryChannel, ScriptedModel, calls
from tests.fakes.brain import query, settled
from tests.proofs.rounds import lengths
from tests.support import Engine, FakeClock, running, until

PEOPLE = ("ada", "bob", "eve")
CHANNELS = {"memory": {"dm_policy": "pairing", "allow_from": ("ada", "bob")}}
RULES = ({"tools": ("bake",), "action": "allow", "ask": False},)
STEPS = 40
WORD = re.compile(r"\bw(?:ada|bob|eve)\d{4}x\b")

pytestmark = pytest.mark.timeout(600)


class Oven:
    """Does something each time it is called."""

    spec = ToolSpec("bake", "Bake.", {"type": "object", "properties": {"order": {}}})

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()

    async def run(self, arguments: Mapping[str, Any], context: Any) -> str:
        self.made[str(arguments["order"])] += 1
        await asyncio.sleep(0)
        return "baked"


def reply(request: Request) -> Any:
    """An answer that names the messages it is to."""
    if request.purpose != "chat":
        return "- They talked."
    news = request.messages[request.begins :]
    words = [word for each in news if each.role == "user" for word in WORD.findall(each.text)]
    if "use" in news[-1].text and not isinstance(news[-1].blocks[-1], ToolResult) and words:
        return calls("bake", order=words[-1])
    return f"re {' '.join(dict.fromkeys(words))}"


class World:
    """The program, whoever talks to it, and what must hold of that."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)  # noqa: S311 - chance, not a secret
        self.clock = FakeClock()
        self.oven = Oven()
        self.model = ScriptedModel(script=reply)
        self.channel = InMemoryChannel()
        self.number = 0
        self.said: dict[str, str] = {}  # who said each word
        self.excused: set[str] = set()  # what need not be answered
        self.forgotten: dict[str, tuple[int, int]] = {}  # requests and texts there were before
        self.blocked_since: int | None = None  # texts that were sent before Eve was blocked
        self.stack = AsyncExitStack()
        self.failing = 0

    async def start(self) -> None:
        failing, self.failing = self.failing, 0  # a start with a full disk is another story
        self.engine: Engine = await self.stack.enter_async_context(
            running(
                self.folder,
                model=self.model,
                clock=self.clock,
                channel=self.channel,
                channels=CHANNELS,
                tools=(self.oven,),
                tool_rules=RULES,
                context={"enable_memory_flush": True},
            )
        )
        self.failing = failing

    async def restart(self) -> None:
        await self.stack.aclose()
        self.stack = AsyncExitStack()
        await self.start()

    # --- what people do ---

    async def tell(self, who: str, text: str) -> None:
        """Deliver a message, again until it is stored, as a channel does."""
        inbound = self.engine.message(text, sender=who)
        while True:
            try:
                await self.channel.push(inbound)
            except (StorageError, RuntimeError):  # its disk is full, or it is being restarted
                await asyncio.sleep(0.01)
                continue
            return

    async def say(self, who: str, form: str = "{}") -> None:
        self.number += 1
        word = f"w{who}{self.number:04}x"
        self.said[word] = who
        if who == "eve" and self.blocked_since is not None:
            self.excused.add(word)
        await self.tell(who, form.format(word))

    def excuse(self, who: str) -> None:
        self.excused |= {word for word, by in self.said.items() if by == who}

    async def told(self, who: str, since: int, ready: Callable[[str], bool]) -> str:
        found: list[str] = []

        def is_there(_: Any) -> bool:
            sent = (each for each in self.channel.sent[since:] if each.address.chat == who)
            found[:] = [each.text for each in sent if ready(each.text)]
            return bool(found)

        await asyncio.wait_for(self.channel.wait_until(is_there), 30)
        return found[0]

    async def forget(self, who: str) -> None:
        words = [w for w, by in self.said.items() if by == who and w not in self.forgotten]
        if not words or (who == "eve" and self.blocked_since is not None):
            return
        word, since = self.chance.choice(words), len(self.channel.sent)
        await self.tell(who, f"/memory forget {word}")
        asked = await self.told(who, since, lambda text: "/memory forget" in text or "none" in text)
        if "in none of your files" in asked:
            return
        self.excused.add(word)
        since = len(self.channel.sent)
        confirming = asyncio.create_task(self.tell(who, "/memory forget yes"))
        if self.chance.random() < 0.3:
            for _ in range(self.chance.choice((0, 1, 5, 20))):
                await asyncio.sleep(0.001)
            await self.restart()
        await confirming
        await self.told(who, since, lambda text: "Forgotten" in text)
        self.forgotten[word] = len(self.model.requests), len(self.channel.sent)

    async def block(self) -> None:
        """Eve is blocked, or let in again."""
        database = self.engine.app.core.database

        def work(tx: Transaction) -> Any:
            if self.blocked_since is None:
                return pairing.block(tx, ("memory", "eve"), self.clock())
            return pairing.let_in_again(tx, ("memory", "eve"), self.clock())

        failing, self.failing = self.failing, 0
        await database.write(work)
        await self.engine.app.core.read_books()
        await self.engine.app.engine.dismissals.sweep()
        self.failing = failing
        if self.blocked_since is None:
            self.excuse("eve")
            await asyncio.sleep(0.01)  # what was on its way when it happened
            self.blocked_since = len(self.channel.sent)
        else:
            self.check_blocked()
            self.blocked_since = None

    async def let_in(self) -> None:
        """Eve asks, and is let in."""
        await self.tell("eve", "hello")
        code, now = query(self.folder, "SELECT code FROM pairing")[0][0], self.clock()
        core = self.engine.app.core
        await core.database.write(lambda tx: pairing.approve(tx, "memory", code, now))
        await core.read_books()

    async def step(self) -> None:
        who, chance = self.chance.choice(PEOPLE), self.chance
        match chance.choices(range(10), (12, 4, 2, 1, 1, 2, 3, 1, 2, 2))[0]:
            case 0:
                await self.say(who)
            case 1:
                await self.say(who, "use {}")
            case 2:
                await self.tell(who, "/new")
            case 3:
                await self.tell(who, "/undo")
            case 4:
                await self.tell(who, "/compact")
            case 5:
                self.excuse(who)
                await self.tell(who, "/stop")
            case 6:
                await self.forget(who)
            case 7:
                await self.block()
            case 8:
                self.clock.advance(hours=chance.choice((1, 30, -2)))
            case _:
                await self.restart()
        for _ in range(chance.choice((0, 1, 20))):
            await asyncio.sleep(0)

    # --- what holds ---

    def check_blocked(self) -> None:
        assert self.blocked_since is not None
        later = self.channel.sent[self.blocked_since :]
        assert [each.text for each in later if each.address.chat == "eve"] == []

    async def end(self) -> None:
        """Let everything come to its end, and look."""
        self.failing = 0
        if self.blocked_since is not None:
            self.check_blocked()
        waiting = "SELECT 1 FROM {} WHERE state IN ('waiting', 'command')"
        for table in ("inbox", "outbox"):
            await until(lambda t=table: not query(self.folder, waiting.format(t)))
        await settled()
        engine = self.engine.app.engine
        await until(lambda: not len(engine.maintenance.running))
        await until(lambda: not engine.lanes._workers.active)
        await self.stack.aclose()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not query(self.folder, "SELECT 1 FROM meta WHERE key LIKE 'started:%'")
        answers: dict[str, set[str]] = {}
        for piece in self.channel.sent:
            for word in WORD.findall(piece.text) if piece.text.startswith("re ") else ():
                assert self.said[word] == piece.address.chat
                answers.setdefault(word, set()).add(piece.id)
        assert {word: ids for word, ids in answers.items() if len(ids) > 1} == {}
        assert set(self.said) - set(answers) - self.excused == set()
        for request in self.model.requests:
            shown = WORD.findall(f"{request.system}{request.messages}")
            assert len({self.said[word] for word in shown}) < 2
        for word, (requests, texts) in self.forgotten.items():
            assert all(word not in str(each.messages) for each in self.model.requests[requests:])
            assert all(word not in each.text for each in self.channel.sent[texts:])
        assert [order for order, count in self.oven.made.items() if count > 1] == []


@lengths("seeds", 2, 20)
async def test_in_whatever_order_things_happen_every_promise_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seeds: int
):
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.01)
    monkeypatch.setattr("bot.app.SEND_GRACE", 0.01)
    monkeypatch.setattr("bot.workers.RETRY_DELAY", 0.01)
    monkeypatch.setattr("bot.workers.LAST_DELAY", 0.01)
    said = forgotten = 0
    for seed in range(seeds):
        world = World(tmp_path / str(seed), seed)
        with monkeypatch.context() as patch:
            write = SqliteDatabase.write

            async def failing(
                self: SqliteDatabase, work: Any, world: World = world, write: Any = write
            ) -> Any:
                if world.failing and world.chance.randrange(world.failing) == 0:
                    raise StorageError("planned")
                return await write(self, work)

            patch.setattr(SqliteDatabase, "write", failing)
            await world.start()
            await world.let_in()
            world.failing = 25
            for _ in range(STEPS):
                await world.step()
            await world.end()
        said, forgotten = said + len(world.said), forgotten + len(world.forgotten)
    with capsys.disabled():
        print(f"\n{seeds} seeds: {said} messages, {forgotten} words forgotten, every promise held")
