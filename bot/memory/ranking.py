"""Putting what was found in order, and choosing what of it is shown. Pure.

A chunk's text score has four parts, each a share of what the query could reach: BM25 over the
chunk; what its best few lines have of the query together; what its best single line has, with its
neighbours' help; and how many of the query's neighbouring words are neighbours there too. A word
counts by how rare it is. The vector score is the best cosine of one of its windows. A query that
names a time prefers the notes of that time, or the nearest to it. What is shown of a chunk is the
part that answers the question, not its first lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime

from bot.config import MemoryConfig
from bot.memory import chunking, claims, listing, markdown, periods, vectors, words
from bot.memory.chunking import Unit
from bot.memory.claims import Aging
from bot.memory.periods import Period
from bot.memory.search import Hit, Line, Why
from bot.memory.vectors import NDArray, Vectors, np
from bot.memory.words import Matches, Matrix, Statistics, Term, Text
from bot.storage.fulltext import is_cjk

K1 = 1.2
B = 0.75
# Round numbers from a broad optimum: each conversation left out in turn asks for about the same.
BM25_SHARE = 0.4
WINDOW_SHARE = 0.25
LINE_SHARE = 0.25
PAIR_SHARE = 0.1
DATE_SHARE = 0.2
# Beside words and meaning together, which count one.
NAMED = 0.15  # a name that was asked for stands there
SAID = 0.22  # what the best line has of the rest, among those of who was asked for
FIRST = 0.04  # and that it speaks in the first person
NEIGHBOUR = 0.7  # a word on the next line, or in a heading above, next to one on the line itself
SURE = 0.3  # of the words that were asked for: who finds less goes by meaning the more
POOL = 3  # times as many as are wanted compete in being different
# What is told as a reason. Chosen with the built-in embedder by one half of the questions of
# bench/fits; docs/measured.md has the figures of the other half.
MEANT = 0.25  # a cosine from which something means the same
LEAST_SHARE = 0.2  # of what the query's words are worth: a passage with less has them by chance


@dataclass(frozen=True, slots=True)
class Request:
    """A search on the day `today`, which asks about some times, or none.

    It may ask for `many` things; with `room` it asks for lines, in so many characters. `vector` is
    the query's, as one row, or None; `deadline` is of time.monotonic. `without` are the
    ids of messages to leave out.
    """

    query: str
    partitions: tuple[str, ...]
    limit: int
    vector: Vectors | None
    today: date
    deadline: float
    aging: Aging | None = None
    times: tuple[Period, ...] = ()
    many: bool = False
    room: int = 0
    without: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk that may answer a query. `vectors` are its windows', if it has any.

    `hit` is what it would be found as, still without score and snippet.
    """

    key: int
    hit: Hit
    text: str
    heading: str = ""
    day: date | None = None
    vectors: Vectors | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The chunks to rank: all that a search needs of wherever they are kept.

    `query` is its words as they are tokenized there, and `known` their statistics, or None to count
    them in the candidates themselves. `late` says that the time was up before all was looked at.
    """

    query: words.Query
    items: Sequence[Candidate]
    known: Statistics | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of the parts of a score; `recency` is the share that only new notes get."""

    text: float
    vector: float
    half_life_days: float = 30.0
    recency: float = 0.05


@dataclass(slots=True)
class Scored:
    """A candidate's scores, from 0 to 1, and those of its units: what a snippet is chosen by."""

    candidate: Candidate
    prepared: Text
    held: NDArray[np.bool_]  # which terms each unit has, and in the last row its heading
    text: float = 0.0
    vector: float = 0.0
    score: float = 0.0
    strength: float = 1.0  # of the claim that answers best, as far as it was asked for
    others: NDArray[np.bool_] | None = None  # which of its units nobody says who was asked for
    speech: float = 0.0  # what it says of who was asked for, at most NAMED + SAID + FIRST
    unit_scores: list[float] = field(default_factory=list[float])
    cosines: list[float] = field(default_factory=list[float])

    @property
    def units(self) -> list[Unit]:
        """The lines of the candidate, long ones in parts."""
        return self.prepared.units


_Shown = tuple[Scored, str, tuple[Line, ...]]


def answer(
    found: Candidates,
    request: Request,
    config: MemoryConfig,
    tokenize: words.Tokenize,
) -> tuple[Hit, ...]:
    """The hits of a search, best first."""
    if not found.items:
        return ()  # nor is numpy loaded for nothing, which by words alone nobody else needs
    scored = score(found.items, found.query, found.known, tokenize, request.vector)
    return hits(scored, request, config, found)


def hits(
    scored: Sequence[Scored],
    request: Request,
    config: MemoryConfig,
    found: Candidates | None = None,
) -> tuple[Hit, ...]:
    """Scored candidates as hits, best first; with what they were among, each says why.

    A search for lines gives no reasons, as nobody reads them.
    """
    weights = Weights(
        text=config.text_weight,
        vector=config.vector_weight if request.vector is not None else 0.0,
        half_life_days=config.half_life_days,
    )
    ordered = fuse(scored, weights, today=request.today, times=request.times)
    good = [each for each in ordered if each.score > 0 and each.score >= config.min_score]
    good = _faded_later(good, request)
    show = _listed if request.many or request.room else _best
    return tuple(
        replace(
            each.candidate.hit,
            score=round(each.score, 4),
            snippet=shown,
            at=each.candidate.hit.at or _milliseconds(each.candidate.day),
            strength=each.strength,
            words=each.text,
            meaning=each.vector,
            why=Why()
            if found is None or request.room
            else why(each, found.query, found.known, request.times),
            lines=scores,
        )
        for each, shown, scores in show(good, request, config)
    )


def _best(good: Sequence[Scored], request: Request, config: MemoryConfig) -> Iterator[_Shown]:
    """The best passages, each with what answers best of it."""
    for each in diversify(good, request.limit, config.mmr_lambda):
        text = each.candidate.text
        yield each, *listing.snippet(text, each.units, each.unit_scores, each.cosines)


def _listed(good: Sequence[Scored], request: Request, config: MemoryConfig) -> Iterator[_Shown]:
    """The passages with the best lines of all, each with these."""
    pool = [_passage(each) for each in good[: request.limit * listing.POOL]]
    trade_off, room = config.mmr_lambda, request.room
    for at, chosen in listing.choose(pool, request.limit, trade_off, room).items():
        each, passage = good[at], pool[at]
        shown = listing.joined_runs(passage.units, chosen)
        meant = {unit.line: near for unit, near in zip(passage.units, passage.meant, strict=True)}
        yield each, shown, listing.scored_lines(shown, passage.units, each.unit_scores, meant)


def _passage(scored: Scored) -> listing.Passage:
    """A candidate as its lines are chosen from."""
    hit, units = scored.candidate.hit, scored.units
    meant = listing.snippet_meanings(scored.candidate.text, scored.cosines)
    others = [False] * len(units) if scored.others is None else scored.others.tolist()
    return listing.Passage(
        place=(hit.space, hit.path, hit.start_line),
        score=scored.score,
        units=[listing.cut_runs(unit) for unit in units],
        tokens=scored.prepared.lines,
        by_words=scored.unit_scores,
        meant=[meant.get(unit.line, 0.0) for unit in units],
        others=[
            is_others and bool(name)
            for is_others, name in zip(others, listing.labels(units), strict=True)
        ],
    )


def why(
    scored: Scored, query: words.Query, known: Statistics | None, times: Sequence[Period]
) -> Why:
    """Why a candidate was found, as far as that can be told; `times` are asked about."""
    text = scored.prepared
    is_heading = np.array([*text.marks, True])
    in_lines, in_headings = (
        frozenset(query.terms[at] for at in np.flatnonzero(rows.any(axis=0)))
        for rows in (scored.held[~is_heading], scored.held[is_heading])
    )
    in_headings -= in_lines
    worth = {term: term.weight if known is None else known.idf(term) for term in query.terms}
    there = sum(worth[term] for term in in_lines | in_headings)
    if there < LEAST_SHARE * sum(worth.values()):
        in_lines, in_headings = frozenset[Term](), frozenset[Term]()
    meant = scored.vector >= MEANT
    named = periods.nearest(times, _days(scored.candidate)) > 0
    return Why(_named(query, in_lines), _named(query, in_headings), by_meaning=meant, by_date=named)


def _named(query: words.Query, terms: frozenset[Term]) -> tuple[str, ...]:
    """Terms as they were typed, in that order; a character out of a longer run says nothing."""
    told = (t for t in query.terms if t in terms and t.weight >= 1.0)
    return tuple(dict.fromkeys("".join(t.text.split()) if is_cjk(t.text) else t.text for t in told))


def score(
    candidates: Sequence[Candidate],
    query: words.Query,
    known: Statistics | None,
    tokenize: words.Tokenize,
    vector: Vectors | None = None,
) -> list[Scored]:
    """The scores of chunks for a query: by words and, given a vector, by meaning."""
    texts = words.prepare([(c.text, c.heading) for c in candidates], tokenize)
    nothing = np.zeros((0, 0), np.bool_)
    scored = [Scored(c, text, nothing) for c, text in zip(candidates, texts, strict=True)]
    known = known or words.statistics(texts, query)
    score_words(scored, query, known, tokenize)
    if vector is not None:
        _score_meaning(scored, vector)
    return scored


def _score_meaning(scored: Sequence[Scored], vector: Vectors) -> None:
    """Set how near candidates are in meaning: the nearest window counts."""
    windows = [(s, s.candidate.vectors) for s in scored if s.candidate.vectors is not None]
    if not windows:
        return
    every = np.concatenate([rows for _, rows in windows])
    near = np.maximum(vectors.products(every, vector)[:, 0], 0.0).tolist()
    end = 0
    for each, rows in windows:
        start, end = end, end + len(rows)
        each.cosines = near[start:end]
        each.vector = max(each.cosines, default=0.0)


def score_words(
    scored: Sequence[Scored],
    query: words.Query,
    known: Statistics,
    tokenize: words.Tokenize,
) -> None:
    """Set the text scores of candidates."""
    idf = [known.idf(term) for term in query.terms]
    whole = sum(idf)
    if not whole or not scored:
        for each in scored:
            each.unit_scores = [0.0] * len(each.units)
            each.held = np.zeros((len(each.units) + 1, len(idf)), np.bool_)
        return
    texts = [each.prepared for each in scored]
    found = words.match(texts, query, idf)
    for each, heading in zip(scored, found.headings, strict=True):
        each.held = np.vstack([found.units[each.prepared.rows], heading]) > 0
    shares = np.array(idf, np.float32) / whole
    firsts = np.array([text.first for text in texts])
    lengths = np.array([text.length for text in texts], np.float32)[:, None]
    norm = K1 * (1 - B + B * lengths / (known.average_length or 1.0))
    bm25 = (found.counts / (found.counts + norm)) @ shares
    own = found.units @ shares
    lines = np.maximum.reduceat(_with_neighbours(texts, found) @ shares, firsts)
    windows = _best_windows(texts, found.units, shares)
    for number, (each, text) in enumerate(zip(scored, texts, strict=True)):
        each.unit_scores = own[text.rows].tolist()
        each.text = (
            BM25_SHARE * float(bm25[number])
            + WINDOW_SHARE * float(windows[number])
            + LINE_SHARE * float(lines[number])
            + PAIR_SHARE * float(found.pairs[number])
        )
    who = listing.Speakers(texts, query, tokenize)
    if who.are_known:
        _score_speech(scored, who, found, shares)


def _score_speech(
    scored: Sequence[Scored], who: listing.Speakers, found: Matches, shares: Matrix
) -> None:
    """Set what candidates say of who was asked for."""
    texts = [each.prepared for each in scored]
    said, best = who.said(texts, found, shares)
    named = who.named(found)
    for number, (each, text) in enumerate(zip(scored, texts, strict=True)):
        line = text.units[best[number] - text.first].text
        each.others = who.others[text.rows]
        each.speech = (
            NAMED * float(named[number])
            + SAID * float(said[number])
            + FIRST * listing.is_first_person(line)
        )


def fuse(
    scored: Sequence[Scored], weights: Weights, *, today: date, times: Sequence[Period] = ()
) -> list[Scored]:
    """The candidates with their final scores, best first; `times` are what is asked about.

    When even the best has hardly a word of what was asked, words are by chance, and count less.
    """
    near = _nearness(scored, times)
    best = max((each.text for each in scored), default=0.0)
    sure = min(1.0, best / SURE) if weights.text else 0.0
    # Only where some of it was written down as a conversation.
    talk = sure if any(each.speech for each in scored) else 0.0
    by_words = weights.text * sure if weights.vector else weights.text
    whole = (by_words + weights.vector) or 1.0
    for each, of_time in zip(scored, near, strict=True):
        found = (by_words * each.text + weights.vector * each.vector) / whole
        if found > 0:
            found += DATE_SHARE * of_time
        if found > 0:
            found = (found + talk * each.speech) / (1 + talk * (NAMED + SAID + FIRST))
        each.score = min(1.0, found * _freshness(each.candidate.day, weights, today))
    return sorted(scored, key=lambda each: (-each.score, each.candidate.key))


def _nearness(scored: Sequence[Scored], wanted: Sequence[Period]) -> list[float]:
    """The nearness of each candidate to the times asked about; closeness when none is of them."""
    if not wanted:
        return [0.0] * len(scored)
    days = [_days(each.candidate) for each in scored]
    near = [periods.nearest(wanted, each) for each in days]
    return near if any(near) else [periods.closest(wanted, each) for each in days]


def _days(candidate: Candidate) -> frozenset[date]:
    """The days a candidate is of: its own, and those that it names."""
    own = frozenset[date]() if candidate.day is None else frozenset({candidate.day})
    return own | periods.days_of(candidate.text)


def diversify(ranked: Sequence[Scored], limit: int, trade_off: float) -> list[Scored]:
    """Maximal marginal relevance: what is chosen should not say the same again.

    `trade_off` 1 keeps the order. Likeness is the share of common words (Jaccard), squared: two
    passages about one thing share a fifth of their words and are both wanted, copies share all.
    """
    pool = list(ranked[: limit * POOL])
    best = pool[0].score if pool else 0.0
    chosen: list[Scored] = []
    likeness = [0.0] * len(pool)
    said = {id(each): each.prepared.words for each in pool}
    while pool and len(chosen) < limit:
        gains = [
            trade_off * each.score / (best or 1.0) - (1 - trade_off) * like
            for each, like in zip(pool, likeness, strict=True)
        ]
        at = max(range(len(pool)), key=gains.__getitem__)
        chosen.append(pool.pop(at))
        likeness.pop(at)
        if trade_off < 1:
            likeness = [
                max(like, _jaccard(said[id(each)], said[id(chosen[-1])]) ** 2)
                for each, like in zip(pool, likeness, strict=True)
            ]
    return chosen


def _with_neighbours(texts: Sequence[Text], found: Matches) -> Matrix:
    """The terms of each unit, with less of those of the lines around it and above it."""
    helped = found.units.copy()
    before, after = NEIGHBOUR * found.units, NEIGHBOUR * found.units
    before[[text.rows.stop - 1 for text in texts]] = 0.0  # it is no neighbour of the next text's
    after[[text.first for text in texts]] = 0.0
    np.maximum(helped[1:], before[:-1], out=helped[1:])
    np.maximum(helped[:-1], after[1:], out=helped[:-1])
    inherit = (found.headings.max(axis=1, initial=0.0) > 0).tolist()
    for number, text in enumerate(texts):
        if not (inherit[number] or "#" in text.joined):
            continue
        for above, rows in _headings(text, found.headings[number], found.units[text.rows]):
            part = helped[text.first + rows.start : text.first + rows.stop]
            np.maximum(part, NEIGHBOUR * above, out=part)
    return helped


def _headings(text: Text, inherited: Matrix, own: Matrix) -> list[tuple[Matrix, slice]]:
    """The terms of the heading above, for each stretch of lines under one heading."""
    marks = [at for at, is_mark in enumerate(text.marks) if is_mark]
    ends = [*marks[1:], len(text.units)][: len(marks)]
    under = [(inherited, slice(0, len(text.units)))] if inherited.any() else []
    return under + [(own[at], slice(at, end)) for at, end in zip(marks, ends, strict=True)]


def _best_windows(texts: Sequence[Text], units: Matrix, shares: Matrix) -> Matrix:
    """The most that lines of each text which fit one snippet have of the query together."""
    edges: list[int] = []
    firsts: list[int] = []
    for text in texts:
        firsts.append(len(edges) // 2)
        for start, end in listing.runs(text.units):
            edges += (text.first + start, text.first + end)
    # Every second stretch between two edges is a run; the last may end where the rows do.
    closed = np.vstack([units, np.zeros((1, units.shape[1]), np.float32)])
    together = np.maximum.reduceat(closed, edges, axis=0)[::2]
    return np.maximum.reduceat(together @ shares, firsts)


def _faded_later(ranked: Sequence[Scored], request: Request) -> list[Scored]:
    """Passages in their order once those that answer by a faded claim have lost a bounded share."""
    aging, pool = request.aging, request.limit * POOL
    if aging is None:
        return list(ranked)
    for each in ranked[:pool]:
        each.strength = _strength(each, aging)
        each.score *= 1 - aging.config.search_share * (1 - each.strength)
    best = sorted(ranked[:pool], key=lambda each: (-each.score, each.candidate.key))
    return [*best, *ranked[pool:]]


def _strength(scored: Scored, aging: Aging) -> float:
    """That of the claim in whose entry a passage's best line stands; 1 for any other line."""
    candidate, scores = scored.candidate, scored.unit_scores
    if candidate.hit.source != "memory":
        return 1.0
    at = max(range(len(scores)), key=scores.__getitem__, default=-1)
    if at >= 0 and scores[at] > 0:
        line = scored.units[at].line
    elif scored.cosines:
        window = scored.cosines.index(max(scored.cosines))
        line = chunking.windows(candidate.text)[window].first
    else:
        return 1.0
    entry = markdown.entry_around(candidate.text.split("\n"), line)
    if entry is None:
        return 1.0
    return aging.strength(claims.of_entry(entry, candidate.day), candidate.hit.space)


def _milliseconds(day: date | None) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000) if day else 0


def _freshness(day: date | None, weights: Weights, today: date) -> float:
    """One for what has no date; a dated note loses a small share as it ages, never more."""
    if day is None or weights.half_life_days <= 0:
        return 1.0
    age = max(0, (today - day).days)
    return 1.0 - weights.recency * (1.0 - 0.5 ** (age / weights.half_life_days))


def _jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    common = len(a & b)
    return common / (len(a) + len(b) - common) if common else 0.0
