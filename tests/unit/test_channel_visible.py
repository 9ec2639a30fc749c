from __future__ import annotations

import io
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from adapters.screen import Screen
from bot.channel.kit.text import has_ink, literal, seen, shows

MARKED = st.text(alphabet="#>`*_~[]():-+=|!&<\\ \nab1", max_size=40)


def html(markdown: str) -> str:
    return MarkdownIt("commonmark", {"html": False}).enable(["table"]).render(markdown)


@pytest.mark.parametrize(
    "text", ["word", "# a", "> a", "---", "- ", "`a`", "![](a)", "```\na\n```"]
)
def test_what_shows_stays_as_it_is(text):
    assert shows(text)
    assert seen(text) == text


@pytest.mark.parametrize("text", ["[a]: b", ">", "#", "```\n```", "~~~", "> >", "[](a)", "&nbsp;"])
def test_what_does_not_show_is_made_to(text):
    assert not shows(text)
    assert shows(literal(text))


@pytest.mark.parametrize("text", ["", " \n", "\u200b"])
def test_nothing_stays_nothing(text):
    assert seen(text) == text


@given(MARKED)
def test_something_is_seen_of_every_text_that_has_ink(text):
    if has_ink(text):
        words = unescape(re.sub(r"<(?!(hr|img|li))[^>]+>", "", html(seen(text))))
        assert has_ink(words)


HIDDEN = st.lists(st.sampled_from([">", "> >", "#", "```", "~~~", "[a]: b", "[](a)", " "]))


@given(HIDDEN.map("\n".join) | MARKED)
def test_what_is_seen_then_is_what_was_written(text):
    if shows(text) or not has_ink(text):
        return
    words = unescape(re.sub(r"<[^>]+>", "", html(literal(text))))
    assert "".join(words.split()) == "".join(text.split())


def test_a_terminal_shows_it_too():
    output = io.StringIO()
    screen = Screen(output)
    for text in ("[docs]: https://example.org", "```\n```"):
        screen.show(text, at_prompt=False)
    assert "[docs]: https://example.org" in output.getvalue()
    assert "```" in output.getvalue()
