"""Finding in what people write what they wish to have kept: the pure part, without an engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.context import sentences, wishes
from bot.context.wishes import Wish


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Remember that I like tea. Do I?", [Wish("I like tea")]),
        ("Nova, remember: tea", [Wish("tea")]),
        ("remember that", [Wish("", "before")]),
        ("I like tea. Remember that.", [Wish("I like tea.")]),
        ("Do I like tea? Remember that.", [Wish("", "before")]),
        ("Remember the following:\n- tea\n- milk\nClear?", [Wish("tea\nmilk")]),
        ("remember “a long word of somebody else”", [Wish("", "quoted")]),
        ("remember “a long word that is never closed", [Wish("", "quoted")]),
        (f"remember {'word ' * 2_000}", [Wish("", "long")]),
        ("remember tea. remember rice. " * 9, [Wish("tea"), Wish("rice")] * 2 + [Wish("tea")]),
        ("My locker is 12 please remember that", [Wish("My locker is 12")]),
        ("I can't remember that.", []),
        ("She asked me to remember that", []),
        ("remember to buy milk", []),
    ],
)
def test_what_a_message_asks_to_keep(said, kept):
    assert list(wishes.read(said).wishes) == kept


@pytest.mark.parametrize(
    ("said", "is_unwanted"),
    [
        ("Don't write that down", True),
        ("My pin is 4. Please don't save it.", True),
        ("这个不要存", True),
        ("merk dir das bitte nicht", True),
        ("It stays between us", True),
        ("Don't forget that I like tea", False),
        ("I don't remember that", False),
        ("不要忘记我", False),
    ],
)
def test_what_asks_not_to_be_written_down(said, is_unwanted):
    assert sentences.is_unwanted(said) is is_unwanted


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Please remind me to call Bob at 6pm.", "to call Bob at 6pm"),
        ("Tomorrow at 9, please remind me to call", "Tomorrow at 9 to call"),
        ("每周一早上九点提醒我开会", "每周一早上九点 开会"),
        ("Hello! Can you set a reminder for 6pm: dinner?", "6pm: dinner"),
        ("I was away. Remind me at 3 p.m. to go.", "at 3 p.m. to go"),
        ("Remind me of the party at 6pm", "of the party at 6pm"),
        ("Remind me of you", None),
        ("This reminds me of you", None),
        ("Tomorrow he will remind me", None),
        ("今天你提醒我吃药了吗？", None),
        ("提醒我的人明天来", None),
    ],
)
def test_what_a_message_asks_to_be_reminded_of(said, asked):
    assert wishes.read(said).reminder == asked


@pytest.mark.parametrize(
    ("said", "stated"),
    [
        ("I like tea. Do you?", "I like tea."),
        ("Remember that I like tea.", ""),
        ("I like green tea. Remind me at 6pm to buy some.", "I like green tea."),
    ],
)
def test_what_a_message_states_is_no_question_and_no_wish(said, stated):
    assert wishes.stated(said) == stated


@given(st.text(alphabet="remember that记住。:?, \n“”I", max_size=80))
def test_what_is_kept_is_made_of_what_was_said(said):
    for wish in wishes.read(said).wishes:
        assert bool(wish.words) != bool(wish.lacks)
        assert all(line in said for line in wish.words.split("\n"))
    assert len(wishes.read(said).wishes) <= wishes.MOST
