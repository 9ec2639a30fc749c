"""What `confidant doctor` says of voice messages, and of answers that are said aloud."""

from __future__ import annotations

import asyncio
import io
import wave
from collections.abc import Sequence

from bot.channel import Finding
from bot.config import Config, SpeechConfig
from bot.delivery.aloud import Unspoken
from bot.files.sandbox import Unreadable
from bot.speech.api import SpeechApi
from bot.speech.local import missing
from bot.speech.transcriber import Audio

_DOWN = "Check [speech] base_url, the connection, and whether the service runs."


def speech_findings(config: Config) -> Sequence[Finding]:
    """Whether voice messages are understood and made; nothing where nobody asked for it."""
    speech = config.speech
    if speech.kind == "none":
        return []
    found = [_listening(speech)]
    return [*found, _speaking(speech)] if speech.reply == "voice" else found


def _speaking(speech: SpeechConfig) -> Finding:
    try:
        asyncio.run(SpeechApi(speech).say("Hello."))
    except Unspoken as error:
        if error.reason == "speaking":
            return Finding("error", f"{speech.base_url} does not speak just now", _DOWN)
        if error.reason == "format":
            fix = "Use a service that knows response_format opus, or set [speech] reply to text."
            return Finding("error", f"{speech.base_url} does not make Ogg Opus", fix)
        fix = "Check [speech] api_key, reply_model, voice and base_url."
        return Finding("error", f"{speech.base_url} refuses to speak", fix)
    return Finding("ok", f"{speech.base_url} says answers aloud")


def _listening(speech: SpeechConfig) -> Finding:
    if speech.kind == "local":
        if problem := missing(speech):
            return Finding("error", problem, "See docs/voice.md.")
        return Finding("ok", "voice messages are understood on this machine")
    try:
        asyncio.run(SpeechApi(speech).transcribe("", Audio(_silence(), "silence.wav")))
    except Unreadable as error:
        if error.reason == "listening":
            return Finding("error", f"{speech.base_url} does not listen just now", _DOWN)
        if error.reason != "silence":
            fix = "Check [speech] api_key, model and base_url, which mostly ends with /v1."
            return Finding("error", f"{speech.base_url} refuses to listen", fix)
    return Finding("ok", f"{speech.base_url} listens to voice messages, and takes the key")


def _silence() -> bytes:
    """A second in which nothing is said, as a WAV file."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(32_000))
    return out.getvalue()
