"""Buttons: out as a keyboard, back as the command they carry, and gone once pressed."""

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from adapters.telegram import presses
from bot.channel import Address, Button, Outbound
from tests.fakes.telegram import FakeTelegram, Fault
from tests.fakes.telegram_channel import WatchingEngine, running, settings
from tests.support import post

ADA = Address("telegram", "default", "7")
CHOICES = (
    Button("Compact", "/compact"),
    Button("Start fresh", "/new"),
    Button("Not now", "/notices later"),
)


@pytest.fixture
async def fake():
    async with FakeTelegram() as server:
        server.chats.add(7)
        yield server


@pytest.fixture
def engine():
    return WatchingEngine()


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


async def test_buttons_stand_below_the_message_and_carry_their_commands(fake, engine):
    async with running(engine, settings(fake)) as channel:
        assert channel.capabilities.buttons
        await post(channel, notice())
    assert fake.sent[0].text == "Nearly full."
    assert [pair for row in fake.sent[0].buttons for pair in row] == [
        ("Compact", "/compact"),
        ("Start fresh", "/new"),
        ("Not now", "/notices later"),
    ]


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


async def test_buttons_stand_below_the_last_of_several_messages(fake, engine):
    async with running(engine, settings(fake)) as channel:
        await post(channel, notice("x" * 5000))
    assert [bool(sent.buttons) for sent in fake.sent] == [False, True]


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


async def test_a_press_that_comes_again_after_a_restart_is_the_same_message(fake, engine):
    async with running(engine, settings(fake)) as channel:
        message = int(await post(channel, notice()))
        query = fake.press(7, message)
        await engine.wait_until(lambda e: len(e.received) == 1)
    async with running(engine, settings(fake)):
        fake.press(7, message, "/compact", id=query)
        await engine.wait_until(lambda e: len(e.received) == 2)
        await fake.wait_acknowledged()
    first, second = engine.received
    assert (first.message_id, first.text) == (second.message_id, second.text)


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


async def test_who_pressed_is_the_sender_also_when_that_is_a_stranger(fake, engine):
    stranger = {"id": 8, "is_bot": False, "first_name": "Eve", "language_code": "zh-hans"}
    async with running(engine, settings(fake)):
        fake.press(7, 1, "/compact", **{"from": stranger})
        await engine.wait_until(lambda e: len(e.received) == 1)
    assert (engine.received[0].sender, engine.received[0].locale) == ("8", "zh-hans")


async def test_a_flood_of_presses_stays_bounded_and_loses_none(fake, engine, monkeypatch):
    monkeypatch.setattr(presses, "AT_ONCE", 5)
    monkeypatch.setattr(presses, "REMEMBERED", 10)
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
