"""A turn: its steps, its end, and the session it keeps."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent import running, session_cache
from bot.agent.models import Reply, Request, Usage
from bot.agent.running import HEARD_MS, RunningTurns, TurnStops
from bot.agent.session_cache import CachedSession, SessionCache
from bot.agent.tools import ToolContext
from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import Turn, TurnRequest, spoken
from bot.context.history import History, HistoryMessage
from bot.coordination import Event
from bot.errors import ModelContextFull, ModelError, ModelOverloaded, ModelRefused, ModelTimeout
from bot.identity import MANY
from bot.identity.view import MemoryView
from bot.messages import Message, Picture, Text, ToolResult, ToolUse
from bot.sessions import compactions, forgetting, store
from bot.sessions.compactions import Compaction, Snapshot
from bot.sessions.entries import NewEntry
from bot.sessions.store import Session
from bot.storage import Transaction
from bot.storage.sqlite import SqliteDatabase
from bot.testing import ScriptedModel, calls, says
from bot.unit_of_work import UnitOfWork
from tests.fakes.nodes import FakeNode, joined
from tests.fakes.time_limits import TimeIsUp
from tests.support import FakeClock, limits_of, until

ASKED = Message("user", (Text("hello"),))


def turn(model: ScriptedModel, *, timeout: float = 10, max_steps: int = 4) -> Turn:
    view = MemoryView(space="", keys=(), private=False)
    request = TurnRequest(
        limits=limits_of(model),
        system="",
        history=(),
        messages=(ASKED,),
        context=ToolContext(view=view, session_id="s", now=datetime(2026, 11, 21, tzinfo=UTC)),
        language="en",
        max_steps=max_steps,
        timeout=timeout,
    )
    return Turn(request, Toolbox(()))


async def begun(model: ScriptedModel) -> tuple[Turn, asyncio.Task[Any]]:
    """A turn whose model has begun to answer, and waits."""
    model.gate = asyncio.Event()
    found = turn(model)
    task = asyncio.create_task(found.run())
    await model.started.wait()
    return found, task


async def test_a_turn_stopped_before_its_first_step_has_a_result():
    model = ScriptedModel()
    found = turn(model)
    task = asyncio.create_task(found.run())
    found.stop()
    result = await asyncio.wait_for(task, 60)
    assert (result.stopped, result.reply, result.messages) == (True, "", (ASKED,))
    assert model.requests == []


async def test_stopping_more_than_once_and_afterwards_is_harmless():
    found, task = await begun(ScriptedModel(script=lambda _: "one two"))
    found.stop()
    found.stop()
    result = await asyncio.wait_for(task, 60)
    assert result.stopped
    assert result.reply == "one"
    assert result.messages == (ASKED, Message("assistant", (Text("one"),)))
    found.stop()


async def test_a_turn_stopped_while_its_last_words_come_is_stopped():
    model = ScriptedModel(script=lambda _: "one two")
    found, task = await begun(model)
    model.gate.set()
    found.stop()
    result = await asyncio.wait_for(task, 60)
    assert (result.stopped, result.reply) == (True, "one two")


async def test_a_turn_that_is_cancelled_from_outside_has_no_result():
    _, task = await begun(ScriptedModel())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (ModelOverloaded(), ModelOverloaded),
        (KeyError("ours"), ModelError),
        (says("no", stop="refusal"), ModelRefused),
        (says("", stop="context_full"), ModelContextFull),
    ],
)
async def test_every_failure_is_a_result_that_keeps_what_was_asked(answer, error):
    result = await turn(ScriptedModel(script=lambda _: answer)).run()
    assert type(result.error) is error
    assert result.messages[0] == ASKED


async def test_a_model_that_takes_too_long_keeps_what_it_wrote(monkeypatch):
    model = ScriptedModel(script=lambda _: "one two", gate=TimeIsUp(monkeypatch))
    result = await turn(model).run()
    assert type(result.error) is ModelTimeout
    assert result.reply == "one"


async def test_tools_without_end_end_after_the_most_steps_with_every_call_answered():
    model = ScriptedModel(script=lambda _: calls("nothing", x=1))
    result = await turn(model, max_steps=3).run()
    assert [request.may_call for request in model.requests] == [True, True, True, False]
    assert result.exhausted
    assert result.reply == ""
    uses = [b for m in result.messages for b in m.blocks if isinstance(b, ToolUse)]
    answers = [b for m in result.messages for b in m.blocks if isinstance(b, ToolResult)]
    assert len(uses) == len(answers) == 3


async def test_a_turn_stopped_between_a_call_and_its_result_answers_the_call():
    def script(request: Request):
        return calls("nothing") if len(request.messages) == 1 else "one two"

    found, task = await begun(ScriptedModel(script=script))
    found.stop()
    result = await asyncio.wait_for(task, 60)
    uses = [b.id for m in result.messages for b in m.blocks if isinstance(b, ToolUse)]
    answers = [
        b.tool_use_id for m in result.messages for b in m.blocks if isinstance(b, ToolResult)
    ]
    assert uses == answers


async def test_after_the_most_steps_the_model_is_asked_for_words_once_more():
    model = ScriptedModel(
        script=lambda r: calls("nothing") if r.may_call else "What I found so far"
    )
    result = await turn(model, max_steps=3).run()
    assert (result.reply, result.stop, result.exhausted) == ("What I found so far", "end", False)
    last = model.requests[-1]
    assert "no more tools" in last.messages[-1].blocks[-1].text
    # The program's own words are no part of the conversation.
    assert all("no more tools" not in str(message) for message in result.messages)
    assert result.messages[-1] == Message("assistant", (Text("What I found so far"),))


class Stoppable:
    """A turn that notes that it was stopped."""

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        """Note it."""
        self.stops += 1


class Side:
    """What stops turns on one node, and the turns that run there."""

    def __init__(self, node: FakeNode, clock: FakeClock) -> None:
        self.node, self.running = node, RunningTurns()
        self.stops = TurnStops(self.running, node, clock)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sides(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> list[Side]:
    monkeypatch.setattr(running, "ANSWER_SECONDS", 0.01)
    return [Side(node, clock) for node in joined(3)]


async def test_a_turn_is_stopped_from_any_node(sides: list[Side]) -> None:
    for asking in sides:
        turn = Stoppable()
        with sides[1].running.running("key") as stop, stop.by(turn.stop, "reply"):
            assert await asking.stops.is_running("key")
            assert not await asking.stops.is_running("another")
            assert turn.stops == 0
            assert await asking.stops.stop("key") == {"reply"}
            assert not await asking.stops.stop("another")
        assert turn.stops == 1
        assert not await asking.stops.stop("key")


async def test_a_stop_reaches_every_node_and_waits_only_where_nothing_runs_here(
    sides: list[Side],
) -> None:
    here, there = Stoppable(), Stoppable()
    with (
        sides[0].running.running("key") as stop,
        stop.by(here.stop, "reply"),
        sides[1].running.running("key", "task") as task,
        task.by(there.stop, "task"),
    ):
        assert await sides[0].stops.stop("key") == {"reply"}
        assert (here.stops, there.stops) == (1, 1)
        assert await sides[2].stops.stop("key") in ({"reply"}, {"task"})


async def test_what_is_heard_late_stops_no_later_turn(sides: list[Side], clock: FakeClock) -> None:
    turn = Stoppable()
    with sides[1].running.running("key") as stop, stop.by(turn.stop, "reply"):
        await sides[1].node.hear(Event("stop", "key", f"stop a1 {clock() - HEARD_MS - 1}"))
        assert turn.stops == 0
        await sides[1].node.hear(Event("stop", "key", f"stop a1 {clock() - HEARD_MS}"))
        assert turn.stops == 1


async def test_a_node_that_reaches_nobody_says_that_nothing_runs(sides: list[Side]) -> None:
    sides[0].node.is_cut_off = True
    assert not await sides[0].stops.stop("key")
    await sides[0].node.hear(Event("stop", "key", "yes a1 5"))  # answers what nobody asks any more


PLACE = store.Place("agent:main:web:dm:ada", "ada", "web", "default", "ada", "", "direct")


class Slow:
    """A database whose answers arrive late."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database
        self.gate = asyncio.Event()
        self.reads = 0

    async def read(self, work: Callable[[Transaction], Any]) -> Any:
        found = await self.database.read(work)
        self.reads += 1
        await self.gate.wait()
        return found


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    yield database
    await database.close()


@pytest.fixture
def slow(database: SqliteDatabase) -> Slow:
    return Slow(database)


def said(*words: str) -> list[NewEntry]:
    return [NewEntry("message", "user", w, ({"type": "text", "text": w},)) for w in words]


def begin(tx: Transaction) -> store.Session:
    session, _ = UnitOfWork(tx, 1).current(PLACE)
    store.append(tx, session.id, said("hello"), 1)
    return session


@pytest.mark.parametrize("how", ["forget", "note"])
async def test_what_was_read_before_a_change_is_read_again(slow: Slow, how: str):
    live: Any = SessionCache(slow)  # pyright: ignore[reportArgumentType] - only `read` is used
    session = await slow.database.write(begin)
    reading = asyncio.create_task(live.get(session.id))
    await until(lambda: slow.reads == 1)

    def change(tx: Transaction) -> store.Session:
        store.change(tx, session.id, held=1)
        changed = store.get(tx, session.id)
        assert changed is not None
        return changed

    changed = await slow.database.write(change)
    live.forget(session.id) if how == "forget" else live.note(changed)
    slow.gate.set()
    assert (await reading).session.held == 1
    assert slow.reads == 2


async def test_who_asks_while_it_is_read_gets_the_same(slow: Slow):
    live: Any = SessionCache(slow)  # pyright: ignore[reportArgumentType] - only `read` is used
    session = await slow.database.write(begin)
    reading = [asyncio.create_task(live.get(session.id)) for _ in range(2)]
    await until(lambda: slow.reads == 2)
    slow.gate.set()
    one, other = await asyncio.gather(*reading)
    assert one is other
    assert live.holds(one)


def say(words: str) -> Callable[[Transaction], store.Session]:
    def work(tx: Transaction) -> store.Session:
        session = store.current(tx, PLACE.key)
        assert session is not None
        store.append(tx, session.id, said(words), 2)
        changed = store.get(tx, session.id)
        assert changed is not None
        return changed

    return work


def words_of(live: CachedSession) -> list[str]:
    return [line.message.text for line in live.history.lines]


async def test_what_another_node_said_is_read_although_this_one_knows_a_newer_row(slow: Slow):
    slow.gate.set()
    cache: Any = SessionCache(slow, is_shared=True)  # pyright: ignore[reportArgumentType]
    session = await slow.database.write(begin)
    assert words_of(await cache.get(session.id)) == ["hello"]
    reads = slow.reads
    assert await cache.get(session.id) is await cache.get(session.id)
    assert slow.reads == reads + 2  # only its version, twice
    await slow.database.write(say("from elsewhere"))
    # A command here leaves the row as it is now, with what the other node did to it.
    cache.note(await slow.database.write(lambda tx: store.get(tx, session.id)))
    assert words_of(await cache.get(session.id)) == ["hello", "from elsewhere"]


@pytest.mark.parametrize("comes_between", [False, True])
async def test_a_turn_keeps_what_it_knows_unless_another_node_came_between(slow, comes_between):
    slow.gate.set()
    cache: Any = SessionCache(slow, is_shared=True)  # pyright: ignore[reportArgumentType]
    session = await slow.database.write(begin)
    live = await cache.get(session.id)
    if comes_between:
        await slow.database.write(say("from elsewhere"))
    is_whole = await slow.database.write(lambda tx: cache.is_up_to_date(tx, live))
    live.session = await slow.database.write(say("a turn"))
    cache.settle(live, is_whole=is_whole)
    assert (await cache.get(session.id) is live) is not comes_between


def session_of(name: str) -> store.Session:
    place = replace(PLACE, key=name)
    return store.Session(
        id=name,
        **asdict(place),
        model="",
        previous=None,
        started_at=1,
        last_user_at=1,
        started_by="first",
    )


def test_pictures_push_out_the_conversations_that_were_used_least(monkeypatch) -> None:
    monkeypatch.setattr(session_cache, "MAX_BYTES", 1_000_000)
    cache: Any = SessionCache(Any)  # pyright: ignore[reportArgumentType] - nothing is read
    kept: list[CachedSession] = []
    for number in range(20):
        cache.note(session_of(f"s{number}"))
        live = cache._known(f"s{number}")
        picture = Picture("image/png", "ref", "x" * 300_000)
        live.history.extend([HistoryMessage("e", 1, Message("user", (picture,)))])
        cache.settle(live)
        kept.append(live)
        assert cache._live.currsize <= 1_000_000
    assert [cache.holds(live) for live in kept] == [False] * 17 + [True] * 3
    kept[-1].history.extend(
        [HistoryMessage("e", 1, Message("user", (Picture("a", "b", "x" * 2_000_000),)))]
    )
    cache.settle(kept[-1])  # larger than all there is: it is there alone
    assert [cache.holds(live) for live in kept] == [False] * 19 + [True]


def test_no_more_conversations_are_kept_than_before() -> None:
    cache: Any = SessionCache(Any)  # pyright: ignore[reportArgumentType] - nothing is read
    for number in range(2 * session_cache.MAX_CACHED):
        cache.note(session_of(f"s{number}"))
    assert len(cache._live) == session_cache.MAX_CACHED


async def test_the_writers_thread_may_look_while_others_come_and_go() -> None:
    cache: Any = SessionCache(Any)  # pyright: ignore[reportArgumentType] - nothing is read
    cache.note(session_of("mine"))
    mine, is_over = cache._known("mine"), threading.Event()

    def look() -> int:
        looks = 0
        while not is_over.is_set():
            cache.holds(mine)
            looks += 1
        return looks

    looking = [asyncio.create_task(asyncio.to_thread(look)) for _ in range(2)]
    for number in range(5_000):
        cache.note(session_of(f"s{number % 1_500}"))
        cache.forget(f"s{number % 7}")
        if number % 500 == 0:
            await asyncio.sleep(0)
    is_over.set()
    assert all(await asyncio.gather(*looking))


VIEW = MemoryView("people/ada", (PLACE.key,), private=True, people=("ada",))
COUNTED = store.TurnCounts(
    input_tokens=5, cached_tokens=4, output_tokens=3, context_tokens=9, turns=1
)

Change = Callable[[Transaction, Session], object]


def take_turn(tx: Transaction, session: Session) -> None:
    store.append(tx, session.id, said("more"), 2, COUNTED)
    compactions.keep(tx, session.id, "another", Snapshot("b", "[]"), 2)


def compact(tx: Transaction, session: Session) -> None:
    second = store.messages(tx, session.id, 9)[1].id
    entry = compactions.entry_of(Compaction("in short", second, 9, 1))
    id_ = store.append(tx, session.id, [entry], 2).ids[0]
    compactions.apply(tx, session.id, id_, 3)


def undo_compaction(tx: Transaction, session: Session) -> None:
    found = store.get(tx, session.id)
    assert found is not None
    compactions.undo(tx, found)


def forget_summary(tx: Transaction, session: Session) -> None:
    forgetting.forget_in(tx, VIEW, "in short", 3)


def begin_another(tx: Transaction, session: Session) -> None:
    UnitOfWork(tx, 5).start(PLACE, by="new", previous=session, model="")


def go_back(tx: Transaction, session: Session) -> None:
    store.point(tx, PLACE.key, session.id, 6)


def end(tx: Transaction, session: Session) -> None:
    store.change(tx, session.id, ended_by="daily", ended_at=4)


def forget_prompt(tx: Transaction, session: Session) -> None:
    compactions.remove(tx, compactions.names_of(tx, [PLACE.key]))


def a_choice(**columns: str | int) -> Change:
    return lambda tx, session: store.change(tx, session.id, **columns)


CHANGES: dict[str, tuple[Change, ...]] = {
    "a turn": (take_turn,),
    "a note": (lambda tx, s: store.append(tx, s.id, [NewEntry("notice", "assistant", "n")], 2),),
    "a compaction": (compact,),
    "a compaction taken back": (compact, undo_compaction),
    "a summary forgotten": (compact, forget_summary),
    "words forgotten": (lambda tx, _: forgetting.forget_in(tx, VIEW, "one", 2),),
    "a prompt forgotten": (forget_prompt,),
    "another conversation": (begin_another,),
    "gone back to": (begin_another, go_back),
    "ended": (end,),
    "ended and taken up again": (end, go_back),
    "a model chosen": (a_choice(model="other"),),
    "notices chosen": (a_choice(notices="off"),),
    "usage chosen": (a_choice(usage="tokens"),),
    "told": (a_choice(told=70),),
    "saved": (a_choice(memory_flush_at=5, memory_flush_compaction_count=0, flushed_to=1),),
    "several people": (a_choice(sender=MANY),),
}


def begin_with_two(tx: Transaction) -> Session:
    session, _ = UnitOfWork(tx, 1).current(PLACE)
    store.append(tx, session.id, said("one", "two"), 1)
    compactions.keep(tx, session.id, "view", Snapshot("a", "[]"), 1)
    return session


async def kept(database: SqliteDatabase, session_id: str) -> tuple[object, int]:
    """What a program has in memory once it has read the session anew, and its version."""
    live = await SessionCache(database).get(session_id)
    history = live.history
    row = replace(live.session, version=0, last_user_at=0)
    there = (row, history.lines, history.summary, live.snapshots, live.hidden, live.called_at)
    return there, live.session.version


@pytest.mark.parametrize("name", CHANGES)
async def test_what_changes_what_is_kept_changes_the_version(database, name):
    session = await database.write(begin_with_two)
    before = await kept(database, session.id)
    for change in CHANGES[name]:
        await database.write(lambda tx, change=change: change(tx, session))
        after = await kept(database, session.id)
        assert after[0] != before[0]
        assert after[1] > before[1]
        assert await database.read(lambda tx: store.version(tx, session.id)) == after[1]
        before = after


async def test_a_message_alone_changes_neither(database):
    session = await database.write(begin_with_two)
    before = await kept(database, session.id)
    await database.write(lambda tx: store.heard(tx, session.id, 99))
    assert await kept(database, session.id) == before


async def test_a_new_session_is_as_it_was_returned(database):
    session = await database.write(lambda tx: UnitOfWork(tx, 1).current(PLACE)[0])
    assert await database.read(lambda tx: store.get(tx, session.id)) == session
    assert await database.read(lambda tx: store.version(tx, "nobody's")) is None


# --- what a reply comes to ------------------------------------------------------------------------


def telling(*replies: Reply, thought: str = "") -> tuple[Turn, list[str], ScriptedModel]:
    """A turn whose model gives these replies, and what is shown while it is written."""
    shown: list[str] = []
    left = list(replies)

    def script(request: Request) -> Reply:
        if thought and request.on_thought is not None and len(left) == len(replies):
            request.on_thought(thought)
        return left.pop(0)

    model = ScriptedModel(script=script)
    found = turn(model)
    found.on_text = shown.append
    return found, shown, model


@pytest.mark.parametrize(
    ("written", "direct", "unasked"),
    [
        ("Saved.\n\nNO_REPLY", "Saved.", ""),
        ("NO_REPLY\n\nSaved.", "Saved.", ""),
        ("HEARTBEAT_OK", "", ""),
        ("All is well. **HEARTBEAT_OK**.", "All is well.", ""),
        ("[SILENT] Hello. [SILENT]", "Hello.", ""),
        ("The word NO_REPLY is a token.", "The word NO_REPLY is a token.", None),
        ("NO_REPLYING is no word.", "NO_REPLYING is no word.", None),
    ],
)
async def test_silent_tokens_are_shown_at_neither_end(written, direct, unasked):
    for is_unasked, expected in ((False, direct), (True, direct if unasked is None else unasked)):
        found, shown, _ = telling(says(written))
        found.request = replace(found.request, unasked=is_unasked)
        result = await found.run()
        assert (result.reply, result.silent) == (expected, not expected)
        assert not [each for each in shown if each.rstrip("*.").endswith(("NO_REPLY", "_OK", "T]"))]
        assert unasked is None or not [each for each in shown if is_unasked and not direct]


@given(
    st.lists(st.sampled_from(["NO_REPLY", "[SILENT]", "heartbeat_ok", "Hi", " ", "\n", "*", "."]))
)
def test_no_token_is_left_at_either_end(pieces):
    left = spoken("".join(pieces)).strip()
    assert spoken(left).strip() == left


async def test_an_answer_that_is_only_thought_is_asked_for_once_more():
    found, _, model = telling(says(""), says("Hello."), thought="The person says hello.")
    result = await found.run()
    assert (result.reply, result.only_thought, len(model.requests)) == ("Hello.", False, 2)
    found, _, model = telling(says(""), says(""), thought="The person says hello.")
    result = await found.run()
    assert (result.reply, len(model.requests)) == ("", 2)
    found, _, model = telling(says(""))  # it thought nothing either
    await found.run()
    assert len(model.requests) == 1


@pytest.mark.parametrize(("reported", "believed"), [(500, 500), (40_000, 0)])
async def test_a_figure_that_cannot_be_is_not_believed_and_the_turn_goes_on(reported, believed):
    reply = replace(says("Hello."), usage=Usage(reported))
    result = await telling(reply)[0].run()
    assert (result.reply, result.context_tokens, result.error) == ("Hello.", believed, None)
    assert result.usage.input_tokens == reported  # the service asks that much money for it


def test_a_conversation_that_was_counted_wrongly_is_as_full_as_it_is():
    history = History([HistoryMessage("1", 0, ASKED)], known=400_000)
    assert history.used(1_000, 1.0) < 1_100
    history.extend([], 350_000)
    assert history.used(1_000, 1.0) < 1_100
    history.extend([], 2_000)
    assert history.used(1_000, 1.0) == 2_000


async def test_words_that_were_a_thought_are_taken_back_while_the_reply_is_written():
    found, shown, _ = telling()
    found._write("The person says hello.")
    found._write("Hello", anew=True)
    found._write(" there.")
    assert shown == ["The person says hello.", "Hello", "Hello there."]
