"""`confidant`: the program, and how errors are told."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from bot import __version__
from bot.cli.arguments import ConfigOption
from bot.cli.help import COMMANDS, Tree
from bot.errors import ConfidantError

cli = typer.Typer(
    name="confidant",
    help="A chat bot that never forgets you and never tells.",
    epilog=COMMANDS["run"].epilog,
    cls=Tree,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
    """A chat bot that never forgets you and never tells."""


def main() -> None:
    """The entry point: an error a person can do something about is told without a trace."""
    try:
        cli()
    except ConfidantError as exc:
        typer.echo(f"confidant: {exc}", err=True)
        sys.exit(1)
