"""Voice messages, and answers that are said aloud."""

from __future__ import annotations

import io
import wave
from collections.abc import Sequence

from bot.channel import Finding
from bot.config import SpeechConfig
from bot.delivery.aloud import Unspoken
from bot.doctor.setup import Setup
from bot.files.sandbox import Unreadable
from bot.speech.api import SpeechApi
from bot.speech.local import missing
from bot.speech.transcriber import Audio


async def check(setup: Setup) -> Sequence[Finding]:
    """Whether voice messages are understood and made; nothing where nobody asked for it."""
    speech = setup.config.speech
    if speech.kind == "none":
        return []
    found = [await _listening(speech)]
    return [*found, await _speaking(speech)] if speech.reply == "voice" else found


async def _speaking(speech: SpeechConfig) -> Finding:
    try:
        await SpeechApi(speech).say("Hello.")
    except Unspoken as error:
        known = {"speaking": "does_not_speak", "format": "no_opus"}
        name = known.get(error.reason, "refuses_to_speak")
        return Finding.of("error", f"speech.{name}", url=speech.base_url)
    return Finding.of("ok", "speech.speaks", url=speech.base_url)


async def _listening(speech: SpeechConfig) -> Finding:
    if speech.kind == "local":
        if problem := missing(speech):
            return Finding.of("error", "speech.missing", why=problem)
        return Finding.of("ok", "speech.local")
    try:
        await SpeechApi(speech).transcribe("", Audio(_silence(), "silence.wav"))
    except Unreadable as error:
        if error.reason == "listening":
            return Finding.of("error", "speech.does_not_listen", url=speech.base_url)
        if error.reason != "silence":
            return Finding.of("error", "speech.refuses_to_listen", url=speech.base_url)
    return Finding.of("ok", "speech.listens", url=speech.base_url)


def _silence() -> bytes:
    """A second in which nothing is said, as a WAV file."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(32_000))
    return out.getvalue()
