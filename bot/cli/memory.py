"""`confidant memory`: the owner's memory, from the command line, also while the bot runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from bot.cli.arguments import ConfigOption, QuietOption, Words, YesOption
from bot.cli.common import load, local_time, opened_database, with_database
from bot.cli.progress import progress
from bot.clock import system_clock
from bot.cluster.extra import visiting
from bot.config import Config, Settings
from bot.delivery import outbox
from bot.errors import ConfidantError, StorageBusy
from bot.i18n import text
from bot.memory import layout, markdown
from bot.memory.forgetter import Forgetter, Forgotten
from bot.memory.index import MemoryIndex
from bot.memory.memory import OWNER_VIEW, Memory
from bot.memory.search import Findings, Hit
from bot.sessions import forgetting
from bot.settings import Loaded
from bot.storage import Transaction
from bot.storage.files import DataDirLock

T = TypeVar("T")

MAX_PASSAGES = 50  # of one search
LOOK_SECONDS = 0.2  # between two looks how far an index is


def status(config: ConfigOption = None) -> None:
    """Show what is in the index, how it searches, and what is in trouble."""
    found = _with_memory(load(config, quiet=True), lambda memory: memory.index.status())
    typer.echo(f"files      {found.files}")
    typer.echo(f"passages   {found.chunks}, and {found.documents} messages")
    typer.echo(f"search     {found.mode}{f' ({found.why})' if found.why else ''}")
    typer.echo(f"embedder   {found.provider} {found.model} {found.endpoint}".rstrip())
    typer.echo(f"last sync  {local_time(found.last_sync) if found.last_sync else 'never'}")
    for space, count in sorted(found.spaces.items()):
        typer.echo(f"space      {space}: {count} passages")
    for problem in (*found.degraded, *(f"{path}: {why}" for path, why in found.problems.items())):
        typer.echo(f"trouble    {problem}")


def search(
    words: Words,
    config: ConfigOption = None,
    limit: Annotated[int | None, typer.Option(min=1, max=MAX_PASSAGES, help="Most passages.")] = (
        None
    ),
) -> None:
    """Find what the owner may see, by words and by meaning."""

    async def work(memory: Memory) -> Findings:
        await memory.warm_up()  # a search waits for the model only as long as for an answer
        return await memory.index.search(" ".join(words), OWNER_VIEW.partitions, limit)

    found = _with_memory(load(config, quiet=True), work)
    hits = [hit for hit in found.hits[:limit] if not markdown.says_nothing(hit.snippet)]
    for hit in hits:
        typer.echo(f"{hit.score:.2f}  {_where(hit)}")
        for line in markdown.readable(hit.snippet).strip().splitlines():
            typer.echo(f"      {line}".rstrip())
    if not hits:
        typer.echo("Nothing was found.")
    typer.echo(f"searched by {found.mode}" + "".join(f"; {why}" for why in found.degraded))


def index(*, config: ConfigOption = None, quiet: QuietOption = False) -> None:
    """Bring the index in step with the files now."""

    async def work(memory: Memory) -> tuple[int, int]:
        found = await memory.index.status()
        return found.files, found.chunks

    files, chunks = _with_memory(load(config, quiet=True), work, quiet=quiet)
    typer.echo(f"The index holds {chunks} passages of {files} files.")


def verify(config: ConfigOption = None) -> None:
    """Check vectors, embedder, index and files; exit status 1 when something is in trouble."""

    async def work(memory: Memory) -> list[str]:
        await memory.warm_up()
        vectors = await memory.index.probe_vectors()
        embeddings = await memory.index.probe_embeddings()
        typer.echo(f"vectors     {'ok' if vectors.ok else 'no'}: {vectors.detail}")
        typer.echo(f"embeddings  {'ok' if embeddings.ok else 'no'}: {embeddings.detail}")
        await memory.index.sync("verify")
        found = await memory.index.status()
        return [*found.degraded, *(f"{path}: {why}" for path, why in found.problems.items())]

    trouble = _with_memory(load(config, quiet=True), work)
    for problem in trouble:
        typer.echo(f"trouble     {problem}")
    if trouble:
        raise typer.Exit(1)
    typer.echo("All is well.")


def forget(words: Words, config: ConfigOption = None, *, yes: YesOption = False) -> None:
    """Remove what holds these words from files, index, cache and the search of transcripts."""
    wanted = " ".join(words).strip()
    loaded = load(config, quiet=True)
    spots = _with_memory(loaded, lambda memory: memory.find(OWNER_VIEW, wanted))
    mine = [spot for spot in spots if not spot.path.startswith("shared/")]
    found = with_database(
        loaded.config, lambda database: forgetting.find(database, OWNER_VIEW, wanted)
    )
    counts = {
        "messages of conversations": len(found.mentions),
        "long results of tools": len(found.results),
        "names of conversations": len(found.titles),
        "reminders or tasks, which will not come any more": found.planned,
    }
    if not mine and not any(counts.values()):
        typer.echo(text("en", "memory.nowhere"))
        return
    for spot in mine:
        typer.echo(f"{spot.path}:{spot.line}  {markdown.plain(' '.join(spot.text.split()))[:100]}")
    for what, count in counts.items():
        if count:
            typer.echo(f"and {count} {what}")
    if not yes:
        typer.confirm("Remove these entries, and let no search find the words again?", abort=True)

    async def work(memory: Memory) -> Forgotten:
        # Nodes hear of it, and what they have read before they write no more.
        async with (
            opened_database(loaded.config) as database,
            Forgetter(memory, database).forgetting(OWNER_VIEW, wanted, system_clock()) as complete,
        ):

            def finish(tx: Transaction) -> Forgotten:
                done = complete(tx)
                outbox.withdraw(tx, done.keys, wanted, system_clock())
                return done

            return await database.write(finish)

    _tell(_with_memory(loaded, work))
    if _is_running(loaded.config):
        typer.echo(
            "The bot is running and still has its open conversations in mind: start it again, "
            "or say /memory forget in the chat next time."
        )


def _tell(done: Forgotten) -> None:
    """Say what was removed where."""
    cleared, gone = done.cleared, done.gone
    for path, count in cleared.files:
        typer.echo(f"{path}: {count} {'entry' if count == 1 else 'entries'} removed")
    if cleared.is_indexed:
        typer.echo("index: it cannot be written just now; it follows with the next sync")
    else:
        typer.echo(
            f"index: {cleared.chunks} passages removed, cache: {cleared.cached} vectors removed"
        )
    typer.echo(
        f"conversations: {len(gone.mentions)} messages no longer found or shown, "
        f"{len(gone.prompts)} prompts cleared"
    )
    if gone.results:
        typer.echo(f"long results of tools: {gone.results} removed")
    if gone.planned:
        typer.echo(f"reminders and tasks: {gone.planned} cleared; none of them comes any more")
    if done.versions:
        typer.echo(f"earlier versions of notes: {done.versions} without it now")


def _is_running(config: Config) -> bool:
    if config.storage.url is not None:  # nodes hear of it, and look at what they have in mind
        return False
    try:
        with DataDirLock(config.storage.folder):
            return False
    except StorageBusy:
        return True


def _where(hit: Hit) -> str:
    """Where a passage stands, or when it was said."""
    if hit.path.endswith(layout.SUFFIX):
        return f"{layout.shown(hit.space, hit.path)}:{hit.start_line}-{hit.end_line}"
    return f"said {local_time(hit.at)}"


def _with_memory(
    loaded: Loaded, work: Callable[[Memory], Awaitable[T]], *, quiet: bool = False
) -> T:
    """Use the memory of a configuration without watching it, once its index is up to date.

    Raises:
        ConfidantError: the index cannot be used.
    """
    settings = loaded.config.memory.model_copy(update={"watch": False})
    config = loaded.config.model_copy(update={"memory": settings})

    async def once() -> T:
        async with visiting(config) as shared:
            memory = Memory.of(Settings(config), system_clock, None, shared)
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
    """Bring the index up to the notes, and show how far it is."""
    syncing = asyncio.create_task(index.sync("command line"))
    total = 0
    with progress("Indexing notes", unit="notes", quiet=quiet) as bar:
        while not (await asyncio.wait({syncing}, timeout=LOOK_SECONDS))[0]:
            total = max(total, index.left)
            if total:
                bar.at(total - index.left, total)
