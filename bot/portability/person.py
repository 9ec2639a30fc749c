"""Erasing one person: everything that is theirs, for good.

In a storage folder a file says what is to be before anything is removed: from there on there is one
way, forward, by this program or by whoever calls `complete`. Until it is complete no program runs
on the folder, so nothing shows what is half of it. Each step can be done again.

On a server it is one transaction, so there is nothing that could be half of it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import zipfile
from base64 import b64decode
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

import orjson

from bot.clock import DAY_MS, Clock, moment, to_the_minute
from bot.cluster.extra import needing_extra
from bot.config import MAIN_AGENT, BackupConfig, Config
from bot.delivery import outbox
from bot.errors import ConfidantError, StorageError, StorageFull
from bot.gateway.admission import read_books
from bot.i18n import language_of, text
from bot.identity import MANY, Books, Policy, PolicySnapshot, routing
from bot.identity.conversation import local_zone
from bot.identity.routing import Person
from bot.identity.view import (
    AGENTS,
    MAIN_SPACE,
    PRIVATE,
    TALK,
    MemoryView,
    agents_space,
    talk_of,
)
from bot.invocation import confidant
from bot.memory import layout
from bot.memory.index.service import leave_folder, leave_rows
from bot.memory.memory import INDEX_FOLDER
from bot.memory.notes import MAX_READ, SpaceFiles
from bot.portability import schedule
from bot.portability.restore import ASIDE
from bot.recovery import TRANSCRIPTS, begin_log
from bot.sessions import artifacts, browsing, entries, erasing, mirror, store
from bot.sessions.entries import Entry, parse, without_thoughts
from bot.sessions.erasing import Belongings
from bot.sessions.store import Session
from bot.storage import Database, Transaction, backup, changes, files
from bot.storage.files import DATABASE_NAME, ERASING
from bot.storage.sqlite import SqliteDatabase, compact
from bot.storage.tables import TABLES

# Who is meant by a name an operator types, and what is theirs.

OWNER_NAMES = frozenset({routing.OWNER, "owner"})


@dataclass(frozen=True, slots=True)
class DataSubject:
    """Somebody, and what is theirs; `is_owner` is true for whoever owns the main memory."""

    identity: str
    theirs: Belongings
    is_owner: bool

    @property
    def views(self) -> tuple[MemoryView, ...]:
        """Views of their notes, and of nobody else's: a space is theirs for each of their names."""
        agents = (agents_space(agent, MAIN_SPACE) for agent in self.theirs.agents)
        own = (MAIN_SPACE, *agents) if self.is_owner else ()
        return tuple(MemoryView(space, (), private=True) for space in (*own, *self.theirs.spaces))


def find(tx: Transaction, config: Config, typed: str) -> DataSubject:
    """Find somebody: the owner, a linked name of the configuration, or "<channel>:<id>".

    Raises:
        ConfidantError: nobody can be called like that.
    """
    snapshot = snapshot_of(tx, config)
    person = named(snapshot, typed)
    names = dict.fromkeys(
        (person.identity, *person.identities, *snapshot.names_of(person.identity))
    )
    on_server = config.storage.url is not None
    theirs = erasing.belongings_of(tx, names, _agents(config), on_server=on_server)
    return DataSubject(person.identity, theirs, person.is_owner)


def _agents(config: Config) -> Iterator[str]:
    """The agents that are configured, and those that have a folder in the workspace."""
    yield from config.agents.named
    folder = config.workspace / AGENTS
    if config.storage.url is None and folder.is_dir():
        found = (each.name for each in folder.iterdir() if each.is_dir())
        yield from filter(layout.is_plain, found)  # others hold no notes


def snapshot_of(tx: Transaction | None, config: Config) -> PolicySnapshot:
    """The current configuration, and the books where there is a database."""
    books = Books() if tx is None else read_books(tx)
    return PolicySnapshot.of(Policy.of(config, local_zone(config)), books)


def named(snapshot: PolicySnapshot, typed: str) -> Person:
    """The person meant: the owner, a linked name of the configuration, or "<channel>:<id>".

    Raises:
        ConfidantError: nobody can be called like that.
    """
    links = snapshot.policy.config.session.identity_links
    name = typed.strip()
    if name.lower() in OWNER_NAMES:
        return snapshot.person_of(routing.OWNER_SEAT)
    if links.get(name):
        return snapshot.person_of(_seat(links[name][0]))
    if ":" in name and all(_seat(name)):
        return snapshot.person_of(_seat(name))
    raise ConfidantError(
        f"Nobody is called {name!r}. Name an account as `{confidant('pairing list')}` shows it "
        "(such as telegram:42 or web:ada), a name of [session.identity_links], or owner."
    )


def _seat(name: str) -> tuple[str, str]:
    channel, _, id_ = name.partition(":")
    return channel, id_


# Everything of one person in one file, for them to read and to take along.
#
# It is made while the bot runs: the database is read in one snapshot, notes after it, through
# views that hold nobody else's. Of rooms it has what they said themselves, and nothing of what
# others said.

_PLAIN = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class Exported:
    """Counts of an export; `left_out` are conversations that several people wrote in."""

    conversations: int
    entries: int
    in_rooms: int
    notes: int
    files: int
    left_out: int


@contextmanager
def exporting(target: Path, now: int) -> Generator[Export]:
    """One export; the file gets its name when all of it is on the disk.

    Raises:
        ConfidantError: it cannot be made there.
    """
    if target.exists():
        raise ConfidantError(
            f"{target} is there already. Nothing was changed: choose another name."
        )
    if not target.parent.is_dir():
        raise ConfidantError(f"There is no folder {target.parent}. Make it first.")
    try:
        with files.made(target) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            yield Export(packed, now)
    except OSError as error:
        why = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
        raise ConfidantError(
            f"The export {target} was not made: {why}. Nothing was changed."
        ) from error


class Export:
    """One export that is being written."""

    def __init__(self, packed: zipfile.ZipFile, now: int) -> None:
        self._zip = packed
        self._now = now
        self._names: set[str] = set()

    def readme(self, whose: DataSubject, language: str, found: Exported) -> None:
        """Say what it holds."""
        self._add("README.md", _readme(language, whose, found, self._now))

    def database(self, tx: Transaction, whose: DataSubject, language: str) -> Exported:
        """Add what the database holds, in one snapshot."""
        theirs = whose.theirs
        told = said = left_out = 0
        for session_id in theirs.sessions:
            session = store.get(tx, session_id)
            if session is None or session.sender == MANY:
                left_out += session is not None
                continue
            told += 1
            said += self._conversation(tx, session, language)
        in_rooms = self._rooms(tx, theirs, language)
        for table in TABLES:
            if table.export and (
                rows := erasing.belonging_rows(tx, theirs, table.name, table.export.split())
            ):
                self._add(f"data/{table.name}.json", orjson.dumps(rows, option=orjson.OPT_INDENT_2))
        versions = erasing.belonging_rows(tx, theirs, "note_versions", ("id", "path", "at", "text"))
        for row in versions:
            self._add(f"earlier-notes/{row['id']}-{row['path']}", str(row["text"]))
        return Exported(told, said, in_rooms, 0, self._files(tx, theirs), left_out)

    async def notes(self, whose: DataSubject, space_files: SpaceFiles) -> int:
        """Add their notes, through their own views; how many there are."""
        count = 0
        for view in whose.views:
            for listed in await space_files.names(view):
                if listed.path.startswith("shared/"):
                    continue
                data = await space_files.data(view, listed.path, MAX_READ)
                agent = "/".join(view.space.split("/")[:2]) if view.space.startswith(AGENTS) else ""
                self._add(f"notes/{agent and f'{agent}/'}{listed.path}", data)
                count += 1
        return count

    def _conversation(self, tx: Transaction, session: Session, language: str) -> int:
        lines = store.lines(tx, session.id)
        kept = [parse(line) for line in lines[1:]]
        gone = browsing.forgotten(tx, session.id)
        shown = store.veiled(tx, session.id, [each for each in kept if each.id not in gone])
        day = moment(session.started_at, None).strftime("%Y-%m-%d")
        name = f"conversations/{day}-{session.id}"
        self._add(f"{name}.jsonl", "".join(f"{without_thoughts(line)}\n" for line in lines))
        where = entries.imported_name(session.channel) or session.channel
        title = text(language, "export.conversation", day=day, channel=where)
        self._add(f"{name}.md", _markdown(language, title, shown))
        return len(kept)

    def _rooms(self, tx: Transaction, theirs: Belongings, language: str) -> int:
        count = 0
        for session_id, key in erasing.rooms_spoken_in(tx):
            said = [entry for _, entry in erasing.said_by(tx, session_id, theirs.accounts)]
            if not said:
                continue
            count += len(said)
            lines = [{"at": each.said_or_at, "room": key, "text": each.text} for each in said]
            self._add(
                f"rooms/{session_id}.jsonl", b"".join(orjson.dumps(line) + b"\n" for line in lines)
            )
            title = text(language, "export.room", room=key)
            self._add(f"rooms/{session_id}.md", _markdown(language, title, said))
        return count

    def _files(self, tx: Transaction, theirs: Belongings) -> int:
        kept = erasing.belonging_rows(tx, theirs, "artifacts", ("id", "tool", "text"))
        for row in kept:
            if row["tool"] == artifacts.PICTURE:
                self._add(f"files/{row['id']}", b64decode(str(row["text"])))
            else:
                self._add(f"files/{row['id']}.txt", str(row["text"]))
        whole: dict[str, bytes] = {}
        for row in erasing.belonging_rows(tx, theirs, "uploads", ("ref", "part", "name", "data")):
            name = f"files/{row['ref']}-{row['name']}"
            whole[name] = whole.get(name, b"") + b64decode(str(row["data"]))
        for name, data in whole.items():
            self._add(name, data)
        return len(kept) + len(whole)

    def _add(self, name: str, data: str | bytes) -> None:
        """Add a file under a name that is one on every system."""
        plain = "/".join(_PLAIN.sub("-", part).strip("-.") or "file" for part in name.split("/"))
        stem, number = plain, 1
        while plain.casefold() in self._names:
            number += 1
            plain = f"{number}-{stem}" if "/" not in stem else stem.replace("/", f"/{number}-", 1)
        self._names.add(plain.casefold())
        at = moment(self._now, None)
        info = zipfile.ZipInfo(plain, at.timetuple()[:6])
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = 0o600 << 16
        self._zip.writestr(info, data)


def tell(tx: Transaction, whose: DataSubject, language: str, now: int) -> bool:
    """Say in their latest direct chat that it was made; False when they have none."""
    chats = [store.latest_direct(tx, name) for name in whose.theirs.names]
    known = [chat for chat in chats if chat is not None and chat.sender != MANY]
    if not known:
        return False
    chat = max(known, key=lambda each: (each.last_user_at, each.id))
    words = text(language, "export.told", at=to_the_minute(now, None))
    outbox.add(tx, chat.address, words, now, kind="notice", language=language)
    return True


def is_known(tx: Transaction, whose: DataSubject) -> bool:
    """True when a table holds anything of theirs."""
    return bool(erasing.count_belongings(tx, whose.theirs))


def language_for(tx: Transaction, whose: DataSubject, configured: str) -> str:
    """The language to speak to somebody: the configured one, or that of their app."""
    chats = (store.latest_direct(tx, name) for name in whose.theirs.names)
    locale = next((chat.locale for chat in chats if chat is not None), "")
    return language_of(locale if configured == "auto" else configured)


def _markdown(language: str, title: str, said: Iterable[Entry]) -> str:
    parts = [f"# {title}\n"]
    for entry in said:
        if entry.text:
            who = text(language, "export.you" if entry.role == "user" else "export.bot")
            parts.append(f"**{who}** · {to_the_minute(entry.said_or_at, None)}\n\n{entry.text}\n")
    return "\n".join(parts)


def _readme(language: str, whose: DataSubject, found: Exported, now: int) -> str:
    lines: Sequence[str] = (
        f"# {text(language, 'export.title')}\n",
        text(
            language,
            "export.of",
            person=whose.identity,
            names=", ".join(whose.theirs.names),
            at=to_the_minute(now, None),
        ),
        "",
        text(
            language,
            "export.holds",
            conversations=found.conversations,
            entries=found.entries,
            rooms=found.in_rooms,
            notes=found.notes,
            files=found.files,
        ),
        *([text(language, "export.left_out", count=found.left_out)] if found.left_out else []),
        "",
        text(language, "export.kept"),
        "",
    )
    return "\n".join(lines)


# Erasing one person: everything that is theirs, for good.
#
# In a storage folder a file says what is to be before anything is removed: from there on there is
# one way, forward, by this program or by whoever calls `complete`. Until it is complete no
# program runs on the folder, so nothing shows what is half of it. Each step can be done again.
#
# On a server it is one transaction, so there is nothing that could be half of it.

Step = Callable[[str], None]
"""Hears the name of each step before it is done."""

# What stands in the name of a database that was set aside.
SET_ASIDE = ("damaged-", "older-", "before-restore-")
HOUR_MS = 3_600_000
_TABLES = """SELECT c.oid::regclass::text, pg_has_role(c.relowner, 'USAGE') FROM pg_class c
    WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace ORDER BY 1"""


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    """The erasing as the file describes it: who, and where files of theirs are.

    `rooms` are the ids of the conversations in rooms where they spoke, `room_keys` their keys.
    """

    identity: str
    theirs: Belongings
    rooms: tuple[str, ...]
    room_keys: tuple[str, ...]
    at: int

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions of the memory index with their words; those of rooms are made anew."""
        spaces = self.theirs.spaces
        agents = (MAIN_AGENT, *self.theirs.agents)
        talk = (talk_of(agent, name) for agent in agents for name in self.theirs.names)
        rooms = (f"{TALK}{key}" for key in self.room_keys)
        return (*spaces, *(f"{space}{PRIVATE}" for space in spaces), *talk, *rooms)


def plan_of(tx: Transaction, whose: DataSubject, now: int) -> ErasurePlan:
    """Plan the erasing of somebody.

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
    found = erasing.rooms_spoken_in(tx)
    keys = {key for id_, key in found if erasing.said_by(tx, id_, accounts)}
    rooms = tuple(id_ for id_, key in found if key in keys)
    return ErasurePlan(whose.identity, whose.theirs, rooms, tuple(sorted(keys)), now)


# --- a storage folder -----------------------------------------------------------------------------


def notes_of(workspace: Path, plan: ErasurePlan) -> int:
    """The number of files in somebody's spaces."""
    folders = (workspace / PurePosixPath(space) for space in plan.theirs.spaces)
    return sum(len(names) for folder in folders for _, _, names in os.walk(folder))


def erase_begun(folder: Path) -> ErasurePlan | None:
    """The erasing that was begun and is not complete, if any.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        said = orjson.loads((folder / ERASING).read_bytes())
        names, sessions, chats = (said["theirs"][name] for name in ("names", "sessions", "chats"))
        theirs = Belongings(
            tuple(names),
            tuple(sessions),
            tuple((a, b, c) for a, b, c in chats),
            tuple(said["theirs"].get("agents", ())),
        )
        return ErasurePlan(
            said["identity"], theirs, tuple(said["rooms"]), tuple(said["room_keys"]), said["at"]
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{folder / ERASING} cannot be read, so nobody can be erased."
        ) from error


async def erase(config: Config, plan: ErasurePlan, clock: Clock, step: Step) -> None:
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
        await complete_erase(config, plan, clock, step)
    except StorageError as error:
        path = said.with_name(DATABASE_NAME)
        if isinstance(error.__cause__, StorageFull) and await _is_untouched(path, plan):
            said.unlink()
            raise StorageError(
                "The disk is full, so nobody was erased. Nothing was changed: make room first."
            ) from error
        raise


async def _is_untouched(path: Path, plan: ErasurePlan) -> bool:
    """True when the database still has what is first removed there, and so all of it."""
    async with await SqliteDatabase.open(path) as database:
        names = plan.theirs.names
        return not await database.read(lambda tx: erasing.is_marked(tx, names, plan.at))


async def complete_erase(config: Config, plan: ErasurePlan, clock: Clock, step: Step) -> None:
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
        "index": lambda: leave_folder(folder / INDEX_FOLDER),
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


async def _rows(path: Path, plan: ErasurePlan, clock: Clock, step: Step) -> None:
    """Remove the rows, in one transaction."""
    step("database")
    async with await SqliteDatabase.open(path) as database:
        await database.write(lambda tx: erasing.erase_for_good(tx, plan.theirs, plan.at, clock()))


def _transcripts(folder: Path, plan: ErasurePlan) -> None:
    """Remove theirs, with kept copies, and those of rooms: the next start writes these anew."""
    if not folder.is_dir():
        return
    gone = {*plan.theirs.sessions, *plan.rooms}
    for path in [*mirror.all_transcripts(folder)]:
        if path.name.partition(".jsonl")[0] in gone:
            path.unlink()
    for place in mirror.transcript_places(folder):
        files.sync_folder(place)


def _notes(workspace: Path, plan: ErasurePlan) -> None:
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
    async with await SqliteDatabase.open(path, logs=False) as database:
        await begin_log(database)


# --- a server -------------------------------------------------------------------------------------


async def erase_on_server(database: Database, plan: ErasurePlan, clock: Clock) -> None:
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
    """The places where the configuration still names somebody, in words."""
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
