"""What the memory index promises, whether it is a file or rows that many nodes share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from aiohttp import web

from bot.config import EmbedderConfig, MemoryConfig
from bot.memory import chunking
from bot.memory.chunking import Passage
from bot.memory.embed import Embedder, NoEmbedder
from bot.memory.embed.multilingual import MultilingualEmbedder
from bot.memory.embed.remote import RemoteEmbedder
from bot.memory.index import Document, MemoryIndex
from bot.memory.note_store import FolderNotes, NoteStore
from bot.memory.row_notes import RowNotes
from bot.memory.search import Building, Findings
from bot.memory.vectors import Vectors
from bot.storage import Transaction
from bot.storage.postgres import PostgresDatabase
from bot.testing import HashEmbedder
from tests.fakes import embeddings_api
from tests.support import FakeClock, settings_of

MAIN = ("main", "shared")
PRIVATE = (*MAIN, "main#private")


class Deaf:
    """One node, which hears of no other."""

    is_shared = True

    def on(self, _topic: str, _hear: object) -> None:
        pass


@dataclass
class Home:
    """Notes, and indexes over them, as several programs have them."""

    notes: NoteStore
    folder: Path
    database: PostgresDatabase | None = None
    url: str = ""
    owns: bool = True
    made: list[MemoryIndex] = field(default_factory=list[MemoryIndex])

    async def write(self, path: str, text: str) -> None:
        await asyncio.to_thread(self.notes.rewrite, path, lambda _before: text.encode())

    async def remove(self, path: str) -> None:
        if self.database is None:
            (self.folder / "workspace" / path).unlink()
        else:
            sql = "DELETE FROM notes WHERE path = ?"
            await self.database.write(lambda tx: tx.execute(sql, (path,)))

    @asynccontextmanager
    async def index(
        self,
        embedder: Embedder | None = None,
        *,
        is_owner: bool = True,
        syncs: bool = True,
        versions: Any = None,
        **config: Any,
    ) -> AsyncIterator[MemoryIndex]:
        options = MemoryConfig.model_validate({"watch": False, **config})
        given = (embedder or NoEmbedder(), FakeClock())
        if self.database is None:
            index = MemoryIndex.in_folder(
                settings_of(memory=options),
                self.notes,
                self.folder / "index",
                *given,
                versions=versions,
            )
        else:
            index = MemoryIndex.shared(
                settings_of(memory=options),
                self.notes,
                self.database,
                *given,
                owns=lambda: is_owner,
                versions=versions,
            )
        await index.start()
        if syncs:
            await index.sync("test")
        try:
            yield index
        finally:
            await index.close()

    async def traces(self, words: str) -> list[str]:
        """Where the index still has some words."""
        if self.database is None:
            files = [path for path in (self.folder / "index").iterdir() if path.is_file()]
            return [path.name for path in files if words.encode() in path.read_bytes()]
        pattern = (f"%{words}%",)

        def work(tx: Transaction) -> list[str]:
            tables = ("memory_chunks", "memory_sources", "memory_partitions")
            sql = "SELECT 1 FROM {} AS each WHERE each::text LIKE ?"
            return [table for table in tables if tx.execute(sql.format(table), pattern)]

        return await self.database.read(work)


@pytest.fixture(params=["file", "rows"])
async def home(request, tmp_path):
    if request.param == "file":
        yield Home(FolderNotes(tmp_path / "workspace"), tmp_path)
        return
    url: str = request.getfixturevalue("postgres_url")
    database = await PostgresDatabase.open(url)
    notes = RowNotes(database, Deaf(), FakeClock())  # type: ignore[arg-type]
    yield Home(notes, tmp_path, database, url)
    await database.close()


def paths(answer: Findings) -> list[str]:
    return [hit.path for hit in answer.hits]


# --- searching ------------------------------------------------------------------------------------


async def test_words_are_found_in_every_script_with_where_they_stand(home):
    await home.write("memory/tea.md", "# Tea\n\nAda likes oolong at the café\n")
    await home.write("memory/家.md", "# 家\n\n女儿对花生过敏\n")
    async with home.index() as index:
        for query in ("oolong", "Oolong?", "cafe", "café", "OOLONG' | \\ 'x"):
            assert paths(await index.search(query, MAIN))[0] == "memory/tea.md"
        for query in ("花生", "过敏", "女儿对什么过敏？"):
            assert paths(await index.search(query, MAIN))[0] == "memory/家.md"
        hit = (await index.search("oolong", MAIN)).hits[0]
        assert hit.start_line <= 3 <= hit.end_line
        assert "oolong" in hit.snippet


async def test_meaning_finds_other_words_without_a_key(home, embedder_cache):
    await home.write("memory/health.md", "My daughter is allergic to peanuts\n")
    await home.write("memory/car.md", "The car is in the garage for new brakes\n")
    async with home.index(MultilingualEmbedder(embedder_cache)) as index:
        answer = await index.search("which nuts can my child not eat", MAIN)
        assert (answer.mode, answer.degraded) == ("vector+keyword", ())
        assert paths(answer)[0] == "memory/health.md"


@pytest.mark.parametrize("by_meaning", [False, True])
async def test_what_is_of_a_time_is_found_though_other_times_match_better(
    home, embedder_cache, *, by_meaning
):
    embedder = MultilingualEmbedder(embedder_cache) if by_meaning else NoEmbedder()
    for day in range(10, 30):
        await home.write(f"memory/2024-06-{day}.md", "- tea with Ada\n")
    wanted = "- whatever else, the kettle, biscuits and a cup of tea late at night\n"
    await home.write("memory/2025-05-10.md", wanted)
    async with home.index(embedder, max_results=2, candidate_multiplier=1) as index:
        assert "memory/2025-05-10.md" not in paths(await index.search("tea with Ada", MAIN))
        for question in ("tea with Ada in May 2025", "tea in 05/2025", "2025年春天 tea with Ada"):
            found = (await index.search(question, MAIN)).hits
            assert [each.path for each in found if each.why.by_date] == ["memory/2025-05-10.md"]


async def test_private_files_and_other_spaces_need_their_own_partition(home):
    await home.write("MEMORY.md", "The canary is blue\n")
    await home.write("people/eve/memory/x.md", "The canary is green\n")
    await home.write("shared/all.md", "The canary is public\n")
    await home.write("AGENTS.md", "The canary is a persona\n")
    for embedder in (NoEmbedder(), HashEmbedder()):
        async with home.index(embedder) as index:
            assert paths(await index.search("canary", ("main",))) == []
            assert paths(await index.search("canary", MAIN)) == ["all.md"]
            private = await index.search("canary", PRIVATE)
            assert sorted(hit.snippet.strip() for hit in private.hits) == [
                "The canary is blue",
                "The canary is public",
            ]
            assert (await index.search("canary", ())).hits == ()


async def test_what_others_wrote_changes_no_score(home):
    await home.write("memory/a.md", "The canary is blue\n\n## Other\n\nNothing to see\n")
    async with home.index() as index:
        before = await index.search("blue canary", MAIN)
        for number in range(20):
            await home.write(f"people/eve/memory/n{number}.md", "canary canary canary\n")
        await index.sync("test")
        assert await index.search("blue canary", MAIN) == before


async def test_an_edit_and_a_deletion_are_noticed_by_the_next_search(home, monkeypatch):
    monkeypatch.setattr("bot.memory.index.shared_rows.LOOK_AT_ALL", 0.0)
    await home.write("memory/a.md", "the old words\n")
    async with home.index() as index:
        await home.write("memory/a.md", "entirely different\n")
        index.noticed()
        assert paths(await index.search("different", MAIN)) == ["memory/a.md"]
        assert paths(await index.search("old", MAIN)) == []
        await home.remove("memory/a.md")
        await index.sync("test")
        assert paths(await index.search("different", MAIN)) == []
        assert (await index.status()).chunks == 0


async def test_long_words_and_odd_characters_stop_nothing(home):
    odd = "\x00 \u2028 \ufffe 'quoted' \\back\\ 🙂"
    await home.write("memory/a.md", f"{'x' * 5_000} {odd} findable\n{'repeated ' * 400}\n")
    async with home.index() as index:
        for query in ("findable", "repeated", "quoted"):
            assert paths(await index.search(query, MAIN))[:1] == ["memory/a.md"]
        assert (await index.status()).problems == {}


async def test_what_was_said_is_found_within_its_partition_only(home):
    async with home.index() as index:
        await index.add_documents([Document("talk:ada", "s.1", "my canary is blue", 1)])
        assert paths(await index.search("canary", ("talk:ada",))) == ["s.1"]
        assert (await index.search("canary", ("talk:eve",))).hits == ()
        assert await index.document_ids() == {("talk:ada", "s.1")}
        await index.remove_documents([("talk:ada", "s.1")])
        assert (await index.search("canary", ("talk:ada",))).hits == ()


# --- forgetting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["АЛЛЕРГИЯ на арахис", "аллергия  на\nарахис"])
async def test_what_is_forgotten_leaves_no_trace_however_it_is_written(home, words):
    await home.write("memory/a.md", "У дочери Аллергия на арахис\n")
    await home.write("memory/b.md", "другое\n")
    async with home.index(HashEmbedder()) as index:
        said = [Document("talk:ada", "s.1", "Аллергия на арахис", 1)]
        await index.add_documents(said)
        assert await home.traces("арахис")
        await home.write("memory/a.md", "")
        forgotten = await index.forget(texts=[words], partitions=(*MAIN, "talk:ada"))
        assert (forgotten.chunks, forgotten.documents, forgotten.cached) == (2, 1, 2)
        await index.sync("forget")
        assert await home.traces("арахис") == []
        assert "memory/a.md" not in paths(await index.search("арахис", MAIN))
        assert (await index.status()).chunks == 1


async def test_only_the_partitions_that_are_named_forget(home):
    await home.write("memory/a.md", "a canary\n")
    await home.write("people/eve/memory/a.md", "a canary\n")
    async with home.index() as index:
        assert (await index.forget(texts=["canary"], partitions=MAIN)).chunks == 1
        assert paths(await index.search("canary", ("people/eve",))) == ["memory/a.md"]
        assert (await index.forget(paths=["people/eve/memory/a.md"])).chunks == 1
        assert (await index.search("canary", ("people/eve",))).hits == ()


# --- what goes wrong ------------------------------------------------------------------------------


async def test_messages_that_are_shown_anyway_take_no_place(home):
    said = [Document("talk:ada", f"m{at}", "the kestrel nests in the tower") for at in range(40)]
    async with home.index() as index:
        await index.add_documents(said)
        shown = [document.id for document in said[:39]]
        found = await index.search("kestrel", ("talk:ada",), 1, without=shown)
        assert paths(found) == ["m39"]
        everything = [document.id for document in said]
        assert not (await index.search("kestrel", ("talk:ada",), 1, without=everything)).hits


class Counting(HashEmbedder):
    """Knows what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.asked += texts
        return await super().embed(texts)


async def test_a_message_that_was_searched_for_is_not_embedded_again(home):
    embedder = Counting()
    async with home.index(embedder) as index:
        await index.search("the kestrel nests in the tower", ("talk:ada",))
        texts = ("the kestrel nests in the tower", "an owl lives in the barn")
        await index.add_documents(
            Document("talk:ada", f"m{at}", text) for at, text in enumerate(texts)
        )
        assert [text for text in embedder.asked if text in texts] == list(texts)
        found = await index.search("the kestrel nests in the tower", ("talk:ada",))
        assert found.hits[0].path == "m0"
        assert found.hits[0].meaning > 0.99


async def test_a_failing_embedder_costs_the_meaning_and_not_the_words(home):
    await home.write("memory/a.md", "peanuts are out\n")
    async with home.index(HashEmbedder(reason="the server is gone")) as index:
        answer = await index.search("peanuts", MAIN)
        assert paths(answer) == ["memory/a.md"]
        assert any("the server is gone" in why for why in answer.degraded)
        assert any("the server is gone" in why for why in (await index.status()).degraded)
    async with home.index(HashEmbedder()) as index:  # it is back, with what it had not made
        assert (await index.search("nuts", MAIN)).mode == "vector+keyword"
        assert (await index.status()).degraded == ()


async def test_another_embedder_means_other_vectors_and_no_mixed_ones(home):
    await home.write("memory/a.md", "peanuts are out\n")
    async with home.index(HashEmbedder()) as index:
        await index.add_documents([Document("talk:ada", "s.1", "my canary is blue", 1)])
        assert (await index.status()).dims == 64
    async with home.index(HashEmbedder(dims=48, model="narrow")) as index:
        assert paths(await index.search("nuts", MAIN)) == ["memory/a.md"]
        assert (await index.status()).dims == 48
        # What was said keeps its place.
        assert paths(await index.search("canary", ("talk:ada",))) == ["s.1"]
        assert (await index.status()).vectors == 2


class Slow(HashEmbedder):
    """Answers so many times, and then not until the gate is open."""

    def __init__(self, model: str, answers: int) -> None:
        super().__init__(model=model)
        self.shut = asyncio.Event()
        self.left = answers

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.left -= 1
        if self.left < 0:
            self.gate = self.gate or asyncio.Event()
            self.shut.set()
        return await super().embed(texts)


async def test_words_and_what_is_made_already_are_found_while_vectors_are_made_again(
    home, monkeypatch
):
    monkeypatch.setattr("bot.memory.index.writer.GROUP", 2)
    for number in range(6):
        await home.write(f"memory/{number}.md", f"peanuts number n{number}\n")
    said = Document("talk:ada", "s.1", "my canary is blue", 1)
    async with home.index(HashEmbedder()) as index:
        await index.add_documents([said])
    another = Slow("another", answers=1)
    async with home.index(another, syncs=False, search_timeout=0.5) as index:
        await another.shut.wait()
        for number in range(6):
            answer = await index.search(f"n{number}", MAIN, 1)
            assert paths(answer) == [f"memory/{number}.md"]
            assert answer.degraded
        assert paths(await index.search("canary", ("talk:ada",))) == ["s.1"]
        status = await index.status()
        assert (status.files, status.documents, status.chunks) == (6, 1, 7)
        # No vector of the embedder before is left to be compared.
        assert status.vectors == 2
        assert another.gate is not None
        another.gate.set()
        await index.sync("test")
        answer = await index.search("n3", MAIN, 1)
        assert (answer.mode, answer.degraded) == ("vector+keyword", ())
        assert (await index.status()).vectors == 7


async def test_making_vectors_again_goes_on_where_it_was_interrupted(home, monkeypatch):
    monkeypatch.setattr("bot.memory.index.writer.GROUP", 2)
    for number in range(6):
        await home.write(f"memory/{number}.md", f"peanuts number {number}\n")
    async with home.index(HashEmbedder()):
        pass
    killed = Slow("another", answers=2)
    async with home.index(killed, syncs=False):
        await killed.shut.wait()
        await home.write("memory/new.md", "oolong\n")
    made = {text for texts in killed.asked[:2] for text in texts}
    again = HashEmbedder(model="another")
    async with home.index(again) as index:
        asked = {text for texts in again.asked for text in texts}
        assert (len(made), len(asked), made & asked) == (4, 3, set())
        assert (await index.status()).vectors == 7
        assert (await index.search("oolong", MAIN)).degraded == ()


async def test_the_embedder_of_before_is_not_asked_again_for_what_it_made(home):
    await home.write("memory/a.md", "peanuts are out\n")
    for model in ("one", "two"):
        async with home.index(HashEmbedder(model=model)) as index:
            await index.add_documents([Document("talk:ada", "s.1", "my canary is blue", 1)])
    once_more = HashEmbedder(model="one")
    async with home.index(once_more) as index:
        assert (await index.status()).vectors == 2
        assert once_more.asked == []


def cut_in(way: str, cut: Callable[..., list[Passage]]) -> Callable[..., list[Passage]]:
    """Cuts as another version of the program does, with some words above each passage."""

    def other(*given: Any) -> list[Passage]:
        return [
            replace(each, heading=way, windows=tuple(f"{way} {text}" for text in each.windows))
            for each in cut(*given)
        ]

    return other


async def test_what_was_cut_in_another_way_is_cut_again_and_found_meanwhile(home, monkeypatch):
    monkeypatch.setattr("bot.memory.index.writer.GROUP", 2)
    for number in range(4):
        await home.write(f"memory/{number}.md", f"peanuts number n{number}\n")
    said = [Document("talk:ada", f"s.{number}", f"canary n{number}", 1) for number in range(3)]
    async with home.index(HashEmbedder()) as index:
        await index.add_documents(said)
    for way in ("other words", "yet other words"):
        monkeypatch.setattr(chunking, "VERSION", chunking.VERSION + 1)
        for cut in ("of_note", "of_document"):
            monkeypatch.setattr(chunking, cut, cut_in(way, getattr(chunking, cut)))
        killed = Slow("hash", answers=1)
        async with home.index(killed, syncs=False, search_timeout=0.5) as index:
            await killed.shut.wait()
            for number in range(4):
                assert paths(await index.search(f"n{number}", MAIN, 1)) == [f"memory/{number}.md"]
                spoken = await index.search(f"n{number}", ("talk:ada",), 1)
                assert paths(spoken) == [f"s.{min(number, 2)}"] or number == 3
            told = (await index.status()).building
            assert told is not None
            assert told.done < told.total == 4
        async with home.index(HashEmbedder()) as index:
            for partitions, many in ((MAIN, 4), (("talk:ada",), 3)):
                assert len((await index.search(way, partitions, 9)).hits) == many
            status = await index.status()
            assert (status.building, status.chunks, status.vectors) == (None, 7, 7)


async def test_programs_with_different_embedders_mix_no_vectors(home, monkeypatch):
    monkeypatch.setattr("bot.memory.index.service.REST", float("inf"))  # no sync but ours
    await home.write("memory/a.md", "peanuts are out\n")
    async with home.index(HashEmbedder(model="one")) as one:
        async with home.index(HashEmbedder(model="two", dims=64)) as two:
            # The first has not noticed that the index is the other's now.
            await one.add_documents([Document("talk:ada", "s.1", "my canary is blue", 1)])
            answer = await one.search("canary", ("talk:ada",))
            assert (paths(answer), answer.mode) == (["s.1"], "keyword")
            assert any("embedder was changed" in why for why in answer.degraded)
            assert (await two.status()).vectors == 1
            await two.sync("test")
            assert (await two.status()).vectors == 2
            assert (await two.search("canary", ("talk:ada",))).mode == "vector+keyword"
        await one.sync("test")
        assert (await one.search("peanuts", MAIN)).mode == "vector+keyword"
        assert (await one.status()).vectors == 2


class Kept:
    """Takes what notes said before they were changed."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str, str, str]] = []

    async def numbers(self) -> dict[str, int]:
        return {}

    async def changed(self, space: str, path: str, text: str, _since: object, kind: str) -> None:
        self.texts.append((space, path, text, kind))


LONG = "word " * 1_000  # more than a chunk


@pytest.mark.parametrize(
    ("before", "after", "is_kept"),
    [
        ("# Tea\n\n- oolong\n\n\n- sencha\n", "# Tea\n\n- sencha\n", True),
        ("- one\r\n- two\r\n", "- two\r\n", True),
        ("no end", "another end", True),
        (f"- a\n{LONG}\n- b\n{LONG}x\n\n", "- a\n", True),
        ("\n".join(f"- line {n} of many" for n in range(900)), "- gone\n", True),
        ("- 茶\n- 花生\n", "- 茶\n", True),
        ("- one\n", "- one\n- two\n", False),  # nothing is taken away
        ("- one", "- one\n- two\n", False),
        ("- one\n", "- one more\n", True),
        ("- one\n   \n- two\r\n- three\n", "- two\n", False),  # not known to the last byte
    ],
)
async def test_what_a_note_said_before_others_changed_it_is_kept_to_the_last_byte(
    home, before, after, *, is_kept
):
    kept = Kept()
    await home.write("people/ada/memory/a.md", before)
    await home.write("people/ada/memory/b.md", "- stays\n")
    async with home.index(versions=kept) as index:
        assert kept.texts == []
        await home.write("people/ada/memory/a.md", after)
        await index.sync("test")
        wanted = [("people/ada", "memory/a.md", before, "hand")] if is_kept else []
        assert kept.texts == wanted
        await index.sync("test")
        assert kept.texts == wanted


@pytest.mark.parametrize("is_first", [True, False])
async def test_how_far_the_index_is_is_told(home, monkeypatch, *, is_first):
    monkeypatch.setattr("bot.memory.index.writer.GROUP", 2)
    for number in range(5):
        await home.write(f"memory/{number}.md", f"peanuts number {number}\n")
    if not is_first:
        async with home.index(HashEmbedder()) as index:
            assert (await index.status()).building is None
    slow = Slow("another", answers=1)
    async with home.index(slow, syncs=False, search_timeout=2.0) as index:
        await slow.shut.wait()
        told = (await index.status()).building
        assert told == Building(2, 5, is_first=is_first, by_meaning=not is_first)
        status = await index.status()
        assert status.vectors_off == ("building" if is_first else "")
        assert status.words_off == ""
        assert len((await index.search("peanuts", MAIN)).hits) == 5
        assert slow.gate is not None
        slow.gate.set()
        await index.sync("test")
        status = await index.status()
        assert (status.building, status.vectors) == (None, 5)


async def test_an_index_that_waits_for_its_first_vectors_says_so(home):
    await home.write("memory/a.md", "peanuts are out\n")
    async with home.index(HashEmbedder()):
        pass
    slow = Slow("another", answers=0)
    async with home.index(slow, syncs=False) as index:
        await slow.shut.wait()
        status = await index.status()
        assert status.building == Building(0, 1, is_first=False, by_meaning=False)
        assert (status.vectors_off, status.words_off) == ("rebuilding", "")


async def test_syncs_at_once_are_one_sync(home):
    await home.write("memory/a.md", "words\n")
    async with home.index() as index:
        await asyncio.gather(*(index.sync("test") for _ in range(20)))
        assert paths(await index.search("words", MAIN)) == ["memory/a.md"]


async def test_programs_that_index_at_once_store_each_note_once(home):
    async with home.index(HashEmbedder()) as one, home.index(HashEmbedder()) as two:
        for number in range(12):
            await home.write(f"memory/n{number}.md", f"harbour number {number}\n")
        await asyncio.gather(one.sync("test"), two.sync("test"))
        await asyncio.gather(one.sync("test"), two.sync("test"))
        assert (await one.status()).chunks == 12
        for index in (one, two):
            assert paths(await index.search("harbour number 7", MAIN))[0] == "memory/n7.md"


async def refusing(api: Any, request: web.Request) -> web.StreamResponse:
    if any("forbidden" in text for text in api.inputs[-1]):
        return web.Response(status=400)
    return await embeddings_api.vectors(api, request)


async def test_a_text_that_is_refused_keeps_no_other_from_its_vector(home):
    for number in range(12):
        await home.write(f"memory/n{number}.md", f"- harbour number {number}\n")
    await home.write("memory/bad.md", "- a forbidden word\n")
    async with embeddings_api.running(refusing) as api:
        config = {"provider": "openai", "model": "m", "base_url": api.base_url, "batch": 8}
        embedder = RemoteEmbedder(EmbedderConfig.model_validate(config))
        async with home.index(embedder) as index:
            status = await index.status()
            assert list(status.problems) == ["memory/bad.md"]
            assert status.degraded == ()
            assert paths(await index.search("harbour number 7", MAIN, 3))[0] == "memory/n7.md"
            assert paths(await index.search("forbidden", MAIN, 3))[0] == "memory/bad.md"
            before = len(api.bodies)
            await index.sync("again")
            assert len(api.bodies) == before  # neither asked for again nor forgotten
        await embedder.close()


# --- rows alone -----------------------------------------------------------------------------------


@pytest.fixture
async def shared(postgres_url, tmp_path):
    database = await PostgresDatabase.open(postgres_url)
    notes = RowNotes(database, Deaf(), FakeClock())  # type: ignore[arg-type]
    yield Home(notes, tmp_path, database, postgres_url)
    await database.close()


async def test_a_node_that_does_not_have_the_index_builds_none_and_uses_what_is_there(shared):
    await shared.write("memory/a.md", "peanuts are out\n")
    async with shared.index(is_owner=False) as other:
        assert paths(await other.search("peanuts", MAIN)) == ["memory/a.md"]  # from the notes
        assert (await other.status()).chunks == 0
        assert (await other.status()).degraded == ("the index is being built",)
        async with shared.index():
            assert (await other.status()).degraded == ()
            assert (await other.search("peanuts", MAIN)).degraded == ()
            await shared.write("memory/b.md", "oolong is in\n")
            other.noticed()
            assert paths(await other.search("oolong", MAIN)) == ["memory/b.md"]


async def test_only_the_node_that_has_the_index_makes_its_vectors_again(shared):
    for number in range(3):
        await shared.write(f"memory/{number}.md", f"peanuts number {number}\n")
    async with shared.index(HashEmbedder(model="one")):
        pass
    other = HashEmbedder(model="two")
    async with shared.index(other, is_owner=False) as elsewhere:
        # Nothing of the index is this node's to change, and what it adds is found by its words.
        await elsewhere.add_documents([Document("talk:ada", "s.1", "my canary is blue", 1)])
        assert paths(await elsewhere.search("canary", ("talk:ada",))) == ["s.1"]
        assert other.asked in ([], [("canary",)])
        status = await elsewhere.status()
        assert status.building == Building(0, 3, is_first=False, by_meaning=False)
        assert (status.vectors, status.vectors_off) == (3, "rebuilding")
        slow = Slow("two", answers=0)
        async with shared.index(slow, syncs=False):
            await slow.shut.wait()  # the vectors are gone, and none is made again yet
            other.asked.clear()
            await shared.write("memory/new.md", "oolong is in\n")
            await elsewhere.sync("test")
            # It makes those of what it stores itself, and leaves the others to the owner.
            assert other.asked == [("new\noolong is in",)]
    async with shared.index(HashEmbedder(model="two")) as index:
        assert (await index.status()).vectors == 5


async def test_what_versions_before_left_beside_the_index_is_dropped(shared):
    await shared.write("memory/a.md", "the canary is blue\n")
    assert shared.database is not None
    async with shared.index(HashEmbedder()) as index:
        assert paths(await index.search("canary", MAIN)) == ["memory/a.md"]

        def begin(tx: Transaction) -> None:
            """As a version before that was killed while it built another set of rows."""
            tx.execute(
                "INSERT INTO memory_generations(is_live, chunker, provider, model, endpoint, dims)"
                " SELECT 0, chunker, provider, 'another', endpoint, 0 FROM memory_generations"
            )
            tx.execute(
                "INSERT INTO memory_partitions(generation, name, chunks, length)"
                " SELECT max(id), 'main', 1, 1 FROM memory_generations"
            )
            tx.execute(
                "INSERT INTO memory_chunks(source, partition, start_line, end_line, length,"
                " heading, body, words) SELECT 0, max(id), 1, 1, 1, '', 'left over', ''::tsvector"
                " FROM memory_partitions"
            )

        await shared.database.write(begin)
        assert await shared.traces("left over")
    async with shared.index(HashEmbedder()) as index:
        assert await shared.traces("left over") == []
        assert (await index.status()).chunks == 1
        assert paths(await index.search("canary", MAIN)) == ["memory/a.md"]


async def test_a_search_that_takes_too_long_is_ended_in_the_server(shared):
    await shared.write("memory/a.md", "peanuts are out\n")
    async with shared.index(search_timeout=0.3) as index:
        assert shared.database is not None
        with psycopg.connect(shared.url) as connection:  # it holds what the search needs
            connection.execute("LOCK TABLE memory_chunks")
            answer = await index.search("peanuts", MAIN)
            assert answer.hits == ()
            assert any("too long" in why for why in answer.degraded)
            connection.rollback()
    async with shared.index() as index:
        assert paths(await index.search("peanuts", MAIN)) == ["memory/a.md"]
