"""Keeps what was said findable by meaning too, for as long as the configuration wants it.

The transcripts are the truth; what stands in the memory index is derived from them and is added
again when the index was rebuilt. What a person had forgotten stays out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import orjson
import structlog

from bot.clock import DAY_MS, Clock
from bot.config import Settings
from bot.errors import StorageClosed, StorageError
from bot.identity.routing import agent_of
from bot.identity.view import TALK, talk_of
from bot.memory.index import MemoryIndex
from bot.memory.search import Document
from bot.sessions import store
from bot.storage import Database, Transaction, scalar, scalars
from bot.storage.records import from_json, keep, value_of

EVERY_SECONDS = 5.0  # between looks for what was said meanwhile
EXPIRE_EVERY = 720  # looks: about an hour
BATCH = 200  # entries in one look
WALK = 20_000  # entries that are looked through in one transaction
_EDGE = "memory.feed.edge"
WITHDRAW_MS = 60_000  # what was forgotten so recently may have been on its way to the index

log = structlog.get_logger(__name__)


class TranscriptFeed:
    """Hands the index what was said in the last days, and takes older things out."""

    def __init__(
        self, database: Database, index: MemoryIndex, settings: Settings, clock: Clock
    ) -> None:
        self._database = database
        self._index = index
        self._settings = settings
        self._clock = clock
        self._last = 0  # sequence number of the newest entry that was handed over
        self._oldest = 0  # sequence number of the oldest entry there is
        self._looks = 0
        self._looked_at = clock()
        self._generation = ""
        self._days = settings.now.memory.retention_days  # for which everything was looked at

    async def run(self) -> None:
        """Look for what was said, until cancelled."""
        while True:
            try:
                await self.look()
            except StorageClosed:
                return
            except StorageError as exc:
                log.warning("memory.feed_failed", error=type(exc).__name__)
            await asyncio.sleep(EVERY_SECONDS)

    async def look(self) -> None:
        """Follow what was said; look at it all now and then, and after a change of what there is.

        That is a rebuild of the index, and old entries that were dropped.

        Raises:
            StorageError: the database cannot be read.
        """
        oldest, days = await self._database.read(_oldest), self._settings.now.memory.retention_days
        known, there = (self._generation, self._oldest), (self._index.generation, oldest)
        if self._looks % EXPIRE_EVERY == 0 or known != there or self._days != days:
            await self.reconcile()
            self._generation, self._oldest = there
            self._days = days
        await self.follow()
        self._looks += 1

    async def follow(self) -> None:
        """Hand over what was said since the last look."""
        has_more = True
        while has_more:
            found, gone = await self._database.read(self._news)
            if found:
                await self._index.add_documents([document for _, document in found])
                self._last = found[-1][0]
            if gone:
                await self._index.remove_documents(gone)
            has_more = bool(found)

    def _news(
        self, tx: Transaction
    ) -> tuple[Sequence[tuple[int, Document]], Sequence[tuple[str, str]]]:
        """New entries since the last look, and those that any process had forgotten recently.

        The latter may have been on its way to the index; what was forgotten after this is among
        those of the next look.
        """
        since, self._looked_at = self._looked_at - WITHDRAW_MS, self._clock()
        return _documents(tx, self._last, self._since(), BATCH), _forgotten(tx, since)

    async def reconcile(self) -> None:
        """Take out what is too old or was forgotten, and begin again with what is missing.

        What is older than the days to keep is walked past once, and then begun after.
        """
        since = self._since()
        known = await self._database.read(lambda tx: _edge(tx, since))
        left = set(await self._index.document_ids())
        first = missing = 0
        begun = last = known - 1
        while True:
            after = last
            last, found = await self._database.read(
                lambda tx, after=after: _wanted(tx, since, after)
            )
            if last == after:
                break
            begun = after
            first = first or next((each.seq for each in found), 0)
            wanted = [each for each in found if not each.is_forgotten]
            lacking = (each.seq for each in wanted if each.document not in left)
            missing = missing or min(lacking, default=0)
            left.difference_update(each.document for each in wanted)
        if left:
            await self._index.remove_documents(left)
        self._last = missing - 1 if missing else last
        # Not the very last ones: others may be storing some with lower numbers.
        edge = min(first, begun) if first else begun
        if edge > known:
            now = self._clock()

            def note(tx: Transaction) -> None:
                for id_ in scalars(tx, "SELECT id FROM entries WHERE seq = ?", edge):
                    keep(tx, _EDGE, orjson.dumps((edge, since, id_)).decode(), now)

            await self._database.write(note)

    def _since(self) -> int:
        return self._clock() - self._settings.now.memory.retention_days * DAY_MS


@dataclass(frozen=True, slots=True)
class _Wanted:
    """An entry that is recent enough for the index; `document` is its partition and id."""

    seq: int
    document: tuple[str, str]
    is_forgotten: bool


_KINDS = "kind IN ('message', 'compaction')"
_IS_FORGOTTEN = "EXISTS (SELECT 1 FROM forgotten WHERE forgotten.seq = entries.seq)"


def _edge(tx: Transaction, since: int) -> int:
    """The number before which no entry is as recent as that (ms since the epoch); 0: not known.

    What is stored later has higher numbers, so it holds for every later time.
    """
    read = partial(from_json, tuple[int, int, str])
    seq, at, id_ = value_of(tx, _EDGE, read) or (0, since + 1, "")
    # In a copy of this database elsewhere the numbers may be others.
    is_same = scalar(tx, "SELECT id FROM entries WHERE seq = ?", seq) == id_
    return seq if at <= since and is_same else 0


def _oldest(tx: Transaction) -> int:
    return scalar(tx, "SELECT coalesce(min(seq), 0) FROM entries")


def partition_of(chat_type: str, person: str, key: str) -> str:
    """The partition of what was said: its person's with an agent in direct chats, or its room's."""
    if chat_type == "direct" and person:
        return talk_of(agent_of(key), person)
    return f"{TALK}{key}"


def _documents(
    tx: Transaction, after: int, since: int, limit: int
) -> Sequence[tuple[int, Document]]:
    """Entries after a sequence number, as documents, each with its own number."""
    rows = tx.execute(
        "SELECT entries.seq, entries.id, line, chat_type, person, key FROM entries "
        "JOIN sessions ON sessions.id = entries.session_id "
        f"WHERE {_KINDS} AND at >= ? AND NOT {_IS_FORGOTTEN} "
        "AND entries.seq > ? ORDER BY entries.seq LIMIT ?",
        (since, after, limit),
    )
    return [
        (seq, Document(partition_of(chat_type, person, key), id_, entry.text, entry.at))
        for seq, id_, line, chat_type, person, key in rows
        for entry in store.read_entries([(seq, line)])
    ]


def _forgotten(tx: Transaction, since: int) -> list[tuple[str, str]]:
    """The partition and id of what was forgotten of late."""
    rows = tx.execute(
        "SELECT entries.id, chat_type, person, key FROM forgotten "
        "JOIN entries ON entries.seq = forgotten.seq "
        "JOIN sessions ON sessions.id = entries.session_id WHERE forgotten.at >= ?",
        (since,),
    )
    return [(partition_of(chat_type, person, key), id_) for id_, chat_type, person, key in rows]


def _wanted(tx: Transaction, since: int, after: int) -> tuple[int, list[_Wanted]]:
    """The next entries that are recent enough, in order, and the number up to which was looked."""
    ((last,),) = tx.execute(
        "SELECT coalesce(max(seq), ?) FROM "
        "(SELECT seq FROM entries WHERE seq > ? ORDER BY seq LIMIT ?) AS next",
        (after, after, WALK),
    )
    rows = tx.execute(
        f"SELECT entries.seq, entries.id, chat_type, person, key, {_IS_FORGOTTEN} FROM entries "
        "JOIN sessions ON sessions.id = entries.session_id "
        f"WHERE {_KINDS} AND at >= ? AND entries.seq > ? AND entries.seq <= ? ORDER BY entries.seq",
        (since, after, last),
    )
    return int(last), [
        _Wanted(seq, (partition_of(chat_type, person, key), id_), bool(gone))
        for seq, id_, chat_type, person, key, gone in rows
    ]
