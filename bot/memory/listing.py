"""What answers a question for many things: as many different lines as fit. Pure.

The entries of a list stand apart, one line here and one there, each beside what has nothing to do
with it. So lines are chosen one after another, always the best that is least like those that were
chosen (maximal marginal relevance). All of it is no longer than a few whole snippets, and shared
among up to twice as many passages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from bot.memory import snippets, speakers
from bot.memory.chunking import Unit
from bot.memory.search import Hit
from bot.memory.snippets import MAX_SNIPPET
from bot.memory.vectors import NDArray, np

POOL = 4  # times as many passages as are wanted are chosen from
SHOWN = 2  # times as many may be shown
COMPARED = 2  # times as much text as may be shown is compared
# What a line is worth, next to the score of its passage, which is one for the best. Round numbers
# from a broad optimum: half or twice as much of each finds about the same.
WORDS = 0.4  # of what it has of the query's words
MEANING = 1.0  # of the cosine of its window
OTHERS = 0.4  # less when somebody else says it than who was asked for
FIRST = 0.05  # that it speaks in the first person
ANSWERS = 0.1  # that the line before it asks something
LENGTH = 0.1  # of the logarithm of how many words it has: a short line names nothing
BESIDE = 0.05  # that a line beside it is shown

_ASKS = ("?", "\uff1f")


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage that lines are chosen from; `score` is how well all of it answers.

    `place` is its space, its path and its first line. For each of its units: `tokens`, what it has
    of the query in `by_words`, the cosine of its window in `meant`, and in `others` whether
    somebody else says it than who was asked for.
    """

    place: tuple[str, str, int]
    score: float
    units: Sequence[Unit]
    tokens: Sequence[Sequence[str]]
    by_words: Sequence[float]
    meant: Sequence[float]
    others: Sequence[bool]


def choose(
    passages: Sequence[Passage], limit: int, trade_off: float
) -> Mapping[int, frozenset[int]]:
    """Which units are shown of which passages, each by its number; the passages in their order.

    Joined, they have no more text than `limit` snippets, and none is longer than a snippet. With a
    `trade_off` of 1 it does not matter how like lines are.
    """
    pool = passages[: limit * POOL]
    lines, worth = _best_lines(pool, COMPARED * limit * MAX_SNIPPET)
    numbers = {line: number for number, line in enumerate(lines)}
    copies = _copies(pool, lines)
    likeness = _Likeness([pool[at].tokens[unit] for at, unit in lines])
    owners = np.array([at for at, _ in lines], np.int64)
    is_left = np.ones(len(lines), np.bool_)
    left = limit * MAX_SNIPPET
    chosen: dict[int, frozenset[int]] = {}
    lengths: dict[int, int] = {}
    while is_left.any():
        gains = trade_off * worth - (1 - trade_off) * likeness.most
        best = int(np.where(is_left, gains, -np.inf).argmax())
        is_left[best] = False
        at, unit = lines[best]
        units = chosen.get(at, frozenset()) | {unit}
        length = len(snippets.joined(pool[at].units, units))
        if length > MAX_SNIPPET or length - lengths.get(at, 0) > left:
            continue
        left -= length - lengths.get(at, 0)
        chosen[at], lengths[at] = units, length
        is_left[copies[best]] = False
        likeness.add(best)
        if len(chosen) == limit * SHOWN:
            is_left &= np.isin(owners, list(chosen))
        for near in (unit - 1, unit + 1):
            if (at, near) in numbers and near not in units:
                worth[numbers[at, near]] += BESIDE
    return {at: chosen[at] for at in sorted(chosen)}


def fitting(hits: Sequence[Hit], limit: int) -> Sequence[Hit]:
    """The first passages of a longer list, as far as `limit` results have room for them."""
    room = limit * MAX_SNIPPET
    for at, hit in enumerate(hits[: limit * SHOWN]):
        room -= len(hit.snippet)
        if room < 0:
            return hits[:at]
    return hits[: limit * SHOWN]


def _best_lines(
    pool: Sequence[Passage], most: int
) -> tuple[list[tuple[int, int]], NDArray[np.float64]]:
    """The lines that are worth most, each as a passage and its unit, and what they are worth.

    At most `most` characters of them, and at least one.
    """
    best = max((each.score for each in pool), default=0.0) or 1.0
    worth = np.concatenate([np.zeros(0), *(_worth(each, best) for each in pool)])
    every = [(at, unit) for at, each in enumerate(pool) for unit in range(len(each.units))]
    found: list[int] = []
    for number in map(int, np.argsort(-worth, kind="stable")):
        at, unit = every[number]
        text = pool[at].units[unit].text
        if not text.strip():
            continue
        most -= len(text)
        if most < 0 and found:
            break
        found.append(number)
    return [every[number] for number in found], worth[found]


def _worth(passage: Passage, best: float) -> NDArray[np.float64]:
    """What each unit of a passage is worth by itself."""
    texts = [unit.text for unit in passage.units]
    asks = [text.rstrip().endswith(_ASKS) for text in texts]
    return (
        passage.score / best
        + WORDS * np.array(passage.by_words)
        + MEANING * np.array(passage.meant)
        - OTHERS * np.array(passage.others, np.float64)
        + FIRST * np.array([speakers.is_first_person(text) for text in texts], np.float64)
        + ANSWERS * np.array([False, *asks[:-1]][: len(asks)], np.float64)
        + LENGTH * np.log([max(1, len({*each})) for each in passage.tokens])
    )


def _copies(pool: Sequence[Passage], lines: Sequence[tuple[int, int]]) -> list[list[int]]:
    """For each line the numbers of all that are the same one of a note, as passages overlap."""
    same: dict[tuple[str, str, int, str], list[int]] = {}
    found: list[list[int]] = []
    for number, (at, unit) in enumerate(lines):
        space, path, first = pool[at].place
        line = pool[at].units[unit]
        found.append(same.setdefault((space, path, first + line.line, line.text), []))
        found[-1].append(number)
    return found


class _Likeness:
    """How like lines are to those that were chosen: `most` is the largest share of common words."""

    def __init__(self, lines: Sequence[Sequence[str]]) -> None:
        sets = [{*each} for each in lines]
        numbers = {word: at for at, word in enumerate(dict.fromkeys(chain.from_iterable(lines)))}
        self._words = np.array([numbers[word] for each in sets for word in each], np.int64)
        self._sizes = np.array([len(each) for each in sets], np.int64)
        self._owners = np.repeat(np.arange(len(sets)), self._sizes)
        self._ends = np.cumsum(self._sizes)
        self._is_in = np.zeros(len(numbers), np.bool_)
        self.most = np.zeros(len(sets))

    def add(self, line: int) -> None:
        """Count one that was chosen."""
        end, size = self._ends[line], self._sizes[line]
        own = self._words[end - size : end]
        self._is_in[own] = True
        common = np.bincount(self._owners, self._is_in[self._words], len(self._sizes))
        self._is_in[own] = False
        share = common / np.maximum(self._sizes + size - common, 1)
        np.maximum(self.most, share, out=self.most)
