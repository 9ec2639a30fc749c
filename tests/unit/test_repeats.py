"""Reminders that come again: their rules, and each time kept, sent once, listed, cancelled."""

from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

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
from bot.sessions.recurrence import MIN_MINUTES, Rule, Series, TooOften, checked, described, parse
from bot.sessions.reminders import ReplyTarget
from bot.sessions.repeats import KEPT_RUNS, MAX_REPEATS, Repeat
from bot.storage import Database, Transaction
from bot.testing import InMemoryChannel
from bot.unit_of_work import UnitOfWork
from tests.support import NOON, FakeClock, running
from tests.unit.test_reminders import DAY, HOUR, PLACE, TARGET, VIEW, Desk, dies
from tests.unit.test_reset import ZONES

# ruff: noqa: DTZ001 - what stands on a wall clock has no time zone


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


# --- sending -------------------------------------------------------------------------------------


async def test_it_is_said_each_time_and_stands_in_the_history(desk, logs):
    session, _ = UnitOfWork(desk.tx, desk.clock()).current(PLACE)
    desk.repeat("water the plants")
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
        "⏰ tea\n\n(Sorry, this was due 4 times since Sat 2026-11-21 15:00 (UTC)"
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
        patch.setattr(outbox, "add", dies)
        with pytest.raises(SystemError):
            await desk.reminders.wake()
    assert desk.texts() == []
    await desk.reminders.wake()
    await desk.reminders.wake()
    assert desk.texts() == ["⏰ tea"]
    assert desk.planned[-1] == desk.clock() + DAY


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
    desk.resolver.adopt(policy)
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
        "I'll remind you every weekday at 08:00, starting Mon 2026-11-23 08:00 (UTC): "
        "take the bins out"
    )
    await desk.command("remind", "in 1 hour call Bob")
    listed = (await desk.command("reminders", "")).splitlines()
    assert listed[2] == "1. Sat 2026-11-21 13:00 (UTC): call Bob"
    assert listed[3] == (
        "2. every weekday at 08:00, next on Mon 2026-11-23 08:00 (UTC): take the bins out"
    )
    assert "It hasn't run yet." in await desk.command("reminders", "2")
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


async def test_what_is_paused_is_not_said_until_it_is_resumed(desk):
    desk.repeat("tea")
    once = desk.add("cake", 20 * DAY)
    assert once is not None
    for rest, words in (
        ("pause 1", "Paused: tea. “/reminders resume 2” resumes it."),
        ("pause 2", "Number 2 can't be paused"),
        ("pause 1", "Number 1 can't be paused"),
        ("resume 1", "Number 1 isn't paused"),
    ):
        assert (await desk.command("reminders", rest)).startswith(words)
    await desk.at(days=2)
    assert desk.texts() == []
    assert repeats.paused(desk.tx) == []  # nothing failed, so the owner is told of nothing
    assert "下次 周一 2026-11-23 15:00" in await desk.command("reminders", "恢复 2", "zh")
    assert "已暂停：tea" in await desk.command("reminders", "暂停1", "zh")
    assert "Resumed, next on Mon" in await desk.command("remind", "resume 2")
    await desk.at(hours=3)
    assert desk.texts() == ["⏰ tea"]


async def test_a_late_run_says_for_how_many_it_stands(desk):
    desk.repeat()
    await desk.at(days=3)
    assert "on its way, late, and once for 2 more missed times" in await desk.command(
        "reminders", "1"
    )


async def test_chinese_is_understood_and_answered(desk):
    answer = await desk.command("remind", "每周一早上8点 开会", language="zh")
    assert answer == "我会每周的周一 08:00 提醒你，第一次是 周一 2026-11-23 08:00 (UTC)：开会"
    listed = await desk.command("reminders", "", language="zh")
    assert "1. 每周的周一 08:00，下次 周一 2026-11-23 08:00 (UTC)：开会" in listed
    assert "还没有提醒过" in await desk.command("reminders", "第1条", language="zh")


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("every second shout", "That is too often. There must be at least 10 minutes in between."),
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
    assert "What should I remind you of on Sun" in await desk.command("remind", "every day")
    assert "too long" in await desk.command("remind", f"every day {'x' * 1001}")
    for number in range(MAX_REPEATS):
        desk.repeat(f"n{number}")
    assert "30 repeating reminders" in await desk.command("remind", "every day x")
    assert len(desk.left()) == MAX_REPEATS


async def test_in_a_room_only_who_looks_after_it(desk):
    room = {"chat": "room", "chat_type": "group"}
    refused = await desk.command("remind", "every day stand up", **room)
    assert refused.startswith("Only an admin of this room")
    assert await desk.command("remind", "in 1 hour stand up", **room)  # once, as anybody
    desk.commands = RemindCommands(desk.reminders.expect, {"memory": AdasRoom()})
    assert "every day at 09:00" in await desk.command("remind", "every day stand up", **room)
    assert "Only an admin" in await desk.command("remind", "every day x", sender="bob", **room)


# --- schedule_message ----------------------------------------------------------------------------


async def ask(desk: RepeatDesk, target: ReplyTarget | None = ASKED, **arguments: Any) -> str:
    now = datetime.fromtimestamp(desk.clock() / 1000, ZoneInfo("Europe/Berlin"))
    context = ToolContext(VIEW, "s", now, target=target)
    return str(await ScheduleMessage(desk.database, desk.reminders.expect).run(arguments, context))


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
        await engine.app.engine.reminders.wake()
        await engine.channel.wait_sent(1)
        assert engine.sent_to("ada") == ["⏰ tea"]
        await engine.ask("/timezone tokyo")
        listed = await engine.ask("/reminders")
        assert "every day at 15:00, next on Sun 2026-11-22 15:00 (Asia/Tokyo): tea" in listed
        clock.advance(hours=15)  # three in the afternoon in Tokyo, six in the morning here
        await engine.app.engine.reminders.wake()
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
        assert "every week on Mon at 09:00, starting Mon 2026-11-23 09:00 (UTC): jog" in answer
        assert "every week on Mon at 09:00" in await engine.ask("/reminders")


# ruff: noqa: DTZ001 - what stands on a wall clock has no time zone


BERLIN = ZoneInfo("Europe/Berlin")
DAY_MS = 86_400_000


def ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def coming(series: Series, zone: ZoneInfo, since: int, most: int) -> list[int]:
    """The next times."""
    found: list[int] = []
    at = series.after(since, zone)
    while at is not None and len(found) < most:
        found.append(at)
        at = series.after(at, zone)
    return found


def walls(series: Series, zone: ZoneInfo, since: datetime, most: int) -> list[str]:
    times = coming(series, zone, ms(since), most)
    return [f"{datetime.fromtimestamp(at / 1000, zone):%a %m-%d %H:%M %z}" for at in times]


# --- of any rule ---------------------------------------------------------------------------------

MONTHS = st.lists(st.integers(1, 12), max_size=3, unique=True).map(lambda x: tuple(sorted(x)))
DAYS = st.lists(st.sampled_from([*range(1, 32), -1, -2, -30]), max_size=3, unique=True)
COMMON_DAYS = st.lists(st.sampled_from([*range(1, 29), -1, -2]), max_size=3, unique=True)
HOURS = st.lists(st.integers(0, 23), max_size=3, unique=True).map(lambda x: tuple(sorted(x)))
PLAIN = st.lists(st.tuples(st.just(0), st.integers(0, 6)), max_size=3, unique=True).map(
    lambda x: tuple(sorted(x))
)
NAMED = PLAIN | st.lists(
    st.tuples(st.sampled_from([1, 2, 4, -1]), st.integers(0, 6)), max_size=3, unique=True
).map(lambda x: tuple(sorted(x)))
INTERVALS = st.sampled_from([1, 1, 2, 3, 5, 12, 40])
UNTILS = st.none() | st.datetimes(datetime(2025, 1, 1), datetime(2032, 1, 1))


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    frequency = draw(
        st.sampled_from(["HOURLY", "MINUTELY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"])
    )
    interval, until = draw(INTERVALS), draw(UNTILS)
    until = until.replace(microsecond=0) if until else None
    if frequency in {"HOURLY", "MINUTELY"}:
        scale = 1 if frequency == "HOURLY" else MIN_MINUTES
        return Rule(frequency, interval * scale, until=until)
    # None that never come, which take longer.
    by_month = frequency in {"MONTHLY", "YEARLY"}
    months, days, weekdays = (), (), draw(NAMED if by_month else PLAIN)
    if by_month and draw(st.booleans()):
        often = frequency == "MONTHLY" and interval == 1
        days, weekdays = tuple(sorted(draw(DAYS if often else COMMON_DAYS))), ()
    if interval == 1:
        months = draw(MONTHS) if not days or max(days) < 29 else ()
    if frequency == "DAILY" and weekdays:
        interval = min(interval, 5)
    if frequency == "YEARLY":
        interval = min(interval, 3)
        months = months or (draw(st.integers(1, 12)),) if days or weekdays else months
    hours = draw(HOURS)
    minutes = (draw(st.integers(0, 59)),) if hours and draw(st.booleans()) else ()
    rule = Rule(frequency, interval, months, days, weekdays, hours, minutes, until)
    try:
        return checked(rule)
    except TooOften:
        return Rule(frequency, interval, months, days, weekdays, until=until)


BEGINS = st.datetimes(datetime(2024, 1, 1), datetime(2031, 1, 1)).map(
    lambda at: at.replace(second=0, microsecond=0)
)


@given(rules(), BEGINS, ZONES, st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_next_time_is_later_and_the_same_from_anywhere_before_it(
    rule, begins, zone, minutes, more
):
    series = Series(rule, begins)
    since = ms(begins.replace(tzinfo=zone)) + minutes * 60_000
    first = series.after(since, zone)
    assume(first is not None)
    assert first is not None
    assert first > since
    assert series.after(since + more % (first - since), zone) == first
    second = series.after(first, zone)
    assert second is None or second > first


@given(rules(), BEGINS, ZONES)
def test_no_two_times_are_closer_than_the_least(rule, begins, zone):
    times = coming(Series(rule, begins), zone, ms(begins.replace(tzinfo=zone)), 50)
    # Where a day is put on another one by a change of the clocks two times may come together.
    close = [b - a for a, b in pairwise(times) if b - a < MIN_MINUTES * 60_000]
    assert len(close) <= 2


# --- changes of the clock, by hand ---------------------------------------------------------------


def test_at_eight_is_eight_before_and_after_a_change():
    series = Series(parse("FREQ=DAILY"), datetime(2026, 3, 28, 8, 0))
    assert walls(series, BERLIN, datetime(2026, 3, 28, tzinfo=BERLIN), 2) == [
        "Sat 03-28 08:00 +0100",
        "Sun 03-29 08:00 +0200",
    ]


def test_a_skipped_time_comes_after_the_jump_and_a_double_one_once():
    series = Series(parse("FREQ=DAILY"), datetime(2026, 3, 28, 2, 30))
    assert walls(series, BERLIN, datetime(2026, 3, 29, tzinfo=BERLIN), 2) == [
        "Sun 03-29 03:30 +0200",
        "Mon 03-30 02:30 +0200",
    ]
    assert walls(series, BERLIN, datetime(2026, 10, 25, tzinfo=BERLIN), 2) == [
        "Sun 10-25 02:30 +0200",
        "Mon 10-26 02:30 +0100",
    ]


def test_every_two_hours_is_two_hours_whatever_the_clocks_say():
    series = Series(parse("FREQ=HOURLY;INTERVAL=2"), datetime(2026, 3, 28, 23, 0))
    assert walls(series, BERLIN, datetime(2026, 3, 28, 23, tzinfo=BERLIN), 3) == [
        "Sun 03-29 00:00 +0100",
        "Sun 03-29 03:00 +0200",
        "Sun 03-29 05:00 +0200",
    ]


@pytest.mark.parametrize(
    ("rule", "begins", "zone", "times"),
    [
        ("FREQ=DAILY;BYHOUR=2,3", datetime(2026, 3, 28, 2), BERLIN,
         ["Sat 03-28 03:00 +0100", "Sun 03-29 03:00 +0200", "Mon 03-30 02:00 +0200"]),
        ("FREQ=YEARLY", datetime(2024, 2, 29, 8), BERLIN,
         ["Tue 02-29 08:00 +0100", "Sun 02-29 08:00 +0100", "Fri 02-29 08:00 +0100"]),
        ("FREQ=MONTHLY;BYMONTHDAY=13;BYDAY=FR", datetime(2026, 1, 1, 8), BERLIN,
         ["Fri 02-13 08:00 +0100", "Fri 03-13 08:00 +0100", "Fri 11-13 08:00 +0100"]),
        ("FREQ=DAILY", datetime(2011, 12, 28, 8), ZoneInfo("Pacific/Apia"),
         ["Thu 12-29 08:00 -1000", "Sat 12-31 08:00 +1400", "Sun 01-01 08:00 +1400"]),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,TH", datetime(2026, 1, 7, 8), BERLIN,
         ["Thu 01-08 08:00 +0100", "Mon 01-19 08:00 +0100", "Thu 01-22 08:00 +0100"]),
        ("FREQ=MONTHLY;INTERVAL=5;BYDAY=-1SU", datetime(2026, 1, 25, 8), BERLIN,
         ["Sun 06-28 08:00 +0200", "Sun 11-29 08:00 +0100", "Sun 04-25 08:00 +0200"]),
        ("FREQ=YEARLY;BYMONTH=3,9;BYMONTHDAY=-1", datetime(2026, 5, 1, 8, 0, 7), BERLIN,
         ["Wed 09-30 08:00 +0200", "Wed 03-31 08:00 +0200", "Thu 09-30 08:00 +0200"]),
    ],
)  # fmt: skip
def test_the_times_of_a_rule(rule, begins, zone, times):
    since = begins.replace(hour=2 if begins.hour == 2 else 8, minute=1, tzinfo=zone)
    assert walls(Series(parse(rule), begins), zone, since, 3) == times


def test_months_without_the_day_are_left_out_and_the_last_day_is_in_each():
    at = datetime(2026, 1, 1, tzinfo=BERLIN)
    thirty_first = Series(parse("FREQ=MONTHLY;BYMONTHDAY=31"), datetime(2026, 1, 31, 8))
    assert [each[4:9] for each in walls(thirty_first, BERLIN, at, 3)] == ["01-31", "03-31", "05-31"]
    last = Series(parse("FREQ=MONTHLY;BYMONTHDAY=-1"), datetime(2026, 1, 31, 8))
    assert [each[4:9] for each in walls(last, BERLIN, at, 3)] == ["01-31", "02-28", "03-31"]


def test_a_day_with_a_number_and_one_without_both_come():
    either = Series(parse("FREQ=MONTHLY;BYDAY=MO,1TU"), datetime(2026, 6, 1, 8))
    found = walls(either, BERLIN, datetime(2026, 6, 1, tzinfo=BERLIN), 6)
    assert [each[4:9] for each in found] == [
        *("06-01", "06-02", "06-08", "06-15", "06-22", "06-29")
    ]


@pytest.mark.parametrize("day", ["30", "-30"])
def test_a_rule_that_never_comes_is_given_up_soon(day):
    never = Series(parse(f"FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY={day}"), datetime(2026, 1, 1, 8))
    assert never.after(ms(datetime(2026, 6, 1, tzinfo=ZoneInfo("UTC"))), BERLIN) is None


def test_what_never_comes_or_is_over_has_no_next_time():
    never = Series(parse("FREQ=MONTHLY;INTERVAL=12;BYMONTHDAY=31"), datetime(2026, 2, 1, 8))
    assert never.after(0, BERLIN) is None
    over = Series(parse("FREQ=DAILY;UNTIL=20260105"), datetime(2026, 1, 1, 8))
    assert len(coming(over, BERLIN, 0, 100)) == 5
    last_year = Series(Rule("YEARLY", 1000), datetime(9998, 1, 1, 8))
    assert last_year.after(ms(datetime(9998, 6, 1, tzinfo=ZoneInfo("UTC"))), BERLIN) is None


def test_times_that_went_by_are_counted_up_to_a_bound():
    series = Series(parse("FREQ=DAILY"), datetime(2026, 1, 1, 8))
    since = ms(datetime(2026, 1, 1, 8, tzinfo=BERLIN))
    assert series.count(since, since + 3 * DAY_MS, BERLIN, 100) == 3
    assert series.count(since, since + 300 * DAY_MS, BERLIN, 100) == 100
    assert series.count(since, since, BERLIN, 100) == 0


# --- rules as text -------------------------------------------------------------------------------


@given(rules())
def test_a_rule_is_read_as_it_was_written(rule):
    assert parse(str(rule)) == rule
    assert parse(f"rrule:{str(rule).lower()};") == rule


@given(rules(), BEGINS)
def test_every_rule_can_be_told(rule, begins):
    for language in ("en", "zh"):
        assert described(language, Series(rule, begins)).strip()


@pytest.mark.parametrize(
    "text",
    [
        *("FREQ=SECONDLY", "FREQ=SECONDLY;INTERVAL=86400", "FREQ=MINUTELY"),
        *("FREQ=MINUTELY;INTERVAL=9", "FREQ=DAILY;BYHOUR=8;BYMINUTE=0,5"),
        "FREQ=DAILY;BYHOUR=0,23;BYMINUTE=0,55",
        "FREQ=DAILY;BYHOUR=1,2,3;BYMINUTE=0,20,29,40",
    ],
)
def test_what_comes_too_often_is_refused(text):
    with pytest.raises(TooOften, match="10 minutes"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no part of a rule"),
        ("FREQ", "is no part of a rule"),
        ("FREQ=", "is no part of a rule"),
        ("FREQ=DAILY;FREQ=DAILY", "twice"),
        ("FREQ=FORTNIGHTLY", "FREQ must be one of"),
        ("INTERVAL=2", "FREQ must be one of"),
        ("FREQ=DAILY\nDTSTART:20200101", "FREQ must be one of"),
        ("FREQ=DAILY;COUNT=3", "COUNT is not known"),
        ("FREQ=DAILY;BYSETPOS=1", "BYSETPOS is not known"),
        ("FREQ=DAILY;BYSECOND=1", "BYSECOND is not known"),
        ("FREQ=DAILY;BYEASTER=0", "BYEASTER is not known"),
        ("FREQ=WEEKLY;WKST=SU", "Monday"),
        ("FREQ=DAILY;INTERVAL=0", "from 1 to 1000"),
        ("FREQ=DAILY;INTERVAL=-1", "from 1 to 1000"),
        ("FREQ=DAILY;INTERVAL=1001", "from 1 to 1000"),
        ("FREQ=DAILY;INTERVAL=1,2", "one number"),
        ("FREQ=DAILY;INTERVAL=99999999999999", "must be numbers"),
        ("FREQ=DAILY;INTERVAL=٣", "must be numbers"),
        ("FREQ=DAILY;BYHOUR=24", "from 0 to 23"),
        ("FREQ=DAILY;BYHOUR=1;BYMINUTE=60", "from 0 to 59"),
        ("FREQ=DAILY;BYMINUTE=30", "needs BYHOUR"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "from -31 to 31"),
        ("FREQ=MONTHLY;BYMONTHDAY=32", "from -31 to 31"),
        ("FREQ=DAILY;BYMONTHDAY=1", "MONTHLY or YEARLY"),
        ("FREQ=DAILY;BYDAY=1MO", "MONTHLY or YEARLY"),
        ("FREQ=MONTHLY;BYDAY=6MO", "such as MO"),
        ("FREQ=MONTHLY;BYDAY=-2MO", "such as MO"),
        ("FREQ=WEEKLY;BYDAY=MONDAY", "such as MO"),
        ("FREQ=YEARLY;BYDAY=MO", "needs BYMONTH"),
        ("FREQ=HOURLY;BYDAY=MO", "INTERVAL and UNTIL only"),
        ("FREQ=DAILY;UNTIL=20300231", "no such date"),
        ("FREQ=DAILY;UNTIL=20300101T000000Z", "local date"),
        ("FREQ=DAILY;UNTIL=tomorrow", "local date"),
        ("FREQ=DAILY;" + "X" * 1_000_000, "at most 200"),
    ],
)
def test_what_is_no_rule_to_keep_is_refused_with_a_reason(text, why):
    with pytest.raises(ValueError, match=why):
        parse(text)


@given(st.text(max_size=250))
def test_whatever_is_given_is_a_rule_or_refused(text):
    try:
        rule = parse(text)
    except ValueError:
        return
    assert parse(str(rule)) == rule


# --- a clock that jumps ---------------------------------------------------------------------------


@pytest.mark.parametrize("days", [1, 40, 400, 4000])
async def test_after_a_clock_was_ahead_and_came_back_it_is_said_each_day(desk, days: int):
    desk.repeat("tea")
    await desk.reminders.wake()
    desk.clock.advance(days=days)
    await desk.reminders.wake()
    ahead = len(desk.texts())
    assert ahead == 1
    desk.clock.advance(days=-days)
    await desk.reminders.wake()
    assert len(desk.texts()) == ahead
    first = int(days == 1)  # what a clock that was little ahead has said, is said
    for day in range(1, 4):
        desk.clock.advance(days=1)
        await desk.reminders.wake()
        assert len(desk.texts()) == ahead + day - first
    assert repeats.next_due(desk.tx) == desk.clock() + 3 * HOUR


async def test_a_clock_that_goes_back_a_little_repeats_nothing(desk):
    desk.repeat("tea")
    await desk.reminders.wake()
    desk.clock.advance(hours=3)
    await desk.reminders.wake()
    for minutes in (-2, -30, -90, 1, 122):
        desk.clock.advance(minutes=minutes)
        if minutes == -90:
            await desk.reminders.retime()
        await desk.reminders.wake()
    assert len(desk.texts()) == 1
    desk.clock.advance(days=1)
    await desk.reminders.wake()
    assert len(desk.texts()) == 2
