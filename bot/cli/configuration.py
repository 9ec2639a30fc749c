"""`confidant config`: check it, explain it, show it."""

from __future__ import annotations

import orjson
import typer

from bot import settings
from bot.cli.common import ConfigOption, load

cli = typer.Typer(help="Check, explain and show the configuration.", no_args_is_help=True)


@cli.command()
def check(config: ConfigOption = None) -> None:
    """Read the configuration and say what is wrong with it."""
    loaded = load(config)
    where = loaded.file or "defaults and environment only"
    typer.echo(f"The configuration is fine ({where}).")


@cli.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file."""
    model = settings.config_model(settings.installed_channels())
    typer.echo(orjson.dumps(settings.json_schema(model), option=orjson.OPT_INDENT_2).decode())


@cli.command()
def show(config: ConfigOption = None) -> None:
    """Print every option as it is in force, where it comes from, and no secret."""
    typer.echo(settings.show(load(config)))
