"""What a model thinks aloud is told apart from its reply, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models.thinking import CLOSE, OPEN, ThinkingFilter

texts = st.text(st.sampled_from("<think>/ \na"), max_size=40)


def shown(pieces: list[str]) -> str:
    thinking = ThinkingFilter()
    return "".join([*map(thinking.feed, pieces), thinking.end()])


@given(st.lists(st.sampled_from([OPEN, CLOSE, "<", "th", "ink>", "</", " ", "\n", "a", "b"])))
def test_how_it_is_cut_changes_nothing(pieces: list[str]):
    assert shown(pieces) == shown(["".join(pieces)]) == shown(list("".join(pieces)))


@given(st.lists(st.sampled_from([OPEN, CLOSE, "<", "th", "ink>", "</", " ", "\n", "a", "b"])))
def test_what_was_thought_comes_as_it_came_however_it_is_cut(pieces: list[str]):
    thinking, thought = ThinkingFilter(), ""
    for piece in pieces:
        thinking.feed(piece)
        thought += thinking.thought()
    whole = "".join(pieces).lstrip()
    held = len(CLOSE) - 1  # of a thought that never ends: they might have been its end
    if not whole.startswith(OPEN):
        assert thought == ""
    elif CLOSE in whole:
        assert thought == whole[len(OPEN) :].partition(CLOSE)[0]
    else:
        assert thought == whole[len(OPEN) :][:-held]


@given(texts, texts)
def test_a_reply_after_a_thought_comes_whole(thought: str, reply: str):
    thought = thought.replace(CLOSE, "")
    assert shown([OPEN, thought, CLOSE, reply]) == reply.lstrip()


@given(texts.filter(lambda text: not text.lstrip().startswith(OPEN)))
def test_a_reply_without_one_comes_as_it_is(reply: str):
    assert shown(list(reply)) == reply


@pytest.mark.parametrize("text", [f"{OPEN}never ended", f"\n{OPEN}a{CLOSE[:-1]}"])
def test_a_thought_that_does_not_end_is_no_reply(text: str):
    assert shown([text]) == ""
