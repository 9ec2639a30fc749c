"""The memory index over real files: what is found, what is not, and what a broken part costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from bot.config import EmbedderConfig, MemoryConfig
from bot.memory.embed import NoEmbedder
from bot.memory.embed.remote import RemoteEmbedder
from bot.memory.index import Document, MemoryIndex, note_files
from bot.memory.index.queries import LARGE
from bot.memory.index.search import ASKED
from bot.memory.note_store import FolderNotes
from bot.memory.search import Building
from bot.testing import HashEmbedder
from tests.contract.test_memory_index import refusing
from tests.fakes import embeddings_api
from tests.support import FakeClock, settings_of, write_file

MAIN = ("main", "shared")


@asynccontextmanager
async def index_of(tmp_path, embedder=None, *, settings=None, **config):
    memory = MemoryIndex.in_folder(
        settings or settings_of(memory={"watch": False, **config}),
        FolderNotes(tmp_path / "workspace"),
        tmp_path / "index",
        embedder or NoEmbedder(),
        FakeClock(),
    )
    await memory.start()
    await memory.sync("test")
    try:
        yield memory
    finally:
        await memory.close()


@pytest.fixture
def note(tmp_path):
    def write(path: str, text: str) -> None:
        write_file(tmp_path / "workspace" / path, text)

    return write


def paths(answer) -> list[str]:
    return [hit.path for hit in answer.hits]


async def test_what_others_wrote_changes_nothing_of_what_is_found(tmp_path, note):
    lines = [f"The {word} is in the harbour\n" for word in ("ferry", "yacht", "canoe", "liner")]
    for number, line in enumerate(lines):
        note(f"memory/{number}.md", line)
    asked = ("where is the ferry", "the harbour", "which boat is it", "canoe or liner")

    async def answers(index):
        return [await index.search(query, MAIN) for query in asked]

    async with index_of(tmp_path, HashEmbedder()) as index:
        before = await answers(index)  # there is nothing else to look at
        for number, line in enumerate(lines):
            note(f"people/eve/memory/{number}.md", line * 3)
        await index.sync("test")
        assert await answers(index) == before
        # Nor is it found where it is not counted any more.
        connection = apsw.Connection(str(tmp_path / "index" / "index.db"))
        connection.execute("UPDATE memory_partitions SET chunks = 0 WHERE name = 'people/eve'")
        connection.close()
        found = [hit for answer in await answers(index) for hit in answer.hits]
        assert len(found) > 0
        assert {hit.space for hit in found} == {"main"}


async def test_a_watched_file_is_indexed_by_itself(tmp_path, note, monkeypatch):
    monkeypatch.setattr("bot.memory.index.service.DEBOUNCE", 0.01)
    note("memory/a.md", "first\n")
    async with index_of(tmp_path, watch=True) as index:
        note("memory/b.md", "second thoughts\n")
        async with asyncio.timeout(60):
            while not paths(await index.search("thoughts", MAIN)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_what_was_removed_does_not_stand_in_the_way_of_what_is_there(tmp_path):
    memory = MemoryIndex.in_folder(
        settings_of(memory={"watch": False, "text_weight": 0.0}),
        FolderNotes(tmp_path / "workspace"),
        tmp_path / "index",
        HashEmbedder(),
        FakeClock(),
    )
    await memory.start()
    said = "the cat sleeps on the sofa"
    gone = [Document("talk:ada", f"s.{n}", said, 1) for n in range(400)]
    others = [Document("talk:ada", f"o.{n}", f"tea number n{n}", 1) for n in range(LARGE)]
    try:
        here = Document("talk:ada", "here", f"{said} today", 1)
        await memory.add_documents([*gone, *others, here])
        for _ in range(4):  # every reader knows all of them
            await memory.search(said, ("talk:ada",))
        await memory.remove_documents([(each.partition, each.id) for each in gone])
        for _ in range(4):
            answer = await memory.search(said, ("talk:ada",))
            assert (paths(answer)[0], answer.mode) == ("here", "vector")
    finally:
        await memory.close()


# --- texts that the embedder refuses --------------------------------------------------------------


@asynccontextmanager
async def remote_index(tmp_path, api):
    config = {"provider": "openai", "model": "m", "base_url": api.base_url, "batch": 8}
    embedder = RemoteEmbedder(EmbedderConfig.model_validate(config))
    async with index_of(tmp_path, embedder) as index:
        yield index
    await embedder.close()


async def test_a_text_that_is_refused_is_not_asked_for_again_when_all_is_built_anew(tmp_path, note):
    for number in range(12):
        note(f"memory/n{number}.md", f"- harbour number {number}\n")
    note("memory/bad.md", "- a forbidden word\n")
    async with embeddings_api.running(refusing) as api:
        async with remote_index(tmp_path, api) as index:
            assert (await index.status()).problems == {
                "memory/bad.md": "the embedder refuses a part of it, which is found by its words "
                "alone"
            }
            before = len(api.bodies)
            note("memory/n0.md", "- harbour number zero\n")
            await index.sync("edited")
            assert ["forbidden" in str(texts) for texts in api.inputs[before:]] == [False]
        note("memory/bad.md", "- another word\n")
        for path in (tmp_path / "index").glob("index.db*"):
            path.unlink()
        async with remote_index(tmp_path, api) as index:
            assert (await index.status()).problems == {}
            assert len(api.bodies) == before + 2  # the edited ones; the others were kept


async def test_what_was_made_before_a_server_failed_is_kept_and_not_asked_for_again(tmp_path, note):
    for number in range(24):
        note(f"memory/n{number:02}.md", f"- harbour number {number}\n")
    good = embeddings_api.vectors
    async with (
        embeddings_api.running(good, good, embeddings_api.status(401)) as api,
        remote_index(tmp_path, api) as index,
    ):
        assert (await index.status()).degraded == ("no vectors: the server answered 401",)
        made = {text for texts in api.inputs[:2] for text in texts}
        api.answers = []
        del api.bodies[:]
        await index.sync("later")
        assert len(made) == 16
        assert made.isdisjoint(text for texts in api.inputs for text in texts)
        assert (await index.status()).degraded == ()
        assert (await index.search("harbour number 23", MAIN, 3)).mode == "vector+keyword"


async def test_a_server_that_refuses_everything_marks_nothing(tmp_path, note):
    note("memory/a.md", "- harbour\n")
    async with embeddings_api.running(embeddings_api.status(400)) as api:
        async with remote_index(tmp_path, api) as index:
            status = await index.status()
            assert status.problems == {}
            assert status.degraded[0] == "no vectors: the server answered 400"
        api.answers = []
        async with remote_index(tmp_path, api) as index:
            assert (await index.search("harbour", MAIN, 3)).mode == "vector+keyword"


async def test_a_query_that_is_asked_again_is_embedded_once_and_few_are_kept(tmp_path, note):
    note("memory/a.md", "- The harbour has number 23\n")
    embedded: list[str] = []

    class Counting(HashEmbedder):
        async def embed(self, texts):
            embedded.extend(texts)
            return await super().embed(texts)

    async with index_of(tmp_path, Counting()) as index:
        for query in ("harbour", "harbour", *map(str, range(ASKED)), "harbour"):
            assert (await index.search(query, MAIN, 3)).mode == "vector+keyword"
    assert (embedded.count("harbour"), embedded.count("7")) == (2, 1)


async def test_yesterday_is_that_of_the_time_zone(tmp_path, note):
    note("memory/2026-07-01.md", "- tea with Ada\n")
    note("memory/2026-07-02.md", "- tea with Bob\n")
    late = int(datetime(2026, 7, 2, 23, tzinfo=UTC).timestamp() * 1000)  # the 3rd in Shanghai
    for zone, day in (("UTC", "2026-07-01"), ("Asia/Shanghai", "2026-07-02")):
        memory = MemoryIndex.in_folder(
            settings_of(memory={"watch": False}, agent={"timezone": zone}),
            FolderNotes(tmp_path / "workspace"),
            tmp_path / "index",
            NoEmbedder(),
            lambda: late,
        )
        try:
            await memory.sync("test")
            found = await memory.search("tea yesterday", ["main"])
        finally:
            await memory.close()
        assert found.hits[0].path == f"memory/{day}.md"
        assert found.hits[0].why.by_date


ALL_MAIN = ("main", "shared", "main#private")


@asynccontextmanager
async def opened(
    folder: Path, embedder: HashEmbedder, *, is_started: bool = True
) -> AsyncIterator[MemoryIndex]:
    config = MemoryConfig(watch=False)
    index = MemoryIndex.in_folder(
        settings_of(memory=config),
        FolderNotes(folder / "workspace"),
        folder / "index",
        embedder,
        FakeClock(),
    )
    if is_started:
        await index.start()
    try:
        yield index
    finally:
        await index.close()


def write_note(folder: Path, name: str, text: str) -> None:
    write_file(folder / "workspace" / "memory" / name, text)


async def test_a_first_build_that_was_interrupted_is_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.memory.index.writer.PATIENCE", 0.0)
    monkeypatch.setattr("bot.memory.index.writer.GROUP", 2)
    for number in range(4):
        write_note(tmp_path, f"{number}.md", f"peanuts number {number}\n")
    stuck = HashEmbedder(gate=asyncio.Event())
    async with opened(tmp_path, stuck) as index:
        await stuck.started.wait()
        half = Building(2, 4, is_first=True, by_meaning=False)
        while (await index.status()).building != half:  # noqa: ASYNC110
            await asyncio.sleep(0)
        # Half of it is in the index, which nobody searches yet.
        assert paths(await index.search("number 3", ALL_MAIN, 1)) == ["memory/3.md"]
    read: list[str] = []
    real = note_files.read

    def reading(notes, seen):
        read.append(seen.path)
        return real(notes, seen)

    monkeypatch.setattr(note_files, "read", reading)
    async with opened(tmp_path, HashEmbedder()) as index:
        await index.sync("test")
        assert read == ["memory/2.md", "memory/3.md"]
        assert (await index.status()).vectors == 4
        assert paths(await index.search("number 3", ALL_MAIN, 1)) == ["memory/3.md"]


async def test_what_is_forgotten_while_vectors_are_made_again_is_nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr("bot.memory.index.service.REST", float("inf"))  # no sync but ours
    write_note(tmp_path, "a.md", "the canary is blue\n")
    async with opened(tmp_path, HashEmbedder()) as index:
        await index.sync("test")
        await index.add_documents([Document("talk:ada", "s1", "the canary was said", 1)])
        stuck = HashEmbedder(model="another", gate=asyncio.Event())
        async with opened(tmp_path, stuck):  # another program that makes it its own
            await stuck.started.wait()
            (tmp_path / "workspace" / "memory" / "a.md").unlink()
            forgotten = await index.forget(texts=["canary"], partitions=["main", "talk:ada"])
            assert (forgotten.chunks, forgotten.documents, forgotten.cached) == (2, 1, 2)
        for path in (tmp_path / "index").iterdir():
            assert b"canary" not in path.read_bytes()


async def test_vectors_that_are_taken_out_leave_nothing_in_the_file(tmp_path):
    write_note(tmp_path, "a.md", "the canary is blue\n")
    async with opened(tmp_path, HashEmbedder()) as index:
        await index.sync("test")
    connection = apsw.Connection(str(tmp_path / "index" / "index.db"))
    ((vectors,),) = connection.execute("SELECT vectors FROM memory_chunks").fetchall()
    connection.close()
    async with opened(tmp_path, HashEmbedder(dims=48)) as index:
        await index.sync("test")
        assert (await index.status()).vectors == 1
        assert bytes(vectors) not in (tmp_path / "index" / "index.db").read_bytes()


@pytest.mark.parametrize("version", [1, 99])
async def test_an_index_file_of_another_format_is_made_anew(tmp_path, version):
    write_note(tmp_path, "a.md", "peanuts are out\n")
    async with opened(tmp_path, HashEmbedder()) as index:
        await index.sync("test")
    connection = apsw.Connection(str(tmp_path / "index" / "index.db"))
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    async with opened(tmp_path, HashEmbedder()) as index:
        await index.sync("test")
        assert (await index.status()).degraded == ()
        assert (await index.search("peanuts", ALL_MAIN, 1)).hits[0].path == "memory/a.md"


async def test_another_embedder_needs_no_more_space(tmp_path):
    for number in range(100):
        write_note(tmp_path, f"{number}.md", f"peanuts number {number} and {number} more\n" * 50)
    sizes: list[int] = []
    for model in ("one", "two", "three"):
        async with opened(tmp_path, HashEmbedder(model=model)) as index:
            await index.sync("test")
        sizes.append((tmp_path / "index" / "index.db").stat().st_size)
    assert max(sizes) < 1.3 * min(sizes)
