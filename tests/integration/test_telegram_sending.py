"""The real SDK sends to the fake server, which is as strict as Telegram."""

from __future__ import annotations

import asyncio
import io

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from PIL import Image
from structlog.testing import capture_logs
from telegram.error import TimedOut

from adapters.telegram import message, render, send
from adapters.telegram.send import MARK, Allowance
from bot.channel import Address, Attachment, Button, Command, Health, Outbound
from bot.errors import ChatMoved, SendLater, SendRefused, SendTransient, StorageError
from tests.fakes import telegram_channel
from tests.fakes.telegram import FakeTelegram, Fault
from tests.fakes.telegram_channel import WatchingEngine, running, settings
from tests.fakes.telegram_entities import units
from tests.support import PATIENCE, post

ADA = Address("telegram", "default", "7")


async def test_markdown_shows_as_telegram_formatting(fake, channel):
    number = await post(channel, out("**bold** <b>not</b>"))
    sent = fake.sent[0]
    assert (sent.text, sent.html) == ("bold <b>not</b>", "<b>bold</b> &lt;b&gt;not&lt;/b&gt;")
    assert number == str(sent.message_id)
    assert fake.called("sendMessage")[0].params["link_preview_options"] == {"is_disabled": True}


async def test_a_reply_points_at_the_message_it_answers(fake, channel, logs):
    asked = fake.push_text(7, "question")
    await post(channel, out("answer", reply_to=str(asked)))
    await post(channel, out("to an edit", reply_to=f"{asked}:e1700000000"))
    await post(channel, out("odd", reply_to="abc"))
    await post(channel, out("to nothing", reply_to="999"))
    await post(channel, out("once more", reply_to=str(asked)))
    assert [sent.reply_to for sent in fake.sent] == [asked, asked, None, None, asked]
    assert [(log["event"], log["chat"]) for log in logs] == [("telegram.reply.gone", "7")]


async def test_a_reply_goes_out_even_if_the_server_insists(fake, channel):
    fake.fail_next("sendMessage", Fault(400, "Bad Request: message to be replied not found"))
    await post(channel, out("answer", reply_to="5"))
    assert fake.texts(7) == ["answer"]


IN_TOPIC = Address("telegram", "default", "-1001", "8")


@pytest.mark.parametrize("text", ["Hello", "你好", "x" * 5000])
@pytest.mark.parametrize("complaint", ["message thread not found", "TOPIC_DELETED"])
async def test_what_was_for_a_deleted_topic_is_in_the_chat_and_says_so(
    fake, channel, text, complaint, logs
):
    await post(channel, out(text, address=IN_TOPIC))
    assert [s.thread_id for s in fake.sent] == [8] * len(fake.sent)
    fake.sent.clear()
    fake.topics[TEA].clear()
    fake.fail_next("sendMessage", Fault(400, f"Bad Request: {complaint}"))
    await post(channel, out(text, address=IN_TOPIC, outbound_id="o2"))
    *parts, why = fake.sent
    assert "".join(part.text for part in parts) == text
    assert why.text == send._TOPIC_GONE["zh" if text == "你好" else "en"]
    assert {part.thread_id for part in fake.sent} == {None}
    assert {(log["event"], log["without"]) for log in logs} == {
        ("telegram.send.simplified", "message_thread_id")
    }
    assert complaint.lower() in logs[0]["error"].lower()


async def test_what_could_not_be_said_of_a_deleted_topic_costs_no_second_answer(fake, channel):
    fake.topics[TEA].clear()
    fake.fail_next("sendMessage", Fault(500, match="topic"))
    with capture_logs() as logs:
        await post(channel, out("Hello", address=IN_TOPIC))
    assert fake.texts(TEA) == ["Hello"]
    assert logs[-1]["event"] == "telegram.topic.unexplained"


async def test_a_parse_error_sends_the_same_words_plain(fake, channel, logs):
    complaint = "Bad Request: entity begins in a middle of a UTF-16 symbol at byte offset 3"
    fake.fail_next("sendMessage", Fault(400, complaint))
    await post(channel, out("**bold** & `code`"))
    assert (fake.sent[0].text, fake.sent[0].entities) == ("bold & code", [])
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
    assert all(sent.html.startswith("<pre>") for sent in fake.sent)
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
    assert all('<pre><code class="python">' in sent.html for sent in fake.sent)
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
        (Fault(400, "Bad Request: moved", {"migrate_to_chat_id": -1007}), ChatMoved),
    ],
)
async def test_every_failure_says_whether_to_try_again(fake, channel, fault, error):
    for method, letter in (("sendMessage", out("hello")), ("sendPhoto", out("Look.", PICTURE))):
        fake.sent.clear()
        fake.fail_next(method, fault)
        with pytest.raises(error) as caught:
            await post(channel, letter)
        assert fake.token not in str(caught.value)
        assert fake.sent == []
        await post(channel, letter)
        assert fake.texts(7) == [letter.text]


async def test_a_slow_server_is_given_up_in_time(fake, channel):
    fake.fail_next("sendMessage", Fault(delay=PATIENCE))
    with pytest.raises(TimedOut):
        await channel._accounts["default"].bot.call(
            "sendMessage", {"chat_id": 7, "text": "x"}, read_timeout=0.05
        )


@pytest.mark.parametrize(
    "text", ["\u202eevil\u202c", "a\0b", "\ud83d", "x\u200by", "</b>&lt;<a href='x'>", "*" * 4096]
)
async def test_hostile_text_is_delivered_as_words(fake, channel, text):
    await post(channel, out(text))
    assert len(fake.sent) == 1


async def test_an_account_that_is_not_configured_refuses(channel):
    with pytest.raises(SendRefused, match="not configured"):
        await post(channel, out("hello", address=Address("telegram", "work", "7")))


async def test_sending_before_the_start_is_a_passing_trouble(fake):
    channel = telegram_channel.Telegram(settings(fake))
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


# --- the menu of commands ------------------------------------------------------------------------

MENU = {"": [Command("new", "Start a new conversation")], "zh": [Command("new", "开始新对话")]}


async def test_the_menu_is_registered_for_every_language(fake):
    async with running(WatchingEngine(), settings(fake)) as channel:
        await channel.publish_commands(MENU)
        await fake.wait_called("setMyCommands", 2)
    assert fake.bots[fake.token].commands == {
        "": [{"command": "new", "description": "Start a new conversation"}],
        "zh": [{"command": "new", "description": "开始新对话"}],
    }


async def test_a_menu_given_before_the_start_is_registered_on_connecting(fake):
    channel = telegram_channel.Telegram(settings(fake), telegram_channel.QUICK)
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
    async with running(WatchingEngine(), settings(fake)) as channel:
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
    async with running(engine, settings(fake)) as channel:
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


@profile(suppress_health_check=list(HealthCheck))
@given(st.text(st.sampled_from("ab *_`~[]()<>&#|-\n1.!中😀\"'\\"), min_size=1, max_size=300))
async def test_arbitrary_markdown_is_never_refused_for_its_form(fake, channel, text):
    try:
        await post(channel, out(text))
    except SendRefused:
        assert not any(char.isalnum() or char in "中😀" for char in text), text
    assert len(fake.called("sendMessage")) == len(fake.sent)


TEA = -1001
ROOM = Address("telegram", "default", str(TEA))
SMALL_PICTURE = Attachment("a.png", "image/png", b"\x89PNG\r\n\x1a\n")


@pytest.fixture
async def fake():
    async with FakeTelegram() as server:
        server.room(TEA, is_forum=True)
        server.topic(TEA, 8)
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


def reply(text, address=ROOM, outbound_id="o1", draft="d1", **fields):
    return Outbound(outbound_id, address, text, draft=draft, **fields)


async def test_in_a_group_one_message_grows_until_it_is_the_reply(fake, channel):
    for text in ("One", "One, **two", "One, **two**, three"):
        await channel.draft(ROOM, "d1", text)
    assert fake.texts(TEA) == [f"One, two, three{MARK}"]
    buttons = (Button("Compact", "/compact"),)
    number = await post(channel, reply("One, **two**, three, four.", buttons=buttons))
    sent = fake.sent_to(TEA)
    assert [(s.text, str(s.message_id)) for s in sent] == [("One, two, three, four.", number)]
    assert sent[0].buttons == [[("Compact", "/compact")]]
    assert fake.counts["sendmessage"] == 1
    assert fake.drafts == []


async def test_a_reply_longer_than_a_message_goes_on_below_the_draft(fake, channel):
    await channel.draft(ROOM, "d1", "x" * 6000)
    assert [len(text) for text in fake.texts(TEA)] == [4096]
    await post(channel, reply("x" * 6000))
    assert [len(text) for text in fake.texts(TEA)] == [4096, 1904]


async def test_a_draft_is_shown_in_its_topic_and_answers_what_was_asked(fake, engine, channel):
    asked = fake.say(TEA, 7, "@confidant_bot tea?", message_thread_id=8, is_topic_message=True)
    await engine.wait_until(lambda e: len(e.received) == 1)
    place = engine.received[0].address
    await channel.draft(place, "d1", "Tea")
    assert [(s.thread_id, s.reply_to) for s in fake.sent] == [(8, asked)]
    await post(channel, reply("Tea!", place, reply_to=str(asked)))
    assert [(s.text, s.thread_id, s.reply_to) for s in fake.sent] == [("Tea!", 8, asked)]


async def test_a_reply_to_another_message_takes_the_draft_away(fake, channel):
    await channel.draft(ROOM, "d1", "Tea")
    asked = fake.say(TEA, 7, "hello")
    await post(channel, reply("Tea!", reply_to=str(asked)))
    assert [(s.text, s.reply_to) for s in fake.sent] == [("Tea!", asked)]
    assert len(fake.deleted) == 1


async def test_a_reply_with_a_picture_takes_the_draft_away(fake, channel):
    await channel.draft(ROOM, "d1", "Look")
    await post(channel, reply("Look.", attachments=(SMALL_PICTURE,)))
    assert [(s.text, s.kind) for s in fake.sent] == [("Look.", "photo")]


async def test_a_draft_that_comes_to_nothing_is_taken_away(fake, channel):
    await channel.draft(ROOM, "d1", "Never mind")
    await channel.draft(ROOM, "d1", "")
    assert fake.texts(TEA) == []
    await channel.draft(ROOM, "d1", "")


async def test_a_reply_whose_answer_got_lost_is_not_sent_twice(fake, channel):
    await channel.draft(ROOM, "d1", "One")
    fake.drop_next("editMessageText", after=True)
    with pytest.raises(SendTransient):
        await post(channel, reply("One, two."))
    await channel.draft(ROOM, "d2", "The next one")
    number = await post(channel, reply("One, two."))
    assert fake.texts(TEA) == ["One, two.", f"The next one{MARK}"]
    assert number == str(fake.sent[0].message_id)


async def test_formatting_telegram_refuses_does_not_cost_the_reply(fake, channel):
    await channel.draft(ROOM, "d1", "One")
    fake.fail_next("editMessageText", Fault(400, "Bad Request: ENTITY_BOUNDS_INVALID"))
    await post(channel, reply("**One**, two."))
    assert [(s.text, s.entities) for s in fake.sent] == [("One, two.", [])]


async def test_drafts_leave_room_for_what_is_finished(fake, channel):
    fake.group_limit = 20
    account = channel._accounts["default"]
    for number in range(12):
        await asyncio.wait_for(channel.draft(ROOM, "d1", f"{number} of many"), 30)
    waiting = asyncio.create_task(channel.draft(ROOM, "d1", "too much for this minute"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert account.sender._allowance.wait(str(TEA)) == 0
    await post(channel, reply("The end."))
    await waiting
    assert fake.texts(TEA) == ["The end."]
    assert fake.counts["sendmessage"] + fake.counts["editmessagetext"] == 13


async def test_a_finished_reply_waits_its_turn_and_still_replaces_the_draft(fake, channel):
    await channel.draft(ROOM, "d1", "One")
    account = channel._accounts["default"]
    full, account.sender._allowance = account.sender._allowance, Allowance(1)
    account.sender._allowance.spend(str(TEA))
    with pytest.raises(SendLater):
        await post(channel, reply("One, two."))
    account.sender._allowance = full
    await post(channel, reply("One, two."))
    assert fake.texts(TEA) == ["One, two."]
    assert fake.deleted == []


async def test_in_a_direct_chat_telegrams_own_drafts_are_used(fake, channel):
    for text in ("One", "One, **two**"):
        await channel.draft(ADA, "d1", text)
    await channel.draft(ADA, "d2", "Other")
    shown = [(d["chat_id"], d["text"]) for d in fake.drafts]
    assert shown == [(7, "One"), (7, "One, two"), (7, "Other")]
    numbers = [d["draft_id"] for d in fake.drafts]
    assert numbers[0] == numbers[1] != numbers[2]
    await post(channel, reply("One, two, three.", ADA))
    await channel.draft(ADA, "d3", "")
    assert fake.texts(7) == ["One, two, three."]
    assert fake.counts["editmessagetext"] == 0


async def test_a_server_that_knows_no_drafts_is_asked_once(fake, channel):
    fake.knows_drafts = False
    for number in range(3):
        await channel.draft(ADA, f"d{number}", "One")
    assert fake.counts["sendmessagedraft"] == 1
    await channel.draft(ROOM, "d1", "One")
    assert fake.texts(TEA) == [f"One{MARK}"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(500),
        Fault(drop=True),
        Fault(403, "Forbidden: bot is not a member"),
        Fault(400, "Bad Request: TOPIC_CLOSED"),
        Fault(429, "Too Many Requests: retry after 0", {"retry_after": 0.01}),
    ],
)
async def test_a_draft_that_fails_disturbs_nobody(fake, channel, fault):
    fake.fail_next("sendMessage", fault)
    await channel.draft(ROOM, "d1", "One")
    await channel.draft(ROOM, "d1", "One, two")
    await post(channel, reply("One, two, three."))
    assert fake.texts(TEA) == ["One, two, three."]


async def test_a_stop_in_the_middle_of_a_draft_ends_at_once(fake, engine):
    fake.fail_next("sendMessage", Fault(delay=120))
    async with asyncio.timeout(30):
        async with running(engine, settings(fake)) as channel:
            await fake.wait_called("getUpdates")
            waiting = asyncio.create_task(channel.draft(ROOM, "d1", "One"))
            while not fake.counts["sendmessage"]:  # noqa: ASYNC110  # the call does not end
                await asyncio.sleep(0.001)
        await waiting


async def test_a_draft_whoever_shows_it_no_longer_waits_for_goes_on(fake, channel):
    fake.fail_next("sendMessage", Fault(200, delay=0.1, after=True, body=b"{}"))
    showing = asyncio.create_task(channel.draft(ROOM, "d1", "One"))
    await asyncio.sleep(0.05)
    showing.cancel()
    await asyncio.gather(showing, return_exceptions=True)
    await asyncio.wait_for(post(channel, reply("One, two.")), 30)
    assert "One, two." in fake.texts(TEA)


# --- over a restart -------------------------------------------------------------------------------


class Noted(WatchingEngine):
    """An engine that counts what it is asked to keep."""

    def __init__(self) -> None:
        super().__init__()
        self.kept_texts: list[str] = []

    async def keep(self, channel, account, name, text):
        self.kept_texts.append(text)
        await super().keep(channel, account, name, text)


async def left(fake: FakeTelegram, engine: WatchingEngine, *texts: str) -> int:
    """Run until a draft shows these texts one after the other, and stop; its message id."""
    async with running(engine, settings(fake)) as channel:
        for text in texts:
            await channel.draft(ROOM, "d1", text)
    assert fake.texts(TEA) == [f"{texts[-1]}{MARK}"]
    return fake.sent[0].message_id


async def test_after_a_restart_a_reply_that_is_only_to_be_sent_ends_its_draft(fake, engine):
    number = await left(fake, engine, "One")
    async with running(engine, settings(fake)) as channel:
        await post(channel, reply("Nearly full.", kind="notice", draft="", outbound_id="o0"))
        await channel.draft(ROOM, "d2", "The next")
        await post(channel, reply("One, two.", outbound_id="o1"))
        await post(channel, reply("The next one.", outbound_id="o2", draft="d2"))
    assert fake.texts(TEA) == ["One, two.", "Nearly full.", "The next one."]
    assert fake.sent[0].message_id == number


async def test_a_reply_that_was_finished_and_not_noted_is_not_sent_twice(fake, engine):
    await left(fake, engine, "One")
    for _ in range(2):
        async with running(engine, settings(fake)) as channel:
            await post(channel, reply("One, two."))
    assert fake.texts(TEA) == ["One, two."]


async def test_after_a_restart_a_finished_reply_is_left_alone(fake, engine):
    async with running(engine, settings(fake)) as channel:
        await channel.draft(ROOM, "d1", "One")
        await post(channel, reply("One, two."))
    async with running(engine, settings(fake)) as channel:
        await channel.draft(ROOM, "d2", "Three")
        await post(channel, reply("Three, four.", outbound_id="o2", draft="d2"))
        await channel.draft(ROOM, "d2", "")
        await post(channel, reply("Five.", outbound_id="o3", draft=""))
    assert fake.texts(TEA) == ["One, two.", "Three, four.", "Five."]
    assert fake.deleted == []


async def test_after_a_restart_a_draft_no_reply_comes_of_is_taken_away(fake, engine):
    await left(fake, engine, "One")
    async with running(engine, settings(fake)) as channel:
        await channel.draft(ROOM, "d1", "")
    assert fake.texts(TEA) == []


async def test_a_draft_costs_one_write_and_in_a_direct_chat_none(fake):
    engine = Noted()
    await left(fake, engine, "One", "One, two", "One, two, three")
    assert len(engine.kept_texts) == 1
    async with running(engine, settings(fake)) as channel:
        await post(channel, reply("One, two, three, four."))
        await channel.draft(ADA, "d2", "Five")
        await post(channel, reply("Five, six.", ADA, "o2", "d2"))
    assert len(engine.kept_texts) == 1
    assert "One" not in engine.kept_texts[0]


async def test_drafts_of_each_place_are_kept_and_old_ones_forgotten(fake, engine, monkeypatch):
    inside = Address("telegram", "default", str(TEA), "8")
    async with running(engine, settings(fake)) as channel:
        for number in range(3):
            await channel.draft(ROOM, f"d{number}", "One")
        await channel.draft(inside, "d9", "Two")
    assert len(engine.notes) == 2
    monkeypatch.setattr("adapters.telegram.send.KEPT_FOR", -1)
    async with running(engine, settings(fake)) as channel:
        assert engine.notes == {}
        await post(channel, reply("Three.", outbound_id="o9", draft="d9"))
    assert "Three." in fake.texts(TEA)


async def test_a_full_disk_disturbs_no_reply(fake, engine):
    engine.failures = 1
    async with running(engine, settings(fake)) as channel:
        await channel.draft(ROOM, "d1", "One")
        await post(channel, reply("One, two."))
    assert fake.texts(TEA) == ["One, two."]
    assert engine.notes == {}


async def test_notes_that_cannot_be_read_do_not_keep_it_from_starting(fake):
    class Unreadable(WatchingEngine):
        reads = 0

        async def kept(self, channel, account):
            self.reads += 1
            if self.reads == 1:
                raise StorageError("the disk is broken")
            return await super().kept(channel, account)

    async with running(Unreadable(), settings(fake)) as channel:
        await post(channel, reply("One."))
    assert fake.texts(TEA) == ["One."]


def png():
    file = io.BytesIO()
    Image.new("RGB", (8, 4), "#0072b2").save(file, "PNG")
    return file.getvalue()


PICTURE = Attachment("context.png", "image/png", png())
NOTES = Attachment("notes.txt", "text/plain", "grüße".encode())


def out(text, *files: Attachment, outbound_id="o1", **fields):
    return Outbound(outbound_id, fields.pop("address", ADA), text, attachments=files, **fields)


def kinds(fake):
    return [(sent.kind, sent.text) for sent in fake.sent]


async def test_a_picture_goes_out_with_its_words_below(fake, channel):
    assert channel.capabilities.attachments
    asked = fake.push_text(7, "/context")
    buttons = (Button("Compact", "/compact"),)
    number = await post(
        channel, out("**57 %** & more", PICTURE, reply_to=str(asked), buttons=buttons)
    )
    sent = fake.sent[0]
    assert (sent.kind, sent.file, sent.mime) == ("photo", "context.png", "image/png")
    assert (sent.text, sent.html) == ("57 % & more", "<b>57 %</b> &amp; more")
    assert (sent.reply_to, str(sent.message_id)) == (asked, number)
    assert sent.buttons == [[("Compact", "/compact")]]
    with Image.open(io.BytesIO(fake.files[7, sent.message_id])) as image:
        assert image.size == (8, 4)


async def test_anything_but_a_picture_goes_out_as_a_file(fake, channel):
    drawing = Attachment("a.svg", "image/svg+xml", b"<svg/>")
    await post(channel, out("Here.", NOTES, drawing))
    assert kinds(fake) == [("document", "Here."), ("document", "")]
    assert [(sent.file, sent.mime) for sent in fake.sent] == [
        ("notes.txt", "text/plain"),
        ("a.svg", "image/svg+xml"),
    ]
    assert fake.files[7, fake.sent[0].message_id] == "grüße".encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x" * 1024, [("photo", "x" * 1024)]),
        ("😀" * 512, [("photo", "😀" * 512)]),
        ("x" * 1025, [("", "x" * 1025), ("photo", "")]),
        ("😀" * 512 + "x", [("", "😀" * 512 + "x"), ("photo", "")]),
    ],
)
async def test_words_too_long_for_a_caption_come_before_the_picture(fake, channel, text, expected):
    await post(channel, out(text, PICTURE, buttons=(Button("Compact", "/compact"),)))
    assert kinds(fake) == expected
    assert [bool(sent.buttons) for sent in fake.sent] == [False, True][-len(expected) :]


async def test_a_picture_needs_no_words(fake, channel):
    await post(channel, out("", PICTURE))
    assert kinds(fake) == [("photo", "")]


async def test_a_large_file_goes_up_whole(fake, channel):
    large = Attachment("large.bin", "application/octet-stream", bytes(range(256)) * 20_000)
    await post(channel, out("Here.", large))
    assert fake.files[7, fake.sent[0].message_id] == large.data


async def test_a_topic_holds_for_pictures_too(fake, channel):
    fake.topics[7].add(3)
    place = Address("telegram", "default", "7", "3")
    await post(channel, out("x" * 2000, PICTURE, address=place))
    assert [sent.thread_id for sent in fake.sent] == [3, 3]


async def test_a_picture_telegram_cannot_read_goes_out_as_a_file(fake, channel, logs):
    broken = Attachment("broken.png", "image/png", b"not a picture")
    await post(channel, out("Look.", broken))
    assert kinds(fake) == [("document", "Look.")]
    assert logs[0] == {"event": "telegram.send.simplified", "without": "photo"} | logs[0]


async def test_a_caption_telegram_cannot_parse_goes_out_plain(fake, channel):
    fake.fail_next("sendPhoto", Fault(400, "Bad Request: ENTITIES_TOO_LONG"))
    await post(channel, out("**bold** & so", PICTURE))
    assert (fake.sent[0].text, fake.sent[0].entities) == ("bold & so", [])


async def test_a_file_beyond_the_limits_is_left_out_and_the_words_go_out(
    fake, channel, monkeypatch, logs
):
    monkeypatch.setattr(render, "MAX_FILE", 100)
    large = Attachment("large.bin", "application/octet-stream", b"x" * 101)
    await post(channel, out("Here.", large, Attachment("empty.txt", "text/plain", b"")))
    assert kinds(fake) == [("", "Here.")]
    assert [log["event"] for log in logs] == ["telegram.file.left_out"] * 2


async def test_a_picture_too_large_to_show_goes_out_as_a_file(fake, channel, monkeypatch):
    monkeypatch.setattr(message, "MAX_PHOTO", 10)
    await post(channel, out("Here.", PICTURE))
    assert kinds(fake) == [("document", "Here.")]


@pytest.mark.parametrize(
    "name", ["", "../../etc/passwd", 'a"b\r\nX: y.png', "图 片.png", "x" * 300]
)
async def test_a_name_cannot_break_out_of_its_header(fake, channel, name):
    await post(channel, out("Here.", Attachment(name, "image/png", png())))
    sent = fake.sent[0]
    assert sent.kind == "photo"
    assert not set(sent.file) & set('/"\r\n')
    assert len(sent.file) <= 64


async def test_a_retry_goes_on_after_the_files_that_are_out(fake, channel):
    letter = out("x" * 2000, PICTURE, NOTES)
    fake.flood(3, "sendDocument")
    with pytest.raises(SendLater) as caught:
        await post(channel, letter)
    assert caught.value.seconds == 3
    number = await post(channel, letter)
    assert kinds(fake) == [("", "x" * 2000), ("photo", ""), ("document", "")]
    assert number == str(fake.sent[0].message_id)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(413, "Request Entity Too Large"),
        Fault(400, "Bad Request: CHAT_SEND_PHOTOS_FORBIDDEN"),
    ],
)
async def test_a_picture_that_is_refused_says_so(fake, channel, fault):
    fake.fail_next("sendPhoto", fault)
    with pytest.raises(SendRefused):
        await post(channel, out("Look.", PICTURE))
    assert fake.sent == []


async def test_sound_is_a_voice_message_unless_the_person_wants_none(fake, channel):
    sound = Attachment("voice.ogg", "audio/ogg", b"OggS")
    await post(channel, out("", sound))
    assert [(sent.kind, sent.mime, sent.text) for sent in fake.sent] == [("voice", "audio/ogg", "")]
    fake.fail_next("sendVoice", Fault(400, "Bad Request: VOICE_MESSAGES_FORBIDDEN"))
    with pytest.raises(SendRefused, match=r"(?i)voice_messages_forbidden"):
        await post(channel, out("", sound))
    assert len(fake.sent) == 1
