"""Kill the program at any moment, two hundred times: nothing is lost, nothing is answered twice.

The one exception is the send in flight: the platform may have taken it although the program died
before it could note so. Every repeated answer must be exactly that.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.fakes.telegram import FakeTelegram

ROUNDS = 200
PEOPLE = 4
LONG = 2_000  # characters of a message whose answer takes several pieces
SEED = 20_261_121


class Program:
    """The zygote, and the program it started last."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = 0

    @classmethod
    async def launch(cls, folder: Path, telegram: FakeTelegram) -> Program:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.proofs.zygote",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={
                "PATH": os.environ["PATH"],
                "CONFIDANT_STORAGE__DIR": str(folder),
                "CONFIDANT_STORAGE__BACKUP_HOURS": "0",
                "CONFIDANT_LOG__LEVEL": "error",
                "CONFIDANT_CHANNELS__TELEGRAM__API_ROOT": telegram.url,
                "CONFIDANT_CHANNELS__TELEGRAM__TOKEN": telegram.token,
                "CONFIDANT_CHANNELS__TELEGRAM__DM_POLICY": "open",
                "CONFIDANT_CHANNELS__TELEGRAM__ALLOW_FROM": "*",
                "CONFIDANT_SESSION__RESET__MODE": "none",
            },
        )
        program = cls(process)
        assert await program._line() == "ready"
        return program

    async def start(self) -> None:
        self.pid = int(await self._command("start"))

    async def kill(self) -> float:
        """Kill it as hard as can be; when it was gone, and all it had sent had arrived."""
        os.kill(self.pid, signal.SIGKILL)
        assert await self._command(f"reap {self.pid}") == str(-signal.SIGKILL)
        await asyncio.sleep(0)  # what is left in its sockets is read before the next start
        return time.monotonic()

    async def finish(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        assert await self._command(f"reap {self.pid}") == "0"
        self._process.stdin.close()
        await self._process.wait()

    async def _command(self, line: str) -> str:
        self._process.stdin.write(f"{line}\n".encode())
        return await self._line()

    async def _line(self) -> str:
        return (await self._process.stdout.readline()).decode().strip()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_two_hundred_kills_lose_nothing_and_repeat_at_most_the_send_in_flight(
    tmp_path, capsys
):
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    asked: dict[str, int] = {}  # each message's text and its chat
    kills: list[float] = []
    async with FakeTelegram(record_calls=False) as telegram:
        program = await Program.launch(tmp_path / "data", telegram)
        for number in range(ROUNDS):
            await program.start()
            for text, person in _load(chance, number):
                asked[text] = person
                telegram.push_text(person, text)
                if chance.random() < 0.3:
                    await asyncio.sleep(chance.uniform(0, 0.01))
            await _some_moment(chance, telegram)
            kills.append(await program.kill())
        await program.start()
        asked["the last one"] = 1
        telegram.push_text(1, "the last one")
        await telegram.wait_for(lambda: asked.keys() <= set(_answered(telegram)), within=60)
        await program.finish()
        answers = _answered(telegram)
    repeats = _repeats(answers, asked, kills)
    with capsys.disabled():
        print(
            f"\n{ROUNDS} kills, {len(asked)} messages: {len(asked)} answered, 0 lost, "
            f"{repeats} sends in flight repeated"
        )


def _load(chance: random.Random, number: int) -> list[tuple[str, int]]:
    messages = []
    for index in range(chance.randint(1, 6)):
        text = f"round {number} message {index} "
        if chance.random() < 0.15:
            text += "long " * (LONG // 5)
        messages.append((text.strip(), chance.randint(1, PEOPLE)))
    return messages


async def _some_moment(chance: random.Random, telegram: FakeTelegram) -> None:
    """Any point of the program's life: while it starts, between two sends, when all is quiet.

    Every fourth kill is aimed at the worst moment, just after a send arrived.
    """
    if chance.random() < 0.25:
        goal = len(telegram.sent) + chance.randint(1, 4)
        try:
            async with asyncio.timeout(0.3):
                await telegram.wait_for(lambda: len(telegram.sent) >= goal)
        except TimeoutError:
            return
        await asyncio.sleep(chance.uniform(0, 0.004))
    else:
        await asyncio.sleep(chance.uniform(0, 0.25))


def _answered(telegram: FakeTelegram) -> dict[str, list[tuple[int, float]]]:
    """When each message was answered, and where."""
    answers: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for sent in telegram.sent:
        answers[sent.text.removeprefix("You said: ").strip()].append((sent.chat_id, sent.at))
    return answers


def _repeats(
    answers: dict[str, list[tuple[int, float]]], asked: dict[str, int], kills: list[float]
) -> int:
    """How many answers came again; each time the send in flight at a kill, and nothing else."""
    assert answers.keys() == asked.keys()
    times = defaultdict(list)
    for text, copies in answers.items():
        assert {chat for chat, _ in copies} == {asked[text]}
        for chat, at in copies:
            times[chat].append(at)
    repeats = 0
    for copies in answers.values():
        for (chat, first), (_, again) in itertools.pairwise(copies):
            killed = next((at for at in kills if first < at < again), None)
            assert killed is not None, "an answer came twice without a kill between"
            between = [at for at in times[chat] if first < at < killed]
            assert not between, "an answer was repeated that was not the last before the kill"
            repeats += 1
    return repeats
