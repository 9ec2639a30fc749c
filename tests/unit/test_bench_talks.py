"""The talks of the benchmark: every question names lines that are there, once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench import talks
from bot.memory.search import Hit


@pytest.mark.parametrize("language", talks.LANGUAGES)
def test_there_are_questions_of_each_kind_in_both_halves(language: str):
    _, questions = talks.read(language)
    kinds = Counter((each.kind, each.was_looked_at) for each in questions)
    names = ("attribute", "common", "date", "list")
    assert {*kinds} == {(kind, half) for kind in names for half in (True, False)}
    assert len(questions) >= 60


def test_every_line_that_answers_stands_in_one_note(tmp_path: Path):
    questions = talks.write_notes(tmp_path)
    notes = [path.read_text("utf-8") for path in sorted((tmp_path / "memory").iterdir())]
    for question in questions:
        for each in question.evidence:
            assert sum(note.count(each) for note in notes) == 1, (question.text, each)


def test_a_question_for_many_lines_is_answered_by_all_of_them():
    question = talks.Question("en", "list", "which?", ("one", "two"), was_looked_at=True)
    hits = [Hit("main", "a.md", 1, 1, 1.0, text, "memory") for text in ("nothing", "two", "one")]
    tally = talks.Tally()
    tally.add(question, {talks.SHORT: hits[:2], talks.LONG: hits})
    assert tally.places == [2]
    assert tally.every == {talks.SHORT: 0, talks.LONG: 1}
    assert tally.shares == {talks.SHORT: 0.5, talks.LONG: 1.0}
