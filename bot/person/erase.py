"""Erasing one person from a storage folder: everything that is theirs, for good.

Before anything is removed a file says what is to be: from there on there is one way, forward, by
this program or by whoever calls `finish`. Until it is complete no program runs on the folder, so
nothing shows what is half of it. Each step can be done again.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

import orjson

from bot.clock import Clock
from bot.config import Config
from bot.errors import ConfidantError, StorageError, StorageFull
from bot.identity.view import PRIVATE, TALK
from bot.invocation import confidant
from bot.memory.index.leaving import leave_folder
from bot.memory.memory import INDEX_FOLDER
from bot.person.whose import Whose
from bot.recovery import TRANSCRIPTS, begin_log
from bot.sessions import erasing, speakers, transcript_files
from bot.sessions.belongings import Belongings
from bot.storage import Transaction, backup, changes, files
from bot.storage.files import DATABASE_NAME, ERASING
from bot.storage.sqlite import SqliteDatabase, compact

Step = Callable[[str], None]
"""Hears the name of each step before it is done."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be erased, as the file says it: who, and where files of theirs are.

    `rooms` are the ids of the conversations in rooms where they spoke, `room_keys` their keys.
    """

    identity: str
    names: tuple[str, ...]
    sessions: tuple[str, ...]
    chats: tuple[tuple[str, str, str], ...]
    rooms: tuple[str, ...]
    room_keys: tuple[str, ...]
    at: int

    @property
    def theirs(self) -> Belongings:
        """What is theirs in the database."""
        return Belongings(self.names, self.sessions, self.chats)

    @property
    def partitions(self) -> tuple[str, ...]:
        """What of the memory index holds their words; that of rooms is made anew."""
        spaces = self.theirs.spaces
        talk = (f"{TALK}{each}" for each in (*self.names, *self.room_keys))
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
    accounts = [name for name in whose.theirs.names if ":" in name]
    found = speakers.rooms(tx)
    keys = {key for id_, key in found if speakers.said_by(tx, id_, accounts)}
    return Plan(
        whose.identity,
        whose.theirs.names,
        whose.theirs.sessions,
        whose.theirs.chats,
        tuple(id_ for id_, key in found if key in keys),
        tuple(sorted(keys)),
        now,
    )


def notes_of(workspace: Path, plan: Plan) -> int:
    """How many files are in somebody's spaces."""
    folders = (workspace / PurePosixPath(space) for space in plan.theirs.spaces)
    return sum(len(names) for folder in folders for _, _, names in os.walk(folder))


def begin(folder: Path, plan: Plan) -> None:
    """Say what is to be erased: the way back ends here.

    Raises:
        StorageError: the disk does not take it; nothing was changed.
    """
    beside = folder / f"{ERASING}.tmp"
    try:
        with open(beside, "wb", opener=files.opener) as file:
            file.write(orjson.dumps(asdict(plan)))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(folder / ERASING)
        files.sync_folder(folder)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StorageError(f"Nobody was erased: {error.strerror}. Nothing was changed.") from error


def begun(folder: Path) -> Plan | None:
    """What was begun and is not complete, if anything was.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        said = orjson.loads((folder / ERASING).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageError(
            f"{folder / ERASING} cannot be read, so nobody can be erased."
        ) from error
    return Plan(
        str(said["identity"]),
        tuple(said["names"]),
        tuple(said["sessions"]),
        tuple((str(a), str(b), str(c)) for a, b, c in said["chats"]),
        tuple(said["rooms"]),
        tuple(said["room_keys"]),
        int(said["at"]),
    )


async def erase(config: Config, plan: Plan, clock: Clock, step: Step) -> None:
    """Erase what a plan says. Only with the lock of the folder.

    Raises:
        StorageError: the disk does not take it; the message says whether it was begun.
    """
    folder = config.storage.folder
    begin(folder, plan)
    try:
        await complete(config, plan, clock, step)
    except StorageError as error:
        if isinstance(error.__cause__, StorageFull) and await _is_untouched(folder, plan):
            (folder / ERASING).unlink()
            raise StorageError(
                "The disk is full, so nobody was erased. Nothing was changed: make room first."
            ) from error
        raise


async def _is_untouched(folder: Path, plan: Plan) -> bool:
    """True when the database still has what is first removed there, and so all of it."""
    database = await SqliteDatabase.open(folder / DATABASE_NAME)
    try:
        return not await database.read(lambda tx: erasing.is_marked(tx, plan.names, plan.at))
    finally:
        await database.close()


async def complete(config: Config, plan: Plan, clock: Clock, step: Step) -> None:
    """Erase what a plan says; it can be interrupted anywhere and called again.

    Raises:
        StorageError: the disk does not take it, or something keeps the database; nothing shows
            what is half of it, and it can be called again.
    """
    folder = config.storage.folder
    try:
        await _database(folder, plan, clock, step)
        step("transcripts")
        await asyncio.to_thread(_transcripts, folder / TRANSCRIPTS, plan)
        step("notes")
        await asyncio.to_thread(_notes, config.workspace, plan)
        step("index")
        await asyncio.to_thread(leave_folder, folder / INDEX_FOLDER, plan.partitions)
        step("copies")
        await _copies(folder / DATABASE_NAME, clock())
        (folder / ERASING).unlink()
        files.sync_folder(folder)
    except OSError as error:
        raise StorageError(_unfinished(error.strerror or type(error).__name__)) from error
    except StorageError as error:
        raise StorageError(_unfinished(str(error).rstrip("."))) from error


async def _database(folder: Path, plan: Plan, clock: Clock, step: Step) -> None:
    """Remove the rows, in one transaction; then whatever was on pages that are free now."""
    path = folder / DATABASE_NAME
    step("database")
    database = await SqliteDatabase.open(path)
    try:
        await database.write(lambda tx: erasing.erase_for_good(tx, plan.theirs, plan.at, clock()))
    finally:
        await database.close()
    step("free pages")
    await asyncio.to_thread(compact, path)


def _transcripts(folder: Path, plan: Plan) -> None:
    """Remove theirs, with kept copies, and those of rooms: the next start writes these anew."""
    if not folder.is_dir():
        return
    gone = {*plan.sessions, *plan.rooms}
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


async def _copies(path: Path, now: int) -> None:
    """Let a new copy, and an empty log, take the place of what is kept beside the database."""
    await asyncio.to_thread(_replace_copies, path, now)
    database = await SqliteDatabase.open(path, logs=False)
    try:
        await begin_log(database)
    finally:
        await database.close()


def _replace_copies(database: Path, now: int) -> None:
    newest = backup.make(database, 1, now)
    for each in backup.newest_first(database, now):
        if each != newest:
            each.unlink()
    changes.clear(database)
    if (before := database.parent / backup.BEFORE_UPGRADE).is_dir():
        shutil.rmtree(before)
    files.sync_folder(database.parent)


def _unfinished(why: str) -> str:
    return (
        f"The erasing is not complete: {why}. No program runs on the folder until it is, so "
        f"nothing of it shows. Mend that; then `{confidant('erase --finish')}` completes it."
    )
