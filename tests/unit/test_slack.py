"""The Slack channel: options, what it brings, what it sends; all of it without a network."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adapters.slack import SlackConfig, inbound, plugin
from adapters.slack.channel import LIMIT, Slack
from adapters.slack.inbound import Identity, number_in, plain, private_to, written
from adapters.slack.send import FALLBACK, MAX_BUTTONS, message
from bot.channel import Address, Attachment, Button, Inbound, Outbound
from bot.errors import SendRefused
from tests.odd import json_of

ME = Identity("U111", "confidant", "T111")
NAMES = {"U7": "ada", "C5": "general"}
BASE = Inbound("slack", "default", "C5", "channel", "U7", "", "", 0)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({}, []),
        ({"bot_token": "xoxb-1"}, []),
        ({"app_token": "xapp-1"}, []),
        ({"bot_token": " ", "app_token": "xapp-1"}, []),
        ({"bot_token": "xoxb-1", "app_token": "xapp-1"}, ["default"]),
        ({"accounts": {"work": {"bot_token": "xoxb-1", "app_token": "xapp-1"}}}, ["work"]),
        ({"accounts": {"default": {"bot_token": "xoxb-1", "app_token": "xapp-1"}}}, ["default"]),
    ],
)
def test_the_channel_is_ready_once_any_app_has_both_tokens(values, names):
    section = SlackConfig(**values)
    assert [*section.tokens()] == names
    assert plugin.ready(section) is bool(names)


@pytest.mark.parametrize(
    "values",
    [
        {"api_root": "ftp://slack.com"},
        {"proxy": "gopher://p"},
        {
            "bot_token": "xoxb-1",
            "app_token": "xapp-1",
            "accounts": {"work": {"bot_token": "xoxb-1", "app_token": "xapp-2"}},
        },
    ],
)
def test_what_cannot_work_is_an_error(values):
    with pytest.raises(ValidationError):
        SlackConfig(**values)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("<@U111> hi", "hi"),
        ("hi <@U111>, <@U111>", "hi @confidant,"),
        ("<@U111> tell <@U7> and <@U9|bob>", "tell @ada and @bob"),
        ("<#C5> <#C9|> <#C9|random>", "#general #channel #random"),
        ("<!here> <!subteam^S1|@team> <!date^1392734382^{date}|today>", "@here @team today"),
        (
            "<https://a.bc> <https://a.bc|a.bc> <https://a.bc|tea>",
            "https://a.bc a.bc tea (https://a.bc)",
        ),
        ("<mailto:a@b.cd|a@b.cd>", "a@b.cd"),
        ("1 &lt; 2 &amp;&amp; 3 &gt; 2 &amp;lt;", "1 < 2 && 3 > 2 &lt;"),
        ("<@U111>", ""),
        ("<@", "<@"),
    ],
)
def test_words_are_read_as_people_see_them(said, shown):
    assert plain(said, ME, NAMES) == shown


KEYS = (
    *("type", "subtype", "text", "user", "ts", "thread_ts", "edited", "message", "files", "bot_id"),
    *("attachments", "is_share", "actions", "value", "container", "message_ts", "trigger_id"),
)


JSON = json_of(
    st.integers() | st.text() | st.sampled_from(["<@U111>", "1.000002"]), st.sampled_from(KEYS), 30
)


@given(JSON, JSON)
def test_no_json_breaks_the_reading_of_an_event(event, root):
    event, root = (each if isinstance(each, dict) else {} for each in (event, root))
    if inbound.unwanted(event, ME) is None:
        found = inbound.normalise(event, BASE, ME, NAMES, root)
        assert isinstance(found, str) or found.message_id
    inbound.named_in(written(event)[0])
    inbound.command(event, BASE, frozenset())
    inbound.press(event, BASE)


def test_a_message_with_odd_files_keeps_those_that_make_sense():
    files = [{"mode": "tombstone"}, {"size": -3, "url_private": "x" * 3000, "name": "a\nb"}, 7]
    event = {"type": "message", "user": "U7", "ts": "1.000002", "files": files * 20}
    found = inbound.normalise(event, BASE, ME, NAMES, {})
    assert {(file.name, file.size, file.ref) for file in found.media} == {("a b", 0, "")}
    assert len(found.media) <= 20


@pytest.mark.parametrize(
    ("stamp", "number"),
    [("1610241741.000200", 1610241741000200), ("1.000002:e9", 1000002), ("1.2", 0), ("", 0)],
)
def test_a_stamp_is_a_number_of_microseconds(stamp, number):
    assert number_in(stamp) == number


def test_only_a_private_message_names_whom_to_answer_alone():
    assert private_to("private-U7-1.2.3") == "U7"
    assert [private_to(each) for each in ("command-1", "1.000002", "")] == ["", "", ""]


@given(st.text(max_size=200))
def test_nothing_that_is_sent_mentions_anybody(words):
    sent = message(f"<!channel> {words} <@U7>")
    assert not [mark for mark in ("<@", "<!", "<#") if mark in sent["blocks"][0]["text"]]
    assert "<" not in sent["text"]


def test_buttons_are_those_that_slack_takes():
    buttons = tuple(Button("L" * 100, f"/do {number}") for number in range(40))
    made = message("x" * 9000, (*buttons, Button("long", "/" + "x" * 3000), Button("no", "do")))
    elements = made["blocks"][1]["elements"]
    assert len(elements) == MAX_BUTTONS
    assert {len(each["text"]["text"]) for each in elements} == {75}
    assert len({each["action_id"] for each in elements}) == MAX_BUTTONS
    assert len(made["text"]) == FALLBACK


def test_files_are_a_message_behind_the_words():
    address, file = Address("slack", "default", "C5"), Attachment("a", "text/plain", b"a")
    channel = Slack(SlackConfig())
    made = channel.render(Outbound("o", address, "word " * LIMIT, attachments=(file,)))
    assert [bool(piece.text) for piece in made] == [*[True] * (len(made) - 1), False]
    assert made[-1].attachments == (file,)
    with pytest.raises(SendRefused):
        channel.render(Outbound("o", address, "\n"))


async def test_what_is_not_connected_may_be_later():
    channel = Slack(SlackConfig())
    await channel.draft(Address("slack", "default", "C5"), "d", "so far")
    assert not await channel.is_admin(Address("slack", "default", "C5"), "U7")
    await channel.stop()
