from __future__ import annotations

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bot.storage import fulltext
from bot.storage.sqlite_schema import FULLTEXT

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


@pytest.fixture
def find(index):
    with index:
        index.execute("DELETE FROM entries_text")

    def search(text: str, query: str) -> bool:
        with index:
            index.execute("DELETE FROM entries_text")
            index.execute(
                "INSERT INTO entries_text(rowid, text) VALUES (1, ?)", (fulltext.spaced(text),)
            )
        return rows(index, query) == [1]

    return search


@given(query=QUERIES)
@example('"')
@example("NEAR(a b, 2) AND OR NOT")
@example("_")
def test_any_query_is_valid(index, query):
    rows(index, query)


@given(text=st.text(max_size=80))
@settings(max_examples=50)
def test_any_text_can_be_indexed(index, text):
    with index:
        index.execute("DELETE FROM entries_text")
        index.execute(
            "INSERT INTO entries_text(rowid, text) VALUES (7, ?)", (fulltext.spaced(text),)
        )
    rows(index, text)


@given(st.text())
def test_spacing_changes_nothing_but_spaces(text):
    assert fulltext.spaced(text).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("我昨天去了北京大学", "北京"),
        ("我昨天去了北京大学", "京"),
        ("我昨天去了北京大学", "大学在哪里"),
        ("私は東京に住んでいます", "東京"),
        ("カタカナのテスト", "テスト"),
        ("한국어를 배워요", "한국"),
        ("mixed 中文 and English", "english"),
        ("mixed 中文text together", "text"),
        ("the café on the corner", "cafe"),
        ("the cafe on the corner", "CAFÉ"),
        ("the cafe\u0301 on the corner", "café"),
        ("Straße", "straße"),
        ("I was running late", "run"),
        ("see NEAR the river", "near"),
        ("this and that", "and"),
        ("what is the answer", "the"),
        ("order #12345", "12345"),
        ("foo_bar baz", "foo_bar"),
        ("it's Ada's book", "ada"),
        ("rock 'n' roll", '"rock" AND "roll"'),
    ],
)
def test_what_was_said_is_found(find, text, query):
    assert find(text, query)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("我昨天去了北京大学", "上海"),
        ("北方的京城", "北京"),  # the characters are there, the word is not
        ("hello world", "other"),
        ("hello", "😀"),
        ("hello", ""),
        ("hello", "   "),
        ("hello", '"*^()'),
    ],
)
def test_what_was_not_said_is_not_found(find, text, query):
    assert not find(text, query)


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
