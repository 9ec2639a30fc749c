"""`confidant`: the tree of commands, and how errors are told.

A command imports what it needs when it is called, so that help is there at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from bot import __version__
from bot.cli.arguments import (
    ConfigOption,
    JsonOption,
    PassphraseFile,
    PersonArgument,
    QuietOption,
    YesOption,
)
from bot.cli.groups import of_config, of_import, of_memory, of_pairing, of_sessions
from bot.cli.help import lay_out
from bot.errors import ConfidantError
from bot.money import KEPT_DAYS, Heading

cli = typer.Typer(
    name="confidant",
    help="A chat bot that never forgets you and never tells.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
cli.add_typer(of_pairing, name="pairing")
cli.add_typer(of_sessions, name="sessions")
cli.add_typer(of_memory, name="memory")
cli.add_typer(of_config, name="config")
cli.add_typer(of_import, name="import")


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
