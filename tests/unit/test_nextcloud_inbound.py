"""From what Talk brings, and what its rooms record, to messages."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nc_py_api.talk import TalkMessage

from adapters.nextcloud_talk.history import SHORTLY, Entry, Missed
from adapters.nextcloud_talk.history import read as read_record
from adapters.nextcloud_talk.inbound import (
    Identity,
    Ignored,
    Membership,
    actor_of,
    chat_id,
    moderates,
    normalise,
    room_token,
)
from adapters.nextcloud_talk.rich import MAX_FILES, file_ref, render
from bot.channel import MAX_REPLY_TEXT, Address, Foreign, Inbound, Media, ReplyTo
from bot.channel.kit.intake import MAX_MISSED, newest_chats
from bot.channel.kit.json_access import parse_json
from tests.fakes.nextcloud import payload, record, shared
from tests.odd import JSON

NOW = 1_795_262_400_000
ME = Identity("default", "Confidant")
KNOWN = Identity("default", "Confidant", "bots/bot-1")
OURS = actor_of("https://bot.example.org/nextcloud-talk")
ALSO = Identity("default", "Confidant", also=frozenset({OURS, "users/confidant"}))


def read(body, me=ME):
    return normalise(body, me, NOW)


def words(text, **changes):
    found = read(payload(text, **changes))
    assert isinstance(found, Inbound), found
    return found


def test_a_message():
    assert words("hi there") == Inbound(
        channel="nextcloud_talk",
        account="default",
        chat="n3xtc10ud",
        chat_type="group",
        sender="ada",
        sender_name="Ada Lovelace",
        message_id="1567",
        text="hi there",
        sent_at=NOW,
    )


def test_the_sample_of_talks_own_documentation():
    sample = r"""{"type":"Create","actor":{"type":"Person","id":"users/ada-lovelace","name":
    "Ada Lovelace","talkParticipantType":"1"},"object":{"type":"Note","id":"1567","name":"message",
    "content":"{\"message\":\"hi {mention-call1} !\",\"parameters\":{\"mention-call1\":{\"type\":
    \"call\",\"id\":\"n3xtc10ud\",\"name\":\"world\",\"call-type\":\"group\",\"icon-url\":
    \"https:\\\/\\\/nextcloud.local\\\/avatar\"}}}","mediaType":"text\/markdown"},
    "target":{"type":"Collection","id":"n3xtc10ud","name":"world"}}"""
    found = read(parse_json(sample.replace("\n    ", "").encode()))
    assert isinstance(found, Inbound)
    assert (found.sender, found.text) == ("ada-lovelace", "hi @world !")


@pytest.mark.parametrize(
    ("actor", "sender"),
    [
        ("users/ada", "ada"),
        ("users/Ada Lovelace", "Ada Lovelace"),
        ("users/a/b", "users/a/b"),
        ("guests/0a1b2c", "guests/0a1b2c"),
        ("emails/0a1b2c", "emails/0a1b2c"),
        ("federated_users/ada@other.example", "federated_users/ada@other.example"),
    ],
)
def test_people_have_ids_nobody_else_can_have(actor, sender):
    assert words("hi", sender=actor).sender == sender


def test_people_and_rooms_of_another_server_are_others():
    there = Identity("work", "Confidant", place="cloud.example/sub")
    found = read(payload("hi"), there)
    assert (found.sender, found.chat) == ("cloud.example/sub/ada", "cloud.example/sub/n3xtc10ud")
    assert found.address == Address("nextcloud_talk", "work", "cloud.example/sub/n3xtc10ud")
    assert room_token(found.chat) == "n3xtc10ud"
    assert chat_id(ME, "abc") == room_token("abc") == "abc"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (payload("x", sender="bots/bot-1"), "from_bot"),
        (payload("x", sender="bridged/bridge-bot"), "from_bot"),
        (payload("x") | {"actor": {"type": "Application", "id": "users/x"}}, "from_bot"),
        (payload("x", sender="deleted_users/deleted_users"), "deleted"),
        (payload(""), "blank"),
        (payload(" \u200b\u2060\ufeff\n\u202e"), "blank"),
        (payload("You created the conversation", type="Activity"), "service"),
        (payload("x", type="Like"), "reaction"),
        (payload("x", type="Undo"), "reaction"),
        ({"type": "Like"}, "reaction"),
        (payload("x", type="Update"), "unsupported"),
        (payload("x", room=""), "malformed"),
        (payload("x", room="../admin"), "malformed"),
        (payload("x", room="ünï"), "malformed"),
        (payload("x", room="a" * 65), "malformed"),
        (payload("x", id="0"), "malformed"),
        (payload("x", id="abc"), "malformed"),
        (payload("x", id="-5"), "malformed"),
        (payload("x", id="9" * 21), "malformed"),
        (payload("x", id="१२"), "malformed"),
        (payload("x", sender=""), "malformed"),
        (payload("x", sender="users/"), "malformed"),
        (payload("x", sender="ada"), "malformed"),
        (payload("x", sender="users/" + "a" * 300), "malformed"),
        ({}, "malformed"),
        ({"type": 5}, "malformed"),
        ({"type": "Create"}, "malformed"),
        ({"type": "Join", "object": {"id": 7}}, "malformed"),
        ([], "malformed"),
        (None, "malformed"),
        ("Create", "malformed"),
    ],
)
def test_what_is_no_message(body, reason):
    assert read(body) == Ignored(reason)


@pytest.mark.parametrize("name", ["message_deleted", "message_edited", "user_added", "reaction"])
def test_what_talk_says_itself_is_left_out(name):
    body = payload("{actor} did something", parameters={"actor": {"type": "user", "name": "Ada"}})
    body["object"]["name"] = name
    assert read(body) == Ignored("service")


@pytest.mark.parametrize(
    "content", ["", "plain", "5", "[]", "{}", '{"message":5}', None, "[" * 9999]
)
def test_a_note_without_a_message_in_it_is_malformed(content):
    body = payload("x")
    body["object"]["content"] = content
    assert read(body) == Ignored("malformed")


def test_coming_and_going():
    actor = {"type": "Application", "id": "bots/bot-9", "name": "Confidant"}
    room = {"type": "Collection", "id": "n3xtc10ud", "name": "world"}
    for kind, joined in (("Join", True), ("Leave", False)):
        found = read({"type": kind, "actor": actor, "object": room})
        assert found == Membership(joined=joined, room="n3xtc10ud", actor="bots/bot-9")


# --- placeholders --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameter", "shown"),
    [
        ("mention-user1", {"type": "user", "id": "bob", "name": "Bob [B]\n x"}, "@Bob (B) x"),
        ("mention-user1", {"type": "user", "id": "bob"}, "@bob"),
        ("mention-call1", {"type": "call", "id": "tok", "name": "Team"}, "@Team"),
        ("mention-user-group1", {"type": "user-group", "id": "g", "name": "Staff"}, "@Staff"),
        ("mention-federated-user1", {"type": "user", "name": "Eve", "server": "https://e"}, "@Eve"),
        ("actor", {"type": "user", "id": "ada", "name": "Ada"}, "Ada"),
        ("object", {"type": "talk-poll", "id": "3", "name": "Lunch?"}, "[poll: Lunch?]"),
        ("object", {"type": "geo-location", "name": "Here", "latitude": "52.5", "longitude": 13.4},
         "[location: Here, 52.5, 13.4]"),
        ("object", {"type": "deck-card", "name": "Ship", "boardname": "Q1"}, "[card: Ship (Q1)]"),
        ("object", {"type": "geo-location", "id": "geo:52.5,-13.4", "name": "Here"},
         "[location: Here, 52.5, -13.4]"),
        ("object", {"type": "geo-location", "id": "geo:x", "name": "A"}, "[location: A, ?, ?]"),
        ("object", {"type": "talk-poll", "name": "x" * 400}, f"[poll: {'x' * 300}]"),
        ("object", {"type": "call", "id": "tok", "name": "Team"}, "[call: Team]"),
        ("object", {"type": "mystery", "name": "X"}, "[mystery: X]"),
        ("object", {"name": "X"}, "[X]"),
        ("file", {"type": "file", "id": "9", "name": "a.pdf"}, "[file: a.pdf]"),
        ("unknown", {}, "{unknown}"),
        ("unknown", {"type": "user", "name": "\u200b"}, "{unknown}"),
    ],
)  # fmt: skip
def test_a_placeholder_becomes_words(name, parameter, shown):
    found = words(f"see {{{name}}}!", parameters={name: parameter})
    if shown.startswith("["):  # what a card says is not what the person typed
        assert found.shown == f"see {found.text[4:-1]}!\n{shown}"
        assert [f"[{part.text}]" for part in found.foreign] == [shown]
        assert (" ".join(shown.split()[1:]) or "X") not in found.text
    else:
        assert (found.text, found.foreign) == (f"see {shown}!", ())


def test_a_message_that_is_only_a_card_has_no_words():
    poll = {"type": "talk-poll", "id": "3", "name": "Lunch?"}
    found = words("{object}", parameters={"object": poll})
    assert (found.text, found.foreign) == ("", (Foreign("poll", "poll: Lunch?"),))


def test_braces_a_person_typed_stay():
    assert words("{mention-user1} {} {x y} {{a}}").text == "{mention-user1} {} {x y} {{a}}"


def test_what_a_placeholder_brings_is_not_looked_into_again():
    parameters = {"mention-user1": {"name": "{object}"}, "object": {"name": "secret"}}
    assert words("hi {mention-user1}", parameters=parameters).text == "hi @{object}"


FILE = {
    "type": "file",
    "id": "9001",
    "name": "receipt.pdf",
    "size": "24576",
    "path": "receipt.pdf",
    "link": "https://nextcloud.example/f/9001",
    "mimetype": "application/pdf",
}


def test_a_file_comes_with_what_is_known_of_it():
    found = words("{file}", parameters={"actor": {"name": "Ada"}, "file": FILE})
    link = "9001 https://nextcloud.example/f/9001"
    assert found.media == (Media("document", "receipt.pdf", "application/pdf", 24576, link),)
    assert found.text == ""
    assert file_ref(link) == ("9001", "https://nextcloud.example/f/9001")


def test_the_words_below_a_file_are_the_text():
    body = payload("look at this", parameters={"file": FILE}, type="Activity")
    found = read(body)
    assert (found.text, len(found.media)) == ("look at this", 1)


@pytest.mark.parametrize("name", ["", "message", "file_shared", "object_shared"])
def test_a_shared_file_is_a_message_in_every_version_of_talk(name):
    body = payload("{file}", parameters={"file": FILE}, type="Activity")
    body["object"]["name"] = name
    assert len(read(body).media) == 1


SHARED = [
    ("talk-poll", "3", "Lunch?", {}, "[poll: Lunch?]"),
    ("deck-card", "7", "Ship", {"boardname": "Q1", "stackname": "To do"}, "[card: Ship (Q1)]"),
    ("geo-location", "geo:52.5,13.4", "Here", {"latitude": "52.5", "longitude": "13.4"},
     "[location: Here, 52.5, 13.4]"),
    ("call", "R4nd0mT0k3n", "Another room", {"call-type": "group"}, "[call: Another room]"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "number", "name", "more", "words"), SHARED)
@pytest.mark.parametrize("called", ["", "message", "object_shared"])
def test_a_shared_card_poll_or_place_is_a_message_in_every_version_of_talk(  # noqa: PLR0917
    kind, number, name, more, words, called
):
    body = payload("{object}", parameters=shared(kind, number, name, **more), type="Activity")
    body["object"]["name"] = called
    found = read(body)
    assert (found.sender, found.text, found.media) == ("ada", "", ())
    assert found.shown == words
    assert not found.mentions_bot


@pytest.mark.parametrize("name", ["poll_closed", "poll_voted"])
def test_what_talk_says_of_a_poll_is_none(name):
    poll = {"poll": {"type": "talk-poll", "id": "3", "name": "Lunch?"}}
    body = payload("{actor} ended the poll {poll}", parameters=poll, type="Activity")
    body["object"]["name"] = name
    assert read(body) == Ignored("service")


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("The shared location is malformed", []),
        ("{object}", []),
        ("{object}", {"object": {"type": "talk-poll", "name": "\u200b"}}),
        ("{object} and {actor}", shared("talk-poll", "3", "Lunch?")),
    ],
)
def test_an_activity_that_shares_nothing_is_talks_own(text, parameters):
    body = payload(text, parameters=parameters, type="Activity")
    body["object"]["name"] = ""
    assert read(body) == Ignored("service")


def test_the_id_of_a_bot_is_made_of_the_address_it_was_installed_with():
    # printf %s URL | sha1sum
    assert OURS == "bots/bot-efe8b7c204707e3541a4984ec3004411c18138af"
    assert actor_of("") == ""


@pytest.mark.parametrize(
    ("mime", "kind"),
    [("image/png", "photo"), ("audio/mpeg", "audio"), ("video/mp4", "video"), ("", "document")],
)
def test_files_by_kind(mime, kind):
    parameters = {"file": FILE | {"mimetype": mime}}
    assert words("{file}", parameters=parameters).media[0].kind == kind


@pytest.mark.parametrize(
    "odd",
    [
        {"size": -1, "id": None, "link": "javascript:x"},
        {"size": 1e9, "id": [], "link": "https://x " + "y" * 3000},
        {"size": "many", "id": "../1", "name": 7, "mimetype": 7, "link": None},
    ],
)
def test_an_odd_file_is_still_a_file(odd):
    (media,) = words("{file}", parameters={"file": FILE | odd}).media
    assert (media.size, media.ref) == (0, "")


def test_there_is_an_end_to_files():
    parameters = {f"file{n}": FILE for n in range(500)}
    assert len(words("x", parameters=parameters).media) == MAX_FILES


# --- replies, threads, mentions ------------------------------------------------------------------


def answered(text, sender="users/bob", name="Bob", number="1500", parameters=()):
    body = payload(text, sender=sender, name=name, id=number, parameters=parameters or [])
    return {"actor": body["actor"], "object": body["object"]}


def test_a_reply_names_what_it_answers():
    found = words("yes", reply=answered("shall we?"))
    assert found.reply_to == ReplyTo("1500", "Bob", "shall we?")
    assert not found.mentions_bot


def test_a_reply_to_a_file_and_to_something_huge():
    found = words("ok", reply=answered("{file}", parameters={"file": FILE})).reply_to
    assert [(file.name, file.mime) for file in found.media] == [("receipt.pdf", "application/pdf")]
    assert found.text == ""
    assert len(words("ok", reply=answered("x" * 31_000)).reply_to.text) == MAX_REPLY_TEXT


@pytest.mark.parametrize("reply", [None, [], {}, {"object": 5}, {"object": {"id": "x"}}])
def test_an_odd_reply_is_none(reply):
    assert words("ok", reply=reply).reply_to is None


@pytest.mark.parametrize(
    ("me", "author", "name", "mine"),
    [
        (ME, "bots/bot-1", "Confidant (Bot)", True),
        (ME, "bots/bot-1", "confidant (bot)", True),
        (ME, "bots/bot-1", "Other (Bot)", False),
        (ME, "bots/bot-1", "Confidant Two (Bot)", False),
        (ME, "users/x", "Confidant (Bot)", False),
        (ME, "guests/x", "Confidant (Bot)", False),
        (KNOWN, "bots/bot-1", "Renamed (Bot)", True),
        (KNOWN, "bots/bot-1", "bot-1-bot", True),
        (KNOWN, "bots/bot-2", "Confidant (Bot)", False),
        (ALSO, OURS, "Renamed (Bot)", True),
        (ALSO, "users/confidant", "Confidant", True),
        (ALSO, "users/confidant2", "Confidant", False),
        (ALSO, "bots/bot-3", "Confidant (Bot)", True),
        (Identity("default", ""), "bots/bot-1", " (Bot)", False),
    ],
)
def test_a_reply_to_the_bot_is_a_mention(me, author, name, mine):
    found = read(payload("yes", reply=answered("well?", sender=author, name=name)), me)
    assert found.mentions_bot is found.reply_to.from_bot is mine


def test_threads():
    assert words("x", thread=1500).thread == "1500"
    assert words("x", thread="1500").thread == "1500"
    assert words("x", id=1500, thread=1500).thread == ""
    assert words("x", thread="no").thread == ""
    assert words("x").thread == ""


@pytest.mark.parametrize(
    "text",
    [
        "Confidant",
        "@confidant hi",
        "hi CONFIDANT!",
        "(Confidant)",
        "小Confidant你好",
        "well, @Confidant.",
    ],
)
def test_the_name_is_a_mention(text):
    assert words(text).mentions_bot


@pytest.mark.parametrize(
    "text",
    ["Confidants", "confidant.org", "ada@confidant", "https://confidant", "self-Confidant-", "hi"],
)
def test_a_part_of_a_word_is_none(text):
    assert not words(text).mentions_bot


@pytest.mark.parametrize(
    ("name", "text", "mentioned"),
    [
        ("小信", "你好小信吗", True),
        ("Конфидант", "Конфидантка", False),
        ("C++ bot", "ask the c++ bot", True),
        ("", "Confidant", False),
    ],
)
def test_any_name_can_be_said(name, text, mentioned):
    assert read(payload(text), Identity("default", name)).mentions_bot is mentioned


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("@Confidant /new", "/new"),
        ("Confidant: /status now", "/status now"),
        ("@Confidant，/new", "/new"),
        ("@Confidant what is 1/2", "@Confidant what is 1/2"),
        ("tell Confidant /new", "tell Confidant /new"),
    ],
)
def test_a_command_after_the_name_is_a_command(text, command):
    found = words(text)
    assert (found.text, found.mentions_bot) == (command, True)


@pytest.mark.parametrize(
    ("rank", "moderator"),
    [(1, True), (2, True), (6, True), (3, False), ("1", True), (True, False), (None, False)],
)
def test_who_looks_after_a_room(rank, moderator):
    assert moderates(payload("x", rank=rank)) is moderator
    assert moderates(payload("x")) is None
    assert moderates([]) is None


# --- odd text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["שלום עולם", "\u202eabc", "a\u200bb", "👩‍👩‍👧‍👦🏳️‍🌈", "x" * 32_000, "你" * 32_000, "a\r\nb\tc"],
    ids=["hebrew", "override", "zero width", "emoji", "huge", "huge chinese", "lines"],
)
def test_odd_words_arrive_as_they_are(text):
    assert words(text).text == text


def test_what_no_database_takes_is_replaced():
    found = words("a\0b\ud83d", name="x\0\ud800", sender="users/a\0")
    assert (found.text, found.sender) == ("a\ufffdb\ufffd", "a\ufffd")
    found.sender_name.encode()


@given(body=JSON, key=st.sampled_from(["type", "actor", "object", "target"]), inner=JSON)
def test_any_json_is_read_without_an_error(body, key, inner):
    assert isinstance(read(body), Ignored)
    read(payload("hi") | {key: inner})
    whole = payload("hi {file}")
    whole["object"]["content"] = json.dumps({"message": "hi {file}", "parameters": inner})
    read(whole)
    whole["object"]["inReplyTo"] = inner
    read(whole)


@given(
    message=st.text(max_size=200),
    parameters=st.dictionaries(st.text(max_size=10), JSON, max_size=4),
)
def test_rendering_never_fails(message, parameters):
    assert isinstance(render(message, parameters), str)


AT = 1_795_262_400  # seconds
LATER = AT * 1000 + 5_000
ROOM = "n3xtc10ud"
SHARED_FILE = {"type": "file", "id": "9", "name": "a.png", "size": "5", "mimetype": "image/png"}
USER = {"mention-user1": {"type": "user", "id": "bob", "name": "Bob"}}


def written(text, me=ME, **changes):
    return read_record(record(text, at=AT, **changes), ROOM, me, LATER)


def replied(text, **changes):
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
        ("yes", {"reply": replied("well?", sender="bots/b", name="Confidant (Bot)", id="1500")}),
        ("yes", {"reply": replied("{file}", parameters={"file": SHARED_FILE}, id="1500")}),
        ("{file}", {"parameters": {"file": SHARED_FILE}, "type": "Activity"}),
        ("look", {"parameters": {"file": SHARED_FILE}, "type": "Activity"}),
        (
            "{file}",
            {"parameters": {"file": SHARED_FILE}, "type": "Activity", "kind": "voice-message"},
        ),
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
def test_what_of_a_record_is_no_message(changes, reason):
    assert written("x", **changes).content == Ignored(reason)


def test_a_thread_is_left_out_because_no_call_tells_of_it():
    assert written("x", thread=1500).content.thread == ""


def test_a_deleted_message_is_not_quoted():
    body = record("yes") | {"parent": {"id": 1500, "deleted": True}}
    assert read_record(body, ROOM, ME, LATER).content.reply_to is None


def test_nothing_was_said_in_the_future():
    assert read_record(record("x", at=AT + 999), ROOM, ME, LATER).sent_at == LATER
    assert read_record(record("x") | {"timestamp": "soon"}, ROOM, ME, LATER).sent_at == 0


def test_the_room_is_the_one_that_was_asked():
    assert read_record(record("x", room="other"), ROOM, ME, LATER).content.chat == ROOM


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


@given(body=JSON, key=st.sampled_from(sorted(record("x"))), inner=JSON)
def test_any_json_of_a_record_is_read_without_an_error(body, key, inner):
    assert isinstance(read_record(body, ROOM, ME, LATER).content, Ignored)
    for whole in (record("hi {file}") | {key: inner}, record("hi") | {"parent": inner}):
        found = read_record(whole, ROOM, ME, LATER)
        if isinstance(found.content, Inbound):
            json.dumps(found.content.text).encode()
            assert found.number > 0


# --- gathering -----------------------------------------------------------------------------------


def entry(number, at=LATER, content=None):
    said = Inbound("nextcloud_talk", "default", ROOM, "group", "ada", str(number), "x", at)
    return Entry(number, at, content or said)


def ids(missed):
    return [int(inbound.message_id) for inbound in missed.messages()]


def test_what_is_newer_is_missed():
    missed = Missed(5, LATER - 1000)
    for number in (4, 5, 6, 7):
        missed.add(entry(number, LATER - SHORTLY * 2 if number < 6 else LATER))
    assert ids(missed) == [6, 7]


def test_what_is_too_old_is_not():
    missed = Missed(5, LATER - 1000)
    missed.add(entry(6, LATER - 1001))
    missed.add(entry(7, LATER - 1000))
    assert ids(missed) == [7]
    assert not missed.cut


def test_what_was_said_shortly_before_the_last_one_may_not_have_arrived():
    missed = Missed(5, 0)
    for number, at in (
        (2, LATER - SHORTLY - 1),
        (3, LATER - SHORTLY),
        (4, LATER),
        (5, LATER),
        (6, LATER),
    ):
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
        missed.add(entry(number, LATER - SHORTLY * 2 if number < after else LATER))
    assert ids(missed) == [*range(after + 1, 251)][-MAX_MISSED:]
    assert missed.cut is (250 - after > MAX_MISSED)


@given(seen=st.dictionaries(st.text(), st.integers(), max_size=700))
def test_the_chats_of_the_newest_messages_are_looked_through(seen):
    found = newest_chats(seen)
    assert len(found) == min(len(seen), 500)
    assert list(found.values()) == sorted(seen.values(), reverse=True)[:500]
