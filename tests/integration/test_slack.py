"""The Slack channel with the real SDK on the fake server: what comes, what goes, what fails."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec

import pytest
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from adapters.slack import channel as module
from adapters.slack.channel import Slack
from adapters.slack.send import MARK
from bot.channel import Address, Attachment, Button, Command, Health, Outbound
from bot.errors import SendLater, SendRefused, SendTransient, SendUnreachable
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, FakeSlack, words
from tests.fakes.slack_channel import running, settings
from tests.fakes.telegram_channel import WatchingEngine
from tests.support import post, until

ME = "<@U111>"


class Engine(WatchingEngine):
    """One of its commands is private."""

    def commands(self, locale: str):
        return (Command("new", "Start"), Command("whoami", "Who", is_private=True))


@pytest.fixture
async def fake():
    async with FakeSlack() as server:
        server.person("U8", "Bob", is_admin=True)
        yield server


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
async def channel(fake, engine):
    async with running(engine, settings(fake)) as made:
        await engine.wait_said(Health.UP)
        yield made


async def received(engine, count=1):
    await engine.wait_until(lambda e: len(e.received) >= count)
    return engine.received[-1]


async def dropped(engine, reason, count=1):
    await until(lambda: engine.drops[reason] >= count)


def at(chat, thread=""):
    return Address("slack", "default", chat, thread)


# --- reactions -----------------------------------------------------------------------------------


async def test_reactions_to_what_the_bot_said_are_told_and_others_are_not(fake, engine, channel):
    made = await fake.say("U7", "hello")
    await received(engine)
    await post(channel, Outbound("o", at(made["channel"]), "hi"))
    (sent,) = fake.sent
    await fake.react("U7", sent, "+1::skin-tone-2")
    await fake.react("U7", sent, "+1::skin-tone-2", "removed")
    await fake.react("U7", made)
    await fake.react("U111", sent)  # the bot itself
    await dropped(engine, "reaction", 2)
    put, taken = engine.reactions
    assert (put.address, put.message_id, put.emoji) == (at(made["channel"]), sent["ts"], ":+1:")
    assert (put.sender, put.sender_name, put.chat_type) == ("U7", "ada", "direct")
    assert (put.from_bot, put.is_removed, taken.is_removed) == (True, False, True)


# --- what comes in -------------------------------------------------------------------------------


async def test_a_direct_message_says_who_wrote_in_which_zone_and_language(fake, engine, channel):
    made = await fake.say("U7", "tea &amp; <https://a.bc|cake>?")
    got = await received(engine)
    assert (got.chat_type, got.sender, got.sender_name) == ("direct", "U7", "ada")
    assert (got.text, got.zone, got.locale) == (
        "tea & cake (https://a.bc)?",
        "Europe/Vienna",
        "en-US",
    )
    assert (got.message_id, got.server) == (made["ts"], "T111")
    assert got.sent_at == int(float(made["ts"]) * 1000)


async def test_an_envelope_is_acknowledged_only_once_its_message_is_stored(fake, engine, channel):
    engine.failures = 3
    await fake.say("U7", "hello")
    await engine.wait_until(lambda e: e.attempts == 3)
    assert not fake.acknowledged
    await fake.wait_for(lambda: bool(fake.acknowledged))
    assert [inbound.text for inbound in engine.received] == ["hello"]


async def test_what_was_not_acknowledged_has_the_same_id_when_it_comes_again(fake, engine):
    engine.failures = 1000
    async with running(engine, settings(fake)):
        await fake.wait_for(lambda: fake.connections == 1)
        await fake.say("U7", "hello")
        await engine.wait_until(lambda e: e.attempts > 0)
    assert fake.unacknowledged
    engine.failures = 0
    async with running(engine, settings(fake)):
        await fake.wait_for(lambda: fake.connections == 2)
        await fake.again()
        got = await received(engine)
        assert got.message_id == fake.messages["DU7"][0]["ts"]
        await fake.wait_for(lambda: not fake.unacknowledged)


async def test_a_mention_that_comes_as_two_events_has_one_id(fake, engine, channel):
    made = await fake.say("U7", f"{ME} hi <@U8> in <#C5>", "C5")
    mention = {key: made[key] for key in made if key != "channel_type"}
    await fake.event(mention | {"type": "app_mention"})
    await received(engine, 2)
    first, second = engine.received
    assert (first.message_id, first.address) == (second.message_id, second.address)
    assert (first.text, first.chat_type) == ("hi @Bob in #general", "channel")
    assert first.mentions_bot
    assert first.chat_type == second.chat_type


async def test_a_thread_is_a_conversation_that_begins_with_its_first_message(fake, engine, channel):
    root = fake.message("U8", "the invoice", "C5")
    await fake.say("U7", "what of it?", "C5", thread_ts=root["ts"])
    await fake.say("U7", f"{ME} is it paid?", "C5", thread_ts=root["ts"])
    await fake.say("U7", f"{ME} and now?", "C5", thread_ts=root["ts"])
    await received(engine, 3)
    along, asked, again = engine.received
    assert {each.address for each in engine.received} == {at("C5", root["ts"])}
    assert (along.reply_to, along.mentions_bot) == (None, False)
    assert asked.reply_to.text == "the invoice"
    assert (asked.reply_to.sender_name, asked.reply_to.is_start) == ("Bob", True)
    assert again.reply_to is None


async def test_who_answers_in_the_thread_of_the_bots_message_means_the_bot(fake, engine, channel):
    sent = await post(channel, Outbound("o", at("C5"), "Shall I?"))
    await fake.say("U7", "yes", "C5", thread_ts=sent)
    got = await received(engine)
    assert got.mentions_bot
    assert (got.reply_to.text, got.reply_to.from_bot) == ("Shall I?", True)


async def test_an_edit_replaces_and_a_deletion_is_left_alone(fake, engine, channel):
    made = await fake.say("U7", "tee")
    await received(engine)
    await fake.edit(made, "tea")
    got = await received(engine, 2)
    assert (got.edit_of, got.text) == (made["ts"], "tea")
    assert got.message_id.startswith(f"{made['ts']}:e")
    await fake.delete(made)
    await dropped(engine, "deleted")


UNWANTED = {
    "own": {"user": "U111"},
    "from_bot": {"bot_id": "B9"},
    "service": {"subtype": "channel_join"},
    "malformed": {"user": 7},
    "empty": {"text": " "},
}


@pytest.mark.parametrize(("reason", "more"), UNWANTED.items())
async def test_what_nobody_said_is_counted_and_acknowledged(fake, engine, channel, reason, more):
    await fake.event(fake.message("U7", "x") | more)
    await dropped(engine, reason)
    await fake.wait_for(lambda: not fake.unacknowledged)
    assert not engine.received


@pytest.mark.parametrize(
    "frame",
    [
        "no json",
        "[]",
        '{"type":"events_api","payload":7,"envelope_id":"e"}',
        json.dumps({"type": "events_api", "payload": {"event": {"type": "emoji_changed"}}}),
        json.dumps({"type": "interactive", "payload": {"type": "view_closed", "channel": {}}}),
        json.dumps(
            {"type": "events_api", "payload": {"event": {"type": "message", "channel": []}}}
        ),
    ],
)
async def test_an_unknown_frame_ends_nothing(fake, engine, channel, frame):
    await fake.frame(frame)
    await dropped(engine, "unknown")
    await fake.say("U7", "still here")
    assert (await received(engine)).text == "still here"
    assert fake.connections == 1


async def test_a_message_that_cannot_be_read_holds_up_no_other(fake, engine, channel, monkeypatch):
    def broken(*_values: object):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("adapters.slack.inbound.normalise", broken)
        await fake.say("U7", "odd")
        await dropped(engine, "malformed")
    await fake.say("U7", "next")
    assert (await received(engine)).text == "next"
    await fake.wait_for(lambda: not fake.unacknowledged)


async def test_what_was_shared_is_not_the_senders_words(fake, engine, channel):
    file = fake.file("plan.pdf", b"pdf", "application/pdf")
    shared = {"is_share": True, "author_name": "Bob", "text": "see <@U7>", "files": [file]}
    await fake.say("U7", "", attachments=[shared])
    got = await received(engine)
    assert got.text == ""
    assert [(part.kind, part.text, part.author) for part in got.foreign] == [
        ("forwarded", "see @someone", "Bob")
    ]
    assert [media.name for media in got.media] == ["plan.pdf"]


async def test_a_message_of_names_only_is_read_although_slack_tells_none(fake, engine, channel):
    fake.always["users.info"] = "ratelimited"
    await fake.say("U7", "ask <@U8>")
    got = await received(engine)
    assert (got.text, got.sender_name) == ("ask @someone", "")


# --- files ---------------------------------------------------------------------------------------


async def test_a_voice_clip_is_fetched_with_the_token(fake, engine, channel):
    clip = fake.file("a.m4a", b"sound", "audio/mp4", subtype="slack_audio")
    await fake.say("U7", "", subtype="file_share", files=[clip])
    got = await received(engine)
    assert (got.voice.mime, got.voice.size) == ("audio/mp4", 5)
    assert await channel.fetch(got.address, got.voice, 5) == b"sound"
    with pytest.raises(SendRefused, match="too large"):
        await channel.fetch(got.address, got.voice, 4)


@pytest.mark.parametrize("answered", [(302, "", b""), (200, "text/html", b"<html>sign in")])
async def test_the_page_to_sign_in_is_no_file_and_names_the_scope(fake, engine, channel, answered):
    file = fake.file("a.txt", b"text", "text/plain")
    await fake.say("U7", "", files=[file])
    got = await received(engine)
    fake.files["a.txt"] = answered
    with pytest.raises(SendUnreachable, match="files:read"):
        await channel.fetch(got.address, got.media[0], 100)
    assert "files:read" in engine.health["slack", "default"][1]


@pytest.mark.parametrize("ref", ["", "https://evil.example/a", "http://files.slack.com/a", "://"])
async def test_the_token_goes_nowhere_but_to_slack(fake, engine, channel, ref):
    await fake.say("U7", "", files=[fake.file("a.txt", b"text", "text/plain", url_private=ref)])
    got = await received(engine)
    with pytest.raises(SendRefused, match="does not lie at Slack"):
        await channel.fetch(got.address, got.media[0], 100)


async def test_files_of_a_thread_are_shared_there(fake, engine, channel):
    root = fake.message("U7", "send it", "C5")
    file = Attachment("ünï <1>.txt", "text/plain", b"text")
    await post(channel, Outbound("o", at("C5", root["ts"]), "Here.", attachments=(file,)))
    assert fake.uploaded == ["ünï__1_.txt"]
    (shared,) = fake.called("files.completeUploadExternal")
    assert (shared["channel_id"], shared["thread_ts"]) == ("C5", root["ts"])


# --- commands and buttons ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "text"), [("new gpt", "/new gpt"), ("", "/help"), ("/new", "/new")]
)
async def test_the_slash_command_is_the_command_behind_it(fake, engine, channel, typed, text):
    await fake.command("U7", typed)
    got = await received(engine)
    assert (got.text, got.chat_type, got.mentions_bot) == (text, "direct", True)
    assert got.message_id.startswith("command-")


async def test_a_private_answer_in_a_channel_is_seen_by_one_person(fake, engine, channel):
    await fake.command("U7", "whoami", "C5")
    got = await received(engine)
    answer = Outbound("o", at("C5"), "You are U7.", reply_to=got.message_id)
    await post(channel, answer)
    assert [(each["user"], words(each)) for each in fake.ephemeral] == [("U7", "You are U7.")]
    assert not fake.shown
    # Where the bot is not, in the person's own chat.
    fake.always["chat.postEphemeral"] = "not_in_channel"
    await post(channel, answer)
    assert fake.shown[0].endswith("You are U7.")
    assert fake.sent[0]["channel"] == "DU7"


async def test_a_direct_chat_of_two_people_is_no_direct_chat_of_the_bot(fake, engine, channel):
    await fake.command("U7", "whoami", fake.chat("D9", is_im=True, user="U8"))
    assert (await received(engine)).chat_type == "group"


async def test_a_press_takes_the_buttons_away(fake, engine, channel):
    buttons = (Button("Yes", "/answer yes"), Button("Yes", "/answer yes"), Button("", "/x"))
    sent = await post(channel, Outbound("o", at("C5"), "Sure?", buttons=buttons))
    below = next(each for each in fake.sent if each["ts"] == sent)
    assert len(below["blocks"][1]["elements"]) == 1
    await fake.bring("interactive", fake.pressing("U7", below, "/answer yes"))
    got = await received(engine)
    assert (got.text, got.address, got.sender) == ("/answer yes", at("C5"), "U7")
    await fake.wait_for(lambda: len(below["blocks"]) == 1)
    assert words(below) == "Sure?"


async def test_only_an_admin_of_this_workspace_is_one(fake, engine, channel):
    fake.person("U9", "guest", is_admin=True, team_id="T999")
    found = [await channel.is_admin(at("C5"), each) for each in ("U7", "U8", "U9", "U404")]
    assert found == [False, True, False, False]


# --- what goes out -------------------------------------------------------------------------------


async def test_a_reply_mentions_nobody_and_unfurls_nothing(fake, engine, channel):
    await post(channel, Outbound("o", at("C5"), "<!channel> <@U7> **a < b** `<#C5>`"))
    (sent,) = fake.called("chat.postMessage")
    for text in (words(fake.sent[0]), sent["text"]):
        assert not {mark for mark in ("<!", "<@", "<#") if mark in text}
    assert (sent["unfurl_links"], sent["unfurl_media"]) == (False, False)


ERRORS = {
    "internal_error": SendTransient,
    "token_revoked": SendTransient,
    "not_in_channel": SendUnreachable,
    "is_archived": SendUnreachable,
    "missing_scope": SendUnreachable,
    "msg_blocks_too_long": SendRefused,
}


@pytest.mark.parametrize(("code", "kind"), ERRORS.items())
async def test_each_error_of_slack_is_one_of_the_contract(fake, engine, channel, code, kind):
    fake.always["chat.postMessage"] = code
    with pytest.raises(kind) as caught:
        await post(channel, Outbound("o", at("C5"), "hello"))
    assert type(caught.value) is kind or issubclass(kind, (SendTransient, SendUnreachable))
    assert BOT_TOKEN not in str(caught.value)


async def test_a_server_that_fails_is_asked_later(fake, engine, channel):
    fake.fail("chat.postMessage", "", 503)
    with pytest.raises(SendTransient):
        await post(channel, Outbound("o", at("C5"), "hello"))
    fake.fail("chat.postMessage", "ratelimited", 429)
    with pytest.raises(SendLater):
        await post(channel, Outbound("o", at("C5"), "hello"))


async def test_a_revoked_token_is_named_until_it_works_again(fake, engine, channel):
    fake.always["chat.postMessage"] = "token_revoked"
    with pytest.raises(SendTransient):
        await post(channel, Outbound("o", at("C5"), "hello"))
    health, detail = engine.health["slack", "default"]
    assert health is Health.DOWN
    assert "token_revoked" in detail
    assert "api.slack.com/apps" in detail
    del fake.always["chat.postMessage"]
    await post(channel, Outbound("o", at("C5"), "hello"))
    assert engine.health["slack", "default"][0] is Health.UP


# --- the connection ------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["warning", "refresh_requested"])
async def test_when_slack_asks_for_it_a_new_connection_takes_over(fake, engine, channel, reason):
    await fake.disconnect(reason)
    await fake.wait_for(lambda: fake.connections == 2)
    await fake.say("U7", "hello")
    assert (await received(engine)).text == "hello"
    assert engine.said(Health.DOWN) == engine.said(Health.DEGRADED) == []


@pytest.mark.parametrize(
    ("method", "code", "word"),
    [
        ("auth.test", "invalid_auth", "xoxb"),
        ("apps.connections.open", "invalid_auth", "xapp"),
        ("apps.connections.open", "missing_scope", "chat:write"),
    ],
)
async def test_what_only_a_person_can_change_is_said_and_tried_again(
    fake, engine, method, code, word
):
    fake.always[method] = code
    async with running(engine, settings(fake)):
        assert word in await engine.wait_said(Health.DOWN)
        del fake.always[method]
        await engine.wait_said(Health.UP)


async def test_socket_mode_switched_off_is_named(fake, engine, channel):
    await fake.disconnect("link_disabled")
    assert "Socket Mode is off" in await engine.wait_said(Health.DOWN)


async def test_what_was_said_during_a_downtime_is_read_back_once(fake, engine):
    async with running(engine, settings(fake)):
        await fake.wait_for(lambda: fake.connections == 1)
        root = await fake.say("U7", "root", "C5")
        edited = await fake.say("U7", "one")
        await received(engine, 2)
    fake.message("U7", "two")
    fake.message("U7", f"{ME} in the thread", "C5", thread_ts=root["ts"])
    fake.person("U9", "new")
    fake.message("U9", "my first words")
    edited |= {"text": "one!", "edited": {"user": "U7", "ts": fake.stamp()}}
    left = fake._chat_postMessage({"channel": "DU7", "text": f"half {MARK}"})["ts"]
    async with running(engine, settings(fake)):
        await received(engine, 6)
        await fake.wait_for(lambda: left not in [each["ts"] for each in fake.messages["DU7"]])
    texts = [each.text for each in engine.received]
    assert sorted(texts[2:]) == ["in the thread", "my first words", "one!", "two"]
    assert len({(each.address, each.message_id) for each in engine.received}) == 6


async def test_rooms_it_does_not_listen_in_are_not_read(fake, engine):
    async with running(engine, settings(fake)):
        await fake.wait_for(lambda: fake.connections == 1)
        await fake.say("U7", "said", "C5")
        await received(engine)
    fake.calls.clear()
    fake.message("U7", "missed", "C5")
    async with running(engine, settings(fake, group_policy="allowlist")):
        await fake.wait_for(lambda: fake.connections == 2)
        await fake.say("U7", "now")
        await received(engine, 2)
    assert [each["channel"] for each in fake.called("conversations.history")] == ["DU7"]


async def test_history_that_slack_refuses_or_puts_off_holds_nothing_up(fake, engine, monkeypatch):
    monkeypatch.setattr("bot.channel.kit.client.LATER", 0.01)
    async with running(engine, settings(fake)):
        await fake.say("U7", "one")
        await fake.wait_for(lambda: fake.connections == 1)
        await fake.say("U7", "two")
        await received(engine)
    fake.fail("conversations.history", "ratelimited", 429, **{"Retry-After": "0"})
    fake.fail("conversations.history", "missing_scope")
    async with running(engine, settings(fake)):
        await fake.wait_for(lambda: fake.connections == 2)
        await fake.say("U7", "three")
        await engine.wait_until(lambda e: e.received[-1].text == "three")


async def test_another_node_takes_over_and_gives_back(fake, engine, channel):
    engine.take_away()
    await until(lambda: "Another node" in engine.health["slack", "default"][1])
    engine.free.set()
    await fake.wait_for(lambda: fake.connections == 2)
    await fake.say("U7", "hello")
    assert (await received(engine)).text == "hello"


# --- setting up ----------------------------------------------------------------------------------


async def test_a_token_is_tried_before_it_is_kept(fake, engine):
    def tried(**values):
        return Slack(settings(fake, **values))

    assert (await tried().tried("bot_token")).name == "confidant"
    assert (await tried().tried("app_token")).outcome == "known"
    assert (await tried(bot_token="xoxb-0").tried("bot_token")).outcome == "refused"
    assert (await tried(api_root="http://127.0.0.1:1/").tried("bot_token")).outcome == "unreachable"
    assert (await tried().tried("proxy")).outcome == "untried"
    fake.fail("auth.test", "ratelimited", 429)
    assert (await tried().tried("bot_token")).outcome == "busy"


async def test_the_doctor_says_whose_the_tokens_are_and_what_is_wrong(fake):
    accounts = {"work": {"bot_token": "xoxb-9"}}
    found = await Slack(settings(fake, app_token="xapp-9", accounts=accounts)).examine()
    assert [(each.level, each.id, each.account) for each in found] == [
        ("error", "slack.no_token", "work"),
        ("ok", "slack.bot_token", "default"),
        ("error", "slack.refused", "default"),
    ]
    assert "xapp" in str(found[2].values["why"])


async def test_without_the_sdk_the_command_that_installs_it_is_said(fake, engine, monkeypatch):
    def missing(name):
        return None if name == "slack_sdk" else find_spec(name)

    monkeypatch.setattr(module, "find_spec", missing)
    async with running(engine, settings(fake)) as channel:
        assert "confidant-bot[slack]" in engine.health["slack", "default"][1]
        assert [each.id for each in await channel.examine()] == ["slack.not_installed"]


async def test_the_fake_speaks_as_the_sdks_own_socket_client_expects(fake):
    web = AsyncWebClient(BOT_TOKEN, fake.api_root)
    heard = []

    async def listener(client, request):
        heard.append(request)
        await client.send_socket_mode_response(SocketModeResponse(request.envelope_id))

    client = SocketModeClient(APP_TOKEN, web_client=web)
    client.socket_mode_request_listeners.append(listener)
    await client.connect()
    try:
        await fake.wait_for(lambda: fake.connections == 1)
        await fake.say("U7", "hello")
        await fake.command("U7", "new")
        await fake.wait_for(lambda: not fake.unacknowledged)
    finally:
        await client.close()
    assert [request.type for request in heard] == ["events_api", "slash_commands"]


async def test_the_log_holds_no_text_token_or_address(fake, engine, capsys, caplog):
    fake.always["users.info"] = "user_not_found"
    async with running(engine, settings(fake)) as channel:
        await fake.wait_for(lambda: fake.connections == 1)
        await fake.say("U7", "a secret canary")
        await received(engine)
        fake.fail("chat.postMessage", "fatal_error")
        with pytest.raises(SendTransient):
            await post(channel, Outbound("o", at("DU7"), "another canary"))
        await fake.cut()
        await fake.wait_for(lambda: fake.connections == 2)
    log = "".join(capsys.readouterr()) + caplog.text
    assert not [secret for secret in ("canary", BOT_TOKEN, APP_TOKEN, "ticket") if secret in log]


async def test_stopping_in_the_middle_of_a_message_leaves_it_unacknowledged(fake, engine):
    engine.failures = 1000
    async with running(engine, settings(fake)) as channel:
        await fake.wait_for(lambda: fake.connections == 1)
        await fake.say("U7", "hello")
        await engine.wait_until(lambda e: e.attempts > 0)
        async with asyncio.timeout(10):
            await channel.stop()
    assert fake.unacknowledged
