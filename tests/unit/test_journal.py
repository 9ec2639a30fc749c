"""The journal: what outlives the database beside transcripts, and what is done with any file."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bot import recovery
from bot.channel import Address, Inbound
from bot.identity import MessageOrigin
from bot.identity.view import MemoryView
from bot.sessions import (
    artifacts,
    forgetting,
    journal_records,
    links,
    pairing,
    recurrence,
    reminders,
    repeats,
    rooms,
    snapshots,
    store,
    zones,
)
from bot.sessions.entries import NewEntry
from bot.sessions.links import Link
from bot.sessions.recurrence import Series
from bot.sessions.snapshots import Snapshot
from bot.storage import Row, Transaction, journal, schema
from bot.storage.sqlite import SqliteDatabase
from bot.unit_of_work import UnitOfWork
from tests.support import NOON

PLACE = store.Place("agent:main:web:dm:ada", "ada", "web", "default", "ada", "", "direct")
ZONES = [ZoneInfo("UTC"), ZoneInfo("Asia/Tokyo")]
ORIGIN = MessageOrigin("web", "default", "ada", "direct", "ada")
DAILY = Series(recurrence.parse("FREQ=DAILY"), datetime(2026, 11, 21, 15, 0))  # noqa: DTZ001
SEATS = [("telegram", "1"), ("discord", "2"), ("web", "3")]
VIEW = MemoryView("people/ada", private=True, people=("ada",), keys=(PLACE.key,))

# How each table survives the loss of the database.
SURVIVES = {
    "sessions": "the transcript's header, and the journal",
    "entries": "the transcript",
    "conversations": "the newest transcript, and the journal after /undo",
    "forgotten": "the journal",
    "hidden": "the journal",
    "links": "the journal",
    "reminders": "the journal",
    "pairing": "the journal, once approved; codes are secrets and short-lived",
    "blocks": "the journal",
    "rooms": "the journal, when something was chosen",
    "moved_chats": "the journal",
    "zones": "the journal",
    "uploads": "no: files of a day that came through a page; what they said is in the transcript",
    "told_zones": "no: browsers say it again",
    "titles": "the journal",
    "usage_counts": "no: counters",
    "limit_notices": "no: who was told; they are told again",
    "repeats": "the journal",
    "repeat_runs": "no: what came of the last times",
    "journal": "it is the journal",
    "ahead": "made while the journal is read",
    "meta": "no: figures that are measured again, parts of messages under way",
    "inbox": "no: what waits for an answer; what was answered is in the transcript",
    "outbox": "no: what waits to be sent",
    "prefixes": "no: made again for the next message",
    "prefix_texts": "no: made again for the next message",
    "artifacts": "no: long results; the transcript has their beginning",
    "link_codes": "no: secrets of ten minutes",
    "page_people": "no: whoever may have been taken out since is let in anew",
    "page_links": "no: secrets of ten minutes",
    "page_logins": "no: what may have been ended since is ended",
    "approvals": "no: nothing may be carried out that may have been before",
    "push_subscriptions": "no: a browser asks for it again",
    "note_versions": "no: a way back for a while; what was forgotten since would come back",
    "claim_uses": "no: what is used again is known again",
    "forgotten_spaces": "no: it is there for what is under way",
    "schema_versions": "made with the tables",
}


def path_of(folder: Path) -> Path:
    return journal.file_of(folder / "confidant.db")


async def opened(folder: Path) -> SqliteDatabase:
    return await SqliteDatabase.open(folder / "confidant.db")


async def read(database: SqliteDatabase) -> recovery.Told:
    return await recovery.read_journal(database, journal.file_of(database.path), NOON)


def lose(folder: Path) -> None:
    """The database is gone; what lies beside it stays."""
    for part in ("", "-wal", "-shm"):
        (folder / f"confidant.db{part}").unlink(missing_ok=True)


def state(tx: Transaction) -> dict[str, list[Row]]:
    """Everything that must come back, whatever the order of its rows."""
    found = {
        name: tx.execute(f"SELECT {', '.join(table.columns)} FROM {name} WHERE {table.only}")
        for name, table in journal_records.TABLES.items()
    }
    sender = journal_records.TABLES["sessions"].columns.index("sender")
    found["sessions"] = [
        (*row[:sender], row[sender] == store.MANY, *row[sender + 1 :]) for row in found["sessions"]
    ]
    found["forgotten"] = tx.execute("SELECT id FROM entries JOIN forgotten USING (seq)")
    found["hidden"] = tx.execute("SELECT id, block FROM entries JOIN hidden USING (seq)")
    found["conversations"] = tx.execute("SELECT key, session_id FROM conversations")
    return {name: sorted(rows, key=repr) for name, rows in found.items()}


def link(seat: links.Seat, root: links.Seat) -> Link:
    return Link(seat, root, Address(seat[0], "default", seat[1]), "en")


def target(key: str = PLACE.key) -> reminders.ReplyTarget:
    return reminders.ReplyTarget(key, "ada", Address("web", "default", "ada"), "en", ORIGIN)


def asked(tx: Transaction, sender: str, code: str = "ABCDEFGH") -> None:
    inbound = Inbound("telegram", "default", sender, "direct", sender, "1", "hi", NOON)
    pairing.ask(tx, inbound, code, NOON)


async def test_every_table_says_how_it_survives(tmp_path):
    database = await opened(tmp_path)
    rows = await database.read(
        lambda tx: tx.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'entries_text%'"
        )
    )
    await database.close()
    assert {row[0] for row in rows} == set(SURVIVES)
    assert set(journal_records.TABLES) <= set(SURVIVES)


async def test_every_column_is_written_or_fixed_or_of_the_transcript(tmp_path):
    database = await opened(tmp_path)
    for name, table in journal_records.TABLES.items():
        rows = await database.read(lambda tx, n=name: tx.execute(f"PRAGMA table_info({n})"))
        others = {row[1] for row in rows} - set(table.columns) - set(table.fixed)
        assert others == (set() if name != "sessions" else others), name
    await database.close()


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
        current(tx).sender != store.MANY
        and store.change(tx, current(tx).id, sender=("1", store.MANY)[a == 9])
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
        store.go_back(tx, PLACE.key, session.previous, now)  # a clock may have been set back


def transcripts(tx: Transaction, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for session in store.all_sessions(tx):
        data = "".join(f"{line}\n" for line in store.lines(tx, session.id))
        (folder / f"{session.id}.jsonl").write_text(data)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)),
        max_size=40,
    ),
    cut=st.integers(0, 40),
)
@settings(max_examples=40, deadline=None)
@example(steps=[("new", 0, 0), ("undo", 0, 0), ("new", 0, 0)], cut=39)
@example(steps=[("new", 9, 0), ("new", 5, 1), ("undo", 0, 0), ("undo", 3, 6)], cut=37)
async def test_whatever_was_done_stands_again_over_any_older_database(tmp_path_factory, steps, cut):
    """Begun anew, and over a backup from anywhere on the way."""
    folder = tmp_path_factory.mktemp("journal")
    database = await opened(folder)
    await read(database)
    for number, (step, one, other) in enumerate(steps):
        if number == min(cut, len(steps) - 1):
            older = await database.read(lambda tx: tx.execute("SELECT * FROM journal"))
            await database.write(lambda tx: tx.execute("DELETE FROM meta"))
            await database.close()
            (folder / "older.db").write_bytes((folder / "confidant.db").read_bytes())
            database = await opened(folder)
            assert await database.read(lambda tx: tx.execute("SELECT * FROM journal")) == older
        await database.write(lambda tx, s=step, a=one, b=other: STEPS[s](tx, a, b))
    await database.write(lambda tx: (current(tx), transcripts(tx, folder / "sessions")))
    wanted = await database.read(state)
    await database.close()
    data = path_of(folder).read_bytes() if path_of(folder).exists() else b""
    for kind in ("anew", "backup"):
        lose(folder)
        if kind == "backup" and (folder / "older.db").exists():
            (folder / "older.db").rename(folder / "confidant.db")
        database = await opened(folder)
        told = await read(database)
        await recovery.read_back(database, folder / "sessions", lambda *_: None, NOON, every=True)
        found = await database.read(state)
        assert (told.unreadable, told.unknown, told.aside) == (0, 0, None)
        assert found == wanted, kind
        assert b"ABCDEFGH" not in data
        assert not await database.read(lambda tx: tx.execute("SELECT * FROM ahead"))
        await database.close()
        assert (path_of(folder).read_bytes() if data else b"") == data


async def filled(folder: Path) -> tuple[SqliteDatabase, list[str]]:
    """A database and its journal: a link, two reminders, a forgotten entry."""
    database = await opened(folder)
    await read(database)
    await database.write(lambda tx: links.join(tx, link(SEATS[0], SEATS[1]), NOON))
    for number in range(2):
        await database.write(
            lambda tx, n=number: reminders.add(tx, target(), f"r{n}", NOON + n * 90_000, NOON)
        )
    await database.write(lambda tx: say(tx, "the secret 1"))
    await database.write(lambda tx: forgetting.forget_in(tx, VIEW, "secret 1", NOON))
    await database.write(lambda tx: transcripts(tx, folder / "sessions"))
    rows = await database.read(lambda tx: tx.execute("SELECT line FROM journal ORDER BY seq"))
    return database, [row[0] for row in rows]


async def test_what_was_noted_is_in_the_file_when_the_write_returns(tmp_path):
    database, lines = await filled(tmp_path)
    assert path_of(tmp_path).read_text().splitlines() == [
        journal.HEADER.decode().strip(),
        *lines,
    ]
    assert path_of(tmp_path).stat().st_mode & 0o777 == 0o600
    await database.close()


async def test_what_was_noted_is_on_the_disk_when_the_write_returns(tmp_path, monkeypatch):
    database, _ = await filled(tmp_path)
    synced: list[bytes] = []
    fsync = os.fsync

    def watched(file: int) -> None:
        fsync(file)
        synced.append(Path(f"/proc/self/fd/{file}").read_bytes())

    monkeypatch.setattr(os, "fsync", watched)
    await database.write(lambda tx: links.part(tx, SEATS[0]))
    assert synced[-1].endswith(b'"sender":"1"}}\n')
    await database.close()


async def test_what_was_rolled_back_is_not_in_the_journal(tmp_path):
    database, lines = await filled(tmp_path)

    def fail(tx: Transaction) -> None:
        links.part(tx, SEATS[0])
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        await database.write(fail)
    assert len(path_of(tmp_path).read_text().splitlines()) == 1 + len(lines)
    await database.close()


async def test_a_forgotten_entry_is_named_by_its_place_and_not_by_its_words(tmp_path):
    database, lines = await filled(tmp_path)
    await database.close()
    assert orjson.loads(lines[-1])["type"] == "forgotten"
    assert "secret" not in "".join(lines)


@pytest.mark.parametrize("left", [0, 1, 40, -1, -30])
async def test_a_file_that_was_cut_off_is_completed(tmp_path, left):
    """A kill in the middle of a line: the database has it all."""
    database, _ = await filled(tmp_path)
    whole = path_of(tmp_path).read_bytes()
    path_of(tmp_path).write_bytes(whole[:left])
    told = await read(database)
    assert (told.counts, told.unreadable, told.aside) == ({}, 0, None)
    assert path_of(tmp_path).read_bytes() == whole
    await database.close()


async def test_a_file_that_is_gone_is_written_again(tmp_path):
    database, _ = await filled(tmp_path)
    whole = path_of(tmp_path).read_bytes()
    path_of(tmp_path).unlink()
    await read(database)
    assert path_of(tmp_path).read_bytes() == whole
    await database.close()


async def test_two_processes_write_one_journal(tmp_path):
    """The command line approves and links while the bot runs."""
    one, _ = await filled(tmp_path)
    other = await opened(tmp_path)
    await other.write(lambda tx: links.part(tx, SEATS[0]))
    await one.write(lambda tx: links.join(tx, link(SEATS[2], SEATS[1]), NOON))
    await other.write(lambda tx: links.part(tx, SEATS[2]))
    told = await read(one)
    assert told.aside is None
    assert path_of(tmp_path).read_bytes().count(b'{"type":"links"') == 4
    await one.close()
    await other.close()


async def test_a_disk_that_refuses_the_journal_loses_nothing(tmp_path, monkeypatch):
    database, lines = await filled(tmp_path)

    def refuse(file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        patch.setattr(journal, "_extend", lambda *_: refuse(0))
        assert await database.write(lambda tx: links.part(tx, SEATS[0])) is not None
    await database.write(lambda tx: links.join(tx, link(SEATS[2], SEATS[1]), NOON))
    assert len(path_of(tmp_path).read_text().splitlines()) == 1 + len(lines) + 2
    await database.close()


HOSTILE = {
    "nothing but zeros": b"\0" * 5_000,
    "no json": b"not json\n{]\n",
    "another's": b'{"type":"session","version":1}\n{"hello": "world"}\n[1, 2]\n"x"\nnull\n17\n',
    "an unknown kind": b'{"type":"outbox","row":{"id":1}}\n',
    "a table that is none of it": b'{"type":"entries","gone":{"id":"x"}}\n',
    "sql": b"""{"type":"links; DROP TABLE links","gone":{"channel":"x' OR 1=1 --"}}\n""",
    "columns that are none": b'{"type":"links","row":{"channel) VALUES (1); --":"x"}}\n',
    "wrong types": b'{"type":"rooms","row":{"key":1,"activation":[],"changed_at":"x"}}\n',
    "a missing key": b'{"type":"rooms","gone":{}}\n',
    "a number no column takes": b'{"type":"rooms","row":{"key":"a","activation":"","changed_at":'
    b"99999999999999999999}}\n",
    "a session that should go": b'{"type":"sessions","gone":{"id":"x"}}\n',
    "half a forgetting": b'{"type":"forgotten","row":{"entry":"x"}}\n',
    "deep": b'{"type":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "a long line": b'{"type":"rooms","gone":{"key":"' + b"x" * 3_000_000 + b'"}}\n',
    "no utf-8": b'{"type":"rooms","gone":{"key":"\xff\xfe"}}\n',
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("is_lost", [False, True])
async def test_what_is_none_of_ours_is_set_aside_and_the_rest_counts(tmp_path, name, is_lost):
    """In the middle of a journal, of a database that is there and of one that is gone."""
    database, lines = await filled(tmp_path)
    before = await database.read(state)
    path = path_of(tmp_path)
    good = path.read_bytes().splitlines(keepends=True)
    odd = b"".join(good[:2]) + HOSTILE[name] + b"".join(good[2:])
    path.write_bytes(odd)
    if is_lost:
        await database.close()
        lose(tmp_path)
        database = await opened(tmp_path)
    told = await read(database)
    await recovery.read_back(database, tmp_path / "sessions", lambda *_: None, NOON, every=is_lost)
    assert await database.read(state) == before
    assert told.unreadable > 0
    assert told.aside is not None
    assert told.aside.read_bytes() == odd
    rows = await database.read(lambda tx: tx.execute("SELECT line FROM journal ORDER BY seq"))
    assert [row[0] for row in rows] == lines
    assert path.read_bytes() == b"".join(good)
    assert await read(database) == recovery.Told()
    await database.close()


async def test_of_another_databases_journal_only_what_was_forgotten_counts(tmp_path):
    """Put in place by mistake: its links must not join anybody, but forgetting is safe."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    database, lines = await filled(theirs)
    await database.write(lambda tx: transcripts(tx, ours / "sessions"))
    await database.close()
    database = await opened(ours)
    await database.write(lambda tx: rooms.activate(tx, "room", "always", NOON))
    await recovery.read_back(database, ours / "sessions", lambda *_: None, NOON, every=True)
    foreign = path_of(theirs).read_bytes()
    path_of(ours).write_bytes(foreign)
    told = await read(database)
    assert told.counts == {"forgotten": 1}
    assert told.unknown == len(lines) - 1
    assert told.aside is not None
    assert told.aside.read_bytes() == foreign
    found = await database.read(state)
    assert (found["links"], found["reminders"]) == ([], [])
    assert len(found["forgotten"]) == 1
    assert found["rooms"]
    assert await read(database) == recovery.Told()
    await database.close()


async def test_a_huge_journal_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "LINES_AT_ONCE", 3)
    database, _ = await filled(tmp_path)
    for number in range(50):
        await database.write(lambda tx, n=number: rooms.activate(tx, f"room{n}", "always", NOON))
    wanted = await database.read(state)
    await database.close()
    lose(tmp_path)
    database = await opened(tmp_path)
    told = await read(database)
    await recovery.read_back(database, tmp_path / "sessions", lambda *_: None, NOON, every=True)
    assert told.counts["rooms"] == 50
    assert await database.read(state) == wanted
    await database.close()


async def test_what_is_beyond_the_largest_journal_is_kept_and_not_read(tmp_path, monkeypatch):
    database, _ = await filled(tmp_path)
    await database.close()
    whole = path_of(tmp_path).read_bytes()
    monkeypatch.setattr(journal, "LINES_AT_ONCE", 1)
    monkeypatch.setattr(journal, "MAX_BYTES", len(whole) - 10)
    path_of(tmp_path).write_bytes(whole + b"x" * 100)
    lose(tmp_path)
    database = await opened(tmp_path)
    told = await read(database)
    assert told.aside is not None
    assert told.aside.read_bytes() == whole + b"x" * 100
    await database.close()


async def test_a_database_from_before_the_journal_begins_one_with_what_it_has(
    tmp_path, monkeypatch
):
    with monkeypatch.context() as older:
        older.setattr(Transaction, "note", lambda *_: None)
        older.setattr("bot.storage.sqlite_sql.SqliteTransaction.note", lambda *_: None)
        database, lines = await filled(tmp_path)
    assert not lines
    wanted = await database.read(state)
    assert await read(database) == recovery.Told()
    await database.close()
    lose(tmp_path)
    database = await opened(tmp_path)
    await read(database)
    await recovery.read_back(database, tmp_path / "sessions", lambda *_: None, NOON, every=True)
    assert await database.read(state) == wanted
    await database.close()


async def test_a_result_that_was_forgotten_goes_from_an_older_database_too(tmp_path):
    database = await opened(tmp_path)
    await read(database)

    def put(tx: Transaction) -> None:
        tx.execute(
            "INSERT INTO artifacts(id, session_id, tool, at, text) VALUES ('a', ?, 'x', 1, 'word')",
            (current(tx).id,),
        )
        snapshots.keep(tx, current(tx).id, "", Snapshot("word", ""), 1)

    await database.write(put)
    await database.close()
    backup = (tmp_path / "confidant.db").read_bytes()
    database = await opened(tmp_path)

    await database.write(
        lambda tx: (
            artifacts.drop(tx, [PLACE.key], "word"),
            snapshots.remove(tx, snapshots.names_of(tx, [PLACE.key])),
        )
    )
    await database.close()
    lose(tmp_path)
    (tmp_path / "confidant.db").write_bytes(backup)
    database = await opened(tmp_path)
    await read(database)
    left = await database.read(
        lambda tx: tx.execute("SELECT id FROM artifacts UNION SELECT session_id FROM prefixes")
    )
    assert left == []
    await database.close()


def test_lines_of_a_journal_never_hold_a_code():
    assert all("code" not in table.columns for table in journal_records.TABLES.values())
    assert "link_codes" not in journal_records.TABLES
    assert schema.VERSION >= 5
