"""`confidant login`: a link that lets somebody in to the page."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from bot.channel import PAGE_OWNER
from bot.cli.arguments import ConfigOption
from bot.cli.common import load, writing
from bot.clock import system_clock
from bot.config import Config
from bot.errors import ConfidantError
from bot.gateway.admission import read_books
from bot.identity import ConversationResolver, MessageOrigin, Policy
from bot.identity.policy import local_zone
from bot.invocation import confidant
from bot.sessions import page_logins
from bot.sessions.page_logins import Invited
from bot.storage import Transaction
from bot.storage.files import served


def invite(
    name: Annotated[str, typer.Argument(metavar="NAME", help='Whoever it is for; "owner" is you.')],
    config: ConfigOption = None,
) -> None:
    """Print a link that lets NAME in to the page, once; "owner" is you."""
    loaded = load(config, quiet=True)
    dashboard, wanted = loaded.config.dashboard, name.strip().lower()
    if not dashboard.has_token:
        raise ConfidantError(
            "Without a token whoever can open the page is its owner, and nobody logs in. "
            "Set CONFIDANT_DASHBOARD__TOKEN first."
        )
    if wanted != PAGE_OWNER and not page_logins.is_name(wanted):
        raise ConfidantError("A name has up to 32 small letters a to z, digits and hyphens.")
    url = _address(loaded.config)
    key, now = page_logins.new_key(), system_clock()

    def work(tx: Transaction) -> Invited:
        may_talk = partial(_may_talk, loaded.config, tx)
        return page_logins.invite(tx, wanted, key, now, language="en", may_talk=may_talk)

    match writing(loaded.config, work):
        case "too_many":
            raise ConfidantError("There are too many people already: nobody was let in.")
        case "not_let_in":
            raise ConfidantError(
                f"{wanted} came from a chat in which they may not talk to the bot now, so a link "
                f"would lead nowhere. `{confidant('pairing list')}` shows who is blocked or asks."
            )
        case "made":
            pass
    typer.echo(f"{url}/enter?key={key}")
    valid = "ten minutes" if wanted == PAGE_OWNER else "a day"
    typer.echo(f"It works once, within {valid}: pass it on in private.", err=True)
    if not dashboard.public_url:
        typer.echo(
            "That address is this machine's. Name the one that others use in [dashboard] "
            "allowed_origins.",
            err=True,
        )


def _address(config: Config) -> str:
    """Where the page is.

    Raises:
        ConfidantError: it gets its port at the start, and does not run.
    """
    dashboard = config.dashboard
    if dashboard.allowed_origins or dashboard.port:
        return dashboard.public_url or f"http://127.0.0.1:{dashboard.port}"
    if (page := served(config.storage.folder)) is not None:
        return page.url.rstrip("/")
    raise ConfidantError(
        "With [dashboard] port 0 the page has another port after each start, and it does not run "
        f"now. Start `{confidant('run')}`, and do this again while it runs."
    )


def _may_talk(config: Config, tx: Transaction, origin: MessageOrigin) -> bool:
    """True when whoever writes from there gets an answer."""
    policy = Policy.of(config, local_zone(config))
    return ConversationResolver(policy, read_books(tx)).of(origin).is_admitted
