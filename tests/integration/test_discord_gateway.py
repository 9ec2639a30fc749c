"""The real SDK on the fake gateway: connecting, staying, coming back, and catching up."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime

import aiohttp
import pytest

from adapters.discord.api import Answered, Rest, new_session
from adapters.discord.channel import Discord
from bot.channel import Address, Health, Outbound
from bot.commands.commander import menus
from bot.errors import ChannelError, SendLater, SendTransient
from bot.views.outcomes import told
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_channel import QUICK, account, running, settings
from tests.fakes.discord_parts import TOKEN, message, user
from tests.fakes.telegram_channel import WatchingEngine
from tests.support import post


@pytest.fixture
async def engine():
    return WatchingEngine()


@pytest.fixture
async def channel(fake, engine):
    async with running(engine, settings(fake)) as made:
        await engine.wait_said(Health.UP)
        yield made


async def eventually(ready):
    async with asyncio.timeout(60):
        while not ready():  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0)


def texts(engine):
    return [inbound.text for inbound in engine.received]


async def test_a_direct_message_arrives(fake, engine, channel):
    await fake.say("7", "hello")
    await engine.wait_until(lambda e: bool(e.received))
    got = engine.received[0]
    assert (got.chat_type, got.sender, got.chat, got.text) == ("direct", "7", "700007", "hello")


async def test_the_bot_asks_for_what_it_needs_and_nothing_else(fake, engine, channel):
    intents = fake.identified[0]["intents"]
    wanted = (0, 9, 10, 12, 13, 15)  # servers, messages and reactions there and in DMs, contents
    assert intents == sum(1 << bit for bit in wanted)


REACTED = {"user_id": "7", "message_id": "44", "channel_id": "501", "guild_id": "500"}
REACTED |= {"emoji": {"id": None, "name": "👍"}, "message_author_id": "100"}


async def test_reactions_to_its_own_messages_are_told_and_others_are_not(fake, engine, channel):
    added, removed = "MESSAGE_REACTION_ADD", "MESSAGE_REACTION_REMOVE"
    member = {"nick": "Ada", "user": user("7")}
    await fake.dispatch(added, REACTED | {"user_id": "100"})  # its own
    await fake.dispatch(added, REACTED | {"message_author_id": "8"})
    await fake.dispatch(added, REACTED | {"message_id": "x"})
    await fake.dispatch(added, REACTED | {"member": member, "emoji": {"id": "9", "name": "heron"}})
    await fake.dispatch(removed, {k: v for k, v in REACTED.items() if k != "message_author_id"})
    await engine.wait_until(lambda e: len(e.reactions) == 2)
    first, second = engine.reactions
    assert (first.emoji, first.sender, first.sender_name, first.from_bot, first.is_removed) == (
        *(":heron:", "7", "Ada", True, False),
    )
    assert (first.chat_type, first.server, first.message_id) == ("channel", "500", "44")
    assert (second.emoji, second.from_bot, second.is_removed) == ("👍", False, True)
    assert engine.drops["reaction"] == 3


async def test_the_invitation_is_known_once_discord_said_who_the_bot_is(fake, engine, channel):
    link = channel.invitation("default")
    assert link.startswith("https://discord.com/oauth2/authorize?client_id=")
    assert channel.invitation("nobody") == ""


@pytest.mark.parametrize(
    "place", [("501", "channel", ""), ("601", "thread", "501"), ("602", "thread", "502")]
)
async def test_channels_threads_and_forum_posts_are_told_apart(fake, engine, channel, place):
    chat, kind, parent = place
    await fake.say("7", "<@100> hello", chat, mentions=[{"id": "100", "username": "Confidant"}])
    await engine.wait_until(lambda e: bool(e.received))
    got = engine.received[0]
    assert (got.chat, got.chat_type, got.parent, got.server) == (chat, kind, parent, "500")
    assert (got.text, got.mentions_bot) == ("hello", True)


@pytest.mark.parametrize(("thread", "kept_in"), [("601", "501"), ("602", "602")])
async def test_a_mention_in_a_thread_brings_its_title_and_first_message(
    fake, engine, channel, thread, kept_in
):
    photo = {"id": "1", "filename": "a.png", "content_type": "image/png", "url": "u"}
    first = message(kept_in, user("8"), "It prints in green", attachments=[photo])
    fake.messages[kept_in].append(first | {"id": thread})
    mention = {"mentions": [{"id": "100", "username": "Confidant"}]}
    await fake.say("7", "<@100> why?", thread, **mention)
    await fake.say("7", "<@100> and now?", thread, **mention)
    await engine.wait_until(lambda e: len(e.received) == 2)
    got, later = engine.received
    assert got.title == {"601": "a thread", "602": "a post"}[thread]
    assert (got.reply_to.text, got.reply_to.is_start) == ("It prints in green", True)
    assert [file.name for file in got.reply_to.media] == ["a.png"]
    assert later.reply_to is None  # once is enough


async def test_a_thread_made_later_is_known_by_its_event_or_by_asking(fake, engine, channel):
    made = {"id": "603", "type": 11, "name": "new", "parent_id": "501", "guild_id": "500"}
    fake.channels["603"] = fake.channels["604"] = made
    await fake.dispatch("THREAD_CREATE", made)
    await fake.say("7", "one", "603")
    fake.channels["604"] = {**made, "id": "604"}
    await fake.say("7", "two", "604")
    await engine.wait_until(lambda e: len(e.received) == 2)
    assert {i.parent for i in engine.received} == {"501"}
    assert [c.path for c in fake.called("GET /channels/60")] == ["/channels/604"]


async def test_own_messages_and_those_of_other_bots_never_come_back(fake, engine, channel):
    await fake.say("7", "hello")
    await engine.wait_until(lambda e: bool(e.received))
    await post(channel, Outbound("o1", Address("discord", "default", "700007"), "reply"))
    await fake.say("9", "beep", "501", author={"id": "9", "username": "other", "bot": True})
    await fake.say("7", "again")
    await engine.wait_until(lambda e: len(e.received) == 2)
    assert texts(engine) == ["hello", "again"]
    assert engine.drops == {"own": 1, "from_bot": 1}


async def test_an_edit_corrects_the_message_and_a_preview_does_not(fake, engine, channel):
    made = await fake.say("7", "helo")
    await fake.dispatch("MESSAGE_UPDATE", {**made, "embeds": [{"title": "x"}]})
    await fake.edit(made, "hello")
    await fake.dispatch("MESSAGE_DELETE", {"id": made["id"], "channel_id": made["channel_id"]})
    await engine.wait_until(lambda e: len(e.received) == 2)
    assert engine.received[1].edit_of == made["id"]
    assert texts(engine) == ["helo", "hello"]


# --- coming back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [4000, 4009, 1000])
async def test_a_closed_connection_is_resumed_or_made_anew_and_nothing_is_missed(
    fake, engine, channel, code
):
    await fake.close_gateway(code)
    await fake.say("7", "while away")
    await engine.wait_until(lambda e: bool(e.received))
    assert texts(engine) == ["while away"]
    assert len(fake.resumed) + len(fake.identified) >= 2
    assert not engine.said(Health.DOWN)


async def test_a_resumed_session_gets_what_it_missed(fake, engine, channel):
    session = next(iter(fake.sessions.values()))
    await fake.close_gateway(4000)
    assert session.socket is None
    await fake.say("7", "one")
    await fake.say("7", "two")
    await engine.wait_until(lambda e: len(e.received) == 2)
    assert (len(fake.identified), len(fake.resumed)) == (1, 1)
    assert texts(engine) == ["one", "two"]
    assert not fake.called("GET /channels/700007/messages")


async def test_the_gateway_may_ask_to_reconnect(fake, engine, channel):
    await fake.signal(7)
    await fake.wait_for(lambda: bool(fake.resumed))
    assert len(fake.identified) == 1


async def test_an_invalid_session_is_no_failed_connection_and_costs_no_wait(fake, engine):
    never = replace(QUICK, first=3600.0, longest=3600.0, rejected=3600.0)
    async with running(engine, settings(fake), never):
        await engine.wait_said(Health.UP)
        await fake.signal(9, data=False)
        await fake.wait_for(lambda: len(fake.identified) == 2)
        await fake.wait_online()
        await fake.say("7", "hello")
        await engine.wait_until(lambda e: bool(e.received))
    assert not engine.said(Health.DOWN)


async def test_a_session_that_cannot_be_resumed_costs_no_wait(fake, engine, channel, logs):
    fake.sessions.clear()
    await fake.cut_gateway()
    await fake.wait_for(lambda: len(fake.identified) == 2)
    waits = [log["retry_in"] for log in logs if log["event"] == "discord.connection.lost"]
    assert waits == [QUICK.first, 0.0]
    assert len(fake.resumed) == 1


async def test_sessions_begin_no_sooner_than_discord_allows(fake, engine):
    fake.identify_every = 0.3
    async with running(engine, settings(fake), replace(QUICK, identify=0.31)):
        await engine.wait_said(Health.UP)
        await fake.signal(9, data=False)
        await fake.wait_for(lambda: len(fake.identified) == 2)
        await fake.wait_online()
    assert len(fake.identified) == 2


async def test_a_session_that_ends_again_and_again_is_waited_for_longer_and_told(fake, engine):
    fake.identify_every = 3600.0
    async with running(engine, settings(fake)):
        await engine.wait_said(Health.UP)
        await fake.signal(9, data=False)
        assert "ends every session" in await engine.wait_said(Health.DOWN)
        fake.identify_every = fake._identify_at = 0.0
        await fake.wait_online()


async def test_heartbeats_are_sent_and_asked_for(fake, engine):
    fake.heartbeat = 0.05
    async with running(engine, settings(fake)):
        await fake.wait_for(lambda: fake.heartbeats >= 4)
        await fake.signal(1)
        await fake.wait_for(lambda: fake.heartbeats >= 6)


@pytest.mark.parametrize("compress", [True, False])
async def test_frames_come_compressed_or_not(fake, engine, compress):
    fake.compress = compress
    async with running(engine, settings(fake)):
        await engine.wait_said(Health.UP)
        await fake.say("7", "x" * 2000)
        await engine.wait_until(lambda e: bool(e.received))


# --- what goes wrong -----------------------------------------------------------------------------


async def test_a_refused_token_is_told_and_tried_again(fake, engine):
    fake.tokens.clear()
    async with running(engine, settings(fake, token="other")):
        assert "does not accept this bot's token" in await engine.wait_said(Health.DOWN)
        fake.tokens.add("other")
        await engine.wait_said(Health.UP)


async def test_a_refused_intent_is_told_in_words_that_help(fake, engine):
    fake.content_allowed = False
    async with running(engine, settings(fake)):
        assert "Message Content Intent" in await engine.wait_said(Health.DOWN)
        fake.content_allowed = True
        await engine.wait_said(Health.UP)


async def test_an_unreachable_gateway_is_told_and_tried_again(engine):
    fake = FakeDiscord()
    await fake.start()
    config = settings(fake)
    port = int(fake.url.rpartition(":")[2])
    await fake.stop()
    async with running(engine, config):
        assert "cannot be reached" in await engine.wait_said(Health.DOWN)
        await fake.start(port)
        await engine.wait_said(Health.UP)
    await fake.stop()


async def test_two_accounts_use_their_own_servers(engine):
    async with FakeDiscord() as one, FakeDiscord("other-token") as two:
        work = {"token": "other-token", "api_root": two.api_root, "gateway_url": two.gateway_url}
        async with running(engine, settings(one, accounts={"work": work})) as channel:
            await engine.wait_said(Health.UP)
            await engine.wait_said(Health.UP, "work")
            two.dm("8")
            await post(channel, Outbound("o", Address("discord", "work", "700008"), "x"))
            await one.say("7", "to one")
            await two.say("8", "to two")
            await engine.wait_until(lambda e: len(e.received) == 2)
    assert {(i.account, i.text) for i in engine.received} == {
        ("default", "to one"),
        ("work", "to two"),
    }
    assert (len(one.sent), len(two.sent)) == (0, 1)


async def test_odd_events_do_not_end_the_connection(fake, engine, channel):
    for event in ("MESSAGE_CREATE", "MESSAGE_UPDATE", "INTERACTION_CREATE", "GUILD_CREATE"):
        for data in (None, [], {}, {"channel_id": "1"}, {"id": {}, "channel_id": []}, "x"):
            await fake.dispatch(event, data)
    await fake.say("7", "hello")
    await engine.wait_until(lambda e: bool(e.received))
    assert len(fake.identified) == 1


# --- storing -------------------------------------------------------------------------------------


async def test_what_cannot_be_stored_waits_in_order(fake, engine, channel):
    engine.failures = 3
    for number in range(5):
        await fake.say("7", str(number))
    assert "cannot be stored" in await engine.wait_said(Health.DEGRADED)
    await engine.wait_until(lambda e: len(e.received) == 5)
    assert texts(engine) == list("01234")
    await eventually(lambda: engine.health["discord", "default"][0] is Health.UP)
    assert account(channel).intake.waiting == 0


# --- catching up ---------------------------------------------------------------------------------


async def test_what_was_missed_in_known_chats_is_caught_up_first(fake, engine):
    async with running(engine, settings(fake)):
        await fake.wait_online()
        await fake.say("7", "before")
        await fake.say("7", "in the room", "501")
        await engine.wait_until(lambda e: len(e.received) == 2)
    for number in range(3):
        fake.message("7", f"missed {number}")
    fake.message("7", "missed in the room", "501")
    fake.message("9", "in a chat nobody knows of")
    async with running(engine, settings(fake)):
        await fake.wait_online()
        await fake.say("7", "live")
        await engine.wait_until(lambda e: len(e.received) >= 7)
    # What came while history was read comes twice, and the engine drops the copy.
    direct = list(dict.fromkeys(i.text for i in engine.received if i.chat_type == "direct"))
    assert direct == ["before", "missed 0", "missed 1", "missed 2", "live"]
    rooms = [i for i in engine.received if i.chat_type == "channel"]
    assert [i.text for i in rooms] == ["in the room", "missed in the room"]
    assert rooms[1].server == "500"


async def test_catching_up_is_bounded_by_count_and_age(fake, engine):
    async with running(engine, settings(fake)):
        await fake.wait_online()
        await fake.say("7", "old", at=time.time() - 50 * 3600)
        await engine.wait_until(lambda e: len(e.received) == 1)
    fake.message("7", "too old", at=time.time() - 25 * 3600)
    for number in range(120):
        fake.message("7", str(number))
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) == 101)
    assert texts(engine)[1:] == [str(number) for number in range(20, 120)]


async def test_rooms_that_are_not_listed_are_not_read(fake, engine):
    async with running(engine, settings(fake)):
        await fake.wait_online()
        await fake.say("7", "hello", "501")
        await engine.wait_until(lambda e: len(e.received) == 1)
    fake.message("7", "missed", "501")
    async with running(engine, settings(fake, guilds={})):
        await fake.wait_online()
        await fake.say("7", "direct")
        await engine.wait_until(lambda e: len(e.received) == 2)
    assert not fake.called("GET /channels/501/messages")


async def test_what_was_missed_in_a_room_is_read_when_every_room_is_open(fake, engine):
    config = settings(fake, guilds={}, group_policy="open")
    async with running(engine, config):
        await fake.wait_online()
        await fake.say("7", "hello", "501")
        await engine.wait_until(lambda e: len(e.received) == 1)
    fake.message("7", "missed", "501")
    async with running(engine, config):
        await engine.wait_until(lambda e: len(e.received) == 2)
    assert engine.received[-1].text == "missed"


async def test_a_reply_left_unfinished_by_a_crash_is_taken_away(fake, engine):
    async with running(engine, settings(fake)) as channel:
        await fake.wait_online()
        await fake.say("7", "question")
        await engine.wait_until(lambda e: len(e.received) == 1)
        await channel.draft(Address("discord", "default", "700007"), "1", "half an ans")
    assert fake.texts("700007") == ["half an ans ▍"]
    async with running(engine, settings(fake)):
        await fake.wait_for(lambda: not fake.sent)


def ids(engine):
    return [inbound.message_id for inbound in engine.received]


def to_bot(fake, channel, text, **extra):
    mentions = [{"id": "100", "username": "Confidant"}]
    return fake.message("7", f"<@100> {text}", channel, mentions=mentions, **extra)


async def online(fake, engine):
    """Be there once, until what was said so far is noted as heard."""
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: bool(e.notes))


async def test_what_was_said_in_places_never_heard_before_is_found_afterwards(fake, engine):
    to_bot(fake, "501", "before it ever came", at=time.time() - 3600)
    await online(fake, engine)
    made = {"id": "604", "type": 11, "name": "made meanwhile", "parent_id": "501"}
    fake.guilds["500"]["threads"].append(made)
    fake.channels["604"] = {**made, "guild_id": "500"}
    for channel in ("501", "601", "602", "604"):
        to_bot(fake, channel, f"missed in {channel}")
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) >= 4)
    got = {i.text: (i.chat_type, i.parent, i.mentions_bot) for i in engine.received}
    assert got == {
        "missed in 501": ("channel", "", True),
        "missed in 601": ("thread", "501", True),
        "missed in 602": ("thread", "502", True),
        "missed in 604": ("thread", "501", True),
    }


async def test_only_places_with_something_new_are_read(fake, engine):
    to_bot(fake, "601", "old", at=time.time() - 3600)
    await online(fake, engine)
    to_bot(fake, "501", "new")
    to_bot(fake, "602", "nobody listens here")
    config = settings(fake, groups={"602": {"enabled": False}})
    async with running(engine, config):
        await engine.wait_until(lambda e: bool(e.received))
    read = {c.path for c in fake.called("/messages")}
    assert read == {"/channels/501/messages"}


async def test_what_was_said_before_the_bot_joined_was_not_said_to_it(fake, engine):
    await online(fake, engine)
    to_bot(fake, "501", "before", at=time.time() - 10)
    fake.guilds["500"]["joined_at"] = datetime.fromtimestamp(time.time() - 5, UTC).isoformat()
    async with running(engine, settings(fake)):
        await fake.wait_online()
        to_bot(fake, "601", "after")
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: bool(e.received))
    assert set(texts(engine)) == {"after"}


async def test_places_never_heard_before_are_looked_through_again_after_a_crash(fake, engine):
    await online(fake, engine)
    to_bot(fake, "501", "one")
    to_bot(fake, "601", "two")
    engine.failures = 1_000_000
    async with running(engine, settings(fake)):
        await engine.wait_said(Health.DEGRADED)
    engine.failures = 0
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) >= 2)
    assert set(texts(engine)) == {"one", "two"}


async def test_a_server_that_is_described_late_is_looked_through_then(fake, engine):
    await online(fake, engine)
    to_bot(fake, "501", "missed")
    fake.undescribed.add("500")
    async with running(engine, settings(fake), replace(QUICK, settle=0.0)) as channel:
        await eventually(lambda: account(channel)._since)
        await fake.dispatch("GUILD_CREATE", fake.described(fake.guilds["500"]))
        await engine.wait_until(lambda e: bool(e.received))
    assert texts(engine) == ["missed"]


async def test_edits_made_meanwhile_are_corrections_as_live_ones_are(fake, engine):
    async with running(engine, settings(fake)):
        await fake.wait_online()
        first = await fake.say("7", "at eihgt")
        second = await fake.say("7", "see you", at=time.time() + 1)
        await engine.wait_until(lambda e: len(e.received) == 2)
    fake.message("7", "a new one", at=time.time() + 2)
    fake.edited(first, "at eight", time.time() + 3)
    for _ in range(2):
        async with running(engine, settings(fake)) as channel:
            await engine.wait_until(lambda e: len(e.received) >= 4)
            await account(channel).intake.caught_up()
    got = {i.message_id: (i.text, i.edit_of) for i in engine.received}  # copies are dropped
    assert list(got.values()) == [
        ("at eihgt", ""),
        ("see you", ""),
        ("a new one", ""),
        ("at eight", first["id"]),
    ]
    assert list(got)[1] == second["id"]
    assert list(got)[3].startswith(f"{first['id']}:e")


async def test_what_was_written_and_edited_meanwhile_is_one_message(fake, engine):
    await online(fake, engine)
    fake.dm("7")
    async with running(engine, settings(fake)):
        await fake.wait_online()
        await fake.say("7", "before")
        await engine.wait_until(lambda e: bool(e.received))
    fake.edited(fake.message("7", "helo"), "hello")
    for _ in range(2):
        async with running(engine, settings(fake)) as channel:
            await engine.wait_until(lambda e: len(e.received) >= 2)
            await account(channel).intake.caught_up()
    assert len({*ids(engine)}) == 2
    assert (engine.received[1].text, engine.received[1].edit_of) == ("hello", "")


async def test_what_is_edited_while_history_is_read_is_one_message(fake, engine):
    async with running(engine, settings(fake)):
        await fake.wait_online()
        await fake.say("7", "before")
        await engine.wait_until(lambda e: bool(e.received))
    fake.undescribed.add("500")
    async with running(engine, settings(fake), replace(QUICK, settle=0.2)) as channel:
        await fake.wait_online()
        made = await fake.say("7", "helo")
        await fake.edit(made, "hello")
        await eventually(lambda: account(channel).intake.waiting == 2)
        await engine.wait_until(lambda e: len(e.received) >= 2)
        await eventually(lambda: account(channel).intake.is_idle)
    assert len({*ids(engine)}) == 2
    assert set(texts(engine)) == {"before", "hello"}


async def test_history_is_asked_patiently(fake, engine):
    async with running(engine, settings(fake)):
        await fake.wait_online()
        await fake.say("7", "before")
        await engine.wait_until(lambda e: len(e.received) == 1)
    fake.message("7", "missed")
    fake.fail("GET /channels/700007/messages", status=500)
    fake.fail("GET /channels/700007/messages", status=429, retry_after=0.01)
    fake.fail("GET /channels/700007/messages", drop=True)
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) == 2)


# --- the end -------------------------------------------------------------------------------------


async def test_stopping_says_goodbye_and_leaves_nothing_behind(fake, engine):
    before = asyncio.all_tasks()
    async with running(engine, settings(fake)) as channel:
        await engine.wait_said(Health.UP)
        await fake.say("7", "hello")
    await fake.wait_for(lambda: not fake.sessions)
    await asyncio.sleep(0)
    left = [t for t in asyncio.all_tasks() - before if "adapters" in repr(t.get_coro())]
    assert not left
    with pytest.raises(SendTransient):
        await post(channel, Outbound("o", Address("discord", "default", "700007"), "x"))


async def test_stopping_while_it_connects_is_clean(engine):
    async with FakeDiscord(TOKEN) as fake:
        for wait in (0.0, 0.001, 0.005, 0.02):
            async with running(engine, settings(fake)):
                await asyncio.sleep(wait)


@pytest.fixture
async def fake():
    async with FakeDiscord() as server:
        server.dm("7")
        yield server


@pytest.fixture
async def rest(fake):
    async with new_session() as session:
        yield Rest(fake.token, fake.api_root, session)


async def send(rest, channel="700007", **body):
    return await rest.call("POST", "/channels/{channel_id}/messages", body, channel_id=channel)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"content": ""}, 50006),
        ({"content": " \u200b\n"}, 50006),
        ({"content": "x" * 2001}, 50035),
        ({"content": "x", "nonce": "n" * 26}, 50035),
        ({"content": "x", "message_reference": {"message_id": "5"}}, 50035),
        ({"content": "x", "components": [{"components": []}] * 6}, 50035),
    ],
)
async def test_a_message_against_the_rules_is_refused(fake, rest, body, code):
    with pytest.raises(Answered) as caught:
        await send(rest, **body)
    assert (caught.value.status, caught.value.code) == (400, code)
    assert fake.sent == []


async def test_an_enforced_nonce_gives_the_message_of_the_first_time(fake, rest):
    first = await send(rest, content="x", nonce="1", enforce_nonce=True)
    second = await send(rest, content="x", nonce="1", enforce_nonce=True)
    third = await send(rest, content="x", nonce="1")
    assert first["id"] == second["id"] != third["id"]


async def test_an_interaction_is_acknowledged_within_three_seconds_and_once(fake, rest):
    shown = await fake.command("7", "status")
    path = "/interactions/{webhook_id}/{webhook_token}/callback"
    ids = {"webhook_id": shown.id, "webhook_token": shown.token}
    await rest.call("POST", path, {"type": 5}, **ids)
    with pytest.raises(Answered) as caught:
        await rest.call("POST", path, {"type": 5}, **ids)
    assert caught.value.code == 40060
    late = await fake.command("7", "status")
    late.made -= 4
    with pytest.raises(Answered, match="404"):
        await rest.call("POST", path, {"type": 5}, webhook_id=late.id, webhook_token=late.token)


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([{"op": 3, "d": {}}], 4003),
        ([{"op": 2, "d": {"token": "x", "intents": 0}}], 4004),
        ([{"op": 2, "d": {"token": TOKEN, "intents": 0}}] * 2, 4005),
    ],
)
async def test_a_connection_against_the_rules_is_closed(fake, frames, code):
    async with aiohttp.ClientSession() as client, client.ws_connect(fake.gateway_url) as ws:
        assert (await ws.receive_json())["op"] == 10
        for frame in frames:
            await ws.send_json(frame)
        while not ws.closed:
            await ws.receive()
        assert ws.close_code == code


async def test_it_runs_as_a_process_with_a_control_api():
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fakes.discord", "--port", "0"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().split()[-1]
        async with new_session() as session:
            people = [{"user_id": "7", "text": "a"}, {"event": "ODD", "data": {}}]
            async with session.post(f"{url}/control/push", json=people) as response:
                assert len((await response.json())["pushed"]) == 2
            rest = Rest(TOKEN, f"{url}/api/v10", session)
            await send(rest, content="answer")
            async with session.get(f"{url}/control/wait?sent=1") as response:
                assert (await response.json())["sent"] == 1
            async with session.get(f"{url}/control/sent") as response:
                assert [sent["content"] for sent in await response.json()] == ["answer"]
            fault = {"match": "POST /channels", "status": 429, "retry_after": 3}
            await session.post(f"{url}/control/fail", json=fault)
            with pytest.raises(SendLater):
                await send(rest, content="too soon")
    finally:
        process.terminate()
        await process.wait()


async def found(config):
    channel = Discord(config)
    return [told(each, "en") for each in await channel.examine()]


async def test_a_bot_that_is_set_up_is_well(fake):
    assert {finding.level for finding in await found(settings(fake))} == {"ok"}


async def test_a_refused_token_is_an_error_without_the_token(fake):
    findings = await found(settings(fake, token="wrong", accounts={"idle": {}}))
    assert [(f.level, f.account) for f in findings] == [("error", "idle"), ("error", "default")]
    assert "wrong" not in repr(findings)


async def test_what_hinders_it_is_told_with_what_to_do(fake):
    fake.application = {"id": "900", "flags": 0, "interactions_endpoint_url": "https://x"}
    fake.guilds.clear()
    findings = await found(settings(fake))
    said = {finding.text: finding.fix for finding in findings if finding.level != "ok"}
    assert len(said) == 4
    assert "Message Content Intent" in said["it cannot read the text of messages"]
    assert "client_id=900" in said["it is not in server 500"]


async def test_a_server_that_does_not_answer_is_an_error():
    fake = FakeDiscord()
    await fake.start()
    config = settings(fake)
    await fake.stop()
    assert [finding.level for finding in await found(config)] == ["error"]


async def test_slash_commands_are_compared_and_registered_once_more(fake):
    channel = Discord(settings(fake))
    await channel.publish_commands(menus())
    assert [each.id for each in await channel.examine() if each.repair] == ["discord.menu"]
    await channel.register()
    found = await channel.examine()
    assert [each.id for each in found if each.repair] == []
    assert "discord.has_menu" in {each.id for each in found}


async def test_commands_that_discord_does_not_take_say_why(fake):
    channel = Discord(settings(fake, token="wrong"))
    await channel.publish_commands(menus())
    with pytest.raises(ChannelError, match=r"Discord \(default\): 401"):
        await channel.register()
