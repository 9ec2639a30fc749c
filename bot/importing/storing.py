"""Imported conversations in the database: each is a session that took place elsewhere.

Its id is made of where it comes from and whose it is, and each entry keeps the message's own id, so
whatever was stored before is known again: a second import adds what is new and nothing else, and
one that was killed goes on. Nothing that stands there is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from bot.channel import DEFAULT_ACCOUNT
from bot.clock import Clock
from bot.cluster.extra import visiting
from bot.config import Config
from bot.identity import routing
from bot.importing.values import Said, Skipped, Talk, digest
from bot.memory.memory import store_of
from bot.memory.note_store import NoteStore
from bot.recovery import TRANSCRIPTS, open_database
from bot.sessions import browsing, entries, imported, store
from bot.sessions.entries import NewEntry
from bot.sessions.mirror import Mirror
from bot.sessions.store import Session
from bot.storage import Database, Transaction
from bot.storage.files import DataDirLock

BATCH = 400  # messages of one transaction …
BATCH_CHARS = 1_000_000  # … and how long they are together

Fate = Literal["new", "grown", "known", "empty"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where it is imported to, and on which nothing else runs if it is a folder."""

    database: Database
    notes: NoteStore


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a conversation is: a person's, by identity; or that of a room, by its session key."""

    person: str = ""
    room: str = ""


@dataclass(slots=True)
class Count:
    """What an import comes to: conversations by what became of them, and messages that are new.

    `left` counts messages in which there was nothing to read. `first` and `last` are the times of
    the oldest and the newest one, in ms since the epoch.
    """

    talks: dict[Fate, int] = field(
        default_factory=lambda: {"new": 0, "grown": 0, "known": 0, "empty": 0}
    )
    messages: int = 0
    left: int = 0
    first: int = 0
    last: int = 0
    skipped: list[Skipped] = field(default_factory=list[Skipped])

    def add(self, talk: Talk, fate: Fate, messages: int) -> None:
        """Count a conversation."""
        self.talks[fate] += 1
        self.messages += messages
        self.left += talk.left
        if talk.said:
            times = [said.at for said in talk.said]
            self.first = min(filter(None, (self.first, min(times))))
            self.last = max(self.last, *times)

    @property
    def is_nothing(self) -> bool:
        """True when there is nothing new."""
        return not self.messages


@asynccontextmanager
async def opened(config: Config, clock: Clock) -> AsyncGenerator[Target]:
    """Where a configuration keeps everything; of a folder, made if it is not there.

    Transcript files are brought in step at the end; a start does so too.

    Raises:
        StorageBusy: a program runs on the folder.
        StorageError: it cannot be used.
    """
    async with visiting(config) as shared:
        if shared is not None:
            yield Target(shared.database, store_of(config, clock, shared))
            return
    folder = config.storage.folder
    with DataDirLock(folder):
        database = await open_database(folder, clock)
        try:
            yield Target(database, store_of(config, clock, None))
            mirror = Mirror(database, folder / TRANSCRIPTS)
            await mirror.start()
            try:
                await mirror.repair()
            finally:
                await mirror.stop()
        finally:
            await database.close()


Whose = Callable[[Talk], Owner]
"""Says whose a conversation is."""


async def bring(
    database: Database | None,
    found: Iterable[Talk | Skipped],
    whose: Whose,
    now: int,
    *,
    is_rehearsal: bool = False,
) -> Count:
    """Store conversations, and count what that came to; in a rehearsal only the latter.

    Without a database all of them are new.

    Raises:
        StorageError: the disk does not take it; what was stored stays, and it can be called again.
    """
    total = Count()
    each = _fate if is_rehearsal else _put
    talks = iter(found)
    while batch := await asyncio.to_thread(_batch, talks):
        total.skipped += [one for one in batch if isinstance(one, Skipped)]
        some = [one for one in batch if isinstance(one, Talk)]
        work = partial(_each, each=each, talks=some, whose=whose, now=now)
        if database is None:
            fates = [_fate_of(None, talk, talk.said) for talk in some]
        else:
            fates = await (database.read(work) if is_rehearsal else database.write(work))
        for talk, (fate, messages) in zip(some, fates, strict=True):
            total.add(talk, fate, messages)
    return total


def _batch(found: Iterator[Talk | Skipped]) -> list[Talk | Skipped]:
    """The next ones, as many as one transaction takes."""
    batch: list[Talk | Skipped] = []
    messages = chars = 0
    for one in found:
        batch.append(one)
        if isinstance(one, Talk):
            messages += len(one.said)
            chars += sum(len(said.text) for said in one.said)
        if messages >= BATCH or chars >= BATCH_CHARS or len(batch) >= BATCH:
            break
    return batch


_Done = tuple[Fate, int]


def _each(
    tx: Transaction,
    each: Callable[[Transaction, Talk, Owner, int], _Done],
    talks: Sequence[Talk],
    whose: Whose,
    now: int,
) -> list[_Done]:
    return [each(tx, talk, whose(talk), now) for talk in talks]


def _fate(tx: Transaction, talk: Talk, owner: Owner, _now: int) -> _Done:
    session, news = _news(tx, talk, owner)
    return _fate_of(session, talk, news)


def _put(tx: Transaction, talk: Talk, owner: Owner, now: int) -> _Done:
    session, news = _news(tx, talk, owner)
    if news:
        if session is None:
            session, _ = store.insert(tx, _begun(talk, owner))
            if talk.title:
                browsing.name(tx, session.id, talk.title, now)
        for start in range(0, len(news), BATCH):
            some = news[start : start + BATCH]
            times = [said.at for said in some]
            store.append(tx, session.id, [_entry(said) for said in some], times[-1], dated=times)
        last = max(said.at for said in talk.said)
        store.change(tx, session.id, last_turn_at=last)
    return _fate_of(session, talk, news)


def _fate_of(session: Session | None, talk: Talk, news: Sequence[Said]) -> _Done:
    if not talk.said:
        return "empty", 0
    if not news:
        return "known", 0
    return ("new" if session is None else "grown"), len(news)


def _news(tx: Transaction, talk: Talk, owner: Owner) -> tuple[Session | None, Sequence[Said]]:
    """The session of a conversation, and its messages that are not in it."""
    id_ = _id(talk, owner)
    session = store.get(tx, id_)
    if session is None:
        return None, talk.said
    rows = tx.execute("SELECT line FROM entries WHERE session_id = ?", (id_,))
    if len(rows) < session.entry_count:  # the month they were of was dropped: it does not come back
        return session, ()
    there = {entries.parse(row[0]).source for row in rows}
    return session, [said for said in talk.said if said.id not in there]


def _id(talk: Talk, owner: Owner) -> str:
    return f"{imported.ID}{digest(talk.source, talk.id, owner.person, owner.room)}"


def _begun(talk: Talk, owner: Owner) -> Session:
    first, last = talk.said[0].at, max(said.at for said in talk.said)
    peer = routing.part(owner.person)
    return Session(
        id=_id(talk, owner),
        # One for all that a person brings from a program: whoever forgets looks through keys.
        key=owner.room or f"agent:{routing.AGENT}:import:{talk.source}:dm:{peer}",
        person=owner.person,
        channel=imported.channel_of(talk.source),
        account=DEFAULT_ACCOUNT,
        chat=owner.person or owner.room,
        thread="",
        chat_type="group" if owner.room else "direct",
        model="",
        previous=None,
        started_at=first,
        last_user_at=last,
        started_by="import",
    )


def _entry(said: Said) -> NewEntry:
    block = {"type": "text", "text": said.text, "origin": imported.ORIGIN}
    return NewEntry("message", said.role, said.text, (block,), source=said.id)
