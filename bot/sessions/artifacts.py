"""Tool results that were too long for a transcript, whole. Functions over a transaction."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from bot.clock import Clock
from bot.identity.view import MemoryView
from bot.storage import Database, Transaction, fulltext, marks, scalars
from bot.unicode import well_formed

PICTURE = "picture"  # stands for the tool of what a person sent


class ArtifactStore:
    """Keeps texts with the session they came up in; only that person's conversations read them."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def keep(self, session_id: str, tool: str, text: str) -> str:
        """Keep a text; returns its id.

        Raises:
            StorageError: it could not be stored.
        """
        id_, text = f"a-{secrets.token_hex(6)}", well_formed(text)
        now = self._clock()
        await self._database.write(
            lambda tx: tx.execute(
                "INSERT INTO artifacts(id, session_id, tool, at, text) VALUES (?, ?, ?, ?, ?)",
                (id_, session_id, tool, now, text),
            )
        )
        return id_

    async def picture(self, id_: str) -> str:
        """A picture in base64, by the id that its conversation has; empty if it is gone."""
        return (await self._database.read(lambda tx: pictures(tx, [id_]))).get(id_, "")

    async def read(self, view: MemoryView, session_id: str, id_: str) -> str | None:
        """A text of this session or of one the view may see; None for every other."""
        return await self._database.read(lambda tx: _text(tx, view, session_id, id_))


def pictures(tx: Transaction, ids: Sequence[str]) -> dict[str, str]:
    """Pictures by their id, in base64; those that are not there any more are left out."""
    among = f"tool = '{PICTURE}' AND id IN ({marks(ids)})"
    return dict(tx.execute(f"SELECT id, text FROM artifacts WHERE {among}", ids))


def ids_of(tx: Transaction, keys: Sequence[str]) -> list[str]:
    """The ids of the texts of these keys' sessions; pictures have no words."""
    return scalars(
        tx,
        "SELECT artifacts.id FROM artifacts JOIN sessions ON sessions.id = session_id "
        f"WHERE tool <> '{PICTURE}' AND key IN ({marks(keys)}) ORDER BY artifacts.id",
        *keys,
    )


def among(tx: Transaction, ids: Sequence[str], words: str) -> list[str]:
    """The ids of the texts among these that hold some words; see `forgetting.among`."""
    wanted = fulltext.folded(words)
    if not wanted:
        return []
    among = f"id IN ({marks(ids)}) ORDER BY id"
    rows = tx.execute(f"SELECT id, text FROM artifacts WHERE {among}", ids)
    return [id_ for id_, text in rows if wanted in fulltext.folded(text)]


def remove(tx: Transaction, ids: Sequence[str]) -> None:
    """Remove texts."""
    tx.execute(f"DELETE FROM artifacts WHERE id IN ({marks(ids)})", ids)


def before(tx: Transaction, at: int) -> list[str]:
    """The ids of the texts and pictures from before a time, in ms since the epoch."""
    return scalars(tx, "SELECT id FROM artifacts WHERE at < ? ORDER BY id", at)


def drop(tx: Transaction, keys: Sequence[str], words: str) -> int:
    """Remove the texts of these keys' sessions that hold some words; how many there were."""
    held = among(tx, ids_of(tx, keys), words)
    remove(tx, held)
    return len(held)


def _text(tx: Transaction, view: MemoryView, session_id: str, id_: str) -> str | None:
    rows = tx.execute(
        "SELECT session_id, key, text FROM artifacts JOIN sessions ON sessions.id = session_id "
        f"WHERE artifacts.id = ? AND tool <> '{PICTURE}'",
        (id_,),
    )
    for owner, key, text in rows:
        if owner == session_id or key in view.keys:
            return str(text)
    return None
