"""A room's own record says the same as the webhook would have brought."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nc_py_api.talk import TalkMessage

from adapters.nextcloud_talk.history_entries import SHORTLY, Entry, Missed, read
from adapters.nextcloud_talk.inbound import Identity, Ignored, normalise
from bot.channel import Inbound
from bot.channel.kit.intake import MAX_MISSED, newest_chats
from tests.fakes.nextcloud import payload, record, shared

AT = 1_795_262_400  # seconds
NOW = AT * 1000 + 5_000
ME = Identity("default", "Confidant")
ROOM = "n3xtc10ud"
FILE = {"type": "file", "id": "9", "name": "a.png", "size": "5", "mimetype": "image/png"}
USER = {"mention-user1": {"type": "user", "id": "bob", "name": "Bob"}}


def written(text, me=ME, **changes):
    return read(record(text, at=AT, **changes), ROOM, me, NOW)


def answered(text, **changes):
    body = payload(text, **changes)
    return {"actor": body["actor"], "object": body["object"]}


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("hello", {}),
        ("hi {mention-user1}!", {"parameters": USER}),
        ("@Confidant /status", {}),
        ("{a} 你好 👩‍👩‍👧‍👦 \u202e", {"sender": "guests/0a1b", "name": ""}),
        ("hi", {"sender": "federated_users/ada@other.example"}),
        ("a\0b\ud83d", {"name": "x\0"}),
        ("yes", {"reply": answered("well?", sender="bots/b", name="Confidant (Bot)", id="1500")}),
        ("yes", {"reply": answered("{file}", parameters={"file": FILE}, id="1500")}),
        ("{file}", {"parameters": {"file": FILE}, "type": "Activity"}),
        ("look", {"parameters": {"file": FILE}, "type": "Activity"}),
        ("{file}", {"parameters": {"file": FILE}, "type": "Activity", "kind": "voice-message"}),
        ("{object}", {"parameters": {"object": {"name": "Lunch?"}}, "type": "Activity"}),
        ("{object}", {"parameters": shared("talk-poll", "3", "Lunch?"), "type": "Activity"}),
        ("x", {"sender": "bots/bot-1"}),
        ("x", {"sender": "bridged/bridge-bot"}),
        ("x", {"sender": "deleted_users/deleted_users"}),
        ("x", {"sender": "users/"}),
        (" \u200b", {}),
        ("x", {"id": 0}),
    ],
)
@pytest.mark.parametrize("me", [ME, Identity("work", "Confidant", place="cloud.example")])
def test_what_was_written_is_what_the_webhook_brings(text, changes, me):
    found = written(text, me, **changes)
    assert found.content == normalise(payload(text, **changes), me, AT * 1000)
    assert (found.number, found.sent_at) == (changes.get("id", 1567), AT * 1000)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"system": "user_added"}, "service"),
        ({"system": "message_edited"}, "service"),
        ({"system": "call_started"}, "service"),
        ({"system": "reaction"}, "reaction"),
        ({"system": "reaction_revoked"}, "reaction"),
        ({"kind": "reaction_deleted"}, "reaction"),
        ({"kind": "comment_deleted"}, "deleted"),
        ({"deleted": True}, "deleted"),
        ({"kind": "command"}, "service"),
        ({"kind": "system"}, "service"),
    ],
)
def test_what_is_no_message(changes, reason):
    assert written("x", **changes).content == Ignored(reason)


def test_a_thread_is_left_out_because_no_call_tells_of_it():
    assert written("x", thread=1500).content.thread == ""


def test_a_deleted_message_is_not_quoted():
    body = record("yes") | {"parent": {"id": 1500, "deleted": True}}
    assert read(body, ROOM, ME, NOW).content.reply_to is None


def test_nothing_was_said_in_the_future():
    assert read(record("x", at=AT + 999), ROOM, ME, NOW).sent_at == NOW
    assert read(record("x") | {"timestamp": "soon"}, ROOM, ME, NOW).sent_at == 0


def test_the_room_is_the_one_that_was_asked():
    assert read(record("x", room="other"), ROOM, ME, NOW).content.chat == ROOM


def test_another_sdk_reads_the_same_fields():
    theirs = TalkMessage(record("hi", at=AT))
    ours = written("hi")
    assert (theirs.message_id, theirs.timestamp * 1000) == (ours.number, ours.sent_at)
    assert theirs.actor_type == "users"
    assert theirs.actor_id == ours.content.sender
    assert theirs.actor_display_name == ours.content.sender_name
    assert theirs.message == ours.content.text
    assert (theirs.system_message, theirs.message_type) == ("", "comment")
    assert (theirs.token, theirs.message_parameters) == (ROOM, [])
    assert (theirs.is_replyable, theirs.reference_id, theirs.reactions) == (True, "", {})
    assert (theirs.expiration_timestamp, theirs.markdown) == (0, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(body=JSON, key=st.sampled_from(sorted(record("x"))), inner=JSON)
def test_any_json_is_read_without_an_error(body, key, inner):
    assert isinstance(read(body, ROOM, ME, NOW).content, Ignored)
    for whole in (record("hi {file}") | {key: inner}, record("hi") | {"parent": inner}):
        found = read(whole, ROOM, ME, NOW)
        if isinstance(found.content, Inbound):
            json.dumps(found.content.text).encode()
            assert found.number > 0


# --- gathering -----------------------------------------------------------------------------------


def entry(number, at=NOW, content=None):
    said = Inbound("nextcloud_talk", "default", ROOM, "group", "ada", str(number), "x", at)
    return Entry(number, at, content or said)


def ids(missed):
    return [int(inbound.message_id) for inbound in missed.messages()]


def test_what_is_newer_is_missed():
    missed = Missed(5, NOW - 1000)
    for number in (4, 5, 6, 7):
        missed.add(entry(number, NOW - SHORTLY * 2 if number < 6 else NOW))
    assert ids(missed) == [6, 7]


def test_what_is_too_old_is_not():
    missed = Missed(5, NOW - 1000)
    missed.add(entry(6, NOW - 1001))
    missed.add(entry(7, NOW - 1000))
    assert ids(missed) == [7]
    assert not missed.cut


def test_what_was_said_shortly_before_the_last_one_may_not_have_arrived():
    missed = Missed(5, 0)
    for number, at in ((2, NOW - SHORTLY - 1), (3, NOW - SHORTLY), (4, NOW), (5, NOW), (6, NOW)):
        missed.add(entry(number, at))
    assert ids(missed) == [3, 4, 6]


def test_without_the_last_one_nothing_before_it_is_taken():
    missed = Missed(5, 0)
    missed.add(entry(4))
    assert ids(missed) == []


def test_what_is_no_message_is_counted_once_it_is_new():
    missed = Missed(5, 0)
    for number in (4, 6, 7):
        missed.add(entry(number, content=Ignored("service")))
    assert missed.ignored == {"service": 2}


@given(numbers=st.permutations(range(1, 251)), after=st.integers(min_value=0, max_value=250))
def test_the_newest_are_kept_in_order_whatever_order_they_come_in(numbers, after):
    missed = Missed(after, 0)
    for number in numbers:
        missed.add(entry(number, NOW - SHORTLY * 2 if number < after else NOW))
    assert ids(missed) == [*range(after + 1, 251)][-MAX_MISSED:]
    assert missed.cut is (250 - after > MAX_MISSED)


@given(seen=st.dictionaries(st.text(), st.integers(), max_size=700))
def test_the_chats_of_the_newest_messages_are_looked_through(seen):
    found = newest_chats(seen)
    assert len(found) == min(len(seen), 500)
    assert list(found.values()) == sorted(seen.values(), reverse=True)[:500]
