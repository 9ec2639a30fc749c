"""Moving a storage folder into a PostgreSQL and back: all is equal, also after a kill."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import apsw
import orjson
import psycopg
import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from bot.channel import Address
from bot.cli.main import cli
from bot.delivery import outbox
from bot.errors import ConfidantError, StorageBusy, StorageError
from bot.portability import places
from bot.portability.move import Move, Moved, MoveStep
from bot.portability.places import Home, all_tables
from bot.sessions import reminders
from bot.sessions.reminders import ReplyTarget
from bot.storage import Database, Transaction, backup, months, schema
from bot.storage.files import DataDirLock
from bot.storage.postgres import PostgresDatabase
from bot.storage.postgres_link import once
from bot.storage.records import must_be_whole
from bot.testing import ScriptedModel
from tests.fakes.brain import change, query
from tests.support import NOON, Engine, FakeClock, beside, running, write_file

pytestmark = pytest.mark.usefixtures("logs_stay")

T = TypeVar("T")

ROOM: dict[str, Any] = {"chat": "den", "chat_type": "group", "mentions_bot": True}
CHANNELS = {"memory": {"group_policy": "open"}}
SPACES = ("", "people/memory-ada/", "rooms/memory-den/", "shared/")
NODE = 2.0


WAITED = {"unsent", "You said: is anybody there?"}


def texts(engine: Engine) -> list[str]:
    return [piece.text for piece in engine.channel.sent]


async def make_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a while with two people and a room leaves: also what waits to be answered and sent."""
    monkeypatch.setattr("bot.app.STOP_GRACE", 0.1)
    model = ScriptedModel()
    async with running(folder, model=model, channels=CHANNELS) as engine:
        await engine.ask("the code of my bike is 4711 水母")
        await engine.ask("a nul \0 and an emoji 👍", sender="bo")
        await engine.ask_each("👍", "/remind in 3 hours water the plants")
        await engine.ask_each("/remind every day at 9 feed the cat", "/timezone tokyo")
        await engine.ask("hello all", sender="den", **ROOM)
        await engine.ask_each("/new", "again", sender="bo")
        await engine.ask("/memory forget bike")
        assert "Forgotten" in await engine.ask("/memory forget yes")
        await engine.ask("/link", sender="bo")
        model.gate = asyncio.Event()
        model.started.clear()
        await engine.say("is anybody there?", sender="bo")
        await model.started.wait()
    async with beside(folder) as database:

        def more(tx: Transaction) -> None:
            place = Address("memory", "default", "ada")
            outbox.add(tx, place, "unsent", NOON, kind="notice")
            target = ReplyTarget("agent:main:memory:direct:ada", "memory:ada", place, "en")
            for number in range(ROWS_OF_ONE):
                each = replace(target, key=f"{target.key}{number}", person=f"memory:{number}")
                reminders.add(tx, each, f"tea {number}", NOON + YEARS + number, NOON)

        await database.write(more)
    for space in SPACES:
        note = folder / "workspace" / space / "memory" / "trip.md"
        write_file(note, "# Trip\r\n- to 北京, no newline at the end".encode())
    (folder / "workspace" / "picture.png").write_bytes(b"\x89PNG")


YEARS = 10**12  # ms
ROWS_OF_ONE = 430  # more than two pages


@pytest.fixture
async def folder(tmp_path, monkeypatch) -> Path:
    await make_folder(tmp_path / "old", monkeypatch)
    return tmp_path / "old"


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file, its content and when it changed."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in folder.rglob("*")
        if path.is_file() and path.name != "confidant.lock"
    }


def notes_of(folder: Path) -> dict[str, bytes]:
    workspace = folder / "workspace"
    return {str(path.relative_to(workspace)): path.read_bytes() for path in workspace.rglob("*.md")}


def rows_of(folder: Path) -> dict[str, list[Any]]:
    connection = apsw.Connection(str(folder / "confidant.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found: dict[str, list[Any]] = {}
        for table in all_tables():
            where = " WHERE key NOT LIKE 'move:%'" if table.name == "meta" else ""
            names = ", ".join(table.columns)
            found[table.name] = sorted(
                map(repr, connection.execute(f"SELECT {names} FROM {table.name}{where}"))
            )
        found["words"] = list(connection.execute("SELECT rowid FROM entries_text ORDER BY rowid"))
        return found
    finally:
        connection.close()


@asynccontextmanager
async def between(source: Any, target: Any) -> AsyncIterator[tuple[Home, Home]]:
    async with source as one, target as other:
        yield one, other


async def moved(
    source: Any, target: Any, tell: Callable[[MoveStep], None] = lambda _: None
) -> Moved:
    async with between(source, target) as (one, other):
        return await Move(one, other, FakeClock(), tell).run()


def old(folder: Path) -> Any:
    return places.folder(folder, folder / "workspace")


@pytest.fixture
def postgres_url(empty_postgres_url: str) -> str:
    """Empty, as the place where somebody moves to."""
    return empty_postgres_url


def at(url: str) -> Any:
    return places.server(url, NODE)


async def test_everything_is_equal_there_and_back_and_the_old_folder_is_untouched(
    folder, tmp_path, postgres_url
):
    before = contents(folder)
    told: list[MoveStep] = []
    done = await moved(old(folder), at(postgres_url), told.append)
    assert done == Moved(was_done=False, others=1)
    assert contents(folder) == before
    assert [each.what for each in told] == [
        *(table.name for table in all_tables()),
        "words",
        "notes",
    ]
    counts = {each.what: each.rows for each in told}
    assert counts["reminders"] == ROWS_OF_ONE + 1
    assert min(counts[name] for name in ("sessions", "entries", "inbox", "outbox", "notes")) > 1
    assert counts["forgotten"] > 0
    back = tmp_path / "back"
    await moved(at(postgres_url), places.folder(back))
    assert notes_of(back) == notes_of(folder)
    here, there = rows_of(folder), rows_of(back)
    # What has no words has no row on a server, and is found nowhere.
    assert set(there.pop("words")) <= set(here.pop("words"))
    assert there == here
    assert (back / "confidant.db").stat().st_mode & 0o077 == 0


async def test_what_was_forgotten_is_found_nowhere_and_the_rest_is(folder, postgres_url):
    await moved(old(folder), at(postgres_url))
    database = await PostgresDatabase.open(postgres_url)
    try:
        keys = [
            str(key)
            for (key,) in await database.read(
                lambda tx: tx.execute("SELECT DISTINCT key FROM sessions")
            )
        ]
        assert await database.read(lambda tx: tx.search_text("emoji", 5, keys)) != []
        assert await database.read(lambda tx: tx.search_text("bike", 5, keys)) == []
        assert await database.read(lambda tx: tx.search_text("水母", 5, keys)) == []
    finally:
        await database.close()


async def test_new_rows_get_numbers_above_all_that_were_moved(folder, postgres_url):
    await moved(old(folder), at(postgres_url))
    database = await PostgresDatabase.open(postgres_url)
    try:
        for table in all_tables():
            if table.serial:
                found = await database.read(
                    lambda tx, table=table: tx.execute(
                        f"SELECT coalesce(max({table.serial}), 0) FROM {table.name}"
                    )
                )
                following = await database.write(
                    lambda tx, table=table: tx.execute(
                        f"SELECT nextval(pg_get_serial_sequence('{table.name}', '{table.serial}'))"
                    )
                )
                assert following[0][0] == found[0][0] + 1
    finally:
        await database.close()


@pytest.mark.parametrize("back", [False, True])
async def test_the_program_goes_on_where_it_was_and_answers_what_waits_once(
    folder, tmp_path, postgres_url, back
):
    await moved(old(folder), at(postgres_url))
    storage: dict[str, Any] = {"url": postgres_url, "node_timeout": 2}
    home = tmp_path / "node"
    if back:
        home, storage = tmp_path / "back", {}
        await moved(at(postgres_url), places.folder(home))
    for number in (1, 2):
        async with running(home, storage=storage, channels=CHANNELS) as engine:
            question = f"and now, {number}?"
            await engine.say(question, sender="bo")
            awaited = {f"You said: {question}"}
            if number == 1:
                awaited |= WAITED
            await engine.channel.wait_until(lambda _, e=engine, a=awaited: a <= set(texts(e)))
            # Whatever is behind it in its lane or its queue would have come before.
            assert len([text for text in texts(engine) if text in WAITED]) == len(awaited) - 1
    if back:
        transcripts = list((home / "sessions").rglob("*.jsonl"))
        assert any("is anybody there?" in path.read_text("utf-8") for path in transcripts)
        assert len(transcripts) >= len(list((folder / "sessions").rglob("*.jsonl")))


async def test_what_is_moved_is_of_the_months_it_was_said_in_and_can_be_dropped(
    folder, tmp_path, postgres_url
):
    change(folder, "UPDATE entries SET at = 0 WHERE seq <= 4")
    change(folder, "UPDATE entries SET at = 8000000000000000 WHERE seq = 5")
    ((count,),) = query(folder, "SELECT count(*) FROM entries")
    await moved(old(folder), at(postgres_url))
    database = await PostgresDatabase.open(postgres_url)
    found = await database.read(months.listed)
    assert (found[0].name, found[0].entries) == ("1970-01", 4)
    assert sum(each.entries for each in found) == count
    dropped = once(postgres_url, lambda tx: months.drop(tx, 12))
    assert dropped is not None
    assert (dropped.month, dropped.entries) == ("1970-01", 4)
    await database.close()
    # And back, where the transcripts of its files begin later too, and restore what is lost.
    back = tmp_path / "back"
    await moved(at(postgres_url), places.folder(back))
    for lost in (False, False, True):
        if lost:
            for path in back.glob("confidant.db*"):
                path.unlink()
        with capture_logs() as logs:
            async with running(back, channels=CHANNELS) as engine:
                question = f"is it {lost}?"
                await engine.say(question, sender="ada")
                await engine.channel.wait_until(
                    lambda _, e=engine, q=question: f"You said: {q}" in texts(e)
                )
        assert lost or not [each for each in logs if each["event"] == "storage.brought_back"]
        await asyncio.to_thread(backup.make, back / "confidant.db", 7, NOON)
    rows = rows_of(back)["entries"]
    assert len(rows) >= count - 4 + 6
    for path in (back / "sessions").rglob("*.jsonl"):
        ids = [orjson.loads(line)["id"] for line in path.read_bytes().splitlines()[1:]]
        numbers = [int(id_.rpartition(".")[2]) for id_ in ids]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    assert not list((back / "sessions").rglob("*.kept-*"))


class Killed(Exception):
    pass


class Mortal:
    """A database that dies at its n-th write, before or after that is stored."""

    def __init__(self, database: Database, writes: int, *, after: bool) -> None:
        self._database = database
        self._left = writes
        self._after = after

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._database.read(work)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self._left -= 1
        if self._left < 0 and not self._after:
            raise Killed
        result = await self._database.write(work)
        if self._left < 0:
            raise Killed
        return result

    async def close(self) -> None:
        await self._database.close()


async def is_whole(database: Database) -> bool:
    """True when nothing of a move is left to be done."""
    try:
        await database.read(must_be_whole)
    except StorageError:
        return False
    return True


@pytest.mark.parametrize("to_folder", [False, True])
async def test_a_move_killed_anywhere_is_completed_by_the_same_move(
    folder, tmp_path, postgres_url, to_folder
):
    chance = Random(7)  # noqa: S311
    source, target = old(folder), at(postgres_url)
    where = tmp_path / "back"
    if to_folder:
        await moved(source, target)
    kills = 0
    while True:
        if to_folder:
            source, target = at(postgres_url), places.folder(where)
        else:
            source, target = old(folder), at(postgres_url)
        async with between(source, target) as (one, other):
            mortal = Mortal(other.database, chance.randrange(9), after=chance.random() < 0.5)
            dying = replace(other, database=mortal)
            if not to_folder:
                dying = replace(dying, notes=type(other.notes)(mortal))
            try:
                await Move(one, dying, FakeClock(), lambda _: None).run()
            except Killed:
                kills += 1
                if to_folder and kills > 3 and await is_whole(other.database):
                    break  # the last write was stored
            else:
                break
        if to_folder:
            with pytest.raises(StorageError, match="not complete"):
                async with running(where):
                    pass
    assert kills > 3
    if not to_folder:
        await moved(at(postgres_url), places.folder(where))
    assert notes_of(where) == notes_of(folder)
    here, there = rows_of(folder), rows_of(where)
    assert set(there.pop("words")) <= set(here.pop("words"))
    assert there == here


async def test_nothing_runs_on_a_place_that_is_not_complete(folder, tmp_path, postgres_url):
    async with between(old(folder), at(postgres_url)) as (one, other):
        dying = replace(other, database=Mortal(other.database, 3, after=True))
        with pytest.raises(Killed):
            await Move(one, dying, FakeClock(), lambda _: None).run()
    with pytest.raises(StorageError, match=r"not complete.*goes on"):
        async with running(tmp_path / "node", storage={"url": postgres_url}):
            pass
    with pytest.raises(StorageError, match="not complete"):
        await moved(at(postgres_url), places.folder(tmp_path / "back"))


async def test_what_changed_between_two_tries_is_moved_anew(folder, postgres_url):
    async with between(old(folder), at(postgres_url)) as (one, other):
        dying = replace(other, database=Mortal(other.database, 12, after=True))
        with pytest.raises(Killed):
            await Move(one, dying, FakeClock(), lambda _: None).run()
    async with running(folder, channels=CHANNELS) as engine:
        await engine.ask("one more", sender="ada")
    told: list[MoveStep] = []
    await moved(old(folder), at(postgres_url), told.append)
    assert "again" in {each.state for each in told}
    assert (await moved(old(folder), at(postgres_url))).was_done


# --- refusals -------------------------------------------------------------------------------------


async def test_a_place_that_holds_something_else_is_refused_and_unchanged(
    folder, tmp_path, postgres_url
):
    async with running(
        tmp_path / "node", storage={"url": postgres_url, "node_timeout": 2}
    ) as engine:
        await engine.ask("hello")
        with pytest.raises(StorageBusy, match="Stop all nodes"):
            await moved(old(folder), at(postgres_url))
    with pytest.raises(StorageError, match="not empty"):
        await moved(old(folder), at(postgres_url))
    other = tmp_path / "other"
    async with running(other) as engine:
        await engine.ask("hello")
    before = contents(other)
    with pytest.raises(StorageError, match="not empty"):
        await moved(old(folder), places.folder(other))
    assert {name: each for name, (each, _) in contents(other).items() if "lock" not in name} == {
        name: each for name, (each, _) in before.items() if "lock" not in name
    }
    (other / "confidant.db").unlink()
    with pytest.raises(StorageError, match="of its own"):
        await moved(old(folder), places.folder(other))


async def test_another_source_does_not_go_on_with_a_move(folder, tmp_path, postgres_url):
    async with between(old(folder), at(postgres_url)) as (one, other):
        dying = replace(other, database=Mortal(other.database, 3, after=True))
        with pytest.raises(Killed):
            await Move(one, dying, FakeClock(), lambda _: None).run()
    async with running(tmp_path / "other") as engine:
        await engine.ask("hello")
    with pytest.raises(StorageError, match="from elsewhere"):
        await moved(old(tmp_path / "other"), at(postgres_url))


async def test_a_folder_on_which_a_program_runs_is_refused(folder, tmp_path, postgres_url):
    with DataDirLock(folder), pytest.raises(StorageBusy, match="already runs"):
        await moved(old(folder), at(postgres_url))
    with pytest.raises(StorageError, match="no database"):
        await moved(old(tmp_path / "none"), at(postgres_url))
    assert not (tmp_path / "none").exists()


async def test_a_folder_of_a_newer_version_is_refused(folder, postgres_url):
    change(folder, "INSERT INTO schema_versions VALUES (?, '', '')", schema.VERSION + 1)
    with pytest.raises(StorageError, match="a newer"):
        await moved(old(folder), at(postgres_url))


async def test_notes_that_are_no_text_are_named_before_anything_is_moved(folder, postgres_url):
    (folder / "workspace" / "memory" / "latin.md").write_bytes(b"caf\xe9")
    with pytest.raises(ConfidantError, match=r"UTF-8.*memory/latin\.md"):
        await moved(old(folder), at(postgres_url))
    (folder / "workspace" / "memory" / "latin.md").write_text("café", "utf-8")
    assert not (await moved(old(folder), at(postgres_url))).was_done


async def test_a_place_is_not_moved_into_itself(postgres_url):
    with pytest.raises(StorageError, match="the same place"):
        await moved(at(postgres_url), at(postgres_url))


async def test_a_server_that_is_not_there_is_named_without_the_password(folder):
    with pytest.raises(StorageError) as found:
        await moved(old(folder), at("postgresql://me:secret@127.0.0.1:1/nothing"))
    assert "127.0.0.1:1/nothing" in str(found.value)
    assert "secret" not in str(found.value)


async def test_a_role_that_may_make_no_tables_is_told_so_and_nothing_is_there(folder, postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS movetest_reader")
        connection.execute("CREATE ROLE movetest_reader LOGIN")
    reader = postgres_url.replace("postgres@", "movetest_reader@")
    with pytest.raises(StorageError, match="may not make or change tables"):
        await moved(old(folder), at(reader))
    with psycopg.connect(postgres_url) as connection:
        (found,) = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone() or (None,)
    assert found == 0


# --- the command ----------------------------------------------------------------------------------


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
    return {**kept, "HOME": str(folder), "CONFIDANT_STORAGE__DIR": str(folder), **more}


@pytest.mark.proof
async def test_a_process_that_is_killed_is_gone_on_with(folder, tmp_path, postgres_url):
    async def begin() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from bot.cli import main; main()", "move"),
            *("--to", postgres_url),
            cwd=tmp_path,
            env=environment(folder),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    process = await begin()
    assert process.stdout is not None
    first = orjson.loads(await process.stdout.readline())
    assert first["state"] == "moved"
    process.send_signal(signal.SIGKILL)
    await process.wait()
    process = await begin()
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err
    assert [orjson.loads(line)["what"] for line in out.splitlines()][-2:] == ["words", "notes"]
    assert b"CONFIDANT_STORAGE__URL=postgresql://" in err
    back = tmp_path / "back"
    await moved(at(postgres_url), places.folder(back))
    assert notes_of(back) == notes_of(folder)


def typed(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], *words: str) -> Any:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return CliRunner().invoke(cli, ["move", *words])


def test_what_is_no_place_is_refused_in_a_line(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    variables = {"CONFIDANT_STORAGE__DIR": str(tmp_path / "old")}
    done = typed(monkeypatch, variables, "--to", "mysql://x/y")
    assert "--to takes postgresql://… or a folder" in str(done.exception)
    done = typed(monkeypatch, variables, "--to", str(tmp_path / "new"))
    assert "There is no database in" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["postgresql://me:secret@h/db", "postgresql://me@h/db?password=secret&x=1"]
)
def test_a_password_is_not_shown(url):
    from bot.cli import archives
    from bot.config import Config

    shown = "\n".join(archives.move_outcome(Moved(), "h:5432/db", Config(), url))
    assert "me" in shown
    assert "secret" not in shown


async def test_a_move_says_how_far_it_is_and_one_that_goes_on_never_goes_back(folder, tmp_path):
    async def steps(target: Path, writes: int) -> list[tuple[int, int]]:
        heard: list[tuple[int, int]] = []

        def hear(done: int, total: int) -> None:
            heard.append((done, total))

        async with between(old(folder), places.folder(target)) as (one, other):
            dying = replace(other, database=Mortal(other.database, writes, after=True))
            with suppress(Killed):
                await Move(one, dying, FakeClock(), lambda _: None, hear).run()
        return heard

    whole = await steps(tmp_path / "at once", 10**6)
    steps_of_all = whole[-1][1]
    assert whole[-1] == (steps_of_all, steps_of_all)
    begun = await steps(tmp_path / "in two", 12)
    assert 0 < begun[-1][0] < steps_of_all
    gone_on = await steps(tmp_path / "in two", 10**6)
    assert gone_on[-1] == (steps_of_all, steps_of_all)
    for heard in (whole, begun, gone_on):
        assert heard == sorted(heard)
        assert {total for _, total in heard} == {steps_of_all}


def test_people_get_a_line_for_each_table():
    from bot.cli import archives

    lines = [
        archives.for_people(MoveStep("entries", 12, "ab" * 16)),
        archives.for_people(MoveStep("entries", 12, state="again")),
    ]
    assert [line.split()[0] for line in lines] == ["entries", "entries"]
    assert "12  moved, identical  abababababab" in lines[0]
