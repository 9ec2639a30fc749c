"""`confidant doctor`: can everything work as it is set up, and was everything answered?"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from bot import __version__
from bot.channel import DEFAULT_ACCOUNT, Repair
from bot.cli.common import load, local_time, opened_database
from bot.cli.main import ConfigOption, JsonOption
from bot.clock import system_clock
from bot.cluster import census
from bot.cluster.census import Census
from bot.cluster.extra import visiting
from bot.doctor import Setup, checks
from bot.doctor.checks import Found
from bot.errors import ConfidantError
from bot.health import worst
from bot.i18n import finding as said
from bot.i18n import language_of
from bot.invocation import confidant
from bot.settings import Loaded
from bot.settings.loader import ENV_FILE
from bot.unicode import harmless
from bot.views.findings import named, told

WELL, WRONG, BLIND = 0, 1, 2
"""Exit statuses: nothing is wrong (there may be hints), something is, it could not look."""

_MARKS = {"ok": "✓", "warning": "!", "error": "✗"}


@dataclass(frozen=True, slots=True)
class Mended:
    """A repair that was tried; `why` says what stood in its way, and is empty when it is done."""

    repair: Repair
    check: str
    why: str = ""


def check(
    channel: Annotated[
        str, typer.Argument(help="Only this channel; the beginning of its name is enough.")
    ] = "",
    *,
    config: ConfigOption = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Mend what can be mended, and say each before.")
    ] = False,
    try_models: Annotated[
        bool,
        typer.Option(
            "--try-models",
            help="Ask each model for a long answer, a tool call and a picture: it costs a little.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check how everything is set up, and that every message was answered and sent.

    Exit status 0 when nothing is wrong, 1 when something is, 2 when it could not look.
    """
    try:
        loaded = load(config, quiet=True)
        setup = replace(_setup(loaded), tries_models=try_models)
        found, mended = asyncio.run(_run(loaded, setup, channel, fix=fix, as_json=as_json))
    except ConfidantError as error:
        typer.echo(f"confidant: {error}", err=True)
        raise typer.Exit(BLIND) from error
    if as_json:
        typer.echo(orjson.dumps(_as_json(found, mended), option=orjson.OPT_INDENT_2).decode())
    if worst(each for part in found for each in part.findings) == "error":
        raise typer.Exit(WRONG)


async def _run(
    loaded: Loaded, setup: Setup, channel: str, *, fix: bool, as_json: bool
) -> tuple[Sequence[Found], Sequence[Mended]]:
    """Look, mend what can be, and look again as long as that changes something."""
    language = _language(loaded, os.environ)
    mended: list[Mended] = []
    while True:
        found: list[Found] = []
        async for part in checks.examine(setup, channel):
            found.append(part)
            if not as_json:
                _show(language, part)
        # What was mended may show what else there is; nothing is tried twice, so this ends.
        todo = _todo(found, mended) if fix else []
        if not todo:
            return found, mended
        mended += [await _mend(setup, each, language, is_told=not as_json) for each in todo]


def _setup(loaded: Loaded) -> Setup:
    cwd = loaded.sources.cwd if loaded.sources is not None else Path.cwd()
    places = (cwd / ENV_FILE, loaded.kept)
    return Setup(
        loaded.config,
        loaded.plugins,
        system_clock,
        partial(opened_database, loaded.config),
        tuple(sorted({each for each in places if each is not None})),
    )


def _language(loaded: Loaded, environ: Mapping[str, str]) -> str:
    """What the bot is told to speak, or this terminal does."""
    wanted = loaded.config.agent.language
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    spoken = next((environ[name] for name in names if environ.get(name)), "")
    return language_of(spoken if wanted == "auto" else wanted)


# --- mending --------------------------------------------------------------------------------------


def _todo(found: Sequence[Found], before: Sequence[Mended]) -> list[Mended]:
    """What can be mended and was not tried yet, each once."""
    tried = {(each.repair, each.check) for each in before}
    wanted = {(each.repair, part.check) for part in found for each in part.findings}
    return [
        Mended(repair, part.check)
        for repair in checks.REPAIRS
        for part in found
        if (repair, part.check) in wanted - tried
    ]


async def _mend(setup: Setup, todo: Mended, language: str, *, is_told: bool) -> Mended:
    """Say what will be done, and do it."""
    if is_told:
        typer.echo(f"→ {said(language, f'repair.{todo.repair}', name=todo.check)}")
    try:
        await checks.repair(setup, todo.repair, todo.check)
    except ConfidantError as error:
        if is_told:
            typer.echo(f"  ✗ {harmless(str(error))}")
        return Mended(todo.repair, todo.check, str(error))
    if is_told:
        typer.echo(f"  ✓ {said(language, 'repair.done')}")
    return todo


# --- telling --------------------------------------------------------------------------------------


def _show(language: str, part: Found) -> None:
    if part.findings:
        typer.echo(named(language, part.check))
    for each in part.findings:
        found = told(each, language)
        account = "" if found.account == DEFAULT_ACCOUNT else f"{named(language, found.account)}: "
        typer.echo(f"  {_MARKS[found.level]} {account}{harmless(found.text)}")
        if found.fix:
            typer.echo(f"    → {harmless(found.fix)}")


def _as_json(found: Sequence[Found], mended: Sequence[Mended]) -> dict[str, object]:
    """For machines: the same in English, with what programs know each by."""
    return {
        "version": __version__,
        "state": worst(each for part in found for each in part.findings),
        "mended": [asdict(each) for each in mended],
        "findings": [
            {
                "check": part.check,
                "id": each.id or f"{part.check}.other",
                "level": each.level,
                "account": each.account,
                "text": told(each, "en").text,
                "fix": told(each, "en").fix,
                "values": dict(each.values),
                "repair": each.repair,
            }
            for part in found
            for each in part.findings
        ],
    }


# `confidant nodes`: who is there, what each does, and what waits; `confidant migrate`.

ALONE = "This is one machine with a storage folder: [storage] url names no PostgreSQL to share."
BY_ITSELF = "Its database is brought to a new version when `{run}` opens it."
MIGRATED = "The tables are those of this version."


def show(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show which nodes share the database, what each does, and what waits."""
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
    """Make the tables of the database that nodes share, or bring them to this version."""
    loaded = load(config, quiet=True).config

    async def is_shared() -> bool:
        async with visiting(loaded, migrates=True) as shared:
            return shared is not None

    by_itself = f"{ALONE} {BY_ITSELF.format(run=confidant('run'))}"
    typer.echo(MIGRATED if asyncio.run(is_shared()) else by_itself)


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
