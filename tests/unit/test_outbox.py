"""The outbox table: what is read back is what was written, and nothing is touched beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.channel import Address, Attachment, Button, Capabilities, Piece
from bot.delivery import outbox
from bot.delivery.outbox import Extra, Letter, Queue
from bot.storage import Database

ADA = Address("telegram", "default", "1", "t")
PLACES = [
    ADA,
    Address("discord", "default", "1", "t"),
    Address("telegram", "work", "1", "t"),
    Address("telegram", "default", "2", "t"),
    Address("telegram", "default", "1", ""),
]
FULL = Extra(
    buttons=(Button("Yes", "/yes"), Button("不", "/no")),
    attachments=(Attachment("a.txt", "text/plain", b"\x00\xff"),),
    draft="7",
)


@pytest.fixture
async def database(each_database: Database):
    return each_database


async def add(database: Database, text: str, address: Address = ADA, **more) -> Letter:
    return await database.write(lambda tx: outbox.add(tx, address, text, 5, **more))


async def waiting(database: Database, address: Address = ADA, asker: str = "") -> list[str]:
    found = await database.read(lambda tx: outbox.waiting(tx, Queue(address, asker), 10))
    return [letter.text for letter in found]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"kind": "notice", "reply_to": "m5", "entry": "s1.4", "language": "zh", "asker": "ada"},
        {"extra": Extra()},
        {"extra": FULL},
        {"extra": Extra(buttons=FULL.buttons)},
        {"extra": Extra(attachments=FULL.attachments)},
        {"extra": Extra(draft="7")},
    ],
)
async def test_what_is_read_back_is_what_was_stored(database: Database, more):
    letter = await add(database, "hello", **more)
    wanted = {
        "kind": "reply",
        "reply_to": "",
        "entry": "",
        "extra": Extra(),
        "language": "",
        "asker": "",
        **more,
    }
    assert letter == Letter(
        letter.id,
        ADA,
        wanted["kind"],
        "hello",
        wanted["reply_to"],
        0,
        wanted["entry"],
        5,
        wanted["extra"],
        0,
        wanted["language"],
        wanted["asker"],
        parked=False,
    )
    assert letter.queue == Queue(ADA, wanted["asker"])
    assert await database.read(lambda tx: outbox.waiting(tx, letter.queue, 10)) == [letter]
    assert await database.read(outbox.queues) == [letter.queue]


@pytest.mark.parametrize(
    ("entry", "ids"), [("s1.4", ["s1.4", "s1.4.1"]), ("", ["letter-9", "letter-9.1"])]
)
def test_a_piece_has_the_same_id_each_time(entry: str, ids: list[str]):
    letter = Letter(9, ADA, "reply", "x", "", 0, entry, 5)
    whole = letter.outbound(Capabilities())
    assert [Piece(whole, "x", index=index).id for index in range(2)] == ids


async def test_a_queue_is_one_place_and_one_person(database: Database):
    for number, place in enumerate(PLACES):
        await add(database, f"to {number}", place)
    await add(database, "to bob", ADA, asker="bob")
    for number, place in enumerate(PLACES):
        assert await waiting(database, place) == [f"to {number}"]
    assert await waiting(database, ADA, "bob") == ["to bob"]
    queues = await database.read(outbox.queues)
    assert set(queues) == {*map(Queue, PLACES), Queue(ADA, "bob")}
    assert len(queues) == len(PLACES) + 1


async def test_what_waits_comes_in_order_and_no_more_than_asked_for(database: Database):
    for number in range(4):
        await add(database, f"t{number}")
    found = await database.read(lambda tx: outbox.waiting(tx, Queue(ADA), 3))
    assert [letter.text for letter in found] == ["t0", "t1", "t2"]


async def test_what_was_sent_leaves_no_words_behind(database: Database):
    letter = await add(database, "secret", extra=FULL)
    other = await add(database, "other")
    await database.write(lambda tx: outbox.sent(tx, letter.id, 77))
    assert await waiting(database) == ["other"]
    row = await database.read(
        lambda tx: tx.execute(
            "SELECT state, text, extra, again, done_at FROM outbox WHERE id = ?", (letter.id,)
        )
    )
    assert list(map(tuple, row)) == [("sent", "", "", 0, 77)]
    assert (await database.read(lambda tx: outbox.waiting(tx, Queue(ADA), 9)))[0] == other


async def test_pieces_and_tries_are_noted_for_one_text(database: Database):
    letter, other = await add(database, "long"), await add(database, "other")

    async def noted() -> list[tuple[int, int]]:
        found = await database.read(lambda tx: outbox.waiting(tx, Queue(ADA), 9))
        assert found[1] == other
        return [(found[0].pieces_sent, found[0].tries)]

    await database.write(lambda tx: outbox.tried(tx, letter.id, 3))
    assert await noted() == [(0, 3)]
    # The next piece has not failed yet.
    await database.write(lambda tx: outbox.progress(tx, letter.id, 2))
    assert await noted() == [(2, 0)]


async def test_what_is_parked_is_kept_and_tried_again_only_when_it_may(database: Database):
    letters = [await add(database, f"t{number}") for number in range(4)]
    first, second, third, _ = letters

    def work(tx) -> None:
        outbox.tried(tx, first.id, 5)
        outbox.park(tx, first.id, "Down", 8, again=True)
        outbox.park(tx, second.id, "No", 9, again=False)
        outbox.park(tx, third.id, "Down", 8, again=True)

    await database.write(work)
    assert await waiting(database) == ["t3"]
    again = await database.read(lambda tx: outbox.to_try_again(tx, 10))
    assert [(each.text, each.tries, each.parked) for each in again] == [
        ("t2", 0, True),  # what was tried least comes first
        ("t0", 5, True),
    ]
    assert len(await database.read(lambda tx: outbox.to_try_again(tx, 1))) == 1
    assert await database.read(outbox.waiting_again) == 2
    assert await database.read(outbox.parked_by_channel) == [
        ("telegram", False, 1),
        ("telegram", True, 2),
    ]
    assert await database.read(lambda tx: outbox.parked(tx, ADA)) == 3
    assert await database.read(lambda tx: outbox.parked(tx, PLACES[1])) == 0
    rows = await database.read(
        lambda tx: tx.execute("SELECT error, done_at FROM outbox WHERE state = 'parked' ORDER BY 2")
    )
    assert sorted(map(tuple, rows)) == [("Down", 8), ("Down", 8), ("No", 9)]
    # Sent after all: it is tried no more.
    await database.write(lambda tx: outbox.sent(tx, first.id, 10))
    assert await database.read(outbox.waiting_again) == 1


async def test_what_a_chat_that_moved_waits_for_goes_with_it_and_nothing_else(
    database: Database,
):
    for number, place in enumerate(PLACES):
        await add(database, f"to {number}", place)
    gone, kept = await add(database, "sent"), await add(database, "parked")

    def work(tx) -> int:
        outbox.sent(tx, gone.id, 6)
        outbox.park(tx, kept.id, "Down", 6, again=True)
        return outbox.move(tx, ADA, "9")

    assert await database.write(work) == 1
    there = Address("telegram", "default", "9", "t")
    assert await waiting(database, there) == ["to 0"]
    assert await waiting(database, ADA) == []
    for number, place in enumerate(PLACES[1:], 1):
        assert await waiting(database, place) == [f"to {number}"]
    assert await database.read(lambda tx: outbox.parked(tx, ADA)) == 1
    await database.write(lambda tx: outbox.move_parked(tx, kept.id, "9"))
    assert await database.read(lambda tx: outbox.parked(tx, ADA)) == 0
    assert await database.read(lambda tx: outbox.parked(tx, there)) == 1
    assert await database.write(lambda tx: outbox.move(tx, ADA, "10")) == 0


async def test_what_is_old_and_over_is_dropped_and_nothing_that_may_still_go_out(
    database: Database,
):
    letters = [await add(database, text) for text in ("sent", "late", "given up", "again", "waits")]

    def work(tx) -> None:
        outbox.sent(tx, letters[0].id, 10)
        outbox.sent(tx, letters[1].id, 20)
        outbox.park(tx, letters[2].id, "No", 10, again=False)
        outbox.park(tx, letters[3].id, "Down", 10, again=True)
        outbox.prune(tx, 20)

    await database.write(work)
    rows = await database.read(lambda tx: tx.execute("SELECT id FROM outbox ORDER BY id"))
    assert [row[0] for row in rows] == [letters[1].id, letters[3].id, letters[4].id]
    await database.write(lambda tx: outbox.drop(tx, letters[4].id, 30))
    assert await waiting(database) == []
    assert (await add(database, "another")).id > letters[4].id
    await database.write(lambda tx: outbox.drop(tx, letters[4].id + 1, 30))
    assert await database.read(outbox.waiting_again) == 1


@given(
    st.builds(
        Extra,
        buttons=st.lists(
            st.builds(Button, st.text(max_size=9), st.text(max_size=9)), max_size=3
        ).map(tuple),
        attachments=st.lists(
            st.builds(Attachment, st.text(max_size=9), st.text(max_size=9), st.binary(max_size=9)),
            max_size=3,
        ).map(tuple),
        draft=st.text(max_size=9),
    )
)
def test_whatever_comes_with_a_text_is_read_back(extra: Extra):
    assert outbox._from_json(outbox._to_json(extra)) == extra
    assert (outbox._to_json(extra) == "") == (extra == Extra())
