"""`confidant import from`, `chatgpt` and `claude`, and what moving in from anywhere shares."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Generic, TypeVar, cast

import typer

from bot.cli.common import BYTES, counted, load, local_time, opened_database, progress
from bot.cli.main import (
    ConfigOption,
    DryRunOption,
    ExportFile,
    PersonOption,
    QuietOption,
    YesOption,
)
from bot.clock import system_clock
from bot.cluster.extra import visiting
from bot.config import Config
from bot.errors import StorageError
from bot.identity import PolicySnapshot, routing
from bot.identity.conversation import local_zone
from bot.importing import exports, storing
from bot.importing.exports import Export
from bot.importing.openclaw import home
from bot.importing.openclaw.home import Home
from bot.importing.openclaw.moving import OWNERS, PROPOSAL, ROOMS, Move, Report
from bot.importing.storing import Brought, Count, Notes, Owner
from bot.importing.values import Skipped
from bot.memory.memory import store_of
from bot.memory.note_store import NoteStore
from bot.portability.person import named, snapshot_of
from bot.sessions.entries import NAMES, Source
from bot.storage import Database
from bot.storage.files import DATABASE_NAME, DataDirLock
from bot.unicode import harmless

T = TypeVar("T")

SHOWN = 20  # of what could not be read


def chats(
    context: typer.Context,
    path: ExportFile,
    *,
    person: PersonOption = "owner",
    me: Annotated[
        str, typer.Option("--me", metavar="NAME", help="Your own name in chats of a messenger.")
    ] = "",
    config: ConfigOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bring the conversations of a data export; what is there already stays."""
    wanted = cast("Source", context.info_name)
    loaded = load(config, quiet=True).config
    if not dry_run:
        must_be_stopped(loaded)
    source = wanted if wanted in NAMES else None
    export = exports.look(path.expanduser(), source, me, local_zone(loaded))
    arrival = _Arrival(loaded, quiet, export, person)
    found, whose, notes = asyncio.run(arrival.rehearse())
    typer.echo(f"{NAMES[export.source]}, for {'the owner' if whose == routing.OWNER else whose}:")
    for line in (*told(found), *(_written(notes) if notes else ())):
        typer.echo(f"  {harmless(line)}")
    is_nothing = found.is_nothing and not any(isinstance(note, Brought) for note in notes)
    if not is_wanted(is_nothing, yes=yes, dry_run=dry_run):
        return
    done, _, notes = asyncio.run(arrival.bring())
    typer.echo(
        f"Brought {counted(done.messages, 'message')} and "
        f"{counted(sum(isinstance(note, Brought) for note in notes), 'note')}. "
        "Search finds them from now on."
    )


def is_wanted(is_nothing: bool, *, yes: bool, dry_run: bool) -> bool:  # noqa: FBT001
    """Ask whether to go on, where there is something to do and nobody said so before."""
    if is_nothing:
        typer.echo("There is nothing new. Nothing was changed.")
    elif dry_run:
        typer.echo("Nothing was changed.")
    elif not yes:
        typer.confirm("Import this?", abort=True)
    return not (is_nothing or dry_run)


def told(count: Count) -> list[str]:
    """What an import of conversations comes to, in words. Pure but for the clock's zone."""
    talks = count.talks
    new, grown, known = talks["new"], talks["grown"], talks["known"]
    messages = counted(count.messages, "new message")
    lines = [f"{counted(new, 'new conversation')}, {grown} that went on, {known} known; {messages}"]
    if count.last:
        lines.append(f"of {local_time(count.first)} to {local_time(count.last)}")
    if talks["empty"]:
        lines.append(f"{counted(talks['empty'], 'conversation')} with nothing to read in it")
    if count.undated:
        lines.append(f"{counted(count.undated, 'conversation')} without a date, and kept so")
    lines += sorted(count.assumed)
    lines += [f"{counted(n, 'message')} {why}: left out" for why, n in sorted(count.left.items())]
    if count.skipped:
        lines.append(f"{len(count.skipped)} could not be read, and the rest is kept:")
    lines += [
        f"  {harmless(' '.join(one.where.split()))[:80]}: {one.why}"
        for one in count.skipped[:SHOWN]
    ]
    if len(count.skipped) > SHOWN:
        lines.append(f"  and {len(count.skipped) - SHOWN} more")
    return lines


def must_be_stopped(config: Config) -> None:
    """Look whether the bot runs before anything is read for long.

    Raises:
        StorageBusy: it does.
    """
    if config.storage.url is None and config.storage.folder.exists():
        with DataDirLock(config.storage.folder):
            pass


@asynccontextmanager
async def looking(config: Config) -> AsyncGenerator[Database | None]:
    """The database to look into, or None where there is none yet."""
    if config.storage.url is None and not (config.storage.folder / DATABASE_NAME).exists():
        yield None
        return
    async with opened_database(config) as database:
        yield database


async def _snapshot(database: Database | None, config: Config) -> PolicySnapshot:
    if database is None:
        return snapshot_of(None, config)
    return await database.read(lambda tx: snapshot_of(tx, config))


@dataclass(frozen=True, slots=True)
class _Import(ABC, Generic[T]):
    """Something that becomes somebody's, looked at first and then brought."""

    config: Config
    quiet: bool

    async def rehearse(self) -> T:
        """What it would come to."""
        async with looking(self.config) as database, visiting(self.config) as shared:
            store = store_of(self.config, system_clock, shared)
            return await self._run("Reading", database, store, is_rehearsal=True)

    async def bring(self) -> T:
        """Do it."""
        async with storing.opened(self.config, system_clock) as target:
            try:
                return await self._run(
                    "Importing", target.database, target.notes, is_rehearsal=False
                )
            except StorageError as exc:
                raise StorageError(
                    f"{exc} What was imported until then stays; the same command goes on with the "
                    "rest."
                ) from exc

    @abstractmethod
    async def _run(
        self, what: str, database: Database | None, store: NoteStore, *, is_rehearsal: bool
    ) -> T: ...


@dataclass(frozen=True, slots=True)
class _Arrival(_Import[tuple[Count, str, Sequence[Brought | Skipped]]]):
    """An export, and the person it becomes; what it comes to is theirs, by identity."""

    export: Export
    person: str

    async def _run(
        self, what: str, database: Database | None, store: NoteStore, *, is_rehearsal: bool
    ) -> tuple[Count, str, Sequence[Brought | Skipped]]:
        snapshot, now = await _snapshot(database, self.config), system_clock()
        owner = Owner(named(snapshot, self.person).identity)
        with progress(what, total=self.export.size, unit=BYTES, quiet=self.quiet) as bar:
            found = self.export.talks(bar.advance)
            count = await storing.bring(
                database, found, lambda _: owner, now, is_rehearsal=is_rehearsal
            )
        if count.remembered and not is_rehearsal:  # a new workspace gets what it begins with first
            await asyncio.to_thread(store.make)
            await asyncio.to_thread(store.prepare)
        notes = Notes(database, store, owner.person, now, is_rehearsal)
        return count, owner.person, await notes.remember(count.remembered.values())


def _written(notes: Sequence[Brought | Skipped]) -> list[str]:
    """What becomes of notes, in words."""
    brought = [note for note in notes if isinstance(note, Brought)]
    lines = [f"Notes: {counted(len(brought), 'note')} to write, marked as imported"]
    for note in brought[:SHOWN]:
        how = "new" if note.is_new else "added to"
        lines.append(f"  {note.path}: {how}, {counted(note.pieces, 'piece')}")
    lines += _more(len(brought))
    left = [f"  {note.where}: {note.why}" for note in notes if isinstance(note, Skipped)]
    return [*lines, *left]


# `confidant import openclaw`: moving in from OpenClaw.


def move(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Its folder, such as ~/.openclaw, or a workspace.")
    ],
    *,
    mine: Annotated[
        bool, typer.Option("--mine", help="What nothing says whose it is, is yours.")
    ] = False,
    config: ConfigOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bring notes, conversations, people and settings of an OpenClaw, which stays as it is."""
    loaded = load(config, quiet=True).config
    if not dry_run:
        must_be_stopped(loaded)
    found = home.look(folder.expanduser())
    if found.workspace is not None and found.workspace.resolve() == loaded.workspace.resolve():
        typer.echo("Its notes are those of this bot already, and stay as they are.")
        found = replace(found, workspace=None)
    moving = _Moving(loaded, quiet, found, mine)
    report = asyncio.run(moving.rehearse())
    for line in described(report):
        typer.echo(harmless(line))
    if is_wanted(report.is_nothing, yes=yes, dry_run=dry_run):
        done = asyncio.run(moving.bring())
        typer.echo(
            f"Brought {counted(len(done.notes), 'note')}, "
            f"{counted(done.talks.messages, 'message')}, {_people(len(done.seats))}."
        )
        if done.settings:
            typer.echo(f"Read {loaded.storage.folder / PROPOSAL} for the settings.")


@dataclass(frozen=True, slots=True)
class _Moving(_Import[Report]):
    """One move."""

    home: Home
    is_mine: bool

    async def _run(
        self, what: str, database: Database | None, store: NoteStore, *, is_rehearsal: bool
    ) -> Report:
        snapshot = await _snapshot(database, self.config)
        with progress(what, unit="conversations", quiet=self.quiet) as bar:
            move = Move(
                self.home,
                snapshot,
                self.config.storage.folder,
                store,
                self.is_mine,
                system_clock(),
                bar.advance,
            )
            return await move.run(database, is_rehearsal=is_rehearsal)


def described(report: Report) -> list[str]:
    """What moving in comes to, in words. Pure but for the clock's zone."""
    lines = _written(report.notes)
    lines.append("Conversations:")
    lines += [f"  {line}" for line in told(report.talks)]
    for whose, count in sorted(report.whose.items()):
        lines.append(f"  {counted(count, 'conversation')} of {whose}{_hint(whose)}")
    if report.unclear:
        lines.append(
            f"  {counted(report.unclear, 'conversation')} of which nothing says whose they are, "
            "left out: --mine makes them yours"
        )
    if report.work:
        lines.append(f"  {counted(report.work, 'run')} of tasks, hooks and helpers, left out")
    lines.append(f"People let in: {_people(len(report.seats))}")
    lines += [f"  {seat.channel}:{seat.sender}" for seat in report.seats[:SHOWN]]
    lines += _more(len(report.seats))
    if report.jobs:
        lines.append(f"Reminders and tasks: {len(report.jobs)}, which OpenClaw goes on with too")
        lines += [f"  {each.kind}: {' '.join(each.text.split())[:80]}" for each in report.jobs]
    if report.settings:
        lines.append(f"Settings: a proposal, {PROPOSAL}, which nothing reads by itself")
    left = [each for each in report.left if each not in report.talks.skipped]
    if left:
        lines.append("Not brought:")
        lines += [f"  {' '.join(each.where.split())}: {each.why}" for each in left[:SHOWN]]
        lines += _more(len(left))
    return lines


def _hint(whose: str) -> str:
    if whose in {OWNERS, ROOMS}:
        return ""
    return f' (if that is you, put owner = ["{whose}"] into [session] first)'


def _more(count: int) -> list[str]:
    return [f"  and {count - SHOWN} more"] if count > SHOWN else []


def _people(count: int) -> str:
    return "nobody" if not count else "1 person" if count == 1 else f"{count} people"
