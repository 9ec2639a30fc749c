"""What a question for many things is answered with: different lines, within the same room."""

from __future__ import annotations

from datetime import date

import apsw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.config import MemoryConfig
from bot.memory import chunking, listing, ranking, words
from bot.memory.listing import Passage
from bot.memory.ranking import Candidate, Candidates, Request
from bot.memory.search import Hit
from bot.memory.snippets import MAX_SNIPPET, OMITTED
from bot.storage.fulltext import tokenizer

TOKENIZE = tokenizer(apsw.Connection(":memory:"))
TODAY = date(2026, 11, 21)
TRADE_OFF = MemoryConfig().mmr_lambda
SHARES = st.floats(0, 1)
LINE = st.one_of(
    st.sampled_from(
        ["", "- went to Rome in May", "Ada: I saw Oslo", "# Trips", "去过罗马和奥斯陆"]
    ),
    st.text("ab 罗马?.", max_size=90),
    st.integers(600, 1_500).map(lambda length: "x" * length),
)


@st.composite
def passages(draw: st.DrawFn) -> list[Passage]:
    texts = draw(st.lists(st.lists(LINE, min_size=1, max_size=6), max_size=12))
    scores = sorted((draw(SHARES) for _ in texts), reverse=True)
    return [
        made(lines, score, place=draw(st.integers(1, 3)), worth=[draw(SHARES) for _ in lines])
        for lines, score in zip(texts, scores, strict=True)
    ]


def made(
    lines: list[str], score: float = 1.0, *, place: int = 0, worth: list[float] | None = None
) -> Passage:
    units = [
        chunking.Unit(at, text[:MAX_SNIPPET], continues=False) for at, text in enumerate(lines)
    ]
    return Passage(
        place=("main", "memory/trips.md", place),
        score=score,
        units=units,
        tokens=[TOKENIZE(words.indexed(unit.text)) for unit in units],
        by_words=worth or [0.0] * len(units),
        meant=[0.0] * len(units),
        others=[False] * len(units),
    )


def texts(found: list[Passage], chosen: dict[int, frozenset[int]]) -> list[str]:
    return [found[at].units[unit].text for at, units in chosen.items() for unit in sorted(units)]


# --- choosing ------------------------------------------------------------------------------------


@given(passages(), st.integers(1, 4), SHARES)
def test_no_more_is_shown_than_so_many_snippets_hold(found, limit, trade_off):
    chosen = listing.choose(found, limit, trade_off)
    shown = [listing.snippets.joined(found[at].units, units) for at, units in chosen.items()]
    assert sum(map(len, shown)) <= limit * MAX_SNIPPET
    assert all(0 < len(each) <= MAX_SNIPPET for each in shown)
    assert len(chosen) <= limit * listing.SHOWN
    assert list(chosen) == sorted(chosen)


@given(passages(), st.integers(1, 4), SHARES)
def test_the_same_is_chosen_again_and_no_line_of_a_note_twice(found, limit, trade_off):
    chosen = listing.choose(found, limit, trade_off)
    assert listing.choose(found, limit, trade_off) == chosen
    lines = [
        (found[at].place[2] + found[at].units[unit].line, found[at].units[unit].text)
        for at, units in chosen.items()
        for unit in units
    ]
    assert len(lines) == len(set(lines))
    assert all(text.strip() for _, text in lines)


@given(passages(), st.integers(1, 4), SHARES)
def test_something_is_shown_where_there_is_anything(found, limit, trade_off):
    there = [unit for each in found[: limit * listing.POOL] for unit in each.units]
    chosen = listing.choose(found, limit, trade_off)
    assert bool(chosen) == any(unit.text.strip() for unit in there)


def test_nothing_is_chosen_from_nothing():
    assert listing.choose([], 6, TRADE_OFF) == {}
    assert listing.choose([made([""])], 6, TRADE_OFF) == {}


def test_another_entry_comes_before_the_same_one_again():
    rome = "went to Rome and saw the forum " + "x" * 300
    copy, oslo = made([f"{rome}!"], place=9), made(["Oslo " + "y" * 300], 0.9, place=20)
    found = [made([rome]), copy, oslo]
    assert list(listing.choose(found, 1, TRADE_OFF)) == [0, 2]
    assert list(listing.choose(found, 1, 1.0)) == [0, 1]


def test_an_entry_that_stands_in_two_passages_is_shown_once():
    both = made(["one", "two", "three"]), made(["three", "four"], 0.9, place=2)
    chosen = listing.choose(both, 6, TRADE_OFF)
    assert sorted(texts(list(both), dict(chosen))) == ["four", "one", "three", "two"]


def test_what_somebody_else_says_comes_after_what_is_said_by_who_was_asked_for():
    own = made(["Ada: I went to Rome " + "x" * 400])
    others = made(["Bob: I went to Oslo " + "y" * 400], place=5)
    others = Passage(*(getattr(others, name) for name in Passage.__slots__[:-1]), others=[True])
    assert list(listing.choose([others, own], 1, TRADE_OFF)) == [1]


@given(st.integers(0, 29))
def test_the_entries_that_have_the_words_are_shown_of_long_passages(at):
    wanted = f"- the best one {at} " + "z" * 80
    lines = [f"- line {n} " + "x" * 90 for n in range(30)]
    lines[at] = wanted
    worth = [1.0 if n == at else 0.0 for n in range(30)]
    found = [made(list(lines), place=100 * n, worth=worth) for n in range(8)]
    assert wanted in texts(found, dict(listing.choose(found, 1, 1.0)))


@given(st.lists(st.integers(0, MAX_SNIPPET), max_size=20), st.integers(1, 5))
def test_as_many_of_a_longer_list_are_shown_as_there_is_room_for(sizes, limit):
    hits = [Hit("main", "a.md", at, at, 0.5, "x" * n, "memory") for at, n in enumerate(sizes)]
    shown = listing.fitting(hits, limit)
    assert list(shown) == hits[: len(shown)]
    assert min(limit, len(hits)) <= len(shown) <= limit * listing.SHOWN
    assert sum(len(hit.snippet) for hit in shown) <= limit * MAX_SNIPPET


# --- in a search ---------------------------------------------------------------------------------


def asked(query: str, *bodies: str, limit: int = 2, many: bool = True, meant=None):
    items = [
        Candidate(
            at,
            Hit("main", f"memory/{at}.md", 1, 1, 0.0, "", "memory"),
            body,
            vectors=None if meant is None else meant[at],
        )
        for at, body in enumerate(bodies)
    ]
    vector = None if meant is None else np.array([[1.0, 0.0]], np.float32)
    request = Request(query, ("main",), limit, vector, TODAY, 0.0, many=many)
    found = Candidates(words.parse(query, TOKENIZE), items)
    return ranking.answer(found, request, MemoryConfig(), TOKENIZE)


SMALL_TALK = "\n".join(f"- it was {word} today" for word in ("hot", "cold", "wet", "dull") * 12)


@pytest.mark.parametrize(
    ("query", "entries"),
    [
        ("which cities did we visit", [f"- we did visit {n}" for n in ("Rome", "Oslo", "Bern")]),
        ("我去过哪些城市", [f"- 去过的城市有{n}" for n in ("罗马", "奥斯陆", "伯尔尼")]),
    ],
)
def test_a_question_for_many_is_shown_entries_of_more_notes_than_one_for_one(query, entries):
    bodies = [f"{entry} {at}\n{SMALL_TALK}" for at, entry in enumerate(entries)]
    many = asked(query, *bodies)
    one = asked(query, *bodies, many=False)
    assert sum(entry in hit.snippet for hit in many for entry in entries) == 3
    assert sum(entry in hit.snippet for hit in one for entry in entries) == 2
    for hits in (many, one):
        assert sum(len(hit.snippet) for hit in hits) <= 2 * MAX_SNIPPET
        assert [hit.score for hit in hits] == sorted((h.score for h in hits), reverse=True)
        assert len({hit.path for hit in hits}) == len(hits)
    for hit in many:
        assert [line.text for line in hit.lines] == hit.snippet.split("\n")


def test_lines_left_out_between_entries_leave_a_mark():
    near = "- Rome was great, which we did visit\n"
    (hit,) = asked("which cities did we visit", near + SMALL_TALK + "\n" + near, limit=1)
    assert f"\n{OMITTED}\n" in hit.snippet


def test_one_giant_line_is_cut():
    (hit,) = asked("which cities did we visit", "visit" + "x" * 5_000 + " cities")
    assert 0 < len(hit.snippet) <= MAX_SNIPPET


def test_entries_are_found_by_what_they_mean_alone():
    bodies = ["- Lisbon", "- a rash"]
    rows = [np.array([row], np.float32) for row in ([0.9, 0.1], [0.1, 0.9])]
    assert asked("which zzz", *bodies, meant=rows, limit=1)[0].snippet == "- Lisbon"
    assert asked("which zzz", *bodies) == ()
