"""The state of memory, results of a search, the age of an entry, and what forgetting removes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, tzinfo
from typing import Final

from bot.clock import moment, to_the_minute
from bot.errors import NotVisible
from bot.i18n import text
from bot.identity.view import SHARED_SPACE, MemoryView, is_owners_own
from bot.memory import entries, layout, markdown, selftest
from bot.memory.claims import FADED, Aging, Claim
from bot.memory.entries import Remembered
from bot.memory.memory import Forgotten, Memory, Overview, Preview
from bot.memory.note_store import MAX_WRITE
from bot.memory.notes import Listed
from bot.memory.search import Building, Findings, Hit
from bot.memory.selftest import Asked
from bot.messages import BEFORE, Quote
from bot.storage import Database

MAX_WORDS: Final = 500  # characters of what is looked for

# Why one way of finding is off, with words of their own.
WHY: Final = frozenset({"disabled", "weight", "empty", "building", "rebuilding"})


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """The state of a view's memory: its index, how much has faded, what is found at night.

    `others` is about everybody else's notes, for the owner.
    """

    index: Overview
    faded: int
    mine: Asked | None
    others: Asked | None

    def lines(self, language: str, now: int) -> list[str]:
        """The status in lines, without problems and an index that is being built."""
        found = self.index
        told = [
            text(language, "memory.files", files=found.files, chunks=found.chunks),
            _part(language, "words", found.words_off),
            _part(language, "meaning", found.vectors_off, model=found.model),
        ]
        if found.synced_at:
            ago = max(0, now - found.synced_at) // 1000
            told.append(text(language, "memory.synced", seconds=ago))
        if (mine := self.mine) is not None:
            share = {"share": mine.share, "found": mine.found, "asked": mine.asked}
            told.append(text(language, "memory.asked", **share))
            if mine.never:
                where = ", ".join(f"{each.path}:{each.line}" for each in mine.never)
                told.append(text(language, "memory.never_found", where=where))
        if self.others is not None:
            told.append(text(language, "memory.asked_others", share=self.others.share))
        if self.faded:
            told.append(text(language, "memory.faded_count", count=self.faded))
        for each in found.folders:
            key = "memory.folder_left" if each.left else "memory.folder"
            when = f"{moment(each.changed_at, UTC):%Y-%m-%d}" if each.changed_at else "–"
            values = {"name": each.name, "files": each.files, "left": each.left}
            told.append(text(language, key, when=when, **values))
        return told

    def trouble(self, language: str) -> list[str]:
        """The problems of the index."""
        faults = (f"{each.name}: {each.fault}" for each in self.index.folders if each.fault)
        return [
            text(language, "memory.degraded", part=part) for part in (*self.index.degraded, *faults)
        ]


async def status_of(
    memory: Memory,
    database: Database,
    view: MemoryView,
    today: date,
    listed: Sequence[Listed] | None = None,
) -> MemoryStatus:
    """The state of a view's memory; `listed` are its files, where they are known."""
    index = await memory.overview(view, listed)
    faded = len(await memory.faded(view, today))
    mine, others = await database.read(
        lambda tx: (
            selftest.of_space(tx, view.space),
            selftest.of_others(tx) if is_owners_own(view) else None,
        )
    )
    return MemoryStatus(index, faded, mine, others)


def _part(language: str, name: str, off: str, **values: object) -> str:
    """Say that one way of finding works, or why it does not."""
    if not off:
        return text(language, f"memory.{name}_on", **values)
    why = text(language, f"memory.why.{off}") if off in WHY else off
    return text(language, f"memory.{name}_off", why=why)


def how_far(language: str, building: Building) -> str:
    """The progress of an index that is being built, and how one searches until it is there."""
    name = "first" if building.is_first else "again"
    return text(language, f"memory.building.{name}", done=building.done, total=building.total)


# --- what is remembered, entry by entry -----------------------------------------------------------

MOST_FILES: Final = 1_000  # that are read for a list of entries
MOST_ENTRIES: Final = 10_000  # of a list


async def remembered(
    memory: Memory, view: MemoryView, listed: Sequence[Listed], *, shared: bool = False
) -> tuple[Sequence[Remembered], bool]:
    """The entries of a view's own or shared notes, and True if those are all."""
    paths = [each.path for each in listed if each.path.startswith(f"{SHARED_SPACE}/") is shared]
    found: list[Remembered] = []
    for path in paths[:MOST_FILES]:
        text_of = await memory.files.text(view, path, MAX_WRITE)
        found += await asyncio.to_thread(list, entries.of_note(path, text_of))
        if len(found) > MOST_ENTRIES:
            return found[:MOST_ENTRIES], False
    return found, len(paths) <= MOST_FILES


def day_in_words(language: str, day: date, today: date) -> str:
    """A day as people say it: "today", "3 May", and with its year if that is another one."""
    if 0 <= (today - day).days <= 1:
        return text(language, "memory.today" if day == today else "memory.yesterday")
    month = text(language, "memory.months").split()[day.month - 1]
    key = "memory.day" if day.year == today.year else "memory.day_of_year"
    return text(language, key, day=day.day, month=month, year=f"{day:%Y}")


def on_day(language: str, day: date, today: date) -> str:
    """A day within a sentence: "on 3 May", but "today"."""
    words = day_in_words(language, day, today)
    return words if 0 <= (today - day).days <= 1 else text(language, "memory.on", day=words)


def source_of(language: str, claim: Claim, today: date) -> str:
    """The source of an entry in words: "You said it on 3 May"."""
    when = on_day(language, claim.said, today) if claim.said is not None else ""
    return text(language, f"memory.from.{claim.whose}", when=when).strip()


def seen(view: MemoryView, quotes: Sequence[Quote]) -> list[Quote]:
    """Quotes of what was said, and of the files that a view may see still."""
    return [each for each in quotes if not each.path or _may_see(view, each.path)]


def _may_see(view: MemoryView, path: str) -> bool:
    try:
        layout.resolve(view, path)
    except NotVisible:
        return False
    return True


def place_of(language: str, quote: Quote) -> str:
    """The place of a quote of memory, or when it was said."""
    where = quote.where[0]
    if where.startswith(BEFORE):
        return text(language, "memory.source_before", when=where.removeprefix(BEFORE))
    return where if quote.path else text(language, "memory.said", when=where)


# --- what a search found --------------------------------------------------------------------------


def where_found(language: str, hit: Hit, zone: tzinfo | None) -> str:
    """The place of a passage, or the time it was said."""
    if hit.source == "transcript":
        return text(language, "memory.said", when=to_the_minute(hit.at, zone))
    lines = f"{hit.start_line}-{hit.end_line}" if hit.end_line > hit.start_line else hit.start_line
    return f"{layout.shown(hit.space, hit.path)}:{lines}"


def words_found(hit: Hit) -> list[str]:
    """The lines of a passage as they are read."""
    return markdown.readable(hit.snippet).strip().splitlines()


def why_found(language: str, hit: Hit) -> str:
    """The reasons for which a passage was found, and that it has faded if it has."""
    why = hit.why
    told = [
        text(language, f"memory.found.{name}", words=", ".join(found))
        for name, found in (("words", why.words), ("headings", why.headings))
        if found
    ]
    reasons = (("meaning", why.by_meaning), ("date", why.by_date))
    told += [text(language, f"memory.found.{name}") for name, is_so in reasons if is_so]
    said = text(language, "memory.found.why", reasons="; ".join(told))
    return f"{said} · {text(language, 'memory.aged.faded')}" if hit.strength < FADED else said


def mode_of(language: str, found: Findings) -> str:
    """A sentence about what a search had to do without; empty if it used words and meaning."""
    name = {"keyword": "words", "vector": "meaning", "none": "neither"}.get(found.mode)
    return text(language, f"memory.by.{name}") if name else ""


# --- how old an entry is --------------------------------------------------------------------------

MONTH, YEAR = 30, 365  # days
FIRST_MONTHS, FIRST_YEARS = 2 * MONTH, 2 * YEAR  # below, smaller units are told


def age_of(language: str, claim: Claim, today: date) -> str:
    """The age of a claim, in words; empty when nobody knows."""
    if claim.said is None:
        return ""
    days = max(0, (today - claim.said).days)
    if days == 0:
        return text(language, "memory.aged.today")
    if days < FIRST_MONTHS:
        return text(language, "memory.aged.days", count=days)
    if days < FIRST_YEARS:
        return text(language, "memory.aged.months", count=days // MONTH)
    return text(language, "memory.aged.years", count=days // YEAR)


def told_of(language: str, claim: Claim, aging: Aging, space: str) -> list[str]:
    """Sentences about a claim's age."""
    aged = aging.aged(claim, space)
    told = [age_of(language, aged, aging.today)]
    for name, day in (("confirmed", aged.confirmed), ("used", aged.used)):
        if day is not None:
            told.append(text(language, f"memory.aged.{name}", date=f"{day:%Y-%m-%d}"))
    if not aged.is_over and aging.is_faded(aged, space):
        told.append(text(language, "memory.aged.faded"))
    return [each for each in told if each]


# --- what forgetting removes ----------------------------------------------------------------------

Counts = Mapping[str, int]
"""Counts by kind."""


def would_go(found: Preview) -> Counts:
    """Counts of what forgetting would remove besides entries of notes."""
    said = sum(mention.says for mention in found.held.mentions)
    return {
        "messages": said,
        "beside": len(found.held.mentions) - said,
        "results": len(found.held.results),
        "titles": len(found.held.titles),
        "planned": found.held.planned,
        "queued": found.held.queued,
        "versions": found.versions,
        "folders": found.folders,
    }


def went(done: Forgotten, unsent: int) -> Counts:
    """Counts of what forgetting removed besides entries of notes; `unsent` texts were withdrawn."""
    gone = done.gone
    said = sum(mention.says for mention in gone.mentions)
    return {
        "messages": said,
        "beside": len(gone.mentions) - said,
        "prompts": len(gone.prompts),
        "results": gone.results,
        "titles": gone.titles,
        "planned": gone.planned,
        "queued": gone.queued,
        "folders": done.folders,
        "versions": done.versions,
        "unsent": unsent,
    }


def counted(language: str, how: str, counts: Counts) -> list[str]:
    """A sentence for each of what there is any; `how` is "would" or "did"."""
    files = counts.get("files", 0)
    return [
        text(language, f"memory.{how}.{name}", count=count, files=files)
        for name, count in counts.items()
        if count and name != "files"
    ]
