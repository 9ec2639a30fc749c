"""`confidant config`: the configuration, checked, explained and shown."""

from __future__ import annotations

import orjson
import typer

from bot import settings
from bot.cli.common import load
from bot.cli.main import ConfigOption


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
