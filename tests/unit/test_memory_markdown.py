"""Entries, marks, sections: what is found, replaced and left alone."""

import json
import re
import time
from datetime import UTC, date, datetime
from itertools import pairwise

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.context import tokens
from bot.memory import chunking, claims, listing, markdown, words
from bot.memory.chunking import CHUNK_TOKENS, OVERLAP_TOKENS, Unit, split, units, windows
from bot.memory.listing import MAX_SNIPPET, OMITTED
from bot.sessions.entries import Entry, NewEntry, entry_id, header_line, line_of, parse
from tests.odd import json_of

NOW = datetime(2026, 7, 1, 14, 3, tzinfo=UTC)
DAY = date(2026, 7, 1)
FILE = """\
# Memory

Some words by hand.

- Lives in Berlin. <!-- owner 2026-01-05 -->
- Likes tea,
  but not in the evening. <!-- not a mark -->

* Has a dog
- Has a dog and a cat

```
- no entry
```
"""


def test_marks_say_whose_words_they_are_and_do_not_show():
    line = markdown.bullet("Tea\nat five", NOW, "owner")
    assert line == "- 14:03 Tea <!-- owner -->\n  at five\n"
    assert markdown.plain(line) == "- 14:03 Tea\n  at five\n"
    assert markdown.fact("Tea", DAY, "agent") == "- Tea <!-- agent 2026-07-01 -->\n"


@given(st.text(), st.sampled_from(["owner", "agent", "untrusted", None]))
def test_no_text_can_forge_or_hide_a_mark(text: str, by: markdown.Provenance | None):
    made = markdown.bullet(text, NOW, by)
    assert made.count("<!--") == made.count("-->") == (by is not None)
    assert (markdown.without_untrusted(made).strip() == "") == (by == "untrusted")


def test_untrusted_entries_are_left_out_with_all_their_lines():
    text = (
        "- one\n- bad <!-- untrusted -->\n  more\n\n  still\n- two\nbad words <!-- untrusted -->\n"
    )
    assert markdown.without_untrusted(text) == "- one\n- two\n"
    assert markdown.untrusted_lines(text) == [
        "- bad <!-- untrusted -->",
        "bad words <!-- untrusted -->",
        "  more",
        "  still",
    ]


def test_an_entry_is_known_by_its_words_alone():
    assert markdown.says(FILE, "lives in BERLIN") == 5
    assert markdown.says(FILE, "Likes tea, but not in the evening.") == 6
    assert markdown.says(FILE, "Lives") == 0
    assert markdown.says(FILE, "no entry") == 0
    assert markdown.says(FILE, "") == 0
    assert markdown.says("- 14:03 我女儿对花生过敏 <!-- owner -->\n", "我女儿对花生过敏。") == 1
    assert markdown.says("- 14:03 ~~Lives in Berlin~~\n", "Lives in Berlin") == 0


def test_an_entry_is_replaced_in_its_place_and_the_rest_stays():
    changed = markdown.supersede(FILE, "Lives in Berlin", "- Lives in Paris\n")
    assert changed.text == FILE.replace("- Lives in Berlin. <!-- owner 2026-01-05 -->",
                                        "- Lives in Paris")  # fmt: skip
    assert (changed.line, changed.old) == (5, "- Lives in Berlin. <!-- owner 2026-01-05 -->")
    changed = markdown.supersede(FILE, "- likes tea", "- Likes coffee\n")
    assert changed.old == "- Likes tea,\n  but not in the evening. <!-- not a mark -->"
    assert "- Likes coffee\n\n* Has a dog" in changed.text


def test_the_exact_entry_is_meant_before_one_that_contains_the_words():
    assert markdown.supersede(FILE, "Has a dog", "- x\n").old == "* Has a dog"


@pytest.mark.parametrize(("old", "count"), [("Has", 2), ("nowhere", 0), ("", 0), ("no entry", 0)])
def test_what_is_not_one_entry_is_not_replaced(old: str, count: int):
    with pytest.raises(LookupError) as caught:
        markdown.supersede(FILE, old, "- x\n")
    assert caught.value.args == (count,)


def test_a_section_is_replaced_up_to_the_next_heading_of_its_level():
    text = "# A\n\n## Travel\n\nold\n\n### Inside\n\nold too\n\n## Food\n\nrice\n"
    changed = markdown.replace_section(
        text, "travel", "new\n# not a heading\n### deeper", " <!-- x -->"
    )
    assert changed.text == (
        "# A\n\n## Travel\n\nnew <!-- x -->\n\\# not a heading\n### deeper\n\n## Food\n\nrice\n"
    )
    assert (changed.line, changed.old) == (5, "old\n\n### Inside\n\nold too")
    assert changed.text.split("\n")[changed.line - 1] == "new <!-- x -->"


def test_a_missing_section_is_added_at_the_end():
    for before in ("", "# A\n", "# A"):
        changed = markdown.replace_section(before, "Travel\n# x", "new", "")
        lead = "# A\n\n" if before else ""
        assert changed.text == f"{lead}## Travel # x\n\nnew\n"
        assert changed.text.split("\n")[changed.line - 1] == "new"
        assert changed.old == ""


def test_a_heading_in_a_code_fence_is_no_heading():
    text = "```\n## Travel\n```\n\n## Travel\n\nold\n"
    assert markdown.replace_section(text, "Travel", "new", "").text == (
        "```\n## Travel\n```\n\n## Travel\n\nnew\n"
    )


def test_each_entry_of_a_section_says_whose_it_is():
    body = "What I gathered:\n\n- Likes tea\n  and cake\n  - green\n- Sings\n```\n- code\n```"
    text = markdown.replace_section("", "Ada", body, " <!-- agent 2026-11-21 -->").text
    marked = [line for line in text.split("\n") if line.endswith(" <!-- agent 2026-11-21 -->")]
    assert [line.partition(" <")[0] for line in marked] == [
        "What I gathered:",
        "- Likes tea",
        "- Sings",
    ]
    assert [claim.whose for claim in claims.of_note("MEMORY.md", text)] == ["agent", "agent"]


@given(st.text(), st.text(min_size=1, max_size=20), st.text(max_size=40))
def test_replacing_a_section_loses_no_other_line(text: str, title: str, body: str):
    changed = markdown.replace_section(text, title, body, "")
    lost = [line for line in text.split("\n") if line.strip() and line not in changed.text]
    assert all(line in changed.old for line in lost)


@given(st.text())
def test_entries_never_overlap_and_cover_their_lines(text: str):
    end = 0
    for item in markdown.items(text):
        assert end <= item.start < item.end
        end = item.end


@pytest.mark.parametrize(
    "entry", ["- a\n\n", f"- a{chr(10) * 4_000}  b\n", f"- a{' ' * 40_000}b <!-- owner -->\n"]
)
def test_a_large_file_of_blank_lines_or_spaces_takes_no_time(entry):
    text = entry * (300_000 // len(entry))
    begun = time.thread_time()
    assert len(list(markdown.items(text))) == text.count("- a")
    assert "owner" not in markdown.plain(text)
    assert time.thread_time() - begun < 5


PIECES = st.sampled_from(["<!--", "-->", " ", "\t", "\n", "a", "-", ">", "<!-", "--"])


@given(st.lists(PIECES, max_size=30).map("".join))
@example("<!--<!--->")
@example("<!-- <!-->x")
@example("<!-->x")
def test_comments_go_with_the_spaces_before_them_and_nothing_else(text: str):
    wanted = re.sub(r"(?<![ \t])[ \t]*<!--.*?-->", "", text, flags=re.DOTALL)
    assert markdown.plain(text) == wanted


TEXTS = st.text(max_size=40) | st.sampled_from(
    ["\x00", "\u2028", "\u2029", "\x85", "\r\n", "\n", "😀", "\ufeff", '"\\', "\x7f"]
)
JSON = json_of(
    st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    TEXTS,
)
NEWS = st.builds(
    NewEntry,
    kind=st.sampled_from(["message", "command", "notice"]),
    role=st.sampled_from(["user", "assistant"]),
    text=TEXTS,
    content=st.lists(st.dictionaries(TEXTS, JSON, max_size=3), max_size=3).map(tuple),
    source=TEXTS,
)


@given(NEWS, st.none() | TEXTS, st.integers(0, 2**53))
def test_an_entry_is_one_line_of_json_that_is_read_and_written_again_as_it_was(new, parent, at):
    line = line_of(new, "s.1", parent, at)
    assert len(line.encode().splitlines()) == 1
    assert json.loads(line)["message"]["text"] == new.text
    back = parse(line)
    assert back == Entry("s.1", parent, new.kind, new.role, at, new.text, new.content, new.source)
    assert parse(line.encode()) == back
    again = NewEntry(back.kind, back.role, back.text, back.content, back.source)
    assert line_of(again, back.id, back.parent_id, back.at) == line


@given(st.binary(max_size=60) | JSON.map(orjson.dumps))
def test_what_is_no_entry_is_refused_with_a_value_error(data):
    with pytest.raises(ValueError, match=r".*"):
        parse(data)


@given(NEWS, st.data())
def test_a_torn_line_is_never_taken_for_a_whole_one(new, data):
    line = line_of(new, "s.1", None, 1).encode()
    cut = data.draw(st.integers(0, len(line) - 1))
    with pytest.raises(ValueError, match=r".*"):
        parse(line[:cut])


@given(st.dictionaries(st.sampled_from(["id", "key", "chat"]), TEXTS))
def test_a_header_comes_back(facts):
    assert json.loads(header_line(facts)) == {"type": "session", "version": 1, **facts}


def test_entries_are_numbered_within_their_session():
    assert [entry_id("s", n) for n in (1, 2)] == ["s.1", "s.2"]


ALPHABET = st.one_of(
    st.sampled_from(
        "aZ 9#-*`~\t女儿花生过敏אבגשלוםمرحبا\u200b\u200d\u202e\u2028\u0085\ufeffé\u0301🎉𠮷"
    ),
    st.characters(exclude_categories=("Cs",), exclude_characters="\r\n"),
)
LINE = st.one_of(
    st.just(""),
    st.text(ALPHABET, max_size=60),
    st.builds(lambda text, times: text * times, st.text(ALPHABET, min_size=1, max_size=9),
              st.integers(1, 400)),
    st.builds(lambda level, text: f"{'#' * level} {text}", st.integers(1, 7), st.text(max_size=9)),
)  # fmt: skip
NOTE = st.lists(LINE, max_size=40).map("\n".join).map(lambda text: text.replace("\r", ""))
SIZES = st.tuples(st.integers(20, 400), st.integers(0, 80)).map(lambda s: (s[0], min(s[1], s[0])))


def lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def is_part(chunk: chunking.Chunk, lines: list[str]) -> bool:
    """Whether a chunk is a piece of one line, not whole lines."""
    return chunk.text != "\n".join(lines[chunk.start_line - 1 : chunk.end_line])


@given(NOTE, SIZES)
@example("a\n\n\n\n" * 300, (40, 20))
def test_chunks_are_the_lines_of_a_note_or_pieces_of_one_within_their_limit(text, sizes):
    lines, (size, overlap) = lines_of(text), sizes
    found = split(text, size=size, overlap=overlap)
    covered = {line for chunk in found for line in range(chunk.start_line, chunk.end_line + 1)}
    assert all(number in covered or not line.strip() for number, line in enumerate(lines, 1))
    parts: dict[int, str] = {}
    for chunk in found:
        assert 1 <= chunk.start_line <= chunk.end_line <= len(lines)
        assert chunk.text.strip()
        assert tokens.estimate(chunk.text) <= size
        if is_part(chunk, lines):
            assert chunk.start_line == chunk.end_line
            assert chunk.text in lines[chunk.start_line - 1]
            parts[chunk.start_line] = parts.get(chunk.start_line, "") + chunk.text
    for number, joined in parts.items():
        line = lines[number - 1]
        # A part that is blank is left out; nothing else is, and nothing stands twice.
        assert "".join(joined.split()) == "".join(line.split())
        assert len(joined) <= len(line)
    for before, after in pairwise(found):
        assert after.start_line >= before.start_line
        assert after.end_line >= before.end_line
        if is_part(before, lines) or is_part(after, lines):
            continue
        assert (after.start_line, after.end_line) != (before.start_line, before.end_line)
        shared = lines[after.start_line - 1 : before.end_line]
        assert sum(tokens.estimate(line) for line in shared) <= overlap


def test_a_list_of_short_lines_overlaps():
    found = split("\n".join(f"- entry number {n} about a thing" for n in range(300)))
    assert len(found) > 5
    for before, after in pairwise(found):
        assert 0 < before.end_line - after.start_line + 1 <= OVERLAP_TOKENS
        assert tokens.estimate(before.text) > CHUNK_TOKENS * 0.9


@pytest.mark.parametrize("unit", ["word ", "字", "שלום ", "a\u200b", "x" * 39 + " "])
def test_one_line_of_a_megabyte_is_cut_and_not_doubled(unit):
    line = unit * (1_000_000 // len(unit))
    found = split(line)
    assert "".join(chunk.text for chunk in found).rstrip() == line.rstrip()
    assert {(chunk.start_line, chunk.end_line) for chunk in found} == {(1, 1)}
    assert all(tokens.estimate(chunk.text) <= CHUNK_TOKENS for chunk in found)
    assert len(found) <= 2 * tokens.estimate(line) / CHUNK_TOKENS + 1


def test_a_long_line_is_cut_between_words():
    found = split("wonderful " * 1_000)
    assert all(set(chunk.text.split()) == {"wonderful"} for chunk in found)


@pytest.mark.parametrize("text", ["", "\n", " \n\t\n\u3000\n", "\r\n\r\n"])
def test_a_note_of_nothing_has_no_chunks(text):
    assert split(text) == []
    assert windows(text) == []


def test_windows_line_ends_do_not_show():
    (chunk,) = split("# Tea\r\n\r\nAda likes oolong\r\n")
    assert chunk.text == "# Tea\n\nAda likes oolong"
    assert (chunk.start_line, chunk.end_line) == (1, 3)


# --- headings and days ---------------------------------------------------------------------------


def test_a_chunk_remembers_the_headings_above_it():
    filler = "some words that fill a line\n" * 100
    text = f"# House\n{filler}## Kitchen\n{filler}### Oven\n{filler}## Garden\n{filler}"
    lines = lines_of(text)
    for chunk in split(text):
        above = [
            name
            for name, level in (("House", 1), ("Kitchen", 2), ("Oven", 3), ("Garden", 2))
            if (mark := lines.index(f"{'#' * level} {name}") + 1) < chunk.start_line
            and not (
                name in {"Kitchen", "Oven"} and chunk.start_line > lines.index("## Garden") + 1
            )
            and mark
        ]
        assert chunk.headings == tuple(above)


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        ("# Poem\n" + "la " * 3_000, "Poem"),  # the parts of a long line
        ("# Real\n```sh\n# comment\n```\n" + "words and more words\n" * 200, "Real"),
    ],
)
def test_later_chunks_know_their_heading(text, heading):
    assert {chunk.headings for chunk in split(text)[1:]} == {(heading,)}


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        *(("# Tea", (1, "Tea")), ("###### 茶 ###", (6, "茶")), ("##   C#  ", (2, "C"))),
        *((line, None) for line in ("#tag", "####### seven", "no # heading", "#", "## ", "\\# x")),
    ],
)
def test_headings_are_read_as_markdown_means_them(line, heading):
    assert chunking.heading_of(line) == heading


@given(st.lists(st.tuples(st.integers(1, 6), st.text("abc", min_size=1, max_size=300))))
def test_headings_are_bounded_however_deep_a_note_is(headings):
    text = "\n".join(f"{'#' * level} {name}" for level, name in headings) + "\nwords\n"
    for chunk in split(text, size=20, overlap=0):
        assert len(chunk.headings) <= chunking.MAX_HEADINGS + 1
        assert all(len(name) <= chunking.MAX_HEADING_CHARACTERS for name in chunk.headings)


def test_a_chunk_has_the_day_of_the_heading_it_stands_under():
    filler = "words that fill the line again\n" * 120
    text = f"## 2026-03-01\n{filler}## 2026-04-02\n{filler}"
    found = split(text)
    assert found[0].day == date(2026, 3, 1)
    assert found[-1].day == date(2026, 4, 2)
    assert all(chunk.day for chunk in found)


# --- what gets vectors, and what is scored -------------------------------------------------------


@given(NOTE, st.integers(20, 100))
def test_every_word_of_a_chunk_is_in_a_window_once(text, size):
    found = windows(text, size=size)
    assert "".join("".join(w.text.split()) for w in found) == "".join(text.split())
    for window in found:
        assert 0 <= window.first <= window.last < len(text.split("\n"))
        assert tokens.estimate(window.text) <= size


@given(NOTE, st.integers(20, 200))
def test_units_are_the_lines_in_order_and_make_up_the_text(text, size):
    found = units(text, size=size)
    rebuilt = "".join(
        unit.text if unit.continues or not at else f"\n{unit.text}" for at, unit in enumerate(found)
    )
    assert rebuilt == text
    assert not found[0].continues
    assert all(tokens.estimate(unit.text) <= size for unit in found)


@given(NOTE)
def test_cutting_is_a_function_of_the_text_alone(text):
    assert split(text) == split(text)
    for passage in chunking.of_note("memory/a.md", text):
        assert passage.windows == chunking.windows_of(passage.heading, passage.body)
        assert passage.windows


def test_a_heading_of_spaces_and_marks_takes_no_time():
    line = f"# a{' #' * 2_000}{' ' * 4_000}b"
    begun = time.thread_time()
    assert [chunk.text for chunk in split(f"{line}\nwords")][-1] == "words"
    assert chunking.heading_of(f"## Tea  ## {' ' * 4_000}") == (2, "Tea")
    assert time.thread_time() - begun < 5


def test_each_entry_of_a_list_has_a_window_of_its_own_and_what_belongs_to_it_is_in_it():
    text = (
        "some words\nabove\n- one\n  and more of it\n  - inside\n* two\n\n12. three\n3) four\n-five"
    )
    found = [window.text for window in chunking.windows(text)]
    assert found == [
        "some words\nabove",
        "- one\n  and more of it\n  - inside",
        "* two\n",
        "12. three",
        "3) four\n-five",
    ]


SCORES = st.lists(st.floats(0, 1), min_size=400, max_size=400)


@given(NOTE, SCORES)
def test_a_snippet_fits_and_is_the_chunks_own_lines_in_their_order(text, scores):
    for chunk in chunking.split(text):
        units = chunking.units(chunk.text, size=words.UNIT_TOKENS)
        shown = listing.best_lines(units, (scores * (1 + len(units) // 400))[: len(units)])
        assert len(shown) <= MAX_SNIPPET
        at = 0
        for passage in shown.split(f"\n{OMITTED}\n"):
            at = chunk.text.index(passage, at) + len(passage)


def lines(*texts: str) -> list[Unit]:
    return [Unit(at, text, continues=False) for at, text in enumerate(texts)]


def test_a_chunk_that_fits_is_shown_whole():
    shown = listing.best_lines(lines("one", "two", "three"), [0.0, 1.0, 0.0])
    assert shown == "one\ntwo\nthree"


def test_the_answer_is_shown_wherever_it_stands():
    units = lines(*(f"line {n} " + "x" * 90 for n in range(30)))
    for answer in (0, 13, 29):
        scores = [1.0 if at == answer else 0.0 for at in range(30)]
        shown = listing.best_lines(units, scores)
        assert units[answer].text in shown
        assert OMITTED not in shown  # neighbours fill the rest: one passage


def test_what_follows_a_match_is_shown_before_what_comes_before_it():
    units = lines(*(f"{n} " + "x" * 300 for n in range(3)))
    assert listing.best_lines(units, [0.0, 1.0, 0.0]).startswith("1 ")


def test_two_answers_far_apart_are_both_shown_with_a_mark_between():
    units = lines(*(f"line {n} " + "x" * 300 for n in range(9)))
    scores = [1.0 if at in {1, 7} else 0.0 for at in range(9)]
    shown = listing.best_lines(units, scores)
    assert shown == f"{units[1].text}\n{OMITTED}\n{units[7].text}"


def test_the_parts_of_one_line_are_joined_without_a_line_end():
    text = "word " * 400
    units = chunking.units(text, size=50)
    assert len(units) > 8
    passages = listing.best_lines(units, [0.0] * len(units)).split(f"\n{OMITTED}\n")
    assert all(passage in text for passage in passages)
    assert len(passages[0]) > 500


def test_a_unit_longer_than_the_limit_is_cut():
    assert len(listing.best_lines(lines("x" * 2_000), [1.0])) == MAX_SNIPPET
    assert listing.best_lines([], []) == ""


@given(st.lists(st.integers(0, 400), min_size=1, max_size=40), st.integers(1, 900))
def test_runs_are_the_longest_that_fit_and_hold_every_unit(sizes, limit):
    units = lines(*("x" * size for size in sizes))
    found = listing.runs(units, limit)
    assert {at for start, end in found for at in range(start, end)} == set(range(len(units)))
    for start, end in found:
        length = len("\n".join(unit.text for unit in units[start:end]))
        assert length <= limit or end == start + 1
        assert end == len(units) or length + 1 + len(units[end].text) > limit
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(found))


def test_a_chunk_of_very_short_lines_takes_no_time():
    units = lines(*("x" for _ in range(800)))
    begun = time.thread_time()
    assert listing.best_lines(units, [0.1] * 800) == "\n".join("x" for _ in range(350))
    assert time.thread_time() - begun < 2


def test_blank_lines_between_what_is_shown_stay_and_leave_no_mark():
    lines = ("# Trips", "", "- Norway", "- Peru", "- Chile")
    units = [Unit(number, line, continues=False) for number, line in enumerate(lines)]
    assert listing.joined_runs(units, {0, 2}) == "# Trips\n\n- Norway"
    assert listing.joined_runs(units, {0, 2, 4}) == f"# Trips\n\n- Norway\n{OMITTED}\n- Chile"
