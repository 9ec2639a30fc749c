"""The part of a chunk that is shown: the lines that answer the question, not the first ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.memory.chunking import Unit

LIMIT = 700  # characters


@dataclass(frozen=True, slots=True)
class Snippet:
    """Some lines as they stand in the chunk; `first` and `last` are counted from 0."""

    first: int
    last: int
    text: str


def best(units: Sequence[Unit], scores: Sequence[float], limit: int = LIMIT) -> Snippet:
    """The run of neighbouring units with the highest sum of scores that fits `limit` characters.

    Of equal runs the one with the most text, so that a good line comes with what is around it.
    """
    chosen = (0, 1)
    highest = (-1.0, -1)
    for start in range(len(units)):
        end = _longest(units, start, limit)
        worth = (sum(scores[start:end]), _length(units[start:end]))
        if worth > highest:
            highest, chosen = worth, (start, end)
    part = units[chosen[0] : chosen[1]]
    if not part:
        return Snippet(0, 0, "")
    return Snippet(part[0].line, part[-1].line, _joined(part)[:limit])


def _longest(units: Sequence[Unit], start: int, limit: int) -> int:
    """The end of the longest run from `start` that fits; one unit always does."""
    end, used = start + 1, len(units[start].text)
    while end < len(units):
        used += len(units[end].text) + (0 if units[end].continues else 1)
        if used > limit:
            break
        end += 1
    return end


def _length(units: Sequence[Unit]) -> int:
    return sum(len(unit.text) for unit in units)


def _joined(units: Sequence[Unit]) -> str:
    first, *rest = units
    return first.text + "".join(u.text if u.continues else f"\n{u.text}" for u in rest)
