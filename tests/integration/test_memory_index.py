"""The memory index over real files: what is found, what is not, and what a broken part costs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import apsw
import numpy as np
import pytest
from aiohttp import web

from bot.config import EmbedderConfig, MemoryConfig
from bot.errors import EmbedderError
from bot.memory.embed import NoEmbedder
from bot.memory.embed.glosses import Glosses
from bot.memory.embed.local import LocalEmbedder
from bot.memory.embed.remote import RemoteEmbedder
from bot.memory.folder_notes import FolderNotes
from bot.memory.index import Document, MemoryIndex
from tests.fakes import embeddings_api
from tests.support import FakeClock

MAIN = ("main", "shared")
PRIVATE = (*MAIN, "main#private")


class FailingEmbedder(LocalEmbedder):
    """An embedder whose server is gone."""

    async def embed(self, texts):
        raise EmbedderError("the server is gone")


class NarrowEmbedder(LocalEmbedder):
    """The same model, cut to fewer dimensions: another identity."""

    def __init__(self) -> None:
        super().__init__()
        self.model = "narrow"

    async def embed(self, texts):
        rows = (await super().embed(texts))[:, :64]
        return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)).astype(
            np.float32
        )


@asynccontextmanager
async def index_of(tmp_path, embedder=None, **config):
    options = {"watch": False, **config}
    memory = MemoryIndex.in_folder(
        MemoryConfig.model_validate(options),
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
        file = tmp_path / "workspace" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    return write


def paths(answer) -> list[str]:
    return [hit.path for hit in answer.hits]


async def test_words_are_found_in_every_script_with_where_they_stand(tmp_path, note):
    note("memory/tea.md", "# Tea\n\nAda likes oolong at the café\n")
    note("memory/家.md", "# 家\n\n女儿对花生过敏\n")
    async with index_of(tmp_path) as index:
        for query in ("oolong", "Oolong?", "cafe", "café"):
            assert paths(await index.search(query, MAIN))[0] == "memory/tea.md"
        for query in ("花生", "过敏", "女儿对什么过敏？"):
            assert paths(await index.search(query, MAIN))[0] == "memory/家.md"
        hit = (await index.search("oolong", MAIN)).hits[0]
        assert hit.start_line <= 3 <= hit.end_line
        assert "oolong" in hit.snippet
        assert len(hit.snippet) <= 700


async def test_meaning_finds_other_words_without_a_key(tmp_path, note):
    note("memory/health.md", "My daughter is allergic to peanuts\n")
    note("memory/car.md", "The car is in the garage for new brakes\n")
    async with index_of(tmp_path, LocalEmbedder()) as index:
        answer = await index.search("which nuts can my child not eat", MAIN)
        assert answer.mode == "vector+keyword"
        assert paths(answer)[0] == "memory/health.md"


async def test_what_others_wrote_changes_nothing_of_what_is_found(tmp_path, note):
    lines = [f"The {word} is in the harbour\n" for word in ("ferry", "yacht", "canoe", "liner")]
    for number, line in enumerate(lines):
        note(f"memory/{number}.md", line)
    asked = ("where is the ferry", "the harbour", "which boat is it", "canoe or liner")

    async def answers(index):
        return [await index.search(query, MAIN) for query in asked]

    async with index_of(tmp_path, LocalEmbedder()) as index:
        before = await answers(index)  # there is nothing else to look at
        for number, line in enumerate(lines):
            note(f"people/eve/memory/{number}.md", line * 3)
        await index.sync("test")
        assert await answers(index) == before
        # Nor is it found where it is not counted any more.
        connection = apsw.Connection(str(tmp_path / "index" / "index.db"))
        tables = [
            str(name)
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_schema WHERE name GLOB 'partitions_[0-9]*'"
            )
        ]
        for table in tables:
            connection.execute(f"UPDATE {table} SET chunks = 0 WHERE name = 'people/eve'")
        connection.close()
        found = [hit for answer in await answers(index) for hit in answer.hits]
        assert len(found) > 0
        assert {hit.space for hit in found} == {"main"}


async def test_private_files_and_other_spaces_need_their_own_partition(tmp_path, note):
    note("MEMORY.md", "The canary is blue\n")
    note("people/eve/memory/x.md", "The canary is green\n")
    note("shared/all.md", "The canary is public\n")
    note("AGENTS.md", "The canary is a persona\n")
    async with index_of(tmp_path) as index:
        assert paths(await index.search("canary", ("main",))) == []
        assert paths(await index.search("canary", MAIN)) == ["all.md"]
        private = await index.search("canary", PRIVATE)
        assert sorted(hit.snippet.strip() for hit in private.hits) == [
            "The canary is blue",
            "The canary is public",
        ]
        assert (await index.search("canary", ())).hits == ()


async def test_an_edit_and_a_deletion_are_noticed_by_the_next_search(tmp_path, note):
    note("memory/a.md", "the old words\n")
    async with index_of(tmp_path) as index:
        note("memory/a.md", "entirely different\n")
        index.noticed()
        assert paths(await index.search("different", MAIN)) == ["memory/a.md"]
        assert paths(await index.search("old", MAIN)) == []
        (tmp_path / "workspace" / "memory" / "a.md").unlink()
        await index.sync("test")
        assert paths(await index.search("different", MAIN)) == []


async def test_a_watched_file_is_indexed_by_itself(tmp_path, note, monkeypatch):
    monkeypatch.setattr("bot.memory.index.service.DEBOUNCE", 0.01)
    note("memory/a.md", "first\n")
    async with index_of(tmp_path, watch=True) as index:
        note("memory/b.md", "second thoughts\n")
        async with asyncio.timeout(60):
            while not paths(await index.search("thoughts", MAIN)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_a_deleted_index_comes_back(tmp_path, note):
    note("memory/a.md", "still here\n")
    async with index_of(tmp_path):
        pass
    for file in (tmp_path / "index").rglob("*"):
        if file.is_file():
            file.unlink()
    async with index_of(tmp_path) as index:
        assert paths(await index.search("still", MAIN)) == ["memory/a.md"]


async def test_a_truncated_index_is_built_again(tmp_path, note):
    note("memory/a.md", "still here\n")
    async with index_of(tmp_path):
        pass
    for file in (tmp_path / "index").rglob("*.db"):
        file.write_bytes(b"not a database at all" * 50)
    async with index_of(tmp_path) as index:
        assert paths(await index.search("still", MAIN)) == ["memory/a.md"]


async def test_a_failing_embedder_costs_the_meaning_and_not_the_words(tmp_path, note):
    note("memory/a.md", "peanuts are out\n")
    async with index_of(tmp_path, FailingEmbedder()) as index:
        answer = await index.search("peanuts", MAIN)
        assert paths(answer) == ["memory/a.md"]
        assert any("the server is gone" in why for why in answer.degraded)
        assert any("the server is gone" in why for why in (await index.status()).degraded)


async def test_another_embedder_means_another_index_and_no_mixed_vectors(tmp_path, note):
    note("memory/a.md", "peanuts are out\n")
    async with index_of(tmp_path, LocalEmbedder()) as index:
        assert (await index.status()).dims == 256
    async with index_of(tmp_path, NarrowEmbedder()) as index:
        answer = await index.search("nuts", MAIN)
        assert paths(answer) == ["memory/a.md"]
        assert (await index.status()).dims == 64


async def test_without_sqlite_vec_vectors_are_compared_in_memory(tmp_path, note, monkeypatch):
    note("memory/a.md", "My daughter is allergic to peanuts\n")

    def missing(_connection) -> None:
        raise ImportError("no sqlite-vec here")

    memory = MemoryIndex.in_folder(
        MemoryConfig(watch=False),
        FolderNotes(tmp_path / "workspace"),
        tmp_path / "index",
        LocalEmbedder(),
        FakeClock(),
        extension=missing,
    )
    await memory.start()
    await memory.sync("test")
    try:
        assert not (await memory.probe_vectors()).ok
        answer = await memory.search("which nuts can my child not eat", MAIN)
        assert paths(answer) == ["memory/a.md"]
    finally:
        await memory.close()


async def test_what_was_said_is_found_within_its_partition_only(tmp_path, note):
    async with index_of(tmp_path) as index:
        said = [Document("talk:ada", "s.1", "my canary is blue", 1)]
        await index.add_documents(said)
        assert [hit.path for hit in (await index.search("canary", ("talk:ada",))).hits] == ["s.1"]
        assert (await index.search("canary", ("talk:eve",))).hits == ()
        assert await index.document_ids() == {("talk:ada", "s.1")}
        await index.remove_documents([("talk:ada", "s.1")])
        assert (await index.search("canary", ("talk:ada",))).hits == ()


async def test_odd_files_are_told_and_stop_nothing(tmp_path, note):
    note("memory/good.md", "findable words\n")
    (tmp_path / "workspace" / "memory" / "latin.md").write_bytes(b"caf\xe9 latin words\n")
    (tmp_path / "workspace" / "memory" / "link.md").symlink_to("/etc/hostname")
    async with index_of(tmp_path) as index:
        assert paths(await index.search("findable", MAIN)) == ["memory/good.md"]
        status = await index.status()
        assert all("link" not in path for path in status.spaces)


async def test_syncs_at_once_are_one_sync(tmp_path, note):
    note("memory/a.md", "words\n")
    async with index_of(tmp_path) as index:
        await asyncio.gather(*(index.sync("test") for _ in range(20)))
        assert paths(await index.search("words", MAIN)) == ["memory/a.md"]


async def test_what_was_removed_does_not_stand_in_the_way_of_what_is_there(tmp_path):
    def missing(connection):
        raise ImportError

    memory = MemoryIndex.in_folder(
        MemoryConfig(watch=False, text_weight=0.0),
        FolderNotes(tmp_path / "workspace"),
        tmp_path / "index",
        LocalEmbedder(),
        FakeClock(),
        extension=missing,  # signs are kept in memory, as those of many chunks are
    )
    await memory.start()
    said = "the cat sleeps on the sofa"
    gone = [Document("talk:ada", f"s.{n}", said, 1) for n in range(400)]
    try:
        await memory.add_documents([*gone, Document("talk:ada", "here", f"{said} today", 1)])
        for _ in range(4):  # every reader knows all of them
            await memory.search(said, ("talk:ada",))
        await memory.remove_documents([(each.partition, each.id) for each in gone])
        for _ in range(4):
            assert paths(await memory.search(said, ("talk:ada",))) == ["here"]
    finally:
        await memory.close()


@pytest.mark.parametrize("words", ["АЛЛЕРГИЯ на арахис", "аллергия  на\nарахис"])
async def test_what_is_forgotten_leaves_the_cache_too_however_it_is_written(tmp_path, note, words):
    note("memory/a.md", "У дочери Аллергия на арахис\n")
    note("memory/b.md", "другое\n")
    async with index_of(tmp_path, LocalEmbedder()) as index:
        forgotten = await index.forget(texts=[words], partitions=MAIN)
        assert (forgotten.chunks, forgotten.cached) == (1, 1)


async def test_a_search_goes_on_without_the_dictionary_when_that_cannot_be_read(
    tmp_path, note, monkeypatch
):
    note("memory/a.md", "The daughter is allergic to peanuts\n")
    async with index_of(tmp_path, LocalEmbedder()) as index:
        with monkeypatch.context() as broken:
            broken.setattr(Glosses, "installed", _no_dictionary)
            note("memory/b.md", "peanuts 花生过敏\n")
            await index.sync("test")
            answer = await index.search("peanuts", MAIN)
            assert set(paths(answer)) == {"memory/a.md", "memory/b.md"}
            assert answer.mode == "vector+keyword"


def _no_dictionary():
    raise FileNotFoundError("it is not installed")


# --- texts that the embedder refuses --------------------------------------------------------------


@asynccontextmanager
async def remote_index(tmp_path, api):
    config = {"provider": "openai", "model": "m", "base_url": api.base_url, "batch": 8}
    embedder = RemoteEmbedder(EmbedderConfig.model_validate(config))
    async with index_of(tmp_path, embedder) as index:
        yield index
    await embedder.close()


async def refusing(api, request):
    if any("forbidden" in text for text in api.inputs[-1]):
        return web.Response(status=400)
    return await embeddings_api.vectors(api, request)


async def test_one_text_that_is_refused_keeps_no_other_from_its_vector(tmp_path, note):
    for number in range(12):
        note(f"memory/n{number}.md", f"- harbour number {number}\n")
    note("memory/bad.md", "- a forbidden word\n")
    async with embeddings_api.running(refusing) as api:
        async with remote_index(tmp_path, api) as index:
            status = await index.status()
            assert status.problems == {
                "memory/bad.md": "the embedder refuses a part of it, which is found by its words "
                "alone"
            }
            assert status.degraded == ()
            found = await index.search("harbour number 7", MAIN, 3)
            assert found.mode == "vector+keyword"
            assert found.hits[0].path == "memory/n7.md"
            assert (await index.search("forbidden", MAIN, 3)).hits[0].path == "memory/bad.md"
            asked = [text for texts in api.inputs for text in texts]
            before = len(api.bodies)
            assert sum("forbidden" in text for text in asked) >= 1
            await index.sync("again")
            assert len(api.bodies) == before
            # It is not asked for again when everything is built anew either.
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


async def test_yesterday_is_that_of_the_time_zone(tmp_path, note):
    note("memory/2026-07-01.md", "- tea with Ada\n")
    note("memory/2026-07-02.md", "- tea with Bob\n")
    late = int(datetime(2026, 7, 2, 23, tzinfo=UTC).timestamp() * 1000)  # the 3rd in Shanghai
    for zone, day in ((UTC, "2026-07-01"), (ZoneInfo("Asia/Shanghai"), "2026-07-02")):
        memory = MemoryIndex.in_folder(
            MemoryConfig(watch=False),
            FolderNotes(tmp_path / "workspace"),
            tmp_path / "index",
            NoEmbedder(),
            lambda: late,
            zone=zone,
        )
        try:
            await memory.sync("test")
            found = await memory.search("tea yesterday", ["main"])
        finally:
            await memory.close()
        assert found.hits[0].path == f"memory/{day}.md"
        assert found.hits[0].why.by_date
