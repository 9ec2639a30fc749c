"""Letting people in, and out: what the command line and the page do in one transaction.

Whoever may not talk any more is out of the page as well, and what let them in there is gone: it
does not come back when they are let in again.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.channel import Address
from bot.delivery import outbox
from bot.delivery.outbox import Letter
from bot.i18n import language_of, text
from bot.identity import Link, Seat, routing
from bot.sessions import links, page_logins, pairing
from bot.sessions.pairing import Block, Pairing
from bot.storage import Transaction


@dataclass(frozen=True, slots=True)
class LetIn:
    """Somebody who may talk from now on, and the text that tells them so."""

    pairing: Pairing
    letter: Letter


def approve(tx: Transaction, channel: str, code: str, now: int, *, me: bool) -> LetIn | None:
    """Let in whoever holds a code; None when no valid one is like it.

    With `me` the account is the owner's from now on, with all of the owner's memory.
    """
    found = pairing.approve(tx, channel, code, now)
    if found is None:
        return None
    if me:
        language = language_of(found.locale)
        links.join(tx, Link(found.seat, routing.OWNER_SEAT, found.address, language), now)
    return LetIn(found, _told(tx, found, "pairing.approved_me" if me else "pairing.approved", now))


def let_in_again(tx: Transaction, seat: Seat, now: int) -> LetIn | None:
    """Let in somebody who was blocked; None when they are not."""
    found = pairing.let_in_again(tx, seat, now)
    if found is None:
        return None
    page_logins.end_from(tx, seat)  # a node may have let them in that did not know of it yet
    return LetIn(found, _told(tx, found, "pairing.approved", now))


def block(tx: Transaction, seat: Seat, now: int) -> Block | None:
    """Give somebody who asked, or was let in, no answer from now on; None for anybody else."""
    found = pairing.block(tx, seat, now)
    if found is not None:
        page_logins.end_from(tx, seat)
        for channel, name in links.seats_of(tx, seat):  # whoever was invited, too
            if channel == routing.OWNER_SEAT[0] and (channel, name) != routing.OWNER_SEAT:
                page_logins.end(tx, name)
    return found


def unblock(tx: Transaction, seat: Seat) -> Block | None:
    """Let somebody ask again, as a stranger does; None when they are not blocked."""
    found = pairing.unblock(tx, seat)
    if found is not None:
        page_logins.end_from(tx, seat)  # as above
    return found


def revoke(tx: Transaction, seat: Seat) -> int:
    """Forget that somebody was let in, or asks, on every account; how many there were."""
    count = pairing.revoke(tx, *seat)
    if count:
        page_logins.end_from(tx, seat)
    return count


def end_link(tx: Transaction, seat: Seat, now: int) -> Letter | None:
    """Let an account be somebody of its own again; None when it was not linked."""
    parted = links.part(tx, seat)
    if parted is None:
        return None
    words = text(parted.language, "link.ended_here")
    return _say(tx, parted.address, words, parted.language, now)


def _told(tx: Transaction, found: Pairing, key: str, now: int) -> Letter:
    language = language_of(found.locale)
    return _say(tx, found.address, text(language, key), language, now)


def _say(tx: Transaction, address: Address, words: str, language: str, now: int) -> Letter:
    return outbox.add(tx, address, words, now, kind="notice", language=language)
