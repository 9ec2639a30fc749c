"""Every night memory asks its index for some of its notes in other words, and notes what it found.

The words are some of an entry's own in another order, so no model is needed, and what is told is
whether the index fails, not how clever a question was. Each space is asked in its own view; what is
kept of it is numbers, and the places of entries that were not found, never their words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from typing import Final, NamedTuple

import orjson
import structlog

from bot.clock import DAY_MS, Clock, moment
from bot.config import Settings
from bot.errors import StorageError, ToolError
from bot.identity.conversation import local_zone
from bot.identity.view import FOLDERS, MAIN_SPACE, SHARED_SPACE, MemoryView
from bot.memory import layout, markdown
from bot.memory.memory import Memory
from bot.sessions.erasing import ASKED
from bot.storage import Database, Transaction
from bot.storage.fulltext import is_stop_word
from bot.storage.records import MetaStore, drop, from_json, keep, values_under

LOOK_SECONDS: Final = 1_200.0
FIRST_SECONDS: Final = 60.0
MOST: Final = 200  # questions of one night
OF_SPACE: Final = 24  # of them about one space
FILES: Final = 8  # of a space that are read for it, beside those with missed entries
CHARACTERS: Final = 200_000  # of each of them
RESULTS: Final = 6  # among which an entry has to be
NEVER: Final = 2  # nights in a row after which an entry counts as never found
KEPT: Final = 12  # places of entries that are remembered as missed
_HOURS: Final = range(3, 6)  # of the program's clock
_PAUSE_MS: Final = DAY_MS * 3 // 4
_FEWEST: Final = 3  # words that an entry must have to be asked for
_PIECE: Final = re.compile(r"([\u3400-\u9fff]{1,4})")  # of a run of Chinese

log = structlog.get_logger(__name__)


class Place(NamedTuple):
    """An entry that was not found: its file, its line from 1, and on how many nights in a row."""

    path: str
    line: int
    nights: int = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """The result of a space's last night; `at` is in ms since the epoch."""

    at: int
    asked: int
    found: int
    missed: tuple[Place, ...] = ()

    @property
    def never(self) -> tuple[Place, ...]:
        """The entries that are not found whenever they are asked for."""
        return tuple(place for place in self.missed if place.nights >= NEVER)

    @property
    def share(self) -> int:
        """The percentage of entries that were found."""
        return round(100 * self.found / self.asked) if self.asked else 100


def in_other_words(entry: str, turn: int) -> str:
    """A question for an entry: some of its words in another order; empty when it has too few. Pure.

    Every `turn` leaves out others.
    """
    spread = _PIECE.sub(r" \1 ", markdown.entry_words(entry)).split()
    words = [word for word in dict.fromkeys(spread) if not is_stop_word(word)]
    left = [word for n, word in enumerate(words) if (n + turn) % 3]
    return " ".join(reversed(left)) if len(words) >= _FEWEST else ""


def of_space(tx: Transaction, space: str) -> Asked | None:
    """The result of a space's last night, if it was ever asked."""
    return _all(tx).get(space)


def of_others(tx: Transaction) -> Asked | None:
    """The results of all spaces but the owner's as one, without any place."""
    known = [each for space, each in _all(tx).items() if space not in {MAIN_SPACE, SHARED_SPACE}]
    asked, found = (sum(each.asked for each in known), sum(each.found for each in known))
    return Asked(max(each.at for each in known), asked, found) if known else None


def _all(tx: Transaction) -> Mapping[str, Asked]:
    return values_under(tx, ASKED, partial(from_json, Asked))


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Asks, at night and on one node; `owns` says whether that is this one."""

    memory: Memory
    database: Database
    clock: Clock
    settings: Settings
    owns: Callable[[], bool]

    async def look(self) -> None:
        """Ask, if it is time for it."""
        now = self.clock()
        if not self.owns() or moment(now, local_zone(self.settings.now)).hour not in _HOURS:
            return
        try:
            known = await self.database.read(_all)
            if not any(0 <= now - each.at < _PAUSE_MS for each in known.values()):
                await self.ask()
        except StorageError as error:
            log.warning("memory.selftest_failed", error=type(error).__name__)

    async def ask(self) -> None:
        """Ask now: the spaces that were not asked for longest come first.

        Raises:
            StorageError: the database cannot be read or written.
        """
        now, status = self.clock(), await self.memory.index.status()
        if status.building is not None:
            return
        known = await self.database.read(_all)
        came: dict[str, Asked] = {}
        left = MOST
        nothing = Asked(0, 0, 0)
        spaces = [each for each in status.spaces if not each.startswith(FOLDERS)]
        for space in sorted(spaces, key=lambda each: (known.get(each, nothing).at, each)):
            found = await self._space(space, known.get(space, nothing), min(OF_SPACE, left), now)
            left -= found.asked
            if found.asked:
                came[space] = found

        def work(tx: Transaction) -> None:
            for space in known.keys() - status.spaces:
                drop(tx, f"{ASKED}{space}")
            for space, each in came.items():
                keep(tx, f"{ASKED}{space}", orjson.dumps(each, default=list).decode(), now)

        await self.database.write(work)
        log.info("memory.selftest", asked=MOST - left, found=sum(e.found for e in came.values()))

    async def _space(self, space: str, before: Asked, most: int, now: int) -> Asked:
        """Ask for entries of one space: first for those that were not found before."""
        view = MemoryView(space, (), private=not layout.is_room(space))
        missed = {(each.path, each.line): each.nights for each in before.missed}
        chance = random.Random(f"{space} {now // DAY_MS}")  # noqa: S311 - a sample, not a secret
        entries = await self._entries(view, {path for path, _ in missed}, chance) if most else []
        chance.shuffle(entries)
        entries.sort(key=lambda each: each[:2] not in missed)
        asked = [(*each, q) for each in entries if (q := in_other_words(each[2], now // DAY_MS))]
        left = [
            Place(path, line, missed.get((path, line), 0) + 1)
            for path, line, words, question in asked[:most]
            if not await self._finds(view, path, line, words, question)
        ]
        return Asked(now, len(asked[:most]), len(asked[:most]) - len(left), tuple(left[:KEPT]))

    async def _entries(
        self, view: MemoryView, first: set[str], chance: random.Random
    ) -> list[tuple[str, int, str]]:
        """Entries of some files of a view's own space: path, line from 1, and text."""
        named = [each.path for each in await self.memory.files.names(view)]
        is_shared = view.space == SHARED_SPACE
        own = [path for path in named if is_shared or not path.startswith(f"{SHARED_SPACE}/")]
        some = {*chance.sample(own, min(FILES, len(own))), *first.intersection(own)}
        found: list[tuple[str, int, str]] = []
        for path in sorted(some):
            try:
                text = await self.memory.files.text(view, path, CHARACTERS)
            except ToolError:
                continue
            found += [(path, item.start + 1, item.text) for item in markdown.items(text)]
        return found

    async def _finds(
        self, view: MemoryView, path: str, line: int, words: str, question: str
    ) -> bool:
        found = await self.memory.index.search(question, view.partitions, RESULTS)
        same = markdown.entry_words(words)
        return any(
            (layout.shown(hit.space, hit.path) == path and hit.start_line <= line <= hit.end_line)
            or same in markdown.normal(hit.snippet)
            for hit in found.hits[:RESULTS]
        )


# How memory grows: how many notes and passages there were, one line a day. Numbers alone.

GROWTH_KEPT: Final = 400  # days
_PREFIX: Final = "growth:"


class MemoryGrowth:
    """Notes down what there is, and tells what there was."""

    def __init__(self, memory: Memory, database: Database, clock: Clock) -> None:
        self._memory = memory
        self._kept = MetaStore(database, clock)
        self._clock = clock

    async def note(self) -> None:
        """Keep what there is today (UTC), and forget the oldest days.

        Raises:
            StorageError: it could not be stored.
        """
        status = await self._memory.index.status()
        today = f"{moment(self._clock(), UTC):%Y-%m-%d}"
        await self._kept.set(f"{_PREFIX}{today}", f"{status.files} {status.chunks}")
        for day in sorted(await self._kept.under(_PREFIX))[:-GROWTH_KEPT]:
            await self._kept.forget(f"{_PREFIX}{day}")

    async def days(self) -> Mapping[str, tuple[int, int]]:
        """Notes and passages on each day that was noted, by its date."""
        found: dict[str, tuple[int, int]] = {}
        for day, words in sorted((await self._kept.under(_PREFIX)).items()):
            notes, _, passages = words.partition(" ")
            found[day] = int(notes), int(passages)
        return found
