"""The SQLite engine when the disk is full, the file is damaged, or others hold it."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import apsw
import pytest

from bot import storage
from bot.errors import StorageBusy, StorageClosed, StorageCorrupt, StorageError, StorageFull
from bot.identity import Place
from bot.recovery import open_database
from bot.sessions import store
from bot.sessions.entries import NewEntry
from bot.sessions.mirror import Mirror
from bot.storage import Transaction, backup, changes, files, insist, schema
from bot.storage.files import DATABASE_NAME, LOCK_NAME, DataDirLock
from bot.storage.sqlite import SqliteDatabase
from tests.faults import faulty_disk
from tests.support import NOON, FakeClock, until, write_file

NOBODY = 65534
PLACE = Place("agent:main:telegram:dm:1", "telegram:1", "telegram", "default", "1", "", "direct")
HOUR = 3_600_000


def put(key: str, size: int = 1):
    return lambda tx: tx.execute("INSERT INTO meta VALUES (?, ?, 0)", (key, "x" * size))


def keys(tx: Transaction) -> list[str]:
    return [row[0] for row in tx.execute("SELECT key FROM meta ORDER BY key")]


# --- a full disk ---------------------------------------------------------------------------------


async def test_a_full_disk_is_told_stores_nothing_and_works_again_with_space(tmp_path):
    with faulty_disk(tmp_path) as disk:
        database = await SqliteDatabase.open(tmp_path / DATABASE_NAME)
        await database.write(put("before"))
        disk.full = True
        for offer in (put("small"), put("large", 2_000_000)):
            with pytest.raises(StorageFull, match="full"):
                await database.write(offer)
        assert disk.refused
        assert await database.read(keys) == ["before"]
        assert not await database.changed_outside()
        disk.full = False
        await database.write(put("after"))
        assert await database.read(keys) == ["after", "before"]
        await database.close()


async def test_everything_of_a_group_is_told_when_the_disk_fills_up(tmp_path):
    with faulty_disk(tmp_path) as disk:
        database = await SqliteDatabase.open(tmp_path / DATABASE_NAME)
        disk.full = True
        writes = [database.write(put(f"k{n}", 100_000)) for n in range(100)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert {type(result) for result in results} == {StorageFull}
        disk.full = False
        assert await database.read(keys) == []
        await database.close()


async def test_space_that_ends_in_the_middle_of_a_group_leaves_nothing_half_stored(tmp_path):
    with faulty_disk(tmp_path) as disk:
        database = await SqliteDatabase.open(tmp_path / DATABASE_NAME)

        def fills(tx: Transaction) -> None:
            disk.full = True
            # More than the page cache holds, so that pages are written before the commit.
            put("large", 40_000_000)(tx)

        writes = [database.write(work) for work in (put("one"), fills, put("two"))]
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(result, StorageFull) for result in results[1:])
        disk.full = False
        stored = await database.read(keys)
        assert stored == ([] if isinstance(results[0], StorageFull) else ["one"])
        await database.close()


async def test_a_database_can_be_closed_and_opened_on_a_full_disk_without_harm(tmp_path):
    with faulty_disk(tmp_path) as disk:
        path = tmp_path / DATABASE_NAME
        database = await SqliteDatabase.open(path)
        await database.write(put("kept"))
        disk.full = True
        await database.close()
        write_file(tmp_path / backup.FOLDER / "confidant-20200101-000000.db", b"old")
        with suppress(StorageFull):  # whether opening needs space is SQLite's business
            await (await open_database(tmp_path, FakeClock())).close()
        assert not list(tmp_path.glob("*damaged*"))
        disk.full = False
        database = await open_database(tmp_path, FakeClock())
        assert await database.read(keys) == ["kept"]
        await database.close()


async def test_insisting_goes_on_until_there_is_space(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "FIRST_RETRY", 0.001)
    with faulty_disk(tmp_path) as disk:
        database = await SqliteDatabase.open(tmp_path / DATABASE_NAME)
        disk.full = True
        tries: list[int] = []

        def work(tx: Transaction) -> str:
            tries.append(1)
            if len(tries) == 3:
                disk.full = False
            put("kept")(tx)
            return "done"

        assert await asyncio.wait_for(insist(database, work), 60) == "done"
        assert len(tries) >= 3
        assert await database.read(keys) == ["kept"]
        await database.close()


async def test_insisting_ends_when_the_database_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "FIRST_RETRY", 0.001)
    with faulty_disk(tmp_path) as disk:
        database = await SqliteDatabase.open(tmp_path / DATABASE_NAME)
        disk.full = True
        insisting = asyncio.create_task(insist(database, put("never")))
        await until(lambda: bool(disk.refused))
        await database.close()
        with pytest.raises(StorageClosed):
            await asyncio.wait_for(insisting, 60)


async def test_insisting_tries_only_what_storage_may_do_better(tmp_path, closing):
    database = closing(await SqliteDatabase.open(tmp_path / DATABASE_NAME))

    def work(tx: Transaction) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError):
        await insist(database, work)


async def test_waiting_writes_share_their_commits(tmp_path, closing):
    database = closing(await SqliteDatabase.open(tmp_path / DATABASE_NAME))
    commits: list[int] = []
    database._tx.connection.set_commit_hook(lambda: commits.append(1) or False)
    await asyncio.gather(*(database.write(put(f"k{n}")) for n in range(1000)))
    assert len(commits) < 100


async def test_a_writer_that_fails_in_an_unforeseen_way_hangs_nobody(tmp_path, monkeypatch):
    database = await SqliteDatabase.open(tmp_path / DATABASE_NAME)
    with monkeypatch.context() as patch:
        patch.setattr("bot.storage.sqlite.attempt", lambda *_: 1 / 0)
        with pytest.raises(StorageError):
            await asyncio.wait_for(database.write(put("a")), 60)
    await database.write(put("b"))
    assert await database.read(keys) == ["b"]
    await database.close()


async def test_a_lock_held_by_another_process_for_too_long_is_told(tmp_path, monkeypatch, closing):
    monkeypatch.setattr("bot.storage.sqlite.BUSY_TIMEOUT_MS", 20)
    database = closing(await SqliteDatabase.open(tmp_path / DATABASE_NAME))
    other = apsw.Connection(str(tmp_path / DATABASE_NAME))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked"):
        await database.write(put("a"))
    assert await database.read(keys) == []
    other.execute("ROLLBACK")
    other.close()
    await database.write(put("a"))


# --- versions ------------------------------------------------------------------------------------


def versions(path: Path) -> list[int]:
    connection = apsw.Connection(str(path))
    rows = connection.execute("SELECT version FROM schema_versions ORDER BY version").fetchall()
    connection.close()
    return [row[0] for row in rows]


async def database_with(folder: Path, *names: str) -> Path:
    """A database that has these keys and is closed again."""
    database = await SqliteDatabase.open(folder / DATABASE_NAME)
    for name in names:
        await database.write(put(name))
    await database.close()
    return folder / DATABASE_NAME


async def reopened(path: Path) -> list[str]:
    database = await SqliteDatabase.open(path)
    found = await database.read(keys)
    await database.close()
    return found


async def test_a_new_file_is_brought_to_the_current_version_and_opening_again_changes_nothing(
    tmp_path,
):
    path = await database_with(tmp_path, "kept")
    before = path.read_bytes()
    assert await reopened(path) == ["kept"]
    assert path.read_bytes() == before
    assert versions(path) == list(range(schema.BASELINE, schema.VERSION + 1))


def next_version(monkeypatch: pytest.MonkeyPatch, *statements: str) -> int:
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, statements))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    return schema.VERSION


async def test_a_step_that_is_added_later_runs_once_and_keeps_what_is_there(tmp_path, monkeypatch):
    path = await database_with(tmp_path, "old")
    version = next_version(
        monkeypatch,
        "CREATE TABLE extra(id {serial}, note TEXT NOT NULL)",
        "INSERT INTO meta VALUES ('migrated', '', 1)",  # would fail if it ran twice
    )
    assert await reopened(path) == ["migrated", "old"]
    assert await reopened(path) == ["migrated", "old"]
    assert versions(path)[-1] == version


async def test_a_step_that_fails_leaves_the_database_as_it_was(tmp_path, monkeypatch):
    path = await database_with(tmp_path, "old")
    before = versions(path)
    with monkeypatch.context() as patch:
        next_version(
            patch,
            "CREATE TABLE extra(id {serial})",
            "INSERT INTO meta VALUES ('half', '', 1)",
            "DROP TABLE not_there",
        )
        with pytest.raises(StorageError):
            await SqliteDatabase.open(path)
    assert await reopened(path) == ["old"]
    assert versions(path) == before
    next_version(monkeypatch, "CREATE TABLE extra(id {serial})")
    assert await reopened(path) == ["old"]


async def test_a_migration_on_a_full_disk_leaves_the_database_as_it_was(tmp_path, monkeypatch):
    with faulty_disk(tmp_path) as disk:
        path = await database_with(tmp_path, "old")
        next_version(monkeypatch, "CREATE TABLE extra(id {serial})")
        disk.full = True
        with pytest.raises(StorageError) as caught:
            await SqliteDatabase.open(path)
        assert not isinstance(caught.value, StorageCorrupt)
        disk.full = False
        assert await reopened(path) == ["old"]


async def test_a_database_of_a_newer_version_is_refused_and_not_touched(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        next_version(patch, "CREATE TABLE extra(id {serial})")
        path = await database_with(tmp_path, "theirs")
    before = path.read_bytes()
    with pytest.raises(StorageError, match=r"newer Confidant.*Nothing was changed"):
        await open_database(tmp_path, FakeClock())
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == [DATABASE_NAME]


# --- permissions ---------------------------------------------------------------------------------


@contextmanager
def as_nobody() -> Iterator[Path]:
    """A folder outside of this user's own, and permissions that count, also when run as root."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        root = os.geteuid() == 0
        if root:
            os.chown(folder, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield folder
        finally:
            if root:
                os.seteuid(0)
            folder.chmod(0o755)


async def test_a_folder_that_cannot_be_written_is_told():
    with as_nobody() as folder:
        folder.chmod(0o500)
        with pytest.raises(StorageError, match="permissions"):
            await SqliteDatabase.open(folder / DATABASE_NAME)
        with pytest.raises(StorageError, match="cannot be used"), DataDirLock(folder):
            pass


async def test_a_file_that_cannot_be_read_is_told_and_not_taken_for_damaged():
    with as_nobody() as folder:
        path = await database_with(folder)
        backup.make(path, 1, NOON)
        path.chmod(0o000)
        with pytest.raises(StorageError, match="permissions") as caught:
            await open_database(folder, FakeClock())
        assert not isinstance(caught.value, StorageCorrupt)
        assert not list(folder.glob("*damaged*"))


async def test_a_storage_folder_that_is_a_file_is_told(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="cannot be used"), DataDirLock(tmp_path / "file"):
        pass
    with pytest.raises(StorageError):
        await SqliteDatabase.open(tmp_path / "file" / DATABASE_NAME)


async def test_the_database_is_for_its_owner_only(tmp_path):
    path = await database_with(tmp_path / "new")
    copy = backup.make(path, 1, NOON)
    for each in (path, path.parent, copy, copy.parent):
        assert each.stat().st_mode & 0o077 == 0


# --- one process at a time -----------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from bot.storage.files import DataDirLock
with DataDirLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def test_a_folder_held_by_another_process_is_refused_with_its_number_until_it_is_killed(tmp_path):
    with holder(tmp_path) as process:
        with pytest.raises(StorageBusy, match=rf"process {process.pid}\b"), DataDirLock(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        assert (tmp_path / LOCK_NAME).read_text() == f"{process.pid}\n"  # stale, and no matter
        with DataDirLock(tmp_path):
            assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF])
def test_a_folder_that_cannot_be_locked_is_not_said_to_be_in_use(tmp_path, monkeypatch, code):
    def flock(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StorageError) as caught, DataDirLock(tmp_path):
        pass
    assert not isinstance(caught.value, StorageBusy)
    assert f"cannot be locked ({os.strerror(code)})" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "is_tolerated"),
    [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False), (errno.ENOSPC, False)],
)
def test_a_folder_that_cannot_be_synced_takes_files_all_the_same(
    tmp_path, monkeypatch, code, is_tolerated
):
    sync = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(code, os.strerror(code))
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    with nullcontext() if is_tolerated else pytest.raises(OSError, match=os.strerror(code)):
        files.put(tmp_path / "backup", b"all of it")
        assert (tmp_path / "backup").read_bytes() == b"all of it"
        assert not files.sync_folder(tmp_path)


MOUNTED = """\
/dev/sda1 / ext4 rw 0 0
//nas/share /mnt/my\\040share cifs rw 0 0
nas:/export /srv/nas nfs4 rw 0 0
/dev/sdb1 /srv/nas/disk xfs rw 0 0
me@host: /home/me/far fuse.sshfs rw 0 0
odd
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me", ""),
        ("/mnt/my share/backups", "cifs"),
        ("/srv/nas", "nfs4"),
        ("/srv/nas2", ""),
        ("/srv/nas/disk/data", ""),
        ("/home/me/far/away", "fuse.sshfs"),
    ],
)
def test_a_network_folder_is_known_by_what_is_mounted(path, kind):
    assert files.network_kind(Path(path), MOUNTED) == kind


@pytest.mark.parametrize("stale", ["1\n", "", "not a number\n", "9" * 200])
def test_what_stands_in_a_free_lock_does_not_matter(tmp_path, stale):
    (tmp_path / LOCK_NAME).write_text(stale)
    with DataDirLock(tmp_path):
        assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"
    with DataDirLock(tmp_path):
        pass


async def test_only_the_writes_of_others_count_as_changed_outside(tmp_path, closing):
    database = closing(await SqliteDatabase.open(tmp_path / DATABASE_NAME))
    await database_with(tmp_path, "before the first question")
    assert await database.changed_outside()
    assert not await database.changed_outside()
    await database.write(put("own"))
    assert not await database.changed_outside()
    await database_with(tmp_path, "theirs")  # as the command line does beside the program
    assert await database.changed_outside()
    assert not await database.changed_outside()


# --- backups -------------------------------------------------------------------------------------


async def test_backups_are_whole_and_the_newest_are_kept(tmp_path):
    path = tmp_path / DATABASE_NAME
    database = await SqliteDatabase.open(path)
    made: list[Path] = []
    for hour in range(5):
        await database.write(put(f"k{hour}"))
        made.append(backup.make(path, 3, NOON + hour * HOUR))
    await database.close()
    assert backup.newest_first(path, NOON + 5 * HOUR) == made[:1:-1]
    assert sorted(each.name for each in made[0].parent.iterdir()) == [e.name for e in made[2:]]
    assert await reopened(made[-1]) == ["k0", "k1", "k2", "k3", "k4"]


async def test_a_backup_is_made_while_writes_go_on(tmp_path, closing):
    path = tmp_path / DATABASE_NAME
    database = closing(await SqliteDatabase.open(path))
    await database.write(put("large", 5_000_000))
    copying = asyncio.create_task(asyncio.to_thread(backup.make, path, 3, NOON))
    count = 0
    while not copying.done():
        await database.write(put(f"k{count:05}"))
        count += 1
    stored = await reopened(await copying)
    assert stored[:-1] == [f"k{n:05}" for n in range(len(stored) - 1)]
    assert stored[-1] == "large"


async def test_a_backup_on_a_full_disk_leaves_no_trace_and_the_earlier_ones(tmp_path):
    path = tmp_path / DATABASE_NAME
    with faulty_disk(tmp_path / backup.FOLDER) as disk:
        database = await SqliteDatabase.open(path)
        first = backup.make(path, 1, NOON)
        disk.full = True
        with pytest.raises(StorageFull):
            backup.make(path, 1, NOON + HOUR)
        assert list(first.parent.iterdir()) == [first]
        await database.write(put("writes go on"))
        disk.full = False
        backup.make(path, 1, NOON + HOUR)
        await database.close()


async def test_what_an_interrupted_backup_left_is_cleared_away(tmp_path):
    path = await database_with(tmp_path)
    (tmp_path / backup.FOLDER).mkdir()
    for name in ("confidant-20200101-000000.tmp", "confidant-20200101-000000.tmp-journal"):
        (tmp_path / backup.FOLDER / name).write_bytes(b"half")
    made = backup.make(path, 1, NOON)
    assert list(made.parent.iterdir()) == [made]


async def test_a_damaged_database_makes_no_backup(tmp_path):
    path = tmp_path / DATABASE_NAME
    await filled(tmp_path)
    good = backup.make(path, 1, NOON)
    tear(path)
    with pytest.raises(StorageCorrupt):
        backup.make(path, 1, NOON + HOUR)
    assert list(good.parent.glob("*.db")) == [good]


async def test_backups_from_a_clock_that_was_ahead_push_out_no_good_ones(tmp_path):
    path = await database_with(tmp_path)
    ahead = [backup.make(path, 2, NOON + (9_000 + n) * HOUR) for n in range(2)]
    made = [backup.make(path, 2, NOON + n * HOUR) for n in range(2)]
    assert backup.newest_first(path, NOON + 2 * HOUR) == made[::-1]
    assert not any(path.exists() for path in ahead)


async def test_a_backup_folder_that_is_a_file_is_told(tmp_path):
    path = await database_with(tmp_path)
    (tmp_path / backup.FOLDER).write_text("in the way")
    with pytest.raises(StorageError, match="could not be written"):
        backup.make(path, 1, NOON)


# --- a damaged file ------------------------------------------------------------------------------


async def filled(folder: Path, *, sessions: int = 3, entries: int = 40) -> dict[str, list[str]]:
    """A database with conversations and their mirror; every session's lines."""
    database = await open_database(folder, FakeClock())
    mirror = Mirror(database, folder / "sessions")
    await mirror.start()

    def begin(tx: Transaction) -> tuple[str, store.Appended]:
        session, header = store.start(tx, PLACE, NOON, by="new", previous=None, model="")
        return session.id, header

    for _ in range(sessions):
        session, header = await database.write(begin)
        news = [NewEntry("message", "user", f"message {n} " + "x" * 500) for n in range(entries)]
        added = await database.write(lambda tx, s=session, n=news: store.append(tx, s, n, NOON))
        mirror.add([header, added])
    await mirror.stop()
    lines = await database.read(all_lines)
    await database.close()
    return lines


def all_lines(tx: Transaction) -> dict[str, list[str]]:
    return {each.id: store.lines(tx, each.id) for each in store.all_sessions(tx)}


def tear(path: Path) -> None:
    """Overwrite pages in the middle, as a failing disk does."""
    size = path.stat().st_size
    assert size > 40_000
    with path.open("r+b") as file:
        for offset in range(8_192, size - 4_096, 4_096):
            file.seek(offset)
            file.write(b"\xa5" * 2_048)


def garble(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(os.urandom(100))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 // 4_096 * 4_096)


def empty(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("damage", [tear, garble, cut, empty])
async def test_a_damaged_database_comes_back_from_its_backup_with_every_entry(tmp_path, damage):
    path = tmp_path / DATABASE_NAME
    await filled(tmp_path)
    backup.make(path, 3, NOON - 2 * HOUR)
    unsound = backup.make(path, 3, NOON - HOUR)
    garble(unsound)
    lines = await filled(tmp_path)  # said after the backup: only the log has it
    damage(path)
    broken = path.read_bytes()
    database = await open_database(tmp_path, FakeClock())
    assert await database.read(all_lines) == lines
    found = await database.read(lambda tx: tx.search_text("message", 500, [PLACE.key], ()))
    assert len(found) == 6 * 40
    aside = [each for each in tmp_path.glob("confidant.db.damaged-*") if each.suffix != ".db"]
    assert broken in [each.read_bytes() for each in aside]
    mirror = Mirror(database, tmp_path / "sessions")
    await mirror.start()
    assert await mirror.repair() == 0  # the database says of every file what is in it
    await mirror.stop()
    await database.close()
    again = await open_database(tmp_path, FakeClock())
    assert await again.read(all_lines) == lines
    await again.close()


@pytest.mark.parametrize("damage", [tear, garble, cut])
async def test_without_a_sound_backup_it_refuses_and_changes_nothing(tmp_path, damage):
    path = tmp_path / DATABASE_NAME
    await filled(tmp_path)
    garble(backup.make(path, 3, NOON))
    changes.clear(path)
    damage(path)
    before = contents(tmp_path)
    with pytest.raises(StorageCorrupt, match="Nothing was changed"):
        await open_database(tmp_path, FakeClock())
    assert contents(tmp_path) == before


async def test_what_a_killed_process_left_in_its_log_is_not_written_to_a_damaged_file(tmp_path):
    database = await SqliteDatabase.open(tmp_path / "live" / DATABASE_NAME)
    await database.write(put("large", 200_000))
    other = apsw.Connection(str(tmp_path / "live" / DATABASE_NAME))
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    await database.write(put("in the log only"))
    (tmp_path / "killed").mkdir()
    for part in ("", "-wal"):
        data = (tmp_path / "live" / f"{DATABASE_NAME}{part}").read_bytes()
        (tmp_path / "killed" / f"{DATABASE_NAME}{part}").write_bytes(data)
    await database.close()
    tear(tmp_path / "killed" / DATABASE_NAME)
    before = contents(tmp_path / "killed")
    assert len(before) == 2
    with pytest.raises(StorageCorrupt, match="Nothing was changed"):
        await open_database(tmp_path / "killed", FakeClock())
    assert contents(tmp_path / "killed") == before


def contents(folder: Path) -> dict[Path, bytes]:
    """What is in every file; SQLite's shared memory and an empty log hold nothing."""
    return {
        each: data
        for each in folder.rglob("*")
        if each.is_file() and not each.name.endswith("-shm") and (data := each.read_bytes())
    }


async def test_a_database_moved_away_with_its_copies_and_log_begins_empty(tmp_path):
    await filled(tmp_path)
    transcripts = list((tmp_path / "sessions").rglob("*.jsonl"))
    for part in tmp_path.glob(f"{DATABASE_NAME}*"):
        part.unlink()
    shutil.rmtree(tmp_path / backup.FOLDER)
    database = await open_database(tmp_path, FakeClock())
    assert await database.read(all_lines) == {}
    await database.close()
    assert all(path.exists() for path in transcripts)


def killed_at(name: Path) -> Callable[[Path, Path], None]:
    """`Path.replace`, during which the program is killed when a file is to get this name."""

    def replace(path: Path, target: Path) -> None:
        if target == name:
            raise KeyboardInterrupt
        path.rename(target)

    return replace


async def test_a_restore_that_was_interrupted_is_finished_at_the_next_start(tmp_path, monkeypatch):
    path = tmp_path / DATABASE_NAME
    await filled(tmp_path, sessions=1)
    backup.make(path, 3, NOON)
    database = await open_database(tmp_path, FakeClock())
    await database.write(put("only in the database"))
    await database.close()
    backup.make(path, 3, NOON + 1_000)
    lines = await filled(tmp_path)
    garble(path)
    with monkeypatch.context() as patch:
        # Killed after the damaged file was set aside, before the backup took its place.
        patch.setattr(Path, "replace", killed_at(path))
        with pytest.raises(KeyboardInterrupt):
            backup.replace(path, backup.newest_first(path, NOON + HOUR)[0], "", NOON + HOUR)
    assert not path.exists()
    database = await open_database(tmp_path, FakeClock(NOON + HOUR))
    assert await database.read(all_lines) == lines
    assert await database.read(keys) == ["only in the database", "restored"]
    await database.close()


async def test_a_restore_without_space_leaves_the_damaged_file_in_its_place(tmp_path, monkeypatch):
    path = tmp_path / DATABASE_NAME
    await filled(tmp_path)
    backup.make(path, 3, NOON)
    garble(path)
    broken = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfileobj", full)
        with pytest.raises(StorageError, match="No space left"):
            await open_database(tmp_path, FakeClock())
    assert path.read_bytes() == broken
    assert not list(tmp_path.glob("*.restoring"))
    await (await open_database(tmp_path, FakeClock())).close()


async def test_two_damaged_databases_are_both_kept(tmp_path):
    path = tmp_path / DATABASE_NAME
    await filled(tmp_path)
    backup.make(path, 3, NOON)
    for _ in range(2):
        garble(path)
        await (await open_database(tmp_path, FakeClock())).close()
    assert len(list(tmp_path.glob("confidant.db.damaged-*"))) == 2
