"""Questions that ask for many things, by how they are put."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.memory.many import asks_for_a_list, asks_for_many


@pytest.mark.parametrize(
    "question",
    [
        "Which countries has Ada been to?",
        "what kinds of tea do we have",
        "Who of my friends plays an instrument?",
        "What are her hobbies?",
        "Which of the books were lent?",
        "Where has Ada camped?",
        "How many races has Farid run?",
        "What do Elena and Farid have in common?",
        "What have both painted?",
        "Tell me everything about the trip",
        "我去过哪些城市？",
        "他们有什么共同的爱好",
        "谁会演奏乐器？",
        "苏敏一共上过几个课",
    ],
)
def test_a_question_may_ask_for_many(question: str):
    assert asks_for_many(question)


@pytest.mark.parametrize(
    "question",
    [
        "",
        "When did Ada go to Lisbon?",
        "What is the name of the dog?",
        "Which bus goes to the harbour?",
        "Whose glass is it?",
        "What is Ada's address?",
        "小雨的老师叫什么？",
        "护照什么时候到期",
    ],
)
def test_or_for_one(question: str):
    assert not asks_for_many(question)


@pytest.mark.parametrize(
    ("question", "is_list"),
    [
        ("Which countries did I visit?", True),
        ("What kinds of tea do we have?", True),
        ("List my friends", True),
        ("我去过哪些城市？", True),
        ("How many races has Farid run?", False),
        ("我的工资是多少？", False),
        ("What have both painted?", False),
        ("Which bus goes to the harbour?", False),
    ],
)
def test_some_of_them_no_one_thing_can_answer(question: str, *, is_list: bool):
    assert asks_for_a_list(question) is is_list


@given(st.text())
def test_any_text_can_be_a_question_and_a_list_is_many_things(question: str):
    assert asks_for_many(question) in {True, False}
    assert asks_for_many(question) or not asks_for_a_list(question)
