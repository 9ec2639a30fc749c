"""The index files stay whole while notes are edited, forgotten and searched at once."""

from __future__ import annotations

import asyncio
import random

import apsw
import pytest

from bot.config import MemoryConfig
from bot.memory.embed import NoEmbedder
from bot.memory.index import Document, MemoryIndex
from bot.memory.index.queries import run
from bot.memory.note_store import FolderNotes
from bot.testing import HashEmbedder
from tests.proofs.rounds import rounds
from tests.support import FakeClock, settings_of, write_file

PARTITIONS = ("main", "people/ada", "talk:ada")
WORDS = ("oolong", "tea", "rain", "花生", "过敏", "café", "garden", "letter", "door", "river")
ROUNDS = 40


def text_of(chance: random.Random) -> str:
    lines = [" ".join(chance.choices(WORDS, k=12)) for _ in range(chance.randint(1, 60))]
    return "\n".join(lines) + "\n"


def damage(folder) -> list[str]:
    """What SQLite and FTS5 find wrong with the index files; nothing when all is well."""
    found: list[str] = []
    for path in sorted(folder.glob("*.db")):
        connection = apsw.Connection(str(path))
        found += [f"{path.name}: {row[0]}" for row in run(connection, "PRAGMA integrity_check")]
        if path.name == "index.db":
            check = "INSERT INTO memory_chunks_text(memory_chunks_text) VALUES ('integrity-check')"
            run(connection, check)
            found += _disagreements(connection)
        connection.close()
    return [each for each in found if not each.endswith(": ok")]


def _disagreements(connection: apsw.Connection) -> list[str]:
    """Where the tables of the index do not hold the same chunks."""

    def ids(table: str, column: str = "rowid") -> set[int]:
        return {row[0] for row in run(connection, f"SELECT {column} FROM memory_{table}")}

    chunks = ids("chunks", "id")
    found = [] if ids("chunks_text") == chunks else ["chunks_text: other chunks"]
    if ids("chunks WHERE (vectors IS NULL) <> (signs IS NULL)", "id"):
        found.append("vectors without signs")
    if ids("chunks", "source") - ids("sources", "id"):
        found.append("chunks without a source")
    counted = run(
        connection,
        "SELECT name FROM memory_partitions p WHERE chunks != (SELECT count(*) FROM memory_chunks c"
        " WHERE c.partition = p.id) OR length != (SELECT coalesce(sum(length), 0)"
        " FROM memory_chunks c WHERE c.partition = p.id)",
    )
    return [*found, *(f"partition {row[0]}: counted wrongly" for row in counted)]


class Hands:
    """Everybody who does something with one index at the same time."""

    def __init__(self, index: MemoryIndex, workspace, seed: int) -> None:
        self.index = index
        self.workspace = workspace
        self.chance = random.Random(seed)  # noqa: S311
        self.done = asyncio.Event()

    async def edits(self) -> None:
        for _ in range(ROUNDS):
            folder = self.workspace / self.chance.choice(("memory", "people/ada/memory"))
            folder.mkdir(parents=True, exist_ok=True)
            note = folder / f"note-{self.chance.randrange(6)}.md"
            if self.chance.random() < 0.2:
                note.unlink(missing_ok=True)
            else:
                note.write_text(text_of(self.chance), encoding="utf-8")
            await self.index.sync("test")
        self.done.set()

    async def says(self) -> None:
        while not self.done.is_set():
            ids = [str(self.chance.randrange(20)) for _ in range(4)]
            documents = [Document("talk:ada", id_, text_of(self.chance), 1) for id_ in ids]
            await self.index.add_documents(documents)
            await self.index.remove_documents([("talk:ada", ids[0])])

    async def forgets(self) -> None:
        while not self.done.is_set():
            await self.index.forget(texts=[self.chance.choice(WORDS)], partitions=PARTITIONS)
            await self.index.forget(paths=[f"memory/note-{self.chance.randrange(6)}.md"])
            await asyncio.sleep(0.02)

    async def searches(self) -> None:
        while not self.done.is_set():
            answer = await self.index.search(" ".join(self.chance.sample(WORDS, 3)), PARTITIONS)
            assert not [each for each in answer.degraded if "cannot be read" in each]
            assert "the search failed; the log says why" not in answer.degraded

    async def all_at_once(self) -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for work in (self.edits, self.says, self.forgets, self.searches, self.searches):
                group.create_task(work())


def index_in(tmp_path, embedder=None) -> MemoryIndex:
    config = MemoryConfig(watch=False)
    folders = (FolderNotes(tmp_path / "workspace"), tmp_path / "index")
    return MemoryIndex.in_folder(
        settings_of(memory=config), *folders, embedder or NoEmbedder(), FakeClock()
    )


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(rounds(3, few=1)))
@pytest.mark.parametrize("embedder", [NoEmbedder, HashEmbedder])
async def test_the_files_stay_whole_whatever_happens_at_once(tmp_path, embedder, seed):
    index = index_in(tmp_path, embedder())
    await index.start()
    try:
        await Hands(index, tmp_path / "workspace", seed).all_at_once()
        assert damage(tmp_path / "index") == []
        assert (await index.status()).degraded == ()
    finally:
        await index.close()
    assert damage(tmp_path / "index") == []


@pytest.mark.parametrize("gap", [0.0, 0.02])
async def test_two_programs_that_build_at_once_share_one_index(tmp_path, gap):
    folder = tmp_path / "workspace" / "memory"
    folder.mkdir(parents=True)
    for number in range(150):
        chance = random.Random(number)  # noqa: S311
        (folder / f"note-{number}.md").write_text(text_of(chance), encoding="utf-8")
    bot, command_line = index_in(tmp_path), index_in(tmp_path)
    try:
        await bot.start()
        await asyncio.sleep(gap)
        await command_line.start()
        await asyncio.gather(bot.sync("test"), command_line.sync("test"))
        await bot.add_documents([Document("main", "1", "a zeppelin over the garden", 1)])
        for index in (bot, command_line):
            assert (await index.status()).degraded == ()
            assert (await index.search("zeppelin", ["main"])).hits
        await command_line.forget(texts=["zeppelin"], partitions=["main"])
        assert not (await bot.search("zeppelin", ["main"])).hits
        assert damage(tmp_path / "index") == []
    finally:
        await bot.close()
        await command_line.close()


async def test_a_program_whose_index_another_one_rebuilt_goes_on_with_that(tmp_path):
    folder = tmp_path / "workspace" / "memory"
    write_file(folder / "tea.md", "oolong\n")
    bot, command_line = index_in(tmp_path), index_in(tmp_path)
    try:
        await bot.start()
        await bot.sync("test")
        said = [Document("main", "1", "a zeppelin over the garden", 1)]
        await bot.add_documents(said)
        before = bot.generation
        await command_line.start()
        command_line._writer.rows.broken = True  # as when it found the file damaged
        await command_line.sync("test")
        await bot.sync("test")
        assert bot.generation != before
        await bot.add_documents(said)
        assert (await bot.search("zeppelin oolong", ["main"])).degraded == ()
        assert len((await bot.search("zeppelin oolong", ["main"])).hits) == 2
        assert damage(tmp_path / "index") == []
    finally:
        await bot.close()
        await command_line.close()
