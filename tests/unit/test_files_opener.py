"""Files are opened in a process of their own: bounded, fair, and never twice what ended it."""

import asyncio
import io
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bot.files import pictures as decoding
from bot.files.opener import MARK, Limits, Opener, Shares, mark_of
from bot.files.reading import FileReader
from bot.files.sandbox import Unreadable
from bot.storage.meta import MetaStore
from bot.storage.sqlite import SqliteDatabase
from tests.documents import xlsx_of
from tests.support import FakeClock


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


async def refusal(pictures, data, person="ada"):
    with pytest.raises(Unreadable) as caught:
        await jpeg(pictures, person, data)
    return caught.value.reason


async def marked(marks, data):
    """Return once it is noted that a file is being opened."""
    while await marks.get(mark_of("picture", data)) is None:  # noqa: ASYNC110
        await asyncio.sleep(0)


def process_of(pictures):
    return pictures._worker.get_coro().cr_frame.f_locals["process"]._process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "size"), [("PNG", (4000, 4000)), ("WEBP", (4000, 4000)), ("JPEG", (8160, 6144))]
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
    assert await refusal(pictures, data) == reason
    assert await marks.under(MARK) == {}  # it did no harm: it may be sent again
    assert await jpeg(pictures, "ada", picture())


async def test_a_picture_gets_no_more_memory_than_there_is_for_it(opener):
    pictures = opener(Limits(megabytes=160))
    assert await refusal(pictures, largest()) in {"large", "deadly"}
    assert await jpeg(pictures, "ada", picture())


async def test_a_picture_that_takes_too_long_ends_its_process_and_is_never_opened_again(
    opener, marks
):
    assert await refusal(opener(Limits(wall=0)), picture()) == "slow"
    after_a_restart = opener()
    assert await refusal(after_a_restart, picture()) == "deadly"
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
    first = asyncio.create_task(refusal(pictures, largest()))
    os.kill(process_of(pictures).pid, signal.SIGKILL)
    assert await first == "deadly"
    assert await refusal(pictures, largest()) == "deadly"
    assert await jpeg(pictures, "bo", picture())  # another process took its place


async def test_a_workbook_that_takes_too_much_memory_says_so(opener):
    book = openpyxl.Workbook()
    book.active["A1"], book.active["XFD1048576"] = "first", "last"
    with pytest.raises(Unreadable, match="memory"):
        await FileReader(opener()).text("ada", xlsx_of(book))


async def test_what_was_being_opened_when_the_program_ended_is_not_opened_after_its_start(
    opener, marks
):
    opening = asyncio.create_task(jpeg(opener(), "ada", largest()))
    await marked(marks, largest())
    after_a_kill = opener()
    assert await refusal(after_a_kill, largest()) == "deadly"
    assert after_a_kill._worker is None or process_of(after_a_kill) is None
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
    pictures = opener()
    done = []

    async def ask(person, number):
        await jpeg(pictures, person, picture((10 + number, 10)))
        done.append(f"{person}{number}")

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(ask("ada", number))
        group.create_task(ask("bo", 0))
    assert done.index("bo0") <= 1


async def test_a_person_who_used_their_share_waits_and_others_do_not(opener):
    now = 0.0
    pictures = opener(Limits(share=0.0000001, refill=1.0), now=lambda: now)
    pictures._shares.add("ada", 5)
    assert await refusal(pictures, picture()) == "share"
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
    assert not any(pictures._waiting.values())


async def test_the_process_ends_when_there_is_nothing_to_do_and_starts_again(opener):
    pictures = opener(Limits(idle=0.01))
    assert pictures._worker is None  # nobody sent a picture yet
    await jpeg(pictures, "ada", picture())
    worker, process = pictures._worker, process_of(pictures)
    await worker
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
    shares = Shares(60.0, 0.1, lambda: now)
    for person, seconds, later in steps:
        shares.add(person, seconds)
        now += later
    now += sum(seconds for _, seconds, _ in steps) / 0.1 + 1
    assert not shares.is_used_up("a")
    shares.add("c", 0)
    assert set(shares._used) <= {"c"}
