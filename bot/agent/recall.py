"""What a new conversation begins with: notes, the conversation before, what a search finds.

It is put together within a time limit, less rather than late, and travels as a note beside the
person's first message. All of it is quoted, so that nothing in it passes for anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import structlog

from bot.agent.tools.search import MAX_QUERY, is_file, may_see, parted, quote
from bot.agent.transcript import origins_of
from bot.config import Config, MemoryConfig
from bot.context import sentences
from bot.context.recap import recap
from bot.errors import ConfidantError
from bot.identity.view import MemoryView
from bot.memory import claims, markdown
from bot.memory.claims import FADED, Aging
from bot.memory.files import SpaceFiles
from bot.memory.notes import day_note
from bot.memory.search import Hit, Searcher
from bot.memory.uses import Uses
from bot.messages import Text, Whose, mixture
from bot.sessions import compactions, imported, search, store
from bot.sessions.compactions import Compaction
from bot.sessions.entries import Entry
from bot.sessions.search import Passage
from bot.sessions.store import Session
from bot.storage import Database, Transaction
from bot.tool_results import BEFORE, END, Quote, Quoted, excerpt

EARLY = 10  # places of a list that differ little: what both searches find comes before one's first
ASKED = 0.5  # of what was only asked: a question is hardly ever the answer to another
LEAST_TWIN = 6  # characters that a note and the talk it came from have in common at least
TWIN = 0.6  # of what was said stands in the note: with more in it the talk is worth showing, too


@dataclass(frozen=True, slots=True)
class Find:
    """Something that was found, as it is quoted.

    `words` are those it was found for, and `origins` says whose words it may hold when it was said,
    not noted. What was said has the `id` of its message, and `date` is when.
    """

    quote: Quote
    words: str = ""
    origins: frozenset[Whose] = frozenset()
    id: str = ""
    date: str = ""


def ranked(*lists: Sequence[Find]) -> list[Find]:
    """All of some lists, each best first, as one: what several of them find comes sooner.

    A note takes the place of the talk it came from, with its date. A message is shown as the last
    list that has it shows it.
    """
    worth: dict[str, float] = {}
    finds: dict[str, Find] = {}
    for found in lists:
        for place, find in enumerate(found):
            key = find.id or f"{find.quote.where[0]}\n{find.words}"
            worth[key] = worth.get(key, 0.0) + 1 / (EARLY + place)
            finds[key] = find
    for key, find in finds.items():
        if find.id and sentences.only_asks(find.words):
            worth[key] *= ASKED
    notes = [key for key, find in finds.items() if not find.id]
    said = {key: markdown.normal(find.words) for key, find in finds.items() if find.id}
    lines = {key: _lines(finds[key].words) for key in notes}
    for key, words in said.items():
        note = next((note for note in notes if _holds(lines[note], words)), None)
        if note is not None:
            worth[note] = max(worth[note], worth[key])
            finds[note] = _dated(finds[note], finds.pop(key).date)
    return [finds[key] for key in sorted(finds, key=lambda key: -worth[key])]


def _lines(text: str) -> list[str]:
    """The entries of a note, for comparing."""
    return [markdown.entry_words(line.lstrip("-*+ ")) for line in text.split("\n")]


def _holds(lines: Sequence[str], words: str) -> bool:
    """True when a line of a note says what was said, or nearly all of it."""
    return any(
        len(line) >= LEAST_TWIN
        and (words in line or (len(line) >= TWIN * len(words) and line in words))
        for line in lines
        if words
    )


def _dated(find: Find, date: str) -> Find:
    """A note with when it was said, unless its place or something before told that."""
    if not date or find.date or date[:10] in find.quote.where[0]:
        return find
    where = (*find.quote.where, f"said {date}")
    return replace(find, quote=replace(find.quote, where=where), date=date)


RECAP_SHARE = 0.3  # of the budget …
DAYS = (("today's note", 0.25), ("yesterday's note", 0.15))  # … and theirs; the search gets more
MAX_SAID = 24  # messages that are looked at, of all conversations before
MORE = 3  # times as much as a search shows is looked at, and twice as much shown: answers may
SHOWN = 2  # need several pieces, and what is shown already takes no place
LENGTHS = (200, 400)  # characters of what was said around one, and of itself
MAX_MESSAGES = 400  # of the conversation before that are looked at
MAX_HOPS = 5  # conversations in which nothing was said

_UNKNOWN: frozenset[Whose] = frozenset({"unknown"})

OPENING = "[recalled by the program for the beginning of this conversation; it may be out of date]"
_CLOSING = "[end of what was recalled]\n"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Opening:
    """What is recalled; `origin` says whether somebody else's words may be in it."""

    quoted: Quoted
    origin: Whose = "memory"

    @property
    def note(self) -> Text:
        """It as the model is shown it."""
        return Text(str(self.quoted), note=True, origin=self.origin, value=self.quoted)


class Recaller:
    """Gathers what a view may see; without a searcher, notes and the conversation before."""

    def __init__(
        self,
        config: MemoryConfig,
        files: SpaceFiles,
        database: Database,
        searcher: Searcher | None,
        uses: Uses,
    ) -> None:
        self._config = config
        self._uses = uses
        self._files = files
        self._database = database
        self._searcher = searcher

    def configure(self, config: Config) -> None:
        """This counts for conversations that begin from now on."""
        self._config = config.memory

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
        until = asyncio.get_running_loop().time() + self._config.recall_timeout
        before, notes, said, hits = await asyncio.gather(
            self._part("before", until, self._before(view, session, now, budget)),
            self._part("notes", until, self._notes(view, now, budget)),
            self._part("said", until, self._said(view, session, words, now)),
            self._part("search", until, self._search(view, words, now)),
        )
        most = self._config.max_results * SHOWN
        return await asyncio.to_thread(  # messages may be long
            lambda: _assemble([*before, *notes], ranked(hits, said), known, budget, most)
        )

    async def _part(
        self, name: str, until: float, work: Coroutine[Any, Any, list[Find]]
    ) -> list[Find]:
        """What a part finds in time; nothing when it is late or fails."""
        try:
            async with asyncio.timeout_at(until):
                return await work
        except TimeoutError:
            log.warning("recall.late", part=name, seconds=self._config.recall_timeout)
        except (ConfidantError, OSError) as error:
            log.warning("recall.failed", part=name, error=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - ours; the conversation begins all the same
            log.error("recall.failed", part=name, error=type(error).__name__)  # noqa: TRY400
        return []

    async def _notes(self, view: MemoryView, now: datetime, budget: int) -> list[Find]:
        """The newest of today's and yesterday's notes."""
        found: list[Find] = []
        for back, (name, share) in enumerate(DAYS):
            path = day_note(now - timedelta(days=back))
            text = await self._files.ending(view, path, int(budget * share))
            found += [Find(Quote((path, name), text, path, 1))] if text else []
        return found

    async def _before(
        self, view: MemoryView, session: Session, now: datetime, budget: int
    ) -> list[Find]:
        """The conversation before in short, and its end."""
        if session.key not in view.keys or session.previous is None:
            return []
        previous = session.previous
        compaction, said = await self._database.read(
            lambda tx: _said_before(tx, session.key, previous)
        )
        earlier = compaction.summary if compaction is not None else ""
        found = recap(said, now.tzinfo or UTC, int(budget * RECAP_SHARE), earlier)
        if found is None:
            return []
        summary: tuple[Whose, ...] = () if compaction is None else (compaction.origin,)
        origins = frozenset(summary).union(*(origins_of(e.role, e.content) for e in said))
        when = f"{BEFORE}{found.ended}"
        short = Quote((when, "in short"), found.summary)
        end = Quote((when, END), found.tail, until=found.ended, turns=found.turns)
        return [Find(quote, origins=origins) for quote in (short, end) if quote.text]

    async def _said(
        self, view: MemoryView, session: Session, words: str, now: datetime
    ) -> list[Find]:
        """What was said in other conversations that the words find; the index may not have it."""
        if not words.strip():
            return []
        query = words[:MAX_QUERY]
        found = await self._database.read(
            lambda tx: search.passages(tx, view, query, MAX_SAID, beside=session.id)
        )
        zone, terms = now.tzinfo or UTC, query.split()
        return await asyncio.to_thread(lambda: [_of_talk(each, terms, zone) for each in found])

    async def _search(self, view: MemoryView, words: str, now: datetime) -> list[Find]:
        """What the index finds, without what in it came from elsewhere, or has faded."""
        if self._searcher is None or not words.strip():
            return []
        most = self._config.max_results * MORE
        found = await self._searcher.search(
            words[:MAX_QUERY], view.partitions, most, today=now.date()
        )
        hits = [hit for hit in found.hits if may_see(view, hit) and hit.strength >= FADED]
        ids = [hit.path for hit in hits if not is_file(hit)]
        said = await self._database.read(lambda tx: search.by_id(tx, ids)) if ids else []
        origins = {entry.id: origins_of(entry.role, entry.content) for entry in said}
        aging = await self._uses.aging(view.spaces, now.date())
        pieces: list[Find] = []
        for hit, (text, _) in zip(hits, await parted(self._files, view, hits), strict=True):
            plain = markdown.readable(_unfaded(hit, text, aging)).strip()
            quoted = replace(quote(hit, now.tzinfo or UTC, "found"), text=plain)
            whose = frozenset[Whose]() if is_file(hit) else origins.get(hit.path, _UNKNOWN)
            date = "" if is_file(hit) else quoted.where[0]
            pieces.append(Find(quoted, plain, whose, "" if is_file(hit) else hit.path, date))
        return pieces


def _unfaded(hit: Hit, text: str, aging: Aging) -> str:
    """A passage without entries that have faded, beside the one it was found for."""
    if not is_file(hit):
        return text
    day = datetime.fromtimestamp(hit.at / 1000, UTC).date() if hit.at else None
    return claims.without_faded(hit.path, text, aging, hit.space, day)[0]


def _said_before(tx: Transaction, key: str, previous: str) -> tuple[Compaction | None, list[Entry]]:
    """What was said in the last conversation in which anything was: its summary, and the rest."""
    for _ in range(MAX_HOPS):
        session = store.get(tx, previous)
        if session is None or session.key != key:
            break
        compaction = compactions.current(tx, session)
        first = compaction.first_kept if compaction is not None else ""
        gone = search.forgotten(tx, session.id, since=session.first_seq)
        messages = store.messages(tx, session.id, MAX_MESSAGES, first, since=session.first_seq)
        said = [entry for entry in messages if entry.id not in gone]
        if said or session.previous is None:
            return compaction, said
        previous = session.previous
    return None, []


# --- putting it together: pure -------------------------------------------------------------------


def _assemble(
    first: Sequence[Find], found: Sequence[Find], known: str, budget: int, most: int
) -> Opening | None:
    """What is always shown first, then the best of the rest that is not shown yet."""
    texts = (markdown.unattributed(known), *(find.quote.text for find in first))
    shown = [markdown.normal(text) for text in texts]
    chosen: list[Find] = []
    for find in found:
        if len(chosen) < most and not _is_in(shown, find.words):
            shown.append(markdown.normal(find.quote.text))
            chosen.append(find)
    every = [*first, *chosen]
    origins = frozenset[Whose]().union(*(find.origins for find in every))
    return _fitted([find.quote for find in every], budget, _recalled_as(origins))


def _fitted(quotes: list[Quote], budget: int, origin: Whose) -> Opening | None:
    """As many of the quotes as have room, the first ones first."""
    while quotes:
        quoted = Quoted(tuple(quotes), OPENING, _CLOSING)
        if len(str(quoted)) <= budget:
            return Opening(quoted, origin)
        quotes.pop()
    return None


def _of_talk(passage: Passage, terms: Sequence[str], zone: tzinfo) -> Find:
    """What was said, with what was said just before and after it."""
    program = imported.name_of(passage.channel)
    date = datetime.fromtimestamp(passage.match.at / 1000, zone)
    lines = [
        f"{'person' if entry.role == 'user' else program or 'you'}: "
        + excerpt(" ".join(entry.text.split()), terms, LENGTHS[entry is passage.match])
        for entry in passage.said
    ]
    origins = (origins_of(entry.role, entry.content) for entry in passage.said)
    how = f"said to {program}, not to you" if program else "said"
    where = (f"{date:%Y-%m-%d %H:%M}", how, f"session {passage.session_id}")
    said = Quote(where, "\n".join(lines), by="said")
    whose = frozenset[Whose]().union(*origins)
    return Find(said, passage.match.text, whose, passage.match.id, where[0])


def _is_in(shown: Sequence[str], text: str) -> bool:
    """True when a text says nothing that is not shown already."""
    words = markdown.normal(text)
    return not words or markdown.says_nothing(text) or any(words in other for other in shown)


def _recalled_as(origins: Collection[Whose]) -> Whose:
    """The origin of what is recalled of words of these origins."""
    mixed = mixture(origins)
    return "before" if mixed == "mixed" else mixed or "memory"
