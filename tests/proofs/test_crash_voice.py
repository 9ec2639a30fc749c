"""Kill the program while it listens, answers, speaks and sends: each voice is answered once."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.proofs.crash import ANSWERED, SEED
from tests.proofs.crash_platforms import telegram
from tests.proofs.rounds import lengths
from tests.speech import SpeechServer, listening

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHAT = 1
TAKES = 0.05  # seconds to listen, and to speak
AT = ("listening", "heard", "speaking", "any")  # when it is killed


@lengths("count", None, 24, 12)
async def test_kills_at_any_moment_let_each_voice_message_be_answered_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
):
    chance = random.Random(SEED)  # noqa: S311 - chance, not a secret
    kills = Counter[str]()

    asked = asyncio.Event()  # the service was, for either

    async def take_a_moment() -> None:
        asked.set()
        await asyncio.sleep(TAKES)

    async def until(ready: Callable[[], bool]) -> None:
        async with asyncio.timeout(ANSWERED):
            while not ready():
                asked.clear()
                await asked.wait()

    async with (
        listening(answer=None, handle=take_a_moment) as speech,
        telegram(tmp_path / "data", **_settings(speech)) as (fake, program),
    ):

        async def kill() -> None:
            await program.kill()
            await program.start()

        def told(number: int) -> list[str]:
            return [text for text in fake.texts(CHAT) if text.endswith(f"said: order {number}.")]

        def voiced(number: int) -> int:
            wanted = f"OggSYou said: order {number}.".encode()
            return sum(1 for sound in fake.files.values() if sound == wanted)

        await program.start()
        for number in range(count):
            fake.downloads[f"v{number}"] = f"order {number}.".encode()
            heard, said = len(speech.asked), len(speech.said)
            voice = {"file_id": f"v{number}", "mime_type": "audio/ogg", "duration": 1}
            fake.push_text(CHAT, None, voice=voice)
            at = AT[number % len(AT)]
            match at:
                case "listening":
                    await until(lambda heard=heard: len(speech.asked) > heard)
                case "heard":
                    await until(lambda heard=heard: len(speech.asked) > heard)
                    await asyncio.sleep(TAKES + chance.uniform(0, TAKES))
                case "speaking":
                    await until(lambda said=said: len(speech.said) > said)
                    await asyncio.sleep(chance.uniform(0, 2 * TAKES))
                case _:
                    await asyncio.sleep(chance.uniform(0, 8 * TAKES))
            await kill()
            kills[at] += 1
            await fake.wait_for(lambda number=number: voiced(number) > 0, ANSWERED)
    repeats = voices = 0
    for number in range(count):
        (first, *again), sounds = told(number), voiced(number)
        # A kill repeats at most the one message that was on its way.
        assert len(again) + sounds - 1 <= 1
        assert set(again) <= {first}
        assert first.startswith(f"🎙 order {number}.")
        repeats, voices = repeats + len(again) + sounds - 1, voices + sounds
    listened = Counter(each["data"] for each in speech.asked)
    assert set(listened) == {f"order {number}.".encode() for number in range(count)}
    assert max(listened.values()) <= 2
    assert not [text for text in fake.texts(CHAT) if re.search("understand|aloud", text)]
    with capsys.disabled():
        print(
            f"\n{count} voice messages, a kill each ({dict(kills)}): each answered once and said "
            f"aloud, {repeats} sends came again, {listened.total() - count} were heard twice"
        )


def _settings(speech: SpeechServer) -> dict[str, str]:
    section = "CONFIDANT_SPEECH__"
    return {
        f"{section}KIND": "openai",
        f"{section}BASE_URL": speech.url,
        f"{section}REPLY": "voice",
    }
