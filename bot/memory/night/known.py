"""The entries of notes that may take part in what the night does. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import PurePosixPath
from typing import Final

from bot.memory import claims, dates, layout, markdown
from bot.memory.claims import Aging, Claim
from bot.memory.night import edits, slots
from bot.memory.night.edits import Entry
from bot.memory.notes import is_day_note

LASTING: Final = "memory/lasting.md"  # where goes what mattered for long

_DAY: Final = r"\d{4}-\d\d-\d\d"
# Comments of entries that may be changed; those that people wrote are theirs.
_MARK: Final = re.compile(rf"(?:(?:owner|agent|imported)(?: {_DAY})?(?: confirmed {_DAY})?)?")

_NAMES_SUBJECT: Final = re.compile(r"(?:I|[Mm]y|[Uu]ser)\b|我|用户")
_AROUND: Final = ".,;:!?\"'“”‘’()[]*_`…。，、；：！？"

Place = tuple[str, str]
"""Of an entry: its note, and its digest."""


@dataclass(frozen=True, slots=True)
class Known:
    """An entry that may take part: whose claim it is since when, and what it says.

    `context` is what it stands below: those of other headings are about something else. `words` are
    the same for entries that say the same; a `slot` is a fact of which only one `value` is so.
    """

    entry: Entry
    claim: Claim
    context: str
    words: str
    slot: str = ""
    value: str = ""

    @property
    def path(self) -> str:
        """The note it stands in."""
        return self.entry.path

    @property
    def place(self) -> Place:
        """What tells it from others."""
        return self.path, self.entry.digest

    @property
    def order(self) -> tuple[date, str, int]:
        """Sorts by when it was said, and within a note by its place."""
        return self.claim.said or date.min, self.path, self.entry.start


def known(notes: Mapping[str, str], aging: Aging, space: str = "") -> list[Known]:
    """The entries of a space's notes that may take part, by path; the oldest first.

    What came from elsewhere may not, nor what cannot be had back to the last byte.
    """
    found = [each for path, text in notes.items() for each in _of_note(path, text, aging, space)]
    return sorted(found, key=lambda each: each.order)


def _of_note(path: str, text: str, aging: Aging, space: str) -> Iterator[Known]:
    contexts = _contexts(path, text)
    for entry, claim in zip(edits.entries(path, text), claims.of_note(path, text), strict=True):
        if not edits.is_plain(entry) or _MARK.fullmatch(entry.comment) is None:
            continue
        text = markdown.untimed(claim.text)
        context = next(each for line, each in reversed(contexts) if line <= entry.start)
        context = "" if _NAMES_SUBJECT.match(text) else context
        slot, value = slots.read(text) or ("", "")
        yield Known(entry, aging.aged(claim, space), context, _normal(text), slot, value)


def _normal(text: str) -> str:
    """Words without case and without punctuation around them; nothing of what asks or is long."""
    if len(text) > slots.MOST or text.endswith(("?", "？")):
        return ""
    flat = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(filter(None, (word.strip(_AROUND) for word in flat.split())))


def _contexts(path: str, text: str) -> list[tuple[int, str]]:
    """From which line on, from 0, entries stand below which words: a note's name and headings."""
    name = PurePosixPath(path)
    is_open = is_day_note(path) or path in {*layout.CURATED, LASTING}
    about = "" if is_open else markdown.normal(str(name.with_suffix("")))
    found, above = [(0, about)], dict[int, str]()
    for number, level, words in markdown.headings(text.split("\n")):
        title = markdown.plain(words)
        above = {other: heading for other, heading in above.items() if other < level}
        if level > 1 and dates.first_day(title) is None:
            above[level] = markdown.normal(title)
        found.append((number, "/".join(filter(None, (about, *above.values())))))
    return found
