"""What a query asks for in every script, and where a text has it."""

from datetime import date

import apsw
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.config import MemoryConfig
from bot.memory import chunking, listing, ranking, words
from bot.memory.listing import MAX_SNIPPET, OMITTED, Passage
from bot.memory.ranking import Candidate, Candidates, Request
from bot.memory.search import Hit
from bot.memory.words import NEW_LINE, Statistics
from bot.storage import fulltext
from bot.storage.fulltext import tokenizer
from bot.storage.sqlite import FULLTEXT

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
def test_something_is_shown_each_line_once_and_no_more_than_so_many_snippets_hold(
    found, limit, trade_off
):
    chosen = listing.choose(found, limit, trade_off)
    assert listing.choose(found, limit, trade_off) == chosen
    there = [unit for each in found[: limit * listing.POOL] for unit in each.units]
    assert bool(chosen) == any(unit.text.strip() for unit in there)
    shown = [listing.joined_runs(found[at].units, units) for at, units in chosen.items()]
    assert sum(map(len, shown)) <= limit * MAX_SNIPPET
    assert all(0 < len(each) <= MAX_SNIPPET for each in shown)
    assert len(chosen) <= limit * listing.SHOWN
    assert list(chosen) == sorted(chosen)
    lines = [
        (found[at].place[2] + found[at].units[unit].line, found[at].units[unit].text)
        for at, units in chosen.items()
        for unit in units
    ]
    assert len(lines) == len(set(lines))
    assert all(text.strip() for _, text in lines)


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


def question(query: str, *bodies: str, limit: int = 2, many: bool = True, meant=None):
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
    many = question(query, *bodies)
    one = question(query, *bodies, many=False)
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
    (hit,) = question("which cities did we visit", near + SMALL_TALK + "\n" + near, limit=1)
    assert f"\n{OMITTED}\n" in hit.snippet


def test_one_giant_line_is_cut():
    (hit,) = question("which cities did we visit", "visit" + "x" * 5_000 + " cities")
    assert 0 < len(hit.snippet) <= MAX_SNIPPET


def test_entries_are_found_by_what_they_mean_alone():
    bodies = ["- Lisbon", "- a rash"]
    rows = [np.array([row], np.float32) for row in ([0.9, 0.1], [0.1, 0.9])]
    assert question("which zzz", *bodies, meant=rows, limit=1)[0].snippet == "- Lisbon"
    assert question("which zzz", *bodies) == ()


QUERIES = st.text(max_size=60) | st.lists(
    st.sampled_from(
        [
            *('"', "'", "NEAR", "NEAR(", "AND", "OR", "NOT", "*", "^", "-", "(", ")", ":", "+"),
            *("_", "text:", "{a b}", "a", "the", "中", "中文", "café", "😀", "\x00", "\u2028", "²"),
            "\u0301",
        ]
    ),
    max_size=12,
).map(" ".join)


@pytest.fixture(scope="module")
def index():
    connection = apsw.Connection(":memory:")
    connection.execute(FULLTEXT)
    yield connection
    connection.close()


def rows(index: apsw.Connection, query: str) -> list[int]:
    match = fulltext.match_query(query)
    sql = "SELECT rowid FROM entries_text WHERE entries_text MATCH ? ORDER BY bm25(entries_text)"
    return [row[0] for row in index.execute(sql, (match,))] if match else []


@given(query=QUERIES)
@example('"')
@example("NEAR(a b, 2) AND OR NOT")
@example("_")
def test_any_query_is_valid(index, query):
    rows(index, query)


@given(st.text())
def test_spacing_changes_nothing_but_spaces(text):
    assert fulltext.spaced(text).replace(" ", "") == text.replace(" ", "")


def test_a_question_of_common_words_leaves_them_out():
    assert fulltext.match_query("what did I say about the boat") == '"say" OR "boat"'
    assert fulltext.match_query("what is it") == '"what" OR "is" OR "it"'


@pytest.mark.parametrize("query", ["x" * 100_000, "word " * 20_000, "中" * 100_000, '"' * 100_000])
def test_a_query_of_a_hundred_thousand_characters_is_bounded_and_runs(index, query):
    assert fulltext.match_query(query).count(" OR ") < fulltext.MAX_QUERY_TERMS
    rows(index, query)


@given(st.floats(max_value=0, allow_nan=False, allow_infinity=False))
def test_a_score_is_between_none_and_one(bm25):
    assert 0 <= fulltext.score(bm25) <= 1
