"""Pages of HTML: what is on them, in order, with headings, lists, tables and links as Markdown.

lxml's parser passes on events and builds no tree: a page may nest as deep as it likes, and what is
not closed costs no more than what is. (The parser of the standard library takes half a minute for
30 kB of `<a <a <a`.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from html import unescape
from importlib import import_module
from typing import Any

_CHUNK = 50_000  # characters after which what was found is passed on
_UNSEEN = frozenset({"script", "style", "template", "svg", "math", "noscript", "iframe"})
_HEADINGS = {f"h{level}": f"{'#' * level} " for level in range(1, 7)}
_BLOCKS = frozenset(
    """address article aside blockquote body br caption dd details div dl dt fieldset figcaption
    figure footer form head header hr html legend li main nav ol option p pre section select summary
    table tbody tfoot thead title ul""".split()  # noqa: SIM905
) | frozenset(_HEADINGS)
_LINKS = ("http://", "https://", "mailto:")
etree: Any = import_module("lxml.etree")  # it has no types


def read(page: str) -> Iterator[str]:
    """The text of a page."""
    lines = _Lines()
    parser = etree.HTMLParser(target=lines)
    for at in range(0, len(page), _CHUNK):
        parser.feed(page[at : at + _CHUNK])
        yield lines.taken()
    with suppress(etree.XMLSyntaxError):  # there is no element at all
        parser.close()
    yield lines.taken()


class _Lines:
    """The lines of a page, as its tags and words come."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._words: list[str] = []
        self._prefix = self._link = ""
        self._link_at = 0  # how many words stood before the open link
        self._cells: list[str] | None = None  # of the open row
        self._is_preformatted = False
        self._hidden = 0  # elements that are not shown, around this

    def taken(self) -> str:
        """The lines that have ended since the last time."""
        found = "".join(self._lines)
        self._lines.clear()
        return found

    def data(self, words: str) -> None:
        """Words come."""
        if not self._hidden:
            self._words.append(words)

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """A tag comes."""
        if tag in _UNSEEN:
            self._hidden += 1
        elif tag == "a":
            href = attributes.get("href", "")
            self._link = href if href.startswith(_LINKS) else ""
            self._link_at = len(self._words)
        elif tag == "tr":
            self.close()
            self._cells = []
        elif tag in {"td", "th"}:
            self._end_cell(keeps_empty=False)  # of the one before, if it was not closed
        elif tag in _BLOCKS:
            self._end_block()
            self._prefix = "- " if tag == "li" else _HEADINGS.get(tag, self._prefix)
            self._is_preformatted = self._is_preformatted or tag == "pre"

    def end(self, tag: str) -> None:
        """The end of a tag comes."""
        if tag in _UNSEEN:
            self._hidden -= 1
        elif tag == "a" and self._link:
            named = " ".join("".join(self._words[self._link_at :]).split())
            if named:
                self._words[self._link_at :] = [f"[{named}]({self._link})"]
            self._link = ""
        elif tag in {"td", "th"}:
            self._end_cell(keeps_empty=True)
        elif tag in {"tr", "table"}:
            self.close()
        elif tag in _BLOCKS:
            self._end_block()
            self._prefix = ""
            self._is_preformatted = self._is_preformatted and tag != "pre"

    def close(self) -> None:
        """End the open line, or the open row of a table."""
        if self._cells is None:
            self._end_block()
            return
        self._end_cell(keeps_empty=False)
        cells, self._cells = self._cells, None
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            self._lines.append(f"| {' | '.join(cells)} |\n")

    def _end_cell(self, *, keeps_empty: bool) -> None:
        if self._cells is None:
            self._end_block()
            return
        words = self._flat()
        if words or keeps_empty:
            self._cells.append(words.replace("|", "\\|"))

    def _end_block(self) -> None:
        if self._cells is not None:
            self._words.append(" ")  # of a paragraph in a cell
            return
        words = "".join(self._words).strip("\n") if self._is_preformatted else self._flat()
        self._words.clear()
        self._link = ""
        if words:
            self._lines.append(f"{self._prefix}{words}\n")
            self._prefix = ""

    def _flat(self) -> str:
        words = " ".join("".join(self._words).split())
        self._words.clear()
        return words


# What a page of the web says itself, without the menus and notices around it.
#
# Runs in a bounded process: whoever made the page chose what it is made of.

LONGEST_WEBPAGE = 1_000_000  # characters of HTML; in a longer page nothing is told apart
_TITLE = re.compile(r"<title\b[^<>]{0,200}>([^<]{1,1000})", re.IGNORECASE)


def read_webpage(page: str, url: str) -> Iterator[str]:
    """The text of a page, with links as they are from outside; `url` is where it is."""
    own = _own_words(page, url) if len(page) <= LONGEST_WEBPAGE else ""
    if not own:
        yield from read(page)
        return
    title = _title(page)
    if title and title not in own[: len(title) + 4]:
        yield f"# {title}\n"
    yield f"{own}\n"


def _own_words(page: str, url: str) -> str:
    """The main part of the page as Markdown; empty if it cannot be told."""
    from trafilatura import extract  # noqa: PLC0415 - loaded with the first page

    try:
        found = extract(
            page,
            url=url,
            output_format="markdown",
            include_links=True,
            include_comments=False,
            favor_recall=True,
        )
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - it may raise anything for a page made to harm
        return ""
    return found or ""


def _title(page: str) -> str:
    found = _TITLE.search(page)
    return " ".join(unescape(found[1]).split()) if found is not None else ""
