"""How well each line of what is shown answers, beside how well all of it does. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.memory.chunking import Unit, Window
from bot.memory.search import Line


def meanings(windows: Sequence[Window], cosines: Sequence[float]) -> dict[int, float]:
    """The best cosine of the windows that each line of a passage is in."""
    found: dict[int, float] = {}
    for window, cosine in zip(windows, cosines, strict=False):
        for line in range(window.first, window.last + 1):
            found[line] = max(found.get(line, 0.0), cosine)
    return found


def of(
    shown: str, units: Sequence[Unit], by_words: Sequence[float], meant: Mapping[int, float]
) -> tuple[Line, ...]:
    """The lines of a snippet, in their order, each worth the best of the units it is made of."""
    worth = [
        (unit.text, words, meant.get(unit.line, 0.0))
        for unit, words in zip(units, by_words, strict=True)
        if unit.text.strip()
    ]
    found: list[Line] = []
    for line in shown.split("\n"):
        parts = [(words, meaning) for text, words, meaning in worth if text in line]
        words, meaning = (max((part[at] for part in parts), default=0.0) for at in (0, 1))
        found.append(Line(line, words, meaning))
    return tuple(found)
