from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.silence import TOKENS, is_silent, may_become_silent


@pytest.mark.parametrize("reply", ["NO_REPLY", " no_reply\n", "[SILENT]", "[silent]", "No_Reply"])
def test_the_whole_token_is_silence(reply):
    assert is_silent(reply)


@pytest.mark.parametrize(
    "reply", ["", "NO", "NO_REPLY.", "I have nothing to add. NO_REPLY", "NO_REPLY [SILENT]", "No"]
)
def test_a_reply_with_anything_else_in_it_is_none(reply):
    assert not is_silent(reply)


@given(st.sampled_from(TOKENS), st.data())
def test_nothing_is_shown_while_it_may_still_be_a_token(token, data):
    length = data.draw(st.integers(0, len(token)))
    assert may_become_silent(token[:length].lower())


@given(st.text(), st.text(min_size=1))
def test_what_is_no_beginning_never_becomes_one(written, more):
    if not may_become_silent(written):
        assert not may_become_silent(written.lstrip() + more)
        assert not is_silent(written + more) or is_silent(written)
