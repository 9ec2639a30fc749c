from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.config import ContextConfig
from bot.context.budget import budget, resolve
from bot.context.report import (
    MOST_DETAILS,
    ORDER,
    Part,
    PartName,
    Report,
    bar,
    brief,
    fit,
    grouped,
    lines,
)
from bot.i18n import LANGUAGES, catalog

CONFIG = ContextConfig()
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


@given(st.integers(-10, 200), st.integers(0, 60))
def test_a_bar_is_as_wide_as_asked(percent, width):
    assert len(bar(percent, width)) == width


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
    assert [line.replace("\u202f", " ") for line in lines(REPORT, "en", detail=False)] == [
        "**50 % full**: 50 000 of 100 000 tokens",
        "`██████████░░░░░░░░░░`",
        "- who I am: 2 000 (2 %)",
        "- tools: 1 000 (1 %)",
        "- what we said: 40 000 (40 %)",
        "- what tools answered: 5 000 (5 %)",
        "- everything else: 2 000 (2 %)",
        "",
        "Counted by the model; how it divides is estimated.",
    ]


def test_the_details_name_what_parts_are_made_of_the_largest_first():
    found = [line.replace("\u202f", " ") for line in lines(REPORT, "en", detail=True)]
    place = found.index("- who I am: 2 000 (2 %)")
    assert found[place + 1 : place + 3] == ["  - `SOUL.md`: 1 500", "  - `AGENTS.md`: 500"]
    assert "Model: `claude-test`, a window of 120 000 tokens" in found
    assert "The model says how large its window is: 200 000 tokens." in found
    assert "The configuration uses 120 000 of them (context_tokens)." in found
    assert "96 000" in " ".join(found)


def test_many_details_are_told_of_together():
    many = Part("memory", 5_000, tuple((f"note{n:02}", n) for n in range(MOST_DETAILS + 3)))
    found = lines(replace(REPORT, parts=(many,)), "en", detail=True)
    assert sum(line.startswith("  - `") for line in found) == MOST_DETAILS
    assert "  - 3 more: 3" in found


@pytest.mark.parametrize(
    ("name", "shown"), [("a`b", "a'b"), ("a\n- b", "a - b"), (" ", "?"), ("{model}", "{model}")]
)
def test_no_name_breaks_the_markdown(name, shown):
    report = replace(REPORT, parts=(Part("memory", 10, ((name, 5),)),), model=name)
    found = lines(report, "en", detail=True)
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
    found = lines(replace(REPORT, window=window), "en", detail=True)
    told = catalog("en")[key].format(reported=grouped(window.reported))
    assert told in found
    assert (catalog("en")["context.small"] in found) is window.is_small
    assert ("context_tokens" in "".join(found)) is window.capped


def test_an_estimate_is_called_one():
    for language in LANGUAGES:
        measured, estimated = (
            lines(replace(REPORT, measured=measured), language, detail=False)[-1]
            for measured in (True, False)
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
        ("en", "what we said 40 %, what tools answered 5 %, who I am 2 %"),
        ("zh", "我们说过的话 40 %、工具的回答 5 %、我是谁 2 %"),
    ],
)
def test_a_notice_names_the_largest_parts(language, words):
    assert brief(REPORT, language) == words


def test_an_empty_conversation_has_no_parts_to_tell_of():
    empty = replace(REPORT, parts=(), used=0)
    assert empty.percent == 0
    assert brief(empty, "en") == ""
    assert not [line for line in lines(empty, "en", detail=True) if line.startswith("- ")]


@given(PARTS, SIZES, st.sampled_from(LANGUAGES), st.booleans(), st.booleans())
def test_no_report_breaks_the_words(parts, used, language, measured, detail):
    report = replace(REPORT, parts=tuple(parts), used=used, measured=measured)
    assert all("\n" not in line for line in lines(report, language, detail))
