"""What the offline model takes for a wish to keep, to be reminded, a question, or none of these."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models.intent import MAX_QUERY, Intent, understand
from bot.sessions import due_time
from bot.sessions.due_time import Every, Problem, When

BERLIN = ZoneInfo("Europe/Berlin")
FRIDAY = datetime(2026, 11, 20, 12, 0, 7, tzinfo=BERLIN)

REMEMBER = {
    "remember that my daughter is allergic to peanuts": "my daughter is allergic to peanuts",
    "Remember: the code is 4711": "the code is 4711",
    "please remember I like tea.": "I like tea.",
    "Hey, remember the milk": "the milk",
    "Could you remember that I moved to Berlin?": "I moved to Berlin",
    "Can you please remember my size is 42?": "my size is 42",
    "Don't forget that Ada comes on Friday": "Ada comes on Friday",
    "don’t forget the keys": "the keys",
    "Keep in mind: no sugar": "no sugar",
    "note that I'm out on Friday": "I'm out on Friday",
    "make a note: buy milk": "buy milk",
    "remember that he asked what time it is": "he asked what time it is",
    'remember "open sesame"': "open sesame",
    "remember one\ntwo": "one\ntwo",
    **dict.fromkeys(("remember", "Remember that.", "remember this", "记住", "记住这个"), ""),
    "记住我女儿对花生过敏": "我女儿对花生过敏",
    "请记住：密码是4711": "密码是4711",
    "请你记住，我喜欢喝茶。": "我喜欢喝茶。",
    "帮我记一下:车停在B2": "车停在B2",
    "记得我喜欢喝茶": "我喜欢喝茶",
    "别忘了明天开会": "明天开会",
    "不要忘记艾达周五来": "艾达周五来",
    "记下来:买牛奶": "买牛奶",
    "remember that you remind me tomorrow at 9": "you remind me tomorrow at 9",
    "记住明天九点他会提醒我": "明天九点他会提醒我",
}
FIND = {
    "What do you know about peanuts?": "peanuts",
    "what is my daughter allergic to": "daughter allergic",
    "Did I say anything about Berlin?": "Berlin",
    "do you remember my daughter?": "daughter",
    "Remember when we met Ada?": "met Ada",
    "remember what I told you about Berlin": "Berlin",
    "tell me what you know about Ada": "Ada",
    "search for the café in Zürich": "café Zürich",
    "peanuts?": "peanuts",
    "花生？": "花生",
    "你还记得我女儿对什么过敏吗": "女儿对 过敏",
    "我女儿对什么过敏？": "女儿对 过敏",
    "你记得我的名字吗？": "名字",
    "我女儿几岁": "女儿",
    "查一下柏林": "柏林",
    "What did we say about Rome last time?": "Rome",
    "上次聊罗马说了什么？": "聊罗马说了",
    # What only looks like a wish to be reminded.
    "do you remind me of someone": "someone",
    "remind me what I said about Berlin": "Berlin",
    "remind me of my wife's birthday": "wife birthday",
    "did I ask you to remind me tomorrow at 9?": "ask tomorrow 9",
    "what did I say about reminders?": "reminders",
    "今天你提醒我吃药了吗？": "今天 提醒 吃药了",
}
OTHERS = {
    "about": (
        *("who are you?", "What can you do", "what can you do for me?", "help", "are you a bot?"),
        *("你是谁？", "你能做什么", "你会什么？", "帮助", "你好，怎么用"),
    ),
    "notes": (
        *("What do you know about me?", "what do you remember?", "who am I", "show my notes"),
        *("你知道我什么", "你记得我的哪些事？", "你了解我吗", "我是谁？", "我告诉过你什么"),
    ),
    "before": (
        *("What did we talk about last time?", "what were we talking about", "Where were we?"),
        *("what did I say before?", "what have we discussed in our last conversation?"),
        *("上次聊了什么？", "我们之前聊到哪里了？", "我们上次都说了些什么", "刚才我们谈到哪了？"),
    ),
    "reminders": (
        *("what reminders do I have?", "show my reminders", "cancel that reminder", "my reminders"),
        *("Do I have any reminders?", "which reminders are there", "我有哪些提醒？", "取消提醒"),
        *("我有什么提醒", "查看我的提醒", "删除刚才的提醒吧"),
    ),
    "": (
        *("", " ", "hello", "I like tea.", "Notebooks are nice", "thanks!", "？", "今天天气很好"),
        *("how are you?", "Hi, how are you doing today?", "what's up", "are you there?"),
        *("你好吗？", "你好，最近怎么样", "在吗", "谢谢"),
        *("you remind me of someone", "he reminded me tomorrow at 9 to call", "never remind me"),
        *("don't remind me tomorrow at 9 to call", "remind him tomorrow at 9 to call"),
        *("My boss said: remind me tomorrow at 9 to call", "thanks for reminding me at 9"),
        *("evenings like tonight remind me of you", "谢谢你提醒我明天九点开会", "提醒我的人明天来"),
        *("老师提醒我明天早上九点交作业", "不用提醒我明天九点开会", "你提醒我想起了妈妈"),
    ),
}  # fmt: skip
REMIND = {
    "remind me in 2 hours to call mum": ("Fri 14:00", "call mum"),
    "remind me to call mum in 2 hours": ("Fri 14:00", "call mum"),
    "in 2 hours remind me to call mum": ("Fri 14:00", "call mum"),
    "Tomorrow at 9, please remind me to call Bob": ("Sat 09:00", "call Bob"),
    "Please remind me tomorrow at 9am to leave, thanks!": ("Sat 09:00", "leave"),
    "Can you remind me to call mum at 6pm?": ("Fri 18:00", "call mum"),
    "Hey, I'd like you to remind me in 5 min to breathe": ("Fri 12:05", "breathe"),
    "don’t forget to remind me tomorrow to call mum": ("Sat 09:00", "call mum"),
    "remind me of the meeting tomorrow at 9": ("Sat 09:00", "the meeting"),
    "set a reminder for tomorrow at 9 to call mum": ("Sat 09:00", "call mum"),
    "I need a reminder for 6pm: dinner": ("Fri 18:00", "dinner"),
    "every monday at 9 remind me to jog": ("Mon 09:00", "jog"),
    "提醒我明天早上九点吃药": ("Sat 09:00", "吃药"),
    "两小时后提醒我开会": ("Fri 14:00", "开会"),
    "请提醒我明天九点吃药，谢谢": ("Sat 09:00", "吃药"),
    "别忘了提醒我周五下午三点交报告": ("Fri 15:00", "交报告"),
    "你能提醒我明天九点吃药吗？": ("Sat 09:00", "吃药"),
    "明天早上九点你能提醒我吃药好吗？": ("Sat 09:00", "吃药"),
    "帮我设个提醒：明天九点开会": ("Sat 09:00", "开会"),
    "每周一早上九点提醒我开会": ("Mon 09:00", "开会"),
    "remind me": "none",
    "remind me to call mum": "none",
    "remind me today at 11:00 to call mum": "past",
    "remind me at 25:00 to call mum": "wrong",
    "remind me every minute to take pills": "often",
    "提醒我吃药": "none",
}


@pytest.mark.parametrize(("text", "words"), REMEMBER.items())
def test_a_wish_to_keep(text: str, words: str):
    assert understand(text) == Intent("remember", words)


@pytest.mark.parametrize(("text", "words"), FIND.items())
def test_a_question_is_looked_for_by_its_content_words(text: str, words: str):
    assert understand(text) == Intent("find", words)


@pytest.mark.parametrize(
    ("kind", "text"), [(k, text) for k, some in OTHERS.items() for text in some]
)
def test_what_has_no_words_of_its_own(kind: str, text: str):
    assert understand(text) == Intent(kind)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("text", "expected"), REMIND.items())
def test_a_wish_to_be_reminded(text: str, expected: tuple[str, str] | str):
    asked = understand(text)
    assert asked.kind == "remind"
    found = due_time.parse(asked.words, FRIDAY)
    match found:
        case Problem():
            assert found.value == expected
        case When(at, rest) | Every(_, at, rest):
            assert (f"{at:%a %H:%M}", rest) == expected


AHEAD = st.integers(1, 4 * 365 * 24 * 60).map(lambda minutes: timedelta(minutes=minutes))
FORMS = st.sampled_from(
    [
        "remind me on {at:%Y-%m-%d} at {at:%H:%M} to {what}",
        "please remind me to {what} on {at:%Y-%m-%d} at {at:%H:%M}",
        "on {at:%Y-%m-%d} at {at:%H:%M} remind me to {what}",
        "can you set a reminder for {at:%Y-%m-%d %H:%M} to {what}?",
        "提醒我{at:%Y}年{at:%m}月{at:%d}日{at:%H}点{at:%M}分，{what}",
        "{at:%Y}年{at:%m}月{at:%d}日{at:%H}点{at:%M}分提醒我{what}",
    ]
)
OTHERS_SAY = st.sampled_from(["he", "she said", "you", "I do not", "memories", "他", "老师", "谁"])


@given(AHEAD, FORMS, st.sampled_from(["call mum", "喝水", "drink 2 glasses"]), OTHERS_SAY)
def test_the_time_that_was_written_is_read_and_only_of_who_asks_for_themselves(
    ahead: timedelta, form: str, what: str, who: str
):
    now = FRIDAY.replace(second=0)
    at = (now.astimezone(UTC) + ahead).astimezone(BERLIN)
    said = form.format(at=at, what=what)
    found = due_time.parse(understand(said).words, now)
    assert isinstance(found, When)
    assert found.rest == what
    # Of a time that comes twice, the other one may be meant.
    assert found.at == at or found.at.replace(tzinfo=None) == at.replace(tzinfo=None)
    assert understand(f"{who}: {said}").kind != "remind"


@given(st.text())
def test_any_text_is_understood_one_way_or_another(text: str):
    asked = understand(text)
    assert len(asked.words) <= max(MAX_QUERY, len(text) + 1)
    assert asked.kind != "remember" or asked.words in text
    assert asked.kind != "find" or asked.words
    assert asked.kind != "remind" or "remind" in text.lower() or "提醒" in text


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "text",
    [
        *("please " * 5000, "请" * 9000, "a" * 20000 + "?", "remember " * 3000, "可以" * 9000),
        *("请你" * 40, "你好" * 4000, "好的你要" * 4000, "remind me " * 3000, "提醒我" * 6000),
        *("a" + " " * 20000, "你能" * 4000 + "提醒", "tomorrow " * 3000, "please remind " * 3000),
    ],
)
def test_long_texts_take_no_time(text: str):
    understand(text)
