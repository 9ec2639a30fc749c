"""Rows that cannot be read: each is left out or set aside alone, logged, and holds up nobody."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from bot import recovery
from bot.channel import Address, Button, Inbound
from bot.delivery import outbox
from bot.delivery.outbox import Extra, Queue
from bot.doctor import urgent
from bot.identity import MessageOrigin
from bot.memory import selftest
from bot.memory.night import record as nights
from bot.memory.transcripts import _documents
from bot.sessions import browsing, erasing, inbox, page_logins, repeats, store, unsaved
from bot.sessions.entries import NewEntry, entry_id
from bot.sessions.page_logins import Login, PagePerson
from bot.storage import Transaction, backup_state, records
from bot.storage.records import keep
from tests.support import NOON
from tests.unit.test_reminders import DAY, HOUR, PLACE, VIEW, Desk
from tests.unit.test_repeats import ASKED, AT_THREE, UTC, RepeatDesk

ADA = Address("telegram", "default", "1")
ORIGIN = MessageOrigin("web", "default", "ada", "direct", "ada")
QUEUE = Queue(ADA)


@pytest.fixture(autouse=True)
def _forget_reports(monkeypatch):
    monkeypatch.setattr(records, "_named", set())


@dataclass(frozen=True)
class Kind:
    """A kind of row: how two are stored, the SQL that damages the second, and what is read."""

    store: Callable[[Transaction], object]
    damage: str
    sound: str
    read: Callable[[Transaction], list[Any]]
    row: str


def _people(tx: Transaction) -> None:
    for name in ("ada", "bob"):
        page_logins.PEOPLE.put(tx, PagePerson(name, ("web", name), ORIGIN, "", NOON, 0))


def _logins(tx: Transaction) -> None:
    for digest in ("a", "b"):
        login = Login(digest, "ada", ORIGIN, "Firefox", NOON, NOON)
        page_logins.LOGINS.put(tx, login, digest)


def _repeats(tx: Transaction) -> None:
    for text in ("one", "two"):
        repeats.add(tx, ASKED, text, AT_THREE, zone=UTC, now=NOON)


def _meta(prefix: str, *texts: str) -> Callable[[Transaction], None]:
    def store(tx: Transaction) -> None:
        for name, text in zip("ab", texts, strict=True):
            keep(tx, f"{prefix}{name}", text, NOON)

    return store


UNSAVED = '{"tries": 1, "at": 5, "why": "x"}'
MARK = '{"salt": "s", "digests": ["d"], "at": 5}'
ASKED_NIGHT = '{"at": 5, "asked": 2, "found": 1, "missed": []}'
JSON_ORIGIN = json.dumps(
    {"channel": "web", "account": "default", "chat": "ada", "chat_type": "direct", "sender": "ada"}
)

KINDS = {
    "page people": Kind(
        _people,
        "UPDATE page_people SET origin = ? WHERE name = 'bob'",
        JSON_ORIGIN,
        lambda tx: [each.name for each in page_logins.PEOPLE.where(tx, order="name")],
        "page_people bob",
    ),
    "logins": Kind(
        _logins,
        "UPDATE page_logins SET origin = ? WHERE digest = 'b'",
        JSON_ORIGIN,
        lambda tx: [each.id for each in page_logins.LOGINS.where(tx, order="digest")],
        "page_logins ",
    ),
    "repeats": Kind(
        _repeats,
        "UPDATE repeats SET origin = ? WHERE text = 'two'",
        JSON_ORIGIN,
        lambda tx: [each.text for each in repeats.of_everybody(tx)],
        "repeats 2",
    ),
    "unsaved conversations": Kind(
        _meta(unsaved.PREFIX, UNSAVED, UNSAVED),
        f"UPDATE meta SET value = ? WHERE key = '{unsaved.PREFIX}b'",
        UNSAVED,
        lambda tx: unsaved.due(tx, 9),
        f"meta {unsaved.PREFIX}b",
    ),
    "people who were erased": Kind(
        _meta(erasing.ERASED, MARK, MARK),
        f"UPDATE meta SET value = ? WHERE key = '{erasing.ERASED}b'",
        MARK,
        lambda tx: [each.salt for each in erasing.erased_marks(tx)],
        f"meta {erasing.ERASED}b",
    ),
    "nights of the self-test": Kind(
        _meta(selftest.ASKED, ASKED_NIGHT, ASKED_NIGHT),
        f"UPDATE meta SET value = ? WHERE key = '{selftest.ASKED}b'",
        ASKED_NIGHT,
        lambda tx: [each for name in "ab" if (each := selftest.of_space(tx, name))],
        f"meta {selftest.ASKED}b",
    ),
}


def more(stored: str) -> str:
    """With a field that another version added."""
    return json.dumps(json.loads(stored) | {"added_later": {"x": 1}})


def wrong(stored: str) -> str:
    """With each field of another type."""
    return json.dumps({name: {"odd": []} for name in json.loads(stored)})


DAMAGES = {
    "wrong type": wrong,
    "broken": lambda stored: stored[:-2],
    "no object": lambda _stored: "[5]",
    "empty object": lambda _stored: "{}",
    "null": lambda _stored: "null",
}
# What has a default for every field is whole without any.
_WITHOUT_NEED = {("unsaved conversations", "empty object")}


@pytest.mark.parametrize(
    ("name", "damage"),
    [(n, d) for n in KINDS for d in DAMAGES if (n, d) not in _WITHOUT_NEED],
)
def test_a_row_that_cannot_be_read_is_left_out_alone_and_logged_once(
    tx: Transaction, name: str, damage: str, logs
):
    kind = KINDS[name]
    kind.store(tx)
    assert len(kind.read(tx)) == 2
    stored = DAMAGES[damage](kind.sound)
    tx.execute(kind.damage, (stored,))
    for _ in range(3):
        assert len(kind.read(tx)) == 1
    reports = [f"{each['table']} {each['row']}" for each in logs]
    assert reports == [kind.row]
    assert {each["event"] for each in logs} == {"storage.row_unreadable"}
    assert records.unreadable() == 1


@pytest.mark.parametrize("name", KINDS)
def test_a_field_that_a_newer_version_added_is_left_out(tx: Transaction, name: str):
    kind = KINDS[name]
    kind.store(tx)
    stored = more(kind.sound)
    tx.execute(kind.damage, (stored,))
    assert len(kind.read(tx)) == 2


@pytest.mark.parametrize("stored", ["", "{", "[]", "null", "5", '{"at": {}}', '{"night": 5}'])
def test_one_value_that_cannot_be_read_is_as_if_it_were_not_there(tx: Transaction, stored: str):
    names = ("restored", backup_state.KEY, f"{nights.NIGHT}main", urgent._TOLD, f"{urgent._DOWN}a")
    for key in names:
        keep(tx, key, stored, NOON)
    assert recovery.latest(tx) is None
    assert backup_state.read(tx) == backup_state.BackupState()
    assert (urgent._last(tx), urgent.downs(tx)) == (urgent.LastMessage(), [])
    found = nights.of_space(tx, "main")
    assert found == nights.Record()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_message_that_cannot_be_read_is_given_up_and_the_next_is_not(
    tx: Transaction, damage: str
):
    resolver = Desk().resolver
    inbound = Inbound("telegram", "default", "1", "direct", "1", "m1", "hi", NOON)

    for number in ("m1", "m2"):
        each, body = inbox.storable(replace(inbound, message_id=number))
        inbox.store(tx, each, body, "key", NOON)
    body = DAMAGES[damage](inbox.storable(inbound)[1])
    tx.execute("UPDATE inbox SET body = ? WHERE message_id = 'm1'", (body,))
    first, second = inbox.waiting(tx, "key", 9, resolver.resolve)
    assert (first.tries, second.tries) == (inbox.UNREADABLE, 0)
    assert second.inbound == replace(inbound, message_id="m2")


@pytest.mark.parametrize("damage", ["wrong type", "broken", "no object", "null"])
def test_a_text_whose_extra_cannot_be_read_stands_in_the_order(tx: Transaction, damage: str):
    extra = Extra(buttons=(Button("Yes", "/yes"),), draft="7")
    for text in ("one", "two"):
        outbox.add(tx, ADA, text, NOON, extra=extra)
    stored = DAMAGES[damage]('{"buttons": [["Yes", "/yes"]], "draft": "7"}')
    tx.execute("UPDATE outbox SET extra = ? WHERE text = 'one'", (stored,))
    found = outbox.waiting(tx, QUEUE, 9)
    assert [(each.text, each.extra) for each in found] == [
        ("one", outbox.UNREADABLE),
        ("two", extra),
    ]


# --- what is due ---------------------------------------------------------------------------------


@pytest.fixture
def desk() -> RepeatDesk:
    return RepeatDesk()


@pytest.mark.parametrize(
    ("column", "stored"),
    [
        *(("origin", damage(JSON_ORIGIN)) for damage in DAMAGES.values()),
        ("origin", ""),
        ("rule", "FREQ=SOMETIMES"),
        ("rule", ""),
        ("begins", "soon"),
        ("begins", ""),
    ],
)
async def test_a_repeat_that_cannot_be_read_stops_no_other(desk, column: str, stored: str):
    for text in ("a", "b", "c"):
        desk.repeat(text)
    desk.add("once", HOUR)
    desk.tx.execute(f"UPDATE repeats SET {column} = ? WHERE text = 'b'", (stored,))
    await desk.reminders.retime()
    for days in (1, 2):
        with capture_logs() as logs:
            await desk.at(days=1)
        told = [each for each in logs if each["event"] == "storage.row_unreadable"]
        assert not told or days == 1
        assert len([text for text in desk.texts() if "b" in text.split()[1:2]]) == 0
        assert len(desk.texts()) == 1 + 2 * days
    assert desk.tx.execute("SELECT text FROM repeats WHERE state = 'aside'") == [("b",)]
    assert repeats.next_due(desk.tx) == desk.clock() - desk.clock() % DAY + 15 * HOUR
    assert records.unreadable() == 1


def test_more_that_cannot_be_read_than_are_sent_at_a_time_hold_up_nobody(desk):
    for number in range(25):
        desk.repeat(f"x{number}")
    desk.tx.execute("UPDATE repeats SET rule = 'never'")
    desk.tx.execute("UPDATE repeats SET due_at = due_at - 5")
    desk.repeat("tea")
    assert [each.text for each in repeats.due(desk.tx, NOON + DAY, 2)] == ["tea"]


@pytest.mark.parametrize("due_at", [-(10**17), -(10**15)])
async def test_a_reminder_for_no_possible_time_stops_no_other(desk, due_at: int):
    desk.add("odd", HOUR)
    desk.add("tea", HOUR)
    desk.tx.execute("UPDATE reminders SET due_at = ? WHERE text = 'odd'", (due_at,))
    await desk.at(hours=2)
    assert any("tea" in text for text in desk.texts())
    assert desk.tx.execute("SELECT count(*) FROM reminders WHERE state = 'waiting'") == [(0,)]


@pytest.mark.parametrize("line", ["", "{", "[]", "null", '{"id": 5}', '{"message": {"text": 5}}'])
def test_an_entry_that_cannot_be_read_is_missing_alone(tx: Transaction, line: str):
    session, _ = store.start(tx, PLACE, NOON, by="first")
    said = [NewEntry("message", "user", f"tea {number}") for number in range(3)]
    store.append(tx, session.id, said, NOON)
    tx.execute("UPDATE entries SET line = ? WHERE seq = 2", (line,))
    left = ["tea 0", "tea 2"]
    assert [entry.text for entry in store.messages(tx, session.id, 9)] == left
    assert [entry.text for _, entry in store.recent(tx, PLACE.key, 9)] == left
    assert store.entry(tx, entry_id(session.id, 2)) is None
    assert [document.text for _, document in _documents(tx, 0, 0, 9)] == left
    assert sorted(hit.text for hit in browsing.find(tx, VIEW, "tea", 9)) == left
    kept = store.get(tx, session.id)
    assert kept is not None
    assert [entry.text for entry in browsing.whole(tx, kept)[0]] == left
    assert records.unreadable() == 1
