from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel import ChatType
from bot.config import ContextConfig
from bot.context.budget import Budget, budget
from bot.sessions.store import Session
from bot.upkeep.policy import Due, due, is_told

CONFIG = ContextConfig()
SAVING = CONFIG.model_copy(update={"enable_memory_flush": True})
LEVELS = CONFIG.notice_percent
HUNDRED = Budget(200, 20, 100, 100, 90, 10, 180)  # so many tokens are so many percent
NEW = Session(
    *("s1", "agent:main:web:dm:ada", "ada", "web", "default", "ada", "", "direct", ""),
    *(None, 0, 0, "first", None, 0, 0, 0, 0, 0, 0),
)


def level(percent: int, told: int, levels: Sequence[int]) -> int | None:
    """The level to tell of at so many percent."""
    config = CONFIG.model_copy(update={"notice_percent": tuple(levels)})
    return due(replace(NEW, told=told), percent, HUNDRED, config, is_told=True).notice


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


def told(config: str, chosen: Any, chat_type: str, room: str = "") -> bool:
    """Whether people are told, by the configuration and by what a room's settings say."""
    policy = SimpleNamespace(config=SimpleNamespace(context=SimpleNamespace(notices=config)))
    conversation: Any = SimpleNamespace(
        settings=SimpleNamespace(notices=room),
        snapshot=SimpleNamespace(policy=policy),
        is_direct=chat_type == "direct",
    )
    return is_told(conversation, chosen)


@pytest.mark.parametrize("chat_type", get_args(ChatType))
def test_what_the_person_chose_comes_before_the_configuration(chat_type):
    for config in ("auto", "on", "off"):
        for room in ("", "auto", "on", "off"):
            assert told(config, "on", chat_type, room)
            assert not told(config, "off", chat_type, room)
            assert not told(config, "later", chat_type, room)


@pytest.mark.parametrize("chat_type", get_args(ChatType))
def test_groups_are_told_only_when_configured(chat_type):
    assert told("auto", "", chat_type) is (chat_type == "direct")
    assert told("on", "", chat_type)
    assert not told("off", "", chat_type)


@pytest.mark.parametrize("chat_type", get_args(ChatType))
def test_what_a_channel_says_comes_before_the_rest_of_the_configuration(chat_type):
    for config in ("auto", "on", "off"):
        assert told(config, "", chat_type, "on")
        assert not told(config, "", chat_type, "off")
        assert told(config, "", chat_type, "auto") is (chat_type == "direct")


# --- what is due ---------------------------------------------------------------------------------


@st.composite
def states(draw: st.DrawFn) -> tuple[Session, int, Budget]:
    """A session that goes on, the tokens in its window, and how that is shared out."""
    window = draw(st.integers(4_000, 1_000_000))
    session = replace(
        NEW,
        held=draw(st.integers(0, 1)),
        memory_flush_compaction_count=draw(st.sampled_from([-1, 0])),
        told=draw(st.sampled_from([0, 70, 85])),
    )
    shares = budget(window, ContextConfig(), 8_000)
    return session, window * draw(st.integers(0, 130)) // 100, shares


CONFIGS = st.booleans().map(lambda on: CONFIG.model_copy(update={"enable_memory_flush": on}))
FAILED = st.integers(0, 1_000_000)


@given(states(), CONFIGS, st.booleans(), FAILED)
def test_of_a_conversation_that_is_over_only_memory_is_saved(state, config, told, failed_at):
    session, used, shares = state
    over = replace(session, ended_by="left")
    found = due(over, used, shares, config, is_told=told, failed_at=failed_at)
    assert found == Due(flush=config.enable_memory_flush)


@given(states(), st.booleans())
def test_nothing_is_saved_where_that_is_off_or_was_done_in_this_cycle(state, told):
    session, used, shares = state
    off = CONFIG.model_copy(update={"enable_memory_flush": False})
    assert not due(session, used, shares, off, is_told=told).flush
    done = replace(session, memory_flush_compaction_count=0)
    assert not due(done, used, shares, SAVING, is_told=told).flush


@given(states(), CONFIGS)
def test_nobody_is_told_who_does_not_want_to_be(state, config):
    assert due(*state, config, is_told=False).notice is None


@given(states(), CONFIGS, st.booleans(), FAILED, st.integers(0, 100_000))
def test_a_fuller_conversation_needs_no_less(state, config, told, failed_at, more):
    session, used, shares = state
    less, fuller = (
        due(session, each, shares, config, is_told=told, failed_at=failed_at)
        for each in (used, used + more)
    )
    assert fuller.flush >= less.flush
    assert fuller.compaction >= less.compaction
    assert (fuller.notice or 0) >= (less.notice or 0)


@given(states(), CONFIGS)
def test_a_compaction_that_failed_is_tried_again_when_it_is_fuller_by_a_twentieth(state, config):
    session, used, shares = state
    assert not due(session, used, shares, config, is_told=True, failed_at=used).compaction
    fuller = used * 2 + shares.window
    assert due(session, fuller, shares, config, is_told=True, failed_at=used).compaction


@given(states(), FAILED)
def test_memory_is_saved_no_later_than_room_is_made(state, failed_at):
    session, used, shares = state
    session = replace(session, memory_flush_compaction_count=-1)
    found = due(session, used, shares, SAVING, is_told=True, failed_at=failed_at)
    assert found.flush or not found.compaction
