"""What commands take, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from bot import settings
from bot.cli.common import load

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file; see config/confidant.toml.", dir_okay=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="For machines: one JSON value.")]
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
    str,
    typer.Argument(metavar="PERSON", help='Such as telegram:42, a linked name, or "owner".'),
]
ExportFile = Annotated[
    Path, typer.Argument(metavar="ZIP", help="The file of the data export, as it came.")
]
PersonOption = Annotated[
    str, typer.Option("--as", metavar="PERSON", help="Whose they are: telegram:42, a linked name.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress, only what came of it.")
]


def check(config: ConfigOption = None) -> None:
    """Read the configuration and say what is wrong with it."""
    where = load(config).file or "defaults and environment only"
    typer.echo(f"The configuration is fine ({where}).")


def schema() -> None:
    """Print the JSON Schema of the configuration file."""
    model = settings.config_model(settings.installed_channels())
    typer.echo(orjson.dumps(settings.json_schema(model), option=orjson.OPT_INDENT_2).decode())


def show(config: ConfigOption = None) -> None:
    """Print every option as it is in force, where it comes from, and no secret."""
    typer.echo(settings.show(load(config)))
