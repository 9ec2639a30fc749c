"""The text of web pages: what is theirs, and what is left when that cannot be told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.files import webpage
from bot.files.documents import text_of

URL = "https://site.example/notes/rust"
WORDS = (
    "Ownership is a set of rules that govern how a program manages its memory, and none of them "
    "slows the program down while it runs. "
)
PAGE = f"""<!doctype html><html><head><title>Rust &amp; rules</title><style>p {{}}</style></head>
<body>
<nav><ul><li><a href="/">Home</a></li><li><a href="/about">About us</a></li></ul></nav>
<main><article><h1>What is ownership?</h1>
<p>{WORDS}<a href="../python">Python</a> does it another way.</p><p>{WORDS * 3}</p>
<script>steal()</script><table><tr><td>move</td><td>borrow</td></tr></table></article></main>
<footer>© Imprint and cookies</footer></body></html>"""


def read(page: str, url: str = URL) -> str:
    return text_of(page.encode(), "text/html; charset=utf-8", "", url).text


def test_a_page_is_read_without_what_stands_around_it():
    text = read(PAGE)
    assert text.startswith("# Rust & rules\n")
    assert WORDS.strip() in text
    assert "[Python](https://site.example/python)" in text
    assert "| move | borrow |" in text
    for strange in ("About us", "cookies", "steal()"):
        assert strange not in text


def test_a_file_of_html_is_read_as_it_is():
    assert "About us" in read(PAGE, "")


@pytest.mark.parametrize(
    "page",
    [
        "<html><body>Short.</body></html>",
        "<html>Short.",
        f"<html><p>Short.{'<div>' * 20_000}",
        f"<html><p>Short.{'<a <a ' * 5_000}",
        f"<html><p>Short.</p>{'<!--' * 5_000}",
        f"<html><title>{'t' * 5_000}</title><p>Short.",
        f"<html><p>Short.{' x' * webpage.LONGEST}",
        "<html><!DOCTYPE d [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><p>Short.&a;",
    ],
)
def test_a_page_that_is_hardly_one_is_read_all_the_same(page: str):
    text = read(page)
    assert "Short." in text
    assert "root:" not in text


@given(st.text(alphabet=st.sampled_from("<>/pa=\"' &;!-\n"), max_size=200))
def test_whatever_stands_in_a_page_is_read(words: str):
    "".join(webpage.read(f"<html><body><p>{words}", URL))
