"""Backups of a PostgreSQL and into one: the same file, and the same is found and shown."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner, Result

from bot.cli.main import cli
from bot.clock import Clock
from bot.cluster import takeover
from bot.errors import ConfidantError, StorageError
from bot.identity.view import folder_name
from bot.metrics import Metrics
from bot.portability import backup, restore
from bot.portability.move import Move, MoveStep
from bot.portability.places import Home, Note, Rows
from bot.portability.schedule import Backups, found
from bot.storage import backup_state
from bot.storage.postgres import PostgresDatabase
from tests.fakes.postgres import a_database
from tests.integration.test_backup_schedule import OneAtATime
from tests.support import Engine, FakeClock, make_config, running

pytestmark = [pytest.mark.usefixtures("logs_stay"), pytest.mark.slow]

NODE = 1.0  # seconds after which a node that is stopped counts as gone
HIDDEN = "zqhidden"
OF_BO = f"people/{folder_name('memory:bo')}/memory/trip.md"
NOTES = {
    "MEMORY.md": "# Lasting\r\n- the boat is called Pinguin, 北京, no newline at the end",
    OF_BO: f"- the word is {HIDDEN}\n- the boat is blue\n",
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def url(empty_postgres_url: str) -> str:
    return empty_postgres_url


@pytest.fixture
def other(postgres_admin_url: str) -> Any:
    with a_database(postgres_admin_url) as made:
        yield made


def at(url: str) -> dict[str, Any]:
    return {"url": url, "node_timeout": NODE}


def invoke(home: Path, *words: str, url: str = "") -> Result:
    where = {
        "CONFIDANT_STORAGE__DIR": str(home),
        "CONFIDANT_STORAGE__URL": url,
        "CONFIDANT_STORAGE__NODE_TIMEOUT": str(NODE),
        "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
        "CONFIDANT_MEMORY__WATCH": "false",
    }
    return CliRunner().invoke(cli, list(words), env=where)


async def ran(home: Path, *words: str, url: str = "") -> str:
    result = await asyncio.to_thread(invoke, home, *words, url=url)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


async def refused(home: Path, *words: str, url: str = "") -> str:
    result = await asyncio.to_thread(invoke, home, *words, url=url)
    assert isinstance(result.exception, ConfidantError), result.output
    return str(result.exception)


async def talk(engine: Engine) -> None:
    await engine.ask("the code of my bike is 4711 水母")
    await engine.ask_each("a nul \0 and an emoji 👍", f"my secret is {HIDDEN}", sender="bo")


async def write_notes(url: str) -> None:
    database = await PostgresDatabase.open(url)
    try:
        rows = Rows(database)
        for path, text in NOTES.items():
            await rows.write(Note(path, text.encode(), 1_700_000_000_123))
    finally:
        await database.close()


async def shown(home: Path, url: str = "") -> dict[str, Any]:
    """Every conversation as an operator sees it, and what is found."""
    listed = await ran(home, "sessions", "list", url=url)
    ids = sorted({word for line in listed.splitlines() for word in line.split() if _is_id(word)})
    found: dict[str, Any] = {
        each: await ran(home, "sessions", "show", each, url=url) for each in ids
    }
    found["list"] = sorted(" ".join(line.split()) for line in listed.splitlines())
    return found


def _is_id(word: str) -> bool:
    return len(word) == 26 or (len(word) == 32 and word.isalnum())


async def settled(url: str) -> None:
    """Wait until no node counts as running any more."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE nodes SET beat_at = beat_at - interval '1 minute'")


def notes(folder: Path) -> Mapping[str, bytes]:
    root = folder / "workspace"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.md")}


@pytest.mark.proof
async def test_a_server_is_backed_up_while_nodes_run_and_restored_into_either(tmp_path, url, other):
    home, made = tmp_path / "node", tmp_path / "x.backup"
    async with running(home, storage=at(url)) as engine:
        await talk(engine)
        await write_notes(url)
        stop = asyncio.Event()
        talking = asyncio.create_task(keep_talking(engine, stop))
        for number in range(2):
            await ran(home, "backup", str(tmp_path / f"{number}.backup"), url=url)
        stop.set()
        await talking
        await ran(home, "backup", str(made), url=url)
        assert "can be restored" in await ran(home, "restore", "--check", str(made), url=url)
    for number in range(2):
        archive = tmp_path / f"{number}.backup"
        await restore.rehearse(archive, tmp_path / "scratch", str)
    before = await shown(home, url)
    assert len(before) > 2
    # On an empty machine, from nothing but the file: a folder, and another server.
    folder = tmp_path / "folder"
    said = await ran(folder, "restore", str(made))
    assert "Everything is as it was" in said
    assert await shown(folder) == before
    assert notes(folder).items() >= {(path, text.encode()) for path, text in NOTES.items()}
    assert "Pinguin" in await ran(folder, "memory", "search", "Pinguin")
    assert "Everything is as it was" in await ran(tmp_path / "n", "restore", str(made), url=other)
    assert await shown(tmp_path / "n", other) == before
    assert "already restored" in await ran(tmp_path / "n", "restore", str(made), url=other)
    # And both go on with it.
    async with running(tmp_path / "n", storage=at(other)) as engine:
        assert await engine.ask("hello again", sender="bo") == "You said: hello again"
        assert HIDDEN in "".join(m.text for m in engine.model.requests[-1].messages)
    async with running(folder) as engine:
        assert await engine.ask("hello again", sender="bo") == "You said: hello again"
    back = tmp_path / "back.backup"
    await ran(folder, "backup", str(back))
    with psycopg.connect(other, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    said = await ran(folder, "restore", str(back), "--to", other)
    assert "CONFIDANT_STORAGE__URL" in said
    assert await shown(tmp_path / "n", other) == await shown(folder)


async def keep_talking(engine: Engine, stop: asyncio.Event) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        await engine.ask(f"message {number}")


@pytest.mark.proof
async def test_what_was_forgotten_on_a_server_since_stays_forgotten(tmp_path, url, other):
    home, made = tmp_path / "node", tmp_path / "x.backup"
    async with running(home, storage=at(url)) as engine:
        await talk(engine)
        await write_notes(url)
        await ran(home, "backup", str(made), url=url)
        await engine.ask(f"/memory forget {HIDDEN}", sender="bo")
        assert "Forgotten" in await engine.ask("/memory forget yes", sender="bo")
        said = await refused(home, "restore", str(made), "--to", other, url=url)
        assert "Stop all nodes" in said
    await settled(url)
    assert "not empty" in await refused(home, "restore", str(made), url=url)
    said = await ran(home, "restore", str(made), "--to", other, url=url)
    assert "stays forgotten" in said
    assert "Left as they are: 1 note" in said
    async with running(tmp_path / "n", storage=at(other)) as engine:
        await engine.ask("what do you know?", sender="bo")
        seen = "".join(repr(m) for request in engine.model.requests for m in request.messages)
        assert "what do you know" in seen
        assert HIDDEN not in seen
    with psycopg.connect(other) as connection:
        texts = dict(connection.execute("SELECT path, text FROM notes").fetchall())
    assert texts["MEMORY.md"] == NOTES["MEMORY.md"]
    assert texts[OF_BO] == "- the boat is blue\n"
    assert not any(HIDDEN in text for text in texts.values())
    folder = tmp_path / "folder"
    said = await ran(home, "restore", str(made), "--to", str(folder), url=url)
    assert "stays forgotten" in said
    assert f'dir = "{folder}"' in said
    assert not any(HIDDEN.encode() in text for text in notes(folder).values())


async def test_a_restore_killed_half_way_is_completed_by_the_same_command(
    tmp_path, url, monkeypatch
):
    home, made, another = tmp_path / "home", tmp_path / "x.backup", tmp_path / "y.backup"
    async with running(home) as engine:
        await talk(engine)
        await ran(home, "backup", str(made))
        await engine.ask("since then")
        await ran(home, "backup", str(another))
    before = await shown(home)
    told: list[str] = []

    class Killed(BaseException):
        pass

    class Dying(Move):
        def __init__(self, source: Home, target: Home, clock: Clock, *, advance: Any) -> None:
            def die(what: MoveStep) -> None:
                told.append(what.what)
                if len(told) in {1, 12, 30}:
                    raise Killed

            super().__init__(source, target, clock, die, advance)

    monkeypatch.setattr(restore, "Move", Dying)
    config, _ = make_config(tmp_path / "n", storage=at(url))
    for _ in range(3):
        with pytest.raises(Killed):
            await restore.to_server(another, url, config, str, clock=FakeClock())
        with pytest.raises(StorageError, match="`confidant restore`, again"):
            async with running(tmp_path / "n", storage=at(url)):
                pass
        with pytest.raises(StorageError, match="from elsewhere"):
            await restore.to_server(made, url, config, str, clock=FakeClock())
    assert "Everything is as it was" in await ran(tmp_path / "n", "restore", str(another), url=url)
    assert await shown(tmp_path / "n", url) == before
    assert not list((tmp_path / "n" / "backups").rglob("*"))[1:]


async def test_how_far_a_copy_is_is_told(tmp_path, url):
    home, made, steps = tmp_path / "home", tmp_path / "x.backup", list[tuple[int, int]]()
    async with running(home) as engine:
        await talk(engine)
    await ran(home, "backup", str(made))
    config, _ = make_config(home, storage=at(url))

    def copying(done: int, total: int) -> None:
        steps.append((done, total))

    done = await restore.to_server(made, url, config, str, clock=FakeClock(), copying=copying)
    assert done is not None
    assert steps[-1][0] == steps[-1][1] > 10
    steps.clear()
    target = tmp_path / "y.backup"
    await backup.make(config, target, None, "", clock=FakeClock(), copying=copying)
    assert steps[-1][0] == steps[-1][1] > 10


async def test_what_is_no_empty_server_is_refused_and_left(tmp_path, url):
    home = tmp_path / "home"
    async with running(home) as engine:
        await engine.ask("hello")
    made = tmp_path / "x.backup"
    await ran(home, "backup", str(made))
    assert "takes postgresql://" in await refused(home, "restore", str(made), "--to", "mysql://x")
    gone = "postgresql://me:secret@127.0.0.1:1/nothing"
    for words, where in ((("backup", str(tmp_path / "y")), gone), (("restore", str(made)), gone)):
        said = await refused(tmp_path / "n", *words, url=where)
        assert "127.0.0.1:1/nothing" in said
        assert "secret" not in said
    assert "confidant migrate" in await refused(home, "backup", str(tmp_path / "y"), url=url)
    made.write_bytes(made.read_bytes()[:-1])
    assert "ends too early" in await refused(tmp_path / "n", "restore", str(made), url=url)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('meta')").fetchone() == (None,)
    assert not (tmp_path / "y").exists()


async def test_of_many_nodes_one_makes_it(tmp_path, url):
    target = tmp_path / "share"
    target.mkdir()
    database = await PostgresDatabase.open(url)
    await database.start(takeover.prepare)
    try:
        one = OneAtATime()
        nodes = [node(tmp_path / str(number), url, target, database, one) for number in range(3)]
        await asyncio.gather(*(each.look() for each in nodes))
        state = await database.read(backup_state.read)
        (made,) = found(target, state.bot).values()
        assert (state.made.archive, state.tested.archive) == (made.name, made.name)
    finally:
        await database.close()


def node(
    home: Path, url: str, target: Path, database: PostgresDatabase, turns: OneAtATime
) -> Backups:
    config, _ = make_config(home, storage=at(url), backup={"folder": target})
    return Backups(config, database, turns, FakeClock(), metrics=Metrics(), settings=lambda: "")
