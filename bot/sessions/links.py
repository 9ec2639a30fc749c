"""Accounts that people joined with /link: plain functions over one transaction.

A seat is a channel and an id there. A linked seat counts as another one, its `root`: always the
seat of somebody's first account, never one that is linked itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bot import codes
from bot.channel import Address
from bot.identity import Link, Seat
from bot.storage import Row, Transaction, upsert

VALID_MS = 10 * 60_000

_OFFER = "person, code, root_channel, root_sender, channel, account, chat, thread, key, language"
_LINK = "channel, sender, root_channel, root_sender, account, chat, thread, language"


@dataclass(frozen=True, slots=True)
class Offer:
    """A code somebody has asked for: whoever types it counts as `root` from then on.

    `address`, `key` and `language` are those of the chat where it was asked for.
    """

    person: str
    code: str
    root: Seat
    address: Address
    key: str
    language: str


def offer(tx: Transaction, made: Offer, now: int) -> None:
    """Keep a code; the one this person had asked for before is no good any more."""
    tx.execute("DELETE FROM link_codes WHERE made_at <= ?", (now - VALID_MS,))
    place, root = made.address, made.root
    row = {
        "person": made.person,
        "code": made.code,
        "root_channel": root[0],
        "root_sender": root[1],
        "channel": place.channel,
        "account": place.account,
        "chat": place.chat,
        "thread": place.thread,
        "key": made.key,
        "language": made.language,
        "made_at": now,
    }
    upsert(tx, "link_codes", ("person",), row)


def claim(tx: Transaction, typed: str, person: str, now: int) -> Offer | None:
    """Use up the code somebody typed; None when no valid one of another person is like it."""
    for found in _valid(tx, now):
        if codes.is_same(found.code, typed) and found.person != person:
            tx.execute("DELETE FROM link_codes WHERE person = ?", (found.person,))
            return found
    return None


def void(tx: Transaction, typed: Collection[str], now: int) -> list[Offer]:
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
    place = link.address
    row = {
        "channel": link.seat[0],
        "sender": link.seat[1],
        "root_channel": link.root[0],
        "root_sender": link.root[1],
        "account": place.account,
        "chat": place.chat,
        "thread": place.thread,
        "language": link.language,
        "linked_at": now,
    }
    upsert(tx, "links", ("channel", "sender"), row)
    tx.publish("books")


def part(tx: Transaction, seat: Seat) -> Link | None:
    """Let a seat be itself again; None when it was not linked."""
    rows = tx.execute(f"DELETE FROM links WHERE channel = ? AND sender = ? RETURNING {_LINK}", seat)
    if not rows:
        return None
    tx.publish("books")
    return _link(rows[0])


def everything(tx: Transaction) -> list[Link]:
    """Every link, the oldest first."""
    rows = tx.execute(f"SELECT {_LINK} FROM links ORDER BY linked_at, channel, sender")
    return [_link(row) for row in rows]


def seats_of(tx: Transaction, seat: Seat) -> set[Seat]:
    """The accounts that were joined to the one that a seat counts as, and that one."""
    joined = everything(tx)
    root = next((link.root for link in joined if link.seat == seat), seat)
    return {root, *(link.seat for link in joined if link.root == root)}


def is_open(tx: Transaction, typed: Collection[str], now: int) -> bool:
    """True when one of these is a code that is still valid."""
    return any(made.code in typed for made in _valid(tx, now))


def _valid(tx: Transaction, now: int) -> list[Offer]:
    rows = tx.execute(
        f"SELECT {_OFFER} FROM link_codes WHERE abs(? - made_at) < ?", (now, VALID_MS)
    )
    return [_offer(row) for row in rows]


def _offer(row: Row) -> Offer:
    person, code, root_channel, root_sender, channel, account, chat, thread, key, language = row
    address = Address(channel, account, chat, thread)
    return Offer(person, code, (root_channel, root_sender), address, key, language)


def _link(row: Row) -> Link:
    channel, sender, root_channel, root_sender, account, chat, thread, language = row
    address = Address(channel, account, chat, thread)
    return Link((channel, sender), (root_channel, root_sender), address, language)
