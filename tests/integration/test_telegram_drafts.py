"""Replies while they are being written, in groups and in direct chats."""

import asyncio

import pytest

from adapters.telegram.drafts import MARK
from adapters.telegram.send import Allowance
from bot.channel import Address, Attachment, Button, Outbound
from bot.errors import SendLater, SendTransient, StorageError
from tests.fakes.telegram import FakeTelegram, Fault
from tests.fakes.telegram_channel import WatchingEngine, running, settings
from tests.support import post

TEA = -1001
ROOM = Address("telegram", "default", str(TEA))
ADA = Address("telegram", "default", "7")
PICTURE = Attachment("a.png", "image/png", b"\x89PNG\r\n\x1a\n")


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
    await post(channel, reply("Look.", attachments=(PICTURE,)))
    assert [(s.text, s.kind) for s in fake.sent] == [("Look.", "photo")]


async def test_a_draft_that_comes_to_nothing_is_taken_away(fake, channel):
    await channel.draft(ROOM, "d1", "Never mind")
    await channel.draft(ROOM, "d1", "")
    assert fake.texts(TEA) == []
    await channel.draft(ROOM, "d1", "")


async def test_a_notice_leaves_the_draft_alone(fake, channel):
    await channel.draft(ROOM, "d1", "One")
    await post(channel, reply("Nearly full.", kind="notice", draft=""))
    await post(channel, reply("One, two.", outbound_id="o2"))
    assert fake.texts(TEA) == ["One, two.", "Nearly full."]


async def test_a_draft_somebody_deleted_is_replaced_by_a_new_message(fake, channel):
    await channel.draft(ROOM, "d1", "One")
    await channel.draft(ROOM, "d1", "One, two")
    fake._messages[TEA].clear()
    fake.sent.clear()
    await post(channel, reply("One, two, three."))
    assert fake.texts(TEA) == ["One, two, three."]


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
    fake.fail_next("editMessageText", Fault(400, "Bad Request: can't parse entities"))
    await post(channel, reply("**One**, two."))
    assert [(s.text, s.source) for s in fake.sent] == [("One, two.", "One, two.")]


async def test_drafts_leave_room_for_what_is_finished(fake, channel):
    fake.group_limit = 20
    account = channel._accounts["default"]
    for number in range(12):
        async with asyncio.timeout(30):
            await channel.draft(ROOM, "d1", f"{number} of many")
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
    async with asyncio.timeout(30):
        await post(channel, reply("One, two."))
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


async def test_after_a_restart_the_reply_goes_on_where_it_stood(fake, engine):
    number = await left(fake, engine, "One")
    async with running(engine, settings(fake)) as channel:
        await channel.draft(ROOM, "d1", "One, two")
        assert fake.texts(TEA) == [f"One, two{MARK}"]
        await post(channel, reply("One, two, three."))
    assert [(s.text, s.message_id) for s in fake.sent] == [("One, two, three.", number)]


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
    monkeypatch.setattr("adapters.telegram.drafts.KEPT_FOR", -1)
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
