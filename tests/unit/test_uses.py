"""When claims were used: days and digests in a table, on either engine."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from bot.context import wording
from bot.memory import claims, markdown, uses
from bot.storage import Database

DAY = date(2026, 7, 1)


async def test_the_last_day_counts_and_each_space_has_its_own(each_database: Database):
    later = DAY + timedelta(1)
    very_old = DAY - uses.KEPT - timedelta(1)

    def work(tx):
        uses.keep(tx, "people/ada", {"old": very_old})
        uses.keep(tx, "people/ada", {"a": later, "b": DAY})
        uses.keep(tx, "people/ada", {"a": DAY, "b": later})
        uses.keep(tx, "people/eve", {"a": DAY})
        uses.keep(tx, "people/eve", {})

    await each_database.write(work)
    of_ada = await each_database.read(lambda tx: uses.of_space(tx, "people/ada"))
    assert of_ada == {"a": later, "b": later}
    await each_database.write(lambda tx: uses.forget(tx, "people/ada", ["b", "unknown"]))
    assert await each_database.read(lambda tx: uses.of_space(tx, "people/ada")) == {"b": later}
    assert await each_database.read(lambda tx: uses.of_space(tx, "people/eve")) == {"a": DAY}
    await each_database.write(uses.clear)
    assert await each_database.read(lambda tx: uses.of_space(tx, "people/eve")) == {}


@pytest.mark.parametrize(
    ("claim", "answer", "is_used"),
    [
        ("Prefers window seats on trains", "You prefer window seats on trains, I think.", True),
        ("Prefers window seats on trains", "Trains leave at nine.", False),
        ("喜欢喝乌龙茶", "你喜欢喝乌龙茶。", True),
        ("喜欢喝乌龙茶", "你喜欢什么？", False),
        ("Nora", "Nora is at home", False),  # one word may stand anywhere
    ],
)
def test_an_answer_uses_a_claim_when_it_has_most_of_its_words(
    claim: str, answer: str, *, is_used: bool
):
    (each,) = claims.of_note("x.md", f"- {claim} <!-- agent -->\n")
    assert uses.says(wording.words(answer), each) == is_used


def test_a_note_has_the_digests_of_its_entries():
    note = markdown.fact("Likes tea\nand cake", DAY, "agent") + "Not an entry\n- b\n"
    wanted = {claims.digest("likes tea"), claims.digest("b")}
    assert uses.digests_of(note) == wanted
    assert {claim.digest for claim in claims.of_note("x.md", note)} == wanted
