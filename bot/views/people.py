"""Requests, people and linked accounts; letting people in, and out.

Whoever may not talk any more is out of the page as well, and what let them in there is gone: it
does not come back when they are let in again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bot.channel import DEFAULT_ACCOUNT, Address
from bot.config import SessionConfig
from bot.delivery import outbox
from bot.delivery.outbox import Letter
from bot.i18n import language_of, text
from bot.identity import Link, Seat, routing
from bot.sessions import links, page_logins, pairing
from bot.sessions.pairing import Block, Pairing
from bot.storage import Transaction
from bot.unicode import harmless

LONGEST_NAME: Final = 80  # characters of a name or an id that are shown


@dataclass(frozen=True, slots=True)
class Somebody:
    """An account that asks, may talk, is blocked since `at` (ms), or is linked to `root`.

    `is_own` says that it is the owner's, `is_configured` that the configuration says whose it is.
    """

    seat: Seat
    account: str
    name: str
    at: int = 0
    code: str = ""
    is_own: bool = False
    is_configured: bool = False
    root: str = ""

    @property
    def label(self) -> str:
        """The name somebody gave themselves, or else their id."""
        return shortened(self.name) or shortened(routing.named(self.seat))

    @property
    def id(self) -> str:
        """Their id as it may be shown; `seat` is what forms send."""
        return shortened(self.seat[1])

    @property
    def place(self) -> str:
        """Their channel, with its account."""
        return place_of(self.seat[0], self.account)


@dataclass(frozen=True, slots=True)
class People:
    """Everybody there is, at one time."""

    asking: Sequence[Somebody]
    admitted: Sequence[Somebody]
    linked: Sequence[Somebody]
    blocked: Sequence[Somebody]


def people(tx: Transaction, session: SessionConfig, now: int) -> People:
    """Everybody who asks, the newest first, who may talk, is linked or is blocked."""
    joined, waiting, approved = (
        links.everything(tx),
        pairing.pending(tx, now),
        pairing.approved(tx),
    )
    roots = {each.seat: each.root for each in joined}
    names = {each.seat: each.name for each in (*waiting, *approved)}

    def somebody(found: Pairing | Block, at: int, code: str = "") -> Somebody:
        person = routing.person_of(session, roots.get(found.seat, found.seat))
        return Somebody(
            *(found.seat, found.account, found.name, at, code),
            is_own=person.is_owner,
            is_configured=person.is_configured,
        )

    return People(
        [somebody(each, each.asked_at, each.code) for each in waiting],
        [somebody(each, each.approved_at or each.asked_at) for each in approved],
        [
            Somebody(
                *(each.seat, each.address.account, names.get(each.seat, "")),
                is_own=routing.person_of(session, each.root).is_owner,
                root=Somebody(each.root, "", names.get(each.root, "")).label,
            )
            for each in joined
        ],
        [somebody(each, each.blocked_at) for each in pairing.blocked(tx)],
    )


def place_of(channel: str, account: str) -> str:
    """A channel, with its account where that has a name."""
    return channel if account == DEFAULT_ACCOUNT else f"{channel} ({account})"


def shortened(words: str) -> str:
    """Somebody's name, or an id, as it may stand among other words."""
    found = " ".join(harmless(words).split())
    return found if len(found) <= LONGEST_NAME else f"{found[: LONGEST_NAME - 1]}…"


# Letting people in, and out: each in one transaction.


@dataclass(frozen=True, slots=True)
class LetIn:
    """Somebody who may talk from now on, and the text that tells them so."""

    pairing: Pairing
    letter: Letter


def approve(
    tx: Transaction, session: SessionConfig, channel: str, code: str, now: int, *, me: bool
) -> LetIn | Literal["gone", "configured"]:
    """Let in whoever holds a code; "gone" when no valid one is like it.

    With `me` the account is the owner's from now on, with all of the owner's memory; "configured"
    when the configuration says whose it is.
    """
    found = pairing.holder(tx, channel, code, now)
    if found is None:
        return "gone"
    if me and routing.person_of(session, found.seat).is_configured:
        return "configured"
    pairing.approve(tx, channel, code, now)
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
