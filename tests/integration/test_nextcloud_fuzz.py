"""Thousands of broken and twisted calls: nothing falls over, nothing grows, all is counted."""

import json
import random as randomness
from collections import Counter

import pytest

from adapters.nextcloud_talk import calls
from adapters.nextcloud_talk.account import Account
from adapters.nextcloud_talk.api import new_session
from adapters.nextcloud_talk.inbound import Identity, Ignored, normalise
from bot.channel import Inbound
from bot.testing import RecordingEngine
from tests.fakes.nextcloud import (
    QUICK,
    SECRET,
    FakeNextcloud,
    payload,
    running,
    settings,
)
from tests.fakes.ports import free_port

FILE = {"type": "file", "id": "9", "name": "a.png", "size": "5", "mimetype": "image/png"}
SEEDS = [
    payload("hello {mention-user1}", parameters={"mention-user1": {"type": "user", "name": "B"}}),
    payload("{file}", parameters={"file": FILE}, type="Activity"),
    payload("yes", reply={"actor": {"id": "bots/b"}, "object": payload("well?")["object"]}),
    payload("x", type="Like") | {"content": "👍"},
    payload("x", type="Undo"),
    {"type": "Join", "actor": {"id": "bots/b"}, "object": {"id": "n3xtc10ud"}},
    {"type": "Leave", "actor": {"id": "bots/b"}, "object": {"id": "abc"}},
]
ODD = [
    None, True, 0, -1, 10**30, 1e308, "", "\0", "\ud800", "\u202e\u200b", "x" * 5000, [], {}, [[]],
    {"": ""}, "{file}", "users/", "bots/x", "../..", "Create", '{"message":"x","parameters":{}}',
]  # fmt: skip


def twist(rng, value, depth=0):
    """A copy of a value with something in it changed, taken out, doubled or put in."""
    if rng.random() < 0.12 or depth > 6:
        return rng.choice(ODD)
    if isinstance(value, dict):
        found = {key: twist(rng, each, depth + 1) for key, each in value.items()}
        if found and rng.random() < 0.2:
            found.pop(rng.choice(list(found)))
        if rng.random() < 0.1:
            found[rng.choice(["type", "object", "inReplyTo", "threadId", "x"])] = rng.choice(ODD)
        if isinstance(found.get("content"), str) and rng.random() < 0.3:
            inner = {"message": rng.choice(ODD), "parameters": rng.choice([*ODD, {"file": FILE}])}
            found["content"] = json.dumps(inner)
        return found
    if isinstance(value, list):
        return [twist(rng, each, depth + 1) for each in value]
    if isinstance(value, str) and value and rng.random() < 0.1:
        at = rng.randrange(len(value))
        return value[:at] + rng.choice('\0{}[]"\\/ \ud83d\u202e') + value[at + 1 :]
    return value


@pytest.mark.slow
def test_a_hundred_thousand_twisted_payloads_are_read():
    rng, me, seen = randomness.Random(7), Identity("default", "Confidant"), Counter()  # noqa: S311
    for _ in range(100_000):
        found = normalise(twist(rng, rng.choice(SEEDS)), me, 1)
        seen[found.reason if isinstance(found, Ignored) else type(found).__name__] += 1
        if isinstance(found, Inbound):
            assert found.text.strip() or found.media
            for words in (found.text, found.sender, found.sender_name, found.chat):
                words.encode()
                assert "\0" not in words
            assert found.message_id.isdecimal()
    assert seen["Inbound"] > 1000
    assert seen.total() == 100_000
    assert len(seen) <= 9


async def test_thousands_of_broken_calls_are_answered_and_counted():
    rng, engine, statuses = randomness.Random(8), RecordingEngine(), Counter()  # noqa: S311
    async with FakeNextcloud() as fake:
        config = settings(fake, free_port())
        url = fake.bots[0].url
        async with running(engine, config):
            for number in range(3000):
                body = json.dumps(twist(rng, rng.choice(SEEDS))).encode()
                headers = {"random": f"{number:064d}"}
                chance = rng.random()
                if chance < 0.1:
                    body = body[: rng.randrange(len(body) + 1)]
                elif chance < 0.2:
                    headers["random"] = rng.choice(["", "x", "y" * 64, "z" * 400])
                elif chance < 0.3:
                    headers["signature"] = rng.choice(["", "0" * 64, "g" * 64])
                elif chance < 0.4:
                    headers["backend"] = rng.choice(["", "x", "http://[", "https://evil.example"])
                statuses[await fake.call(url, body, SECRET, **headers)] += 1
            assert await fake.say("still here") == [200]
    assert set(statuses) == {200, 400, 401, 409}
    joined = statuses.total() + 1 - engine.drops.total() - len(engine.received)
    assert 0 < joined < 1000
    assert engine.received[-1].text == "still here"


async def test_what_is_remembered_has_an_end(monkeypatch):
    monkeypatch.setattr(calls, "REMEMBERED", 50)
    async with FakeNextcloud() as fake, new_session() as session:
        config = settings(fake, free_port())
        subject = Account(config.seats()["default"], config, RecordingEngine(), session, QUICK)
        for number in range(500):
            room = f"room{number}"
            assert await subject.calls.take(
                payload("hi", room=room, sender=f"users/u{number}", rank=1)
            )
            leave = {"type": "Leave", "actor": {"id": "bots/b"}, "object": {"id": f"x{number}"}}
            assert await subject.calls.take(leave)
    assert len(subject.calls._present) == len(subject.calls._moderators) == 50
