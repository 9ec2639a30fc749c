"""Word documents and PowerPoint presentations: paragraphs, headings, lists and tables.

Each part of the zip archive is read as a stream of its paragraphs and tables, so that no tree of it
is ever held. python-docx and python-pptx hold one, refuse docm and ppsx, and leave out footnotes,
text boxes, content controls and what was inserted while changes were tracked. Formats: ECMA-376,
parts 1 and 2.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib import import_module
from typing import Any, Final

from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetTypeEnum

from bot.files.opener import Mark
from bot.files.sandbox import Unreadable

# Workbooks of Excel and LibreOffice: the cells of each sheet, a row a line, as last shown.
#
# Formulas are not computed: what is read is what the program that saved the file came to.

WIDEST_GAP = 20  # empty cells between two of a row that are shown as such
_GAP = re.compile(rf"(?:\|  ){{{WIDEST_GAP},}}")


def read_sheets(data: bytes) -> Iterator[str | Mark]:
    """The text of a workbook (xlsx, xlsm, xlsb, xls or ods), sheet by sheet.

    Raises:
        Unreadable: it needs a password, is damaged, or is another file of Office before 2007.
    """
    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(data))
    except PasswordError:
        raise Unreadable("encrypted") from None
    except CalamineError:  # what is no workbook may be a file of Word or PowerPoint before 2007
        raise Unreadable("damaged" if data.startswith(b"PK") else "old") from None
    sheets = book.sheets_metadata
    for number, about in enumerate(sheets, 1):
        yield Mark("sheet", number, len(sheets), about.name)
        if about.typ == SheetTypeEnum.WorkSheet:
            sheet = book.get_sheet_by_name(about.name)
            before = [""] * (sheet.start or (0, 0))[1]  # columns without any cell
            for row in sheet.iter_rows():
                cells = [*before, *map(_shown, row)]
                while cells and not cells[-1]:
                    cells.pop()
                line = _GAP.sub("|  " * WIDEST_GAP, f"| {' | '.join(cells)} |")
                yield f"{line}\n" if cells else ""


def _shown(value: object) -> str:
    """A cell's value as a person reads it, on one line."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return " ".join(str(value).split()).replace("|", "\\|")


MOST_UNPACKED = 200_000_000  # bytes
MOST_PARTS = 50_000
MOST_LEVELS = 6  # of headings in Markdown
_HEADING = re.compile(r"heading (\d)")
_TITLES = frozenset({"title", "ctrTitle"})
_FURNITURE = frozenset({"sldNum", "dt", "ftr", "hdr"})  # of every slide: its number, the date …
_SHOWN: Final = tuple(
    f"{{*}}{name}"
    for name in (
        "t",
        "tab",
        "noBreakHyphen",
        "footnoteReference",
        "endnoteReference",
        "p",
        "br",
        "cr",
    )
)
_GONE = ("{*}Fallback", "{*}moveFrom")  # shown in another way, or elsewhere
_ODS = b"application/vnd.oasis.opendocument.spreadsheet"
_ITEM = "- "

etree: Any = import_module("lxml.etree")  # it has no types
Element = Any
Styles = Mapping[str, str]  # what paragraphs begin with, by the id of their style


def read(data: bytes) -> Iterator[str | Mark]:
    """The text of an Office file that is a zip archive.

    Raises:
        Unreadable: it is no such archive, or unpacks to too much.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, OSError):
        raise Unreadable("damaged") from None
    members = archive.infolist()
    if len(members) > MOST_PARTS or sum(each.file_size for each in members) > MOST_UNPACKED:
        raise Unreadable("unpacks")
    return _Parts(archive).read(data)


class _Parts:
    """The parts of an archive; they refer to each other by ids."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._names = frozenset(archive.namelist())

    def read(self, data: bytes) -> Iterator[str | Mark]:
        """The text of the whole, by what it is."""
        main = self._related("", "officeDocument")
        if main.endswith("workbook.bin"):
            return read_sheets(data)
        if "mimetype" in self._names and self._archive.read("mimetype") == _ODS:
            if b"encryption-data" in self._archive.read("META-INF/manifest.xml"):
                raise Unreadable("encrypted")
            return read_sheets(data)
        if main not in self._names:
            # A program, a book, a folder of files: many things are zip archives.
            raise Unreadable("damaged" if "[Content_Types].xml" in self._names else "type")
        match next((_name(each) for each in self._elements(main, starts=True)), ""):
            case "document":
                return self._document(main)
            case "presentation":
                return self._presentation(main)
            case "workbook":
                return read_sheets(data)
            case _:
                raise Unreadable("type")

    def _document(self, main: str) -> Iterator[str]:
        """The text of a Word document, its notes at the end."""
        styles = self._styles(self._related(main, "styles"))
        yield from self._lines(main, styles)
        yield from self._lines(self._related(main, "footnotes"), styles)
        yield from self._lines(self._related(main, "endnotes"), styles)

    def _presentation(self, main: str) -> Iterator[str | Mark]:
        """The text of a presentation, slide by slide, with what is noted for the speaker."""
        parts = {id_: target for id_, _, target in self._relations(main)}
        slides = [_value(each, "id") for each in self._elements(main, "sldId")]
        shown = [parts[id_] for id_ in slides if id_ in parts]
        for number, slide in enumerate(shown, 1):
            yield Mark("slide", number, len(shown))
            yield from self._lines(slide, {})
            notes = list(self._lines(self._related(slide, "notesSlide"), {}))
            if any(words.strip() for words in notes):
                yield "Notes:\n"
                yield from notes

    def _lines(self, part: str, styles: Styles) -> Iterator[str]:
        """The paragraphs of a part, each a line; those of a table's row are one."""
        for element in self._elements(part, "p", "tbl"):
            if next(element.iterancestors("{*}p", "{*}tbl"), None) is not None:
                continue  # read with what it is in
            etree.strip_elements(element, *_GONE, with_tail=False)
            yield _table(element) if _name(element) == "tbl" else _paragraph(element, styles)
            element.clear()

    def _styles(self, part: str) -> Styles:
        """The marks of headings and lists.

        Ids are in the language of the program that wrote them, names are not.
        """
        marks: dict[str, str] = {}
        for style in self._elements(part, "style"):
            name = _value(style.find("{*}name"), "val").lower()
            if name == "title":
                mark = "# "
            elif (found := _HEADING.fullmatch(name)) is not None:
                mark = f"{'#' * min(int(found[1]), MOST_LEVELS)} "
            else:
                mark = _ITEM if style.find(".//{*}numPr") is not None else ""
            marks[_value(style, "styleId")] = mark
        return marks

    def _related(self, part: str, kind: str) -> str:
        """The first part of a kind that a part refers to; empty when there is none."""
        return next((target for _, each, target in self._relations(part) if each == kind), "")

    def _relations(self, part: str) -> Iterator[tuple[str, str, str]]:
        """The references of a part within the archive: the id, the kind and the name of each."""
        folder, name = posixpath.split(part)
        for each in self._elements(posixpath.join(folder, "_rels", f"{name}.rels"), "Relationship"):
            if _value(each, "TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, _value(each, "Target")))
                kind = _value(each, "Type").rpartition("/")[2]
                yield _value(each, "Id"), kind, target.lstrip("/")

    def _elements(self, part: str, *names: str, starts: bool = False) -> Iterator[Element]:
        """The elements of a part with one of these names, as they end; none without such a part."""
        if part not in self._names:
            return
        with self._archive.open(part) as source:
            for _, element in etree.iterparse(
                source,
                events=("start",) if starts else ("end",),
                tag=[f"{{*}}{name}" for name in names] or None,
                resolve_entities=False,
                no_network=True,
            ):
                yield element


def _paragraph(paragraph: Element, styles: Styles) -> str:
    """A line; empty when the paragraph is."""
    words = _words(paragraph).strip()
    shape = next(paragraph.iterancestors("{*}sp"), None)
    kind = "" if shape is None else _value(shape.find(".//{*}ph"), "type")
    if not words or kind in _FURNITURE:
        return ""
    about = paragraph.find("{*}pPr")
    prefix = "## " if kind in _TITLES else ""
    if about is not None and not prefix:
        prefix = styles.get(_value(about.find("{*}pStyle"), "val"), "")
        if not prefix and _value(about.find(".//{*}numId"), "val") not in {"", "0"}:
            prefix = _ITEM
    note = next(paragraph.iterancestors("{*}footnote", "{*}endnote"), None)
    if note is not None and note[0] is paragraph:
        prefix = f"[^{_value(note, 'id')}]: "
    return f"{prefix}{words}\n"


def _table(table: Element) -> str:
    """The rows of a table; tables within it are part of the cells they are in."""
    lines: list[str] = []
    for row in table.iter("{*}tr"):
        if next(row.iterancestors("{*}tbl"), None) is table:
            cells = (c for c in row.iter("{*}tc") if next(c.iterancestors("{*}tr"), None) is row)
            texts = (" ".join(_words(cell).split()).replace("|", "\\|") for cell in cells)
            lines.append(f"| {' | '.join(texts)} |\n")
    return "".join(lines)


def _words(element: Element) -> str:
    """The words of a paragraph or a cell, and of the text boxes in it."""
    found: list[str] = []
    for each in element.iter(*_SHOWN):
        match _name(each):
            case "t":
                found.append(each.text or "")
            case "tab":
                is_typed = _name(each.getparent()) == "r"  # and not one of the paragraph's stops
                found.append("\t" if is_typed else "")
            case "noBreakHyphen":
                found.append("-")
            case "footnoteReference" | "endnoteReference":
                found.append(f"[^{_value(each, 'id')}]")
            case _:
                found.append("\n")
    return "".join(found)


def _name(element: Element) -> str:
    """The name of an element, without its namespace."""
    return etree.QName(element).localname


def _value(element: Element, name: str) -> str:
    """An attribute without its namespace, that with one first; empty when there is none."""
    found = () if element is None else sorted(element.items(), reverse=True)
    return next((value for key, value in found if key.rpartition("}")[2] == name), "")
