"""What is picked out of a conversation without a model, and what counts as a question."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.context import excerpt, sentences, tokens
from bot.context.quoting import Said


def test_a_summary_prefers_what_is_open_exact_and_last_in_its_latest_words():
    said = [
        Said("person", "Hi there! How are you?"),
        Said("assistant", "I am fine, thank you for asking."),
        Said("person", "My son Jonas starts school on 3 August 2027. The weather is nice."),
        Said("call", 'web {"q": "schools"}'),
        Said("result", "web: The office opens at 8:15."),
        Said("assistant", "How lovely for him and for all of you, what a step."),
        Said("person", "my son Jonas starts school on 3 August 2027"),
        Said("person", "We decided to take the 7:40 bus. Which bag should he take?"),
    ]
    assert excerpt.summarise(said, 40).splitlines() == [
        "- (tool) The office opens at 8:15.",
        "- my son Jonas starts school on 3 August 2027",
        "- We decided to take the 7:40 bus.",
        "- Which bag should he take?",
    ]


def test_a_summary_keeps_what_was_summarised_before():
    before = "- Ada is allergic to nuts at 9:30\n- Train to Graz on 3 May 2027"
    said = [Said("summary", before), *(Said("person", f"So and so, {'x' * n}") for n in range(99))]
    assert excerpt.summarise(said, 120).startswith(before)


def test_the_list_names_links_numbers_and_what_nobody_answered():
    said = [
        Said("summary", "Call +49 170 123, see https://clinic.example/a?id=3."),
        Said("person", "What does the visa cost?"),
        Said("assistant", "About 80 euros."),
        Said("person", "爸爸的手术定在5月14日，电话 13905127788。医生贵吗？"),
        Said("result", "web: write to a.b@mail.example, booking QX7-331"),
    ]
    assert excerpt.checklist(said).split("\n") == [
        "Links:",
        "a.b@mail.example",
        "https://clinic.example/a?id=3",
        "Numbers:",
        "QX7-331, 13905127788, 14日, 5月, 123, 170, 49",
        "Not answered:",
        "医生贵吗？",
    ]
    assert excerpt.checklist([Said("person", "we went along the river")]) == ""


conversations = st.lists(
    st.builds(Said, st.sampled_from(["person", "assistant", "result", "summary"]), st.text())
)


@given(conversations, st.integers(20, 300))
def test_a_summary_is_never_longer_than_wished(said: list[Said], limit: int):
    summary = excerpt.summarise(said, limit)
    assert tokens.estimate(summary) <= limit + 1
    assert summary == excerpt.summarise(said, limit)


@given(conversations)
def test_the_list_is_never_long(said: list[Said]):
    numbers = [Said("person", f"is it {n}-{n}, https://x.example/{n} and {n}?") for n in range(99)]
    for found in (excerpt.checklist(said), excerpt.checklist([*said, *numbers])):
        assert len(found.split("\n")) <= 16
        assert len(found) < 4_000


@pytest.mark.parametrize("piece", ["a.", "a@", "1,", "1 ", "https://", "A", "一", "x-", "?\n"])
def test_hostile_conversations_take_time_by_their_length(piece: str):
    said = [Said("person", piece * (200_000 // len(piece)))]
    begun = time.process_time()
    excerpt.checklist(said)
    excerpt.summarise(said, 2_000)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("Where is the key?", True),
        ("Where is it? And who has it?", True),
        ("钥匙在哪里？", True),
        ("你知道吗", True),
        ("Where is the key? It was behind the boiler.", False),
        ("The key is behind the boiler.", False),
        ("", False),
    ],
)
def test_what_holds_no_more_than_questions_is_told_from_the_rest(text: str, *, only: bool):
    assert sentences.only_asks(text) is only
