"""Opening the database, bringing back what it lost, and telling its owner.

A database that is damaged, emptied or deleted is the newest sound copy of it, or an empty one while
there was none yet, and every later change of its log; an older one is brought forward by the log as
well. What was forgotten and whom an operator erased are rows like others, and each file of the log
begins with all of them, so they hold also where changes between a copy and the log are missing.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import apsw
import orjson
import structlog

from bot.clock import Clock
from bot.delivery import outbox
from bot.errors import StorageCorrupt, StorageError
from bot.i18n import language_of, text
from bot.identity.routing import OWNER
from bot.memory import uses, versions
from bot.sessions import approvals, compactions, entries, erasing, page_logins, store
from bot.sessions.erasing import Removals
from bot.storage import Transaction, backup, changes, files
from bot.storage.changes import Change, Part, Position
from bot.storage.files import DATABASE_NAME
from bot.storage.records import drop, from_json, keep, must_be_whole, text_of, value_of
from bot.storage.sqlite import SqliteDatabase, compact
from bot.storage.sqlite_sql import mapped

TRANSCRIPTS = "sessions"
AT_ONCE = 4_000_000  # bytes of changes that are brought back in one transaction
_KEY = "restored"
_TOLD = "restored.told"
_TOLD_OF = frozenset(
    {
        *("links", "reminders", "repeats", "pairing", "blocks", "rooms", "moved_chats", "zones"),
        *("titles", "forgotten"),
    }
)
# What the first tables' program kept beside the database and nothing reads any more.
_LEFT = ("confidant.journal.jsonl*", "confidant.transcripts", "read-back.pending")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Restored:
    """A database that was lost. `at` is in ms since the epoch.

    `backup` is the name of the copy that took its place; without one it was begun anew, or
    (`by_hand`) somebody put an older one there. `counts` says how many rows of each table came
    back beside the `entries`; `missing` how many changes are not in the log, `unread` how many
    places of it are damaged. It `is_whole` once all of it is done.
    """

    at: int
    backup: str = ""
    by_hand: bool = False
    entries: int = 0
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    missing: int = 0
    unread: int = 0
    is_whole: bool = True

    @property
    def is_worth_telling(self) -> bool:
        """False for a first start, and for one after which nothing was missing."""
        return bool(self.backup or self.entries or self.counts or self.missing or self.unread)


@dataclass(frozen=True, slots=True)
class _Later:
    """The part of a log beyond a database: changes in order, and how much of it cannot be had."""

    changes: Sequence[Change]
    end: Position
    removed: Sequence[Removals]
    missing: int
    unread: int


async def open_database(folder: Path, clock: Clock) -> SqliteDatabase:
    """The database of a storage folder; one that was lost is brought back.

    What was forgotten stays so, and what was answered is not answered once more.

    Raises:
        StorageCorrupt: it is damaged and there is nothing to bring it back from; nothing was
            changed.
        StorageError: it cannot be opened.
    """
    files.must_not_be_erasing(folder)
    files.must_not_be_restoring(folder)
    path, now = folder / DATABASE_NAME, clock()
    try:
        used = await asyncio.to_thread(_put_in_place, path, now)
        database = await SqliteDatabase.open(path, logs=False)
        try:
            await database.read(must_be_whole)
            await _catch_up(database, now, used)
            await _leave_aside(database, now)
            await asyncio.to_thread(_clear, folder)
        except BaseException:
            await database.close()
            raise
    except OSError as exc:
        raise StorageError(
            f"The log of changes in {path.parent / files.BACKUPS} cannot be used: {exc.strerror}. "
            "It says what was done and forgotten since the last copy, so nothing is begun without "
            "it. Mend that, or move it away."
        ) from exc
    except apsw.Error as exc:
        raise mapped(exc) from exc
    return database


async def begin_log(database: SqliteDatabase, base: Position | None = None) -> None:
    """Begin another file of the log, after a copy was made, and remove those no copy needs.

    Raises:
        StorageError: the disk does not take it.
    """
    removed = await database.read(erasing.removals_of)
    await database.log_from({**removed.facts(), "gap": base is not None}, base)
    database.needs_copy = database.needs_copy or base is not None
    try:
        await asyncio.to_thread(_prune, database.path)
    except OSError as exc:
        log.warning("changes.not_pruned", error=type(exc).__name__)


def _prune(path: Path) -> None:
    held: list[int] = []
    for copy in backup.newest_first(path, 0):
        with suppress(apsw.Error):  # one that cannot be read needs nothing
            found = changes.position_in(copy)
            held += [found.seq] if found is not None else []
    if held:
        changes.prune(path, min(held))


def _clear(folder: Path) -> None:
    for pattern in _LEFT:
        for path in folder.glob(pattern):
            path.unlink()


# --- what is there --------------------------------------------------------------------------------


def _put_in_place(path: Path, now: int) -> str | None:
    """Have something to open: the database, or what it is brought back from, whose name is told.

    None when it is the database itself, or a new one.
    """
    if backup.is_new(path):
        return _replace(path, now, is_needed=False)
    try:
        backup.check(path)
    except StorageCorrupt:
        return _replace(path, now)
    # An older one that the log does not reach back to.
    at, first = changes.position_in(path), changes.first_base(path)
    if at is not None and first is not None and first.id == at.id and at.seq < first.seq:
        copy = backup.newest_sound(path, now)
        newer = changes.position_in(copy) if copy is not None else None
        if newer is not None and newer.id == at.id and newer.seq > at.seq:
            return _replace(path, now, is_older=True)
    return None


def _replace(path: Path, now: int, *, is_needed: bool = True, is_older: bool = False) -> str | None:
    copy, parts = backup.newest_sound(path, now), _parts(path)
    id_ = parts[0].base.id if parts else ""
    if copy is not None:
        backup.replace(path, copy, id_, now, backup.OLDER if is_older else backup.DAMAGED)
        return copy.name
    if parts and parts[0].base.seq == 0:  # it has everything from the beginning
        backup.replace(path, None, id_, now)
        return ""
    if is_needed:
        raise StorageCorrupt(
            f"The database {path} is damaged and there is no sound copy of it. Nothing was "
            "changed. Put a copy of your own in its place, or move it away to begin empty: the "
            f"transcripts in {path.parent / TRANSCRIPTS} are kept."
        )
    return None


def _parts(path: Path) -> list[Part]:
    """The files of the newest log, the oldest first."""
    found = [part for each in changes.paths(path) if (part := changes.read(each)) is not None]
    return [part for part in found if part.base.id == found[-1].base.id]


async def _leave_aside(database: SqliteDatabase, now: int) -> None:
    """Take whoever was erased out of older databases that were set aside."""
    removed = Removals(erased=tuple(await database.read(erasing.erased_marks)))
    found = database.path.parent.glob(f"{database.path.name}.{backup.OLDER}-*")
    for path in found if removed.erased else ():
        if path.name.endswith(("-wal", "-shm")):
            continue
        async with await SqliteDatabase.open(path, keeps=False, logs=False) as older:
            erased = await older.write(partial(erasing.apply_removals, removals=removed, now=now))
        if erased:
            await asyncio.to_thread(compact, path)


# --- bringing back --------------------------------------------------------------------------------


async def _catch_up(database: SqliteDatabase, now: int, used: str | None) -> None:
    """Bring a database forward to the end of its log, and go on with that, or with a new one."""
    at = await database.read(changes.position)
    if used is None and (newest := await asyncio.to_thread(_in_step, database.path, at)):
        await database.log_on()
        database.needs_copy = await asyncio.to_thread(_is_uncovered, database.path, newest)
        return
    found = await asyncio.to_thread(_parts, database.path)
    parts = [part for part in found if part.base.id == at.id]
    later = _later(parts, at) if parts else None
    if used is not None or (later is not None and later.changes):
        await _bring_back(database, later, now, used)
    kept = {part.path for part in parts} if later is not None else set[Path]()
    foreign = [path for path in changes.paths(database.path) if path not in kept]
    if foreign:
        aside = [await asyncio.to_thread(files.set_aside, each) for each in foreign]
        log.warning("changes.set_aside", files=[path.name for path in aside])
    if later is None:
        is_new = at.seq == 0 and await database.read(changes.is_blank)
        await begin_log(database, None if is_new else changes.fresh(at.id, at.seq + 1))
    elif later.end.seq >= at.seq and not later.missing and not later.unread:
        await database.log_on()
    else:
        last = max(at.seq, later.end.seq)
        await begin_log(database, changes.fresh(at.id, last + 1))


def _in_step(path: Path, at: Position) -> Part | None:
    """The newest file of the log, when that ends where the database is."""
    paths = changes.paths(path)
    newest = changes.read(paths[-1]) if paths else None
    is_in_step = newest is not None and newest.end == at and not newest.unread
    return newest if is_in_step else None


def _is_uncovered(path: Path, newest: Part) -> bool:
    """True when no copy was made since the log went on where no other file of it ends."""
    if not newest.removed.get("gap"):
        return False
    for copy in backup.newest_first(path, 0)[:1]:
        with suppress(apsw.Error):
            at = changes.position_in(copy)
            return at is None or at.id != newest.base.id or at.seq < newest.base.seq
    return True


def _later(parts: Sequence[Part], at: Position) -> _Later | None:
    """The part of a log's files beyond a database; None if it is one of another past. Pure."""
    end = max((part.end for part in parts), key=lambda each: each.seq)
    known = {(part.base.seq, part.base.mark) for part in parts}
    known |= {(each.seq, each.mark) for part in parts for each in part.changes}
    first = min(part.base.seq for part in parts)
    if first <= at.seq <= end.seq and (at.seq, at.mark) not in known:
        return None
    beyond = {each.seq: each for part in parts for each in part.changes if each.seq > at.seq}
    missing = max(0, end.seq - at.seq) - len(beyond)
    removed = [Removals.from_facts(part.removed) for part in parts if missing]
    unread = sum(part.unread for part in parts)
    return _Later([beyond[seq] for seq in sorted(beyond)], end, removed, missing, unread)


async def _bring_back(
    database: SqliteDatabase, later: _Later | None, now: int, used: str | None
) -> None:
    """Do what a log says beyond a database, and tell of it; a kill on the way loses nothing."""
    columns = await database.read(changes.columns_of)
    missing, unread = (later.missing, later.unread) if later is not None else (0, 0)
    begun = Restored(now, used or "", by_hand=used is None, missing=missing, unread=unread)
    before = await database.read(latest)
    if before is not None and not before.is_whole:  # an earlier start was ended on the way
        backup_, most = begun.backup or before.backup, max(missing, before.missing)
        begun = replace(before, at=now, backup=backup_, missing=most)
    done = _Done(begun)
    for batch in _batches(later.changes if later is not None else ()):
        work = partial(_apply, changes_=batch, columns=columns, done=done)
        await database.write(work)
    is_compact = await database.write(lambda tx: _end(tx, later, done, now))
    if not is_compact:
        await asyncio.to_thread(compact, database.path)
    told = done.told(is_whole=True)
    log.warning("storage.brought_back", entries=told.entries, missing=told.missing, **told.counts)


@dataclass(slots=True)
class _Done:
    """The result of bringing back: `before` this start, and the entries and rows."""

    before: Restored
    entries: int = 0
    rows: dict[str, set[tuple[object, ...]]] = field(
        default_factory=lambda: defaultdict[str, set[tuple[object, ...]]](set)
    )

    def told(self, *, is_whole: bool) -> Restored:
        """As it is kept."""
        earlier = self.before.counts
        counts = {
            name: len(self.rows[name]) + earlier.get(name, 0)
            for name in sorted({*self.rows, *earlier})
        }
        entries = self.before.entries + self.entries
        return replace(self.before, entries=entries, counts=counts, is_whole=is_whole)


def _batches(found: Sequence[Change]) -> Iterator[list[Change]]:
    batch: list[Change] = []
    size = 0
    for change in found:
        batch.append(change)
        size += len(change.data)
        if size > AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _apply(
    tx: Transaction,
    *,
    changes_: Sequence[Change],
    columns: Mapping[str, tuple[str, ...]],
    done: _Done,
) -> None:
    for change in changes_:
        for row in changes.rows_of(change.data, columns):
            changes.apply(tx, row)
            if row.table == "entries":
                done.entries += row.op == "INSERT"
                _index(tx, row)
            elif _is_counted(row):
                done.rows[row.table].add(tuple(row.key.values()))
            if row.table == "forgotten" and row.op == "INSERT":
                tx.forget_text(int(str(row.key["seq"])))
    last = changes_[-1]
    changes.put(tx, Position(changes.position(tx).id, last.seq, last.mark))
    note(tx, done.told(is_whole=False))


_CHOICES = frozenset({"model", "notices", "usage", "thinking"})


def _is_counted(row: changes.RowChange) -> bool:
    """True for what people did: what the program itself keeps count of is not told."""
    is_choice = row.op == "UPDATE" and not _CHOICES.isdisjoint(row.values)
    return row.table in _TOLD_OF or (row.table == "sessions" and is_choice)


def _index(tx: Transaction, row: changes.RowChange) -> None:
    """Find an entry by its words, as when it was stored."""
    number = int(str(row.key["seq"]))
    tx.forget_text(number)
    if row.op == "INSERT":
        entry = entries.parse(str(row.values["line"]))
        if entry.kind == "message" and entry.text:
            tx.index_text(number, entry.text)


def _end(tx: Transaction, later: _Later | None, done: _Done, now: int) -> bool:
    """Take away again what must not come back, and tell of it; False when somebody is erased."""
    erased = 0
    if later is not None:
        if later.end.seq > changes.position(tx).seq:
            changes.put(tx, later.end)
        for each in later.removed:
            erased += len(erasing.apply_removals(tx, each, now))
    # What was carried out or ended since is not known, nor what was forgotten in notes.
    approvals.drop_all(tx)
    page_logins.drop_all(tx)
    versions.clear(tx)
    uses.clear(tx)
    compactions.drop_all(tx)
    note(tx, done.told(is_whole=True))
    return not erased


async def rebuilt(folder: Path, scratch: Path, clock: Clock) -> SqliteDatabase:
    """Rebuild a folder's lost database in `scratch`, as far as it can be had.

    Raises:
        StorageError: nothing can.
        OSError: the disk does not take it.
    """
    beside, target = folder / files.BACKUPS, scratch / files.BACKUPS
    await asyncio.to_thread(shutil.copytree, beside, target)
    return await open_database(scratch, clock)


# --- telling -------------------------------------------------------------------------------------


def note(tx: Transaction, restored: Restored) -> None:
    """Keep the latest one, for the owner and for `confidant doctor`."""
    value = orjson.dumps(asdict(restored)).decode()
    keep(tx, _KEY, value, restored.at)
    drop(tx, _TOLD)


def latest(tx: Transaction) -> Restored | None:
    """The latest one, if the database was ever lost."""
    return value_of(tx, _KEY, partial(from_json, Restored))


def tell(tx: Transaction, language: str, now: int) -> bool:
    """Put what came back into the owner's latest direct chat, once; False when there is none yet.

    `language` is the configured one; "auto" is that of the owner's app.
    """
    restored = latest(tx)
    if restored is None or text_of(tx, _TOLD) is not None:
        return True
    chat = store.latest_direct(tx, OWNER)
    if chat is None:
        return False
    spoken = language_of(chat.locale if language == "auto" else language)
    outbox.add(tx, chat.address, words(restored, spoken), now, kind="notice")
    keep(tx, _TOLD, "", now)
    return True


def words(restored: Restored, language: str) -> str:
    """The notice that says what happened, what came back, and what did not. Pure."""
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
            choices=sum(counts.get(kind, 0) for kind in ("sessions", "zones", "titles")),
        )
    )
    if restored.missing or restored.unread:
        said.append(text(language, "restored.missing"))
    said.append(text(language, "restored.lost"))
    return "\n".join(said)
