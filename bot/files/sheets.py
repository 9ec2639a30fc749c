"""Workbooks of Excel and LibreOffice: the cells of each sheet, a row a line, as last shown.

Formulas are not computed: what is read is what the program that saved the file came to.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from datetime import datetime

from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetTypeEnum

from bot.files.opener import Mark
from bot.files.sandbox import Unreadable

WIDEST_GAP = 20  # empty cells between two of a row that are shown as such
_GAP = re.compile(rf"(?:\|  ){{{WIDEST_GAP},}}")


def read(data: bytes) -> Iterator[str | Mark]:
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
