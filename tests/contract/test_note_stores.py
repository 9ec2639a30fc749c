"""What every `NoteStore` promises, whether notes are files or rows that many nodes share."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime

import pytest

from bot.coordination import Event, Hear
from bot.errors import NotVisible, ToolError
from bot.identity.view import MAIN_SPACE, MemoryView
from bot.memory import claims, layout, note_store
from bot.memory.note_store import MAX_WRITE, FolderNotes, NoteStore, Watch
from bot.memory.notes import Notes, Place, Replaced, SpaceFiles
from bot.memory.row_notes import RowNotes, space_of
from bot.storage.postgres import PostgresDatabase
from tests.contract.test_memory_index import Kept
from tests.support import FakeClock

NOW = datetime(2026, 7, 1, 14, 3, tzinfo=UTC)
MAIN = MemoryView(MAIN_SPACE, ("agent:main",), private=True)
ADA = MemoryView("people/ada", ("agent:ada",), private=True)
DAY = "memory/2026-07-01.md"

Another = Callable[[], NoteStore]


class Heard:
    """Keeps who wants to hear of what others do; `tell` is another node."""

    is_shared = True

    def __init__(self) -> None:
        self.hear: list[Hear] = []

    def on(self, topic: str, hear: Hear) -> None:
        assert topic == "notes"
        self.hear.append(hear)

    async def tell(self) -> None:
        for hear in self.hear:
            await hear(Event("notes"))


@pytest.fixture
async def database(postgres_url):
    database = await PostgresDatabase.open(postgres_url)
    yield database
    await database.close()


@pytest.fixture(params=["files", "rows"])
async def another(request, tmp_path):
    """Makes stores of the same notes, as several programs have them."""
    if request.param == "files":
        yield lambda: FolderNotes(tmp_path / "workspace")
        return
    database = await PostgresDatabase.open(request.getfixturevalue("postgres_url"))
    yield lambda: RowNotes(database, Heard(), FakeClock())  # type: ignore[arg-type]
    await database.close()


@pytest.fixture
async def store(another):
    made = another()
    await asyncio.to_thread(made.make)
    return made


def read(store: NoteStore, path: str) -> str:
    return store.read(path, MAX_WRITE)[0].decode()


def write(store: NoteStore, path: str, text: str) -> None:
    store.rewrite(path, lambda _before: text.encode())


async def texts(store: NoteStore) -> dict[str, str]:
    def work() -> dict[str, str]:
        return {each.path: read(store, each.path) for each in store.walk((), layout.is_note, 9)}

    return await asyncio.to_thread(work)


# --- walking and reading --------------------------------------------------------------------------


async def test_notes_are_walked_each_folders_own_first(store):
    paths = ["b.md", "a.md", "people/ada/memory/z.md", "memory/deep/a.md", "memory/a.md", "m0.md"]

    def work() -> tuple[list[str], list[str], list[str]]:
        for path in paths:
            write(store, path, f"in {path}\n")
        return (
            [seen.path for seen in store.walk((), layout.is_note, 9)],
            [seen.path for seen in store.walk(("memory",), layout.is_note, 1)],
            [seen.path for seen in store.walk(("people", "ada"), "z.md".__eq__, 2)],
        )

    everything, own, ada = await asyncio.to_thread(work)
    assert everything == [
        *("a.md", "b.md", "m0.md"),
        *("memory/a.md", "memory/deep/a.md", "people/ada/memory/z.md"),
    ]
    assert own == ["memory/a.md"]
    assert ada == ["people/ada/memory/z.md"]


async def test_how_a_note_looks_changes_with_every_change(store):
    def work() -> None:
        looks = set[tuple[int, int, int]]()
        for text in ("one", "two", "one"):
            write(store, "a.md", text)
            data, seen = store.read("a.md", 2)
            assert (data, seen.size) == (text[:2].encode(), 3)
            assert list(store.walk((), layout.is_note, 1)) == [seen]
            looks.add(seen.look)
        assert len(looks) == 3

    await asyncio.to_thread(work)


@pytest.mark.parametrize("path", ["none.md", "memory/none.md", "people/ada/memory/none.md"])
async def test_what_is_missing_is_refused_as_what_may_not_be_seen(store, path):
    with pytest.raises(FileNotFoundError):
        await asyncio.to_thread(read, store, path)
    with pytest.raises(NotVisible):
        await SpaceFiles(store).read(MAIN, path)


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("", "# day\n\n- new\n", 3),
        ("mine, no line break", "mine, no line break\n- new\n", 2),
        ("说\n\n", "说\n\n- new\n", 3),
    ],
)
async def test_lines_are_appended_whole(store, before, after, line):
    def work() -> int:
        if before:
            write(store, "memory/a.md", before)
        return store.append("memory/a.md", "- new\n", "# day\n\n")

    assert await asyncio.to_thread(work) == line
    assert await texts(store) == {"memory/a.md": after}


@pytest.mark.parametrize("text", ["- \ud800 half a character\n", "- \x00 nothing\n", "- 🙂\n"])
async def test_any_text_can_be_written(store, text):
    await asyncio.to_thread(store.append, "memory/a.md", text, "")
    assert await texts(store) == {"memory/a.md": text.replace("\ud800", "?")}


async def test_a_full_note_takes_no_more_and_stays(store):
    full = "x" * MAX_WRITE

    def work() -> None:
        write(store, "memory/a.md", full)
        with pytest.raises(ToolError, match="full"):
            store.append("memory/a.md", "- one more\n", "")
        with pytest.raises(ToolError, match="full"):
            store.rewrite("memory/a.md", lambda before: before + b"!")

    await asyncio.to_thread(work)
    assert await texts(store) == {"memory/a.md": full}


async def test_who_rewrites_is_asked_again_when_another_was_quicker(another):
    store, other = another(), another()
    asked: list[bytes] = []

    def change(before: bytes) -> bytes:
        asked.append(before)
        if len(asked) == 1:
            other.append("MEMORY.md", "- by hand\n", "")
        return before + b"- changed\n"

    def work() -> bytes:
        store.make()
        write(store, "MEMORY.md", "- first\n")
        return store.rewrite("MEMORY.md", change)

    assert await asyncio.to_thread(work) == b"- first\n- by hand\n- changed\n"
    assert asked == [b"- first\n", b"- first\n- by hand\n"]
    assert await texts(store) == {"MEMORY.md": "- first\n- by hand\n- changed\n"}


async def test_a_note_that_another_makes_meanwhile_is_not_lost(another):
    store, other = another(), another()

    def change(before: bytes) -> bytes:
        if not before:
            write(other, "MEMORY.md", "- by hand\n")
        return before + b"- changed\n"

    def work() -> None:
        store.make()
        store.rewrite("MEMORY.md", change)

    await asyncio.to_thread(work)
    assert await texts(store) == {"MEMORY.md": "- by hand\n- changed\n"}


async def test_a_note_that_never_stops_changing_is_left_alone(another):
    store, other, numbers = another(), another(), itertools.count()

    def work() -> None:
        store.make()
        write(store, "MEMORY.md", "0\n")
        with pytest.raises(ToolError, match="nothing was written"):
            store.rewrite(
                "MEMORY.md",
                lambda before: (
                    write(other, "MEMORY.md", f"by hand {next(numbers)}\n") or before + b"mine"
                ),
            )

    await asyncio.to_thread(work)
    assert "mine" not in (await texts(store))["MEMORY.md"]


async def test_what_many_programs_append_at_once_is_all_there(another):
    stores = [another() for _ in range(4)]
    await asyncio.to_thread(stores[0].make)

    def work() -> None:
        lines = [f"- line {number}\n" for number in range(60)]
        # Two that begin a file in the same moment may both give it a heading.
        stores[0].append("memory/a.md", lines[0], "# a\n")
        with ThreadPoolExecutor(8) as threads:
            each = [
                threads.submit(store.append, "memory/a.md", line, "# a\n")
                for line, store in zip(lines[1:], itertools.cycle(stores), strict=False)
            ]
            assert sorted(future.result() for future in each) == list(range(3, 62))
            text = read(stores[0], "memory/a.md")
            assert sorted(text.splitlines()) == sorted(f"# a\n{''.join(lines)}".splitlines())

    await asyncio.to_thread(work)


async def test_a_note_is_removed_while_it_is_what_was_read(store):
    def put(text: bytes) -> None:
        store.rewrite("shared/a.md", lambda _: text)

    def work() -> list[bool]:
        put(b"one\n")
        removed = [store.remove("shared/a.md", b"two\n")]
        assert store.read("shared/a.md", 99)[0] == b"one\n"
        removed.append(store.remove("shared/a.md", b"one\n"))
        assert list(store.walk(("shared",), layout.is_note, 2)) == []
        removed.append(store.remove("shared/a.md", b"one\n"))
        put(b"three\n")
        assert store.read("shared/a.md", 99)[0] == b"three\n"
        return removed

    assert await asyncio.to_thread(work) == [False, True, False]


async def test_what_a_note_said_before_something_in_it_was_replaced_is_kept(store):
    kept = Kept()
    notes = Notes(store, versions=kept)  # type: ignore[arg-type]
    await notes.add(ADA, "MEMORY.md", "likes tea", NOW.date(), "owner")
    await notes.add(ADA, "MEMORY.md", "has a cat", NOW.date(), "owner")
    assert kept.texts == []  # nothing was taken away
    before = (await SpaceFiles(store).data(ADA, "MEMORY.md", MAX_WRITE)).decode()
    await notes.supersede(ADA, "MEMORY.md", old="likes tea", text="likes coffee", now=NOW)
    after = (await SpaceFiles(store).data(ADA, "MEMORY.md", MAX_WRITE)).decode()
    await notes.replace_section(ADA, "MEMORY.md", title="Pets", text="a dog", now=NOW, by="agent")
    assert kept.texts == [
        ("people/ada", "MEMORY.md", before, "bot"),
        ("people/ada", "MEMORY.md", after, "bot"),
    ]


async def test_a_workspace_begins_with_the_templates_once(store):
    def work() -> None:
        assert store.prepare() == 7
        write(store, "SOUL.md", "somebody's own\n")
        assert store.prepare() == 0

    await asyncio.to_thread(work)
    found = await SpaceFiles(store).bootstrap(MAIN)
    assert {each.name: each.text for each in found}["SOUL.md"].strip() == "somebody's own"


async def test_an_entry_is_confirmed_in_its_comment_and_nothing_else_changes(store):
    notes, files, later = Notes(store), SpaceFiles(store), date(2026, 8, 1)
    for by in ("owner", "agent", "untrusted"):
        await notes.remember(ADA, f"Tea of the {by}", NOW, by)
    before = (await files.data(ADA, DAY, MAX_WRITE)).decode()
    for words in ("tea of the owner", "tea of the untrusted", "tea of nobody"):
        assert await notes.confirm(ADA, DAY, claims.digest(words), later) is None
    assert (await files.data(ADA, DAY, MAX_WRITE)).decode() == before
    claim = claims.digest("tea of the agent")
    for _ in range(2):
        assert await notes.confirm(ADA, DAY, claim, later) == Place(DAY, 4)
    after = (await files.data(ADA, DAY, MAX_WRITE)).decode()
    assert after == before.replace("<!-- agent -->", "<!-- agent confirmed 2026-08-01 -->")
    for path in ("memory/none.md", "../MEMORY.md", f"shared/{DAY}"):
        with pytest.raises(NotVisible):
            await notes.confirm(ADA, path, claim, later)
    assert [each.path for each in await files.names(ADA)] == [DAY]
    async with notes.watching(ADA) as watch:
        async with notes.forgetting(ADA, "tea"):
            pass
        with pytest.raises(ToolError):
            await notes.confirm(ADA, DAY, claim, date(2026, 9, 1), watch=watch)
    assert (await files.data(ADA, DAY, MAX_WRITE)).decode() == after


# --- what people have of it -----------------------------------------------------------------------


async def test_memory_is_written_read_replaced_and_forgotten(store):
    notes, files = Notes(store), SpaceFiles(store)
    await notes.add(MAIN, "MEMORY.md", "Lives in Berlin.", NOW.date(), "owner")
    done = await notes.supersede(
        MAIN, "MEMORY.md", old="lives in Berlin", text="Lives in Paris.", now=NOW, by="owner"
    )
    assert done == Replaced(Place("MEMORY.md", 3), Place(DAY, 3))
    await notes.remember(ADA, "Tea, not coffee.", NOW)
    assert [each.path for each in await files.names(MAIN)] == ["MEMORY.md", DAY]
    assert [each.path for each in await files.names(ADA)] == [DAY]
    assert "Paris" in (await files.read(MAIN, "MEMORY.md")).text
    assert "~~Lives in Berlin.~~" in (await files.read(MAIN, DAY)).text
    assert "Tea" in (await files.read(ADA, DAY)).text
    assert "Tea" not in str(await texts_of(files, MAIN))
    assert await notes.forget(ADA, DAY, "coffee") == ("- 14:03 Tea, not coffee.",)
    assert "coffee" not in str(await texts(store))
    assert await notes.can_write(ADA)


async def texts_of(files: SpaceFiles, view: MemoryView) -> list[str]:
    return [(await files.read(view, each.path)).text for each in await files.names(view)]


# --- rows alone -----------------------------------------------------------------------------------


async def rows(database: PostgresDatabase) -> tuple[RowNotes, Heard]:
    heard = Heard()
    return RowNotes(database, heard, FakeClock()), heard  # type: ignore[arg-type]


async def test_other_nodes_writing_is_heard(database):
    store, heard = await rows(database)
    changes, states, stop = list[None](), list[str](), asyncio.Event()
    watching = asyncio.create_task(store.watch(lambda: changes.append(None), states.append, stop))
    await asyncio.sleep(0)
    await heard.tell()
    stop.set()
    await watching
    assert (len(changes), states) == (1, [""])


async def test_what_one_node_forgets_another_does_not_write(database):
    one, two = [Notes((await rows(database))[0]) for _ in range(2)]
    await one.add(MAIN, "MEMORY.md", "Black coffee.", NOW.date())
    async with two.watching(MAIN) as watch, two.watching(ADA) as elsewhere:
        async with one.forgetting(MAIN, "coffee"):
            with pytest.raises(ToolError, match="forgotten"):
                await two.remember(MAIN, "Likes coffee.", NOW, watch=watch)
            async with two.watching(MAIN) as during:
                pass
            await one.forget(MAIN, "MEMORY.md", "coffee")
        with pytest.raises(ToolError, match="forgotten"):
            await two.supersede(MAIN, "MEMORY.md", old="x", text="y", now=NOW, watch=watch)
        with pytest.raises(ToolError, match="forgotten"):  # it may have read the words still
            await two.remember(MAIN, "Likes coffee.", NOW, watch=during)
        assert watch.words == ["coffee"]
        await two.remember(ADA, "Likes coffee.", NOW, watch=elsewhere)
        assert await database.read(lambda tx: note_store.heard_forgetting(tx, elsewhere)) == ()
    async with two.watching(MAIN) as later:
        await two.remember(MAIN, "Likes tea.", NOW, watch=later)


async def test_words_that_were_forgotten_are_not_kept_for_long(database):
    (store, _), clock = await rows(database), FakeClock()
    watch = Watch(MAIN_SPACE)
    await store.begin_watch(watch)
    await store.forgot(MAIN_SPACE, "my secret")
    assert await database.read(lambda tx: note_store.heard_forgetting(tx, watch)) == ("my secret",)
    late = clock() + note_store.FORGETTINGS_KEPT_MS + 1
    await database.write(lambda tx: note_store.clear_forgettings(tx, late))
    # That something was forgotten still counts.
    assert await database.read(lambda tx: note_store.heard_forgetting(tx, watch)) == ("",)
    found = await database.read(lambda tx: tx.execute("SELECT words FROM forgettings"))
    assert found == [("",)]


async def test_a_database_that_is_gone_is_told_apart_from_a_missing_note(postgres_url):
    database = await PostgresDatabase.open(postgres_url)
    store, _ = await rows(database)
    await database.close()
    with pytest.raises(ToolError) as caught:
        await SpaceFiles(store).read(MAIN, "MEMORY.md")
    assert not isinstance(caught.value, NotVisible)
    with pytest.raises(ToolError, match="could not be written"):
        await Notes(store).remember(MAIN, "tea", NOW)


@pytest.mark.parametrize(
    ("path", "space"),
    [
        ("MEMORY.md", "main"),
        ("memory/a.md", "main"),
        ("people/ada/MEMORY.md", "people/ada"),
        ("rooms/telegram-7/memory/a.md", "rooms/telegram-7"),
        ("shared/a.md", "shared"),
        ("people/ada", "main"),
    ],
)
def test_a_row_knows_its_space(path, space):
    assert space_of(path) == space
