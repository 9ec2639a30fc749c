"""Formulas: drawn where they are meant, as written where not, and never for long."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.channel.kit import maths_html
from bot.channel.kit.markdown_html import ATTRIBUTES, TAGS, render
from bot.channel.kit.maths_html import DEEPEST, MOST_FORMULA, MOST_MATHS
from tests.unit.test_web_markdown import faults_of

FRACTION = "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>"
SIGNS = r"$ $$ \( \) \[ \] \frac{a}{b} x_1 ^2 \text{<b>} \href{javascript:x} { } & \\ ` * _ 5 字"
PIECES = st.sampled_from([*SIGNS.split(" "), " ", "\n", "> ", "- ", "a"])


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
        "It costs $5 and $10.",
        "from $5-$10, or US$5 to 6$",
        "$5 + tax, and 6$ more",
        "echo $HOME/$USER and $PATH",
        "${HOME}$x $1 $2",
        "价格$5和$10，还有$3到5块$",
        "a $ b $ c",
        "$ x$ and $x $",
        "\\$x\\$",
        "`$x$` and ``\\(x\\)``",
        "```\n$x$ \\[x\\]\n```",
        "    $x$",
        "<https://x.example/$x$>",
        "https://x.example/?$a$",
        "$$",
        "$$$$",
        "$\n\nx$",
        "\\[note\\](x) and \\(see there\\)",
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


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=30).map("".join))
def test_nothing_off_the_list_comes_through(text: str) -> None:
    shown = drawn(text)
    assert faults_of(shown) == []
    assert "javascript:" not in re.sub('alttext="[^"]*"|>[^<]*<', "", shown)


def test_no_formula_has_a_style_or_leads_anywhere() -> None:
    allowed = {name for tag in maths_html.TAGS for name in ATTRIBUTES.get(tag, ())}
    assert maths_html.TAGS <= TAGS
    assert allowed.isdisjoint({"style", "href", "class", "id", "src", "mathcolor", "onclick"})


def test_nothing_is_loaded_before_there_is_a_formula() -> None:
    program = (
        "import sys\n"
        "from bot.channel.kit.markdown_html import render\n"
        "render('It costs $5 and $10.', rich=True)\n"
        "before = 'latex2mathml' in sys.modules\n"
        "render('$x$', rich=True)\n"
        "print(before, 'latex2mathml' in sys.modules)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout == "False True\n"
