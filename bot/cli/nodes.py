"""`confidant nodes`: who is there, what each does, and what waits; `confidant migrate`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import orjson
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from bot.cli.arguments import ConfigOption, JsonOption
from bot.cli.common import load, local_time
from bot.cluster import census
from bot.cluster.census import Census
from bot.cluster.extra import visiting
from bot.config import Config
from bot.invocation import confidant
from bot.unicode import harmless

ALONE = "This is one machine with a storage folder: [storage] url names no PostgreSQL to share."
BY_ITSELF = "Its database is brought to a new version when `{run}` opens it."
MIGRATED = "The tables are those of this version."


def show(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show which nodes share the database, what each does, and what waits."""
    loaded = load(config, quiet=True).config
    found = asyncio.run(_look(loaded))
    if found is None:
        typer.echo("null" if as_json else ALONE)
        return
    if as_json:
        typer.echo(orjson.dumps(asdict(found), option=orjson.OPT_INDENT_2).decode())
        return
    console = Console()
    console.print(_table(found, loaded.storage.node_timeout))
    for line in _waiting(found):
        typer.echo(line)


def migrate(*, config: ConfigOption = None) -> None:
    """Make the tables of the database that nodes share, or bring them to this version."""
    loaded = load(config, quiet=True).config
    typer.echo(
        MIGRATED
        if asyncio.run(_migrate(loaded))
        else f"{ALONE} {BY_ITSELF.format(run=confidant('run'))}"
    )


async def _migrate(config: Config) -> bool:
    """Make what is missing; False without a database URL."""
    async with visiting(config, migrates=True) as shared:
        return shared is not None


async def _look(config: Config) -> Census | None:
    """Who is there; None without a database URL."""
    async with visiting(config) as shared:
        return None if shared is None else await shared.database.read(census.take)


def _table(found: Census, timeout: float) -> Table:
    """Every node in a row."""
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for name in ("node", "version", "since", "last sign", "clock", "loop", "owns"):
        table.add_column(name, overflow="fold")
    table.add_column("turns", justify="right")
    for node in found.nodes:
        silent = f"{node.silent / 1000:.1f} s ago"
        table.add_row(
            harmless(node.name),
            harmless(node.version),
            local_time(node.since),
            silent if node.silent < timeout * 1000 else f"{silent}: counts as gone",
            # A node whose clock is behind sees the database's ahead of its own.
            f"{-node.facts.clock_ahead / 1000:+.1f} s",
            f"{node.facts.loop:.0f} ms",
            harmless(", ".join(node.owns)) or "-",
            str(node.lanes),
        )
    return table


def _waiting(found: Census) -> list[str]:
    """What waits for any of them, in words."""
    if not found.nodes:
        return ["No node runs."]
    oldest = f", the first for {found.oldest_job / 1000:.1f} s" if found.jobs else ""
    left = f"{found.messages} messages are not answered yet, {found.texts} texts not sent."
    lines = [f"{found.jobs} turns wait to be taken up{oldest}; {left}"]
    if found.unowned:
        lines.append(f"Nobody listens for: {harmless(', '.join(found.unowned))}.")
    return lines
