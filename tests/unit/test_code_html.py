"""Code in colours: the same text, whatever it is, and never for long."""

from __future__ import annotations

import html
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.channel.kit import code_html
from bot.channel.kit.code_html import CLASSES, MOST_BLANK, MOST_CODE, MOST_LINE, coloured
from bot.channel.kit.markdown_html import MOST_COLOURED, render

LANGUAGES = sorted({*code_html._LANGUAGES, *code_html._OTHERS})
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
@settings(max_examples=6, deadline=None)
@given(pieces=st.lists(PIECES, max_size=40))
def test_the_text_stays_the_same_in_every_language(language: str, pieces: list[str]) -> None:
    code = "".join(pieces)
    shown = coloured(code, language)
    assert not shown or text_of(shown) == code
    assert set(SPAN.findall(shown)) <= CLASSES | {""}
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
        assert all(kind in CLASSES | {""} for kind in SPAN.findall(shown))


def test_a_lexer_that_fails_leaves_the_code_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise RecursionError

    monkeypatch.setattr(code_html, "_lexer", broken)
    assert coloured("x = 'of this test alone'", "python") == ""


def test_what_takes_too_long_stays_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_html, "MOST_SECONDS", -1.0)
    assert coloured("x = 'and of this one'", "python") == ""


def test_nothing_is_loaded_before_there_is_code_of_a_language() -> None:
    program = (
        "import sys\n"
        "from bot.channel.kit.markdown_html import render\n"
        "render('```\\nx = 1\\n```\\n\\n```klingon\\nx\\n```', rich=True)\n"
        "before = 'pygments.lexers.python' in sys.modules\n"
        "render('```python\\nx = 1\\n```', rich=True)\n"
        "print(before, 'pygments.lexers.python' in sys.modules)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout == "False True\n"
