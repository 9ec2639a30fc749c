from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.config import ContextConfig
from bot.context.budget import (
    Budget,
    Window,
    after_undo,
    budget,
    percent_full,
    resolve,
)
from bot.upkeep import policy
from tests.unit.test_upkeep_policy import NEW

DEFAULTS = ContextConfig()
OPEN = ContextConfig(context_tokens=2_000_000)

WINDOWS = st.integers(16_000, 2_000_000)
OUTPUTS = st.integers(1, 200_000)
CONFIGS = st.builds(
    lambda reserve, recent, soft: ContextConfig.model_validate(
        {
            "memory_flush_soft_tokens": soft,
            "compaction": {"reserve_tokens": reserve, "keep_recent_tokens": recent},
        }
    ),
    st.integers(0, 300_000),
    st.integers(0, 300_000),
    st.integers(0, 300_000),
)


def should_flush(used: int, shares: Budget, *, flushed_in_cycle: bool, enabled: bool) -> bool:
    session = replace(NEW, memory_flush_compaction_count=0 if flushed_in_cycle else -1)
    config = ContextConfig(enable_memory_flush=enabled)
    return policy.due(session, used, shares, config, is_told=False).flush


def should_compact(used: int, shares: Budget, *, held: bool) -> bool:
    session = replace(NEW, held=int(held))
    return policy.due(session, used, shares, DEFAULTS, is_told=False).compaction


def shared(window: int) -> Budget:
    return budget(window, DEFAULTS, 8192)


@pytest.mark.parametrize(
    ("reported", "config", "expected"),
    [
        (200_000, {}, Window(120_000, 200_000, "service", capped=True)),
        (120_001, {}, Window(120_000, 120_001, "service", capped=True)),
        (120_000, {}, Window(120_000, 120_000, "service", capped=False)),
        (119_999, {}, Window(119_999, 119_999, "service", capped=False)),
        (0, {}, Window(120_000, 200_000, "default", capped=True)),
        (-1, {}, Window(120_000, 200_000, "default", capped=True)),
        (0, {"windows": {"m": 64_000}}, Window(64_000, 64_000, "config", capped=False)),
        (200_000, {"windows": {"m": 64_000}}, Window(64_000, 64_000, "config", capped=False)),
        (1, {"windows": {"other": 64_000}}, Window(1, 1, "service", capped=False)),
        (0, {"windows": {"m": 0}}, Window(120_000, 200_000, "default", capped=True)),
        (0, {"windows": {"other": 64_000}}, Window(120_000, 200_000, "default", capped=True)),
        (
            0,
            {"windows": {"m": 64_000}, "context_tokens": 20_000},
            Window(20_000, 64_000, "config", capped=True),
        ),
        (1_000_000, {"context_tokens": 2_000_000}, Window(1_000_000, 1_000_000, "service", False)),
    ],
)
def test_the_first_who_knows_says_how_large_the_window_is_and_configuration_caps_it(
    reported, config, expected
):
    assert resolve(reported, ContextConfig.model_validate(config), "m") == expected


@given(st.integers(-10, 3_000_000), st.integers(16_000, 3_000_000))
def test_configuration_never_makes_a_window_larger(reported, cap):
    window = resolve(reported, ContextConfig(context_tokens=cap), "m")
    assert 0 < window.tokens <= min(window.reported, cap)
    assert window.capped == (window.tokens < window.reported)


@pytest.mark.parametrize(
    ("tokens", "small", "too_small"),
    [
        (15_999, True, True),
        (16_000, True, False),
        (16_001, True, False),
        (31_999, True, False),
        (32_000, False, False),
        (32_001, False, False),
    ],
)
def test_a_window_is_small_below_32_000_and_too_small_below_16_000(tokens, small, too_small):
    window = resolve(tokens, DEFAULTS, "m")
    assert (window.is_small, window.is_too_small) == (small, too_small)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (16_000, Budget(16_000, 4_000, 4_000, 12_000, 11_200, 2_666, 12_000)),
        (32_000, Budget(32_000, 8_000, 8_000, 24_000, 22_400, 5_333, 24_000)),
        (120_000, Budget(120_000, 8_192, 20_000, 100_000, 96_000, 20_000, 111_808)),
        (200_000, Budget(200_000, 8_192, 20_000, 180_000, 176_000, 20_000, 191_808)),
        (1_000_000, Budget(1_000_000, 8_192, 20_000, 980_000, 976_000, 20_000, 991_808)),
    ],
)
def test_how_windows_are_shared_out(window, expected):
    assert shared(window) == expected


@pytest.mark.parametrize("window", [16_000, 32_000, 200_000, 1_000_000])
def test_memories_are_saved_from_the_border_on_once_a_cycle(window):
    shares = shared(window)
    for used, due in ((-1, False), (0, True), (1, True)):
        at = shares.flush_from + used
        assert should_flush(at, shares, flushed_in_cycle=False, enabled=True) is due
        assert not should_flush(at, shares, flushed_in_cycle=True, enabled=True)
        assert not should_flush(at, shares, flushed_in_cycle=False, enabled=False)


def test_memories_are_never_saved_where_no_room_is_left_to_count_in():
    nothing = Budget(4, 1, 4, 0, 0, 0, 3)
    assert not should_flush(1_000, nothing, flushed_in_cycle=False, enabled=True)


@pytest.mark.parametrize("window", [16_000, 32_000, 200_000, 1_000_000])
def test_a_conversation_is_compacted_above_the_border_or_when_held_above_what_can_be_sent(window):
    shares = shared(window)
    for used, due in ((-1, False), (0, False), (1, True)):
        assert should_compact(shares.compact_above + used, shares, held=False) is due
        assert should_compact(shares.hard + used, shares, held=True) is due


@pytest.mark.parametrize(
    ("window", "output", "hard"),
    [
        (16_000, 2_000, 14_000),
        (32_000, 4_000, 28_000),
        (64_000, 8_000, 56_000),
        (120_000, 8_192, 111_808),
        (200_000, 8_192, 191_808),
    ],
)
def test_what_was_taken_back_has_room_to_go_on_and_shorter_replies_where_there_is_little(
    window, output, hard
):
    shares = shared(window)
    after = after_undo(shares)
    assert (after.output, after.hard) == (output, hard)
    assert replace(after, output=shares.output, hard=shares.hard) == shares
    assert not should_compact(shares.compact_above + shares.reserve // 2, after, held=True)
    assert should_compact(hard + 1, after, held=True)


@given(WINDOWS, CONFIGS, OUTPUTS)
def test_a_held_conversation_always_has_half_of_the_reserve_to_go_on(window, config, max_output):
    shares = budget(window, config, max_output)
    after = after_undo(shares)
    assert after.hard - after.compact_above >= shares.reserve // 2
    assert 0 < after.output <= shares.output
    assert after.output + after.hard == window


def test_the_reference_window_saves_at_176_000_and_compacts_above_180_000():
    shares = budget(resolve(200_000, OPEN, "m").tokens, OPEN, 8192)
    flushes = [
        used
        for used in range(175_990, 176_010)
        if should_flush(used, shares, flushed_in_cycle=False, enabled=True)
    ]
    compacts = [
        used for used in range(179_990, 180_010) if should_compact(used, shares, held=False)
    ]
    assert (flushes[0], compacts[0]) == (176_000, 180_001)


@pytest.mark.parametrize("window", [16_000, 32_000, 200_000, 1_000_000])
def test_full_is_where_compaction_begins(window):
    shares = shared(window)
    full = shares.compact_above
    assert [percent_full(used, shares) for used in (-5, 0, full - 1, full, full + 1)] == [
        0,
        0,
        99,
        100,
        100,
    ]
    assert percent_full(full * 7 // 10, shares) == 70
    assert percent_full(full * 7 // 10 - 1, shares) == 69


def test_no_window_at_all_is_full():
    assert percent_full(0, budget(0, DEFAULTS, 8192)) == 100


def test_a_reply_longer_than_the_reserve_still_has_its_room():
    shares = budget(200_000, DEFAULTS, 32_000)
    assert (shares.reserve, shares.compact_above, shares.hard) == (32_000, 168_000, 168_000)


@given(WINDOWS, CONFIGS, OUTPUTS)
def test_the_shares_fit_the_window_and_stand_in_order(window, config, max_output):
    shares = budget(window, config, max_output)
    assert 0 < shares.flush_from <= shares.compact_above <= shares.hard < window
    assert shares.output + shares.hard == window == shares.reserve + shares.compact_above
    assert 0 < shares.output <= max_output
    assert shares.keep_recent + shares.reserve < window / 2


@given(WINDOWS, CONFIGS, OUTPUTS)
def test_a_window_that_is_admitted_converses(window, config, max_output):
    shares = budget(window, config, max_output)
    assert shares.compact_above >= 10_000
    # A compaction makes room for more than it keeps.
    assert shares.keep_recent * 4 <= shares.compact_above


@given(WINDOWS, CONFIGS, OUTPUTS)
def test_one_token_more_of_a_window_changes_no_share_by_more_than_one(window, config, max_output):
    smaller, larger = (budget(size, config, max_output) for size in (window, window + 1))
    for name in Budget.__slots__:
        assert getattr(larger, name) - getattr(smaller, name) in {0, 1}, name


@given(WINDOWS, WINDOWS, CONFIGS, OUTPUTS, st.integers(0, 2_000_000))
def test_a_larger_window_is_never_fuller(one, other, config, max_output, used):
    small, large = (budget(size, config, max_output) for size in sorted((one, other)))
    assert percent_full(used, large) <= percent_full(used, small)
    for held in (False, True):
        assert should_compact(used, large, held=held) <= should_compact(used, small, held=held)
