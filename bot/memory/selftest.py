"""Every night memory asks itself for some of its notes in other words, and notes what it found.

The words are made by plain rules of an entry's own: some of its words that say something, in
another order. So it needs no model, costs a search each, and tells of an index that fails rather
than of how clever a question was. Each space is asked in its own view; what is kept of it is
numbers, and the places of entries that were not found, never their words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

import orjson
import structlog

from bot.clock import DAY_MS, Clock, moment
from bot.errors import StorageError, ToolError
from bot.identity.view import MAIN_SPACE, SHARED_SPACE, MemoryView
from bot.memory import layout, markdown
from bot.memory.memory import Memory
from bot.sessions.erasing import ASKED
from bot.storage import Database, Transaction
from bot.storage.fulltext import is_stop_word
from bot.storage.meta import keep

LOOK_SECONDS: Final = 1_200.0
FIRST_SECONDS: Final = 60.0
MOST: Final = 200  # questions of one night
OF_SPACE: Final = 24  # of them about one space
FILES: Final = 8  # of a space that are read for it
CHARACTERS: Final = 200_000  # of each of them
RESULTS: Final = 6  # among which an entry has to be
NEVER: Final = 2  # nights in a row after which an entry counts as never found
KEPT: Final = 12  # places of entries that are remembered as missed
_HOURS: Final = range(3, 6)  # of the program's clock
_PAUSE_MS: Final = DAY_MS * 3 // 4
_FEWEST: Final = 3  # words that an entry must have to be asked for
_PIECE: Final = 4  # characters of Chinese
_CJK: Final = re.compile(r"[\u3400-\u9fff]{2,}")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """An entry that was not found: its file, its line from 1, and on how many nights in a row."""

    path: str
    line: int
    nights: int = 1


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of a space's last night: `at` in ms since the epoch."""

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
        """How many of a hundred were found."""
        return round(100 * self.found / self.asked) if self.asked else 100


def in_other_words(entry: str, turn: int) -> str:
    """A question for an entry: some of its words in another order; empty when it has too few. Pure.

    Every `turn` leaves out others.
    """
    spread = _CJK.sub(lambda run: f" {' '.join(_pieces(run[0]))} ", markdown.entry_words(entry))
    words = [word for word in dict.fromkeys(spread.split()) if not is_stop_word(word)]
    if len(words) < _FEWEST:
        return ""
    left = [word for n, word in enumerate(words) if (n + turn) % 3]
    return " ".join(reversed(left))


def _pieces(run: str) -> Iterator[str]:
    """A run of Chinese in pieces of a word or two."""
    return (run[at : at + _PIECE] for at in range(0, len(run), _PIECE))


def of_space(tx: Transaction, space: str) -> Asked | None:
    """What came of a space's last night, if it was ever asked."""
    return _all(tx).get(space)


def of_others(tx: Transaction) -> Asked | None:
    """What came of everybody else's than the owner's, together, without any place."""
    known = [each for space, each in _all(tx).items() if space not in {MAIN_SPACE, SHARED_SPACE}]
    if not known:
        return None
    return Asked(
        max(each.at for each in known),
        sum(each.asked for each in known),
        sum(each.found for each in known),
    )


def _all(tx: Transaction) -> Mapping[str, Asked]:
    rows = tx.execute(
        "SELECT key, value FROM meta WHERE substr(key, 1, ?) = ? ORDER BY key",
        (len(ASKED), ASKED),
    )
    return {str(key)[len(ASKED) :]: _read(str(value)) for key, value in rows}


def _read(value: str) -> Asked:
    said = orjson.loads(value)
    missed = tuple(Place(*each) for each in said["missed"])
    return Asked(said["at"], said["asked"], said["found"], missed)


def _written(asked: Asked) -> str:
    missed = [[each.path, each.line, each.nights] for each in asked.missed]
    told = {"at": asked.at, "asked": asked.asked, "found": asked.found, "missed": missed}
    return orjson.dumps(told).decode()


class SelfTest:
    """Asks, at night and on one node; `owns` says whether that is this one."""

    def __init__(
        self,
        memory: Memory,
        database: Database,
        clock: Clock,
        zone: tzinfo,
        owns: Callable[[], bool],
    ) -> None:
        self._memory = memory
        self._database = database
        self._clock = clock
        self._zone = zone
        self._owns = owns

    async def look(self) -> None:
        """Ask, if it is time for it."""
        now = self._clock()
        if not self._owns() or moment(now, self._zone).hour not in _HOURS:
            return
        try:
            known = await self._database.read(_all)
            if any(0 <= now - each.at < _PAUSE_MS for each in known.values()):
                return
            await self.ask()
        except StorageError as error:
            log.warning("memory.selftest_failed", error=type(error).__name__)

    async def ask(self) -> None:
        """Ask now: the spaces that were not asked for longest come first.

        Raises:
            StorageError: the database cannot be read or written.
        """
        now = self._clock()
        known = dict(await self._database.read(_all))
        status = await self._memory.index.status()
        if status.building is not None:
            return
        await self._drop(set(known) - set(status.spaces))
        spaces = sorted(status.spaces, key=lambda space: (_last(known.get(space)), space))
        asked = found = 0
        for space in spaces:
            if asked >= MOST:
                break
            most = min(OF_SPACE, MOST - asked)
            came = await self._space(space, known.get(space), most, now)
            if came is None:
                continue
            asked, found = asked + came.asked, found + came.found
            value = _written(came)
            await self._database.write(
                lambda tx, key=f"{ASKED}{space}", value=value: keep(tx, key, value, now)
            )
        log.info("memory.selftest", asked=asked, found=found)

    async def _drop(self, spaces: set[str]) -> None:
        """Keep nothing of spaces that are not there any more."""
        for space in spaces:
            key = f"{ASKED}{space}"
            await self._database.write(
                lambda tx, key=key: tx.execute("DELETE FROM meta WHERE key = ?", (key,))
            )

    async def _space(self, space: str, before: Asked | None, most: int, now: int) -> Asked | None:
        """Ask for entries of one space: first for those that were not found before."""
        view = MemoryView(space, (), private=not space.startswith(f"{layout.ROOMS}/"))
        missed = {(each.path, each.line): each.nights for each in before.missed} if before else {}
        chance = random.Random(f"{space} {now // DAY_MS}")  # noqa: S311 - a sample, not a secret
        entries = [*await self._entries(view, sorted({path for path, _ in missed}), chance)]
        chance.shuffle(entries)
        entries.sort(key=lambda each: each[:2] not in missed)
        asked, left = 0, list[Place]()
        for path, line, words in entries:
            question = in_other_words(words, now // DAY_MS)
            if not question:
                continue
            if asked == most:
                break
            asked += 1
            if not await self._finds(view, path, line, words, question):
                left.append(Place(path, line, missed.get((path, line), 0) + 1))
        return Asked(now, asked, asked - len(left), tuple(left[:KEPT])) if asked else None

    async def _entries(
        self, view: MemoryView, first: Sequence[str], chance: random.Random
    ) -> Iterator[tuple[str, int, str]]:
        """Entries of some files of a view's own space: path, line from 1, and text."""
        named = [each.path for each in await self._memory.files.names(view)]
        own = [path for path in named if not path.startswith(f"{SHARED_SPACE}/")]
        if view.space == SHARED_SPACE:
            own = named
        some = chance.sample(own, min(FILES, len(own)))
        found: list[tuple[str, int, str]] = []
        for path in dict.fromkeys((*(path for path in first if path in own), *some)):
            try:
                text = await self._memory.files.text(view, path, CHARACTERS)
            except ToolError:
                continue
            found += [(path, item.start + 1, item.text) for item in markdown.items(text)]
        return iter(found)

    async def _finds(
        self, view: MemoryView, path: str, line: int, words: str, question: str
    ) -> bool:
        found = await self._memory.index.search(question, view.partitions, RESULTS)
        same = markdown.entry_words(words)
        return any(
            (layout.shown(hit.space, hit.path) == path and hit.start_line <= line <= hit.end_line)
            or same in markdown.normal(hit.snippet)
            for hit in found.hits[:RESULTS]
        )


def _last(asked: Asked | None) -> int:
    return asked.at if asked is not None else 0
