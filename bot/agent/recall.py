"""Recall: the part of memory that the model is shown unasked, with each message.

A conversation begins with notes, the conversation before and what a search finds; each later
message gets the lines of memory that have to do with it. Both are put together within a time limit,
less rather than late, and travel as a note before the person's words. All of it is quoted, so that
nothing in it passes for anything else.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby
from statistics import median
from typing import Concatenate, ParamSpec, TypeVar

import structlog

from bot.agent.tools.search import MAX_QUERY, is_file, may_see, newest, parted, quote
from bot.clock import to_the_minute
from bot.config import MemoryConfig, Settings
from bot.context import sentences, tokens, wishes
from bot.context.history import origins_of
from bot.context.quoting import recap
from bot.errors import ConfidantError
from bot.identity.view import TALK, MemoryView
from bot.memory import claims, markdown
from bot.memory.claims import FADED, Aging
from bot.memory.listing import is_first_person
from bot.memory.notes import SpaceFiles, day_note
from bot.memory.search import Hit, Searcher
from bot.memory.uses import Uses
from bot.messages import (
    BEFORE,
    CLEAN,
    END,
    NOT_INSTRUCTIONS,
    Quote,
    Quoted,
    Text,
    Whose,
    excerpt,
    mixture,
)
from bot.sessions import browsing, compactions, entries, store
from bot.sessions.browsing import Passage
from bot.sessions.compactions import Compaction
from bot.sessions.entries import Entry
from bot.sessions.store import Session
from bot.storage import Database, Transaction

EARLY = 10  # places of a list that differ little: what both searches find comes before one's first
ASKED = 0.5  # of a question, which hardly ever answers another, and of the bot's own words
LEAST_TWIN = 6  # characters that a note and the talk it came from have in common at least
TWIN = 0.6  # of what was said stands in the note: with more in it the talk is worth showing, too


@dataclass(frozen=True, slots=True)
class Find:
    """Something that was found, as it is quoted.

    Attributes:
        quote: the quote.
        words: the words it was found for.
        origins: whose words it may hold, when it was said and not noted.
        id: that of the message, when it was said.
        date: when it was said.
        is_own: the bot said it.
        hit: the index's, where that found it.
        since: of a note's entries, by their first lines: when each was said or last confirmed, and
            that in words unless a heading over it says so.
    """

    quote: Quote
    words: str = ""
    origins: frozenset[Whose] = frozenset()
    id: str = ""
    date: str = ""
    is_own: bool = False
    hit: Hit | None = None
    since: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    def dated(self, line: str) -> str:
        """A line of it as it is shown: with its date."""
        _, told = self.since.get(line.strip(), ("", ""))
        return f"{line} {told}" if told else line


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
        if find.is_own or (find.id and sentences.only_asks(find.words)):
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


OPENING = "[recalled by the program for the beginning of this conversation; it may be out of date]"
LATER = "[recalled by the program for this message; it may be out of date or beside the point]"
PARTIAL = "[memory could not be searched, or only in part: do not assume that nothing is known]"
_CLOSING = "[end of what was recalled]\n"

SHARE = 4  # a conversation begins with as many characters of it as a quarter of the window's tokens
TOKENS = 600  # of what is recalled for a later message …
SHORT_TOKENS = 250  # … beside a short prompt …
SMALL = 32  # … and no more than this part (one thirty-second) of the window
PASSAGES = 6  # that lines are taken from, of four times as many; twice as many find no more
# A line is worth its passage's score, next to the best one's, and these shares of its own.
BY_WORDS, BY_MEANING = 0.4, 1.0
BY_BOT = 3.0  # less for what the bot said: people's own words and notes come before all of it
# Anything is recalled when the best cosine, less that of a typical line that was found, comes to
# NEAR: with these shares of what a passage has of the message's words, and for a message that asks,
# asks about the person, or names somebody whom a passage names. Chosen by every other line of what
# `bench recall` asks; docs/memory.md has the figures of the others.
NEAR = 0.41
OF_WORDS, OF_ASKING, OF_ASKING_OF_ONESELF, OF_NAME = 0.1, 0.2, 0.08, 0.15
FEW = 8  # lines of which none is typical; then one has …
TYPICAL, MOST_TYPICAL = 0.05, 0.2  # … this cosine, as in many notes; never more: all may answer
ALONE = 1.5  # what words count where nothing is found by meaning
SHORT = 40  # characters of a message that may mean nothing without those before it
_ASKS = ("?", "\uff1f", "\u061f")  # also full-width, and Arabic
_NAME = re.compile(
    r"(?<=[^.!?\n] )[A-Z\u00c0-\u00de\u0410-\u042f]\w+"
)  # not where a sentence begins
_WORD = re.compile(r"\w+")

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Shown:
    """Text the model is shown anyway, in a window of so many tokens.

    `prompt` is how its prompt begins, `texts` are those of the conversation after that, of the
    entries with these ids, and `before` is the end of what was said before the message. Without
    `texts` it is the first one.
    A `short` prompt has less recalled beside it, as its model reads slowly or takes little.
    """

    prompt: str = ""
    window: int = 0
    short: bool = False
    texts: Sequence[str] = ()
    entries: Sequence[str] = ()
    before: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    """The finds for a message; `is_whole` unless something of memory was not searched."""

    hits: Sequence[Find] = ()
    said: Sequence[Find] = ()
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turn's view, session, time and options; `until` is its deadline on the loop's clock."""

    view: MemoryView
    session: Session
    now: datetime
    config: MemoryConfig
    until: float


class Recaller:
    """Gathers what a view may see before a message is answered."""

    def __init__(
        self,
        settings: Settings,
        files: SpaceFiles,
        database: Database,
        searcher: Searcher,
        uses: Uses,
    ) -> None:
        self._settings = settings
        self._uses = uses
        self._files = files
        self._database = database
        self._searcher = searcher

    async def recall(
        self, view: MemoryView, session: Session, words: str, now: datetime, shown: Shown
    ) -> Text | None:
        """The note to put before a message; never raises, never late.

        None when memory has nothing to do with it, or nothing that the model is not shown anyway.
        """
        config, share = self._settings.now.memory, shown.window // SHARE
        if shown.texts:
            most = SHORT_TOKENS if shown.short else TOKENS
            share = min(most, shown.window // SMALL) * tokens.CHARACTERS_PER_TOKEN
        elif shown.short:
            share = min(share, SHORT_TOKENS * tokens.CHARACTERS_PER_TOKEN)
        room = min(config.max_injected_chars, share)
        if not view.space or room <= len(OPENING) + len(_CLOSING):
            return None
        until = asyncio.get_running_loop().time() + config.recall_timeout
        turn, words = _Turn(view, session, now, config, until), words[:MAX_QUERY]
        if shown.texts:
            return await self._later(turn, words, shown, room)
        before, notes, found = await asyncio.gather(
            self._part("before", self._before, turn, room),
            self._part("notes", self._notes, turn, room),
            self._first(turn, words),
        )
        first, most = [*(before or ()), *(notes or ())], config.max_results * SHOWN
        return await asyncio.to_thread(_passages_of, first, found, shown.prompt, room, most)

    async def _later(self, turn: _Turn, words: str, shown: Shown, room: int) -> Text | None:
        """Recall for a later message; a short one is searched for with the ones before, too."""
        if wishes.asks_to_read(words) == "notes":
            return await asyncio.to_thread(_lines_of, await self._newest(turn), shown, room)
        queries = [words] if words.strip() else []
        if len(words) < SHORT and shown.before:
            queries.append(f"{words}\n{shown.before}")
        searches = (
            self._part("search", self._search, turn, query, room, shown.entries)
            for query in queries
        )
        both = await asyncio.gather(*searches)
        is_whole = True
        for query, answer in zip(queries, both, strict=True):
            hits, was_whole = answer or ((), False)
            is_whole = is_whole and was_whole
            if is_near(hits, words):
                found, said = await asyncio.gather(
                    self._part("search", self._quoted, turn, query, hits, room),
                    self._part("said", self._said, turn, query),
                )
                every = _Found(found or (), said or (), is_whole and found is not None)
                return await asyncio.to_thread(_lines_of, every, shown, room)
        return _nothing(is_whole=is_whole)

    async def _first(self, turn: _Turn, words: str) -> _Found:
        """Recall for a conversation's first message."""
        if not words.strip():
            return _Found(is_whole=True)
        if wishes.asks_to_read(words) == "notes":
            return await self._newest(turn)

        async def search(turn: _Turn) -> tuple[Sequence[Find], bool]:
            hits, is_whole = await self._search(turn, words)
            return await self._quoted(turn, words, hits), is_whole

        found, said = await asyncio.gather(
            self._part("search", search, turn), self._part("said", self._said, turn, words)
        )
        hits, is_whole = found or ((), False)
        return _Found(hits, said or (), is_whole)

    async def _newest(self, turn: _Turn) -> _Found:
        """The notes themselves for whoever asks what is known; a search would find the question."""

        async def read(turn: _Turn) -> list[Find]:
            quotes = await newest(self._files, turn.view, turn.config.max_results)
            return [Find(each, each.text) for each in quotes]

        finds = await self._part("newest", read, turn)
        return _Found(finds or (), is_whole=finds is not None)

    async def _part(
        self,
        name: str,
        work: Callable[Concatenate[_Turn, P], Awaitable[T]],
        turn: _Turn,
        *given: P.args,
        **also: P.kwargs,
    ) -> T | None:
        """The result of one part of recall; None when it is late or fails."""
        try:
            async with asyncio.timeout_at(turn.until):
                return await work(turn, *given, **also)
        except TimeoutError:
            log.warning("recall.late", part=name, seconds=turn.config.recall_timeout)
        except (ConfidantError, OSError) as error:
            log.warning("recall.failed", part=name, error=type(error).__name__)
        except Exception as error:  # noqa: BLE001 - ours; the message is answered all the same
            log.error("recall.failed", part=name, error=type(error).__name__)  # noqa: TRY400
        return None

    async def _notes(self, turn: _Turn, budget: int) -> list[Find]:
        """The newest of today's and yesterday's notes."""
        found: list[Find] = []
        for back, (name, share) in enumerate(DAYS):
            path = day_note(turn.now - timedelta(days=back))
            text = await self._files.ending(turn.view, path, int(budget * share))
            found += [Find(Quote((path, name), text, path, 1))] if text else []
        return found

    async def _before(self, turn: _Turn, budget: int) -> list[Find]:
        """The conversation before in short, and its end."""
        session, previous = turn.session, turn.session.previous
        if session.key not in turn.view.keys or previous is None:
            return []
        compaction, said = await self._database.read(
            lambda tx: _said_before(tx, session.key, previous)
        )
        earlier = compaction.summary if compaction is not None else ""
        found = recap(said, turn.now.tzinfo or UTC, int(budget * RECAP_SHARE), earlier)
        if found is None:
            return []
        summary: tuple[Whose, ...] = () if compaction is None else (compaction.origin,)
        origins = frozenset(summary).union(*(origins_of(e.content) for e in said))
        when = f"{BEFORE}{found.ended}"
        short = Quote((when, "in short"), found.summary)
        end = Quote((when, END), found.tail, until=found.ended, turns=found.turns)
        return [Find(quote, origins=origins) for quote in (short, end) if quote.text]

    async def _said(self, turn: _Turn, words: str) -> list[Find]:
        """Matching messages of other conversations, also those that are not indexed yet."""
        terms, zone = words.split(), turn.now.tzinfo or UTC

        def work(tx: Transaction) -> list[Find]:
            found = browsing.passages(tx, turn.view, words, MAX_SAID, beside=turn.session.id)
            return [_of_talk(each, terms, zone) for each in found]

        return await self._database.read(work)

    async def _search(
        self,
        turn: _Turn,
        words: str,
        room: int = 0,
        without: Collection[str] = (),
        *,
        only_notes: bool = False,
    ) -> tuple[list[Hit], bool]:
        """Hits of the index that have not faded, without the messages `without`.

        With `room` the best lines, in twice as much. False with it when something may have been
        missed.
        """
        view = turn.view
        every = (each for each in view.partitions if not (only_notes and each.startswith(TALK)))
        found = await self._searcher.search(
            words,
            tuple(every),
            PASSAGES if room else turn.config.max_results * MORE,
            today=turn.now.date(),
            room=2 * room,
            without=without,
        )
        if found.is_partial:
            log.warning("recall.partial", why="; ".join(found.degraded))
        hits = [hit for hit in found.hits if may_see(view, hit) and hit.strength >= FADED]
        return hits, not found.is_partial

    async def _quoted(
        self, turn: _Turn, words: str, hits: Sequence[Hit], room: int = 0
    ) -> list[Find]:
        """Hits as they are quoted, without what in them came from elsewhere, or has faded."""
        view = turn.view
        if hits and not any(map(is_file, hits)):
            # What is talked of again and again would take all places, and notes are the truth.
            notes, _ = await self._search(turn, words, room, only_notes=True)
            hits = [*notes, *hits]
        ids = [hit.path for hit in hits if not is_file(hit)]
        said = await self._database.read(lambda tx: browsing.by_id(tx, ids)) if ids else []
        origins = {entry.id: origins_of(entry.content) for entry in said}
        hits = [hit for hit in hits if is_file(hit) or hit.path in origins]  # that are in sight
        own = {entry.id for entry in said if entry.role == "assistant"}
        aging = await self._uses.aging(view.spaces, turn.now.date())
        pieces: list[Find] = []
        for hit, (text, _) in zip(hits, await parted(self._files, view, hits), strict=True):
            plain = markdown.readable(_unfaded(hit, text, aging)).strip()
            where = quote(hit, turn.now.tzinfo or UTC, "found", by_bot=hit.path in own)
            quoted = replace(where, text=plain)
            whose = frozenset[Whose]() if is_file(hit) else origins[hit.path]
            date = "" if is_file(hit) else quoted.where[0]
            id_ = "" if is_file(hit) else hit.path
            since = _since(hit.path, text) if hit.source == "memory" else {}
            pieces.append(Find(quoted, plain, whose, id_, date, hit.path in own, hit, since))
        return pieces


def _unfaded(hit: Hit, text: str, aging: Aging) -> str:
    """A passage without entries that have faded, beside the one it was found for."""
    if hit.source != "memory":
        return text
    day = datetime.fromtimestamp(hit.at / 1000, UTC).date() if hit.at else None
    return claims.without_faded(hit.path, text, aging, hit.space, day)[0]


def _since(path: str, text: str) -> dict[str, tuple[str, str]]:
    """Maps the first line of each entry to when it was said or last confirmed.

    Each with that in words, unless the name of its note tells the day.
    """
    lines, found = text.split("\n"), dict[str, tuple[str, str]]()
    for claim in claims.of_note(path, text):
        line = markdown.readable(lines[claim.first - 1]).strip()
        found[line] = ("", "")
        if claim.said is not None:
            last = max(claim.said, claim.confirmed or claim.said)
            is_told = f"{last:%Y-%m-%d}" in path
            found[line] = (
                f"{last:%Y-%m-%d} {markdown.clock(markdown.unlisted(line))}",
                "" if is_told else f"({claim.dated})",
            )
    return found


def _said_before(tx: Transaction, key: str, previous: str) -> tuple[Compaction | None, list[Entry]]:
    """The summary and the rest of the last conversation in which anything was said."""
    for _ in range(MAX_HOPS):
        session = store.get(tx, previous)
        if session is None or session.key != key:
            break
        compaction = compactions.current(tx, session)
        first = compaction.first_kept if compaction is not None else ""
        gone = browsing.forgotten(tx, session.id, since=session.first_seq)
        messages = store.messages(tx, session.id, MAX_MESSAGES, first, since=session.first_seq)
        said = [entry for entry in messages if entry.id not in gone]
        if said or session.previous is None:
            return compaction, said
        previous = session.previous
    return None, []


# --- putting it together: pure -------------------------------------------------------------------


def is_near(hits: Sequence[Hit], words: str) -> bool:
    """True when something of what was found may have to do with a message."""
    if not hits:
        return False
    asks = any(mark in words for mark in _ASKS)
    names = {name.casefold() for name in _NAME.findall(words)}
    told = {word for hit in hits for word in _WORD.findall(hit.snippet.casefold())} if names else ()
    near = (
        OF_ASKING * asks
        + OF_ASKING_OF_ONESELF * (asks and is_first_person(words))
        + OF_NAME * any(name in told for name in names)
    )
    meant, worded = max(hit.meaning for hit in hits), max(hit.words for hit in hits)
    if not meant:
        return near + ALONE * worded >= NEAR
    lines = [line.meaning for hit in hits for line in hit.lines]
    typical = min(median(lines), MOST_TYPICAL) if len(lines) >= FEW else TYPICAL
    return near + meant - typical + OF_WORDS * worded >= NEAR


def _passages_of(
    first: Sequence[Find], found: _Found, known: str, room: int, most: int
) -> Text | None:
    """The note of a first message: fixed parts, then the best finds not shown yet; in a thread."""
    texts = (markdown.unattributed(known), *(find.quote.text for find in first))
    shown = [markdown.normal(text) for text in texts]
    chosen = list(first)
    for find in ranked(found.hits, found.said):
        if len(chosen) - len(first) < most and not _is_in(shown, find.words):
            shown.append(markdown.normal(find.quote.text))
            chosen.append(find)
    head = OPENING if found.is_whole else f"{OPENING}\n{PARTIAL}"
    while chosen:
        note = _note(head, [*chosen[: len(first)], *newest_first(chosen[len(first) :])])
        if len(note.text) <= room:
            return note
        chosen.pop()
    return _nothing(is_whole=found.is_whole)


def _lines_of(found: _Found, shown: Shown, room: int) -> Text | None:
    """The best lines that the model is not shown yet, as many as have room; in a thread.

    Nobody else's words are among them, which would stay in sight for the rest of a conversation.
    """
    head = LATER if found.is_whole else f"{LATER}\n{PARTIAL}"
    finds = [find for find in ranked(found.hits, found.said) if find.origins <= CLEAN]
    window = "\n".join((shown.prompt, *shown.texts)) if finds else ""
    best = max((find.hit.score for find in finds if find.hit), default=0.0) or 1.0
    lines: list[tuple[float, int, int, str]] = []
    for at, find in enumerate(finds):
        hit = find.hit
        worth = {} if hit is None else {each.text: each for each in hit.lines}
        for number, line in enumerate(find.quote.text.split("\n")):
            bare = markdown.untimed(line.strip().lstrip("-*+ "))
            if markdown.says_nothing(line) or bare in window:
                continue
            own = worth.get(line)
            score = BY_WORDS * own.words + BY_MEANING * own.meaning if own is not None else 0.0
            score += 0.0 if hit is None else hit.score / best
            score -= BY_BOT * find.is_own
            lines.append((score, at, number, line))
    chosen: list[tuple[int, int, str]] = []
    left = room - tokens.weight(f"{head}\n{NOT_INSTRUCTIONS}\n{_CLOSING}")
    told: set[int] = set()
    for _, at, number, line in sorted(lines, key=lambda each: -each[0]):
        cost = tokens.weight(finds[at].dated(line)) + len("> \n")
        if at not in told:
            cost += tokens.weight(" | ".join(finds[at].quote.where)) + len("\n\n[]\n")
        if cost <= left:
            left -= cost
            told.add(at)
            chosen.append((at, number, line))
    while chosen:
        some = [
            _saying(finds[at], (line for _, _, line in of))
            for at, of in groupby(sorted(chosen), key=lambda line: line[0])
        ]
        note = _note(head, newest_first(some))
        if tokens.weight(note.text) <= room:  # where one stands may be told more than once
            return note
        chosen.pop()
    return _nothing(is_whole=found.is_whole)


def newest_first(finds: Sequence[Find]) -> list[Find]:
    """Orders finds by date, so that of contradictions the newest comes first.

    A note whose entries are older and newer than another is quoted in parts. What has no date stays
    where it is.
    """
    pieces: list[tuple[str, tuple[int, list[str]]]] = []
    for at, find in enumerate(finds):
        above: list[str] = []
        entries: list[tuple[str, list[str]]] = []
        for line in find.quote.text.split("\n"):
            if line.strip() in find.since:
                entries.append((find.since[line.strip()][0], []))
            (entries[-1][1] if entries else above).append(find.dated(line))
        ordered = _by_date([(entry[0], entry) for entry in entries])
        when, lines = ordered[0] if ordered else (find.date, [])
        pieces.append((when, (at, above + lines)))
        pieces += [(when, (at, lines)) for when, lines in ordered[1:]]
    return [
        _saying(finds[at], (line for _, lines in of for line in lines))
        for at, of in groupby(_by_date(pieces), key=lambda piece: piece[0])
    ]


def _saying(find: Find, lines: Iterable[str]) -> Find:
    """A find that is quoted with these of its lines."""
    return replace(find, quote=replace(find.quote, text="\n".join(lines)))


def _by_date(each: Sequence[tuple[str, T]]) -> list[T]:
    """Sorts items with a date, newest first; items without one keep their places."""
    newest = iter(sorted((one for one in each if one[0]), key=lambda one: one[0], reverse=True))
    return [next(newest)[1] if when else one for when, one in each]


def _nothing(*, is_whole: bool) -> Text | None:
    """The note when nothing is recalled: None, or that memory was searched only in part."""
    return None if is_whole else _note(f"{PARTIAL}\n", ())


def _note(head: str, finds: Sequence[Find]) -> Text:
    """The note of what is recalled, as the model is shown it."""
    quoted = Quoted(tuple(find.quote for find in finds), head, _CLOSING if finds else "")
    mixed = mixture(frozenset[Whose]().union(*(find.origins for find in finds)))
    origin: Whose = "before" if mixed == "mixed" else mixed or "memory"
    return Text(str(quoted), note=True, origin=origin, value=quoted)


def _of_talk(passage: Passage, terms: Sequence[str], zone: tzinfo) -> Find:
    """A message as a find, with what was said just before and after it."""
    program = entries.imported_name(passage.channel)
    lines = [
        f"{'person' if entry.role == 'user' else program or 'you'}: "
        + excerpt(" ".join(entry.text.split()), terms, LENGTHS[entry is passage.match])
        for entry in passage.said
    ]
    origins = (origins_of(entry.content) for entry in passage.said)
    how = f"said to {program}, not to you" if program else "said"
    where = (to_the_minute(passage.match.at, zone), how, f"session {passage.session_id}")
    said = Quote(where, "\n".join(lines), by="said")
    whose = frozenset[Whose]().union(*origins)
    is_own = passage.match.role == "assistant" and not program
    return Find(said, passage.match.text, whose, passage.match.id, where[0], is_own)


def _is_in(shown: Sequence[str], text: str) -> bool:
    """True when a text says nothing that is not shown already."""
    words = markdown.normal(text)
    return not words or markdown.says_nothing(text) or any(words in other for other in shown)
