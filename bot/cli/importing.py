"""`confidant import chatgpt` and `import claude`, and what moving in from anywhere shares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import typer

from bot.cli.arguments import (
    ConfigOption,
    DryRunOption,
    ExportFile,
    PersonOption,
    QuietOption,
    YesOption,
)
from bot.cli.common import counted, load, local_time, opened_database
from bot.cli.progress import BYTES, progress
from bot.clock import system_clock
from bot.config import Config
from bot.errors import StorageError
from bot.identity import routing
from bot.importing import exports, storing
from bot.importing.exports import Export
from bot.importing.storing import Count, Owner
from bot.portability.whose import named, snapshot_of
from bot.sessions.imported import NAMES, Source
from bot.storage import Database
from bot.storage.files import DATABASE_NAME, DataDirLock
from bot.unicode import harmless

SHOWN = 20  # of what could not be read


def chats(
    context: typer.Context,
    path: ExportFile,
    *,
    person: PersonOption = "owner",
    config: ConfigOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bring the conversations of a data export; what is there already stays."""
    source = cast("Source", context.info_name)
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
    typer.echo(f"Brought {counted(done.messages, 'message')}. Search finds them from now on.")


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
    if count.left:
        lines.append(f"{counted(count.left, 'message')} without text, such as pictures: left out")
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
