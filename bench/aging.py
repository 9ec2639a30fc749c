"""What fading changes in searches, and what it costs: `python -m bench aging`.

*Changed*: for 100 things an old conclusion and a newer one that says otherwise, asked for in words
that are nearer to the old one; how often the newer comes first. *Faded*: half of the 200 facts of
`bench facts` are conclusions that have faded, the other half was said; how many questions find
theirs, by half. No option was chosen by either but `search_share` itself.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import facts, quiet
from bot.config import Config, MemoryConfig, Settings
from bot.memory import embed
from bot.memory.index import MemoryIndex
from bot.memory.note_store import FolderNotes

SHARES = (0.0, 0.05, 0.1, 0.2)
NOW = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp() * 1000)
NAMES = ("Ada", "Bo", "Carla", "Dmitri", "Eve", "Farid", "Greta", "Hugo", "Ines", "Jun")
CHANGED = (
    (
        "{n} lives in Bonn",
        "{n} lives in the harbour quarter of Kiel",
        "where does {n} live?",
    ),
    (
        "{n} works as a baker",
        "{n} has been working as a teacher since spring",
        "what does {n} work as?",
    ),
    (
        "{n}'s favourite tea is oolong",
        "{n} now prefers sencha to every other tea",
        "what is {n}'s favourite tea?",
    ),
    (
        "{n} goes climbing on Tuesdays",
        "{n} goes swimming on Thursdays instead of climbing",
        "when does {n} go climbing?",
    ),
    (
        "{n} drives an old Volvo",
        "{n} sold the Volvo and drives an electric car",
        "which car does {n} drive?",
    ),
    (
        "{n} plans to study law",
        "{n} plans to study medicine after all",
        "what does {n} plan to study?",
    ),
    (
        "{n} is allergic to peanuts",
        "the doctor says {n} is allergic to hazelnuts, not peanuts",
        "what is {n} allergic to?",
    ),
    ("{n}的电话是1234", "{n}换了新电话，号码是5678", "{n}的电话是多少？"),
    ("{n}喜欢喝红茶", "{n}现在喜欢喝绿茶", "{n}喜欢喝什么茶？"),
    ("{n}在银行工作", "{n}今年开始在学校工作", "{n}在哪里工作？"),
)


async def changed(folder: Path, config: MemoryConfig, names: Sequence[str]) -> tuple[int, int, int]:
    """How often the newer conclusion came first, how often both were found, of how many."""
    notes = folder / "workspace" / "memory"
    notes.mkdir(parents=True)
    for n in names:
        for at, (old, new, _) in enumerate(CHANGED):
            before, after = f"- {old.format(n=n)}", f"- {new.format(n=n)}"
            (notes / f"{n}-{at}-old.md").write_text(
                f"{before} <!-- agent 2023-01-01 -->\n", "utf-8"
            )
            (notes / f"{n}-{at}-new.md").write_text(f"{after} <!-- agent 2026-11-01 -->\n", "utf-8")
    embedder = embed.make(config.embedder, folder / "index")
    store = FolderNotes(folder / "workspace")
    index = MemoryIndex.in_folder(
        Settings(Config(memory=config)), store, folder / "index", embedder, lambda: NOW
    )
    first = both = 0
    try:
        await index.sync("bench")
        for n in names:
            for at, (_, _, question) in enumerate(CHANGED):
                hits = (await index.search(question.format(n=n), ["main"])).hits
                places = {hit.path: place for place, hit in enumerate(hits)}
                new = places.get(f"memory/{n}-{at}-new.md", len(hits))
                old = places.get(f"memory/{n}-{at}-old.md", len(hits))
                first += new < old
                both += max(new, old) < len(hits)
    finally:
        await index.close()
        await embedder.close()
    return first, both, len(names) * len(CHANGED)


def faded_facts(folder: Path) -> tuple[list[facts.Fact], list[facts.Fact]]:
    """Write the facts, every other two of them as conclusions that have faded; these and those."""
    known = facts.facts()
    halves = [[fact for at, fact in enumerate(known) if at // 2 % 2 == half] for half in (0, 1)]
    marked = [
        facts.Fact(f"{each.text} <!-- {mark} -->", each.questions, each.was_looked_at)
        for at, each in enumerate(known)
        for mark in ("agent 2020-01-01" if at // 2 % 2 else "owner",)
    ]
    facts.write_notes(marked, folder / "workspace")
    return halves[1], halves[0]


def main() -> int:
    """Measure and print."""
    quiet.logs()
    parser = argparse.ArgumentParser(prog="python -m bench aging")
    parser.add_argument("--quick", action="store_true", help="one person's changes alone, by words")
    options = parser.parse_args()
    names = NAMES[:1] if options.quick else NAMES
    embedder = {"provider": "none" if options.quick else "multilingual"}
    print("| search_share | newer first | both found | faded R@1 | R@5 | R@10 | said R@1 | R@5 |")
    print("|---|---|---|---|---|---|---|---|")
    for share in SHARES[:1] if options.quick else SHARES:
        changes = {"aging": {"search_share": share}, "embedder": embedder}
        config = MemoryConfig.model_validate({"watch": False, **changes})
        with tempfile.TemporaryDirectory() as folder:
            first, both, of = asyncio.run(changed(Path(folder), config, names))
        row = [f"{first} of {of}", f"{both} of {of}"]
        if options.quick:
            row += ["–"] * 5
        else:
            with tempfile.TemporaryDirectory() as folder:
                for half, most in zip(faded_facts(Path(folder)), ((1, 5, 10), (1, 5)), strict=True):
                    found = asyncio.run(facts.ranks(Path(folder), half, changes))
                    places = [place for some in found.values() for place in some]
                    shares = (sum(0 < p <= n for p in places) / len(places) for n in most)
                    row += [f"{each:.3f}" for each in shares]
        print(f"| {share} | {' | '.join(row)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
