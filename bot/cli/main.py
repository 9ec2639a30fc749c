"""`confidant`: the tree of commands, and how errors are told."""

from __future__ import annotations

import sys
from typing import Annotated

import orjson
import typer

from bot import __version__, settings
from bot.cli import doctor, garbage, login, move, nodes, notes, pairing, reminders, sessions, usage
from bot.cli.common import ConfigOption, load, loop_runner
from bot.errors import ConfidantError

cli = typer.Typer(
    name="confidant",
    help="A chat bot that never forgets you and never tells.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
configuration = typer.Typer(help="Check, explain and show the configuration.", no_args_is_help=True)
cli.add_typer(pairing.cli, name="pairing")
cli.add_typer(sessions.cli, name="sessions")
cli.add_typer(notes.cli, name="memory")
cli.add_typer(configuration, name="config")
cli.command()(doctor.doctor)
cli.command()(nodes.nodes)
cli.command()(nodes.migrate)
cli.command()(move.move)
cli.command()(usage.usage)
cli.command()(login.login)
cli.command()(reminders.reminders)


@cli.command()
def run(config: ConfigOption = None) -> None:
    """Run the bot: every channel that is configured, and the page."""
    garbage.hold()
    from bot.cli.serve import serve  # noqa: PLC0415 - other commands need none of it

    loaded = load(config)
    loop_runner()(serve(loaded))


@cli.command()
def chat(config: ConfigOption = None) -> None:
    """Chat in this terminal; with a running bot, join its page's conversation."""
    from bot.cli.serve import chat_here  # noqa: PLC0415 - other commands need none of it

    loaded = load(config, quiet=True)
    loop_runner()(chat_here(loaded))


@configuration.command()
def check(config: ConfigOption = None) -> None:
    """Read the configuration and say what is wrong with it."""
    loaded = load(config)
    where = loaded.file or "defaults and environment only"
    typer.echo(f"The configuration is fine ({where}).")


@configuration.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file."""
    model = settings.config_model(settings.installed_channels())
    typer.echo(orjson.dumps(settings.json_schema(model), option=orjson.OPT_INDENT_2).decode())


@configuration.command()
def show(config: ConfigOption = None) -> None:
    """Print every option as it is in force, where it comes from, and no secret."""
    typer.echo(settings.show(load(config)))


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
    pass


def main() -> None:
    """The entry point: an error a person can do something about is told without a trace."""
    try:
        cli()
    except ConfidantError as exc:
        typer.echo(f"confidant: {exc}", err=True)
        sys.exit(1)
