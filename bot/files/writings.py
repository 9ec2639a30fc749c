"""Word documents and PowerPoint presentations: paragraphs, headings, lists and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from bot.files.archive import Archive, End, Event, Start
from bot.files.marks import Mark

MOST_LEVELS = 6  # of headings in Markdown
_HEADING = re.compile(r"heading (\d)")
_TITLES = frozenset({"title", "ctrTitle"})
_FURNITURE = frozenset({"sldNum", "dt", "ftr", "hdr"})  # of every slide: its number, the date …
_MARKED = {"br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_ITEM = "- "
_NOTES = ("footnote", "endnote")


def read_docx(archive: Archive) -> Iterator[str]:
    """The text of a Word document, its notes at the end."""
    styles = _marks(archive.events(archive.related(archive.main, "styles")))
    yield from lines(archive.events(archive.main), styles)
    for note in _NOTES:
        part = archive.related(archive.main, f"{note}s")
        yield from lines(archive.events(part), styles, note=note)


def read_pptx(archive: Archive) -> Iterator[str | Mark]:
    """The text of a presentation, slide by slide, with what is noted for the speaker."""
    slides = archive.relations(archive.main)
    ids = [
        event.attributes.get("r:id", "")
        for event in archive.events(archive.main)
        if isinstance(event, Start) and event.name == "sldId"
    ]
    shown = [slides[id_].target for id_ in ids if id_ in slides]
    for number, part in enumerate(shown, 1):
        yield Mark("slide", number, len(shown))
        yield from lines(archive.events(part), {})
        said = list(lines(archive.events(archive.related(part, "notesSlide")), {}))
        if any(words.strip() for words in said):
            yield "Notes:\n"
            yield from said


def lines(events: Iterable[Event], styles: Mapping[str, str], *, note: str = "") -> Iterator[str]:
    """The paragraphs of a part, each a line; those of a table's row are one.

    `styles` are what paragraphs begin with, by the id of their style; `note` is the element that
    holds each note, in a part of those. An empty paragraph is an empty text.
    """
    flow = _Flow(styles, note)
    for event in events:
        line = flow.take(event)
        if line is not None:
            yield line


class _Flow:
    """What has been read of a part so far: the open paragraph, and the tables around it."""

    def __init__(self, styles: Mapping[str, str], note: str) -> None:
        self._styles = styles
        self._note = note
        self._words: list[str] = []
        self._prefix = self._label = self._placeholder = ""
        self._cells: list[list[str]] = []  # of each table that is open, the texts of its cell
        self._rows: list[list[str]] = []  # … and the cells of its row
        self._in_text = self._in_run = False
        self._skipped = 0  # levels of what is shown in another way already

    def take(self, event: Event) -> str | None:
        """A line, when one ends with this."""
        if self._skipped:
            if isinstance(event, Start):
                self._skipped += 1
            elif isinstance(event, End):
                self._skipped -= 1
            return None
        if isinstance(event, str):
            if self._in_text:
                self._words.append(event)
            return None
        return self._start(event) if isinstance(event, Start) else self._end(event.name)

    def _start(self, event: Start) -> str | None:
        name, about = event.name, event.attributes
        if name == "p":
            return self._paragraph()  # of what it stands in, if it is a text box
        if name in {"t", "r"}:
            self._in_text = name == "t"
            self._in_run = self._in_run or name == "r"
        elif name in _MARKED:
            self._words.append(_MARKED[name])
        elif name == "tab" and self._in_run:
            self._words.append("\t")
        elif name == "tr":
            self._rows.append([])
        elif name == "tc" and self._rows:
            self._cells.append([])
        elif name == "Fallback":
            self._skipped = 1
        else:
            self._describe(name, about)
        return None

    def _describe(self, name: str, about: Mapping[str, str]) -> None:
        """Take what says of what kind a paragraph is."""
        if name == "pStyle":
            self._prefix = self._styles.get(about.get("val", ""), self._prefix)
        elif name == "numId" and about.get("val") != "0":
            self._prefix = self._prefix or _ITEM
        elif name in {"sp", "ph"}:
            self._placeholder = about.get("type", "") if name == "ph" else ""
        elif name == self._note:
            self._label = f"[^{about.get('id', '')}]: "
        elif name in {"footnoteReference", "endnoteReference"}:
            self._words.append(f"[^{about.get('id', '')}]")

    def _end(self, name: str) -> str | None:
        match name:
            case "t":
                self._in_text = False
            case "r":
                self._in_run = False
            case "p":
                return self._paragraph() or ""
            case "tc" if self._rows:
                self._rows[-1].append(" ".join(self._cells.pop()))
            case "tr" if self._rows:
                return self._line(f"| {' | '.join(self._rows.pop())} |")
            case _:
                pass
        return None

    def _paragraph(self) -> str | None:
        words, prefix = "".join(self._words).strip(), self._prefix
        self._words.clear()
        self._prefix = ""
        if not words or self._placeholder in _FURNITURE:
            return None
        if self._cells:
            return self._line(" ".join(words.split("\n")))
        label, self._label = self._label, ""
        return self._line(f"{label}{'## ' if self._placeholder in _TITLES else prefix}{words}")

    def _line(self, words: str) -> str | None:
        """A line of its own, or a part of the cell it stands in."""
        if not self._cells:
            return f"{words}\n"
        self._cells[-1].append(words)
        return None


def _marks(events: Iterable[Event]) -> dict[str, str]:
    """What headings and lists begin with, by the id of their style.

    Ids are in the language of the program that wrote them, names are not.
    """
    marks: dict[str, str] = {}
    style = ""
    for event in events:
        if not isinstance(event, Start):
            continue
        value = event.attributes.get("val", "").lower()
        if event.name == "style":
            style = event.attributes.get("styleId", "")
        elif event.name == "name" and value == "title":
            marks[style] = "# "
        elif event.name == "name" and (found := _HEADING.fullmatch(value)) is not None:
            marks[style] = f"{'#' * min(int(found[1]), MOST_LEVELS)} "
        elif event.name == "numPr":
            marks.setdefault(style, _ITEM)
    return marks
