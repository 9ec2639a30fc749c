"""Backups: made while the bot runs, restored on an empty machine, refused unless they are whole."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Sequence
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import pytest
from typer.testing import CliRunner, Result

from bot.cli.main import cli
from bot.errors import ArchiveRefused
from bot.identity.view import folder_name
from bot.memory.memory import OWNER_VIEW
from bot.portability import passphrase, restore
from bot.storage import backup, schema
from bot.storage.files import DataDirLock
from tests.fakes.brain import change, query
from tests.support import NOON, FakeClock, running, until, write_file

pytestmark = pytest.mark.usefixtures("logs_stay")

HIDDEN = "zqhidden"
OF_NIGHTS = "SELECT key FROM meta WHERE key LIKE 'night:%'"
LONG = "r" * 90
NOTES = {
    "MEMORY.md": "# Lasting\n- the boat is called Pinguin\n",
    "memory/2026-11-20.md": "# Friday\r\n- 水母 at the harbour, no newline at the end",
    "people/memory-ada/memory/trip.md": "- to 北京 by train\n",
    "shared/rules.md": "Be kind.\n",
    f"memory/{LONG}/{LONG}/{LONG}.md": "deep\n",
    "picture.png": "\x89PNG",
}


async def talk(folder: Path) -> None:
    async with running(folder) as engine:
        await engine.ask("the code of my bike is 4711 水母")
        await engine.ask_each("/remind in 3 hours water the plants", "/new")
        await engine.ask_each("a nul \0 and an emoji 👍", f"my secret is {HIDDEN}", sender="bo")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which people talked; nothing runs on it."""
    folder = tmp_path_factory.mktemp("made") / "home"
    asyncio.run(talk(folder))
    for name, text in NOTES.items():
        write_file(folder / "workspace" / name, text.encode())
    os.utime(folder / "workspace" / "MEMORY.md", ns=(1, 1_700_000_000_123_456_789))
    (folder / "workspace" / ".env").write_text("SECRET=zqsecret\n")
    (folder / "workspace" / "link.md").symlink_to("/etc/passwd")
    return folder


@pytest.fixture(scope="module")
def archive(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("archive") / "home.backup"
    with pytest.MonkeyPatch.context() as patch:  # `logs_stay` is for one test only
        patch.setattr("bot.logs.configure", lambda _config: None)
        result = invoke(made, "backup", str(target))
    assert result.exit_code == 0, result.output
    return target


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "home", symlinks=True))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def invoke(folder: Path, *words: str, **environment: str) -> Result:
    where = {
        "CONFIDANT_STORAGE__DIR": str(folder),
        "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
        "CONFIDANT_MEMORY__WATCH": "false",
    }
    return CliRunner().invoke(cli, list(words), env={**where, **environment})


def refused(folder: Path, *words: str, **environment: str) -> str:
    """What a command says that fails, which is one line; nothing is touched."""
    before = digests(folder)
    result = invoke(folder, *words, **environment)
    assert isinstance(result.exception, Exception), result.output
    assert not result.output
    assert digests(folder) == before
    said = str(result.exception)
    assert "\n" not in said
    return said


def digests(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file, but the lock: its content and when it changed."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "confidant.lock"
    }


def of(folder: Path, part: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in (folder / part).rglob("*")
        if path.is_file() and not path.is_symlink()
        if path.name != ".env" and path.suffix != ".tmp"  # which is one that is being written
    }


def history(folder: Path) -> list[str]:
    """What an operator finds by search and sees of every conversation."""
    said = [invoke(folder, "sessions", "list").output]
    for (id_,) in query(folder, "SELECT id FROM sessions ORDER BY id"):
        said.append(invoke(folder, "sessions", "show", id_).output)
    searches = ("Pinguin", "水母", "harbour")
    return [*said, *(invoke(folder, "memory", "search", words).output for words in searches)]


# --- there and back ---------------------------------------------------------------------------


def test_on_an_empty_machine_the_same_is_found_and_shown(made, archive, tmp_path):
    other = tmp_path / "other"
    result = invoke(other, "restore", str(archive))
    assert result.exit_code == 0, result.exception
    assert "Everything is as it was" in result.output
    assert of(other, "workspace") == of(made, "workspace")
    note = other / "workspace" / "MEMORY.md"
    assert note.stat().st_mtime_ns == 1_700_000_000_123_456_789
    assert not list(other.glob("before-restore-*"))
    assert not (other / "restoring").exists()
    asked = history(other)
    assert asked == history(made)
    assert any("Pinguin" in each for each in asked)
    assert all(path.stat().st_mode & 0o077 == 0 for path in other.rglob("*"))
    assert archive.stat().st_mode & 0o777 == 0o600
    asyncio.run(start(other, of(made, "sessions")))


async def start(folder: Path, transcripts: dict[str, bytes]) -> None:
    """The next start writes transcripts again."""
    async with running(folder):
        await until(lambda: of(folder, "sessions").items() >= transcripts.items())


@pytest.mark.slow
@pytest.mark.usefixtures("built_in_embedder")
def test_the_same_is_found_by_what_it_means(made, archive, tmp_path):
    other, real = tmp_path / "other", {"CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "multilingual"}
    assert invoke(other, "restore", str(archive)).exit_code == 0
    for words in ("what is our vessel called", "火车", "the harbour"):
        here = invoke(made, "memory", "search", words, **real)
        assert here.exit_code == 0, here.exception
        assert here.output == invoke(other, "memory", "search", words, **real).output
        assert here.output.strip()


async def test_the_bot_goes_on_with_what_was_restored(archive, tmp_path):
    other = tmp_path / "other"
    await restore.restore(archive, other, other / "workspace", str, clock=FakeClock())
    async with running(other) as engine:
        seen = await engine.ask("hello again", sender="bo")
        assert seen == "You said: hello again"
        assert HIDDEN in "".join(m.text for m in engine.model.requests[-1].messages)


def test_no_secret_and_no_link_is_in_it(archive):
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        settings = tar.extractfile("settings.toml")
        assert settings is not None
        assert b"[storage]" in settings.read()
    assert names[0] == "confidant-backup.json"
    assert names[-1] == "manifest.json"
    assert not [name for name in names if ".env" in name or "link.md" in name]


async def test_it_is_made_while_people_write(tmp_path):
    home = tmp_path / "home"
    async with running(home) as engine:
        talking = asyncio.create_task(keep_talking(engine))
        for number in range(3):
            target = tmp_path / f"{number}.backup"
            result = await asyncio.to_thread(invoke, home, "backup", str(target))
            assert result.exit_code == 0, result.exception
        talking.cancel()
        for number in range(3):
            checked = await asyncio.to_thread(
                invoke, home, "restore", "--check", str(tmp_path / f"{number}.backup")
            )
            assert "can be restored" in checked.output, checked.exception
    assert not list((home / "backups").glob("archive.partial/*"))


async def keep_talking(engine: Any) -> None:
    number = 0
    while True:
        number += 1
        await engine.ask(f"message {number}")


def test_what_was_there_is_kept_aside(folder, archive):
    before = digests(folder)
    (folder / "workspace" / "new.md").write_text("since\n")
    result = invoke(folder, "restore", str(archive))
    assert result.exit_code == 0, result.exception
    (aside,) = folder.glob("before-restore-*")
    assert str(aside) in result.output
    assert (aside / "workspace" / "new.md").read_text() == "since\n"
    assert not (folder / "workspace" / "new.md").exists()
    kept = digests(aside)
    lasting = {name for name in before if "index" not in name and not name.endswith("-shm")}
    assert {name: kept[name][0] for name in lasting} == {name: before[name][0] for name in lasting}
    # Whoever opens the database first after a crash may touch an empty log, whatever it reads.
    untouched = {name for name in lasting if not name.endswith("-wal")}
    assert {name: kept[name] for name in untouched}.items() <= before.items()


def test_a_workspace_elsewhere_is_swapped_where_it_is(folder, archive, tmp_path):
    notes = tmp_path / "notes"
    (folder / "workspace").rename(notes)
    (notes / "new.md").write_text("since\n")
    where = {"CONFIDANT_MEMORY__WORKSPACE": str(notes)}
    assert invoke(folder, "restore", str(archive), **where).exit_code == 0
    assert (notes / "MEMORY.md").is_file()
    assert not (notes / "new.md").exists()
    (aside,) = tmp_path.glob("notes-before-restore-*")
    assert (aside / "new.md").is_file()
    assert not (folder / "workspace").exists()


def test_nothing_is_restored_while_the_bot_runs(folder, archive):
    with DataDirLock(folder):
        assert "already runs" in refused(folder, "restore", str(archive))


def test_a_backup_takes_nothings_place(folder, archive, tmp_path):
    assert "there already" in refused(folder, "backup", str(archive))
    assert "no folder" in refused(folder, "backup", str(tmp_path / "none" / "x"))
    inside = folder / "workspace" / "x"
    assert "workspace" in refused(folder, "backup", str(inside))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no database" in refused(empty, "backup", str(tmp_path / "x"))


# --- what was forgotten since ------------------------------------------------------------------


async def test_what_was_forgotten_since_stays_forgotten(tmp_path):
    home, target = tmp_path / "home", tmp_path / "x.backup"
    async with running(home) as engine:
        await engine.ask(f"my secret is {HIDDEN}", sender="bo")
        await engine.ask("hello")
        await engine.app.maintenance.nights.keeper.skip(OWNER_VIEW, date(2026, 11, 21))
    assert query(home, OF_NIGHTS) == [("night:main",)]
    note = home / "workspace" / "people" / folder_name("memory:bo") / "memory" / "trip.md"
    write_file(note, f"- the word is {HIDDEN}\n- the boat is blue\n")
    made = await asyncio.to_thread(invoke, home, "backup", str(target))
    assert made.exit_code == 0, made.exception
    async with running(home) as engine:
        await engine.ask(f"/memory forget {HIDDEN}", sender="bo")
        assert "Forgotten" in await engine.ask("/memory forget yes", sender="bo")
    (home / "workspace" / "MEMORY.md").write_text("since\n")
    done = await asyncio.to_thread(invoke, home, "restore", str(target))
    assert "stays forgotten" in done.output, done.exception
    assert "Left as they are: 1 note" in done.output
    assert note.read_text() == "- the boat is blue\n"
    assert (home / "workspace" / "MEMORY.md").read_text() != "since\n"
    assert query(home, OF_NIGHTS) == []  # it may tell of entries that were forgotten since
    async with running(home) as engine:
        await engine.ask("what do you know?", sender="bo")
        seen = "".join(repr(m) for request in engine.model.requests for m in request.messages)
        assert "what do you know" in seen
        assert HIDDEN not in seen
    assert HIDDEN.encode() in b"".join(of(home, "sessions").values())  # a transcript only grows
    lost = tmp_path / "lost"  # the disk is lost after this: forgetting is in the newer backup
    again = await asyncio.to_thread(invoke, home, "backup", str(tmp_path / "y.backup"))
    assert again.exit_code == 0, again.exception
    await asyncio.to_thread(invoke, lost, "restore", str(tmp_path / "y.backup"))
    assert query(lost, "SELECT seq, block FROM hidden") == query(
        home, "SELECT seq, block FROM hidden"
    )


async def forget(home: Path) -> None:
    async with running(home) as engine:
        await engine.ask(f"/memory forget {HIDDEN}", sender="bo")
        assert "Forgotten" in await engine.ask("/memory forget yes", sender="bo")


async def is_forgotten(home: Path) -> bool:
    async with running(home) as engine:
        await engine.ask("what do you know?", sender="bo")
        return HIDDEN not in repr(engine.model.requests)


async def done(home: Path, *words: str) -> None:
    result = await asyncio.to_thread(invoke, home, *words)
    assert result.exit_code == 0, result.exception


async def test_it_stays_forgotten_also_beyond_a_backup_that_never_knew_it(tmp_path):
    home = tmp_path / "home"
    async with running(home) as engine:
        await engine.ask("hello", sender="bo")
    await done(home, "backup", str(tmp_path / "before"))
    async with running(home) as engine:
        await engine.ask(f"my secret is {HIDDEN}", sender="bo")
    await done(home, "backup", str(tmp_path / "with"))
    await forget(home)
    await done(home, "restore", str(tmp_path / "before"))
    await done(home, "restore", str(tmp_path / "with"))
    assert await is_forgotten(home)


@pytest.mark.parametrize("left", ["copy and log", "log", "nothing"])
async def test_a_damaged_database_tells_what_was_forgotten_or_does_not_stand_in_the_way(
    tmp_path, left
):
    home = tmp_path / "home"
    async with running(home) as engine:
        await engine.ask(f"my secret is {HIDDEN}", sender="bo")
    await done(home, "backup", str(tmp_path / "x"))
    if left == "copy and log":
        backup.make(home / "confidant.db", 1, NOON)
    await forget(home)
    if left == "nothing":
        shutil.rmtree(home / "backups")
    with (home / "confidant.db").open("r+b") as file:
        file.write(os.urandom(5_000))
    await done(home, "restore", str(tmp_path / "x"))
    assert await is_forgotten(home) is (left != "nothing")


async def test_a_long_result_that_was_removed_since_does_not_come_back(tmp_path):
    home = tmp_path / "home"
    async with running(home) as engine:
        await engine.ask("hello", sender="bo")
    insert = "INSERT INTO artifacts SELECT '{}', id, 'search', {}, 'words' FROM sessions"
    change(home, insert.format("old", 0))
    change(home, insert.format("new", 1 << 50))
    await done(home, "backup", str(tmp_path / "x"))
    change(home, "DELETE FROM artifacts")
    await done(home, "restore", str(tmp_path / "x"))
    # The conversation there has not come to the other one: that may be of another time.
    assert query(home, "SELECT id FROM artifacts") == [("new",)]


# --- what is refused ----------------------------------------------------------------------------


def packed(members: Sequence[tuple[tarfile.TarInfo, bytes]], *, end: bytes = b"") -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as tar:
        for info, data in members:
            info.size = len(data) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(data))
    return gzip.compress(found.getvalue() + end, 1)


@cache
def read(archive: Path) -> tuple[tuple[tarfile.TarInfo, bytes], ...]:
    with tarfile.open(archive) as tar:
        found = [(info, tar.extractfile(info)) for info in tar]
        return tuple((info, file.read()) for info, file in found if file is not None)


def with_head(archive: Path, **changes: Any) -> bytes:
    (info, head), *rest = read(archive)
    return packed([(info, json.dumps({**json.loads(head), **changes}).encode()), *rest])


def named(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def with_more(archive: Path, info: tarfile.TarInfo, data: bytes = b"x") -> bytes:
    """An archive with another member, which its manifest knows."""
    *members, (last, said) = read(archive)
    manifest = json.loads(said)
    digest = hashlib.sha256(data).hexdigest()
    manifest["members"][info.name] = {"size": len(data), "sha256": digest, "changed_at": 0}
    return packed([*members, (info, data), (last, json.dumps(manifest).encode())])


def with_database(archive: Path, statement: str, **changes: int) -> bytes:
    """An archive whose database is another one, which its manifest knows."""
    members = {info.name: (info, data) for info, data in read(archive)}
    path = archive.with_name("altered.db")
    path.write_bytes(members["confidant.db"][1])
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    data = path.read_bytes()
    manifest = json.loads(members["manifest.json"][1])
    known = manifest["members"]["confidant.db"]
    known |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["rows"] |= changes
    members["confidant.db"] = (members["confidant.db"][0], data)
    last = (members["manifest.json"][0], json.dumps(manifest).encode())
    return packed([*list(members.values())[:-1], last])


def with_said(archive: Path, name: str, **changes: Any) -> bytes:
    """An archive whose manifest says something else of a file."""
    *members, (last, said) = read(archive)
    manifest = json.loads(said)
    manifest["members"][name] |= changes
    return packed([*members, (last, json.dumps(manifest).encode())])


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


Spoil = Callable[[Path], bytes]

SPOILED: dict[str, tuple[Spoil, str]] = {
    "empty": (lambda _: b"", "no backup"),
    "text": (lambda _: b"hello there" * 100, "no backup"),
    "another gzip": (lambda _: gzip.compress(b"hello" * 1000), "no backup"),
    "another tar": (lambda _: packed([(named("README.md"), b"hi")]), "no backup"),
    "a folder": (lambda _: packed([(named("x", tarfile.DIRTYPE), b"")]), "no backup"),
    "cut at once": (lambda a: a.read_bytes()[:20], "ends too early|no backup"),
    "cut in the middle": (lambda a: a.read_bytes()[: a.stat().st_size // 2], "ends too early"),
    "cut at the end": (lambda a: a.read_bytes()[:-1], "ends too early"),
    "no manifest": (lambda a: packed(read(a)[:-1]), "ends too early"),
    # A byte within gzip may look like its end.
    "another byte": (
        lambda a: flipped(a.read_bytes(), a.stat().st_size // 2),
        "damaged|ends too early",
    ),
    "another last byte": (lambda a: flipped(a.read_bytes(), a.stat().st_size - 6), "damaged"),
    "more behind it": (lambda a: packed(read(a), end=b"more"), "behind its end"),
    "a newer format": (lambda a: with_head(a, format=2, program="9.0"), "newer Confidant \\(9.0"),
    "newer tables": (lambda a: with_head(a, schema=schema.VERSION + 1), "newer"),
    "a strange head": (lambda a: with_head(a, made_at="noon"), "damaged"),
    "out of the folder": (lambda a: with_more(a, named("../../evil")), "no name"),
    "absolute": (lambda a: with_more(a, named("/evil")), "no name"),
    "up from notes": (lambda a: with_more(a, named("workspace/../evil")), "no name"),
    "a place of nobody's": (lambda a: with_more(a, named("restoring/begun.json")), "no name"),
    "deep": (lambda a: with_more(a, named("workspace/" + "a/" * 100 + "a")), "no name"),
    "a link": (
        lambda a: with_more(a, named("workspace/l", tarfile.SYMTYPE, "/etc"), b""),
        "no plain file",
    ),
    "a hard link": (
        lambda a: with_more(a, named("workspace/l", tarfile.LNKTYPE, "confidant.db"), b""),
        "no plain file",
    ),
    "a device": (lambda a: with_more(a, named("workspace/l", tarfile.CHRTYPE), b""), "no plain"),
    "twice": (lambda a: packed([*read(a)[:2], *read(a)[1:]]), "no name|twice"),
    "a file for a folder": (
        lambda a: with_more(a, named("workspace/MEMORY.md/x")),
        "twice",
    ),
    "not in its manifest": (
        lambda a: packed([*read(a)[:-1], (named("workspace/x"), b"x"), read(a)[-1]]),
        "not what it was",
    ),
    "one less": (lambda a: packed([*read(a)[:2], *read(a)[3:]]), "not what it was"),
    "another content": (
        lambda a: packed([(i, d if i.name != "workspace/MEMORY.md" else b"x") for i, d in read(a)]),
        "MEMORY.md.* is not what it was",
    ),
    "other rows": (
        lambda a: with_database(a, "DELETE FROM entries WHERE seq = 1"),
        "'entries' is not what it was",
    ),
    "a table of nobody's": (lambda a: with_database(a, "SELECT 1", nothing=1), "not what it was"),
    "a trigger": (
        lambda a: with_database(
            a, "CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM entries; END"
        ),
        "by itself",
    ),
    "no database": (
        lambda a: packed([*read(a)[:1], (named("manifest.json"), b'{"members":{},"rows":{}}')]),
        "damaged",
    ),
    "a moment out of time": (
        lambda a: with_said(a, "workspace/MEMORY.md", changed_at=10**30),
        "damaged",
    ),
    "made in no year": (lambda a: with_head(a, made_at=10**20), "damaged"),
    "an author who writes on the terminal": (
        lambda a: with_head(a, format=2, program="\x1b[2J\n9.1"),
        r"newer Confidant \(2J9\.1,",
    ),
    "tables without columns": (
        lambda a: with_database(a, "ALTER TABLE zones RENAME COLUMN zone TO place"),
        "not what it was",
    ),
    "a manifest of everything": (
        lambda a: packed(
            [*read(a)[:-1], (named("manifest.json"), b'{"members":{},"rows":{}}' + b" " * 10**6)]
        ),
        "damaged",
    ),
    "a manifest of nothing": (
        lambda a: packed([*read(a)[:1], (named("manifest.json"), b"[" * 100000)]),
        "damaged",
    ),
}


def test_what_is_not_whole_is_refused_in_one_line(folder, archive, tmp_path):
    bad = tmp_path / "bad.backup"
    before = digests(folder)
    for how, (spoil, said) in SPOILED.items():
        bad.write_bytes(spoil(archive))
        with pytest.raises(ArchiveRefused) as found:
            asyncio.run(restore.restore(bad, folder, folder / "workspace", str, clock=FakeClock()))
        line = str(found.value)
        assert re.search(said, line), (how, line)
        assert "Nothing was changed" in line
        assert "\n" not in line
        assert digests(folder) == before, how


async def test_a_name_in_an_archive_is_never_a_statement(archive, tmp_path):
    made, bad = tmp_path / "made.db", tmp_path / "bad.backup"
    name = f"""entries; ATTACH '{made}' AS x; CREATE TABLE x.y(z)"""
    bad.write_bytes(with_database(archive, f'CREATE TABLE "{name}"(x)', **{name: 0}))
    await restore.restore(bad, tmp_path / "new", tmp_path / "notes", str, clock=FakeClock())
    assert not made.exists()


def test_a_folder_within_its_workspace_is_not_restored_in_its_place(folder, archive):
    where = {"CONFIDANT_MEMORY__WORKSPACE": str(folder.parent)}
    assert "workspace of its own" in refused(folder, "restore", str(archive), **where)


def test_where_nothing_was_nothing_is_left(archive, tmp_path):
    bad, nowhere = tmp_path / "bad.backup", tmp_path / "nowhere"
    bad.write_bytes(archive.read_bytes()[:-1])
    assert isinstance(invoke(nowhere, "restore", str(bad)).exception, ArchiveRefused)
    assert not nowhere.exists()


def test_a_header_without_end_does_not_fill_the_memory(folder, tmp_path):
    header = named("x", tarfile.XHDTYPE)
    header.size = 1 << 33
    bomb = tmp_path / "bomb"
    with gzip.open(bomb, "wb", 1) as file:
        file.write(header.tobuf(tarfile.PAX_FORMAT))
        for _ in range(40):
            file.write(bytes(1_000_000))
    assert "no backup" in refused(folder, "restore", str(bomb))


def test_a_backup_that_does_not_fit_is_refused_before_it_is_written(folder, archive, monkeypatch):
    monkeypatch.setattr("bot.portability.archive.RESERVE", 1 << 62)
    assert "needs more room" in refused(folder, "restore", str(archive))


def test_a_file_that_is_not_there_is_named(folder, tmp_path):
    assert "nothing.backup" in refused(folder, "restore", str(tmp_path / "nothing.backup"))
    assert "Name the backup" in refused(folder, "restore")
    assert "No restore" in refused(folder, "restore", "--finish")


# --- a passphrase -------------------------------------------------------------------------------


def test_a_sealed_backup_opens_with_its_passphrase_only(folder, tmp_path):
    words, sealed = tmp_path / "words", tmp_path / "sealed.backup"
    words.write_text("correct horse\n")
    result = invoke(folder, "backup", str(sealed), "--passphrase-file", str(words))
    assert result.exit_code == 0, result.exception
    assert "not encrypted" not in result.output
    data = sealed.read_bytes()
    assert b"sessions/" not in data
    other = tmp_path / "wrong"
    other.write_text("battery staple")
    line = refused(folder, "restore", str(sealed), "--passphrase-file", str(other))
    assert "passphrase does not open sealed.backup" in line
    bad = tmp_path / "bad.backup"
    for spoiled, said in (
        (data[:-2000], "ends too early"),
        (flipped(data, len(data) // 2), "damaged"),
        (data[:600], "no backup"),
    ):
        bad.write_bytes(spoiled)
        line = refused(folder, "restore", str(bad), "--passphrase-file", str(words))
        assert re.search(said, line), line
    result = CliRunner().invoke(
        cli,
        ["restore", str(sealed)],
        input="correct horse\n",
        env={"CONFIDANT_STORAGE__DIR": str(tmp_path / "new")},
    )
    assert result.exit_code == 0, result.exception
    assert of(tmp_path / "new", "workspace") == of(folder, "workspace")


@pytest.mark.proof
def test_the_passphrase_of_the_configuration_seals_and_opens(folder, tmp_path):
    sealed, words = tmp_path / "sealed.backup", {"CONFIDANT_BACKUP__PASSPHRASE": "correct horse"}
    assert invoke(folder, "backup", str(sealed), **words).exit_code == 0
    assert sealed.read_bytes().startswith(b"identity.age")
    assert b"correct horse" not in sealed.read_bytes()
    result = invoke(tmp_path / "new", "restore", str(sealed), **words)
    assert "Everything is as it was" in result.output, result.exception
    said = (tmp_path / "new" / "restored-settings.toml").read_text()
    assert "[backup]" in said
    assert "correct horse" not in said


def test_where_there_is_no_memory_for_a_passphrase_nothing_is_made(folder, tmp_path, monkeypatch):
    dying = tmp_path / "dying.py"
    dying.write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setattr(passphrase, "__file__", str(dying))
    words = {"CONFIDANT_BACKUP__PASSPHRASE": "correct horse"}
    result = invoke(folder, "backup", str(tmp_path / "x"), **words)
    assert "half a gigabyte" in str(result.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dying.py", "home"]


def test_a_passphrase_is_one_line_of_a_file(folder, tmp_path):
    words = tmp_path / "words"
    for content in (b"", b"\n", b"a\nb\n", b"x" * 5_000, b"\xff"):
        words.write_bytes(content)
        said = refused(folder, "backup", str(tmp_path / "x"), "--passphrase-file", str(words))
        assert str(words) in said
    assert not (tmp_path / "x").exists()
