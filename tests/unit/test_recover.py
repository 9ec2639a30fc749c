"""Reading transcripts back: which files, and which messages are answered by what they say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot import recovery
from bot.channel import Inbound
from bot.sessions import inbox, store
from bot.sessions.entries import Kind, NewEntry
from bot.storage import Transaction
from bot.storage.sqlite import SqliteDatabase
from bot.unit_of_work import UnitOfWork

PLACE = store.Place("agent:main:web:dm:ada", "ada", "web", "default", "ada", "", "direct")
ASKED = Inbound("web", "default", "ada", "direct", "ada", "7", "hello there", 1_000)
ANSWERED_AT = 2_000


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    yield database
    await database.close()


def wait(tx: Transaction, inbound: Inbound, *, at: int = 1_000, session: str = "") -> None:
    """A message that waits, in a session of its own place or in another one."""
    inbound, body = inbox.storable(inbound)
    row = inbox.store(tx, inbound, body, PLACE.key, at)
    assert row is not None
    inbox.bind(tx, row, session or UnitOfWork(tx, 1).current(PLACE)[0].id)


def turn(text: str, source: str, kind: Kind = "message") -> list[NewEntry]:
    return [NewEntry(kind, "user", text, (), source), NewEntry("message", "assistant", "Hi.")]


async def written_ahead(
    database: SqliteDatabase, folder: Path, *turns: list[NewEntry], cut: int = 0
) -> Path:
    """A session's file with turns that the database does not have, less its last bytes."""
    folder.mkdir(exist_ok=True)
    session, _ = await database.write(lambda tx: UnitOfWork(tx, 1).current(PLACE))
    lines = await database.read(lambda tx: store.lines(tx, session.id))

    class Undone(Exception):
        pass

    def add(tx: Transaction) -> None:
        for number, news in enumerate(turns):
            added = store.append(tx, session.id, news, ANSWERED_AT + number)
            lines.extend(added.data.decode().splitlines())
        raise Undone

    with pytest.raises(Undone):
        await database.write(add)
    data = "".join(f"{line}\n" for line in lines).encode()
    path = folder / f"{session.id}.jsonl"
    path.write_bytes(data[: len(data) - cut])
    return path


async def read_back(database: SqliteDatabase, folder: Path, *, every: bool = False) -> int:
    settle = partial(inbox.settle, now=9_000)
    return await recovery.read_back(database, folder, settle, 9_000, every=every)


async def states(database: SqliteDatabase) -> list[str]:
    rows = await database.read(lambda tx: tx.execute("SELECT state FROM inbox ORDER BY id"))
    return [row[0] for row in rows]


@pytest.mark.parametrize("every", [True, False])
async def test_a_message_whose_turn_is_in_the_file_is_done(database, tmp_path, every):
    await database.write(lambda tx: wait(tx, ASKED))
    await database.write(lambda tx: wait(tx, replace(ASKED, message_id="8")))
    folder = tmp_path / "sessions"
    await written_ahead(database, folder, turn("hello there", "7"))
    assert await read_back(database, folder, every=every) == 2
    assert await states(database) == ["done", "waiting"]
    assert await read_back(database, folder, every=every) == 0


@pytest.mark.parametrize(
    ("text", "said", "kind"),
    [("/status", "/status", "command"), ("停止", "/stop", "command"), ("/new go", "go", "message")],
)
async def test_a_command_that_was_carried_out_is_not_carried_out_again(
    database: SqliteDatabase, tmp_path: Path, text: str, said: str, kind: Kind
):
    await database.write(lambda tx: wait(tx, replace(ASKED, text=text)))
    await database.write(lambda tx: tx.execute("UPDATE inbox SET state = 'command'"))
    await written_ahead(database, tmp_path / "sessions", turn(said, "7", kind))
    await read_back(database, tmp_path / "sessions")
    assert await states(database) == ["done"]


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"message_id": "8"}, 1_000),
        ({"text": "another message of that number"}, 1_000),
        ({"channel": "telegram", "chat": "5"}, 1_000),
        ({}, ANSWERED_AT + 1),
    ],
)
async def test_only_a_message_that_fits_is_taken_for_answered(
    database: SqliteDatabase, tmp_path: Path, changes: dict[str, Any], at: int
):
    def store_it(tx: Transaction) -> None:
        other = replace(PLACE, key="agent:main:web:dm:bob", chat="bob", person="bob")
        elsewhere = UnitOfWork(tx, 1).current(other)[0].id if "channel" in changes else ""
        wait(tx, replace(ASKED, **changes), at=at, session=elsewhere)

    await database.write(store_it)
    await written_ahead(database, tmp_path / "sessions", turn("hello there", "7"))
    await read_back(database, tmp_path / "sessions")
    assert await states(database) == ["waiting"]


async def test_a_conversation_of_several_places_knows_its_messages(database, tmp_path):
    await database.write(lambda tx: wait(tx, replace(ASKED, channel="telegram", chat="5")))
    await written_ahead(database, tmp_path / "sessions", turn("hello there", "7"))
    await read_back(database, tmp_path / "sessions")
    assert await states(database) == ["done"]


@pytest.mark.parametrize("cut", [1, 20, 60, 130])
async def test_what_is_torn_off_within_its_turn_is_answered(database, tmp_path, cut):
    await database.write(lambda tx: wait(tx, replace(ASKED, message_id="6", text="before")))
    await database.write(lambda tx: wait(tx, ASKED))
    turns = turn("before", "6"), turn("hello there", "7")
    path = await written_ahead(database, tmp_path / "sessions", *turns, cut=cut)
    whole = len(path.read_bytes().splitlines()) - (cut > 1)
    assert await read_back(database, tmp_path / "sessions") == whole - 1  # less the header
    assert await states(database) == ["done", "waiting"]


async def test_files_that_say_no_more_are_not_read(database, tmp_path, monkeypatch):
    folder = tmp_path / "sessions"
    assert await read_back(database, folder) == 0  # there are none yet
    path = await written_ahead(database, folder)

    read = Path.read_bytes

    def unread(path: Path) -> bytes:
        assert path.suffix != ".jsonl"
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", unread)
        assert await read_back(database, folder) == 0
        with pytest.raises(AssertionError):
            await read_back(database, folder, every=True)
    path.write_bytes(path.read_bytes() + b"somebody's own words\n")
    assert await read_back(database, folder) == 0
