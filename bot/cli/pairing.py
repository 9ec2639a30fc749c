"""`confidant pairing`: who may talk to the bot."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bot import admitting
from bot.cli.arguments import ChannelArgument, ConfigOption, SenderArgument
from bot.cli.common import load, local_time, reading, writing
from bot.clock import system_clock
from bot.errors import ConfidantError
from bot.identity import routing
from bot.invocation import confidant
from bot.sessions import links, pairing
from bot.unicode import harmless


def show(config: ConfigOption = None) -> None:
    """Show who asked, the newest first, and who was let in."""
    loaded = load(config, quiet=True)
    now = system_clock()
    waiting, approved, blocked, joined = reading(
        loaded.config,
        lambda tx: (
            pairing.pending(tx, now),
            pairing.approved(tx),
            pairing.blocked(tx),
            links.everything(tx),
        ),
    )
    if not waiting and not approved and not blocked:
        typer.echo("Nobody has asked yet.")
    own = {
        each.seat for each in joined if routing.person_of(loaded.config.session, each.root).is_owner
    }
    for found in waiting:
        since = local_time(found.asked_at)
        typer.echo(f"waiting   {_who(found)}  code {found.code}  since {since}")
    for found in approved:
        typer.echo(f"approved  {_who(found)}{'  (you)' if found.seat in own else ''}")
    for found in blocked:
        typer.echo(f"blocked   {_who(found)}")


def approve(
    channel: ChannelArgument,
    code: Annotated[str, typer.Argument(metavar="CODE", help="What they were given.")],
    me: Annotated[
        bool | None,
        typer.Option(
            "--me/--not-me",
            help="Whether it is another account of yours, with your memory; asked in a terminal.",
        ),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Let in whoever was given this code; they are told."""
    loaded = load(config, quiet=True)
    now = system_clock()
    asks = reading(loaded.config, lambda tx: pairing.holder(tx, channel, code, now))
    if asks is None:
        raise _no_such_code(channel)
    is_configured = routing.person_of(loaded.config.session, asks.seat).is_configured
    if me and is_configured:
        raise ConfidantError(
            f"Whose account {_who(asks)} is stands in the configuration (session.owner or "
            "session.identity_links). Nothing was changed: approve it without --me, or change that."
        )
    if me is None and not is_configured and sys.stdin.isatty():
        typer.echo(f"{_who(asks)} asks to talk to the bot.")
        me = typer.confirm(
            "Is that you, with another account? It gets all of your memory then", default=False
        )
    done = writing(loaded.config, lambda tx: admitting.approve(tx, channel, code, now, me=bool(me)))
    if done is None:
        raise _no_such_code(channel)
    typer.echo(f"{_who(done.pairing)} may talk to the bot now, and is told as soon as it runs.")
    if me:
        typer.echo("It is your own account from now on; /unlink in a chat with the bot ends that.")


def _no_such_code(channel: str) -> ConfidantError:
    return ConfidantError(
        f"No valid code of {channel} is like that. Codes are valid for an hour, and no longer "
        f"once they were typed in a chat; `{confidant('pairing list')}` shows them."
    )


def revoke(channel: ChannelArgument, sender: SenderArgument, config: ConfigOption = None) -> None:
    """Take a person's permission away again; SENDER is their id."""
    loaded = load(config, quiet=True)
    if not writing(loaded.config, lambda tx: admitting.revoke(tx, (channel, sender))):
        raise ConfidantError(f"{channel}:{sender} was not let in by pairing.")
    typer.echo(f"{channel}:{sender} must ask again from now on.")


def block(channel: ChannelArgument, sender: SenderArgument, config: ConfigOption = None) -> None:
    """Give somebody no answer and no code any more; SENDER is their id."""
    loaded = load(config, quiet=True)
    now, seat = system_clock(), (channel, sender)
    if writing(loaded.config, lambda tx: admitting.block(tx, seat, now)) is None:
        raise ConfidantError(f"{channel}:{sender} has not asked of late, and was not let in.")
    typer.echo(f"{channel}:{sender} gets no answer from now on; `unblock` ends that.")


def unblock(channel: ChannelArgument, sender: SenderArgument, config: ConfigOption = None) -> None:
    """Let somebody who was blocked ask again; SENDER is their id."""
    loaded = load(config, quiet=True)
    if writing(loaded.config, lambda tx: admitting.unblock(tx, (channel, sender))) is None:
        raise ConfidantError(f"{channel}:{sender} is not blocked.")
    typer.echo(f"{channel}:{sender} may ask again from now on.")


def _who(found: pairing.Pairing | pairing.Block) -> str:
    account = "" if found.account == "default" else f" ({found.account})"
    return harmless(f"{found.channel}:{found.sender}{account}  {found.name}").rstrip()
