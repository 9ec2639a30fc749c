"""Reminders that come again and again: kept, sent once each time, listed, cancelled; the tool."""
# ruff: noqa: DTZ001 - what stands on a wall clock has no time zone

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import structlog

from bot.agent.tools import ToolContext
from bot.agent.tools.schedule_message import ScheduleMessage
from bot.channel import Address
from bot.commands.remind import RemindCommands
from bot.config import Config
from bot.delivery import outbox
from bot.errors import StorageFull, ToolError
from bot.gateway.reminders import BATCH
from bot.identity import MessageOrigin, Policy
from bot.sessions import recurrence, reminders, repeats, store
from bot.sessions.recurrence import Series
from bot.sessions.reminders import ReplyTarget
from bot.sessions.repeats import KEPT_RUNS, MAX_REPEATS, Repeat
from bot.storage import Database, Transaction
from bot.testing import InMemoryChannel
from bot.unit_of_work import UnitOfWork
from tests.support import NOON, FakeClock, running
from tests.unit.test_reminders import DAY, HOUR, PLACE, TARGET, VIEW, Desk

UTC = ZoneInfo("UTC")
TOKYO = ZoneInfo("Asia/Tokyo")
ORIGIN = MessageOrigin("memory", "default", "ada", "direct", "ada")
ASKED = replace(TARGET, origin=ORIGIN)
AT_THREE = Series(recurrence.parse("FREQ=DAILY"), datetime(2026, 11, 21, 15, 0))


class AdasRoom(InMemoryChannel):
    """A channel whose rooms Ada looks after."""

    async def is_admin(self, address: Address, sender: str) -> bool:
        return sender == "ada"


class RepeatDesk(Desk):
    """A program with reminders that come again."""

    def repeat(
        self, text: str = "tea", series: Series = AT_THREE, target: ReplyTarget = ASKED
    ) -> Repeat | None:
        zone = self.resolver.of(target.origin or ORIGIN).zone
        return repeats.add(self.tx, target, text, series, zone=zone, now=self.clock())

    def left(self) -> list[Repeat]:
        return [each for each in repeats.of_key(self.tx, PLACE.key) if isinstance(each, Repeat)]

    async def at(self, **ahead: float) -> None:
        self.clock.advance(**ahead)
        await self.reminders.fire(self.clock())


@pytest.fixture
def desk() -> RepeatDesk:
    return RepeatDesk()


# --- the table, on both engines ------------------------------------------------------------------


async def test_it_is_kept_and_moved_on_and_cancelled(each_database: Database):
    def add(tx: Any) -> Repeat | None:
        return repeats.add(tx, ASKED, "t\ud800ea", AT_THREE, zone=TOKYO, now=NOON)

    added = await each_database.write(add)
    assert added is not None
    assert (added.text, added.origin, added.series) == ("t�ea", ORIGIN, AT_THREE)
    assert added.due_at == NOON - 12 * HOUR + 30 * HOUR  # three in Tokyo, the day after
    assert await each_database.write(add) == added  # a turn that was run again
    assert await each_database.read(repeats.next_due) == added.due_at
    assert await each_database.read(lambda tx: repeats.due(tx, added.due_at - 1, 9)) == []
    assert await each_database.read(lambda tx: repeats.due(tx, added.due_at, 9)) == [added]
    now = added.due_at + 5
    assert await each_database.write(lambda tx: repeats.begin_run(tx, added, 0, now))
    assert not await each_database.write(lambda tx: repeats.begin_run(tx, added, 0, now))
    assert await each_database.write(lambda tx: repeats.move_on(tx, added, TOKYO, now)) == (
        added.due_at + DAY
    )
    (moved,) = await each_database.read(lambda tx: repeats.of_key(tx, PLACE.key))
    assert moved == replace(added, due_at=added.due_at + DAY)
    (run,) = await each_database.read(lambda tx: repeats.runs(tx, added, 9))
    assert (run.due_at, run.at, run.missed, run.came) == (added.due_at, now, 0, "past")
    assert await each_database.write(lambda tx: repeats.cancel(tx, added, now))
    assert not await each_database.write(lambda tx: repeats.cancel(tx, added, now))
    assert await each_database.read(repeats.next_due) is None


async def test_what_is_over_waits_no_longer(each_database: Database):
    rule = recurrence.parse("FREQ=DAILY;UNTIL=20261122")
    series = Series(rule, AT_THREE.begins)
    added = await each_database.write(
        lambda tx: repeats.add(tx, ASKED, "x", series, zone=UTC, now=NOON)
    )
    assert added is not None
    later = added.due_at + DAY
    assert await each_database.write(lambda tx: repeats.move_on(tx, added, UTC, later)) is None
    assert await each_database.read(repeats.next_due) is None
    with pytest.raises(ValueError, match="no time"):
        await each_database.write(
            lambda tx: repeats.add(tx, ASKED, "x", series, zone=UTC, now=NOON + 3 * DAY)
        )


async def test_what_is_forgotten_comes_no_more_and_keeps_no_words(each_database: Database):
    elsewhere = replace(ASKED, key="agent:main:memory:dm:eve", person="memory:eve")

    def add(tx: Transaction) -> None:
        for target in (ASKED, elsewhere):
            for words in ("Green  TEA", "coffee"):
                assert repeats.add(tx, target, words, AT_THREE, zone=UTC, now=NOON)
                assert reminders.add(tx, target, f"{words} once", NOON + HOUR, NOON)
        (over, *_) = reminders.of_key(tx, PLACE.key)
        assert reminders.mark(tx, over, "sent", NOON)

    def left(tx: Transaction) -> dict[str, list[str]]:
        return {
            key: sorted(each.text for each in repeats.of_key(tx, key))
            for key in (PLACE.key, elsewhere.key)
        }

    def said(tx: Transaction) -> list[tuple[str, str]]:
        of = "SELECT text, state FROM {} WHERE key = ? ORDER BY id"
        rows = [tx.execute(of.format(name), (PLACE.key,)) for name in ("reminders", "repeats")]
        return [(str(text), str(state)) for text, state in (*rows[0], *rows[1])]

    await each_database.write(add)
    keys = (PLACE.key,)
    assert await each_database.read(lambda tx: repeats.holding(tx, keys, " ")) == []
    assert len(await each_database.read(lambda tx: repeats.holding(tx, keys, "green tea"))) == 2
    assert await each_database.write(lambda tx: repeats.forget(tx, keys, "green tea", NOON)) == 2
    assert await each_database.write(lambda tx: repeats.forget(tx, keys, "green tea", NOON)) == 0
    assert await each_database.read(left) == {
        PLACE.key: ["coffee", "coffee once"],
        elsewhere.key: ["Green  TEA", "Green  TEA once", "coffee", "coffee once"],
    }
    assert await each_database.read(said) == [
        ("", "sent"),
        ("coffee once", "waiting"),
        ("", "cancelled"),
        ("coffee", "waiting"),
    ]


def test_so_many_repeat_for_one_person_and_no_more(desk):
    for number in range(MAX_REPEATS):
        assert desk.repeat(f"n{number}")
    elsewhere = replace(ASKED, key="agent:main:memory:group:room")
    assert desk.repeat("one more", target=elsewhere) is None
    assert desk.repeat("mine", target=replace(ASKED, person="memory:bob"))
    assert repeats.cancel(desk.tx, desk.left()[0], 0)
    assert desk.repeat("one more", target=elsewhere)


def test_the_searches_use_their_indexes(desk):
    for question, index in (
        ("SELECT * FROM repeats WHERE state = 'waiting' AND due_at <= 5", "repeats_due"),
        ("SELECT min(due_at) FROM repeats WHERE state = 'waiting'", "repeats_due"),
        ("SELECT count(*) FROM repeats WHERE person = 'a' AND state = 'waiting'", "by_person"),
    ):
        assert index in str(desk.tx.execute(f"EXPLAIN QUERY PLAN {question}"))


# --- sending -------------------------------------------------------------------------------------


async def test_it_is_said_each_time_and_stands_in_the_history(desk):
    session, _ = UnitOfWork(desk.tx, desk.clock()).current(PLACE)
    desk.repeat("water the plants")
    with structlog.testing.capture_logs() as logs:
        await desk.at(hours=3)
        await desk.at(minutes=1)
        await desk.at(days=1, minutes=-1)
    assert desk.texts() == ["⏰ water the plants"] * 2
    found = store.recent(desk.tx, PLACE.key, 10)
    assert [(id_, entry.kind, entry.role) for id_, entry in found] == [
        (session.id, "notice", "assistant")
    ] * 2
    assert "plants" not in str(logs)
    assert [(each["event"], each["missed"]) for each in logs] == [("reminder.repeated", 0)] * 2


async def test_times_that_went_by_are_said_once_and_told(desk):
    desk.repeat()
    await desk.at(days=4)
    (told,) = desk.texts()
    assert told.startswith(
        "⏰ tea\n\n(Sorry: this was due 4 times since Sat 2026-11-21 15:00 (UTC)"
    )
    (left,) = desk.left()
    assert left.due_at == desk.clock() + 3 * HOUR
    await desk.at(hours=3, minutes=5)
    assert desk.texts()[1].endswith("(Late, sorry: this was due Wed 2026-11-25 15:00 (UTC).)")


async def test_after_years_only_so_many_are_counted(desk):
    desk.repeat(series=Series(recurrence.parse("FREQ=HOURLY"), AT_THREE.begins))
    await desk.at(days=900)
    assert "due 101 times" in desk.texts()[0]
    assert len(desk.texts()) == 1


async def test_many_are_sent_in_order(desk):
    for number in range(BATCH + 5):
        begins = AT_THREE.begins.replace(minute=number)
        person = f"memory:p{number // 20}"
        desk.repeat(f"r{number}", Series(AT_THREE.rule, begins), replace(ASKED, person=person))
    desk.clock.advance(hours=5)
    assert await desk.reminders.fire(desk.clock()) == BATCH + 5
    assert [text.split()[1] for text in desk.texts()] == [f"r{n}" for n in range(BATCH + 5)]


async def test_a_full_disk_and_a_crash_lose_nothing_and_say_nothing_twice(desk, monkeypatch):
    desk.repeat()
    desk.clock.advance(hours=3)
    desk.database.full = True
    with pytest.raises(StorageFull):
        await desk.reminders.wake()
    desk.database.full = False
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "add", _dies)
        with pytest.raises(SystemError):
            await desk.reminders.wake()
    assert desk.texts() == []
    await desk.reminders.wake()
    await desk.reminders.wake()
    assert desk.texts() == ["⏰ tea"]
    assert desk.planned[-1] == desk.clock() + DAY


def _dies(*_args: object, **_named: object) -> None:
    raise SystemError


async def test_a_clock_that_is_set_back_says_nothing_twice(desk):
    desk.repeat()
    await desk.at(hours=3)
    await desk.at(hours=-2)
    await desk.reminders.retime()
    await desk.at(hours=2)
    assert desk.texts() == ["⏰ tea"]


async def test_a_clock_that_was_far_ahead_holds_nothing_up(desk):
    desk.repeat()
    await desk.at(days=2000)
    await desk.at(days=-2000)
    await desk.at(hours=3)
    assert len(desk.texts()) == 1  # it is not known yet that the clock was wrong
    await desk.reminders.retime()
    await desk.at(days=1)
    assert desk.texts()[1:] == ["⏰ tea"]


async def test_where_a_person_lives_by_now_counts(desk):
    desk.repeat()
    desk.resolver.zoned({"memory:ada": TOKYO})
    await desk.reminders.retime()
    (left,) = desk.left()
    assert left.zone == "Asia/Tokyo"
    assert left.due_at == desk.clock() + 18 * HOUR
    policy = Policy.of(
        Config.model_validate({"session": {"timezones": {"memory:ada": "UTC"}}}), UTC
    )
    desk.resolver.configure(policy)
    await desk.reminders.retime()
    assert desk.left()[0].due_at == desk.clock() + 3 * HOUR


async def test_a_room_s_go_by_the_program_s_clock_whoever_asked(desk):
    desk.resolver.zoned({"memory:ada": TOKYO})
    room = replace(ORIGIN, chat="den", chat_type="group")
    key = desk.resolver.of(room).key
    target = ReplyTarget(key, "memory:ada", Address("memory", "default", "den"), "en", room)
    added = desk.repeat("stand up", target=target)
    assert added is not None
    assert added.due_at == desk.clock() + 3 * HOUR


async def test_of_each_only_the_last_runs_are_kept(desk):
    added = desk.repeat()
    assert added is not None
    await desk.at(hours=3)
    for _ in range(KEPT_RUNS + 4):
        await desk.at(days=1)
    runs = repeats.runs(desk.tx, added, 99)
    assert len(runs) == KEPT_RUNS
    assert runs[0].due_at == desk.clock()


# --- commands ------------------------------------------------------------------------------------


async def test_it_is_set_listed_shown_and_cancelled(desk):
    answer = await desk.command("remind", "every weekday at 8 take the bins out")
    assert answer == (
        "I will remind you every weekday at 08:00, first on Mon 2026-11-23 08:00 (UTC): "
        "take the bins out"
    )
    await desk.command("remind", "in 1 hour call Bob")
    listed = (await desk.command("reminders", "")).splitlines()
    assert listed[2] == "1. Sat 2026-11-21 13:00 (UTC): call Bob"
    assert listed[3] == (
        "2. every weekday at 08:00, next on Mon 2026-11-23 08:00 (UTC): take the bins out"
    )
    assert "It has not come yet." in await desk.command("reminders", "2")
    await desk.at(days=2, hours=-4)
    (letter, again) = desk.letters()
    outbox.sent(desk.tx, letter.id, desk.clock())
    listed = (await desk.command("reminders", "")).splitlines()
    assert listed[3] == "   Last due Mon 2026-11-23 08:00 (UTC): on its way"
    outbox.park(desk.tx, again.id, "gone", desk.clock(), again=False)
    assert "could not be delivered" in await desk.command("reminders", "1")
    outbox.sent(desk.tx, again.id, desk.clock())
    shown = await desk.command("reminders", "show 1")
    assert shown.endswith("Last due Mon 2026-11-23 08:00 (UTC): sent")
    answer = await desk.command("reminders", "cancel 1")
    assert answer.startswith("Cancelled: take the bins out (every weekday at 08:00, next on Tue")
    assert desk.left() == []


async def test_a_late_run_says_for_how_many_it_stands(desk):
    desk.repeat()
    await desk.at(days=3)
    assert "on its way, late, for 2 more times as well" in await desk.command("reminders", "1")


async def test_chinese_is_understood_and_answered(desk):
    answer = await desk.command("remind", "每周一早上8点 开会", language="zh")
    assert answer == "我会每周的周一 08:00 提醒你，第一次是 周一 2026-11-23 08:00 (UTC)：开会"
    listed = await desk.command("reminders", "", language="zh")
    assert "1. 每周的周一 08:00，下次 周一 2026-11-23 08:00 (UTC)：开会" in listed
    assert "还没有提醒过" in await desk.command("reminders", "第1条", language="zh")


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("every second shout", "That is too often: there must be at least 10 minutes in between."),
        ("every minute shout", "That is too often"),
        ("every few days shout", "I don't understand how often."),
        ("every day at 25:00 shout", "There is no such day or time."),
    ],
)
async def test_what_cannot_be_kept_is_explained(desk, rest, words):
    answer = await desk.command("remind", rest)
    assert answer.startswith(words)
    assert "/remind every weekday at 8" in answer
    assert desk.left() == []


async def test_without_words_or_with_too_many_nothing_is_kept(desk):
    assert "what should I remind you of on Sun" in await desk.command("remind", "every day")
    assert "too long" in await desk.command("remind", f"every day {'x' * 1001}")
    for number in range(MAX_REPEATS):
        desk.repeat(f"n{number}")
    assert "30 reminders that repeat" in await desk.command("remind", "every day x")
    assert len(desk.left()) == MAX_REPEATS


async def test_in_a_room_only_who_looks_after_it(desk):
    room = {"chat": "room", "chat_type": "group"}
    refused = await desk.command("remind", "every day stand up", **room)
    assert refused.startswith("Only an admin of this room")
    assert await desk.command("remind", "in 1 hour stand up", **room)  # once, as anybody
    desk.commands = RemindCommands(desk.reminders, {"memory": AdasRoom()})
    assert "every day at 09:00" in await desk.command("remind", "every day stand up", **room)
    assert "Only an admin" in await desk.command("remind", "every day x", sender="bob", **room)


# --- schedule_message ----------------------------------------------------------------------------


async def ask(desk: RepeatDesk, target: ReplyTarget | None = ASKED, **arguments: Any) -> str:
    now = datetime.fromtimestamp(desk.clock() / 1000, ZoneInfo("Europe/Berlin"))
    context = ToolContext(VIEW, "s", now, target=target)
    return str(await ScheduleMessage(desk.reminders).run(arguments, context))


async def test_the_model_repeats_by_a_rule(desk):
    rule = "FREQ=WEEKLY;BYDAY=MO;BYHOUR=8;BYMINUTE=0"
    answer = await ask(desk, text="Bins!", rule=f"RRULE:{rule}")
    assert answer.startswith(f"comes again and again ({rule}), first on Monday 2026-11-23 08:00")
    (kept,) = desk.left()
    assert (kept.text, kept.made_by, str(kept.series.rule)) == ("Bins!", "agent", rule)
    assert desk.planned == [kept.due_at]
    assert await ask(desk, text="Bins!", rule=rule) == answer
    assert len(desk.left()) == 1


@pytest.mark.parametrize(
    ("rule", "at", "first"),
    [
        ("FREQ=HOURLY;INTERVAL=2", "", "Saturday 2026-11-21 15:00"),
        ("FREQ=HOURLY;INTERVAL=2", "2026-11-22T09:00", "Sunday 2026-11-22 09:00"),
        ("FREQ=DAILY", "2026-11-20T18:30", "Saturday 2026-11-21 18:30"),
        ("FREQ=DAILY;BYHOUR=14", "", "Saturday 2026-11-21 14:00"),
        ("FREQ=DAILY", "2026-11-22T08:00+00:00", "Sunday 2026-11-22 09:00"),
    ],
)
async def test_where_a_rule_begins(desk, rule, at, first):
    assert first in await ask(desk, text="x", rule=rule, **({"at": at} if at else {}))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rule": "FREQ=SECONDLY"}, "too often"),
        ({"rule": "FREQ=DAILY;COUNT=3", "at": "2026-11-22T08:00"}, "COUNT is not known"),
        ({"rule": "FREQ=DAILY"}, "give BYHOUR in 'rule', or 'at'"),
        ({"rule": "FREQ=DAILY", "in_minutes": 5}, "leave out 'in_minutes'"),
        ({"rule": "FREQ=DAILY", "at": "soon"}, "such as 2026-12-24T18:00"),
        ({"rule": "FREQ=DAILY", "at": "9999-12-31T23:59"}, "five years"),
        ({"rule": "FREQ=DAILY;UNTIL=20200101", "at": "2026-11-22T08:00"}, "no time is to come"),
        ({"rule": "F" * 201}, "at most 200"),
    ],
)
async def test_what_the_model_gets_wrong_is_explained(desk, arguments, words):
    with pytest.raises(ToolError, match=words):
        await ask(desk, text="x", **arguments)
    assert desk.left() == []


async def test_the_model_repeats_nothing_in_a_room_and_no_more_than_a_person_may(desk):
    room = replace(ASKED, origin=replace(ORIGIN, chat="den", chat_type="group"))
    with pytest.raises(ToolError, match="only its admins"):
        await ask(desk, room, text="x", rule="FREQ=DAILY;BYHOUR=8")
    for number in range(MAX_REPEATS):
        desk.repeat(f"n{number}")
    with pytest.raises(ToolError, match="30 reminders repeat"):
        await ask(desk, text="x", rule="FREQ=DAILY;BYHOUR=8")


# --- in the whole engine -------------------------------------------------------------------------


async def test_it_comes_again_after_a_restart_and_goes_where_its_person_goes(tmp_path):
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as engine:
        await engine.ask("/remind every day at 15:00 tea")
    async with running(tmp_path, clock=clock) as engine:
        clock.advance(hours=3)
        await engine.app.reminders.wake()
        await engine.channel.wait_sent(1)
        assert engine.sent_to("ada") == ["⏰ tea"]
        await engine.ask("/timezone tokyo")
        listed = await engine.ask("/reminders")
        assert "every day at 15:00, next on Sun 2026-11-22 15:00 (Asia/Tokyo): tea" in listed
        clock.advance(hours=15)  # three in the afternoon in Tokyo, six in the morning here
        await engine.app.reminders.wake()
        await engine.channel.wait_until(lambda _: engine.sent_to("ada").count("⏰ tea") == 2)


@pytest.mark.parametrize("words", ["/reminders list", "/remind list", "/task LIST", "/remind 列表"])
async def test_the_list_is_shown_however_it_is_asked_for(tmp_path, words: str):
    async with running(tmp_path) as engine:
        await engine.ask("/remind every day at 15:00 tea")
        listed = await engine.ask("/reminders")
        assert "every day at 15:00" in listed
        assert await engine.ask(words) == listed
        assert "tea" in await engine.ask("/remind cancel 1")
        assert "every day" not in await engine.ask(words)


async def test_without_a_model_plain_words_repeat_too(tmp_path):
    async with running(tmp_path, agent={"model": "offline", "timezone": "UTC"}) as engine:
        answer = await engine.ask("remind me every monday at 9 to jog")
        assert "every week on Mon at 09:00, first on Mon 2026-11-23 09:00 (UTC): jog" in answer
        assert "every week on Mon at 09:00" in await engine.ask("/reminders")
