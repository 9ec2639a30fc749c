"""The part of a chunk that is shown: what answers the question, not the first lines. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.memory.chunking import Unit

LIMIT = 700  # characters
OMITTED = "…"  # a line of its own where lines were left out
# A line is worth more beside one that is shown: an answer follows its question, and what follows
# a line that matches says more of it than what comes before.
AFTER = 0.7  # of the score of the line before, when that is shown
BEFORE = 0.3  # of the score of the line after
BESIDE = 0.2  # for joining on at all


@dataclass(frozen=True, slots=True)
class Snippet:
    """Some lines of a chunk in their order; `first` and `last` are counted from 0."""

    first: int
    last: int
    text: str


def best(units: Sequence[Unit], scores: Sequence[float], limit: int = LIMIT) -> Snippet:
    """The units with the highest scores that fit `limit` characters, in their order.

    Neighbours are preferred, so most snippets are one passage; lines left out leave a mark.
    """
    chosen: set[int] = set()
    while True:
        left = [at for at in range(len(units)) if at not in chosen]
        left.sort(key=lambda at: (-_worth(at, scores, chosen), at))
        best_fitting = next(
            (at for at in left if len(_joined(units, {*chosen, at})) <= limit), None
        )
        if best_fitting is None:
            break
        chosen.add(best_fitting)
    if not chosen:
        first = units[0].line if units else 0
        return Snippet(first, first, units[0].text[:limit] if units else "")
    return Snippet(units[min(chosen)].line, units[max(chosen)].line, _joined(units, chosen))


def runs(units: Sequence[Unit], limit: int = LIMIT) -> list[tuple[int, int]]:
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


def _worth(at: int, scores: Sequence[float], chosen: set[int]) -> float:
    worth = scores[at]
    if at - 1 in chosen:
        worth += AFTER * scores[at - 1]
    if at + 1 in chosen:
        worth += BEFORE * scores[at + 1]
    return worth + (BESIDE if at - 1 in chosen or at + 1 in chosen else 0.0)


def _joined(units: Sequence[Unit], chosen: set[int]) -> str:
    text = ""
    before = -1
    for at in sorted(chosen):
        if not text:
            text = units[at].text
        elif at == before + 1:
            text += units[at].text if units[at].continues else f"\n{units[at].text}"
        else:
            text += f"\n{OMITTED}\n{units[at].text}"
        before = at
    return text
