"""The real SDK sends to the fake server, which is as strict as Telegram."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from telegram import InputFile
from telegram.error import TimedOut

from bot.channel import Address, Command, Health, Outbound
from bot.errors import ChatMoved, SendLater, SendRefused, SendTransient
from tests.fakes import telegram_channel
from tests.fakes.telegram import FakeTelegram, Fault
from tests.fakes.telegram_channel import WatchingEngine, running
from tests.fakes.telegram_html import units
from tests.support import PATIENCE, post

ADA = Address("telegram", "default", "7")


@pytest.fixture
async def fake():
    async with FakeTelegram() as server:
        server.chats.add(7)
        yield server


@pytest.fixture
async def channel(fake):
    async with running(WatchingEngine(), telegram_channel.settings(fake)) as running_channel:
        yield running_channel


def out(text, outbound_id="o1", **fields):
    return Outbound(outbound_id, fields.pop("address", ADA), text, **fields)


async def test_markdown_shows_as_telegram_formatting(fake, channel):
    number = await post(channel, out("**bold** <b>not</b>"))
    sent = fake.sent[0]
    assert (sent.text, sent.source) == ("bold <b>not</b>", "<b>bold</b> &lt;b&gt;not&lt;/b&gt;")
    assert number == str(sent.message_id)
    assert fake.called("sendMessage")[0].params["link_preview_options"] == {"is_disabled": True}


async def test_a_reply_points_at_the_message_it_answers(fake, channel):
    asked = fake.push_text(7, "question")
    await post(channel, out("answer", reply_to=str(asked)))
    await post(channel, out("to an edit", reply_to=f"{asked}:e1700000000"))
    await post(channel, out("to nothing", reply_to="999"))
    await post(channel, out("odd", reply_to="abc"))
    assert [sent.reply_to for sent in fake.sent] == [asked, asked, None, None]


async def test_a_reply_goes_out_even_if_the_server_insists(fake, channel):
    fake.fail_next("sendMessage", Fault(400, "Bad Request: message to be replied not found"))
    await post(channel, out("answer", reply_to="5"))
    assert fake.texts(7) == ["answer"]


async def test_a_topic_is_answered_in_the_topic_and_a_deleted_one_in_the_chat(fake, channel):
    fake.topics[7].add(3)
    await post(channel, out("in", address=Address("telegram", "default", "7", "3")))
    await post(channel, out("gone", address=Address("telegram", "default", "7", "4")))
    assert [(s.text, s.thread_id) for s in fake.sent] == [("in", 3), ("gone", None)]


async def test_a_parse_error_sends_the_same_words_plain(fake, channel):
    complaint = "Bad Request: can't parse entities: Unsupported start tag"
    fake.fail_next("sendMessage", Fault(400, complaint))
    with capture_logs() as logs:
        await post(channel, out("**bold** & `code`"))
    assert (fake.sent[0].source, fake.sent[0].parse_mode) == ("bold & code", "")
    assert [log["event"] for log in logs] == ["telegram.send.simplified"]


@pytest.mark.parametrize("letter", ["a", "中", "😀"])
@pytest.mark.parametrize("off", [-1, 0, 1, 5000])
async def test_messages_keep_telegrams_limit(fake, channel, letter, off):
    text = letter * max(1, 4096 // units(letter) + off)
    await post(channel, out(text))
    assert "".join(fake.texts(7)) == text


async def test_a_text_that_grows_by_formatting_is_split_in_order(fake, channel):
    rows = "\n".join(f"| {'w' * (n % 30)} | {n} |" for n in range(150))
    await post(channel, out(f"| {'a' * 30} | b |\n|--|--|\n{rows}"))
    assert len(fake.sent) > 1
    assert all(sent.source.startswith("<pre>") for sent in fake.sent)
    numbers = [
        int(line.split("|")[1])
        for sent in fake.sent
        for line in sent.text.split("\n")
        if line.split("|")[-1].strip().isdigit()
    ]
    assert numbers == list(range(150))


async def test_a_long_code_block_stays_code_in_every_message(fake, channel):
    lines = [f"value_{n} = '😀' * {n}" for n in range(400)]
    await post(channel, out("Look:\n\n```python\n" + "\n".join(lines) + "\n```\n\nDone."))
    assert len(fake.sent) > 1
    assert all('<pre><code class="language-python">' in sent.source for sent in fake.sent)
    shown = "\n".join(sent.text for sent in fake.sent).split("\n")
    assert [line for line in shown if line.startswith("value_")] == lines


async def test_a_retry_goes_on_after_the_messages_that_are_out(fake, channel):
    text = "\n".join(f"**{letter * 3000}**" for letter in "xyz")
    fake.flood(3, match="yyy")
    with pytest.raises(SendLater):
        await post(channel, out(text))
    number = await post(channel, out(text))
    assert [sent.text[0] for sent in fake.sent] == ["x", "y", "z"]
    assert number == str(fake.sent[0].message_id)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(500), SendTransient),
        (Fault(502, "Bad Gateway", body=b"<html>"), SendTransient),
        (Fault(drop=True), SendTransient),
        (Fault(200, body=b"not json"), SendTransient),
        (Fault(401, "Unauthorized"), SendTransient),
        (Fault(404, "Not Found"), SendTransient),
        (Fault(409, "Conflict"), SendTransient),
        (Fault(400, "Bad Request: CHAT_RESTRICTED"), SendRefused),
        (Fault(403, "Forbidden: user is deactivated"), SendRefused),
        (Fault(429, "Too Many Requests: retry after 9", {"retry_after": 9}), SendLater),
    ],
)
async def test_every_failure_says_whether_to_try_again(fake, channel, fault, error):
    fake.fail_next("sendMessage", fault)
    with pytest.raises(error) as caught:
        await post(channel, out("hello"))
    assert fake.token not in str(caught.value)
    assert fake.sent == []
    await post(channel, out("hello"))
    assert fake.texts(7) == ["hello"]


async def test_the_wait_telegram_asks_for_is_passed_on(fake, channel):
    fake.flood(17)
    with pytest.raises(SendLater) as caught:
        await post(channel, out("hello"))
    assert caught.value.seconds == 17


async def test_a_slow_server_is_given_up_in_time(fake, channel):
    fake.fail_next("sendMessage", Fault(delay=PATIENCE))
    with pytest.raises(TimedOut):
        await channel._accounts["default"].bot.call(
            "sendMessage", {"chat_id": 7, "text": "x"}, read_timeout=0.05
        )


async def test_a_person_who_blocked_the_bot_is_not_written_to_again(fake, channel):
    fake.blocked.add(7)
    with pytest.raises(SendRefused, match="blocked"):
        await post(channel, out("hello"))


async def test_an_unknown_chat_is_refused(channel):
    with pytest.raises(SendRefused, match="Chat not found"):
        await post(channel, out("hello", address=Address("telegram", "default", "12345")))


async def test_a_chat_that_moved_says_where(fake, channel):
    fake.moved[7] = -1007
    with pytest.raises(ChatMoved) as caught:
        await post(channel, out("hello"))
    assert caught.value.chat == "-1007"


@pytest.mark.parametrize("text", ["", "  \n ", "\u200b", "\u200e\u200f"])
async def test_a_text_that_shows_nothing_is_refused(fake, channel, text):
    with pytest.raises(SendRefused):
        await post(channel, out(text))
    assert fake.sent == []


@pytest.mark.parametrize(
    "text", ["\u202eevil\u202c", "a\0b", "\ud83d", "x\u200by", "</b>&lt;<a href='x'>", "*" * 4096]
)
async def test_hostile_text_is_delivered_as_words(fake, channel, text):
    await post(channel, out(text))
    assert len(fake.sent) == 1
    assert fake.sent[0].parse_mode == "HTML"


async def test_an_account_that_is_not_configured_refuses(channel):
    with pytest.raises(SendRefused, match="not configured"):
        await post(channel, out("hello", address=Address("telegram", "work", "7")))


async def test_sending_before_the_start_is_a_passing_trouble(fake):
    channel = telegram_channel.Telegram(telegram_channel.settings(fake))
    with pytest.raises(SendTransient):
        await post(channel, out("hello"))
    await channel.typing(ADA)


async def test_typing_shows_and_never_raises(fake, channel):
    await channel.typing(ADA)
    assert fake.called("sendChatAction")[0].params["action"] == "typing"
    fake.blocked.add(7)
    await channel.typing(ADA)
    fake.drop_next("sendChatAction")
    await channel.typing(ADA)
    await channel.typing(Address("telegram", "nobody", "7"))


async def test_a_file_goes_up_as_multipart(fake, channel):
    bot = channel._accounts["default"].bot
    fake._methods["senddocument"] = lambda _bot, params: {
        "message_id": 1,
        "date": 0,
        "chat": {"id": 7, "type": "private"},
        "caption": params["document"].file.read().decode(),
    }
    sent = await bot.send_document(7, InputFile(b"content", "a.txt"))
    assert sent.caption == "content"


# --- the menu of commands ------------------------------------------------------------------------

MENU = {"": [Command("new", "Start a new conversation")], "zh": [Command("new", "开始新对话")]}


async def test_the_menu_is_registered_for_every_language(fake):
    async with running(WatchingEngine(), telegram_channel.settings(fake)) as channel:
        await channel.publish_commands(MENU)
        await fake.wait_called("setMyCommands", 2)
    assert fake.bots[fake.token].commands == {
        "": [{"command": "new", "description": "Start a new conversation"}],
        "zh": [{"command": "new", "description": "开始新对话"}],
    }


async def test_a_menu_given_before_the_start_is_registered_on_connecting(fake):
    channel = telegram_channel.Telegram(telegram_channel.settings(fake), telegram_channel.QUICK)
    await channel.publish_commands(MENU)
    await channel.start(WatchingEngine())
    await fake.wait_called("setMyCommands", 2)
    await channel.stop()


async def test_a_menu_keeps_telegrams_rules(fake):
    menu = {
        "": [
            Command("ok_1", "x" * 300),
            Command("No", "capital"),
            Command("a-b", "dash"),
            Command("", "empty"),
            Command("a" * 33, "long"),
            Command("bare", ""),
        ],
        "zh-CN": [Command("new", "新")],
        "zh": [Command("new", "second Chinese")],
        "tlh": [Command("new", "three letters")],
    }
    async with running(WatchingEngine(), telegram_channel.settings(fake)) as channel:
        await channel.publish_commands(menu)
        await fake.wait_called("setMyCommands", 2)
    commands = fake.bots[fake.token].commands
    assert commands.keys() == {"", "zh"}
    assert commands[""] == [
        {"command": "ok_1", "description": "x" * 256},
        {"command": "bare", "description": "bare"},
    ]
    assert commands["zh"] == [{"command": "new", "description": "新"}]


async def test_a_menu_that_fails_is_tried_again_at_the_next_connect(fake):
    fake.fail_next("setMyCommands", Fault(500))
    engine = WatchingEngine()
    async with running(engine, telegram_channel.settings(fake)) as channel:
        await channel.publish_commands(MENU)
        await fake.wait_called("setMyCommands")
        fake.push_text(7, "still works")
        await engine.wait_until(lambda e: len(e.received) == 1)
        fake.fail_next("getUpdates", Fault(502, "Bad Gateway"))
        fake.push_text(7, "again")
        await fake.wait_called("setMyCommands", 3)
    assert fake.bots[fake.token].commands.keys() == {"", "zh"}
    assert engine.health["telegram", "default"][0] is Health.UP


# --- anything at all -----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(st.sampled_from("ab *_`~[]()<>&#|-\n1.!中😀\"'\\"), min_size=1, max_size=300))
async def test_arbitrary_markdown_is_never_refused_for_its_form(fake, channel, text):
    try:
        await post(channel, out(text))
    except SendRefused:
        assert not any(char.isalnum() or char in "中😀" for char in text), text
    assert {call.params["parse_mode"] for call in fake.called("sendMessage")} <= {"HTML"}
