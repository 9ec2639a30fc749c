"""What models used, as both databases count it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from bot.agent.models import Usage
from bot.clock import DAY_MS
from bot.config import OFFLINE
from bot.money import counts
from bot.money.counts import KEPT_MS, KEPT_WHOLE_MS, SLOT_MS, Count, Spent
from bot.storage import Database
from tests.support import NOON

EVER = (0, 2**62)
USED = Usage(100, 10, 1_000, 20)


def spent(**changes: object) -> Spent:
    values = {"person": "ada", "session_id": "s1", "model": "m", "purpose": "chat", "usage": USED}
    return Spent(**{**values, **changes})  # pyright: ignore[reportArgumentType]


async def store(database: Database, *each: tuple[Spent, int]) -> None:
    for one, at in each:
        await database.write(lambda tx, one=one, at=at: counts.add(tx, one, at))


async def total(database: Database, **only: str) -> Usage:
    found = await database.read(lambda tx: counts.sums(tx, ["purpose"], *EVER, **only))
    return together(found)


def together(found: Iterable[Count]) -> Usage:
    return sum((each.usage for each in found), Usage())


async def test_everything_is_counted_once_and_apart(each_database: Database):
    await store(
        each_database,
        (spent(), NOON),
        (spent(), NOON + 1),
        (spent(model="other/m", purpose="flush"), NOON),
        (spent(person="bob", session_id="s2"), NOON + SLOT_MS),
    )
    by_person = await each_database.read(
        lambda tx: counts.sums(tx, ["person", "model", "purpose"], *EVER)
    )
    assert by_person == [
        Count(("ada", "m", "chat"), 2, USED + USED),
        Count(("ada", "other/m", "flush"), 1, USED),
        Count(("bob", "m", "chat"), 1, USED),
    ]
    assert await total(each_database, person="bob") == USED
    rows = await each_database.read(lambda tx: tx.execute("SELECT count(*) FROM usage_counts"))
    assert rows == [(3,)]


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/St_Johns", "Pacific/Kiritimati"])
async def test_the_days_of_any_time_zone_can_be_asked_for(each_database: Database, zone: str):
    midnight = datetime(2026, 11, 21, tzinfo=ZoneInfo(zone)).timestamp()
    start = int(midnight * 1000)
    await store(
        each_database,
        (spent(usage=Usage(1)), start - 1),
        (spent(usage=Usage(2)), start),
        (spent(usage=Usage(4)), start + DAY_MS - 1),
        (spent(usage=Usage(8)), start + DAY_MS),
    )
    today = await each_database.read(lambda tx: counts.sums(tx, ["person"], start, start + DAY_MS))
    assert together(today) == Usage(6)


async def test_what_costs_nothing_leaves_no_row(each_database: Database):
    await store(each_database, (spent(usage=Usage()), NOON), (spent(model=OFFLINE), NOON))
    assert await each_database.read(lambda tx: tx.execute("SELECT * FROM usage_counts")) == []


async def test_old_counts_are_folded_into_days_and_in_the_end_dropped(each_database: Database):
    day = NOON - NOON % DAY_MS
    await store(
        each_database,
        (spent(), NOON),
        (spent(session_id="s2"), NOON + SLOT_MS),
        (spent(), NOON + 40 * DAY_MS),
    )
    later = NOON + KEPT_WHOLE_MS + 2 * DAY_MS
    for _ in range(2):  # each day again: what is folded stays what it is
        await each_database.write(lambda tx: counts.prune(tx, later))
        found = await each_database.read(
            lambda tx: counts.sums(tx, ["at", "session_id", "person"], *EVER)
        )
        assert found == [
            Count((day, "", "ada"), 2, USED + USED),
            Count((NOON + 40 * DAY_MS, "s1", "ada"), 1, USED),
        ]
    # What comes in late, for a day that was folded, joins it.
    await store(each_database, (spent(), NOON))
    await each_database.write(lambda tx: counts.prune(tx, later))
    assert (await total(each_database)) == USED + USED + USED + USED
    await each_database.write(lambda tx: counts.prune(tx, day + KEPT_MS + 1))
    assert (await total(each_database)) == USED
