"""What belongs together and comes by webhook: kept on disk until it is whole.

Telegram brings a chat's next message only after it was told that the one before was taken; a local
Bot API server or a proxy may do otherwise.
"""

import asyncio
import json

import aiohttp
import pytest

from adapters.telegram.webhook import SECRET_HEADER
from bot.channel import Address, Health
from tests.fakes.ports import free_port
from tests.fakes.telegram import FakeTelegram
from tests.fakes.telegram_channel import WatchingEngine, running, settings

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
def engine():
    return WatchingEngine()


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


async def test_an_album_is_one_message(fake, engine, config):
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        numbers = fake.album(TEA, 7, 4, "@confidant_bot look")
        await engine.wait_until(lambda e: len(e.received) == 1)
        await emptied(engine)
    (got,) = engine.received
    assert (len(got.media), got.text, got.mentions_bot) == (4, "look", True)
    assert got.message_id == str(numbers[-1])
    assert fake.deliveries == [200] * 4


class Faulty(WatchingEngine):
    """An engine that a certain message is too much for."""

    async def receive(self, inbound):
        if inbound.text == "bad":
            raise ValueError(inbound.text)
        await super().receive(inbound)


async def test_a_fault_of_ours_does_not_block_a_chat_for_ever(fake, config):
    engine = Faulty()
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        fake.push_text(7, "bad")
        fake.push_text(7, "good")
        await engine.wait_until(lambda e: len(e.received) == 1)
        await emptied(engine)
    assert [i.text for i in engine.received] == ["good"]
    assert engine.drops["fault"] == 1


async def test_a_paste_the_app_cut_is_one_text(fake, engine, config):
    parts = ["x" * 4096, "y" * 4090, "z"]
    async with running(engine, config):
        await engine.wait_said(Health.UP)
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


async def test_a_whole_message_that_cannot_be_stored_is_tried_again(fake, engine, config):
    async with running(engine, config):
        await engine.wait_said(Health.UP)
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


async def test_what_others_say_in_between_does_not_tear_an_album(fake, engine, config):
    async with running(engine, config):
        await engine.wait_said(Health.UP)
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


async def test_other_chats_do_not_wait(fake, engine, config):
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        fake.album(TEA, 7, 2, "look")
        fake.push_text(9, "elsewhere")
        await engine.wait_until(lambda e: len(e.received) == 2)
    assert [i.text for i in engine.received] == ["elsewhere", "look"]


async def test_a_press_and_a_move_wait_for_what_was_said_before(fake, engine, config):
    async with running(engine, config):
        await engine.wait_said(Health.UP)
        fake.album(TEA, 7, 2, "look")
        fake.press(7, 5, "/compact", room=TEA)
        fake.push({"message": fake.room_message(TEA, 7, None, migrate_to_chat_id=-1002)})
        await engine.wait_until(lambda e: bool(e.moved))
        await emptied(engine)
    assert [i.text for i in engine.received] == ["look", "/compact"]
    assert engine.moved == [(Address("telegram", "default", str(TEA)), "-1002")]


async def test_half_a_surrogate_pair_is_kept_too(fake, engine, config, post):
    async with running(engine, config):
        await engine.wait_said(Health.UP)
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
