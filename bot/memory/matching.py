"""Where the words of a query are in some chunks, exactly or by words of like meaning. Pure.

Everything is counted for all the candidates of a search at once: one row for each unit (a line, or
a part of a long one), one column for each term.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from bot.memory import chunking, vectors, words
from bot.memory.chunking import Unit
from bot.memory.numeric import Array, np
from bot.memory.vectors import Vectors
from bot.storage import fulltext

UNIT_TOKENS = 160  # a line longer than this is scored, and shown, in parts
LIKE = 0.4  # words less alike than this have nothing to do with each other
LIKE_WORTH = 0.8  # of a word that means the same, next to the word itself
_NO_IDF = 1e-6

Matrix = Array


class WordVectors(Protocol):
    """An embedder that can tell at once, in any thread, what single words mean."""

    def word_vectors(self, texts: Sequence[str]) -> Vectors:
        """One vector of length one for each word; zeros for one that means nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Likeness:
    """How words of like meaning are found: by vectors of the words as they were, unstemmed."""

    vectors: WordVectors
    split: words.Tokenize


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
class Text:
    """A chunk's text, ready to be matched; `first` is the row of its first unit."""

    units: list[Unit]
    joined: str
    lines: list[list[str]]
    heading: list[str]
    first: int = 0

    @property
    def length(self) -> int:
        """How many words it has, its heading's among them."""
        return sum(map(len, self.lines)) + len(self.heading)


@dataclass(slots=True)
class Matches:
    """What was found: `units` is what each unit has of each term, `headings` each text's heading.

    `counts` is how often a text has each term, `pairs` the share of the query's neighbouring words
    that are neighbours there.
    """

    units: Matrix
    headings: Matrix
    counts: Matrix
    pairs: list[float] = field(default_factory=list[float])


def prepare(text: str, heading: str, tokenize: words.Tokenize) -> Text:
    """A chunk's units and tokens."""
    units = chunking.units(text, size=UNIT_TOKENS)
    joined = words.indexed("\n".join(unit.text for unit in units))
    lines = words.lines_of(tokenize(joined))
    above = tokenize(words.indexed(heading)) if heading else []
    return Text(units, joined, lines, above)


def match(
    texts: Sequence[Text], query: words.Query, idf: Sequence[float], like: Likeness | None = None
) -> Matches:
    """Find a query's terms in texts; sets each text's `first`."""
    finder = _Finder(query)
    total = sum(len(text.units) for text in texts)
    found = Matches(
        np.zeros((total, len(query.terms)), np.float32),
        np.zeros((len(texts), len(query.terms)), np.float32),
        np.zeros((len(texts), len(query.terms)), np.float32),
    )
    worth = [sum(idf[at] for at in pair) for pair in finder.pairs]
    row = 0
    for number, text in enumerate(texts):
        text.first = row
        there: set[int] = set()
        for line in text.lines:
            for term, count in finder.terms_in(line).items():
                found.units[row, term] = 1.0
                found.counts[number, term] += count
            there |= finder.pairs_in(line)
            row += 1
        for term, count in finder.terms_in(text.heading).items():
            found.headings[number, term] = 1.0
            found.counts[number, term] += count
        whole = sum(worth)
        found.pairs.append(sum(worth[pair] for pair in there) / whole if whole else 0.0)
    if like is not None:
        _add_likeness(found.units, texts, query, like)
    return found


class _Finder:
    """A query's terms by their tokens, so that most lines cost one set operation."""

    def __init__(self, query: words.Query) -> None:
        self._words = {t.tokens[0]: at for at, t in enumerate(query.terms) if len(t.tokens) == 1}
        self._phrases = [(t.tokens, at) for at, t in enumerate(query.terms) if len(t.tokens) > 1]
        self._vocabulary = frozenset(token for term in query.terms for token in term.tokens)
        places = {term.tokens: at for at, term in enumerate(query.terms)}
        known = [(a, b) for a, b in query.pairs if a.tokens in places and b.tokens in places]
        self.pairs = [(places[a.tokens], places[b.tokens]) for a, b in known]
        self._pair_tokens = {(a.tokens[0], b.tokens[0]): at for at, (a, b) in enumerate(known)}

    def terms_in(self, line: Sequence[str]) -> dict[int, int]:
        """How often a line has each term that it has."""
        there = self._vocabulary.intersection(line)
        if not there:
            return {}
        counts = {self._words[token]: line.count(token) for token in there if token in self._words}
        for tokens, at in self._phrases:
            if there.issuperset(tokens) and (count := _count(tokens, line)):
                counts[at] = count
        return counts

    def pairs_in(self, line: Sequence[str]) -> set[int]:
        """Which of the query's neighbouring words are neighbours in a line."""
        if not self._pair_tokens or len(self._vocabulary.intersection(line)) < 2:
            return set()
        return {self._pair_tokens[pair] for pair in pairwise(line) if pair in self._pair_tokens}


def _count(tokens: tuple[str, ...], line: Sequence[str]) -> int:
    length = len(tokens)
    return sum(tuple(line[at : at + length]) == tokens for at in range(len(line) - length + 1))


def _add_likeness(units: Matrix, texts: Sequence[Text], query: words.Query, like: Likeness) -> None:
    """Count words of like meaning where the words themselves are not."""
    asked = [at for at, t in enumerate(query.terms) if not fulltext.is_cjk(t.text)]
    vocabulary: dict[str, int] = {}
    flat: list[int] = []
    starts: list[int] = []
    rows: list[int] = []
    for text in texts:
        for row, line in enumerate(words.lines_of(like.split(text.joined)), text.first):
            if line:
                rows.append(row)
                starts.append(len(flat))
                flat += [vocabulary.setdefault(token, len(vocabulary)) for token in line]
    if not asked or not flat:
        return
    meant = like.vectors.word_vectors([query.terms[at].text.lower() for at in asked])
    likeness = vectors.products(like.vectors.word_vectors(list(vocabulary)), meant)
    worth = LIKE_WORTH * np.clip((likeness - LIKE) / (1 - LIKE), 0.0, 1.0)
    worth[[at for token, at in vocabulary.items() if fulltext.is_stop_word(token)]] = 0.0
    best = np.maximum.reduceat(worth[flat], starts, axis=0)
    at = np.ix_(rows, asked)
    units[at] = np.maximum(units[at], best)
