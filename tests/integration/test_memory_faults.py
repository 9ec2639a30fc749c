"""Memory with something broken: nothing is lost, search gives what it can, and it is told."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import pytest

from bot.app import App, Parts
from bot.config import Settings
from bot.errors import StorageError
from bot.identity.view import folder_name
from bot.memory.embed import Embedder
from bot.memory.index import Document, MemoryIndex
from bot.memory.index.file_rows import FileStore
from bot.memory.memory import Memory
from bot.memory.note_store import FolderNotes
from bot.memory.ranking import Request
from bot.testing import HashEmbedder, InMemoryChannel, ScriptedModel
from tests.fakes import embeddings_api
from tests.faults import faulty_disk
from tests.support import Engine, FakeClock, make_config, pause, settings_of, write_file

MAIN = ("main", "shared")
ADA = f"people/{folder_name('memory:ada')}"


class Folder:
    """An index over a folder of notes."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.files = folder / "index"

    def write(self, path: str, text: str | bytes) -> Path:
        return write_file(self.workspace / path, text)

    @property
    def live(self) -> Path:
        return self.files / "index.db"

    @asynccontextmanager
    async def index(
        self,
        embedder: Embedder | None = None,
        **config: Any,
    ) -> AsyncIterator[MemoryIndex]:
        index = MemoryIndex.in_folder(
            settings_of(memory={"watch": False, **config}),
            FolderNotes(self.workspace),
            self.files,
            embedder or HashEmbedder(),
            FakeClock(),
        )
        await index.start()
        await index.sync("test")
        try:
            yield index
        finally:
            await index.close()


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def found(answer) -> list[str]:
    return [hit.path for hit in answer.hits]


async def search(index: MemoryIndex, query: str) -> list[str]:
    """The note that answers best, if any does."""
    return found(await index.search(query, MAIN, 1))


async def healthy(index: MemoryIndex) -> None:
    """Nothing is in trouble once everything was brought up to date."""
    await index.sync("test")
    assert (await index.status()).degraded == ()


@contextmanager
def locked(path: Path):
    """Another program writes into a file and does not end."""
    connection = apsw.Connection(str(path))
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


# --- the file of the index -----------------------------------------------------------------------


async def test_an_index_deleted_while_running_is_built_again_and_later_edits_are_found(folder):
    folder.write("memory/a.md", "peanuts are out")
    async with folder.index() as index:
        said = [Document("talk:ada", "s1", "a canary was said", 1)]
        await index.add_documents(said)
        before = index.generation
        assert await search(index, "peanuts") == ["memory/a.md"]
        for file in folder.files.iterdir():
            file.unlink()
        assert await search(index, "peanuts") == ["memory/a.md"]
        await index.sync("test")
        folder.write("memory/b.md", "oolong is in")
        await index.sync("test")
        assert folder.live.is_file()
        for _ in range(3):  # every reader
            assert await search(index, "oolong") == ["memory/b.md"]
        # By this whoever knows what was said sees that it is to be added again.
        assert index.generation != before
        await index.add_documents(said)
        assert found(await index.search("canary", ("talk:ada",))) == ["s1"]
        await healthy(index)


@pytest.mark.parametrize("what", [b"", b"garbage " * 20_000, b"SQLite format 3\x00" + bytes(9_000)])
async def test_an_index_overwritten_while_running_is_told_and_built_again(folder, what):
    for number in range(50):
        folder.write(f"memory/{number}.md", f"peanuts number {number}\n")
    async with folder.index() as index:
        assert await search(index, "peanuts")
        folder.live.write_bytes(what)
        for beside in folder.files.glob("index.db-wal"):
            os.truncate(beside, 0)
        folder.write("memory/new.md", "oolong is in")
        answer = await index.search("peanuts", MAIN)
        assert len(answer.hits) == 6
        await index.sync("test")
        assert await search(index, "oolong") == ["memory/new.md"]
        await index.sync("test")
        assert (await index.search("peanuts number 7", MAIN)).mode == "vector+keyword"
        await healthy(index)


async def test_a_search_that_finds_the_index_damaged_has_it_built_again(folder):
    folder.write("memory/a.md", "peanuts are out")
    async with folder.index() as index:
        for beside in folder.files.glob("index.db*"):
            beside.write_bytes(b"garbage " * 2_000)
        answer = await index.search("peanuts", MAIN)
        assert found(answer) == ["memory/a.md"]
        assert answer.mode == "keyword"
        assert answer.degraded  # that it is rebuilt, or is being built: who looks first is chance
        async with asyncio.timeout(60):  # another reader may find the same damage once more
            while (answer := await index.search("peanuts", MAIN)).degraded:
                assert found(answer) == ["memory/a.md"]
                await index.sync("test")
        await healthy(index)


@pytest.mark.proof
async def test_forgetting_mends_an_index_that_turns_out_damaged_only_then(folder):
    for number in range(200):
        folder.write(
            f"memory/{number}.md", f"peanuts number {number}, and {number} more words\n" * 200
        )
    async with folder.index() as index:
        await index.add_documents([Document("talk:ada", "s1", "a canary was said", 1)])
        await index.forget(texts=["peanuts number 7,"], partitions=MAIN)  # all is in the file now
        with folder.live.open("r+b") as file:
            file.seek(folder.live.stat().st_size // 2)
            file.write(b"\x07" * folder.live.stat().st_size)
        (folder.workspace / "memory" / "8.md").unlink()
        await index.forget(texts=["peanuts number 8,"], partitions=MAIN)
        assert "memory/8.md" not in await search(index, "peanuts number 8")
        assert "memory/9.md" in await search(index, "peanuts number 9")
        await index.add_documents([Document("talk:ada", "s2", "a heron was said", 1)])
        assert found(await index.search("heron", ("talk:ada",))) == ["s2"]
        await healthy(index)


@pytest.mark.parametrize("keep", [0, 1, 100, 4_096, 9_999])
async def test_an_index_cut_off_between_two_starts_is_built_again(folder, keep):
    folder.write("memory/a.md", "peanuts are out\n" * 300)
    async with folder.index():
        pass
    os.truncate(folder.live, keep)
    async with folder.index() as index:
        assert await search(index, "peanuts") == ["memory/a.md"]
        await healthy(index)


@pytest.mark.parametrize(
    "table",
    [
        *("index", "partitions", "sources", "chunks", "chunks_source"),
        *("chunks_text_data", "chunks_text_config"),
    ],
)
async def test_an_index_with_one_damaged_table_is_built_again_after_a_start(folder, table):
    folder.write("memory/a.md", "peanuts are out\n" * 300)
    async with folder.index():
        pass
    connection = apsw.Connection(str(folder.live))
    sql = "SELECT rootpage, page_size FROM sqlite_schema, pragma_page_size WHERE name = ?"
    ((page, size),) = connection.execute(sql, (f"memory_{table}",))
    connection.close()
    with folder.live.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x07" * size)
    folder.write("memory/b.md", "oolong is in")
    async with folder.index() as index:
        assert await search(index, "oolong") == ["memory/b.md"]
        await index.forget(texts=["oolong"], partitions=MAIN)
        assert await search(index, "peanuts") == ["memory/a.md"]
        await healthy(index)


async def test_an_index_locked_by_another_program_is_searched_and_told(folder, monkeypatch):
    monkeypatch.setattr("bot.memory.index.queries.BUSY_TIMEOUT_MS", 20)
    folder.write("memory/a.md", "peanuts are out")
    async with folder.index() as index:
        with locked(folder.live):
            folder.write("memory/b.md", "oolong is in")
            await index.sync("test")
            assert await search(index, "peanuts") == ["memory/a.md"]
            assert any("another program" in why for why in (await index.status()).degraded)
            with pytest.raises(StorageError, match="another program"):
                await index.add_documents([Document("talk:ada", "s1", "canary", 1)])
        await index.sync("test")
        assert await search(index, "oolong") == ["memory/b.md"]
        await healthy(index)


async def test_the_folder_of_the_index_being_a_file_costs_meaning_and_not_the_words(folder):
    folder.write("memory/a.md", "peanuts are out")
    folder.files.write_text("in the way")
    async with folder.index() as index:
        answer = await index.search("peanuts", MAIN)
        assert (found(answer), answer.mode) == (["memory/a.md"], "keyword")
        assert (await index.status()).degraded
        folder.files.unlink()
        await index.sync("test")
        assert (await index.search("peanuts", MAIN)).mode == "vector+keyword"
        await healthy(index)


async def test_a_full_disk_keeps_what_is_there_and_takes_the_rest_later(tmp_path, folder):
    folder.write("memory/a.md", "peanuts are out")
    with faulty_disk(tmp_path) as disk:
        async with folder.index() as index:
            disk.full = True
            folder.write("memory/b.md", "oolong is in")
            await index.sync("test")
            assert disk.refused
            assert await search(index, "peanuts") == ["memory/a.md"]
            assert any("the disk is full" in why for why in (await index.status()).degraded)
            with pytest.raises(StorageError, match="disk is full"):
                await index.add_documents([Document("talk:ada", "s1", "canary", 1)])
            disk.full = False
            await index.sync("test")
            assert await search(index, "oolong") == ["memory/b.md"]
            await healthy(index)


async def test_an_index_that_was_searched_closes_though_the_disk_is_full(tmp_path, folder):
    folder.write("memory/a.md", "peanuts are out")
    with faulty_disk(tmp_path) as disk:
        async with folder.index() as index:
            assert await search(index, "peanuts") == ["memory/a.md"]
            folder.write("memory/b.md", "oolong is in")
            await index.sync("test")  # what only the log beside the file has yet
            disk.full = True
        assert disk.refused


async def test_a_note_is_in_the_index_whole_or_as_it_was_before(folder, monkeypatch):
    """The reference system inserted outside a transaction."""
    long = "\n".join(f"peanuts number {number} and some more words" for number in range(300))
    folder.write("memory/a.md", long)
    putting, left = FileStore._put_chunk, 3

    def fills_up(store, place, passage, packed):
        nonlocal left
        left -= 1
        if left <= 0:
            raise apsw.FullError
        return putting(store, place, passage, packed)

    async with folder.index() as index:
        before = await index.status()
        assert before.chunks > 3
        folder.write("memory/a.md", long.replace("peanuts", "oolong"))
        with monkeypatch.context() as patch:
            patch.setattr(FileStore, "_put_chunk", fills_up)
            await index.sync("test")
            assert left <= 0
            after = await index.status()
            assert (after.files, after.chunks, after.vectors) == (1, before.chunks, before.vectors)
            snippet = (await index.search("peanuts 299", MAIN, 1)).hits[0].snippet
            assert "oolong" not in snippet
        await healthy(index)
        assert "oolong" in (await index.search("oolong 299", MAIN, 1)).hits[0].snippet


async def test_a_disk_that_is_full_from_the_start_still_finds_words(tmp_path, folder):
    folder.write("memory/a.md", "peanuts are out")
    with faulty_disk(tmp_path) as disk:
        disk.full = True
        async with folder.index() as index:
            answer = await index.search("peanuts", MAIN)
            assert (found(answer), answer.mode) == (["memory/a.md"], "keyword")
            assert any("the disk is full" in why for why in (await index.status()).degraded)
            disk.full = False
            await healthy(index)
            assert (await index.search("peanuts", MAIN)).mode == "vector+keyword"


# --- the embedder --------------------------------------------------------------------------------


async def test_words_are_kept_when_the_querys_vector_fails(folder):
    """The reference system threw the keyword hits away."""
    folder.write("memory/a.md", "peanuts at the café")
    folder.write("memory/家.md", "女儿对花生过敏")
    embedder = HashEmbedder()
    async with folder.index(embedder) as index:
        embedder.reason = "the server is gone"
        for query, path in (
            ("café", "memory/a.md"),
            ("cafe", "memory/a.md"),
            ("花生", "memory/家.md"),
        ):
            answer = await index.search(query, MAIN)
            assert found(answer) == [path]
            assert answer.mode == "keyword"
            assert any("the server is gone" in why for why in answer.degraded)
        assert any("the server is gone" in why for why in (await index.status()).degraded)
        embedder.reason = ""
        assert (await index.search("peanuts", MAIN)).mode == "vector+keyword"
        await healthy(index)


async def test_an_embedder_that_raises_anything_costs_no_words(folder):
    class Odd(HashEmbedder):
        async def embed(self, texts):
            raise ZeroDivisionError

    folder.write("memory/a.md", "peanuts are out")
    async with folder.index(Odd()) as index:
        answer = await index.search("peanuts", MAIN)
        assert found(answer) == ["memory/a.md"]
        assert any("ZeroDivisionError" in why for why in (await index.status()).degraded)


async def test_a_note_is_found_by_its_words_while_the_embedder_takes_its_time(folder, monkeypatch):
    monkeypatch.setattr("bot.memory.index.writer.PATIENCE", 0.01)
    folder.write("memory/a.md", "peanuts are out")
    embedder = HashEmbedder()
    async with folder.index(embedder, search_timeout=0.5) as index:
        embedder.gate = asyncio.Event()
        embedder.started.clear()
        folder.write("memory/b.md", "oolong is in")
        syncing = asyncio.create_task(index.sync("test"))
        await embedder.started.wait()
        async with asyncio.timeout(60):
            while (answer := await index.search("oolong", MAIN)).hits == ():  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert found(answer) == ["memory/b.md"]
        assert any("did not answer in time" in why for why in answer.degraded)
        assert any("did not answer in time" in why for why in (await index.status()).degraded)
        embedder.gate.set()
        await syncing
        assert (await index.status()).vectors == 2
        await index.search("oolong", MAIN)
        await healthy(index)


async def test_closing_does_not_wait_for_an_embedder_and_loses_nothing(folder):
    folder.write("memory/a.md", "peanuts are out")
    embedder = HashEmbedder(gate=asyncio.Event())
    index = MemoryIndex.in_folder(
        settings_of(memory={"watch": False}),
        FolderNotes(folder.workspace),
        folder.files,
        embedder,
        FakeClock(),
    )
    await index.start()
    waiting = asyncio.create_task(index.sync("test"))
    await embedder.started.wait()
    async with asyncio.timeout(60):
        await index.close()
        await waiting  # nobody who waits for a sync is cancelled with it
    async with folder.index() as again:
        assert await search(again, "peanuts") == ["memory/a.md"]
        await healthy(again)


async def test_searches_find_every_note_while_another_embedder_makes_its_vectors(folder):
    """The reference system showed the half of it that was there."""
    for number in range(20):
        folder.write(f"memory/{number}.md", f"peanuts n{number}\n")
    async with folder.index():
        pass
    embedder = HashEmbedder(model="another")
    async with folder.index() as index:
        for part in (index, index._searches, index._writer.rows, index._writer):
            part._embedder = embedder
        embedder.gate = asyncio.Event()
        rebuilding = asyncio.create_task(index.sync("test"))
        await embedder.started.wait()
        assert (await index.status()).vectors == 0
        for number in range(20):
            answer = await index._searches.run(
                lambda n=number: index._searches._answer(_request(f"n{n}"), [])
            )
            assert found(answer) == [f"memory/{number}.md"]
        assert (await index.status()).chunks == 20
        embedder.gate.set()
        await rebuilding
        assert (await index.search("n7", MAIN)).mode == "vector+keyword"
        assert found(await index.search("n7", MAIN))[0] == "memory/7.md"
        await healthy(index)


def _request(query: str) -> Request:
    return Request(query, MAIN, 6, None, date(2026, 11, 21), float("inf"))


async def test_another_dimension_while_running_is_never_compared_and_all_vectors_are_made_again(
    folder, monkeypatch
):
    """The reference system compared the vectors cut short."""
    monkeypatch.setattr("bot.memory.index.service.REST", float("inf"))  # no sync before a search
    folder.write("memory/a.md", "peanuts are out")
    folder.write("memory/b.md", "oolong is in")
    embedder = HashEmbedder(dims=64)
    async with folder.index(embedder) as index:
        await index.add_documents([Document("talk:ada", "s1", "a canary was said", 1)])
        embedder.dims = 48
        answer = await index.search("peanuts", MAIN)
        assert found(answer) == ["memory/a.md"]
        assert answer.mode == "keyword"
        assert any("48 dimensions now" in why for why in answer.degraded)
        await healthy(index)
        status = await index.status()
        assert (status.dims, status.vectors) == (48, 3)
        answer = await index.search("peanuts", MAIN)
        assert (found(answer)[0], answer.mode) == ("memory/a.md", "vector+keyword")
        assert found(await index.search("canary", ("talk:ada",))) == ["s1"]


async def test_vectors_that_were_made_are_not_asked_for_again_by_a_rebuild(folder):
    folder.write("memory/a.md", "peanuts are out")
    async with folder.index():
        pass
    folder.live.unlink()
    embedder = HashEmbedder()
    async with folder.index(embedder) as index:
        assert embedder.asked == []
        assert (await index.status()).vectors == 1


@pytest.mark.parametrize("what", [b"garbage " * 2_000, b""])
async def test_a_damaged_cache_is_an_empty_one(folder, what):
    folder.write("memory/a.md", "peanuts are out")
    async with folder.index():
        pass
    (folder.files / "embeddings.db").write_bytes(what)
    folder.live.unlink()
    async with folder.index() as index:
        assert (await index.status()).vectors == 1
        await healthy(index)


# --- notes ---------------------------------------------------------------------------------------


async def test_a_note_that_cannot_be_read_is_named_and_stops_no_other(folder, monkeypatch):
    folder.write("memory/a.md", "peanuts are out")
    folder.write("memory/b.md", "oolong is in")
    real = FolderNotes.read

    def refused(store, path, limit):
        if path == "memory/a.md":
            raise PermissionError(13, "Permission denied")
        return real(store, path, limit)

    with monkeypatch.context() as patch:
        patch.setattr(FolderNotes, "read", refused)
        async with folder.index() as index:
            assert await search(index, "oolong") == ["memory/b.md"]
            assert (await index.status()).problems == {"memory/a.md": "Permission denied"}
            patch.undo()
            await index.sync("test")
            assert await search(index, "peanuts") == ["memory/a.md"]
            assert (await index.status()).problems == {}


async def test_a_folder_that_cannot_be_looked_into_is_told_and_its_notes_are_kept(
    folder, monkeypatch
):
    folder.write("memory/a.md", "peanuts are out")
    folder.write("memory/secret-place/b.md", "oolong is in")
    opening = os.open

    def refused(path, flags, mode=0o777, *, dir_fd=None):
        if path == "secret-place":
            raise PermissionError(13, "Permission denied")
        return opening(path, flags, mode, dir_fd=dir_fd)

    async with folder.index() as index:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refused)
            folder.write("memory/a.md", "canaries are out")
            await index.sync("test")
            assert await search(index, "canaries") == ["memory/a.md"]
            assert await search(index, "oolong") == ["memory/secret-place/b.md"]
            assert (await index.status()).degraded == (
                "folders of notes cannot be read: 1, Permission denied",
            )
        await healthy(index)
        (folder.workspace / "memory" / "secret-place" / "b.md").unlink()
        await index.sync("test")
        assert await search(index, "oolong") == []


async def test_a_folder_in_the_place_of_a_note_and_the_other_way_round(folder):
    folder.write("memory/a.md", "peanuts are out")
    folder.write("memory/deep/b.md", "oolong is in")
    async with folder.index() as index:
        (folder.workspace / "memory" / "a.md").unlink()
        folder.write("memory/a.md/c.md", "canary")
        (folder.workspace / "memory" / "deep" / "b.md").unlink()
        (folder.workspace / "memory" / "deep").rmdir()
        folder.write("memory/deep", "a file now")
        await index.sync("test")
        assert await search(index, "peanuts oolong canary") == []
        await healthy(index)


async def test_a_note_that_is_not_utf8_is_found_as_well_as_it_can_be_and_named(folder):
    folder.write("memory/latin.md", b"caf\xe9 in Lyon\n")
    folder.write("memory/wide.md", "peanuts".encode("utf-16"))
    folder.write("memory/chinese.md", "女儿对花生过敏".encode("gb18030"))
    folder.write("memory/zeros.md", b"oolong\x00\x00tea\n")
    async with folder.index() as index:
        assert await search(index, "Lyon") == ["memory/latin.md"]
        assert await search(index, "peanuts") == ["memory/wide.md"]
        assert await search(index, "花生") == ["memory/chinese.md"]
        assert await search(index, "oolong") == ["memory/zeros.md"]
        assert set((await index.status()).problems) == {
            f"memory/{name}.md" for name in ("latin", "wide", "chinese")
        }


async def test_a_western_note_is_not_read_as_chinese(folder):
    folder.write("memory/a.md", "Grüße aus der Straße, viel Spaß\n".encode("cp1252"))
    async with folder.index() as index:
        assert await search(index, "Grüße Straße") == ["memory/a.md"]


@pytest.mark.parametrize(
    "name",
    [
        "a.sync-conflict-20260101-120000-ABCDEFG.md",
        "a (conflicted copy 2026-01-01).md",
        "a (Ada's conflicted copy).md",
    ],
)
async def test_a_conflict_copy_is_named_and_is_no_note(folder, name):
    folder.write("memory/a.md", "peanuts are out")
    folder.write(f"memory/{name}", "peanuts are in again")
    async with folder.index() as index:
        assert await search(index, "peanuts") == ["memory/a.md"]
        (why,) = (await index.status()).problems.values()
        assert why.startswith("a conflict copy")


async def test_what_git_could_not_merge_is_found_and_named(folder):
    folder.write("memory/a.md", "<<<<<<< HEAD\npeanuts\n=======\noolong\n>>>>>>> theirs\n")
    async with folder.index() as index:
        assert await search(index, "peanuts") == await search(index, "oolong") == ["memory/a.md"]
        assert "two versions" in (await index.status()).problems["memory/a.md"]


async def test_a_note_of_50_mb_is_named_and_takes_nothing_from_the_others(folder):
    folder.write("memory/a.md", "peanuts are out")
    huge = folder.write("memory/huge.md", "")
    os.truncate(huge, 50_000_000)
    async with folder.index() as index:
        assert await search(index, "peanuts") == ["memory/a.md"]
        (why,) = (await index.status()).problems.values()
        assert why == "too long: 50 MB of at most 8 MB"
        huge.write_text("oolong is in")
        await index.sync("test")
        assert await search(index, "oolong") == ["memory/huge.md"]
        assert (await index.status()).problems == {}


async def test_a_note_changed_while_it_is_read_is_read_again_by_the_next_search(
    folder, monkeypatch
):
    folder.write("memory/a.md", "peanuts are out")
    note = folder.write("memory/b.md", "the old words")
    fstat, writing = os.fstat, True

    def meanwhile(descriptor):
        nonlocal writing
        seen = fstat(descriptor)
        if writing and seen.st_ino == note.stat().st_ino:
            writing = False
            note.write_text("entirely different words")
        return seen

    async with folder.index() as index:
        note.write_text("being written")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", meanwhile)
            await index.sync("test")
        assert not writing
        assert await search(index, "peanuts") == ["memory/a.md"]
        assert await search(index, "different") == ["memory/b.md"]


# --- through the whole engine --------------------------------------------------------------------


@asynccontextmanager
async def served(folder: Path, *, is_indexed: bool = False, **memory: Any) -> AsyncIterator[Engine]:
    """A running engine; with `is_indexed` its index knew every note before the start."""
    config, plugins = make_config(folder, dashboard={"port": 0}, memory=memory)
    channel, clock, model = InMemoryChannel(), FakeClock(), ScriptedModel()
    parts = Parts(clock=clock, remote=model, channels={"memory": channel})
    if is_indexed:
        known = Memory.from_settings(Settings(config), clock)
        await known.index.sync("test")
        await known.close()
    async with App(config, plugins, parts) as app:
        yield Engine(app, channel, model, clock, folder)


async def told(engine: Engine) -> tuple[str, str]:
    """What `/memory` and /readyz say."""
    assert engine.app.address is not None
    url = engine.app.address.url.split("?")[0].rstrip("/")
    async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as response:
        checks = (await response.json())["checks"]
        assert response.status == 200  # it still answers
    found = [checks[name] for name in ("memory", "notes") if name in checks]
    for check in found:
        assert (check["state"] == "degraded") == bool(check["detail"])
    said = "; ".join(check["detail"] for check in found if check["detail"])
    return await engine.ask("/memory"), said


async def searched(engine: Engine) -> str:
    return await engine.ask("/memory search peanuts")


def furnish(folder: Path) -> None:
    note = folder / "workspace" / ADA / "memory" / "a.md"
    write_file(note, "- The daughter is allergic to peanuts\n")


def remote_to(api: embeddings_api.EmbeddingsApi, **options: Any) -> dict[str, Any]:
    return {"provider": "openai", "model": "m", "base_url": api.base_url, **options}


async def test_the_engine_says_that_the_embedding_server_fails_and_when_it_is_back(tmp_path):
    furnish(tmp_path)
    async with embeddings_api.running(embeddings_api.status(401)) as api:
        async with served(tmp_path, embedder=remote_to(api, api_key="sk-canary")) as engine:
            answer = await searched(engine)
            assert "allergic to peanuts" in answer
            assert "by words only" in answer
            for words in await told(engine):
                assert "the server answered 401" in words
                assert "sk-canary" not in words
            assert await engine.ask("hello") == "You said: hello"
        api.answers = []
        async with served(tmp_path, is_indexed=True, embedder=remote_to(api)) as engine:
            assert "allergic to peanuts" in await searched(engine)
            assert "401" not in "".join(await told(engine))


async def test_the_engine_answers_while_the_embedding_server_hangs_and_ends_in_time(tmp_path):
    furnish(tmp_path)
    async with embeddings_api.running(embeddings_api.never) as api:
        memory = {"embedder": remote_to(api), "search_timeout": 2.0, "recall_timeout": 2.0}
        async with asyncio.timeout(30):
            async with served(tmp_path, **memory) as engine:
                await api.asked.wait()
                assert "allergic to peanuts" in await searched(engine)
                for words in await told(engine):
                    assert "did not answer in time" in words
                assert await engine.ask("hello") == "You said: hello"


async def test_the_engine_names_a_note_that_is_too_long_to_its_owner_only(tmp_path):
    furnish(tmp_path)
    os.truncate(tmp_path / "workspace" / ADA / "memory" / "a.md", 50_000_000)
    async with served(tmp_path, is_indexed=True) as engine:
        async with asyncio.timeout(60):
            while not (found := await told(engine))[1]:  # it has just started, and looks soon
                await pause(0.02)
        chat, ready = found
        assert "memory/a.md: too long: 50 MB of at most 8 MB" in chat
        assert "1 note has a problem (1: too long: 50 MB" in ready
        assert "a.md" not in ready


async def trouble(engine: Engine, words: str) -> None:
    """Wait until both say it; searches go on meanwhile, and find what they did."""
    async with asyncio.timeout(60):
        while True:
            assert "allergic to peanuts" in await searched(engine)
            if all(words in each for each in await told(engine)):
                return
            await pause(0.02)


async def recovery(engine: Engine) -> None:
    """Wait until both say that nothing is in trouble."""
    async with asyncio.timeout(60):
        while (await told(engine))[1]:
            assert "allergic to peanuts" in await searched(engine)
            await pause(0.02)
    assert "Problem: " not in await engine.ask("/memory")


@pytest.fixture
def _restless(monkeypatch):
    """Every search asks for a sync, and a locked file is not waited for."""
    monkeypatch.setattr("bot.memory.index.service.REST", 0.0)
    monkeypatch.setattr("bot.memory.index.queries.BUSY_TIMEOUT_MS", 20)


@pytest.mark.usefixtures("_restless")
async def test_forgetting_says_that_the_index_follows_when_it_is_locked(tmp_path):
    furnish(tmp_path)
    async with served(tmp_path, is_indexed=True) as engine:
        await recovery(engine)
        with locked(Folder(tmp_path).live):
            await engine.ask("/memory forget peanuts")
            done = await engine.ask("/memory forget yes")
            assert "index: I can't write to it right now" in done
            assert "memory/a.md: 1" in done
        async with asyncio.timeout(60):
            while "allergic" in await engine.ask("/memory search peanuts"):
                await pause(0.02)
            while (await told(engine))[1]:
                await pause(0.02)
