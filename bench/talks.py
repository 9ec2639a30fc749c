"""How much is found of talks and notes over three years: `python -m bench talks`.

Friends tell each other things, in English and Chinese (`bench/data/talks-*.txt`); most of what they
say is small talk. Questions ask for one thing (attribute), for many (list), for what two people
have in common, or for what was at some time (date), on the day `TODAY`. A line is found when it is
shown: `R@n` are questions with one of their lines among so many results, `every@n` those with all
of them, `share@n` how many of a question's lines are shown. Options were chosen by every other
group of questions; the others are told apart.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from bench import quiet
from bot.config import Config, MemoryConfig, Settings
from bot.memory import embed
from bot.memory.index import Hit, MemoryIndex
from bot.memory.note_store import FolderNotes

DATA = Path(__file__).parent / "data"
LANGUAGES = ("en", "zh")
TODAY = date(2024, 11, 20)
FIRST_DAY = date(2022, 1, 3)
EMPTY_TALKS = 75  # in each language, of small talk alone
LINES = 15  # of a talk
IDLE_NOTES = 3  # of a day
SHORT, LONG = 6, 12  # results
MODES: Mapping[str, Mapping[str, Any]] = {
    "keyword": {"vector_weight": 0.0},
    "vector": {"text_weight": 0.0},
    "fused": {},
}
_LINE = re.compile(r"(?P<where>\d{4}-\d\d-\d\d|@[\w-]+) (?P<who>-|[^:]+:) (?P<text>.+)")
_QUESTION = re.compile(r"\? (?P<kind>\w+) (?P<lines>[\d ]+) \| (?P<text>.+)")
_TIMES = {
    "en": ("this morning", "last night", "on my way home", "at noon", "all day", "after work"),
    "zh": ("今天早上", "昨晚", "回家路上", "中午", "下班以后", "一整天"),
}


@dataclass(frozen=True, slots=True)
class Said:
    """Something that was said or noted; `where` is a day, or the topic after an @."""

    where: str
    who: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and all that answers it."""

    language: str
    kind: str
    text: str
    evidence: tuple[str, ...]
    was_looked_at: bool


def read(language: str) -> tuple[list[Said], list[Question]]:
    """What was said in a language, and what is asked about it.

    Raises:
        ValueError: a line of the data is neither.
    """
    said: list[Said] = []
    questions: list[Question] = []
    group: list[Said] = []
    groups = 0
    for line in (DATA / f"talks-{language}.txt").read_text("utf-8").splitlines():
        if line.startswith("=="):
            group, groups = [], groups + 1
        elif asked := _QUESTION.fullmatch(line):
            evidence = tuple(group[int(each) - 1].text for each in asked["lines"].split())
            half = groups % 2 == 1
            questions.append(Question(language, asked["kind"], asked["text"], evidence, half))
        elif found := _LINE.fullmatch(line):
            group.append(Said(found["where"], found["who"].strip(":"), found["text"]))
            said.append(group[-1])
        else:
            raise ValueError(line)
    return said, questions


def write_notes(workspace: Path) -> list[Question]:
    """Write everything as notes; returns the questions."""
    chance = random.Random(1)  # noqa: S311 - the same ones each time
    questions: list[Question] = []
    folder = workspace / "memory"
    folder.mkdir(parents=True)
    small_talk = (DATA / "small-talk.txt").read_text("utf-8").splitlines()
    for language in LANGUAGES:
        said, asked = read(language)
        questions += asked
        idle = [row.partition("\t")[2] for row in small_talk if row.startswith(language)]
        idle = [row.replace("{time}", time) for row in idle for time in _TIMES[language]]
        _write_entries([each for each in said if each.who == "-"], folder, idle, chance)
        _write_talks(language, [each for each in said if each.who != "-"], folder, idle, chance)
    return questions


def _write_entries(
    noted: Sequence[Said], folder: Path, idle: Sequence[str], chance: random.Random
) -> None:
    """The notes of days, each with some that say nothing, and the notes of topics."""
    for where in dict.fromkeys(each.where for each in noted):
        texts = [each.text for each in noted if each.where == where]
        if not where.startswith("@"):
            texts = chance.sample(idle, IDLE_NOTES) + texts
        with (folder / f"{where.removeprefix('@')}.md").open("a", encoding="utf-8") as note:
            note.writelines(
                f"- {9 + at % 12:02}:30 {text} <!-- owner -->\n" for at, text in enumerate(texts)
            )


def _write_talks(
    language: str, told: Sequence[Said], folder: Path, idle: Sequence[str], chance: random.Random
) -> None:
    """A talk for each day on which something was told, and some in which nothing was.

    One half of them has the time before each line, as lists have.
    """
    people = sorted({each.who for each in told})
    talks: dict[date, list[Said]] = {}
    for each in told:
        talks.setdefault(date.fromisoformat(each.where), []).append(each)
    for _ in range(EMPTY_TALKS):
        day = FIRST_DAY + timedelta(days=chance.randrange((TODAY - FIRST_DAY).days))
        talks.setdefault(day, [])
    for number, (day, lines) in enumerate(sorted(talks.items())):
        talk = [Said("", chance.choice(people), text) for text in chance.sample(idle, LINES)]
        for each in lines:
            talk.insert(chance.randrange(len(talk)), each)
        mark = "- 19:{:02} " if number % 2 else ""
        colon = ": " if language == "en" else "："
        title = f"{day.day} {day:%B} {day.year}" if language == "en" else f"{day:%Y年%m月%d日}"
        rows = [f"{mark.format(at)}{each.who}{colon}{each.text}\n" for at, each in enumerate(talk)]
        text = f"# {title}\n\n{''.join(rows)}"
        (folder / f"talk-{language}-{number:03}.md").write_text(text, "utf-8")


@dataclass(slots=True)
class Tally:
    """What some questions came to: the places of their first lines, and how many had them all.

    `shares` is of how much of their lines was shown, together.
    """

    places: list[int] = field(default_factory=list[int])
    every: dict[int, int] = field(default_factory=lambda: dict.fromkeys((SHORT, LONG), 0))
    shares: dict[int, float] = field(default_factory=lambda: dict.fromkeys((SHORT, LONG), 0.0))

    def add(self, question: Question, found: Mapping[int, Sequence[Hit]]) -> None:
        """Count one question, by what was found for it when so many results were wanted."""
        shown = [hit.snippet for hit in found[LONG]]
        at = [n for n, text in enumerate(shown, 1) if any(e in text for e in question.evidence)]
        self.places.append(at[0] if at else 0)
        for wanted, hits in found.items():
            together = "\n".join(hit.snippet for hit in hits)
            shown = [each in together for each in question.evidence]
            self.every[wanted] += all(shown)
            self.shares[wanted] += sum(shown) / len(shown)

    def row(self) -> list[str]:
        """The figures as they are printed."""
        asked = len(self.places)
        within = [sum(0 < place <= n for place in self.places) for n in (1, 5, 10)]
        counts = (*self.every.values(), *self.shares.values())
        return [str(asked), *(f"{n / asked:.3f}" for n in (*within, *counts))]


async def ask(
    folder: Path, questions: Sequence[Question], options: Mapping[str, Any]
) -> dict[tuple[str, str, str], Tally]:
    """Ask everything: a tally for each language, kind and half, and for all kinds together."""
    config = MemoryConfig.model_validate({"watch": False, **options})
    embedder = embed.make(config.embedder, folder / "index")
    now = int(datetime(TODAY.year, TODAY.month, TODAY.day, 12, tzinfo=UTC).timestamp() * 1000)
    index = MemoryIndex.in_folder(
        Settings(Config(memory=config)),
        FolderNotes(folder / "workspace"),
        folder / "index",
        embedder,
        lambda: now,
    )
    tallies: dict[tuple[str, str, str], Tally] = {}
    try:
        await index.sync("bench")
        for question in questions:
            found = {
                wanted: (await index.search(question.text, ["main"], wanted)).hits
                for wanted in (SHORT, LONG)
            }
            half = "chosen by" if question.was_looked_at else "apart"
            for kind in (question.kind, "all"):
                tally = tallies.setdefault((question.language, kind, half), Tally())
                tally.add(question, found)
    finally:
        await index.close()
        await embedder.close()
    return tallies


def main() -> int:
    """Measure and print."""
    quiet.logs()
    parser = argparse.ArgumentParser(prog="python -m bench talks")
    parser.add_argument("--mode", choices=(*MODES, "all"), default="all")
    options = parser.parse_args()
    chosen = MODES if options.mode == "all" else {options.mode: MODES[options.mode]}
    more = " | ".join(f"{name}@{n}" for name in ("every", "share") for n in (SHORT, LONG))
    print(f"| mode | language | kind | half | asked | R@1 | R@5 | R@10 | {more} |")
    print(f"|{'---|' * 12}")
    with tempfile.TemporaryDirectory() as folder:
        questions = write_notes(Path(folder) / "workspace")
        for mode, changes in chosen.items():
            for key, tally in sorted(asyncio.run(ask(Path(folder), questions, changes)).items()):
                print(f"| {mode} | {' | '.join((*key, *tally.row()))} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
