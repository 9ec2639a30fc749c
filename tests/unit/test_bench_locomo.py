"""LoCoMo's figures: what they count of what was found."""

from __future__ import annotations

from bench import locomo
from bench.locomo import Question, Tally, Turn
from bot.memory.search import Hit


def test_how_much_of_an_answer_is_shown_is_told_beside_whether_its_lines_were_found():
    evidence = (Turn("a.md", 3, "I saw Rome"), Turn("a.md", 9, "I saw Oslo"))
    found = Hit("main", "a.md", 1, 9, 1.0, "Ada: I saw Rome", "memory")
    tally = Tally()
    tally.add(Question("1", "which cities?", evidence), [found], [found], 0.01)
    assert (tally.every, tally.shown, tally.part, tally.part_of_more) == (1, 0, 0.5, 0.5)
    assert len(tally.row()) == len(locomo.COLUMNS) + 1
