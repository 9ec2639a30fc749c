"""How much of what was said is found: LoCoMo (Maharana et al., ACL 2024), all in one space.

`python -m bench locomo FOLDER`, or with CONFIDANT_LOCOMO set to a folder of its conversations. Each
session becomes a Markdown file: a heading with its date, then a `Speaker: text` line for each turn.
Every question but those of category 5 is asked, by words, by meaning, and by both: is a line that
answers it among six results (`line`), shown (`text`), how soon (`MRR`), are all of its lines there
(`every`), are they all shown (`shown`) or how many of them (`share`), is its session among five and
ten; those that ask for many things are told once more, as `lists`. No key is used and nothing is
downloaded; without the conversations it says so and ends well.

`--postgres` asks the index in PostgreSQL as well: `--postgres URL` in an empty database of yours,
without a URL in a server that is started for it. Then no figure may be more than 0.01 below that of
the index file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import quiet
from bot.clock import system_clock
from bot.config import Config, MemoryConfig, Settings
from bot.memory import embed
from bot.memory.index import Hit, MemoryIndex
from bot.memory.listing import asks_for_many
from bot.memory.note_store import FolderNotes

TOP = 6
MORE = 12  # results, of a second search
UNANSWERABLE = 5  # the category whose answers are in no conversation
LISTS = "lists"
APART = 0.01  # how far the engines may be apart
GOALS = {"line": 0.93, "text": 0.88, "mrr": 0.80}
COLUMNS = (
    *("line@6", "text@6", "MRR", "every@6", "every@12", "shown@6", "shown@12"),
    *("share@6", "share@12", "session@5", "session@10", "p50 ms"),
)
_SESSION = re.compile(r"session_(\d+)")
_TURN = re.compile(r"D\d+:\d+")
MODES: Mapping[str, Mapping[str, Any]] = {
    "keyword": {"vector_weight": 0.0},
    "vector": {"text_weight": 0.0},
    "fused": {},
}


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a turn stands."""

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the turns that hold its answer."""

    conversation: str
    text: str
    evidence: tuple[Turn, ...]


@dataclass(slots=True)
class Tally:
    """What the questions came to."""

    asked: int = 0
    line: float = 0
    text: float = 0
    mrr: float = 0
    every: float = 0
    every_of_more: float = 0
    shown: float = 0
    shown_of_more: float = 0
    part: float = 0
    part_of_more: float = 0
    session_5: float = 0
    session_10: float = 0
    times: list[float] = field(default_factory=list[float])

    def add(
        self, question: Question, hits: Sequence[Hit], more: Sequence[Hit], seconds: float
    ) -> None:
        """Count one answer, and the one to the same question with `MORE` results."""
        covered = [[covers(hit, turn) for turn in question.evidence] for hit in hits]
        ranks = [rank for rank, row in enumerate(covered, 1) if any(row)]
        self.asked += 1
        self.line += bool(ranks)
        self.mrr += 1 / ranks[0] if ranks else 0.0
        self.text += any(t.text in hit.snippet for hit in hits for t in question.evidence if t.text)
        self.every += _has_all(hits, question)
        self.every_of_more += _has_all(more, question)
        part, part_of_more = _share_shown(hits, question), _share_shown(more, question)
        self.shown += part == 1
        self.shown_of_more += part_of_more == 1
        self.part += part
        self.part_of_more += part_of_more
        sessions = {turn.path for turn in question.evidence}
        self.session_5 += any(hit.path in sessions for hit in more[:5])
        self.session_10 += any(hit.path in sessions for hit in more[:10])
        self.times.append(seconds * 1000)

    def share(self, name: str) -> float:
        """One of the figures as a share of what was asked."""
        return float(getattr(self, name)) / self.asked

    def row(self) -> list[str]:
        """The figures as they are printed."""
        shares = (
            *(self.line, self.text, self.mrr),
            *(self.every, self.every_of_more, self.shown, self.shown_of_more),
            *(self.part, self.part_of_more),
            *(self.session_5, self.session_10),
        )
        median = statistics.median(self.times)
        return [
            str(self.asked),
            *(f"{share / self.asked:.3f}" for share in shares),
            f"{median:.1f}",
        ]


def covers(hit: Hit, turn: Turn) -> bool:
    """Whether a hit's lines hold a turn."""
    return hit.path == turn.path and hit.start_line <= turn.line <= hit.end_line


def _has_all(hits: Sequence[Hit], question: Question) -> bool:
    """Whether every turn that holds the answer is in some hit."""
    return all(any(covers(hit, turn) for hit in hits) for turn in question.evidence)


def _share_shown(hits: Sequence[Hit], question: Question) -> float:
    """How many of the turns that hold the answer are shown, as a share of all of them."""
    shown = "\n".join(hit.snippet for hit in hits)
    return sum(turn.text in shown for turn in question.evidence) / len(question.evidence)


def write_notes(source: Path, workspace: Path) -> list[Question]:
    """Write every session of every conversation as a note; returns the questions."""
    questions: list[Question] = []
    for file in sorted(source.glob("*.json")):
        data = json.loads(file.read_text("utf-8"))
        turns = _write_sessions(file.stem, data.get("conversation", data), workspace)
        for entry in data["qa"]:
            named = _TURN.findall(" ".join(entry.get("evidence", ())))
            evidence = tuple(turns[each] for each in named if each in turns)
            if entry["category"] != UNANSWERABLE and evidence:
                questions.append(Question(file.stem, entry["question"], evidence))
    return questions


def _write_sessions(stem: str, data: dict[str, Any], workspace: Path) -> dict[str, Turn]:
    turns: dict[str, Turn] = {}
    numbers = sorted(int(m[1]) for key in data if (m := _SESSION.fullmatch(key)))
    for number in numbers:
        path = f"memory/{stem}-session-{number:02d}.md"
        lines = [f"# {data.get(f'session_{number}_date_time', '')}", ""]
        for turn in data[f"session_{number}"]:
            text = " ".join(turn["text"].split())
            lines.append(f"{turn['speaker']}: {text}")
            turns[turn["dia_id"]] = Turn(path, len(lines), text)
        note = workspace / path
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text("\n".join(lines) + "\n", "utf-8")
    return turns


@asynccontextmanager
async def indexed(folder: Path, config: MemoryConfig, url: str) -> AsyncGenerator[MemoryIndex]:
    """An index of the notes: a file, or rows in the database that is named."""
    settings = Settings(Config(memory=config))
    embedder = embed.make(config.embedder, folder / "index")
    notes = FolderNotes(folder / "workspace")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(embedder.close)
        given = (embedder, system_clock)
        if url:
            from bot.storage.postgres import PostgresDatabase  # noqa: PLC0415 - an extra

            database = await PostgresDatabase.open(url)
            stack.push_async_callback(database.close)
            index = MemoryIndex.shared(settings, notes, database, *given, owns=lambda: True)
        else:
            index = MemoryIndex.in_folder(settings, notes, folder / "index", *given)
        stack.push_async_callback(index.close)
        await index.sync("bench")
        yield index


async def ask(
    folder: Path, questions: Sequence[Question], options: Mapping[str, Any], url: str = ""
) -> dict[str, Tally]:
    """Ask every question of an index of the notes.

    A tally for each conversation, for all, and for all questions that ask for many things.
    """
    config = MemoryConfig.model_validate({"max_results": TOP, "watch": False, **options})
    tallies: dict[str, Tally] = {"all": Tally()}
    async with indexed(folder, config, url) as index:
        await index.search("warm up", ["main"])
        for question in questions:
            started = time.perf_counter()
            answer = await index.search(question.text, ["main"])
            seconds = time.perf_counter() - started
            more = await index.search(question.text, ["main"], MORE)
            if answer.degraded:
                raise SystemExit(f"a search had to do without something: {answer.degraded}")
            lists = (LISTS,) if asks_for_many(question.text) else ()
            for name in ("all", *lists, question.conversation):
                tallies.setdefault(name, Tally()).add(question, answer.hits, more.hits, seconds)
    return tallies


@contextmanager
def engines(postgres: str | None) -> Generator[dict[str, str]]:
    """The engines that are asked, by name, with the URL of their database; "" is a file."""
    if postgres is None:
        yield {"file": ""}
        return
    with ExitStack() as stack:
        url = postgres or stack.enter_context(_a_database())
        yield {"file": "", "postgres": url}


@contextmanager
def _a_database() -> Generator[str]:
    from tests.fakes import postgres  # noqa: PLC0415 - what the tests have for it

    with postgres.a_server() as admin, postgres.a_database(admin) as url:
        yield url


def main() -> int:
    """Measure and print; 1 when a goal is missed."""
    quiet.logs()
    parser = argparse.ArgumentParser(prog="python -m bench locomo")
    parser.add_argument("folder", nargs="?", default=os.environ.get("CONFIDANT_LOCOMO", ""))
    parser.add_argument("--mode", choices=(*MODES, "all"), default="all")
    parser.add_argument(
        "--postgres", nargs="?", const="", metavar="URL", help="ask the index in PostgreSQL too"
    )
    options = parser.parse_args()
    if not options.folder or not any(Path(options.folder).glob("*.json")):
        print("LoCoMo's conversations are not here: name their folder, or set CONFIDANT_LOCOMO.")
        return 0
    chosen = MODES if options.mode == "all" else {options.mode: MODES[options.mode]}
    missed = False
    print(f"| engine | mode | conversation | asked | {' | '.join(COLUMNS)} |")
    print(f"|---|---|---|---{'|---' * len(COLUMNS)}|")
    with tempfile.TemporaryDirectory() as folder, engines(options.postgres) as asked:
        questions = write_notes(Path(options.folder), Path(folder) / "workspace")
        for mode, changes in chosen.items():
            by_file: Tally | None = None
            for engine, url in asked.items():
                tallies = asyncio.run(ask(Path(folder), questions, changes, url))
                for name, tally in tallies.items():
                    print(f"| {engine} | {mode} | {name} | " + " | ".join(tally.row()) + " |")
                found = tallies["all"]
                if mode == "fused":
                    missed |= any(found.share(name) < goal for name, goal in GOALS.items())
                if by_file is not None:
                    missed |= any(by_file.share(n) - found.share(n) > APART for n in GOALS)
                by_file = by_file or found
    goals = ", ".join(f"{name} ≥ {goal}" for name, goal in GOALS.items())
    if options.postgres is not None:
        goals += f"; PostgreSQL within {APART} of the file in every mode"
    print(f"goals for fused, all: {goals}: {'missed' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
