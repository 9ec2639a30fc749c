"""`confidant login`: a link that lets somebody in to the page."""

from __future__ import annotations

from pathlib import Path

import typer

from bot.channel.visitor import OWNER
from bot.cli.common import load, writing
from bot.clock import system_clock
from bot.errors import ConfidantError
from bot.sessions import page_logins


def invite(name: str, config: Path | None) -> None:
    """Print a link that lets somebody in to the page, once."""
    loaded = load(config, quiet=True)
    dashboard, wanted = loaded.config.dashboard, name.strip().lower()
    if not dashboard.has_token:
        raise ConfidantError(
            "Without a token whoever can open the page is its owner, and nobody logs in. "
            "Set CONFIDANT_DASHBOARD__TOKEN first."
        )
    if wanted != OWNER and not page_logins.is_name(wanted):
        raise ConfidantError("A name has up to 32 small letters a to z, digits and hyphens.")
    key, now = page_logins.new_key(), system_clock()
    if not writing(loaded.config, lambda tx: page_logins.invite(tx, wanted, key, now, "en")):
        raise ConfidantError("There are too many people already: nobody was let in.")
    url = dashboard.public_url or f"http://127.0.0.1:{dashboard.port}"
    typer.echo(f"{url}/enter?key={key}")
    valid = "ten minutes" if wanted == OWNER else "a day"
    typer.echo(f"It works once, within {valid}: pass it on in private.", err=True)
    if not dashboard.public_url:
        typer.echo(
            "That address is this machine's. Name the one that others use in [dashboard] "
            "allowed_origins.",
            err=True,
        )
