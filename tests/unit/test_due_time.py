"""When and how often, as people say it in English and Chinese."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bot.gateway.reminders import is_about
from bot.sessions import due_time
from bot.sessions.due_time import Every, Problem, When, parse, shown
from bot.sessions.reminders import MAX_AHEAD
from tests.unit.test_reset import MOMENTS, ZONES, near_changes

BERLIN = ZoneInfo("Europe/Berlin")
FRIDAY = datetime(2026, 11, 20, 12, 0, tzinfo=BERLIN)


def read(text: str, now: datetime = FRIDAY) -> tuple[str, str] | Problem:
    found = parse(text, now)
    if isinstance(found, When):
        return f"{found.at:%a %Y-%m-%d %H:%M:%S}".removesuffix(":00"), found.rest
    return found


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("in 2 hours", "Fri 2026-11-20 14:00"),
        ("in 1h30m", "Fri 2026-11-20 13:30"),
        ("in 10 min", "Fri 2026-11-20 12:10"),
        ("in 90 seconds", "Fri 2026-11-20 12:01:30"),
        ("in an hour and a half", "Fri 2026-11-20 13:30"),
        ("in half an hour", "Fri 2026-11-20 12:30"),
        ("in 1.5 hours", "Fri 2026-11-20 13:30"),
        ("in 1 hour, 5 minutes", "Fri 2026-11-20 13:05"),
        ("in one hour and five minutes", "Fri 2026-11-20 13:05"),
        ("2 hours from now", "Fri 2026-11-20 14:00"),
        ("in 3 days", "Mon 2026-11-23 12:00"),
        ("in 3 days at 9:00", "Mon 2026-11-23 09:00"),
        ("in 2 weeks", "Fri 2026-12-04 12:00"),
        ("in a month", "Sun 2026-12-20 12:00"),
        ("in 1 year", "Sat 2027-11-20 12:00"),
        ("at 18:30", "Fri 2026-11-20 18:30"),
        ("18:30:15", "Fri 2026-11-20 18:30:15"),
        ("at 6pm", "Fri 2026-11-20 18:00"),
        ("6:15 p.m.", "Fri 2026-11-20 18:15"),
        ("at 12am", "Sat 2026-11-21 00:00"),
        ("at 12pm", "Sat 2026-11-21 12:00"),  # it is noon now, so the next one
        ("at 11:00", "Sat 2026-11-21 11:00"),
        ("at 09", "Sat 2026-11-21 09:00"),
        ("21 o'clock", "Fri 2026-11-20 21:00"),
        ("at 9 in the evening", "Fri 2026-11-20 21:00"),
        ("at 8 tonight", "Fri 2026-11-20 20:00"),
        ("tonight", "Fri 2026-11-20 20:00"),
        ("tonight at 11", "Fri 2026-11-20 23:00"),
        ("this afternoon", "Fri 2026-11-20 15:00"),
        ("noon", "Sat 2026-11-21 12:00"),
        ("midnight", "Sat 2026-11-21 00:00"),
        ("tomorrow", "Sat 2026-11-21 09:00"),
        ("tomorrow 9:00", "Sat 2026-11-21 09:00"),
        ("tomorrow at 9am", "Sat 2026-11-21 09:00"),
        ("Tomorrow, 9 AM", "Sat 2026-11-21 09:00"),
        ("at 9am tomorrow", "Sat 2026-11-21 09:00"),
        ("tomorrow evening at 8", "Sat 2026-11-21 20:00"),
        ("the day after tomorrow", "Sun 2026-11-22 09:00"),
        ("friday", "Fri 2026-11-27 09:00"),
        ("on friday 14:00", "Fri 2026-11-20 14:00"),
        ("on fri at 2pm", "Fri 2026-11-20 14:00"),
        ("on friday 11:00", "Fri 2026-11-27 11:00"),
        ("next friday 14:00", "Fri 2026-11-27 14:00"),
        ("next monday 8:00", "Mon 2026-11-23 08:00"),
        ("next week", "Fri 2026-11-27 09:00"),
        ("2026-12-24 18:00", "Thu 2026-12-24 18:00"),
        ("2026-12-24T18:00", "Thu 2026-12-24 18:00"),
        ("2026-12-24", "Thu 2026-12-24 09:00"),
        ("24 dec at 6pm", "Thu 2026-12-24 18:00"),
        ("on december 24th, 2027 at 18:00", "Fri 2027-12-24 18:00"),
        ("on the 1st of november", "Mon 2027-11-01 09:00"),
        ("两小时后", "Fri 2026-11-20 14:00"),
        ("2个小时以后", "Fri 2026-11-20 14:00"),
        ("半小时后", "Fri 2026-11-20 12:30"),
        ("一个半小时后", "Fri 2026-11-20 13:30"),
        ("两小时半之后", "Fri 2026-11-20 14:30"),
        ("10分钟后", "Fri 2026-11-20 12:10"),
        ("一刻钟后", "Fri 2026-11-20 12:15"),
        ("1小时30分钟后", "Fri 2026-11-20 13:30"),
        ("再过二十五分钟", "Fri 2026-11-20 12:25"),
        ("三天后", "Mon 2026-11-23 12:00"),
        ("三天后上午9点", "Mon 2026-11-23 09:00"),
        ("一百二十天后", "Sat 2027-03-20 12:00"),
        ("两周后", "Fri 2026-12-04 12:00"),
        ("半个月后", "Sat 2026-12-05 12:00"),
        ("一個月後", "Sun 2026-12-20 12:00"),
        ("半年后", "Thu 2027-05-20 12:00"),
        ("明天9点", "Sat 2026-11-21 09:00"),
        ("明天上午9点半", "Sat 2026-11-21 09:30"),
        ("明天的下午三点一刻", "Sat 2026-11-21 15:15"),
        ("明早八点零五分", "Sat 2026-11-21 08:05"),
        ("后天", "Sun 2026-11-22 09:00"),
        ("大后天中午", "Mon 2026-11-23 12:00"),
        ("今晚8点", "Fri 2026-11-20 20:00"),
        ("今晚", "Fri 2026-11-20 20:00"),
        ("今晚1点", "Sat 2026-11-21 01:00"),
        ("晚上12点", "Sat 2026-11-21 00:00"),
        ("凌晨两点", "Sat 2026-11-21 02:00"),
        ("下午", "Fri 2026-11-20 15:00"),
        ("傍晚6点", "Fri 2026-11-20 18:00"),
        ("18点30", "Fri 2026-11-20 18:30"),
        ("１８：３０", "Fri 2026-11-20 18:30"),
        ("周五下午3点", "Fri 2026-11-20 15:00"),
        ("星期天", "Sun 2026-11-22 09:00"),
        ("下周一 8:00", "Mon 2026-11-23 08:00"),
        ("下下个礼拜日", "Sun 2026-12-06 09:00"),
        ("12月24日 18:00", "Thu 2026-12-24 18:00"),
        ("十一月一号", "Mon 2027-11-01 09:00"),
        ("2月29日", "Tue 2028-02-29 09:00"),
        ("2026年12月24日晚上8点", "Thu 2026-12-24 20:00"),
    ],
)
def test_a_time_is_read_before_the_words_and_after_them(text, at):
    assert read(text) == (at, "")
    assert read(f"{text} call Bob") == (at, "call Bob")
    assert read(f"call Bob {text}") == (at, "call Bob")
    if not text.isascii():
        assert read(f"{text}开会") == (at, "开会")


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("me in 2 hours to call mum", "call mum"),
        ("me to call mum in 2 hours.", "call mum"),
        ("in 2 hours that the cake is done", "the cake is done"),
        ("in 2 hours: to\ndo", "do"),
        ("in 2 hours remind me about it", "it"),
        ("in 2 hours tomatoes", "tomatoes"),
        ("提醒我两小时后打电话", "打电话"),
        ("两小时后提醒我打电话", "打电话"),
        ("两小时后，打电话。", "打电话。"),
        ("In  2   Hours  two  spaces", "two  spaces"),
        ("of the cake in 2 hours", "the cake"),
        ("in 2 hours daily standup", "daily standup"),
        ("in 2 hours take my daily pills", "take my daily pills"),
        ("两小时后看每天的报告", "看每天的报告"),
        ("18点三个人开会", "三个人开会"),
        ("19点10个人", "10个人"),
        ("at 9pm friday's report", "friday's report"),
    ],
)
def test_the_words_are_what_is_left_without_what_leads_to_them(text, rest):
    found = parse(text, FRIDAY)
    assert isinstance(found, When)
    assert found.rest == rest


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", Problem.NONE),
        ("call Bob", Problem.NONE),
        ("每人带一瓶水", Problem.NONE),
        ("every Tom, Dick and Harry", Problem.NONE),
        ("tomorrowland", Problem.NONE),
        ("at 2nd street", Problem.NONE),
        ("in 5 apples", Problem.NONE),
        ("call Bob 24.12. 18:00", Problem.NONE),
        ("call Bob 3/4 18:00", Problem.NONE),
        ("call Bob 18:00:99:11", Problem.NONE),
        ("pack for tomorrow", Problem.NONE),
        ("早点睡", Problem.NONE),
        ("in 99999999999999 hours", Problem.NONE),
        ("at 25:00", Problem.WRONG),
        ("at 18:60", Problem.WRONG),
        ("at 13pm", Problem.WRONG),
        ("at 0am", Problem.WRONG),
        ("24:30", Problem.WRONG),
        ("2027-02-29 9:00", Problem.WRONG),
        ("2026-13-01", Problem.WRONG),
        ("0000-01-01", Problem.WRONG),
        ("2月30日", Problem.WRONG),
        ("明天九十点", Problem.WRONG),
        ("today at 11:00", Problem.PAST),
        ("this morning", Problem.PAST),
        ("2026-11-19 18:00", Problem.PAST),
        ("本周一", Problem.PAST),
        ("in 0 minutes", Problem.PAST),
        ("in 6 years", Problem.FAR),
        ("in 9999999 years", Problem.FAR),
        ("in 9999999 weeks", Problem.FAR),
        ("9999-12-31 23:59", Problem.FAR),
    ],
)
def test_what_is_no_time_to_come_is_refused(text, problem):
    assert read(text) == problem


def test_five_years_is_the_furthest():
    last = FRIDAY + MAX_AHEAD
    assert isinstance(parse(f"{last:%Y-%m-%d %H:%M}", FRIDAY), When)
    later = last + timedelta(minutes=1)
    assert parse(f"{later:%Y-%m-%d %H:%M}", FRIDAY) == Problem.FAR


def test_the_time_zone_must_be_known():
    with pytest.raises(ValueError, match="zone"):
        parse("noon", datetime(2026, 1, 1))  # noqa: DTZ001


# --- clocks that change --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "text", "at"),
    [
        # Berlin skips 02:00 to 03:00 on 2026-03-29, and has it twice on 2026-10-25.
        ("2026-03-28T12:00+00:00", "tomorrow 2:30", "2026-03-29T03:30+02:00"),
        ("2026-03-28T12:00+00:00", "tomorrow 3:30", "2026-03-29T03:30+02:00"),
        ("2026-03-28T22:00+00:00", "in 3 hours", "2026-03-29T03:00+02:00"),
        ("2026-03-28T12:00+00:00", "in 1 day", "2026-03-29T13:00+02:00"),
        ("2026-10-24T12:00+00:00", "tomorrow 2:30", "2026-10-25T02:30+02:00"),
        ("2026-10-25T00:10+00:00", "at 2:30", "2026-10-25T02:30+02:00"),
        ("2026-10-25T00:40+00:00", "at 2:30", "2026-10-25T02:30+01:00"),
        ("2026-10-25T01:10+00:00", "at 2:30", "2026-10-25T02:30+01:00"),
        ("2026-10-25T01:40+00:00", "at 02:30", "2026-10-26T02:30+01:00"),
        ("2026-10-24T12:00+00:00", "in 24 hours", "2026-10-25T13:00+01:00"),
    ],
)
def test_where_the_clock_skips_or_repeats_an_hour(now, text, at):
    found = parse(text, datetime.fromisoformat(now).astimezone(BERLIN))
    assert isinstance(found, When)
    assert found.at.isoformat(timespec="minutes") == at


def test_the_last_day_of_a_short_month():
    assert read("in 1 month", datetime(2027, 1, 31, 8, 0, tzinfo=BERLIN)) == (
        "Sun 2027-02-28 08:00",
        "",
    )


# --- round trips ---------------------------------------------------------------------------------

MOMENTS_IN_ZONES = st.one_of(near_changes(), st.tuples(MOMENTS, ZONES)).map(
    lambda when: datetime.fromtimestamp(when[0] // 60_000 * 60, when[1])
)
AHEAD = st.integers(1, 4 * 365 * 24 * 60).map(lambda minutes: timedelta(minutes=minutes))
FORMS = [
    "{at:%Y-%m-%d %H:%M}",
    "{at:%Y-%m-%dT%H:%M}",
    "on {at:%Y-%m-%d} at {at:%I:%M} {at:%p}",
    "{at:%d %B %Y} at {at:%H:%M}",
    "{at:%b %d, %Y}, {at:%H:%M}",
    "at {at:%H:%M} on {at:%Y-%m-%d}",
    "{at:%Y}年{at:%m}月{at:%d}日{at:%H}点{at:%M}分",
    "{at:%Y}年{at:%m}月{at:%d}号 {at:%H:%M}",
]


@given(MOMENTS_IN_ZONES, AHEAD, st.sampled_from(FORMS))
def test_a_moment_written_out_is_read_as_that_moment(now, ahead, form):
    at = (now.astimezone(UTC) + ahead).astimezone(now.tzinfo)
    found = parse(f"{form.format(at=at)} say hello", now)
    assert isinstance(found, When)
    assert found.rest == "say hello"
    # Of a time that comes twice, the other one may be meant.
    assert found.at == at or found.at.replace(tzinfo=None) == at.replace(tzinfo=None)
    assert found.at > now


@given(
    MOMENTS_IN_ZONES,
    st.integers(0, 50),
    st.integers(0, 300),
    st.sampled_from(
        ["in {h} hours {m} minutes", "in {h}h{m}m", "{h}小时{m}分钟后", "{h}h{m}m later"]
    ),
)
def test_hours_and_minutes_are_counted_by_the_clock(now, hours, minutes, form):
    assume(hours or minutes)
    found = parse(form.format(h=hours, m=minutes), now)
    assert isinstance(found, When)
    elapsed = found.at.astimezone(UTC) - now.astimezone(UTC)
    assert elapsed == timedelta(hours=hours, minutes=minutes)


@given(MOMENTS_IN_ZONES, st.integers(0, 23), st.integers(0, 59))
def test_a_time_of_day_is_the_next_one(now, hour, minute):
    found = parse(f"at {hour:02}:{minute:02}", now)
    assert isinstance(found, When)
    ahead = found.at.timestamp() - now.timestamp()
    assert 0 < ahead <= 25 * 3600 or now.tzinfo == ZoneInfo("Pacific/Apia")
    skipped = (found.at.hour, found.at.minute) != (hour, minute)
    if skipped:  # only where the clocks jump
        assert found.at.utcoffset() != (found.at - timedelta(days=1)).utcoffset()


@given(MOMENTS_IN_ZONES, st.integers(0, 6), st.sampled_from(["on {}day 10:00", "周{}10点"]))
def test_a_weekday_is_within_a_week(now, weekday, form):
    english = ["mon", "tues", "wednes", "thurs", "fri", "satur", "sun"]
    names = "一二三四五六日" if "周" in form else english
    found = parse(form.format(names[weekday]), now)
    assert isinstance(found, When)
    assume(now.tzinfo != ZoneInfo("Pacific/Apia"))
    assert found.at.weekday() == weekday
    assert 0 < found.at.timestamp() - now.timestamp() <= 7 * 86_400 + 3_600


# --- hostile text --------------------------------------------------------------------------------

PIECES = [
    *("in ", "at ", "9", "10:30", "h", "m", " ", "\n", ",", "and a half", "half an", "hour", "to "),
    *("tomorrow", "next ", "friday", "2026-", "-12", "T", "dec ", "24th", "明天", "下", "周", "一"),
    *("点", "半", "个", "小时", "后", "月", "日", "年", "上午", "晚", "提醒我", "me ", "pm"),
    *(":", "０"),
    *("９", "\u3000", "'", "’", "two ", "\x00", "\ud800", "٣", "²", "ſ", "in the evening"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join) | st.text(max_size=300))
def test_no_text_makes_it_fail(text):
    found = parse(text, FRIDAY)
    if isinstance(found, When):
        assert timedelta(0) < found.at - FRIDAY <= MAX_AHEAD
        assert len(found.rest) <= len(text)


@pytest.mark.timeout(20)  # what grows with the square of the length would take far longer
@pytest.mark.parametrize(
    "piece",
    [
        *("in ", "1h", "and  ", "between 1 ", "1 hour and ", " ", "下", "一", "9"),
        *("at 9:00 ", "半个", "a", "\n", "me "),
    ],
)
def test_a_huge_text_is_quick(piece):
    for size in (4_000, 200_000):
        parse((piece * size)[:size], FRIDAY)
        parse(f"x{(piece * size)[: size - 1]}x", FRIDAY)
    found = parse("at 9:00 " + "x" * 200_000, FRIDAY)
    assert isinstance(found, When)
    assert len(found.rest) == 200_000


NOW = datetime(2026, 11, 20, 12, 0, tzinfo=ZoneInfo("Europe/Berlin"))  # a Friday
WORKDAYS = "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"


def read_repeat(text: str) -> tuple[str, str, str]:
    found = parse(text, NOW)
    assert isinstance(found, Every), found
    return str(found.series.rule), f"{found.first:%a %m-%d %H:%M}", found.rest


@pytest.mark.parametrize(
    ("text", "rule", "first", "rest"),
    [
        ("every weekday at 8 take the bins out", WORKDAYS, "Mon 11-23 08:00", "take the bins out"),
        ("each workday at 8:30 stand up", WORKDAYS, "Mon 11-23 08:30", "stand up"),
        ("on weekdays at 8am x", WORKDAYS, "Mon 11-23 08:00", "x"),
        ("every day at 9 take pills", "FREQ=DAILY", "Sat 11-21 09:00", "take pills"),
        ("every day at 18:00 to call Bob", "FREQ=DAILY", "Fri 11-20 18:00", "call Bob"),
        ("daily at 9:00 take pills", "FREQ=DAILY", "Sat 11-21 09:00", "take pills"),
        ("take pills daily", "FREQ=DAILY", "Sat 11-21 09:00", "take pills"),
        ("at 9 every day take pills", "FREQ=DAILY", "Sat 11-21 09:00", "take pills"),
        ("take pills at 9 every morning", "FREQ=DAILY", "Sat 11-21 09:00", "take pills"),
        ("every evening walk", "FREQ=DAILY", "Fri 11-20 20:00", "walk"),
        ("every evening at 7 walk", "FREQ=DAILY", "Fri 11-20 19:00", "walk"),
        ("every day at 7 in the evening walk", "FREQ=DAILY", "Fri 11-20 19:00", "walk"),
        ("every day in the morning x", "FREQ=DAILY", "Sat 11-21 09:00", "x"),
        ("nightly backup", "FREQ=DAILY", "Fri 11-20 20:00", "backup"),
        ("every night at 12 sleep", "FREQ=DAILY", "Sat 11-21 00:00", "sleep"),
        ("take pills every other day at 9", "FREQ=DAILY;INTERVAL=2", "Sat 11-21 09:00",
         "take pills"),
        ("every 3 days water", "FREQ=DAILY;INTERVAL=3", "Sat 11-21 09:00", "water"),
        ("every 2 hours drink", "FREQ=HOURLY;INTERVAL=2", "Fri 11-20 14:00", "drink"),
        ("every hour stretch", "FREQ=HOURLY", "Fri 11-20 13:00", "stretch"),
        ("hourly stretch", "FREQ=HOURLY", "Fri 11-20 13:00", "stretch"),
        ("every half hour x", "FREQ=MINUTELY;INTERVAL=30", "Fri 11-20 12:30", "x"),
        ("every fifteen minutes x", "FREQ=MINUTELY;INTERVAL=15", "Fri 11-20 12:15", "x"),
        ("every 2 hours at 9 x", "FREQ=HOURLY;INTERVAL=2", "Sat 11-21 09:00", "x"),
        ("every monday call Bob", "FREQ=WEEKLY;BYDAY=MO", "Mon 11-23 09:00", "call Bob"),
        ("call Bob on mondays", "FREQ=WEEKLY;BYDAY=MO", "Mon 11-23 09:00", "call Bob"),
        ("every fri at 6pm x", "FREQ=WEEKLY;BYDAY=FR", "Fri 11-20 18:00", "x"),
        ("every monday morning x", "FREQ=WEEKLY;BYDAY=MO", "Mon 11-23 09:00", "x"),
        ("every tue, thu and sat at 7 x", "FREQ=WEEKLY;BYDAY=TU,TH,SA", "Sat 11-21 07:00", "x"),
        ("every weekend at 10 x", "FREQ=WEEKLY;BYDAY=SA,SU", "Sat 11-21 10:00", "x"),
        ("every second tuesday x", "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU", "Tue 11-24 09:00", "x"),
        ("every 2 weeks on monday x", "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO", "Mon 11-23 09:00", "x"),
        ("every week at 8 on monday x", "FREQ=WEEKLY;BYDAY=MO", "Mon 11-23 08:00", "x"),
        ("every friday at midnight x", "FREQ=WEEKLY;BYDAY=SA", "Sat 11-21 00:00", "x"),
        ("weekly review", "FREQ=WEEKLY", "Fri 11-27 09:00", "review"),
        ("on the 1st of each month pay", "FREQ=MONTHLY;BYMONTHDAY=1", "Tue 12-01 09:00", "pay"),
        ("every month on the 1st and 15th x", "FREQ=MONTHLY;BYMONTHDAY=1,15", "Tue 12-01 09:00",
         "x"),
        ("every 3 months on the 5th x", "FREQ=MONTHLY;INTERVAL=3;BYMONTHDAY=5", "Sat 12-05 09:00",
         "x"),
        ("on the last day of every month x", "FREQ=MONTHLY;BYMONTHDAY=-1", "Mon 11-30 09:00", "x"),
        ("every first monday of the month x", "FREQ=MONTHLY;BYDAY=1MO", "Mon 12-07 09:00", "x"),
        ("every month on the last friday x", "FREQ=MONTHLY;BYDAY=-1FR", "Fri 11-27 09:00", "x"),
        ("monthly report", "FREQ=MONTHLY", "Sun 12-20 09:00", "report"),
        ("every december 24 at 18:00 x", "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=24", "Thu 12-24 18:00",
         "x"),
        ("every year on 24 december x", "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=24", "Thu 12-24 09:00",
         "x"),
        ("每天早上9点吃药", "FREQ=DAILY", "Sat 11-21 09:00", "吃药"),
        ("提醒我吃药，每天早上8点", "FREQ=DAILY", "Sat 11-21 08:00", "吃药"),
        ("每晚9点关灯", "FREQ=DAILY", "Fri 11-20 21:00", "关灯"),
        ("天天吃药", "FREQ=DAILY", "Sat 11-21 09:00", "吃药"),
        ("每隔一天浇水", "FREQ=DAILY;INTERVAL=2", "Sat 11-21 09:00", "浇水"),
        ("隔天跑步", "FREQ=DAILY;INTERVAL=2", "Sat 11-21 09:00", "跑步"),
        ("每三天浇水", "FREQ=DAILY;INTERVAL=3", "Sat 11-21 09:00", "浇水"),
        ("每隔两小时喝水", "FREQ=HOURLY;INTERVAL=2", "Fri 11-20 14:00", "喝水"),
        ("每半个小时喝水", "FREQ=MINUTELY;INTERVAL=30", "Fri 11-20 12:30", "喝水"),
        ("每个工作日9:00打卡", WORKDAYS, "Mon 11-23 09:00", "打卡"),
        ("工作日早上8点半打卡", WORKDAYS, "Mon 11-23 08:30", "打卡"),
        ("提醒我每周一开会", "FREQ=WEEKLY;BYDAY=MO", "Mon 11-23 09:00", "开会"),
        ("每周一、周三和周五晚上7点跑步", "FREQ=WEEKLY;BYDAY=MO,WE,FR", "Fri 11-20 19:00", "跑步"),
        ("每星期天打扫", "FREQ=WEEKLY;BYDAY=SU", "Sun 11-22 09:00", "打扫"),
        ("每个周末看书", "FREQ=WEEKLY;BYDAY=SA,SU", "Sat 11-21 09:00", "看书"),
        ("每周一次写信", "FREQ=WEEKLY", "Fri 11-27 09:00", "写信"),
        ("每两周的周一上午10点开会", "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO", "Mon 11-23 10:00", "开会"),
        ("每个月1号交房租", "FREQ=MONTHLY;BYMONTHDAY=1", "Tue 12-01 09:00", "交房租"),
        ("每月1日、15日对账", "FREQ=MONTHLY;BYMONTHDAY=1,15", "Tue 12-01 09:00", "对账"),
        ("每月最后一天记账", "FREQ=MONTHLY;BYMONTHDAY=-1", "Mon 11-30 09:00", "记账"),
        ("每月第一个周一开会", "FREQ=MONTHLY;BYDAY=1MO", "Mon 12-07 09:00", "开会"),
        ("每个月交房租", "FREQ=MONTHLY", "Sun 12-20 09:00", "交房租"),
        ("每年12月24日送礼物", "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=24", "Thu 12-24 09:00", "送礼物"),
    ],
)  # fmt: skip
def test_how_often_is_read(text, rule, first, rest):
    assert read_repeat(text) == (rule, first, rest)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *((f"every {often} shout", Problem.OFTEN) for often in ("second", "5 seconds", "minute")),
        *(
            (f"{often}叫一声", Problem.OFTEN)
            for often in ("每秒", "每分钟", "每隔五分钟", "每9分钟")
        ),
        ("every 9 minutes shout", Problem.OFTEN),
        ("every 0 days shout", Problem.WRONG),
        ("every 9999 days shout", Problem.WRONG),
        ("every day at 25:00 shout", Problem.WRONG),
        ("on the 32nd of each month shout", Problem.WRONG),
        ("每年13月1日送礼物", Problem.WRONG),
        ("every year on february 30 x", Problem.WRONG),
        ("every few days x", Problem.REPEATS),
        ("每几天 x", Problem.NONE),
        ("pack for every monday", Problem.REPEATS),
        ("everything is fine", Problem.NONE),
    ],
)
def test_what_is_not_to_be_kept_is_said(text, problem):
    assert parse(text, NOW) == problem


def test_every_second_week_is_counted_from_the_first_time_to_come():
    found = parse(
        "every other week on thursday at 9", NOW
    )  # of this week's Thursday it is too late
    assert isinstance(found, Every)
    assert f"{found.first:%a %m-%d}" == "Thu 11-26"
    assert f"{found.series.begins:%m-%d}" == "11-26"


@given(
    st.text(
        alphabet="every each on the 1st day week month at 8:30 每隔两周一天早上8点，", max_size=80
    )
)
def test_whatever_is_written_is_read_or_not(text):
    found = parse(text, NOW)
    if isinstance(found, Every):
        assert found.first > NOW


# --- read right, or asked back --------------------------------------------------------------------

PHRASES = [
    line.split("\t")
    for line in (Path(__file__).parents[1] / "data" / "time_phrases.tsv").read_text().splitlines()
    if not line.startswith("#")
]


def meaning(text: str) -> list[str]:
    found = parse(text, NOW)
    if isinstance(found, When):
        return [f"{found.at:%a %m-%d %H:%M}", found.rest]
    if isinstance(found, Every):
        return [str(found.series.rule), f"{found.first:%a %m-%d %H:%M}", found.rest]
    return [f"? {found}"]


@pytest.mark.parametrize("row", PHRASES, ids=[row[0] for row in PHRASES])
def test_a_time_is_never_half_read(row):
    assert meaning(row[0]) == [*row[1:], *[""] * (len(meaning(row[0])) - len(row) + 1)]


def test_half_of_the_phrases_are_chinese():
    chinese = sum(not row[0].isascii() for row in PHRASES)
    assert len(PHRASES) >= 150
    assert 2 * chinese >= len(PHRASES) - 10


@pytest.mark.parametrize(
    ("hour", "text", "at"),
    [
        (14, "at 3", Problem.HALF),
        (14, "at 3:30", Problem.HALF),
        (16, "at 3", Problem.HALF),
        (16, "at 5", Problem.HALF),
        (1, "at 3", ("Fri 2026-11-20 03:00", "")),  # nobody is awake for the other one
        (6, "at 8", ("Fri 2026-11-20 08:00", "")),
        (22, "at 8", ("Sat 2026-11-21 08:00", "")),
        (14, "at 03:30", ("Sat 2026-11-21 03:30", "")),
        (14, "at 15", ("Fri 2026-11-20 15:00", "")),
        (14, "today at 3", ("Fri 2026-11-20 15:00", "")),
        (16, "today at 3", Problem.PAST),
        (14, "下午3点", ("Fri 2026-11-20 15:00", "")),
        (14, "3点", Problem.HALF),
    ],
)
def test_an_hour_that_may_be_of_the_morning_or_the_afternoon_is_asked_about(hour, text, at):
    assert read(text, FRIDAY.replace(hour=hour)) == at


def test_until_may_be_over_before_it_begins():
    assert parse("every monday until today x", NOW) == Problem.PAST
    assert parse("every day until february 30 x", NOW) == Problem.WRONG


@pytest.mark.parametrize(
    ("at", "english", "chinese"),
    [
        ("2026-11-21 14:49", "today at 14:49", "今天 14:49"),
        ("2026-11-20 23:59", "yesterday at 23:59", "昨天 23:59"),
        ("2026-11-22 00:00", "tomorrow at 00:00", "明天 00:00"),
        ("2026-11-19 23:59", "Thu 2026-11-19 23:59 (Asia/Tokyo)", None),
        ("2026-11-23 00:00", "Mon 2026-11-23 00:00 (Asia/Tokyo)", None),
    ],
)
def test_a_time_near_now_is_shown_by_its_day(at, english, chinese):
    zone = ZoneInfo("Asia/Tokyo")
    now = datetime(2026, 11, 20, 23, 30, tzinfo=UTC)  # the 21st in Tokyo
    when = datetime.fromisoformat(at).replace(tzinfo=zone)
    assert shown("en", when, now) == english
    if chinese:
        assert shown("zh", when, now) == chinese
    assert "today" not in shown("en", when)


@pytest.mark.parametrize(
    ("said", "about", "rest"),
    [
        ("next time I talk about Berlin, remind me to book", "Berlin", "book"),
        ("The next time we mention the tax return: ask Mia", "the tax return", "ask Mia"),
        ("remind me to book next time I talk about Berlin.", "Berlin", "book"),
        ("book next time I say something about Berlin", "Berlin", "book"),
        ("please remind me next time I ask about Mia: call her", "Mia", "call her"),
        ("next time I talk about Berlin remind me that it rains", "Berlin", "it rains"),
        ("下次我说到柏林的时候提醒我订酒店", "柏林", "订酒店"),
        ("下回聊到税务时，问问米娅", "税务", "问问米娅"),
        ("请在下次我们谈到搬家时提醒我给房东打电话", "搬家", "给房东打电话"),
        ("next time", "", ""),
        ("next time I talk about", "", ""),
        ("next time I talk about Berlin", "", ""),
        ("next time I talk about : x", "", ""),
        (f"next time I talk about {'x' * 121}: y", "", ""),
        ("下次我说到柏林", "", ""),
        ("下次再说", "", ""),
        ("call Bob tomorrow at 9", "", ""),
    ],
)
def test_a_topic_may_take_the_place_of_a_time(said, about, rest):
    found = due_time.next_time(said)
    assert (found is None) is (not about)
    if found is not None:
        assert (found.about, found.rest) == (about, rest)
        assert due_time.parse(said, datetime(2026, 7, 1, tzinfo=UTC)) == found


@pytest.mark.parametrize(
    ("words", "about", "meaning", "is_so"),
    [
        ("Berlin is far away", "Berlin", 0.0, True),
        ("I was in berlin?", "Berlin", 0.1, True),
        ("the trip to the dentist", "Berlin trip", 0.0, False),
        ("柏林怎么样", "柏林", 0.0, True),
        ("the capital of Germany", "Berlin", 0.6, True),
        ("I had pasta?", "Berlin", 0.2, False),
        ("", "Berlin", 0.0, False),
        ("hello", "...", 0.0, False),
    ],
)
def test_a_message_is_about_a_topic_by_its_words_or_its_meaning(words, about, meaning, is_so):
    assert is_about(words, about, meaning) is is_so
