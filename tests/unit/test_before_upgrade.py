"""Before an upgrade changes a database there is a copy of it, and there is a way back to that."""

from __future__ import annotations

import errno
import os
import re
import shlex
from pathlib import Path

import apsw
import pytest

from bot import __version__
from bot.clock import DAY_MS
from bot.errors import StorageError, StorageFull
from bot.recovery import open_database
from bot.storage import Transaction, backup, schema
from bot.storage.files import DATABASE_NAME
from bot.storage.sqlite import SqliteDatabase
from tests.faults import faulty_disk
from tests.support import NOON, FakeClock

NOW = schema.VERSION


def add(patch: pytest.MonkeyPatch, *statements: str) -> None:
    """Let this program be the next one, with a step more."""
    step = statements or (f"CREATE TABLE later_{schema.VERSION}(id {{serial}})",)
    patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, step))
    patch.setattr(schema, "VERSION", schema.VERSION + 1)


def keys(tx: Transaction) -> list[str]:
    return [str(row[0]) for row in tx.execute("SELECT key FROM meta ORDER BY key")]


async def used(path: Path, *new: str) -> list[str]:
    """Open a database, store these keys, and close it; the keys there are then."""
    database = await SqliteDatabase.open(path)
    for key in new:
        row = (key, "", 0)
        await database.write(lambda tx, row=row: tx.execute("INSERT INTO meta VALUES (?,?,?)", row))
    found = await database.read(keys)
    await database.close()
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / backup.BEFORE_UPGRADE).glob("*"))


async def test_a_new_folder_and_one_of_this_version_have_no_copy(tmp_path):
    await used(tmp_path / DATABASE_NAME)
    await used(tmp_path / DATABASE_NAME, "said")
    assert [path.name for path in tmp_path.iterdir()] == [DATABASE_NAME]


async def test_what_was_there_is_copied_before_it_is_changed(tmp_path, monkeypatch):
    path = tmp_path / DATABASE_NAME
    await used(path, "before")
    add(monkeypatch, "INSERT INTO meta VALUES ('after', '', 0)")
    assert await used(path) == ["after", "before"]
    (copy,) = backup.before_upgrades(path)
    assert copy.name == f"confidant-version-{NOW}.db"
    assert backup.tables_of(copy) == (NOW, __version__)
    connection = apsw.Connection(str(copy))
    assert connection.execute("SELECT key FROM meta").fetchall() == [("before",)]
    connection.close()
    assert copy.stat().st_mode & 0o077 == 0
    assert copy.parent.stat().st_mode & 0o077 == 0


async def test_a_number_of_versions_is_kept_and_the_latest_copy_of_each(tmp_path, monkeypatch):
    path = tmp_path / DATABASE_NAME
    await used(path, "first")
    for number in range(5):
        add(monkeypatch)
        await used(path, f"in {number}")
    numbers = [backup.number_of(each) for each in backup.before_upgrades(path)]
    assert numbers == [NOW + 4, NOW + 3, NOW + 2]
    assert len(names(tmp_path)) == backup.KEPT_VERSIONS
    backup.put_back(path, backup.before_upgrades(path)[1], NOON)
    assert await used(path, "again") == ["again", "first", "in 0", "in 1", "in 2"]
    (same,) = [each for each in names(tmp_path) if str(NOW + 3) in each]
    copied = apsw.Connection(str(tmp_path / backup.BEFORE_UPGRADE / same))
    assert ("in 3",) not in copied.execute("SELECT key FROM meta").fetchall()
    copied.close()


async def test_copies_are_dropped_after_some_weeks(tmp_path, monkeypatch):
    path = tmp_path / DATABASE_NAME
    await used(path)
    add(monkeypatch)
    await used(path)
    for each in backup.before_upgrades(path):
        os.utime(each, (NOON / 1000, NOON / 1000))
    backup.drop_old(path, NOON + backup.KEPT_DAYS * DAY_MS)
    assert len(names(tmp_path)) == 1
    late = NOON + backup.KEPT_DAYS * DAY_MS + 1
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(StorageError, match="could not be removed: Read-only file system"):
            backup.drop_old(path, late)
    backup.drop_old(path, late)
    assert names(tmp_path) == []


def refuse(_path: Path) -> None:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


async def test_without_room_for_the_copy_nothing_is_changed(tmp_path, monkeypatch):
    path = tmp_path / DATABASE_NAME
    with faulty_disk(tmp_path) as disk:
        await used(path, "before")
        add(monkeypatch)
        disk.full = True
        with pytest.raises(StorageFull, match=r"no room.*before an upgrade.*Nothing was changed"):
            await SqliteDatabase.open(path)
        assert disk.refused
        disk.full = False
        assert names(tmp_path) == []
        assert backup.tables_of(path)[0] == NOW
        assert await used(path) == ["before"]
    assert len(names(tmp_path)) == 1


async def test_a_disk_that_fills_up_after_the_copy_leaves_the_old_tables(tmp_path, monkeypatch):
    path = tmp_path / DATABASE_NAME
    with faulty_disk(tmp_path) as disk:
        await used(path, "before")
        add(monkeypatch)
        real = backup.keep

        def fill(database: Path, version: int) -> Path:
            made = real(database, version)
            disk.full = True
            return made

        with monkeypatch.context() as patch:
            patch.setattr(backup, "keep", fill)
            with pytest.raises(StorageFull):
                await SqliteDatabase.open(path)
        disk.full = False
        assert backup.tables_of(path)[0] == NOW
        assert await used(path) == ["before"]


async def test_a_copy_that_is_damaged_is_none_and_nothing_is_changed(tmp_path, monkeypatch):
    path = tmp_path / DATABASE_NAME
    await used(path, "before")
    add(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(backup, "is_sound", lambda _path: False)
        with pytest.raises(StorageError, match="damaged"):
            await SqliteDatabase.open(path)
    assert names(tmp_path) == []
    assert backup.tables_of(path)[0] == NOW


# --- an older program ----------------------------------------------------------------------------


async def test_a_newer_folder_is_refused_in_one_line_that_names_the_way_back(tmp_path, monkeypatch):
    path = tmp_path / DATABASE_NAME
    await used(path, "before")
    with monkeypatch.context() as patch:
        add(patch)
        patch.setattr("bot.storage.sqlite.__version__", "9.8.7")
        await used(path)
    (copy,) = backup.before_upgrades(path)
    said = (
        f"{tmp_path} has tables of version {NOW + 1}, made by a newer Confidant (9.8.7); this is "
        f"{__version__} and knows version {NOW}. Nothing was changed: start the newer one again, "
        f"or go back to the copy from before the upgrade with `confidant restore {copy}`."
    )
    with pytest.raises(StorageError, match=f"^{re.escape(said)}$"):
        await open_database(tmp_path, FakeClock())
    copy.unlink()
    with pytest.raises(StorageError, match="there is no copy of then any more"):
        await open_database(tmp_path, FakeClock())


async def test_the_way_back_can_be_typed_where_the_folder_has_a_space_in_its_name(
    tmp_path, monkeypatch
):
    folder = tmp_path / "my bot's folder"
    await used(folder / DATABASE_NAME)
    with monkeypatch.context() as patch:
        add(patch)
        await used(folder / DATABASE_NAME)
    with pytest.raises(StorageError) as refused:
        await SqliteDatabase.open(folder / DATABASE_NAME)
    (copy,) = backup.before_upgrades(folder / DATABASE_NAME)
    assert shlex.split(str(refused.value).split("`")[1])[1:] == ["restore", str(copy)]


async def test_of_several_copies_the_newest_that_this_program_knows_is_named(tmp_path, monkeypatch):
    path = tmp_path / DATABASE_NAME
    await used(path)
    with monkeypatch.context() as patch:
        for _ in range(3):
            add(patch)
            await used(path)
    with pytest.raises(StorageError, match=rf"restore \S+-version-{NOW}\.db`"):
        await SqliteDatabase.open(path)


async def test_a_copy_of_a_newer_version_or_of_something_else_is_not_put_back(
    tmp_path, monkeypatch
):
    path = tmp_path / DATABASE_NAME
    await used(path, "before")
    with monkeypatch.context() as patch:
        for _ in range(2):
            add(patch)
            await used(path)
    before = path.read_bytes()
    with pytest.raises(StorageError, match=rf"version {NOW + 1}.*Nothing was changed"):
        backup.put_back(path, backup.before_upgrades(path)[0], NOON)
    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE theirs(what)")
    connection.close()
    with pytest.raises(StorageError, match="no whole database of Confidant's"):
        backup.put_back(path, other, NOON)
    assert path.read_bytes() == before


async def test_backups_of_a_newer_version_do_not_take_a_damaged_databases_place(
    tmp_path, monkeypatch
):
    path = tmp_path / DATABASE_NAME
    await used(path, "old")
    backup.make(path, 9, NOON)
    with monkeypatch.context() as patch:
        add(patch)
        await used(path, "new")
        backup.make(path, 9, NOON + 1000)
    path.write_bytes(b"x" * 4096)
    database = await open_database(tmp_path, FakeClock(NOON + 2000))
    assert "old" in await database.read(keys)
    await database.close()
