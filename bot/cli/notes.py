"""`confidant memory pull`, `push` and `edit`: notes by hand, also where they are rows."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from bot.cli.arguments import ConfigOption, NotesFolder, YesOption
from bot.cli.common import load
from bot.clock import system_clock
from bot.cluster.extra import visiting
from bot.errors import ConfidantError, NotVisible
from bot.invocation import confidant
from bot.memory import exchange
from bot.memory.exchange import Change, ExchangeError
from bot.memory.memory import store_of
from bot.memory.note_store import NoteStore
from bot.settings import Loaded
from bot.unicode import harmless

FALLBACK_EDITOR = "vi"

T = TypeVar("T")


def pull(folder: NotesFolder, config: ConfigOption = None) -> None:
    """Copy your notes, the bot's own files and what is shared into a new folder."""
    count = _with_notes(load(config, quiet=True), lambda store: exchange.pull(store, folder))
    push = confidant("memory push")
    typer.echo(f"{count} notes are in {folder}. `{push}` writes back what you edit.")


def push(folder: NotesFolder, config: ConfigOption = None, *, yes: YesOption = False) -> None:
    """Write back what was edited in a folder that pull made; exit status 1 if not all of it."""
    loaded = load(config, quiet=True)
    plan = _with_notes(loaded, lambda store: exchange.plan(store, folder))
    for change in plan.changes:
        typer.echo(harmless(change.diff()), nl=False)
    refused = list(plan.refused)
    for path, why in refused:
        typer.echo(f"{harmless(path)}: {why}", err=True)
    if not plan.changes:
        typer.echo("There is nothing to write.")
    elif not yes:
        typer.confirm(f"Write {len(plan.changes)} notes?", abort=True)
    done = _with_notes(loaded, lambda store: _push_all(store, folder, plan.changes))
    for path, why in done:
        typer.echo(f"{path}: {why}" if why else f"{path}: written", err=bool(why))
    if refused or any(why for _, why in done):
        raise typer.Exit(1)


def edit(
    path: Annotated[str, typer.Argument(help="The note, such as MEMORY.md or memory/trip.md.")],
    config: ConfigOption = None,
) -> None:
    """Edit a note in $VISUAL or $EDITOR."""
    loaded = load(config, quiet=True)
    try:
        before = _with_notes(loaded, lambda store: exchange.text_of(store, path)) or ""
    except NotVisible as exc:
        raise ExchangeError(
            f"{harmless(path)} is no name of a note. Notes are MEMORY.md, USER.md, memory/….md, "
            f"shared/….md and the bot's own files: {', '.join(exchange.OWN_FILES)}."
        ) from exc
    name = path.rsplit("/", 1)[-1]
    folder = Path(tempfile.mkdtemp(prefix="confidant-"))  # only this user can look into it
    file = folder / name
    file.write_bytes(before.encode())
    try:
        _edit(file)
        change = Change(path, before, exchange.checked(name, file.read_bytes()))
        if change.after != before:
            _with_notes(loaded, lambda store: exchange.write(store, change))
    except (ConfidantError, OSError) as exc:
        if not file.exists() or file.read_bytes() == before.encode():
            _remove(folder)
            raise
        raise ExchangeError(f"{exc} Your text is kept in {file}.") from exc
    _remove(folder)
    typer.echo(f"{path}: written" if change.after != before else "Nothing was changed.")


def _with_notes(loaded: Loaded, work: Callable[[NoteStore], T]) -> T:
    """Use the notes of a configuration; a bot that runs sees what is changed."""

    async def once() -> T:
        async with visiting(loaded.config) as shared:
            store = store_of(loaded.config, system_clock, shared)
            return await asyncio.to_thread(work, store)

    return asyncio.run(once())


def _push_all(store: NoteStore, folder: Path, changes: Sequence[Change]) -> list[tuple[str, str]]:
    """Write changes, each for itself; the path of each, and why it was not written."""
    done: list[tuple[str, str]] = []
    for change in changes:
        try:
            exchange.push(store, folder, change)
        except ExchangeError as exc:
            done.append((change.path, f"not written: {exc}"))
        else:
            done.append((change.path, ""))
    return done


def _edit(file: Path) -> None:
    """Let a person edit a file, until the editor ends.

    Raises:
        ExchangeError: the editor cannot be started, or says that something went wrong.
    """
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or FALLBACK_EDITOR
    try:
        # The person's own editor, with what they gave it.
        ended = subprocess.run([*shlex.split(named), file], check=False).returncode  # noqa: S603
    except (OSError, ValueError) as exc:
        raise ExchangeError(
            f"The editor {named!r} cannot be started: set $EDITOR. Nothing was changed."
        ) from exc
    if ended:
        raise ExchangeError(f"The editor ended with status {ended}. Nothing was changed.")


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
