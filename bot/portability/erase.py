"""Erasing one person: everything that is theirs, for good.

In a storage folder a file says what is to be before anything is removed: from there on there is one
way, forward, by this program or by whoever calls `complete`. Until it is complete no program runs
on the folder, so nothing shows what is half of it. Each step can be done again.

On a server it is one transaction, so there is nothing that could be half of it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

import orjson

from bot.clock import DAY_MS, Clock, to_the_minute
from bot.cluster.extra import needing_extra
from bot.config import BackupConfig, Config
from bot.errors import ConfidantError, StorageError, StorageFull
from bot.identity.view import PRIVATE, TALK
from bot.invocation import confidant
from bot.memory.index.leaving import leave_folder, leave_rows
from bot.memory.memory import INDEX_FOLDER
from bot.portability import schedule
from bot.portability.swap import ASIDE
from bot.portability.whose import Whose
from bot.recovery import TRANSCRIPTS, begin_log
from bot.sessions import erasing, speakers, transcript_files
from bot.sessions.belongings import Belongings
from bot.storage import Database, Transaction, backup, changes, files
from bot.storage.files import DATABASE_NAME, ERASING
from bot.storage.sqlite import SqliteDatabase, compact

Step = Callable[[str], None]
"""Hears the name of each step before it is done."""

# What stands in the name of a database that was set aside.
SET_ASIDE = ("damaged-", "older-", "before-restore-")
HOUR_MS = 3_600_000
_TABLES = """SELECT c.oid::regclass::text, pg_has_role(c.relowner, 'USAGE') FROM pg_class c
    WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be erased, as the file says it: who, and where files of theirs are.

    `rooms` are the ids of the conversations in rooms where they spoke, `room_keys` their keys.
    """

    identity: str
    theirs: Belongings
    rooms: tuple[str, ...]
    room_keys: tuple[str, ...]
    at: int

    @property
    def partitions(self) -> tuple[str, ...]:
        """What of the memory index holds their words; that of rooms is made anew."""
        spaces = self.theirs.spaces
        talk = (f"{TALK}{each}" for each in (*self.theirs.names, *self.room_keys))
        return (*spaces, *(f"{space}{PRIVATE}" for space in spaces), *talk)


def plan_of(tx: Transaction, whose: Whose, now: int) -> Plan:
    """What erasing somebody comes to.

    Raises:
        ConfidantError: it is the owner.
    """
    if whose.is_owner:
        raise ConfidantError(
            f"{whose.identity} is the owner, whose the whole folder is: nobody is erased by "
            "accident like that. Nothing was changed. To end everything, stop the bot and remove "
            "its storage folder; for one account of yours, end its link first (/unlink)."
        )
    accounts = whose.theirs.accounts
    found = speakers.rooms(tx)
    keys = {key for id_, key in found if speakers.said_by(tx, id_, accounts)}
    rooms = tuple(id_ for id_, key in found if key in keys)
    return Plan(whose.identity, whose.theirs, rooms, tuple(sorted(keys)), now)


# --- a storage folder -----------------------------------------------------------------------------


def notes_of(workspace: Path, plan: Plan) -> int:
    """How many files are in somebody's spaces."""
    folders = (workspace / PurePosixPath(space) for space in plan.theirs.spaces)
    return sum(len(names) for folder in folders for _, _, names in os.walk(folder))


def begun(folder: Path) -> Plan | None:
    """What was begun and is not complete, if anything was.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        said = orjson.loads((folder / ERASING).read_bytes())
        names, sessions, chats = (said["theirs"][name] for name in ("names", "sessions", "chats"))
        theirs = Belongings(tuple(names), tuple(sessions), tuple((a, b, c) for a, b, c in chats))
        return Plan(
            said["identity"], theirs, tuple(said["rooms"]), tuple(said["room_keys"]), said["at"]
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{folder / ERASING} cannot be read, so nobody can be erased."
        ) from error


async def erase(config: Config, plan: Plan, clock: Clock, step: Step) -> None:
    """Erase what a plan says. Only with the lock of the folder.

    Raises:
        StorageError: the disk does not take it; the message says whether it was begun.
    """
    said = config.storage.folder / ERASING
    try:
        files.put(said, orjson.dumps(asdict(plan)))
    except OSError as error:
        said.unlink(missing_ok=True)
        raise StorageError(f"Nobody was erased: {error.strerror}. Nothing was changed.") from error
    try:
        await complete(config, plan, clock, step)
    except StorageError as error:
        path = said.with_name(DATABASE_NAME)
        if isinstance(error.__cause__, StorageFull) and await _is_untouched(path, plan):
            said.unlink()
            raise StorageError(
                "The disk is full, so nobody was erased. Nothing was changed: make room first."
            ) from error
        raise


async def _is_untouched(path: Path, plan: Plan) -> bool:
    """True when the database still has what is first removed there, and so all of it."""
    database = await SqliteDatabase.open(path)
    try:
        names = plan.theirs.names
        return not await database.read(lambda tx: erasing.is_marked(tx, names, plan.at))
    finally:
        await database.close()


async def complete(config: Config, plan: Plan, clock: Clock, step: Step) -> None:
    """Erase what a plan says; it can be interrupted anywhere and called again.

    Raises:
        StorageError: the disk does not take it, or something keeps the database; nothing shows
            what is half of it, and it can be called again.
    """
    folder = config.storage.folder
    path = folder / DATABASE_NAME
    steps: dict[str, Callable[[], object]] = {
        "free pages": lambda: compact(path),
        "transcripts": lambda: _transcripts(folder / TRANSCRIPTS, plan),
        "notes": lambda: _notes(config.workspace, plan),
        "index": lambda: leave_folder(folder / INDEX_FOLDER, plan.partitions),
        "copies": lambda: _copies(path, clock()),
    }
    try:
        await _rows(path, plan, clock, step)
        for name, work in steps.items():
            step(name)
            await asyncio.to_thread(work)
        await _begin_log(path)
        (folder / ERASING).unlink()
        files.sync_folder(folder)
    except (OSError, StorageError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
        raise StorageError(
            f"The erasing is not complete: {why or type(error).__name__}. No program runs on the "
            "folder until it is, so nothing of it shows. Mend that; then "
            f"`{confidant('erase --finish')}` completes it."
        ) from error


async def _rows(path: Path, plan: Plan, clock: Clock, step: Step) -> None:
    """Remove the rows, in one transaction."""
    step("database")
    database = await SqliteDatabase.open(path)
    try:
        await database.write(lambda tx: erasing.erase_for_good(tx, plan.theirs, plan.at, clock()))
    finally:
        await database.close()


def _transcripts(folder: Path, plan: Plan) -> None:
    """Remove theirs, with kept copies, and those of rooms: the next start writes these anew."""
    if not folder.is_dir():
        return
    gone = {*plan.theirs.sessions, *plan.rooms}
    for path in [*transcript_files.everything(folder)]:
        if path.name.partition(".jsonl")[0] in gone:
            path.unlink()
    for place in transcript_files.places(folder):
        files.sync_folder(place)


def _notes(workspace: Path, plan: Plan) -> None:
    for space in plan.theirs.spaces:
        path = workspace / PurePosixPath(space)
        if path.is_symlink():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            continue
        files.sync_folder(path.parent)


def _copies(database: Path, now: int) -> None:
    """Let a new copy take the place of all that the program itself keeps beside the database."""
    newest = backup.make(database, 1, now)
    for each in backup.newest_first(database, now):
        if each != newest:
            each.unlink()
    changes.clear(database)
    if (before := database.parent / backup.BEFORE_UPGRADE).is_dir():
        shutil.rmtree(before)
    files.sync_folder(database.parent)


async def _begin_log(path: Path) -> None:
    """Begin an empty log of changes behind the new copy."""
    database = await SqliteDatabase.open(path, logs=False)
    try:
        await begin_log(database)
    finally:
        await database.close()


# --- a server -------------------------------------------------------------------------------------


async def erase_on_server(database: Database, plan: Plan, clock: Clock) -> None:
    """Remove everything of somebody from a PostgreSQL on which no node runs.

    Raises:
        StorageError: the server does not take it; nothing was changed.
    """

    def work(tx: Transaction) -> None:
        erasing.erase_for_good(tx, plan.theirs, plan.at, clock(), on_server=True)
        leave_rows(tx, plan.partitions)
        # No node runs: what they told each other is old, and lanes begin anew. Jobs stand for
        # messages that wait; a lane without any takes up nothing.
        tx.execute("DELETE FROM events")
        tx.execute("DELETE FROM fences WHERE name >= 'lane/' AND name < 'lane0'")
        tx.execute(
            "DELETE FROM procrastinate_jobs WHERE lock IS NOT NULL AND NOT EXISTS "
            "(SELECT 1 FROM sessions WHERE key = procrastinate_jobs.lock)"
        )

    await database.write(work)


def write_over(url: str) -> list[str]:
    """Write tables anew, so that nothing is left on free pages; those that belong to others.

    Raises:
        StorageError: the server cannot be reached.
    """
    with needing_extra():
        import psycopg  # noqa: PLC0415 - its packages are an extra
        from psycopg import sql  # noqa: PLC0415

        from bot.storage.postgres_link import place_of, unusable  # noqa: PLC0415
    left: list[str] = []
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            for name, is_owner in connection.execute(_TABLES).fetchall():
                if not is_owner:
                    left.append(str(name))
                    continue
                connection.execute(sql.SQL("VACUUM (FULL) {}").format(sql.SQL(name)))
    except psycopg.Error as error:
        raise unusable(error, place_of(url)) from error
    return left


# --- what still holds them ------------------------------------------------------------------------


def remains(config: Config, bot: str) -> list[str]:
    """Everything this machine tells of that was kept before now and is not changed, in lines.

    `bot` is what backups of everything have in their names.
    """
    folder = config.storage.folder
    aside = [
        *folder.glob(f"{ASIDE}*"),
        *(path for word in SET_ASIDE for path in folder.glob(f"{DATABASE_NAME}.{word}*")),
        *config.workspace.parent.glob(f"{config.workspace.name}-{ASIDE}*"),
    ]
    kept = [
        _line(path, path.stat().st_mtime_ns // 1_000_000, "until you remove it")
        for path in sorted(aside)
    ]
    return [*_scheduled(config.backup, bot), *kept]


def _scheduled(config: BackupConfig, bot: str) -> Iterator[str]:
    """The backups that [backup] makes, and until when it keeps each."""
    if config.target is None or not bot:
        return
    try:
        found = sorted(schedule.found(config.target, bot).items())
    except OSError:
        yield _line(config.target, 0, "it cannot be looked into now")
        return
    longest = max(config.kept * config.every_hours * HOUR_MS, (config.kept_weeks + 1) * 7 * DAY_MS)
    for at, path in found:
        until = to_the_minute(round(at + longest), None)
        yield _line(path, at, f"until {until} at the latest, while backups are made")


def _line(path: Path, made_at: int, until: str) -> str:
    return f"{path} (of {to_the_minute(made_at, None)}): {until}"


def named_in(config: Config, names: tuple[str, ...]) -> list[str]:
    """Where the configuration still names somebody, in words."""
    found: list[str] = []
    for link, members in config.session.identity_links.items():
        if link in names or not set(members).isdisjoint(names):
            found.append(f"[session.identity_links] {link}")
    for channel in type(config.channels).model_fields:
        section = getattr(config.channels, channel)
        known = {f"{channel}:{each}" for each in getattr(section, "allow_from", ())}
        if not known.isdisjoint(names):
            found.append(f"[channels.{channel}] allow_from")
    return found
