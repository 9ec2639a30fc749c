"""Markdown to HTML that is safe to put into a page, whoever wrote it.

Two walls: the parser never lets HTML through, and the sanitiser keeps only what is listed here.
Pictures become links, so opening a chat never tells another server that it was read. Where a page
asks for it, blocks of code that are closed have colours, formulas are MathML, and footnotes are
listed at the end.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from functools import cache, lru_cache
from html import escape
from itertools import groupby
from time import thread_time
from typing import Any, cast

import nh3
import structlog
from markdown_it.common.utils import escapeHtml, unescapeAll
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from bot.channel.kit.markdown import MOST_FORMULA, Markdown
from bot.channel.kit.text import seen

# Code in colours: HTML with a class for each kind of word, whose text is the code to the letter.
#
# Lexers are made of regular expressions, some of which take time with the square of what is not
# closed. So only languages on this list are coloured, no more code than such an expression gets
# through in a moment, and none that takes longer. Nothing of the library is loaded before there
# is code to colour.

MOST_CODE = 5_000  # characters of one block, …
MOST_LINE = 600  # … of one of its lines …
MOST_BLANK = 100  # … and of blanks and line ends in a row
MOST_SECONDS = 0.3  # of a processor; what people write takes a few ms
KEPT_CODE = 64  # blocks: a reply that grows is drawn anew for each of its pieces

log = structlog.get_logger(__name__)

# What is coloured, by Pygments' own names, and what else people write for them.
_LANGUAGES = frozenset(
    """bash c c# c++ cfg cpp cs csharp css diff docker dockerfile go golang html ini java javascript
    js json kotlin lua make makefile php powershell ps1 py python python3 r rb rs ruby rust sh shell
    sql swift toml ts typescript xml yaml zsh""".split()  # noqa: SIM905
)
_NAMES = {
    "c": "h",
    "cpp": "cc cxx hpp",
    "diff": "patch",
    "html": "htm",
    "ini": "conf properties",
    "js": "jsx mjs",
    "json": "jsonc jsonl",
    "kotlin": "kt",
    "make": "mk",
    "ts": "tsx",
    "xml": "svg",
    "yaml": "yml",
}
_OTHERS = {name: language for language, names in _NAMES.items() for name in names.split()}
_OPTIONS = {"php": {"startinline": True}}

# What shows in a colour, by the class it has; of a kind within another the longer one counts.
_SHOWN = {
    "c": "Comment",
    "d": "Generic.Deleted",
    "k": "Keyword Operator.Word Name.Tag Generic.Heading Generic.Subheading",
    "m": "Literal.Number Literal.Date Keyword.Constant Name.Constant",
    "n": "Name.Function Name.Class Name.Decorator Name.Builtin Name.Exception Name.Attribute",
    "s": "Literal.String Generic.Inserted",
    "v": "Name.Variable",
}
CODE_CLASSES = frozenset(_SHOWN)
_CLASSES = {tuple(k.split(".")): name for name, kinds in _SHOWN.items() for k in kinds.split()}
_TOO_MUCH = re.compile(rf"[^\n]{{{MOST_LINE + 1}}}|\s{{{MOST_BLANK + 1}}}")


@lru_cache(maxsize=KEPT_CODE)
def coloured(code: str, language: str) -> str:
    """Code as HTML; empty when it is to be shown as it is.

    The first of a language may take a moment, in which its lexer is loaded.
    """
    language = _OTHERS.get(language.lower(), language.lower())
    if language not in _LANGUAGES or len(code) > MOST_CODE or _TOO_MUCH.search(code):
        return ""
    try:
        words = list(_words(_lexer(language), code))
    except Exception as error:  # noqa: BLE001 - code nobody can read still has to be shown
        log.warning("code.not_coloured", language=language, error=type(error).__name__)
        return ""
    if "".join(word for _, word in words) != code:
        return ""
    return "".join(_html(words))


@cache
def _lexer(language: str) -> Any:
    lexers = importlib.import_module("pygments.lexers")
    return lexers.get_lexer_by_name(language, **_OPTIONS.get(language, {}))


def _words(lexer: Any, code: str) -> Iterator[tuple[str, str]]:
    """The code in order, each part with its class, which is empty for most of it."""
    until = thread_time() + MOST_SECONDS
    for _, kind, word in lexer.get_tokens_unprocessed(code):
        if thread_time() > until:
            raise TimeoutError
        yield _class_of(tuple(kind)), word


@cache
def _class_of(kind: tuple[str, ...]) -> str:
    ways = (kind[:length] for length in range(len(kind), 0, -1))
    return next((_CLASSES[way] for way in ways if way in _CLASSES), "")


def _html(words: Iterable[tuple[str, str]]) -> Iterator[str]:
    for kind, same in groupby(words, key=lambda each: each[0]):
        text = escape("".join(word for _, word in same))
        yield f'<span class="{kind}">{text}</span>' if kind and text.strip() else text


# Formulas in a Markdown text, as MathML that the browser draws and reads aloud.
#
# Whatever cannot be read stays as it was written. Nothing of the library is loaded before there is
# a formula.

MOST_MATHS = 20_000  # characters of all in one text
MOST_DRAWN = 60  # characters that one of them may become
DEEPEST = 24  # braces in braces
KEPT_FORMULAS = 256  # formulas: a reply that grows is drawn anew for each of its pieces

MATHS_TAGS = (
    frozenset({"math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mstyle", "mpadded"})
    | {"mfrac", "msqrt", "mroot", "msub", "msup", "msubsup", "munder", "mover", "munderover"}
    | {"mtable", "mtr", "mtd", "mphantom"}
)
# Lengths are short ones: a formula takes no more room than its lines.
_LENGTH = r"-?\d{1,2}(?:\.\d{1,4})?(?:em|ex|px|pt|mu|%)?"
_WORD = r"[a-z]{1,20}"
_VALUES = {
    "display": _WORD,
    "alttext": rf"[\s\S]{{0,{MOST_FORMULA}}}",
    "stretchy": _WORD,
    "fence": _WORD,
    "form": _WORD,
    "separator": _WORD,
    "accent": _WORD,
    "largeop": _WORD,
    "movablelimits": _WORD,
    "displaystyle": _WORD,
    "mathvariant": r"[a-z-]{1,30}",
    "scriptlevel": r"[+-]?\d",
    "linethickness": _LENGTH,
    "width": _LENGTH,
    "lspace": _LENGTH,
    "rspace": _LENGTH,
    "minsize": _LENGTH,
    "maxsize": _LENGTH,
    "columnalign": r"[a-z ]{1,40}",
}
MATHS_ATTRIBUTES = {
    "math": frozenset({"display", "alttext"}),
    "mi": frozenset({"mathvariant"}),
    "mo": frozenset({"stretchy", "fence", "form", "separator", "accent", "largeop"})
    | {"movablelimits", "lspace", "rspace", "minsize", "maxsize", "mathvariant"},
    "mstyle": frozenset({"displaystyle", "scriptlevel"}),
    "mspace": frozenset({"width"}),
    "mpadded": frozenset({"width", "lspace"}),
    "mfrac": frozenset({"linethickness"}),
    "mtable": frozenset({"displaystyle"}),
    "mtd": frozenset({"columnalign"}),
}

_UNKNOWN = re.compile(r"<m[a-z]++[^<>]*+>\\")  # a command that nobody knows


def is_allowed_maths(attribute: str, value: str) -> bool:
    """True when a page may have this value of an attribute."""
    pattern = _VALUES.get(attribute)
    return pattern is not None and re.fullmatch(pattern, value) is not None


@lru_cache(maxsize=KEPT_FORMULAS)
def mathml(source: str, *, is_block: bool) -> str:
    """A formula as MathML, which still has to be sanitised; empty when it cannot be read."""
    if _depth(source) > DEEPEST:
        return ""
    try:
        converter = importlib.import_module("latex2mathml.converter")
        drawn = str(converter.convert(source, display="block" if is_block else "inline"))
    except Exception as error:  # noqa: BLE001 - what nobody can read is shown as it was written
        log.debug("maths.not_read", error=type(error).__name__)
        return ""
    if len(drawn) > MOST_DRAWN * len(source) + 500 or _UNKNOWN.search(drawn):
        return ""
    _, _, rest = drawn.partition(">")
    display = "block" if is_block else "inline"
    return f'<math display="{display}" alttext="{escape(source)}">{rest}'


def _depth(source: str) -> int:
    """The depth to which the braces of a formula nest."""
    braces = deepest = 0
    for sign in source:
        braces += (sign in "{[") - (sign in "}]")
        deepest = max(deepest, braces)
    return deepest


def _drawn(written: str, env: MutableMapping[str, Any]) -> str:
    """A formula of a text, as far as there is room for more of them."""
    source = written.strip("$") if written[0] == "$" else written[2:-2]
    env["maths"] = left = env.get("maths", MOST_MATHS) - len(source)
    is_block = written.startswith(("$$", "\\["))
    return mathml(source.strip(), is_block=is_block) if left >= 0 else ""


CACHED_LENGTH = 8_000  # characters; longer texts are rendered anew, to bound the cache
CACHE_SIZE = 512
PAGE_LEVELS = 2  # of headings, which are those of the page around a text
MOST_COLOURED = 20_000  # characters of code in one text

TAGS = (
    frozenset({"a", "p", "br", "hr", "strong", "em", "s", "del", "code", "pre", "blockquote"})
    | {"span", "sup"}
    | {"ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6"}
    | {"table", "thead", "tbody", "tr", "th", "td"}
    | MATHS_TAGS
)
ATTRIBUTES = {
    "*": frozenset[str](),
    "a": frozenset({"href"}),
    "code": frozenset({"class"}),
    "span": frozenset({"class"}),
    "ol": frozenset({"start"}),
    "th": frozenset({"align"}),
    "td": frozenset({"align"}),
    **MATHS_ATTRIBUTES,
}
URL_SCHEMES = frozenset({"http", "https", "mailto"})

_SLOW = ("```", "~~~", "$", "\\(", "\\[")
# What is framed, and with what: nothing of it is whoever's text, where "<" is written "&lt;".
_FRAMED = re.compile(
    r"<li>(?P<inner>\s*<p>)?\[(?P<box>[ xX])\] |</?(?:pre|table)>"
    r'|<p>(?=\s*<math [^>]*display="block")'
)
_FRAMES = {
    "<pre>": '<div class="code"><pre tabindex="0">',
    "</pre>": "</pre></div>",
    "<table>": '<div class="table" tabindex="0"><table>',
    "</table>": "</table></div>",
}
_LANGUAGE = re.compile(r"language-[\w+#.-]{1,32}")
_ALIGN = re.compile(r"text-align:(left|center|right)")
# ASCII only: Chinese text runs on right behind an address without a space.
_BARE_URL = re.compile(r"https?://[0-9A-Za-z\[][!#-;=?-~]*")
_TRAILING = "?!.,:;*_~'"


def render(markdown: str, *, rich: bool = False) -> str:
    """HTML for a Markdown text: a pure function whose output needs no further care.

    The work grows with the length, whatever the text is. `rich` has code in colours, formulas and
    boxes of tasks drawn, and what may be too wide in a frame that the keyboard can scroll; it may
    take a moment (`takes_long`).
    """
    return (_cached if len(markdown) <= CACHED_LENGTH else _render)(markdown, rich)


def takes_long(markdown: str) -> bool:
    """True when a rich text is better drawn beside everything else."""
    return any(sign in markdown for sign in _SLOW)


def _render(markdown: str, rich: bool = False) -> str:  # noqa: FBT001, FBT002 - as it is cached
    parser = _rich_parser if rich else _parser
    safe = _cleaner.clean(cast("str", parser.render(seen(markdown))))
    return _FRAMED.sub(_framed, safe) if rich else safe


def _framed(found: re.Match[str]) -> str:
    """The replacement for a match of `_FRAMED`: a safe tag, as nothing else is a tag any more."""
    if box := found["box"]:
        return f'<li class="task">{found["inner"] or ""}{"☐" if box == " " else "☑"} '
    return _FRAMES.get(found[0], '<p class="maths" tabindex="0">')


_cached = lru_cache(maxsize=CACHE_SIZE)(_render)


def _allowed(tag: str, attribute: str, value: str) -> str | None:
    if tag == "code" and attribute == "class":
        return value if _LANGUAGE.fullmatch(value) else None
    if tag == "span":
        return value if value in CODE_CLASSES else None
    if tag in MATHS_TAGS:
        return value if is_allowed_maths(attribute, value) else None
    if tag in {"th", "td"} and attribute == "align":
        return value if value in {"left", "center", "right"} else None
    return value


def _align_cells(state: StateCore) -> None:
    """Cells carry their alignment as an attribute: style attributes are never let through."""
    for token in state.tokens:
        style = token.attrs.pop("style", None) if token.type in {"th_open", "td_open"} else None
        if style is not None and (match := _ALIGN.fullmatch(str(style))):
            token.attrSet("align", match[1])


def _lower_headings(state: StateCore) -> None:
    """The highest heading of a text is an h3: h1 and h2 are those of the page it stands in."""
    for token in state.tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(6, int(token.tag[1]) + PAGE_LEVELS)}"


def _link_out(state: StateCore) -> None:
    """Plainly written addresses, and pictures, become links; inside a link they are text."""
    for block in state.tokens:
        if block.type == "inline" and block.children:
            block.children = list(_with_links(block.children))


def _with_links(tokens: list[Token]) -> Iterator[Token]:
    depth = 0
    for token in tokens:
        depth += token.nesting if token.type.startswith("link_") else 0
        if token.type == "image":
            source = str(token.attrGet("src") or "")
            label = token.content or source
            yield from [_text(label)] if depth else _link(source, label)
        elif token.type == "text" and not depth:
            yield from _split(token.content)
        else:
            yield token


def _split(content: str) -> Iterator[Token]:
    end = 0
    for match in _BARE_URL.finditer(content):
        url = _trimmed(match[0])
        yield _text(content[end : match.start()])
        yield from _link(url, url)
        end = match.start() + len(url)
    yield _text(content[end:])


def _link(url: str, label: str) -> list[Token]:
    opening = Token("link_open", "a", 1, attrs={"href": url})
    return [opening, _text(label), Token("link_close", "a", -1)]


def _trimmed(url: str) -> str:
    """An address without the punctuation of the sentence around it."""
    end, unopened = len(url), url.count(")") - url.count("(")
    while url[end - 1] in _TRAILING or (url[end - 1] == ")" and unopened > 0):
        unopened -= url[end - 1] == ")"
        end -= 1
    return url[:end]


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _fence(
    renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: OptionsDict,
    env: MutableMapping[str, Any],
) -> str:
    """A block of code, in colours once it is closed: until then each piece would begin anew."""
    token = tokens[index]
    language = next(iter(unescapeAll(token.info).split()), "")
    left = env.get("coloured", MOST_COLOURED) - len(token.content)
    if language and left >= 0 and _is_closed(token):
        env["coloured"] = left
        if shown := coloured(token.content, language):
            return f'<pre><code class="language-{escapeHtml(language)}">{shown}</code></pre>\n'
    return renderer.fence(tokens, index, options, env)


def _note(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    _env: MutableMapping[str, Any],
) -> str:
    return f"<sup>{tokens[index].content}</sup>"


def _is_closed(token: Token) -> bool:
    if token.map is None or not token.content.endswith("\n"):
        return False
    first, end = token.map
    return token.content.count("\n") == end - first - 2  # the others are the fences


def _build_parser(*, rich: bool) -> Markdown:
    parser = Markdown(breaks=True, maths=_drawn if rich else None, notes=rich)
    if rich:
        parser.add_render_rule("fence", _fence)
        parser.add_render_rule("maths", RendererHTML.html_inline)  # as it was drawn
        parser.add_render_rule("note", _note)
    parser.core.ruler.push("align_cells", _align_cells)
    parser.core.ruler.push("lower_headings", _lower_headings)
    parser.core.ruler.push("link_out", _link_out)
    return parser


_parser, _rich_parser = _build_parser(rich=False), _build_parser(rich=True)
_cleaner = nh3.Cleaner(
    tags=set(TAGS),
    clean_content_tags={"script", "style"},
    attributes={tag: set(names) for tag, names in ATTRIBUTES.items()},
    attribute_filter=_allowed,
    link_rel="noopener noreferrer nofollow",
    set_tag_attribute_values={"a": {"target": "_blank"}},
    url_schemes=set(URL_SCHEMES),
    url_relative="deny",
)
