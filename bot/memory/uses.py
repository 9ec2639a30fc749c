"""The days claims were last used: a model that was shown a note said in its answer what it claims.

A turn only notes what it showed and what it answered, in this process' memory. Some minutes later
the notes are read again, and of those claims whose words an answer has the day is stored, as a
digest: no words. When the program is killed before that, a day of use is lost and nothing else.
Everything of it may be lost: then what was concluded fades as if it had not been used.

Each view notes the uses of its own space alone. What is shared with everyone is used by somebody
without anybody else's seeing a trace of it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

import structlog
from cachetools import TTLCache

from bot.clock import Clock, moment
from bot.config import Settings
from bot.context import sentences
from bot.errors import StorageError, ToolError
from bot.identity.view import SHARED_SPACE, MemoryView
from bot.memory import claims, layout, markdown, note_store
from bot.memory.claims import Aging, Claim
from bot.memory.note_store import MAX_WRITE
from bot.memory.notes import Notes, SpaceFiles
from bot.storage import Database, Transaction, scalars

WAITING: Final = 200  # answers that wait for that; older ones are let go
MAX_ANSWER: Final = 8_000  # characters of one
MAX_PATHS: Final = 12  # notes of one turn
SHARE: Final = 0.6  # of a claim's words that an answer must have
FEWEST: Final = 2  # of them: one word may stand anywhere
KEPT: Final = timedelta(days=5 * 365)
KNOWN: Final = 2_000  # spaces whose uses are held in memory
KNOWN_SECONDS: Final = 600.0  # for so long; other nodes' uses are seen after that
MOST: Final = 5_000  # uses of one space, the newest

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Answered:
    """A turn's answer on a day, and which of a view's notes it was shown."""

    view: MemoryView
    paths: tuple[str, ...]
    text: str
    day: date


def of_space(tx: Transaction, space: str) -> dict[str, date]:
    """The days on which claims of a space were last used, by their digests."""
    rows = tx.execute(
        "SELECT claim, used_on FROM claim_uses WHERE space = ? "
        f"ORDER BY used_on DESC, claim LIMIT {MOST}",
        (space,),
    )
    return {str(claim): date.fromisoformat(str(day)) for claim, day in rows}


def keep(tx: Transaction, space: str, used: Mapping[str, date]) -> None:
    """Note when claims were used, unless they were used later; let go of what is very old."""
    for claim, day in used.items():
        tx.execute(
            "INSERT INTO claim_uses(space, claim, used_on) VALUES (?, ?, ?) "
            "ON CONFLICT(space, claim) DO UPDATE SET used_on = excluded.used_on "
            "WHERE claim_uses.used_on < excluded.used_on",
            (space, claim, f"{day:%Y-%m-%d}"),
        )
    if used:
        oldest = max(used.values()) - KEPT
        tx.execute(
            "DELETE FROM claim_uses WHERE space = ? AND used_on < ?", (space, f"{oldest:%Y-%m-%d}")
        )


def forget(tx: Transaction, space: str, standing: Collection[str]) -> None:
    """Keep nothing of claims of a space that stand in no note any more, by their digests."""
    for claim in scalars(tx, "SELECT claim FROM claim_uses WHERE space = ?", space):
        if claim not in standing:
            tx.execute("DELETE FROM claim_uses WHERE space = ? AND claim = ?", (space, claim))


def clear(tx: Transaction) -> None:
    """Let go of all of them: an older database may know claims that were forgotten since."""
    tx.execute("DELETE FROM claim_uses")


def digests_of(text: str) -> frozenset[str]:
    """The digests of the claims in a note."""
    return frozenset(claims.of_entry(item).digest for item in markdown.items(text))


def says(answer: Collection[str], claim: Claim) -> bool:
    """True when an answer, as `wording.words` has it, says what a claim does."""
    wanted = sentences.words(claim.text)
    return sum(word in answer for word in wanted) >= max(FEWEST, SHARE * len(wanted))


class Uses:
    """Notes what is used, and tells what fades; without a database nothing counts as used."""

    def __init__(self, settings: Settings, database: Database | None, clock: Clock) -> None:
        self._settings = settings
        self._database = database
        self._clock = clock
        self._waiting: deque[_Answered] = deque(maxlen=WAITING)
        self._known: TTLCache[str, Mapping[str, date]] = TTLCache(
            KNOWN, KNOWN_SECONDS, timer=time.monotonic
        )

    async def aging(self, spaces: Iterable[str], today: date | None = None) -> Aging:
        """The `Aging` of some spaces; without uses when they cannot be read."""
        used = {space: await self._of(space) for space in dict.fromkeys(spaces)}
        today = today or moment(self._clock(), None).date()
        return Aging(today, self._settings.now.memory.aging, used)

    def note(self, view: MemoryView, paths: Iterable[str], answer: str, day: date) -> None:
        """Remember, until it is stored, that a turn showed notes and gave an answer.

        The files every conversation begins with are among what was shown.
        """
        if self._database is None or not view.space or not answer:
            return
        shown = (*layout.curated_files(view), *paths)
        own = [path for path in shown if not path.startswith(f"{SHARED_SPACE}/")]
        some = tuple(dict.fromkeys(own))[:MAX_PATHS]
        self._waiting.append(_Answered(view, some, answer[:MAX_ANSWER], day))

    def drop(self, space: str) -> None:
        """Let go of what waits, and is known, of a space: something there was forgotten."""
        self._keep(each for each in self._waiting if each.view.space != space)
        self._known.pop(space, None)

    async def store(self, files: SpaceFiles, notes: Notes) -> int:
        """Store what was used since the last time; of how many claims. Never raises."""
        waiting: dict[MemoryView, list[_Answered]] = {}
        for each in self._waiting:
            waiting.setdefault(each.view, []).append(each)
        count = 0
        for view, answers in waiting.items():
            try:
                count += await self._store(view, answers, files, notes)
            except (StorageError, ToolError, OSError) as error:  # a day of use is lost
                log.warning("memory.uses_not_stored", error=type(error).__name__)
            # Only now: who is cancelled meanwhile leaves the rest to whoever stores next.
            done = set(map(id, answers))
            self._keep(each for each in self._waiting if id(each) not in done)
        return count

    def _keep(self, waiting: Iterable[_Answered]) -> None:
        self._waiting = deque(waiting, maxlen=WAITING)

    async def _store(
        self, view: MemoryView, answers: Sequence[_Answered], files: SpaceFiles, notes: Notes
    ) -> int:
        """Store the uses of one view's claims, unless something is forgotten meanwhile."""
        if self._database is None:
            return 0
        async with notes.watching(view) as watch:
            paths = dict.fromkeys(path for each in answers for path in each.paths)
            texts = [(path, await files.text(view, path, MAX_WRITE)) for path in paths]
            used = await asyncio.to_thread(_used, texts, answers)
            known = await self._of(view.space)
            news = {claim: day for claim, day in used.items() if known.get(claim, date.min) < day}

            def work(tx: Transaction) -> int:
                if note_store.heard_forgetting(tx, watch):
                    return 0
                keep(tx, view.space, news)
                return len(news)

            stored = await self._database.write(work) if news else 0
        if stored:
            self._known[view.space] = {**known, **news}
        return stored

    async def _of(self, space: str) -> Mapping[str, date]:
        if self._database is None or space == SHARED_SPACE:
            return {}
        known = self._known.get(space)
        if known is None:
            try:
                known = await self._database.read(lambda tx: of_space(tx, space))
            except StorageError:
                return {}
            self._known[space] = known
        return known


def _used(texts: Sequence[tuple[str, str]], answers: Sequence[_Answered]) -> dict[str, date]:
    """The last day on which each claim of some notes was said in an answer that had them."""
    used: dict[str, date] = {}
    said = [(each, sentences.words(each.text)) for each in answers]
    for path, text in texts:
        of_path = [(words, each.day) for each, words in said if path in each.paths]
        for claim in claims.of_note(path, text):
            if claim.is_over:
                continue
            days = [day for words, day in of_path if says(words, claim)]
            if days:
                used[claim.digest] = max(*days, used.get(claim.digest, date.min))
    return used
