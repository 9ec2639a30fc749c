import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bot import fencing
from bot.errors import FenceLost
from bot.fencing import Fence
from bot.workers import Backlog, Workers
from tests.support import until


@dataclass(frozen=True, slots=True)
class Row:
    id: int


@dataclass
class Table:
    """Rows that are safe, as the database has them, and what a handler did with them."""

    waiting: dict[str, list[Row]] = field(default_factory=dict)
    done: dict[str, list[int]] = field(default_factory=dict)
    taken: list[int] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    failures: set[int] = field(default_factory=set)  # rows whose handling fails once
    most_in_memory: int = 0
    batch: int = 1
    reading: asyncio.Event | None = None  # set when a load has its rows but has not returned them
    readable: asyncio.Event | None = None
    gate: asyncio.Event | None = None
    _last: int = 0

    def store(self, key: str) -> Row:
        self._last += 1
        row = Row(self._last)
        self.waiting.setdefault(key, []).append(row)
        return row

    async def load(self, key: str, limit: int) -> Sequence[Row]:
        rows = self.waiting.get(key, [])[:limit]
        if self.reading is not None:
            self.reading.set()
        if self.readable is not None:
            await self.readable.wait()
        else:
            await asyncio.sleep(0)
        return rows

    async def handle(self, key: str, backlog: Backlog[Row]) -> None:
        assert key not in self.running, "two workers for one key"
        self.running.add(key)
        try:
            self.most_in_memory = max(self.most_in_memory, len(backlog.rows))
            rows = backlog.take(self.batch)
            self.taken.extend(row.id for row in rows)
            await asyncio.sleep(0)
            if self.gate is not None:
                await self.gate.wait()
            for row in rows:
                if row.id in self.failures:
                    self.failures.discard(row.id)
                    raise RuntimeError("planned")
                self.waiting[key].remove(row)
                self.done.setdefault(key, []).append(row.id)
        finally:
            self.running.discard(key)


@pytest.fixture
def table():
    """A table whose rows are handled only once its gate is open."""
    return Table(gate=asyncio.Event())


@pytest.fixture
def workers(table):
    return Workers(table.handle, table.load, 4)


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch):
    monkeypatch.setattr("bot.workers.RETRY_DELAY", 0)


async def idle(workers: Workers[str, Row]) -> None:
    await until(lambda: not workers.active)


# What may happen, in any order: a row is stored and handed over (at once, late, or by another
# process that only stores it), somebody looks, or the others get a chance to run.
KEYS = st.sampled_from(["a", "b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["put", "store", "hold", "look"]), KEYS),
        st.tuples(st.just("run"), st.integers(1, 6)),
        st.tuples(st.just("release"), KEYS),
        st.tuples(st.just("fail"), KEYS),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 4), st.integers(1, 3))
def test_every_row_is_handled_once_and_in_order_whatever_comes_when(steps, window, batch):
    asyncio.run(_any_order(steps, window, batch))


async def _any_order(steps: list[tuple[str, object]], window: int, batch: int) -> None:
    table = Table(batch=batch)
    workers = Workers(table.handle, table.load, window)
    held: list[tuple[str, Row]] = []
    for step, what in steps:
        if step == "run":
            assert isinstance(what, int)
            for _ in range(what):
                await asyncio.sleep(0)
            continue
        key = str(what)
        if step == "put":
            # Rows of one key are handed over in the order in which they were stored.
            while held and (mine := [each for each in held if each[0] == key]):
                held.remove(mine[0])
                workers.put(*mine[0])
            workers.put(key, table.store(key))
        elif step == "store":
            table.store(key)
            workers.look(key)
        elif step == "hold":
            held.append((key, table.store(key)))
        elif step == "release" and held:
            # What handles a row resumes after whoever stored it, so it is never handed over so late
            # that its worker is gone.
            pending = [each for each in held if each[1] in table.waiting.get(each[0], [])]
            held = []
            for each in pending:
                workers.put(*each)
        elif step == "fail":
            table.failures.add(table._last + 1)
        else:
            workers.look(key)
    for each in held:
        if each[1] in table.waiting.get(each[0], []):
            workers.put(*each)
    for key in list(table.waiting):
        workers.look(key)
    await asyncio.wait_for(idle(workers), 60)
    assert not any(table.waiting.values())
    for handled in table.done.values():
        assert len(handled) == len(set(handled))
    assert sum(map(len, table.done.values())) == table._last
    assert table.most_in_memory <= 2 * window


@given(st.integers(1, 5), st.integers(1, 40))
def test_rows_of_one_key_are_handled_in_their_order(window, count):
    async def scenario() -> None:
        table = Table()
        workers = Workers(table.handle, table.load, window)
        fits = [workers.put("a", table.store("a")) for _ in range(count)]
        assert fits == [n < window for n in range(count)]
        assert workers.waiting("a") <= window
        await asyncio.wait_for(idle(workers), 60)
        assert table.done["a"] == list(range(1, count + 1))

    asyncio.run(scenario())


async def test_a_failing_handler_is_tried_again_and_loses_nothing():
    table = Table(failures={1, 2, 5})
    workers = Workers(table.handle, table.load, 3)
    for _ in range(6):
        workers.put("a", table.store("a"))
    await asyncio.wait_for(idle(workers), 60)
    assert table.done["a"] == [1, 2, 3, 4, 5, 6]


async def test_a_failing_load_is_tried_again():
    table = Table()
    table.store("a")
    failures = 2

    async def load(key: str, limit: int) -> Sequence[Row]:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError("the disk")
        return await table.load(key, limit)

    workers = Workers(table.handle, load, 3)
    workers.look("a")
    await asyncio.wait_for(idle(workers), 60)
    assert table.done["a"] == [1]


async def test_a_look_during_a_load_is_not_lost():
    table = Table(reading=asyncio.Event(), readable=asyncio.Event())
    workers = Workers(table.handle, table.load, 3)
    workers.look("a")
    await table.reading.wait()  # it has read an empty table
    table.store("a")
    workers.look("a")
    table.readable.set()
    await asyncio.wait_for(idle(workers), 60)
    assert table.done["a"] == [1]


async def test_a_row_the_table_gave_before_it_was_handed_over_is_handled_once():
    table = Table()
    workers = Workers(table.handle, table.load, 3)
    row = table.store("a")
    workers.look("a")
    await until(lambda: bool(table.taken))
    assert workers.put("a", row)  # while it is being handled
    await asyncio.wait_for(idle(workers), 60)
    assert table.taken == [1]


async def test_different_keys_run_side_by_side(table, workers):
    for key in "abc":
        workers.put(key, table.store(key))
    await until(lambda: len(table.running) == 3)
    assert workers.active == 3
    table.gate.set()
    await asyncio.wait_for(idle(workers), 60)


async def test_stop_lets_what_runs_finish_and_begins_nothing(table, workers):
    for _ in range(2):
        workers.put("a", table.store("a"))
    await until(lambda: bool(table.running))
    stopping = asyncio.create_task(workers.stop(5))
    await asyncio.sleep(0)
    workers.put("b", table.store("b"))
    table.gate.set()
    await asyncio.wait_for(stopping, 60)
    assert table.done == {"a": [1]}
    assert workers.active == 0
    assert [row.id for rows in table.waiting.values() for row in rows] == [2, 3]


async def test_stop_cancels_what_takes_too_long(table, workers):
    workers.put("a", table.store("a"))
    await until(lambda: bool(table.running))
    await asyncio.wait_for(workers.stop(0), 60)
    assert workers.active == 0
    assert table.done == {}


async def test_drain_empties_every_backlog_and_what_still_comes(table):
    workers = Workers(table.handle, table.load, 2)
    for _ in range(5):
        workers.put("a", table.store("a"))
    draining = asyncio.create_task(workers.drain(5))
    await asyncio.sleep(0)
    workers.put("b", table.store("b"))
    table.gate.set()
    await asyncio.wait_for(draining, 60)
    assert table.done == {"a": [1, 2, 3, 4, 5], "b": [6]}


@pytest.mark.parametrize("end", ["stop", "drain"])
async def test_after_the_end_nothing_begins_even_when_nothing_ran(end):
    table = Table()
    workers = Workers(table.handle, table.load, 2)
    await getattr(workers, end)(0)
    workers.put("a", table.store("a"))
    workers.look("b")
    await asyncio.sleep(0)
    assert workers.active == 0
    assert table.done == {}


async def test_a_worker_that_fails_while_stopping_ends():
    table = Table(failures={1}, gate=asyncio.Event())
    workers = Workers(table.handle, table.load, 2)
    workers.put("a", table.store("a"))
    await until(lambda: bool(table.running))
    stopping = asyncio.create_task(workers.stop(5))
    await asyncio.sleep(0)
    table.gate.set()
    await asyncio.wait_for(stopping, 60)
    assert workers.active == 0
    with contextlib.suppress(KeyError):
        assert not table.done["a"]


async def test_how_many_wait_is_known_for_each_key(table, workers):
    for key in "aab":
        workers.put(key, table.store(key))
    assert [workers.waiting(key) for key in "abc"] == [2, 1, 0]
    await until(lambda: len(table.running) == 2)  # each has taken one
    assert [workers.waiting(key) for key in "abc"] == [1, 0, 0]
    table.gate.set()
    await asyncio.wait_for(idle(workers), 60)
    assert [workers.waiting(key) for key in "abc"] == [0, 0, 0]


async def test_a_worker_that_is_ended_before_it_began_lets_go_of_its_key():
    table = Table()
    workers = Workers(table.handle, table.load, 4)
    workers.put("a", table.store("a"))
    await workers.end(lambda _key: True)
    assert workers.active == 0
    workers.look("a")
    await asyncio.wait_for(idle(workers), 60)
    assert table.done["a"] == [1]


async def test_a_drain_waits_for_as_long_as_it_was_given_and_then_cancels(table, workers):
    workers.put("a", table.store("a"))
    await until(lambda: bool(table.running))
    await asyncio.wait_for(workers.drain(0.01), 60)  # it never ends by itself
    assert not table.running
    assert workers.active == 0


async def test_a_drain_lets_what_needs_less_than_its_grace_finish(table, workers):
    workers.put("a", table.store("a"))
    await until(lambda: bool(table.running))
    asyncio.get_running_loop().call_soon(table.gate.set)
    await asyncio.wait_for(workers.drain(0.9), 60)
    assert table.done == {"a": [1]}


async def test_what_was_cancelled_has_let_go_when_the_drain_is_over():
    is_free = False

    async def handle(key: str, backlog: Backlog[Row]) -> None:
        nonlocal is_free
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(20):  # what it holds is given back in more than one step
                await asyncio.sleep(0)
            is_free = True

    table = Table()
    workers = Workers(handle, table.load, 4)
    workers.put("a", table.store("a"))
    await asyncio.sleep(0)
    await asyncio.wait_for(workers.drain(0), 60)
    assert is_free


async def test_tries_come_further_and_further_apart_and_a_success_begins_anew(monkeypatch):
    monkeypatch.setattr("bot.workers.RETRY_DELAY", 1.0)
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def record(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("bot.workers.asyncio.sleep", record)
    table = Table()
    outcomes = [*[False] * 7, True, False, True]
    workers: Workers[str, Row]

    async def handle(key: str, backlog: Backlog[Row]) -> None:
        if not outcomes.pop(0):
            raise RuntimeError("planned")
        table.waiting[key].remove(backlog.take()[0])

    workers = Workers(handle, table.load, 4)
    with capture_logs() as logs:  # to draw eight tracebacks takes seconds
        for _ in range(2):
            workers.put("a", table.store("a"))
        await idle(workers)
    assert [line["event"] for line in logs] == ["worker.failed"] * 8
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 16.0, 16.0, 1.0]


async def test_the_window_is_not_full_because_a_try_failed(table):
    workers = Workers(table.handle, table.load, 10)
    first = table.store("k")
    table.failures.add(first.id)
    assert workers.put("k", first)
    table.gate.set()
    await until(lambda: not table.failures)  # its rows are read from the table again now
    assert workers.put("k", table.store("k"))
    await until(lambda: len(table.done.get("k", ())) == 2)
    await workers.stop(1)


async def test_what_others_stored_meanwhile_is_left_to_the_next_run(table):
    workers = Workers(table.handle, table.load, 10)
    table.store("k")
    running = asyncio.create_task(workers.run("k"))
    await until(lambda: table.running == {"k"})
    table.store("k")  # by another node: it is not put here
    table.gate.set()
    await running
    assert table.done["k"] == [1]
    await workers.run("k")
    assert table.done["k"] == [1, 2]


async def test_what_others_stored_is_found_by_whoever_reads_again():
    table, seen = Table(), []

    async def handle(key, backlog):
        table.store(key)  # by another node, while this one waits for more
        await workers.reload(key, backlog)
        rows = backlog.take(len(backlog.rows))
        seen.append([row.id for row in rows])
        table.waiting[key].clear()

    workers = Workers(handle, table.load, 10)
    table.store("k")
    await workers.run("k")
    assert seen == [[1, 2]]


async def test_a_worker_that_lost_its_fence_takes_nothing_more():
    tried = []

    async def handle(key, backlog):
        tried.append((fencing.current(), backlog.take()[0].id))
        raise FenceLost

    table = Table()
    for _ in range(3):
        table.store("k")
    workers = Workers(handle, table.load, 10, fence_of=lambda key: Fence(key, 7))
    with fencing.behind(Fence("another's", 1)):  # a worker begins without what its caller has
        await workers.run("k")
    assert tried == [(Fence("k", 7), 1)]
    assert workers.active == 0


async def test_the_workers_of_some_keys_can_be_ended(table):
    workers = Workers(table.handle, table.load, 10)
    for key in ("mine", "lost"):
        workers.put(key, table.store(key))
    await until(lambda: table.running == {"mine", "lost"})
    await workers.end(lambda key: key == "lost")
    assert workers.active == 1
    table.gate.set()
    await until(lambda: table.done == {"mine": [1]})
    assert [row.id for row in table.waiting["lost"]] == [2]


async def test_a_key_that_comes_back_is_not_left_to_a_worker_that_was_fenced_off(table):
    workers = Workers(table.handle, table.load, 10)
    table.store("k")
    first = asyncio.create_task(workers.run("k"))
    await until(lambda: table.running == {"k"})  # its key is given to others, and back
    gate, table.gate = table.gate, None
    await workers.run("k")
    await first
    assert table.done == {"k": [1]}
    gate.set()
    assert workers.active == 0
