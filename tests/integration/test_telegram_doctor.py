"""What the doctor finds out about Telegram bots."""

import pytest

from adapters.telegram.channel import Telegram
from bot.channel import Doctor
from bot.commands.menu import menus
from bot.errors import ChannelError
from bot.findings import told
from tests.fakes.telegram import FakeTelegram, Fault
from tests.fakes.telegram_channel import settings


@pytest.fixture
async def fake():
    async with FakeTelegram() as server:
        yield server


async def examine(config):
    channel = Telegram(config)
    assert isinstance(channel, Doctor)
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
    assert "cannot be asked" in finding.text


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
    assert "reads along" in said[1][1]
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
