"""`confidant import openclaw`: moving in from OpenClaw."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from bot.cli import importing
from bot.cli.arguments import ConfigOption, DryRunOption, QuietOption, YesOption
from bot.cli.common import counted, load
from bot.cli.importing import SHOWN
from bot.cli.progress import progress
from bot.clock import system_clock
from bot.cluster.extra import visiting
from bot.config import Config
from bot.errors import StorageError
from bot.importing import storing
from bot.importing.openclaw import home, proposal
from bot.importing.openclaw.home import Home
from bot.importing.openclaw.moving import OWNERS, ROOMS, Move, Report
from bot.memory.memory import store_of
from bot.memory.note_store import NoteStore
from bot.portability.whose import snapshot_of
from bot.storage import Database
from bot.unicode import harmless


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
        importing.must_be_stopped(loaded)
    found = home.look(folder.expanduser())
    if found.workspace is not None and found.workspace.resolve() == loaded.workspace.resolve():
        typer.echo("Its notes are those of this bot already, and stay as they are.")
        found = replace(found, workspace=None)
    moving = _Moving(loaded, found, is_mine=mine, quiet=quiet)
    report = asyncio.run(moving.rehearse())
    for line in described(report):
        typer.echo(harmless(line))
    if importing.is_wanted(report.is_nothing, yes=yes, dry_run=dry_run):
        done = asyncio.run(moving.bring())
        typer.echo(
            f"Brought {counted(len(done.notes), 'note')}, "
            f"{counted(done.talks.messages, 'message')}, {_people(len(done.seats))}."
        )
        if done.settings:
            typer.echo(f"Read {loaded.storage.folder / proposal.NAME} for the settings.")


@dataclass(frozen=True, slots=True)
class _Moving:
    """One move, looked at first and then done."""

    config: Config
    home: Home
    is_mine: bool
    quiet: bool

    async def rehearse(self) -> Report:
        """What it would come to."""
        async with importing.looking(self.config) as database, visiting(self.config) as shared:
            store = store_of(self.config, system_clock, shared)
            return await self._run("Reading", database, store, is_rehearsal=True)

    async def bring(self) -> Report:
        """Do it."""
        async with storing.opened(self.config, system_clock) as target:
            try:
                return await self._run(
                    "Importing", target.database, target.notes, is_rehearsal=False
                )
            except StorageError as exc:
                raise importing.unfinished(exc) from exc

    async def _run(
        self, what: str, database: Database | None, store: NoteStore, *, is_rehearsal: bool
    ) -> Report:
        config = self.config
        if database is None:
            snapshot = snapshot_of(None, config)
        else:
            snapshot = await database.read(lambda tx: snapshot_of(tx, config))
        with progress(what, unit="conversations", quiet=self.quiet) as bar:
            move = Move(
                self.home,
                snapshot,
                config.storage.folder,
                store,
                self.is_mine,
                system_clock(),
                bar.advance,
            )
            return await move.run(database, is_rehearsal=is_rehearsal)


def described(report: Report) -> list[str]:
    """What moving in comes to, in words. Pure but for the clock's zone."""
    lines = [f"Notes: {counted(len(report.notes), 'note')} to write, marked as imported"]
    for note in report.notes[:SHOWN]:
        how = "new" if note.is_new else "added to"
        lines.append(f"  {note.path}: {how}, {counted(note.pieces, 'piece')}")
    lines += _more(len(report.notes))
    lines.append("Conversations:")
    lines += [f"  {line}" for line in importing.told(report.talks)]
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
    if report.settings:
        lines.append(f"Settings: a proposal, {proposal.NAME}, which nothing reads by itself")
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
