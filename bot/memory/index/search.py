"""One search, of the index or of the notes themselves: candidates, ranking, and what is shown."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import apsw

from bot.config import MemoryConfig
from bot.errors import EmbedderError
from bot.memory import chunking, ranking, words
from bot.memory.index import reading
from bot.memory.index.file import tokenizer
from bot.memory.index.lookup import Place, Reader
from bot.memory.ranking import Candidate, Scored, Weights
from bot.memory.search import Hit
from bot.memory.vectors import Vectors
from bot.memory.words import Likeness, Statistics, WordVectors

MAX_CANDIDATES = 200  # of each leg
MAX_BYTES = 4_000_000  # of notes that one search reads, while there is no index to ask
READING_SHARE = 0.6  # of the time left may go into reading them
REFINED = 2  # times as many candidates as are wanted are compared word by word


@dataclass(frozen=True, slots=True)
class Request:
    """A search. `vector` is the query's, as one row, or None; `deadline` is of time.monotonic."""

    query: str
    partitions: tuple[str, ...]
    limit: int
    vector: Vectors | None
    today: date
    deadline: float


@dataclass(frozen=True, slots=True)
class Found:
    """The hits of one search; `late` says that the time was up before all was looked at."""

    hits: tuple[Hit, ...]
    late: bool = False


def in_index(
    reader: Reader,
    request: Request,
    config: MemoryConfig,
    *,
    dims: int,
    similar: WordVectors | None = None,
) -> Found:
    """The best passages of these partitions, in the reader's snapshot.

    Raises:
        apsw.Error: the index file cannot be read.
    """
    ids: dict[int, None] = {}
    late = False
    wanted = min(MAX_CANDIDATES, request.limit * config.candidate_multiplier)
    query = words.parse(request.query, reader.tokenize)
    scope = reader.scope(request.partitions)
    known = Statistics(scope.chunks, 1.0, {})
    try:
        known = reader.statistics(query, scope)
        if config.text_weight:
            ids.update(dict.fromkeys(reader.by_words(query, scope, known, wanted)))
        if request.vector is not None:
            ids.update(dict.fromkeys(reader.by_vector(request.vector, scope, wanted)))
    except apsw.InterruptError:
        late = True
    reader.hurry()
    rows = reader.candidates(list(ids), dims)
    scored = ranking.score(
        [candidate for candidate, _ in rows], query, known, reader.tokenize, request.vector
    )
    if similar is not None and not late:
        best = _fused(scored, request, config)[: request.limit * REFINED]
        with suppress(EmbedderError):  # the words themselves have been found
            ranking.score_words(best, query, known, Likeness(similar, reader.split))
    places = {candidate.key: place for candidate, place in rows}
    return Found(tuple(rank(scored, places, request, config)), late)


def in_notes(workspace: Path, request: Request, config: MemoryConfig) -> Found:
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
    good = [each for each in scored if each.text > 0]
    return Found(tuple(rank(good, places, request, config)), late)


def rank(
    scored: Sequence[Scored], places: dict[int, Place], request: Request, config: MemoryConfig
) -> list[Hit]:
    """Scored candidates as hits, best first."""
    ordered = _fused(scored, request, config)
    good = [each for each in ordered if each.score > 0 and each.score >= config.min_score]
    chosen = ranking.diversify(good, request.limit, config.mmr_lambda)
    return [_hit(each, places[each.candidate.key]) for each in chosen]


def _fused(scored: Sequence[Scored], request: Request, config: MemoryConfig) -> list[Scored]:
    weights = Weights(
        text=config.text_weight,
        vector=config.vector_weight if request.vector is not None else 0.0,
        half_life_days=config.half_life_days,
    )
    return ranking.fuse(scored, request.query, weights, today=request.today)


def _hit(scored: Scored, place: Place) -> Hit:
    day = scored.candidate.day
    at = place.at or (_milliseconds(day) if day else 0)
    return Hit(
        space=place.space,
        path=place.path,
        start_line=place.start_line,
        end_line=place.end_line,
        score=round(scored.score, 4),
        snippet=ranking.snippet(scored),
        source="transcript" if place.kind == "transcript" else "memory",
        at=at,
    )


def _milliseconds(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)


def _statistics(
    candidates: Sequence[Candidate], query: words.Query, tokenize: words.Tokenize
) -> Statistics:
    texts = [words.prepare(each.text, each.heading, tokenize) for each in candidates]
    length = sum(text.length for text in texts) / max(1, len(texts))
    if not texts or not query.terms:
        return Statistics(len(texts), length, {})
    counts = words.match(texts, query, [1.0] * len(query.terms)).counts
    seen = (counts > 0).sum(axis=0).tolist()
    terms = [term.tokens for term in query.terms]
    return Statistics(len(texts), length, dict(zip(terms, seen, strict=True)))


def _read(workspace: Path, request: Request) -> tuple[list[tuple[Candidate, Place]], bool]:
    now = time.monotonic()
    until = now + (request.deadline - now) * READING_SHARE
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
            Candidate(first + at, each.body, each.heading, each.day),
            Place("memory", located.space, located.path, each.start_line, each.end_line, 0),
        )
        for at, each in enumerate(chunking.of_note(located.path, text))
    ]
