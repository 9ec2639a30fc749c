"""Questions that ask for many things, by how they are put."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.memory.many import asks_for_many


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


@given(st.text())
def test_any_text_can_be_a_question(question: str):
    assert asks_for_many(question) in {True, False}
