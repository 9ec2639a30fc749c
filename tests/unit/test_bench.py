"""What the benchmarks make of their measurements."""

import asyncio
import importlib
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import locomo, talks
from bench.cluster import FOUR, ONE, SQLITE, TWO, Found, Size
from bench.cluster import goals as cluster_goals
from bench.cluster import report as cluster_report
from bench.embedding import LENGTHS, Cost, passages
from bench.embedding import report as embedding_report
from bench.fairness import Row
from bench.fairness import report as fairness_report
from bench.journey import GOALS, WORKED_OUT, Journey, Recorder, Step, common, listing, unknown
from bench.journey import markdown as journey_markdown
from bench.large import Costs
from bench.large import report as large_report
from bench.large_store import FIRST_CHAT, build
from bench.locomo import Question, Tally, Turn
from bench.sizes import Found as Kept
from bench.sizes import Size as Rows
from bench.sizes import Words
from bench.sizes import report as sizes_report
from bench.table import Measured, busy_note, goals, goals_markdown, markdown, medians, percentile
from bot.clock import DAY_MS
from bot.identity.routing import OWNER
from bot.memory.search import Hit
from bot.recovery import TRANSCRIPTS, open_database
from bot.sessions import browsing, store
from bot.sessions.mirror import Mirror, path_of

FLOOR = Measured(
    cold_start=1.0,
    first_message=0.1,
    p50=5.0,
    p95=8.0,
    turns_per_second=400.0,
    cpu=2.0,
    resident=110.0,
    telegram_busy=0.2,
    model_busy=0.1,
)
ENGINE = replace(FLOOR, cold_start=0.5, p50=7.5, turns_per_second=300.0, cpu=3.0, resident=120.0)
FLOORS = {"floor": FLOOR}


@pytest.mark.parametrize(
    ("percent", "expected"), [(0, 1), (50, 5), (51, 6), (90, 9), (95, 10), (100, 10)]
)
def test_a_percentile_is_the_smallest_value_that_covers_so_many(percent, expected):
    assert percentile([3, 1, 2, 10, 9, 8, 7, 4, 5, 6], percent) == expected


def test_no_values_have_no_percentile():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.integers(0, 100))
def test_a_percentile_is_one_of_the_values_and_covers_enough_of_them(values, percent):
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)


def test_each_figure_has_its_own_median():
    rounds = [
        replace(FLOOR, p50=1.0, cpu=9.0),
        replace(FLOOR, p50=2.0, cpu=7.0),
        replace(FLOOR, p50=30.0, cpu=8.0),
    ]
    assert medians(rounds) == replace(FLOOR, p50=2.0, cpu=8.0)


def test_goals_compare_with_the_floor():
    whole = replace(FLOOR, p50=4.0, turns_per_second=400.0)
    checked = goals(ENGINE, {"floor": FLOOR, "other floor": whole}, ENGINE)
    ratios = [0.75, 2.5, 0.75, 3.5]
    assert [goal.value for goal in checked] == [*ratios, 3.0, 0.5, 0.1, 120.0, 120.0]
    assert [goal.what.rpartition("the ")[2] for goal in checked[:4]] == [
        *("floor", "floor"),
        *("other floor", "other floor"),
    ]
    assert all(goal.met for goal in checked)


def test_without_a_measurement_by_words_alone_its_goal_is_left_out():
    assert goals(ENGINE, FLOORS) == goals(ENGINE, FLOORS, ENGINE)[:-1]


@pytest.mark.parametrize(
    "change",
    [
        {"turns_per_second": 259.0},
        {"p50": 9.1},
        {"cpu": 5.1},
        {"cold_start": 1.6},
        {"first_message": 0.4},
        {"resident": 231.0},
    ],
)
def test_a_goal_that_is_missed_is_told(change):
    checked = goals(replace(ENGINE, **change), FLOORS, ENGINE)
    assert [goal.met for goal in checked].count(False) == 1
    assert goals_markdown(checked).count("**no**") == 1


def test_the_table_has_a_row_for_each_and_the_engines_ratios():
    lines = markdown({"floor": FLOOR, "engine": ENGINE}, "engine").splitlines()
    assert [line.split(" | ")[0] for line in lines] == [
        "| ",
        "| ---",
        "| floor",
        "| engine",
        "| engine ÷ floor",
    ]
    assert lines[2] == ("| floor | 1.00 s | 0.10 s | 5.0 ms | 8.0 ms | 400 | 2.0 ms | 110 MB |")
    assert lines[4].startswith("| engine ÷ floor | 0.50 | 1.00 | 1.50 | 1.00 | 0.75 | 1.50 | 1.09")
    assert len({line.count("|") for line in lines}) == 1


def test_busy_servers_are_told_and_a_bottleneck_is_warned_of():
    assert busy_note({"floor": FLOOR}).endswith("of one processor, fake model 10%.")
    assert "bottleneck" in busy_note({"floor": replace(FLOOR, model_busy=0.9)})


def test_the_goals_are_about_four_nodes_next_to_one_and_postgresql_next_to_sqlite():
    costs = {SQLITE.title: Found(p50=6.0), ONE.title: Found(p50=18.0, statements=13.0, idle=3.5)}
    rates = {
        SQLITE.title: Found(rate=3.9),
        ONE.title: Found(rate=3.8),
        TWO.title: Found(rate=7.5, takeover=4.0),
        FOUR.title: Found(rate=14.0, takeover=6.0),
    }
    linear, statements, idle, added, takeover = cluster_goals(costs, rates)
    assert round(linear.value, 2) == 0.92
    assert (statements.value, idle.value) == (13.0, 3.5)
    assert (added.value, takeover.value) == (12.0, 6.0)
    assert all(goal.met for goal in (linear, statements, idle, added, takeover))
    text = cluster_report(costs, rates, Size(messages=200, each=3))
    assert "| four nodes on PostgreSQL | 14.00 |" in text
    assert "200 messages one by one" in text


def test_statements_that_were_not_counted_are_no_goal():
    costs = {SQLITE.title: Found(p50=6.0), ONE.title: Found(p50=18.0)}
    rates = {ONE.title: Found(rate=3.8), FOUR.title: Found(rate=14.0)}
    assert not [goal.what for goal in cluster_goals(costs, rates) if "statements" in goal.what]


FAST = Cost(1.5, ((80, 2_000.4, 1_200.6), (300, 800.0, 400.0)), 2.04, 50.4)


def test_each_figure_stands_by_what_it_is_of():
    text = embedding_report(FAST)
    assert "| first text | 1.50 s |  |  |" in text
    assert "| passages of 80 characters | 2,000/s | 1,201/CPU s |  |" in text
    assert "| passages of 300 characters | 800/s | 400/CPU s | ≥ 300 |" in text
    assert "| a question | 2.0 ms |  |  |" in text
    assert "| memory | 50 MB |  | ≤ 70 |" in text


def test_a_goal_is_missed_by_being_slow_or_large():
    assert FAST.meets_goals
    assert replace(FAST, rates=FAST.rates[:1]).meets_goals  # not asked for
    assert not replace(FAST, rates=((300, 800.0, 299.0),)).meets_goals
    assert not replace(FAST, memory=71.0).meets_goals


@pytest.mark.parametrize("length", LENGTHS)
def test_passages_are_of_one_length_and_the_same_each_time_and_none_comes_twice(length: int):
    found = passages(length, 40)
    assert len(found) == len(set(found)) == 40
    assert {len(each) for each in found} == {length}
    assert found == passages(length, 40) != passages(length, 40, seed=1)


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
    assert twice.calls == {"small.first:twice": 1, "small.second:resolve": 2, "small.third:read": 2}


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
    figures = Journey((Step("bot.identity.access:parse", "bot/identity/access.py", 0),)).figures()
    assert figures["command worked out"] == 1
    assert GOALS.keys() <= figures.keys()
    assert "| command worked out | 1 | ≤ 1 |" in journey_markdown(figures)
    assert "| calls | 1 |  |" in journey_markdown(figures)


def test_what_only_some_messages_pass_does_not_count_and_the_one_in_the_middle_is_told():
    def way(*names: str) -> Journey:
        return Journey(tuple(Step(name, "m.py", 0) for name in names))

    ways = [way("m:a", "m:b", "m:b", "m:b"), way("m:a", "m:b"), way("m:a", "m:loop", "m:b", "m:b")]
    assert common(ways).calls == {"m:a": 1, "m:b": 2}
    assert common(ways[2:]).calls == {"m:a": 1, "m:loop": 1, "m:b": 2}


NOW = 1_790_000_000_000


async def test_a_written_store_is_whole_and_listed_and_found(tmp_path):
    built = await build(tmp_path, 40, 403, NOW)
    database = await open_database(tmp_path, lambda: NOW)
    try:
        sessions = await database.read(store.all_sessions)
        assert sum(each.entry_count for each in sessions) == 403
        assert len(sessions) == len({each.id for each in sessions}) == 40
        mirror = Mirror(database, tmp_path / TRANSCRIPTS)
        assert await mirror.repair() == 0
        kept = {
            each.id: path_of(tmp_path / TRANSCRIPTS, each.id).read_text("utf-8")
            for each in sessions
        }
        for each in sessions:
            lines = await database.read(lambda tx, id_=each.id: store.lines(tx, id_))
            assert kept[each.id] == "".join(f"{line}\n" for line in lines)
        assert built.transcripts == sum(map(len, kept.values()))
        for person in (OWNER, f"telegram:{FIRST_CHAT}"):
            found = await database.read(lambda tx, who=person: browsing.listed(tx, [who], 20))
            assert len(found) == 4
            assert all(each.opening for each in found)
        current = await database.read(store.pointers)
        assert [each.ended_by for each in sessions].count("") == len(current)
        words = found[0].opening.split()[0]
        hits = await database.read(lambda tx: tx.search_text(words, 5, (), [person]))
        assert hits
        assert max(each.last_user_at for each in sessions) < NOW - 30 * DAY_MS
    finally:
        await database.close()


def test_each_cost_is_told_beside_that_of_the_empty_store():
    empty, large = Costs(*[1.0] * 9), Costs(*[2.5] * 9)
    said = large_report(empty, large, "many")
    assert said.count("| 2.50 |") == 9
    assert "| resident | 1 MB | 2 MB | 2.50 |" in said


def test_how_much_of_an_answer_is_shown_is_told_beside_whether_its_lines_were_found():
    evidence = (Turn("a.md", 3, "I saw Rome"), Turn("a.md", 9, "I saw Oslo"))
    found = Hit("main", "a.md", 1, 9, 1.0, "Ada: I saw Rome", "memory")
    tally = Tally()
    tally.add(Question("1", "which cities?", evidence), [found], [found], 0.01)
    assert (tally.every, tally.shown, tally.part, tally.part_of_more) == (1, 0, 0.5, 0.5)
    assert len(tally.row()) == len(locomo.COLUMNS) + 1


FOUND = Kept(
    turns=1_000,
    person={"entries": Rows(0, 0), "inbox": Rows(0, 0), "sessions": Rows(300, 200)},
    turn={
        "entries": Rows(1_000, 500),
        "inbox": Rows(300, 100),
        "memory_chunks": Rows(900, 100),
        "fences": Rows(60, 40),
        "sessions": Rows(0, 0),
        "procrastinate_jobs": Rows(80, 80),
    },
    log=20_000,
    seconds=10,
)


def test_what_is_kept_for_ever_grows_by_the_year_and_the_rest_stays_as_it_is():
    text = sizes_report(FOUND, retention=30)
    # 100 turns a second are 8.64 million a day.
    assert "| entries | 1000 | 500 | 0 | for ever | 4,730 GB |" in text
    assert "| inbox | 300 | 100 | 0 | 30 d | 104 GB |" in text
    assert "| memory_chunks | 900 | 100 | 0 | 30 d | 259 GB |" in text
    assert "| fences | 60 | 40 | 0 | 1 d | 1 GB |" in text
    assert "| sessions | 0 | 0 | 500 | for ever | 0 GB |" in text  # half of one
    assert "4.7 TB more each year, beside 364 GB" in text
    assert "20.0 kB a turn, 2.0 MB a second, 173 GB a day" in text
    assert "procrastinate" not in text


def test_a_size_is_what_came_to_it_for_each():
    assert Rows(1_000, 300).since(Rows(200, 100), 4) == Rows(200.0, 50.0)


def test_people_write_the_same_each_time():
    assert Words().text(25) == Words().text(25)
    assert len(Words().text(80).split()) == 80


@pytest.mark.parametrize("language", talks.LANGUAGES)
def test_there_are_questions_of_each_kind_in_both_halves(language: str):
    _, questions = talks.read(language)
    kinds = Counter((each.kind, each.was_looked_at) for each in questions)
    names = ("attribute", "common", "date", "list")
    assert {*kinds} == {(kind, half) for kind in names for half in (True, False)}
    assert len(questions) >= 60


def test_every_line_that_answers_stands_in_one_note(tmp_path: Path):
    questions = talks.write_notes(tmp_path)
    notes = [path.read_text("utf-8") for path in sorted((tmp_path / "memory").iterdir())]
    for question in questions:
        for each in question.evidence:
            assert sum(note.count(each) for note in notes) == 1, (question.text, each)


def test_a_question_for_many_lines_is_answered_by_all_of_them():
    question = talks.Question("en", "list", "which?", ("one", "two"), was_looked_at=True)
    hits = [Hit("main", "a.md", 1, 1, 1.0, text, "memory") for text in ("nothing", "two", "one")]
    tally = talks.Tally()
    tally.add(question, {talks.SHORT: hits[:2], talks.LONG: hits})
    assert tally.places == [2]
    assert tally.every == {talks.SHORT: 0, talks.LONG: 1}
    assert tally.shares == {talks.SHORT: 0.5, talks.LONG: 1.0}


def test_a_wait_or_a_health_check_beyond_the_goal_is_marked():
    fair = Row("messages", calm=0.5, longest=1.4, health=0.29, stored=1.0)
    rows = (fair, replace(fair, kind="pages", longest=1.6), replace(fair, health=0.31))
    assert [each.is_fair for each in rows] == [True, False, False]
    assert [line.count("✗") for line in fairness_report(rows).splitlines()] == [0, 0, 0, 1, 1, 0]
    assert replace(fair, longest=0.1).more == 0.0
