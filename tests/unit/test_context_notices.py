from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel import ChatType
from bot.config import ContextConfig
from bot.context.notices import due, wanted

LEVELS = ContextConfig().notice_percent


@pytest.mark.parametrize(
    ("percent", "told", "expected"),
    [
        (0, 0, None),
        (69, 0, None),
        (70, 0, 70),
        (71, 0, 70),
        (70, 70, None),
        (84, 70, None),
        (84, 0, 70),
        (85, 0, 85),
        (85, 70, 85),
        (86, 70, 85),
        (85, 85, None),
        (90, 0, 85),
        (120, 85, None),
        (72, 85, None),
    ],
)
def test_each_level_is_told_when_it_is_reached_and_not_again(percent, told, expected):
    assert due(percent, told, LEVELS) == expected


@pytest.mark.parametrize(("levels", "expected"), [((), None), ((85, 70), 85), ((0, -5), None)])
def test_levels_may_stand_in_any_order_and_be_none(levels, expected):
    assert due(99, 0, levels) == expected


@given(
    st.lists(st.integers(0, 130), max_size=60),
    st.lists(st.integers(-5, 110), max_size=5),
)
def test_in_a_cycle_every_level_is_told_at_most_once_and_in_order(percents, levels):
    told, heard = 0, list[int]()
    for percent in percents:
        level = due(percent, told, levels)
        if level is not None:
            assert level in levels
            assert level <= percent
            heard.append(level)
            told = level
    assert heard == sorted(set(heard))
    reached = [level for level in levels if 0 < level <= max(percents, default=0)]
    assert max(heard, default=0) == max(reached, default=0)


@pytest.mark.parametrize("chat_type", get_args(ChatType))
def test_what_the_person_chose_comes_before_the_configuration(chat_type):
    for config in ("auto", "on", "off"):
        assert wanted(config, "on", chat_type)
        assert not wanted(config, "off", chat_type)
        assert not wanted(config, "later", chat_type)


@pytest.mark.parametrize("chat_type", get_args(ChatType))
def test_groups_are_told_only_when_configured(chat_type):
    assert wanted("auto", "", chat_type) is (chat_type == "direct")
    assert wanted("on", "", chat_type)
    assert not wanted("off", "", chat_type)
