"""Accounts that people joined with /link: plain functions over one transaction.

A seat is a channel and an id there. A linked seat counts as another one, its `root`: always the
seat of somebody's first account, never one that is linked itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from bot.channel import Address
from bot.identity import Link, Seat
from bot.sessions import pairing
from bot.storage import Transaction
from bot.storage.records import Form, Records, place

VALID_MS = 10 * 60_000


@dataclass(frozen=True, slots=True)
class LinkCode:
    """A code somebody has asked for: whoever types it counts as `root` from then on.

    `address`, `key` and `language` are those of the chat where it was asked for.
    """

    person: str
    code: str
    root: Seat
    address: Address
    key: str
    language: str


CODES: Final = Records("link_codes", LinkCode, "made_at", root=Form("root_channel root_sender"))
LINKS: Final = Records(
    "links",
    Link,
    "linked_at",
    form=Form(
        "channel sender root_channel root_sender account chat thread language",
        lambda row: Link((row[0], row[1]), (row[2], row[3]), Address(row[0], *row[4:7]), row[7]),
        lambda link: (*link.seat, *link.root, *place(link.address)[1:], link.language),
    ),
)


def offer(tx: Transaction, made: LinkCode, now: int) -> None:
    """Keep a code; the one this person had asked for before is no good any more."""
    tx.execute("DELETE FROM link_codes WHERE made_at <= ?", (now - VALID_MS,))
    CODES.put(tx, made, now)


def claim(tx: Transaction, typed: str, person: str, now: int) -> LinkCode | None:
    """Use up the code somebody typed; None when no valid one of another person is like it."""
    for found in _valid(tx, now):
        if pairing.is_same_code(found.code, typed) and found.person != person:
            tx.execute("DELETE FROM link_codes WHERE person = ?", (found.person,))
            return found
    return None


def void(tx: Transaction, typed: Collection[str], now: int) -> list[LinkCode]:
    """Make the valid ones of these codes worthless; what had been offered with them."""
    found = [made for made in _valid(tx, now) if made.code in typed]
    for made in found:
        tx.execute("DELETE FROM link_codes WHERE person = ?", (made.person,))
    return found


def join(tx: Transaction, link: Link, now: int) -> None:
    """Let a seat count as another one, and with it all that counted as it."""
    tx.execute(
        "UPDATE links SET root_channel = ?, root_sender = ? "
        "WHERE root_channel = ? AND root_sender = ?",
        (*link.root, *link.seat),
    )
    tx.execute("DELETE FROM links WHERE channel = root_channel AND sender = root_sender")
    tx.execute("DELETE FROM link_codes WHERE root_channel = ? AND root_sender = ?", link.seat)
    LINKS.put(tx, link, now)
    tx.publish("books")


def part(tx: Transaction, seat: Seat) -> Link | None:
    """Let a seat be itself again; None when it was not linked."""
    for gone in LINKS.delete(tx, "channel = ? AND sender = ?", *seat):
        tx.publish("books")
        return gone
    return None


def everything(tx: Transaction) -> list[Link]:
    """Every link, the oldest first."""
    return LINKS.where(tx, order="linked_at, channel, sender")


def seats_of(tx: Transaction, seat: Seat) -> set[Seat]:
    """The accounts that were joined to the one that a seat counts as, and that one."""
    joined = everything(tx)
    root = next((link.root for link in joined if link.seat == seat), seat)
    return {root, *(link.seat for link in joined if link.root == root)}


def is_open(tx: Transaction, typed: Collection[str], now: int) -> bool:
    """True when one of these is a code that is still valid."""
    return any(made.code in typed for made in _valid(tx, now))


def _valid(tx: Transaction, now: int) -> list[LinkCode]:
    return CODES.where(tx, "abs(? - made_at) < ?", now, VALID_MS)
