"""Markdown, code and formulas as HTML: the same words, nothing off the list, never for long."""

import html
import re
import subprocess
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
from bot.channel.kit import markdown_html
from bot.channel.kit import markdown_html as markdown
from bot.channel.kit.markdown_html import (
    ATTRIBUTES,
    CODE_CLASSES,
    DEEPEST,
    MOST_BLANK,
    MOST_CODE,
    MOST_COLOURED,
    MOST_FORMULA,
    MOST_LINE,
    MOST_MATHS,
    TAGS,
    URL_SCHEMES,
    coloured,
    render,
)
from tests.proofs.rounds import rounds, sample

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
_SIGNS = '![]()<>*_`~|\\"a \n#'
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
    times = max(100, 250 // len(unit))  # a parser follows 32 brackets: many more than that
    return work(render, unit * 4 * times) <= 5.5 * work(render, unit * times)


REPEATED = [
    *("![", "[", "[[](", "![a](", "[a][", "![[]()", "[`", "*a_ ", "~~a", "a|", "> ", "http://x)"),
]
FORMULAS = ["$", "$x", "$$\n", "\\[\n", "\\(", "$x$ ", "$x_1$", "\\[x\n"]


@pytest.mark.parametrize("render", sample([rich, telegram.parse], [markdown._render]))  # pyright: ignore[reportPrivateUsage]
@pytest.mark.parametrize("unit", REPEATED)
def test_no_text_takes_more_work_than_its_length(render, unit) -> None:
    assert grows_like_the_text(render, unit)


@pytest.mark.parametrize("unit", FORMULAS)
def test_nor_do_formulas_that_are_not_closed(unit: str) -> None:
    assert grows_like_the_text(rich, unit)


NOTES = ["[^", "[^a]", "[^a]: ", "[^a]:\n", "[^a]: b\n  c\n", "[^a]: [^b]: "]


@pytest.mark.parametrize("unit", NOTES)
def test_nor_do_footnotes(unit: str) -> None:
    assert grows_like_the_text(lambda text: rich(f"[^a]: x\n\n{text}"), unit)


@pytest.mark.slow
@settings(max_examples=rounds(25, few=8))
@given(st.lists(st.sampled_from(UNITS), min_size=1, max_size=6).map("".join))
@pytest.mark.proof
def test_whatever_is_repeated_takes_no_more_work_than_its_length(unit: str) -> None:
    assert grows_like_the_text(rich, unit)


def test_what_people_write_keeps_its_links_however_many_there_are() -> None:
    listed = "".join(f"- [{n} [x] `y`](https://example.org/{n}) and [n]\n" for n in range(500))
    flowing = " ".join(f"[word {n}](https://example.org/{n})" for n in range(500))
    assert markdown.render(listed).count("<a ") == 500
    assert markdown.render(flowing).count("<a ") == 500


NOTED = """One[^b], two[^a] and one again[^b]; none[^c].

[^a]: *second*, with [a link](https://example.org)
[^b]: first
  goes on
[^unused]: nobody asks
[^a]: a name twice

After."""


def test_footnotes_stand_at_the_end_in_the_order_of_their_numbers() -> None:
    link = '<a href="https://example.org" target="_blank" rel="noopener noreferrer nofollow">'
    assert rich(NOTED) == (
        "<p>One<sup>1</sup>, two<sup>2</sup> and one again<sup>1</sup>; none[^c].</p>\n"
        "<p><sup>2</sup>: a name twice</p>\n<p>After.</p>\n<hr>\n<ol>\n"
        "<li>first<br>\ngoes on</li>\n"
        f"<li><em>second</em>, with {link}a link</a></li>\n<li>nobody asks</li>\n</ol>\n"
    )
    assert "<sup>" not in render(NOTED)  # where pages do not ask for it
    assert rich("> [^x]: <b>in a quote</b>\n\nsee[^x]").count("&lt;b&gt;in a quote") == 1
    assert rich("    [^x]: code\n\n`[^x]`") == (
        '<div class="code"><pre tabindex="0"><code>[^x]: code\n</code></pre></div>\n'
        "<p><code>[^x]</code></p>\n"
    )


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


LANGUAGES = sorted({*markdown_html._LANGUAGES, *markdown_html._OTHERS})
SPAN = re.compile(r'</?span(?: class="(\w+)")?>')
WORDS = """/* */ " ' ` ${ { } < </ <!-- <script> &amp; # \\ @ -- 0x1F 字 é def f(): =begin <<EOF"""
PIECES = st.sampled_from([*WORDS.split(" "), "\n", "\t", " ", "\u2028"])


def text_of(shown: str) -> str:
    return html.unescape(SPAN.sub("", shown))


def block(code: str, language: str = "python") -> str:
    return render(f"```{language}\n{code}\n```", rich=True)


def test_the_words_of_a_language_have_classes() -> None:
    shown = block('def tea(n):  # two\n    return "green" * 2')
    for kind, word in (("k", "def"), ("n", "tea"), ("c", "# two"), ("s", "&quot;green&quot;")):
        assert f'<span class="{kind}">{word}</span>' in shown.replace(
            '"green"', "&quot;green&quot;"
        )
    assert '<code class="language-python">def tea(n):  # two\n' in text_of(shown)


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=rounds(6))
@given(pieces=st.lists(PIECES, max_size=40))
def test_the_text_stays_the_same_in_every_language(language: str, pieces: list[str]) -> None:
    code = "".join(pieces)
    shown = coloured(code, language)
    assert not shown or text_of(shown) == code
    assert set(SPAN.findall(shown)) <= CODE_CLASSES | {""}
    assert "<" not in SPAN.sub("", shown)


@pytest.mark.parametrize("name", LANGUAGES)
def test_each_name_of_a_language_is_known(name: str) -> None:
    code = 'if x { "a" } # 1\n+ 2\n- 3\n'
    assert text_of(coloured(code, name.upper())) == code


@pytest.mark.parametrize("language", ["", "klingon", "python3000", "../os", "\0", "a" * 999])
def test_a_language_nobody_knows_is_plain(language: str) -> None:
    assert "<span" not in block("def f(): pass", language)


@pytest.mark.parametrize(
    "code",
    [
        "x = 1\n" * (MOST_CODE // 6 + 1),
        "a = " + "1" * MOST_LINE,
        "a = 1" + " \n" * MOST_BLANK + "b = 2",
    ],
    ids=["much", "wide", "blank"],
)
def test_what_is_too_much_is_plain_and_whole(code: str) -> None:
    shown = block(code)
    assert "<span" not in shown
    assert text_of(shown).count(code[:-1]) == 1


def test_only_so_much_of_one_text_is_coloured() -> None:
    code = "x = 1\n" * 800
    shown = render(f"```python\n{code}```\n\n" * 9, rich=True)
    ends = shown.split("</pre>")[:-1]
    assert [("<span" in part) for part in ends] == [
        n < MOST_COLOURED // len(code) for n in range(9)
    ]


def test_a_block_is_coloured_once_it_is_closed() -> None:
    for text in ("```python\nx = 1", "```python\nx = 1\n", "```python\nx = 1\n``", "```python\n"):
        assert "<span" not in render(text, rich=True)
    for text in ("```python\nx = 1\n```", "> - ```python\n>   x = 1\n>   ```\n\nmore"):
        assert "<span" in render(text, rich=True)
    assert "<span" not in render("```python\nx = 1\n```")  # nobody asked for colours


def test_markup_in_code_or_in_a_language_stays_text() -> None:
    attack = '<span class="k" onclick=x>y</span><script>alert(1)</script>'
    for language in ("html", 'html"><script>x</script>', "js"):
        shown = block(attack, language)
        assert "<script" not in shown
        assert "onclick=" not in re.sub(r"<code[^>]*>.*</code>", "", shown, flags=re.DOTALL)
        assert all(kind in CODE_CLASSES | {""} for kind in SPAN.findall(shown))


def test_a_lexer_that_fails_leaves_the_code_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise RecursionError

    monkeypatch.setattr(markdown_html, "_lexer", broken)
    assert coloured("x = 'of this test alone'", "python") == ""


def test_what_takes_too_long_stays_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown_html, "MOST_SECONDS", -1.0)
    assert coloured("x = 'and of this one'", "python") == ""


def test_nothing_is_loaded_before_there_is_code_of_a_language_or_a_formula() -> None:
    program = """
import sys
from bot.channel.kit.markdown_html import render
def there():
    return [each in sys.modules for each in ("pygments.lexers.python", "latex2mathml")]
render("```\\nx = 1\\n```\\n\\n```klingon\\nx\\n```\\n\\nIt costs $5 and $10.", rich=True)
print(*there())
render("```python\\nx = 1\\n```\\n\\n$x$", rich=True)
print(*there())
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout == "False False\nTrue True\n"


FRACTION = "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>"
SIGNS = r"$ $$ \( \) \[ \] \frac{a}{b} x_1 ^2 \text{<b>} \href{javascript:x} { } & \\ ` * _ 5 字"
FORMULA_PIECES = st.sampled_from([*SIGNS.split(" "), " ", "\n", "> ", "- ", "a"])


def drawn(text: str) -> str:
    return render(text, rich=True)


def sources(text: str) -> list[str]:
    """What was drawn, by the words a screen reader has instead."""
    return re.findall(r'<math display="\w+" alttext="([^"]*)"', drawn(text))


@pytest.mark.parametrize(
    ("text", "display"),
    [
        (r"so $\frac{a}{b}$ it is", "inline"),
        (r"so \(\frac{a}{b}\) it is", "inline"),
        (r"so $$\frac{a}{b}$$ it is", "block"),
        (r"\[\frac{a}{b}\]", "block"),
        ("it is\n$$\n\\frac{a}\n{b}\n$$\nso", "block"),
        ("1. it is\n\n   \\[\n   \\frac{a}{b}\n   \\]\n", "block"),
        ("> $$\n> \\frac{a}{b}\n> $$", "block"),
        (r"| $\frac{a}{b}$ |" + "\n|--|", "inline"),
        (r"**$\frac{a}{b}$**，中文", "inline"),
    ],
)
def test_each_way_to_write_one_is_drawn(text: str, display: str) -> None:
    shown = drawn(text)
    assert f'<math display="{display}"' in shown
    assert FRACTION in shown
    assert "$" not in re.sub("<[^>]*>", "", shown)


@pytest.mark.parametrize(
    "text",
    [
        *("It costs $5 and $10.", "from $5-$10, or US$5 to 6$", "$5 + tax, and 6$ more"),
        *("echo $HOME/$USER and $PATH", "${HOME}$x $1 $2", "价格$5和$10，还有$3到5块$"),
        *("a $ b $ c", "$ x$ and $x $", "\\$x\\$", "`$x$` and ``\\(x\\)``", "    $x$"),
        *("```\n$x$ \\[x\\]\n```", "<https://x.example/$x$>", "https://x.example/?$a$"),
        *("$$", "$$$$", "$\n\nx$", "\\[note\\](x) and \\(see there\\)"),
    ],
)
def test_what_is_no_formula_stays_as_it_is(text: str) -> None:
    assert sources(text) == []
    framed = drawn(text)
    for added in ('<div class="code">', "</div>", ' tabindex="0"'):
        framed = framed.replace(added, "")
    assert framed == render(text)


@pytest.mark.parametrize(
    "source",
    [
        r"\unknown{x}",
        r"\frac{1}{",
        "x_",
        r"\left( x_1",
        "{" * (DEEPEST + 1) + "x^2" + "}" * (DEEPEST + 1),
        r"\newcommand{\a}{x}\a",
        r"\def\a{x}\a^2",
        r"\href{javascript:alert(1)}{x}",
        "x^" * 400,
        r"\sqrt" * 190 + "x",
        "x_1" * MOST_FORMULA,
    ],
)
def test_what_cannot_be_read_stays_as_it_was_written(source: str) -> None:
    shown = drawn(f"see $${source}$$ there")
    assert "<math" not in shown
    assert shown == f"<p>see $${source}$$ there</p>\n"


def test_both_signs_of_one_that_cannot_be_read_are_kept() -> None:
    assert drawn(r"see \(\unknown{x}\)") == "<p>see \\(\\unknown{x}\\)</p>\n"


def test_the_source_is_there_instead_and_is_only_a_text() -> None:
    assert sources('$x < "y" & z^2$') == ["x &lt; &quot;y&quot; &amp; z^2"]


def test_only_so_much_of_one_text_is_drawn() -> None:
    formula = "x_1 + " * 150
    shown = drawn(f"$${formula}y$$\n\n" * 30)
    assert shown.count("<math") == MOST_MATHS // (len(formula) + 1)


def test_no_length_leads_out_of_the_line() -> None:
    shown = drawn(r"$\hspace{9999em}x$ $\hspace{-999px}y$ $\hspace{2em}z$")
    assert re.findall(r"<mspace[^>]*>", shown) == ["<mspace>", "<mspace>", '<mspace width="2em">']


@given(st.lists(FORMULA_PIECES, max_size=30).map("".join))
def test_nothing_of_a_formula_off_the_list_comes_through(text: str) -> None:
    shown = drawn(text)
    assert faults_of(shown) == []
    assert "javascript:" not in re.sub('alttext="[^"]*"|>[^<]*<', "", shown)


def test_no_formula_has_a_style_or_leads_anywhere() -> None:
    allowed = {name for tag in markdown_html.MATHS_TAGS for name in ATTRIBUTES.get(tag, ())}
    assert markdown_html.MATHS_TAGS <= TAGS
    assert allowed.isdisjoint({"style", "href", "class", "id", "src", "mathcolor", "onclick"})
