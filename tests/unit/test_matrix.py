"""The Matrix adapter's pure parts, and what a homeserver's answers mean."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from adapters.matrix import AccountConfig, MatrixConfig, api, plugin, send
from adapters.matrix import inbound as reading
from adapters.matrix.api import Api, Refused, TokenRefused
from adapters.matrix.inbound import Identity, Ignored, Room, location, normalise
from bot.channel import Address, Attachment, Foreign, Inbound, Media, Outbound, ReplyTo
from bot.errors import SendLater, SendRefused, SendTransient
from tests.fakes.sites import serving
from tests.odd import JSON
from tests.support import NOON

ME = Identity("@bot:hs", "DEV", "Confidant")
PILL = '<a href="https://matrix.to/#/@bot:hs">Confidant</a> hi'


def read(content: Any, kind: str = "m.room.message", **more: Any) -> Inbound | Ignored:
    """What a message from Ada says."""
    event = {"type": kind, "event_id": "$e", "sender": "@ada:hs", "content": content}
    known = Inbound("matrix", "default", "!r", "group", "@ada:hs", "$e", "", NOON)
    return normalise(event, ME, known, **more)


def words(content: dict[str, Any], **more: Any) -> Inbound:
    found = read({"msgtype": "m.text", **content}, **more)
    assert isinstance(found, Inbound)
    return found


MENTION = {"m.mentions": {"user_ids": ["@bot:hs"]}}


@pytest.mark.parametrize(
    ("content", "said", "is_mention"),
    [
        ({"body": "hi"}, "hi", False),
        ({"body": "Confidant: hi", **MENTION}, "hi", True),
        ({"body": "hi @bot:hs", **MENTION}, "hi", True),
        ({"body": "Confidants hi", **MENTION}, "Confidants hi", True),
        ({"body": "@Confidant, hi", **MENTION}, "hi", True),
        ({"body": "Confidant hi", "formatted_body": PILL}, "hi", True),
        ({"body": "hi @bot:hs"}, "hi", True),
        # The app says whom it mentions, and it is not the bot.
        ({"body": "Confidant hi", "formatted_body": PILL, "m.mentions": {}}, "Confidant hi", False),
        ({"body": "hi", "m.mentions": {"room": True}}, "hi", False),
        ({"body": "hi", "m.mentions": {"user_ids": "@bot:hs"}}, "hi", False),
        ({"body": "nul\0 \ud800"}, "nul\ufffd \ufffd", False),
        ({"body": "> <@ada:hs> old\n\nnew", **MENTION}, "> <@ada:hs> old\n\nnew", True),
    ],
)
def test_what_is_said_to_the_bot_and_whether_it_is_named(content, said, is_mention):
    found = words(content)
    assert (found.text, found.mentions_bot) == (said, is_mention)


@pytest.mark.parametrize(
    ("content", "kind", "reason"),
    [
        ({"msgtype": "m.notice", "body": "beep"}, "m.room.message", "from_bot"),
        ({"msgtype": "m.text", "body": " \u200b"}, "m.room.message", "empty"),
        ({"msgtype": "m.text", "body": 7}, "m.room.message", "empty"),
        ({}, "m.room.message", "empty"),  # redacted
        ([], "m.room.message", "empty"),
        ({"body": "hi"}, "m.reaction", "unknown"),
        ({"body": "hi"}, "org.example.new", "unknown"),
        ({"body": "hi"}, None, "unknown"),
        ({"body": "hi"}, "m.room.encrypted", "unknown"),
    ],
)
def test_what_is_no_message_is_told_apart(content, kind, reason):
    assert read(content, kind) == Ignored(reason)


@pytest.mark.parametrize(
    ("content", "kind", "media"),
    [
        (
            {"msgtype": "m.image", "body": "cat.png", "url": "mxc://hs/1",
             "info": {"mimetype": "image/png", "size": 3}},
            "m.room.message",
            Media("photo", "cat.png", "image/png", 3, "mxc://hs/1"),
        ),
        (
            {"msgtype": "m.audio", "body": "voice", "url": "mxc://hs/1", "m.voice": {},
             "info": {"mimetype": "audio/ogg; codecs=opus"}},
            "m.room.message",
            Media("voice", "voice", "audio/ogg", 0, "mxc://hs/1"),
        ),
        (
            {"msgtype": "m.audio", "body": "song.mp3", "url": "mxc://hs/1"},
            "m.room.message",
            Media("audio", "song.mp3", "", 0, "mxc://hs/1"),
        ),
        (
            {"body": "wow", "url": "mxc://hs/1"},
            "m.sticker",
            Media("sticker", "wow", ref="mxc://hs/1"),
        ),
        (
            {"msgtype": "m.file", "body": "a", "url": "x" * 3000},
            "m.room.message",
            Media("document", "a"),
        ),
        (
            {"msgtype": "m.file", "body": "a", "url": 7, "info": {"size": -1, "mimetype": []}},
            "m.room.message",
            Media("document", "a"),
        ),
    ],
)  # fmt: skip
def test_a_file_is_what_its_sender_says(content, kind, media):
    found = read(content, kind)
    assert isinstance(found, Inbound)
    assert (found.media, found.text) == ((media,), "")


def test_a_caption_is_what_was_said_and_the_key_of_an_encrypted_file_goes_with_it():
    locked = {"url": "mxc://hs/1", "key": {"k": "a"}, "iv": "b", "hashes": {"sha256": "c"}}
    found = words({"msgtype": "m.image", "body": "look", "filename": "a.png", "file": locked})
    assert found.text == "look"
    assert location(found.media[0].ref) == ("hs", "1", locked)
    hostile = {"url": "mxc://hs/1", "key": {"k": "\ud800"}, "iv": 10**30, "hashes": [1]}
    (media,) = words({"msgtype": "m.image", "body": "a.png", "file": hostile}).media
    assert location(media.ref)[:2] == ("hs", "1")


@pytest.mark.parametrize(
    "ref", ["", "mxc://hs", "https://hs/1", "mxc://hs/1/2", "{", "{}", '{"url": 7}', "mxc://h s/1"]
)
def test_what_leads_to_no_file_of_the_homeserver_is_not_fetched(ref):
    assert location(ref) == ("", "", {})


@pytest.mark.parametrize("name", ["m.poll.start", "org.matrix.msc3381.poll.start"])
def test_a_poll_is_what_somebody_passed_on(name):
    label = "org.matrix.msc1767.text"
    answers = [{label: "yes"}, {"m.text": [{"body": "no [really]"}]}, 7]
    found = read({name: {"question": {label: "Tea?"}, "answers": answers}}, name)
    assert isinstance(found, Inbound)
    assert found.foreign == (Foreign("poll", "poll: Tea? — yes / no (really)"),)


BEFORE = {
    "type": "m.room.message",
    "sender": "@bob:hs",
    "content": {"msgtype": "m.text", "body": "the bill is 12"},
}
REPLY = {"m.relates_to": {"m.in_reply_to": {"event_id": "$b"}}}


def test_a_reply_comes_with_what_it_answers_and_without_the_quote_of_old_apps():
    found = words({"body": "> <@bob:hs> the bill\n> is 12\n\nwhy?", **REPLY}, before=BEFORE)
    assert found.text == "why?"
    assert found.reply_to == ReplyTo("$b", "@bob:hs", "the bill is 12")
    assert not found.mentions_bot


def test_an_answer_to_the_bot_is_for_the_bot_and_one_that_is_gone_is_only_named():
    assert words({"body": "why?", **REPLY}, before=BEFORE | {"sender": "@bot:hs"}).mentions_bot
    assert words({"body": "why?", **REPLY}).reply_to == ReplyTo("$b")


def test_a_thread_refers_to_its_start_unless_that_was_the_bots():
    thread = {"rel_type": "m.thread", "event_id": "$b", "is_falling_back": True}
    within = {"body": "why?", "m.relates_to": {**thread, "m.in_reply_to": {"event_id": "$x"}}}
    found = words(within, start=BEFORE)
    assert found.reply_to is not None
    assert (found.reply_to.is_start, found.reply_to.text) == (True, "the bill is 12")
    assert words(within, start=BEFORE | {"sender": "@bot:hs"}).reply_to is None


def test_whoever_names_the_bot_below_a_photo_asks_about_the_photo():
    photo = {"msgtype": "m.image", "body": "a.png", "url": "mxc://hs/1"}
    found = words({"body": "@bot:hs", **MENTION, **REPLY}, before=BEFORE | {"content": photo})
    assert (found.text, found.reply_to.media[0].kind) == ("", "photo")


def test_an_edit_replaces_only_what_its_sender_said():
    edit = {
        "body": "* new",
        "m.new_content": {"msgtype": "m.text", "body": "new"},
        "m.relates_to": {"rel_type": "m.replace", "event_id": "$b"},
    }
    own = BEFORE | {"sender": "@ada:hs"}
    found = words(edit, original=own)
    assert (found.text, found.edit_of) == ("new", "$b")
    assert read(edit, original=BEFORE) == Ignored("malformed")
    assert read(edit) == Ignored("malformed")


@pytest.mark.parametrize(
    ("people", "state", "is_direct"),
    [
        ({"@bot:hs", "@ada:hs"}, {}, True),
        ({"@bot:hs", "@ada:hs", "@bob:hs"}, {}, False),  # invitations count
        ({"@bot:hs", "@bob:hs"}, {}, False),
        ({"@bot:hs", "@ada:hs"}, {"m.room.join_rules": {"join_rule": "public"}}, False),
        ({"@bot:hs", "@ada:hs"}, {"m.room.join_rules": {"join_rule": "restricted"}}, False),
        ({"@bot:hs", "@ada:hs"}, {"m.room.join_rules": {}}, False),
        (
            {"@bot:hs", "@ada:hs"},
            {"m.room.history_visibility": {"history_visibility": "world_readable"}},
            False,
        ),
        (None, {}, False),
    ],
)
def test_a_direct_chat_is_one_person_alone_with_the_bot_where_nobody_comes_in(
    people, state, is_direct
):
    room = Room()
    for kind, content in ({"m.room.join_rules": {"join_rule": "invite"}} | state).items():
        room.hear({"type": kind, "content": content, "state_key": ""})
    room.people = people and frozenset(people)
    assert room.is_direct(ME.id, "@ada:hs") is is_direct


NAMES = st.sampled_from(
    [
        *("body", "msgtype", "m.relates_to", "m.mentions", "m.new_content", "file", "url", "info"),
        *("event_id", "rel_type", "m.in_reply_to", "formatted_body", "m.poll.start", "question"),
    ]
)
EVENTS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["m.room.message", "m.sticker", "m.poll.start", 7]),
        "content": st.dictionaries(NAMES, JSON | st.dictionaries(NAMES, JSON, max_size=4)) | JSON,
    }
)


@given(EVENTS, EVENTS)
def test_whatever_somebody_sends_is_read_or_left_out(event, before):
    known = Inbound("matrix", "default", "!r", "group", "@ada:hs", "$e", "", NOON)
    for extra in ({}, {"before": before, "original": before, "start": before}):
        found = normalise(event, ME, known, **extra)
        assert isinstance(found, Inbound | Ignored)
    Room().hear(event)
    assert isinstance(reading.thread(event) + reading.edited(event) + reading.answered(event), str)


# --- what goes out -------------------------------------------------------------------------------


def piece(text: str, **more: Any) -> Any:
    address = Address("matrix", "default", "!r", more.pop("thread", ""))
    return send.messages(Outbound("o", address, text, **more))[0]


def test_a_message_is_formatted_and_mentions_nobody():
    made = send.words_content(piece("**hi** @room <script>x</script> [a](javascript:b)"))
    assert made["m.mentions"] == {}
    assert made["msgtype"] == "m.text"
    assert "<strong>hi</strong>" in made["formatted_body"]
    assert "<script" not in made["formatted_body"]
    assert "href" not in made["formatted_body"]
    assert send.words_content(piece("hi", kind="receipt"))["msgtype"] == "m.notice"


@pytest.mark.parametrize("char", ["&", "字", "\U0001f389", "*a* "])
def test_no_event_is_larger_than_a_homeserver_takes(char):
    for each in send.messages(Outbound("o", Address("matrix", "d", "!r"), char * 20_000)):
        made = send.words_content(each)
        assert len(api.orjson.dumps(made)) * 4 / 3 < 64_000


WITHIN = {"rel_type": "m.thread", "event_id": "$t"}


@pytest.mark.parametrize(
    ("thread", "reply", "relation"),
    [
        ("", "", None),
        ("", "$a", {"m.in_reply_to": {"event_id": "$a"}}),
        ("$t", "", {**WITHIN, "m.in_reply_to": {"event_id": "$t"}, "is_falling_back": True}),
        ("$t", "$a", {**WITHIN, "m.in_reply_to": {"event_id": "$a"}, "is_falling_back": False}),
    ],
)
def test_a_reply_stands_where_it_belongs(thread, reply, relation):
    made = send.words_content(piece("hi", thread=thread, reply_to=reply))
    assert made.get("m.relates_to") == relation


def test_a_recording_is_shown_as_a_voice_message():
    file = Attachment("a.ogg", "audio/ogg", b"xyz")
    made = send.file_content(piece("", attachments=(file,)), {"url": "mxc://hs/1"})
    assert (made["msgtype"], made["url"]) == ("m.audio", "mxc://hs/1")
    assert made["org.matrix.msc3245.voice"] == {}


# --- the configuration ---------------------------------------------------------------------------


def test_an_account_is_complete_with_a_homeserver_and_a_token_of_its_own():
    own = {"work": AccountConfig(token=SecretStr("u")), "idle": AccountConfig()}
    config = MatrixConfig(homeserver="https://hs/", token=SecretStr("t"), accounts=own)
    assert config.tokens() == {"default": "t", "work": "u"}
    assert config.account("work").address == "https://hs"
    assert plugin.ready(config)
    assert not plugin.ready(MatrixConfig(token=SecretStr("t")))
    assert not plugin.ready(MatrixConfig(homeserver="https://hs"))


@pytest.mark.parametrize("homeserver", ["matrix.org", "ftp://hs", "https://"])
def test_a_homeserver_is_an_address(homeserver):
    with pytest.raises(ValidationError, match="homeserver"):
        MatrixConfig(homeserver=homeserver)


def test_two_accounts_have_two_tokens():
    with pytest.raises(ValidationError, match="the same token"):
        MatrixConfig(
            homeserver="https://hs",
            token=SecretStr("t"),
            accounts={"two": AccountConfig(token=SecretStr("t"))},
        )


# --- answers of a homeserver ---------------------------------------------------------------------


@asynccontextmanager
async def answering(status: int, body: bytes, **headers: str):
    """A homeserver that answers everything like that."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with serving(app) as url, aiohttp.ClientSession() as session:
        yield Api(url, "secret", session)


@pytest.mark.parametrize(
    ("status", "body", "headers", "error"),
    [
        (401, b'{"errcode": "M_UNKNOWN_TOKEN"}', {}, TokenRefused),
        (401, b'{"errcode": "M_MISSING_TOKEN"}', {}, TokenRefused),
        (403, b'{"errcode": "M_USER_DEACTIVATED"}', {}, TokenRefused),
        (403, b'{"errcode": "M_FORBIDDEN"}', {}, Refused),
        (404, b"<html>", {}, Refused),
        (301, b"", {"Location": "http://127.0.0.1:9/"}, Refused),
        (413, b'{"errcode": "M_TOO_LARGE"}', {}, Refused),
        (500, b"", {}, SendTransient),
        (502, b"<html>", {}, SendTransient),
    ],
)
async def test_each_answer_has_its_error(status, body, headers, error):
    async with answering(status, body, **headers) as calls:
        with pytest.raises(error) as caught:
            await calls.call("GET", "/sync")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "headers", "seconds"),
    [
        (429, b'{"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 1500}', {}, 1.5),
        (429, b'{"errcode": "M_LIMIT_EXCEEDED"}', {"Retry-After": "7"}, 7),
        (429, b"slow down", {}, 30),
        (400, b'{"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 200}', {}, 0.2),
        (429, b'{"retry_after_ms": -5}', {"Retry-After": "soon"}, 30),
    ],
)
async def test_a_limit_says_how_long_to_wait(status, body, headers, seconds):
    async with answering(status, body, **headers) as calls:
        with pytest.raises(SendLater) as caught:
            await calls.call("PUT", "/rooms/!r/send/m.room.message/1", {})
    assert caught.value.seconds == pytest.approx(seconds)


async def test_an_answer_without_end_is_not_read_to_the_end(monkeypatch):
    monkeypatch.setattr(api, "MAX_ANSWER", 10)
    async with answering(200, b'{"a": "0123456789"}') as calls:
        with pytest.raises(SendTransient, match="too long"):
            await calls.call("GET", "/sync")


async def test_a_homeserver_that_is_not_there_is_tried_later():
    async with aiohttp.ClientSession() as session:
        calls = Api("http://127.0.0.1:9", "secret", session)
        with pytest.raises(SendTransient, match="cannot be reached"):
            await calls.call("GET", "/sync")


@pytest.mark.parametrize("body", [b"[]", b"nothing", b"\xff", b'"words"', b"7"])
async def test_an_answer_that_is_no_mapping_says_nothing(body):
    async with answering(200, body) as calls:
        assert await calls.call("GET", "/sync") == {}


async def test_a_file_that_is_gone_or_too_large_is_refused():
    async with answering(404, b"") as calls:
        with pytest.raises(SendRefused, match="gone"):
            await calls.download("hs", "1", 10)
    async with answering(200, b"0" * 11) as calls:
        with pytest.raises(SendRefused, match="too large"):
            await calls.download("hs", "1", 10)


def test_the_parts_of_a_path_stay_apart():
    assert api.escaped("!r:hs", "a/../b?c") == "/%21r%3Ahs/a%2F..%2Fb%3Fc"
