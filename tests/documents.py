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
    """A zip archive with other content in some of its parts, or more of them."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in dict.fromkeys((*old.namelist(), *parts)):
            content = parts[name] if name in parts else old.read(name)
            new.writestr(name, content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _saved(document) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def xlsb_of(words: str) -> bytes:
    """A binary workbook of one cell ([MS-XLSB])."""

    def record(kind: int, payload: bytes = b"") -> bytes:
        number = bytes([kind]) if kind < 0x80 else bytes([kind & 0x7F | 0x80, kind >> 7])
        return number + bytes([len(payload)]) + payload

    def text(words: str) -> bytes:
        return len(words).to_bytes(4, "little") + words.encode("utf-16-le")

    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    book = record(0x83) + record(0x9C, bytes(4) + b"\1\0\0\0" + text("rId1") + text("Binary"))
    book += record(0x90) + record(0x84)
    sheet = record(0x81) + record(0x94, bytes(16)) + record(0x91)
    sheet += record(0x00, bytes(17)) + record(0x06, bytes(8) + text(words)) + record(0x92)
    parts = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": ("officeDocument", "xl/workbook.bin"),
        "xl/_rels/workbook.bin.rels": ("worksheet", "worksheets/sheet1.bin"),
        "xl/workbook.bin": book,
        "xl/worksheets/sheet1.bin": sheet,
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for name, part in parts.items():
            if isinstance(part, tuple):
                link = '<Relationship Id="rId1" Type="{}/{}" Target="{}"/>'.format(relations, *part)
                packed.writestr(name, f"<Relationships>{link}</Relationships>")
            else:
                packed.writestr(name, part)
    return out.getvalue()


def ods_of(words: str, *, rows: str = "", manifest: str = "<manifest/>") -> bytes:
    """A workbook of LibreOffice with one cell, and more rows after that."""
    names = "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "table", "text")
    )
    content = f"""<office:document-content{names}><office:body><office:spreadsheet>
    <table:table table:name="Open"><table:table-row><table:table-cell office:value-type="string">
    <text:p>{words}</text:p></table:table-cell></table:table-row>{rows}</table:table>
    </office:spreadsheet></office:body></office:document-content>"""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        packed.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        packed.writestr("META-INF/manifest.xml", manifest)
        packed.writestr("content.xml", content)
    return out.getvalue()
