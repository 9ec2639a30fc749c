"""`confidant pairing`: who may talk to the bot."""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from bot.cli.common import ConfigOption, harmless, load, reading, writing
from bot.clock import system_clock
from bot.delivery import outbox
from bot.errors import ConfidantError
from bot.gateway import pairing
from bot.i18n import language_of, text

cli = typer.Typer(help="Let people in, and out again.", no_args_is_help=True)


@cli.command("list")
def list_(config: ConfigOption = None) -> None:
    """Show who asked, the newest first, and who was let in."""
    loaded = load(config, quiet=True)
    now = system_clock()
    waiting, approved = reading(
        loaded.config, lambda tx: (pairing.pending(tx, now), pairing.approved(tx))
    )
    if not waiting and not approved:
        typer.echo("Nobody has asked yet.")
    for found in waiting:
        since = datetime.fromtimestamp(found.asked_at / 1000, UTC).astimezone()
        typer.echo(f"waiting   {_who(found)}  code {found.code}  since {since:%Y-%m-%d %H:%M}")
    for found in approved:
        typer.echo(f"approved  {_who(found)}")


@cli.command()
def approve(channel: str, code: str, config: ConfigOption = None) -> None:
    """Let in whoever was given this code; they are told."""
    loaded = load(config, quiet=True)
    now = system_clock()

    def work(tx: pairing.Transaction) -> pairing.Pairing | None:
        found = pairing.approve(tx, channel, code, now)
        if found is not None:
            words = text(language_of(found.locale), "pairing.approved")
            outbox.add(tx, found.address, words, now, kind="notice")
        return found

    found = writing(loaded.config, work)
    if found is None:
        raise ConfidantError(
            f"No valid code of {channel} is like that. Codes are valid for an hour, and no longer "
            "once they were typed in a chat; `confidant pairing list` shows them."
        )
    typer.echo(f"{_who(found)} may talk to the bot now, and is told as soon as it runs.")


@cli.command()
def revoke(channel: str, sender: str, config: ConfigOption = None) -> None:
    """Take a person's permission away again; SENDER is their id."""
    loaded = load(config, quiet=True)
    if not writing(loaded.config, lambda tx: pairing.revoke(tx, channel, sender)):
        raise ConfidantError(f"{channel}:{sender} was not let in by pairing.")
    typer.echo(f"{channel}:{sender} must ask again from now on.")


def _who(found: pairing.Pairing) -> str:
    account = "" if found.account == "default" else f" ({found.account})"
    return harmless(f"{found.channel}:{found.sender}{account}  {found.name}").rstrip()
