"""When the offline model is asked to remind, of what and when; and what only looks like it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import i18n
from bot.agent.models import Reply, Request, ToolSpec
from bot.agent.models.intent import Recall, Remember, Remind, Reminders, understand
from bot.agent.models.offline import OfflineModel
from bot.agent.tools.schedule_message import ScheduleMessage
from bot.context import quoting
from bot.context.quoting import Said
from bot.messages import Message, Text, ToolResult, ToolUse
from bot.sessions import due_time
from bot.sessions.due_time import Problem, When
from bot.sessions.reminders import MAX_TEXT
from bot.tool_results import Refused, Scheduled, ToolValue

BERLIN = ZoneInfo("Europe/Berlin")
FRIDAY = datetime(2026, 11, 20, 12, 0, 7, tzinfo=BERLIN)


def read(text: str) -> tuple[str, str] | str:
    """When and of what a text asks to be reminded, or what is wrong with that."""
    asked = understand(text)
    assert isinstance(asked, Remind)
    found = due_time.parse(asked.words, FRIDAY)
    if isinstance(found, Problem):
        return found.value
    at = found.at if isinstance(found, When) else found.first
    return f"{at:%a %H:%M}", found.rest


@pytest.mark.parametrize(
    ("text", "at", "what"),
    [
        ("remind me in 2 hours to call mum", "Fri 14:00", "call mum"),
        ("remind me to call mum in 2 hours", "Fri 14:00", "call mum"),
        ("in 2 hours remind me to call mum", "Fri 14:00", "call mum"),
        ("remind me tomorrow at 9 to water the plants", "Sat 09:00", "water the plants"),
        ("tomorrow remind me at 3pm to leave", "Sat 15:00", "leave"),
        ("Tomorrow at 9, please remind me to call Bob", "Sat 09:00", "call Bob"),
        ("Please remind me tomorrow at 9am to leave, thanks!", "Sat 09:00", "leave"),
        ("Can you remind me to call mum at 6pm?", "Fri 18:00", "call mum"),
        ("could you please remind me at 6pm about dinner please", "Fri 18:00", "dinner"),
        ("Hey, I'd like you to remind me in 5 min to breathe", "Fri 12:05", "breathe"),
        ("don’t forget to remind me tomorrow to call mum", "Sat 09:00", "call mum"),
        ("remember to remind me at 6pm to leave", "Fri 18:00", "leave"),
        ("remind us in 10 minutes to start", "Fri 12:10", "start"),
        ("remind me of the meeting tomorrow at 9", "Sat 09:00", "the meeting"),
        ("set a reminder for tomorrow at 9 to call mum", "Sat 09:00", "call mum"),
        ("I need a reminder for 6pm: dinner", "Fri 18:00", "dinner"),
        ("REMIND ME IN 1H TO CALL", "Fri 13:00", "CALL"),
        ("remind me tomorrow to take my daily pills", "Sat 09:00", "take my daily pills"),
        ("提醒我明天早上九点吃药", "Sat 09:00", "吃药"),
        ("两小时后提醒我开会", "Fri 14:00", "开会"),
        ("提醒我两小时后开会", "Fri 14:00", "开会"),
        ("请提醒我明天九点吃药，谢谢", "Sat 09:00", "吃药"),
        ("明天提醒我下午三点吃药", "Sat 15:00", "吃药"),
        ("记得提醒我明天九点吃药", "Sat 09:00", "吃药"),
        ("别忘了提醒我周五下午三点交报告", "Fri 15:00", "交报告"),
        ("你能提醒我明天九点吃药吗？", "Sat 09:00", "吃药"),
        ("明天早上九点你能提醒我吃药好吗？", "Sat 09:00", "吃药"),
        ("帮我设个提醒：明天九点开会", "Sat 09:00", "开会"),
        ("半小时后提醒我一下关火", "Fri 12:30", "关火"),
        ("半小時後提醒我关火", "Fri 12:30", "关火"),
        ("今晚8点提醒我们给妈妈打电话", "Fri 20:00", "给妈妈打电话"),
    ],
)
def test_a_wish_to_be_reminded(text: str, at: str, what: str):
    assert read(text) == (at, what)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("remind me", "none"),
        ("can you remind me?", "none"),
        ("remind me to call mum", "none"),
        ("remind me later to call mum", "none"),
        ("remind me yesterday to call mum", "none"),
        ("remind me today at 11:00 to call mum", "past"),
        ("remind me at 25:00 to call mum", "wrong"),
        ("remind me in 9 years to call mum", "far"),
        ("remind me every few days to take pills", "repeats"),
        ("remind me every minute to take pills", "often"),
        ("提醒我", "none"),
        ("提醒我吃药", "none"),
        ("每分钟提醒我吃药", "often"),
    ],
)
def test_a_wish_that_says_no_time_to_come(text: str, problem: str):
    assert read(text) == problem


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("do you remind me of someone", Recall),
        ("you remind me of someone", None),
        ("I was reminded that tomorrow at 9 is the meeting", None),
        ("remember that I remind him daily", Remember),
        ("remember that you remind me tomorrow at 9", Remember),
        ("he reminded me tomorrow at 9 to call", None),
        ("this reminds me of tomorrow at 9", None),
        ("mondays remind me of school", None),
        ("evenings like tonight remind me of you", None),
        ("did I ask you to remind me tomorrow at 9?", Recall),
        ("don't remind me tomorrow at 9 to call", None),
        ("tomorrow don't remind me to call", None),
        ("never remind me at 9", None),
        ("stop reminding me tomorrow", None),
        ("remind him tomorrow at 9 to call", None),
        ("remind me what I said about Berlin", Recall),
        ("remind me again why we do this", Recall),
        ("remind me about Berlin", Recall),
        ("remind me of my wife's birthday", Recall),
        ("would you remind me of your name?", Recall),
        ("thanks for reminding me tomorrow at 9", None),
        ("My boss said: remind me tomorrow at 9 to call", None),
        ('"remind me tomorrow at 9" is what she said', None),
        ("I'll remind you tomorrow at 9", None),
        ("谢谢你提醒我明天九点开会", None),
        ("他提醒我明天九点开会", None),
        ("老师提醒我明天早上九点交作业", None),
        ("不用提醒我明天九点开会", None),
        ("别提醒我明天九点吃药", None),
        ("明天九点不用提醒我", None),
        ("明天九点别提醒我吃药", None),
        ("你提醒我了吗", Recall),
        ("今天你提醒我吃药了吗？", Recall),
        ("你提醒我明天九点吃药了没有", None),
        ("明天早上九点你会提醒我吃药吗？", Recall),
        ("你提醒我想起了妈妈", None),
        ("提醒我的人明天来", None),
        ("提醒我一下我上次说了什么", Recall),
        ("记住我每天提醒他吃药", Remember),
        ("记住明天九点他会提醒我", Remember),
        ("what did I say about reminders?", Recall),
    ],
)
def test_what_only_looks_like_it(text: str, kind: type | None):
    assert type(understand(text)) is (kind or type(None))


@pytest.mark.parametrize(
    "text",
    [
        *("what reminders do I have?", "show my reminders", "cancel that reminder", "my reminders"),
        *("Do I have any reminders?", "which reminders are there", "我有哪些提醒？", "取消提醒"),
        *("我有什么提醒", "查看我的提醒", "删除刚才的提醒吧"),
    ],
)
def test_seeing_or_cancelling_them(text: str):
    assert understand(text) == Reminders()


@pytest.mark.parametrize(
    ("text", "rule", "first", "what"),
    [
        ("remind me every day at 9 to take pills", "FREQ=DAILY", "Sat 09:00", "take pills"),
        ("every monday at 9 remind me to jog", "FREQ=WEEKLY;BYDAY=MO", "Mon 09:00", "jog"),
        ("remind me to take pills at 9 every evening", "FREQ=DAILY", "Fri 21:00", "take pills"),
        ("提醒我每天早上九点吃药", "FREQ=DAILY", "Sat 09:00", "吃药"),
        ("每周一早上九点提醒我开会", "FREQ=WEEKLY;BYDAY=MO", "Mon 09:00", "开会"),
        ("每两小时提醒我喝水", "FREQ=HOURLY;INTERVAL=2", "Fri 14:00", "喝水"),
    ],
)
async def test_a_wish_to_be_reminded_again_and_again(text: str, rule: str, first: str, what: str):
    assert read(text) == (first, what)
    (use,) = (await answered(text)).message.blocks
    assert isinstance(use, ToolUse)
    assert (use.input["rule"], use.input["text"]) == (rule, what)
    assert f"{datetime.fromisoformat(use.input['at']):%a %H:%M}" == first


AHEAD = st.integers(1, 4 * 365 * 24 * 60).map(lambda minutes: timedelta(minutes=minutes))
FORMS = [
    "remind me on {at:%Y-%m-%d} at {at:%H:%M} to {what}",
    "please remind me to {what} on {at:%Y-%m-%d} at {at:%H:%M}",
    "on {at:%Y-%m-%d} at {at:%H:%M} remind me to {what}",
    "can you set a reminder for {at:%Y-%m-%d %H:%M} to {what}?",
    "提醒我{at:%Y}年{at:%m}月{at:%d}日{at:%H}点{at:%M}分，{what}",
    "{at:%Y}年{at:%m}月{at:%d}日{at:%H}点{at:%M}分提醒我{what}",
    "你能在{at:%Y}年{at:%m}月{at:%d}日{at:%H}点{at:%M}分提醒我{what}好吗？",
]


@given(AHEAD, st.sampled_from(FORMS), st.sampled_from(["call mum", "喝水", "drink 2 glasses"]))
async def test_the_tool_gets_the_time_that_was_written(ahead: timedelta, form: str, what: str):
    now = FRIDAY.replace(second=0)
    at = (now.astimezone(UTC) + ahead).astimezone(BERLIN)
    reply = await answered(form.format(at=at, what=what), now=now)
    (use,) = reply.message.blocks
    assert isinstance(use, ToolUse)
    assert (use.name, use.input["text"]) == ("schedule_message", what)
    scheduled = datetime.fromisoformat(use.input["at"]).astimezone(BERLIN)
    # Of a time that comes twice, the other one may be meant.
    assert scheduled == at or scheduled.replace(tzinfo=None) == at.replace(tzinfo=None)


OTHER_WORDS = st.sampled_from(["he", "she said", "you", "I do not", "memories", "他", "老师", "谁"])


@given(OTHER_WORDS, st.sampled_from(FORMS), AHEAD)
async def test_what_somebody_else_says_sets_nothing(who: str, form: str, ahead: timedelta):
    at = FRIDAY + ahead
    reply = await answered(f"{who}: {form.format(at=at, what='leave')}")
    assert not any(isinstance(block, ToolUse) for block in reply.message.blocks)


@given(st.text(max_size=80))
async def test_no_text_that_does_not_say_so_sets_one(text: str):
    asks = "remind" in text.lower() or "提醒" in text
    reply = await answered(text)
    assert asks or not any(isinstance(block, ToolUse) for block in reply.message.blocks)


async def test_a_wish_to_be_reminded_is_no_memory():
    said = (
        "Remind me in 2 hours to call mum.",
        "两小时后提醒我开会。",
        "My name is Ada.",
        "Cancel my reminder!",
    )
    talk = tuple(Said("person", text) for text in said)
    tools = (ToolSpec("memory_write", "", {}),)
    reply = await answered(quoting.render(talk), purpose="flush", tools=tools, said=talk)
    texts = [block.input["text"] for block in reply.message.blocks if isinstance(block, ToolUse)]
    assert texts == ["My name is Ada."]


# --- what it answers -----------------------------------------------------------------------------


async def answered(text: str, *more: Message, now: datetime | None = FRIDAY, **also: Any) -> Reply:
    messages = (Message("user", (Text(text),)), *more)
    request = Request(
        "offline", "", messages, also.pop("tools", (ScheduleMessage.spec,)), now=now, **also
    )
    events = [event async for event in OfflineModel().stream(request)]
    assert isinstance(events[-1], Reply)
    return events[-1]


async def after(result: str | ToolValue, *, is_error: bool = False, language: str = "en") -> str:
    asked = await answered("remind me tomorrow at 9 to call Bob")
    (use,) = asked.message.blocks
    assert isinstance(use, ToolUse)
    facts = None if isinstance(result, str) else result
    answer = ToolResult(use.id, str(result), is_error=is_error, value=facts)
    told = Message("user", (answer,))
    reply = await answered(
        "remind me tomorrow at 9 to call Bob", asked.message, told, language=language
    )
    return reply.message.text


async def test_it_is_confirmed_on_the_persons_clocks_once_the_tool_says_so():
    due = datetime(2026, 11, 21, 9, tzinfo=BERLIN)
    result = Scheduled(int(due.timestamp() * 1000), "Saturday 2026-11-21 09:00 (Europe/Berlin)")
    moment = "2026-11-21 09:00 (Europe/Berlin)"
    assert await after(result) == f"I will remind you on Sat {moment}: call Bob"
    assert await after(result, language="zh") == f"我会在 周六 {moment} 提醒你：call Bob"


async def test_what_comes_again_is_confirmed_with_how_often():
    due = datetime(2026, 11, 21, 9, tzinfo=BERLIN)
    rule = "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"
    result = Scheduled(int(due.timestamp() * 1000), "Saturday", rule, "2026-11-21T09:00:00")
    moment = "2026-11-21 09:00 (Europe/Berlin)"
    often = f"every weekday at 09:00, first on Sat {moment}"
    assert await after(result) == f"I will remind you {often}: call Bob"


@pytest.mark.parametrize(
    ("result", "is_error"),
    [
        (Refused("100 reminders wait for this person already"), True),
        ("scheduled for Saturday 2026-11-21 09:00 (Europe/Berlin)", False),
        ("scheduled for Saturday", True),
        ("I will", False),
        ("", False),
    ],
)
async def test_it_confirms_nothing_the_tool_did_not(result: str | ToolValue, *, is_error: bool):
    assert (await after(result, is_error=is_error)).startswith("I could not set a reminder.")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("remind me to call Bob", "reminder.problem_none"),
        ("remind me today at 11:00 to call Bob", "reminder.problem_past"),
        ("每分钟提醒我吃药", "reminder.problem_often"),
        ("10分钟后提醒我", "reminder.what"),
    ],
)
async def test_what_it_cannot_read_is_answered_with_how_to_say_it(
    language: str, text: str, why: str
):
    reply = await answered(text, language=language)
    head, _, examples = reply.message.text.partition("\n\n")
    assert head.startswith(i18n.catalog(language)[why].split("{")[0])
    assert examples == i18n.text(language, "offline.remind_examples")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_examples_it_gives_work(language: str):
    lines = i18n.text(language, "offline.remind_examples").splitlines()[1:]
    assert len(lines) == 4
    for line in lines:
        assert isinstance(read(line.removeprefix("- ")), tuple)


async def test_without_the_tool_or_the_time_it_says_so():
    assert (await answered("remind me in 2 hours to call", tools=())).message.text == (
        "I can't remind you of anything in this conversation."
    )
    reply = await answered("remind me in 2 hours to call", now=None)
    assert reply.message.text.startswith("When should I remind you?")


async def test_too_many_words_are_refused():
    reply = await answered(f"remind me in 2 hours to {'call ' * MAX_TEXT}")
    assert reply.message.text.startswith("That is too long")


async def test_whoever_asks_for_the_list_is_told_where_it_is():
    reply = await answered("what reminders do I have?")
    assert reply.message.text == i18n.text("en", "reminder.usage")
