"""The real SDK polls the fake server: nothing is acknowledged before it is stored."""

import asyncio
import logging

import pytest
import structlog
from structlog.testing import capture_logs

from adapters.telegram import plugin
from bot.channel import Channel, CommandMenu, Health, Inbound, Typing
from bot.channel.kit.supervisor import MAX_FAULTS
from bot.errors import StorageError
from tests.fakes.telegram import FakeTelegram, Fault
from tests.fakes.telegram_channel import WatchingEngine, running, settings


@pytest.fixture
async def fake():
    async with FakeTelegram() as server:
        yield server


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


async def test_the_channel_has_the_abilities_it_declares(fake):
    channel: Channel = plugin.create(settings(fake))
    assert channel.capabilities.typing
    assert isinstance(channel, Typing)
    assert channel.capabilities.command_menu
    assert isinstance(channel, CommandMenu)
    assert (channel.capabilities.max_length, channel.capabilities.length_unit) == (4096, "utf16")
    await channel.stop()


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


async def test_a_stop_waits_for_what_is_being_stored(fake):
    class Slow(WatchingEngine):
        began = asyncio.Event()
        go = asyncio.Event()

        async def receive(self, inbound):
            self.began.set()
            await self.go.wait()
            await super().receive(inbound)

    engine = Slow()
    async with running(engine, settings(fake)) as channel:
        fake.push_text(7, "one")
        await engine.began.wait()
        stopping = asyncio.create_task(channel.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        engine.go.set()
        await stopping
    assert len(engine.received) == 1


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
async def test_one_bad_update_stops_neither_the_poller_nor_its_neighbours(fake, engine, bad):
    fake.push_text(7, "before")
    fake.bots[fake.token].updates.append({"update_id": 2, **bad})
    fake.bots[fake.token].next_update = 3
    fake.push_text(7, "after")
    with capture_logs() as logs:
        async with running(engine, settings(fake)):
            await engine.wait_until(lambda e: len(e.received) == 2)
            await fake.wait_acknowledged()
            fake.push_text(7, "later")
            await engine.wait_until(lambda e: len(e.received) == 3)
    assert [log["update_id"] for log in logs if log["event"] == "telegram.update.ignored"] == [2]


async def test_half_a_surrogate_pair_in_a_batch_does_not_cost_the_batch(fake, engine):
    fake.push_text(7, "bad \ud83d half")
    fake.push_text(8, "good")
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) == 2)
        await fake.wait_acknowledged()
    assert {i.text for i in engine.received} == {"bad \ufffd half", "good"}


async def test_hostile_text_arrives_whole(fake, engine):
    texts = ["\u202eevil", "\u200b\u200d", "nul\0char", "<b>&amp;", "x" * 1_000_000]
    for text in texts:
        fake.push_text(7, text)
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) == len(texts))
        await fake.wait_acknowledged()
    assert [i.text for i in engine.received] == [t.replace("\0", "\ufffd") for t in texts]


async def test_a_fault_of_ours_is_retried_and_then_lets_the_others_pass(fake):
    class Broken(WatchingEngine):
        async def receive(self, inbound):
            if inbound.text == "poison":
                self.attempts += 1
                raise RuntimeError("a bug")
            await super().receive(inbound)

    engine = Broken()
    fake.push_text(7, "poison")
    fake.push_text(7, "next")
    with capture_logs() as logs:
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


async def test_a_second_poller_on_one_token_gets_a_conflict(fake, engine):
    other = WatchingEngine()
    async with running(engine, settings(fake)):
        await fake.wait_called("getUpdates")
        async with running(other, settings(fake)):
            await engine.wait_said(Health.DEGRADED)


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


async def test_a_connection_lost_after_the_answer_was_made_loses_no_update(fake, engine):
    fake.drop_next("getUpdates", after=True)
    fake.push_text(7, "once")
    async with running(engine, settings(fake)):
        await engine.wait_until(lambda e: len(e.received) == 1)
        await fake.wait_acknowledged()
    assert len(engine.received) == 1


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


async def test_a_rejected_token_is_reported_without_showing_it(fake, engine, caplog):
    caplog.set_level(logging.DEBUG)
    wrong = "123456789:WRONGwrongWRONGwrongWRONGwrong"
    with capture_logs() as logs:
        async with running(engine, settings(fake, token=wrong)):
            await engine.wait_said(Health.DOWN)
    assert "does not accept" in engine.said(Health.DOWN)[0]
    for text in (str(logs), str(engine.reports), caplog.text):
        assert "WRONG" not in text


async def test_no_log_line_holds_a_token_or_a_message(fake, engine, caplog):
    caplog.set_level(logging.DEBUG)
    fake.drop_next("getMe")
    fake.fail_next("setMyCommands", Fault(500, body=b"<p>very private words</p>"))
    fake.fail_next("getUpdates", Fault(500, body=b"<p>very private words</p>"))
    fake.fail_next("getUpdates", Fault(400, f"no such path /bot{fake.token}/getUpdates"))
    with capture_logs() as logs:
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


async def test_one_accounts_trouble_is_its_own(engine):
    good, bad = "1:good-token-aaaaaaaaaaaaaaaaaaa", "2:bad-token-bbbbbbbbbbbbbbbbbbbb"
    async with FakeTelegram(good) as fake:
        async with running(engine, settings(fake, accounts={"work": {"token": bad}})):
            fake.push_text(7, "hello")
            await engine.wait_until(lambda e: len(e.received) == 1)
            await engine.wait_said(Health.DOWN, "work")
        assert engine.health["telegram", "default"] == (Health.UP, "")


async def test_an_edited_message_arrives_as_an_edit(fake, engine):
    async with running(engine, settings(fake)):
        number = fake.push_text(7, "helo")
        edited = fake.message(7, "hello", message_id=number, edit_date=1_800_000_000)
        fake.push({"edited_message": edited})
        await engine.wait_until(lambda e: len(e.received) == 2)
    assert engine.received[1].edit_of == engine.received[0].message_id == str(number)


async def test_a_command_with_the_bots_name_arrives_without_it(fake, engine):
    async with running(engine, settings(fake)):
        fake.push_text(7, "/new@confidant_bot now")
        await engine.wait_until(lambda e: len(e.received) == 1)
    assert engine.received[0].text == "/new now"


async def test_starting_does_not_wait_for_the_network(fake, engine):
    fake.fail_next("getMe", Fault(delay=120))
    async with asyncio.timeout(60), running(engine, settings(fake)):
        pass


async def test_a_storage_error_of_any_kind_counts_as_not_stored(fake, engine):
    class Full(StorageError):
        pass

    seen = []

    class Once(WatchingEngine):
        async def receive(self, inbound):
            seen.append(inbound)
            if len(seen) == 1:
                raise Full
            await super().receive(inbound)

    engine = Once()
    async with running(engine, settings(fake)):
        fake.push_text(7, "x")
        await engine.wait_until(lambda e: len(e.received) == 1)
    assert len(seen) == 2
