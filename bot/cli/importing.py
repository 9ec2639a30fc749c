"""`confidant import`: moving in from other programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import typer

from bot.cli.common import load, local_time, opened_database
from bot.cli.progress import BYTES, progress
from bot.clock import system_clock
from bot.cluster.extra import visiting
from bot.config import Config
from bot.errors import ImportRefused, StorageError
from bot.identity import routing
from bot.importing import exports, storing
from bot.importing.exports import Export
from bot.importing.openclaw import home, moving, proposal
from bot.importing.storing import Count, Owner
from bot.memory.memory import store_of
from bot.memory.note_store import NoteStore
from bot.person.whose import named, snapshot_of
from bot.sessions.imported import NAMES, Source
from bot.storage import Database
from bot.storage.files import DATABASE_NAME, DataDirLock
from bot.unicode import harmless

SHOWN = 20  # of what could not be read


def chats(
    source: Source,
    path: Path,
    person: str,
    config: Path | None,
    *,
    yes: bool,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Bring the conversations of a data export."""
    loaded = load(config, quiet=True).config
    if not dry_run:
        must_be_stopped(loaded)
    export = exports.look(path.expanduser(), source)
    found, identity = asyncio.run(_rehearse(loaded, export, person, quiet=quiet))
    typer.echo(f"{NAMES[source]}, for {'the owner' if identity == routing.OWNER else identity}:")
    for line in told(found):
        typer.echo(f"  {line}")
    if not is_wanted(found.is_nothing, yes=yes, dry_run=dry_run):
        return
    done = asyncio.run(_bring(loaded, export, identity, quiet=quiet))
    typer.echo(f"Brought {_counted(done.messages, 'message')}. Search finds them from now on.")


def openclaw(
    folder: Path, config: Path | None, *, mine: bool, yes: bool, dry_run: bool, quiet: bool
) -> None:
    """Bring what is in a folder of OpenClaw's."""
    loaded = load(config, quiet=True).config
    if not dry_run:
        must_be_stopped(loaded)
    found = home.look(folder.expanduser())
    if found.workspace is not None and found.workspace.resolve() == loaded.workspace.resolve():
        raise ImportRefused(
            f"{found.workspace} is the workspace of this bot already, so its notes are in use as "
            "they are. Nothing was changed."
        )

    async def rehearse() -> moving.Report:
        async with looking(loaded) as database, visiting(loaded) as shared:
            store = store_of(loaded, system_clock, shared)
            return await _moved(loaded, found, database, store, is_rehearsal=True)

    async def bring() -> moving.Report:
        async with storing.opened(loaded, system_clock) as target:
            try:
                return await _moved(
                    loaded, found, target.database, target.notes, is_rehearsal=False
                )
            except StorageError as exc:
                raise unfinished(exc) from exc

    async def _moved(
        loaded: Config,
        found: home.Home,
        database: Database | None,
        store: NoteStore,
        *,
        is_rehearsal: bool,
    ) -> moving.Report:
        snapshot = (
            snapshot_of(None, loaded)
            if database is None
            else await database.read(lambda tx: snapshot_of(tx, loaded))
        )
        what = "Reading" if is_rehearsal else "Importing"
        with progress(what, unit="conversations", quiet=quiet) as bar:
            move = moving.Move(
                found, snapshot, loaded.storage.folder, store, mine, system_clock(), bar.advance
            )
            return await move.run(database, is_rehearsal=is_rehearsal)

    report = asyncio.run(rehearse())
    for line in described(report):
        typer.echo(harmless(line))
    if is_wanted(report.is_nothing, yes=yes, dry_run=dry_run):
        done = asyncio.run(bring())
        typer.echo(
            f"Brought {_counted(len(done.notes), 'note')}, "
            f"{_counted(done.talks.messages, 'message')}, {_people(len(done.seats))}."
        )
        if done.settings:
            typer.echo(f"Read {loaded.storage.folder / proposal.NAME} for the settings.")


def described(report: moving.Report) -> list[str]:
    """What moving in from OpenClaw comes to, in words. Pure but for the clock's zone."""
    lines = [f"Notes: {_counted(len(report.notes), 'note')} to write, marked as imported"]
    for note in report.notes[:SHOWN]:
        how = "new" if note.is_new else "added to"
        lines.append(f"  {note.path}: {how}, {_counted(note.pieces, 'piece')}")
    lines += _more(len(report.notes))
    lines.append("Conversations:")
    lines += [f"  {line}" for line in told(report.talks)]
    for whose, count in sorted(report.whose.items()):
        lines.append(f"  {_counted(count, 'conversation')} of {whose}{_hint(whose)}")
    if report.unclear:
        lines.append(
            f"  {_counted(report.unclear, 'conversation')} of which nothing says whose they are, "
            "left out: --mine makes them yours"
        )
    if report.work:
        lines.append(f"  {_counted(report.work, 'run')} of tasks, hooks and helpers, left out")
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
    if whose in {"you", "rooms"}:
        return ""
    return f' (if that is you, put owner = ["{whose}"] into [session] first)'


def _more(count: int) -> list[str]:
    return [f"  and {count - SHOWN} more"] if count > SHOWN else []


def _people(count: int) -> str:
    return "nobody" if not count else "1 person" if count == 1 else f"{count} people"


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
    messages = _counted(count.messages, "new message")
    lines = [
        f"{_counted(new, 'new conversation')}, {grown} that went on, {known} known; {messages}"
    ]
    if count.last:
        lines.append(f"of {local_time(count.first)} to {local_time(count.last)}")
    if talks["empty"]:
        lines.append(f"{_counted(talks['empty'], 'conversation')} with nothing to read in it")
    if count.left:
        lines.append(f"{_counted(count.left, 'message')} without text, such as pictures: left out")
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


async def _rehearse(
    config: Config, export: Export, person: str, *, quiet: bool
) -> tuple[Count, str]:
    async with looking(config) as database:
        if database is None:
            snapshot = snapshot_of(None, config)
        else:
            snapshot = await database.read(lambda tx: snapshot_of(tx, config))
        owner = Owner(named(snapshot, person).identity)
        with progress("Reading", total=export.size, unit=BYTES, quiet=quiet) as bar:
            talks = export.talks(bar.advance)
            now = system_clock()
            found = await storing.bring(database, talks, lambda _: owner, now, is_rehearsal=True)
    return found, owner.person


async def _bring(config: Config, export: Export, identity: str, *, quiet: bool) -> Count:
    owner = Owner(identity)
    async with storing.opened(config, system_clock) as target:
        with progress("Importing", total=export.size, unit=BYTES, quiet=quiet) as bar:
            talks = export.talks(bar.advance)
            try:
                return await storing.bring(target.database, talks, lambda _: owner, system_clock())
            except StorageError as exc:
                raise unfinished(exc) from exc


def unfinished(exc: StorageError) -> StorageError:
    """What to say when the disk takes no more."""
    return StorageError(
        f"{exc} What was imported until then stays; the same command goes on with the rest."
    )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
