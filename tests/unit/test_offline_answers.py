"""Which line of what was found answers a question, and when the offline model is certain of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models import answers, kinds
from bot.tool_results import Quote


def note(*lines: tuple[str, float, float], match: float = 0.4) -> Quote:
    """A note with what a search found in each of its lines, by words and by meaning."""
    text = "\n".join(line for line, _, _ in lines)
    scores = tuple((words, meaning) for _, words, meaning in lines)
    return Quote(("memory/a.md:1-3", "memory"), text, "memory/a.md", 1, match=match, lines=scores)


def said(text: str, by: str = "said", date: str = "2026-07-01 14:03") -> Quote:
    return Quote((date, by, "s"), text, by=by, match=0.4)  # pyright: ignore[reportArgumentType]


def first(question: str, *quotes: Quote) -> str:
    return answers.ranked(question, quotes)[0].lines[0]


PHONE = ("- Doctor Ahlers can be phoned on Mondays, 8 to 12", 0.3, 0.42)
AVOID = ("- I must not take ibuprofen", 0.0, 0.3)


def test_who_asks_which_medicine_to_avoid_is_not_told_the_phone_hours_as_the_answer():
    ranked = answers.ranked("Which medicine must I avoid?", [note(PHONE, AVOID)])
    assert {each.lines[0] for each in ranked} == {PHONE[0], AVOID[0]}
    assert not answers.is_sure("", ranked)


@pytest.mark.parametrize(
    ("question", "line", "sure"),
    [
        ("When does the piano tuner come?", "- The piano tuner comes on 12 March.", True),
        ("When does the piano tuner come?", "- The piano tuner comes if we call.", False),
        ("Who is Mia's piano tuner?", "- My piano tuner is Mr. Haddad.", False),
        ("我女儿对什么过敏？", "- 我女儿对花生过敏。", True),
        ("我女儿对什么过敏？", "- 我妈妈对青霉素过敏。", False),
        ("妈妈的生日是哪天？", "- 爸爸的生日是农历八月十六。", False),
        ("What is the piano for?", "- The piano is black.", False),
    ],
)
def test_nearly_all_the_words_are_an_answer_if_it_is_of_the_kind_and_about_whom_was_asked(
    question: str, line: str, *, sure: bool
):
    assert answers.is_sure(question, answers.ranked(question, [note((line, 0.0, 0.0))])) is sure


def test_no_one_line_is_the_answer_to_a_question_for_a_list():
    ranked = answers.ranked("visit Norway", [note(("- We visited Norway", 0.9, 0.6))])
    assert answers.is_sure("Where did we go?", ranked)
    for question in ("Which countries did we visit?", "我们去过哪些国家？"):
        assert not answers.is_sure(question, ranked)


def test_two_lines_with_all_the_words_are_guesses():
    lines = [("- The boat key hangs by the door", 0.9, 0.4), ("- The boat key is new", 0.9, 0.4)]
    question = "What about the boat key?"
    assert not answers.is_sure(question, answers.ranked(question, [note(*lines)]))


@pytest.mark.parametrize(
    ("meaning", "second", "sure"), [(0.5, 0.1, True), (0.5, 0.4, False), (0.3, 0.0, False)]
)
def test_other_words_are_an_answer_when_they_are_near_and_nothing_else_is(
    meaning: float, second: float, *, sure: bool
):
    found = note(("- We live in Kiel", 0.0, meaning), ("- Tea at five", 0.0, second))
    question = "Which town is our home?"
    assert answers.is_sure(question, answers.ranked(question, [found])) is sure


def test_a_line_in_the_language_of_the_question_comes_first():
    both = note(
        ("- 我们的结婚纪念日是十月二日", 0.0, 0.32), ("- Our wedding is on 2 October", 0.0, 0.3)
    )
    assert first("When did we marry?", both) == "- Our wedding is on 2 October"
    assert first("我们哪天结的婚？", both) == "- 我们的结婚纪念日是十月二日"


def test_a_line_with_what_is_asked_for_comes_first():
    lines = note(("- The rent is too high", 0.2, 0.35), ("- We pay 900 a month", 0.0, 0.33))
    assert first("How much is the rent?", lines) == "- We pay 900 a month"


def test_a_note_and_the_talk_it_came_from_count_once_with_the_date_of_the_talk():
    talk = said("Remember that my daughter is allergic to peanuts", "user")
    kept = note(("- 14:03 my daughter is allergic to peanuts", 0.5, 0.3))
    for quotes in ([talk, kept], [kept, talk]):
        (only,) = answers.ranked("What is my daughter allergic to?", quotes)
        assert only.quote is kept
        assert only.said == "2026-07-01 14:03"


def test_what_was_struck_out_and_what_the_bot_said_come_after_the_rest():
    old = ("- ~~lives in Bonn~~ (until 2026-06-01)", 0.5, 0.5)
    found = [said("You live in Bonn", "assistant"), note(old, ("- lives in Kiel", 0.0, 0.4))]
    assert first("Where is home?", *found) == "- lives in Kiel"


def test_headings_and_marks_of_what_is_left_out_answer_nothing():
    found = note(("# Tea", 1.0, 0.9), ("…", 0.9, 0.9), ("- at five", 0.0, 0.2))
    assert [each.lines for each in answers.ranked("tea?", [found])] == [("- at five",)]


def test_questions_and_what_has_nothing_to_do_with_it_are_no_answers():
    quotes = [said("Where is the boat?"), note(("- eggs", 0.0, 0.05)), Quote(("x",), "milk")]
    assert answers.ranked("Where is the boat?", quotes) == []
    assert not answers.is_sure("", [])


words = st.text(alphabet="ab ?茶花\n…#-~", max_size=20)


@given(words, st.lists(st.tuples(words, st.floats(0, 1), st.floats(0, 1)), max_size=4))
def test_whatever_was_found_each_answer_is_a_line_of_it_and_stands_once(
    question: str, lines: list[tuple[str, float, float]]
):
    found = note(*((line.replace("\n", " "), words, meaning) for line, words, meaning in lines))
    ranked = answers.ranked(question, [found, said(question[::-1])])
    assert all(line in each.quote.text for each in ranked for line in each.lines)
    assert [each.score for each in ranked] == sorted((e.score for e in ranked), reverse=True)
    assert len({each.key for each in ranked}) == len(ranked)
    answers.is_sure("", ranked)


@pytest.mark.parametrize(
    ("question", "line", "has"),
    [
        ("When is it?", "in May", True),
        ("When is it?", "the blue boat", False),
        ("How many are there?", "twelve of them", True),
        ("有多少？", "三个", True),
        ("Whose is it?", "my aunt's", True),
        ("谁送的？", "很漂亮", False),
        ("Where is it?", "behind the door", True),
        ("在哪里？", "床底下", True),
    ],
)
def test_a_line_has_what_is_asked_for_or_not(question: str, line: str, *, has: bool):
    kind = kinds.asked_for(question)
    assert kind is not None
    assert bool(kind.search(line)) is has


def test_other_questions_ask_for_no_kind():
    assert kinds.asked_for("Why not?") is None
    assert kinds.names("Does the Meyers' dog know Elif?") == {"meyers", "elif"}


def test_what_is_of_the_time_asked_about_comes_first_and_nothing_else_is_certain():
    summer = note(("- We met Jonas at the harbour", 0.9, 0.6))
    spring = note(("- We met Ines at the mill", 0.5, 0.4))
    assert first("Who did we meet?", summer, spring) == "- We met Jonas at the harbour"
    spring = replace(spring, of_time=True)
    for quotes in ([summer, spring], [spring, summer]):
        assert first("Who did we meet in May?", *quotes) == "- We met Ines at the mill"
    other = replace(note(("- Ines called", 0.0, 0.12)), of_time=True)
    ranked = answers.ranked("Who did we meet in May?", [summer, other])
    assert not answers.is_sure("", ranked)
