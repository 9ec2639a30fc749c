"""The fake Discord keeps Discord's rules, or the other tests would prove nothing."""

import asyncio
import sys

import aiohttp
import pytest

from adapters.discord.api import Rest, new_session
from adapters.discord.sdk import discord
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_parts import TOKEN


@pytest.fixture
async def fake():
    async with FakeDiscord() as server:
        server.dm("7")
        yield server


@pytest.fixture
async def rest(fake):
    async with new_session() as session:
        yield Rest(fake.token, fake.api_root, session)


async def send(rest, channel="700007", **body):
    return await rest.call("POST", "/channels/{channel_id}/messages", body, channel_id=channel)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"content": ""}, 50006),
        ({"content": " \u200b\n"}, 50006),
        ({"content": "x" * 2001}, 50035),
        ({"content": "x", "nonce": "n" * 26}, 50035),
        ({"content": "x", "message_reference": {"message_id": "5"}}, 50035),
        ({"content": "x", "components": [{"components": []}] * 6}, 50035),
    ],
)
async def test_a_message_against_the_rules_is_refused(fake, rest, body, code):
    with pytest.raises(discord.HTTPException) as caught:
        await send(rest, **body)
    assert (caught.value.status, caught.value.code) == (400, code)
    assert fake.sent == []


async def test_unknown_and_forbidden_channels_take_nothing(fake, rest):
    with pytest.raises(discord.NotFound):
        await send(rest, "1", content="x")
    fake.forbidden["501"] = 50013
    with pytest.raises(discord.Forbidden):
        await send(rest, "501", content="x")


async def test_an_enforced_nonce_gives_the_message_of_the_first_time(fake, rest):
    first = await send(rest, content="x", nonce="1", enforce_nonce=True)
    second = await send(rest, content="x", nonce="1", enforce_nonce=True)
    third = await send(rest, content="x", nonce="1")
    assert first["id"] == second["id"] != third["id"]


async def test_only_own_messages_can_be_edited(fake, rest):
    made = fake.message("7", "mine")
    with pytest.raises(discord.Forbidden):
        await rest.call(
            "PATCH",
            "/channels/{channel_id}/messages/{message_id}",
            {"content": "yours"},
            channel_id="700007",
            message_id=made["id"],
        )


async def test_a_stranger_is_unauthorised(fake):
    async with new_session() as session:
        with pytest.raises(discord.HTTPException) as caught:
            await send(Rest("x", fake.api_root, session), content="x")
    assert caught.value.status == 401


async def test_an_interaction_is_acknowledged_within_three_seconds_and_once(fake, rest):
    shown = await fake.command("7", "status")
    path = "/interactions/{webhook_id}/{webhook_token}/callback"
    ids = {"webhook_id": shown.id, "webhook_token": shown.token}
    await rest.call("POST", path, {"type": 5}, **ids)
    with pytest.raises(discord.HTTPException) as caught:
        await rest.call("POST", path, {"type": 5}, **ids)
    assert caught.value.code == 40060
    late = await fake.command("7", "status")
    late.made -= 4
    with pytest.raises(discord.NotFound):
        await rest.call("POST", path, {"type": 5}, webhook_id=late.id, webhook_token=late.token)


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([{"op": 3, "d": {}}], 4003),
        ([{"op": 2, "d": {"token": "x", "intents": 0}}], 4004),
        ([{"op": 2, "d": {"token": TOKEN, "intents": 0}}] * 2, 4005),
    ],
)
async def test_a_connection_against_the_rules_is_closed(fake, frames, code):
    async with aiohttp.ClientSession() as client, client.ws_connect(fake.gateway_url) as ws:
        assert (await ws.receive_json())["op"] == 10
        for frame in frames:
            await ws.send_json(frame)
        while not ws.closed:
            await ws.receive()
        assert ws.close_code == code


async def test_it_runs_as_a_process_with_a_control_api():
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fakes.discord", "--port", "0"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().split()[-1]
        async with new_session() as session:
            people = [{"user_id": "7", "text": "a"}, {"event": "ODD", "data": {}}]
            async with session.post(f"{url}/control/push", json=people) as response:
                assert len((await response.json())["pushed"]) == 2
            rest = Rest(TOKEN, f"{url}/api/v10", session)
            await send(rest, content="answer")
            async with session.get(f"{url}/control/wait?sent=1") as response:
                assert (await response.json())["sent"] == 1
            async with session.get(f"{url}/control/sent") as response:
                assert [sent["content"] for sent in await response.json()] == ["answer"]
            fault = {"match": "POST /channels", "status": 429, "retry_after": 3}
            await session.post(f"{url}/control/fail", json=fault)
            with pytest.raises(discord.RateLimited):
                await send(rest, content="too soon")
    finally:
        process.terminate()
        await process.wait()
