"""Markdown to HTML that is safe to put into a page, whoever wrote it.

Two walls: the parser never lets HTML through, and the sanitiser keeps only what is listed here.
Pictures become links, so opening a chat never tells another server that it was read. Where a page
asks for it, blocks of code that are closed have colours, and formulas are MathML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, cast

import nh3
from markdown_it.common.utils import escapeHtml, unescapeAll
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from bot.channel.kit import code_html, maths_html
from bot.channel.kit.markdown import Markdown
from bot.channel.kit.text import seen

CACHED_LENGTH = 8_000  # characters; longer texts are rendered anew, to bound the cache
CACHE_SIZE = 512
PAGE_LEVELS = 2  # of headings, which are those of the page around a text
MOST_COLOURED = 20_000  # characters of code in one text

TAGS = (
    frozenset({"a", "p", "br", "hr", "strong", "em", "s", "del", "code", "pre", "blockquote"})
    | {"span"}
    | {"ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6"}
    | {"table", "thead", "tbody", "tr", "th", "td"}
    | maths_html.TAGS
)
ATTRIBUTES = {
    "*": frozenset[str](),
    "a": frozenset({"href"}),
    "code": frozenset({"class"}),
    "span": frozenset({"class"}),
    "ol": frozenset({"start"}),
    "th": frozenset({"align"}),
    "td": frozenset({"align"}),
    **maths_html.ATTRIBUTES,
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
    """What `_FRAMED` finds: a tag that was made safe, for nothing else is one any more."""
    if box := found["box"]:
        return f'<li class="task">{found["inner"] or ""}{"☐" if box == " " else "☑"} '
    return _FRAMES.get(found[0], '<p class="maths" tabindex="0">')


_cached = lru_cache(maxsize=CACHE_SIZE)(_render)


def _allowed(tag: str, attribute: str, value: str) -> str | None:
    if tag == "code" and attribute == "class":
        return value if _LANGUAGE.fullmatch(value) else None
    if tag == "span":
        return value if value in code_html.CLASSES else None
    if tag in maths_html.TAGS:
        return value if maths_html.is_allowed(attribute, value) else None
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
        if shown := code_html.coloured(token.content, language):
            return f'<pre><code class="language-{escapeHtml(language)}">{shown}</code></pre>\n'
    return renderer.fence(tokens, index, options, env)


def _is_closed(token: Token) -> bool:
    if token.map is None or not token.content.endswith("\n"):
        return False
    first, end = token.map
    return token.content.count("\n") == end - first - 2  # the others are the fences


def _build_parser(*, rich: bool) -> Markdown:
    parser = Markdown(breaks=True)
    if rich:
        parser.add_render_rule("fence", _fence)
        maths_html.add_to(parser)
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
