"""`confidant config`, `nodes` and `migrate`: the configuration, and the database nodes share."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import orjson
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from bot import settings
from bot.cli.common import counted, load, local_time
from bot.cli.main import ConfigOption, JsonOption
from bot.cluster import census
from bot.cluster.census import Census
from bot.cluster.extra import visiting
from bot.invocation import confidant
from bot.unicode import harmless


def check(config: ConfigOption = None) -> None:
    """Read the configuration and say what is wrong with it."""
    where = load(config).file or "defaults and environment only"
    typer.echo(f"The configuration is fine ({where}).")


def schema() -> None:
    """Print the JSON Schema of the configuration file."""
    model = settings.config_model(settings.installed_channels())
    typer.echo(orjson.dumps(settings.json_schema(model), option=orjson.OPT_INDENT_2).decode())


def show(config: ConfigOption = None) -> None:
    """Print every option in effect and where it comes from; secrets are masked."""
    typer.echo(settings.show(load(config)))


# `confidant nodes` and `migrate`: the database that nodes share.

ALONE = "This is a single machine with a storage folder: [storage] url names no PostgreSQL."
BY_ITSELF = "`{run}` upgrades its database when needed."
MIGRATED = "The tables are up to date."


def nodes(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the nodes that share the database, and what is waiting."""
    loaded = load(config, quiet=True).config

    async def look() -> Census | None:
        async with visiting(loaded) as shared:
            return None if shared is None else await shared.database.read(census.take)

    found = asyncio.run(look())
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
    """Create the tables of the shared database, or upgrade them to this version."""
    loaded = load(config, quiet=True).config

    async def is_shared() -> bool:
        async with visiting(loaded, migrates=True) as shared:
            return shared is not None

    by_itself = f"{ALONE} {BY_ITSELF.format(run=confidant('run'))}"
    typer.echo(MIGRATED if asyncio.run(is_shared()) else by_itself)


def _table(found: Census, timeout: float) -> Table:
    """A row for every node."""
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
            silent if node.silent < timeout * 1000 else f"{silent}: considered gone",
            # A node whose clock is behind sees the database's ahead of its own.
            f"{-node.facts.clock_ahead / 1000:+.1f} s",
            f"{node.facts.loop:.0f} ms",
            harmless(", ".join(node.owns)) or "-",
            str(node.lanes),
        )
    return table


def _waiting(found: Census) -> list[str]:
    """Describe what is waiting for any node."""
    if not found.nodes:
        return ["No node is running."]
    oldest = f", the oldest for {found.oldest_job / 1000:.1f} s" if found.jobs else ""
    left = f"{found.messages} messages are unanswered, {found.texts} unsent."
    lines = [f"{counted(found.jobs, 'turn')} waiting for a node{oldest}; {left}"]
    if found.unowned:
        lines.append(f"No node is connected to: {harmless(', '.join(found.unowned))}.")
    return lines
