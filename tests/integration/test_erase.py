"""Erasing one person: nothing of theirs is left anywhere, and all of everybody else's stays."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import apsw
import orjson
import pytest
from typer.testing import CliRunner, Result

from bot.cli.main import cli
from bot.clock import DAY_MS, to_the_minute
from bot.portability.places import all_tables
from bot.portability.schedule import name_of
from bot.storage import backup_state
from bot.storage.backup_state import BackupState
from bot.storage.files import ERASING, DataDirLock
from bot.storage.records import keep
from bot.storage.sqlite_sql import SqliteTransaction
from bot.storage.tables import MOVED
from tests.fakes.persons import ADA, BO, OPEN_ROOMS, holding, live, space_of
from tests.support import NOON, beside, running, write_file

pytestmark = pytest.mark.usefixtures("logs_stay")

NOBODYS = {"rooms", "moved_chats", "meta", "prefix_texts"}  # other rules hold for those
NAMES = (ADA, "memory:ada", space_of("ada"))


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which both talked; nothing runs on it."""
    folder = tmp_path_factory.mktemp("lived") / "home"
    asyncio.run(live(folder))
    return folder


@pytest.fixture
def folder(lived: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(lived, tmp_path / "home"))


def invoke(folder: Path, *words: str, typed: str = "", **more: str) -> Result:
    where = {
        "CONFIDANT_STORAGE__DIR": str(folder),
        "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
        "CONFIDANT_MEMORY__WATCH": "false",
        **more,
    }
    return CliRunner().invoke(cli, list(words), env=where, input=typed)


def test_nothing_is_left_of_them_and_everything_of_others(folder: Path) -> None:
    assert holding(folder, *NAMES)
    others = kept_of(folder, BO)
    done = invoke(folder, "erase", "memory:ada", "--yes")
    assert done.exit_code == 0, done.exception
    assert "memory:ada is erased" in done.output
    assert not holding(folder, *NAMES)
    assert kept_of(folder, BO) == others
    assert not (folder / "erasing.json").exists()
    asyncio.run(go_on(folder))
    assert not holding(folder, ADA)


def kept_of(folder: Path, word: str) -> list[str]:
    return [name for name in holding(folder, word) if name.startswith(("workspace", "table"))]


def test_in_a_room_a_mark_stays_and_others_lines_are_as_they_were(folder: Path) -> None:
    (before,) = (p for p in (folder / "sessions").rglob("*.jsonl") if '"den"' in p.read_text())
    was = before.read_text().splitlines()
    assert invoke(folder, "erase", "memory:ada", "--yes").exit_code == 0
    asyncio.run(go_on(folder))  # the start writes it anew
    now = before.read_text().splitlines()
    assert len(now) == len(was)
    changed = [n for n, (one, other) in enumerate(zip(was, now, strict=True)) if one != other]
    # What she said and was answered, and what Bo quoted her with, with its answer.
    assert [n for n, line in enumerate(was) if ADA in line] == changed
    for number in changed:
        one, other = json.loads(was[number]), json.loads(now[number])
        assert {**one, "message": 0} == {**other, "message": 0}
        assert one["message"]["role"] == other["message"]["role"]
        assert "(forgotten" in other["message"]["text"]
    assert not [*(folder / "sessions").rglob(f"{before.name}.kept-*")]


@pytest.mark.parametrize(
    ("words", "typed", "said"),
    [
        (("owner", "--yes"), "", "main is the owner"),
        (("console:owner", "--yes"), "", "main is the owner"),
        (("nobody", "--yes"), "", "Nobody is called 'nobody'"),
        (("memory:eve", "--yes"), "", "Nothing is kept about memory:eve"),
        (("--finish",), "", "No erasure from"),
        ((), "", "Name the person to erase"),
        (("memory:ada", "--finish"), "", "name nobody"),
        (("memory:ada",), "y\nmemory:bo\n", "That is a different name. Nothing was changed."),
    ],
)
def test_who_is_not_erased_is_said_and_nothing_is_touched(
    folder: Path, words: tuple[str, ...], typed: str, said: str
) -> None:
    before = digests(folder)
    result = invoke(folder, "erase", *words, typed=typed)
    assert said in str(result.exception), result.output
    assert digests(folder) == before


def test_it_asks_twice_and_says_what_goes_before(folder: Path) -> None:
    before = digests(folder)
    left = invoke(folder, "erase", "memory:ada", typed="n\n")
    assert left.exit_code == 1
    assert digests(folder) == before
    done = invoke(folder, "erase", "memory:ada", typed="y\nmemory:ada\n")
    assert done.exit_code == 0, done.exception
    for line in ("2  conversations", "1  reminders", "1  messages in rooms", "2  files below"):
        assert line in done.output


def test_what_still_holds_them_is_listed(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    state = BackupState(bot="abcd")
    asyncio.run(noted(folder, state))
    made = elsewhere / name_of("abcd", NOON)
    made.write_text("sealed")
    (folder / "confidant.db.damaged-20261101-101010").write_text("old")
    (folder / "before-restore-20261101-101010").mkdir()
    where = {"CONFIDANT_BACKUP__FOLDER": str(elsewhere), "CONFIDANT_BACKUP__KEPT_WEEKS": "1"}
    done = invoke(folder, "erase", "memory:ada", "--yes", **where)
    assert done.exit_code == 0, done.exception
    lines = done.output.splitlines()
    until = to_the_minute(NOON + 14 * DAY_MS, None)
    assert any(line.startswith(f"  {made}") and until in line for line in lines)
    for name in ("confidant.db.damaged-20261101-101010", "before-restore-20261101-101010"):
        assert any(name in line and "until you remove it" in line for line in lines)
    assert made.read_text() == "sealed"


async def noted(folder: Path, state: BackupState) -> None:
    async with beside(folder) as database:
        await database.write(
            lambda tx: keep(tx, backup_state.KEY, orjson.dumps(asdict(state)).decode(), NOON)
        )


def test_an_older_backup_that_is_restored_does_not_bring_them_back(
    folder: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "before.backup"
    assert invoke(folder, "backup", str(archive)).exit_code == 0
    others = [name for name in kept_of(folder, BO) if "sessions/" not in name]
    assert invoke(folder, "erase", "memory:ada", "--yes").exit_code == 0
    done = invoke(folder, "restore", str(archive))
    assert done.exit_code == 0, done.exception
    assert not holding(folder, *NAMES)
    assert [name for name in kept_of(folder, BO) if "before-restore" not in name] == others
    asyncio.run(go_on(folder))
    assert not holding(folder, ADA)


def test_a_copy_put_back_by_hand_does_not_bring_them_back(folder: Path, tmp_path: Path) -> None:
    database = folder / "confidant.db"
    copy = Path(shutil.copy(database, tmp_path / "copy.db"))
    assert invoke(folder, "erase", "memory:ada", "--yes").exit_code == 0
    for end in ("", "-wal", "-shm"):
        Path(f"{database}{end}").unlink(missing_ok=True)
    shutil.copy(copy, database)
    asyncio.run(go_on(folder))
    assert not holding(folder, ADA)


def test_who_comes_back_is_kept_by_a_backup_of_then(folder: Path, tmp_path: Path) -> None:
    assert invoke(folder, "erase", "memory:ada", "--yes").exit_code == 0
    asyncio.run(come_back(folder))
    archive = tmp_path / "since.backup"
    assert invoke(folder, "backup", str(archive)).exit_code == 0
    assert invoke(folder, "restore", str(archive)).exit_code == 0
    assert holding(folder, "zqagain")
    assert (folder / "workspace" / space_of("ada") / "MEMORY.md").exists()


def test_who_is_erased_a_second_time_stays_so(folder: Path, tmp_path: Path) -> None:
    assert invoke(folder, "erase", "memory:ada", "--yes").exit_code == 0
    asyncio.run(come_back(folder))
    archive = tmp_path / "between.backup"
    assert invoke(folder, "backup", str(archive)).exit_code == 0
    assert invoke(folder, "erase", "memory:ada", "--yes").exit_code == 0
    assert not holding(folder, "zqagain", *NAMES)
    assert invoke(folder, "restore", str(archive)).exit_code == 0
    assert not holding(folder, "zqagain", *NAMES)


async def come_back(folder: Path) -> None:
    async with running(folder, channels=OPEN_ROOMS) as engine:
        await engine.ask("zqagain hello", sender="ada")
        space = folder / "workspace" / space_of("ada")
        write_file(space / "MEMORY.md", "- again\n")


@pytest.mark.parametrize(
    "words",
    [
        ("backup", "{0}/x.backup"),
        ("restore", "{0}/before.backup"),
        ("export", "memory:bo", "{0}/bo.zip"),
        ("sessions", "list"),
        ("move", "--to", "{0}/moved"),
        ("erase", "memory:bo", "--yes"),
    ],
)
def test_nothing_else_is_done_while_somebody_is_half_erased(
    folder: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    assert invoke(folder, "backup", str(tmp_path / "before.backup")).exit_code == 0
    (folder / ERASING).write_text("{}")
    before = digests(folder)
    result = invoke(folder, *(word.format(tmp_path) for word in words))
    assert "confidant erase --finish" in str(result.exception), result.output
    assert digests(folder) == before
    assert {path.name for path in tmp_path.iterdir()} == {"home", "before.backup"}


def test_not_while_the_bot_runs(folder: Path) -> None:
    with DataDirLock(folder):
        result = invoke(folder, "erase", "memory:ada", "--yes")
    assert "already runs" in str(result.exception)


def test_a_row_of_theirs_in_any_table_goes(folder: Path) -> None:
    """Also what the two of them never came to: logins, files, links, blocks."""
    connection = apsw.Connection(str(folder / "confidant.db"))
    tx = SqliteTransaction(connection)
    ((session,),) = tx.execute("SELECT id FROM sessions WHERE person = 'memory:ada' LIMIT 1")
    ((seq,),) = tx.execute("SELECT max(seq) FROM entries WHERE session_id = ?", (session,))
    theirs = {
        "person": "memory:ada",
        "channel": "memory",
        "account": "default",
        "chat": "ada",
        "sender": "ada",
        "session_id": session,
        "seq": seq,
        "space": space_of("ada"),
        "root_channel": "discord",
        "root_sender": "77",
        "origin": "{}",
        "repeat": 900,
    }
    made = 0
    for table in all_tables():
        if table.name in NOBODYS | {"entries", "sessions", "conversations"}:
            continue
        row = {name: theirs.get(name, ADA) for name in table.columns}
        if table.name in {"page_logins", "page_links", "api_keys", "hooks"}:
            row["person"] = "ada-page"
        if table.name == "page_people":
            row["name"] = "ada-page"
        if table.serial:
            row[table.serial] = 900
        if table.name == "hidden":
            row["block"] = 9
        marks = ", ".join("?" * len(row))
        sql = f"INSERT OR IGNORE INTO {table.name}({', '.join(row)}) VALUES ({marks})"
        tx.execute(sql, tuple(row.values()))
        made += connection.changes()
    connection.close()
    assert made > 20
    done = invoke(folder, "erase", "discord:77", "--yes")  # what that one is linked to
    assert done.exit_code == 0, done.exception
    assert not holding(folder, *NAMES, "ada-page", "discord:77")


def test_what_is_nobodys_alone_is_said() -> None:
    assert {table.name for table in MOVED if not table.owner} == NOBODYS


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith((".lock", "-wal", "-shm"))
    }


async def go_on(folder: Path) -> None:
    """The others' conversations go on, also in the room; whoever was erased is a stranger."""
    async with running(folder, channels=OPEN_ROOMS) as engine:
        assert "hello" in await engine.ask("hello", sender="bo")
        told = "".join(m.text for m in engine.model.requests[-1].messages)
        assert BO in told
        assert "hi" in await engine.ask("hi", sender="ada")
        prompt = engine.model.requests[-1]
        assert ADA not in prompt.system + "".join(str(m) for m in prompt.messages)
