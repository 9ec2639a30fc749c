"""What the built-in embedder costs: `python -m bench embedding [--quick]`.

It is asked for passages of about the length of an entry, of a window and of a chunk, as many at
once as an index asks for, and for questions one by one. The texts are the English ones of the other
benchmarks, none twice at once. A CPU second is one of one processor, whatever else the machine
does; memory is what the process has for itself with numpy loaded before, so a mapped file counts by
what was written of it, which is nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import quiet
from bench.table import table
from bot.memory.embed import Embedder
from bot.memory.embed.multilingual import MultilingualEmbedder

DATA = Path(__file__).parent / "data"
LENGTHS = (80, 300, 700)  # characters
AT_ONCE = 24_000  # characters that are asked for at once
ASKED = 50  # characters of a question
QUESTIONS = 100
ROUNDS = 7
LEAST = 20  # characters of a line that is taken

GOAL_LENGTH, GOAL_RATE = 300, 300  # of it, passages a CPU second
GOAL_MB = 70.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What an embedder costs."""

    loaded: float  # seconds for the first text, with the table made
    rates: tuple[tuple[int, float, float], ...]  # characters, passages a second, a CPU second
    question: float  # milliseconds
    memory: float  # megabytes more than before it was loaded

    @property
    def meets_goals(self) -> bool:
        """True when it is as fast and as small as it is to be."""
        rate = next((cpu for length, _, cpu in self.rates if length == GOAL_LENGTH), GOAL_RATE)
        return rate >= GOAL_RATE and self.memory <= GOAL_MB


def passages(length: int, most: int, seed: int = 0) -> list[str]:
    """At most so many passages of a length, in English; others for another seed."""
    lines = (
        line.lstrip("-?# ").replace("\t", " ").strip()
        for path in sorted(DATA.iterdir())
        for line in path.read_text("utf-8").splitlines()
    )
    kept = list(dict.fromkeys(line for line in lines if line.isascii() and len(line) >= LEAST))
    random.Random(seed).shuffle(kept)  # noqa: S311 - the same each time
    text = "\n".join(kept)
    return [text[at : at + length] for at in range(0, len(text) - length, length)][:most]


async def measure(embedder: Embedder, lengths: Sequence[int], rounds: int) -> Cost:
    """Ask an embedder for everything, and close it."""
    importlib.import_module("numpy")
    process = psutil.Process()
    before = process.memory_full_info().uss
    started = time.perf_counter()
    await embedder.embed(["tea"])
    loaded = time.perf_counter() - started
    rates: list[tuple[int, float, float]] = []
    for length in lengths:
        taken: list[tuple[float, float]] = []
        for number in range(rounds):
            texts = passages(length, AT_ONCE // length, number)
            began, worked = time.perf_counter(), time.process_time()
            await embedder.embed(texts)
            wall, cpu = time.perf_counter() - began, time.process_time() - worked
            taken.append((wall / len(texts), cpu / len(texts)))
        wall, cpu = (1 / statistics.median(each) for each in zip(*taken, strict=True))
        rates.append((length, wall, cpu))
    asked: list[float] = []
    for question in passages(ASKED, QUESTIONS):
        began = time.perf_counter()
        await embedder.embed([question])
        asked.append((time.perf_counter() - began) * 1000)
    memory = (process.memory_full_info().uss - before) / 1e6
    await embedder.close()
    return Cost(loaded, tuple(rates), statistics.median(asked), memory)


def report(cost: Cost) -> str:
    """The figures as a table. Pure."""
    rows = [("first text", f"{cost.loaded:.2f} s", "", "")]
    for length, wall, cpu in cost.rates:
        goal = f"≥ {GOAL_RATE}" if length == GOAL_LENGTH else ""
        what = f"passages of {length} characters"
        rows.append((what, f"{wall:,.0f}/s", f"{cpu:,.0f}/CPU s", goal))
    rows.append(("a question", f"{cost.question:.1f} ms", "", ""))
    rows.append(("memory", f"{cost.memory:.0f} MB", "", f"≤ {GOAL_MB:.0f}"))
    return table(("", "", "of one processor", "goal"), rows)


def main() -> int:
    """Measure and print; 1 when a goal is missed."""
    quiet.logs()
    parser = argparse.ArgumentParser(prog="python -m bench embedding")
    parser.add_argument("--quick", action="store_true", help="a small load: does it run?")
    asked = parser.parse_args()
    rounds, lengths = (1, LENGTHS[:1]) if asked.quick else (ROUNDS, LENGTHS)
    with tempfile.TemporaryDirectory() as name:
        cost = asyncio.run(measure(MultilingualEmbedder(Path(name)), lengths, rounds))
    print(report(cost), end="")
    return int(not cost.meets_goals)


if __name__ == "__main__":
    sys.exit(main())
