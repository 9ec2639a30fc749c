"""What the benchmark of a message's way counts, on a small program of three files."""

import asyncio
import importlib
import sys
import threading

import pytest

from bench.journey import (
    GOALS,
    WORKED_OUT,
    Journey,
    Recorder,
    Step,
    common,
    listing,
    markdown,
    unknown,
)

FIRST = """
import asyncio
from small import second

async def wait(event):
    await event.wait()
    await asyncio.sleep(0)
    return second.resolve("a")

def twice():
    return [second.resolve(each) for each in "ab"]

def once():
    return Looking().look()

class Looking:
    def look(self):
        return second.resolve("a")
"""
SECOND = """
from small import third

def resolve(what):
    return third.read(what)

def letters():
    yield "a"
    yield "b"
"""
THIRD = """
def read(what):
    return what
"""


@pytest.fixture
def small(tmp_path, monkeypatch):
    folder = tmp_path / "small"
    folder.mkdir()
    for name, text in (("__init__", ""), ("first", FIRST), ("second", SECOND), ("third", THIRD)):
        (folder / f"{name}.py").write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("small.first")
    for name in [name for name in sys.modules if name.split(".")[0] == "small"]:
        del sys.modules[name]


@pytest.fixture
def recorder(tmp_path, small):
    with Recorder(tmp_path, ("small",)) as recorder:
        yield recorder
    assert sys.getprofile() is None
    assert threading.getprofile() is None


def test_what_is_worked_out_twice_is_counted_twice(small, recorder):
    small.twice()
    twice = recorder.take()
    small.once()
    once = recorder.take()
    assert twice.of("small.second:resolve") == 2
    assert once.of("small.second:resolve") == 1
    assert twice.calls == {
        "small.first:twice": 1,
        "small.second:resolve": 2,
        "small.third:read": 2,
    }


def test_functions_are_named_with_their_class_and_file_in_order_of_the_first_call(small, recorder):
    small.once()
    journey = recorder.take()
    assert list(journey.files.items()) == [
        ("small.first:once", "small/first.py"),
        ("small.first:Looking.look", "small/first.py"),
        ("small.second:resolve", "small/second.py"),
        ("small.third:read", "small/third.py"),
    ]
    assert journey.of("small.first:Looking.") == 1
    assert journey.of("small.first:") == 2
    assert journey.changes == 2
    assert "| 2 | `Looking.look` | small/first.py | 1 |" in listing(journey)


async def test_going_on_after_an_await_is_no_new_call(small, recorder):
    event = asyncio.Event()
    task = asyncio.create_task(small.wait(event))
    await asyncio.sleep(0)
    assert recorder.take().calls == {"small.first:wait": 1}
    event.set()
    assert await task == "a"
    journey = recorder.take()
    # It is on the way all the same, with the file it stands in.
    assert journey.calls == {
        "small.first:wait": 0,
        "small.second:resolve": 1,
        "small.third:read": 1,
    }
    assert "| 1 | `wait` | small/first.py | … |" in listing(journey)


def test_a_generator_is_one_call(small, recorder):
    assert list(small.second.letters()) == ["a", "b"]
    assert recorder.take().calls == {"small.second:letters": 1}


def test_other_threads_are_counted_and_other_peoples_functions_are_not(small, recorder):
    thread = threading.Thread(target=small.once)
    thread.start()
    thread.join()
    assert recorder.take().calls.total() == 4


def test_changes_of_file_are_counted_in_each_task_apart():
    here, there = "a.py", "b.py"
    mixed = [
        Step(f"m:{at}", file, strand)
        for at, (file, strand) in enumerate(
            [(here, 1), (there, 2), (here, 1), (there, 2), (there, 1)]
        )
    ]
    assert Journey(tuple(mixed)).changes == 1


def test_every_function_that_is_counted_by_name_exists():
    assert unknown(tuple(WORKED_OUT.values())) == []
    gone = ["bot.identity.routing:gone", "bot.gone:", "bot.gateway.books:Persons."]
    assert unknown(gone) == gone


def test_the_table_shows_every_figure_and_its_goal():
    figures = Journey((Step("bot.identity.message:parse", "bot/identity/message.py", 0),)).figures()
    assert figures["command worked out"] == 1
    assert GOALS.keys() <= figures.keys()
    assert "| command worked out | 1 | ≤ 1 |" in markdown(figures)
    assert "| calls | 1 |  |" in markdown(figures)


def test_what_only_some_messages_pass_does_not_count_and_the_one_in_the_middle_is_told():
    def way(*names: str) -> Journey:
        return Journey(tuple(Step(name, "m.py", 0) for name in names))

    ways = [way("m:a", "m:b", "m:b", "m:b"), way("m:a", "m:b"), way("m:a", "m:loop", "m:b", "m:b")]
    assert common(ways).calls == {"m:a": 1, "m:b": 2}
    assert common(ways[2:]).calls == {"m:a": 1, "m:loop": 1, "m:b": 2}
