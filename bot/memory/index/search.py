"""One search over one snapshot of an index: candidates, their ranking, and what is shown of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

import apsw

from bot.config import MemoryConfig
from bot.memory import ranking, snippets, words
from bot.memory.index.lookup import Place, Reader
from bot.memory.index.values import Hit
from bot.memory.ranking import Candidate, Scored, Weights
from bot.memory.vectors import Vectors

MAX_CANDIDATES = 200  # of each leg


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
    """The hits of one index file; `late` says that the time was up before all was looked at."""

    hits: tuple[Hit, ...]
    late: bool = False


def search(reader: Reader, request: Request, config: MemoryConfig, *, dims: int) -> Found:
    """The best passages of these partitions.

    Raises:
        apsw.Error: the index file cannot be read.
    """
    ids: dict[int, None] = {}
    late = False
    wanted = min(MAX_CANDIDATES, request.limit * config.candidate_multiplier)
    reader.begin(request.deadline)
    try:
        query = words.parse(request.query, reader.tokenize)
        scope = reader.scope(request.partitions)
        known = ranking.Statistics(scope.chunks, 1.0, {})
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
        tokenize = reader.tokenize
    finally:
        reader.end()
    scored: list[Scored] = []
    for candidate, _ in rows:
        scored.append(score(candidate, query, known, tokenize, request.vector))
        if time.monotonic() > request.deadline:
            late = True
            break
    places = {candidate.key: place for candidate, place in rows}
    return Found(tuple(rank(scored, places, request, config)), late)


def score(
    candidate: Candidate,
    query: words.Query,
    known: ranking.Statistics,
    tokenize: words.Tokenize,
    vector: Vectors | None,
) -> Scored:
    """A candidate's scores from both legs, whichever found it."""
    scored = ranking.score_text(candidate, query, known, tokenize)
    if vector is not None:
        ranking.score_vectors(scored, vector[0])
    return scored


def rank(
    scored: Sequence[Scored], places: dict[int, Place], request: Request, config: MemoryConfig
) -> list[Hit]:
    """Scored candidates as hits, best first."""
    weights = Weights(
        text=config.text_weight,
        vector=config.vector_weight if request.vector is not None else 0.0,
        half_life_days=config.half_life_days,
    )
    ordered = ranking.fuse(scored, request.query, weights, today=request.today)
    good = [each for each in ordered if each.score > 0 and each.score >= config.min_score]
    chosen = ranking.diversify(good, request.limit, config.mmr_lambda)
    return [_hit(each, places[each.candidate.key]) for each in chosen]


def _hit(scored: Scored, place: Place) -> Hit:
    shown = snippets.best(scored.units, ranking.unit_scores(scored))
    day = scored.candidate.day
    at = place.at or (_milliseconds(day) if day else 0)
    return Hit(
        space=place.space,
        path=place.path,
        start_line=place.start_line,
        end_line=place.end_line,
        score=round(scored.score, 4),
        snippet=shown.text,
        source="transcript" if place.kind == "transcript" else "memory",
        at=at,
    )


def _milliseconds(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
