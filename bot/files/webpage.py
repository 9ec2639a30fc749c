"""What a page of the web says itself, without the menus and notices around it.

Runs in a bounded process: whoever made the page chose what it is made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from bot.files import html

LONGEST = 1_000_000  # characters of HTML; in a longer page nothing is told apart
_TITLE = re.compile(r"<title\b[^<>]{0,200}>([^<]{1,1000})", re.IGNORECASE)


def read(page: str, url: str) -> Iterator[str]:
    """The text of a page, with links as they are from outside; `url` is where it is."""
    own = _own_words(page, url) if len(page) <= LONGEST else ""
    if not own:
        yield from html.read(page)
        return
    title = _title(page)
    if title and title not in own[: len(title) + 4]:
        yield f"# {title}\n"
    yield f"{own}\n"


def _own_words(page: str, url: str) -> str:
    """What the page is about, as Markdown; empty where that cannot be told."""
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
