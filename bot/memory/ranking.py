"""Putting what was found in order. Pure.

A chunk's text score has three parts, each a share of what the query could reach: BM25 over the
chunk; the most that one line, with its neighbours' help, has of the query's words; and how many of
the query's neighbouring words are neighbours there too. The parts are weighted by how rare a word
is. The vector score is the best cosine of one of its windows. A query that names a day or a month
prefers the notes of that time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

import numpy as np

from bot.memory import chunking, dates, words
from bot.memory.vectors import Vectors

K1 = 1.2
B = 0.75
BM25_SHARE = 0.3
LINE_SHARE = 0.55
PAIR_SHARE = 0.15
NEIGHBOUR = 0.7  # a word on the next line, or in a heading above, next to one on the line itself
DATE_SHARE = 0.2
UNIT_TOKENS = 160  # a line longer than this is scored, and shown, in parts
UNIT_MEANING = 0.2  # of a unit's cosine in what is shown, next to its words
_NO_IDF = 1e-6

Similar = Callable[[int, int], float]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk that one of the legs found. `vectors` are its windows', if it has any."""

    key: int
    text: str
    heading: str = ""
    day: date | None = None
    vectors: Vectors | None = None


@dataclass(frozen=True, slots=True)
class Weights:
    """What the parts of a score count; `recency` is the share that only new notes get."""

    text: float
    vector: float
    half_life_days: float = 30.0
    recency: float = 0.05


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of the words in the index: in how many of its chunks each term is."""

    chunks: int
    average_length: float
    frequencies: Mapping[tuple[str, ...], int]

    def idf(self, term: words.Term) -> float:
        """How much a term says: much when it is rare."""
        seen = self.frequencies.get(term.tokens, 0)
        return term.weight * max(_NO_IDF, math.log((self.chunks + 1) / (seen + 0.5)))


@dataclass(slots=True)
class Scored:
    """A candidate's scores, from 0 to 1, and those of its units: what a snippet is chosen by."""

    candidate: Candidate
    units: list[chunking.Unit]
    text: float = 0.0
    vector: float = 0.0
    score: float = 0.0
    unit_scores: list[float] = field(default_factory=list[float])
    unit_cosines: list[float] = field(default_factory=list[float])
    terms: frozenset[str] = frozenset()


def score_text(
    candidate: Candidate, query: words.Query, known: Statistics, tokenize: words.Tokenize
) -> Scored:
    """How well a chunk's words answer a query's."""
    units = chunking.units(candidate.text, size=UNIT_TOKENS)
    joined = "\n".join(unit.text for unit in units)
    lines = words.lines_of(tokenize(words.indexed(joined)))
    heading = tokenize(words.indexed(candidate.heading)) if candidate.heading else []
    scored = Scored(candidate, units, terms=frozenset(token for line in lines for token in line))
    idf = {term: known.idf(term) for term in query.terms}
    whole = sum(idf.values())
    if not whole:
        scored.unit_scores = [0.0] * len(units)
        return scored
    held = [words.found(query.terms, line) for line in lines]
    above = _headings(units, words.found(query.terms, heading), held)
    scored.unit_scores = [sum(idf[term] for term in terms) / whole for terms in held]
    line = max((_line_score(at, held, above[at], idf) for at in range(len(units))), default=0.0)
    bm25 = _bm25([*lines, heading], query.terms, idf, known.average_length)
    pairs = _pair_score(query, [*lines, heading], idf)
    scored.text = (
        BM25_SHARE * bm25 / (whole * (K1 + 1)) + LINE_SHARE * line / whole + PAIR_SHARE * pairs
    )
    return scored


def score_vectors(scored: Scored, wanted: Vectors) -> None:
    """How near the meaning of a chunk's nearest window is to the query's."""
    rows = scored.candidate.vectors
    if rows is None or not len(rows):
        return
    cosines = np.maximum(rows @ wanted, 0.0)
    scored.vector = float(cosines.max())
    by_line: dict[int, float] = {}
    windows = chunking.windows(scored.candidate.text)
    for window, cosine in zip(windows, cosines.tolist(), strict=False):
        for line in range(window.first, window.last + 1):
            by_line[line] = max(by_line.get(line, 0.0), cosine)
    scored.unit_cosines = [by_line.get(unit.line, 0.0) for unit in scored.units]


def unit_scores(scored: Scored) -> list[float]:
    """What each unit of a chunk has to do with the query, by its words and by its meaning."""
    if not scored.unit_cosines:
        return scored.unit_scores
    meaning = [UNIT_MEANING * cosine for cosine in scored.unit_cosines]
    return [word + sense for word, sense in zip(scored.unit_scores, meaning, strict=True)]


def fuse(
    scored: Sequence[Scored], query: str, weights: Weights, *, today: date
) -> list[Scored]:
    """The candidates with their final scores, best first."""
    wanted = dates.named(query)
    whole = (weights.text + weights.vector) or 1.0
    for each in scored:
        found = (weights.text * each.text + weights.vector * each.vector) / whole
        if found > 0 and wanted:
            found += DATE_SHARE * dates.nearness(wanted, each.candidate.day)
        each.score = min(1.0, found * _freshness(each.candidate.day, weights, today))
    return sorted(scored, key=lambda each: (-each.score, each.candidate.key))


def diversify(ranked: Sequence[Scored], limit: int, trade_off: float) -> list[Scored]:
    """Maximal marginal relevance: what is chosen should not say the same again.

    `trade_off` 1 keeps the order; likeness is the share of common words (Jaccard).
    """
    rest = list(ranked)
    chosen: list[Scored] = []
    best = rest[0].score if rest else 0.0
    while rest and len(chosen) < limit:
        pick = max(
            range(len(rest)),
            key=lambda at: (
                trade_off * rest[at].score / (best or 1.0)
                - (1 - trade_off) * max((_jaccard(rest[at], c) for c in chosen), default=0.0)
            ),
        )
        chosen.append(rest.pop(pick))
    return chosen


def _freshness(day: date | None, weights: Weights, today: date) -> float:
    """One for what has no date; a dated note loses a small share as it ages, never more."""
    if day is None or weights.half_life_days <= 0:
        return 1.0
    age = max(0, (today - day).days)
    return 1.0 - weights.recency * (1.0 - 0.5 ** (age / weights.half_life_days))


def _jaccard(a: Scored, b: Scored) -> float:
    union = len(a.terms | b.terms)
    return len(a.terms & b.terms) / union if union else 0.0


def _headings(
    units: Sequence[chunking.Unit], inherited: list[words.Term], held: Sequence[list[words.Term]]
) -> list[list[words.Term]]:
    """For each unit, the query's terms in the heading it stands under."""
    current = inherited
    above: list[list[words.Term]] = []
    for unit, terms in zip(units, held, strict=True):
        if chunking.heading_of(unit.text) is not None:
            current = [*inherited, *terms]
        above.append(current)
    return above


def _line_score(
    at: int,
    held: Sequence[list[words.Term]],
    above: Sequence[words.Term],
    idf: Mapping[words.Term, float],
) -> float:
    """What one line has of the query, with a little help from the lines around it."""
    own = set(held[at])
    near = set(above)
    if at > 0:
        near.update(held[at - 1])
    if at + 1 < len(held):
        near.update(held[at + 1])
    return sum(idf[term] for term in own) + NEIGHBOUR * sum(idf[term] for term in near - own)


def _bm25(
    lines: Sequence[Sequence[str]],
    terms: Sequence[words.Term],
    idf: Mapping[words.Term, float],
    average: float,
) -> float:
    length = sum(len(line) for line in lines)
    norm = K1 * (1 - B + B * length / (average or 1.0))
    total = 0.0
    for term in terms:
        count = sum(words.count(term, line) for line in lines)
        total += idf[term] * count * (K1 + 1) / (count + norm) if count else 0.0
    return total


def _pair_score(
    query: words.Query, lines: Sequence[Sequence[str]], idf: Mapping[words.Term, float]
) -> float:
    """The share of the query's neighbouring words that are neighbours in a line too."""
    if not query.pairs:
        return 0.0
    worth = {pair: idf.get(pair[0], 0.0) + idf.get(pair[1], 0.0) for pair in query.pairs}
    there = {pair for line in lines for pair in words.found_pairs(query.pairs, line)}
    whole = sum(worth.values())
    return sum(worth[pair] for pair in there) / whole if whole else 0.0
