"""`confidant backup` and `confidant restore`."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import orjson
import typer

from bot import settings
from bot.channel import reveal
from bot.cli.common import counted, load, local_time
from bot.cli.main import ConfigOption, PassphraseFile, QuietOption
from bot.cli.progress import BYTES, Progress, progress
from bot.clock import system_clock
from bot.config import Config
from bot.errors import ArchiveError, ConfigError
from bot.portability import backup as making
from bot.portability import places, restore
from bot.portability import restore as restoring
from bot.portability.archive import WORKSPACE
from bot.portability.move import Advance, Move, Moved, MoveStep
from bot.portability.places import Home
from bot.portability.restore import Passphrase, RestoredBackup
from bot.storage import backup
from bot.storage.files import DATABASE_NAME, DataDirLock, must_not_be_erasing, must_not_be_restoring

# `confidant move`: everything between a storage folder and a PostgreSQL, either way.

_SCHEMES = ("postgresql://", "postgres://")


def move(
    to: Annotated[
        str,
        typer.Option("--to", help="postgresql://… or a folder; either must be empty."),
    ],
    *,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Move conversations and notes into a PostgreSQL or a folder, and compare the two.

    The source is not changed. After an interruption, run the same command again.
    """
    loaded = load(config, quiet=True)
    if "://" in to and not is_url(to):
        raise ConfigError("--to takes postgresql://… or a folder.")
    words = for_people if sys.stdout.isatty() else _for_machines
    with progress("Moving", unit="steps", quiet=quiet) as bar:

        def tell(told: MoveStep) -> None:
            bar.say(words(told))

        moved, name = asyncio.run(_move(loaded.config, to, tell, bar.at))
    for line in move_outcome(moved, name, loaded.config, to):
        typer.echo(line, err=words is _for_machines)


async def _move(
    config: Config, to: str, tell: Callable[[MoveStep], None], advance: Advance
) -> tuple[Moved, str]:
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(_source(config))
        target = await stack.enter_async_context(_target(config, to))
        moved = await Move(source, target, system_clock, tell, advance).run()
        return moved, target.name


def _source(config: Config) -> AbstractAsyncContextManager[Home]:
    """The store that the configuration names."""
    url = reveal(config.storage.url)
    if url:
        return places.server(url, config.storage.node_timeout)
    return places.folder(config.storage.folder, config.workspace)


def _target(config: Config, to: str) -> AbstractAsyncContextManager[Home]:
    if is_url(to):
        return places.server(to, config.storage.node_timeout)
    return places.folder(Path(to).expanduser())


def for_people(told: MoveStep) -> str:
    """One line for each table."""
    if told.state == "again":
        return f"{told.what:<14} changed since the last attempt; moved again"
    return f"{told.what:<14} {told.rows:>9}  moved, identical  {told.digest[:12]}"


def _for_machines(told: MoveStep) -> str:
    return orjson.dumps(asdict(told)).decode()


def move_outcome(moved: Moved, name: str, config: Config, to: str) -> list[str]:
    """Describe the result of a move and what to do next, without passwords."""
    if moved.was_done:
        return [f"Everything was already moved to {name}. Nothing was changed."]
    lines = [f"Everything is in {name} now and was compared. The source was not changed."]
    if moved.others:
        lines.append(f"Not moved because they are not notes: {counted(moved.others, 'file')}.")
    return [*lines, *how_to_run(to, config)]


def is_url(to: str) -> bool:
    """True for the URL of a PostgreSQL."""
    return to.startswith(_SCHEMES)


def how_to_run(to: str, config: Config) -> list[str]:
    """Say what to configure to run on the new storage, without passwords."""
    if is_url(to):
        return [
            "To run on it, put this into .env, with the password if there is one:",
            f"  CONFIDANT_STORAGE__URL={_without_password(to)}",
        ]
    folder = Path(to).expanduser().resolve()
    lines = ["To run on it, put this into confidant.toml, and remove [storage] url:"]
    lines.append(f'  [storage]\n  dir = "{folder}"')
    if config.memory.workspace is not None:
        lines.append(f'  [memory]\n  workspace = "{folder / places.WORKSPACE}"')
    return lines


def _without_password(url: str) -> str:
    """Mask the password in a URL."""
    return re.sub(r"(://[^:/@]*:)[^@]*(@)|(password=)[^&]*", r"\1\3…\2", url)


_LONGEST = 4_096  # characters of a passphrase


def make(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    *,
    config: ConfigOption = None,
    words: PassphraseFile = None,
    ask: Annotated[bool, typer.Option("--ask", help="Ask for a passphrase to encrypt it.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Write everything into one file. The bot may be running."""
    loaded = load(config, quiet=True)
    passphrase = _read(words) if words is not None else _asked_twice() if ask else None
    passphrase = passphrase or reveal(loaded.config.backup.passphrase) or None
    shown, target = settings.show(loaded), target.expanduser()
    with (
        progress("Copying", unit="steps", quiet=quiet) as copying,
        progress("Backing up", unit=BYTES, quiet=quiet) as bar,
    ):
        begin = partial(bar.at, 0)
        made = asyncio.run(
            making.make(
                *(loaded.config, target, passphrase, shown),
                clock=system_clock,
                begin=begin,
                advance=bar.advance,
                copying=copying.at,
            )
        )
    typer.echo(
        f"{made.path}: {made.size:,} bytes, "
        f"{counted(len(made.manifest.members), 'file')}, "
        f"{counted(made.manifest.rows['sessions'], 'conversation')}."
    )
    if made.left:
        typer.echo(f"Left out because they are not plain files (links and such): {made.left}.")
    if passphrase is None:
        typer.echo(
            "It is not encrypted: anyone with the file can read it. --ask sets a passphrase."
        )


def choose(
    archive: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A file made by backup.")
    ] = None,
    *,
    config: ConfigOption = None,
    words: PassphraseFile = None,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="Restore elsewhere: postgresql://… (an empty database) or a folder.",
        ),
    ] = "",
    check: Annotated[bool, typer.Option("--check", help="Only test the restore.")] = False,
    finish: Annotated[
        bool, typer.Option("--finish", help="Complete a restore that was interrupted.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Restore a backup; the current contents are kept aside.

    Everything is checked before anything is changed. The bot must be stopped.
    """
    if archive is None or finish:
        if archive is not None or not finish or check or to:
            raise ArchiveError("Name the backup to restore, or give only --finish.")
        _finish(config)
    elif _is_copy(archive) and not to:
        _put_back(archive.expanduser(), config, check=check)
    elif check:
        _check(archive, config, words, quiet=quiet)
    else:
        _restore(archive, config, words, to, quiet=quiet)


def _restore(
    archive: Path, config: Path | None, words: Path | None, to: str, *, quiet: bool
) -> None:
    """Restore a backup here or elsewhere."""
    loaded = load(config, quiet=True)
    if "://" in to and not is_url(to):
        raise ConfigError("--to takes postgresql://… or a folder.")
    with (
        progress("Copying", unit="steps", quiet=quiet) as copying,
        progress("Restoring", total=_size(archive), unit=BYTES, quiet=quiet) as bar,
    ):
        asked = _passphrase(archive, words, loaded.config)
        done = asyncio.run(_restored(archive.expanduser(), loaded.config, asked, to, bar, copying))
    if done is None:
        typer.echo(f"{archive.name} was already restored there. Nothing was changed.")
        return
    rows, made_at = done.manifest.rows, local_time(done.manifest.head.made_at)
    typer.echo(
        f"Everything is as it was on {made_at}: "
        f"{counted(rows['sessions'], 'conversation')}, "
        f"{counted(rows['entries'], 'entry', 'entries')}, "
        f"{counted(len(done.manifest.members), 'file')}."
    )
    if done.aside is not None:
        typer.echo(f"The previous contents are kept in {done.aside}.")
    if done.forgotten:
        typer.echo(
            f"What was forgotten since then stays forgotten ({counted(done.forgotten, 'place')})."
        )
    if done.kept:
        typer.echo(
            f"Left as they are: {counted(done.kept, 'note')} of people who had something "
            "forgotten since then."
        )
    if done.others:
        typer.echo(f"Not restored because they are not notes: {counted(done.others, 'file')}.")
    for line in how_to_run(to, loaded.config) if to else ():
        typer.echo(line)


async def _restored(
    archive: Path, config: Config, asked: Passphrase, to: str, *bars: Progress
) -> RestoredBackup | None:
    """Restore a backup; return None if it was already restored there.

    `bars` show how much of the file was read, and the progress of a server.
    """
    bar, copying = bars
    url = reveal(config.storage.url)

    since = restoring.forgotten_in(config, system_clock) if to else None
    if is_url(to) or (url and not to):
        return await restoring.to_server(
            *(archive, to or url, config, asked),
            clock=system_clock,
            since=since,
            advance=bar.advance,
            copying=copying.at,
        )
    elsewhere = to and await asyncio.to_thread(Path(to).expanduser)
    where = (
        (elsewhere, elsewhere / WORKSPACE)
        if elsewhere
        else (config.storage.folder, config.workspace)
    )
    return await restoring.restore(
        *(archive, *where, asked), clock=system_clock, since=since, advance=bar.advance
    )


def _is_copy(archive: Path) -> bool:
    """True for a plain copy of the database, as an upgrade leaves behind."""
    try:
        return backup.is_database(archive.expanduser())
    except OSError:  # reported when it is unpacked
        return False


def _put_back(copy: Path, config: Path | None, *, check: bool) -> None:
    """Put a copy of the database in place, or only check it."""
    folder = load(config, quiet=True).config.storage.folder
    if check:
        version = backup.usable_version(copy)
        typer.echo(f"{copy} is intact and has schema version {version}. Nothing was changed.")
        return
    with DataDirLock(folder):
        must_not_be_restoring(folder)
        must_not_be_erasing(folder)
        aside = backup.put_back(folder / DATABASE_NAME, copy, system_clock())
    typer.echo(f"The database is {copy} now. The next start applies what was said since then.")
    if aside is not None:
        typer.echo(f"The previous database is kept in {aside}.")


def _check(archive: Path, config: Path | None, words: Path | None, *, quiet: bool) -> None:
    """Restore a backup into a temporary folder."""
    loaded = load(config, quiet=True).config
    archive, folder = archive.expanduser(), loaded.storage.folder
    with progress("Checking", total=_size(archive), unit=BYTES, quiet=quiet) as bar:
        asked = _passphrase(archive, words, loaded)
        manifest = asyncio.run(restoring.rehearse(archive, folder, asked, bar.advance))
    typer.echo(
        f"{archive.name} can be restored: from {local_time(manifest.head.made_at)}, "
        f"{counted(manifest.rows['sessions'], 'conversation')}, "
        f"{counted(len(manifest.members), 'file')}, all identical. Nothing was changed."
    )


def _finish(config: Path | None) -> None:
    """Complete a restore that was interrupted."""
    folder = load(config, quiet=True).config.storage.folder
    aside = restore.finish(folder)
    kept = f" The previous contents are kept in {aside}." if aside is not None else ""
    typer.echo(f"The restore is complete.{kept}")


def _size(archive: Path) -> int | None:
    """The size of a backup; None if it cannot be read, which is reported on reading."""
    try:
        return archive.expanduser().stat().st_size
    except OSError:
        return None


def _passphrase(archive: Path, words: Path | None, config: Config) -> Passphrase:
    """Read the passphrase from the named file or the configuration; else ask for it."""

    def ask() -> str:
        if words is not None:
            return _read(words)
        if known := reveal(config.backup.passphrase):
            return known
        return str(typer.prompt(f"Passphrase of {archive.name}", hide_input=True, err=True))

    return ask


def _asked_twice() -> str:
    said = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True)
    return str(said)


def _read(path: Path) -> str:
    try:
        with path.expanduser().open(encoding="utf-8") as file:
            found = file.read(_LONGEST + 1)
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"The passphrase cannot be read from {path}.") from exc
    passphrase = found.rstrip("\r\n")
    if not passphrase or len(passphrase) > _LONGEST or "\n" in passphrase:
        raise ConfigError(f"{path} must hold a passphrase on one line, and nothing else.")
    return passphrase
