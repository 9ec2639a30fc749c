"""Replies said aloud: once, as other texts are, and told once where they cannot be."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from bot.channel import Capabilities
from bot.delivery import delivery as module
from bot.delivery import outbox
from bot.delivery.aloud import Unspoken
from bot.delivery.outbox import Extra
from bot.errors import SendRefused, SendTransient
from bot.storage import Database
from tests.unit.test_delivery import ADA, Post


@dataclass
class Speaker:
    """It says words as they are."""

    said: list[str] = field(default_factory=list)
    fails: str = ""

    async def say(self, words: str) -> bytes:
        await asyncio.sleep(0)
        self.said.append(words)
        if self.fails:
            raise Unspoken(self.fails)
        return b"OggS" + words.encode()


@pytest.fixture
async def post(each_database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "FIRST_RETRY", 0.001)
    monkeypatch.setattr(module, "LAST_RETRY", 0.004)
    with capture_logs():
        made = Post(each_database, Speaker())
        made.channel.capabilities = Capabilities(max_length=400, attachments=True, voice=True)
        yield made
        await made.delivery.stop(0)


async def say(post: Post, *words: str) -> None:
    letters = await post.database.write(
        lambda tx: [
            outbox.add(tx, ADA, "", post.clock(), language="en", extra=Extra(aloud=each))
            for each in words
        ]
    )
    post.delivery.post(letters)


def outcomes(post: Post) -> dict[str, float]:
    return {
        sample.labels["result"]: sample.value
        for metric in post.metrics.voice.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    }


async def test_words_become_a_voice_message_in_their_turn(post: Post):
    await post.post("first")
    await say(post, "said")
    await post.post("last")
    sent = await post.wait_sent(3)
    assert [(piece.text, [f.data for f in piece.attachments]) for piece in sent] == [
        ("first", []),
        ("", [b"OggSsaid"]),
        ("last", []),
    ]
    await post.idle()
    assert await post.states() == ["sent"] * 3
    assert outcomes(post) == {"sent": 1}


async def test_what_waits_is_said_after_a_restart(post: Post):
    await post.database.write(
        lambda tx: outbox.add(tx, ADA, "", post.clock(), extra=Extra(aloud="later"))
    )
    await post.restart()
    (sent,) = await post.wait_sent(1)
    assert sent.attachments[0].data == b"OggSlater"


async def test_a_send_that_fails_is_tried_again_with_the_same_sound(post: Post):
    post.channel.errors = [SendTransient("busy"), SendTransient("busy")]
    await say(post, "once")
    await post.wait_sent(1)
    assert post.speaker.said == ["once"]


@pytest.mark.parametrize("reason", ["speaking", "refused", "format"])
async def test_what_cannot_be_said_is_told_once_until_it_can(post: Post, reason: str):
    post.speaker.fails = reason
    await say(post, "one", "two")
    await post.post("text")
    sent = await post.wait_sent(2)
    assert ["could not say this aloud" in piece.text for piece in sent] == [False, True]
    assert sent[1].kind == "notice"
    post.speaker.fails = ""
    await say(post, "three")
    await post.wait_sent(3)
    post.speaker.fails = reason
    await say(post, "four")
    assert "could not say" in (await post.wait_sent(4))[-1].text
    await post.idle()
    assert outcomes(post) == {reason: 3, "sent": 1}


async def test_a_platform_that_does_not_take_it_is_told_once(post: Post):
    post.channel.errors = [SendRefused("VOICE_MESSAGES_FORBIDDEN")]
    await say(post, "one")
    (told,) = await post.wait_sent(1)
    assert "not taken here" in told.text
    await post.idle()
    assert await post.states() == ["sent", "sent"]


async def test_what_does_not_get_through_for_minutes_is_left_to_its_words(post: Post):
    post.channel.errors = [SendTransient("busy")] * module.PARK_TRIES
    await say(post, "one")
    (told,) = await post.wait_sent(1)
    assert "do not get through just now" in told.text
    await post.idle()
    assert await post.states() == ["sent", "sent"]


async def test_what_was_to_be_said_before_it_was_switched_off_is_dropped(post: Post):
    post.delivery._aloud._speaker = None
    await say(post, "one")
    await post.post("text")
    await post.wait_sent(1)
    await post.idle()
    assert post.texts() == ["text"]
    assert await post.states() == ["sent", "sent"]
