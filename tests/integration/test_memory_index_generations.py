"""The one index file: what came before it, and the generations of rows it is rebuilt in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path

import apsw
import pytest

from bot.config import MemoryConfig
from bot.memory.folder_notes import FolderNotes
from bot.memory.index import Document, MemoryIndex
from bot.memory.index.schema import live
from bot.memory.ranking import Request
from bot.testing import HashEmbedder
from tests.support import FakeClock

# A workspace and its index as the version before kept it: a file for each generation, the second
# left by a rebuild that was killed.
MAIN = ("main", "shared", "main#private")


@asynccontextmanager
async def index_in(
    folder: Path, embedder: HashEmbedder, *, is_started: bool = True
) -> AsyncIterator[MemoryIndex]:
    config = MemoryConfig(watch=False)
    index = MemoryIndex.in_folder(
        config, FolderNotes(folder / "workspace"), folder / "index", embedder, FakeClock()
    )
    if is_started:
        await index.start()
    try:
        yield index
    finally:
        await index.close()


def note(folder: Path, name: str, text: str) -> None:
    path = folder / "workspace" / "memory" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def rows(folder: Path, sql: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(folder / "index" / "index.db"))
    try:
        return list(connection.execute(sql).fetchall())
    finally:
        connection.close()


def tables(folder: Path) -> set[str]:
    """The numbers of the generations that have tables."""
    names = rows(folder, "SELECT name FROM sqlite_schema WHERE name GLOB 'chunks_[0-9]*'")
    return {str(name).removeprefix("chunks_") for (name,) in names}


async def test_a_rebuild_that_was_interrupted_is_gone_on_with(tmp_path):
    for number in range(4):
        note(tmp_path, f"{number}.md", f"peanuts number {number}\n")
    async with index_in(tmp_path, HashEmbedder()) as index:
        await index.sync("test")
    stuck = HashEmbedder(model="another", gate=asyncio.Event())
    async with index_in(tmp_path, stuck) as index:
        await stuck.started.wait()
    (first, second) = sorted(tables(tmp_path), key=int)
    assert rows(tmp_path, "SELECT id FROM generations WHERE is_live") == [(int(first),)]
    async with index_in(tmp_path, HashEmbedder(model="another")) as index:
        await index.sync("test")
        assert tables(tmp_path) == {second}
        assert (await index.status()).vectors == 4
        assert (await index.search("number 3", MAIN, 1)).hits[0].path == "memory/3.md"


async def test_what_is_forgotten_is_in_no_generation(tmp_path):
    note(tmp_path, "a.md", "the canary is blue\n")
    bot = HashEmbedder()
    async with index_in(tmp_path, bot) as index:
        await index.sync("test")
        await index.add_documents([Document("talk:ada", "s1", "the canary was said", 1)])
        stuck = HashEmbedder(model="another", gate=asyncio.Event())
        async with index_in(tmp_path, stuck):  # another program that builds
            await stuck.started.wait()
        assert len(tables(tmp_path)) == 2
        (tmp_path / "workspace" / "memory" / "a.md").unlink()
        forgotten = await index.forget(texts=["canary"], partitions=["main", "talk:ada"])
        assert (forgotten.chunks, forgotten.documents) == (2, 1)
        assert len(tables(tmp_path)) == 1
        for path in (tmp_path / "index").iterdir():
            assert b"canary" not in path.read_bytes()


async def test_a_search_reads_the_live_generation_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.memory.index.sync.PATIENCE", 0.0)
    note(tmp_path, "a.md", "peanuts are out\n")
    async with index_in(tmp_path, HashEmbedder(), is_started=False) as index:
        await index.sync("test")
        note(tmp_path, "a.md", "oolong is in\n")
        stuck = HashEmbedder(model="another", gate=asyncio.Event())
        async with index_in(tmp_path, stuck):
            await stuck.started.wait()
            _, building = sorted(tables(tmp_path), key=int)
            async with asyncio.timeout(60):
                while not rows(tmp_path, f"SELECT 1 FROM chunks_{building}"):  # noqa: ASYNC110
                    await asyncio.sleep(0)
            for query, paths in (("oolong", []), ("peanuts", ["memory/a.md"])):
                request = Request(query, MAIN, 6, None, date(2026, 11, 21), float("inf"))
                answer = await index._searches.run(
                    lambda each=request: index._searches._answer(each, [])
                )
                assert [hit.path for hit in answer.hits] == paths


@pytest.mark.parametrize("version", [1, 99])
async def test_an_index_file_of_another_format_is_made_anew(tmp_path, version):
    note(tmp_path, "a.md", "peanuts are out\n")
    async with index_in(tmp_path, HashEmbedder()) as index:
        await index.sync("test")
    rows(tmp_path, f"PRAGMA user_version = {version}")
    async with index_in(tmp_path, HashEmbedder()) as index:
        await index.sync("test")
        assert (await index.status()).degraded == ()
        assert (await index.search("peanuts", MAIN, 1)).hits[0].path == "memory/a.md"


async def test_a_rebuild_gives_back_the_space_it_needed(tmp_path):
    for number in range(100):
        note(tmp_path, f"{number}.md", f"peanuts number {number} and {number} more\n" * 50)
    sizes: list[int] = []
    for model in ("one", "two", "three"):
        async with index_in(tmp_path, HashEmbedder(model=model)) as index:
            await index.sync("test")
        sizes.append((tmp_path / "index" / "index.db").stat().st_size)
    assert max(sizes) < 1.3 * min(sizes)
    connection = apsw.Connection(str(tmp_path / "index" / "index.db"))
    found = live(connection)
    connection.close()
    assert found is not None
    assert found.embedder.model == "three"
