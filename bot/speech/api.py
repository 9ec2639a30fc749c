"""Speech understood by a service: any that has `/audio/transcriptions` as OpenAI's has it."""

from __future__ import annotations

import json
from typing import cast

import aiohttp
import structlog

from bot.config import SpeechConfig
from bot.files.sandbox import Unreadable
from bot.speech.transcriber import Audio, Transcript

MOST_ANSWER = 1_000_000  # bytes
CONNECT_TIMEOUT = 10.0  # seconds
_ENDINGS = {
    "audio/ogg": "ogg",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/x-m4a": "m4a",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/webm": "webm",
    "audio/flac": "flac",
}

# Why a service refuses: what it was sent, or how it was asked; else it may work later.
_REASONS = {
    **dict.fromkeys((400, 415, 422), "unsuited"),
    **dict.fromkeys((301, 302, 307, 308, 401, 403, 404, 405), "refused"),
    413: "length",
}

log = structlog.get_logger(__name__)


class SpeechApi:
    """Asks a service for the words of each voice message."""

    def __init__(self, config: SpeechConfig) -> None:
        self._config = config

    async def transcribe(self, person: str, audio: Audio) -> Transcript:
        """The words of a voice message.

        Raises:
            Unreadable: the service fails, refuses it, or hears nothing in it.
        """
        try:
            status, body = await self._post(audio)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("speech.unreachable", error=type(error).__name__)
            raise Unreadable("listening") from None
        if status != 200:
            log.warning("speech.refused", status=status)
            raise Unreadable(_REASONS.get(status, "listening"))
        words = _words(body)
        if words is None:
            log.warning("speech.no_answer", status=status)
            raise Unreadable("listening")
        if not words:
            raise Unreadable("silence")
        return Transcript(words)

    async def close(self) -> None:
        """Nothing is kept open."""

    async def _post(self, audio: Audio) -> tuple[int, bytes]:
        config = self._config
        form = aiohttp.FormData()
        form.add_field("model", config.model)
        form.add_field("response_format", "json")
        if config.language:
            form.add_field("language", config.language)
        # Services go by the ending of a name.
        ending = _ENDINGS.get(audio.mime.partition(";")[0].lower(), "ogg")
        form.add_field("file", audio.data, filename=audio.name or f"voice.{ending}")
        headers: dict[str, str] = {}
        if config.api_key is not None:
            headers["Authorization"] = f"Bearer {config.api_key.get_secret_value()}"
        timeout = aiohttp.ClientTimeout(total=config.timeout, sock_connect=CONNECT_TIMEOUT)
        address = f"{config.base_url.rstrip('/')}/audio/transcriptions"
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(address, data=form, headers=headers, allow_redirects=False) as answer,
        ):
            body = bytearray()
            async for block in answer.content.iter_chunked(1 << 16):
                body += block
                if len(body) > MOST_ANSWER:
                    raise aiohttp.ClientPayloadError("the answer is too long")
            return answer.status, bytes(body)


def _words(body: bytes) -> str | None:
    """What an answer says was said; None when it is no such answer."""
    try:
        answer: object = json.loads(body)
    except ValueError:
        return None
    if not isinstance(answer, dict):
        return None
    words = cast("dict[str, object]", answer).get("text")
    return " ".join(words.split()) if isinstance(words, str) else None
