"""Whose words are asked for: labels of lines, and what they do to the order of what is found."""

from __future__ import annotations

from datetime import date

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.memory import chunking, ranking, speakers, words
from bot.memory.ranking import Candidate, Weights
from bot.memory.search import Hit
from bot.storage.fulltext import tokenizer

TOKENIZE = tokenizer(apsw.Connection(":memory:"))
BOTH = Weights(text=0.7, vector=0.3)
TODAY = date(2026, 11, 21)


def order(query: str, *texts: str) -> list[int]:
    """The places of texts, the best answer first."""
    items = [
        Candidate(at, Hit("main", f"{at}.md", 1, 1, 0.0, "", "memory"), text)
        for at, text in enumerate(texts)
    ]
    found = ranking.score(items, words.parse(query, TOKENIZE), None, TOKENIZE)
    return [each.candidate.key for each in ranking.fuse(found, BOTH, today=TODAY)]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Ada: hello", "Ada"),
        ("- 14:03 Ada: hello", "Ada"),
        ("[14:03:20] Ada Lovelace: hello", "Ada Lovelace"),
        ("**Jean-Luc O'Neill**: oui", "Jean-Luc O'Neill"),
        ("小明：你好", "小明"),
        ("- 小明: 你好", "小明"),
        ("see https://example.org", ""),
        ("https://example.org: down", ""),
        ("14:03 hello", ""),
        ("hello", ""),
        ("", ""),
        (":", ""),
        ("this is a whole sentence of many words: and more", ""),
        ("x" * 60 + ": hello", ""),
    ],
)
def test_a_line_of_a_conversation_begins_with_who_says_it(line, name):
    assert speakers.label(line) == name


def test_notes_in_which_a_colon_stands_now_and_then_are_no_conversation():
    note = "- Meeting: Tuesday\n- buy milk\n- call mother\n- water the plants"
    talk = "# May\nAda: hello\nBob: hi\n\nAda: how are you?"
    assert speakers.labels(chunking.units(note, size=80)) == [""] * 4
    assert speakers.labels(chunking.units(talk, size=80)) == ["", "Ada", "Bob", "", "Ada"]


def test_what_is_asked_of_one_person_is_not_answered_by_anothers_words():
    ada = "Bob: did you go to Norway?\nAda: I went to see the glaciers there\nBob: great"
    bob = "Ada: where do you want to go?\nBob: to see the glaciers of Norway\nAda: oh"
    assert order("What did Ada go to see in Norway?", bob, ada, "Cid: no idea") == [1, 0, 2]
    assert order("What does Bob want to see in Norway?", ada, bob, "Cid: no idea") == [1, 0, 2]


def test_an_answer_may_stand_beside_the_line_with_the_words():
    asked = "Bob: what did you buy at the flea market?\nAda: I got a brass lamp\nBob: lovely"
    other = "Ada: there was a market\nAda: with fleas\nBob: what?\nBob: no lamp"
    assert order("What did Ada buy at the flea market?", other, asked)[0] == 1


def test_where_nobody_speaks_the_order_is_what_words_make_it():
    notes = ["- the dentist is on Tuesday", "- Tuesday is a holiday", "- 14:03 tea with Ada"]
    assert order("dentist Tuesday", *notes) == [0, 1, 2]
    assert order("Ada", *notes)[0] == 2


@given(st.lists(st.text("AdaBob :：-\n我们ü9[]*", max_size=80), min_size=1, max_size=4), st.text())
def test_whatever_is_written_each_score_is_a_share(texts, query):
    items = [
        Candidate(at, Hit("main", f"{at}.md", 1, 1, 0.0, "", "memory"), text)
        for at, text in enumerate(texts)
    ]
    found = ranking.score(items, words.parse(f"Ada {query}", TOKENIZE), None, TOKENIZE)
    for each in ranking.fuse(found, BOTH, today=TODAY):
        assert 0.0 <= each.speech <= ranking.NAMED + ranking.SAID + ranking.FIRST + 1e-6
        assert 0.0 <= each.score <= 1.0
        assert each.score > 0 or each.text == 0
