from __future__ import annotations

import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import markdown_it
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adapters
from adapters.telegram import render as telegram
from bot.channel.kit import markdown_html as markdown
from bot.channel.kit.markdown_html import ATTRIBUTES, TAGS, URL_SCHEMES, render

ADDED = {"a": {"rel", "target"}}  # what the sanitiser puts there itself

XSS = [
    "<script>alert(1)</script>",
    "<ScRiPt src=//evil.example/x.js></sCrIpT>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<body onload=alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "<style>@import 'https://evil.example'</style>",
    "<p style='background:url(https://evil.example)'>x</p>",
    "<math><mtext></p><img src=x onerror=alert(1)>",
    "<form action=https://evil.example><input name=q></form>",
    "<object data='data:text/html,<script>alert(1)</script>'></object>",
    "<base href='https://evil.example/'>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<!--<img src='--><img src=x onerror=alert(1)>-->",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](java&#x0A;script:alert(1))",
    "[x](<java\tscript:alert(1)>)",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](/logout)",
    "[x](//evil.example)",
    "![x](javascript:alert(1))",
    "![x](https://evil.example/pixel.png)",
    '![x](https://evil.example/"onerror="alert(1).png)',
    '[x](https://e.example "\\"onmouseover=alert(1)")',
    '[x](https://e.example/"onclick="alert(1))',
    "<javascript:alert(1)>",
    '<https://e.example/"onclick="alert(1)>',
    'https://e.example/"onclick="alert(1)',
    "[a]: javascript:alert(1)\n\n[a]",
    '```"><script>alert(1)</script>\nx\n```',
    "```x onclick=alert(1)\nx\n```",
    "| <img src=x onerror=alert(1)> |\n|--|\n| [x](javascript:alert(1)) |",
    "`<img src=x onerror=alert(1)>`",
    "\\<script>alert(1)\\</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
]


# What is put around what is safe already, to the letter.
FRAMES = {
    *('<div class="code">', '<pre tabindex="0">', '<div class="table" tabindex="0">'),
    *('<p class="maths" tabindex="0">', '<li class="task">'),
}


class Inspector(HTMLParser):
    """Reads HTML as a browser would and keeps whatever is not on the list."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.get_starttag_text() in FRAMES:
            return
        if tag not in TAGS:
            self.faults.append(f"<{tag}>")
        for name, value in attrs:
            if name not in ATTRIBUTES.get(tag, frozenset()) | ADDED.get(tag, set()):
                self.faults.append(f"<{tag} {name}>")
            if name == "href" and urlsplit(value or "").scheme.lower() not in URL_SCHEMES:
                self.faults.append(f"href={value}")
        if tag == "a":
            given = dict(attrs)
            if given.get("rel") != "noopener noreferrer nofollow":
                self.faults.append("a link without rel")
            if given.get("target") != "_blank":
                self.faults.append("a link that replaces the page")

    def handle_comment(self, data: str) -> None:
        self.faults.append("a comment")

    def handle_decl(self, decl: str) -> None:
        self.faults.append("a declaration")

    def unknown_decl(self, data: str) -> None:
        self.faults.append("an unknown declaration")


def faults_of(html: str) -> list[str]:
    inspector = Inspector()
    inspector.feed(html)
    inspector.close()
    return inspector.faults


@pytest.mark.parametrize("attack", XSS)
def test_attacks_are_inert(attack: str) -> None:
    assert faults_of(render(attack)) == []


@given(
    st.lists(
        st.one_of(
            st.sampled_from(XSS),
            st.text(max_size=30),
            st.sampled_from(
                ["[", "](", ")", "<", ">", '"', "'", "`", "```\n", "|", "\n", "&#x3c;"]
            ),
            st.sampled_from(
                ["javascript:", "data:", "https://", "onclick=", "![", "**", "~~", "> "]
            ),
        ),
        max_size=12,
    ).map("".join)
)
def test_nothing_off_the_list_comes_through(text: str) -> None:
    assert faults_of(render(text)) == []


def test_common_markdown_is_rendered() -> None:
    html = render("# Title\n\n**bold** *soft* ~~gone~~ `code`\n\n- one\n- two\n\n> said")
    for piece in ("<h3>Title</h3>", "<strong>bold</strong>", "<em>soft</em>", "<s>gone</s>"):
        assert piece in html
    assert "<code>code</code>" in html
    assert "<li>one</li>" in html
    assert "<blockquote>" in html


def test_code_keeps_its_language_and_its_angle_brackets() -> None:
    html = render("```python\na < b\n```")
    assert html == '<pre><code class="language-python">a &lt; b\n</code></pre>\n'


def test_table_cells_keep_their_alignment_without_a_style() -> None:
    html = render("| a | b |\n|:-:|--:|\n| 1 | 2 |")
    assert '<th align="center">a</th>' in html
    assert '<td align="right">2</td>' in html
    assert "style" not in html


def test_line_breaks_are_kept() -> None:
    assert render("one\ntwo") == "<p>one<br>\ntwo</p>\n"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("see https://example.org/a?b=c&d=e.", "https://example.org/a?b=c&amp;d=e"),
        ("(https://example.org/a)", "https://example.org/a"),
        ("https://example.org/a_(b)", "https://example.org/a_(b)"),
        ("请看https://example.org/a。谢谢", "https://example.org/a"),
        ("**https://example.org**", "https://example.org"),
    ],
)
def test_plain_addresses_become_links(text: str, url: str) -> None:
    assert f'<a href="{url}" target=' in render(text)


@pytest.mark.parametrize("text", ["`https://example.org`", "https://", "https://..."])
def test_what_is_no_address_stays_text(text: str) -> None:
    assert "<a" not in render(text)


def test_pictures_become_links_and_are_never_loaded() -> None:
    html = render("![a cat](https://example.org/cat.png)")
    assert '<a href="https://example.org/cat.png"' in html
    assert ">a cat</a>" in html
    assert "<img" not in html


def test_a_picture_in_a_link_is_the_text_of_the_link() -> None:
    html = render("[![a cat](https://example.org/cat.png)](https://example.org)")
    assert html.count("<a ") == 1
    assert 'href="https://example.org"' in html
    assert ">a cat</a>" in html


def test_long_texts_are_rendered_like_short_ones() -> None:
    paragraph = "some **bold** words\n\n"
    assert render(paragraph * 1000) == "<p>some <strong>bold</strong> words</p>\n" * 1000


# --- work -----------------------------------------------------------------------------------------

PARSERS = tuple(
    str(Path(file).parent) for file in (markdown_it.__file__, adapters.__file__, markdown.__file__)
)
_SIGNS = (
    "!",
    "[",
    "]",
    "(",
    ")",
    "<",
    ">",
    "*",
    "_",
    "`",
    "~",
    "|",
    "\\",
    '"',
    "a",
    " ",
    "\n",
    "#",
)
UNITS = (*_SIGNS, "- ", "1.", "> ", "http://x", "&", "```\n", "|-|-|\n", "]:", "    ", "![", "](")


def work(render: Callable[[str], object], text: str) -> int:
    """How many lines of Python the rendering of a text runs through."""
    count = 0

    def line(_frame: FrameType, event: str, _argument: object) -> object:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, _event: str, _argument: object) -> object:
        return line if frame.f_code.co_filename.startswith(PARSERS) else None

    before = sys.gettrace()
    sys.settrace(call)  # type: ignore[arg-type]
    try:
        render(text)
    finally:
        sys.settrace(before)
    return count


def rich(text: str) -> str:
    return markdown._render(text, rich=True)  # pyright: ignore[reportPrivateUsage]


def grows_like_the_text(render: Callable[[str], object], unit: str) -> bool:
    """True when four times the text is no more than some five times the work."""
    times = max(100, 500 // len(unit))  # a parser follows 32 brackets: many more than that
    return work(render, unit * 4 * times) <= 5.5 * work(render, unit * times)


REPEATED = [
    "![",
    "[",
    "[[](",
    "![a](",
    "[a][",
    "![[]()",
    "[`",
    "*a_ ",
    "~~a",
    "a|",
    "> ",
    "http://x)",
]
FORMULAS = ["$", "$x", "$$\n", "\\[\n", "\\(", "$x$ ", "$x_1$", "\\[x\n"]


@pytest.mark.parametrize("render", [markdown._render, rich, telegram.parse])  # pyright: ignore[reportPrivateUsage]
@pytest.mark.parametrize(
    "unit",
    REPEATED,
)
def test_no_text_takes_more_work_than_its_length(
    render: Callable[[str], object], unit: str
) -> None:
    assert grows_like_the_text(render, unit)


@pytest.mark.parametrize("unit", FORMULAS)
def test_nor_do_formulas_that_are_not_closed(unit: str) -> None:
    assert grows_like_the_text(rich, unit)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(UNITS), min_size=1, max_size=6).map("".join))
def test_whatever_is_repeated_takes_no_more_work_than_its_length(unit: str) -> None:
    assert grows_like_the_text(rich, unit)


def test_what_people_write_keeps_its_links_however_many_there_are() -> None:
    listed = "".join(f"- [{n} [x] `y`](https://example.org/{n}) and [n]\n" for n in range(2_000))
    flowing = " ".join(f"[word {n}](https://example.org/{n})" for n in range(500))
    assert markdown.render(listed).count("<a ") == 2_000
    assert markdown.render(flowing).count("<a ") == 500


def test_what_may_be_too_wide_has_a_frame_that_the_keyboard_reaches():
    drawn = render("```\nx\n```\n\n| a |\n|---|\n| <pre> |\n\n$$x$$\n\n`<table>`", rich=True)
    assert drawn.count('<div class="code"><pre tabindex="0">') == 1
    assert drawn.count('<div class="table" tabindex="0"><table>') == 1
    assert drawn.count('<p class="maths" tabindex="0">') == 1
    assert (drawn.count("<div"), drawn.count("</div>")) == (2, 2)
    assert "tabindex" not in render("```\nx\n```\n\n| a |\n|---|\n| b |")


@pytest.mark.parametrize(
    ("written", "drawn"),
    [
        ("- [ ] a", '<li class="task">☐ a</li>'),
        ("- [X] a\n\n- b", '<li class="task">\n<p>☑ a</p>'),
        ("1. [x] a", '<li class="task">☑ a</li>'),
        ("- [ ]a", "<li>[ ]a</li>"),
        ("- `[ ] a`", "<li><code>[ ] a</code></li>"),
        ("[ ] a", "<p>[ ] a</p>"),
    ],
)
def test_a_task_has_its_box(written: str, drawn: str):
    assert drawn in render(written, rich=True)
