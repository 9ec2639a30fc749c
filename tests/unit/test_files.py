"""Files as text: documents and pages, opened in a process of their own."""

import asyncio
import io
import os
import signal
import subprocess
import sys
import zipfile
from datetime import date, datetime, time
from functools import cache
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pypdf import PdfReader, PdfWriter

from bot.files import documents, html, office, program
from bot.files import pictures as decoding
from bot.files.documents import collected, text_of
from bot.files.opener import MARK, FileReader, Limits, Mark, Opener, mark_of
from bot.files.sandbox import Unreadable
from bot.shares import Budget, Share
from bot.storage.records import MetaStore
from bot.storage.sqlite import SqliteDatabase
from bot.unicode import decoded
from tests.documents import (
    changed,
    docx_of,
    ods_of,
    pdf_of,
    pptx_of,
    shared_xlsx_of,
    xlsb_of,
    xlsx_of,
)
from tests.proofs.rounds import long
from tests.support import FakeClock

BILLION = b"""<?xml version="1.0"?><!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>
<w:document xmlns:w="w"><w:body><w:p><w:r><w:t>&b;</w:t></w:r></w:p></w:body></w:document>"""
OUTSIDE = b"""<?xml version="1.0"?><!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<w:document xmlns:w="w"><w:body><w:p><w:r><w:t>&x;</w:t></w:r></w:p></w:body></w:document>"""

BOOK = Path(__file__).parents[1] / "data" / "book.xls"
OLD = "[sheet 1 of 2: Old]\n| tea | 0.1 | TRUE |\n| 2024-02-29 | 牛奶 |\n[sheet 2 of 2: No]\n"


def refusal(data: bytes, content_type: str = "", name: str = "") -> str:
    head = {"task": "document", "content_type": content_type, "name": name}
    return program.answer(head, data)[0].get("reason", "")


# --- what other programs wrote -------------------------------------------------------------------


def test_a_word_document_keeps_headings_lists_tables_and_the_order_of_things():
    document = docx.Document()
    document.add_heading("Plan", 0)
    document.add_heading("Monday", 2)
    document.add_paragraph("Buy tea\tand 牛奶")
    document.add_paragraph("green", style="List Bullet")
    table = document.add_table(2, 2)
    table.cell(0, 0).text, table.cell(0, 1).text, table.cell(1, 1).text = "what", "how\nmany", "3"
    document.add_paragraph("The end")
    assert text_of(docx_of(document)).text == (
        "# Plan\n## Monday\nBuy tea\tand 牛奶\n- green\n| what | how many |\n|  | 3 |\nThe end\n"
    )


def test_a_word_document_loses_none_of_its_words():
    body = b"""<w:document xmlns:w="urn:w" xmlns:mc="urn:mc"><w:body>
    <w:p><w:pPr><w:pStyle w:val="Unheard"/><w:tabs><w:tab/></w:tabs></w:pPr>
    <w:r><w:t>kept</w:t></w:r><w:ins><w:r><w:t>, inserted</w:t></w:r></w:ins>
    <w:del><w:r><w:delText>gone</w:delText></w:r></w:del>
    <mc:AlternateContent><mc:Choice><w:r><w:txbxContent><w:p><w:r><w:t>box</w:t></w:r></w:p>
    </w:txbxContent></w:r></mc:Choice><mc:Fallback><w:r><w:t>box</w:t></w:r></mc:Fallback>
    </mc:AlternateContent></w:p>
    <w:sdt><w:sdtContent><w:p><w:r><w:t>control</w:t><w:tab/></w:r></w:p></w:sdtContent></w:sdt>
    <w:p><w:r><w:t>noted</w:t><w:footnoteReference w:id="2"/></w:r></w:p>
    </w:body></w:document>"""
    notes = b"""<w:footnotes xmlns:w="urn:w"><w:footnote w:id="2">
    <w:p><w:r><w:t>first</w:t></w:r></w:p><w:p><w:r><w:t>second</w:t></w:r></w:p></w:footnote></w:footnotes>"""
    links = b"""<Relationships><Relationship Id="a" Type="x/footnotes" Target="notes.xml"/>
    </Relationships>"""
    parts = {
        "word/document.xml": body,
        "word/notes.xml": notes,
        "word/_rels/document.xml.rels": links,
    }
    assert text_of(changed(docx_of(docx.Document()), parts)).text == (
        "kept, inserted\nbox\ncontrol\nnoted[^2]\n[^2]: first\nsecond\n"
    )


def test_a_table_in_a_cell_is_part_of_that_cell():
    document = docx.Document()
    cell = document.add_table(1, 2).cell(0, 0)
    cell.text = "a|b"
    cell.add_table(1, 1).cell(0, 0).text = "inner"
    assert text_of(docx_of(document)).text == "| a\\|b inner |  |\n"


@pytest.mark.parametrize(
    ("make", "plain", "kind"),
    [
        (
            docx_of,
            "openxmlformats-officedocument.wordprocessingml.document.main",
            "ms-word.document.macroEnabled.main",
        ),
        (pptx_of, "presentationml.presentation.main", "presentationml.slideshow.main"),
    ],
)
def test_files_with_macros_and_slide_shows_are_read_like_others(make, plain, kind):
    data = make("words")
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        types = packed.read("[Content_Types].xml").decode()
    assert plain in types
    other = types.replace(plain, kind).encode()
    assert "words" in text_of(changed(data, {"[Content_Types].xml": other})).text


def test_a_presentation_is_read_slide_by_slide_with_its_notes():
    shown = pptx.Presentation()
    slide = shown.slides.add_slide(shown.slide_layouts[1])
    slide.shapes.title.text, slide.placeholders[1].text = "Tea", "green\nblack"
    slide.notes_slide.notes_text_frame.text = "offer a cup"
    slide = shown.slides.add_slide(shown.slide_layouts[5])
    slide.shapes.add_table(1, 2, 0, 0, 9, 9).table.cell(0, 1).text = "cell"
    extract = text_of(pptx_of(shown))
    assert extract.text == (
        "[slide 1 of 2]\n## Tea\ngreen\nblack\nNotes:\noffer a cup\n[slide 2 of 2]\n|  | cell |\n"
    )
    assert (extract.unit, extract.read, extract.of, extract.is_cut) == ("slide", 2, 2, False)


def test_a_workbook_is_read_sheet_by_sheet_with_dates_as_dates():
    book = openpyxl.Workbook()
    first = book.active
    first.title = "Bud|get (x)"
    at = datetime(2025, 1, 2, 3, 4, 5)  # noqa: DTZ001 - a sheet knows no zone
    first.append(["when", at, date(2025, 5, 6), time(7, 8)])
    first.append([0.1, 12, True, "a | b\nc"])
    first["D9"] = 1e20
    book.create_sheet("Empty")
    text = text_of(xlsx_of(book)).text
    assert text == (
        "[sheet 1 of 2: Bud|get (x)]\n"
        "| when | 2025-01-02 03:04:05 | 2025-05-06 | 07:08:00 |\n"
        "| 0.1 | 12 | TRUE | a \\| b c |\n"
        "|  |  |  | 1e+20 |\n"
        "[sheet 2 of 2: Empty]\n"
    )


@pytest.mark.parametrize("options", [{}, {"date_1904": True}])
def test_cells_that_share_their_texts_are_read(options):
    rows = [["tea", "tea", "milk"], [date(2024, 2, 29), 7, "tea"]]
    assert text_of(shared_xlsx_of(rows, **options)).text == (
        "[sheet 1 of 1: Shared]\n| tea | tea | milk |\n| 2024-02-29 | 7 | tea |\n"
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (BOOK.read_bytes(), OLD),
        (xlsb_of("茶 tea"), "[sheet 1 of 1: Binary]\n| 茶 tea |\n"),
        (ods_of("茶 tea"), "[sheet 1 of 1: Open]\n| 茶 tea |\n"),
    ],
    ids=["xls", "xlsb", "ods"],
)
def test_other_formats_of_workbooks_are_read(data, text):
    assert text_of(data).text == text


def test_sheets_of_charts_are_named_and_workbooks_with_a_password_say_so():
    book = openpyxl.Workbook()
    book.active["B2"] = "tea"
    book.create_chartsheet("Chart")
    assert text_of(xlsx_of(book)).text.endswith("| tea |\n[sheet 2 of 2: Chart]\n")
    assert refusal(ods_of("x", manifest="<manifest:encryption-data/>")) == "encrypted"


@given(
    st.lists(
        st.lists(
            st.one_of(
                st.none(),
                st.integers(-(10**9), 10**9),
                st.booleans(),
                st.text(st.characters(categories=("L", "N")), min_size=1, max_size=8),
                st.dates(date(1900, 3, 1), date(2199, 12, 31)),
            ),
            min_size=1,
            max_size=6,
        ),
        min_size=1,
        max_size=6,
    )
)
def test_a_workbook_is_read_as_the_library_that_wrote_it_reads_it(rows):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    lines = []
    for row in rows:
        cells = ["" if cell is None else str(cell) for cell in row]
        cells = [c.upper() if isinstance(v, bool) else c for c, v in zip(cells, row, strict=True)]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            lines.append(f"| {' | '.join(cells)} |")
    if not lines:
        assert refusal(xlsx_of(book)) == "textless"
    else:
        assert text_of(xlsx_of(book)).text.splitlines()[1:] == lines


def test_a_pdf_is_read_page_by_page_and_says_which_have_no_text():
    extract = text_of(pdf_of("Hello", "", "World"))
    assert extract.text == (
        "[page 1 of 3]\nHello\n[page 2 of 3: no text on it]\n[page 3 of 3]\nWorld\n"
    )
    assert (extract.unit, extract.read, extract.of) == ("page", 3, 3)


def test_a_page_of_html_is_read_without_what_nobody_sees():
    page = """<html><head><title>News</title><style>p{}</style></head><body><h2>Tea &amp; milk</h2>
    <p>Short <b>words</b>, <a href="https://x.example/a?b=1&amp;c=2">a <i>link</i></a>
    <a href="javascript:x()">no link</a><ul><li>one<li>two</ul><table><tr><th>k</th><th></th>
    <th>v|w</th></tr><tr><td>1<td><p>2</p><p>3</p></table><script>evil("</p>")</script><pre>a
  b</pre><!-- <p>hidden</p> --><img alt="a > b">end"""
    assert text_of(page.encode()).text == (
        "News\n## Tea & milk\nShort words, [a link](https://x.example/a?b=1&c=2) no link\n- one\n"
        "- two\n| k |  | v\\|w |\n| 1 | 2 3 |\na\n  b\nend\n"
    )


@pytest.mark.parametrize(
    ("data", "about", "words"),
    [
        ("a,b\nü,你\n".encode(), ("text/csv", "x.csv"), "a,b\nü,你\n"),
        (
            "姓名,城市\n李雷,北京\n".encode("gb18030"),
            ("text/csv", "x.csv"),
            "姓名,城市\n李雷,北京\n",
        ),
        ("Müller;Köln".encode("cp1252"), ("text/csv", "x.csv"), "Müller;Köln"),
        ("Grüße;Straße".encode("cp1252"), ("text/csv", "x.csv"), "Grüße;Straße"),
        ("Zoë".encode("utf-16"), ("", ""), "Zoë"),
        ("ключ".encode("koi8-r"), ("text/plain; charset=koi8-r", ""), "ключ"),
        (b"<html><meta charset='big5'>" + "台北".encode("big5"), ("", ""), "台北\n"),
        ("你好".encode() * 9 + b" \xff bad", ("", ""), "你好" * 9 + " \ufffd bad"),
        (b"plain", ("text/plain; charset=no-such", ""), "plain"),
        (b"plain", ("text/plain; charset=base64", ""), "plain"),
    ],
)
def test_texts_are_read_however_they_are_written(data, about, words):
    assert text_of(data, *about).text == words


# --- what is not what it seems -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.pdf", "x.csv", "x.html", "x.txt"])
def test_a_file_is_what_its_content_says(name):
    assert text_of(docx_of("words"), "application/pdf", name).text == "words\n"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"MZ\x90\x00\x03\x00\x00\x00", "type"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "type"),
        (documents._OLE + b"\0" * 600, "old"),
        (documents._OLE + b"\0" * 600 + documents._ENCRYPTED, "encrypted"),
        (b"", "textless"),
        (b" \n", "textless"),
        (b"PK\x03\x04 not really", "damaged"),
        (pdf_of("", ""), "textless"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(data, reason):
    assert refusal(data, "application/pdf", "x.pdf") == reason


def test_another_zip_archive_is_no_document():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        packed.writestr("a.txt", "words")
    assert refusal(out.getvalue()) == "type"


@pytest.mark.parametrize("make", [docx_of, xlsx_of, pptx_of, pdf_of])
def test_a_damaged_file_is_refused_or_read_as_far_as_it_goes(make):
    whole = make("some words")
    for at in range(0, len(whole), max(1, len(whole) // 60)):
        for damaged in (whole[:at], whole[:at] + b"\xff" * 40 + whole[at + 40 :]):
            head, _ = program.answer({"task": "document", "content_type": "", "name": ""}, damaged)
            assert head.get("reason", "") in {"", "damaged", "textless", "type", "unpacks"}


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-256"])
def test_a_pdf_with_a_password_says_so_and_one_that_only_forbids_printing_is_read(algorithm):
    def locked(user: str) -> bytes:
        writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf_of("secret"))))
        writer.encrypt(user, owner_password="owner", algorithm=algorithm)
        out = io.BytesIO()
        writer.write(out)
        return out.getvalue()

    assert refusal(locked("password")) == "encrypted"
    assert "secret" in text_of(locked("")).text


# --- what was made to harm -----------------------------------------------------------------------


@pytest.mark.parametrize("part", [BILLION, OUTSIDE])
@pytest.mark.parametrize("name", ["word/document.xml", "word/styles.xml", "_rels/.rels"])
def test_no_entity_is_ever_resolved(part, name):
    head = {"task": "document", "content_type": "", "name": ""}
    about, body = program.answer(head, changed(docx_of("words"), {name: part}))
    assert (about.get("reason"), body) in {("textless", b""), ("damaged", b""), (None, b"words\n")}


def test_what_unpacks_to_too_much_is_refused_and_what_came_before_the_damage_counts(monkeypatch):
    data = docx_of("words")
    bomb = b"<w:document xmlns:w='w'><w:p><w:r><w:t>" + b"a" * 3_000_000
    packed = changed(data, {"word/document.xml": bomb})
    assert len(packed) < 100_000
    assert refusal(packed) == "damaged"
    monkeypatch.setattr(office, "MOST_UNPACKED", 1_000_000)
    assert refusal(packed) == "unpacks"
    begun = b"<w:document xmlns:w='w'><w:p><w:r><w:t>first</w:t></w:r></w:p><w:p>"
    extract = text_of(changed(data, {"word/document.xml": begun}))
    assert (extract.text, extract.is_cut) == ("first\n", True)


def test_too_many_parts_are_not_looked_at(monkeypatch):
    monkeypatch.setattr(office, "MOST_PARTS", 3)
    assert refusal(docx_of("words")) == "unpacks"


def test_a_cell_far_to_the_right_stands_beside_the_others():
    book = openpyxl.Workbook()
    book.active["A1"], book.active["XFD1"] = "first", "last"
    (_, line) = text_of(xlsx_of(book)).text.splitlines()
    assert line.count("|") == office.WIDEST_GAP + 3


@pytest.mark.parametrize("many", [10**6, 10**9])
def test_cells_that_repeat_without_end_are_refused(many):
    rows = f"""<table:table-row table:number-rows-repeated="{many}"><table:table-cell
    table:number-columns-repeated="{many}" office:value-type="string"><text:p>a</text:p>
    </table:table-cell></table:table-row>"""
    assert refusal(ods_of("x", rows=rows)) == "damaged"


@pytest.mark.parametrize(
    "page",
    [
        "<" * 300_000,
        "<!--" * 100_000,
        "<a " * 100_000,
        "<div>" * 100_000 + "x",
        "<a href='" * 50_000,
        '<a href=">' * 50_000,
        "&#x" * 100_000,
        "</" * 100_000,
        "<table><tr><td>" * 30_000 + "x",
        "<script>" * 50_000,
    ],
)
def test_no_page_takes_longer_than_its_length(page):
    assert sum(map(len, html.read(page))) <= 2 * len(page)


# --- no more than fits ---------------------------------------------------------------------------


def test_of_many_pages_the_first_are_read():
    extract = text_of(pdf_of(*(f"page {n}" for n in range(50))), most=200)
    assert extract.is_cut
    assert extract.text.startswith("[page 1 of 50]\npage 0\n")
    assert 0 < extract.read < 20
    assert extract.of == 50


def test_reading_ends_in_time_with_what_was_found():
    clock = iter(range(100))
    parts = (str(Mark("page", n, 100)) if n % 2 else Mark("page", n, 100) for n in range(100))
    extract = collected(parts, most=10**6, seconds=10, now=lambda: next(clock))
    assert extract.is_cut
    assert extract.read <= 10


def test_what_found_nothing_in_time_is_too_slow():
    clock = iter(range(100))
    with pytest.raises(Unreadable, match="slow"):
        collected(("" for _ in range(100)), most=9, seconds=10, now=lambda: next(clock))


def test_a_damaged_page_does_not_hide_the_others():
    broken = pdf_of("first", "second", "third").replace(b"/Contents 7 0 R", b"/Contents 2 0 R")
    text = text_of(broken).text
    assert "first" in text
    assert "[page 2 of 3: " in text
    assert "third" in text


@given(st.binary(max_size=200), st.sampled_from(["", "utf-8", "gb2312", "zlib", "latin-1"]))
def test_any_bytes_come_to_words(data, charset):
    assert "\0" not in decoded(data, charset)


def picture(size=(40, 30), kind="PNG", colour="red", **options) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, kind, **options)
    return out.getvalue()


@cache
def largest() -> bytes:
    return picture((4000, 4000), "WEBP", method=0)


@pytest.fixture
async def marks(tmp_path):
    database = await SqliteDatabase.open(tmp_path / "test.db")
    yield MetaStore(database, FakeClock())
    await database.close()


@pytest.fixture
async def opener(marks):
    """Makes services that are closed at the end."""
    made = []

    def make(limits=None, clock=None, **changes):
        made.append(Opener(marks, clock or FakeClock(), limits or Limits(), **changes))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def jpeg(opener, person, data):
    return await FileReader(opener).jpeg(person, data)


async def refused(pictures, data, person="ada"):
    with pytest.raises(Unreadable) as caught:
        await jpeg(pictures, person, data)
    return caught.value.reason


async def marked(marks, data):
    """Return once it is noted that a file is being opened."""
    while await marks.get(mark_of("picture", data)) is None:  # noqa: ASYNC110
        await asyncio.sleep(0)


def process_of(pictures):
    (program,) = pictures._idle
    return program._process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "size"),
    [("JPEG", (8160, 6144)), long("PNG", (4000, 4000)), long("WEBP", (4000, 4000))],
)
async def test_the_largest_pictures_that_are_taken_fit_into_the_memory_there_is(opener, kind, size):
    shown = Image.open(io.BytesIO(await jpeg(opener(), "ada", picture(size, kind))))
    assert (shown.format, max(shown.size)) == ("JPEG", decoding.SIDE)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (lambda: picture((4001, 4000)), "large"),
        (lambda: picture((7100, 7000), "WEBP", method=0), "large"),
        (lambda: b"no picture", "damaged"),
        (lambda: picture()[:60], "damaged"),
        (lambda: b"", "damaged"),
    ],
    ids=["PNG", "WEBP", "other", "half", "nothing"],
)
async def test_what_cannot_be_shown_is_refused_with_a_reason(opener, marks, data, reason):
    data = data()
    pictures = opener()
    assert await refused(pictures, data) == reason
    assert await marks.under(MARK) == {}  # it did no harm: it may be sent again
    assert await jpeg(pictures, "ada", picture())


async def test_a_picture_gets_no_more_memory_than_there_is_for_it(opener):
    pictures = opener(Limits(megabytes=160))
    assert await refused(pictures, largest()) in {"large", "deadly"}
    assert await jpeg(pictures, "ada", picture())


async def test_a_picture_that_takes_too_long_ends_its_process_and_is_never_opened_again(
    opener, marks
):
    assert await refused(opener(Limits(wall=0)), picture()) == "slow"
    after_a_restart = opener()
    assert await refused(after_a_restart, picture()) == "deadly"
    assert await jpeg(after_a_restart, "ada", picture(colour="blue"))


@pytest.mark.slow
def test_a_picture_has_so_much_of_the_processor_also_when_nobody_watches():
    endless = "from bot.files.sandbox import limit_time as f; f(0)\nwhile True: pass"
    assert (
        subprocess.run([sys.executable, "-c", endless], check=False).returncode == -signal.SIGXCPU
    )


async def test_a_picture_that_ends_its_process_is_never_opened_again(opener):
    pictures = opener()
    await jpeg(pictures, "ada", picture())
    first = asyncio.create_task(refused(pictures, largest()))
    os.kill(process_of(pictures).pid, signal.SIGKILL)
    assert await first == "deadly"
    assert await refused(pictures, largest()) == "deadly"
    assert await jpeg(pictures, "bo", picture())  # another process took its place


async def test_a_workbook_that_takes_too_much_memory_says_so(opener):
    book = openpyxl.Workbook()
    book.active["A1"], book.active["XFD1048576"] = "first", "last"
    with pytest.raises(Unreadable, match="memory"):
        await FileReader(opener()).text("ada", xlsx_of(book))


async def test_why_a_process_died_is_known_although_its_output_ends_first(opener, tmp_path):
    dying = tmp_path / "dying.py"
    dying.write_text(
        "import os, sys, time\nsys.stdin.buffer.read(8)\nos.close(1)\ntime.sleep(0.2)\nos.abort()\n"
    )
    assert await refused(opener(program=dying), picture()) == "memory"


async def test_what_was_being_opened_when_the_program_ended_is_not_opened_after_its_start(
    opener, marks
):
    opening = asyncio.create_task(jpeg(opener(), "ada", largest()))
    await marked(marks, largest())
    after_a_kill = opener()
    assert await refused(after_a_kill, largest()) == "deadly"
    assert process_of(after_a_kill) is None
    assert await opening
    assert await marks.under(MARK) == {}


async def test_a_stop_in_between_leaves_no_mark(opener, marks):
    pictures = opener()
    opening = asyncio.create_task(jpeg(pictures, "ada", largest()))
    await marked(marks, largest())
    await pictures.close()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert await marks.under(MARK) == {}


async def test_a_stop_while_the_mark_is_written_leaves_none(opener, marks, monkeypatch):
    set_mark, written = marks.set, asyncio.Event()

    async def set_and_wait(name, value):
        await set_mark(name, value)
        written.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(marks, "set", set_and_wait)
    pictures = opener()
    opening = asyncio.create_task(jpeg(pictures, "ada", picture()))
    await written.wait()
    await pictures.close()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert await marks.under(MARK) == {}


async def test_a_mark_is_forgotten_after_a_month(opener, marks):
    clock = FakeClock()
    await marks.set(mark_of("picture", picture()), str(clock()))
    clock.advance(days=31)
    assert await jpeg(opener(clock=clock), "ada", picture())


async def test_people_take_turns(opener):
    pictures = opener(share=Share(at_once=1, each=1, waiting=9))
    done = []

    async def ask(person, number):
        await jpeg(pictures, person, picture((10 + number, 10)))
        done.append(f"{person}{number}")

    await asyncio.gather(ask("ada", 8), ask("bo", 9))  # the processes have started
    done.clear()
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(ask("ada", number))
        group.create_task(ask("bo", 0))
    assert done == ["ada0", "bo0", "ada1", "ada2", "ada3", "ada4"]


async def test_a_small_file_does_not_wait_for_anothers_large_one(opener):
    pictures = opener()
    large = asyncio.create_task(jpeg(pictures, "ada", largest()))
    more = asyncio.create_task(jpeg(pictures, "ada", largest() + b" "))
    assert await jpeg(pictures, "bo", picture())
    assert not large.done()
    assert await large
    assert await more


async def test_one_file_more_than_may_wait_is_refused_and_only_that_persons(opener):
    pictures = opener(share=Share(at_once=2, each=1, waiting=1))
    asked = [asyncio.create_task(jpeg(pictures, "ada", largest() + b" " * n)) for n in range(2)]
    await asyncio.sleep(0)
    assert await refused(pictures, picture()) == "share"
    assert await jpeg(pictures, "bo", picture())
    await asyncio.gather(*asked)


async def test_a_person_who_used_their_share_waits_and_others_do_not(opener):
    now = 0.0
    pictures = opener(Limits(share=0.0000001, refill=1.0), now=lambda: now)
    pictures._used.add("ada", 5)
    assert await refused(pictures, picture()) == "share"
    assert await jpeg(pictures, "bo", picture())
    now = 5.0
    assert await jpeg(pictures, "ada", picture())


async def test_whoever_waits_no_longer_is_not_served(opener):
    pictures = opener()
    first = asyncio.create_task(jpeg(pictures, "ada", largest()))
    second = asyncio.create_task(jpeg(pictures, "ada", b"never opened"))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    assert await first
    assert not pictures._tasks - set(pictures._idle.values())


async def test_the_process_ends_when_there_is_nothing_to_do_and_starts_again(opener):
    pictures = opener(Limits(idle=0.01))
    assert not pictures._idle  # nobody sent a picture yet
    await jpeg(pictures, "ada", picture())
    process = process_of(pictures)
    await next(iter(pictures._idle.values()))
    assert process.returncode is not None
    assert await jpeg(pictures, "ada", picture(colour="blue"))


async def test_the_process_knows_no_secrets(opener, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    pictures = opener()
    await jpeg(pictures, "ada", picture())
    environment = Path(f"/proc/{process_of(pictures).pid}/environ").read_bytes()
    assert b"sk-secret" not in environment


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 100), st.floats(0, 1000)), max_size=30)
)
def test_shares_come_back_and_nobody_idle_is_remembered(steps):
    now = 0.0
    shares = Budget(60.0, 0.1, lambda: now)
    for person, seconds, later in steps:
        shares.add(person, seconds)
        now += later
    now += sum(seconds for _, seconds, _ in steps) / 0.1 + 1
    assert not shares.is_used_up("a")
    shares.add("c", 0)
    assert set(shares._used) <= {"c"}


URL = "https://site.example/notes/rust"
WORDS = (
    "Ownership is a set of rules that govern how a program manages its memory, and none of them "
    "slows the program down while it runs. "
)
PAGE = f"""<!doctype html><html><head><title>Rust &amp; rules</title><style>p {{}}</style></head>
<body>
<nav><ul><li><a href="/">Home</a></li><li><a href="/about">About us</a></li></ul></nav>
<main><article><h1>What is ownership?</h1>
<p>{WORDS}<a href="../python">Python</a> does it another way.</p><p>{WORDS * 3}</p>
<script>steal()</script><table><tr><td>move</td><td>borrow</td></tr></table></article></main>
<footer>© Imprint and cookies</footer></body></html>"""


def read(page: str, url: str = URL) -> str:
    return text_of(page.encode(), "text/html; charset=utf-8", "", url).text


def test_a_page_is_read_without_what_stands_around_it():
    text = read(PAGE)
    assert text.startswith("# Rust & rules\n")
    assert WORDS.strip() in text
    assert "[Python](https://site.example/python)" in text
    assert "| move | borrow |" in text
    for strange in ("About us", "cookies", "steal()"):
        assert strange not in text


def test_a_file_of_html_is_read_as_it_is():
    assert "About us" in read(PAGE, "")


@pytest.mark.parametrize(
    "page",
    [
        "<html><body>Short.</body></html>",
        "<html>Short.",
        f"<html><p>Short.{'<div>' * 20_000}",
        f"<html><p>Short.{'<a <a ' * 5_000}",
        f"<html><p>Short.</p>{'<!--' * 5_000}",
        f"<html><title>{'t' * 5_000}</title><p>Short.",
        f"<html><p>Short.{' x' * html.LONGEST_WEBPAGE}",
        "<html><!DOCTYPE d [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><p>Short.&a;",
    ],
)
def test_a_page_that_is_hardly_one_is_read_all_the_same(page: str):
    text = read(page)
    assert "Short." in text
    assert "root:" not in text


@given(st.text(alphabet=st.sampled_from("<>/pa=\"' &;!-\n"), max_size=200))
def test_whatever_stands_in_a_page_is_read(words: str):
    "".join(html.read_webpage(f"<html><body><p>{words}", URL))
