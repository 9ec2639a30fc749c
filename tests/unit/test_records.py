"""Rows as values: what is put into a table is what is read from it, on both engines."""

from dataclasses import replace

import pytest

from bot.channel import Address
from bot.delivery.outbox import LETTERS
from bot.identity import Link, MessageOrigin
from bot.push.pusher import SUBSCRIPTIONS, Subscription
from bot.sessions.approvals import QUESTIONS
from bot.sessions.links import CODES, LINKS
from bot.sessions.page_logins import LINKS as PAGE_LINKS
from bot.sessions.page_logins import LOGINS, PEOPLE, Login, PagePerson
from bot.sessions.pairing import BLOCKS, PAIRINGS
from bot.sessions.reminders import REMINDERS, Reminder, ReplyTarget
from bot.sessions.repeats import REPEATS
from bot.sessions.store import SESSIONS
from tests.support import NOON

ADA = Address("telegram", "default", "1")
ORIGIN = MessageOrigin("web", "default", "ada", "direct", "ada")
LINK = Link(("telegram", "1"), ("discord", "7"), ADA, "zh")
BROWSER = Subscription("ada", "login", "address", "key", "secret", "page", "en")
PERSON = PagePerson("ada", ("", ""), None, "", NOON, 0)


@pytest.mark.parametrize(
    ("records", "value", "also", "key"),
    [
        (LINKS, LINK, (NOON,), LINK.seat),
        (PEOPLE, PERSON, (), ("ada",)),
        (PEOPLE, replace(PERSON, seat=("web", "ada"), origin=ORIGIN), (), ("ada",)),
        (LOGINS, Login("l", "ada", ORIGIN, "Firefox", NOON, NOON), ("digest",), ("digest",)),
        (SUBSCRIPTIONS, BROWSER, ("i", 5), ("i",)),
        (SUBSCRIPTIONS, replace(BROWSER, words=True), ("i", 5), ("i",)),
    ],
)
async def test_what_is_put_is_what_is_read_and_replaces_what_has_its_key(
    each_database, records, value, also, key
):
    for _ in range(2):
        await each_database.write(lambda tx: records.put(tx, value, *also))
    assert await each_database.read(lambda tx: records.get(tx, *key)) == value
    assert await each_database.read(lambda tx: records.count(tx, "TRUE")) == 1
    assert await each_database.write(lambda tx: records.delete(tx, "TRUE")) == [value]
    assert await each_database.read(lambda tx: records.get(tx, *key)) is None


async def test_the_database_numbers_what_is_added(each_database):
    target = ReplyTarget("key", "ada", ADA, "en")
    given = [Reminder(0, target, "person", f"r{number}", number, NOON) for number in (2, 1, 3)]
    added = await each_database.write(
        lambda tx: [REMINDERS.add(tx, each, "waiting") for each in given]
    )
    assert [replace(each, id=0) for each in added] == given
    first, second, third = added
    found = await each_database.read(lambda tx: REMINDERS.where(tx, order="due_at"))
    assert found == [second, first, third]
    assert len({each.id for each in found}) == 3
    late = await each_database.read(
        lambda tx: REMINDERS.where(tx, "due_at > ?", 1, order="id DESC")
    )
    assert late == [third, first]


async def test_every_column_that_is_read_is_there(each_database):
    tables = (BLOCKS, CODES, LETTERS, PAGE_LINKS, PAIRINGS, QUESTIONS, REPEATS, SESSIONS)
    for records in tables:
        assert await each_database.read(lambda tx, records=records: records.where(tx)) == []
