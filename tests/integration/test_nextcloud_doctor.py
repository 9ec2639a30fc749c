"""What the doctor finds in a set-up, and that it says nothing in any conversation."""

import pytest

from adapters.nextcloud_talk.channel import NextcloudTalk
from adapters.nextcloud_talk.doctor import MOST_ROOMS
from bot.channel import Address, Doctor
from bot.findings import told
from bot.testing import RecordingEngine
from tests.fakes.nextcloud import (
    RESPONSE,
    SECRET,
    WEBHOOK,
    WITH_API_USER,
    FakeNextcloud,
    Fault,
    running,
    settings,
)
from tests.fakes.ports import free_port


@pytest.fixture
async def fake():
    async with FakeNextcloud() as server:
        yield server
        assert server.posted == []
        assert server.reactions == []


async def examine(config):
    channel = NextcloudTalk(config)
    assert isinstance(channel, Doctor)
    return [told(each, "en") for each in await channel.examine()]


def problems(findings):
    return [(finding.level, finding.text) for finding in findings if finding.level != "ok"]


async def test_a_good_set_up_has_no_problem(fake):
    config = settings(fake, free_port(), **WITH_API_USER)
    async with running(RecordingEngine(), config):
        found = await examine(config)
    assert problems(found) == []
    assert len(found) == 6
    assert SECRET not in str(found)
    assert "app-password" not in str(found)


@pytest.mark.parametrize("abilities", [["bots-v1", "bot-features-api"], ["bots-v1"]])
async def test_the_missing_response_feature_is_found_and_mended(fake, abilities):
    fake.abilities = abilities
    config = settings(fake, free_port(), groups={"n3xtc10ud": {}})
    fake.bots[0].features &= ~RESPONSE
    async with running(RecordingEngine(), config):
        found = [f for f in await examine(config) if f.level == "error"]
    assert len(found) == 1
    assert "401" in found[0].text
    assert "occ talk:bot:state --feature webhook --feature response" in found[0].fix
    assert "response" in found[0].text + found[0].fix


async def test_a_room_the_api_user_is_not_in_is_told(fake):
    fake.kinds["other"] = 2
    fake.strangers.add("other")
    groups = {"other": {}, "n3xtc10ud": {}, "closed": {"enabled": False}, "*": {}}
    config = settings(fake, free_port(), groups=groups, **WITH_API_USER)
    async with running(RecordingEngine(), config):
        ((level, words),) = problems(await examine(config))
    assert level == "warning"
    assert words.startswith("api_user confidant is not in other: what is said there while")


async def test_without_an_api_user_it_says_what_is_lost(fake):
    config = settings(fake, free_port(), groups={"n3xtc10ud": {}})
    async with running(RecordingEngine(), config):
        ((level, words),) = problems(await examine(config))
    assert level == "warning"
    assert "what is said while Confidant is down is lost" in words


async def test_a_bot_that_is_not_told_what_is_said_is_an_error(fake):
    config = settings(fake, free_port(), **WITH_API_USER)
    fake.bots[0].features = RESPONSE
    async with running(RecordingEngine(), config):
        assert problems(await examine(config)) == [
            ("error", "the bot lacks the feature webhook: without it Talk tells it nothing")
        ]


async def test_no_feature_is_asked_for_that_is_not_needed(fake):
    config = settings(fake, free_port(), **WITH_API_USER)
    assert fake.bots[0].features == WEBHOOK | RESPONSE
    async with running(RecordingEngine(), config) as channel:
        assert problems(await examine(config)) == []
        await channel.react(Address("nextcloud_talk", "default", "n3xtc10ud"), "1567", "👍")
    assert fake.reactions.pop() == ("n3xtc10ud", "1567", "👍")


async def test_a_bot_that_is_in_no_conversation_is_tried_in_few(fake):
    fake.kinds = {f"room{n}": 2 for n in range(50)}
    config = settings(fake, free_port(), **WITH_API_USER)
    async with running(RecordingEngine(), config):
        found = problems(await examine(config))
    assert [level for level, _ in found] == ["error"]
    assert len([path for _, path in fake.requests if "ask-features" in path]) == MOST_ROOMS


async def test_without_a_room_it_says_where_to_look(fake):
    config = settings(fake, free_port())
    async with running(RecordingEngine(), config):
        found = await examine(config)
    assert [level for level, _ in problems(found)] == ["warning", "warning"]
    assert any("talk:bot:list" in finding.fix for finding in found)


@pytest.mark.parametrize(
    ("secret", "level"),
    [("s" * 39, "error"), ("s" * 40, "ok"), ("s" * 128, "ok"), ("s" * 129, "error")],
)
async def test_the_secrets_length(fake, secret, level):
    config = settings(fake, free_port(), bot_secret=secret)
    (finding, *_) = await examine(config)
    assert finding.level == level
    assert f"{len(secret)} characters" in finding.text


@pytest.mark.parametrize(
    ("part", "fault", "words"),
    [
        ("/capabilities", Fault(503), "maintenance"),
        ("/capabilities", Fault(404), "does not answer like a Nextcloud"),
        ("/capabilities", Fault(200), "does not answer like a Nextcloud"),
        ("/v4/room", Fault(401), "is not let in"),
        ("/v4/room", Fault(drop=True), "cannot be listed"),
    ],
)
async def test_a_server_in_trouble(fake, part, fault, words):
    fake.fail_next(part, fault, times=2)
    found = problems(await examine(settings(fake, free_port(), **WITH_API_USER)))
    assert any(words in text for _, text in found)


@pytest.mark.parametrize("abilities", [[], ["video"]])
async def test_talk_is_missing_or_too_old(fake, abilities):
    fake.abilities = abilities
    found = problems(await examine(settings(fake, free_port())))
    assert any("Talk is not there" in text for _, text in found)


async def test_a_server_that_is_not_there():
    config = settings(FakeNextcloud(url="http://127.0.0.1:1"), free_port(), public_url="")
    found = problems(await examine(config))
    assert [level for level, _ in found] == ["error", "warning"]
    assert "cannot be reached" in found[0][1]
    assert "public_url is not set" in found[1][1]


async def test_the_webhook_is_called_as_talk_would(fake):
    port = free_port()
    config = settings(fake, port, **WITH_API_USER)
    assert any("cannot be reached from here" in text for _, text in problems(await examine(config)))
    engine = RecordingEngine()
    async with running(engine, config):
        elsewhere = config.model_copy(update={"webhook_path": "/elsewhere"})
        assert any("HTTP 404" in text for _, text in problems(await examine(elsewhere)))
        other = settings(fake, port, bot_secret="o" * 40)
        assert any("HTTP 401" in text for _, text in problems(await examine(other)))
        assert problems(await examine(config)) == []
    assert engine.received == []


async def test_every_account_is_looked_at(fake):
    accounts = {"work": {"bot_secret": "w" * 39}, "idle": {}}
    found = await examine(settings(fake, free_port(), accounts=accounts))
    assert {finding.account for finding in found} == {"default", "work", "idle"}
