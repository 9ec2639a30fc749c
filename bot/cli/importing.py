"""`confidant import`: conversations, notes and settings of other programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar, cast

import typer

from bot.cli.common import counted, load, local_time, opened_database
from bot.cli.main import (
    ConfigOption,
    DryRunOption,
    ExportFile,
    PersonOption,
    QuietOption,
    YesOption,
)
from bot.cli.progress import BYTES, progress
from bot.clock import system_clock
from bot.cluster.extra import visiting
from bot.config import Config
from bot.errors import StorageError
from bot.identity import PolicySnapshot, routing
from bot.identity.conversation import local_zone
from bot.importing import exports, storing
from bot.importing.openclaw import home
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

SHOWN = 20  # lines of a list


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
    """Import the conversations of a data export; what was imported before stays as it is."""
    wanted = cast("Source", context.info_name)
    loaded = load(config, quiet=True).config
    if not dry_run:
        must_be_stopped(loaded)
    source = wanted if wanted in NAMES else None
    export = exports.look(path.expanduser(), source, me, local_zone(loaded))

    async def bring(
        database: Database | None, store: NoteStore, *, is_rehearsal: bool = False
    ) -> tuple[Count, str, Sequence[Brought | Skipped]]:
        owner = Owner(named(await _snapshot(database, loaded), person).identity)
        now, what = system_clock(), "Reading" if is_rehearsal else "Importing"
        with progress(what, total=export.size, unit=BYTES, quiet=quiet) as bar:
            found = export.talks(bar.advance)
            count = await storing.bring(
                database, found, lambda _: owner, now, is_rehearsal=is_rehearsal
            )
        if count.remembered and not is_rehearsal:  # a new workspace gets what it begins with first
            await asyncio.to_thread(store.make)
            await asyncio.to_thread(store.prepare)
        notes = Notes(database, store, owner.person, now, is_rehearsal)
        return count, owner.person, await notes.remember(count.remembered.values())

    rehearsal = partial(bring, is_rehearsal=True)
    found, whose, notes = asyncio.run(_rehearse(loaded, rehearsal))
    typer.echo(f"{NAMES[export.source]}, for {'the owner' if whose == routing.OWNER else whose}:")
    for line in (*told(found), *(_written(notes) if notes else ())):
        typer.echo(f"  {harmless(line)}")
    is_nothing = found.is_nothing and not any(isinstance(note, Brought) for note in notes)
    if not is_wanted(is_nothing, yes=yes, dry_run=dry_run):
        return
    done, _, notes = asyncio.run(_carry_out(loaded, bring))
    typer.echo(
        f"Imported {counted(done.messages, 'message')} and "
        f"{counted(sum(isinstance(note, Brought) for note in notes), 'note')}. "
        "You can search for them now."
    )


def is_wanted(is_nothing: bool, *, yes: bool, dry_run: bool) -> bool:  # noqa: FBT001
    """Return True if the import is to be done; ask unless --yes was given."""
    if is_nothing:
        typer.echo("There is nothing new, so nothing was changed.")
    elif dry_run:
        typer.echo("Nothing was changed.")
    elif not yes:
        typer.confirm("Import this?", abort=True)
    return not (is_nothing or dry_run)


def told(count: Count) -> list[str]:
    """Describe what an import of conversations brings. Pure but for the local time zone."""
    talks = count.talks
    new, grown, known = talks["new"], talks["grown"], talks["known"]
    messages = counted(count.messages, "new message")
    lines = [f"{counted(new, 'new conversation')}, {grown} continued, {known} known; {messages}"]
    if count.last:
        lines.append(f"of {local_time(count.first)} to {local_time(count.last)}")
    if talks["empty"]:
        lines.append(f"{counted(talks['empty'], 'conversation')} without any text")
    if count.undated:
        lines.append(f"{counted(count.undated, 'conversation')} without a date, kept without one")
    lines += sorted(count.assumed)
    lines += [f"{counted(n, 'message')} {why}: left out" for why, n in sorted(count.left.items())]
    if count.skipped:
        lines.append(f"{len(count.skipped)} could not be read; the rest is imported:")
    lines += [
        f"  {harmless(' '.join(one.where.split()))[:80]}: {one.why}"
        for one in count.skipped[:SHOWN]
    ]
    if len(count.skipped) > SHOWN:
        lines.append(f"  and {len(count.skipped) - SHOWN} more")
    return lines


def must_be_stopped(config: Config) -> None:
    """Check that the bot is stopped, before a long read.

    Raises:
        StorageBusy: it is running.
    """
    if config.storage.url is None and config.storage.folder.exists():
        with DataDirLock(config.storage.folder):
            pass


@asynccontextmanager
async def looking(config: Config) -> AsyncGenerator[Database | None]:
    """The database, or None if there is none yet."""
    if config.storage.url is None and not (config.storage.folder / DATABASE_NAME).exists():
        yield None
        return
    async with opened_database(config) as database:
        yield database


async def _snapshot(database: Database | None, config: Config) -> PolicySnapshot:
    if database is None:
        return snapshot_of(None, config)
    return await database.read(lambda tx: snapshot_of(tx, config))


Work = Callable[[Database | None, NoteStore], Awaitable[T]]
"""Looks at what an import comes to, or does it; without a database there is nothing there yet."""


async def _rehearse(config: Config, work: Work[T]) -> T:
    """Return what an import would come to."""
    async with looking(config) as database, visiting(config) as shared:
        return await work(database, store_of(config, system_clock, shared))


async def _carry_out(config: Config, work: Work[T]) -> T:
    """Import, and say that what was imported stays if the database fails on the way."""
    async with storing.opened(config, system_clock) as target:
        try:
            return await work(target.database, target.notes)
        except StorageError as exc:
            raise StorageError(
                f"{exc} What was imported so far stays; run the same command again for the rest."
            ) from exc


def _written(notes: Sequence[Brought | Skipped]) -> list[str]:
    """Describe which notes are written, and which are not."""
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
        bool, typer.Option("--mine", help="Take transcripts without an owner as yours.")
    ] = False,
    config: ConfigOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    quiet: QuietOption = False,
) -> None:
    """Import notes, conversations, people and settings from OpenClaw, which is not changed."""
    loaded = load(config, quiet=True).config
    if not dry_run:
        must_be_stopped(loaded)
    found = home.look(folder.expanduser())
    if found.workspace is not None and found.workspace.resolve() == loaded.workspace.resolve():
        typer.echo("This bot already uses these notes, so they stay as they are.")
        found = replace(found, workspace=None)

    async def bring(
        database: Database | None, store: NoteStore, *, is_rehearsal: bool = False
    ) -> Report:
        snapshot = await _snapshot(database, loaded)
        what = "Reading" if is_rehearsal else "Importing"
        with progress(what, unit="conversations", quiet=quiet) as bar:
            move = Move(
                found, snapshot, loaded.storage.folder, store, mine, system_clock(), bar.advance
            )
            return await move.run(database, is_rehearsal=is_rehearsal)

    report = asyncio.run(_rehearse(loaded, partial(bring, is_rehearsal=True)))
    for line in described(report):
        typer.echo(harmless(line))
    if is_wanted(report.is_nothing, yes=yes, dry_run=dry_run):
        done = asyncio.run(_carry_out(loaded, bring))
        typer.echo(
            f"Imported {counted(len(done.notes), 'note')}, "
            f"{counted(done.talks.messages, 'message')}, {_people(len(done.seats))}."
        )
        if done.settings:
            typer.echo(f"Read {loaded.storage.folder / PROPOSAL} for the settings.")


def described(report: Report) -> list[str]:
    """Describe what moving in from OpenClaw brings. Pure but for the local time zone."""
    lines = _written(report.notes)
    lines.append("Conversations:")
    lines += [f"  {line}" for line in told(report.talks)]
    for whose, count in sorted(report.whose.items()):
        lines.append(f"  {counted(count, 'conversation')} of {whose}{_hint(whose)}")
    if report.unclear:
        lines.append(
            f"  {counted(report.unclear, 'conversation')} that name nobody, left out: "
            "--mine makes them yours"
        )
    if report.work:
        lines.append(f"  {counted(report.work, 'run')} of tasks, hooks and helpers, left out")
    lines.append(f"People let in: {_people(len(report.seats))}")
    lines += [f"  {seat.channel}:{seat.sender}" for seat in report.seats[:SHOWN]]
    lines += _more(len(report.seats))
    if report.jobs:
        lines.append(f"Reminders and tasks: {len(report.jobs)}, which OpenClaw keeps running too")
        lines += [f"  {each.kind}: {' '.join(each.text.split())[:80]}" for each in report.jobs]
    if report.settings:
        lines.append(f"Settings: a proposal in {PROPOSAL}, which takes effect only if you copy it")
    left = [each for each in report.left if each not in report.talks.skipped]
    if left:
        lines.append("Not imported:")
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
