"""Two nodes, one account: whoever has it listens, the other one ends, and no message is lost."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest

from adapters.telegram import webhook
from bot.channel import Address, Health, Inbound, Media, Outbound
from bot.channel.kit import supervisor
from bot.channel.kit.supervisor import ELSEWHERE
from bot.errors import SendRefused
from tests.fakes import discord_channel, nextcloud, telegram_channel
from tests.fakes.discord import FakeDiscord
from tests.fakes.nextcloud import WITH_API_USER, FakeNextcloud
from tests.fakes.ports import free_port
from tests.fakes.telegram import FakeTelegram
from tests.fakes.telegram_channel import WatchingEngine
from tests.support import post, until

ELSEWHERE_UP = Health.UP, ELSEWHERE


class Node(WatchingEngine):
    """A node whose database is that of the other one; `gate` holds back what is stored."""

    def __init__(self, other: Node | None = None) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = 0
        self.mine: list[str] = []
        if other is not None:
            self.received, self.notes = other.received, other.notes
            self.free.clear()

    async def receive(self, inbound: Inbound) -> None:
        """Store it, unless the other node has."""
        self.asked += 1
        await self.gate.wait()
        if (inbound.address, inbound.message_id) not in {
            (known.address, known.message_id) for known in self.received
        }:
            self.mine.append(inbound.text)
            await super().receive(inbound)

    @property
    def state(self) -> tuple[Health, str]:
        """How its only account is doing."""
        return next(iter(self.health.values()), (Health.STARTING, ""))


def hand_over(giver: Node, taker: Node) -> None:
    """The account belongs to another node from now on."""
    giver.take_away()
    taker.free.set()


def said(node: Node) -> list[str]:
    return [inbound.text for inbound in node.received]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(supervisor, "ELSEWHERE_AFTER", 0.0)


@pytest.fixture
def one():
    return Node()


@pytest.fixture
def two(one):
    return Node(one)


@pytest.fixture
async def stack():
    async with AsyncExitStack() as entered:
        yield entered


# --- Telegram ------------------------------------------------------------------------------------


@pytest.fixture
async def telegram():
    async with FakeTelegram() as server:
        yield server


async def test_of_two_pollers_one_polls_and_the_other_is_well(telegram, one, two, stack):
    config = telegram_channel.settings(telegram)
    for node in (one, two):
        await stack.enter_async_context(telegram_channel.running(node, config))
    await until(lambda: two.state == ELSEWHERE_UP)
    await one.wait_said(Health.UP)
    telegram.push_text(7, "hello")
    await telegram.wait_acknowledged()
    assert (one.mine, two.mine) == (["hello"], [])
    assert not two.said(Health.DEGRADED) + two.said(Health.DOWN)


async def test_a_poller_that_loses_its_account_in_the_middle_leaves_the_rest_to_the_next(
    telegram, one, two, stack
):
    config = telegram_channel.settings(telegram)
    for node in (one, two):
        await stack.enter_async_context(telegram_channel.running(node, config))
    one.gate.clear()
    telegram.push_text(7, "first")
    telegram.push_text(8, "second")
    await until(lambda: one.asked == 2)
    one.take_away()
    one.gate.set()  # what is being stored may be stored
    await until(lambda: one.state == ELSEWHERE_UP)
    assert telegram.pending() == 2  # nothing of it was acknowledged
    telegram.push_text(7, "third")
    two.free.set()
    await telegram.wait_acknowledged()
    assert sorted(said(one)) == ["first", "second", "third"]
    assert two.mine == ["third"]


async def test_a_poller_that_was_away_begins_where_the_other_one_ended(telegram, one, two, stack):
    config = telegram_channel.settings(telegram)
    for node in (one, two):
        await stack.enter_async_context(telegram_channel.running(node, config))
    for number, node in enumerate((one, two, one, two)):
        telegram.push_text(7, f"m{number}")
        await telegram.wait_acknowledged()
        other = two if node is one else one
        await until(lambda n=node, k=number: f"m{k}" in n.mine)
        hand_over(node, other)
        await until(lambda n=node: n.state == ELSEWHERE_UP)
    assert said(one) == ["m0", "m1", "m2", "m3"]
    assert one.mine == ["m0", "m2"]


async def test_a_draft_in_a_group_is_known_to_the_node_that_takes_over(telegram, one, two, stack):
    room = -1001
    telegram.room(room)
    config = telegram_channel.settings(telegram, group_policy="open")
    channels = [
        await stack.enter_async_context(telegram_channel.running(node, config))
        for node in (one, two)
    ]
    await one.wait_said(Health.UP)
    place = Address("telegram", "default", str(room))
    await channels[0].draft(place, "d1", "half a")
    await telegram.wait_sent(1)
    hand_over(one, two)
    await until(lambda: two.state[0] is Health.UP and two.state != ELSEWHERE_UP)
    await channels[1].draft(place, "d1", "")
    await telegram.wait_called("deleteMessage")


async def test_a_node_that_does_not_poll_knows_a_rooms_admins(telegram, one, two, stack):
    room = -1001
    telegram.room(room)
    telegram.members |= {(room, 7): "creator", (room, 8): "member"}
    config = telegram_channel.settings(telegram)
    for node in (one, two):
        channel = await stack.enter_async_context(telegram_channel.running(node, config))
    await until(lambda: two.state == ELSEWHERE_UP)
    place = Address("telegram", "default", str(room))
    assert await channel.is_admin(place, "7")
    assert not await channel.is_admin(place, "8")


@asynccontextmanager
async def webhooks(telegram, nodes):
    """Two nodes that take calls; their channels, and how Telegram brings one of them an update."""
    ports = [free_port() for _ in nodes]
    hook = {"mode": "webhook", "webhook_url": f"http://127.0.0.1:{ports[0]}"}
    hook["webhook_secret"] = "a-good_Secret1"
    headers = {"X-Telegram-Bot-Api-Secret-Token": "a-good_Secret1"}
    channels = []
    async with AsyncExitStack() as stack, aiohttp.ClientSession() as http:
        for node, port in zip(nodes, ports, strict=True):
            config = telegram_channel.settings(telegram, webhook_port=port, **hook)
            channels.append(await stack.enter_async_context(telegram_channel.running(node, config)))
            await until(lambda n=node: n.state == (Health.UP, ""))

        async def bring(which, update):
            url = f"http://127.0.0.1:{ports[which]}/telegram/default"
            async with http.post(url, json=update, headers=headers) as response:
                return response.status

        yield channels, bring


def picture(telegram, number):
    photo = [{"file_id": f"p{number}", "file_unique_id": f"u{number}", "file_size": 9}]
    message = telegram.message(7, None, media_group_id="a1", photo=photo, caption=f"p{number}")
    return {"update_id": number, "message": message}


async def test_an_album_that_is_brought_to_several_nodes_is_one_message(telegram, one, two):
    async with webhooks(telegram, (one, two)) as (channels, bring):
        for number in range(1, 5):
            assert await bring(number % 2, picture(telegram, number)) == 200
            for _, body in two.shown:
                await channels[0].heard(body)
        await until(lambda: bool(one.received))
        await until(lambda: not one.notes)
    assert [len(inbound.media) for inbound in one.received] == [4]
    assert two.mine == []


async def test_what_a_node_holds_goes_to_the_one_that_takes_over(telegram, one, two):
    one.gate.clear()
    async with webhooks(telegram, (one, two)) as (_, bring):
        assert await bring(0, picture(telegram, 1)) == 200
        hand_over(one, two)
        await until(lambda: bool(two.received))
        await until(lambda: not two.notes)
        one.gate.set()
    assert [len(inbound.media) for inbound in two.received] == [1]
    assert one.mine == []


async def test_what_nobody_told_of_is_looked_for(telegram, one, two, monkeypatch):
    monkeypatch.setattr(webhook, "LOOK", 0.01)
    async with webhooks(telegram, (one, two)) as (_, bring):
        assert await bring(1, picture(telegram, 1)) == 200
        await until(lambda: bool(one.mine))
        await until(lambda: not one.notes)
    assert two.mine == []


async def test_one_node_registers_a_webhook_and_both_take_calls(telegram, one, two):
    async with webhooks(telegram, (one, two)) as (_, bring):
        for number in range(2):
            update = {"update_id": number + 1, "message": telegram.message(7, f"to {number}")}
            assert await bring(number, update) == 200
        assert (one.mine, two.mine) == (["to 0"], ["to 1"])
        assert len(telegram.called("setWebhook")) == 1
        hand_over(one, two)
        await telegram.wait_called("setWebhook", 2)


# --- Discord -------------------------------------------------------------------------------------


@pytest.fixture
async def discord():
    async with FakeDiscord() as server:
        yield server


async def test_of_two_nodes_one_is_connected_to_the_gateway(discord, one, two, stack):
    config = discord_channel.settings(discord)
    for node in (one, two):
        await stack.enter_async_context(discord_channel.running(node, config))
    await one.wait_said(Health.UP)
    await until(lambda: two.state == ELSEWHERE_UP)
    await discord.say("7", "hello")
    await until(lambda: said(one) == ["hello"])
    assert len(discord.identified) == 1


async def test_a_gateway_session_that_is_taken_away_ends_and_the_next_reads_what_was_missed(
    discord, one, two, stack
):
    config = discord_channel.settings(discord)
    for node in (one, two):
        await stack.enter_async_context(discord_channel.running(node, config))
    await one.wait_said(Health.UP)
    await discord.say("7", "before")
    await until(lambda: said(one) == ["before"])
    one.gate.clear()
    await discord.say("7", "in hand")
    await until(lambda: one.asked == 2)
    one.take_away()
    await discord.wait_for(lambda: not any(s.socket for s in discord.sessions.values()))
    await discord.say("7", "meanwhile")
    one.gate.set()
    await until(lambda: one.state == ELSEWHERE_UP)
    two.free.set()
    await until(lambda: two.state == (Health.UP, ""))
    await discord.say("7", "after")
    await until(lambda: said(one)[-1:] == ["after"])
    assert said(one) == ["before", "in hand", "meanwhile", "after"]
    assert two.mine == ["meanwhile", "after"]
    assert not discord.resumed


async def test_a_gateway_that_is_given_back_begins_a_session_of_its_own(discord, one, two, stack):
    config = discord_channel.settings(discord)
    for node in (one, two):
        await stack.enter_async_context(discord_channel.running(node, config))
    for number, node in enumerate((one, two, one, two)):
        other = two if node is one else one
        await until(lambda n=node: n.state == (Health.UP, ""))
        await discord.say("7", f"m{number}")
        await until(lambda k=number: f"m{k}" in said(one))
        assert f"m{number}" in node.mine
        hand_over(node, other)
    assert said(one) == ["m0", "m1", "m2", "m3"]
    await until(lambda: len(discord.identified) == 5)


async def test_a_node_without_a_gateway_fetches_files_and_knows_who_looks_after_a_server(
    discord, one, two, stack
):
    config = discord_channel.settings(discord)
    discord.admins.add("9")
    discord.files["a.txt"] = (200, b"bytes")
    first, second = [
        await stack.enter_async_context(discord_channel.running(node, config))
        for node in (one, two)
    ]
    await one.wait_said(Health.UP)
    room = Address("discord", "default", "501")

    async def knows(channel):
        return [await channel.is_admin(room, person) for person in ("7", "8", "9")]

    assert await knows(second) == [False, True, True]
    file = Media("document", ref=f"{discord.url}/cdn/a.txt")
    assert await second.fetch(room, file, 100) == b"bytes"
    await discord_channel.account(first).places.described.wait()
    hand_over(one, two)
    await until(lambda: one.state == ELSEWHERE_UP)
    discord.admins.clear()
    assert await knows(first) == [False, True, False]


# --- Nextcloud Talk ------------------------------------------------------------------------------


@pytest.fixture
async def talk():
    async with FakeNextcloud() as server:
        yield server


async def test_one_node_reads_back_and_the_other_takes_calls(talk, one, two, stack):
    ports = [free_port(), free_port()]
    config = nextcloud.settings(talk, ports[0], **WITH_API_USER)
    async with nextcloud.running(one, config):
        assert await talk.say("before") == [200]
    talk.asked.clear()
    talk.write("missed")
    for node, port in zip((one, two), ports, strict=True):
        config = nextcloud.settings(talk, port, **WITH_API_USER)
        await stack.enter_async_context(nextcloud.running(node, config))
    await until(lambda: "missed" in said(one))
    asked = len(talk.asked)
    talk.bots[0].url = f"http://127.0.0.1:{ports[1]}/nextcloud-talk"
    assert await talk.say("to the other") == [200]
    assert two.mine == ["to the other"]
    talk.write("missed by both")
    hand_over(one, two)
    await until(lambda: "missed by both" in two.mine)
    assert said(one) == ["before", "missed", "to the other", "missed by both"]
    assert len(talk.asked) > asked


async def test_what_was_being_read_back_is_read_by_the_next(talk, one, two, stack):
    ports = [free_port(), free_port()]
    config = nextcloud.settings(talk, ports[0], **WITH_API_USER)
    async with nextcloud.running(one, config):
        assert await talk.say("before") == [200]
    for number in range(5):
        talk.write(f"m{number}")
    one.gate.clear()
    one.asked = 0
    for node, port in zip((one, two), ports, strict=True):
        config = nextcloud.settings(talk, port, **WITH_API_USER)
        await stack.enter_async_context(nextcloud.running(node, config))
    await until(lambda: one.asked == 1)
    hand_over(one, two)
    await until(lambda: len(two.mine) == 5)
    one.gate.set()
    await until(lambda: one.asked >= 5)
    assert said(one) == ["before", *(f"m{number}" for number in range(5))]


async def test_a_node_that_does_not_send_takes_no_file_of_the_bots_own_for_a_message(
    talk, one, two, stack
):
    ports = [free_port(), free_port()]
    for node, port in zip((one, two), ports, strict=True):
        config = nextcloud.settings(talk, port, **WITH_API_USER)
        await stack.enter_async_context(nextcloud.running(node, config))
    talk.bots[0].url = f"http://127.0.0.1:{ports[1]}/nextcloud-talk"
    file = {"type": "file", "id": "77", "name": "chart.png", "mimetype": "image/png"}
    for person in (nextcloud.API_USER, "ada"):
        said_so = {"sender": f"users/{person}", "parameters": {"file": file}}
        assert await talk.say("{file}", **said_so) == [200]
    assert [(inbound.sender, len(inbound.media)) for inbound in two.received] == [("ada", 1)]


async def test_every_node_knows_that_the_bot_was_taken_out_of_a_room(talk, one, two, stack):
    ports = [free_port(), free_port()]
    channels = [
        await stack.enter_async_context(
            nextcloud.running(node, nextcloud.settings(talk, port, **WITH_API_USER))
        )
        for node, port in zip((one, two), ports, strict=True)
    ]
    place = Address("nextcloud_talk", "default", "n3xtc10ud")
    talk.bots[0].url = f"http://127.0.0.1:{ports[0]}/nextcloud-talk"
    assert await talk.switch(talk.bots[0], place.chat, on=False) == 200
    ((_, body),) = one.shown
    await channels[1].heard(body)
    for channel in channels:
        with pytest.raises(SendRefused, match="removed"):
            await post(channel, Outbound("o", place, "hello"))
