"""What memory asks itself: some of an entry's words in another order, in either language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.memory.markdown import entry_words
from bot.memory.selftest import Asked, Place, in_other_words


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_a_question_is_not_the_entry_and_all_turns_together_are(turn: int) -> None:
    entry = "14:03 Grandma moved to a house in Kiel with seven windows <!-- owner -->"
    question = in_other_words(entry, turn)
    words = question.split()
    assert len(words) >= 3
    assert set(words) < set(entry_words(entry).split())
    assert words != [word for word in entry_words(entry).split() if word in words]
    asked = {word for each in range(3) for word in in_other_words(entry, each).split()}
    assert {"grandma", "moved", "house", "kiel", "windows"} <= asked


def test_chinese_is_asked_for_in_pieces() -> None:
    question = in_other_words("奶奶搬到了基尔的新房子，很喜欢海边", 0)
    assert question
    assert question.replace(" ", "") != "奶奶搬到了基尔的新房子很喜欢海边"


@pytest.mark.parametrize("entry", ["", "ok", "yes and no", "~~the bike is blue~~"])
def test_what_says_too_little_is_not_asked_for(entry: str) -> None:
    assert in_other_words(entry, 0) == ""


@given(st.text(max_size=200), st.integers(0, 10))
def test_whatever_a_note_says_no_word_is_made_up(entry: str, turn: int) -> None:
    said = entry_words(entry).replace(" ", "")
    assert all(word in said for word in in_other_words(entry, turn).split())


def test_only_what_was_missed_again_counts_as_never_found() -> None:
    asked = Asked(1, 4, 2, (Place("MEMORY.md", 3), Place("MEMORY.md", 5, 2)))
    assert asked.never == (Place("MEMORY.md", 5, 2),)
    assert asked.share == 50
    assert Asked(1, 0, 0).share == 100
