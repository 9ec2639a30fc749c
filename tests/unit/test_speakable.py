"""What of a reply is said aloud."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.speech.speakable import MOST, speakable


@pytest.mark.parametrize(
    ("markdown", "said"),
    [
        ("Hello.", "Hello."),
        ("**Hello**, _you_ & `you`!", "Hello, you & you!"),
        ("# Plan\n\n- one\n- *two*\n\nand\nmore", "Plan\none\ntwo\nand more"),
        ("See [the page](https://example.org/a?b=c).", "See the page."),
        ("See https://www.example.org/a/b?c=d#e today", "See example.org today"),
        ("Good 👍🏽 and 20 °C ✅", "Good and 20 °C"),
        ("Café ग़ज़ल", "Café ग़ज़ल"),
        ("So:\n\n```py\nprint(1)\n```\n\nThat.", "So:\n(The code is in the text.)\nThat."),
        ("|a|b|\n|-|-|\n|1|2|", "(The table is in the text.)"),
        ("<b>bold</b> if a < b", "bold if a < b"),
        ("![a cat](https://example.org/c.png)", "a cat"),
        ("![](https://example.org/c.png)", ""),
        ("👍", ""),
        ("---", ""),
        ("", ""),
    ],
)
def test_words_are_said_and_signs_are_not(markdown: str, said: str):
    assert speakable(markdown, "en") == said


def test_a_long_reply_ends_with_a_sentence_and_says_that_there_is_more():
    said = speakable("This is a sentence. " * 500, "en")
    *_, last, rest = said.split("\n")
    assert last.endswith("This is a sentence.")
    assert rest == "The rest is in the text."
    assert MOST - 100 < len(said) <= MOST + 100
    assert speakable("这是一句话。" * 1_000, "zh").endswith("这是一句话。\n其余请看文字。")
    assert len(speakable("word " * 5_000, "en")) <= MOST + 100
    assert len(speakable("x" * 50_000, "en")) <= MOST + 100


@given(st.text(), st.sampled_from(["en", "zh"]))
def test_whatever_a_model_writes_is_bounded(markdown: str, language: str):
    assert len(speakable(markdown, language)) <= MOST + 100
