"""What the night finds and changes: what says the same, what is over; nothing is ever lost."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.facts import facts
from bot.memory import claims, markdown
from bot.memory.claims import Aging
from bot.memory.night import edits, proposals, rules
from bot.memory.night.edits import Edit
from bot.memory.night.rules import LASTING, known_entries

DAY = date(2026, 7, 1)
AGING = Aging(DAY)

SAME = [
    ("Prefers trains to planes", "prefers trains to planes."),
    ("My daughter is allergic to peanuts", "- my daughter is allergic to peanuts!"[2:]),
    ("Our dog is called Rex", "our dog is called “Rex”"),
    ("我喜欢喝茶", "我喜欢喝茶。"),
]
NOT_SAME = [
    ("I like C++", "I like C"),
    ("Ada is older than Bo", "Bo is older than Ada"),
    ("I have 2 cats", "I have 3 cats"),
    ("I like tea", "I don't like tea"),
    ("Is my dog called Rex?", "is my dog called Rex?"),
    ("[ ] Buy milk", "[ ] buy milk"),
    ("我喜欢茶", "我不喜欢茶"),
]
OVER = [
    ("I live in Bonn", "I moved to Kiel"),
    ("Lives in Bonn", "I live in Kiel now"),
    ("My sister lives in Bonn", "My sister moved to Kiel last month"),
    ("I work at Siemens", "I started at Bosch"),
    ("My phone number is 0170 1234567", "my new phone number is 0171 7654321"),
    ("My phone number is +49 170 1234567", "Phone: 0171 7654321"),
    ("I am 34 years old", "I turned 35"),
    ("My email is a@b.example", "Email: c@d.example"),
    ("我住在波恩", "我搬到基尔了"),
    ("我妹妹住在波恩", "我妹妹搬去基尔了"),
    ("我在西门子工作", "我现在在博世工作"),
    ("我的电话是 0170 1234567", "我的电话号码换成了01717654321"),
    ("我今年34岁", "我今年35岁了"),
    ("我的邮箱是a@b.example", "邮箱改成c@d.example"),
]
NOT_OVER = [
    ("I live in Bonn", "I want to live in Kiel"),
    ("I live in Bonn", "I will move to Kiel"),
    ("I live in Bonn", "Ada moved to Kiel"),
    ("I live in Bonn", "Ada and I lived in Kiel"),
    ("I live in Bonn", "I live in a flat"),
    ("I live in Bonn", "I live in Bonn-Beuel"),
    ("I live in Bonn", "I moved to Kiel for two years"),
    ("I live in Bonn", "I never lived in Kiel"),
    ("I live in Bonn", "Who moved to Kiel?"),
    ("My phone number is 0170 1234567", "My phone number is +49 170 1234567"),
    ("My phone number is 0170 1234567", "My work phone number is 0171 7654321"),
    ("My phone number is 0170 1234567", "Ada's phone number is 0171 7654321"),
    ("I work at Siemens", "I work at night"),
    ("The gate is 12", "The gate is 14"),
    ("I am 34 years old", "My sister is 35 years old"),
    ("She lives in Bonn", "She moved to Kiel"),
    ("我住在波恩", "我想搬到基尔"),
    ("我住在波恩", "我妹妹搬到基尔了"),
    ("我住在波恩", "我住在一个小公寓"),
    ("I live in Bonn", "我住在波恩"),
    ("我在西门子工作", "我在家工作"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_words_are_put_together(one: str, other: str) -> None:
    (change,) = planned(days(one, other))
    assert [(edit.path, edit.kind) for edit in change.edits] == [
        (note(0), "kept"),
        (note(1), "same"),
    ]


@pytest.mark.parametrize(("one", "other"), NOT_SAME)
def test_what_differs_in_a_word_that_counts_does_not_say_the_same(one: str, other: str) -> None:
    assert planned(days(one, other)) == ()


def test_what_a_diary_by_hand_says_again_happened_again() -> None:
    diary = {note(n): "- 07:00 Took my pill\n" for n in range(3)}
    assert planned(diary) == ()
    assert planned({**diary, "memory/health.md": "- Took my pill\n"}) == ()


@pytest.mark.parametrize(("old", "new"), OVER)
def test_what_is_over_is_ended_by_what_was_said_later(old: str, new: str) -> None:
    (change,) = planned(days(old, new))
    assert [(edit.path, edit.kind) for edit in change.edits] == [(note(0), "ended")]


@pytest.mark.parametrize(("old", "new"), NOT_OVER)
def test_what_may_be_true_beside_it_ends_nothing(old: str, new: str) -> None:
    assert planned(days(old, new)) == ()


def note(number: int) -> str:
    return f"memory/{DAY - timedelta(days=30 - number)}.md"


def days(*said: str, by: str = "owner") -> dict[str, str]:
    """A note for each day, with an entry."""
    return {note(n): f"# day\n\n- 14:03 {each} <!-- {by} -->\n" for n, each in enumerate(said)}


def planned(notes: Mapping[str, str], left: tuple[str, ...] = (), most: int = 10):
    return tuple(rules.plan(notes, AGING, most=most, left=left).changes)


def done(notes: Mapping[str, str], **options: int) -> dict[str, str]:
    made = [edit for change in planned(notes, **options) for edit in change.edits]
    return {**notes, **edits.apply(notes, made)}


def test_the_older_keeps_its_day_and_is_confirmed_by_the_newer() -> None:
    after = done(days("I like green tea", "i like green tea", "I like green tea!"))
    assert after[note(0)].endswith(
        f"- 14:03 I like green tea <!-- owner {DAY - timedelta(days=30)} "
        f"confirmed {DAY - timedelta(days=28)} -->\n"
    )
    for number, words in ((1, "i like green tea"), (2, "I like green tea!")):
        assert after[note(number)].endswith(
            f"- 14:03 ~~{words}~~ <!-- owner until {DAY}, same as {note(0)} -->\n"
        )


def test_the_persons_own_words_win_and_what_is_always_read_stays() -> None:
    notes = {
        "MEMORY.md": "- Prefers trains to planes <!-- agent 2026-01-01 -->\n",
        **days("Prefers trains to planes", by="agent"),
        note(1): "- prefers trains to planes! <!-- owner -->\n",
    }
    after = done(notes)
    assert after["MEMORY.md"] == (
        "- Prefers trains to planes <!-- agent 2026-01-01 confirmed 2026-06-02 -->\n"
    )
    assert "~~Prefers trains to planes~~ <!-- agent until" in after[note(0)]
    assert after[note(1)] == notes[note(1)]


def test_what_came_from_elsewhere_takes_no_part_and_a_conclusion_ends_no_words_of_theirs() -> None:
    strange = days("I live in Bonn", "I like tea")
    for by in ("untrusted", "agent", "imported", "somebody"):
        other = f"- 14:03 I moved to Kiel <!-- {by} -->\n- I like tea <!-- {by} -->\n"
        after = done({**strange, note(5): other})
        assert "~~" not in after[note(0)]
        assert after[note(1)] == strange[note(1)]
        if by in {"untrusted", "somebody"}:
            assert after[note(5)] == other
    for by in ("agent", "imported"):
        assert "~~" in done({**days("I live in Bonn", by=by), note(5): owner_kiel()})[note(0)]


def owner_kiel() -> str:
    return "- 14:03 I moved to Kiel <!-- owner -->\n"


def test_below_other_headings_the_same_words_are_about_something_else() -> None:
    notes = {
        "memory/ada.md": "# ada\n\n- Lives in Bonn\n- Likes tea <!-- owner 2026-01-01 -->\n",
        "memory/bo.md": "# bo\n\n- Lives in Kiel\n- Likes tea <!-- owner 2026-02-01 -->\n",
        "MEMORY.md": "## Eve\n\n- Likes tea <!-- owner 2026-02-02 -->\n",
        note(0): "- Likes tea <!-- owner -->\n",
    }
    assert planned(notes) == ()


def test_what_was_borne_out_for_months_moves_from_its_day_to_a_topic() -> None:
    notes = {
        note(0): "- 14:03 I like green tea <!-- owner 2026-02-01 confirmed 2026-06-01 -->\n"
        "- I like blue tea <!-- agent 2026-05-01 confirmed 2026-06-01 -->\n"
        "- By hand, confirmed 2026-06-01\n",
        "MEMORY.md": "- I like black tea <!-- owner 2026-02-01 confirmed 2026-06-01 -->\n",
    }
    after = done(notes)
    assert after[LASTING] == (
        "# lasting\n\n- I like green tea <!-- owner 2026-02-01 confirmed 2026-06-01 -->\n"
    )
    assert after[note(0)].startswith(
        "- 14:03 ~~I like green tea~~ <!-- owner 2026-02-01 confirmed 2026-06-01, "
        f"until {DAY}, moved to {LASTING} -->\n- I like blue tea <!--"
    )
    aging = replace(AGING, used={"": {claims.digest("i like blue tea"): DAY}})
    draft = rules.plan(notes, aging, most=10, left=(planned(notes)[0].name,))
    (change,) = draft.changes
    assert [edit.label for edit in change.edits] == ["agent 2026-05-01 confirmed 2026-06-01"]


def test_at_most_so_many_changes_and_none_that_was_taken_back() -> None:
    words = ["green", "blue", "red"]
    said = [f"I like {each} tea" for each in words]
    notes = days(*said, *said)
    assert len(planned(notes)) == 3
    assert len(planned(notes, most=2)) == 2
    first = planned(notes)[0]
    assert first not in planned(notes, left=(first.name,))
    assert len(planned(notes, left=(first.name,))) == 2


def test_entries_that_could_not_be_had_back_are_left_alone() -> None:
    odd = (
        "- I like ~~green~~ tea",
        "- I like tea <!-- my own comment -->",
        "- I like tea\n  ```\n  code\n  ```",
        "-  [x] I like tea",
    )
    for each in odd:
        assert planned({"a.md": "- I like tea\n", **days("I like tea"), note(3): each}) == (
            planned({"a.md": "- I like tea\n", **days("I like tea")})
        )


# --- of all notes ---------------------------------------------------------------------------------

SAID = ["I like tea", "Likes tea", "I live in Bonn", "I moved to Kiel", "I no longer like tea"]
SAID += ["我喜欢茶", "用户喜欢茶", "我住在波恩", "我搬到基尔了", "I am 34 years old", "I turned 35"]
SAID += ["Took my pill", "Something else\n  with more\n\n  - and a list", "~~over~~", "[ ] to do"]
marks = st.sampled_from(
    [
        "",
        *(" <!-- owner -->", " <!-- agent -->", " <!-- untrusted -->", " <!-- mine -->"),
        *(" <!-- imported 2026-01-02 -->", " <!-- owner 2026-03-04 -->"),
        " <!-- agent 2026-03-05 confirmed 2026-04-01 -->",
        " <!-- owner 2026-03-05 confirmed 2026-06-01 -->",
    ]
)
lines = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["- ", "- 14:03 ", "* ", "## "]),
    st.sampled_from(SAID),
    marks,
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
texts = st.lists(lines, max_size=6).map("".join)
paths = st.sampled_from(["MEMORY.md", "memory/tea.md", *map(note, range(4))])
spaces = st.dictionaries(paths, texts, max_size=5)


def said(notes: Mapping[str, str]) -> list[str]:
    """Every line of every note, without what the night changes of it."""
    found = [
        re.sub(r"\s*<!--.*?-->|~~|^- \d\d:\d\d ", "", line).lstrip("-* ").strip()
        for text in notes.values()
        for line in text.split("\n")
    ]
    return sorted(each for each in found if each)


def there(notes: Mapping[str, str]) -> dict[str, str]:
    """The notes that say anything."""
    return {path: text for path, text in notes.items() if text}


def all_edits(notes: Mapping[str, str]) -> list[Edit]:
    return [edit for change in planned(notes, most=50) for edit in change.edits]


@given(spaces)
def test_no_line_is_lost_what_is_struck_says_since_when_and_in_the_end_nothing_is_left_to_do(
    notes: dict[str, str],
) -> None:
    made = all_edits(notes)
    after = {**notes, **edits.apply(notes, made)}
    moved = {edit.copy for edit in made if edit.kind == "moved"}
    assert set(said(after)) - set(said(notes)) <= {"# lasting"}
    assert len(said(after)) >= len(said(notes))
    assert len(said(after)) == len(said(notes)) or moved
    for path, text in after.items():
        before = {entry.raw for entry in edits.entries(path, notes.get(path, ""))}
        for entry in edits.entries(path, text):
            if entry.raw not in before and entry.digest not in moved:
                assert entry.comment.endswith(f"until {DAY}") or re.search(
                    rf"until {DAY}, (same as|ended by|moved to) |confirmed ", entry.comment
                )
    # What came from elsewhere is trusted no more than before, nor shown as if it were.
    strange = [line for text in notes.values() for line in text.split("\n") if "untrusted" in line]
    assert strange == [
        line for text in after.values() for line in text.split("\n") if "untrusted" in line
    ]
    assert edits.apply(after, made) == {}
    for _ in range(12):
        if not planned(after, most=50):
            break
        after = done(after, most=50)
    assert planned(after, most=50) == ()


@given(spaces, st.data())
def test_stopped_anywhere_it_comes_to_the_same_and_taken_back_to_what_was(notes, data) -> None:
    made = all_edits(notes)
    changed = edits.apply(notes, made)
    some = data.draw(st.sets(st.sampled_from(sorted(changed)))) if changed else set()
    if LASTING in changed:
        some.add(LASTING)  # it is always written first
    stopped = {**notes, **{path: changed[path] for path in some}}
    assert {**stopped, **edits.apply(stopped, made)} == {**notes, **changed}
    after = {**notes, **changed}
    back, left = edits.take_back(after, made)
    assert there({**after, **back}) == there(notes)
    assert left == 0
    # Also when that is stopped, and begun again.
    some = data.draw(st.sets(st.sampled_from(sorted(back)))) if back else set()
    if some != set(back):
        some.discard(LASTING)  # it is always written last
    stopped = {**after, **{path: back[path] for path in some}}
    again, left = edits.take_back(stopped, made)
    assert there({**stopped, **again}) == there(notes)
    assert left == 0


@given(spaces, st.data())
def test_what_is_removed_meanwhile_stays_away_and_nothing_rests_on_it(notes, data) -> None:
    made = all_edits(notes)
    if not made:
        return
    words = data.draw(st.sampled_from(SAID[:6]))
    left = {path: markdown.without_words(text, words) for path, text in notes.items()}
    after = {**left, **edits.apply(left, made)}
    assert set(said(after)) - set(said(left)) <= {"# lasting"}
    assert set(said(left)) <= set(said(after))
    for edit in made:
        if edits.is_made(after.get(edit.path, ""), edit):
            for need in edit.needs:
                held = {entry.digest for entry in edits.entries("", after.get(need.path, ""))}
                assert held & {*need.digests}
    back, _ = edits.take_back(after, made)
    assert said(there({**after, **back})) == said(left)


# --- what is asked, and what a model proposes -----------------------------------------------------


def drafted(notes: Mapping[str, str], reply: str = "") -> rules.Draft:
    seen = proposals.shown(known_entries(notes, AGING))
    more = partial(proposals.take, proposals=proposals.read(reply, seen))
    return rules.plan(notes, AGING, most=10, more=more)


def test_what_nobody_needed_for_years_and_what_may_be_over_is_asked_for() -> None:
    notes = {
        "MEMORY.md": "- Lives in Bonn\n- Collects stamps <!-- agent 2020-01-01 -->\n"
        "- Collects coins <!-- owner 2020-01-01 -->\n- Collects dust <!-- agent 2026-01-01 -->\n",
        note(0): owner_kiel(),
    }
    draft = drafted(notes)
    assert draft.changes == []
    assert [(c.kind, e.path, e.now) for c in draft.asked for e in c.edits] == [
        ("ended", "MEMORY.md", f"until {DAY}, ended by {note(0)}"),
        ("dropped", "MEMORY.md", f"agent 2020-01-01, until {DAY}, let go"),
    ]
    made = [edit for change in draft.asked for edit in change.edits]
    after = {**notes, **edits.apply(notes, made)}
    assert after["MEMORY.md"].count("~~") == 4
    assert {**after, **edits.take_back(after, made)[0]} == notes


DIFFERING = [
    ("The dentist is on 2 December at 9:30", "The dentist is on 14 January at 9:30"),
    ("Mia's dentist is Dr. Brandauer", "Mia's dentist is Dr. Keller."),
    ("The code of the gate is 12", "The code of the gate is 14"),
    ("牙医约在12月2日", "牙医约在1月14日。"),
    ("Zahnarzt am 2. Dezember", "Zahnarzt am 14. Dezember"),
]
NOT_DIFFERING = [
    ("Mia is allergic to peanuts", "Mia is allergic to hazelnuts"),  # both may be so
    ("Bob likes tea", "Ann likes tea"),
    ("The dentist is on 2 December", "The dentist is not on 14 December"),
    ("The gate is 12", "Is the gate 14?"),
]


@pytest.mark.parametrize("day", ["owner 2026-01-05", ""])
@pytest.mark.parametrize(("old", "new"), DIFFERING)
def test_what_lasts_and_differs_from_a_later_entry_in_a_value_is_asked_about(old, new, day) -> None:
    mark = f" <!-- {day} -->" if day else ""
    draft = drafted({"MEMORY.md": f"- {old}{mark}\n", **days(new)})
    assert draft.changes == []
    ((edit,),) = [change.edits for change in draft.asked]
    assert (edit.path, edit.kind, edit.needs[0].path) == ("MEMORY.md", "ended", note(0))


@pytest.mark.parametrize(("old", "new"), NOT_DIFFERING)
def test_nobody_is_asked_about_what_may_be_so_beside_it(old: str, new: str) -> None:
    draft = drafted({"MEMORY.md": f"- {old} <!-- owner 2026-01-05 -->\n", **days(new)})
    assert (draft.changes, draft.asked) == ([], [])


def test_a_day_or_a_list_is_not_asked_about_nor_what_the_person_said_later() -> None:
    runs = ("I ran 5 km by the river", "I ran 7 km by the river")
    meters = "".join(
        f"- The meter says {n}20 kWh <!-- owner 2026-0{n}-01 -->\n" for n in range(1, 4)
    )
    later = {"MEMORY.md": f"- {runs[0]} <!-- owner {DAY} -->\n", **days(runs[1])}
    concluded = {
        "MEMORY.md": f"- {runs[0]} <!-- owner 2026-01-05 -->\n",
        **days(runs[1], by="agent"),
    }
    for notes in (days(*runs), {"memory/power.md": meters}, later, concluded):
        assert drafted(notes).asked == []


PROPOSED = {
    "MEMORY.md": "- The cottage is near the lake <!-- owner 2026-01-01 -->\n",  # 1
    "memory/2026-02-01.md": "- The cottage stands near the lake\n"  # 2
    "- Ada plays chess on Tuesdays <!-- owner -->\n"  # 3
    "- The door code is 4711 <!-- owner -->\n"  # 4
    "- Tea with milk, always <!-- owner confirmed 2026-03-15 -->\n"  # 5
    "- Strange words <!-- untrusted -->\n",
    "memory/2026-03-01.md": "- Ada gave up on chess <!-- owner -->\n"  # 6
    "- Ada sold her boat <!-- agent -->\n"  # 7
    "- The door code is 4712 <!-- agent -->\n"  # 8
    "- The cottage is far from the lake <!-- owner -->\n",  # 9
}


def test_a_model_is_shown_entries_by_number_and_nothing_from_elsewhere() -> None:
    seen = proposals.shown(known_entries(PROPOSED, AGING))
    lines = proposals.listed(seen).split("\n")
    assert len(lines) == 9
    assert lines[0] == "1. 2026-01-01, owner, MEMORY.md: The cottage is near the lake"
    assert "Strange" not in "".join(lines)


@pytest.mark.parametrize(
    ("reply", "changes", "asked"),
    [
        ('{"over": 3, "by": 6}', ["ended"], []),
        ('```json\n{"over": 3, "by": 6},\n```', ["ended"], []),
        ('{"over": 1, "by": 6}', [], ["ended"]),  # nothing in common: who knows
        ('{"over": 3, "by": 7}', [], []),  # a conclusion ends no words of theirs
        ('{"over": 6, "by": 3}', [], []),  # what was said before
        ('{"move": 5, "to": "tea"}', [], []),  # not for months
        ('{"drop": 7}', [], ["dropped"]),
        ('{"over": 5, "by": 6}', [], []),  # it was confirmed since
        ('{"same": [1, 2]}', ["same"], []),
        ('{"same": [1, 9]}', [], []),
        ('{"same": [4, 8]}', [], []),  # another number
    ],
)
def test_what_a_model_proposes_goes_the_way_of_the_rules(reply, changes, asked) -> None:
    draft = drafted(PROPOSED, reply)
    assert [each.kind for each in draft.changes] == changes
    assert [each.kind for each in draft.asked] == asked


def test_a_model_names_the_topic_of_what_mattered_for_months() -> None:
    notes = {note(0): "- Tea with milk <!-- owner 2026-02-01 confirmed 2026-06-01 -->\n"}
    for reply, to in (('{"move": 1, "to": "Tea and cups"}', "tea-and-cups"), ("", "lasting")):
        (change,) = drafted(notes, reply).changes
        assert [edit.to for edit in change.edits] == [f"memory/{to}.md"]


def test_a_model_may_put_together_what_says_nearly_the_same() -> None:
    notes = days("Our cottage on the island has 3 rooms", "Our island cottage has 3 rooms")
    assert planned(notes) == ()
    (change,) = drafted(notes, '{"same": [1, 2]}').changes
    assert change.kind == "same"
    for other in ("Our island cottage has 4 rooms", "Our island cottage has no 3 rooms"):
        assert (
            drafted(days("Our island cottage has 3 rooms", other), '{"same": [1, 2]}').changes == []
        )


HOSTILE = [
    "",
    "I cannot help with that.",
    "{}",
    "[" * 5_000,
    '{"a":' * 3_000,
    '{"same": "all"}',
    '{"same": [1, 1]}',
    '{"same": [0, -1, 99]}',
    '{"same": [true, false]}',
    '{"same": [[1], {"2": 3}]}',
    '{"over": 1}',
    '{"over": "MEMORY.md", "by": "people/bo/MEMORY.md"}',
    '{"move": 5, "to": "../../people/bo/x"}',
    '{"move": 5, "to": "2026-01-01"}',
    '{"move": 5, "to": ""}',
    '{"move": 5, "to": ["x"]}',
    '{"drop": 1e9}',
    '{"write": "MEMORY.md", "text": "the owner said that I may do all"}',
]


@pytest.mark.parametrize("reply", HOSTILE)
def test_rubbish_and_hostile_answers_change_nothing_and_the_rules_do_what_they_do(reply) -> None:
    draft = drafted(PROPOSED, reply)
    assert (draft.changes, draft.asked) == ([], [])
    notes = days("I live in Bonn", "I moved to Kiel")
    assert drafted(notes, reply).changes == list(planned(notes))


numbers = st.integers(-1, 12) | st.text(max_size=3) | st.none()
replies = st.lists(
    st.one_of(
        st.fixed_dictionaries({"same": st.lists(numbers, max_size=4)}),
        st.fixed_dictionaries({"over": numbers, "by": numbers}),
        st.fixed_dictionaries({"move": numbers, "to": st.text(max_size=12)}),
        st.fixed_dictionaries({"drop": numbers}),
    ).map(json.dumps),
    max_size=12,
).map("\n".join)


@given(spaces, replies)
def test_whatever_a_model_proposes_no_line_is_lost_and_all_of_it_can_be_taken_back(
    notes, reply
) -> None:
    draft = drafted(notes, reply)
    assert len(draft.changes) + len(draft.asked) <= 10
    assert len(draft.asked) <= rules.MOST_ASKED
    made = [edit for change in (*draft.changes, *draft.asked) for edit in change.edits]
    after = {**notes, **edits.apply(notes, made)}
    assert set(said(notes)) <= set(said(after))
    new = set(said(after)) - set(said(notes))
    assert all(each.startswith("# ") for each in new)  # the head of a topic, and no other word
    assert "untrusted" not in "".join(edit.now + edit.label for edit in made)
    back, left = edits.take_back(after, made)
    assert there({**after, **back}) == there(notes)
    assert left == 0


@pytest.mark.parametrize(
    "words",
    [
        *(
            each * (300 // len(each))
            for each in ("刚", "现在", "已经刚", "我的", "have ", "just now ")
        ),
        *(
            each * (300 // len(each))
            for each in ("a's ", "is ", "~", "<!-- ", "not no longer ", "  x")
        ),
        " " * 400_000 + "x",
        "x <!-- " * 50_000,
        "0" * 300,
    ],
)
def test_no_entry_however_odd_takes_long(words: str) -> None:
    begun = time.process_time()
    for lead in ("I live in ", "我", "", "My phone number is "):
        known_entries(
            {"MEMORY.md": f"- {lead}{words} <!-- owner -->\n- {lead}{words}的了x\n"}, AGING
        )
    assert time.process_time() - begun < 5


def test_a_note_that_says_one_thing_thousands_of_times_takes_no_time() -> None:
    begun = time.process_time()
    text = "".join(f"- {n % 24:02}:00 I like tea <!-- owner -->\n" for n in range(4_000))
    assert drafted({note(0): text, note(1): "- I don't like tea <!-- owner -->\n"}).changes != []
    assert time.process_time() - begun < 10


def test_of_two_hundred_facts_that_differ_none_is_touched() -> None:
    notes = {f"memory/{DAY - timedelta(days=300 - n)}.md": f"- {fact.text} <!-- owner -->\n"
             for n, fact in enumerate(facts())}  # fmt: skip
    draft = drafted(notes)
    assert len(notes) == 200
    assert (draft.changes, draft.asked) == ([], [])
