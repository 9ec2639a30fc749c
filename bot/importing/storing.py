"""Imported conversations in the database: each is a session that took place elsewhere.

Its id is made of where it comes from and whose it is, and each entry keeps the message's own id, so
whatever was stored before is known again: a second import adds what is new and nothing else, and
one that was killed goes on. Nothing that stands there is changed.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, cast

import orjson

from bot.channel import DEFAULT_ACCOUNT
from bot.clock import Clock
from bot.cluster.extra import visiting
from bot.config import MAIN_AGENT, Config
from bot.errors import NotVisible, ToolError
from bot.identity import routing
from bot.identity.routing import OWNER
from bot.identity.view import MAIN_SPACE, MemoryView, folder_name
from bot.importing import values
from bot.importing.values import Found, Piece, Remembered, Said, Skipped, Talk, digest, within
from bot.memory import exchange, layout
from bot.memory.exchange import ExchangeError
from bot.memory.memory import store_of
from bot.memory.note_store import MAX_WRITE, NoteStore
from bot.memory.notes import is_day_note
from bot.recovery import TRANSCRIPTS, open_database
from bot.sessions import browsing, entries, store
from bot.sessions.entries import NewEntry
from bot.sessions.mirror import Mirror
from bot.sessions.store import Session
from bot.storage import Database, Transaction
from bot.storage.files import DataDirLock
from bot.storage.records import keep, text_of

BATCH = 400  # messages of one transaction …
BATCH_CHARS = 1_000_000  # … and how long they are together
MAX_REMEMBERED = 32_000_000  # characters of what is remembered, in one export

Fate = Literal["new", "grown", "known", "empty"]


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of an import; on a folder, nothing else runs meanwhile."""

    database: Database
    notes: NoteStore


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a conversation: a person, by identity, or a room, by its session key."""

    person: str = ""
    room: str = ""


@dataclass(slots=True)
class Count:
    """The result of an import: conversations by their fate, and the number of new messages.

    `left` counts messages that are left out, by why, `undated` conversations without any time.
    `assumed` says what was taken for granted, `remembered` is what is to be written into notes.
    `first` and `last` are the times of the oldest and the newest message, in ms since the epoch.
    """

    talks: dict[Fate, int] = field(
        default_factory=lambda: {"new": 0, "grown": 0, "known": 0, "empty": 0}
    )
    messages: int = 0
    left: Counter[str] = field(default_factory=Counter[str])
    undated: int = 0
    assumed: set[str] = field(default_factory=set[str])
    first: int = 0
    last: int = 0
    skipped: list[Skipped] = field(default_factory=list[Skipped])
    remembered: dict[tuple[str, str, str], Remembered] = field(
        default_factory=dict[tuple[str, str, str], Remembered]
    )
    _length: int = 0

    def remember(self, one: Remembered) -> None:
        """Take what another program remembered; once, and of a state the newest."""
        text = within(one.text)
        key = (one.path, one.about, "" if one.is_newest else digest(text))
        known = self.remembered.get(key)
        if known is not None and known.at >= one.at:
            return
        if self._length + len(text) > MAX_REMEMBERED:
            self.skipped.append(Skipped(one.path, "more is remembered than can be brought"))
            return
        self._length += len(text)
        self.remembered[key] = replace(one, text=text)

    def add(self, talk: Talk, fate: Fate, messages: int) -> None:
        """Count a conversation."""
        self.talks[fate] += 1
        self.messages += messages
        self.left.update(talk.left)
        self.assumed.update({talk.assumed} - {""})
        times = [said.at for said in talk.said if said.at]
        if times:
            self.first = min(filter(None, (self.first, min(times))))
            self.last = max(self.last, *times)
        else:
            self.undated += bool(talk.said)

    @property
    def is_nothing(self) -> bool:
        """True when there is nothing new."""
        return not self.messages


@asynccontextmanager
async def opened(config: Config, clock: Clock) -> AsyncGenerator[Target]:
    """The destination of a configuration; a folder is made if it is not there.

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
    found: Iterable[Found],
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
    seen: dict[str, set[str]] = {}
    talks = iter(found)
    while batch := await asyncio.to_thread(_batch, talks):
        total.skipped += [one for one in batch if isinstance(one, Skipped)]
        for one in batch:
            if isinstance(one, Remembered):
                total.remember(one)
        some = [one for one in batch if isinstance(one, Talk)]
        work = partial(_each, talks=some, whose=whose, now=now, is_rehearsal=is_rehearsal)
        if database is None:
            done = [(True, talk.said) for talk in some]
        else:
            done = await (database.read(work) if is_rehearsal else database.write(work))
        for talk, (is_new, news) in zip(some, done, strict=True):
            there = seen.setdefault(_id(talk, whose(talk)), set()) if is_rehearsal else set[str]()
            fresh = [said for said in news if said.id not in there]
            total.add(talk, _fate(talk, fresh, is_new=is_new and not there), len(fresh))
            if is_rehearsal:  # what comes twice is stored once
                there.update(said.id for said in talk.said)
    return total


def _batch(found: Iterator[Found]) -> list[Found]:
    """The next ones, as many as one transaction takes."""
    batch: list[Found] = []
    messages = chars = 0
    for one in found:
        batch.append(one)
        if isinstance(one, Talk):
            messages += len(one.said)
            chars += sum(len(said.text) for said in one.said)
        if messages >= BATCH or chars >= BATCH_CHARS or len(batch) >= BATCH:
            break
    return batch


_Done = tuple[bool, Sequence[Said]]  # whether a conversation is new, and its new messages


def _each(
    tx: Transaction, talks: Sequence[Talk], whose: Whose, now: int, *, is_rehearsal: bool
) -> list[_Done]:
    return [_put(tx, talk, whose(talk), now, is_rehearsal=is_rehearsal) for talk in talks]


def _put(tx: Transaction, talk: Talk, owner: Owner, now: int, *, is_rehearsal: bool) -> _Done:
    """Store what is new of a conversation; in a rehearsal only look what that is."""
    session, news = _news(tx, talk, owner)
    is_new = session is None
    if news and not is_rehearsal:
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
    return is_new, news


def _fate(talk: Talk, news: Sequence[Said], *, is_new: bool) -> Fate:
    if not talk.said:
        return "empty"
    return ("new" if is_new else "grown") if news else "known"


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
    return f"{entries.IMPORTED_ID}{digest(talk.source, talk.id, owner.person, owner.room)}"


def brought(tx: Transaction, key: str) -> set[Any]:
    """The imports noted in `meta`, so that what is deleted here stays deleted."""
    found = cast("list[Any]", orjson.loads(text_of(tx, key) or "[]"))
    return {tuple(cast("list[Any]", one)) if isinstance(one, list) else one for one in found}


def note(tx: Transaction, key: str, found: Iterable[Any], now: int) -> None:
    """Note what was brought, beside what was before."""
    keep(tx, key, orjson.dumps(sorted(brought(tx, key).union(found))).decode(), now)


def _begun(talk: Talk, owner: Owner) -> Session:
    first, last = talk.said[0].at, max(said.at for said in talk.said)
    peer = routing.part(owner.person)
    return Session(
        id=_id(talk, owner),
        # One for all that a person brings from a program: whoever forgets looks through keys.
        key=owner.room or f"agent:{MAIN_AGENT}:import:{talk.source}:dm:{peer}",
        person=owner.person,
        channel=entries.imported_channel(talk.source),
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
    text = f"{said.by}: {said.text}" if said.by else said.text
    block = {"type": "text", "text": text, "origin": entries.IMPORTED_ORIGIN}
    return NewEntry("message", said.role, text, (block,), source=said.id)


# Notes of other programs, brought into somebody's own: added to those of the same names, once.

MAX_NOTES = 50_000
_KEY = "import.openclaw:"  # in `meta`, and the path of a note: what was brought to it


@dataclass(frozen=True, slots=True)
class Brought:
    """The effect of importing a note: how much is new; `is_new` if there is no such note yet.

    `pieces` counts entries, paragraphs and the like.
    """

    path: str
    pieces: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class Notes:
    """Somebody's notes, as an import writes them; in a rehearsal it only looks.

    Without a database nothing was brought before.
    """

    database: Database | None
    store: NoteStore
    person: str
    now: int
    is_rehearsal: bool

    @property
    def view(self) -> MemoryView:
        """Their notes, and nobody else's."""
        is_owner = self.person == OWNER
        space = MAIN_SPACE if is_owner else f"people/{folder_name(self.person)}"
        return MemoryView(space, (), private=True)

    async def remember(self, found: Iterable[Remembered]) -> list[Brought | Skipped]:
        """Bring what a program remembered, each note with all that belongs into it."""
        done: list[Brought | Skipped | None] = []
        ordered = sorted(found, key=lambda one: (one.path, one.about))
        for path, some in groupby(ordered, key=lambda one: one.path):
            pieces: list[Piece] = []
            for about, ones in groupby(some, key=lambda one: one.about):
                pieces += [Piece(f"## {about}", is_heading=True)] if about else []
                for one in sorted(ones, key=lambda one: one.at):
                    day = _day_of(path, one.at)
                    pieces += [replace(each, day=day) for each in values.pieces(one.text)]
            done.append(await self.bring(path, pieces, self.now))
        return [each for each in done if each is not None]

    async def bring(self, path: str, pieces: Sequence[Piece], at: int) -> Brought | Skipped | None:
        """Add what is new of a note to the one here; None when there is nothing.

        It is on the disk before it is noted that it was brought, and what stands there already is
        not added again: so it can be interrupted anywhere, and called again.

        Raises:
            StorageError: it was not noted; it can be called again.
        """
        view = self.view
        name = path if view.space == MAIN_SPACE else f"{view.space}/{path}"
        known = frozenset[str]()
        try:
            before = exchange.text_of(self.store, path, view)
            if self.database is not None:
                known = frozenset(await self.database.read(lambda tx: brought(tx, f"{_KEY}{name}")))
            after = values.merged(before or "", pieces, known, _day_of(path, at))
            is_new = after != (before or "")
            if is_new and not self.is_rehearsal:
                exchange.write(self.store, exchange.Change(path, before or "", after), view)
        except NotVisible:
            return Skipped(path, "no note here can have this name")
        except (ExchangeError, ToolError) as exc:
            return Skipped(path, str(exc))
        digests = known.union(piece.digest for piece in pieces)
        if self.database is not None and not self.is_rehearsal and digests != known:
            await self.database.write(lambda tx: note(tx, f"{_KEY}{name}", digests, self.now))
        size = values.count(after) - values.count(before or "")
        return Brought(path, size, is_new=before is None) if is_new else None


def files(folder: Path, *, below: Collection[str] = ()) -> Iterator[tuple[str, Path]]:
    """Every Markdown file in a folder, by its path; hidden ones and links are not followed.

    Of the folders at its root only those of `below`, if it names some.
    """
    count = 0
    for parent, inner, names in os.walk(folder):
        here = Path(parent).relative_to(folder)
        is_root = here == Path()
        kept = (name for name in inner if not name.startswith("."))
        inner[:] = sorted(name for name in kept if not (is_root and below) or name in below)
        for name in sorted(names):
            file = Path(parent) / name
            if name.startswith(".") or not layout.is_note(name) or file.is_symlink():
                continue
            count += 1
            if count > MAX_NOTES:
                return
            yield (here / name).as_posix(), file


# What a folder of another program's has at its root that is about how that one works.
OWN_WORK = ("AGENTS.md", "TOOLS.md", "HEARTBEAT.md", "BOOTSTRAP.md", "DREAMS.md")
CHARACTER = ("SOUL.md", "IDENTITY.md")
_MEMORIES = ("memory", "memories")  # where nanobot and Hermes have theirs
_BETWEEN = "\n§\n"  # two entries of Hermes


def of_folder(folder: Path) -> list[Path]:
    """The notes of a folder; of one that a program works in only those that it remembers."""
    is_workspace = any((folder / name).is_file() for name in (*OWN_WORK, *CHARACTER)) or any(
        (folder / name / layout.MEMORY_FILE).is_file() for name in _MEMORIES
    )
    return [file for _, file in files(folder, below=_MEMORIES if is_workspace else ())]


def remembered(folder: Path, file: Path) -> Remembered | Skipped:
    """A note of a folder, under the name it gets here."""
    parts = file.relative_to(folder).parts if file != folder else (file.name,)
    shown = "/".join(parts)
    if len(parts) == 1 and parts[0] in (*OWN_WORK, *CHARACTER):
        return Skipped(shown, "it is about how the other program works, and stays there")
    inner = parts[1:] if len(parts) > 1 and parts[0] in _MEMORIES else parts
    name = f"{file.stem.upper()}.md"
    path = "/".join((layout.NOTES_FOLDER, *inner))
    if len(inner) == 1 and name in layout.PRIVATE_FILES:
        path = name
    try:
        text, changed = read(shown, file)
    except (ExchangeError, OSError) as exc:
        return Skipped(shown, str(exc) if isinstance(exc, ExchangeError) else exc.strerror or "")
    if _BETWEEN in text:
        entries = (entry.strip().replace("\n", "\n  ") for entry in text.split(_BETWEEN))
        text = "\n".join(f"- {entry}" for entry in entries if entry)
    return Remembered(path, "", text, changed)


def read(name: str, file: Path) -> tuple[str, int]:
    """The text of a file, and its last change in ms since the epoch.

    Raises:
        ExchangeError: it is no text, or too long.
        OSError: it cannot be read.
    """
    with file.open("rb") as opened:
        text = exchange.checked(name, opened.read(MAX_WRITE + 1))
        return text, int(os.fstat(opened.fileno()).st_mtime * 1000)


def _day_of(path: str, at: int) -> str:
    """The day of a time (in ms since the epoch), empty in a day's note, whose name says it."""
    return (
        f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d}" if at and not is_day_note(path) else ""
    )
