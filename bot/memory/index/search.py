"""One search over one snapshot of an index: candidates, their ranking, and what is shown."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime

import apsw

from bot.config import MemoryConfig
from bot.errors import EmbedderError
from bot.memory import ranking, words
from bot.memory.index.lookup import Place, Reader
from bot.memory.index.values import Hit
from bot.memory.matching import Likeness, Statistics, WordVectors
from bot.memory.ranking import Scored, Weights
from bot.memory.vectors import Vectors

MAX_CANDIDATES = 200  # of each leg
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
    """The hits of one index file; `late` says that the time was up before all was looked at."""

    hits: tuple[Hit, ...]
    late: bool = False


def search(
    reader: Reader,
    request: Request,
    config: MemoryConfig,
    *,
    dims: int,
    similar: WordVectors | None = None,
) -> Found:
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
    finally:
        reader.end()
    scored = ranking.score(
        [candidate for candidate, _ in rows], query, known, reader.tokenize, request.vector
    )
    if similar is not None and not late:
        best = _fused(scored, request, config)[: request.limit * REFINED]
        with suppress(EmbedderError):  # the words themselves have been found
            ranking.score_words(best, query, known, Likeness(similar, reader.split))
    places = {candidate.key: place for candidate, place in rows}
    return Found(tuple(rank(scored, places, request, config)), late)


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
        snippet=ranking.snippet(scored).text,
        source="transcript" if place.kind == "transcript" else "memory",
        at=at,
    )


def _milliseconds(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
