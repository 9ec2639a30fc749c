"""`confidant pairing`: who may talk to the bot."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bot.cli.common import load, local_time, reading, writing
from bot.cli.main import ChannelArgument, ConfigOption, SenderArgument
from bot.clock import system_clock
from bot.errors import ConfidantError
from bot.identity import routing
from bot.invocation import confidant
from bot.sessions import pairing
from bot.unicode import harmless
from bot.views import people as views
from bot.views.people import Somebody, people


def show(config: ConfigOption = None) -> None:
    """Show who asked, newest first, who was approved, and who is blocked."""
    loaded = load(config, quiet=True)
    now = system_clock()
    found = reading(loaded.config, lambda tx: people(tx, loaded.config.session, now))
    if not found.asking and not found.admitted and not found.blocked:
        typer.echo("Nobody has asked yet.")
    for each in found.asking:
        typer.echo(f"waiting   {_who(each)}  code {each.code}  since {local_time(each.at)}")
    for each in found.admitted:
        typer.echo(f"approved  {_who(each)}{'  (you)' if each.is_own else ''}")
    for each in found.blocked:
        typer.echo(f"blocked   {_who(each)}")


def approve(
    channel: ChannelArgument,
    code: Annotated[str, typer.Argument(metavar="CODE", help="The code they were given.")],
    me: Annotated[
        bool | None,
        typer.Option(
            "--me/--not-me",
            help="Another account of yours, with your memory; a terminal asks.",
        ),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Approve the person who was given this code; they are told."""
    loaded = load(config, quiet=True)
    now = system_clock()
    session = loaded.config.session
    asks = reading(loaded.config, lambda tx: pairing.holder(tx, channel, code, now))
    if asks is None:
        raise _no_such_code(channel)
    is_configured = routing.person_of(session, asks.seat).is_configured
    if me is None and not is_configured and sys.stdin.isatty():
        typer.echo(f"{_who(asks)} asks to talk to the bot.")
        me = typer.confirm(
            "Is that another account of yours? It would get all of your memory", default=False
        )
    done = writing(
        loaded.config, lambda tx: views.approve(tx, session, channel, code, now, me=bool(me))
    )
    if isinstance(done, str):
        if done == "gone":
            raise _no_such_code(channel)
        raise ConfidantError(
            f"The configuration says whose account {_who(asks)} is (session.owner or "
            "session.identity_links). Nothing was changed: approve it without --me, or change that."
        )
    typer.echo(f"{_who(done.pairing)} may talk to the bot now and will be told when it runs.")
    if me:
        typer.echo("It counts as your own account now; /unlink in a chat with the bot undoes that.")


def _no_such_code(channel: str) -> ConfidantError:
    return ConfidantError(
        f"{channel} has no such code. Codes are valid for an hour, or until they are typed in a "
        f"chat; `{confidant('pairing list')}` shows them."
    )


def revoke(channel: ChannelArgument, sender: SenderArgument, config: ConfigOption = None) -> None:
    """Withdraw a person's approval; SENDER is their id."""
    loaded = load(config, quiet=True)
    if not writing(loaded.config, lambda tx: views.revoke(tx, (channel, sender))):
        raise ConfidantError(f"{channel}:{sender} was not approved with a code.")
    typer.echo(f"{channel}:{sender} needs a new code to talk to the bot.")


def block(channel: ChannelArgument, sender: SenderArgument, config: ConfigOption = None) -> None:
    """Block somebody: no more answers, no more codes; SENDER is their id."""
    loaded = load(config, quiet=True)
    now, seat = system_clock(), (channel, sender)
    if writing(loaded.config, lambda tx: views.block(tx, seat, now)) is None:
        raise ConfidantError(f"{channel}:{sender} has neither asked recently nor been approved.")
    typer.echo(f"{channel}:{sender} is blocked; `unblock` undoes that.")


def unblock(channel: ChannelArgument, sender: SenderArgument, config: ConfigOption = None) -> None:
    """Let a blocked person ask again; SENDER is their id."""
    loaded = load(config, quiet=True)
    if writing(loaded.config, lambda tx: views.unblock(tx, (channel, sender))) is None:
        raise ConfidantError(f"{channel}:{sender} is not blocked.")
    typer.echo(f"{channel}:{sender} may ask again.")


def _who(found: pairing.Pairing | Somebody) -> str:
    account = "" if found.account == "default" else f" ({found.account})"
    return harmless(f"{':'.join(found.seat)}{account}  {found.name}").rstrip()
