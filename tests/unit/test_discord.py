"""The Discord channel: options, what it brings, pieces, menus, errors."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adapters.discord import DiscordConfig, plugin
from adapters.discord.account import Pace
from adapters.discord.api import RateLimits, Route, answered, first_id_at, number_in, sent_at
from adapters.discord.inbound import CREATED, UPDATED, Identity, Ignored, normalise
from adapters.discord.interactions import interaction_of, payload, private_to
from adapters.discord.interactions import normalise as pressed
from adapters.discord.places import EVENTS, Place, Places, Room
from adapters.discord.render import messages, nonce, rendered, rows, shortened
from bot.channel import (
    MAX_REPLY_TEXT,
    Address,
    Attachment,
    Button,
    Command,
    Foreign,
    Inbound,
    Media,
    Outbound,
)
from bot.channel.kit.supervisor import Backoff
from bot.channel.kit.text import file_name, units
from bot.commands.commander import menu
from bot.errors import SendRefused, SendTransient, SendUnreachable
from tests.fakes.discord_parts import BOT_ID, guild, message, snowflake, user
from tests.odd import ODD, mutated
from tests.proofs.rounds import rounds


def config(**values):
    return DiscordConfig.model_validate(values)


def said(chat="501", *, parent="", server="500", kind="channel"):
    return Inbound("discord", "default", chat, kind, "7", "1", "x", 0, parent=parent, server=server)


@pytest.mark.parametrize(
    ("values", "ready"),
    [
        ({}, False),
        ({"token": " "}, False),
        ({"token": "a"}, True),
        ({"accounts": {"work": {"token": "b"}}}, True),
        ({"accounts": {"work": {}}}, False),
    ],
)
def test_the_channel_is_ready_once_any_bot_has_a_token(values, ready):
    assert plugin.ready(config(**values)) is ready


def test_tokens_are_those_of_the_accounts_that_have_one():
    section = config(token="a", accounts={"work": {"token": "b"}, "idle": {}})
    assert section.tokens() == {
        "default": "a",
        "work": "b",
    }


@pytest.mark.parametrize(
    "values",
    [
        {"token": "a", "accounts": {"work": {"token": "a "}}},
        {"attachment_hosts": ["cdn.example.org"]},
        {"attachment_hosts": ["https://cdn.example.org/files"]},
        {"attachment_hosts": ["https://me@cdn.example.org"]},
        {"attachment_hosts": ["https://"]},
        {"attachment_hosts": ["https://[::1"]},
        {"attachment_hosts": ["ftp://cdn.example.org"]},
        {"accounts": {"work": {"attachment_hosts": ["https://cdn.example.org:x"]}}},
        {"api_root": "ftp://x"},
        {"gateway_url": "https://x"},
        {"guilds": {"5": {"mention_patterns": ["("]}}},
        {"accounts": {"a": {"guilds": {"5": {"mention_patterns": ["("]}}}}},
        {"accounts": {"Big": {}}},
        {"guilds": {"5": {"chanels": []}}},
        {"dm_policy": "open"},
    ],
)
def test_what_cannot_work_is_an_error(values):
    with pytest.raises(ValidationError):
        config(**values)


def test_the_nearest_entry_decides():
    section = config(
        require_mention=True,
        groups={"601": {"language": "zh"}, "501": {"language": "en"}, "*": {"enabled": False}},
        guilds={"500": {"require_mention": False}},
    )
    assert section.room(said("601", parent="501")).language == "zh"
    assert section.room(said("602", parent="501")).language == "en"
    assert section.room(said("502")).require_mention is False
    assert section.room(said("502")).enabled is True
    assert section.room(said("9", server="8")).enabled is False
    assert section.room(said("7", server="", kind="direct")) is section


def test_a_server_that_names_channels_closes_the_others():
    section = config(
        group_policy="open", guilds={"500": {"channels": ["501"]}, "*": {"language": "zh"}}
    )
    assert section.room(said("501")).enabled
    assert section.room(said("601", parent="501", kind="thread")).enabled
    assert not section.room(said("502")).enabled
    assert section.room(said("9", server="8")).language == "zh"
    assert section.listed(said("9", server="")) is None


def test_an_account_has_rooms_of_its_own():
    section = config(token="a", accounts={"work": {"token": "b", "guilds": {"5": {}}}})
    assert section.account("work").listed(said(server="5")) is not None
    assert section.listed(said(server="5")) is None


ME = Identity(BOT_ID, "Confidant")
DIRECT = Room(Place("direct"))
ROOM = Room(
    Place("channel", server="500"),
    frozenset({"510"}),
    {"510": "Confidant", "511": "Admins", "500": "@everyone"},
    {"501": "general"},
)
BOT_USER = user(BOT_ID, bot=True)


def read(text="hello", *, kind=CREATED, room=ROOM, **extra):
    author = extra.pop("author", user("7"))
    return normalise(kind, message("501", author, text, **extra), "default", ME, room)


def words(text, **extra):
    found = read(text, **extra)
    assert isinstance(found, Inbound)
    return found.text


def test_a_message_has_everything_a_turn_needs():
    number = snowflake(1_795_262_400.0)
    found = read(id=number, member={"nick": "Ada"})
    assert found == Inbound(
        "discord",
        "default",
        "501",
        "channel",
        "7",
        number,
        "hello",
        1_795_262_400_000,
        sender_name="Ada",
        server="500",
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<@100> /status", "/status"),
        ("<@!100>\n/status", "/status"),
        ("<@&510> <@100> hi", "hi"),
        ("hi <@100>", "hi"),
        ("what does <@100> think", "what does @Confidant think"),
        ("<@100> ask <@100> now", "ask @Confidant now"),
        ("<@8> hi", "@User 8 hi"),
        ("<@9> hi", "@someone hi"),
        ("<@&511> <@&999> <@&500>", "@Admins @role @everyone"),
        ("<#501> <#999>", "#general #channel"),
        ("<:wave:123456> <a:dance:123456>", ":wave: :dance:"),
        ("</memory search:123>", "/memory search"),
        ("<t:1795262400:R>", "2026-11-21 12:00 UTC"),
        ("<t:9999999999999>", "<t:9999999999999>"),
        ("a < b <@> <@x> <#> <:a:> <@123456789012345678901>", None),
        ("  kept as it is  ", None),
    ],
)
def test_ids_become_names_and_the_bots_own_mention_goes(text, shown):
    assert words(text, mentions=[user("8"), BOT_USER]) == (text if shown is None else shown)


@pytest.mark.parametrize(
    "text",
    [
        "مرحبا بالعالم",
        "\u202eabc\u202c",
        "a\u200bb",
        "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪",
        "e\u0301" * 200,
        "x" * 4000,
        "中文，没有空格",
        "\ufeffbom",
        "```py\n<b>\n```",
    ],
)
def test_any_script_stays_as_it_is(text):
    assert words(text) == text


def test_what_no_database_takes_is_replaced():
    assert words("a\0b\ud800c") == "a\ufffdb\ufffdc"


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"author": BOT_USER}, "own"),
        ({"author": user("9", bot=True)}, "from_bot"),
        ({"author": user("9", system=True)}, "from_bot"),
        ({"webhook_id": "9"}, "webhook"),
        ({"author": user("456226577798135808")}, "deleted_author"),
        ({"author": None}, "malformed"),
        ({"author": {"id": 7}}, "malformed"),
        ({"type": 7}, "service"),
        ({"type": 46}, "service"),
        ({"type": 999}, "service"),
        ({"text": ""}, "empty"),
        ({"text": "\u200b\u2060 \u3164"}, "empty"),
        ({"text": "<@100>"}, "empty"),
    ],
)
def test_what_is_for_nobody_is_left_out_with_its_reason(extra, reason):
    values = {"text": "hello", **extra}
    assert read(values.pop("text"), **values) == Ignored(reason)


@pytest.mark.parametrize(
    ("extra", "mentioned"),
    [
        ({}, False),
        ({"mentions": [user("8")]}, False),
        ({"mentions": [BOT_USER]}, True),
        ({"mention_roles": ["510"]}, True),
        ({"mention_roles": ["511"]}, False),
        ({"mention_everyone": True}, False),
        ({"mention_roles": ["500"]}, False),
    ],
)
def test_a_mention_is_one_of_the_bot_and_never_of_everyone(extra, mentioned):
    assert read("x", **extra).mentions_bot is mentioned


@pytest.mark.parametrize("author", [BOT_USER, user("8")])
def test_a_reply_says_what_it_answers(author):
    answered = message("501", author, "a <@8>" + "x" * 9000, mentions=[user("8")])
    reference = {"message_id": answered["id"], "channel_id": "501"}
    found = read("x", type=19, message_reference=reference, referenced_message=answered)
    assert found.reply_to.message_id == answered["id"]
    assert found.reply_to.text.startswith("a @User 8xx")
    assert len(found.reply_to.text) == MAX_REPLY_TEXT
    assert found.reply_to.from_bot is (author is BOT_USER)
    assert found.mentions_bot is (author is BOT_USER)


def test_a_reply_to_what_is_gone_knows_its_number():
    found = read("x", type=19, message_reference={"message_id": "5"}, referenced_message=None)
    assert (found.reply_to.message_id, found.reply_to.text) == ("5", "")
    assert read("x", message_reference={"type": "odd"}).reply_to is None


def test_a_forward_shows_what_was_forwarded():
    snapshot = {
        "content": "their words",
        "attachments": [{"id": "1", "filename": "a.png", "content_type": "image/png", "url": "u"}],
    }
    found = read(
        "",
        message_reference={"type": 1, "message_id": "5"},
        message_snapshots=[{"message": snapshot}],
    )
    assert (found.text, found.shown) == ("", "[forwarded]\ntheir words")
    assert found.foreign == (Foreign("forwarded", "their words"),)
    assert [m.kind for m in found.media] == ["photo"]
    assert found.reply_to is None


def test_polls_and_bare_embeds_are_told_in_a_line():
    poll = {
        "question": {"text": "Tea]\n or?"},
        "answers": [{"poll_media": {"text": "tea"}}, {"poll_media": None}],
    }
    asked = read("", poll=poll)
    assert (asked.text, asked.shown) == ("", "[poll: Tea) or? — tea / ]")
    assert read("see", poll=poll).text == "see"
    embed = {"title": "Title", "description": "Words", "url": "https://example.org"}
    assert read("", embeds=[embed]).shown == "[embed: Title — Words]"
    assert words("https://example.org", embeds=[embed]) == "https://example.org"


def test_a_poll_tells_how_it_stands():
    poll = {
        "question": {"text": "Tea?"},
        "answers": [
            {"answer_id": 1, "poll_media": {"text": "yes"}},
            {"answer_id": 2, "poll_media": {"text": "no"}},
        ],
        "results": {"is_finalized": True, "answer_counts": [{"id": 1, "count": 3}]},
    }
    assert read("", poll=poll).shown == "[poll (closed): Tea? — yes (3) / no (0)]"


ALERT = {
    "type": "rich",
    "author": {"name": "Grafana"},
    "title": "Disk [full]",
    "description": "92 % of /var\nsince 14:02",
    "fields": [{"name": "Host", "value": "db-1"}, {"name": "Owner", "value": "Ada\nBob"}],
    "footer": {"text": "rule 7"},
}
LAYOUT = [
    {
        "type": 17,
        "components": [
            {
                "type": 9,
                "components": [{"type": 10, "content": "# Build 7\nfailed"}],
                "accessory": {"type": 2, "label": "Log", "url": "https://example.org/log"},
            },
            {"type": 12, "items": [{"description": "a red graph"}]},
            {"type": 1, "components": [{"type": 2, "label": "Retry", "custom_id": "x"}]},
        ],
    },
    {"type": 10, "content": "The end"},
]
ALERT_SHOWN = """Grafana
Disk (full) — 92 % of /var
since 14:02
Host: db-1
Owner: Ada
Bob
rule 7"""
LAYOUT_SHOWN = """# Build 7
failed
Log: https://example.org/log
picture: a red graph
The end"""


def test_all_of_an_embed_and_of_components_is_told():
    assert read("", embeds=[ALERT]).shown == f"[embed: {ALERT_SHOWN}]"
    assert read("look", embeds=[ALERT]).foreign == (Foreign("preview", f"embed: {ALERT_SHOWN}"),)
    assert read("", components=LAYOUT).shown == f"[{LAYOUT_SHOWN}]"
    reference = {"message_id": "5", "channel_id": "501"}
    for alert in ({"embeds": [ALERT]}, {"components": LAYOUT}):
        answered = message("501", user("9", bot=True), "", **alert)
        found = read("why?", type=19, message_reference=reference, referenced_message=answered)
        assert found.reply_to.text in {f"[embed: {ALERT_SHOWN}]", f"[{LAYOUT_SHOWN}]"}


def test_an_embed_of_any_size_is_bounded():
    fields = [{"name": "n" * 9000, "value": "v" * 9000}] * 500
    nested: dict = {"type": 10, "content": "deep"}
    for _ in range(1000):
        nested = {"type": 17, "components": [nested] * 2}
    found = read("", embeds=[{"fields": fields, "title": "t" * 9000}] * 9, components=[nested])
    assert len(found.shown) < 60_000


def test_a_mention_alone_asks_about_what_it_answers():
    photo = {"id": "1", "filename": "a.png", "content_type": "image/png", "url": "u"}
    answered = message("501", user("8"), "", attachments=[photo])
    reply = {"message_reference": {"message_id": "5"}, "referenced_message": answered}
    found = read(f"<@{BOT_ID}>", type=19, mentions=[BOT_USER], **reply)
    assert (found.text, [file.kind for file in found.reply_to.media]) == ("", ["photo"])
    assert isinstance(read(f"<@{BOT_ID}>", mentions=[BOT_USER]), Ignored)


THREAD = Room(Place("thread", parent="501", server="500"), channels={"501": "Which printer?"})


def test_a_thread_tells_its_title_and_with_what_it_began():
    start = message("501", user("8"), "It prints in green")
    found = normalise(CREATED, message("501", user("7"), "why?"), "a", ME, THREAD, start=start)
    assert found.title == "Which printer?"
    assert (found.reply_to.text, found.reply_to.is_start) == ("It prints in green", True)
    assert not found.mentions_bot
    own = message("501", BOT_USER, "I began it")
    message_ = message("501", user("7"), "why?")
    for nothing in (own, message_, {}, {"id": []}):
        assert normalise(CREATED, message_, "a", ME, THREAD, start=nothing).reply_to is None


def test_files_stickers_and_voice_are_described():
    attachments = [
        {"filename": "a.png", "content_type": "image/png", "size": 5, "url": "https://x/a"},
        {"filename": "b.mp4", "content_type": "video/mp4", "size": -1, "url": "y" * 3000},
        {"filename": "c.txt", "content_type": "text/plain; charset=utf-8", "size": "x"},
        {"filename": "d", "content_type": None},
    ]
    found = read("", attachments=attachments, sticker_items=[{"id": "5", "name": "hi"}])
    assert found.media[0] == Media("photo", "a.png", "image/png", 5, "https://x/a")
    assert [m.kind for m in found.media[1:]] == ["video", "document", "document", "sticker"]
    assert (found.media[1].size, found.media[1].ref) == (0, "")
    assert found.media[2].mime == "text/plain"
    assert found.media[4].ref == "https://cdn.discordapp.com/stickers/5.png"
    voice = {"filename": "voice.ogg", "content_type": "audio/ogg", "duration_secs": 2}
    assert read("", attachments=[voice], flags=1 << 13).media[0].kind == "voice"
    assert read("", attachments=[voice]).media[0].kind == "audio"
    assert len(read("", attachments=attachments * 50).media) == 20


def test_an_edit_corrects_the_message_before():
    stamp = "2026-11-21T12:00:00.123000+00:00"
    found = read("new", kind=UPDATED, id="5", edited_timestamp=stamp)
    assert (found.edit_of, found.message_id) == ("5", "5:e1795262400123")
    assert found.sent_at == 1_795_262_400_123
    assert read("x", kind=UPDATED) == Ignored("unchanged")
    assert read("x", kind=UPDATED, edited_timestamp="soon") == Ignored("unchanged")
    assert normalise(
        UPDATED,
        {"id": "5", "channel_id": "1", "author": user("7"), "edited_timestamp": stamp},
        "default",
        ME,
        ROOM,
    ) == Ignored("unchanged")
    # One that was edited before it was read corrects nothing, and its edit is known by its id.
    late = read("x", id="5", edited_timestamp=stamp)
    assert (late.message_id, late.edit_of) == ("5:e1795262400123", "")
    assert late.sent_at == sent_at("5")


def test_ids_and_times_are_told_from_each_other():
    assert sent_at(first_id_at(1_795_262_400_000)) == 1_795_262_400_000
    assert first_id_at(0) == "0"
    for text, number in {
        "12": "12",
        "12:e5": "12",
        "private-8-7": "7",
        "interaction-7": "7",
        "x": "",
        "": "",
    }.items():
        assert number_in(text) == number


# --- places --------------------------------------------------------------------------------------


def test_places_are_told_by_their_servers():
    places = Places()
    places.me = BOT_ID
    places.connected({"guilds": [{"id": "500", "unavailable": True}]})
    assert not places.described.is_set()
    places.hear("GUILD_CREATE", guild())
    assert places.described.is_set()
    assert places.place("501") == Place("channel", "", "500")
    assert places.place("601") == Place("thread", "501", "500")
    assert places.room(Place("channel", "", "500")).ours == {"510"}
    places.hear("THREAD_DELETE", {"id": "601", "guild_id": "500"})
    assert places.place("601") is None
    places.hear("GUILD_ROLE_DELETE", {"guild_id": "500", "role_id": "510"})
    assert not places.room(Place("channel", "", "500")).ours
    places.hear("GUILD_DELETE", {"id": "500", "unavailable": True})
    assert places.place("501")
    places.hear("GUILD_DELETE", {"id": "500"})
    assert places.place("501") is None


@pytest.mark.parametrize(
    ("channel", "kind"),
    [
        ({"type": 1}, "direct"),
        ({"type": 3}, "group"),
        ({"type": 99}, "group"),
        ({}, "group"),
        ({"type": 1, "guild_id": "5"}, "channel"),
        ({"type": 12, "guild_id": "5"}, "thread"),
        ({"type": 2, "guild_id": "5"}, "channel"),
        ({"type": 99, "guild_id": "5"}, "channel"),
    ],
)
def test_only_a_direct_chat_is_one(channel, kind):
    assert Places().learn({"id": "9", **channel}).kind == kind


def test_places_met_one_by_one_are_bounded(monkeypatch):
    monkeypatch.setattr("adapters.discord.places.MAX_UNLISTED", 10)
    places = Places()
    for number in range(1, 100):
        places.learn({"id": str(number), "type": 1})
    assert places.place("1") is None
    assert places.place("99")


# --- interactions --------------------------------------------------------------------------------


ALONE = {"guild_id": None, "member": None, "user": user("7")}


def interaction(**extra):
    return {
        "id": "1000000000000000",
        "application_id": "900",
        "type": 2,
        "token": "t",
        "channel_id": "501",
        "guild_id": "500",
        "channel": {"id": "501", "type": 0},
        "member": {"user": user("7"), "nick": "Ada"},
        "data": {"name": "status"},
        "locale": "zh-CN",
        **extra,
    }


@pytest.mark.parametrize(
    ("extra", "text", "kind"),
    [
        ({}, "/status", "channel"),
        ({"data": {"name": "new", "options": [{"name": "text", "value": " a b "}]}}, "/new a b", 0),
        ({"data": {"name": "new", "options": [{"name": "odd", "value": "a"}, 5]}}, "/new", 0),
        ({"type": 3, "data": {"custom_id": "/compact"}, "message": {"id": "5"}}, "/compact", 0),
        (
            {"guild_id": None, "member": None, "user": user("7"), "channel": {"type": 1}},
            0,
            "direct",
        ),
        ({**ALONE, "channel": None, "context": 1}, 0, "direct"),
        ({**ALONE, "channel": None}, 0, "group"),
        ({**ALONE, "channel": {"type": 3}}, 0, "group"),
        ({**ALONE, "channel": {"type": 1}, "context": 2}, 0, "group"),
    ],
)
def test_commands_and_presses_read_as_if_typed(extra, text, kind):
    found = pressed(interaction(**extra), "default", ME)
    assert found.text == (text or "/status")
    assert found.chat_type == (kind or "channel")
    assert (found.sender, found.locale, found.mentions_bot) == ("7", "zh-CN", True)


@pytest.mark.parametrize(
    "extra",
    [
        {"type": 1},
        {"type": 4},
        {"id": 5},
        {"token": ""},
        {"data": None},
        {"data": {"name": ""}},
        {"member": None},
        {"member": {"user": BOT_USER}},
        {"type": 3, "data": {"custom_id": "no command"}},
        {"type": 3, "data": {"custom_id": "/" + "x" * 100}},
        {"channel_id": None, "channel": None},
    ],
)
def test_anything_else_is_no_message(extra):
    assert pressed(interaction(**extra), "default", ME) is None


def test_an_answer_is_private_unless_its_command_is_known_to_be_public():
    public = {command.name for command in menu("en") if not command.is_private}
    for name in ("status", "whoami", "help", "context", "memory", "usage", "whosees", "reminders"):
        assert interaction_of(interaction(data={"name": name}), public).is_private
    for name in ("new", "undo", "compact"):
        assert not interaction_of(interaction(data={"name": name}), public).is_private
        assert interaction_of(interaction(data={"name": name})).is_private


def test_the_id_of_a_private_command_says_whom_to_answer_alone():
    private = interaction_of(interaction(data={"name": "status"}))
    public = interaction_of(interaction(data={"name": "new"}), {"new"})
    assert private_to(private.message_id) == private.person == "7"
    assert private.message_id.endswith(f"-{private.id}")
    for other in (public.message_id, "", "private", "private-7", "private--5", "private-x-5", "12"):
        assert private_to(other) == ""


# --- anything at all -----------------------------------------------------------------------------

SEEDS = [
    message("501", user("7"), "hello <@100> <@8>", mentions=[user("8"), BOT_USER]),
    message(
        "501", user("7"), "<#501>", type=19, guild_id="500", member={"nick": "n"},
        message_reference={"message_id": "5", "type": 0}, mention_roles=["510"],
        referenced_message=message("501", BOT_USER, "before"), webhook_id=None,
    ),
    message(
        "501", user("7"), "", flags=1 << 13, embeds=[ALERT], components=LAYOUT,
        attachments=[{"filename": "a", "content_type": "audio/ogg", "size": 5, "url": "u"}],
        sticker_items=[{"id": "5", "name": "s", "format_type": 4}],
        poll={"question": {"text": "q"}, "answers": [{"poll_media": {"text": "a"}}]},
        message_reference={"type": 1},
        message_snapshots=[{"message": {"content": "c", "embeds": [{"title": "t"}]}}],
        edited_timestamp="2026-11-21T12:00:00+00:00",
    ),
    interaction(type=3, data={"custom_id": "/x"}, message={"id": "5"}),
    interaction(data={"name": "new", "options": [{"name": "text", "value": "x"}]}),
]  # fmt: skip


def _fuzz(count, seed):
    dice = random.Random(seed)  # noqa: S311  # the same each time
    places = Places()
    places.me = BOT_ID
    dropped = {}
    kept = 0
    for _ in range(count):
        data = mutated(SEEDS, dice) if dice.random() < 0.97 else dice.choice(ODD)
        room = dice.choice((ROOM, DIRECT))
        found = normalise(dice.choice((CREATED, UPDATED)), data, "default", ME, room)
        if isinstance(found, Ignored):
            dropped[found.reason] = dropped.get(found.reason, 0) + 1
        else:
            kept += 1
            found.shown.encode()
            assert found.shown or found.media or found.reply_to
            assert "\0" not in found.shown + found.sender_name
            assert found.chat.isdecimal()
            assert found.sender.isdecimal()
            assert found.sender != BOT_ID
            assert len(found.message_id) < 64
            assert 0 <= found.sent_at < 1 << 63
            assert len(found.media) <= 20
        interaction_of(data)
        pressed(data, "default", ME)
        described = mutated([guild()], dice) if dice.random() < 0.1 else data
        if isinstance(described, dict):
            places.hear(dice.choice(EVENTS), described)
    return kept, dropped


def test_no_mutated_event_breaks_anything():
    kept, dropped = _fuzz(3000, 1)
    assert kept > 300
    assert set(dropped) >= {"malformed", "unchanged", "empty"}


@pytest.mark.proof
def test_no_mutated_event_of_very_many_breaks_anything():
    count = rounds(100_000, few=20_000)
    kept, dropped = _fuzz(count, 2)
    assert kept + sum(dropped.values()) == count


@pytest.mark.parametrize(
    ("status", "code", "ours"),
    [
        (500, 0, SendTransient),
        (401, 0, SendTransient),
        (408, 0, SendTransient),
        (403, 0, SendTransient),
        (403, 50013, SendUnreachable),
        (404, 10003, SendUnreachable),
        (400, 50035, SendRefused),
    ],
)
def test_every_answer_is_an_error_of_the_contract(status, code, ours):
    found = answered(status, {"code": code, "message": "words"})
    assert isinstance(found, ours)
    assert isinstance(found, SendUnreachable) is (ours is SendUnreachable)
    assert (found.status, found.code) == (status, code)


def test_a_reason_is_short_and_on_one_line():
    said = str(answered(400, {"code": 5, "message": "a\n" + "x" * 1000}))
    assert "\n" not in said
    assert len(said) < 250


def test_a_refusal_that_lasts_never_costs_the_token():
    pace = Pace()
    assert 24 * 3600 / pace.rejected < 1000  # Discord resets it at 1000 identifies a day
    restarts = Backoff(pace.first, pace.rejected)
    assert 24 * 3600 / [restarts.next() for _ in range(10)][-1] < 1000


def test_limits_are_kept_by_bucket_and_channel():
    now = [0.0]
    limits = RateLimits(lambda: now[0])
    path = "/channels/{channel_id}/messages"
    here, there = Route("POST", path, channel_id="1"), Route("POST", path, channel_id="2")
    headers = {"X-RateLimit-Bucket": "b", "X-RateLimit-Remaining": "1"}
    limits.learn(here, headers | {"X-RateLimit-Reset-After": "5"})
    assert limits.wait(here) == 0
    limits.take(here)
    assert limits.wait(here) == 5
    assert limits.wait(there) == 0
    now[0] = 5.5
    assert limits.wait(here) == 0
    limits.refused(there, 2, everywhere=True)
    assert limits.wait(here) == 2
    limits.learn(here, {"X-RateLimit-Remaining": "odd", "X-RateLimit-Reset-After": "1"})


def test_limits_do_not_grow_for_ever():
    now = [0.0]
    limits = RateLimits(lambda: now[0])
    for number in range(5000):
        now[0] += 1
        limits.refused(
            Route("GET", "/channels/{channel_id}", channel_id=number), 1, everywhere=False
        )
    assert len(limits._buckets) <= 1025


def test_a_menu_keeps_discords_rules():
    menus = {
        "": [
            Command("new", "d" * 200, "[model]"),
            Command("Bad Name", "x"),
            *[Command(f"c{n}", "") for n in range(200)],
        ],
        "zh": [Command("new", "新", "")],
        "tlh": [Command("new", "x")],
    }
    made = payload(menus)
    assert len(made) == 100
    assert len(made[0]["description"]) == 100
    assert made[0]["description_localizations"] == {"zh-CN": "新", "zh-TW": "新"}
    assert made[0]["options"][0]["description_localizations"] == {"zh-CN": "new", "zh-TW": "new"}
    assert all(command["description"] for command in made)


def test_pieces_hold_what_one_message_takes():
    def cut(*sizes: int, text="x"):
        files = tuple(Attachment("a", "", b"x" * size) for size in sizes)
        made = messages(Outbound("o", Address("discord", "a", "1"), text, attachments=files))
        return [(part.text, [len(f.data) for f in part.attachments]) for part in made]

    assert cut() == [("x", [])]
    with pytest.raises(SendRefused, match="nothing to show"):
        cut(text=" \u200b")
    assert cut(5, text="") == [("", [5])]
    assert cut(0, 10_000_001, 7) == [("x", [7])]
    assert cut(6_000_000, 6_000_000) == [("x", [6_000_000]), ("", [6_000_000])]


def test_rows_have_five_buttons_and_there_are_five():
    made = rows(tuple(Button("l" * 100, f"/b {n}") for n in range(40)))
    assert [len(row["components"]) for row in made] == [5] * 5
    assert len(made[0]["components"][0]["label"]) == 80


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Once", "Once ▍"),
        ("```py\nx = 1", "```py\nx = 1\n```\n▍"),
        ("```py\nx\n```\nand", "```py\nx\n```\nand ▍"),
    ],
)
def test_a_draft_shows_that_it_goes_on(text, shown):
    assert shortened(text) == shown


@pytest.mark.parametrize("letter", ["é", "😀", "中"])
def test_one_other_letter_does_not_shorten_a_draft(letter):
    text = letter + "x" * 1880
    assert shortened(text) == f"{text} ▍"
    assert units(shortened(letter + "x" * 5000)) >= 1900


@given(st.text(alphabet=st.sampled_from("xé中😀-"), max_size=4000))
def test_a_draft_shows_as_much_as_fits_and_no_half_of_a_letter(text):
    kept = shortened(text).removesuffix(" ▍").removesuffix(" …")
    assert text.startswith(kept)
    assert min(units(text), 1899) <= units(kept) <= 1900


def test_names_are_made_fit():
    assert len(nonce("x" * 500)) <= 25
    assert nonce("a") != nonce("b")
    assert file_name(Attachment('a"b\r\n/..c.png', "", b"")) == "a_b___..c.png"
    assert file_name(Attachment("", "", b"")) == "file"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain | text", "plain | text"),
        ("#### Deep **one**\n# Top", "**Deep one**\n# Top"),
        ("##### a # b ## \n#### ##\n#### ", "**a # b**\n#### ##\n#### "),
        ("![cat](https://e.org/c.png) `![x](y)`", "[cat](https://e.org/c.png) `![x](y)`"),
        ('![a](b "c d") ![e]( f) ![g]()', "[a](b) ![e]( f) ![g]()"),
        ("| a | b |\n|---|:-:|\n| 1 | **2** |\nend", "```\na | b\n--+--\n1 | 2\n```\nend"),
        ("a|b\n-|-\n中文|x\\|y", "```\na    | b\n-----+----\n中文 | x|y\n```"),
        ("```\n| a | b |\n|---|---|\n#### x\n```", "```\n| a | b |\n|---|---|\n#### x\n```"),
        ("| a | b |\n|---|---|", "```\na | b\n--+--\n```"),
    ],
)
def test_what_discord_does_not_show_is_made_readable(text, shown):
    assert rendered(text) == shown


@pytest.mark.parametrize("text", ["#### x" + " " * 1990 + "x", "![](" * 500, "![a](x" * 333])
def test_no_text_takes_long_to_render(text):
    began = time.process_time()
    rendered(text)
    assert time.process_time() - began < 0.5


def test_a_table_that_would_be_too_long_stays_as_it_is():
    table = (
        "| a | b |\n|---|---|\n" + "| 1 |\n" * 100 + "| " + "x" * 40 + " | y |\n" + "|1|2|\n" * 150
    )
    assert units(table) <= 2000
    assert rendered(table) == table
