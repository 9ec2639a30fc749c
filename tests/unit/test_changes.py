"""The log of changes: whatever is lost of a database stands again, as far as checksums hold."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import housekeeping, recovery
from bot.channel import Address, Inbound
from bot.config import StorageConfig
from bot.errors import StorageCorrupt, StorageError
from bot.identity import MANY, MessageOrigin
from bot.identity.view import MemoryView
from bot.sessions import (
    artifacts,
    compactions,
    erasing,
    forgetting,
    links,
    pairing,
    recurrence,
    reminders,
    repeats,
    rooms,
    store,
    zones,
)
from bot.sessions.compactions import Snapshot
from bot.sessions.entries import NewEntry
from bot.sessions.links import Link
from bot.sessions.recurrence import Series
from bot.storage import Row, Transaction, backup, changes, files
from bot.storage.changes import ChangeLog
from bot.storage.sqlite import SqliteDatabase
from bot.storage.tables import TABLES
from bot.unit_of_work import UnitOfWork
from tests.faults import faulty_disk
from tests.support import NOON, FakeClock

PLACE = store.Place("agent:main:web:dm:ada", "ada", "web", "default", "ada", "", "direct")
ZONES = [ZoneInfo("UTC"), ZoneInfo("Asia/Tokyo")]
ORIGIN = MessageOrigin("web", "default", "ada", "direct", "ada")
DAILY = Series(recurrence.parse("FREQ=DAILY"), datetime(2026, 11, 21, 15, 0))  # noqa: DTZ001
SEATS = [("telegram", "1"), ("discord", "2"), ("web", "3")]
VIEW = MemoryView("people/ada", private=True, people=("ada",), keys=(PLACE.key,))
# What a change of each table is not logged for: it ends soon, is a secret, or is made anew.
NOT_LOGGED = {
    *("approvals", "page_links", "page_logins", "push_subscriptions", "link_codes", "uploads"),
    *("note_versions", "claim_uses", "prefixes", "prefix_texts", "changes", "schema_versions"),
    *("api_keys", "hooks"),
}


def path_of(folder: Path) -> Path:
    return folder / "confidant.db"


async def opened(folder: Path) -> SqliteDatabase:
    return await recovery.open_database(folder, FakeClock())


async def copied(folder: Path, database: SqliteDatabase, now: int = NOON) -> Path:
    config = StorageConfig(dir=folder)
    await housekeeping.copy(config, database, now)
    return backup.newest_first(path_of(folder), now)[0]


def lose(folder: Path) -> None:
    """The database is gone; what lies beside it stays."""
    for part in ("", "-wal", "-shm"):
        (folder / f"confidant.db{part}").unlink(missing_ok=True)


def empty(folder: Path) -> None:
    lose(folder)
    path_of(folder).touch()


def damage(folder: Path) -> None:
    path_of(folder).write_bytes(b"x" * 5_000)


def state(tx: Transaction) -> dict[str, list[Row]]:
    """Every row that must come back."""
    return {
        name: sorted(
            tx.execute(
                f"SELECT * FROM {name}" + (" WHERE key NOT LIKE 'restored%'" * (name == "meta"))
            ),
            key=repr,
        )
        for name in sorted(changes.LOGGED)
    }


def found(tx: Transaction) -> list[int]:
    return sorted(
        row[0]
        for row in tx.execute("SELECT rowid FROM entries_text WHERE entries_text MATCH 'secret'")
    )


def link(seat: links.Seat, root: links.Seat) -> Link:
    return Link(seat, root, Address(seat[0], "default", seat[1]), "en")


def target(key: str = PLACE.key) -> reminders.ReplyTarget:
    return reminders.ReplyTarget(key, "ada", Address("web", "default", "ada"), "en", ORIGIN)


def asked(tx: Transaction, sender: str, code: str = "ABCDEFGH") -> None:
    inbound = Inbound("telegram", "default", sender, "direct", sender, "1", "hi", NOON)
    pairing.ask(tx, inbound, code, NOON)


STEPS: dict[str, Callable[[Transaction, int, int], object]] = {
    "link": lambda tx, a, b: (
        a % 3 != b % 3 and links.join(tx, link(SEATS[a % 3], SEATS[b % 3]), NOON + a)
    ),
    "unlink": lambda tx, a, _: links.part(tx, SEATS[a % 3]),
    "remind": lambda tx, a, b: reminders.add(tx, target(), f"r{a}", NOON + b * 100_000, NOON),
    "cancel": lambda tx, a, _: [
        reminders.mark(tx, each, "cancelled", NOON)
        for each in reminders.of_key(tx, PLACE.key)[a % 3 : a % 3 + 1]
    ],
    "repeat": lambda tx, a, b: repeats.add(
        tx, target(), f"r{a}", DAILY, zone=ZONES[b % 2], now=NOON + b * 100_000
    ),
    "run": lambda tx, a, _: [
        repeats.begin_run(tx, due, 0, NOON + a * 10_000_000)
        and repeats.move_on(tx, due, ZONES[0], NOON + a * 10_000_000)
        for due in repeats.due(tx, NOON + a * 10_000_000, 2)
    ],
    "end": lambda tx, a, _: [
        repeats.cancel(tx, each, NOON)
        for each in repeats.of_key(tx, PLACE.key)[a % 3 : a % 3 + 1]
        if isinstance(each, repeats.Repeat)
    ],
    "send": lambda tx, a, _: [
        reminders.mark(tx, due, "sent", NOON) for due in reminders.due(tx, NOON + a * 50_000, 2)
    ],
    "ask": lambda tx, a, _: asked(tx, str(a % 4)),
    "approve": lambda tx, *_: pairing.approve(tx, "telegram", "ABCDEFGH", NOON),
    "block": lambda tx, a, _: pairing.block(tx, ("telegram", str(a % 4)), NOON + a),
    "again": lambda tx, a, _: pairing.let_in_again(tx, ("telegram", str(a % 4)), NOON + a),
    "unblock": lambda tx, a, _: pairing.unblock(tx, ("telegram", str(a % 4))),
    "revoke": lambda tx, a, _: pairing.revoke(tx, "telegram", str(a % 4)),
    "activate": lambda tx, a, b: rooms.activate(tx, f"room{a % 2}", ("", "always")[b % 2], NOON),
    "move": lambda tx, a, b: rooms.move(tx, ("telegram", "x", str(a % 3)), str(b % 3), NOON),
    "live": lambda tx, a, b: zones.choose(tx, str(a % 3), ZONES[b % 2], NOON),
    "home": lambda tx, a, _: zones.drop(tx, [str(a % 3)]),
    "say": lambda tx, a, _: say(tx, f"the secret {a % 3}"),
    "new": lambda tx, a, _: begin(tx, NOON + a),
    "undo": lambda tx, a, _: undo(tx, NOON + a),
    "forget": lambda tx, a, _: forgetting.forget_in(tx, VIEW, f"secret {a % 3}", NOON),
    "choose": lambda tx, a, b: store.change(
        tx, current(tx).id, notices=("", "off")[a % 2], told=b % 3
    ),
    "turn": lambda tx, a, _: (
        current(tx).sender != MANY and store.change(tx, current(tx).id, sender=("1", MANY)[a == 9])
    ),
}


def current(tx: Transaction) -> store.Session:
    return UnitOfWork(tx, NOON).current(PLACE)[0]


def say(tx: Transaction, words: str) -> None:
    new = NewEntry("message", "user", words, ({"type": "text", "text": words},))
    store.append(tx, current(tx).id, [new], NOON)


def begin(tx: Transaction, now: int) -> None:
    before = current(tx)
    newest = max(session.started_at for session in store.all_sessions(tx))
    later = max(now, newest + 1_000)  # ids are made of seconds, and sort; an /undo comes between
    store.start(tx, PLACE, later, by="new", previous=before, model="offline")


def undo(tx: Transaction, now: int) -> None:
    session = current(tx)
    if session.previous:
        store.point(tx, PLACE.key, session.previous, now)  # a clock may have been set back


def test_every_table_is_logged_or_said_not_to_be():
    named = {each.name for each in TABLES if each.engine != "postgres"} - {"entries_text"}
    assert named == changes.LOGGED | NOT_LOGGED
    assert not changes.LOGGED & NOT_LOGGED


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=40,
    ),
    cuts=st.sets(st.integers(0, 40), max_size=2),
)
@settings(max_examples=25, deadline=None)
async def test_whatever_was_done_stands_again_whatever_is_lost(tmp_path_factory, steps, cuts):
    """From the log alone, over a copy from anywhere on the way, and over the one before that."""
    folder = tmp_path_factory.mktemp("changes")
    database = await opened(folder)
    older: list[Path] = []
    for number, (step, one, other) in enumerate(steps):
        if number in cuts:
            copy = await copied(folder, database, NOON + number * 100_000_000)
            older.append(shutil.copyfile(copy, folder / f"older-{number}"))
        await database.write(lambda tx, s=step, a=one, b=other: STEPS[s](tx, a, b))
    wanted, words = await database.read(state), await database.read(found)
    await database.close()
    for loss in (lose, empty, damage):
        loss(folder)
        await same(folder, wanted, words)
    for put in older:
        lose(folder)
        shutil.copyfile(put, path_of(folder))
        await same(folder, wanted, words)
    if len(older) > 1:  # the newest copy is damaged too
        backup.newest_first(path_of(folder), NOON * 2)[0].write_bytes(b"no database")
        damage(folder)
        await same(folder, wanted, words)


async def same(folder: Path, wanted: dict[str, list[Row]], words: list[int]) -> None:
    database = await opened(folder)
    told = await database.read(recovery.latest)
    assert told is None or (told.missing, told.unread) == (0, 0)
    assert await database.read(state) == wanted
    assert await database.read(found) == words
    assert not database.needs_copy
    await database.close()


async def filled(folder: Path) -> SqliteDatabase:
    """A link, two reminders, a forgotten entry."""
    database = await opened(folder)
    await database.write(lambda tx: links.join(tx, link(SEATS[0], SEATS[1]), NOON))
    for number in range(2):
        await database.write(
            lambda tx, n=number: reminders.add(tx, target(), f"r{n}", NOON + n * 90_000, NOON)
        )
    await database.write(lambda tx: say(tx, "the secret 1"))
    await database.write(lambda tx: forgetting.forget_in(tx, VIEW, "secret 1", NOON))
    return database


@pytest.fixture
async def database(tmp_path):
    database = await filled(tmp_path)
    yield database
    await database.close()


def count(tx: Transaction, table: str) -> int:
    return int(tx.execute(f"SELECT count(*) FROM {table}")[0][0])


def syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    made: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: (made.append(file), real(file))[1])
    return made


async def test_what_people_are_told_is_done_is_on_the_disk_and_the_rest_soon(tmp_path, monkeypatch):
    database = await opened(tmp_path)
    await database.write(lambda tx: say(tx, "hello"))
    made = syncs(monkeypatch)
    told: dict[str, Callable[[Transaction], object]] = {
        "link": lambda tx: links.join(tx, link(SEATS[0], SEATS[1]), NOON),
        "remind": lambda tx: reminders.add(tx, target(), "tea", NOON, NOON),
        "choose": lambda tx: store.change(tx, current(tx).id, model="other"),
        "forget": lambda tx: forgetting.forget_in(tx, VIEW, "hello", NOON),
        "live": lambda tx: zones.choose(tx, "ada", ZONES[1], NOON),
    }
    for name, work in told.items():
        made.clear()
        await database.write(work)
        assert len(made) == 1, name
    made.clear()
    monkeypatch.setattr(changes, "SYNC_SECONDS", 0.5)
    await database.write(lambda tx: say(tx, "more"))
    assert made == []
    log = database._log
    assert log is not None
    assert log._timer is not None
    log._timer.join()
    assert len(made) == 1
    await database.close()


async def test_what_was_rolled_back_or_changed_nothing_is_not_in_the_log(database):
    (path,) = changes.paths(database.path)
    before = path.read_bytes()

    def fail(tx: Transaction) -> None:
        say(tx, "never said")
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - it is ours
        await database.write(fail)
    await database.write(lambda tx: tx.execute("UPDATE rooms SET activation = '' WHERE key = 'x'"))
    await database.close()
    assert path.read_bytes() == before


async def test_words_that_were_there_before_a_change_are_not_in_it(tmp_path, database):
    await copied(tmp_path, database)
    await database.write(lambda tx: tx.execute("UPDATE reminders SET text = ''"))
    await database.write(lambda tx: tx.execute("DELETE FROM links"))
    await database.close()
    newest = changes.paths(path_of(tmp_path))[-1].read_bytes()
    assert not any(each in newest for each in (b"r0", b"r1"))


async def test_the_log_begins_anew_with_each_copy_and_only_what_a_copy_needs_stays(
    tmp_path, database
):
    (first,) = changes.paths(database.path)
    await copied(tmp_path, database)
    assert first not in changes.paths(database.path)
    await database.write(lambda tx: say(tx, "more"))
    await copied(tmp_path, database, NOON + 5_000)
    assert len(changes.paths(database.path)) == 2  # the first copy needs one
    await database.close()
    database = await opened(tmp_path)
    for number in range(1, 4):
        await database.write(lambda tx: say(tx, "more"))
        config = StorageConfig(dir=tmp_path, backups_kept=1)
        await housekeeping.copy(config, database, NOON + number * 10_000)
    assert len(changes.paths(database.path)) == 1
    await database.close()


async def test_a_full_log_has_a_copy_made(tmp_path, monkeypatch, closing):
    monkeypatch.setattr(changes, "MAX_BYTES", 1_000)
    database = closing(await filled(tmp_path))
    assert database.is_log_full
    await copied(tmp_path, database)
    assert not database.is_log_full


def test_extra_copies_take_the_place_of_one_another_and_not_of_those_of_other_days(tmp_path):
    path = path_of(tmp_path)
    path.write_bytes(b"")
    changes.adopt(path, "id")
    hour = 3_600_000
    for number in range(60):
        backup.make(path, 3, NOON + number * hour, 24 * hour)
    made = [backup._made_at(each) for each in backup.newest_first(path, NOON * 2)]
    assert len(made) == 3
    assert made[1] - made[2] >= 24 * hour


# --- what goes wrong ------------------------------------------------------------------------------


async def test_changes_that_are_damaged_are_left_out_and_the_owner_is_told(tmp_path, database):
    await database.close()
    (path,) = changes.paths(database.path)
    data = bytearray(path.read_bytes())
    data[data.rindex(b"r0")] ^= 1  # in the first reminder
    path.write_bytes(data + b"\0" * 40)
    lose(tmp_path)
    database = await opened(tmp_path)
    told = await database.read(recovery.latest)
    assert told is not None
    assert (told.missing, told.unread) == (1, 2)
    assert (told.counts["links"], told.counts["reminders"], told.entries) == (1, 1, 1)
    assert "may be missing" in recovery.words(told, "en")
    assert await database.read(found) == []  # what was forgotten stays so
    assert database.needs_copy
    await copied(tmp_path, database)
    await database.close()
    lose(tmp_path)
    database = await opened(tmp_path)
    assert await database.read(lambda tx: count(tx, "reminders")) == 1
    await database.close()


async def test_an_end_that_was_torn_off_is_gone_over_and_a_copy_is_due(tmp_path, database):
    await database.close()
    (path,) = changes.paths(database.path)
    path.write_bytes(path.read_bytes()[:-5])
    for _ in range(2):
        database = await opened(tmp_path)
        assert database.needs_copy
        assert await database.read(recovery.latest) is None
        assert await database.read(lambda tx: count(tx, "reminders")) == 2
        await database.close()


async def test_killed_between_commit_and_log_nothing_is_lost_and_a_copy_is_due(
    tmp_path, monkeypatch, database
):
    with monkeypatch.context() as patch:
        patch.setattr(ChangeLog, "append", lambda *_args, **_more: None)
        await database.write(lambda tx: reminders.add(tx, target(), "lost", NOON, NOON))
    await database.close()
    database = await opened(tmp_path)
    assert database.needs_copy
    assert await database.read(lambda tx: count(tx, "reminders")) == 3
    await database.write(lambda tx: say(tx, "later"))
    await database.close()
    lose(tmp_path)  # before there is a copy: what is in no file is missing, and that is told
    database = await opened(tmp_path)
    told = await database.read(recovery.latest)
    assert told is not None
    assert told.missing
    assert await database.read(lambda tx: (count(tx, "reminders"), count(tx, "entries"))) == (2, 2)
    await database.close()


async def test_a_disk_that_refuses_the_log_has_a_copy_made(tmp_path, monkeypatch, database):

    def refuse(*_args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (path,) = changes.paths(database.path)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        await database.write(lambda tx: reminders.add(tx, target(), "kept", NOON, NOON))
    assert path.read_bytes() == before
    assert database.needs_copy
    await copied(tmp_path, database)
    assert not database.needs_copy
    await database.close()
    damage(tmp_path)
    database = await opened(tmp_path)
    assert await database.read(lambda tx: count(tx, "reminders")) == 3
    await database.close()


async def test_a_disk_that_is_full_in_the_middle_of_a_copy_leaves_log_and_copies(tmp_path):
    with faulty_disk(tmp_path) as disk:
        database = await filled(tmp_path)
        database.needs_copy = True
        disk.full = True
        with pytest.raises(StorageError):
            await copied(tmp_path, database)
        disk.full = False
        assert database.needs_copy
        assert len(changes.paths(database.path)) == 1
        await copied(tmp_path, database)
        assert not database.needs_copy
        await database.close()


async def test_a_log_of_another_database_is_set_aside_and_never_applied(tmp_path):
    database = await filled(tmp_path / "one")
    await database.close()
    database = await opened(tmp_path / "two")
    await database.write(lambda tx: say(tx, "hello"))
    await database.close()
    shutil.rmtree(tmp_path / "two" / "backups")
    shutil.copytree(tmp_path / "one" / "backups", tmp_path / "two" / "backups")
    database = await opened(tmp_path / "two")
    assert await database.read(lambda tx: (count(tx, "links"), count(tx, "entries"))) == (0, 1)
    assert database.needs_copy
    assert len(list((tmp_path / "two" / "backups").glob("*.kept-1"))) == 1
    await database.close()


async def test_a_log_of_another_past_is_set_aside_and_never_applied(tmp_path, database):
    await database.close()
    first = path_of(tmp_path).read_bytes()
    database = await opened(tmp_path)
    for _ in range(3):
        await database.write(lambda tx: say(tx, "one past"))
    await database.close()
    past = (tmp_path / "backups", tmp_path / "past")
    shutil.copytree(*past)
    shutil.rmtree(past[0])
    path_of(tmp_path).write_bytes(first)
    database = await opened(tmp_path)
    await database.write(lambda tx: say(tx, "another past"))
    await database.close()
    shutil.rmtree(past[0])
    shutil.copytree(past[1], past[0])
    database = await opened(tmp_path)
    lines = await database.read(lambda tx: str(tx.execute("SELECT line FROM entries")))
    assert ("another past" in lines, "one past" in lines) == (True, False)
    await database.close()


async def test_a_copy_that_is_newer_than_the_log_is_enough(tmp_path, database):
    await copied(tmp_path, database)
    await database.close()
    changes.clear(database.path)
    damage(tmp_path)
    database = await opened(tmp_path)
    assert await database.read(lambda tx: count(tx, "reminders")) == 2
    assert database.needs_copy
    await database.close()


async def test_without_a_copy_and_a_log_from_the_beginning_nothing_is_changed(tmp_path, database):
    await copied(tmp_path, database)
    await database.close()
    backup.newest_first(database.path, NOON)[0].unlink()
    changes.paths(database.path)[0].unlink()
    damage(tmp_path)
    before = sorted((each.name, each.stat().st_size) for each in tmp_path.rglob("*"))
    with pytest.raises(StorageCorrupt, match=r"no sound copy of it\. Nothing was changed\."):
        await opened(tmp_path)
    assert sorted((each.name, each.stat().st_size) for each in tmp_path.rglob("*")) == before


async def test_what_was_forgotten_and_whoever_was_erased_holds_over_an_older_copy(tmp_path):
    """Also where changes between that and the log cannot be had any more."""
    database = await opened(tmp_path)
    await database.write(lambda tx: say(tx, "the secret 1"))
    await database.write(lambda tx: zones.choose(tx, "eve", ZONES[1], NOON))
    copy = await copied(tmp_path, database)
    await database.write(lambda tx: forgetting.forget_in(tx, VIEW, "secret 1", NOON))
    whose = erasing.Belongings(("eve",), ())
    await database.write(lambda tx: erasing.erase_for_good(tx, whose, NOON, NOON))
    kept = copy.read_bytes()
    await copied(tmp_path, database, NOON + 9_000)
    await database.close()
    for path in changes.paths(database.path)[:-1]:
        path.unlink()
    for each in backup.newest_first(database.path, NOON + 9_000):
        each.unlink()
    copy.write_bytes(kept)
    damage(tmp_path)
    database = await opened(tmp_path)
    assert await database.read(found) == []
    assert (await database.read(erasing.removals_of)).hidden
    assert await database.read(lambda tx: count(tx, "zones")) == 0
    await database.close()


async def test_bringing_back_that_is_killed_anywhere_is_gone_on_with(
    tmp_path, monkeypatch, database
):
    wanted = await database.read(state)
    await database.close()
    monkeypatch.setattr(recovery, "AT_ONCE", 1)
    lose(tmp_path)
    left = [1]
    real = SqliteDatabase.write

    async def killed(self: SqliteDatabase, work: Callable[[Transaction], object]) -> object:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return await real(self, work)

    for moment in range(2, 12):
        left[0] = moment
        with monkeypatch.context() as patch:
            patch.setattr(SqliteDatabase, "write", killed)
            try:
                await (await opened(tmp_path)).close()
                break
            except KeyboardInterrupt:
                continue
    database = await opened(tmp_path)
    assert await database.read(state) == wanted
    told = await database.read(recovery.latest)
    assert told is not None
    assert (told.entries, told.counts["reminders"], told.missing) == (1, 2, 0)
    await database.close()


BESIDE = """
import asyncio, sys
from pathlib import Path
from bot.storage.sqlite import SqliteDatabase
async def main():
    database = await SqliteDatabase.open(Path(sys.argv[1]))
    for number in range(30):
        row = (f"beside {number}", "", 0)
        await database.write(lambda tx, row=row: tx.execute("INSERT INTO meta VALUES (?,?,?)", row))
    await database.close()
asyncio.run(main())
"""


async def test_two_processes_write_one_log(tmp_path, database):
    beside = subprocess.Popen(  # noqa: ASYNC220 - it runs beside
        [sys.executable, "-c", BESIDE, str(database.path)]
    )
    for number in range(30):
        await database.write(lambda tx, n=number: say(tx, f"said {n}"))
        if number == 10:
            await copied(tmp_path, database)
    assert beside.wait() == 0
    wanted = await database.read(state)
    await database.close()
    damage(tmp_path)
    database = await opened(tmp_path)
    assert await database.read(state) == wanted
    assert await database.read(lambda tx: count(tx, "meta")) >= 30
    await database.close()


async def test_a_long_result_that_was_forgotten_and_a_beginning_of_requests_do_not_come_back(
    tmp_path,
):
    database = await opened(tmp_path)

    def put(tx: Transaction) -> None:
        tx.execute(
            "INSERT INTO artifacts(id, session_id, tool, at, text) VALUES ('a', ?, 'x', 1, 'word')",
            (current(tx).id,),
        )
        compactions.keep(tx, current(tx).id, "", Snapshot("word", ""), 1)

    await database.write(put)
    await copied(tmp_path, database)
    await database.write(lambda tx: artifacts.drop(tx, [PLACE.key], "word"))
    await database.close()
    damage(tmp_path)
    database = await opened(tmp_path)
    for table in ("artifacts", "prefixes", "prefix_texts"):
        assert await database.read(lambda tx, t=table: count(tx, t)) == 0
    await database.close()


async def test_a_log_of_a_newer_format_is_refused_and_nothing_is_changed(tmp_path, database):
    await database.close()
    (path,) = changes.paths(database.path)
    newer = path.read_bytes().replace(b'"version":1', b'"version":2', 1)
    path.write_bytes(newer)
    with pytest.raises(StorageError, match=r"has format 2.*knows format 1\. Nothing was changed"):
        await opened(tmp_path)
    assert path.read_bytes() == newer


async def test_a_log_that_cannot_be_read_stops_the_start(tmp_path, monkeypatch, database):
    await database.close()

    def refuse(_path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(changes, "read", refuse)
    with pytest.raises(StorageError, match="nothing is begun without it"):
        await opened(tmp_path)


async def test_what_the_first_tables_kept_beside_is_removed(tmp_path):
    left = ("confidant.journal.jsonl", "confidant.journal.jsonl.kept-1", "confidant.transcripts")
    for name in left:
        (tmp_path / name).write_text("r1")
    await (await opened(tmp_path)).close()
    assert not any((tmp_path / name).exists() for name in left)
    assert (tmp_path / files.BACKUPS).is_dir()
