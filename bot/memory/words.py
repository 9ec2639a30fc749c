"""The words of a query, in every script, and where some chunks have them. Pure.

A word of an alphabet is one term, by its stem. A run of Chinese, Japanese or Korean characters is
asked for by its overlapping pairs, which is what its words mostly are, and more faintly by single
characters, because a word of one character stands in other pairs in the note.

Everything is counted for all the candidates of a search at once: one row for each unit (a line, or
a part of a long one), one column for each term.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, repeat

from bot.memory import chunking
from bot.memory.chunking import Unit
from bot.memory.vectors import Array, NDArray, np
from bot.storage import fulltext

Tokenize = Callable[[str], list[str]]
"""A text's tokens as the full-text index has them; the character `NEW_LINE` is one of its own."""

NEW_LINE = "\ue000"  # private use, which the tokenizer takes for a word
MAX_TERMS = 48
SINGLE_WEIGHT = 0.4  # of a single CJK character inside a longer run, next to a pair's
UNIT_TOKENS = 160  # a line longer than this is scored, and shown, in parts
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


def indexed(text: str) -> str:
    """Text as the full-text index and `Tokenize` take it, line ends marked."""
    return fulltext.spaced(text.replace(NEW_LINE, " ")).replace("\n", f" {NEW_LINE} ")


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of the index: in how many of its chunks each term occurs."""

    chunks: int
    average_length: float
    frequencies: Mapping[tuple[str, ...], int]

    def idf(self, term: Term) -> float:
        """The inverse document frequency of a term: higher for rarer ones."""
        seen = self.frequencies.get(term.tokens, 0)
        return term.weight * max(_NO_IDF, math.log((self.chunks + 1) / (seen + 0.5)))


@dataclass(slots=True)
class Text:
    """A chunk's text, ready to be matched; `first` is the row of its first unit.

    `joined` is what `Tokenize` took, its heading in the last line, and `tokens` its result.
    """

    units: list[Unit]
    joined: str
    tokens: list[str]
    first: int = 0

    @property
    def marks(self) -> list[bool]:
        """For each unit, True if it is a heading."""
        if "#" not in self.joined:
            return [False] * len(self.units)
        return [chunking.heading_of(unit.text) is not None for unit in self.units]

    @property
    def rows(self) -> slice:
        """The rows of its units."""
        return slice(self.first, self.first + len(self.units))

    @property
    def length(self) -> int:
        """The number of words, including the heading's."""
        return len(self.tokens) - len(self.units)

    @property
    def lines(self) -> list[list[str]]:
        """The tokens of each of its units."""
        found: list[list[str]] = []
        start = 0
        for _ in self.units:
            end = self.tokens.index(NEW_LINE, start)
            found.append(self.tokens[start:end])
            start = end + 1
        return found

    @property
    def words(self) -> frozenset[str]:
        """The words of its lines, without its heading's."""
        end = len(self.tokens) - 1 - self.tokens[::-1].index(NEW_LINE)
        return frozenset(self.tokens[:end]) - {NEW_LINE}


@dataclass(slots=True)
class Matches:
    """Matches: `units` is what each unit has of each term, `headings` each text's heading.

    `counts` is how often a text has each term, `pairs` the share of the query's neighbouring words
    that are neighbours there.
    """

    units: Matrix
    headings: Matrix
    counts: Matrix
    pairs: Matrix


def prepare(passages: Sequence[tuple[str, str]], tokenize: Tokenize) -> list[Text]:
    """The units and tokens of some texts, each with the heading it stands under."""
    texts: list[Text] = []
    for text, heading in passages:
        units = chunking.units(text, size=UNIT_TOKENS)
        joined = indexed("\n".join([*(unit.text for unit in units), heading.replace("\n", " ")]))
        texts.append(Text(units, joined, []))
    # All at once, as most of what a call costs is the call; its lines tell what is whose.
    tokens = tokenize("".join(f"{text.joined} {NEW_LINE} " for text in texts))
    start = at = 0
    for text in texts:
        for _ in text.units:
            at = tokens.index(NEW_LINE, at) + 1
        end = tokens.index(NEW_LINE, at)
        text.tokens = tokens[start:end]
        start = at = end + 1
    return texts


def match(texts: Sequence[Text], query: Query, idf: Sequence[float]) -> Matches:
    """Find a query's terms in texts; sets each text's `first`."""
    places = {term.tokens: at for at, term in enumerate(query.terms)}
    codes = _Codes(token for tokens in places for token in tokens)
    stream = codes.of(chain.from_iterable((*text.tokens, NEW_LINE) for text in texts))
    ends, hits = codes.ends(stream), np.flatnonzero(stream)  # of units, then of a text's heading
    lines_of = np.array([len(text.units) + 1 for text in texts], np.int64)
    firsts = np.cumsum(lines_of) - lines_of - np.arange(len(texts))
    for text, first in zip(texts, firsts.tolist(), strict=True):
        text.first = first
    of_text = np.repeat(np.arange(len(texts)), lines_of)
    is_heading = np.zeros(len(of_text), bool)
    is_heading[np.cumsum(lines_of) - 1] = True
    found = Matches(
        np.zeros((len(of_text) - len(texts), len(query.terms)), np.float32),
        np.zeros((len(texts), len(query.terms)), np.float32),
        np.zeros((len(texts), len(query.terms)), np.float32),
        np.zeros(len(texts), np.float32),
    )
    for term, tokens in enumerate(places):
        lines = np.searchsorted(ends, codes.places(stream, hits, tokens))
        above = is_heading[lines]
        np.add.at(found.counts[:, term], of_text[lines], 1.0)
        found.headings[of_text[lines[above]], term] = 1.0
        under = lines[~above]
        found.units[under - of_text[under], term] = 1.0
    known = [(a, b) for a, b in query.pairs if a.tokens in places and b.tokens in places]
    worth = [idf[places[a.tokens]] + idf[places[b.tokens]] for a, b in known]
    for (a, b), each in zip(known, worth, strict=True):
        lines = np.searchsorted(ends, codes.places(stream, hits, (*a.tokens, *b.tokens)))
        there = np.unique(of_text[lines[~is_heading[lines]]])
        found.pairs[there] += each / sum(worth)
    np.minimum(found.pairs, 1, out=found.pairs)  # what rounding added
    return found


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


class _Codes:
    """Some tokens as numbers from 1 on, in their order; 0 is any other one."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._numbers = {token: at for at, token in enumerate(dict.fromkeys(tokens), 1)}
        self._numbers[NEW_LINE] = -1

    def of(self, tokens: Iterable[str]) -> NDArray[np.int64]:
        """The number of each token."""
        return np.fromiter(map(self._numbers.get, tokens, repeat(0)), np.int64)

    def ends(self, stream: NDArray[np.int64]) -> NDArray[np.intp]:
        """The positions of line ends in a stream of such numbers."""
        return np.flatnonzero(stream < 0)

    def places(
        self, stream: NDArray[np.int64], hits: NDArray[np.intp], tokens: Sequence[str]
    ) -> NDArray[np.intp]:
        """The positions of consecutive tokens in a stream that ends with the end of a line.

        `hits` are the places of all that have a number.
        """
        at = hits[stream[hits] == self._numbers[tokens[0]]]
        for step, token in enumerate(tokens[1:], 1):
            # What would be behind the end is the last line's end, which is no token.
            following = stream[np.minimum(at + step, len(stream) - 1)]
            at = at[following == self._numbers[token]]
        return at
