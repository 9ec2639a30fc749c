from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bot.identity import Place
from bot.sessions import mirror as mirror_module
from bot.sessions import store
from bot.sessions.entries import NewEntry
from bot.sessions.mirror import Mirror, append, path_of, transcript_place
from bot.sessions.store import Appended
from bot.storage.sqlite import SqliteDatabase
from tests.support import NOON, beside, until

ID = "20261123-181546-fd1b1921f6"
PLACE = Place("agent:main:telegram:dm:1", "telegram:1", "telegram", "default", "1", "", "direct")


class Home:
    """A database, its mirror, and sessions to write into."""

    def __init__(self, database: SqliteDatabase, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self.mirror = Mirror(database, folder)

    async def begin(self) -> str:
        session, header = await self.database.write(
            lambda tx: store.start(tx, PLACE, NOON, by="new", previous=None, model="")
        )
        self.mirror.add([header])
        return session.id

    async def append(self, session: str, text: str, *, mirrored: bool = True) -> Appended:
        item = await self.database.write(
            lambda tx: store.append(tx, session, [NewEntry("message", "user", text)], NOON)
        )
        if mirrored:
            self.mirror.add([item])
        return item

    async def wanted(self) -> dict[str, bytes]:
        """What every file must hold."""
        return await self.database.read(
            lambda tx: {
                each.id: "".join(f"{line}\n" for line in store.lines(tx, each.id)).encode()
                for each in store.all_sessions(tx)
            }
        )

    async def repaired(self) -> int:
        """How many files another mirror of this folder writes again at its start."""
        again = Mirror(self.database, self.folder)
        await again.start()
        count = await again.repair()
        await again.stop()
        return count

    def found(self) -> dict[str, bytes]:
        return {path.stem: path.read_bytes() for path in self.folder.rglob("*.jsonl")}


@pytest.fixture
async def home(tmp_path: Path):
    async with beside(tmp_path) as database:
        yield Home(database, tmp_path / "sessions")


async def test_the_files_are_the_transcripts_byte_for_byte(home):
    await home.mirror.start()
    sessions = [await home.begin() for _ in range(3)]
    for number in range(30):
        await home.append(sessions[number % 3], f"line {number} \u2028 \x00 中文\nnext")
    await home.mirror.stop()
    assert home.found() == await home.wanted()


async def test_more_than_fits_in_memory_is_written_from_the_database(home, monkeypatch):
    monkeypatch.setattr(mirror_module, "MAX_PENDING_BYTES", 500)
    sessions = [await home.begin() for _ in range(2)]
    for number in range(40):  # before the mirror writes anything
        await home.append(sessions[number % 2], "x" * 100)
    assert home.mirror._pending_bytes <= 500
    await home.mirror.start()
    await home.mirror.stop()
    assert home.found() == await home.wanted()


async def test_one_entry_larger_than_the_memory_is_written_too(home, monkeypatch):
    monkeypatch.setattr(mirror_module, "MAX_PENDING_BYTES", 10)
    await home.mirror.start()
    await home.append(await home.begin(), "x" * 10_000)
    await home.mirror.stop()
    assert home.found() == await home.wanted()


async def test_an_append_that_was_missed_is_made_up_for_by_the_next(home):
    await home.mirror.start()
    session = await home.begin()
    await home.append(session, "missed", mirrored=False)
    await home.append(session, "next")
    await home.mirror.stop()
    assert home.found() == await home.wanted()


async def test_appends_that_come_twice_are_written_once(home):
    await home.mirror.start()
    session = await home.begin()
    item = await home.append(session, "once")
    home.mirror.add([item])
    await home.mirror.stop()
    assert home.found() == await home.wanted()


@pytest.mark.parametrize("damage", ["torn", "longer", "gone", "empty"])
async def test_a_file_of_the_wrong_length_is_written_again_and_foreign_lines_are_kept(home, damage):
    await home.mirror.start()
    session = await home.begin()
    await home.append(session, "one")
    await home.mirror.stop()
    path = path_of(home.folder, session)
    whole = path.read_bytes()
    damaged = {"torn": whole[:-5], "longer": whole + b"mine\n", "empty": b""}
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(damaged[damage])
    assert await home.repaired() == 1
    assert path.read_bytes() == whole
    kept = [each.read_bytes() for each in home.folder.rglob("*.kept-*")]
    assert kept == ([whole + b"mine\n"] if damage == "longer" else [])


async def test_a_second_foreign_file_does_not_overwrite_the_first(home):
    await home.mirror.start()
    session = await home.begin()
    await home.mirror.stop()
    path = path_of(home.folder, session)
    for number in range(3):
        path.write_bytes(b"edited %d" % number)
        await home.repaired()
    kept = sorted(each.read_bytes() for each in home.folder.rglob("*.kept-*"))
    assert kept == [b"edited 0", b"edited 1", b"edited 2"]


async def test_a_folder_that_cannot_be_written_stops_nobody(home):
    await home.mirror.start()
    session = await home.begin()
    path = path_of(home.folder, session)
    path.unlink(missing_ok=True)
    path.mkdir(parents=True)  # a folder where the file should be
    await home.append(session, "one")
    await asyncio.wait_for(home.mirror.stop(), 60)
    path.rmdir()
    await home.repaired()
    assert home.found() == await home.wanted()


def watch_syncs(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What of each transcript has reached the disk."""
    synced: dict[str, bytes] = {}
    fsync = os.fsync

    def watched(file: int) -> None:
        fsync(file)
        path = Path(f"/proc/self/fd/{file}").readlink()
        if path.is_file():
            synced[path.stem] = path.read_bytes()

    monkeypatch.setattr(os, "fsync", watched)
    return synced


async def test_what_was_written_reaches_the_disk_when_the_program_stops(home, monkeypatch):
    synced = watch_syncs(monkeypatch)
    await home.mirror.start()
    await home.append(await home.begin(), "hello")
    await home.mirror.stop()
    assert synced == await home.wanted()


async def test_what_was_written_reaches_the_disk_soon_without_more_being_written(home, monkeypatch):
    monkeypatch.setattr(mirror_module, "SYNC_SECONDS", 0.01)
    synced = watch_syncs(monkeypatch)
    await home.mirror.start()
    await home.append(await home.begin(), "hello")
    wanted = await home.wanted()
    await until(lambda: synced == wanted)
    await home.mirror.stop()


@pytest.mark.parametrize(
    ("session_id", "place"),
    [
        (ID, "2026-11"),
        ("import-20261123-1", "imported"),
        ("20261323-181546-fd1b1921f6", ""),
        ("../../etc", ""),
        ("s", ""),
    ],
)
def test_a_file_is_in_the_folder_of_its_month(tmp_path, session_id, place):
    assert transcript_place(session_id) == place
    if place:
        assert path_of(tmp_path, session_id) == tmp_path / place / f"{session_id}.jsonl"


@pytest.mark.parametrize("damage", ["deleted", "renamed", "replaced", "longer", "shorter"])
def test_what_somebody_does_to_a_file_is_noticed(tmp_path, damage):
    assert append(tmp_path, ID, 0, b"one\n")
    path = path_of(tmp_path, ID)
    match damage:
        case "deleted":
            path.unlink()
        case "renamed":
            path.rename(path.with_name("elsewhere"))
        case "replaced":
            path.with_name("other").write_bytes(b"their words\n")
            path.with_name("other").replace(path)
        case "longer":
            path.write_bytes(b"one\ntheir words\n")
        case _:
            path.write_bytes(b"")
    assert not append(tmp_path, ID, 4, b"two\n")
    assert not path.exists() or b"two" not in path.read_bytes()
