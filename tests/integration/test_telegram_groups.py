"""Groups, topics and channels: the real SDK and the fake server."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from structlog.testing import capture_logs

from adapters.telegram import updates
from bot.channel import Address, Button, Health, Media, Outbound
from bot.errors import ChatMoved, SendLater, SendRefused, SendTransient
from tests.fakes.telegram import FakeTelegram, Fault
from tests.fakes.telegram_channel import WatchingEngine, running, settings
from tests.support import post

TEA = -1001
ROOM = Address("telegram", "default", str(TEA))
ADA = Address("telegram", "default", "7")


@pytest.fixture
async def fake():
    async with FakeTelegram() as server:
        server.room(TEA)
        server.chats.add(7)
        yield server


@pytest.fixture
def engine():
    return WatchingEngine()


@pytest.fixture
async def channel(fake, engine):
    async with running(engine, settings(fake)) as running_channel:
        await fake.wait_called("getUpdates")
        yield running_channel


def out(text, address=ROOM, outbound_id="o1", **fields):
    return Outbound(outbound_id, address, text, **fields)


async def received(engine, count):
    await asyncio.wait_for(engine.wait_until(lambda e: len(e.received) >= count), 60)
    return engine.received


# --- in -------------------------------------------------------------------------------------------


async def test_what_is_said_in_a_group_arrives_in_order(fake, engine, channel):
    fake.say(TEA, 7, "good morning")
    fake.say(TEA, 8, "@confidant_bot tea?")
    got = await received(engine, 2)
    assert [(i.sender, i.text, i.mentions_bot) for i in got] == [
        ("7", "good morning", False),
        ("8", "tea?", True),
    ]
    assert {(i.chat, i.chat_type, i.thread) for i in got} == {(str(TEA), "group", "")}
    await fake.wait_acknowledged()


async def test_each_topic_is_answered_where_it_was_said(fake, engine, channel):
    fake.room(TEA, is_forum=True)
    fake.topic(TEA, 8)
    fake.say(TEA, 7, "inside", message_thread_id=8, is_topic_message=True)
    fake.say(TEA, 7, "general")
    got = await received(engine, 2)
    assert [i.thread for i in got] == ["8", "1"]
    for index, inbound in enumerate(got):
        await post(channel, out(f"re {inbound.text}", inbound.address, f"o{index}"))
        await channel.typing(inbound.address)
    assert [(sent.text, sent.thread_id) for sent in fake.sent] == [
        ("re inside", 8),
        ("re general", None),
    ]
    assert [c.params["message_thread_id"] for c in fake.called("sendChatAction")] == [8, 1]


async def test_what_is_dropped_is_counted_and_groups_do_not_fill_the_log(fake, engine, channel):
    with capture_logs() as logs:
        fake.say(TEA, 7, "/new@other_bot")
        fake.say(TEA, 7, None, new_chat_title="secret title")
        fake.say(TEA, 12, "I am a bot", **{"from": {"id": 12, "is_bot": True}})
        fake.bots[fake.token].updates.append({"update_id": 90, "message_reaction_count": {}})
        fake.bots[fake.token].next_update = 91
        fake.join(TEA, "kicked", "member")
        fake.say(TEA, 7, "the end")
        await received(engine, 1)
        await fake.wait_acknowledged()
    reasons = ("other_bot", "service", "from_bot", "reaction", "membership")
    assert engine.drops == dict.fromkeys(reasons, 1)
    assert len(engine.received) == 1
    change = next(log for log in logs if log["event"] == "telegram.membership")
    assert (change["chat"], change["status"]) == (str(TEA), "kicked")
    assert "secret title" not in str(logs)
    ignored = [log for log in logs if log["event"] == "telegram.update.ignored"]
    assert [log["log_level"] for log in ignored] == ["debug", "debug", "debug", "info"]


async def test_a_group_that_moved_keeps_its_conversation(fake, engine, channel):
    old = fake.room(-5, "group")
    assert old["type"] == "group"
    fake.say(-5, 7, "before")
    fake.migrate(-5, TEA)
    fake.say(TEA, 7, "after")
    got = await received(engine, 2)
    assert [i.chat for i in got] == ["-5", str(TEA)]
    assert engine.moved == [(Address("telegram", "default", "-5"), str(TEA))] * 2
    with pytest.raises(ChatMoved) as caught:
        await post(channel, out("hello", Address("telegram", "default", "-5")))
    assert caught.value.chat == str(TEA)


async def test_a_move_that_cannot_be_stored_is_said_again(fake, engine, channel):
    engine.failures = 2
    fake.room(-5, "group")
    fake.push({"message": fake.room_message(-5, 7, None, migrate_to_chat_id=TEA)})
    fake.say(TEA, 7, "after")
    await received(engine, 1)
    assert engine.moved == [(Address("telegram", "default", "-5"), str(TEA))]


# --- what belongs together ------------------------------------------------------------------------


@pytest.mark.parametrize("chat", [TEA, 7])
async def test_an_album_is_one_message(fake, engine, channel, chat):
    numbers = fake.album(chat, 7, 4, "@confidant_bot look")
    got = await received(engine, 1)
    await fake.wait_acknowledged()
    assert len(got) == 1
    assert [len(i.media) for i in got] == [4]
    assert got[0].message_id == str(numbers[-1])
    assert got[0].text == ("look" if chat == TEA else "@confidant_bot look")


async def test_an_album_in_several_batches_is_one_message(fake, engine, channel):
    fake.album(TEA, 7, 2, "look")
    name = fake.bots[fake.token].updates[-1]["message"]["media_group_id"]
    photo = [{"file_id": "late", "file_unique_id": "u"}]
    await asyncio.sleep(0.25)
    fake.say(TEA, 7, None, media_group_id=name, photo=photo)
    got = await received(engine, 1)
    await fake.wait_acknowledged()
    assert [len(i.media) for i in got] == [3]


async def test_what_is_held_is_not_acknowledged_and_others_do_not_wait_for_it(
    fake, engine, channel
):
    fake.push_text(7, "x" * 4096)
    fake.say(TEA, 8, "quick")
    fake.push_text(9, "quick too")
    got = await received(engine, 2)
    assert {i.text for i in got} == {"quick", "quick too"}
    assert fake.pending() == 3
    fake.push_text(7, "y")
    await received(engine, 3)
    await fake.wait_acknowledged()
    assert [i.text for i in engine.received if i.chat == "7"] == ["x" * 4096 + "y"]
    assert len(engine.received) == 3


async def test_a_stop_in_the_middle_of_an_album_leaves_it_whole_at_telegram(fake, engine):
    async with running(engine, settings(fake)):
        await fake.wait_called("getUpdates")
        calls = fake.counts["getupdates"]
        fake.album(TEA, 7, 3)
        await fake.wait_called("getUpdates", calls + 1)
        await asyncio.sleep(0.05)
    assert engine.received == []
    assert fake.pending() == 3
    async with running(engine, settings(fake)):
        await received(engine, 1)
        await fake.wait_acknowledged()
    assert [len(i.media) for i in engine.received] == [3]


async def test_an_album_that_cannot_be_stored_comes_again_whole(fake, engine, channel):
    engine.failures = 3
    fake.album(TEA, 7, 3)
    got = await received(engine, 1)
    await fake.wait_acknowledged()
    assert [len(i.media) for i in got] == [3]


async def test_a_full_batch_behind_an_album_does_not_stop_it(fake, engine, channel):
    fake.album(7, 7, 2)
    for number in range(150):
        fake.say(TEA, 8, str(number))
    got = await received(engine, 151)
    await fake.wait_acknowledged()
    assert [i.text for i in got if i.chat != "7"] == [str(n) for n in range(150)]
    assert [len(i.media) for i in got if i.chat == "7"] == [2]


# --- out ------------------------------------------------------------------------------------------


async def test_a_group_gets_no_more_than_telegram_takes(fake, engine, channel):
    fake.group_limit = 20
    for number in range(20):
        await post(channel, out(str(number), outbound_id=f"o{number}"))
    with pytest.raises(SendLater) as caught:
        await post(channel, out("one more"))
    assert 0 < caught.value.seconds <= 60
    assert len(fake.sent) == 20
    await post(channel, out("elsewhere", ADA))
    assert fake.texts(7) == ["elsewhere"]


# --- abilities ------------------------------------------------------------------------------------


async def test_files_are_fetched(fake, channel):
    fake.downloads["f1"] = bytes(range(256)) * 1000
    media = Media("document", "a.bin", ref="f1")
    assert await channel.fetch(ROOM, media, 10**6) == fake.downloads["f1"]


@pytest.mark.parametrize(
    "media",
    [
        Media("document", ref=""),
        Media("document", ref="unknown"),
        Media("document", ref="f1", size=101),
        Media("document", ref="f1"),
        Media("document", ref="large", size=5),
    ],
)
async def test_a_file_that_is_too_large_or_gone_is_refused(fake, channel, media):
    fake.downloads |= {"f1": b"x" * 101, "large": bytes(20_000_001)}
    with pytest.raises(SendRefused):
        await channel.fetch(ROOM, media, 100)


async def test_a_file_larger_than_announced_is_not_read_to_its_end(fake, channel):
    fake.downloads["f1"] = b"x" * 5_000_000
    honest = fake._methods["getfile"]
    fake._methods["getfile"] = lambda bot, params: honest(bot, params) | {"file_size": 5}
    with pytest.raises(SendRefused, match="too large"):
        await channel.fetch(ROOM, Media("document", ref="f1"), 1000)


@pytest.mark.parametrize("path", ["", "/var/lib/a", "../../a", 5, None])
async def test_a_file_telegram_does_not_serve_is_refused(fake, channel, path):
    fake.fail_next("getFile", Fault(200, body=b'{"ok":true,"result":{}}'))
    with pytest.raises(SendRefused):
        await channel.fetch(ROOM, Media("document", ref="f1"), 1000)
    fake._methods["getfile"] = lambda *_: {"file_path": path}
    with pytest.raises(SendRefused):
        await channel.fetch(ROOM, Media("document", ref="f1"), 1000)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(500), SendTransient),
        (Fault(429, "Too Many Requests", {"retry_after": 5}), SendLater),
        (Fault(400, "Bad Request: file is too big"), SendRefused),
    ],
)
async def test_a_fetch_that_fails_says_whether_to_try_again(fake, channel, fault, error):
    fake.fail_next("getFile", fault)
    with pytest.raises(error) as caught:
        await channel.fetch(ROOM, Media("document", ref="f1"), 1000)
    assert fake.token not in str(caught.value)


async def test_a_download_that_breaks_off_says_no_token(fake, channel, monkeypatch):
    fake.downloads["f1"] = b"x"
    monkeypatch.setattr(channel._accounts["default"], "_root", "http://127.0.0.1:9")
    with pytest.raises(SendTransient) as caught:
        await channel.fetch(ROOM, Media("document", ref="f1"), 1000)
    assert fake.token not in repr(caught.value)
    assert caught.value.__cause__ is None


async def test_signs_go_below_messages(fake, channel):
    number = fake.say(TEA, 7, "thanks")
    await channel.react(ROOM, str(number), "👀")
    assert fake.reactions[TEA, number] == ["👀"]
    await channel.react(ROOM, f"{number}:e5", "❤️")
    assert fake.reactions[TEA, number] == ["❤"]
    await channel.react(ROOM, str(number), "")
    assert fake.reactions[TEA, number] == []
    calls = fake.counts["setmessagereaction"]
    for message, sign in ((str(number), "🧦"), ("press-5", "👀"), ("", "👀")):
        await channel.react(ROOM, message, sign)
    assert fake.counts["setmessagereaction"] == calls
    await channel.react(ROOM, "4711", "👀")
    fake.drop_next("setMessageReaction")
    await channel.react(ROOM, str(number), "👀")


async def test_admins_are_those_telegram_names(fake, channel, monkeypatch):
    fake.members |= {(TEA, 7): "creator", (TEA, 8): "administrator", (TEA, 9): "member"}
    wanted = [("7", True), ("8", True), ("9", False), ("10", False), (str(TEA), True)]
    for _ in range(2):
        for person, is_admin in [*wanted, ("-1002", False), ("", False), ("x", False)]:
            assert await channel.is_admin(ROOM, person) is is_admin
    assert fake.counts["getchatmember"] == 4
    assert await channel.is_admin(ADA, "7")
    assert not await channel.is_admin(ADA, "8")
    fake.fail_next("getChatMember", Fault(500))
    assert not await channel.is_admin(ROOM, "11")
    fake.members[TEA, 11] = "administrator"
    assert await channel.is_admin(ROOM, "11")
    fake.members[TEA, 11] = "member"
    channel._accounts["default"]._admins.clear()
    assert not await channel.is_admin(ROOM, "11")


# --- privacy mode ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reads_all", "values", "told"),
    [
        (False, {"group_policy": "open"}, True),
        (False, {"groups": {str(TEA): {}}}, True),
        (False, {}, False),
        (False, {"groups": {str(TEA): {}}, "group_policy": "disabled"}, False),
        (True, {"group_policy": "open"}, False),
    ],
)
async def test_privacy_mode_is_told_where_groups_are_used(fake, engine, reads_all, values, told):
    fake.reads_all = reads_all
    with capture_logs() as logs:
        async with running(engine, settings(fake, **values)):
            await engine.wait_said(Health.UP)
    health, detail = engine.health["telegram", "default"]
    assert health is Health.UP
    assert bool(re.search("Privacy mode", detail)) is told
    assert ("telegram.privacy_mode.on" in [log["event"] for log in logs]) is told


CHOICES = (
    Button("Compact", "/compact"),
    Button("Start fresh", "/new"),
    Button("Not now", "/notices later"),
)


def notice(text="Nearly full.", buttons=CHOICES, outbound_id="n1", **fields):
    return Outbound(outbound_id, ADA, text, kind="notice", buttons=buttons, **fields)


async def answered(fake, query):
    await fake.wait_for(lambda: fake.queries[query])


async def until(ready):
    for _ in range(5000):
        if ready():
            return
        await asyncio.sleep(0.001)
    raise TimeoutError


async def cleared(fake, message):
    await fake.wait_for(lambda: (7, message) not in fake.keyboards)


# --- out ------------------------------------------------------------------------------------------


async def test_labels_share_a_row_as_far_as_they_fit(fake, engine):
    async with running(engine, settings(fake)) as channel:
        await post(channel, notice())
        await post(channel, notice(buttons=[Button("x" * 30, "/a"), Button("y" * 30, "/b")]))
        await post(
            channel, notice(buttons=[Button("压缩这段对话", "/a"), Button("重新开始" * 5, "/b")])
        )
    assert [[len(row) for row in sent.buttons] for sent in fake.sent] == [[3], [1, 1], [1, 1]]


async def test_a_button_telegram_cannot_carry_is_left_out_with_a_word_in_the_log(fake, engine):
    odd = [
        Button("too long", "/" + "x" * 64),
        Button("long in bytes", "/" + "字" * 22),
        Button("no command", "hello"),
        Button("two lines", "/a\nb"),
        Button(" ", "/blank"),
        Button("just fits", "/" + "字" * 21),
    ]
    async with running(engine, settings(fake)) as channel:
        with capture_logs() as logs:
            await post(channel, notice(buttons=odd))
            await post(channel, notice("None is left.", buttons=odd[:3]))
    assert fake.sent[0].buttons == [[("just fits", "/" + "字" * 21)]]
    assert fake.sent[1].buttons == []
    assert [log["event"] for log in logs] == ["telegram.button.left_out"] * 8


async def test_a_keyboard_telegram_refuses_does_not_cost_the_words(fake, engine):
    async with running(engine, settings(fake)) as channel:
        fake.fail_next("sendMessage", Fault(400, "Bad Request: BUTTON_DATA_INVALID"))
        await post(channel, notice())
    assert [(sent.text, sent.buttons) for sent in fake.sent] == [("Nearly full.", [])]


# --- back -----------------------------------------------------------------------------------------


async def test_a_press_arrives_as_the_command_and_ends_the_buttons(fake, engine):
    async with running(engine, settings(fake)) as channel:
        message = int(await post(channel, notice()))
        query = fake.press(7, message, "/notices later")
        await engine.wait_until(lambda e: len(e.received) == 1)
        await answered(fake, query)
        await cleared(fake, message)
        await fake.wait_acknowledged()
    got = engine.received[0]
    assert (got.text, got.message_id, got.sender) == ("/notices later", f"press-{query}", "7")
    assert (got.chat, got.chat_type, got.locale, got.sender_name) == ("7", "direct", "en", "User7")
    assert abs(got.sent_at - time.time() * 1000) < 60_000
    assert fake.sent[0].text == "Nearly full."


async def test_a_press_below_a_picture_works_as_well(fake, engine):
    async with running(engine, settings(fake)) as channel:
        message = int(await post(channel, notice()))
        fake.press(7, message, message={**BARE, "message_id": message, "photo": []})
        await engine.wait_until(lambda e: len(e.received) == 1)
        await cleared(fake, message)


BARE = {"message_id": 1, "chat": {"id": 7, "type": "private"}, "date": 0}


async def test_a_press_is_not_answered_before_it_is_stored(fake, engine):
    engine.failures = 3
    async with running(engine, settings(fake)) as channel:
        query = fake.press(7, int(await post(channel, notice())))
        await engine.wait_until(lambda e: e.attempts == 3)
        assert not fake.called("answerCallbackQuery")
        await answered(fake, query)
    assert len(engine.received) == 1


async def test_a_double_tap_is_one_press(fake, engine):
    async with running(engine, settings(fake)) as channel:
        message = int(await post(channel, notice()))
        fake.fail_next("editMessageReplyMarkup", Fault(500, delay=0.2))
        first, second = fake.press(7, message), fake.press(7, message, "/new")
        await answered(fake, first)
        await answered(fake, second)
    assert [inbound.text for inbound in engine.received] == ["/compact"]


async def test_buttons_that_could_not_be_removed_go_on_working(fake, engine):
    async with running(engine, settings(fake)) as channel:
        message = int(await post(channel, notice()))
        fake.fail_next("editMessageReplyMarkup", Fault(500))
        fake.press(7, message, "/notices later")
        await fake.wait_called("editMessageReplyMarkup")
        await engine.wait_until(lambda e: len(e.received) == 1)
        inner = channel._accounts["default"].updates._presses
        await until(lambda: not inner._open)
        fake.press(7, message, "/compact")
        await engine.wait_until(lambda e: len(e.received) == 2)
        await cleared(fake, message)
    assert [inbound.text for inbound in engine.received] == ["/notices later", "/compact"]


async def test_a_press_below_a_message_telegram_no_longer_knows_still_counts(fake, engine):
    async with running(engine, settings(fake)):
        query = fake.press(7, 4321, "/compact", message={**BARE, "message_id": 4321})
        await engine.wait_until(lambda e: len(e.received) == 1)
        await fake.wait_called("editMessageReplyMarkup")
        fake.push_text(7, "and on it goes")
        await engine.wait_until(lambda e: len(e.received) == 2)
    assert fake.queries[query]


async def test_a_press_too_old_to_be_answered_still_counts(fake, engine):
    async with running(engine, settings(fake)) as channel:
        message = int(await post(channel, notice()))
        fake.press(7, message, id="111")
        await engine.wait_until(lambda e: len(e.received) == 1)
        await cleared(fake, message)


@pytest.mark.parametrize(
    "extra",
    [
        {"data": "compact"},
        {"data": "/a\n/b"},
        {"data": "/" + "x" * 64},
        {"data": None},
        {"data": 7},
        {"data": "", "game_short_name": "chess"},
        {"message": None, "inline_message_id": "abc"},
        {"message": {**BARE, "chat": {"id": -100, "type": "supergroup", "is_forum": True}}},
        {"message": []},
        {"from": {"id": 99, "is_bot": True}},
        {"from": None},
    ],
)
async def test_what_is_no_press_of_ours_is_answered_and_nothing_else(fake, engine, extra):
    async with running(engine, settings(fake)):
        query = fake.press(7, 1, "/compact", **extra)
        await answered(fake, query)
        await fake.wait_acknowledged()
    assert engine.received == []
    assert not fake.called("editMessageReplyMarkup")


@pytest.mark.parametrize("query", [None, 7, "", "x" * 200, {"id": "1"}])
async def test_a_press_without_a_usable_id_does_no_harm(fake, engine, query):
    async with running(engine, settings(fake)):
        fake.press(7, 1, "/compact", id=query)
        fake.push({"callback_query": query})
        fake.push_text(7, "goes on")
        await engine.wait_until(lambda e: len(e.received) == 1)
        await fake.wait_acknowledged()
    assert engine.received[0].text == "goes on"


async def test_a_flood_of_presses_stays_bounded_and_loses_none(fake, engine, monkeypatch):
    monkeypatch.setattr(updates, "AT_ONCE", 5)
    monkeypatch.setattr(updates, "REMEMBERED", 10)
    async with running(engine, settings(fake)) as channel:
        for number in range(300):
            fake.press(7, 1000 + number, "/compact")
        await engine.wait_until(lambda e: len(e.received) == 300)
        inner = channel._accounts["default"].updates._presses
        assert inner._open <= 5
        assert len(inner._pressed) <= 10


async def test_a_stop_in_the_middle_of_answering_ends_at_once(fake, engine):
    fake.fail_next("answerCallbackQuery", Fault(delay=120))
    async with asyncio.timeout(60):
        async with running(engine, settings(fake)) as channel:
            fake.press(7, int(await post(channel, notice())))
            await until(lambda: fake.counts["answercallbackquery"])
