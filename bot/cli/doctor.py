"""`confidant doctor`: check the setup, and that every message was answered."""

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

from bot import __version__
from bot.channel import DEFAULT_ACCOUNT, Repair
from bot.cli.common import load, opened_database
from bot.cli.main import ConfigOption, JsonOption
from bot.clock import system_clock
from bot.doctor import Setup, checks
from bot.doctor.checks import CheckResult
from bot.errors import ConfidantError
from bot.health import worst
from bot.i18n import finding as said
from bot.i18n import language_of
from bot.settings import Loaded
from bot.settings.loader import ENV_FILE
from bot.unicode import harmless
from bot.views.outcomes import named, told

WELL, WRONG, BLIND = 0, 1, 2
"""Exit statuses: no errors (maybe warnings), errors, could not check."""

_MARKS = {"ok": "✓", "warning": "!", "error": "✗"}


@dataclass(frozen=True, slots=True)
class RepairAttempt:
    """A repair that was tried; `why` says why it failed, and is empty if it worked."""

    repair: Repair
    check: str
    why: str = ""


def check(
    channel: Annotated[
        str, typer.Argument(help="Only this channel; the start of its name is enough.")
    ] = "",
    *,
    config: ConfigOption = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Fix what can be fixed, announcing each repair.")
    ] = False,
    try_models: Annotated[
        bool,
        typer.Option(
            "--try-models",
            help="Test each model with a long answer, a tool and a picture; costs a little.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the setup, and that every message was answered and sent.

    Exit status 0 if nothing is wrong, 1 if something is, 2 if it could not check.
    """
    try:
        loaded = load(config, quiet=True)
        setup = replace(_setup(loaded), tries_models=try_models)
        found, repaired = asyncio.run(_run(loaded, setup, channel, fix=fix, as_json=as_json))
    except ConfidantError as error:
        typer.echo(f"confidant: {error}", err=True)
        raise typer.Exit(BLIND) from error
    if as_json:
        typer.echo(orjson.dumps(_as_json(found, repaired), option=orjson.OPT_INDENT_2).decode())
    if worst(each for part in found for each in part.findings) == "error":
        raise typer.Exit(WRONG)


async def _run(
    loaded: Loaded, setup: Setup, channel: str, *, fix: bool, as_json: bool
) -> tuple[Sequence[CheckResult], Sequence[RepairAttempt]]:
    """Check, repair what can be repaired, and check again while that changes something."""
    language = _language(loaded, os.environ)
    repaired: list[RepairAttempt] = []
    while True:
        found: list[CheckResult] = []
        async for part in checks.examine(setup, channel):
            found.append(part)
            if not as_json:
                _show(language, part)
        # A repair may reveal more to repair; nothing is tried twice, so this ends.
        todo = _todo(found, repaired) if fix else []
        if not todo:
            return found, repaired
        repaired += [await _repair(setup, each, language, is_told=not as_json) for each in todo]


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
    """The configured language, or else the terminal's."""
    wanted = loaded.config.agent.language
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    spoken = next((environ[name] for name in names if environ.get(name)), "")
    return language_of(spoken if wanted == "auto" else wanted)


# --- repairs --------------------------------------------------------------------------------------


def _todo(found: Sequence[CheckResult], before: Sequence[RepairAttempt]) -> list[RepairAttempt]:
    """The repairs that were not tried yet, each once."""
    tried = {(each.repair, each.check) for each in before}
    wanted = {(each.repair, part.check) for part in found for each in part.findings}
    return [
        RepairAttempt(repair, part.check)
        for repair in checks.REPAIRS
        for part in found
        if (repair, part.check) in wanted - tried
    ]


async def _repair(
    setup: Setup, todo: RepairAttempt, language: str, *, is_told: bool
) -> RepairAttempt:
    """Announce a repair and do it."""
    if is_told:
        typer.echo(f"→ {said(language, f'repair.{todo.repair}', name=todo.check)}")
    try:
        await checks.repair(setup, todo.repair, todo.check)
    except ConfidantError as error:
        if is_told:
            typer.echo(f"  ✗ {harmless(str(error))}")
        return RepairAttempt(todo.repair, todo.check, str(error))
    if is_told:
        typer.echo(f"  ✓ {said(language, 'repair.done')}")
    return todo


# --- output --------------------------------------------------------------------------------------


def _show(language: str, part: CheckResult) -> None:
    if part.findings:
        typer.echo(named(language, part.check))
    for each in part.findings:
        found = told(each, language)
        account = "" if found.account == DEFAULT_ACCOUNT else f"{named(language, found.account)}: "
        typer.echo(f"  {_MARKS[found.level]} {account}{harmless(found.text)}")
        if found.fix:
            typer.echo(f"    → {harmless(found.fix)}")


def _as_json(found: Sequence[CheckResult], repaired: Sequence[RepairAttempt]) -> dict[str, object]:
    """The same for machines: in English, with the ids of findings."""
    return {
        "version": __version__,
        "state": worst(each for part in found for each in part.findings),
        "repaired": [asdict(each) for each in repaired],
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
