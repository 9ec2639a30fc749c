"""What a new conversation begins with: notes, the conversation before, what a search finds.

It is put together within a time limit, less rather than late, and travels as a note beside the
person's first message. All of it is quoted, so that nothing in it passes for anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, TypeVar, cast

import structlog

from bot.agent.tools.search import (
    MAX_QUERY,
    is_file,
    may_see,
    parted,
    quote,
)
from bot.agent.transcript import origins_of
from bot.config import MemoryConfig
from bot.context.recap import Recap, recap
from bot.errors import ConfidantError
from bot.facts import BEFORE, END, Quote, Quoted, excerpt
from bot.memory import markdown
from bot.memory.files import SpaceFiles
from bot.memory.notes import day_note
from bot.memory.search import Found, Searcher
from bot.messages import Text, Whose, mixture
from bot.scope import MemoryView
from bot.sessions import compactions, search, store
from bot.sessions.compactions import Compaction
from bot.sessions.entries import Entry
from bot.sessions.search import Passage
from bot.sessions.store import Session
from bot.storage import Database, Transaction

RECAP_SHARE, TODAY_SHARE, YESTERDAY_SHARE = 0.3, 0.25, 0.15  # of the budget; the search gets more
DAYS = ("today's note", "yesterday's note")
MAX_SAID, SAID = 24, 3  # messages that are looked at, and shown, of all conversations before
LENGTHS = (200, 400)  # characters of what was said around one, and of itself
MAX_MESSAGES = 400  # of the conversation before that are looked at
MAX_HOPS = 5  # conversations in which nothing was said

_UNKNOWN: frozenset[Whose] = frozenset({"unknown"})

OPENING = "[recalled by the program for the beginning of this conversation; it may be out of date]"
_CLOSING = "[end of what was recalled]\n"

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Opening:
    """What is recalled; `origin` says whether somebody else's words may be in it."""

    quoted: Quoted
    origin: Whose = "memory"

    @property
    def note(self) -> Text:
        """It as the model is shown it."""
        return Text(str(self.quoted), note=True, origin=self.origin, facts=self.quoted)


@dataclass(frozen=True, slots=True)
class _Hit:
    """What a search found: its text without what came from elsewhere.

    `origins` says whose words it may hold when it was said, not noted.
    """

    found: Found
    text: str
    origins: frozenset[Whose] = frozenset()


@dataclass(frozen=True, slots=True)
class _Before:
    """The conversation before in short, and whose words it may hold."""

    recap: Recap
    origins: frozenset[Whose]


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What was found in time."""

    notes: Mapping[str, str]
    before: _Before | None
    said: Sequence[Passage]
    hits: Sequence[_Hit]


class Recaller:
    """Gathers what a view may see; without a searcher, notes and the conversation before."""

    def __init__(
        self,
        config: MemoryConfig,
        files: SpaceFiles,
        database: Database,
        searcher: Searcher | None,
    ) -> None:
        self._config = config
        self._files = files
        self._database = database
        self._searcher = searcher

    async def opening(
        self,
        view: MemoryView,
        session: Session,
        words: str,
        now: datetime,
        *,
        known: str,
        most: int,
    ) -> Opening | None:
        """What to begin a session with, at most `most` characters; never raises, never late.

        `known` is what the model is shown anyway.
        """
        budget = min(self._config.max_injected_chars, most)
        if not view.space or budget <= len(OPENING) + len(_CLOSING):
            return None
        gathered = await self._gather(view, session, words, now, budget)
        return _assemble(gathered, words, now, known, budget)

    async def _gather(
        self, view: MemoryView, session: Session, words: str, now: datetime, budget: int
    ) -> _Gathered:
        works: dict[str, Coroutine[Any, Any, object]] = {
            "notes": self._notes(view, now, budget),
            "before": self._before(view, session, now, int(budget * RECAP_SHARE)),
        }
        if words.strip():
            works["said"] = self._said(view, session, words)
            if self._searcher is not None:
                works["search"] = self._search(self._searcher, view, words)
        done = await _in_time(works, self._config.recall_timeout)
        return _Gathered(
            notes=cast("dict[str, str]", done.get("notes") or {}),
            before=cast("_Before | None", done.get("before")),
            said=cast("Sequence[Passage]", done.get("said") or ()),
            hits=cast("Sequence[_Hit]", done.get("search") or ()),
        )

    async def _notes(self, view: MemoryView, now: datetime, budget: int) -> dict[str, str]:
        """The newest of today's and yesterday's notes."""
        names = {day_note(now): TODAY_SHARE, day_note(now - timedelta(days=1)): YESTERDAY_SHARE}
        return {
            name: await self._files.ending(view, name, int(budget * share))
            for name, share in names.items()
        }

    async def _before(
        self, view: MemoryView, session: Session, now: datetime, characters: int
    ) -> _Before | None:
        if session.key not in view.keys or session.previous is None:
            return None
        previous = session.previous
        compaction, said = await self._database.read(
            lambda tx: _said_before(tx, session.key, previous)
        )
        earlier = compaction.summary if compaction is not None else ""
        found = recap(said, now.tzinfo or UTC, characters, earlier)
        if found is None:
            return None
        origins = (origins_of(entry.role, entry.content) for entry in said)
        summary: tuple[Whose, ...] = () if compaction is None else (compaction.origin,)
        return _Before(found, frozenset(summary).union(*origins))

    async def _said(self, view: MemoryView, session: Session, words: str) -> list[Passage]:
        """What was said in other conversations that the words find; the index may not have it."""
        query = words[:MAX_QUERY]
        return await self._database.read(
            lambda tx: search.passages(tx, view, query, MAX_SAID, beside=session.id)
        )

    async def _search(self, searcher: Searcher, view: MemoryView, words: str) -> list[_Hit]:
        found = await searcher.search(words[:MAX_QUERY], view.partitions, None)
        hits = [hit for hit in found.hits if may_see(view, hit)]
        ids = [hit.path for hit in hits if not is_file(hit)]
        said = await self._database.read(lambda tx: search.by_id(tx, ids)) if ids else []
        origins = {entry.id: origins_of(entry.role, entry.content) for entry in said}
        texts = await parted(self._files, view, hits)
        return [
            _Hit(hit, text, frozenset() if is_file(hit) else origins.get(hit.path, _UNKNOWN))
            for hit, (text, _) in zip(hits, texts, strict=True)
        ]


async def _in_time(works: dict[str, Coroutine[Any, Any, T]], seconds: float) -> dict[str, T]:
    """What of several pieces of work was done in time; the rest is given up."""
    tasks = {asyncio.create_task(work): name for name, work in works.items()}
    try:
        await asyncio.wait(tasks, timeout=seconds)
        done: dict[str, T] = {}
        for task, name in tasks.items():
            if not task.done():
                log.warning("recall.late", part=name, seconds=seconds)
            elif (error := task.exception()) is None:
                done[name] = task.result()
            elif isinstance(error, (ConfidantError, OSError)):
                log.warning("recall.failed", part=name, error=type(error).__name__)
            else:  # a mistake of ours; the conversation begins all the same
                log.error("recall.failed", part=name, error=type(error).__name__)
        return done
    finally:
        for task in tasks:
            task.cancel()


def _said_before(tx: Transaction, key: str, previous: str) -> tuple[Compaction | None, list[Entry]]:
    """What was said in the last conversation in which anything was: its summary, and the rest."""
    for _ in range(MAX_HOPS):
        session = store.get(tx, previous)
        if session is None or session.key != key:
            break
        compaction = compactions.current(tx, session)
        first = compaction.first_kept if compaction is not None else ""
        gone = search.forgotten(tx, session.id)
        messages = store.messages(tx, session.id, MAX_MESSAGES, first)
        said = [entry for entry in messages if entry.id not in gone]
        if said or session.previous is None:
            return compaction, said
        previous = session.previous
    return None, []


# --- putting it together: pure -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Piece:
    """Something that was found, as it is quoted; `words` are those it was found for."""

    quote: Quote
    words: str
    origins: frozenset[Whose]


def _assemble(
    gathered: _Gathered, words: str, now: datetime, known: str, budget: int
) -> Opening | None:
    quotes: list[Quote] = []
    origins: set[Whose] = set()
    shown = [markdown.normal(markdown.unattributed(known))]
    if gathered.before is not None:
        before = gathered.before.recap
        origins |= gathered.before.origins
        when = f"{BEFORE}{before.ended}"
        end = Quote((when, END), before.tail, until=before.ended, turns=before.turns)
        for recap in (Quote((when, "in short"), before.summary), end):
            if recap.text:
                quotes.append(recap)
                shown.append(markdown.normal(recap.text))
    for (path, text), name in zip(gathered.notes.items(), DAYS, strict=False):
        if text:
            quotes.append(Quote((path, name), text, path, 1))
            shown.append(markdown.normal(text))
    zone = now.tzinfo or UTC
    notes = [_of_hit(hit, zone) for hit in gathered.hits]
    talks = [_of_talk(passage, words, zone) for passage in gathered.said]
    new = [talk for talk in talks if not _is_in(shown, talk.words)][:SAID]
    for found in _in_turn(shown, new, notes):
        origins |= found.origins
        quotes.append(found.quote)
    return _fitted(quotes, budget, _recalled_as(origins))


def _in_turn(shown: list[str], *kinds: Sequence[_Piece]) -> Iterator[_Piece]:
    """One piece of each kind in turn, so that none crowds another out of a small budget.

    What is shown already takes nobody's turn: the next of its kind does.
    """
    waiting = [iter(pieces) for pieces in kinds]
    while waiting:
        for pieces in tuple(waiting):
            found = next((piece for piece in pieces if not _is_in(shown, piece.words)), None)
            if found is None:
                waiting.remove(pieces)
                continue
            shown.append(markdown.normal(found.quote.text))
            yield found


def _fitted(quotes: list[Quote], budget: int, origin: Whose) -> Opening | None:
    """As many of the quotes as have room, the first ones first."""
    while quotes:
        quoted = Quoted(tuple(quotes), OPENING, _CLOSING)
        if len(str(quoted)) <= budget:
            return Opening(quoted, origin)
        quotes.pop()
    return None


def _of_hit(hit: _Hit, zone: tzinfo) -> _Piece:
    text = markdown.readable(hit.text).strip()
    said = replace(quote(hit.found, zone, "found"), text=text)
    return _Piece(said, text, hit.origins)


def _of_talk(passage: Passage, words: str, zone: tzinfo) -> _Piece:
    """What was said, with what was said just before and after it."""
    date = datetime.fromtimestamp(passage.match.at / 1000, zone)
    lines = [
        f"{'person' if entry.role == 'user' else 'you'}: "
        + excerpt(" ".join(entry.text.split()), words.split(), LENGTHS[entry is passage.match])
        for entry in passage.said
    ]
    origins = (origins_of(entry.role, entry.content) for entry in passage.said)
    where = (f"{date:%Y-%m-%d %H:%M}", "said", f"session {passage.session_id}")
    said = Quote(where, "\n".join(lines), by="said")
    return _Piece(said, passage.match.text, frozenset[Whose]().union(*origins))


def _is_in(shown: Sequence[str], text: str) -> bool:
    """True when a text says nothing that is not shown already."""
    words = markdown.normal(text)
    return not words or markdown.says_nothing(text) or any(words in other for other in shown)


def _recalled_as(origins: Collection[Whose]) -> Whose:
    """The origin of what is recalled of words of these origins."""
    mixed = mixture(origins)
    return "before" if mixed == "mixed" else mixed or "memory"
