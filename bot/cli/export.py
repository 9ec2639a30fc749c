"""`confidant export`: everything of one person, to take along."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.arguments import ConfigOption, PersonArgument
from bot.cli.common import counted, load, opened_database
from bot.clock import system_clock
from bot.cluster.extra import visiting
from bot.config import Config
from bot.errors import ConfidantError
from bot.invocation import confidant
from bot.memory.files import SpaceFiles
from bot.memory.memory import store_of
from bot.portability.export import Exported, exporting, is_known, language_for, tell
from bot.portability.whose import Whose, find
from bot.storage import Transaction


def export(
    typed: PersonArgument,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The zip file to write.")],
    config: ConfigOption = None,
) -> None:
    """Write everything of one person into one file; the bot may run meanwhile. They are told."""
    loaded = load(config, quiet=True)
    target = target.expanduser()
    made, whose, is_told = asyncio.run(_export(loaded.config, typed, target))
    size = target.stat().st_size
    typer.echo(
        f"{target}: {size:,} bytes, {counted(made.conversations, 'conversation')} with "
        f"{counted(made.entries, 'entry', 'entries')}, {counted(made.in_rooms, 'message')} in "
        f"rooms, {counted(made.notes, 'note')}, {counted(made.files, 'file')} of {whose.identity}."
    )
    if made.left_out:
        typer.echo(
            f"Left out, as several people wrote in them: {made.left_out} of the direct "
            "conversations. Nothing tells whose words are whose."
        )
    typer.echo(
        "They are told in their chat as soon as the bot runs."
        if is_told
        else "They have no direct chat, so they are not told."
    )


async def _export(config: Config, typed: str, target: Path) -> tuple[Exported, Whose, bool]:
    now = system_clock()
    async with opened_database(config) as database:
        with exporting(target, now) as into:

            def work(tx: Transaction) -> tuple[Whose, str, Exported, bool]:
                whose = find(tx, config, typed)
                language = language_for(tx, whose, config.agent.language)
                known = is_known(tx, whose)
                return whose, language, into.database(tx, whose, language), known

            whose, language, found, known = await database.read(work)
            async with visiting(config) as shared:
                notes = await into.notes(whose, SpaceFiles(store_of(config, system_clock, shared)))
            found = replace(found, notes=notes)
            if not known and not (notes or found.in_rooms or found.files):
                raise ConfidantError(
                    f"Nothing is kept of {whose.identity}. "
                    f"`{confidant('pairing list')}` shows who was let in."
                )
            into.readme(whose, language, found)
        is_told = await database.write(lambda tx: tell(tx, whose, language, now))
    return found, whose, is_told
