"""The words of a query, in every script, and where some chunks have them. Pure.

A word of an alphabet is one term, by its stem. A run of Chinese, Japanese or Korean characters is
asked for by its overlapping pairs, which is what its words mostly are, and more faintly by single
characters, because a word of one character stands in other pairs in the note. A chunk has a term
exactly, or by a word of like meaning.

Everything is counted for all the candidates of a search at once: one row for each unit (a line, or
a part of a long one), one column for each term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from bot.memory import chunking, vectors
from bot.memory.chunking import Unit
from bot.memory.vectors import Array, Vectors, np
from bot.storage import fulltext

Tokenize = Callable[[str], list[str]]
"""A text's tokens as the full-text index has them; the character `NEW_LINE` is one of its own."""

NEW_LINE = "\ue000"  # private use, which the tokenizer takes for a word
MAX_TERMS = 48
SINGLE_WEIGHT = 0.4  # of a single CJK character inside a longer run, next to a pair's
UNIT_TOKENS = 160  # a line longer than this is scored, and shown, in parts
LIKE = 0.4  # words less alike than this have nothing to do with each other
LIKE_WORTH = 0.8  # of a word that means the same, next to the word itself
_NO_IDF = 1e-6

Matrix = Array


@dataclass(frozen=True, slots=True)
class Term:
    """Something to look for: a token, or two in a row; `text` as it was typed."""

    tokens: tuple[str, ...]
    text: str
    weight: float = 1.0

    @property
    def match(self) -> str:
        """The term in FTS5's query language."""
        return f'"{self.text}"'


@dataclass(frozen=True, slots=True)
class Query:
    """A query's terms, and those of its words that are neighbours: together they mean more."""

    terms: tuple[Term, ...]
    pairs: tuple[tuple[Term, Term], ...] = ()


def parse(query: str, tokenize: Tokenize) -> Query:
    """The content words of a query; all of its words when it has no others."""
    sequence = [list(_terms(run, tokenize)) for run in fulltext.runs(query)]
    every = [term for terms in sequence for term, _ in terms]
    content = [term for terms in sequence for term, is_content in terms if is_content]
    chosen = {term.tokens: term for term in reversed(content or every)}
    ordered = [chosen[key] for key in dict.fromkeys(term.tokens for term in content or every)]
    neighbours = [
        (before[0][0], after[0][0])
        for before, after in pairwise(sequence)
        if _is_word(before) and _is_word(after)
    ]
    return Query(tuple(ordered[:MAX_TERMS]), tuple(dict.fromkeys(neighbours)))


def lines_of(tokens: list[str]) -> list[list[str]]:
    """A stream of tokens cut at its line ends."""
    lines: list[list[str]] = []
    start = 0
    for _ in range(tokens.count(NEW_LINE)):
        end = tokens.index(NEW_LINE, start)
        lines.append(tokens[start:end])
        start = end + 1
    lines.append(tokens[start:])
    return lines


def indexed(text: str) -> str:
    """Text as the full-text index and `Tokenize` take it, line ends marked."""
    return fulltext.spaced(text.replace(NEW_LINE, " ")).replace("\n", f" {NEW_LINE} ")


class WordVectors(Protocol):
    """An embedder that can tell at once, in any thread, what single words mean."""

    def word_vectors(self, texts: Sequence[str]) -> Vectors:
        """One vector of length one for each word; zeros for one that means nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Likeness:
    """How words of like meaning are found: by vectors of the words as they were, unstemmed."""

    vectors: WordVectors
    split: Tokenize


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of the words in the index: in how many of its chunks each term is."""

    chunks: int
    average_length: float
    frequencies: Mapping[tuple[str, ...], int]

    def idf(self, term: Term) -> float:
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


def prepare(text: str, heading: str, tokenize: Tokenize) -> Text:
    """A chunk's units and tokens."""
    units = chunking.units(text, size=UNIT_TOKENS)
    joined = indexed("\n".join(unit.text for unit in units))
    lines = lines_of(tokenize(joined))
    above = tokenize(indexed(heading)) if heading else []
    return Text(units, joined, lines, above)


def match(
    texts: Sequence[Text], query: Query, idf: Sequence[float], like: Likeness | None = None
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


def held(query: Query, lines: Sequence[Sequence[str]]) -> frozenset[Term]:
    """The terms of a query that stand in some lines, exactly."""
    finder = _Finder(query)
    there = {at for line in lines for at in finder.terms_in(line)}
    return frozenset(query.terms[at] for at in there)


def _terms(run: str, tokenize: Tokenize) -> Iterator[tuple[Term, bool]]:
    """A run's terms, each with whether it says anything."""
    if not fulltext.is_cjk(run):
        tokens = tuple(tokenize(run))
        if tokens:
            yield Term(tokens, run), not fulltext.is_stop_word(run)
        return
    for a, b in pairwise(run):
        says = not (fulltext.is_function_character(a) and fulltext.is_function_character(b))
        yield Term((a, b), f"{a} {b}"), says
    for a in dict.fromkeys(run):
        weight = 1.0 if len(run) == 1 else SINGLE_WEIGHT
        yield Term((a,), a, weight), not fulltext.is_function_character(a)


def _is_word(terms: Sequence[tuple[Term, bool]]) -> bool:
    return len(terms) == 1 and terms[0][1] and len(terms[0][0].tokens) == 1


def statistics(texts: Sequence[Text], query: Query) -> Statistics:
    """In how many of these texts each of a query's terms is."""
    length = sum(text.length for text in texts) / max(1, len(texts))
    if not texts or not query.terms:
        return Statistics(len(texts), length, {})
    counts = match(texts, query, [1.0] * len(query.terms)).counts
    seen = (counts > 0).sum(axis=0).tolist()
    terms = [term.tokens for term in query.terms]
    return Statistics(len(texts), length, dict(zip(terms, seen, strict=True)))


class _Finder:
    """A query's terms by their tokens, so that most lines cost one set operation."""

    def __init__(self, query: Query) -> None:
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


def _add_likeness(units: Matrix, texts: Sequence[Text], query: Query, like: Likeness) -> None:
    """Count words of like meaning where the words themselves are not."""
    asked = [at for at, t in enumerate(query.terms) if not fulltext.is_cjk(t.text)]
    vocabulary: dict[str, int] = {}
    flat: list[int] = []
    starts: list[int] = []
    rows: list[int] = []
    for text in texts:
        for row, line in enumerate(lines_of(like.split(text.joined)), text.first):
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
