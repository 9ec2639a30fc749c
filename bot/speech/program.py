"""The program that understands speech: `python program.py MEGABYTES SECONDS`, see `sandbox`.

Only the first half an hour of a message is decoded, and what is understood within the time there is
counts: no recording is too long. Silence is left out before a model hears words in it.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import av
import numpy as np
from av.error import FFmpegError
from faster_whisper import WhisperModel  # pyright: ignore[reportMissingTypeStubs]

from bot.files import sandbox
from bot.files.sandbox import Head, Unreadable

RATE = 16_000  # samples a second, as the models want them
MOST_SECONDS = 1_800
THREADS = 2
# What recordings come in; never what names other files or addresses, which would be opened.
_OPTIONS = {
    "format_whitelist": "aac,aiff,amr,asf,caf,flac,m4a,matroska,mov,mp3,mp4,ogg,wav,webm",
    "protocol_whitelist": "none",
}


def answer(head: Head, data: bytes) -> tuple[Head, bytes]:
    """The words of a recording, or the reason why there are none."""
    try:
        samples, is_cut = decoded(data)
        words, ended = understood(
            model_of(head["model"]), samples, head["language"] or None, head["seconds"]
        )
    except Unreadable as error:
        return {"reason": error.reason}, b""
    except MemoryError:
        return {"reason": "memory"}, b""
    if not words:
        return {"reason": "silence"}, b""
    return {"is_cut": is_cut or ended}, words.encode()


def decoded(data: bytes, most: int = MOST_SECONDS) -> tuple[np.ndarray[Any, Any], bool]:
    """The samples of a recording, and whether there were more.

    Raises:
        Unreadable: it is no recording, or damaged from the start.
    """
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    blocks: list[np.ndarray[Any, Any]] = []
    count = 0
    try:
        source = av.open(io.BytesIO(data), mode="r", metadata_errors="ignore", options=_OPTIONS)
        with source as container:
            for frame in container.decode(audio=0):
                for part in resampler.resample(frame):
                    blocks.append(part.to_ndarray().reshape(-1))
                    count += blocks[-1].size
                if count > most * RATE:
                    break
    except (FFmpegError, IndexError, ValueError):
        if not blocks:
            raise Unreadable("damaged") from None
    if not blocks:
        raise Unreadable("silence")
    whole = np.concatenate(blocks)[: most * RATE]
    return whole.astype(np.float32) / 32_768.0, count > most * RATE


def understood(
    model: Any,
    samples: np.ndarray[Any, Any],
    language: str | None,
    seconds: float,
    now: Callable[[], float] = time.monotonic,
) -> tuple[str, bool]:
    """The words of a recording, and whether time was over before its end."""
    until = now() + seconds
    segments, _ = model.transcribe(samples, language=language, vad_filter=True)
    words: list[str] = []
    for segment in segments:  # each is worked out when it is asked for
        words.append(segment.text.strip())
        if now() > until:
            return " ".join(words), True
    return " ".join(word for word in words if word), False


@cache
def model_of(folder: str) -> Any:
    """The model, as long as this program lives.

    Raises:
        Unreadable: there is none.
    """
    try:
        return WhisperModel(
            folder, device="cpu", compute_type="int8", cpu_threads=THREADS, local_files_only=True
        )
    except (RuntimeError, ValueError, OSError):
        raise Unreadable("listening") from None


if __name__ == "__main__":
    sandbox.run(answer, lambda: None)
