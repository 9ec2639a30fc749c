"""Small facts worth keeping across restarts, by key."""

from __future__ import annotations

from bot.clock import Clock
from bot.errors import StorageError
from bot.invocation import confidant
from bot.storage import Database, Transaction, scalar, upsert

MOVE = "move:"  # what the keys begin with that say how far a move into this database is
MOVED_FROM = f"{MOVE}from"  # where everything here comes from
MOVED = ""  # what that says once all is here


class MetaStore:
    """Texts in the `meta` table."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def get(self, key: str) -> str | None:
        """The text of a key, if there is one."""
        return await self._database.read(lambda tx: text_of(tx, key))

    async def under(self, prefix: str) -> dict[str, str]:
        """The texts of all keys that begin like this, by what follows in the key."""
        return await self._database.read(lambda tx: under(tx, prefix))

    async def forget(self, key: str) -> None:
        """Keep nothing under a key.

        Raises:
            StorageError: it could not be stored.
        """
        await self._database.write(lambda tx: drop(tx, key))

    async def set(self, key: str, text: str) -> None:
        """Keep a text.

        Raises:
            StorageError: it could not be stored.
        """
        now = self._clock()
        await self._database.write(lambda tx: keep(tx, key, text, now))


def text_of(tx: Transaction, key: str) -> str | None:
    """The text of a key, if there is one."""
    return scalar(tx, "SELECT value FROM meta WHERE key = ?", key)


def under(tx: Transaction, prefix: str) -> dict[str, str]:
    """The texts of all keys with a prefix, by what follows it, in the order of the keys."""
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)  # the first text that sorts behind all of them
    rows = tx.execute(
        "SELECT key, value FROM meta WHERE key >= ? AND key < ? ORDER BY key", (prefix, end)
    )
    return {key.removeprefix(prefix): text for key, text in rows}


def drop(tx: Transaction, key: str) -> None:
    """Keep nothing under a key."""
    tx.execute("DELETE FROM meta WHERE key = ?", (key,))


def drop_under(tx: Transaction, prefix: str) -> None:
    """Keep nothing under the keys with a prefix."""
    tx.execute("DELETE FROM meta WHERE substr(key, 1, ?) = ?", (len(prefix), prefix))


def keep(tx: Transaction, key: str, text: str, now: int) -> None:
    """Keep a text."""
    upsert(tx, "meta", ("key",), {"key": key, "value": text, "updated_at": now})


def must_be_whole(tx: Transaction) -> None:
    """Make sure that nothing is being moved into this database.

    Raises:
        StorageError: a move was begun and is not complete.
    """
    if text_of(tx, MOVED_FROM) not in {None, MOVED}:
        raise StorageError(
            "A move into this database is not complete, so nothing runs on it yet. Do the same "
            f"`{confidant('move')}`, or `{confidant('restore')}`, again: it goes on where it ended."
        )
