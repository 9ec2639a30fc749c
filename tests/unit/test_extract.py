"""Picking what matters without a model: facts to keep, and a summary of whole sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.context import extract, facts, statements, tokens
from bot.context.quoting import Said

FACTS = [
    "My daughter is allergic to peanuts.",
    "I moved to Bergen in March.",
    "I can't stand coriander",
    "We decided to sell the boat.",
    "Call me Sam.",
    "I'm vegetarian.",
    "Dr. Okafor moved the appointment to 14 May at 9:30.",
    "Flight LH1234 leaves at 6:40.",
    "The landlord is called Henrik Vass.",
    "Nora's birthday is on 3 June",
    "我女儿对花生过敏。",
    "我在杭州出生，今年35岁。",
    "我不喜欢香菜",
    "我们决定下个月搬到南京。",
    "爸爸的手术定在5月14日。",
]
NO_FACTS = [
    "What is my name?",
    "Can you tell me a joke",
    "Tell me about Rome.",
    "/new claude",
    "I think so",
    "Thanks!",
    "ok cool",
    "hello there",
    "If I was rich I'd buy my own island in 2030.",
    "> I live in Rome",
    "Bob wrote: I live in Rome",
    "“I have lived in Rome for eleven years now,” it says",
    "The password of my bank account is hunter2",
    "My card is 4111 1111 1111 1111",
    "```\nmy_name = 'x'\n```",
    "你知道我叫什么吗？",
    "你好！",
    "帮我写一封信",
    "我觉得不错",
    "我的密码是 4711",
]


@pytest.mark.parametrize("said", FACTS)
def test_what_a_person_states_is_a_fact(said):
    assert facts.stated([said]) == [said]


@pytest.mark.parametrize("said", NO_FACTS)
def test_questions_wishes_quotes_talk_and_secrets_are_none(said):
    assert facts.stated([said]) == []


def test_what_leads_to_a_fact_is_left_out():
    assert facts.stated(["Please remember that the spare key is under the pot."]) == [
        "the spare key is under the pot."
    ]
    assert facts.stated(["Thanks! By the way, my sister lives in Graz."]) == [
        "my sister lives in Graz."
    ]
    assert facts.stated(["对了，我住在苏州。"]) == ["我住在苏州。"]


def test_a_fact_is_kept_once_and_a_pasted_page_is_not_searched():
    said = ["I live in Oslo.", "so I live in Oslo!", "I live in Oslo", "My cat is Mo. " * 400]
    assert len(facts.stated(said)) == 1


def test_what_is_known_is_not_news():
    said = ["My daughter is allergic to peanuts.", "I live in Oslo."]
    note = "memory/x.md\n# 2026\n- 12:03 my daughter is allergic to peanuts"
    assert facts.unknown(said, [note]) == ["I live in Oslo."]


def test_days_are_the_same_however_they_are_written():
    for text in ("14 May", "May 14", "the 14th of May", "2026-05-14", "5月14日", "5 月 14 号"):
        assert list(extract.dates(f"It is {text} then")) == [(5, 14)]
    assert extract.dates("Maybe 14 people") == {}


def test_names_are_what_is_written_like_one():
    assert extract.names("Yesterday I met Anna Berg and José in Rio de Janeiro") == [
        "Anna Berg",
        "José",
        "Rio de Janeiro",
    ]
    assert extract.names("Priya likes it") == ["Priya"]
    assert extract.names("Tomorrow I go") == []
    assert extract.names("我女儿叫小雨，读《西游记》") == ["小雨", "西游记"]


def test_a_summary_prefers_facts_of_the_person_and_the_latest_words():
    said = [
        Said("person", "Hi there! How are you?"),
        Said("assistant", "I am fine, thank you for asking."),
        Said("person", "My son Jonas starts school on 3 August. The weather is nice."),
        Said("call", 'web {"q": "schools"}'),
        Said("result", "web: The office opens at 8:15."),
        Said("assistant", "How lovely for him and for all of you, what a step."),
        Said("person", "my son Jonas starts school on 3 August"),
        Said("person", "We decided to take the 7:40 bus. Which bag should he take?"),
    ]
    summary = extract.summarise(said, 45)
    assert summary.splitlines() == [
        "- (tool) The office opens at 8:15.",
        "- my son Jonas starts school on 3 August",
        "- We decided to take the 7:40 bus.",
        "- Which bag should he take?",
    ]


def test_a_summary_keeps_what_was_summarised_before():
    before = "- Ada is allergic to nuts\n- Train to Graz on 3 May"
    said = [Said("summary", before), *(Said("person", f"So and so, number {n}") for n in range(99))]
    assert extract.summarise(said, 120).startswith(before)


@given(
    st.lists(st.builds(Said, st.sampled_from(["person", "assistant", "result"]), st.text())),
    st.integers(20, 300),
)
def test_a_summary_is_never_longer_than_wished(said, limit):
    summary = extract.summarise(said, limit)
    assert tokens.estimate(summary) <= limit + 1
    assert summary == extract.summarise(said, limit)


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("Where is the key?", True),
        ("Where is it? And who has it?", True),
        ("钥匙在哪里？", True),
        ("Where is the key? It was behind the boiler.", False),
        ("The key is behind the boiler.", False),
        ("", False),
    ],
)
def test_what_holds_no_more_than_questions_is_told_from_the_rest(text: str, *, only: bool):
    assert statements.only_asks(text) is only
