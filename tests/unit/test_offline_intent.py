"""What the offline model takes for a wish to keep, a question about the past, or neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent.models.intent import (
    MAX_QUERY,
    About,
    Recall,
    Remember,
    Remind,
    Reminders,
    understand,
)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("remember that my daughter is allergic to peanuts", "my daughter is allergic to peanuts"),
        ("Remember: the code is 4711", "the code is 4711"),
        ("please remember I like tea.", "I like tea."),
        ("Hey, remember the milk", "the milk"),
        ("Could you remember that I moved to Berlin?", "I moved to Berlin"),
        ("Can you please remember my size is 42?", "my size is 42"),
        ("Don't forget that Ada comes on Friday", "Ada comes on Friday"),
        ("don’t forget the keys", "the keys"),
        ("Keep in mind: no sugar", "no sugar"),
        ("note that I'm out on Friday", "I'm out on Friday"),
        ("make a note: buy milk", "buy milk"),
        ("remember that he asked what time it is", "he asked what time it is"),
        ('remember "open sesame"', "open sesame"),
        ("remember one\ntwo", "one\ntwo"),
        ("remember", ""),
        ("记住我女儿对花生过敏", "我女儿对花生过敏"),
        ("请记住：密码是4711", "密码是4711"),
        ("请你记住，我喜欢喝茶。", "我喜欢喝茶。"),
        ("帮我记一下:车停在B2", "车停在B2"),
        ("记得我喜欢喝茶", "我喜欢喝茶"),
        ("别忘了明天开会", "明天开会"),
        ("不要忘记艾达周五来", "艾达周五来"),
        ("记下来:买牛奶", "买牛奶"),
        ("记住", ""),
    ],
)
def test_a_wish_to_keep(text: str, what: str):
    assert understand(text) == Remember(what)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("What do you know about peanuts?", "peanuts"),
        ("what is my daughter allergic to", "daughter allergic"),
        ("Did I say anything about Berlin?", "Berlin"),
        ("do you remember my daughter?", "daughter"),
        ("Remember when we met Ada?", "met Ada"),
        ("remember what I told you about Berlin", "Berlin"),
        ("remember my birthday?", "birthday"),
        ("tell me what you know about Ada", "Ada"),
        ("search for the café in Zürich", "café Zürich"),
        ("peanuts?", "peanuts"),
        ("花生？", "花生"),
        ("你还记得我女儿对什么过敏吗", "女儿对 过敏"),
        ("我女儿对什么过敏？", "女儿对 过敏"),
        ("你记得我的名字吗？", "名字"),
        ("我女儿几岁", "女儿"),
        ("还记得我说过的花生", "花生"),
        ("查一下柏林", "柏林"),
        ("？", "？"),
    ],
)
def test_a_question_about_the_past(text: str, query: str):
    assert understand(text) == Recall(query)


@pytest.mark.parametrize(
    "text",
    [
        *("What did we talk about last time?", "what were we talking about", "Where were we?"),
        *("what did I say before?", "what have we discussed in our last conversation?"),
        *("上次聊了什么？", "我们之前聊到哪里了？", "我们上次都说了些什么", "刚才我们谈到哪了？"),
    ],
)
def test_a_question_about_the_conversation_before(text: str):
    asked = understand(text)
    assert isinstance(asked, Recall)
    assert asked.before


@pytest.mark.parametrize(
    "text",
    [
        "What did we say about Rome last time?",
        "what did I say?  About Rome",
        "上次聊罗马说了什么？",
    ],
)
def test_a_question_about_a_thing_is_looked_for(text: str):
    asked = understand(text)
    assert isinstance(asked, Recall)
    assert not asked.before


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "hello",
        "你好",
        "I like tea.",
        "Notebooks are nice",
        "thanks!",
        "谢谢",
        "今天天气很好",
        *("how are you?", "Hi, how are you doing today?", "what's up", "are you there?"),
        *("你好吗？", "你好，最近怎么样", "在吗"),
    ],
)
def test_anything_else(text: str):
    assert understand(text) is None


@pytest.mark.parametrize(
    "text",
    [
        *("who are you?", "What can you do", "help", "hi, what is this?", "are you a bot?"),
        *("你是谁？", "你能做什么", "你会什么？", "帮助", "你好，怎么用"),
    ],
)
def test_a_question_about_the_bot(text: str):
    assert understand(text) == About()


@given(st.text())
def test_any_text_is_understood_one_way_or_another(text: str):
    match understand(text):
        case Remember(what):
            assert what in text
        case Recall(query):
            assert query.strip()
            assert len(query) <= MAX_QUERY
        case Remind():
            assert "remind" in text.lower() or "提醒" in text
        case Reminders() | About() | None:
            pass


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "text",
    [
        *("please " * 5000, "请" * 9000, "a" * 20000 + "?", "remember " * 3000),
        *("请你" * 40, "你好" * 4000, "好的你要" * 4000, "remind me " * 3000, "提醒我" * 6000),
        *("a" + " " * 20000, "你能" * 4000 + "提醒", "tomorrow " * 3000, "please remind " * 3000),
    ],
)
def test_long_texts_take_no_time(text: str):
    understand(text)
