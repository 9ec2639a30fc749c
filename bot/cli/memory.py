"""`confidant memory`: the owner's memory, from the command line, also while the bot runs."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from bot.cli.common import load, local_time, opened_database, reading
from bot.cli.main import ConfigOption, NotesFolder, QuietOption, Words, YesOption
from bot.cli.progress import progress
from bot.clock import system_clock
from bot.cluster.extra import visiting
from bot.config import Config, Settings
from bot.delivery import outbox
from bot.errors import ConfidantError, NotVisible, StorageBusy
from bot.i18n import text
from bot.invocation import confidant
from bot.memory import exchange, markdown
from bot.memory.exchange import Change, ExchangeError
from bot.memory.index import MemoryIndex
from bot.memory.memory import (
    OWNER_VIEW,
    Forgetter,
    Forgotten,
    Memory,
    Preview,
    is_note,
    store_of,
)
from bot.memory.note_store import NoteStore
from bot.memory.search import Findings
from bot.sessions.browsing import by_id
from bot.settings import Loaded
from bot.storage import Transaction
from bot.storage.files import DataDirLock
from bot.unicode import harmless
from bot.views.memory import counted, went, where_found, words_found, would_go

T = TypeVar("T")

MAX_PASSAGES = 50  # of one search
LOOK_SECONDS = 0.2  # between two updates of the progress


def status(config: ConfigOption = None) -> None:
    """Show what is in the index, how it is searched, and any problems."""
    found = _with_memory(load(config, quiet=True), lambda memory: memory.index.status())
    typer.echo(f"files      {found.files}")
    typer.echo(f"passages   {found.chunks}, and {found.documents} messages")
    typer.echo(f"search     {found.mode}{f' ({found.why})' if found.why else ''}")
    typer.echo(f"embedder   {found.provider} {found.model} {found.endpoint}".rstrip())
    typer.echo(f"last sync  {local_time(found.last_sync) if found.last_sync else 'never'}")
    for space, count in sorted(found.spaces.items()):
        typer.echo(f"space      {space}: {count} passages")
    for problem in (*found.degraded, *(f"{path}: {why}" for path, why in found.problems.items())):
        typer.echo(f"problem    {problem}")


def search(
    words: Words,
    config: ConfigOption = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=MAX_PASSAGES, help="Maximum number of results.")
    ] = (None),
) -> None:
    """Search the owner's memory by words and by meaning."""

    async def work(memory: Memory) -> Findings:
        await memory.warm_up()  # a search alone would not wait for the model to load
        view = replace(OWNER_VIEW, folders=tuple(loaded.config.memory.folders))
        return await memory.index.search(" ".join(words), view.partitions, limit)

    loaded = load(config, quiet=True)
    found = _with_memory(loaded, work)
    said = [hit.path for hit in found.hits if not is_note(hit)]
    in_sight = reading(loaded.config, lambda tx: by_id(tx, said)) if said else []
    shown = {entry.id for entry in in_sight}
    hits = [hit for hit in found.hits[:limit] if is_note(hit) or hit.path in shown]
    hits = [hit for hit in hits if not markdown.says_nothing(hit.snippet)]
    for hit in hits:
        typer.echo(f"{hit.score:.2f}  {where_found('en', hit, None)}")
        for line in words_found(hit):
            typer.echo(f"      {line}".rstrip())
    if not hits:
        typer.echo("Nothing was found.")
    typer.echo(f"searched by {found.mode}" + "".join(f"; {why}" for why in found.degraded))


def index(*, config: ConfigOption = None, quiet: QuietOption = False) -> None:
    """Update the index from the files now."""

    async def work(memory: Memory) -> tuple[int, int]:
        found = await memory.index.status()
        return found.files, found.chunks

    files, chunks = _with_memory(load(config, quiet=True), work, quiet=quiet)
    typer.echo(f"The index holds {chunks} passages of {files} files.")


def verify(config: ConfigOption = None) -> None:
    """Check embedder, index and files; exit status 1 if there is a problem."""

    async def work(memory: Memory) -> list[str]:
        await memory.warm_up()
        embeddings = await memory.index.probe_embeddings()
        typer.echo(f"embeddings  {'ok' if embeddings.ok else 'no'}: {embeddings.detail}")
        await memory.index.sync("verify")
        found = await memory.index.status()
        return [*found.degraded, *(f"{path}: {why}" for path, why in found.problems.items())]

    trouble = _with_memory(load(config, quiet=True), work)
    for problem in trouble:
        typer.echo(f"problem     {problem}")
    if trouble:
        raise typer.Exit(1)
    typer.echo("No problems found.")


def forget(words: Words, config: ConfigOption = None, *, yes: YesOption = False) -> None:
    """Remove these words from files, index and cache, and from searches of transcripts."""
    wanted = " ".join(words).strip()
    loaded = load(config, quiet=True)

    async def look(memory: Memory) -> Preview:
        async with opened_database(loaded.config) as database:
            return await Forgetter(memory, database).preview(OWNER_VIEW, wanted)

    found = _with_memory(loaded, look)
    if found.is_empty:
        typer.echo(text("en", "memory.nowhere"))
        return
    for spot in found.spots:
        typer.echo(f"{spot.path}:{spot.line}  {markdown.plain(' '.join(spot.text.split()))[:100]}")
    for line in counted("en", "would", would_go(found)):
        typer.echo(f"and {line}")
    if not yes:
        typer.confirm("Remove these entries, and hide the words from every search?", abort=True)

    async def work(memory: Memory) -> tuple[Forgotten, int]:
        # Nodes hear of it, and what they have read before they write no more.
        async with (
            opened_database(loaded.config) as database,
            Forgetter(memory, database).forgetting(OWNER_VIEW, wanted, system_clock()) as complete,
        ):

            def finish(tx: Transaction) -> tuple[Forgotten, int]:
                done = complete(tx)
                return done, outbox.withdraw(tx, done.keys, wanted, system_clock())

            return await database.write(finish)

    _tell(*_with_memory(loaded, work))
    if _is_running(loaded.config):
        typer.echo(
            "The bot is running and still has its open conversations in memory: restart it, or "
            "use /memory forget in the chat next time."
        )


def _tell(done: Forgotten, unsent: int) -> None:
    """Report what was removed where."""
    cleared = done.cleared
    for path, count in cleared.files:
        typer.echo(f"{path}: {count} {'entry' if count == 1 else 'entries'} removed")
    if cleared.is_indexed:
        typer.echo("index: it cannot be written right now; the next sync updates it")
    else:
        typer.echo(
            f"index: {cleared.chunks} passages removed, cache: {cleared.cached} vectors removed"
        )
    for line in counted("en", "did", went(done, unsent)):
        typer.echo(line)


def _is_running(config: Config) -> bool:
    if config.storage.url is not None:  # nodes are notified and drop what they hold
        return False
    try:
        with DataDirLock(config.storage.folder):
            return False
    except StorageBusy:
        return True


def _with_memory(
    loaded: Loaded, work: Callable[[Memory], Awaitable[T]], *, quiet: bool = False
) -> T:
    """Use the memory of a configuration without watching files, once its index is up to date.

    Raises:
        ConfidantError: the index cannot be used.
    """
    settings = loaded.config.memory.model_copy(update={"watch": False})
    config = loaded.config.model_copy(update={"memory": settings})

    async def once() -> T:
        async with visiting(config) as shared:
            memory = Memory.from_settings(Settings(config), system_clock, None, shared)
            await memory.open()
            try:
                await _sync(memory.index, quiet=quiet)
                return await work(memory)
            finally:
                await memory.close()

    try:
        return asyncio.run(once())
    except OSError as exc:
        raise ConfidantError(f"The memory cannot be used: {exc.strerror}.") from exc


async def _sync(index: MemoryIndex, *, quiet: bool) -> None:
    """Update the index and show the progress."""
    syncing = asyncio.create_task(index.sync("command line"))
    total = 0
    with progress("Indexing notes", unit="notes", quiet=quiet) as bar:
        while not (await asyncio.wait({syncing}, timeout=LOOK_SECONDS))[0]:
            total = max(total, index.left)
            if total:
                bar.at(total - index.left, total)


# `confidant memory pull`, `push` and `edit`: notes by hand, also where they are rows.

FALLBACK_EDITOR = "vi"


def pull(folder: NotesFolder, config: ConfigOption = None) -> None:
    """Copy your notes, the bot's own files and what is shared into a new folder."""
    count = _with_notes(load(config, quiet=True), lambda store: exchange.pull(store, folder))
    push = confidant("memory push")
    typer.echo(f"{count} notes copied to {folder}. `{push}` writes back what you edit.")


def push(folder: NotesFolder, config: ConfigOption = None, *, yes: YesOption = False) -> None:
    """Write back what was edited in a folder made by pull; exit status 1 if not all of it."""
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
            f"{harmless(path)} is not a note. Notes are MEMORY.md, USER.md, memory/….md, "
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
    """Use the notes of a configuration; a running bot notices changes."""

    async def once() -> T:
        async with visiting(loaded.config) as shared:
            store = store_of(loaded.config, system_clock, shared)
            return await asyncio.to_thread(work, store)

    return asyncio.run(once())


def _push_all(store: NoteStore, folder: Path, changes: Sequence[Change]) -> list[tuple[str, str]]:
    """Write each change; return its path, and why it was not written, or empty."""
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
    """Open a file in the editor, and wait for the editor to close.

    Raises:
        ExchangeError: the editor cannot be started, or failed.
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
