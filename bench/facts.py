"""How much is found that was asked in other words: `python -m bench facts`.

200 facts, half of them Chinese, stand ten to a note as people write them; 400 questions ask for
them in other words (`bench/data/facts.tsv`). A question is answered when its fact's line is in what
is shown of a result. Options were chosen by every other fact; the others are told apart.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from bench import quiet
from bench.sized import parsed
from bot.clock import system_clock
from bot.config import Config, MemoryConfig, Settings
from bot.memory import embed
from bot.memory.index import MemoryIndex
from bot.memory.note_store import FolderNotes

FACTS = Path(__file__).parent / "data" / "facts.tsv"
FIRST_DAY = date(2025, 1, 1)
EACH = 10  # facts in a note
MODES: Mapping[str, Mapping[str, Any]] = {
    "keyword": {"vector_weight": 0.0},
    "vector": {"text_weight": 0.0},
    "fused": {},
}


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of a note, and what is asked for it."""

    text: str
    questions: tuple[str, ...]
    was_looked_at: bool

    @property
    def language(self) -> str:
        """The one it is in."""
        return "en" if self.text.isascii() or self.text[0] < "⺀" else "zh"


def facts() -> list[Fact]:
    """All of them, in their order."""
    rows = [line.split("\t") for line in FACTS.read_text("utf-8").splitlines()]
    return [Fact(row[0], tuple(row[1:]), at % 2 == 0) for at, row in enumerate(rows)]


def write_notes(known: Sequence[Fact], workspace: Path) -> None:
    """Write them as notes of days."""
    folder = workspace / "memory"
    folder.mkdir(parents=True)
    for at in range(0, len(known), EACH):
        day = FIRST_DAY + timedelta(days=at)
        lines = [f"- {9 + n}:00 {fact.text}\n" for n, fact in enumerate(known[at : at + EACH])]
        (folder / f"{day}.md").write_text("".join(lines), "utf-8")


async def ranks(
    folder: Path, known: Sequence[Fact], options: Mapping[str, Any]
) -> dict[tuple[str, bool], list[int]]:
    """For each language and half: the place of each question's fact among the results, or 0."""
    config = MemoryConfig.model_validate({"watch": False, "max_results": 10, **options})
    embedder = embed.make(config.embedder, folder / "index")
    index = MemoryIndex.in_folder(
        Settings(Config(memory=config)),
        FolderNotes(folder / "workspace"),
        folder / "index",
        embedder,
        system_clock,
    )
    found: dict[tuple[str, bool], list[int]] = {}
    try:
        await index.sync("bench")
        for fact in known:
            for question in fact.questions:
                answer = await index.search(question, ["main"])
                at = [n for n, hit in enumerate(answer.hits, 1) if fact.text in hit.snippet]
                key = (fact.language, fact.was_looked_at)
                found.setdefault(key, []).append(at[0] if at else 0)
    finally:
        await index.close()
        await embedder.close()
    return found


def main() -> int:
    """Measure and print."""
    quiet.logs()
    parser = argparse.ArgumentParser(prog="python -m bench facts")
    parser.add_argument("--mode", choices=(*MODES, "all"), default="all")
    options = parsed(parser, {"every": 1}, {"every": 7})
    known = facts()[:: options.every]
    chosen = MODES if options.mode == "all" else {options.mode: MODES[options.mode]}
    print("| mode | language | half | asked | R@1 | R@5 | R@10 | MRR |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        write_notes(known, Path(folder) / "workspace")
        for mode, changes in chosen.items():
            found = asyncio.run(ranks(Path(folder), known, changes))
            for (language, was_looked_at), places in sorted(found.items()):
                half = "chosen by" if was_looked_at else "apart"
                within = [sum(0 < p <= n for p in places) / len(places) for n in (1, 5, 10)]
                mrr = sum(1 / p for p in places if p) / len(places)
                shares = " | ".join(f"{share:.3f}" for share in (*within, mrr))
                print(f"| {mode} | {language} | {half} | {len(places)} | {shares} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
