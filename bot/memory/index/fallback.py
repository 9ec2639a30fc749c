"""Searching the notes themselves, by words, while there is no index to ask."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import apsw

from bot.config import MemoryConfig
from bot.memory import matching, ranking, words
from bot.memory.index import pieces, reading
from bot.memory.index.connection import tokenizer
from bot.memory.index.lookup import Place
from bot.memory.index.search import Found, Request, rank
from bot.memory.matching import Statistics
from bot.memory.ranking import Candidate

MAX_BYTES = 4_000_000  # of notes that one search reads
_SHARE = 0.6  # of the time left may go into reading


def search(workspace: Path, request: Request, config: MemoryConfig) -> Found:
    """The best passages of the notes in these partitions, as far as there is time to read them."""
    connection = apsw.Connection(":memory:")
    try:
        tokenize = tokenizer(connection)
        query = words.parse(request.query, tokenize)
        found, late = _read(workspace, request)
        candidates = [candidate for candidate, _ in found]
        known = _statistics(candidates, query, tokenize)
        scored = ranking.score(candidates, query, known, tokenize)
    finally:
        connection.close()
    places = {candidate.key: place for candidate, place in found}
    matching = [each for each in scored if each.text > 0]
    return Found(tuple(rank(matching, places, request, config)), late)


def _statistics(
    candidates: Sequence[Candidate], query: words.Query, tokenize: words.Tokenize
) -> Statistics:
    texts = [matching.prepare(each.text, each.heading, tokenize) for each in candidates]
    length = sum(text.length for text in texts) / max(1, len(texts))
    if not texts or not query.terms:
        return Statistics(len(texts), length, {})
    counts = matching.match(texts, query, [1.0] * len(query.terms)).counts
    seen = (counts > 0).sum(axis=0).tolist()
    terms = [term.tokens for term in query.terms]
    return Statistics(len(texts), length, dict(zip(terms, seen, strict=True)))


def _read(workspace: Path, request: Request) -> tuple[list[tuple[Candidate, Place]], bool]:
    now = time.monotonic()
    until = now + (request.deadline - now) * _SHARE
    found: list[tuple[Candidate, Place]] = []
    left = MAX_BYTES
    try:
        for seen in reading.files(workspace):
            note = reading.note(seen)
            if note is None or note.located.partition not in request.partitions:
                continue
            if time.monotonic() > until or left <= 0:
                return found, True
            left -= seen.size
            found += _chunks(workspace, note, len(found))
    except OSError:
        return found, True
    return found, False


def _chunks(workspace: Path, note: reading.Note, first: int) -> list[tuple[Candidate, Place]]:
    try:
        text = reading.read(workspace, note).text
    except (OSError, reading.Changed):
        return []
    located = note.located
    return [
        (
            Candidate(
                first + at,
                draft.chunk.text,
                draft.heading,
                date.fromordinal(draft.day) if draft.day else None,
            ),
            Place(
                *("memory", located.space, located.path),
                *(draft.chunk.start_line, draft.chunk.end_line, 0),
            ),
        )
        for at, draft in enumerate(pieces.of_note(located.path, text))
    ]
