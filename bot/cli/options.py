"""`confidant config`: the configuration, checked, explained and shown."""

from __future__ import annotations

from pathlib import Path

import orjson
import typer

from bot import settings
from bot.cli.common import load


def check(config: Path | None) -> None:
    """Read the configuration; its mistakes are an error."""
    where = load(config).file or "defaults and environment only"
    typer.echo(f"The configuration is fine ({where}).")


def schema() -> None:
    """Print the JSON Schema of the file."""
    model = settings.config_model(settings.installed_channels())
    typer.echo(orjson.dumps(settings.json_schema(model), option=orjson.OPT_INDENT_2).decode())


def show(config: Path | None) -> None:
    """Print every option."""
    typer.echo(settings.show(load(config)))
