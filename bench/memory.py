"""What searching and indexing cost: `python -m bench memory`, at 6 000 and 100 000 chunks.

Other sizes are arguments: `python -m bench memory 1000`.

The notes are made up, a few chunks each, of words as unevenly frequent as those of a language; all
are in one space, which is the hardest; half of them are lists, of entries with a vector each. Every
time includes the query's own embedding. `nearest found` is the share of the `NEAREST` chunks that
are really nearest to a query, by all vectors, among those that a search by meaning finds. Above
`REAL` chunks all vectors are made up, since the model would take most of an hour to index them.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from pathlib import Path

import apsw
import psutil

from bench import quiet
from bot.clock import system_clock
from bot.config import Config, MemoryConfig, Settings
from bot.memory import embed
from bot.memory.embed import Embedder
from bot.memory.embed.multilingual import DIMS
from bot.memory.index import MemoryIndex, queries
from bot.memory.index.queries import FileReader
from bot.memory.note_store import FolderNotes
from bot.memory.ranking import Request
from bot.testing import HashEmbedder

SIZES = (6_000, 100_000)
GOAL_MS = {6_000: 15.0, 100_000: 40.0}
REAL = 10_000  # chunks that the built-in embedder is asked for
GOAL_RATES = {True: 40, False: 500}  # chunks a second, with the built-in embedder and without
GOAL_RESYNC_MS = 300.0
LINES = 55  # of a note: six chunks
WORDS = 14  # of a line
QUERIES = 120
NEAREST = 24  # chunks
COMPARED = 20  # queries with all vectors
VOCABULARY = 20_000
SYLLABLES = tuple(
    "bakelimonurasetivozadrofengulhapjorlunmer"[at : at + 3] for at in range(0, 40, 2)
)


def vocabulary(chance: random.Random) -> list[str]:
    """Words that can be told apart, the frequent ones first."""
    made: dict[str, None] = {}
    while len(made) < VOCABULARY:
        made["".join(chance.choices(SYLLABLES, k=chance.choice((2, 2, 3, 3, 4))))] = None
    return list(made)


def write_notes(workspace: Path, chunks: int, chance: random.Random) -> list[str]:
    """Write notes of about so many chunks; returns questions that some of them answer."""
    words = vocabulary(chance)
    weights = [1 / (rank + 10) for rank in range(len(words))]
    questions: list[str] = []
    folder = workspace / "memory"
    folder.mkdir(parents=True)
    for number in range(chunks // 6):
        drawn = chance.choices(words, weights, k=LINES * WORDS)
        lines = [" ".join(drawn[at : at + WORDS]) for at in range(0, len(drawn), WORDS)]
        mark = "- " if number % 2 else ""
        text = "".join(f"{mark}{line}\n" for line in lines)
        (folder / f"note-{number:06d}.md").write_text(text, "utf-8")
        if len(questions) < QUERIES:
            questions.append("what about " + " ".join(chance.choice(lines).split()[:6]))
    return questions


async def measure(chunks: int) -> list[tuple[str, float, float, str, bool]]:
    """Index and search so many chunks: (what, value, bound, unit, whether it is met)."""
    process = psutil.Process()
    before = process.memory_info().rss
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        questions = write_notes(folder / "workspace", chunks, random.Random(chunks))  # noqa: S311
        config = MemoryConfig(watch=False)
        is_real = chunks <= REAL
        goal_rate = GOAL_RATES[is_real]
        embedder: Embedder = HashEmbedder(dims=DIMS)
        if is_real:
            embedder = embed.make(config.embedder, folder / "index")
        index = MemoryIndex.in_folder(
            Settings(Config(memory=config)),
            FolderNotes(folder / "workspace"),
            folder / "index",
            embedder,
            system_clock,
        )
        try:
            started = time.perf_counter()
            await index.sync("bench")
            seconds = time.perf_counter() - started
            status = await index.status()
            await _ask(index, questions[:20])
            times = await _ask(index, questions)
            found = await _recall(embedder, folder / "index", questions[:COMPARED])
            edited = folder / "workspace/memory/note-000007.md"
            edited.write_text(edited.read_text("utf-8") + "one more line\n", "utf-8")
            started = time.perf_counter()
            await index.sync("bench")
            resync = (time.perf_counter() - started) * 1000
        finally:
            await index.close()
            await embedder.close()
        rate = status.chunks / seconds
        grown = (process.memory_info().rss - before) / 1e6
        bound = next((ms for size, ms in GOAL_MS.items() if chunks <= size), GOAL_MS[SIZES[-1]])
        median, slow = statistics.median(times), statistics.quantiles(times, n=20)[-1]
        return [
            ("chunks", status.chunks, 0, "", True),
            ("index", rate, goal_rate, "chunks/s", rate >= goal_rate),
            ("search p50", median, bound, "ms", median <= bound),
            ("nearest found", found, 0, "%", True),
            ("search p95", slow, 0, "ms", True),
            ("re-sync of one edit", resync, GOAL_RESYNC_MS, "ms", resync <= GOAL_RESYNC_MS),
            ("memory grown", grown, 0, "MB", True),
            ("index file", status.size / 1e6, 0, "MB", True),
        ]


async def _ask(index: MemoryIndex, questions: Sequence[str]) -> list[float]:
    times: list[float] = []
    for question in questions:
        started = time.perf_counter()
        answer = await index.search(question, ["main"])
        times.append((time.perf_counter() - started) * 1000)
        if not answer.hits or answer.degraded:
            raise SystemExit(f"a search failed: {answer.mode} {answer.degraded}")
    return times


async def _recall(embedder: Embedder, folder: Path, questions: Sequence[str]) -> float:
    """The share of the chunks nearest to some questions that a search by meaning finds, in %."""
    wanted = await embedder.embed(questions)
    reader = FileReader(folder / queries.NAME)
    shares: list[float] = []
    with (
        closing(reader),
        closing(apsw.Connection(str(folder / queries.NAME))) as connection,
        reader.snapshot(float("inf")) as live,
    ):
        if live is None:
            raise SystemExit("there is no index")
        rows = queries.run(connection, "SELECT id, vectors FROM memory_chunks")
        packed = [(int(row[0]), bytes(row[1])) for row in rows if row[1]]
        for at, question in enumerate(questions):
            vector = wanted[at : at + 1]
            exact = queries.nearest(packed, vector, NEAREST)
            request = Request(question, ("main",), NEAREST, vector, date.min, float("inf"))
            found = reader.find(request, NEAREST, by_words=False)
            shares.append(len({each.key for each in found.items} & {*exact}) / len(exact))
    return statistics.mean(shares) * 100


def main() -> int:
    """Measure and print; 1 when a goal is missed."""
    quiet.logs()
    parser = argparse.ArgumentParser(prog="python -m bench memory")
    parser.add_argument("chunks", nargs="*", type=int, default=list(SIZES))
    missed = False
    for chunks in parser.parse_args().chunks:
        print(f"\n| {chunks} chunks | | goal |\n|---|---|---|")
        for what, value, bound, unit, met in asyncio.run(measure(chunks)):
            goal = f"{bound:g} {'' if met else '— missed'}" if bound else ""
            print(f"| {what} | {value:.1f} {unit} | {goal} |")
            missed = missed or not met
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
