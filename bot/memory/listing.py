"""What answers a question for many things: as many different lines as fit. Pure.

The entries of a list stand apart, one line here and one there, each beside what has nothing to do
with it. So lines are chosen one after another, always the best that is least like those that were
chosen (maximal marginal relevance). All of it is no longer than a few whole snippets, and shared
among up to twice as many passages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from bot.memory import snippets
from bot.memory.chunking import Unit, Window
from bot.memory.search import Hit, Line
from bot.memory.snippets import MAX_SNIPPET
from bot.memory.vectors import Array, NDArray, np
from bot.memory.words import Matches, Query, Text, Tokenize
from bot.sessions.time_words import compiled


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


MAX_TEXT = 400  # characters of a question that are read

_PLURAL = r"(?:[^\s'’]+ ){0,3}\w+(?<![suio])s"
_LIST = (
    r"\b(?:what|which|whose) (?:(?:kinds|types|sorts) of\b|"
    rf"{_PLURAL} (?:has|have|had|do|does|did|are|were|is|was|can|could|will|would|should)\b)|"
    r"\b(?:list|name (?:all|the))\b|哪些|哪几|列出|列举|有谁"
)
_MANY = (
    rf"{_LIST}|"
    r"\b(?:what|which|whose) (?:(?:are|were)\b|of\b)|"
    r"\b(?:what|where|who|whom|which \w+|what \w+) (?:has|have)\b|"
    r"\bwho (?:of|among|else|all|are|were)\b|\bhow (?:many|often)\b|"
    r"\bwhat (?:do|does) .{1,60} (?:like|love|enjoy|do|collect|own|have|play|share)\b|"
    r"\b(?:both|in common|alike|all|every|everything|everyone|each|various|"
    r"different)\b|"
    r"几[个個次位种種条件]|多少|都|所有|一共|总共|總共|谁.{0,6}[会有]|共同|"
    r"一样|一樣|相同|各自|分别|分別"
)


def asks_for_many(question: str) -> bool:
    """True for "which countries has Ada been to", "what have they in common" and 我去过哪些城市.

    A wrong answer costs little: how its results are found and ordered changes, not what is one.
    """
    return compiled(_MANY).search(" ".join(question[:MAX_TEXT].split())) is not None


BEFORE = 0.7  # of what the line before has of a question: an answer follows what it answers
AFTER = 0.5  # of what the line after has
NOTHING = 1e-9
LONGEST = 48  # characters within which a label ends

_COLONS = (":", "\uff1a")
_LABEL = re.compile(
    r"(?:[-*+>]\s+)?(?:[\[(]?\d{1,2}:\d\d(?::\d\d)?[\])]?\s+)?(?:\*\*)?"
    r"(?P<name>[^\W\d_][\w'\u2019.-]*(?: [^\W\d_][\w'\u2019.-]*){0,2})(?:\*\*)?\s?[:\uff1a](?!//)"
)
_FIRST_PERSON = re.compile(
    r"\b(?:I|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself|[Ww]e|[Oo]ur|[Uu]s)\b|[\u6211\u54b1]"
)


def label(line: str) -> str:
    """The speaker a line begins with; empty when it begins with none."""
    head = line[:LONGEST]
    found = _LABEL.match(head) if any(colon in head for colon in _COLONS) else None
    return found["name"] if found else ""


def labels(units: Sequence[Unit]) -> list[str]:
    """Who says each line of a passage; nobody anywhere when most of its lines do not tell."""
    if not any(colon in unit.text for unit in units for colon in _COLONS):
        return [""] * len(units)
    found = [label(unit.text) for unit in units]
    lines = [u for u in units if u.text.strip() and not u.continues and not u.text.startswith("#")]
    return found if 2 * sum(map(bool, found)) >= len(lines) else [""] * len(units)


def is_first_person(line: str) -> bool:
    """Whether a line speaks of who says it."""
    return _FIRST_PERSON.search(line) is not None


class Speakers:
    """Who says the lines of some texts, as far as a question asks for that.

    `are_known` when anybody does; `names` are the places of those of its terms that are names, and
    `others` tells the lines that nobody says who was asked for.
    """

    def __init__(self, texts: Sequence[Text], query: Query, tokenize: Tokenize) -> None:
        names = [name for text in texts for name in labels(text.units)]
        tokens = {
            name: frozenset(tokenize(name)) if name else frozenset[str]() for name in {*names}
        }
        every = frozenset[str]().union(*tokens.values())
        self.are_known = bool(every)
        self.names = [at for at, term in enumerate(query.terms) if every.issuperset(term.tokens)]
        wanted = frozenset(token for at in self.names for token in query.terms[at].tokens)
        # Where nobody is asked for by name, anybody may say it.
        self.others = np.array([bool(wanted) and not wanted & tokens[name] for name in names])

    def said(self, texts: Sequence[Text], found: Matches, shares: Array) -> tuple[Array, list[int]]:
        """What the best line of each text has of the rest of a question, and the row of that line.

        A line has something of what stands beside it. Only lines of who was asked for count.
        """
        rest = shares.copy()
        rest[self.names] = 0.0
        rest /= max(float(rest.sum()), NOTHING)
        own: Array = found.units @ rest
        worth = own.copy()
        for text in texts:
            first, last = text.first, text.first + len(text.units) - 1
            part = worth[first : last + 1]
            np.maximum(part[1:], BEFORE * own[first:last], out=part[1:])
            np.maximum(part[:-1], AFTER * own[first + 1 : last + 1], out=part[:-1])
        worth[self.others] = 0.0
        spans = [slice(text.first, text.first + len(text.units)) for text in texts]
        best = [span.start + int(worth[span].argmax()) for span in spans]
        return worth[best], best

    def named(self, found: Matches) -> Array:
        """1 for each text that has one of the question's names, or when it has none."""
        if not self.names:
            return np.ones(len(found.counts), np.float32)
        return found.counts[:, self.names].max(axis=1) > 0


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
    passages: Sequence[Passage], limit: int, trade_off: float, room: int = 0
) -> Mapping[int, frozenset[int]]:
    """Which units are shown of which passages, each by its number; the passages in their order.

    Joined, they have no more than `room` characters, or as many as `limit` snippets have, and none
    is longer than a snippet. With a `trade_off` of 1 it does not matter how like lines are.
    """
    pool, left = passages[: limit * POOL], room or limit * MAX_SNIPPET
    lines, worth = _best_lines(pool, COMPARED * left)
    numbers = {line: number for number, line in enumerate(lines)}
    copies = _copies(pool, lines)
    likeness = _Likeness([pool[at].tokens[unit] for at, unit in lines])
    owners = np.array([at for at, _ in lines], np.int64)
    is_left = np.ones(len(lines), np.bool_)
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
        + FIRST * np.array([is_first_person(text) for text in texts], np.float64)
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
