"""What a new conversation begins with: `python -m bench pieces`.

Somebody mentions a matter two to four times in several conversations, over a quarter of a year, and
asks in a new one what needs all of it ("how many columns did I ask for in all"):
`bench/data/pieces.txt`, English and Chinese. Most of what else is said is small talk; of every
third matter a piece is also noted. A question counts when every piece it needs is in what the new
conversation begins with. Options were chosen by every other matter; the others are told apart.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench import quiet, sized
from bot.agent.recall import Recaller
from bot.agent.recall import Shown as Start
from bot.app import App, Parts
from bot.config import Settings
from bot.memory.memory import OWNER_VIEW, Memory
from bot.memory.transcripts import TranscriptFeed
from bot.sessions import store
from bot.storage.files import DATABASE_NAME
from bot.storage.sqlite import SqliteDatabase
from bot.testing import InMemoryChannel, ScriptedModel
from tests.support import Engine, FakeClock, make_config

DATA = Path(__file__).parent / "data"
KEY = "agent:main:memory:dm:ada"
DAYS = 90  # over which all of it is said
IDLE = 3  # lines of small talk in a conversation, beside what matters
REPLIES = ("I see, noted.", "That sounds good. What else?", "好的，知道了。")
WAIT = 120.0  # seconds for a conversation


@dataclass(frozen=True, slots=True)
class Matter:
    """What is mentioned piece by piece, and the questions: words, and the pieces they need."""

    language: str
    pieces: tuple[str, ...]
    questions: tuple[tuple[str, tuple[int, ...]], ...]
    was_looked_at: bool


@dataclass(slots=True)
class Shown:
    """Of a half's questions, those with every piece, the share of pieces, and characters."""

    asked: int = 0
    every: int = 0
    shares: list[float] = field(default_factory=list[float])
    sizes: list[int] = field(default_factory=list[int])


def matters() -> list[Matter]:
    """All of them, in their order."""
    blocks = (DATA / "pieces.txt").read_text("utf-8").split("# ")[1:]
    found: list[Matter] = []
    for number, block in enumerate(blocks):
        head, *lines = block.splitlines()
        pieces = tuple(line[2:] for line in lines if line.startswith("- "))
        asked = (line[2:].split(" | ") for line in lines if line.startswith("? "))
        questions = tuple((words, tuple(int(at) - 1 for at in of.split())) for words, of in asked)
        found.append(Matter(head[:2], pieces, questions, number % 2 == 0))
    return found


def conversations(known: Sequence[Matter]) -> Iterator[tuple[str, list[str], bool]]:
    """Language, what the person says in each, and whether its piece is noted; the oldest first."""
    small = [line.split("\t") for line in (DATA / "small-talk.txt").read_text("utf-8").splitlines()]
    for turn in range(max(len(matter.pieces) for matter in known)):
        for number, matter in enumerate(known):
            if turn >= len(matter.pieces):
                continue
            idle = [text for language, text in small if language == matter.language]
            first = (number * 7 + turn * 3) % len(idle)
            said = [(idle * 2)[first + n].format(time="") for n in range(IDLE)]
            said.insert((number + turn) % (IDLE + 1), matter.pieces[turn])
            yield matter.language, said, number % 3 == turn == 0


async def talk(folder: Path, known: Sequence[Matter], clock: FakeClock) -> None:
    """Have all of it said to a whole engine, and some of it noted."""
    every = list(conversations(known))
    clock.advance(days=-DAYS)
    config, plugins = make_config(folder, session={"owner": ["memory:ada"]})
    channel = InMemoryChannel()
    turn = 0

    def reply(_: object) -> str:
        nonlocal turn
        turn += 1
        return REPLIES[turn % len(REPLIES)]

    model = ScriptedModel(script=reply)
    parts = Parts(clock=clock, remote=model, channels={"memory": channel}, dashboard=False)
    async with App(config, plugins, parts) as app:
        engine = Engine(app, channel, model, clock, folder)
        for language, said, is_noted in every:
            async with asyncio.timeout(WAIT):
                await engine.ask("/new", locale=language)
                for text in said:
                    await engine.ask(text, locale=language)
            if is_noted:
                day = datetime.fromtimestamp(clock() / 1000, UTC).date()
                note = folder / "workspace" / "memory" / f"{day}.md"
                note.parent.mkdir(parents=True, exist_ok=True)
                piece = next(text for text in said if any(text in m.pieces for m in known))
                with note.open("a", encoding="utf-8") as file:
                    file.write(f"- 12:00 {piece} <!-- owner -->\n")
            clock.advance(hours=DAYS * 24 / len(every))


async def begin(
    folder: Path, known: Sequence[Matter], clock: FakeClock
) -> dict[tuple[str, bool], Shown]:
    """What new conversations begin with, by language and half."""
    config, _ = make_config(folder, memory={"embedder": {"provider": "multilingual"}})
    view = replace(OWNER_VIEW, keys=(KEY,))
    now = datetime.fromtimestamp(clock() / 1000, UTC) + timedelta(minutes=1)
    database = await SqliteDatabase.open(folder / DATABASE_NAME)
    memory = Memory.from_settings(Settings(config), clock, database=database)
    await memory.open()
    found: dict[tuple[str, bool], Shown] = {}
    try:
        await memory.index.sync("bench")
        await TranscriptFeed(database, memory.index, Settings(config), clock).look()
        latest = await database.read(lambda tx: store.current(tx, KEY))
        assert latest is not None
        session = replace(latest, id="a-new-one", previous=latest.id)
        recaller = Recaller(Settings(config), memory.files, database, memory.searcher, memory.uses)
        for matter in known:
            for words, needed in matter.questions:
                opening = await recaller.recall(view, session, words, now, Start("", 400_000))
                text = opening.text if opening else ""
                there = [matter.pieces[at] in text for at in needed]
                shown = found.setdefault((matter.language, matter.was_looked_at), Shown())
                shown.asked += 1
                shown.every += all(there)
                shown.shares.append(sum(there) / len(there))
                shown.sizes.append(len(text))
    finally:
        await memory.close()
        await database.close()
    return found


def main() -> int:
    """Measure and print."""
    quiet.logs()
    known, clock = matters()[:: sized.every("pieces", few=7)], FakeClock()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(talk(Path(folder), known, clock))
        found = asyncio.run(begin(Path(folder), known, clock))
    print("| language | half | questions | every piece | pieces | characters |")
    print("|---|---|---|---|---|---|")
    for (language, was_looked_at), shown in sorted(found.items()):
        half = "chosen by" if was_looked_at else "apart"
        share = sum(shown.shares) / shown.asked
        size = sum(shown.sizes) // shown.asked
        every = shown.every / shown.asked
        print(f"| {language} | {half} | {shown.asked} | {every:.3f} | {share:.3f} | {size} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
