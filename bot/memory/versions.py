"""Earlier versions of notes, kept for a while so that changes can be undone.

The page keeps what it writes over, and so do the bot's own changes that put something in the place
of something else. What others changed, such as an editor, is known from the index, as far as that
can tell what a note said to the last byte.

They are rows of the database, whether the notes are files or rows. What is forgotten is taken out
of them in the transaction that forgets, which also raises the space's number: whoever began before
that, with words that may be the forgotten ones, keeps nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import structlog

from bot.clock import Clock
from bot.errors import StorageError, ToolError
from bot.memory import markdown
from bot.memory.note_store import FORGOTTEN, MAX_WRITE
from bot.storage import Database, Transaction, scalar, scalars
from bot.storage.fulltext import folded

MOST = 30  # versions of a note
MOST_BYTES = 8_000_000  # of all versions of a space

BURST_MS = 600_000  # what others change again so soon is one change: editors save all the time

log = structlog.get_logger(__name__)

Kind = Literal["edit", "add", "back", "aside", "remove", "bot", "hand", "night"]


class ForgottenMeanwhile(ToolError):
    """Something was forgotten since the text was shown, so nothing of it was kept."""


@dataclass(frozen=True, slots=True)
class Version:
    """A text that a note had, or was meant to have.

    `at` is in ms since the epoch, `size` in bytes. `kind` says what came in its place: an edit, an
    entry that was added, an earlier version, or nothing ("remove"); or that it was set "aside",
    because the note was changed while it was written. "bot" stands for a change of the bot's own,
    "night" for one of its nights, "hand" for one by others.
    """

    id: int
    at: int
    kind: str
    size: int


def number(tx: Transaction, space: str) -> int:
    """The number of forgettings in a space; ask before reading what may be kept later."""
    return scalar(tx, "SELECT number FROM forgotten_spaces WHERE space = ?", space) or 0


def keep(
    tx: Transaction, space: str, path: str, text: str, *, kind: Kind, now: int, since: int
) -> int:
    """Keep a text of a note, and let go of the oldest there are; its number.

    `since` is the space's `number` from before the text was read. The text that was kept last is
    not kept again; whoever changed it is believed, even if the index noticed it before.

    Raises:
        ForgottenMeanwhile: something was forgotten after that.
    """
    if number(tx, space) != since:
        raise ForgottenMeanwhile(FORGOTTEN)
    newest = tx.execute(
        "SELECT id, text FROM note_versions WHERE space = ? AND path = ? ORDER BY id DESC LIMIT 1",
        (space, path),
    )
    if newest and newest[0][1] == text:
        there = int(newest[0][0])
        if kind != "hand":
            tx.execute("UPDATE note_versions SET kind = ? WHERE id = ?", (kind, there))
        return there
    made = scalar(
        tx,
        "INSERT INTO note_versions(space, path, at, kind, size, text) "
        "VALUES (?, ?, ?, ?, ?, ?) RETURNING id",
        *(space, path, now, kind, len(text.encode()), text),
    )
    tx.execute(
        "DELETE FROM note_versions WHERE id IN (SELECT id FROM "
        "(SELECT id, sum(size) OVER (ORDER BY id DESC) AS total FROM note_versions "
        "WHERE space = ?) AS sized WHERE total > ?)",
        (space, MOST_BYTES),
    )
    tx.execute(
        "DELETE FROM note_versions WHERE id IN (SELECT id FROM note_versions "
        f"WHERE space = ? AND path = ? ORDER BY id DESC LIMIT 1000 OFFSET {MOST})",
        (space, path),
    )
    return made


def numbers(tx: Transaction) -> dict[str, int]:
    """The numbers of forgettings by space, where there were any."""
    return {str(space): int(n) for space, n in tx.execute("SELECT * FROM forgotten_spaces")}


def keep_noticed(
    tx: Transaction, space: str, path: str, text: str, *, now: int, since: int
) -> None:
    """Keep what a note said before others changed it, unless it is kept already.

    Of changes in a burst it is what was there before the first. Nothing is kept when something was
    forgotten after `since`.
    """
    rows = tx.execute(
        "SELECT kind, at, text FROM note_versions WHERE space = ? AND path = ? AND "
        "(size = ? OR id = (SELECT max(id) FROM note_versions WHERE space = ? AND path = ?)) "
        "ORDER BY id DESC",
        (space, path, len(text.encode()), space, path),
    )
    is_burst = bool(rows) and rows[0][0] == "hand" and now - int(rows[0][1]) < BURST_MS
    if is_burst or any(row[2] == text for row in rows) or number(tx, space) != since:
        return
    keep(tx, space, path, text, kind="hand", now=now, since=since)


def listed(tx: Transaction, space: str, path: str) -> list[Version]:
    """The versions of a note, the newest first."""
    rows = tx.execute(
        "SELECT id, at, kind, size FROM note_versions WHERE space = ? AND path = ? "
        "ORDER BY id DESC",
        (space, path),
    )
    return [Version(*row) for row in rows]


def text_of(tx: Transaction, space: str, path: str, version: int) -> str | None:
    """The text of a version; None when there is none of this number."""
    where = "space = ? AND path = ? AND id = ?"
    return scalar(tx, f"SELECT text FROM note_versions WHERE {where}", space, path, version)


def tell(tx: Transaction, space: str) -> None:
    """Let every node know that something was forgotten in a space, so that no page shows it."""
    tx.execute(
        "INSERT INTO forgotten_spaces(space, number) VALUES (?, 1) "
        "ON CONFLICT(space) DO UPDATE SET number = forgotten_spaces.number + 1",
        (space,),
    )
    tx.publish("forgotten")


def forget(tx: Transaction, space: str, words: str) -> int:
    """Take words out of every version of a space; how many held them.

    The entries that hold them go, as in the notes. Where the words would still be found, because
    they run on from one entry into another, the version goes.
    """
    tell(tx, space)
    held = holding(tx, space, words)
    for version in held:
        text = scalar(tx, "SELECT text FROM note_versions WHERE id = ?", version)
        left = markdown.without_words(text, words)
        if folded(words) in folded(left):
            tx.execute("DELETE FROM note_versions WHERE id = ?", (version,))
        else:
            tx.execute(
                "UPDATE note_versions SET text = ?, size = ? WHERE id = ?",
                (left, len(left.encode()), version),
            )
    return len(held)


def holding(tx: Transaction, space: str, words: str) -> list[int]:
    """The versions of a space that hold these words."""
    if not (wanted := folded(words)):
        return []
    ids = scalars(tx, "SELECT id FROM note_versions WHERE space = ? ORDER BY id", space)
    text = "SELECT text FROM note_versions WHERE id = ?"  # one at a time: each may be a megabyte
    return [version for version in ids if wanted in folded(scalar(tx, text, version))]


def clear(tx: Transaction) -> None:
    """Let go of all of them: an older database may hold what was forgotten since."""
    tx.execute("DELETE FROM note_versions")


class Versions:
    """Keeps what others write over; it never makes anything fail."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def numbers(self) -> Mapping[str, int] | None:
        """`numbers`; None when nobody can tell, so that nothing is to be kept."""
        try:
            return await self._database.read(numbers)
        except StorageError:
            return None

    async def changed(
        self, space: str, path: str, text: str, since: Mapping[str, int] | None, kind: Kind
    ) -> None:
        """Keep what a note said before the bot changed it, or somebody else."""
        if since is None or not text or len(text.encode("utf-8", "replace")) > MAX_WRITE:
            return
        before, now = since.get(space, 0), self._clock()

        def work(tx: Transaction) -> None:
            if kind == "hand":
                keep_noticed(tx, space, path, text, now=now, since=before)
            else:
                keep(tx, space, path, text, kind=kind, now=now, since=before)

        try:
            await self._database.write(work)
        except ForgottenMeanwhile:
            pass
        except StorageError as error:  # the change is made, and there is no way back from it
            log.warning("memory.no_version", error=type(error).__name__)
