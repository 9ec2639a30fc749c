"""`confidant doctor` on Discord: what it finds, and what it says to do."""

import pytest

from adapters.discord.channel import Discord
from bot.channel import Doctor
from bot.commands.menu import menus
from bot.errors import ChannelError
from bot.findings import told
from tests.fakes.discord import FakeDiscord
from tests.fakes.discord_channel import settings


@pytest.fixture
async def fake():
    async with FakeDiscord() as server:
        yield server


async def found(config):
    channel = Discord(config)
    assert isinstance(channel, Doctor)
    return [told(each, "en") for each in await channel.examine()]


async def test_a_bot_that_is_set_up_is_well(fake):
    assert {finding.level for finding in await found(settings(fake))} == {"ok"}


async def test_a_refused_token_is_an_error_without_the_token(fake):
    findings = await found(settings(fake, token="wrong", accounts={"idle": {}}))
    assert [(f.level, f.account) for f in findings] == [("error", "idle"), ("error", "default")]
    assert "wrong" not in repr(findings)


async def test_what_hinders_it_is_told_with_what_to_do(fake):
    fake.application = {"id": "900", "flags": 0, "interactions_endpoint_url": "https://x"}
    fake.guilds.clear()
    findings = await found(settings(fake))
    said = {finding.text: finding.fix for finding in findings if finding.level != "ok"}
    assert len(said) == 4
    assert "Message Content Intent" in said["it may not read what messages say"]
    assert "client_id=900" in said["it is not in server 500"]


async def test_a_server_that_does_not_answer_is_an_error():
    fake = FakeDiscord()
    await fake.start()
    config = settings(fake)
    await fake.stop()
    assert [finding.level for finding in await found(config)] == ["error"]


async def test_slash_commands_are_compared_and_registered_once_more(fake):
    channel = Discord(settings(fake))
    await channel.publish_commands(menus())
    assert [each.id for each in await channel.examine() if each.repair] == ["discord.menu"]
    await channel.register()
    found = await channel.examine()
    assert [each.id for each in found if each.repair] == []
    assert "discord.has_menu" in {each.id for each in found}


async def test_commands_that_discord_does_not_take_say_why(fake):
    channel = Discord(settings(fake, token="wrong"))
    await channel.publish_commands(menus())
    with pytest.raises(ChannelError, match=r"Discord \(default\): 401"):
        await channel.register()
