"""`confidant login`, `export` and `erase`: one person let in, taken along, or removed for good."""

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
from bot.memory.files import SpaceFiles
from bot.memory.memory import store_of
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

# `confidant login`: a link that lets somebody in to the page.


def invite(
    name: Annotated[str, typer.Argument(metavar="NAME", help='Whoever it is for; "owner" is you.')],
    config: ConfigOption = None,
) -> None:
    """Print a link that lets NAME in to the page, once; "owner" is you."""
    loaded = load(config, quiet=True)
    dashboard, wanted = loaded.config.dashboard, name.strip().lower()
    if not dashboard.has_token:
        raise ConfidantError(
            "Without a token whoever can open the page is its owner, and nobody logs in. "
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
            raise ConfidantError("There are too many people already: nobody was let in.")
        case "not_let_in":
            raise ConfidantError(
                f"{wanted} came from a chat in which they may not talk to the bot now, so a link "
                f"would lead nowhere. `{confidant('pairing list')}` shows who is blocked or asks."
            )
        case "made":
            pass
    typer.echo(f"{url}/enter?key={key}")
    valid = "ten minutes" if wanted == PAGE_OWNER else "a day"
    typer.echo(f"It works once, within {valid}: pass it on in private.", err=True)
    if not dashboard.public_url:
        typer.echo(
            "That address is this machine's. Name the one that others use in [dashboard] "
            "allowed_origins.",
            err=True,
        )


def _address(config: Config) -> str:
    """Where the page is.

    Raises:
        ConfidantError: it gets its port at the start, and does not run.
    """
    dashboard = config.dashboard
    if dashboard.allowed_origins or dashboard.port:
        return dashboard.public_url or f"http://127.0.0.1:{dashboard.port}"
    if (page := served(config.storage.folder)) is not None:
        return page.url.rstrip("/")
    raise ConfidantError(
        "With [dashboard] port 0 the page has another port after each start, and it does not run "
        f"now. Start `{confidant('run')}`, and do this again while it runs."
    )


def _may_talk(config: Config, tx: Transaction, origin: MessageOrigin) -> bool:
    """True when whoever writes from there gets an answer."""
    policy = Policy.of(config, local_zone(config))
    return ConversationResolver(policy, read_books(tx)).of(origin).is_admitted


# `confidant erase`: everything of one person, removed for good.

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
    "api_keys": "keys of programs",
    "hooks": "webhooks",
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
            raise ConfidantError(f"Nobody is half erased from {folder}. Nothing was changed.")
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
            f"On free pages of {len(left)} tables, which belong to another role, words may be left "
            "until the server writes over them: have their owner run VACUUM FULL."
        )
    typer.echo("The server's own backups and its log hold it for as long as those are kept.")


def _look(
    tx: Transaction, config: Config, typed: str, *, on_server: bool = False
) -> tuple[ErasurePlan, list[tuple[int, str]]]:
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


def _ask(config: Config, plan: ErasurePlan, counts: list[tuple[int, str]], *, yes: bool) -> None:
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


async def _tell(config: Config, plan: ErasurePlan) -> None:
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


# `confidant export`: everything of one person, to take along.


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
                    f"Nothing is kept of {whose.identity}. "
                    f"`{confidant('pairing list')}` shows who was let in."
                )
            into.readme(whose, language, found)
        is_told = await database.write(lambda tx: tell(tx, whose, language, now))
    return found, whose, is_told
