"""Entries as claims: whose, since when; what time, confirming and using do to their strength."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.memory import claims, markdown
from bot.memory.claims import Claim, HalfLives

DAY = date(2026, 7, 1)
LIVES = HalfLives()
NOTE = """\
# Memory

- By hand, without a date
- Lives in Berlin <!-- owner 2026-01-05 -->
- Likes trains <!-- agent 2026-01-05 confirmed 2026-03-01 -->
  and ferries
- From elsewhere <!-- untrusted 2026-02-01 -->
- ~~Lived in Bonn~~ <!-- agent 2025-01-05, in MEMORY.md until 2026-01-05 -->

## What was noted 2025-05-06

- Collects stamps <!-- imported -->

### And more

- Collects coins <!-- agent -->
- A day that is none <!-- agent 2026-02-30 confirmed 2026-02-31 -->

```
- no claim <!-- agent -->
```

## Undated

- Nobody knows when <!-- agent -->
"""

days = st.dates(date(2000, 1, 1), date(2100, 1, 1))
maybe = st.none() | days
lives = st.builds(HalfLives, *[st.floats(0, 2000)] * 3)
told: st.SearchStrategy[Claim] = st.builds(
    Claim,
    first=st.just(1),
    last=st.just(1),
    text=st.text(max_size=20),
    whose=st.sampled_from(["owner", "agent", "imported", "untrusted", "hand"]),
    said=maybe,
    confirmed=maybe,
    used=maybe,
    is_over=st.booleans(),
)


def test_a_note_s_entries_are_claims_with_whose_they_are_and_since_when():
    found = [(c.first, c.last, c.whose, c.said, c.confirmed) for c in claims.of_note("x.md", NOTE)]
    heading = date(2025, 5, 6)
    assert found == [
        (3, 3, "hand", None, None),
        (4, 4, "owner", date(2026, 1, 5), None),
        (5, 6, "agent", date(2026, 1, 5), date(2026, 3, 1)),
        (7, 7, "untrusted", date(2026, 2, 1), None),
        (8, 8, "agent", date(2025, 1, 5), None),
        (12, 12, "imported", heading, None),
        (16, 16, "agent", heading, None),
        (17, 17, "agent", heading, None),
        (25, 25, "agent", None, None),
    ]
    over = [c.text for c in claims.of_note("x.md", NOTE) if c.is_over]
    assert over == ["~~Lived in Bonn~~"]


def test_the_name_of_a_day_s_note_tells_the_day_of_what_has_none_of_its_own():
    made = "- 14:03 Likes tea <!-- agent -->\n- Likes it more <!-- agent 2025-01-01 -->\n"
    found = list(claims.of_note("memory/2026-07-01.md", made))
    assert [c.said for c in found] == [DAY, date(2025, 1, 1)]
    assert found[0].text == "14:03 Likes tea"
    assert found[0].digest == claims.digest("likes tea")  # wherever it stands, and whenever
    assert "tea" not in found[0].digest


@given(told, days, days, lives)
def test_what_a_claim_counts_only_falls_as_time_goes_by(
    claim: Claim, one: date, other: date, half_lives: HalfLives
):
    first, later = sorted((one, other))
    before, after = (claims.strength(claim, day, half_lives) for day in (first, later))
    assert 0.0 <= after <= before <= 1.0


@given(told, days, days, lives)
def test_what_the_person_said_never_fades(
    claim: Claim, one: date, other: date, half_lives: HalfLives
):
    own = replace(claim, is_over=False, whose="owner" if one < other else "hand")
    assert claims.strength(own, max(one, other), half_lives) == 1.0


@given(told, days, lives)
def test_confirming_and_using_restore_what_was_concluded(
    claim: Claim, today: date, half_lives: HalfLives
):
    for whose in ("agent", "imported"):
        faded = replace(claim, whose=whose, is_over=False)
        for borne in (replace(faded, confirmed=today), replace(faded, used=today)):
            assert claims.strength(borne, today, half_lives) == 1.0
            assert not claims.is_faded(borne, today, half_lives)


@given(told, days, maybe, maybe, lives)
def test_what_came_from_elsewhere_is_no_stronger_for_being_said_again(
    claim: Claim, today: date, confirmed: date | None, used: date | None, half_lives: HalfLives
):
    once = replace(claim, whose="untrusted", confirmed=None, used=None)
    again = replace(once, confirmed=confirmed, used=used)
    expected = claims.strength(once, today, half_lives)
    assert claims.strength(again, today, half_lives) == expected
    line = "- From elsewhere <!-- untrusted 2026-02-01 -->\n"
    assert claims.confirmed(line, 1, today) == line


def test_half_of_the_strength_is_gone_after_each_half_life_of_its_kind():
    for whose, half_life in (("agent", 180), ("imported", 365), ("untrusted", 90)):
        claim = Claim(1, 1, "x", whose, DAY)
        ages = [claims.strength(claim, DAY + timedelta(half_life * n), LIVES) for n in range(3)]
        assert ages == [1.0, 0.5, 0.25]
        assert claims.is_faded(claim, DAY + timedelta(half_life * 2 + 1), LIVES)
        never = HalfLives(0, 0, 0)
        assert claims.strength(claim, DAY + timedelta(9_999), never) == 1.0
        # Older than any other, as nobody knows since when.
        assert claims.strength(replace(claim, said=None), DAY, LIVES) == 0.0
    over = Claim(1, 1, "~~x~~", "owner", DAY, is_over=True)
    assert claims.strength(over, DAY, LIVES) == 0.0


def test_only_the_person_s_own_words_confirm():
    by = ("owner", "agent", "imported", "untrusted")
    assert [claims.confirms(each) for each in by] == [True, False, False, False]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("- a <!-- agent -->", "- a <!-- agent confirmed 2026-07-01 -->"),
        ("- a <!--agent-->  ", "- a <!--agent confirmed 2026-07-01 -->  "),
        ("- a <!-- agent -->\r", "- a <!-- agent confirmed 2026-07-01 -->\r"),
        (
            "- a <!-- imported 2026-01-05 -->",
            "- a <!-- imported 2026-01-05 confirmed 2026-07-01 -->",
        ),
        (
            "- a <!-- agent 2026-01-05 confirmed 2026-03-01, by hand -->",
            "- a <!-- agent 2026-01-05 confirmed 2026-07-01, by hand -->",
        ),
        ("- a <!-- agent 2026-01-05 confirmed 2026-08-01 -->", None),
        ("- a <!-- owner 2026-01-05 -->", None),
        ("- a <!-- untrusted -->", None),
        ("- ~~a~~ <!-- agent 2026-01-05 -->", None),
        ("- a", None),
        ("a <!-- agent -->", None),
    ],
)
def test_confirming_changes_the_comment_of_that_entry_and_nothing_else(
    before: str, after: str | None
):
    text = f"# x\n\n{before}\n  more <!-- agent -->\n- b <!-- agent -->\n"
    expected = text if after is None else text.replace(before, after, 1)
    assert claims.confirmed(text, 3, DAY) == expected
    assert claims.confirmed(expected, 3, DAY) == expected


@given(st.text(max_size=200), st.integers(0, 9), days)
def test_no_note_is_broken_by_confirming(text: str, line: int, day: date):
    list(claims.of_note("memory/x.md", text))
    after = claims.confirmed(text, line, day)
    assert markdown.plain(after).split() == markdown.plain(text).split()


def test_a_confirmed_entry_is_shown_replaced_and_forgotten_as_before():
    now = datetime(2026, 7, 1, 14, 3, tzinfo=UTC)
    note = markdown.fact("Likes trains", DAY, "agent") + markdown.bullet("Ran", now, "agent")
    for line in (1, 2):
        note = claims.confirmed(note, line, date(2026, 8, 1))
    shown, conclusions = markdown.attributed(note)
    assert shown == "- Likes trains (concluded 2026-07-01)\n- 14:03 Ran (concluded)\n"
    assert len(conclusions) == 2
    assert markdown.says(note, "likes TRAINS") == 1
    changed = markdown.supersede(note, "Likes trains", "- Likes boats\n")
    assert changed.old.startswith("- Likes trains <!-- agent 2026-07-01 confirmed 2026-08-01")
    assert markdown.without_words(note, "trains").count("\n") == 1
