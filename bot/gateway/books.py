"""The books of what people chose: read from the database, and changed by what happens."""

from __future__ import annotations

import structlog

from bot.channel import Address
from bot.gateway import pairing
from bot.identity import Books, Directory
from bot.identity.values import MAX_CHOSEN
from bot.sessions import links, rooms
from bot.storage import Database, Transaction

log = structlog.get_logger(__name__)


def read_books(tx: Transaction) -> Books:
    """The books as the database has them."""
    return Books(
        links=tuple(links.everything(tx)),
        paired=frozenset((p.channel, p.account, p.sender) for p in pairing.approved(tx)),
        chosen=dict(reversed(rooms.activations(tx, MAX_CHOSEN).items())),
        moved=rooms.moved(tx),
    )


async def chat_moved(
    database: Database, directory: Directory, now: int, address: Address, chat: str
) -> None:
    """A chat has another id now: its conversation and its memory go along.

    Raises:
        StorageError: it could not be noted: offer it again later.
    """
    first = directory.now.books.first((address.channel, address.account, address.chat))
    spot = (address.channel, address.account, chat)
    await database.write(lambda tx: rooms.move(tx, spot, first, now))
    directory.moved(spot, first)
    log.info("room.moved", channel=address.channel)
