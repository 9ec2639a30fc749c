"""`confidant`: the program, and how errors are shown."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module, resources
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from bot import __version__
from bot.errors import ConfidantError
from bot.invocation import confidant

# The tree of commands. A command's module is imported when it is called, so that help is fast.


@dataclass(frozen=True, slots=True)
class CommandInfo:
    """One command, as commands.toml has it; `body` is empty for a group of commands."""

    line: str
    example: str
    panel: str = ""
    body: str = ""

    @property
    def epilog(self) -> str:
        """The last line of its help."""
        return f"Example: {confidant(self.example)}".replace("[", "\\[")  # it is markup


# By what is typed, in the order of the help.
COMMANDS: Mapping[str, CommandInfo] = {
    typed: CommandInfo(**about)
    for typed, about in tomllib.loads(
        resources.files("bot.cli").joinpath("commands.toml").read_text("utf-8")
    ).items()
}


class Tree(TyperGroup):
    """A group of commands whose functions are imported when one is called."""

    def __init__(self, *, above: str = "", **about: Any) -> None:
        super().__init__(**about)
        self._above = above
        self.commands = {
            typed.rpartition(" ")[2]: _stub(typed, shown)
            for typed, shown in COMMANDS.items()
            if typed.rpartition(" ")[0] == above
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Resolve the command that is called, and import it."""
        name, command, rest = super().resolve_command(ctx, args)
        shown = COMMANDS.get(f"{self._above} {name}".strip())
        if shown is not None and shown.body:
            command = loaded(str(name), shown)
        return name, command, rest


def loaded(name: str, shown: CommandInfo) -> Any:
    """Build a command from its function."""
    import_module("bot.cli.startup").load_log()  # before anything else loads it
    module, _, function = shown.body.partition(":")
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, epilog=shown.epilog)(getattr(import_module(f"bot.cli.{module}"), function))
    return typer.main.get_command(alone)


def _stub(typed: str, shown: CommandInfo) -> Any:
    about: dict[str, Any] = {"help": shown.line, "epilog": shown.epilog}
    about |= {"name": typed.rpartition(" ")[2], "rich_help_panel": shown.panel or None}
    return TyperCommand(**about) if shown.body else Tree(above=typed, no_args_is_help=True, **about)


# Options and arguments that commands share.

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file; see config/confidant.toml.", dir_okay=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Words = Annotated[list[str], typer.Argument(help="The words.")]
NotesFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder.", file_okay=False)]
PassphraseFile = Annotated[
    Path | None,
    typer.Option("--passphrase-file", help="A file with the passphrase.", dir_okay=False),
]
ChannelArgument = Annotated[str, typer.Argument(metavar="CHANNEL", help="Such as telegram.")]
SenderArgument = Annotated[
    str, typer.Argument(metavar="SENDER", help="Their id there; `pairing list` shows it.")
]
PersonArgument = Annotated[
    str, typer.Argument(metavar="PERSON", help='Such as telegram:42, a linked name, or "owner".')
]
ExportFile = Annotated[
    Path, typer.Argument(metavar="PATH", help="The export as you got it: a ZIP, folder or file.")
]
PersonOption = Annotated[
    str,
    typer.Option("--as", metavar="PERSON", help="Whose they are: telegram:42, a linked name."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress, only the result.")
]

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
        typer.Option("--log", help="The log's format, instead of [log] format."),
    ] = None,
) -> None:
    """Run the bot: every configured channel, and the page."""
    from bot.cli import startup

    startup.hold()
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
    """The entry point: expected errors are shown without a traceback."""
    try:
        cli()
    except ConfidantError as exc:
        typer.echo(f"confidant: {exc}", err=True)
        sys.exit(1)
