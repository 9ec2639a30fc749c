"""What a query asks for, word by word, in every script. Pure.

A word of an alphabet is one term, by its stem. A run of Chinese, Japanese or Korean characters is
asked for by its overlapping pairs, which is what its words mostly are, and more faintly by single
characters, because a word of one character stands in other pairs in the note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bot.storage import fulltext

Tokenize = Callable[[str], list[str]]
"""A text's tokens as the full-text index has them; the character `NEW_LINE` is one of its own."""

NEW_LINE = "\ue000"  # private use, which the tokenizer takes for a word
MAX_TERMS = 48
SINGLE_WEIGHT = 0.4  # of a single CJK character inside a longer run, next to a pair's


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
