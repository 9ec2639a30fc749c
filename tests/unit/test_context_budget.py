"""What of a window is whose, what is due when it fills, and what is told of it."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel import ChatType
from bot.config import ContextConfig
from bot.context.budget import (
    MOST_DETAILS,
    ORDER,
    Budget,
    Part,
    PartName,
    Report,
    Window,
    bar,
    brief,
    budget,
    fit,
    grouped,
    lines,
    percent_full,
    resolve,
)
from bot.i18n import LANGUAGES, catalog
from bot.sessions.store import Session
from bot.upkeep import active_session
from bot.upkeep.active_session import Due, due_upkeep, is_told

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
    return due_upkeep(replace(NEW, told=told), percent, HUNDRED, config, is_told=True).notice


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


@given(st.lists(st.integers(0, 130), max_size=60), st.lists(st.integers(-5, 100), max_size=5))
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
    # Above 100 room is made, and that is told instead.
    most = max((each for each in percents if each <= 100), default=0)
    assert max(heard, default=0) == max((each for each in levels if 0 < each <= most), default=0)


def told(config: str, chosen: Any, chat_type: str, room: str = "") -> bool:
    """Whether people are told, by the configuration and by what a room's settings say."""
    conversation: Any = SimpleNamespace(
        settings=SimpleNamespace(notices=room),
        config=SimpleNamespace(context=SimpleNamespace(notices=config)),
        is_direct=chat_type == "direct",
    )
    return is_told(conversation, chosen)


@pytest.mark.parametrize("chat_type", get_args(ChatType))
def test_what_the_person_chose_comes_first_then_the_rooms_settings_then_the_rest(chat_type):
    for config in ("auto", "on", "off"):
        for room in ("", "auto", "on", "off"):
            for chosen in ("on", "off", "later"):
                assert told(config, chosen, chat_type, room) is (chosen == "on")
            says = room or config
            by_itself = says == "on" or (says == "auto" and chat_type == "direct")
            assert told(config, "", chat_type, room) is by_itself


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
def test_nothing_is_done_that_is_over_off_unwanted_or_was_done_in_this_cycle(
    state, config, told, failed_at
):
    session, used, shares = state
    over = replace(session, ended_by="left")
    found = due_upkeep(over, used, shares, config, is_told=told, failed_at=failed_at)
    assert found == Due(flush=config.enable_memory_flush)  # memory is saved at the end
    off = CONFIG.model_copy(update={"enable_memory_flush": False})
    assert not due_upkeep(session, used, shares, off, is_told=told).flush
    done = replace(session, memory_flush_compaction_count=0)
    assert not due_upkeep(done, used, shares, SAVING, is_told=told).flush
    assert due_upkeep(*state, config, is_told=False).notice is None


@given(states(), CONFIGS, st.booleans(), FAILED, st.integers(0, 100_000))
def test_a_fuller_conversation_needs_no_less(state, config, told, failed_at, more):
    session, used, shares = state
    less, fuller = (
        due_upkeep(session, each, shares, config, is_told=told, failed_at=failed_at)
        for each in (used, used + more)
    )
    assert fuller.flush >= less.flush
    assert fuller.compaction >= less.compaction
    assert fuller.compaction or (fuller.notice or 0) >= (less.notice or 0)


@given(states(), CONFIGS)
def test_a_compaction_that_failed_is_tried_again_when_it_is_fuller_by_a_twentieth(state, config):
    session, used, shares = state
    assert not due_upkeep(session, used, shares, config, is_told=True, failed_at=used).compaction
    fuller = used * 2 + shares.window
    assert due_upkeep(session, fuller, shares, config, is_told=True, failed_at=used).compaction


@given(states(), FAILED)
def test_memory_is_saved_no_later_than_room_is_made(state, failed_at):
    session, used, shares = state
    session = replace(session, memory_flush_compaction_count=-1)
    found = due_upkeep(session, used, shares, SAVING, is_told=True, failed_at=failed_at)
    assert found.flush or not found.compaction


DEFAULTS = ContextConfig()

WINDOWS = st.integers(16_000, 2_000_000)
OUTPUTS = st.integers(1, 200_000)
BUDGETS = st.builds(
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
    return active_session.due_upkeep(session, used, shares, config, is_told=False).flush


def should_compact(used: int, shares: Budget, *, held: bool) -> bool:
    session = replace(NEW, held=int(held))
    return active_session.due_upkeep(session, used, shares, DEFAULTS, is_told=False).compaction


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
        (3_999, True, True),
        (4_000, True, False),
        (15_999, True, False),
        (31_999, True, False),
        (32_000, False, False),
        (32_001, False, False),
    ],
)
def test_a_window_is_small_below_32_000_and_too_small_below_4_000(tokens, small, too_small):
    window = resolve(tokens, DEFAULTS, "m")
    assert (window.is_small, window.is_too_small) == (small, too_small)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (4_096, Budget(4_096, 1_024, 1_024, 3_072, 2_868, 682, 3_584)),
        (15_999, Budget(15_999, 3_999, 3_999, 12_000, 11_200, 2_666, 14_000)),
        (16_000, Budget(16_000, 4_000, 4_000, 12_000, 11_200, 2_666, 14_000)),
        (32_000, Budget(32_000, 8_000, 8_000, 24_000, 22_400, 5_333, 28_000)),
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
    for used, wanted in ((-1, False), (0, True), (1, True)):
        at = shares.flush_from + used
        assert should_flush(at, shares, flushed_in_cycle=False, enabled=True) is wanted
        assert not should_flush(at, shares, flushed_in_cycle=True, enabled=True)
        assert not should_flush(at, shares, flushed_in_cycle=False, enabled=False)


@pytest.mark.parametrize("window", [16_000, 32_000, 200_000, 1_000_000])
def test_a_conversation_is_compacted_above_the_border_or_when_held_above_what_can_be_sent(window):
    shares = shared(window)
    for used, wanted in ((-1, False), (0, False), (1, True)):
        assert should_compact(shares.compact_above + used, shares, held=False) is wanted
        assert should_compact(shares.hard + used, shares, held=True) is wanted


@given(st.integers(4_000, 1_000_000), BUDGETS, st.integers(256, 200_000))
def test_a_reply_fits_between_where_a_summary_begins_and_where_one_must_be_waited_for(
    window, config, max_output
):
    shares = budget(window, config, max_output)
    spare = window - shares.hard  # the longest reply that is asked for there
    assert 0 < spare <= shares.output
    assert shares.hard - shares.compact_above >= spare
    usual = budget(window, DEFAULTS, max_output)
    assert window - usual.hard >= min(max_output, window // 8, 10_000)


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


def test_no_window_at_all_is_full_and_has_no_room_to_save_in():
    assert percent_full(0, budget(0, DEFAULTS, 8192)) == 100
    nothing = Budget(4, 1, 4, 0, 0, 0, 3)
    assert not should_flush(1_000, nothing, flushed_in_cycle=False, enabled=True)


def test_a_reply_longer_than_the_reserve_still_has_its_room():
    shares = budget(200_000, DEFAULTS, 32_000)
    assert (shares.reserve, shares.compact_above, shares.hard) == (32_000, 168_000, 184_000)


@given(WINDOWS, BUDGETS, OUTPUTS)
def test_the_shares_fit_the_window_in_order_leave_room_to_converse_and_never_jump(
    window, config, max_output
):
    shares = budget(window, config, max_output)
    assert 0 < shares.flush_from <= shares.compact_above <= shares.hard < window
    assert shares.reserve + shares.compact_above == window
    assert 0 < shares.output <= max_output
    assert shares.keep_recent + shares.reserve < window / 2
    assert shares.compact_above >= 10_000
    # A compaction makes room for more than it keeps.
    assert shares.keep_recent * 4 <= shares.compact_above
    larger = budget(window + 1, config, max_output)
    for name in Budget.__slots__:
        assert getattr(larger, name) - getattr(shares, name) in {0, 1}, name


@given(WINDOWS, WINDOWS, BUDGETS, OUTPUTS, st.integers(0, 2_000_000))
def test_a_larger_window_is_never_fuller(one, other, config, max_output, used):
    small, large = (budget(size, config, max_output) for size in sorted((one, other)))
    assert percent_full(used, large) <= percent_full(used, small)
    for held in (False, True):
        assert should_compact(used, large, held=held) <= should_compact(used, small, held=held)


WINDOW = resolve(200_000, CONFIG, "m")
REPORT = Report(
    parts=(
        Part("persona", 2_000, (("SOUL.md", 1_500), ("AGENTS.md", 500))),
        Part("tools", 1_000, (("memory_search", 1_000),)),
        Part("history", 40_000),
        Part("tool_results", 5_000),
    ),
    used=50_000,
    budget=budget(WINDOW.tokens, CONFIG, 8192),
    window=WINDOW,
    model="claude-test",
    measured=True,
)
SIZES = st.integers(-10, 300_000)
PARTS = st.lists(
    st.builds(
        Part,
        st.sampled_from(ORDER),
        SIZES,
        st.lists(st.tuples(st.text(max_size=5), SIZES), max_size=4).map(tuple),
    ),
    max_size=10,
)


@pytest.mark.parametrize(
    ("percent", "blocks"),
    [
        (-5, 0),
        (0, 0),
        (1, 1),
        (5, 1),
        (9, 1),
        (10, 2),
        (50, 10),
        (99, 19),
        (100, 20),
        (101, 20),
        (900, 20),
    ],
)
def test_a_bar_is_empty_for_nothing_and_full_only_when_it_is(percent, blocks):
    assert bar(percent) == "█" * blocks + "░" * (20 - blocks)


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0"), (999, "999"), (1_000, "1 000"), (1_234_567, "1 234 567")]
)
def test_numbers_are_grouped(number, words):
    assert grouped(number) == words.replace(" ", "\u202f")


@given(PARTS, SIZES)
def test_parts_always_add_up(parts, used):
    fitted = fit(parts, used)
    assert [part.name for part in fitted] == list(ORDER)
    assert sum(part.tokens for part in fitted) == max(0, used)
    assert fit(fitted, used) == fitted
    report = replace(REPORT, parts=tuple(parts), used=used)
    assert 0 <= report.percent <= 100
    assert sum(report.percents().values()) == report.percent
    for part in fitted:
        assert part.tokens >= 0
        assert all(size >= 0 for _, size in part.detail)
        assert sum(size for _, size in part.detail) <= part.tokens


@given(PARTS, SIZES)
def test_parts_keep_their_order_of_size_when_they_are_scaled(parts, used):
    plain = fit(parts, sum(max(0, part.tokens) for part in parts))
    fitted = fit(parts, used)
    for one, scaled_one in zip(plain, fitted, strict=True):
        for other, scaled_other in zip(plain, fitted, strict=True):
            if one.tokens > other.tokens and "other" not in {one.name, other.name}:
                assert scaled_one.tokens >= scaled_other.tokens


def test_what_the_parts_do_not_explain_is_something_else():
    assert {part.name: part.tokens for part in REPORT.fitted()} == {
        "persona": 2_000,
        "tools": 1_000,
        "memory": 0,
        "summary": 0,
        "history": 40_000,
        "tool_results": 5_000,
        "other": 2_000,
    }


def test_parts_that_explain_too_much_are_scaled_with_their_details():
    fitted = {part.name: part for part in replace(REPORT, used=24_000).fitted()}
    assert fitted["persona"] == Part("persona", 1_000, (("SOUL.md", 750), ("AGENTS.md", 250)))
    assert fitted["other"].tokens == 0


def test_the_list_says_how_full_it_is_and_of_what():
    assert [line.replace("\u202f", " ") for line in lines(REPORT, "en")] == [
        "**50 % full**: 50 000 of 100 000 tokens",
        "`██████████░░░░░░░░░░`",
        "- who I am: 2 000 (2 %)",
        "- tools: 1 000 (1 %)",
        "- messages: 40 000 (40 %)",
        "- tool results: 5 000 (5 %)",
        "- everything else: 2 000 (2 %)",
        "",
        "The total is counted by the model; the breakdown is estimated.",
    ]


def test_the_details_name_what_parts_are_made_of_the_largest_first():
    found = [line.replace("\u202f", " ") for line in lines(REPORT, "en", "detail")]
    place = found.index("- who I am: 2 000 (2 %)")
    assert found[place + 1 : place + 3] == ["  - `SOUL.md`: 1 500", "  - `AGENTS.md`: 500"]
    assert "Model: `claude-test`, a window of 120 000 tokens" in found
    assert "The service reports a window of 200 000 tokens." in found
    assert "The configuration uses 120 000 of them (context_tokens)." in found
    assert "96 000" in " ".join(found)


def test_the_list_names_files_and_attachments_and_no_tools():
    parts = (
        Part("persona", 2_000, (("SOUL.md", 1_500),)),
        Part("tools", 900, (("memory_search", 900),)),
        Part("history", 800, (("report.pdf", 700),)),
    )
    report = replace(REPORT, parts=parts)
    found = {more: lines(report, "en", more) for more in ("", "list", "detail")}
    named = {more: [line for line in found[more] if line.startswith("  - `")] for more in found}
    assert named[""] == []
    assert [line.split("`")[1] for line in named["list"]] == ["SOUL.md", "report.pdf"]
    assert len(named["detail"]) == 3
    assert len(found["list"]) == len(found[""]) + 2


def test_many_details_are_told_of_together():
    many = Part("memory", 5_000, tuple((f"note{n:02}", n) for n in range(MOST_DETAILS + 3)))
    found = lines(replace(REPORT, parts=(many,)), "en", "detail")
    assert sum(line.startswith("  - `") for line in found) == MOST_DETAILS
    assert "  - 3 more: 3" in found


@pytest.mark.parametrize(
    ("name", "shown"), [("a`b", "a'b"), ("a\n- b", "a - b"), (" ", "?"), ("{model}", "{model}")]
)
def test_no_name_breaks_the_markdown(name, shown):
    report = replace(REPORT, parts=(Part("memory", 10, ((name, 5),)),), model=name)
    found = lines(report, "en", "detail")
    assert f"  - `{shown}`: 5" in found
    assert sum(f"`{shown}`" in line for line in found) == 2


@pytest.mark.parametrize(
    ("reported", "config", "key"),
    [
        (200_000, {}, "context.source.service"),
        (0, {}, "context.source.default"),
        (0, {"windows": {"m": 20_000}}, "context.source.config"),
    ],
)
def test_the_details_say_who_knows_the_window(reported, config, key):
    window = resolve(reported, ContextConfig.model_validate(config), "m")
    found = lines(replace(REPORT, window=window), "en", "detail")
    told = catalog("en")[key].format(reported=grouped(window.reported))
    assert told in found
    assert (catalog("en")["context.small"] in found) is window.is_small
    assert ("context_tokens" in "".join(found)) is window.capped


def test_an_estimate_is_called_one():
    for language in LANGUAGES:
        measured, estimated = (
            lines(replace(REPORT, measured=measured), language)[-1] for measured in (True, False)
        )
        assert measured == catalog(language)["context.measured"]
        assert estimated == catalog(language)["context.estimated"]


def test_every_part_has_a_name_in_every_language():
    for language in LANGUAGES:
        for name in get_args(PartName):
            full = replace(REPORT, parts=(Part(name, REPORT.used),))
            assert catalog(language)[f"context.part.{name}"] in lines(full, language, False)[2]


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", "messages 40 %, tool results 5 %, who I am 2 %"),
        ("zh", "我们说过的话 40 %、工具的回答 5 %、我是谁 2 %"),
    ],
)
def test_a_notice_names_the_largest_parts(language, words):
    assert brief(REPORT, language) == words


def test_an_empty_conversation_has_no_parts_to_tell_of():
    empty = replace(REPORT, parts=(), used=0)
    assert empty.percent == 0
    assert brief(empty, "en") == ""
    assert not [line for line in lines(empty, "en", "detail") if line.startswith("- ")]


@given(
    PARTS, SIZES, st.sampled_from(LANGUAGES), st.booleans(), st.sampled_from(("", "list", "detail"))
)
def test_no_report_breaks_the_words(parts, used, language, measured, more):
    report = replace(REPORT, parts=tuple(parts), used=used, measured=measured)
    assert all("\n" not in line for line in lines(report, language, more))
