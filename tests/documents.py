"""Documents for tests, made by other programs than the one that reads them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import docx
import pptx
import xlsxwriter


def docx_of(document) -> bytes:
    """A Word document, of itself or of one paragraph."""
    if isinstance(document, str):
        words, document = document, docx.Document()
        document.add_paragraph(words)
    return _saved(document)


def xlsx_of(book) -> bytes:
    """A workbook, of itself or of one cell."""
    if isinstance(book, str):
        return shared_xlsx_of([[book]])
    return _saved(book)


def shared_xlsx_of(rows, **options) -> bytes:
    """A workbook as most programs write it: its cells share their texts."""
    out = io.BytesIO()
    options = {"in_memory": True, "default_date_format": "dd/mm/yy", **options}
    with xlsxwriter.Workbook(out, options) as book:
        sheet = book.add_worksheet("Shared")
        for number, row in enumerate(rows):
            sheet.write_row(number, 0, row)
    return out.getvalue()


def pptx_of(shown) -> bytes:
    """A presentation, of itself or of one title."""
    if isinstance(shown, str):
        words, shown = shown, pptx.Presentation()
        shown.slides.add_slide(shown.slide_layouts[5]).shapes.title.text = words
    return _saved(shown)


def pdf_of(*pages: str) -> bytes:
    """A PDF with a line of ASCII on each page."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>"]
    kids = b" ".join(b"%d 0 R" % (4 + 2 * n) for n in range(len(pages)))
    objects.append(b"<</Type/Pages/Count %d/Kids[%s]>>" % (len(pages), kids))
    objects.append(b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
    for number, words in enumerate(pages):
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Resources<</Font<</F 3 0 R>>>>"
            b"/Contents %d 0 R>>" % (5 + 2 * number)
        )
        drawn = b"BT /F 12 Tf 10 100 Td (%s) Tj ET" % words.encode() if words else b""
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(drawn), drawn))
    out, places = io.BytesIO(b"%PDF-1.4\n"), []
    out.seek(0, io.SEEK_END)
    for number, each in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, each))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % place for place in places))
    out.write(b"trailer<</Size %d/Root 1 0 R>>\n" % (len(objects) + 1))
    out.write(b"startxref\n%d\n%%%%EOF\n" % start)
    return out.getvalue()


def changed(data: bytes, parts: Mapping[str, bytes]) -> bytes:
    """A zip archive with other content in some of its parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, parts.get(name, old.read(name)), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _saved(document) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()
