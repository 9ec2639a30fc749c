"""`confidant`: the tree of commands, and how errors are told.

A command imports what it needs when it is called, so that help is there at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from bot import __version__
from bot.cli.help import lay_out
from bot.cli.progress import QuietOption
from bot.errors import ConfidantError
from bot.money import KEPT_DAYS, Heading

MAX_PASSAGES = 50  # of one search


def _group(about: str) -> typer.Typer:
    return typer.Typer(help=about, no_args_is_help=True)


cli = typer.Typer(
    name="confidant",
    help="A chat bot that never forgets you and never tells.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
of_pairing = _group("Let people in, and out again.")
of_sessions = _group("Look at conversations and take them along.")
of_memory = _group("Look into the owner's memory, and mend its index.")
of_config = _group("Check, explain and show the configuration.")
cli.add_typer(of_pairing, name="pairing")
cli.add_typer(of_sessions, name="sessions")
cli.add_typer(of_memory, name="memory")
cli.add_typer(of_config, name="config")
of_import = _group("Move in: bring what was said to other programs, and their notes.")
cli.add_typer(of_import, name="import")

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file; see config/confidant.toml.", dir_okay=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="For machines: one JSON value.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Words = Annotated[list[str], typer.Argument(help="The words.")]
NotesFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder.", file_okay=False)]


@cli.command()
def run(
    *,
    config: ConfigOption = None,
    log: Annotated[
        Literal["auto", "plain", "console", "json"] | None,
        typer.Option("--log", help="What the log looks like, instead of [log] format."),
    ] = None,
) -> None:
    """Run the bot: every channel that is configured, and the page."""
    from bot.cli import garbage

    garbage.hold()
    from bot.cli import serve

    serve.run(config, log)


@cli.command()
def chat(config: ConfigOption = None) -> None:
    """Chat in this terminal; with a running bot, join its page's conversation."""
    from bot.cli import serve

    serve.chat(config)


@cli.command()
def doctor(
    channel: Annotated[
        str, typer.Argument(help="Only this channel; the beginning of its name is enough.")
    ] = "",
    *,
    config: ConfigOption = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Mend what can be mended, and say each before.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check how everything is set up, and that every message was answered and sent.

    Exit status 0 when nothing is wrong, 1 when something is, 2 when it could not look.
    """
    from bot.cli import doctor

    doctor.check(channel, config, fix=fix, as_json=as_json)


@cli.command()
def nodes(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show which nodes share the database, what each does, and what waits."""
    from bot.cli import nodes

    nodes.show(config, as_json=as_json)


@cli.command()
def migrate(*, config: ConfigOption = None) -> None:
    """Make the tables of the database that nodes share, or bring them to this version."""
    from bot.cli import nodes

    nodes.migrate(config)


@cli.command()
def move(
    to: Annotated[
        str,
        typer.Option("--to", help="postgresql://… or a folder; empty, or one this was begun with."),
    ],
    *,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Move conversations and notes into a PostgreSQL, or into a folder, and compare them.

    Where they are now nothing is changed. After a kill or an error the same command goes on.
    """
    from bot.cli import move

    move.move(to, config, quiet=quiet)


PassphraseFile = Annotated[
    Path | None,
    typer.Option("--passphrase-file", help="A file with the passphrase.", dir_okay=False),
]


@cli.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    *,
    config: ConfigOption = None,
    passphrase_file: PassphraseFile = None,
    ask: Annotated[bool, typer.Option("--ask", help="Ask for a passphrase to seal it.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Write conversations, notes and all else into one file; the bot may run meanwhile."""
    from bot.cli import archives

    archives.make(file, config, passphrase_file, ask=ask, quiet=quiet)


@cli.command()
def restore(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A file that backup wrote.")
    ] = None,
    *,
    config: ConfigOption = None,
    passphrase_file: PassphraseFile = None,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="Elsewhere: postgresql://… of an empty database, or another folder."
        ),
    ] = "",
    check: Annotated[bool, typer.Option("--check", help="Only look whether it can be.")] = False,
    finish: Annotated[
        bool, typer.Option("--finish", help="Complete a restore that was interrupted.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Put what a backup holds in the place of what is there, which is kept aside.

    All of it is checked before anything is touched. The bot must not run meanwhile.
    """
    from bot.cli import archives

    archives.choose(
        *(file, config, passphrase_file), to=to, check=check, finish=finish, quiet=quiet
    )


ChannelArgument = Annotated[str, typer.Argument(metavar="CHANNEL", help="Such as telegram.")]
SenderArgument = Annotated[
    str, typer.Argument(metavar="SENDER", help="Their id there; `pairing list` shows it.")
]
PersonArgument = Annotated[
    str,
    typer.Argument(metavar="PERSON", help='Such as telegram:42, a linked name, or "owner".'),
]


@cli.command("export")
def export_person(
    person: PersonArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The zip file to write.")],
    config: ConfigOption = None,
) -> None:
    """Write everything of one person into one file; the bot may run meanwhile. They are told."""
    from bot.cli import export

    export.export(person, file, config)


@cli.command()
def erase(
    person: Annotated[
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
    from bot.cli import erase

    erase.erase(person, config, yes=yes, finish=finish)


@cli.command()
def usage(
    *,
    config: ConfigOption = None,
    by: Annotated[
        Heading | None, typer.Option("--by", help="One table; person, model and day without it.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=KEPT_DAYS, help="How many days back.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """Show how many tokens were used, by whom, and what they cost where that is known."""
    from bot.cli import usage

    usage.show(config, by, days, as_json=as_json)


@cli.command()
def login(
    name: Annotated[str, typer.Argument(metavar="NAME", help='Whoever it is for; "owner" is you.')],
    config: ConfigOption = None,
) -> None:
    """Print a link that lets NAME in to the page, once; "owner" is you."""
    from bot.cli import login

    login.invite(name, config)


@cli.command()
def reminders(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show what is due, when and for whom; the words of the owner's alone."""
    from bot.cli import reminders

    reminders.show(config, as_json=as_json)


@of_pairing.command("list")
def pairing_list(config: ConfigOption = None) -> None:
    """Show who asked, the newest first, and who was let in."""
    from bot.cli import pairing

    pairing.show(config)


@of_pairing.command()
def approve(
    channel: ChannelArgument,
    code: Annotated[str, typer.Argument(metavar="CODE", help="What they were given.")],
    me: Annotated[
        bool | None,
        typer.Option(
            "--me/--not-me",
            help="Whether it is another account of yours, with your memory; asked in a terminal.",
        ),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Let in whoever was given this code; they are told."""
    from bot.cli import pairing

    pairing.approve(channel, code, config, me=me)


@of_pairing.command()
def revoke(channel: ChannelArgument, sender: SenderArgument, config: ConfigOption = None) -> None:
    """Take a person's permission away again; SENDER is their id."""
    from bot.cli import pairing

    pairing.revoke(channel, sender, config)


@of_pairing.command()
def block(channel: ChannelArgument, sender: SenderArgument, config: ConfigOption = None) -> None:
    """Give somebody no answer and no code any more; SENDER is their id."""
    from bot.cli import pairing

    pairing.block(channel, sender, config)


@of_pairing.command()
def unblock(channel: ChannelArgument, sender: SenderArgument, config: ConfigOption = None) -> None:
    """Let somebody who was blocked ask again; SENDER is their id."""
    from bot.cli import pairing

    pairing.unblock(channel, sender, config)


@of_sessions.command("list")
def sessions_list(config: ConfigOption = None) -> None:
    """Show every conversation, newest first; * marks those that go on."""
    from bot.cli import sessions

    sessions.show_all(config)


@of_sessions.command("show")
def sessions_show(
    session_id: Annotated[str, typer.Argument(metavar="ID", help="As `sessions list` shows it.")],
    config: ConfigOption = None,
) -> None:
    """Show what was said in a conversation."""
    from bot.cli import sessions

    sessions.show(session_id, config)


@of_sessions.command()
def export(
    folder: Annotated[Path, typer.Argument(help="Where to; made if it is not there.")],
    config: ConfigOption = None,
) -> None:
    """Write every transcript and an index of them, sessions.json, into a folder."""
    from bot.cli import sessions

    sessions.export(folder, config)


ExportFile = Annotated[
    Path, typer.Argument(metavar="ZIP", help="The file of the data export, as it came.")
]
PersonOption = Annotated[
    str, typer.Option("--as", metavar="PERSON", help="Whose they are: telegram:42, a linked name.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


@of_import.command("chatgpt")
def import_chatgpt(
    file: ExportFile,
    *,
    person: PersonOption = "owner",
    config: ConfigOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bring the conversations of a data export of ChatGPT; what is there already stays."""
    from bot.cli import importing

    importing.chats("chatgpt", file, person, config, yes=yes, dry_run=dry_run, quiet=quiet)


@of_import.command("openclaw")
def import_openclaw(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Its folder, such as ~/.openclaw, or a workspace.")
    ],
    *,
    mine: Annotated[
        bool, typer.Option("--mine", help="What nothing says whose it is, is yours.")
    ] = False,
    config: ConfigOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bring notes, conversations, people and settings of an OpenClaw, which stays as it is."""
    from bot.cli import openclaw

    openclaw.move(folder, config, mine=mine, yes=yes, dry_run=dry_run, quiet=quiet)


@of_import.command("claude")
def import_claude(
    file: ExportFile,
    *,
    person: PersonOption = "owner",
    config: ConfigOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    quiet: QuietOption = False,
) -> None:
    """Bring the conversations of a data export of Claude; what is there already stays."""
    from bot.cli import importing

    importing.chats("claude", file, person, config, yes=yes, dry_run=dry_run, quiet=quiet)


@of_memory.command()
def status(config: ConfigOption = None) -> None:
    """Show what is in the index, how it searches, and what is in trouble."""
    from bot.cli import memory

    memory.status(config)


@of_memory.command()
def search(
    words: Words,
    config: ConfigOption = None,
    limit: Annotated[int | None, typer.Option(min=1, max=MAX_PASSAGES, help="Most passages.")] = (
        None
    ),
) -> None:
    """Find what the owner may see, by words and by meaning."""
    from bot.cli import memory

    memory.search(" ".join(words), limit, config)


@of_memory.command()
def index(*, config: ConfigOption = None, quiet: QuietOption = False) -> None:
    """Bring the index in step with the files now."""
    from bot.cli import memory

    memory.index(config, quiet=quiet)


@of_memory.command()
def verify(config: ConfigOption = None) -> None:
    """Check vectors, embedder, index and files; exit status 1 when something is in trouble."""
    from bot.cli import memory

    memory.verify(config)


@of_memory.command()
def forget(words: Words, config: ConfigOption = None, *, yes: YesOption = False) -> None:
    """Remove what holds these words from files, index, cache and the search of transcripts."""
    from bot.cli import memory

    memory.forget(" ".join(words).strip(), config, yes=yes)


@of_memory.command()
def pull(folder: NotesFolder, config: ConfigOption = None) -> None:
    """Copy your notes, the bot's own files and what is shared into a new folder."""
    from bot.cli import notes

    notes.pull(folder, config)


@of_memory.command()
def push(folder: NotesFolder, config: ConfigOption = None, *, yes: YesOption = False) -> None:
    """Write back what was edited in a folder that pull made; exit status 1 if not all of it."""
    from bot.cli import notes

    notes.push(folder, config, yes=yes)


@of_memory.command()
def edit(
    path: Annotated[str, typer.Argument(help="The note, such as MEMORY.md or memory/trip.md.")],
    config: ConfigOption = None,
) -> None:
    """Edit a note in $VISUAL or $EDITOR."""
    from bot.cli import notes

    notes.edit(path, config)


@of_config.command("check")
def config_check(config: ConfigOption = None) -> None:
    """Read the configuration and say what is wrong with it."""
    from bot.cli import options

    options.check(config)


@of_config.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of the configuration file."""
    from bot.cli import options

    options.schema()


@of_config.command("show")
def config_show(config: ConfigOption = None) -> None:
    """Print every option as it is in force, where it comes from, and no secret."""
    from bot.cli import options

    options.show(config)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it like this
    if wanted:
        typer.echo(f"confidant {__version__}")
        raise typer.Exit


@cli.callback()
def _options(
    *,
    version: Annotated[  # read before anything else, so that no command is needed
        bool,
        typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Load the log first, so that no command loads it with more than it needs."""
    from bot.cli import logger

    logger.load()


lay_out(cli)


def main() -> None:
    """The entry point: an error a person can do something about is told without a trace."""
    try:
        cli()
    except ConfidantError as exc:
        typer.echo(f"confidant: {exc}", err=True)
        sys.exit(1)
