"""How well the offline model answers: `python -m bench offline`.

The 400 questions of `bench/facts`, asked in other words than their facts; 69 whose answer no note
knows (`bench/data/unanswered.tsv`); and some in the words of their notes. A whole engine answers
each in a chat: the fact's line is *shown* among the three lines that are quoted, or only *others*
are, or *nothing* is. What decides it was chosen by every other row; the others are told apart.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import chinese, facts, quiet
from bot import i18n
from bot.app import App, Parts
from bot.channel import ChannelPlugin
from bot.clock import system_clock
from bot.config import Config, Settings
from bot.memory.memory import Memory
from bot.testing import InMemoryChannel, ScriptedModel
from tests.support import Engine, FakeClock, make_config

UNANSWERED = Path(__file__).parent / "data" / "unanswered.tsv"
WAIT = 120.0  # seconds for so many answers
EACH = 20  # questions in a chat: somebody who has asked hundreds is another matter
QUICKLY = 41  # of so many questions one is asked, when that is enough
OUTCOMES = ("shown", "others", "nothing")
HEADS = tuple(i18n.text(language, "offline.found") for language in ("en", "zh"))


# Facts of another note, asked for in words they have.
SAME_WORDS = (
    ("The piano tuner comes on 12 March.", "When does the piano tuner come?"),
    ("Our insurance agent is called Mirko Vidal.", "What is our insurance agent called?"),
    ("The printer cartridge is type 304 XL.", "Which type is the printer cartridge?"),
    ("Grandfather's violin is at the restorer's in Cremona.", "Where is grandfather's violin?"),
    ("My allergy tablets are in the bathroom cabinet.", "Where are my allergy tablets?"),
    ("The parents' evening is on Thursday at half past six.", "When is the parents' evening?"),
    ("Judith lent me 80 euros for the concert.", "How much did Judith lend me for the concert?"),
    ("The chimney sweep charges 74 euros.", "How much does the chimney sweep charge?"),
    ("The hedgehog house stands behind the compost.", "Where does the hedgehog house stand?"),
    ("Our solar panels were installed in 2019.", "When were our solar panels installed?"),
    ("The physiotherapist is called Ms. Okonkwo.", "What is the physiotherapist called?"),
    ("The camping stove burns methylated spirit.", "What does the camping stove burn?"),
    ("The drum lesson costs 32 euros.", "How much does the drum lesson cost?"),
    ("My bike frame number is WX-55810.", "What is my bike frame number?"),
    ("The beekeepers' meeting is in the old mill.", "Where is the beekeepers' meeting?"),
    ("Our electricity meter stands at 48211.", "Where does our electricity meter stand at?"),
    ("The quiche needs 40 minutes in the oven.", "How long does the quiche need in the oven?"),
    ("Aunt Vera's train arrives at 17:42.", "When does Aunt Vera's train arrive?"),
    ("The vineyard tour begins in Beaune.", "Where does the vineyard tour begin?"),
    ("My locksmith is Mr. Haddad.", "Who is my locksmith?"),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, the line that answers it (empty when none does), and of which half it is."""

    words: str
    answer: str
    kind: str
    was_looked_at: bool


def questions(known: Sequence[facts.Fact]) -> list[Asked]:
    """All that are asked of the facts' notes."""
    asked = [
        Asked(words, fact.text, f"other words, {fact.language}", fact.was_looked_at)
        for fact in known
        for words in fact.questions
    ]
    nothing = UNANSWERED.read_text("utf-8").splitlines()
    return asked + [
        Asked(words, "", f"nothing known, {'en' if words.isascii() else 'zh'}", at % 2 == 0)
        for at, words in enumerate(nothing)
    ]


def same_words(workspace: Path) -> list[Asked]:
    """Notes that are asked for in their own words, written as one more beside the facts."""
    pairs = (*SAME_WORDS, *chinese.SAME_WORDS)
    note = "".join(f"- {fact}\n" for fact, _ in pairs)
    (workspace / "memory" / "more.md").write_text(note, "utf-8")
    return [
        Asked(words, fact, f"own words, {'en' if words.isascii() else 'zh'}", at % 2 == 0)
        for at, (fact, words) in enumerate(pairs)
    ]


def judged(asked: Asked, reply: str) -> str:
    """What became of a question."""
    if not reply.startswith(HEADS):
        return "nothing"
    return "shown" if asked.answer and asked.answer in reply else "others"


async def ask(folder: Path, asked: Sequence[Asked]) -> list[str]:
    """What the offline model of a whole engine replies to each."""
    options: dict[str, Any] = {
        "session": {"owner": ["memory:ada"]},
        "memory": {"embedder": {"provider": "multilingual"}},
    }
    config, _ = make_config(folder, **options)
    # The index knows every note before the program starts.
    memory = Memory.from_settings(Settings(config), system_clock)
    await memory.open()
    await memory.index.sync("bench")
    await memory.close()
    replies: list[str] = []
    for at in range(0, len(asked), EACH):
        with tempfile.TemporaryDirectory() as name:
            shutil.copytree(folder, name, dirs_exist_ok=True)
            config, plugins = make_config(Path(name), **options)
            replies += await _replies(config, plugins, asked[at : at + EACH])
    return replies


async def _replies(
    config: Config, plugins: Mapping[str, ChannelPlugin], asked: Sequence[Asked]
) -> list[str]:
    channel = InMemoryChannel()
    parts = Parts(channels={"memory": channel}, dashboard=False)
    async with App(config, plugins, parts) as app, asyncio.timeout(WAIT):
        engine = Engine(app, channel, ScriptedModel(), FakeClock(), config.storage.dir)
        return [await engine.ask(each.words) for each in asked]


def table(asked: Sequence[Asked], outcomes: Sequence[str]) -> None:
    """Print the shares of each kind and half."""
    kinds = dict.fromkeys((each.kind, each.was_looked_at) for each in asked)
    for kind, was_looked_at in sorted(kinds, key=lambda each: (not each[1], each[0])):
        became = Counter(
            outcome
            for each, outcome in zip(asked, outcomes, strict=True)
            if (each.kind, each.was_looked_at) == (kind, was_looked_at)
        )
        whole = became.total()
        shares = " | ".join(f"{became[outcome] / whole:.3f}" for outcome in OUTCOMES)
        half = "chosen by" if was_looked_at else "apart"
        print(f"| {kind} | {half} | {whole} | {shares} |")


def main() -> int:
    """Measure and print."""
    quiet.logs()
    parser = argparse.ArgumentParser(prog="python -m bench offline")
    parser.add_argument("--each", action="store_true", help="print every question and reply")
    parser.add_argument("--quick", action="store_true", help="ask a few of the questions")
    options = parser.parse_args()
    every = QUICKLY if options.quick else 1
    known = facts.facts()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        facts.write_notes(known, workspace)
        asked = questions(known)[::every]
        replies = asyncio.run(ask(Path(folder), asked))
        own = same_words(workspace)[::every]
        asked += own
        replies += asyncio.run(ask(Path(folder), own))
    outcomes = [judged(*pair) for pair in zip(asked, replies, strict=True)]
    if options.each:
        for each, reply, outcome in zip(asked, replies, outcomes, strict=True):
            print(f"{outcome}\t{each.words}\t{each.answer}\t{reply!r}")
    print(f"| asked | half | questions | {' | '.join(OUTCOMES)} |")
    print("|---|---|---|---|---|---|")
    table(asked, outcomes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
