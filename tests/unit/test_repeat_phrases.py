"""How people say that something comes again and again, in English and Chinese."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.sessions.due_time import Every, Problem, parse

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=ZoneInfo("Europe/Berlin"))  # a Friday
WORKDAYS = "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"


def read(text: str) -> tuple[str, str, str]:
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
        (
            "take pills every other day at 9",
            "FREQ=DAILY;INTERVAL=2",
            "Sat 11-21 09:00",
            "take pills",
        ),
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
        (
            "every month on the 1st and 15th x",
            "FREQ=MONTHLY;BYMONTHDAY=1,15",
            "Tue 12-01 09:00",
            "x",
        ),
        (
            "every 3 months on the 5th x",
            "FREQ=MONTHLY;INTERVAL=3;BYMONTHDAY=5",
            "Sat 12-05 09:00",
            "x",
        ),
        ("on the last day of every month x", "FREQ=MONTHLY;BYMONTHDAY=-1", "Mon 11-30 09:00", "x"),
        ("every first monday of the month x", "FREQ=MONTHLY;BYDAY=1MO", "Mon 12-07 09:00", "x"),
        ("every month on the last friday x", "FREQ=MONTHLY;BYDAY=-1FR", "Fri 11-27 09:00", "x"),
        ("monthly report", "FREQ=MONTHLY", "Sun 12-20 09:00", "report"),
        (
            "every december 24 at 18:00 x",
            "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=24",
            "Thu 12-24 18:00",
            "x",
        ),
        (
            "every year on 24 december x",
            "FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=24",
            "Thu 12-24 09:00",
            "x",
        ),
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
)
def test_how_often_is_read(text, rule, first, rest):
    assert read(text) == (rule, first, rest)


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
