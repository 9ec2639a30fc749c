"""What channels make of text, and what they leave out of it."""

import io
import re
import unicodedata
from functools import partial
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from adapters.screen import Screen
from bot.channel.kit.text import closed, has_ink, length, literal, seen, shows, split
from bot.context.sentences import stem
from bot.gateway.gateway import LONGEST_REASON as LONGEST
from bot.gateway.gateway import MOST_REASONS, Connections
from bot.metrics import Metrics
from bot.speech.api import MOST, speakable
from bot.storage.fulltext import folded
from bot.testing import RecordingEngine
from bot.unicode import normal_form, one_line, well_formed
from tests.support import core_of, running

FRAGMENTS = st.sampled_from(
    [
        "```",
        "```py",
        "~~~",
        "````",
        " ",
        "\n",
        "\n\n",
        "a",
        "你好",
        "😀",
        "👨‍👩‍👧",
        "x" * 70,
        "word ",
        "é",
        "🇩🇪",
    ]
)
TEXTS = st.lists(st.one_of(FRAGMENTS, st.text(max_size=30)), max_size=60).map("".join)
UNITS = st.sampled_from(["chars", "utf16"])


@given(TEXTS, st.integers(64, 200), UNITS)
def test_no_piece_is_longer_than_the_limit_nor_empty(text, limit, unit):
    for piece in split(text, limit, unit):
        assert length(piece, unit) <= limit
        assert piece.strip()


@given(TEXTS.filter(lambda t: not set("`~*_|").intersection(t)), st.integers(64, 200), UNITS)
def test_nothing_is_lost_and_the_order_stays(text, limit, unit):
    assert "".join("".join(split(text, limit, unit)).split()) == "".join(text.split())


@given(st.lists(st.text("abc ", min_size=1, max_size=90), min_size=1, max_size=80))
def test_code_in_a_fence_survives_in_fences_of_its_own(code):
    found = split("before\n```py\n" + "\n".join(code) + "\n```\nafter", 100)
    for piece in found:
        assert piece.count("```") % 2 == 0
    inside = [
        line
        for piece in found
        for line in piece.split("\n")
        if line not in ("```py", "```", "before", "after")
    ]
    assert "".join("".join(inside).split()) == "".join("".join(code).split())


def test_a_text_that_fits_is_not_touched():
    assert split("one\n\ntwo", 64) == ["one\n\ntwo"]


def test_white_space_alone_makes_no_piece():
    assert split(" \n\n ", 64) == []


def test_a_block_that_fits_a_piece_of_its_own_is_not_torn():
    text = "a" * 60 + "\n\n" + "b" * 20 + "\n```\n" + "c" * 30 + "\n```"
    assert split(text, 100)[-1].startswith("```\n" + "c" * 30)


@pytest.mark.parametrize("mark", ["**", "~~", "||", "*", "_", "`", "***"])
def test_what_is_cut_within_a_mark_is_marked_on_both_sides(mark):
    found = split(f"before {mark}{'one two ' * 60}end{mark} after", 100)
    assert len(found) > 5
    assert all(piece.count(mark) == 2 for piece in found)
    assert all(piece.startswith(mark) for piece in found[1:])
    assert all(piece.endswith(mark) for piece in found[:-1])


def test_marks_within_one_another_are_closed_inside_out():
    first, *_ = split(f"**bold {'x ' * 30}~~struck {'y ' * 60}y~~ z**", 100)
    assert first.endswith("y~~**")


@pytest.mark.parametrize(
    "text",
    ["5 * 3 " * 40, "snake_case_name " * 30, "a || b " * 40, r"\*no " * 40, "**open " * 30],
)
def test_what_marks_nothing_is_not_opened_again(text):
    assert "".join("".join(split(text, 100)).split()) == "".join(text.split())


def test_an_emoji_of_several_code_points_is_not_cut():
    family = "👨‍👩‍👧‍👦"
    found = split(family * 20, 64, "utf16")
    assert "".join(found) == family * 20
    assert all(piece.startswith("👨") and piece.endswith("👦") for piece in found)


def test_lengths_count_as_telegram_counts():
    assert length("😀", "utf16") == 2
    assert length("你", "utf16") == 1
    assert split("😀" * 4096, 4096, "utf16") == ["😀" * 2048] * 2


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        ("plain", "plain"),
        ("```py\ncode", "```py\ncode\n```"),
        ("```py\ncode\n", "```py\ncode\n```"),
        ("~~~~\n```\nboth", "~~~~\n```\nboth\n~~~~"),
        ("```\ncode\n```", "```\ncode\n```"),
    ],
)
def test_what_follows_a_text_is_not_in_its_code(written, whole):
    assert closed(written) == whole


MARKED = st.text(alphabet="#>`*_~[]():-+=|!&<\\ \nab1", max_size=40)


def html(markdown: str) -> str:
    return MarkdownIt("commonmark", {"html": False}).enable(["table"]).render(markdown)


@pytest.mark.parametrize(
    "text", ["word", "# a", "> a", "---", "- ", "`a`", "![](a)", "```\na\n```"]
)
def test_what_shows_stays_as_it_is(text):
    assert shows(text)
    assert seen(text) == text


@pytest.mark.parametrize("text", ["[a]: b", ">", "#", "```\n```", "~~~", "> >", "[](a)", "&nbsp;"])
def test_what_does_not_show_is_made_to(text):
    assert not shows(text)
    assert shows(literal(text))


@pytest.mark.parametrize("text", ["", " \n", "\u200b"])
def test_nothing_stays_nothing(text):
    assert seen(text) == text


@given(MARKED)
def test_something_is_seen_of_every_text_that_has_ink(text):
    if has_ink(text):
        words = unescape(re.sub(r"<(?!(hr|img|li))[^>]+>", "", html(seen(text))))
        assert has_ink(words)


HIDDEN = st.lists(st.sampled_from([">", "> >", "#", "```", "~~~", "[a]: b", "[](a)", " "]))


@given(HIDDEN.map("\n".join) | MARKED)
def test_what_is_seen_then_is_what_was_written(text):
    if shows(text) or not has_ink(text):
        return
    words = unescape(re.sub(r"<[^>]+>", "", html(literal(text))))
    assert "".join(words.split()) == "".join(text.split())


def test_a_terminal_shows_it_too():
    output = io.StringIO()
    screen = Screen(output)
    for text in ("[docs]: https://example.org", "```\n```"):
        screen.show(text, at_prompt=False)
    assert "[docs]: https://example.org" in output.getvalue()
    assert "```" in output.getvalue()


def connections_of(metrics: Metrics) -> Connections:
    nobody: Any = None  # the database is not asked
    return Connections(core_of(nobody, metrics=metrics))


def counted(metrics: Metrics) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["channel"], sample.labels["result"]): sample.value
        for family in metrics.received.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("from_bot", "from_bot"),
        ("", "other"),
        ("Too Large", "too_large"),
        ("42: né\n", "_n_"),
        ("x" * 5000, "x" * LONGEST),
        ("İ" * 100, "i_" * (LONGEST // 2)),
    ],
)
def test_a_reason_becomes_a_word(reason, word):
    metrics = Metrics()
    connections_of(metrics).dropped("pigeon", reason)
    assert counted(metrics) == {("pigeon", f"dropped_{word}"): 1}


def test_reasons_of_a_channel_stay_few_and_every_update_is_counted():
    metrics = Metrics()
    connections = connections_of(metrics)
    words = [f"{first}{second}" for first in "abcdefghij" for second in "abcdefghij"]
    for word in [*words, *words]:
        connections.dropped("pigeon", word)
    connections.dropped("owl", "empty")
    found = counted(metrics)
    assert found.pop(("owl", "dropped_empty")) == 1
    assert len(found) == MOST_REASONS + 1
    assert found["pigeon", "dropped_aa"] == 2
    assert found["pigeon", "dropped_other"] == 2 * (len(words) - MOST_REASONS)
    assert sum(found.values()) == 2 * len(words)


async def test_a_channel_tells_the_engine(tmp_path):
    async with running(tmp_path) as engine:
        assert engine.channel.engine is not None
        engine.channel.engine.dropped("memory", "service")
        assert counted(engine.app.core.metrics)["memory", "dropped_service"] == 1


def test_the_double_counts_by_reason():
    engine = RecordingEngine()
    for reason in ("service", "empty", "service"):
        engine.dropped("memory", reason)
    assert engine.drops == {"service": 2, "empty": 1}


@pytest.mark.parametrize(
    ("markdown", "said"),
    [
        ("Hello.", "Hello."),
        ("**Hello**, _you_ & `you`!", "Hello, you & you!"),
        ("# Plan\n\n- one\n- *two*\n\nand\nmore", "Plan\none\ntwo\nand more"),
        ("See [the page](https://example.org/a?b=c).", "See the page."),
        ("See https://www.example.org/a/b?c=d#e today", "See example.org today"),
        ("Good 👍🏽 and 20 °C ✅", "Good and 20 °C"),
        ("Café ग़ज़ल", "Café ग़ज़ल"),
        ("So:\n\n```py\nprint(1)\n```\n\nThat.", "So:\n(The code is in the text.)\nThat."),
        ("|a|b|\n|-|-|\n|1|2|", "(The table is in the text.)"),
        ("<b>bold</b> if a < b", "bold if a < b"),
        ("![a cat](https://example.org/c.png)", "a cat"),
        ("![](https://example.org/c.png)", ""),
        ("👍", ""),
        ("---", ""),
        ("", ""),
    ],
)
def test_words_are_said_and_signs_are_not(markdown: str, said: str):
    assert speakable(markdown, "en") == said


def test_a_long_reply_ends_with_a_sentence_and_says_that_there_is_more():
    said = speakable("This is a sentence. " * 500, "en")
    *_, last, rest = said.split("\n")
    assert last.endswith("This is a sentence.")
    assert rest == "The rest is in the text."
    assert MOST - 100 < len(said) <= MOST + 100
    assert speakable("这是一句话。" * 1_000, "zh").endswith("这是一句话。\n其余请看文字。")
    assert len(speakable("word " * 5_000, "en")) <= MOST + 100
    assert len(speakable("x" * 50_000, "en")) <= MOST + 100


@given(st.text(), st.sampled_from(["en", "zh"]))
def test_whatever_a_model_writes_is_bounded(markdown: str, language: str):
    assert len(speakable(markdown, language)) <= MOST + 100


ANY = st.text(st.characters(codec=None, exclude_categories=()))


@given(ANY)
def test_any_text_becomes_one_that_can_be_stored(text):
    well_formed(text).encode()
    assert well_formed(well_formed(text)) == well_formed(text)


@given(st.text())
def test_text_that_is_well_formed_is_left_alone(text):
    assert well_formed(text) == text


@given(st.text(max_size=10), st.characters(min_codepoint=0x10000), st.text(max_size=10))
def test_the_two_halves_of_a_character_are_joined(before, character, after):
    raw = character.encode("utf-16-le")
    halves = "".join(chr(int.from_bytes(raw[i : i + 2], "little")) for i in (0, 2))
    assert well_formed(before + halves + after) == before + character + after


def test_a_text_in_a_line_says_where_it_was_cut():
    assert one_line(" a\n b\t c ", 5) == "a b c"
    assert one_line("a b c", 4) == "a b …"
    assert one_line("", 0) == ""


@pytest.mark.timeout(20)  # what grows with the square of the length would take far longer
@pytest.mark.parametrize("fold", [folded, stem, partial(normal_form, "NFKC")])
@pytest.mark.parametrize("marks", ["\u0301\u0327", "\uff9e\u0301", "\u0344\u0327"])
def test_a_run_of_combining_marks_takes_time_by_its_length(fold, marks):
    for text in (f"a{marks * 100_000}", f"a{marks[0] * 100_000}{marks[1] * 100_000}"):
        assert unicodedata.normalize("NFD", fold(text)[:1])[0] == "a"


@given(st.text(max_size=29), st.sampled_from(["NFD", "NFKC"]))
def test_a_normal_form_is_the_standards(text, form):
    assert normal_form(form, text) == unicodedata.normalize(form, text)
