"""Groups, forums and channels as the normaliser sees them, and a corpus of odd payloads."""

import pytest

from adapters.telegram.inbound import (
    GENERAL_TOPIC,
    Identity,
    Ignored,
    Membership,
    Moved,
    album_of,
    normalise,
)
from adapters.telegram.mentions import addressed
from bot.channel import Inbound, Media
from tests.fakes.telegram_rooms import mentions_in

ME = Identity(99, "confidant_bot")
ADA = {"id": 7, "is_bot": False, "first_name": "Ada", "language_code": "de"}
BOT = {"id": 99, "is_bot": True, "first_name": "Confidant", "username": "confidant_bot"}
GROUP = {"id": -1001, "type": "supergroup", "title": "Tea"}
FORUM = GROUP | {"is_forum": True}
CHANNEL = {"id": -1002, "type": "channel", "title": "News"}
SAID = {"message_id": 5, "from": ADA, "chat": GROUP, "date": 1_700_000_000}


def read(kind="message", **fields):
    message = {key: value for key, value in (SAID | fields).items() if value is not None}
    if "text" in message and "entities" not in message:
        message["entities"] = mentions_in(message["text"])
    return normalise({"update_id": 1, kind: message}, "default", ME)


def said(**fields):
    result = read(**fields)
    assert isinstance(result, Inbound), result
    return result


@pytest.mark.parametrize("kind", ["group", "supergroup", "something new"])
def test_whatever_is_not_private_counts_as_a_group(kind):
    inbound = said(text="hello", chat=GROUP | {"type": kind})
    assert inbound == Inbound(
        channel="telegram",
        account="default",
        chat="-1001",
        chat_type="group",
        sender="7",
        message_id="5",
        text="hello",
        sent_at=1_700_000_000_000,
        sender_name="Ada",
        locale="de",
    )


def test_a_post_in_a_channel_is_said_by_the_channel():
    post = SAID | {"chat": CHANNEL, "sender_chat": CHANNEL, "text": "News!"}
    del post["from"]
    for extra, name in (({}, "News (channel)"), ({"author_signature": "Bo"}, "News (channel, Bo)")):
        inbound = normalise({"update_id": 1, "channel_post": post | extra}, "default", ME)
        assert isinstance(inbound, Inbound)
        assert (inbound.chat_type, inbound.sender, inbound.sender_name) == (
            "channel",
            "-1002",
            name,
        )
    del post["sender_chat"]
    edited = post | {"edit_date": 1_700_000_009}
    inbound = normalise({"update_id": 1, "edited_channel_post": edited}, "default", ME)
    assert isinstance(inbound, Inbound)
    assert (inbound.sender, inbound.edit_of) == ("-1002", "5")


@pytest.mark.parametrize(
    ("fields", "thread"),
    [
        ({"chat": FORUM, "message_thread_id": 8, "is_topic_message": True}, "8"),
        ({"chat": FORUM}, GENERAL_TOPIC),
        ({"chat": FORUM, "message_thread_id": 8}, GENERAL_TOPIC),
        ({"chat": GROUP, "message_thread_id": 8}, ""),
        ({"chat": GROUP}, ""),
        ({"chat": {"id": 7, "type": "private", "is_forum": True}}, ""),
    ],
)
def test_only_topics_are_threads(fields, thread):
    assert said(text="x", **fields).thread == thread


# --- who is spoken to ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "mentioned", "left"),
    [
        ("@confidant_bot hello", True, "hello"),
        ("hello @confidant_bot", True, "hello"),
        ("is @confidant_bot there", True, "is there"),
        ("👩‍👩‍👧 @confidant_bot 你好", True, "👩‍👩‍👧 你好"),
        ("@confidant_bot", True, "@confidant_bot"),
        ("@confidant_bot @confidant_bot", True, "@confidant_bot @confidant_bot"),
        ("@confidant_bot2 hello", False, "@confidant_bot2 hello"),
        ("@other hello", False, "@other hello"),
        ("hello", False, "hello"),
        ("/new@confidant_bot tea", True, "/new tea"),
        ("/new", False, "/new"),
        ("@confidant_bot /new", True, "/new"),
    ],
)
def test_a_mention_of_exactly_this_bot_counts_and_goes(text, mentioned, left):
    inbound = said(text=text)
    assert (inbound.mentions_bot, inbound.text) == (mentioned, left)


def test_the_comma_after_an_address_goes_with_it():
    name = [{"type": "mention", "offset": 0, "length": 14}]
    assert said(text="@Confidant_Bot, hello", entities=name).text == "hello"


def test_a_name_that_only_looks_like_a_mention_is_none():
    assert not said(text="mail me@confidant_bot", entities=[]).mentions_bot
    code = [{"type": "code", "offset": 0, "length": 14}]
    assert not said(text="@confidant_bot", entities=code).mentions_bot


@pytest.mark.parametrize(("number", "mentioned"), [(99, True), (98, False)])
def test_a_link_to_the_bot_is_a_mention(number, mentioned):
    link = {"type": "text_mention", "offset": 0, "length": 3, "user": BOT | {"id": number}}
    inbound = said(text="Bot hello", entities=[link])
    assert (inbound.mentions_bot, inbound.text) == (
        mentioned,
        "hello" if mentioned else "Bot hello",
    )


def test_a_mention_in_a_caption_counts():
    caption = "@confidant_bot look"
    inbound = said(
        caption=caption, caption_entities=mentions_in(caption), photo=[{"file_id": "p"}], text=None
    )
    assert (inbound.mentions_bot, inbound.text) == (True, "look")
    assert inbound.media == (Media("photo", mime="image/jpeg", ref="p"),)


@pytest.mark.parametrize(
    "entity",
    [
        {"type": "mention"},
        {"type": "mention", "offset": -1, "length": 14},
        {"type": "mention", "offset": 0, "length": 10**30},
        {"type": "mention", "offset": 10**6, "length": 3},
        {"type": "mention", "offset": 1, "length": 3},
        {"type": "text_mention", "offset": 0, "length": 3, "user": 5},
        {"type": ["mention"]},
    ],
)
def test_entities_that_point_nowhere_do_no_harm(entity):
    assert said(text="😀hello", entities=[entity]).text == "😀hello"


def test_overlapping_entities_take_each_character_once():
    entities = [
        {"type": "text_mention", "offset": 0, "length": 4, "user": BOT},
        {"type": "text_mention", "offset": 2, "length": 4, "user": BOT},
    ]
    assert addressed({"text": "abcdefgh", "entities": entities}, 99, "") == (True, "efgh")


def test_an_answer_to_the_bot_is_a_mention():
    answered = SAID | {"message_id": 4, "from": BOT, "text": "Tea?"}
    assert said(text="yes", reply_to_message=answered).mentions_bot
    other = answered | {"from": BOT | {"id": 98}}
    assert not said(text="yes", reply_to_message=other).mentions_bot
    start = answered | {"forum_topic_created": {"name": "T"}}
    assert not said(text="yes", reply_to_message=start, chat=FORUM).mentions_bot


@pytest.mark.parametrize("text", ["/new@other_bot", "/new@other_bot @confidant_bot", "/x@y\nz"])
def test_a_command_for_another_bot_is_left_out(text):
    assert read(text=text) == Ignored("other_bot", "-1001")


def test_the_mention_gate_is_closed_in_direct_chats():
    inbound = said(text="@confidant_bot hello", chat={"id": 7, "type": "private"})
    assert (inbound.mentions_bot, inbound.text) == (False, "@confidant_bot hello")


# --- who speaks ----------------------------------------------------------------------------------

ANONYMOUS = {
    "id": 1087968824,
    "is_bot": True,
    "first_name": "Group",
    "username": "GroupAnonymousBot",
}
TELEGRAM = {"id": 777000, "is_bot": False, "first_name": "Telegram"}
AS_CHANNEL = {"id": 136817688, "is_bot": True, "first_name": "Channel", "username": "Channel_Bot"}


def test_an_anonymous_admin_speaks_as_the_group():
    fields = {"from": ANONYMOUS, "sender_chat": GROUP, "text": "@confidant_bot hello"}
    inbound = said(**fields)
    assert (inbound.sender, inbound.sender_name) == ("-1001", "Tea (anonymous admin)")
    assert (inbound.mentions_bot, inbound.text) == (True, "hello")
    assert said(**fields, author_signature="boss").sender_name == "Tea (anonymous admin, boss)"


def test_somebody_who_writes_as_their_channel_is_that_channel():
    inbound = said(**{"from": AS_CHANNEL}, sender_chat=CHANNEL, text="hello")
    assert (inbound.sender, inbound.sender_name) == ("-1002", "News (channel)")


def test_what_a_linked_channel_posts_is_no_mention():
    fields = {"from": TELEGRAM, "sender_chat": CHANNEL, "is_automatic_forward": True}
    inbound = said(**fields, text="@confidant_bot is our bot")
    assert (inbound.mentions_bot, inbound.sender) == (False, "-1002")
    assert inbound.text == "@confidant_bot is our bot"


def test_another_bot_is_left_out():
    assert read(**{"from": BOT | {"id": 12}}, text="hi") == Ignored("from_bot", "-1001")
    assert read(**{"from": BOT}, text="hi") == Ignored("from_bot", "-1001")


def test_a_deleted_account_has_no_name():
    assert (
        said(**{"from": {"id": 7, "is_bot": False, "first_name": ""}}, text="x").sender_name == ""
    )


# --- what is no message --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"new_chat_members": [ADA]},
        {"left_chat_member": ADA},
        {"new_chat_title": "x"},
        {"new_chat_photo": [{"file_id": "p"}]},
        {"delete_chat_photo": True},
        {"group_chat_created": True},
        {"pinned_message": SAID | {"text": "x"}},
        {"video_chat_started": {}},
        {"video_chat_ended": {"duration": 5}},
        {"video_chat_participants_invited": {"users": [ADA]}},
        {"forum_topic_created": {"name": "T", "icon_color": 1}},
        {"forum_topic_closed": {}},
        {"general_forum_topic_hidden": {}},
        {"message_auto_delete_timer_changed": {"message_auto_delete_time": 5}},
        {"boost_added": {"boost_count": 1}},
        {"giveaway_created": {}},
    ],
)
def test_service_messages_are_left_out(fields):
    assert read(**fields) == Ignored("service", "-1001")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"text": ""}, "empty"),
        ({"something_new": {"x": 1}}, "empty"),
        ({}, "empty"),
        ({"text": "x", "from": None}, "malformed"),
        ({"text": "x", "sender_chat": {"title": "no id"}}, "malformed"),
        ({"text": "x", "message_id": 10**5000}, "malformed"),
        ({"text": "x", "chat": GROUP | {"is_direct_messages": True}}, "direct_messages"),
    ],
)
def test_what_cannot_be_answered_says_why(fields, reason):
    assert read(**fields).reason == reason


def test_a_live_location_is_told_once():
    place = {"location": {"latitude": 1, "longitude": 2, "live_period": 60}}
    assert said(**place).shown == "[location: 1, 2]"
    moved = read("edited_message", **place, edit_date=1_700_000_009)
    assert moved == Ignored("live_location", "-1001")


@pytest.mark.parametrize("kind", ["message_reaction", "message_reaction_count"])
def test_reactions_are_left_out(kind):
    update = {"update_id": 1, kind: {"chat": GROUP, "message_id": 5, "user": ADA}}
    assert normalise(update, "default", ME) == Ignored("reaction")


def test_a_group_that_moved_says_from_where_to_where():
    assert read(chat=GROUP | {"id": -5}, migrate_to_chat_id=-1001) == Moved("-5", "-1001")
    assert read(migrate_from_chat_id=-5) == Moved("-5", "-1001")
    assert read(migrate_from_chat_id="-5") == Ignored("service", "-1001")
    assert read(migrate_to_chat_id=-1001) == Ignored("service", "-1001")


@pytest.mark.parametrize(
    ("chat", "kind"),
    [(GROUP, "group"), (CHANNEL, "channel"), ({"id": 7, "type": "private"}, "direct")],
)
def test_the_bots_own_place_in_a_chat(chat, kind):
    change = {"chat": chat, "from": ADA, "new_chat_member": {"user": BOT, "status": "kicked"}}
    found = normalise({"update_id": 1, "my_chat_member": change}, "default", ME)
    assert found == Membership(str(chat["id"]), kind, "kicked")


@pytest.mark.parametrize(
    "change", [None, 5, {}, {"chat": GROUP}, {"new_chat_member": {"status": "x"}}]
)
def test_a_broken_change_of_membership_is_malformed(change):
    found = normalise({"update_id": 1, "my_chat_member": change}, "default", ME)
    assert found == Ignored("malformed")


# --- presses and albums --------------------------------------------------------------------------


def press(**fields):
    message = {"message_id": 4, "from": BOT, "chat": GROUP, "date": 1, "text": "Full."} | fields
    query = {"id": "41", "from": ADA, "data": "/compact", "message": message}
    return normalise({"update_id": 1, "callback_query": query}, "default", ME, 5)


def test_a_press_in_a_group_is_said_to_the_bot_by_who_pressed():
    inbound = press()
    assert isinstance(inbound, Inbound)
    assert (inbound.chat, inbound.chat_type, inbound.sender) == ("-1001", "group", "7")
    assert inbound.mentions_bot


def test_a_press_in_a_topic_stays_there():
    inside = press(chat=FORUM, message_thread_id=8, is_topic_message=True)
    assert isinstance(inside, Inbound)
    assert inside.thread == "8"
    general = press(chat=FORUM)
    assert isinstance(general, Inbound)
    assert general.thread == GENERAL_TOPIC
    assert press(chat=FORUM, date=0) == Ignored("stale", "-1001")


def test_an_album_has_a_name():
    assert album_of({"message": SAID | {"media_group_id": "a1"}}) == "a1"
    assert album_of({"channel_post": SAID | {"media_group_id": "a1"}}) == "a1"
    assert album_of({"edited_message": SAID | {"media_group_id": "a1"}}) == ""
    assert album_of({"message": SAID | {"media_group_id": 5}}) == ""
    assert album_of(None) == ""


# --- odd words -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "\u202eright to left\u202c",
        "\u200b\u200d\u2060",
        "مرحبا بالعالم",
        "👩‍👩‍👧‍👦🇩🇪❤️🏽",
        "x" * 1_000_000,
        "\U0010ffff" * 5000,
        "\x1b[31mred",
    ],
)
def test_odd_words_arrive_as_they_are(text):
    assert said(text=text, entities=[]).text == text


def test_odd_words_around_a_mention_keep_their_characters():
    before, after = "مرحبا 👩‍👩‍👧‍👦\u202e ", "\u202c \ud83d🇩🇪"
    name = "@confidant_bot"
    at = len(before.encode("utf-16-le")) // 2
    entities = [{"type": "mention", "offset": at, "length": len(name)}]
    inbound = said(text=f"{before}{name}{after}", entities=entities)
    assert inbound.mentions_bot
    assert inbound.text == before + "\u202c \ufffd🇩🇪"


def test_numbers_beyond_64_bits_are_no_numbers():
    sizes = said(document={"file_id": "d" * 9000, "file_size": 1 << 80, "mime_type": "m" * 9000})
    assert sizes.media[0].size == 0
    assert len(sizes.media[0].ref) < 1000
    assert len(sizes.media[0].mime) < 1000
    assert said(location={"latitude": 10**400, "longitude": 1.5}).shown == "[location: 0, 1.5]"


def test_a_huge_poll_becomes_a_short_line():
    options = [{"text": "o" * 5000}] * 5000
    assert len(said(poll={"question": "q" * 9000, "options": options}).text) < 8000
