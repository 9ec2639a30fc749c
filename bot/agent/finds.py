"""What notes say and what was said as one ranked list, each thing once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.context import sentences
from bot.memory import markdown
from bot.messages import Whose
from bot.tool_results import Quote

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
