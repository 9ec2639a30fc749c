"""`confidant login`, `export` and `erase`: let one person in, export them, or erase them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from bot.channel import PAGE_OWNER, reveal
from bot.cli.common import counted, load, opened_database, writing
from bot.cli.main import ConfigOption, PersonArgument, YesOption
from bot.clock import system_clock
from bot.cluster.extra import visiting
from bot.config import Config
from bot.errors import ConfidantError, StorageError
from bot.gateway.admission import read_books
from bot.identity import ConversationResolver, MessageOrigin, Policy
from bot.identity.conversation import local_zone
from bot.invocation import confidant
from bot.memory.memory import store_of
from bot.memory.notes import SpaceFiles
from bot.portability import person as erasing
from bot.portability import places
from bot.portability.person import (
    DataSubject,
    ErasurePlan,
    Exported,
    exporting,
    find,
    is_known,
    language_for,
    named_in,
    remains,
    tell,
)
from bot.sessions import page_logins
from bot.sessions.erasing import preview
from bot.sessions.page_logins import Invited
from bot.storage import Transaction, backup_state, files
from bot.storage.files import DATABASE_NAME, DataDirLock, served
from bot.storage.sqlite import SqliteDatabase

# `confidant login`: a link that opens the page.


def invite(
    name: Annotated[str, typer.Argument(metavar="NAME", help='Who it is for; "owner" is you.')],
    config: ConfigOption = None,
) -> None:
    """Print a link that opens the page for NAME, once; "owner" is you."""
    loaded = load(config, quiet=True)
    dashboard, wanted = loaded.config.dashboard, name.strip().lower()
    if not dashboard.has_token:
        raise ConfidantError(
            "Without a token, anyone who can open the page is its owner, and nobody logs in. "
            "Set CONFIDANT_DASHBOARD__TOKEN first."
        )
    if wanted != PAGE_OWNER and not page_logins.is_name(wanted):
        raise ConfidantError("A name has up to 32 small letters a to z, digits and hyphens.")
    url = _address(loaded.config)
    key, now = page_logins.new_key(), system_clock()

    def work(tx: Transaction) -> Invited:
        may_talk = partial(_may_talk, loaded.config, tx)
        return page_logins.invite(tx, wanted, key, now, language="en", may_talk=may_talk)

    match writing(loaded.config, work):
        case "too_many":
            raise ConfidantError("There are too many people already, so no link was made.")
        case "not_let_in":
            raise ConfidantError(
                f"{wanted} came from a chat where they may no longer talk to the bot, so a link "
                f"would be useless. `{confidant('pairing list')}` shows who is blocked or asks."
            )
        case "made":
            pass
    typer.echo(f"{url}/enter?key={key}")
    valid = "ten minutes" if wanted == PAGE_OWNER else "a day"
    typer.echo(f"It works once, within {valid}. Pass it on in private.", err=True)
    if not dashboard.public_url:
        typer.echo(
            "That address works on this machine only. Set the one that others use in [dashboard] "
            "allowed_origins.",
            err=True,
        )


def _address(config: Config) -> str:
    """The address of the page.

    Raises:
        ConfidantError: it gets its port when it starts, and is not running.
    """
    dashboard = config.dashboard
    if dashboard.allowed_origins or dashboard.port:
        return dashboard.public_url or f"http://127.0.0.1:{dashboard.port}"
    if (page := served(config.storage.folder)) is not None:
        return page.url.rstrip("/")
    raise ConfidantError(
        "With [dashboard] port 0 the page gets a new port at each start, and it is not running "
        f"now. Start `{confidant('run')}` and try again."
    )


def _may_talk(config: Config, tx: Transaction, origin: MessageOrigin) -> bool:
    """True if messages from there are answered."""
    policy = Policy.of(config, local_zone(config))
    return ConversationResolver(policy, read_books(tx)).of(origin).is_admitted


# `confidant erase`: everything about one person, removed for good.

# What each table holds; the others mean nothing to people.
_HOLDS = {
    "sessions": "conversations",
    "entries": "entries of conversations",
    "artifacts": "pictures and long results of tools",
    "uploads": "parts of uploaded files",
    "inbox": "recently received messages",
    "outbox": "recently sent messages",
    "reminders": "reminders",
    "repeats": "recurring reminders and tasks",
    "note_versions": "earlier versions of notes",
    "claim_uses": "days on which notes were used",
    "pairing": "approved accounts and requests",
    "blocks": "blocked accounts, which may ask again then",
    "links": "linked accounts",
    "page_people": "names on the page",
    "page_logins": "logged-in browsers",
    "api_keys": "keys of programs",
    "hooks": "webhooks",
    "push_subscriptions": "browsers that get notifications",
    "usage_counts": "usage counts",
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
        bool, typer.Option("--finish", help="Complete an erasure that was interrupted.")
    ] = False,
) -> None:
    """Remove everything about one person, for good. The bot must be stopped.

    It lists what that is, and asks twice.
    """
    loaded = load(config, quiet=True).config
    url = reveal(loaded.storage.url)
    if finish:
        if typed is not None:
            raise ConfidantError("--finish completes an interrupted erasure: name nobody.")
        if url:
            raise ConfidantError(
                "On a server an erasure is done whole or not at all: there is nothing to complete."
            )
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
        raise StorageError(f"There is no database in {folder}, so nobody can be erased.")
    with DataDirLock(folder):
        files.must_not_be_erasing(folder)
        async with await SqliteDatabase.open(folder / DATABASE_NAME) as database:
            plan, counts = await database.read(lambda tx: _look(tx, config, typed))
        notes = erasing.notes_of(config.workspace, plan)
        _ask(config, plan, [*counts, (notes, "files below their notes")], yes=yes)
        await erasing.erase(config, plan, system_clock, _step)
    await _tell(config, plan)


async def _finish(config: Config) -> None:
    folder = config.storage.folder
    with DataDirLock(folder):
        plan = erasing.erase_begun(folder)
        if plan is None:
            raise ConfidantError(f"No erasure from {folder} was interrupted. Nothing was changed.")
        await erasing.complete_erase(config, plan, system_clock, _step)
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
            f"Words may remain on free pages of {len(left)} tables, which belong to another role, "
            "until the server overwrites them: have their owner run VACUUM FULL."
        )
    typer.echo("The server's own backups and log still hold it for as long as they are kept.")


def _look(
    tx: Transaction, config: Config, typed: str, *, on_server: bool = False
) -> tuple[ErasurePlan, list[tuple[int, str]]]:
    """Return who is meant, and what erasing them removes.

    Raises:
        ConfidantError: nobody is called like that, or it is the owner.
    """
    whose = find(tx, config, typed)
    plan = erasing.plan_of(tx, whose, system_clock())
    rows, said = preview(tx, whose.theirs, on_server=on_server)
    counts = [(count, _HOLDS[table]) for table, count in rows.items() if table in _HOLDS]
    in_rooms = "messages in rooms, with their answers; a mark stays in their place"
    return plan, [*counts, (said, in_rooms)]


def _ask(config: Config, plan: ErasurePlan, counts: list[tuple[int, str]], *, yes: bool) -> None:
    """Say what erasing removes, and ask twice.

    Raises:
        ConfidantError: nothing is kept of them, or another name was typed.
    """
    if not any(count for count, _ in counts):
        raise ConfidantError(
            f"Nothing is kept about {plan.identity}. `{confidant('pairing list')}` shows who was "
            "approved."
        )
    typer.echo(
        f"This would be removed for good, about {plan.identity} "
        f"(also kept as {', '.join(plan.theirs.names)}):"
    )
    for count, what in counts:
        if count:
            typer.echo(f"{count:>9}  {what}")
    typer.echo("and what is derived from it: index, cached vectors, local copies of the database.")
    if yes:
        return
    typer.confirm("Erase all of it? This cannot be undone", abort=True)
    if typer.prompt(f"Type {plan.identity} to confirm").strip() != plan.identity:
        raise ConfidantError("That is a different name. Nothing was changed.")


async def _tell(config: Config, plan: ErasurePlan) -> None:
    """Report the erasure, which backups still hold them, and where they are still named."""
    async with opened_database(config) as database:
        state = await database.read(backup_state.read)
    typer.echo(
        f"{plan.identity} is erased. A mark without the name stays, so that restoring an older "
        "backup here erases them again."
    )
    if left := remains(config, state.bot):
        typer.echo("These backups are older and still hold their data:")
        for each in left:
            typer.echo(f"  {each}")
    else:
        typer.echo("No older backup is known here; the bot cannot know of copies elsewhere.")
    for where in named_in(config, plan.theirs.names):
        typer.echo(f"The configuration still names them: {where}.")


def _step(what: str) -> None:
    typer.echo(f"erasing: {what}", err=True)


# `confidant export`: everything about one person, as a file for them.


def export(
    typed: PersonArgument,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The zip file to write.")],
    config: ConfigOption = None,
) -> None:
    """Write everything about one person into a file and tell them. The bot may be running."""
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
            f"Left out: {made.left_out} direct conversations that several people wrote in, because "
            "it is not known whose words are whose."
        )
    typer.echo(
        "They will be told in their chat when the bot runs."
        if is_told
        else "They have no direct chat, so they are not told."
    )


async def _export(config: Config, typed: str, target: Path) -> tuple[Exported, DataSubject, bool]:
    now = system_clock()
    async with opened_database(config) as database:
        with exporting(target, now) as into:

            def work(tx: Transaction) -> tuple[DataSubject, str, Exported, bool]:
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
                    f"Nothing is kept about {whose.identity}. "
                    f"`{confidant('pairing list')}` shows who was approved."
                )
            into.readme(whose, language, found)
        is_told = await database.write(lambda tx: tell(tx, whose, language, now))
    return found, whose, is_told
