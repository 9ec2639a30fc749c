"""When memory has anything to do with a message, and which of its lines are shown. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.agent import recall
from bot.agent.recall import LATER, PARTIAL, Find, Shown, is_near
from bot.context.tokens import weight
from bot.memory.search import Hit, Line
from bot.messages import Quote, Text, Whose

WINDOW = 200_000


def hit(meaning: float, words: float = 0.0, *, lines: int = 1, typical: float = 0.05) -> Hit:
    """A passage of a list in which one line is so near to a message, and the rest as is usual."""
    rest = [Line(f"- line {number}", 0.0, typical) for number in range(lines - 1)]
    scored = (Line("- the best, Mia" if words else "- the best", words, meaning), *rest)
    text = "\n".join(line.text for line in scored)
    return Hit(
        *("main", "memory/a.md", 1, lines, 0.5, text, "memory"),
        words=words,
        meaning=meaning,
        lines=scored,
    )


@pytest.mark.parametrize(
    ("hits", "words", "expected"),
    [
        ([], "What is Mia allergic to?", False),
        ([hit(0.30, lines=20)], "What must my girl never eat?", True),
        ([hit(0.30, lines=20)], "My girl would never eat that.", False),
        ([hit(0.30, lines=20, typical=0.2)], "Can you translate this?", False),  # all are as near
        ([hit(0.50, lines=20)], "Tell me about the boat", True),
        ([hit(0.62, lines=20, typical=0.6)], "Tell me about the boat", True),  # all may answer
        ([hit(0.30)], "What must my girl never eat?", True),  # none is typical
        ([hit(0.22, 0.3, lines=20)], "I think that Mia comes.", False),
        ([hit(0.32, 0.3, lines=20)], "I think that Mia comes.", True),
        ([hit(0.0, 0.3)], "What is Mia allergic to?", True),  # by words alone
        ([hit(0.0, 0.3)], "Mia comes by tonight.", True),
        ([hit(0.0, 0.1)], "It rained all night.", False),
        ([hit(0.28, lines=20)], "米娅不能吃什么\uff1f", True),
        ([hit(0.28, lines=20)], "今天下雨了", False),
    ],
)
def test_memory_has_to_do_with_a_message(hits, words, expected):
    assert is_near(hits, words) == expected


scores = st.floats(0.0, 1.0)


@given(scores, scores, st.integers(1, 30), st.text(max_size=80), st.floats(0.0, 0.5))
def test_what_is_nearer_is_never_left_out_where_less_is_not(meaning, words, lines, text, more):
    if is_near([hit(meaning, words, lines=lines)], text):
        better = hit(min(1.0, meaning + more) if meaning else 0.0, words, lines=lines)
        assert is_near([better], text)
        assert not meaning or is_near([hit(meaning, 1.0, lines=lines)], text)


@given(scores, scores, st.integers(1, 30), st.text(max_size=80))
def test_whoever_asks_is_told_at_least_as_much(meaning, words, lines, text):
    found = [hit(meaning, words, lines=lines)]
    assert is_near(found, f"{text}?") >= is_near(found, text)


# --- the lines that are shown ---------------------------------------------------------------------


def find(text: str, origins: frozenset[Whose] = frozenset(), path: str = "memory/a.md") -> Find:
    return Find(Quote((path, "found"), text, path, 1), text, origins)


def chosen(*finds: Find, texts: tuple[str, ...] = ("x",), room: int = 2_400, whole: bool = True):
    found = recall._Found(finds, (), whole)
    return recall._lines_of(found, Shown("the prompt", WINDOW, texts=texts), room)


@pytest.mark.parametrize(
    ("finds", "texts", "expected"),
    [
        ([find("- tea\n- milk")], ["x"], ["> - tea", "> - milk"]),
        ([find("- 12:00 Ada likes tea\n- milk")], ["so Ada likes tea!"], ["> - milk"]),
        ([find("# Shopping\n\n- milk")], ["x"], ["> - milk"]),
        ([find("- milk", frozenset({"forwarded"}))], ["x"], []),
        ([find("- milk", frozenset({"person", "bot"}))], ["x"], ["> - milk"]),
        ([find("- milk")], ["we need milk"], []),
        ([], ["x"], []),
    ],
    ids=["all", "said already", "headings", "somebody else's", "own", "nothing new", "nothing"],
)
def test_lines_that_are_new_are_shown(finds, texts, expected):
    note = chosen(*finds, texts=tuple(texts))
    lines = [] if note is None else [row for row in note.text.split("\n") if row.startswith(">")]
    assert lines == expected


def test_what_the_bot_said_takes_no_place_of_what_people_said_and_noted():
    lines = [f"it rained on day {number} and the wind came from the north" for number in range(9)]
    own = replace(find("\n".join(lines), path=""), id="b1", is_own=True, hit=hit(0.9))
    note = chosen(own, find("- it was dry"), room=600)
    assert note is not None
    assert "> - it was dry" in note.text
    assert f"> {lines[0]}" in note.text


SINCE = {
    "- tea": ("2026-01-05 ", "(said 2026-01-05)"),
    "- milk": ("2026-03-01 08:00", ""),
}


def test_what_is_newer_comes_first_in_a_note_and_among_notes():
    old = replace(find("# Shop\n- tea\n  green\n- milk", path="memory/shop.md"), since=SINCE)
    said = replace(find("person: cocoa", path=""), date="2026-05-01 12:00")
    shown = recall.newest_first([find("- water"), old, said])
    assert [each.quote.text for each in shown] == [
        "- water",
        "person: cocoa",
        "# Shop\n- milk\n- tea (said 2026-01-05)\n  green",
    ]


def test_an_old_entry_does_not_stand_above_a_newer_one_of_another_note():
    since = {"- lives in Rome": ("2026-04-01", "")}
    rome = replace(find("- lives in Rome", path="memory/2026-04-01.md"), since=since)
    since = {"- lives in Oslo": ("2026-01-05", ""), "- likes tea": ("2026-06-01", "")}
    curated = replace(find("# Mia\n- lives in Oslo\n- likes tea", path="MEMORY.md"), since=since)
    shown = recall.newest_first([curated, rome])
    assert [each.quote.text for each in shown] == [
        "# Mia\n- likes tea",
        "- lives in Rome",
        "- lives in Oslo",
    ]


@given(st.lists(st.lists(st.integers(1, 28), max_size=5), max_size=4))
def test_of_what_is_dated_no_line_is_lost_and_none_stands_before_a_newer_one(notes):
    finds: list[Find] = []
    every: dict[str, str] = {}
    for at, days in enumerate(notes):
        texts = {f"- {at} {n}": (f"2026-01-{day:02}", "") for n, day in enumerate(days)}
        every |= {line: day for line, (day, _) in texts.items()}
        if texts:
            finds.append(replace(find("\n".join(texts), path=f"memory/{at}.md"), since=texts))
    shown = recall.newest_first(finds)
    lines = [line for each in shown for line in each.quote.text.split("\n")]
    assert sorted(lines) == sorted(every)
    assert [every[line] for line in lines] == sorted(every.values(), reverse=True)


def test_the_model_is_told_of_a_search_in_part_in_one_line():
    assert chosen() is None
    alone = chosen(whole=False)
    assert alone is not None
    assert alone.text == f"{PARTIAL}\n"
    both = chosen(find("- milk"), whole=False)
    assert both is not None
    assert both.text.split("\n")[:2] == [LATER, PARTIAL]
    assert "> - milk" in both.text


@given(
    st.lists(st.lists(st.text(max_size=60), max_size=8), max_size=5),
    st.integers(200, 2_400),
    st.booleans(),
)
def test_what_is_shown_stays_within_its_room_and_is_quoted(passages, room, whole):
    finds = [find("\n".join(lines), path=f"memory/{at}.md") for at, lines in enumerate(passages)]
    note = chosen(*finds, room=room, whole=whole)
    if note is None or note.text == f"{PARTIAL}\n":
        return
    assert isinstance(note, Text)
    assert note.note
    assert note.origin == "memory"
    assert weight(note.text) <= room
    assert all(line[:1] in {"", "[", ">", "W"} for line in note.text.split("\n"))
