"""What of a chunk is shown: within the limit, its own words, the best of it."""

from __future__ import annotations

import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bot.memory import chunking, snippets, words
from bot.memory.chunking import Unit
from bot.memory.snippets import MAX_SNIPPET, OMITTED
from tests.unit.test_memory_chunking import NOTE

SCORES = st.lists(st.floats(0, 1), min_size=400, max_size=400)


@given(NOTE, SCORES)
def test_a_snippet_fits_and_is_the_chunks_own_lines_in_their_order(text, scores):
    for chunk in chunking.split(text):
        units = chunking.units(chunk.text, size=words.UNIT_TOKENS)
        shown = snippets.best_lines(units, (scores * (1 + len(units) // 400))[: len(units)])
        assert len(shown) <= MAX_SNIPPET
        at = 0
        for passage in shown.split(f"\n{OMITTED}\n"):
            at = chunk.text.index(passage, at) + len(passage)


def lines(*texts: str) -> list[Unit]:
    return [Unit(at, text, continues=False) for at, text in enumerate(texts)]


def test_a_chunk_that_fits_is_shown_whole():
    shown = snippets.best_lines(lines("one", "two", "three"), [0.0, 1.0, 0.0])
    assert shown == "one\ntwo\nthree"


def test_the_answer_is_shown_wherever_it_stands():
    units = lines(*(f"line {n} " + "x" * 90 for n in range(30)))
    for answer in (0, 13, 29):
        scores = [1.0 if at == answer else 0.0 for at in range(30)]
        shown = snippets.best_lines(units, scores)
        assert units[answer].text in shown
        assert OMITTED not in shown  # neighbours fill the rest: one passage


def test_what_follows_a_match_is_shown_before_what_comes_before_it():
    units = lines(*(f"{n} " + "x" * 300 for n in range(3)))
    assert snippets.best_lines(units, [0.0, 1.0, 0.0]).startswith("1 ")


def test_two_answers_far_apart_are_both_shown_with_a_mark_between():
    units = lines(*(f"line {n} " + "x" * 300 for n in range(9)))
    scores = [1.0 if at in {1, 7} else 0.0 for at in range(9)]
    shown = snippets.best_lines(units, scores)
    assert shown == f"{units[1].text}\n{OMITTED}\n{units[7].text}"


def test_the_parts_of_one_line_are_joined_without_a_line_end():
    text = "word " * 400
    units = chunking.units(text, size=50)
    assert len(units) > 8
    passages = snippets.best_lines(units, [0.0] * len(units)).split(f"\n{OMITTED}\n")
    assert all(passage in text for passage in passages)
    assert len(passages[0]) > 500


def test_a_unit_longer_than_the_limit_is_cut():
    assert len(snippets.best_lines(lines("x" * 2_000), [1.0])) == MAX_SNIPPET
    assert snippets.best_lines([], []) == ""


@given(st.lists(st.integers(0, 400), min_size=1, max_size=40), st.integers(1, 900))
def test_runs_are_the_longest_that_fit_and_hold_every_unit(sizes, limit):
    units = lines(*("x" * size for size in sizes))
    found = snippets.runs(units, limit)
    assert {at for start, end in found for at in range(start, end)} == set(range(len(units)))
    for start, end in found:
        length = len("\n".join(unit.text for unit in units[start:end]))
        assert length <= limit or end == start + 1
        assert end == len(units) or length + 1 + len(units[end].text) > limit
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(found))


def test_a_chunk_of_very_short_lines_takes_no_time():
    units = lines(*("x" for _ in range(800)))
    begun = time.thread_time()
    assert snippets.best_lines(units, [0.1] * 800) == "\n".join("x" for _ in range(350))
    assert time.thread_time() - begun < 2


def test_blank_lines_between_what_is_shown_stay_and_leave_no_mark():
    lines = ("# Trips", "", "- Norway", "- Peru", "- Chile")
    units = [Unit(number, line, continues=False) for number, line in enumerate(lines)]
    assert snippets.joined(units, {0, 2}) == "# Trips\n\n- Norway"
    assert snippets.joined(units, {0, 2, 4}) == f"# Trips\n\n- Norway\n{OMITTED}\n- Chile"
