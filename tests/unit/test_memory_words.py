"""What a query asks for in every script, and where a text has it."""

from __future__ import annotations

import apsw
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.memory import words
from bot.memory.words import NEW_LINE, Statistics
from bot.storage.fulltext import tokenizer

TOKENIZE = tokenizer(apsw.Connection(":memory:"))

TEXT = st.text(st.sampled_from("aB é\u0301'\"-*()^\n女儿对花生过敏のאבم\u200b\ue000\ue001𠮷🎉\x00"))


def asked(query: str) -> list[str]:
    return [term.text for term in words.parse(query, TOKENIZE).terms]


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("What does my daughter eat?", ["daughter", "eat"]),
        ("what is it", ["what", "is", "it"]),  # nothing but common words: all of them
        ("café", ["café"]),
        ("Öl и нефть", ["Öl", "и", "нефть"]),
        ("花", ["花"]),
        ("花生", ["花 生", "花", "生"]),
        ("C++ or C#", ["C"]),
        ("tea tea TEA", ["tea"]),
        ("", []),
        ("?!… — 。", []),
    ],
)
def test_a_query_asks_for_its_content_words(query, terms):
    assert asked(query) == terms


def test_a_chinese_question_asks_for_pairs_and_single_characters_but_no_function_words():
    terms = asked("我女儿对什么过敏？")
    assert {"女 儿", "过 敏", "女", "敏"} <= set(terms)
    assert not {"我", "什 么", "什", "么"} & set(terms)
    weights = {t.text: t.weight for t in words.parse("过敏", TOKENIZE).terms}
    assert weights["过 敏"] == 1.0 > weights["过"] > 0


def test_accents_and_endings_make_no_difference():
    one, other = (words.parse(q, TOKENIZE).terms[0].tokens for q in ("cafés", "CAFE"))
    assert one == other


def test_neighbouring_words_mean_more_together():
    query = words.parse("the peanut butter in Paris", TOKENIZE)
    assert [(a.text, b.text) for a, b in query.pairs] == [("peanut", "butter")]


@given(TEXT)
def test_any_query_is_valid_in_the_full_text_index_and_bounded(text):
    query = words.parse(text * 20, TOKENIZE)
    assert len(query.terms) <= words.MAX_TERMS
    assert len({term.tokens for term in query.terms}) == len(query.terms)
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(x)")
    for term in query.terms:
        connection.execute("SELECT * FROM t WHERE t MATCH ?", (term.match,)).fetchall()
    connection.close()


@given(st.lists(st.tuples(TEXT, TEXT), max_size=4))
def test_texts_that_are_cut_together_have_the_words_they_have_alone(passages):
    for text, (body, heading) in zip(words.prepare(passages, TOKENIZE), passages, strict=True):
        lines = [unit.text for unit in text.units]
        assert "\n".join(lines) == body
        assert text.tokens.count(NEW_LINE) == len(lines)
        alone = [TOKENIZE(words.indexed(line)) for line in lines]
        above = TOKENIZE(words.indexed(heading.replace("\n", " ")))
        assert text.length == sum(map(len, alone)) + len(above)
        assert text.words == frozenset[str]().union(*alone)
        assert text.tokens == [*(t for line in alone for t in (*line, NEW_LINE)), *above]


# --- where a text has it -------------------------------------------------------------------------


def matched(query: str, *texts: str) -> tuple[words.Query, words.Matches]:
    parsed = words.parse(query, TOKENIZE)
    prepared = words.prepare([(text, "") for text in texts], TOKENIZE)
    return parsed, words.match(prepared, parsed, [1.0] * len(parsed.terms))


def test_each_line_has_what_it_has_and_a_text_counts_it():
    query, found = matched("peanut tea", "tea and tea\npeanuts\nnothing", "coffee")
    assert [term.text for term in query.terms] == ["peanut", "tea"]
    assert found.units.tolist() == [[0, 1], [1, 0], [0, 0], [0, 0]]
    assert found.counts.tolist() == [[1, 2], [0, 0]]


def test_neighbours_are_found_on_one_line_only():
    _, found = matched("peanut butter", "peanut butter", "peanut\nbutter", "butter peanut")
    assert found.pairs.tolist() == [1.0, 0.0, 0.0]


def plainly(query: words.Query, text: str, heading: str) -> tuple[list[set[int]], list[int]]:
    """Which terms each line has, and how often the whole has each, looked for one by one."""
    lines = [TOKENIZE(words.indexed(line)) for line in (*text.split("\n"), heading)]
    counts = [
        [
            sum(tuple(line[at : at + len(t.tokens)]) == t.tokens for at in range(len(line)))
            for t in query.terms
        ]
        for line in lines
    ]
    there = [{at for at, count in enumerate(each) if count} for each in counts]
    return there, [sum(each) for each in zip(*counts, strict=True)]


SAID = st.lists(
    st.sampled_from(["tea", "peanut", "butter", "花生", "过敏", "花", "\n", "foo_bar"]), max_size=12
).map(" ".join)


@given(st.lists(st.tuples(SAID, SAID.map(lambda text: text.replace("\n", " "))), max_size=4), SAID)
def test_what_is_found_in_all_texts_at_once_is_what_is_found_line_by_line(passages, asked_for):
    query = words.parse(asked_for, TOKENIZE)
    texts = words.prepare(passages, TOKENIZE)
    found = words.match(texts, query, [1.0] * len(query.terms))
    for number, (text, passage) in enumerate(zip(texts, passages, strict=True)):
        lines, counts = plainly(query, *passage)
        rows = [set(np.flatnonzero(row).tolist()) for row in found.units[text.rows]]
        assert [*rows, set(np.flatnonzero(found.headings[number]).tolist())] == lines
        assert found.counts[number].tolist() == counts


def test_chinese_words_are_found_inside_sentences_and_not_across_lines():
    query, found = matched("花生", "女儿对花生过敏", "花\n生", "生花")
    pair = [term.text for term in query.terms].index("花 生")
    assert found.counts[:, pair].tolist() == [1, 0, 0]


@given(st.lists(TEXT, min_size=1, max_size=4), TEXT)
def test_counts_agree_with_units(texts, asked_for):
    _, found = matched(asked_for, *texts)
    assert len(found.units) == sum(text.count("\n") + 1 for text in texts)
    assert ((found.counts > 0).sum() == 0) == (not found.units.any())
    assert all(0 <= share <= 1 for share in found.pairs)


def test_a_rare_word_says_more_than_a_common_one_and_none_says_less_than_nothing():
    tea, the = words.parse("tea peanut", TOKENIZE).terms
    known = Statistics(100, 10.0, {tea.tokens: 2, the.tokens: 100})
    assert known.idf(tea) > known.idf(the) > 0
    unknown = Statistics(100, 10.0, {})
    assert unknown.idf(tea) > known.idf(tea)
