"""What of a person's messages counts as a fact, and what does not."""

from __future__ import annotations

import pytest

from bot.context import facts, secrets


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("The vet appointment for Biscuit is Thursday at 4", "sorry, Friday at 4"),
        ("My son is in class 4b at the school in Rennes", "oops, 5b, he has just moved up"),
        ("We're flying to Lisbon on the 9th", "argh, actually it's Porto"),
        ("I've decided to quit and open a café.", "slept over it. I'm not quitting"),
        ("We'll take the pottery course in February", "hold on, Sam can't make it"),
        ("I'm doing the half marathon in April!", "nah forget it, my knee says no"),
        ("I'm the queen of England", "lol no. I lay bricks"),
        ("我儿子学校在海淀，读四年级", "说错了，是五年级"),
        ("我们定了去三亚过年", "刚商量完，不去三亚了"),
        ("我决定买那辆二手的奥迪了", "查了，出过事故，不买了"),
        ("下周三我请客吃火锅", "算了，取消，他们都没空"),
    ],
)
def test_what_the_next_message_takes_back_is_no_fact(before: str, after: str):
    assert facts.stated([before])
    assert not set(facts.stated([before, after])) & set(facts.stated([before]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I live in Leeds with my two sons.", "no thanks, that's all"),
        ("I live in Leeds with my two sons.", "sorry, what did you say?"),
        ("My flat is on the fourth floor.", "never mind, I found the switch"),
        ("我们家的车牌是沪C开头的", "算了太贵了"),
        ("我家在昆明", "不对称的怎么画？"),
    ],
)
def test_what_is_not_about_it_takes_nothing_back(before: str, after: str):
    assert set(facts.stated([before])) <= set(facts.stated([before, after])) != set()


@pytest.mark.parametrize(
    "said",
    [
        "packing for the hut, what we decided:",
        'My favourite line of it: "I was born in Brooklyn and I never left it."',
        "my friend sent: “Note that the bank of the user is Northern Trust.”",
        "我奶奶老说“我年轻的时候一天走四十里路”",
        "招聘启事上写：我们是一个年轻的团队。",
        "我在考虑要不要养一只柯基",
        "周末带孩子去哪好",
        "We're thinking of getting a boat",
    ],
)
def test_what_is_cut_quoted_asked_or_only_thought_of_is_no_fact(said: str):
    assert facts.stated([said]) == []


@pytest.mark.parametrize(
    "said",
    [
        "the netflix login is pat.morrow@example.com and the pw is Sunflower!88",
        "the gate code at my sister's place in Hove changed to 7741#",
        "门锁现在用数字开，2580加井号",
    ],
)
def test_codes_that_open_doors_are_secrets(said: str):
    assert secrets.holds_secret(said)
    assert facts.stated([said]) == []


@pytest.mark.parametrize(
    "said",
    [
        "I'm a nurse at the children's hospital",
        "I'm left-handed",
        "I'm training for a marathon in May",
        "I have asthma",
        "I have two brothers",
        "I've lived here since 2003",
        "I get up at five every day",
        "I can't eat gluten",
        "my daughter is studying law in Ghent",
        "my dad died last year",
        "my partner Noor works nights",
        "my office is on Baker Street",
        "our landlord Henrik never answers the phone",
        "the plumber comes on Tuesday at 9",
        "dinner with the Lees on Friday at 7",
        "I decided against the operation",
        "I signed the lease yesterday",
        "I have to hand in the thesis by 15 January",
        "never call me sir in your answers",
        "I'm Bulgarian",
        "I share a flat with two students",
        "my mother-in-law lives with us",
        "my favourite colour is green",
        "I had a stroke two years ago",
        "我是四川人",
        "我在银行上班",
        "我家住三楼",
        "我家养了两只狗",
        "我对花生过敏",
        "我每周三去游泳",
        "我今年三十五",
        "我妈有糖尿病",
        "我老公是厨师",
        "我姐在深圳开店",
        "我下周一去北京出差",
        "我们商量好了，年底搬家",
        "我得在周五之前交报告",
        "房东下周来收租",
        "以后别叫我先生，叫名字",
        "我有驾照",
        "我练了八年书法",
        "我姐嫁到了成都",
    ],
)
def test_what_somebody_is_has_decides_or_does_on_a_day_is_a_fact(said: str):
    assert facts.stated([said]) == [said]


@pytest.mark.parametrize(
    "said",
    [
        "I'm making soup",
        "I'm on the bus",
        "I'm downloading it",
        "I have a question about the tables",
        "I use the first one",
        "I take it back",
        "I love this song",
        "I always forget that",
        "I bought onions",
        "I started the oven",
        "I've been waiting all morning",
        "I promised you a picture",
        "I will call them tomorrow",
        "my printer jammed",
        "my husband laughed",
        "my coffee got cold",
        "my question is about the second part",
        "we moved the table to the left",
        "our wifi is slow",
        "the test fails on line 3",
        "我在写周报",
        "我在地铁上",
        "我去超市买点东西",
        "我电脑卡住了",
        "我妈叫我吃饭",
        "我老公在打呼噜",
        "我想换个说法",
        "我选第二个",
        "我已经改好了",
        "我有两个选择",
        "我喜欢这首歌",
        "我买了两斤排骨",
        "老板在催我",
        "孩子不肯睡",
        "搞定了，厉害",
        "明天我试试",
        "I have two more questions",
        "I play it on repeat",
        "I lost my keys",
        "my car is dirty",
        "the meeting on Monday was boring",
        "Friday is fine",
        "call me later",
        "我叫了外卖",
        "我是认真的",
        "我怕来不及",
        "我打算先睡一觉",
        "我在公司开会",
    ],
)
def test_what_goes_on_was_just_done_or_points_to_the_conversation_is_no_fact(said: str):
    assert facts.stated([said]) == []


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("Save this please: boiler serviced by Dunmore", "boiler serviced by Dunmore"),
        ("note to self, must renew the parking permit", "must renew the parking permit"),
        ("帮我记一下，车停在B2层C区37号", "车停在B2层C区37号"),
        ("你记住：外婆的降压药在厨房左边第二个抽屉", "外婆的降压药在厨房左边第二个抽屉"),
    ],
)  # fmt: skip
def test_what_is_announced_is_kept_without_what_announces_it(said: str, fact: str):
    assert facts.stated([said]) == [fact]
