"""What was sent as one becomes one message again."""

import pytest

from adapters.telegram.account import Pace
from adapters.telegram.send import Allowance
from bot.channel import Inbound, Media, ReplyTo
from bot.channel.kit.reassembly import MAX_PARTS, Part, Pending, continues, merged

PACE = Pace()


def part(text="", album="", **fields):
    values = {"message_id": "5", "sender": "7", "sent_at": 1_700_000_000_000} | fields
    chat_type = values.pop("chat_type", "direct")
    return Part(Inbound("telegram", "default", "7", chat_type, text=text, **values), album)


def pending(parts):
    return Pending("7", list(range(len(parts))), parts, 0.0, 0.0)


def patience(parts):
    return pending(parts).waits(0.0, PACE)


def test_parts_of_an_album_belong_together():
    first = part("look", "a", media=(Media("photo", ref="1"),))
    second = part(album="a", message_id="6", media=(Media("photo", ref="2"),), mentions_bot=True)
    third = part("and", "a", message_id="7", reply_to=ReplyTo("3"))
    assert continues([first], second)
    assert patience([first]) == PACE.album
    joined = merged([first, second, third])
    assert [media.ref for media in joined.media] == ["1", "2"]
    assert (joined.text, joined.message_id) == ("look\nand", "7")
    assert (joined.mentions_bot, joined.reply_to) == (True, ReplyTo("3"))


@pytest.mark.parametrize(
    "other",
    [
        part("x", "b"),
        part("x"),
        part("x", "a", sender="8"),
        part("x", "a", thread="3"),
    ],
)
def test_what_is_of_another_album_or_person_or_topic_does_not_join_it(other):
    assert not continues([part("", "a")], other)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("x" * 4096, "y", "x" * 4096 + "y"),  # cut in the middle of a word
        ("x" * 4000, "y", "x" * 4000 + "\ny"),
        ("😀" * 2000, "y", "😀" * 2000 + "\ny"),
        ("😀" * 2048, "😀", "😀" * 2049),
    ],
)
def test_a_long_paste_is_put_together(first, second, expected):
    parts = [part(first), part(second, message_id="6")]
    assert continues(parts[:1], parts[1])
    assert patience(parts[:1]) == PACE.paste
    assert patience(parts) == 0
    assert merged(parts).text == expected


@pytest.mark.parametrize(
    "other",
    [
        part("/stop"),
        part("y", media=(Media("photo"),)),
        part("y", edit_of="5"),
        part("y", sender="8"),
        part("y", "a"),
        part("y", sent_at=1_700_000_003_000),
        part("y", sent_at=1_699_999_999_000),
    ],
)
def test_what_is_not_a_part_of_the_paste_stays_alone(other):
    assert not continues([part("x" * 4090)], other)


def test_short_texts_are_never_joined():
    assert not continues([part("x" * 3999)], part("y"))
    assert patience([part("x" * 3999)]) == 0


def test_a_message_has_so_many_parts_at_most():
    parts = [part("x" * 4096)] * MAX_PARTS
    assert not continues(parts, part("y"))
    assert patience(parts) == 0


def test_a_message_alone_is_itself():
    alone = part("x")
    assert pending([alone]).message is alone.inbound


def test_a_group_has_so_many_messages_a_minute(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("adapters.telegram.send.time.monotonic", lambda: now[0])
    allowance = Allowance(3, 60)
    for _ in range(3):
        assert allowance.wait("-5") == 0
        allowance.spend("-5")
        allowance.spend("7")
        now[0] += 1
    assert allowance.wait("-5") == 57
    assert allowance.wait("-5", spare=1) == 58
    assert allowance.wait("-6") == allowance.wait("7") == 0
    now[0] += 57
    assert allowance.wait("-5") == 0


def test_what_is_known_of_groups_stays_bounded(monkeypatch):
    monkeypatch.setattr("adapters.telegram.send.REMEMBERED", 10)
    allowance = Allowance()
    for chat in range(100):
        for _ in range(30):
            allowance.spend(f"-{chat + 1}")
    assert len(allowance._spent) == 10
    assert all(len(spent) == 20 for spent in allowance._spent.values())
