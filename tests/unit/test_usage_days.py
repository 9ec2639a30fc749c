"""What was used on each of the last days: asked for once, and as if it were asked anew."""

from __future__ import annotations

from datetime import UTC

import pytest

from bot.agent.models import Usage
from bot.clock import DAY_MS
from bot.money import counts, days
from bot.money.counts import Spent
from bot.money.days import UsageDays, Used
from bot.money.prices import FREE, Price, Prices
from bot.storage import Database, Transaction
from tests.support import NOON

HOUR = 3_600_000
PRICES = Prices({"m": Price(1, 1, 1, 1), "free": FREE})


async def spend(database: Database, person: str, at: int, much: int, model: str = "m") -> None:
    spent = Spent(person, "s1", model, "chat", Usage(much))
    await database.write(lambda tx: counts.add(tx, spent, at))


async def look(database: Database, asked: UsageDays, now: int) -> Used:
    return await database.read(lambda tx: asked.look(tx, now, 5, 2))


def same(found: Used) -> tuple[object, ...]:
    """What is found, whatever order it was found in."""
    used = [sorted(each.counts, key=lambda count: count.keys) for each in found.days]
    return used, found.people, found.most


@pytest.mark.parametrize("most_kept", [days.MOST_KEPT, 1])
async def test_what_is_kept_says_the_same_as_what_is_asked_anew(
    each_database: Database, monkeypatch: pytest.MonkeyPatch, most_kept: int
):
    monkeypatch.setattr(days, "MOST_KEPT", most_kept)
    asked, now = UsageDays(UTC, PRICES), NOON
    for step in range(30):
        person = ("ada", "bob", "eve")[step % 3]
        await spend(each_database, person, now, step * 7 % 11 + 1, ("m", "free", "odd")[step % 2])
        if step == 20:  # somebody new becomes one of those who use most
            await spend(each_database, "zoe", now - HOUR // 2, 500)
        found = await look(each_database, asked, now)
        fresh = await look(each_database, UsageDays(UTC, PRICES), now)
        assert same(found) == same(fresh)
        now += 7 * HOUR
    assert found.most[0][0] == "zoe"
    assert len(found.days) == len(found.most[0][1]) == 5


async def test_a_day_that_is_over_is_asked_for_once(each_database: Database):
    asked, now = UsageDays(UTC, PRICES), NOON
    await spend(each_database, "ada", now - DAY_MS, 5)
    await look(each_database, asked, now)

    def empty(tx: Transaction) -> None:
        tx.execute("DELETE FROM usage_counts", ())

    await each_database.write(empty)
    again = await look(each_database, asked, now + HOUR)
    assert [line.bill.usage.input_tokens for line in again.people] == [5]
    assert again.most[0][1][-2] == (5, 5 / 1_000_000)
    assert (await look(each_database, asked, now + DAY_MS)).people == []  # another five days


async def test_what_one_person_used_is_theirs_day_by_day(each_database: Database):
    await spend(each_database, "ada", NOON - DAY_MS, 3)
    await spend(each_database, "ada", NOON, 4)
    await spend(each_database, "bob", NOON, 9)
    last = days.last_days(NOON, UTC, 3)
    found = await each_database.read(lambda tx: days.days_of(tx, "ada", last))
    assert [each.models for each in found] == [{}, {"m": Usage(3)}, {"m": Usage(4)}]
    assert await each_database.read(lambda tx: days.days_of(tx, "ada", [])) == []
