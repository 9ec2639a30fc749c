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
        ("I'm going to quit and open a café.", "slept over it. I'm not quitting"),
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
