"""Pages of HTML: what stands on them, in order, with headings, lists, tables and links as Markdown.

Read as a stream in one pass: nothing is held but the open line, a page may nest as deep as it
likes, and what is not closed costs no more than what is. (The parser of the standard library takes
half a minute for 30 kB of `<a <a <a`.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

_LONGEST_TAG = 20_000  # characters; quotation marks in a longer one are not looked at
_MOST_QUOTED = 20  # ">" in quotation marks, of one tag
_EVERY = 200  # tags, what was found is passed on
_UNSEEN = frozenset({"script", "style", "template", "svg", "math", "noscript", "iframe"})
_HEADINGS = {f"h{level}": f"{'#' * level} " for level in range(1, 7)}
_BLOCKS = frozenset(
    """address article aside blockquote body br caption dd details div dl dt fieldset figcaption
    figure footer form head header hr html legend li main nav ol option p pre section select summary
    table tbody tfoot thead title ul""".split()  # noqa: SIM905
) | frozenset(_HEADINGS)
_NAME = re.compile(r"</?([A-Za-z][A-Za-z0-9]*)")
_HREF = re.compile(r"""\bhref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_LINKS = ("http://", "https://", "mailto:")


def read(page: str) -> Iterator[str]:
    """The text of a page."""
    lines = _Lines()
    at, length = 0, len(page)
    count = 0
    while at < length:
        opens = page.find("<", at)
        if opens < 0:
            opens = length
        lines.add(unescape(page[at:opens]))
        at = _after(page, opens)
        name = _NAME.match(page, opens)
        if name is None:
            if page.startswith(("<!", "<?", "</"), opens):
                continue  # a comment, a declaration
            lines.add(page[opens : opens + 1])
            at = opens + 1
            continue
        tag = name[1].lower()
        if page.startswith("</", opens):
            lines.close(tag)
        elif tag in _UNSEEN:
            at = _after_unseen(page, at, tag)
        else:
            lines.open(tag, page[opens:at] if tag == "a" else "")
        count += 1
        if count % _EVERY == 0:
            yield lines.taken()
    lines.end()
    yield lines.taken()


def _after(page: str, at: int) -> int:
    """Where a tag or a comment that begins here has ended; the page's end when it does not end."""
    if page.startswith("<!--", at):
        end = page.find("-->", at)
        return end + 3 if end >= 0 else len(page)
    first = end = page.find(">", at)
    for _ in range(_MOST_QUOTED):
        if not 0 <= end < at + _LONGEST_TAG:
            break
        if page.count('"', at, end) % 2 == 0:
            return end + 1
        end = page.find(">", end + 1)  # this one is within quotation marks
    return first + 1 if first >= 0 else len(page)


def _after_unseen(page: str, at: int, tag: str) -> int:
    """Where what is not shown of a page has ended."""
    found = re.compile(rf"</{tag}\b", re.IGNORECASE).search(page, at)
    return found.start() if found is not None else len(page)


class _Lines:
    """The lines of a page, as its tags and words come."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._words: list[str] = []
        self._prefix = self._link = ""
        self._link_at = 0  # how many words stood before the open link
        self._cells: list[str] | None = None  # of the open row
        self._is_preformatted = False

    def taken(self) -> str:
        """The lines that have ended since the last time."""
        found = "".join(self._lines)
        self._lines.clear()
        return found

    def add(self, words: str) -> None:
        """Words come."""
        if words:
            self._words.append(words)

    def open(self, tag: str, whole: str) -> None:
        """A tag comes; `whole` is all of it if it is a link's."""
        if tag == "a":
            found = _HREF.search(whole)
            href = unescape(found[1] or found[2] or found[3] or "") if found is not None else ""
            self._link = href if href.startswith(_LINKS) else ""
            self._link_at = len(self._words)
        elif tag == "tr":
            self.end()
            self._cells = []
        elif tag in {"td", "th"}:
            self._end_cell(keeps_empty=False)  # of the one before, if it was not closed
        elif tag in _BLOCKS:
            self._end_block()
            self._prefix = "- " if tag == "li" else _HEADINGS.get(tag, self._prefix)
            self._is_preformatted = self._is_preformatted or tag == "pre"

    def close(self, tag: str) -> None:
        """The end of a tag comes."""
        if tag == "a" and self._link:
            named = " ".join("".join(self._words[self._link_at :]).split())
            if named:
                self._words[self._link_at :] = [f"[{named}]({self._link})"]
            self._link = ""
        elif tag in {"td", "th"}:
            self._end_cell(keeps_empty=True)
        elif tag in {"tr", "table"}:
            self.end()
        elif tag in _BLOCKS:
            self._end_block()
            self._prefix = ""
            self._is_preformatted = self._is_preformatted and tag != "pre"

    def end(self) -> None:
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
