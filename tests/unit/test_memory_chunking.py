"""Cutting notes: nothing is lost, nothing is doubled, every place is right."""

from __future__ import annotations

import time
from datetime import date
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.context import tokens
from bot.memory import chunking
from bot.memory.chunking import CHUNK_TOKENS, OVERLAP_TOKENS, split, units, windows

ALPHABET = st.one_of(
    st.sampled_from(
        "aZ 9#-*`~\t女儿花生过敏אבגשלוםمرحبا\u200b\u200d\u202e\u2028\u0085\ufeffé\u0301🎉𠮷"
    ),
    st.characters(exclude_categories=("Cs",), exclude_characters="\r\n"),
)
LINE = st.one_of(
    st.just(""),
    st.text(ALPHABET, max_size=60),
    st.builds(lambda text, times: text * times, st.text(ALPHABET, min_size=1, max_size=9),
              st.integers(1, 400)),
    st.builds(lambda level, text: f"{'#' * level} {text}", st.integers(1, 7), st.text(max_size=9)),
)  # fmt: skip
NOTE = st.lists(LINE, max_size=40).map("\n".join).map(lambda text: text.replace("\r", ""))
SIZES = st.tuples(st.integers(20, 400), st.integers(0, 80)).map(lambda s: (s[0], min(s[1], s[0])))


def lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def is_part(chunk: chunking.Chunk, lines: list[str]) -> bool:
    """Whether a chunk is a piece of one line, not whole lines."""
    return chunk.text != "\n".join(lines[chunk.start_line - 1 : chunk.end_line])


@given(NOTE, SIZES)
@example("a\n\n\n\n" * 300, (40, 20))
def test_every_line_that_is_not_blank_is_in_a_chunk(text, sizes):
    found = split(text, size=sizes[0], overlap=sizes[1])
    covered = {line for chunk in found for line in range(chunk.start_line, chunk.end_line + 1)}
    for number, line in enumerate(lines_of(text), 1):
        assert number in covered or not line.strip()


@given(NOTE, SIZES)
def test_a_chunk_is_the_lines_it_names_or_a_piece_of_one(text, sizes):
    lines = lines_of(text)
    for chunk in split(text, size=sizes[0], overlap=sizes[1]):
        assert 1 <= chunk.start_line <= chunk.end_line <= len(lines)
        assert chunk.text.strip()
        if is_part(chunk, lines):
            assert chunk.start_line == chunk.end_line
            assert chunk.text in lines[chunk.start_line - 1]


@given(NOTE, SIZES)
def test_no_chunk_is_longer_than_its_limit(text, sizes):
    for chunk in split(text, size=sizes[0], overlap=sizes[1]):
        assert tokens.estimate(chunk.text) <= sizes[0]


@given(NOTE, SIZES)
def test_the_parts_of_a_long_line_make_it_up_once(text, sizes):
    lines = lines_of(text)
    parts: dict[int, str] = {}
    for chunk in split(text, size=sizes[0], overlap=sizes[1]):
        if is_part(chunk, lines):
            parts[chunk.start_line] = parts.get(chunk.start_line, "") + chunk.text
    for number, joined in parts.items():
        line = lines[number - 1]
        # A part that is blank is left out; nothing else is, and nothing stands twice.
        assert "".join(joined.split()) == "".join(line.split())
        assert len(joined) <= len(line)


@given(NOTE, SIZES)
def test_neighbours_share_whole_lines_of_no_more_than_the_overlap(text, sizes):
    lines = lines_of(text)
    size, overlap = sizes
    found = split(text, size=size, overlap=overlap)
    for before, after in pairwise(found):
        assert after.start_line >= before.start_line
        assert after.end_line >= before.end_line
        if is_part(before, lines) or is_part(after, lines):
            continue
        assert (after.start_line, after.end_line) != (before.start_line, before.end_line)
        shared = lines[after.start_line - 1 : before.end_line]
        assert sum(tokens.estimate(line) for line in shared) <= overlap


def test_a_list_of_short_lines_overlaps():
    found = split("\n".join(f"- entry number {n} about a thing" for n in range(300)))
    assert len(found) > 5
    for before, after in pairwise(found):
        assert 0 < before.end_line - after.start_line + 1 <= OVERLAP_TOKENS
        assert tokens.estimate(before.text) > CHUNK_TOKENS * 0.9


@pytest.mark.parametrize("unit", ["word ", "字", "שלום ", "a\u200b", "x" * 39 + " "])
def test_one_line_of_a_megabyte_is_cut_and_not_doubled(unit):
    line = unit * (1_000_000 // len(unit))
    found = split(line)
    assert "".join(chunk.text for chunk in found).rstrip() == line.rstrip()
    assert {(chunk.start_line, chunk.end_line) for chunk in found} == {(1, 1)}
    assert all(tokens.estimate(chunk.text) <= CHUNK_TOKENS for chunk in found)
    assert len(found) <= 2 * tokens.estimate(line) / CHUNK_TOKENS + 1


def test_a_long_line_is_cut_between_words():
    found = split("wonderful " * 1_000)
    assert all(set(chunk.text.split()) == {"wonderful"} for chunk in found)


@pytest.mark.parametrize("text", ["", "\n", " \n\t\n\u3000\n", "\r\n\r\n"])
def test_a_note_of_nothing_has_no_chunks(text):
    assert split(text) == []
    assert windows(text) == []


def test_windows_line_ends_do_not_show():
    (chunk,) = split("# Tea\r\n\r\nAda likes oolong\r\n")
    assert chunk.text == "# Tea\n\nAda likes oolong"
    assert (chunk.start_line, chunk.end_line) == (1, 3)


# --- headings and days ---------------------------------------------------------------------------


def test_a_chunk_remembers_the_headings_above_it():
    filler = "some words that fill a line\n" * 100
    text = f"# House\n{filler}## Kitchen\n{filler}### Oven\n{filler}## Garden\n{filler}"
    lines = lines_of(text)
    for chunk in split(text):
        above = [
            name
            for name, level in (("House", 1), ("Kitchen", 2), ("Oven", 3), ("Garden", 2))
            if (mark := lines.index(f"{'#' * level} {name}") + 1) < chunk.start_line
            and not (
                name in {"Kitchen", "Oven"} and chunk.start_line > lines.index("## Garden") + 1
            )
            and mark
        ]
        assert chunk.headings == tuple(above)


def test_the_parts_of_a_long_line_know_their_heading():
    found = split("# Poem\n" + "la " * 3_000)
    assert {chunk.headings for chunk in found[1:]} == {("Poem",)}


def test_a_heading_in_a_code_block_is_none():
    text = "# Real\n```sh\n# comment\n```\n" + "words and more words\n" * 200
    assert split(text)[-1].headings == ("Real",)


@pytest.mark.parametrize("line", ["#tag", "####### seven", "no # heading", "#", "## ", "\\# x"])
def test_what_looks_like_a_heading_and_is_none(line):
    assert chunking.heading_of(line) is None


@pytest.mark.parametrize(
    ("line", "heading"),
    [("# Tea", (1, "Tea")), ("###### 茶 ###", (6, "茶")), ("##   C#  ", (2, "C"))],
)
def test_headings_are_read_as_markdown_means_them(line, heading):
    assert chunking.heading_of(line) == heading


@given(st.lists(st.tuples(st.integers(1, 6), st.text("abc", min_size=1, max_size=300))))
def test_headings_are_bounded_however_deep_a_note_is(headings):
    text = "\n".join(f"{'#' * level} {name}" for level, name in headings) + "\nwords\n"
    for chunk in split(text, size=20, overlap=0):
        assert len(chunk.headings) <= chunking.MAX_HEADINGS + 1
        assert all(len(name) <= chunking.MAX_HEADING_CHARACTERS for name in chunk.headings)


def test_a_chunk_has_the_day_of_the_heading_it_stands_under():
    filler = "words that fill the line again\n" * 120
    text = f"## 2026-03-01\n{filler}## 2026-04-02\n{filler}"
    found = split(text)
    assert found[0].day == date(2026, 3, 1)
    assert found[-1].day == date(2026, 4, 2)
    assert all(chunk.day for chunk in found)


# --- what gets vectors, and what is scored -------------------------------------------------------


@given(NOTE, st.integers(20, 100))
def test_every_word_of_a_chunk_is_in_a_window_once(text, size):
    found = windows(text, size=size)
    assert "".join("".join(w.text.split()) for w in found) == "".join(text.split())
    for window in found:
        assert 0 <= window.first <= window.last < len(text.split("\n"))
        assert tokens.estimate(window.text) <= size


@given(NOTE, st.integers(20, 200))
def test_units_are_the_lines_in_order_and_make_up_the_text(text, size):
    found = units(text, size=size)
    rebuilt = "".join(
        unit.text if unit.continues or not at else f"\n{unit.text}" for at, unit in enumerate(found)
    )
    assert rebuilt == text
    assert not found[0].continues
    assert all(tokens.estimate(unit.text) <= size for unit in found)


@given(NOTE)
def test_cutting_is_a_function_of_the_text_alone(text):
    assert split(text) == split(text)
    for passage in chunking.of_note("memory/a.md", text):
        assert passage.windows == chunking.windows_of(passage.heading, passage.body)
        assert passage.windows


def test_a_heading_of_spaces_and_marks_takes_no_time():
    line = f"# a{' #' * 2_000}{' ' * 4_000}b"
    begun = time.thread_time()
    assert [chunk.text for chunk in split(f"{line}\nwords")][-1] == "words"
    assert chunking.heading_of(f"## Tea  ## {' ' * 4_000}") == (2, "Tea")
    assert time.thread_time() - begun < 5


def test_each_entry_of_a_list_has_a_window_of_its_own_and_what_belongs_to_it_is_in_it():
    text = (
        "some words\nabove\n- one\n  and more of it\n  - inside\n* two\n\n12. three\n3) four\n-five"
    )
    found = [window.text for window in chunking.windows(text)]
    assert found == [
        "some words\nabove",
        "- one\n  and more of it\n  - inside",
        "* two\n",
        "12. three",
        "3) four\n-five",
    ]
