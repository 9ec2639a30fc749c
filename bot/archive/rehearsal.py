"""Trying a backup: restored into a folder that is thrown away, and asked for what is in it."""

from __future__ import annotations

from pathlib import Path

from bot.archive import restore
from bot.archive.container import Manifest
from bot.archive.making import stage
from bot.archive.restore import Passphrase
from bot.archive.work import Advance, unheard
from bot.errors import ArchiveRefused
from bot.sessions import entries
from bot.storage import Transaction
from bot.storage.fulltext import match_query
from bot.storage.sqlite import SqliteDatabase

ASKED = 20  # of the newest entries that are indexed
_HITS = 50  # among which one of them has to be when its own words are asked for


async def rehearse(
    archive: Path, folder: Path, passphrase: Passphrase, advance: Advance = unheard
) -> Manifest:
    """Restore a backup into a folder below the storage folder, look whether all is there, and go.

    Every file has to be what it was, the database sound, and search has to find what was said last.

    Raises:
        ArchiveRefused: it could not be restored.
        ArchiveError: it cannot be read, the disk does not take it, or another one is at it.
    """
    async with stage(folder) as place:
        scratch = place / "restored"
        scratch.mkdir(mode=0o700)
        found = await restore.unpack(archive, passphrase, lambda name: scratch / name, advance)
        database = await SqliteDatabase.open(found.database)
        try:
            answers = await database.read(_answers)
        finally:
            await database.close()
        if not answers:
            raise ArchiveRefused(
                f"{archive.name} cannot be searched: what was said last is not found by its own "
                "words. Nothing was changed."
            )
    return found.manifest


def _answers(tx: Transaction) -> bool:
    """True when search finds what was said last by its own words, or nobody said any."""
    rows = tx.execute(
        """SELECT entries.seq, entries.line, sessions.key FROM entries
            JOIN sessions ON sessions.id = entries.session_id
            WHERE entries.seq IN (SELECT rowid FROM entries_text)
            ORDER BY entries.seq DESC LIMIT ?""",
        (ASKED,),
    )
    asked = [(int(seq), entries.parse(str(line)).text, str(key)) for seq, line, key in rows]
    asked = [each for each in asked if match_query(each[1])]
    return not asked or any(
        seq in {int(row[0]) for row in tx.search_text(words, _HITS, (key,))}
        for seq, words, key in asked
    )
