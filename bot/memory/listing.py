"""Answers to a question for many things: as many different lines as fit. Pure.

The entries of a list stand apart, one line here and one there, each beside what has nothing to do
with it. So lines are chosen one after another, always the best that is least like those that were
chosen (maximal marginal relevance). All of it is no longer than a few whole snippets, and shared
among up to twice as many passages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from bot.memory import chunking
from bot.memory.chunking import Unit
from bot.memory.search import Hit, Line
from bot.memory.vectors import Array, NDArray, np
from bot.memory.words import Matches, Query, Text, Tokenize
from bot.sessions.time_words import compiled

# What of a passage is shown: the lines that answer best, as far as they fit. Pure.

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
    """The snippet of a passage: its lines that answer best by words and meaning; and these lines.

    `by_words` is what each of its units scores, `cosines` those of its windows, if it has any.
    """
    meant = snippet_meanings(text, cosines)
    worth = [
        words + UNIT_MEANING * meant.get(unit.line, 0.0)
        for words, unit in zip(by_words, units, strict=True)
    ]
    shown = best_lines(units, worth)
    return shown, scored_lines(shown, units, by_words, meant)


def snippet_meanings(text: str, cosines: Sequence[float]) -> Mapping[int, float]:
    """The cosine of each line of a passage: the best of the windows that it is in."""
    found: dict[int, float] = {}
    for window, cosine in zip(chunking.windows(text) if cosines else (), cosines, strict=False):
        for line in range(window.first, window.last + 1):
            found[line] = max(found.get(line, 0.0), cosine)
    return found


def best_lines(units: Sequence[Unit], scores: Sequence[float], limit: int = MAX_SNIPPET) -> str:
    """The units with the highest scores that fit `limit` characters, in their order.

    Neighbours are preferred, so most snippets are one passage; lines left out leave a mark.
    """
    chosen: set[int] = set()
    while True:
        left = [at for at in range(len(units)) if at not in chosen]
        left.sort(key=lambda at: (-_snippet_worth(at, scores, chosen), at))
        best_fitting = next(
            (at for at in left if len(joined_runs(units, {*chosen, at})) <= limit), None
        )
        if best_fitting is None:
            break
        chosen.add(best_fitting)
    if not chosen:
        return units[0].text[:limit] if units else ""
    return joined_runs(units, chosen)


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


def cut_runs(unit: Unit) -> Unit:
    """A unit, or as much of its beginning as a snippet can have."""
    return unit if len(unit.text) <= MAX_SNIPPET else replace(unit, text=unit.text[:MAX_SNIPPET])


def joined_runs(units: Sequence[Unit], chosen: Collection[int]) -> str:
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


def _snippet_worth(at: int, scores: Sequence[float], chosen: set[int]) -> float:
    worth = scores[at]
    if at - 1 in chosen:
        worth += WORTH_AFTER * scores[at - 1]
    if at + 1 in chosen:
        worth += WORTH_BEFORE * scores[at + 1]
    return worth + (WORTH_BESIDE if at - 1 in chosen or at + 1 in chosen else 0.0)


def scored_lines(
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
    """The speaker of each line of a passage; all empty when most of its lines name none."""
    if not any(colon in unit.text for unit in units for colon in _COLONS):
        return [""] * len(units)
    found = [label(unit.text) for unit in units]
    lines = [u for u in units if u.text.strip() and not u.continues and not u.text.startswith("#")]
    return found if 2 * sum(map(bool, found)) >= len(lines) else [""] * len(units)


def is_first_person(line: str) -> bool:
    """True if a line speaks in the first person."""
    return _FIRST_PERSON.search(line) is not None


class Speakers:
    """The speakers of the lines of some texts, as far as a question asks for them.

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
        """The share of the rest of a question that each text's best line has, and that line's row.

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
    """The units to show of each passage, by their numbers; the passages in their order.

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
        length = len(joined_runs(pool[at].units, units))
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
    """The worth of each unit of a passage by itself."""
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
    """The likeness of lines to those chosen: `most` is the largest share of common words."""

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
