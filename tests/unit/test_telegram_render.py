from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.telegram.render import LIMIT, MAX_HTML_BYTES, formatted, render, to_html
from bot.channel.kit.text import parser, spans, units
from tests.fakes.telegram_html import visible


def html(markdown):
    found = formatted(markdown)
    assert len(found) == 1
    assert visible(found[0].html).strip() == found[0].plain.strip()
    return found[0].html


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("plain words.", "plain words."),
        ("a < b & c > d", "a &lt; b &amp; c &gt; d"),
        ('say "hi"', "say &quot;hi&quot;"),
        ("**b** __b__", "<b>b</b> <b>b</b>"),
        ("*i* _i_", "<i>i</i> <i>i</i>"),
        ("~~s~~", "<s>s</s>"),
        ("***both***", "<i><b>both</b></i>"),
        ("`a<b`", "<code>a&lt;b</code>"),
        ("**`code`**", "<code>code</code>"),
        ("# Title", "<b>Title</b>"),
        ("# A **b**", "<b>A b</b>"),
        ("# Title\n\ntext", "<b>Title</b>\n\ntext"),
        ("- a\n- b", "• a\n• b"),
        ("* a\n  * b\n    * c", "• a\n  • b\n    • c"),
        ("3. a\n4. b", "3. a\n4. b"),
        ("1. a\n\n   more\n2. b", "1. a\n\n  more\n\n2. b"),
        ("- a\n\ntext", "• a\n\ntext"),
        ("-\n- b", "• \n• b"),
        ("- [ ] todo", "• [ ] todo"),
        ("> q\n> r", "<blockquote>q\nr</blockquote>"),
        ("> a\n\n> b", "<blockquote>a</blockquote>\n\n<blockquote>b</blockquote>"),
        ("> a\n\nx\n\n> b", "<blockquote>a</blockquote>\n\nx\n\n<blockquote>b</blockquote>"),
        ("> a\n> > b", "<blockquote>a\n\nb</blockquote>"),
        ("> - a\n> - b", "<blockquote>• a\n• b</blockquote>"),
        ("```\nx\n```", "<pre>x</pre>"),
        (
            "```py\nif a < b:\n    pass\n```",
            '<pre><code class="language-py">if a &lt; b:\n    pass</code></pre>',
        ),
        ('```"><b>\nx\n```', "<pre>x</pre>"),
        ("    indented", "indented"),
        ("a\n\n    code", "a\n\n<pre>code</pre>"),
        ("[t](https://e.example/?a=1&b=2)", '<a href="https://e.example/?a=1&amp;b=2">t</a>'),
        ("[t](/relative)", "t"),
        ("[t](javascript:alert)", "[t](javascript:alert)"),
        ("[](https://e.example)", '<a href="https://e.example">https://e.example</a>'),
        ("[`c`](https://e.example)", '<a href="https://e.example">c</a>'),
        ("![alt](https://e.example/p.png)", '<a href="https://e.example/p.png">alt</a>'),
        (
            "![](https://e.example/p.png)",
            '<a href="https://e.example/p.png">https://e.example/p.png</a>',
        ),
        ("[![alt](https://a.example)](https://b.example)", '<a href="https://b.example">alt</a>'),
        ("a\n\n---\n\nb", "a\n\n──────────\n\nb"),
        ("<b>x</b><script>", "&lt;b&gt;x&lt;/b&gt;&lt;script&gt;"),
        ("<!-- c -->", "&lt;!-- c --&gt;"),
        ("&lt;b&gt; &copy;", "&lt;b&gt; ©"),
        ("a\nb", "a\nb"),
        ("a  \nb", "a\nb"),
        ("2 * 3 * 4 snake_case_name", "2 * 3 * 4 snake_case_name"),
        ("| a | 中 |\n|---|---|\n| **x** | y |", "<pre>a | 中\n--+---\nx | y</pre>"),
    ],
)
def test_markdown_becomes_telegrams_few_tags(markdown, expected):
    assert html(markdown) == expected


@pytest.mark.parametrize("markdown", ["", "   \n\n", "\n"])
def test_a_text_that_shows_nothing_becomes_no_message(markdown):
    assert formatted(markdown) == []


@pytest.mark.parametrize("markdown", ["[a]: https://e.example", ">", "#", "```\n```"])
def test_a_text_of_which_nothing_would_show_is_sent_as_it_is_written(markdown):
    assert [piece.plain for piece in formatted(markdown)] == [markdown]


def test_table_columns_align_for_wide_characters():
    lines = formatted("| 名字 | n |\n|--|--|\n| a | 1 |")[0].plain.split("\n")
    assert lines == ["名字 | n", "-----+--", "a    | 1"]


def test_half_a_surrogate_pair_is_replaced():
    assert html("bad \ud83d end") == "bad \ufffd end"


@pytest.mark.parametrize("letter", ["a", "中", "😀"])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_the_limit_counts_utf16_units(letter, off):
    text = letter * (LIMIT // units(letter) + off)
    found = formatted(text)
    assert len(found) == (2 if off > 0 else 1)
    assert "".join(piece.plain for piece in found) == text
    assert all(units(piece.plain) <= LIMIT for piece in found)


def test_a_cut_never_splits_a_surrogate_pair():
    found = formatted("a" + "😀" * LIMIT)
    assert [units(piece.plain) for piece in found] == [4095, 4096, 2]


def test_a_cut_prefers_line_breaks_then_spaces():
    assert [p.plain for p in formatted("aaaa bb\ncc dd", limit=10)] == ["aaaa bb", "cc dd"]
    assert [p.plain for p in formatted("aaaa bbbb cccc", limit=10)] == ["aaaa bbbb", "cccc"]
    assert [p.plain for p in formatted("aaaabbbbcccc", limit=10)] == ["aaaabbbbcc", "cc"]


def test_a_cut_code_block_is_closed_and_opened_again():
    found = formatted("```py\n" + "\n".join(f"line {n}" for n in range(10)) + "\n```", limit=40)
    assert len(found) > 1
    for piece in found:
        assert piece.html.startswith('<pre><code class="language-py">line')
        assert piece.html.endswith("</code></pre>")
    assert "\n".join(piece.plain for piece in found) == "\n".join(f"line {n}" for n in range(10))


def test_a_cut_code_block_keeps_its_indentation():
    found = formatted("```\nif some_condition:\n    deep\n```", limit=20)
    assert [piece.plain for piece in found] == ["if some_condition:", "    deep"]


def test_more_tags_than_telegram_takes_become_plain_words():
    found = formatted(
        " ".join("[x](https://example.example/" + "y" * 60 + ")" for _ in range(2000))
    )
    assert all(len(piece.html.encode()) <= MAX_HTML_BYTES for piece in found)
    assert "<a" not in found[0].html


MARKS = st.sampled_from(
    ["*", "**", "_", "~~", "`", "```", "```py\n", "\n", "\n\n", "> ", "- ", "1. ", "# ", "    ",
     "[", "](", "](https://e.example)", ")", "![", "<b>", "</b>", "<", "&", "&lt;", "\\", "|",
     "\n|--|--|\n", "---\n", "a", "word ", "中文", "😀", "\u202e", "\u200b", "\0", "\t",
     "\r\n", '"']
)  # fmt: skip
MARKDOWN = st.lists(MARKS | st.text(max_size=8), max_size=60).map("".join)


@given(MARKDOWN, st.integers(min_value=2, max_value=80))
def test_any_markdown_becomes_valid_html_within_the_limit(markdown, limit):
    for piece in formatted(markdown, limit):
        assert visible(piece.html) == piece.plain
        assert units(piece.plain) <= limit
        assert piece.plain.strip()


@given(MARKDOWN)
def test_cutting_loses_only_white_space(markdown):
    def words(text):
        return "".join(text.split())

    whole = "".join(piece.plain for piece in formatted(markdown, 1 << 30))
    parts = "".join(piece.plain for piece in formatted(markdown, 16))
    assert words(parts) == words(whole)


@given(st.text(st.sampled_from("ab cß中😀.,!?()'\"$%/;@#>=+-:1\n{}^"), max_size=80))
def test_the_short_way_for_plain_text_gives_what_the_parser_gives(text):
    quick = "".join(piece.html for piece in formatted(text))
    rendered = to_html(render(parser().parse(text.strip())))
    assert quick == rendered or (not rendered and unescape(quick) == text.strip())


@given(st.text(max_size=200), st.integers(min_value=2, max_value=50))
def test_spans_are_in_order_and_within_the_limit(text, limit):
    at = 0
    for start, stop in spans(text, limit):
        assert start >= at
        assert stop > start
        assert units(text[start:stop]) <= limit
        assert not text[at:start].strip()
        at = stop
    assert not text[at:].strip()


@pytest.mark.parametrize(
    "sign",
    [
        "👩‍👩‍👧‍👦",
        "👍🏽",
        "❤️",
        "🇩🇪",
        "é",
        "🏴‍☠️",
    ],
)
@pytest.mark.parametrize("shift", range(12))
def test_a_cut_falls_between_visible_characters(sign, shift):
    text = "x" * shift + sign * 400
    parts = [piece.plain for piece in formatted(text, 100)]
    assert "".join(parts) == text
    for part in parts[1:]:
        assert part.startswith(sign)
