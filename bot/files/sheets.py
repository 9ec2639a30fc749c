"""Excel workbooks: the cells of each sheet, a row a line, as they were last shown.

Formulas are not computed: what stands beside them is what the program that saved the file came to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.files.archive import Archive, End, Start
from bot.files.marks import Mark
from bot.files.sandbox import Unreadable

MOST_SHARED = 20_000_000  # characters that cells of a workbook share
WIDEST_GAP = 20  # empty cells between two of a row that are shown as such
_DATES = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
_NOT_CODE = re.compile(r'"[^"]*"|\\.|_.|\[(?!h|m|s)[^\]]*\]', re.IGNORECASE)
_DATE_CODE = re.compile(r"[dmyhs]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Book:
    """What the cells of a workbook refer to."""

    shared: tuple[str, ...]
    dates: frozenset[int]  # the styles of cells that show a date or a time
    epoch: datetime


def read(archive: Archive) -> Iterator[str | Mark]:
    """The text of a workbook, sheet by sheet."""
    sheets: list[tuple[str, str]] = []
    from_1904 = False
    for event in archive.events(archive.main):
        if isinstance(event, Start) and event.name == "sheet":
            sheets.append((event.attributes.get("name", ""), event.attributes.get("r:id", "")))
        elif isinstance(event, Start) and event.name == "workbookPr":
            from_1904 = event.attributes.get("date1904") in {"1", "true"}
    book = _Book(
        _shared(archive),
        _dates(archive),
        datetime(1904, 1, 1) if from_1904 else datetime(1899, 12, 30),  # noqa: DTZ001 - as shown
    )
    parts = archive.relations(archive.main)
    for number, (name, id_) in enumerate(sheets, 1):
        yield Mark("sheet", number, len(sheets), name)
        if id_ in parts:
            yield from _rows(archive, parts[id_].target, book)


def _rows(archive: Archive, part: str, book: _Book) -> Iterator[str]:
    """The rows of a sheet that have something in them; an empty one is an empty text."""
    cells: list[str] = []
    words: list[str] = []
    is_value = False
    column, kind, style = 0, "", 0
    for event in archive.events(part):
        if isinstance(event, str):
            if is_value:
                words.append(event)
        elif isinstance(event, Start):
            if event.name == "c":
                at = _column(event.attributes.get("r", "")) or column + 1
                cells.extend([""] * min(max(0, at - column - 1), WIDEST_GAP))
                column, kind = at, event.attributes.get("t", "n")
                style = _number(event.attributes.get("s", ""))
                words.clear()
            is_value = event.name in {"v", "t"}
        elif event.name == "c":
            cells.append(_shown("".join(words), kind, style, book))
        elif event.name == "row":
            while cells and not cells[-1]:
                cells.pop()
            yield f"| {' | '.join(cells)} |\n" if cells else ""
            cells.clear()
            column = 0
        else:
            is_value = False


def _shown(value: str, kind: str, style: int, book: _Book) -> str:
    """A cell's value as a person reads it, on one line."""
    if kind == "s":
        number = _number(value)
        value = book.shared[number] if value and number < len(book.shared) else ""
    elif kind == "b":
        value = "TRUE" if value == "1" else "FALSE"
    elif kind == "n" and value:
        value = _figure(value, book if style in book.dates else None)
    return " ".join(value.split()).replace("|", "\\|")


def _figure(value: str, dated: _Book | None) -> str:
    try:
        number = float(value)
        if dated is None:
            return f"{number:.15g}"
        return _moment(number, dated.epoch)
    except (ValueError, OverflowError):
        return value


def _moment(days: float, epoch: datetime) -> str:
    """What a number of days since the epoch stands for: a day, a time of one, or both."""
    seconds = round(days * 86_400)
    if not seconds:
        return "0:00"
    if 0 < seconds < 86_400:
        return str(timedelta(seconds=seconds))
    if epoch.year == 1899 and days < 60:  # the first of these had a 29th of February
        seconds += 86_400
    at = epoch + timedelta(seconds=seconds)
    return f"{at:%Y-%m-%d}" if seconds % 86_400 == 0 else f"{at:%Y-%m-%d %H:%M:%S}"


def _shared(archive: Archive) -> tuple[str, ...]:
    """The texts that cells refer to by number, without how they are to be pronounced."""
    found: list[str] = []
    words: list[str] = []
    is_text, spoken, size = False, 0, 0
    for event in archive.events(archive.related(archive.main, "sharedStrings")):
        if isinstance(event, str):
            if is_text and not spoken:
                words.append(event)
                size += len(event)
                if size > MOST_SHARED:
                    raise Unreadable("unpacks")
        elif isinstance(event, Start):
            is_text = event.name == "t"
            spoken += event.name == "rPh"
        else:
            is_text = False
            spoken -= event.name == "rPh"
            if event.name == "si":
                found.append("".join(words))
                words.clear()
    return tuple(found)


def _dates(archive: Archive) -> frozenset[int]:
    """The numbers of the styles that show a cell's number as a date or a time."""
    formats: set[int] = set(_DATES)
    styles: list[int] = []
    is_cells = False
    for event in archive.events(archive.related(archive.main, "styles")):
        if isinstance(event, End):
            is_cells = is_cells and event.name != "cellXfs"
        elif isinstance(event, Start):
            if event.name == "numFmt":
                number = _number(event.attributes.get("numFmtId", ""))
                code = _NOT_CODE.sub("", event.attributes.get("formatCode", "")).split(";")[0]
                is_date = code.lower() != "general" and _DATE_CODE.search(code) is not None
                (formats.add if is_date else formats.discard)(number)
            elif event.name == "cellXfs":
                is_cells = True
            elif event.name == "xf" and is_cells:
                styles.append(_number(event.attributes.get("numFmtId", "")))
    return frozenset(at for at, number in enumerate(styles) if number in formats)


def _column(reference: str) -> int:
    """The number of the column a cell such as "AB12" stands in, from 1; 0 when it does not say."""
    number = 0
    for letter in reference[:3]:
        if not "A" <= letter <= "Z":
            break
        number = number * 26 + ord(letter) - 64
    return number


def _number(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else 0
