"""What changes what a program keeps of a session in memory changes its version too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bot.agent.session_cache import SessionCache
from bot.identity import MANY
from bot.identity.view import MemoryView
from bot.sessions import compactions, forgetting, snapshots, store
from bot.sessions.compactions import Compaction
from bot.sessions.entries import NewEntry
from bot.sessions.snapshots import Snapshot
from bot.sessions.store import Session
from bot.storage import Transaction
from bot.storage.sqlite import SqliteDatabase
from bot.unit_of_work import UnitOfWork

PLACE = store.Place("agent:main:web:dm:ada", "ada", "web", "default", "ada", "", "direct")
VIEW = MemoryView("people/ada", (PLACE.key,), private=True, people=("ada",))
COUNTED = store.Counted(input_tokens=5, cached_tokens=4, output_tokens=3, context_tokens=9, turns=1)

Change = Callable[[Transaction, Session], object]


def said(*words: str) -> list[NewEntry]:
    return [NewEntry("message", "user", w, ({"type": "text", "text": w},)) for w in words]


def turn(tx: Transaction, session: Session) -> None:
    store.append(tx, session.id, said("more"), 2, COUNTED)
    snapshots.keep(tx, session.id, "another", Snapshot("b", "[]"), 2)


def compact(tx: Transaction, session: Session) -> None:
    second = store.messages(tx, session.id, 9)[1].id
    entry = compactions.entry_of(Compaction("in short", second, 9, 1))
    id_ = store.append(tx, session.id, [entry], 2).ids[0]
    compactions.apply(tx, session.id, id_, 3)


def undo_compaction(tx: Transaction, session: Session) -> None:
    found = store.get(tx, session.id)
    assert found is not None
    compactions.undo(tx, found)


def forget_summary(tx: Transaction, session: Session) -> None:
    forgetting.forget_in(tx, VIEW, "in short", 3)


def begin_another(tx: Transaction, session: Session) -> None:
    UnitOfWork(tx, 5).start(PLACE, by="new", previous=session, model="")


def go_back(tx: Transaction, session: Session) -> None:
    store.point(tx, PLACE.key, session.id, 6)


def end(tx: Transaction, session: Session) -> None:
    store.change(tx, session.id, ended_by="daily", ended_at=4)


def forget_prompt(tx: Transaction, session: Session) -> None:
    snapshots.remove(tx, snapshots.names_of(tx, [PLACE.key]))


def a_choice(**columns: str | int) -> Change:
    return lambda tx, session: store.change(tx, session.id, **columns)


CHANGES: dict[str, tuple[Change, ...]] = {
    "a turn": (turn,),
    "a note": (lambda tx, s: store.append(tx, s.id, [NewEntry("notice", "assistant", "n")], 2),),
    "a compaction": (compact,),
    "a compaction taken back": (compact, undo_compaction),
    "a summary forgotten": (compact, forget_summary),
    "words forgotten": (lambda tx, _: forgetting.forget_in(tx, VIEW, "one", 2),),
    "a prompt forgotten": (forget_prompt,),
    "another conversation": (begin_another,),
    "gone back to": (begin_another, go_back),
    "ended": (end,),
    "ended and taken up again": (end, go_back),
    "a model chosen": (a_choice(model="other"),),
    "notices chosen": (a_choice(notices="off"),),
    "usage chosen": (a_choice(usage="tokens"),),
    "told": (a_choice(told=70),),
    "saved": (a_choice(memory_flush_at=5, memory_flush_compaction_count=0, flushed_to=1),),
    "several people": (a_choice(sender=MANY),),
}


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    yield database
    await database.close()


def begin(tx: Transaction) -> Session:
    session, _ = UnitOfWork(tx, 1).current(PLACE)
    store.append(tx, session.id, said("one", "two"), 1)
    snapshots.keep(tx, session.id, "view", Snapshot("a", "[]"), 1)
    return session


async def kept(database: SqliteDatabase, session_id: str) -> tuple[object, int]:
    """What a program has in memory once it has read the session anew, and its version."""
    live = await SessionCache(database).get(session_id)
    history = live.history
    row = replace(live.session, version=0, last_user_at=0)
    there = (row, history.lines, history.summary, live.snapshots, live.hidden, live.called_at)
    return there, live.session.version


@pytest.mark.parametrize("name", CHANGES)
async def test_what_changes_what_is_kept_changes_the_version(database, name):
    session = await database.write(begin)
    before = await kept(database, session.id)
    for change in CHANGES[name]:
        await database.write(lambda tx, change=change: change(tx, session))
        after = await kept(database, session.id)
        assert after[0] != before[0]
        assert after[1] > before[1]
        assert await database.read(lambda tx: store.version(tx, session.id)) == after[1]
        before = after


async def test_a_message_alone_changes_neither(database):
    session = await database.write(begin)
    before = await kept(database, session.id)
    await database.write(lambda tx: store.heard(tx, session.id, 99))
    assert await kept(database, session.id) == before


async def test_a_new_session_is_as_it_was_returned(database):
    session = await database.write(lambda tx: UnitOfWork(tx, 1).current(PLACE)[0])
    assert await database.read(lambda tx: store.get(tx, session.id)) == session
    assert await database.read(lambda tx: store.version(tx, "nobody's")) is None
