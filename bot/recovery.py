"""Opening the database, bringing back what it lost, and telling its owner.

What the database lost is read back from the journal first, so that what was forgotten is known
before it is read and stays hidden; then from the transcripts. Their files were written after each
commit, so together with a backup they hold everything that was said; what is missing in the
database is added again, and nothing that is there is touched. A turn's lines are written at once,
so a message that stands in a file has had its turn. Only the last lines of a file that was torn off
may be half of one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import structlog

from bot.channel import Address
from bot.clock import Clock
from bot.delivery import outbox
from bot.errors import StorageCorrupt, StorageError
from bot.i18n import language_of, text
from bot.identity.routing import OWNER
from bot.memory import uses, versions
from bot.sessions import (
    approvals,
    entries,
    erasing,
    inbox,
    journal_records,
    page_logins,
    store,
    transcript_files,
)
from bot.sessions.entries import Entry
from bot.sessions.store import Session
from bot.storage import Database, Transaction, backup, files, journal, upsert
from bot.storage.files import DATABASE_NAME
from bot.storage.meta import must_be_whole
from bot.storage.sqlite import SqliteDatabase, compact

TRANSCRIPTS = "sessions"
_KEY = "restored"
_TOLD = "restored.told"
_HEADER = b'{"type":"journal"'

log = structlog.get_logger(__name__)

Recovered = Callable[[Transaction, Session, Sequence[Entry]], object]
"""Hears, in the same transaction, of a session's entries that were added and are whole turns."""


@dataclass(slots=True)
class Told:
    """What the journal gave back: how much of each kind, and what was not.

    `erased` says that the database still held somebody who was erased.

    `unreadable` counts lines that are none of ours, `unknown` those the database could not have
    lost; the file they stood in is `aside` now.
    """

    kept: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    unreadable: int = 0
    unknown: int = 0
    aside: Path | None = None
    erased: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """How many different things of each kind came back."""
        return {kind: len(subjects) for kind, subjects in self.kept.items()}

    def add(self, other: Told) -> None:
        """Count what another part of the journal gave back, too."""
        for kind, subjects in other.kept.items():
            self.kept.setdefault(kind, set()).update(subjects)
        self.unreadable += other.unreadable
        self.unknown += other.unknown
        self.erased = self.erased or other.erased


@dataclass(frozen=True, slots=True)
class Restored:
    """A database that was lost. `at` is in ms since the epoch.

    `backup` is the name of the copy that took its place; without one it was begun anew, or
    (`by_hand`) somebody put an older one there. `counts` says how many of each kind the journal
    gave back, `unread` how many of its lines could not be used; `aside` is where they are kept.
    """

    at: int
    backup: str = ""
    by_hand: bool = False
    entries: int = 0
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    unread: int = 0
    aside: str = ""

    @property
    def is_worth_telling(self) -> bool:
        """False for a first start, and for one after which nothing was missing."""
        return bool(self.backup or self.entries or self.counts or self.unread)


async def open_database(folder: Path, clock: Clock) -> SqliteDatabase:
    """The database of a storage folder; a damaged one is restored from its newest backup.

    What the journal and then the transcript files hold beyond it is read back; what was forgotten
    stays so, and what was answered is not answered once more.

    Raises:
        StorageCorrupt: it is damaged and there is no sound backup; nothing was changed.
        StorageError: it cannot be opened.
    """
    files.must_not_be_erasing(folder)
    path = folder / DATABASE_NAME
    now = clock()
    used = ""
    by_hand = not backup.is_new(path)
    try:
        await asyncio.to_thread(_check_journal, path)
        await asyncio.to_thread(backup.check, path)
        if backup.is_new(path) and (folder / TRANSCRIPTS).is_dir():
            backup.mark_read_back(path, due=True)
        database = await SqliteDatabase.open(path)
    except StorageCorrupt:
        used = (await asyncio.to_thread(backup.restore, path, now)).name
        database = await SqliteDatabase.open(path)
    try:
        await database.read(must_be_whole)
    except BaseException:
        await database.close()
        raise
    is_due = backup.read_back_is_due(path)
    try:
        told, added = await _read_files(database, folder, now, every=is_due)
        back = Restored(
            at=now,
            backup=used,
            by_hand=by_hand,
            entries=added,
            counts=told.counts,
            unread=told.unreadable + told.unknown,
            aside=told.aside.name if told.aside else "",
        )
        if back.is_worth_telling:
            await database.write(lambda tx: note(tx, back))
        if used or added:  # what was carried out or ended since is not known
            await database.write(lambda tx: (approvals.drop_all(tx), page_logins.drop_all(tx)))
        if used or added or told.counts or is_due:  # nor what was forgotten in notes
            await database.write(lambda tx: (versions.clear(tx), uses.clear(tx)))
        if is_due:
            backup.mark_read_back(path, due=False)
    except OSError as exc:
        await database.close()
        raise _unusable(path, exc) from exc
    except BaseException:
        await database.close()
        raise
    return database


def _check_journal(path: Path) -> None:
    try:
        journal.must_be_known(journal.file_of(path))
    except OSError as exc:
        raise _unusable(path, exc) from exc


def _unusable(path: Path, exc: OSError) -> StorageError:
    return StorageError(
        f"The journal {journal.file_of(path)} cannot be used: {exc.strerror}. It says what was "
        "forgotten, so nothing is begun without it. Mend that, or move it away."
    )


async def _read_files(
    database: Database, folder: Path, now: int, *, every: bool
) -> tuple[Told, int]:
    """Read the journal back, then transcripts: what it gave back, and how many entries they did."""
    path = folder / DATABASE_NAME
    told = await read_journal(database, journal.file_of(path), now)
    if told.erased:
        await asyncio.to_thread(compact, path)
    settle = partial(inbox.settle, now=now)
    return told, await read_back(database, folder / TRANSCRIPTS, settle, now, every=every)


# --- reading back --------------------------------------------------------------------------------


async def read_journal(database: Database, path: Path, now: int) -> Told:
    """Do what the journal's file says beyond the database, and bring both in step; see `journal`.

    A file that goes on where the database ends is what the database has lost. Of one that says
    something else than the database only what was forgotten counts: that is safe to do again.

    Raises:
        StorageError: the database could not take it; it can be tried again.
        OSError: the file cannot be read or written.
    """
    told = Told()
    if not await database.read(lambda tx: journal.is_whole(tx, path)):
        position = await database.read(lambda tx: journal.beyond(tx, path))
        if position is not None:
            told = await _read_from(database, path, position, now)
        told.aside = await database.read(lambda tx: journal.repair(tx, path))
        log.warning(
            "journal.repaired" if position is None else "journal.read_back",
            **told.counts,
            unreadable=told.unreadable,
            unknown=told.unknown,
            aside=told.aside.name if told.aside else "",
        )
    if await database.read(journal.end) == len(journal.HEADER):
        # A database from before there was a journal, or a new one.
        await database.write(lambda tx: [tx.note(line) for line in journal_records.everything(tx)])
    return told


async def _read_from(database: Database, path: Path, position: int, now: int) -> Told:
    told = Told()
    end = await database.read(journal.end)
    is_lost = position == end or end == len(journal.HEADER)
    known = frozenset[int]() if is_lost else await database.read(journal.digests)
    while batch := await asyncio.to_thread(journal.lines, path, position):
        position += sum(map(len, batch))
        take = partial(_take, batch=batch, known=known, now=now, is_lost=is_lost)
        told.add(await database.write(take))
    return told


def _take(
    tx: Transaction,
    batch: Sequence[bytes],
    known: frozenset[int],
    now: int,
    *,
    is_lost: bool,
) -> Told:
    told = Told()
    for raw in batch:
        # Where power was lost there may be zeros in the place of what was being written.
        clean = raw.strip(b"\0\n")
        record = journal_records.parse(clean)
        told.unreadable += (record is None or b"\0" in raw) and not clean.startswith(_HEADER)
        if record is None:
            continue
        line = clean.decode()
        if hash(line) in known:
            continue
        if not is_lost and record.kind not in {"forgotten", "dropped", "erased"}:
            told.unknown += 1
            continue
        told.erased = erasing.apply(tx, line, record, now) or told.erased
        journal.add(tx, line)
        told.kept.setdefault(record.kind, set()).add(record.subject)
    return told


async def read_back(
    database: Database, folder: Path, recovered: Recovered, now: int, *, every: bool
) -> int:
    """Add the entries that only the files have; how many there were. The journal is read before.

    Of a database that is not known to be an older one (not `every` file), only those files are
    read that are longer than it says: it may have been put in its place by hand. None are looked
    at when what was noted with them still holds.

    Raises:
        StorageError: the database could not take them; it can be tried again.
    """
    added = 0
    if every or not await _are_in_step(database, folder):
        found = await asyncio.to_thread(transcript_files.all_found, folder)
        known = {} if every else await database.read(store.mirror_sizes)
        for each in sorted(found, key=lambda each: each.id):
            if each.size <= known.get(each.id, 0):
                continue
            data = await asyncio.to_thread(each.path.read_bytes)
            added += await database.write(
                partial(_add_missing, data=data, recovered=recovered, now=now)
            )
    await database.write(journal_records.go_back)
    if added:
        log.warning("sessions.read_back", entries=added)
    return added


async def _are_in_step(database: Database, folder: Path) -> bool:
    """True when the files have nothing that the database has not, as was noted at the last stop."""
    ids = await asyncio.to_thread(transcript_files.noted_in_step, folder)
    return ids is not None and await database.read(lambda tx: transcript_files.has_entries(tx, ids))


def _add_missing(tx: Transaction, data: bytes, recovered: Recovered, now: int) -> int:
    lines = data.splitlines()
    header = entries.parse_header(lines[0]) if lines else None
    if header is None or not set(store.HEADER_NAMES) <= header.keys():
        return 0
    session_id = str(header["id"])
    found, is_torn = _entries(lines[1:])
    first = _first_number(session_id, found)
    session = store.get(tx, session_id)
    if session is None:
        # What came before the first is gone: a month that was dropped where this was moved from.
        before = found[0].parent_id if first > 1 else None
        begun = replace(_begun(header), entry_count=first - 1, last_entry=before)
        session = store.insert(tx, begun)[0]
    elif first > session.entry_count + 1:
        return 0
    added = [
        entry
        for number, entry in enumerate(found, start=first)
        if number > session.entry_count and entry.id == entries.entry_id(session_id, number)
    ]
    for entry in added:
        store.append(tx, session_id, [entries.to_append(entry)], entry.at)
    journal_records.arrived(tx, session_id, now)
    torn_at = added[-1].at if added and (is_torn or not data.endswith(b"\n")) else None
    recovered(tx, session, [entry for entry in added if entry.at != torn_at])
    return len(added)


def _first_number(session_id: str, found: Sequence[Entry]) -> int:
    """The number of a transcript's first entry, counted from 1."""
    name, _, number = found[0].id.rpartition(".") if found else ("", "", "")
    return int(number) if name == session_id and re.fullmatch(r"[1-9]\d{0,15}", number) else 1


def _begun(header: dict[str, Any]) -> Session:
    """The session of a header, as it was when it began."""
    facts = {name: header[name] for name in store.HEADER_NAMES}
    return Session(**facts, model="", last_user_at=header["started_at"])


def _entries(lines: list[bytes]) -> tuple[list[Entry], bool]:
    """The entries of lines, and whether there was a line behind them that is none."""
    found: list[Entry] = []
    for line in lines:
        try:
            found.append(entries.parse(line))
        except ValueError:
            return found, True  # a torn last line: nothing after it can be trusted
    return found, False


# --- telling -------------------------------------------------------------------------------------


def note(tx: Transaction, restored: Restored) -> None:
    """Keep the latest one, for the owner and for `confidant doctor`."""
    value = orjson.dumps(asdict(restored)).decode()
    upsert(tx, "meta", ("key",), {"key": _KEY, "value": value, "updated_at": restored.at})
    tx.execute("DELETE FROM meta WHERE key = ?", (_TOLD,))


def latest(tx: Transaction) -> Restored | None:
    """The latest one, if the database was ever lost."""
    rows = tx.execute("SELECT value FROM meta WHERE key = ?", (_KEY,))
    return Restored(**orjson.loads(rows[0][0])) if rows else None


def tell(tx: Transaction, language: str, now: int) -> bool:
    """Put what came back into the owner's latest direct chat, once; False when there is none yet.

    `language` is the configured one; "auto" is that of the owner's app.
    """
    restored = latest(tx)
    if restored is None or tx.execute("SELECT 1 FROM meta WHERE key = ?", (_TOLD,)):
        return True
    chat = store.latest_direct(tx, OWNER)
    if chat is None:
        return False
    spoken = language_of(chat.locale if language == "auto" else language)
    address = Address(chat.channel, chat.account, chat.chat, chat.thread)
    outbox.add(tx, address, words(restored, spoken), now, kind="notice")
    tx.execute("INSERT INTO meta(key, value, updated_at) VALUES (?, '', ?)", (_TOLD, now))
    return True


def words(restored: Restored, language: str) -> str:
    """What happened, what came back, and what did not. Pure."""
    if restored.backup:
        said = [text(language, "restored.backup", name=restored.backup)]
    else:
        said = [text(language, f"restored.{'by_hand' if restored.by_hand else 'anew'}")]
    counts = restored.counts
    said.append(
        text(
            language,
            "restored.came",
            entries=restored.entries,
            forgotten=counts.get("forgotten", 0),
            links=counts.get("links", 0),
            reminders=counts.get("reminders", 0) + counts.get("repeats", 0),
            people=counts.get("pairing", 0) + counts.get("blocks", 0),
            rooms=counts.get("rooms", 0) + counts.get("moved_chats", 0),
            choices=sum(counts.get(kind, 0) for kind in ("sessions", "current", "zones", "titles")),
        )
    )
    if restored.unread:
        said.append(text(language, "restored.unread", count=restored.unread, name=restored.aside))
    said.append(text(language, "restored.lost"))
    return "\n".join(said)
