"""What of a passage is shown: the lines that answer best, as far as they fit. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from bot.memory import chunking, listing
from bot.memory.chunking import Unit
from bot.memory.search import Line

UNIT_MEANING = 0.1  # of a window's cosine in what is shown, next to its words
MAX_SNIPPET = 700  # characters
OMITTED = "…"  # a line of its own where lines were left out
# A line is worth more beside one that is shown: an answer follows its question, and what follows
# a line that matches says more of it than what comes before.
WORTH_AFTER = 0.7  # of the score of the line before, when that is shown
WORTH_BEFORE = 0.3  # of the score of the line after
WORTH_BESIDE = 0.2  # for joining on at all


def snippet(
    text: str, units: Sequence[Unit], by_words: Sequence[float], cosines: Sequence[float]
) -> tuple[str, tuple[Line, ...]]:
    """What of a passage is shown, its lines that answer best by words and meaning; and these.

    `by_words` is what each of its units scores, `cosines` those of its windows, if it has any.
    """
    meant = meanings(text, cosines)
    worth = [
        words + UNIT_MEANING * meant.get(unit.line, 0.0)
        for words, unit in zip(by_words, units, strict=True)
    ]
    shown = best_lines(units, worth)
    return shown, listing.of(shown, units, by_words, meant)


def meanings(text: str, cosines: Sequence[float]) -> Mapping[int, float]:
    """The cosine of each line of a passage, by those of its windows."""
    return listing.meanings(chunking.windows(text) if cosines else [], cosines)


def best_lines(units: Sequence[Unit], scores: Sequence[float], limit: int = MAX_SNIPPET) -> str:
    """The units with the highest scores that fit `limit` characters, in their order.

    Neighbours are preferred, so most snippets are one passage; lines left out leave a mark.
    """
    chosen: set[int] = set()
    while True:
        left = [at for at in range(len(units)) if at not in chosen]
        left.sort(key=lambda at: (-_worth(at, scores, chosen), at))
        best_fitting = next((at for at in left if len(joined(units, {*chosen, at})) <= limit), None)
        if best_fitting is None:
            break
        chosen.add(best_fitting)
    if not chosen:
        return units[0].text[:limit] if units else ""
    return joined(units, chosen)


def runs(units: Sequence[Unit], limit: int = MAX_SNIPPET) -> list[tuple[int, int]]:
    """The longest runs of units that fit `limit` characters, none inside another.

    A single unit that is longer stands for itself.
    """
    found: list[tuple[int, int]] = []
    costs = [len(unit.text) + (not unit.continues) for unit in units]
    end, used = 0, 0
    for start in range(len(units)):
        if end <= start:
            end, used = start + 1, costs[start]
        while end < len(units) and used + costs[end] <= limit + 1:
            used += costs[end]
            end += 1
        if not found or end > found[-1][1]:
            found.append((start, end))
        used -= costs[start]
    return found


def cut(unit: Unit) -> Unit:
    """A unit, or as much of its beginning as a snippet can have."""
    return unit if len(unit.text) <= MAX_SNIPPET else replace(unit, text=unit.text[:MAX_SNIPPET])


def joined(units: Sequence[Unit], chosen: Collection[int]) -> str:
    """Some of a passage's units in their order, with a mark where lines were left out."""
    text = ""
    before = -1
    for at in sorted(chosen):
        if not text:
            text = units[at].text
        elif at == before + 1:
            text += units[at].text if units[at].continues else f"\n{units[at].text}"
        elif any(units[left].text.strip() for left in range(before + 1, at)):
            text += f"\n{OMITTED}\n{units[at].text}"
        else:  # only blank lines were left out
            text += "".join(f"\n{unit.text}" for unit in units[before + 1 : at + 1])
        before = at
    return text


def _worth(at: int, scores: Sequence[float], chosen: set[int]) -> float:
    worth = scores[at]
    if at - 1 in chosen:
        worth += WORTH_AFTER * scores[at - 1]
    if at + 1 in chosen:
        worth += WORTH_BEFORE * scores[at + 1]
    return worth + (WORTH_BESIDE if at - 1 in chosen or at + 1 in chosen else 0.0)
