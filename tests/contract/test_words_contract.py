"""What every `Database` finds by its words, whichever engine is behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.sessions import store
from bot.storage import Database, Transaction
from bot.storage.postgres import PostgresDatabase
from bot.unit_of_work import UnitOfWork
from tests.support import beside

KEYS = ("agent:main:web:dm:ada", "agent:main:web:dm:eve")
PLACES = tuple(
    store.Place(key, person, "web", "default", person, "", "direct")
    for key, person in zip(KEYS, ("ada", "eve"), strict=True)
)


@pytest.fixture
async def database(each_database: Database) -> Database:
    return each_database


def say(tx: Transaction, texts: Sequence[str], place: store.Place = PLACES[0]) -> list[int]:
    """Put texts into a conversation; their numbers."""
    session, _ = UnitOfWork(tx, 1).current(place)
    numbers: list[int] = []
    for text in texts:
        seq = tx.execute(
            "INSERT INTO entries(id, session_id, kind, role, at, line) "
            "SELECT ? || '.' || (count(*) + 1), ?, 'message', 'user', 1, '' FROM entries "
            "RETURNING seq",
            (session.id, session.id),
        )[0][0]
        tx.execute("UPDATE sessions SET entry_count = entry_count + 1 WHERE id = ?", (session.id,))
        tx.index_text(seq, text)
        numbers.append(seq)
    return numbers


async def found(database: Database, query: str, keys: Sequence[str] = KEYS[:1]) -> list[int]:
    rows = await database.read(lambda tx: tx.search_text(query, 50, keys))
    assert all(0 < score < 1 for _, score in rows)
    assert [score for _, score in rows] == sorted((s for _, s in rows), reverse=True)
    return [entry for entry, _ in rows]


SAID = (
    ("我昨天去了北京大学", "北京"),
    ("我昨天去了北京大学", "京"),
    ("我昨天去了北京大学", "大学在哪里"),
    ("北，京", "北京"),
    ("私は東京に住んでいます", "東京"),
    ("カタカナのテスト", "テスト"),
    ("한국어를 배워요", "한국"),
    ("mixed 中文 and English", "english"),
    ("mixed 中文text together", "text"),
    ("the café on the corner", "CAFE"),
    ("the cafe\u0301 on the corner", "café"),
    ("Straße", "straße"),
    ("ΣΊΣΥΦΟΣ", "σίσυφος"),
    ("I was running late", "runs"),
    ("this and that", "and"),  # a word that dictionaries leave out
    ("see NEAR the river", "near"),
    ("it's Ada's book", "ada"),
    ("order #12345", "12345"),
    ("foo_bar baz", "foo_bar"),
    ("rock 'n' roll", '"rock" AND "roll"'),
    ("a\x00b", "b"),
    ("hello", "' | 'hello"),  # signs of the query language are none, and the word is there
    ("lone \ud800 half", "half"),
    ("it is C:\\path\\to", "path"),
    ("x" * 1_000_000, "X" * 1_000_000),
    ("é" * 3_000, "e" * 3_000),
)
NOT_SAID = (
    ("北方的京城", "北京"),
    ("bar foo", "foo_bar"),
    ("hello", "😀"),
    ("hello", ""),
    ("hello", '"*^()'),
    ("hello", "hell"),
    ("hello", "'"),
    ("word" * 300, "word"),
)


async def place_of(database: Database, number: int, text: str) -> tuple[str, int]:
    """Say a text in a conversation of its own: the key of that, and the number of the text."""
    place = replace(PLACES[0], key=f"agent:main:web:dm:{number}")
    _, seq = await database.write(lambda tx: say(tx, ["something else", text], place))
    return place.key, seq


async def test_what_was_said_is_found(database):
    for number, (text, query) in enumerate(SAID):
        key, seq = await place_of(database, number, text)
        assert await found(database, query, [key]) == [seq], query[:30]


async def test_what_was_not_said_is_not_found(database):
    for number, (text, query) in enumerate(NOT_SAID):
        key, _ = await place_of(database, number, text)
        hits = await database.read(lambda tx, q=query, k=key: tx.search_text(q, 50, [k]))
        assert hits == [], query[:30]


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"w{n}" for n in range(60_000)) + " needle",
        "的" * 40_000 + "北京",
        "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(60_000)) + " 北京 needle",
        "same " * 100_000 + "needle",
        " ".join("y" * 490 + str(n) for n in range(4_000)) + " needle 北京",
        "foo_bar " * 40_000 + "needle_bar",
    ],
    ids=["words", "one character", "characters", "one word", "long words", "phrases"],
)
async def test_the_end_of_a_text_of_any_length_is_found(database, text):
    (number,) = await database.write(lambda tx: say(tx, [text]))
    query = "needle_bar" if "needle_bar" in text else "needle" if "needle" in text else "北京"
    assert await found(database, query) == [number]
    await database.write(lambda tx: tx.forget_text(number))
    assert await found(database, query) == []


async def test_rare_words_count_more_than_common_ones_and_short_texts_more_than_long(database):
    texts = [
        *(f"we went to the market on day {n}" for n in range(30)),
        "the heron stood in the reeds",
        "the heron flew off " + "and nothing else happened that whole afternoon " * 5,
    ]
    numbers = await database.write(lambda tx: say(tx, texts))
    assert (await found(database, "went heron"))[:2] == numbers[-2:]
    assert (await found(database, "heron market"))[0] == numbers[-2]


async def test_more_of_the_words_asked_for_is_better_and_the_newer_of_two_alike_comes_first(
    database,
):
    texts = ["blue bicycle", "red boat", "red bicycle", "red boat", "green hat"]
    numbers = await database.write(lambda tx: say(tx, texts))
    assert (await found(database, "red bicycle"))[0] == numbers[2]
    assert await found(database, "boat") == [numbers[3], numbers[1]]


async def test_only_the_conversations_that_are_asked_for_are_searched(database):
    mine = await database.write(lambda tx: say(tx, ["my secret"]))
    theirs = await database.write(lambda tx: say(tx, ["their secret"], PLACES[1]))
    assert await found(database, "secret") == mine
    assert await found(database, "secret", KEYS[1:]) == theirs
    assert await database.read(lambda tx: tx.search_text("secret", 9, ())) == []
    rows = await database.read(lambda tx: tx.search_text("secret", 9, (), ["eve"]))
    assert [entry for entry, _ in rows] == theirs
    assert len(await database.read(lambda tx: tx.search_text("secret", 1, KEYS))) == 1


WORDS = st.text(max_size=40) | st.lists(
    st.sampled_from(
        [
            *("NEAR(", "AND", "*", ":", "&", "|", "!", "<->", "'", "\\"),
            *("的", "中文", "é", "ﬁ", "²", "a_b"),
        ]
    ),
    max_size=8,
).map(" ".join)


@pytest.fixture
async def pair(tmp_path, postgres_url):
    """The same database on both engines."""
    async with beside(tmp_path) as one:
        other = await PostgresDatabase.open(postgres_url)
        yield one, other
    await other.close()


@given(texts=st.lists(WORDS, min_size=1, max_size=4), query=WORDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_both_engines_find_the_same(pair, texts, query):
    def once(tx: Transaction) -> list[int]:
        tx.execute("DELETE FROM entries")
        tx.execute("DELETE FROM entries_text")
        first = say(tx, texts)[0]
        return sorted(entry - first for entry, _ in tx.search_text(query, 9, KEYS[:1]))

    one, other = pair
    assert await one.write(once) == await other.write(once)
