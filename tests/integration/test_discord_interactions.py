"""Slash commands and buttons through the real channel and the fake server."""

import asyncio

import pytest

from bot.channel import Address, Button, Command, Health, Outbound, Piece
from bot.errors import SendRefused, SendTransient
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_channel import QUICK, running, settings
from tests.fakes.telegram_channel import WatchingEngine
from tests.support import post

DM = Address("discord", "default", "700007")
ROOM = Address("discord", "default", "501")
ENTRY = "20261121-054842-8c34881508.4"  # what the engine calls a text; its pieces add a number
MENUS = {
    "": [Command("new", "Start a new conversation", "[model]"), Command("status", "Status")],
    "zh": [Command("new", "开始新对话", "[模型]"), Command("status", "状态")],
    "en": [Command("new", "Start a new conversation", "[model]"), Command("status", "Status")],
}


@pytest.fixture
async def fake():
    async with FakeDiscord() as server:
        server.dm("7")
        yield server


@pytest.fixture
async def engine():
    return WatchingEngine()


@pytest.fixture
async def channel(fake, engine):
    async with running(engine, settings(fake)) as made:
        await engine.wait_said(Health.UP)
        yield made


async def arrived(engine, count=1):
    await engine.wait_until(lambda e: len(e.received) >= count)
    return engine.received[count - 1]


async def test_commands_are_registered_once_and_again_only_when_they_change(fake, engine):
    for menus in (MENUS, MENUS, {**MENUS, "": MENUS[""][:1]}):
        async with running(engine, settings(fake)) as channel:
            asked = len(fake.called("GET /applications"))
            await channel.publish_commands(menus)
            await fake.wait_for(lambda n=asked: len(fake.called("GET /applications")) > n)
            await asyncio.sleep(0.05)
    assert len(fake.called("PUT /applications")) == 2
    body = fake.called("PUT /applications")[0].body
    assert body[0]["contexts"] == [0, 1]
    assert body[0]["description_localizations"]["zh-CN"] == "开始新对话"
    assert body[0]["options"][0]["name"] == "text"
    assert "options" not in body[1]


async def test_registering_is_tried_again_with_the_next_connection(fake, engine, channel):
    fake.fail("GET /applications", status=500)
    await channel.publish_commands(MENUS)
    await fake.wait_for(lambda: len(fake.called("GET /applications")) == 1)
    await fake.signal(9, data=False)
    await fake.wait_for(lambda: bool(fake.commands))


async def test_a_command_is_acknowledged_and_its_answer_takes_that_place(fake, engine, channel):
    shown = await fake.command("7", "new", "sonnet hello")
    got = await arrived(engine)
    assert (got.text, got.chat, got.chat_type) == ("/new sonnet hello", "700007", "direct")
    assert (got.message_id, got.locale) == (f"interaction-{shown.id}", "en-US")
    await post(channel, Outbound(ENTRY, DM, "Started anew.", reply_to=got.message_id))
    assert shown.original["content"] == "Started anew."
    assert not shown.is_private
    assert fake.sent == []


@pytest.mark.parametrize("named", [True, False])
async def test_a_private_answer_stays_private_to_its_last_piece(fake, engine, channel, named):
    shown = await fake.command("7", "status", channel="501")
    got = await arrived(engine)
    assert (got.chat_type, got.server, got.mentions_bot) == ("channel", "500", True)
    answered = got.message_id if named else ""
    whole = Outbound(ENTRY, ROOM, "first second", reply_to=answered)
    for index, text in enumerate(("first", "second")):
        await channel.send(Piece(whole, text, index=index, count=2))
    assert shown.is_private
    assert shown.original["content"] == "first"
    assert [(m["content"], m["flags"]) for m in shown.followups] == [("second", 4 | 64)]
    assert fake.sent == []
    await post(channel, Outbound("20261121-054842-8c34881508.6", ROOM, "for all"))
    assert fake.texts("501") == ["for all"]


async def test_an_answer_that_failed_is_tried_again_in_its_place(fake, engine, channel):
    shown = await fake.command("7", "help")
    await arrived(engine)
    fake.fail("PATCH /webhooks", status=500)
    with pytest.raises(SendTransient):
        await post(channel, Outbound(ENTRY, DM, "Help"))
    await post(channel, Outbound(ENTRY, DM, "Help"))
    assert shown.original["content"] == "Help"


async def test_an_answer_whose_token_is_over_is_a_plain_message(fake, engine, channel):
    shown = await fake.command("7", "help")
    await arrived(engine)
    await fake.wait_for(lambda: shown.callback is not None)
    shown.made -= 16 * 60
    await post(channel, Outbound(ENTRY, DM, "Help"))
    assert fake.texts("700007") == ["Help"]


async def test_after_a_restart_the_answer_is_a_plain_message(fake, engine):
    async with running(engine, settings(fake)):
        await fake.wait_online()
        shown = await fake.command("7", "help")
        got = await arrived(engine)
        await fake.wait_for(lambda: shown.callback is not None)
    async with running(engine, settings(fake)) as channel:
        await post(channel, Outbound(ENTRY, DM, "Help", reply_to=got.message_id))
    assert fake.texts("700007") == ["Help"]


def alone(fake, person="7"):
    """What the bot said to a person directly, without the line that says why there."""
    said = fake.texts(fake.dm(person))
    assert [text.startswith("-# You asked in <#501>.") for text in said] == [
        n == 0 for n in range(len(said))
    ]
    return said[1:]


async def answer(channel, got, *pieces: str):
    whole = Outbound(ENTRY, ROOM, " ".join(pieces), reply_to=got.message_id)
    for index, text in enumerate(pieces):
        await channel.send(Piece(whole, text, index=index, count=len(pieces)))


async def test_a_private_answer_whose_token_is_over_goes_to_the_person_alone(fake, engine, channel):
    shown = await fake.command("7", "status", channel="501")
    got = await arrived(engine)
    await fake.wait_for(lambda: shown.callback is not None)
    shown.made -= 16 * 60
    await answer(channel, got, "first", "second")
    assert alone(fake) == ["first", "second"]
    assert fake.texts("501") == []


async def test_a_private_answer_that_loses_its_token_half_way_stays_private(fake, engine, channel):
    shown = await fake.command("7", "status", channel="501")
    got = await arrived(engine)
    await answer(channel, got, "first")
    shown.made -= 16 * 60
    whole = Outbound(ENTRY, ROOM, "first second", reply_to=got.message_id)
    await channel.send(Piece(whole, "second", index=1, count=2))
    assert shown.original["content"] == "first"
    assert alone(fake) == ["second"]
    assert fake.texts("501") == []


async def test_after_a_restart_a_private_answer_goes_to_the_person_alone(fake, engine):
    async with running(engine, settings(fake)):
        await fake.wait_online()
        shown = await fake.command("7", "memory", channel="501")
        got = await arrived(engine)
        await fake.wait_for(lambda: shown.callback is not None)
    async with running(engine, settings(fake)) as channel:
        await answer(channel, got, "first", "second")
    assert alone(fake) == ["first", "second"]
    assert fake.texts("501") == []


async def test_a_private_command_that_could_not_be_stored_in_time_is_answered_alone(
    fake, engine, channel
):
    engine.failures = 2
    shown = await fake.command("7", "whoami", channel="501")
    shown.made -= 4
    got = await arrived(engine)
    await answer(channel, got, "You are Ada.")
    assert alone(fake) == ["You are Ada."]
    assert fake.texts("501") == []


async def test_a_private_answer_to_somebody_who_takes_no_direct_messages_is_refused(
    fake, engine, channel
):
    shown = await fake.command("7", "status", channel="501")
    got = await arrived(engine)
    await fake.wait_for(lambda: shown.callback is not None)
    shown.made -= 16 * 60
    fake.forbidden[fake.dm("7")] = 50007
    with pytest.raises(SendRefused):
        await answer(channel, got, "first")
    assert fake.sent == []


async def test_a_private_answer_in_chinese_says_why_it_is_there_in_chinese(fake, engine, channel):
    shown = await fake.command("7", "status", channel="501")
    got = await arrived(engine)
    await fake.wait_for(lambda: shown.callback is not None)
    shown.made -= 16 * 60
    await answer(channel, got, "一切正常")
    assert "只给你一个人看" in fake.texts("700007")[0]


async def test_buttons_do_not_go_along_to_another_conversation(fake, engine, channel):
    shown = await fake.command("7", "memory", "forget tea", channel="501")
    got = await arrived(engine)
    await fake.wait_for(lambda: shown.callback is not None)
    shown.made -= 16 * 60
    buttons = (Button("Yes", "/memory forget yes"),)
    await post(channel, Outbound(ENTRY, ROOM, "Sure?", reply_to=got.message_id, buttons=buttons))
    assert alone(fake) == ["Sure?"]
    assert not any(made["components"] for made in fake.sent)


async def test_a_public_answer_whose_token_is_over_stays_in_its_room(fake, engine, channel):
    shown = await fake.command("7", "new", channel="501")
    got = await arrived(engine)
    await fake.wait_for(lambda: shown.callback is not None)
    shown.made -= 16 * 60
    await answer(channel, got, "Started anew.")
    assert fake.texts("501") == ["Started anew."]


async def test_a_command_that_could_not_be_stored_in_time_is_still_answered(fake, engine, channel):
    engine.failures = 2
    shown = await fake.command("7", "help")
    shown.made -= 4
    await arrived(engine)
    await post(channel, Outbound(ENTRY, DM, "Help"))
    assert shown.original is None
    assert fake.texts("700007") == ["Help"]


async def test_nobody_sees_thinking_for_ever(fake, engine):
    pace = type(QUICK)(identify=0.0, unanswered=0.05)
    async with running(engine, settings(fake), pace):
        await fake.wait_online()
        shown = await fake.command("9", "status", channel="501")
        await arrived(engine)
        await fake.wait_for(lambda: shown.deleted)


async def test_a_turn_that_ends_does_not_answer_somebody_elses_command(fake, engine, channel):
    await channel.draft(ROOM, "5", "Once upon a")
    shown = await fake.command("7", "status", channel="501")
    await arrived(engine)
    await post(channel, Outbound("entry-1", ROOM, "Once upon a time.", draft="5"))
    assert fake.texts("501") == ["Once upon a time."]
    await post(channel, Outbound("entry-2", ROOM, "All is well."))
    assert shown.original["content"] == "All is well."


async def test_a_reminder_is_nobodys_answer(fake, engine, channel):
    shown = await fake.command("7", "status")
    await arrived(engine)
    await post(channel, Outbound("r", DM, "Tea!", kind="reminder"))
    assert fake.texts("700007") == ["Tea!"]
    assert shown.original["content"] is None


# --- buttons -------------------------------------------------------------------------------------


async def with_buttons(fake, channel, address=DM):
    buttons = (Button("Compact", "/compact"), Button("Not now", "/notices off"))
    await post(channel, Outbound("n1", address, "Nearly full.", kind="notice", buttons=buttons))
    return fake.sent[-1]


async def test_a_press_is_its_command_and_takes_the_buttons_away(fake, engine, channel):
    made = await with_buttons(fake, channel)
    shown = await fake.press("7", made)
    got = await arrived(engine)
    assert (got.text, got.message_id) == ("/compact", f"press-{shown.id}")
    assert (got.chat, got.chat_type) == ("700007", "direct")
    await fake.wait_for(lambda: shown.callback is not None)
    assert fake.sent[0]["components"] == []


async def test_a_second_press_is_dropped(fake, engine, channel):
    made = await with_buttons(fake, channel)
    await fake.press("7", made)
    second = await fake.press("7", made, "/notices off")
    await fake.say("7", "after")
    await arrived(engine, 2)
    assert [i.text for i in engine.received] == ["/compact", "after"]
    await fake.wait_for(lambda: second.callback == {"type": 6})


async def test_a_press_on_no_command_is_ended_without_a_word(fake, engine, channel):
    made = await with_buttons(fake, channel)
    for forged in ("compact", "/a\nb", ""):
        shown = await fake.press("7", made, forged or "?")
        await fake.wait_for(lambda s=shown: s.callback == {"type": 6})
    assert not engine.received


async def test_a_press_in_a_thread_knows_where_it_was(fake, engine, channel):
    made = await with_buttons(fake, channel, Address("discord", "default", "601"))
    await fake.press("7", made)
    got = await arrived(engine)
    assert (got.chat, got.chat_type, got.parent, got.server) == ("601", "thread", "501", "500")
