"""Killing the real program at random moments while people write, and counting what is answered.

The platform is a server of this process: it lives on, with all it was told, when the program dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import re
import signal
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from tests.fakes import commands

LONG = 2_000  # characters of a long message; its answer takes two on Discord
ANSWERED = 30.0  # seconds within which another answer comes, while any is missing
SEED = 20_261_121


def chance() -> random.Random:
    """What decides when a program is killed, the same in each run."""
    return random.Random(SEED)  # noqa: S311 - chance, not a secret


# Every word names the message it is of, so that each piece of an answer does.
_WORD = re.compile(r"\b(r\d+m\d+)w\d+\b")


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the bot's as it stands on the platform."""

    chat: str
    text: str
    at: float  # seconds; time.monotonic() where sends may be repeated


class Platform(Protocol):
    """A fake server, in the same words for every platform."""

    chats: Sequence[str]
    rooms: Collection[str]  # those of the chats where people also speak among themselves

    def settings(self) -> Mapping[str, str]:
        """The program's environment."""
        ...

    async def up(self) -> None:
        """Return once the program can be told something."""
        ...

    async def say(self, chat: str, name: str, text: str, *, to_bot: bool = True) -> None:
        """A person writes."""
        ...

    async def gone(self) -> None:
        """Return once all that a killed program had sent was read."""
        ...

    def held(self, asked: Collection[str]) -> set[str]:
        """The names of the messages that are to be answered; asked while no program runs."""
        ...

    def said(self) -> list[Said]:
        """What the bot said, oldest first."""
        ...

    async def wait_for(self, ready: Callable[[], bool], within: float) -> None:
        """Return once something is true that can only change with what the bot does."""
        ...


class Program:
    """The zygote, and the program it started last."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def launched(cls, folder: Path, settings: Mapping[str, str]) -> AsyncGenerator[Program]:
        """A zygote for the programs of a proof; what still runs at its end is stopped."""
        process = await asyncio.create_subprocess_exec(
            *commands.module("tests.proofs.zygote"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={
                "PATH": os.environ["PATH"],
                "CONFIDANT_STORAGE__DIR": str(folder),
                "CONFIDANT_STORAGE__BACKUP_HOURS": "0",
                "CONFIDANT_LOG__LEVEL": "error",
                "CONFIDANT_SESSION__RESET__MODE": "none",
                "CONFIDANT_SESSION__QUEUE__CAP": "1000",  # each message has an answer of its own
                **settings,
            },
        )
        program = cls(process)
        assert await program._line() == "ready"
        try:
            yield program
            if program.pid:
                await program.stop()
            program._process.stdin.close()
            await program._process.wait()
        finally:
            program._abandon()

    async def start(self) -> None:
        self.pid = int(await self._command("start"))

    async def kill(self) -> None:
        """End it as hard as can be."""
        os.kill(self.pid, signal.SIGKILL)
        assert await self._command(f"reap {self.pid}") == str(-signal.SIGKILL)
        self.pid = 0

    async def died(self) -> None:
        """Return once it has ended by itself, as hard as can be."""
        assert await self._command(f"reap {self.pid}") == str(-signal.SIGKILL)
        self.pid = 0

    async def stop(self) -> None:
        """End it as an operator does."""
        os.kill(self.pid, signal.SIGTERM)
        assert await self._command(f"reap {self.pid}") == "0"
        self.pid = 0

    def _abandon(self) -> None:
        """End what still runs of it when a proof failed."""
        if self._process.returncode is None:
            self._process.kill()
            if self.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)

    async def _command(self, line: str) -> str:
        self._process.stdin.write(f"{line}\n".encode())
        return await self._line()

    async def _line(self) -> str:
        return (await self._process.stdout.readline()).decode().strip()


class Proof:
    """People who write, a program that is killed, and what came of it."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.platform = platform
        self.asked: dict[str, tuple[str, str]] = {}  # chat and text of each message, by its name
        self.kills: list[float] = []
        self._chance = chance()
        self._launched = Program.launched(folder, platform.settings())
        self._program: Program
        self._round = 0

    async def __aenter__(self) -> Self:
        self._program = await self._launched.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._launched.__aexit__(*exc)

    async def greet(self) -> None:
        """Let the bot meet every chat once, and stop it."""
        program = await self._start()
        await self.platform.up()
        for number, chat in enumerate(self.platform.chats):
            await self.ask(number, chat)
        await self._all_answered(set(self.asked))
        await program.stop()

    async def kill_often(self, times: int) -> None:
        """Start the program, write to it and kill it, again and again."""
        for _ in range(times):
            program = await self._start()
            if self._chance.random() < 0.75:
                await self.platform.up()
            for number in range(self._chance.randint(1, 6)):
                await self._write(number)
                if self._chance.random() < 0.3:
                    await asyncio.sleep(self._chance.uniform(0, 0.01))
            await self._some_moment()
            if self._chance.random() < 0.2:
                await self.ask(99)  # on its way when the program dies
            await program.kill()
            await self.platform.gone()
            self.kills.append(time.monotonic())

    async def finish(self) -> dict[str, list[Said]]:
        """Start it a last time: every message there is, with the answers it got."""
        held = self.platform.held(self.asked)
        program = await self._start()
        await self.platform.up()
        await self.ask(0)
        last = next(reversed(self.asked))
        await self._all_answered(held | {last})
        await program.stop()
        assert self.platform.held(self.asked) == held | {last}
        answers = self._answers()
        assert answers.keys() == held | {last}
        for name in answers:
            assert self._is_whole(name, answers)
        return answers

    def repeats(self, answers: Mapping[str, list[Said]]) -> int:
        """How many sends came again; each the one in flight at a kill, and nothing else."""
        copies: dict[tuple[str, str], list[float]] = defaultdict(list)
        times: dict[str, list[float]] = defaultdict(list)
        for said in itertools.chain.from_iterable(answers.values()):
            copies[said.chat, said.text].append(said.at)
            times[said.chat].append(said.at)
        repeats = 0
        for (chat, _), moments in copies.items():
            for first, again in itertools.pairwise(moments):
                killed = next((at for at in self.kills if first < at < again), None)
                assert killed is not None, "a send came twice without a kill between"
                between = [at for at in times[chat] if first < at < killed]
                assert not between, "a send was repeated that was not the last before the kill"
                repeats += 1
        return repeats

    async def ask(self, number: int, chat: str = "") -> str:
        """A person writes to the bot; the message's name."""
        chat = chat or self._chance.choice(self.platform.chats)
        name = f"r{self._round}m{number}"
        text = f"{name}w0"
        if self._chance.random() < 0.15:
            text = " ".join(f"{name}w{at}" for at in range(LONG))[:LONG].rpartition(" ")[0]
        self.asked[name] = (chat, text)
        await self.platform.say(chat, name, text)
        return name

    async def _start(self) -> Program:
        self._round += 1
        await self._program.start()
        return self._program

    async def _write(self, number: int) -> None:
        chat = self._chance.choice(self.platform.chats)
        if chat in self.platform.rooms and self._chance.random() < 0.2:
            name = f"r{self._round}m{number}"
            await self.platform.say(chat, name, f"{name}w0", to_bot=False)
        else:
            await self.ask(number, chat)

    async def _some_moment(self) -> None:
        """Any point of the program's life: while it starts, between two sends, when all is quiet.

        Every fourth kill is aimed at the worst moment, just after a send arrived. Some lives are
        long enough for a message to be taken up that was met by many kills.
        """
        if self._chance.random() < 0.08:
            await asyncio.sleep(self._chance.uniform(1.0, 1.5))
        elif self._chance.random() < 0.25:
            goal = len(self.platform.said()) + self._chance.randint(1, 4)
            try:
                await self.platform.wait_for(lambda: len(self.platform.said()) >= goal, 0.3)
            except TimeoutError:
                return
            await asyncio.sleep(self._chance.uniform(0, 0.004))
        else:
            await asyncio.sleep(self._chance.uniform(0, 0.25))

    async def _all_answered(self, names: Collection[str]) -> None:
        def ready() -> bool:
            answers = self._answers()
            return all(self._is_whole(name, answers) for name in names)

        while not ready():
            count = len(self.platform.said())

            def goes_on(before: int = count) -> bool:
                return len(self.platform.said()) > before or ready()

            try:
                await self.platform.wait_for(goes_on, ANSWERED)
            except TimeoutError:
                answers = self._answers()
                missing = [name for name in names if not self._is_whole(name, answers)]
                told = {name: [said.text for said in answers.get(name, ())] for name in missing}
                raise AssertionError(f"not answered, or not in order: {told}") from None

    def _answers(self) -> dict[str, list[Said]]:
        """The pieces of each message's answer, as often as they came."""
        answers: dict[str, list[Said]] = defaultdict(list)
        for said in self.platform.said():
            names = {*_WORD.findall(said.text)}
            assert len(names) == 1, f"not an answer to one message: {said.text[:200]}"
            answers[names.pop()].append(said)
        return dict(answers)

    def _is_whole(self, name: str, answers: Mapping[str, list[Said]]) -> bool:
        """Whether an answer is there, where it belongs, once when repeats are left out."""
        chat, text = self.asked[name]
        pieces = answers.get(name, [])
        assert {said.chat for said in pieces} <= {chat}
        once = " ".join(dict.fromkeys(said.text for said in pieces))
        return [found[0] for found in _WORD.finditer(once)] == text.split()
