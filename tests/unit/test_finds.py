"""Notes and what was said as one ranked list, each thing once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bot.agent.finds import Find, ranked
from bot.tool_results import Quote


def note(text: str, where: str = "MEMORY.md:1-2") -> Find:
    return Find(Quote((where, "found"), text, "MEMORY.md", 1), text)


def said(text: str, id_: str, date: str = "2026-07-01 14:03") -> Find:
    return Find(Quote((date, "said", "session s"), text, by="said"), text, id=id_, date=date)


def texts(finds: list[Find]) -> list[str]:
    return [find.quote.text for find in finds]


def test_what_both_searches_find_comes_before_what_one_of_them_finds_first():
    a, b, c = said("a tile", "1"), said("b tile", "2"), said("c tile", "3")
    assert texts(ranked([a, b], [c, b])) == ["b tile", "a tile", "c tile"]


def test_a_message_is_shown_once_and_as_the_last_list_shows_it():
    around = Find(
        Quote(("d", "said", "session s"), "person: tea\nyou: ok"), "tea", id="1", date="d"
    )
    assert texts(ranked([said("tea", "1")], [around])) == ["person: tea\nyou: ok"]


def test_a_note_takes_the_place_of_the_talk_it_came_from_and_its_date():
    kept = note("- Likes tea\n- 14:03 My daughter is allergic to peanuts")
    talk = said("Remember: my daughter is allergic to peanuts!", "1")
    (only, other) = ranked([talk, said("Peanuts are cheap", "2")], [kept])
    assert only.quote.where == ("MEMORY.md:1-2", "found", "said 2026-07-01 14:03")
    assert other.id == "2"
    again = ranked([kept, talk, said("My daughter is allergic to peanuts", "3", "2026-07-02 9:00")])
    assert [find.quote.where[-1] for find in again] == ["said 2026-07-01 14:03"]


def test_the_date_is_not_told_twice():
    kept = note("- 14:03 I like tea best", "memory/2026-07-01.md:1")
    assert ranked([said("I like tea best", "1")], [kept]) == [kept]


def test_talk_that_says_more_than_the_note_is_shown_too():
    kept = note("- I like tea")
    talk = said("I like tea, but only with oat milk and before noon, else I cannot sleep", "1")
    assert len(ranked([kept], [talk])) == 2


def test_what_was_struck_out_is_nobodys_twin():
    assert len(ranked([note("- ~~I live in Bonn now~~")], [said("I live in Bonn now", "1")])) == 2


def test_what_was_only_asked_comes_after_what_was_said():
    asked = [said("How many columns?", "1"), said("Which columns?", "2")]
    assert texts(ranked([*asked, said("Three columns", "3")]))[0] == "Three columns"


finds = st.lists(
    st.builds(note, st.text("ab c\n-~", max_size=30))
    | st.builds(said, st.text("ab c?\n", max_size=30), st.sampled_from("123456")),
    max_size=8,
)


@given(finds, finds)
def test_nothing_is_lost_but_what_stands_in_a_note_and_nothing_is_there_twice(
    one: list[Find], other: list[Find]
):
    found = ranked(one, other)
    messages = [find.id for find in found if find.id]
    assert len(messages) == len(set(messages))
    assert set(messages) <= {find.id for find in (*one, *other) if find.id}
    notes = {find.words for find in (*one, *other) if not find.id}
    assert {find.words for find in found if not find.id} == notes
