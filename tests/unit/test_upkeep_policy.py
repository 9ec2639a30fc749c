from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel import ChatType
from bot.config import ContextConfig
from bot.context.budget import budget
from bot.upkeep.policy import Due, Rules, State, due, level, should_prune, wanted

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
    assert level(percent, told, LEVELS) == expected


@pytest.mark.parametrize(("levels", "expected"), [((), None), ((85, 70), 85), ((0, -5), None)])
def test_levels_may_stand_in_any_order_and_be_none(levels, expected):
    assert level(99, 0, levels) == expected


@given(
    st.lists(st.integers(0, 130), max_size=60),
    st.lists(st.integers(-5, 110), max_size=5),
)
def test_in_a_cycle_every_level_is_told_at_most_once_and_in_order(percents, levels):
    told, heard = 0, list[int]()
    for percent in percents:
        found = level(percent, told, levels)
        if found is not None:
            assert found in levels
            assert found <= percent
            heard.append(found)
            told = found
    assert heard == sorted(set(heard))
    reached = [each for each in levels if 0 < each <= max(percents, default=0)]
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


# --- what is due ---------------------------------------------------------------------------------

WINDOWS = st.integers(4_000, 1_000_000)
STATES = st.builds(
    lambda window, part, held, **known: State(
        used=window * part // 100,
        shares=budget(window, ContextConfig(), 8_000),
        is_held=held,
        **known,
    ),
    WINDOWS,
    st.integers(0, 130),
    st.booleans(),
    is_flushed=st.booleans(),
    is_over=st.booleans(),
    is_told=st.booleans(),
    told=st.sampled_from([0, 70, 85]),
    failed_at=st.integers(0, 1_000_000),
)
RULES = st.builds(Rules, st.booleans(), st.just(LEVELS))


@given(STATES, RULES)
def test_of_a_conversation_that_is_over_only_memory_is_saved(state, rules):
    found = due(replace(state, is_over=True), rules)
    assert found == Due(flush=rules.saves)


@given(STATES, RULES)
def test_nothing_is_saved_where_that_is_off_or_was_done_in_this_cycle(state, rules):
    state = replace(state, is_over=False)
    assert not due(state, replace(rules, saves=False)).flush
    assert not due(replace(state, is_flushed=True), rules).flush


@given(STATES, RULES)
def test_nobody_is_told_who_does_not_want_to_be(state, rules):
    assert due(replace(state, is_told=False), rules).notice is None


@given(STATES, RULES, st.integers(0, 100_000))
def test_a_fuller_conversation_needs_no_less(state, rules, more):
    less, fuller = due(state, rules), due(replace(state, used=state.used + more), rules)
    assert fuller.flush >= less.flush
    assert fuller.compaction >= less.compaction
    assert (fuller.notice or 0) >= (less.notice or 0)


@given(STATES, RULES)
def test_a_compaction_that_failed_is_tried_again_when_it_is_fuller_by_a_twentieth(state, rules):
    state = replace(state, is_over=False)
    failed = replace(state, failed_at=state.used)
    assert not due(failed, rules).compaction
    fuller = replace(failed, used=state.used * 2 + state.shares.window)
    assert due(fuller, rules).compaction


@given(STATES, RULES)
def test_memory_is_saved_no_later_than_room_is_made(state, rules):
    found = due(replace(state, is_over=False, is_flushed=False), replace(rules, saves=True))
    assert found.flush or not found.compaction


@given(STATES)
def test_old_results_are_shortened_in_a_cold_cache_and_where_it_is_full(state):
    assert should_prune(state.used, state.shares, is_cold=True)
    is_full = state.used > state.shares.compact_above
    assert should_prune(state.used, state.shares, is_cold=False) is is_full
