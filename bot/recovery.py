"""Opening the database, and bringing back what it lost.

What came back and what did not is noted once, and told to the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import orjson

from bot.channel import Address
from bot.clock import Clock
from bot.delivery import outbox
from bot.errors import StorageCorrupt, StorageError
from bot.i18n import language_of, text
from bot.identity.routing import OWNER
from bot.sessions import inbox, recover
from bot.storage import Transaction, backup, journal
from bot.storage.sqlite import SqliteDatabase

DATABASE_NAME = "confidant.db"
TRANSCRIPTS = "sessions"
_KEY = "restored"
_TOLD = "restored.told"


@dataclass(frozen=True, slots=True)
class Restored:
    """A database that was lost. `at` is in ms since the epoch.

    `backup` is the name of the copy that took its place; without one it was begun anew, or
    (`by_hand`) somebody put an older one there. `counts` says how many of each kind the journal
    gave back, `unread` how many of its lines could not be used; `aside` is where they are kept.
    """

    at: int
    backup: str = ""
    by_hand: bool = False
    entries: int = 0
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    unread: int = 0
    aside: str = ""

    @property
    def is_worth_telling(self) -> bool:
        """False for a first start, and for one after which nothing was missing."""
        return bool(self.backup or self.entries or self.counts or self.unread)


async def open_database(folder: Path, clock: Clock) -> SqliteDatabase:
    """The database of a storage folder; a damaged one is restored from its newest backup.

    What the journal and then the transcript files hold beyond it is read back; what was forgotten
    stays so, and what was answered is not answered once more.

    Raises:
        StorageCorrupt: it is damaged and there is no sound backup; nothing was changed.
        StorageError: it cannot be opened.
    """
    path = folder / DATABASE_NAME
    now = clock()
    used = ""
    by_hand = not backup.is_new(path)
    try:
        await asyncio.to_thread(backup.check, path)
        if backup.is_new(path) and (folder / TRANSCRIPTS).is_dir():
            backup.mark_read_back(path, due=True)
        database = await SqliteDatabase.open(path)
    except StorageCorrupt:
        used = (await asyncio.to_thread(backup.restore, path, now)).name
        database = await SqliteDatabase.open(path)
    is_due = backup.read_back_is_due(path)
    settle = partial(inbox.settle, now=now)
    try:
        told = await recover.read_journal(database, journal.file_of(path), now)
        entries = await recover.read_back(database, folder / TRANSCRIPTS, settle, now, every=is_due)
        back = Restored(
            at=now,
            backup=used,
            by_hand=by_hand,
            entries=entries,
            counts=told.counts,
            unread=told.unreadable + told.unknown,
            aside=told.aside.name if told.aside else "",
        )
        if back.is_worth_telling:
            await database.write(lambda tx: note(tx, back))
        if is_due:
            backup.mark_read_back(path, due=False)
    except OSError as exc:
        await database.close()
        raise StorageError(
            f"The journal {journal.file_of(path)} cannot be used: {exc.strerror}. It says what was "
            "forgotten, so nothing is begun without it. Mend that, or move it away."
        ) from exc
    except BaseException:
        await database.close()
        raise
    return database


def note(tx: Transaction, restored: Restored) -> None:
    """Keep the latest one, for the owner and for `confidant doctor`."""
    for key in (_KEY, _TOLD):
        tx.execute("DELETE FROM meta WHERE key = ?", (key,))
    tx.execute(
        "INSERT INTO meta(key, value, updated_at) VALUES (?, ?, ?)",
        (_KEY, orjson.dumps(asdict(restored)).decode(), restored.at),
    )


def latest(tx: Transaction) -> Restored | None:
    """The latest one, if the database was ever lost."""
    rows = tx.execute("SELECT value FROM meta WHERE key = ?", (_KEY,))
    return Restored(**orjson.loads(rows[0][0])) if rows else None


def tell(tx: Transaction, language: str, now: int) -> bool:
    """Put what came back into the owner's latest direct chat, once; False when there is none yet.

    `language` is the configured one; "auto" is that of the owner's app.
    """
    restored = latest(tx)
    if restored is None or tx.execute("SELECT 1 FROM meta WHERE key = ?", (_TOLD,)):
        return True
    chats = tx.execute(
        "SELECT channel, account, chat, thread, locale FROM sessions "
        "WHERE chat_type = 'direct' AND person = ? ORDER BY last_user_at DESC, id DESC LIMIT 1",
        (OWNER,),
    )
    if not chats:
        return False
    *place, locale = chats[0]
    spoken = language_of(locale if language == "auto" else language)
    outbox.add(tx, Address(*place), words(restored, spoken), now, kind="notice")
    tx.execute("INSERT INTO meta(key, value, updated_at) VALUES (?, '', ?)", (_TOLD, now))
    return True


def words(restored: Restored, language: str) -> str:
    """What happened, what came back, and what did not. Pure."""
    if restored.backup:
        said = [text(language, "restored.backup", name=restored.backup)]
    else:
        said = [text(language, f"restored.{'by_hand' if restored.by_hand else 'anew'}")]
    counts = restored.counts
    said.append(
        text(
            language,
            "restored.came",
            entries=restored.entries,
            forgotten=counts.get("forgotten", 0),
            links=counts.get("links", 0),
            reminders=counts.get("reminders", 0),
            people=counts.get("pairing", 0),
            rooms=counts.get("rooms", 0) + counts.get("moved_chats", 0),
            choices=counts.get("sessions", 0) + counts.get("current", 0),
        )
    )
    if restored.unread:
        said.append(text(language, "restored.unread", count=restored.unread, name=restored.aside))
    said.append(text(language, "restored.lost"))
    return "\n".join(said)
