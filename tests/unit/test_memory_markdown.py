"""Entries, marks, sections: what is found, replaced and left alone."""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bot.memory import claims, markdown

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
