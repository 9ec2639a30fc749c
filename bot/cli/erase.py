"""`confidant erase`: everything of one person, removed for good."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from bot.channel import reveal
from bot.cli.arguments import ConfigOption, YesOption
from bot.cli.common import load, opened_database
from bot.clock import system_clock
from bot.config import Config
from bot.errors import ConfidantError, StorageError
from bot.invocation import confidant
from bot.portability import erase as erasing
from bot.portability import places
from bot.portability.erase import Plan, named_in, remains
from bot.portability.whose import find
from bot.sessions.erasing import preview
from bot.storage import Transaction, backup_state, files
from bot.storage.files import DATABASE_NAME, DataDirLock
from bot.storage.sqlite import SqliteDatabase

# What a table holds, in words; of the others nobody has heard.
_HOLDS = {
    "sessions": "conversations",
    "entries": "entries of conversations",
    "artifacts": "pictures and long results of tools",
    "uploads": "parts of files that were sent",
    "inbox": "messages received of late",
    "outbox": "texts sent of late",
    "reminders": "reminders",
    "repeats": "reminders and tasks that come again",
    "note_versions": "earlier versions of notes",
    "claim_uses": "days on which notes were used",
    "pairing": "accounts that were let in, or ask",
    "blocks": "accounts that are blocked: they may ask again then",
    "links": "accounts that are joined",
    "page_people": "names on the page",
    "page_logins": "browsers that are let in",
    "push_subscriptions": "browsers that are told of messages",
    "usage_counts": "counts of what was used",
    "titles": "names of conversations",
    "zones": "time zones",
    "notes": "notes",
}


def erase(
    typed: Annotated[
        str | None, typer.Argument(metavar="PERSON", help="Such as telegram:42, or a linked name.")
    ] = None,
    config: ConfigOption = None,
    *,
    yes: YesOption = False,
    finish: Annotated[
        bool, typer.Option("--finish", help="Complete an erasing that was interrupted.")
    ] = False,
) -> None:
    """Remove everything of one person, for good. The bot must not run meanwhile.

    It says what that is, and asks twice.
    """
    loaded = load(config, quiet=True).config
    url = reveal(loaded.storage.url)
    if finish:
        if typed is not None:
            raise ConfidantError("--finish completes what was begun: name nobody.")
        if url:
            raise ConfidantError("On a server nobody is half erased: there is nothing to complete.")
        asyncio.run(_finish(loaded))
    elif typed is None:
        raise ConfidantError("Name the person to erase, or only --finish.")
    elif url:
        asyncio.run(_erase_on_server(loaded, url, typed, yes=yes))
    else:
        asyncio.run(_erase(loaded, typed, yes=yes))


async def _erase(config: Config, typed: str, *, yes: bool) -> None:
    folder = config.storage.folder
    if not (folder / DATABASE_NAME).exists():
        raise StorageError(f"There is no database in {folder}: nobody can be erased.")
    with DataDirLock(folder):
        files.must_not_be_erasing(folder)
        database = await SqliteDatabase.open(folder / DATABASE_NAME)
        try:
            plan, counts = await database.read(lambda tx: _look(tx, config, typed))
        finally:
            await database.close()
        notes = erasing.notes_of(config.workspace, plan)
        _ask(config, plan, [*counts, (notes, "files below their notes")], yes=yes)
        await erasing.erase(config, plan, system_clock, _step)
    await _tell(config, plan)


async def _finish(config: Config) -> None:
    folder = config.storage.folder
    with DataDirLock(folder):
        plan = erasing.begun(folder)
        if plan is None:
            raise ConfidantError(f"Nobody is half erased from {folder}. Nothing was changed.")
        await erasing.complete(config, plan, system_clock, _step)
    await _tell(config, plan)


async def _erase_on_server(config: Config, url: str, typed: str, *, yes: bool) -> None:
    async with places.server(url, config.storage.node_timeout) as place:
        plan, counts = await place.database.read(
            lambda tx: _look(tx, config, typed, on_server=True)
        )
        _ask(config, plan, counts, yes=yes)
        await erasing.erase_on_server(place.database, plan, system_clock)
    left = await asyncio.to_thread(erasing.write_over, reveal(config.storage.direct_url) or url)
    await _tell(config, plan)
    if left:
        typer.echo(
            f"On free pages of {len(left)} tables, which belong to another role, words may be left "
            "until the server writes over them: have their owner run VACUUM FULL."
        )
    typer.echo("The server's own backups and its log hold it for as long as those are kept.")


def _look(
    tx: Transaction, config: Config, typed: str, *, on_server: bool = False
) -> tuple[Plan, list[tuple[int, str]]]:
    """Who is meant, and what erasing them takes.

    Raises:
        ConfidantError: nobody is called like that, or it is the owner.
    """
    whose = find(tx, config, typed)
    plan = erasing.plan_of(tx, whose, system_clock())
    rows, said = preview(tx, whose.theirs, on_server=on_server)
    counts = [(count, _HOLDS[table]) for table, count in rows.items() if table in _HOLDS]
    in_rooms = "messages in rooms, with the answers to them; a mark stays in their place"
    return plan, [*counts, (said, in_rooms)]


def _ask(config: Config, plan: Plan, counts: list[tuple[int, str]], *, yes: bool) -> None:
    """Tell what erasing takes, and ask twice.

    Raises:
        ConfidantError: nothing is kept of them, or another name was typed.
    """
    if not any(count for count, _ in counts):
        raise ConfidantError(
            f"Nothing is kept of {plan.identity}. `{confidant('pairing list')}` shows who was let "
            "in."
        )
    typer.echo(
        f"Of {plan.identity} (also kept as {', '.join(plan.theirs.names)}) this goes, for good:"
    )
    for count, what in counts:
        if count:
            typer.echo(f"{count:>9}  {what}")
    typer.echo("and what is derived from it: index, cached vectors, copies of the database here.")
    if yes:
        return
    typer.confirm("Erase all of it? There is no way back", abort=True)
    if typer.prompt(f"Type {plan.identity} to erase it").strip() != plan.identity:
        raise ConfidantError("That is another name. Nothing was changed.")


async def _tell(config: Config, plan: Plan) -> None:
    """Say what came of it, what still holds them, and where they are still named."""
    async with opened_database(config) as database:
        state = await database.read(backup_state.read)
    typer.echo(
        f"{plan.identity} is erased. A mark of that stays, without the name: what an older backup "
        "holds of them goes again when it is restored here."
    )
    if left := remains(config, state.bot):
        typer.echo("These were made before, and still hold what they held:")
        for each in left:
            typer.echo(f"  {each}")
    else:
        typer.echo("No backup made before is known here; of copies of yours elsewhere I know none.")
    for where in named_in(config, plan.theirs.names):
        typer.echo(f"The configuration still names them: {where}.")


def _step(what: str) -> None:
    typer.echo(f"erasing: {what}", err=True)
