"""The real SDK polls the fake server: nothing is acknowledged before it is stored."""

from __future__ import annotations

import asyncio
import json
import logging
import re

import aiohttp
import pytest
import structlog

from adapters.telegram.channel import Telegram
from adapters.telegram.webhook import SECRET_HEADER
from bot.channel import Address, Health, Inbound
from bot.channel.kit.supervisor import MAX_FAULTS
from bot.commands.commander import menus
from bot.errors import ChannelError
from bot.views.outcomes import told
from tests.fakes.ports import free_port
from tests.fakes.telegram import FakeTelegram, Fault
from tests.fakes.telegram_channel import WatchingEngine, running, settings


@pytest.fixture
def engine():
    return WatchingEngine()


async def test_a_message_arrives_and_is_acknowledged(fake, engine):
    async with running(engine, settings(fake)):
        fake.push_text(7, "hello")
        await engine.wait_until(lambda e: len(e.received) == 1)
        await fake.wait_acknowledged()
    assert engine.received[0].text == "hello"
    assert engine.reports[0] == ("default", Health.STARTING, "")
    assert engine.health["telegram", "default"] == (Health.UP, "")


async def test_nothing_is_acknowledged_until_it_is_stored(fake, engine):
    engine.failures = 4
    async with running(engine, settings(fake)):
        for number in range(3):
            fake.push_text(7, f"m{number}")
        await engine.wait_until(lambda e: e.attempts >= 3)
        assert fake.pending() == 3
        assert all(not call.params.get("offset") for call in fake.called("getUpdates"))
        await engine.wait_until(lambda e: len(e.received) == 3)
        await fake.wait_acknowledged()
    assert [inbound.text for inbound in engine.received] == ["m0", "m1", "m2"]
    assert engine.said(Health.DEGRADED)
    assert engine.health["telegram", "default"][0] is Health.UP


async def test_reactions_are_asked_for_and_told_in_order(fake, engine):
    ada, thumb = {"id": 7, "first_name": "Ada"}, [{"type": "emoji", "emoji": "👍"}]
    change = {"chat": {"id": 7, "type": "private"}, "message_id": 5, "user": ada, "date": 9}
    async with running(engine, settings(fake)):
        fake.push_text(7, "hello")
        await engine.wait_until(lambda e: bool(e.received))  # Telegram knows what is wanted now
        for before, after in (([], thumb), (thumb, [])):
            fake.push(
                {"message_reaction": change | {"old_reaction": before, "new_reaction": after}}
            )
        await engine.wait_until(lambda e: len(e.reactions) == 2)
        await fake.wait_acknowledged()
    told = [(each.emoji, each.sender_name, each.is_removed) for each in engine.reactions]
    assert told == [("👍", "Ada", False), ("👍", "Ada", True)]


async def test_a_stop_while_storage_fails_leaves_the_messages_at_telegram(fake, engine):
    engine.failures = 10**9
    async with running(engine, settings(fake)):
        fake.push_text(7, "keep me")
        await engine.wait_until(lambda e: e.attempts >= 2)
    assert fake.pending() == 1
    engine.failures = 0
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) == 1)
        await fake.wait_acknowledged()


async def test_order_holds_within_a_chat_while_chats_run_side_by_side(fake):
    class Waits(WatchingEngine):
        """Chat 1 is stored only once chat 2 is."""

        async def receive(self, inbound: Inbound):
            if inbound.chat == "1":
                await self.wait_until(lambda e: any(i.chat == "2" for i in e.received))
            await super().receive(inbound)

    engine = Waits()
    for number in range(20):
        fake.push_text(1, f"a{number}")
    for number in range(20):
        fake.push_text(2, f"b{number}")
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) == 40)
    for chat, letter in (("1", "a"), ("2", "b")):
        texts = [i.text for i in engine.received if i.chat == chat]
        assert texts == [f"{letter}{n}" for n in range(20)]


async def test_more_than_one_batch_arrives_in_order(fake, engine):
    for number in range(250):
        fake.push_text(7, str(number))
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) == 250)
        await fake.wait_acknowledged()
    assert [i.text for i in engine.received] == [str(n) for n in range(250)]


@pytest.mark.parametrize(
    "bad",
    [
        {"message": None},
        {"message": {"chat": "x", "from": 5, "date": "now"}},
        {"message": {"message_id": 1, "chat": {"id": 7, "type": "private"}, "date": 10**40}},
        {"message": [1, 2]},
        {},
        {"some_new_kind": {"x": 1}},
        {"message": {"message_id": 1, "text": "\ud83d", "date": {}, "entities": "x"}},
    ],
)
async def test_one_bad_update_stops_neither_the_poller_nor_its_neighbours(fake, engine, bad, logs):
    fake.push_text(7, "before")
    fake.bots[fake.token].updates.append({"update_id": 2, **bad})
    fake.bots[fake.token].next_update = 3
    fake.push_text(7, "after")
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) == 2)
        await fake.wait_acknowledged()
        fake.push_text(7, "later")
        await engine.wait_until(lambda e: len(e.received) == 3)
    assert [log["update_id"] for log in logs if log["event"] == "telegram.update.ignored"] == [2]


async def test_hostile_text_arrives_whole(fake, engine):
    texts = ["\u202eevil", "half \ud83d", "\u200b\u200d", "nul\0char", "<b>&amp;", "x" * 1_000_000]
    for text in texts:
        fake.push_text(7, text)
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) == len(texts))
        await fake.wait_acknowledged()
    assert [i.text for i in engine.received] == [re.sub("[\0\ud83d]", "\ufffd", t) for t in texts]


async def test_a_fault_of_ours_is_retried_and_then_lets_the_others_pass(fake, logs):
    class Broken(WatchingEngine):
        async def receive(self, inbound):
            if inbound.text == "poison":
                self.attempts += 1
                raise RuntimeError("a bug")
            await super().receive(inbound)

    engine = Broken()
    fake.push_text(7, "poison")
    fake.push_text(7, "next")
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) == 1)
        await fake.wait_acknowledged()
    assert engine.attempts == MAX_FAULTS + 1
    faults = [log for log in logs if log["event"] == "telegram.store.fault"]
    assert len(faults) == MAX_FAULTS
    assert "poison" not in str([{k: v for k, v in log.items() if k != "exc_info"} for log in logs])


async def test_another_poller_is_reported_and_waited_out(fake, engine):
    conflict = Fault(409, "Conflict: terminated by other getUpdates request")
    fake.fail_next("getUpdates", conflict, times=3)
    async with running(engine, settings(fake)):
        fake.push_text(7, "still here")
        await engine.wait_until(lambda e: len(e.received) == 1)
        await fake.wait_acknowledged()
    assert all("Another program" in line for line in engine.said(Health.DEGRADED))
    assert engine.said(Health.DEGRADED)
    assert engine.health["telegram", "default"][0] is Health.UP


async def test_a_forgotten_webhook_is_taken_away_before_polling(fake, engine):
    fake.bots[fake.token].webhook = {"url": "http://127.0.0.1:9", "secret": ""}
    async with running(engine, settings(fake)):
        fake.push_text(7, "hello")
        await engine.wait_until(lambda e: len(e.received) == 1)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(502, "Bad Gateway"),
        Fault(500, body=b"<html>oops</html>"),
        Fault(200, body=b"not json"),
        Fault(200, body=b"[]"),
        Fault(200, body=b'{"ok": true, "result": {"a": 1}}'),
        Fault(200, body=b'{"ok": true, "result": [{"no": "number"}]}'),
        Fault(drop=True),
        Fault(429, "Too Many Requests: retry after 0", {"retry_after": 0.01}),
    ],
)
async def test_a_failing_poll_is_reported_and_tried_again(fake, engine, fault):
    fake.fail_next("getUpdates", fault, times=2)
    async with running(engine, settings(fake)):
        await fake.wait_called("getUpdates", 3)
        fake.push_text(7, "back again")
        await engine.wait_until(lambda e: len(e.received) == 1)
        await fake.wait_acknowledged()
    assert engine.said(Health.DOWN) or engine.said(Health.DEGRADED)
    assert engine.health["telegram", "default"][0] is Health.UP


async def test_the_channel_starts_while_the_server_is_away_and_connects_later(engine):
    fake = FakeTelegram()
    await fake.start()
    port = int(fake.url.rpartition(":")[2])
    config = settings(fake)
    await fake.stop()
    fake = FakeTelegram()
    async with running(engine, config):
        await engine.wait_said(Health.DOWN)
        await fake.start(port)
        fake.push_text(7, "hello")
        await engine.wait_until(lambda e: len(e.received) == 1)
    await fake.stop()


async def test_a_rejected_token_is_reported_without_showing_it(fake, engine, caplog, logs):
    caplog.set_level(logging.DEBUG)
    wrong = "123456789:WRONGwrongWRONGwrongWRONGwrong"
    async with running(engine, settings(fake, token=wrong)):
        await engine.wait_said(Health.DOWN)
    assert "does not accept" in engine.said(Health.DOWN)[0]
    for text in (str(logs), str(engine.reports), caplog.text):
        assert "WRONG" not in text


async def test_no_log_line_holds_a_token_or_a_message(fake, engine, caplog, logs):
    caplog.set_level(logging.DEBUG)
    fake.drop_next("getMe")
    fake.fail_next("setMyCommands", Fault(500, body=b"<p>very private words</p>"))
    fake.fail_next("getUpdates", Fault(500, body=b"<p>very private words</p>"))
    fake.fail_next("getUpdates", Fault(400, f"no such path /bot{fake.token}/getUpdates"))
    async with running(engine, settings(fake)) as channel:
        await channel.publish_commands({"": engine.commands("en")})
        fake.push_text(7, "very private words")
        await engine.wait_until(lambda e: len(e.received) == 1)
        await fake.wait_called("setMyCommands", 2)
        logged = structlog.get_logger()
        logged.info("probe", bot=channel._accounts["default"].bot)
    secret = fake.token.partition(":")[2]
    for text in (str(logs), caplog.text, str(engine.reports)):
        assert secret not in text
        assert "private words" not in text


async def test_every_account_polls_with_its_own_bot(engine):
    first, second = "1:first-token-aaaaaaaaaaaaaaaaaa", "2:second-token-bbbbbbbbbbbbbbbbb"
    async with FakeTelegram(first, second) as fake:
        config = settings(fake, accounts={"work": {"token": second}, "idle": {}})
        async with running(engine, config) as channel:
            fake.push_text(7, "to one", first)
            fake.push_text(7, "to two", second)
            await engine.wait_until(lambda e: len(e.received) == 2)
            for inbound in engine.received:
                await channel.typing(inbound.address)
        assert {(i.account, i.text) for i in engine.received} == {
            ("default", "to one"),
            ("work", "to two"),
        }
        assert {call.token for call in fake.called("sendChatAction")} == {first, second}
        assert engine.health["telegram", "work"] == (Health.UP, "")
        assert engine.health["telegram", "idle"] == (Health.DOWN, "This account has no token.")


async def test_an_edited_message_arrives_as_an_edit(fake, engine):
    async with running(engine, settings(fake)):
        number = fake.push_text(7, "helo")
        edited = fake.message(7, "hello", message_id=number, edit_date=1_800_000_000)
        fake.push({"edited_message": edited})
        await engine.wait_until(lambda e: len(e.received) == 2)
    assert engine.received[1].edit_of == engine.received[0].message_id == str(number)


async def test_starting_does_not_wait_for_the_network(fake, engine):
    fake.fail_next("getMe", Fault(delay=120))
    async with asyncio.timeout(60), running(engine, settings(fake)):
        pass


SECRET = "a-good_Secret1"
TEA = -1001


class Gated(WatchingEngine):
    """An engine that stores nothing before its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def receive(self, inbound):
        await self.gate.wait()
        await super().receive(inbound)


@pytest.fixture
async def fake():
    async with FakeTelegram() as server:
        server.room(TEA)
        server.chats.add(7)
        yield server


@pytest.fixture
def config(fake):
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    return settings(
        fake, mode="webhook", webhook_url=address, webhook_port=port, webhook_secret=SECRET
    )


@pytest.fixture
async def post(config):
    async with aiohttp.ClientSession() as session:

        async def call(update):
            url = f"http://127.0.0.1:{config.webhook_port}/telegram/default"
            body = json.dumps(update).encode()
            headers = {SECRET_HEADER: SECRET}
            async with session.post(url, data=body, headers=headers) as response:
                return response.status

        yield call


def album(fake, count, number=1, name="a1", **extra):
    """The updates of an album, not yet brought."""
    updates = []
    for index in range(count):
        photo = [{"file_id": f"{name}-{index}", "file_unique_id": "u", "file_size": 9}]
        caption = {"caption": f"p{index}"} | extra
        message = fake.message(7, None, media_group_id=name, photo=photo, **caption)
        updates.append({"update_id": number + index, "message": message})
    return updates


async def emptied(engine):
    """Return once nothing is kept any more."""
    await engine.wait_until(lambda e: not e.notes)


@pytest.fixture
async def up(engine, config):
    async with running(engine, config) as channel:
        await engine.wait_said(Health.UP)
        yield channel


async def test_an_album_is_one_message(fake, engine, up):
    numbers = fake.album(TEA, 7, 4, "@confidant_bot look")
    await engine.wait_until(lambda e: len(e.received) == 1)
    await emptied(engine)
    (got,) = engine.received
    assert (len(got.media), got.text, got.mentions_bot) == (4, "look", True)
    assert got.message_id == str(numbers[-1])
    assert fake.deliveries == [200] * 4


async def test_a_paste_the_app_cut_is_one_text(fake, engine, up):
    parts = ["x" * 4096, "y" * 4090, "z"]
    for part in parts:
        fake.push_text(7, part)
    await engine.wait_until(lambda e: len(e.received) == 1)
    await emptied(engine)
    assert [i.text for i in engine.received] == [f"{'x' * 4096}{'y' * 4090}\nz"]
    assert fake.deliveries == [200] * 3


async def test_a_part_is_taken_only_once_it_is_on_disk(fake, engine, config):
    engine.failures = 2
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        fake.album(7, 7, 2)
        await fake.wait_acknowledged()
        assert fake.deliveries == [500, 500, 200, 200]
        assert len(engine.notes) == 2
        assert engine.received == []
        await engine.wait_until(lambda e: len(e.received) == 1)
    assert [len(i.media) for i in engine.received] == [2]
    assert engine.health["telegram", "default"] == (Health.UP, "")


async def test_a_whole_message_that_cannot_be_stored_is_tried_again(fake, engine, up):
    fake.album(7, 7, 2)
    await fake.wait_acknowledged()
    engine.failures = 2
    await engine.wait_until(lambda e: len(e.received) == 1)
    await emptied(engine)
    assert engine.said(Health.DEGRADED)
    assert engine.health["telegram", "default"] == (Health.UP, "")


@pytest.mark.parametrize("mode", ["webhook", "polling"])
async def test_after_a_crash_what_was_taken_and_what_comes_then_are_joined(fake, config, mode):
    first, second = Gated(), WatchingEngine()
    async with running(first, config):
        await first.wait_said(Health.UP)
        fake.album(7, 7, 2)
        name = fake.bots[fake.token].updates[-1]["message"]["media_group_id"]
        await fake.wait_acknowledged()
        second.notes = dict(first.notes)
    photo = [{"file_id": "third", "file_unique_id": "u"}]
    if mode == "webhook":
        async with running(second, config):
            fake.push_text(7, None, media_group_id=name, photo=photo)
            await second.wait_until(lambda e: len(e.received) == 1)
            await emptied(second)
        assert [len(i.media) for i in second.received] == [3]
    else:  # the way of receiving was changed meanwhile
        async with running(second, settings(fake)):
            await second.wait_until(lambda e: len(e.received) == 1)
            await emptied(second)
        assert [len(i.media) for i in second.received] == [2]


async def test_a_stop_leaves_what_is_not_whole_for_the_next_start(fake, engine, config):
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        fake.album(7, 7, 2)
        await fake.wait_acknowledged()
    assert engine.received == []
    assert len(engine.notes) == 2
    async with running(engine, config):
        await engine.wait_until(lambda e: len(e.received) == 1)
        await emptied(engine)
    assert [len(i.media) for i in engine.received] == [2]


async def test_a_crash_after_storing_gives_a_second_copy_and_no_other_message(fake, engine, config):
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        fake.album(7, 7, 2)
        await fake.wait_acknowledged()
        kept = dict(engine.notes)
        await engine.wait_until(lambda e: len(e.received) == 1)
        await emptied(engine)
    engine.notes = kept
    async with running(engine, config):
        await engine.wait_until(lambda e: len(e.received) == 2)
        await emptied(engine)
    assert engine.received[0].message_id == engine.received[1].message_id


async def test_what_is_kept_and_cannot_be_read_waits_for_the_disk(fake, engine, config):
    class Unreadable(WatchingEngine):
        reads = 0

        async def kept(self, channel, account):
            self.reads += 1
            if 1 < self.reads < 4:  # not the first, which is about drafts
                self.failures = 1
                await self.keep(channel, account, "x", "")
            return await super().kept(channel, account)

    engine = Unreadable()
    async with running(engine, config):
        fake.push_text(7, "hello")
        await engine.wait_until(lambda e: len(e.received) == 1)
    assert engine.said(Health.DEGRADED)
    assert engine.health["telegram", "default"] == (Health.UP, "")


async def test_parts_over_several_connections_at_once_are_one_message(fake, engine, config, post):
    updates = album(fake, 4)
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        assert await asyncio.gather(*map(post, reversed(updates))) == [200] * 4
        await engine.wait_until(lambda e: len(e.received) == 1)
        await emptied(engine)
    assert [m.ref for m in engine.received[0].media] == [f"a1-{index}" for index in range(4)]
    assert engine.received[0].text == "p0\np1\np2\np3"


async def test_a_paste_over_several_connections_at_once_keeps_its_order(fake, engine, config, post):
    texts = ("x" * 4096, "y" * 4096, "z")
    messages = [fake.message(7, text) for text in texts]
    updates = [{"update_id": 5 + n, "message": message} for n, message in enumerate(messages)]
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        assert await asyncio.gather(*map(post, updates)) == [200] * 3
        await engine.wait_until(lambda e: len(e.received) == 1)
    assert [i.text for i in engine.received] == ["".join(texts)]


async def test_a_part_that_is_brought_twice_counts_once(fake, engine, config, post):
    updates = album(fake, 2)
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        statuses = await asyncio.gather(post(updates[0]), post(updates[0]), post(updates[1]))
        statuses += [await post(updates[0])]
        await engine.wait_until(lambda e: len(e.received) == 1)
        await emptied(engine)
        statuses += [await post(updates[1])]  # its answer got lost
        await engine.wait_until(lambda e: len(e.received) == 2)
        await emptied(engine)
    assert statuses == [200] * 5
    assert len(engine.received[0].media) == 2
    assert engine.received[0].message_id == engine.received[1].message_id


async def test_what_others_say_in_between_does_not_tear_an_album(fake, engine, up):
    fake.album(TEA, 7, 2, "look")
    name = fake.bots[fake.token].updates[-1]["message"]["media_group_id"]
    fake.say(TEA, 8, "nice")
    photo = [{"file_id": "third", "file_unique_id": "u"}]
    fake.say(TEA, 7, None, media_group_id=name, photo=photo)
    fake.say(TEA, 7, "that is all")
    fake.push_text(9, "elsewhere")
    await engine.wait_until(lambda e: len(e.received) == 4)
    await emptied(engine)
    assert "elsewhere" in {i.text for i in engine.received}
    here = [i for i in engine.received if i.chat == str(TEA)]
    assert [(i.sender, i.text, len(i.media)) for i in here] == [
        ("7", "look", 3),
        ("8", "nice", 0),
        ("7", "that is all", 0),
    ]


async def test_other_chats_do_not_wait(fake, engine, up):
    fake.album(TEA, 7, 2, "look")
    fake.push_text(9, "elsewhere")
    await engine.wait_until(lambda e: len(e.received) == 2)
    assert [i.text for i in engine.received] == ["elsewhere", "look"]


async def test_a_press_and_a_move_wait_for_what_was_said_before(fake, engine, up):
    fake.album(TEA, 7, 2, "look")
    fake.press(7, 5, "/compact", room=TEA)
    fake.push({"message": fake.room_message(TEA, 7, None, migrate_to_chat_id=-1002)})
    await engine.wait_until(lambda e: bool(e.moved))
    await emptied(engine)
    assert [i.text for i in engine.received] == ["look", "/compact"]
    assert engine.moved == [(Address("telegram", "default", str(TEA)), "-1002")]


async def test_half_a_surrogate_pair_is_kept_too(fake, engine, post, up):
    for update in album(fake, 2, caption="odd \ud83d"):
        assert await post(update) == 200
    await engine.wait_until(lambda e: len(e.received) == 1)
    assert engine.received[0].text == "odd \ufffd\nodd \ufffd"


async def test_what_can_have_no_other_parts_is_not_kept(fake, config):
    class Noted(WatchingEngine):
        writes = 0

        async def keep(self, channel, account, name, text):
            self.writes += 1
            await super().keep(channel, account, name, text)

    engine = Noted()
    async with running(engine, config):
        for text in ("short", "x" * 3999):
            fake.push_text(7, text)
        await engine.wait_until(lambda e: len(e.received) == 2)
    assert engine.writes == 0


async def examine(config):
    channel = Telegram(config)
    return [told(each, "en") for each in await channel.examine()]


async def test_privacy_mode_is_told_with_its_remedy(fake):
    good, hint = await examine(settings(fake))
    assert (good.level, hint.level) == ("ok", "warning")
    assert "@" in good.text
    assert "privacy mode is on" in hint.text
    assert "/setprivacy" in hint.fix
    assert fake.called("getUpdates") == []


async def test_a_wrong_token_is_an_error_and_not_shown(fake):
    config = settings(fake, token="1:wrong-token-aaaaaaaaaaaaaaaaaaaa", accounts={"idle": {}})
    idle, wrong = await examine(config)
    assert (idle.level, idle.account) == ("error", "idle")
    assert wrong.level == "error"
    assert "does not accept" in wrong.text
    assert "wrong-token" not in str(wrong)


async def test_an_unreachable_server_is_an_error(fake):
    fake.fail_next("getMe", Fault(502))
    (finding,) = await examine(settings(fake))
    assert finding.level == "error"
    assert "cannot be reached" in finding.text


async def test_each_listed_room_is_looked_for(fake):
    for room in (-1001, -1002, -1003):
        fake.room(room)
    bot = int(fake.token.partition(":")[0])
    fake.members |= {(-1002, bot): "administrator", (-1003, bot): "kicked"}
    fake.moved[-5] = -1001
    rooms = ["-1001", "-1002", "-1003", "-1004", "-5", "@tea", "*"]
    found = await examine(settings(fake, groups={room: {} for room in rooms}))
    said = [(finding.level, finding.text) for finding in found[2:]]
    assert [level for level, _ in said] == ["ok", "ok", "warning", "warning", "warning", "error"]
    assert "sees every message" in said[1][1]
    assert "not in the room" in said[2][1]
    assert "cannot see" in said[3][1]
    assert "-1001" in said[4][1]
    assert await examine(settings(fake, groups={"-1001": {}}, group_policy="disabled")) == found[:2]


async def test_the_webhook_is_looked_at_from_telegrams_side(fake):
    hook = {"mode": "webhook", "webhook_url": "http://127.0.0.1:9/", "webhook_secret": "s"}
    _, _, early = await examine(settings(fake, **hook))
    assert (early.level, "does not call" in early.text) == ("warning", True)
    info = {"url": "http://127.0.0.1:9/telegram/default", "pending_update_count": 0}
    fake._methods["getwebhookinfo"] = lambda *_: info
    _, _, good = await examine(settings(fake, **hook))
    assert good.level == "ok"
    info |= {"pending_update_count": 4, "last_error_message": "Connection refused"}
    _, _, bad = await examine(settings(fake, **hook))
    assert (bad.level, bad.text.rpartition(": ")[2]) == ("error", "Connection refused")
    fake.fail_next("getWebhookInfo", Fault(500))
    _, _, unknown = await examine(settings(fake, **hook))
    assert unknown.level == "warning"
    assert fake.called("setWebhook") == []


async def test_the_menu_and_the_webhook_are_compared_and_registered_once_more(fake):
    hook = {"mode": "webhook", "webhook_url": "http://127.0.0.1:9/", "webhook_secret": "s"}
    channel = Telegram(settings(fake, **hook))
    await channel.publish_commands(menus())
    before = {each.id: each.repair for each in await channel.examine() if each.repair}
    assert before == {"telegram.no_webhook": "register", "telegram.menu": "register"}
    assert fake.called("setMyCommands") == fake.called("setWebhook") == []
    await channel.register()
    assert not [each for each in await channel.examine() if each.repair]
    await channel.publish_commands({**menus(), "zh": ()})  # a version that has none of these
    assert [each.id for each in await channel.examine() if each.repair] == ["telegram.menu"]
    assert fake.called("sendMessage") == []


async def test_what_is_not_registered_says_why_without_the_token(fake):
    channel = Telegram(settings(fake, token="1:wrong-token-aaaaaaaaaaaaaaaaaaaa"))
    await channel.publish_commands(menus())
    with pytest.raises(ChannelError) as caught:
        await channel.register()
    assert "Telegram (default): " in str(caught.value)
    assert "wrong-token" not in str(caught.value)


async def test_without_a_webhook_only_the_menu_is_registered(fake):
    channel = Telegram(settings(fake))
    await channel.publish_commands(menus())
    await channel.register()
    assert fake.called("setWebhook") == fake.called("deleteWebhook") == []
    assert {each.id for each in await channel.examine()} >= {"telegram.has_menu"}
