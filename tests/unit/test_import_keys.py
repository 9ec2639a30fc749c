"""Whose a session of OpenClaw is: its keys as it wrote them over the years."""

from __future__ import annotations

import pytest

from bot.config import Config
from bot.identity import Books, Policy, PolicySnapshot
from bot.identity.zone import local_zone
from bot.importing.openclaw import keys
from bot.importing.storing import Owner
from tests.support import make_config

LINKS = {"owner": ["telegram:7"], "identity_links": {"ada": ["telegram:42", "discord:77"]}}


@pytest.fixture
def snapshot(tmp_path) -> PolicySnapshot:
    config: Config = make_config(tmp_path, session=LINKS)[0]
    return PolicySnapshot.of(Policy.of(config, local_zone(config)), Books())


ROOM = "agent:main:telegram:group:-1001"


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("agent:main:main", Owner("main")),
        ("agent:work:main", Owner("main")),
        ("main", Owner("main")),
        ("agent:main:dashboard:8f1e", Owner("main")),
        ("agent:main:webchat:direct:abc", Owner("main")),
        ("agent:main:telegram:direct:42", Owner("ada")),
        ("agent:main:telegram:dm:42", Owner("ada")),
        ("agent:main:discord:work:direct:77:thread:5", Owner("ada")),
        ("agent:main:telegram:direct:7", Owner("main")),
        ("agent:main:whatsapp:direct:+15551234", Owner("whatsapp:+15551234")),
        ("AGENT:Main:Telegram:Group:-1001", Owner(room=ROOM)),
        ("agent:other:telegram:group:-1001", Owner(room=ROOM)),
        ("agent:main:telegram:group:-1001:topic:9", Owner(room=f"{ROOM}:topic:9")),
        ("agent:main:discord:channel:5", Owner(room="agent:main:discord:channel:5")),
        (
            "agent:main:nextcloud-talk:room:abc",
            Owner(room="agent:main:nextcloud_talk:group:abc"),
        ),
        ("agent:main:direct:42", None),
        ("agent:main:cron:weather:run:1", None),
        ("agent:main:subagent:1f", None),
        ("cron:weather", None),
        ("hook:1", None),
        ("group:-1001", None),
        ("+15551234", None),
        ("global", None),
        ("", None),
        ("agent:main", None),
        ("::::", None),
    ],
)
def test_a_key_says_whose_its_session_is(snapshot, key, owner):
    assert keys.owner_of(keys.parse(key), snapshot) == owner


def test_what_was_done_by_itself_is_work_and_not_unclear():
    assert keys.parse("agent:main:cron:x").is_work
    assert not keys.parse("group:1").is_work
    assert keys.parse("group:1").is_unclear
