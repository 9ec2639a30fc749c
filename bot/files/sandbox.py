"""The protocol of the bot and a program that opens files, and the limits of that program.

Both sides send frames: two lengths, a head in JSON, a body in bytes. The program answers each frame
with one, and ends with its input.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

LENGTHS = struct.Struct(">II")  # of the head and of the body

Head = Mapping[str, Any]
Answer = Callable[[Head, bytes], tuple[Head, bytes]]


class Unreadable(Exception):
    """A file was not opened; `reason` is one of the words of `media.why` in `bot.i18n`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def packed(head: Head, body: bytes) -> bytes:
    """A frame."""
    words = json.dumps(head).encode()
    return LENGTHS.pack(len(words), len(body)) + words + body


def serve(source: BinaryIO, target: BinaryIO, seconds: int, answer: Answer) -> None:
    """Answer every frame until there are no more."""
    while len(lengths := source.read(LENGTHS.size)) == LENGTHS.size:
        head, body = LENGTHS.unpack(lengths)
        asked, data = json.loads(source.read(head)), source.read(body)
        limit_time(seconds)
        target.write(packed(*answer(asked, data)))
        target.flush()


def run(answer: Answer, prepare: Callable[[], None]) -> None:
    """Serve whoever started this process as `program MEGABYTES SECONDS`.

    What `prepare` loads is loaded while there is room.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # those are for the bot, which ends this one
        signal.signal(number, signal.SIG_IGN)
    prepare()
    with contextlib.suppress(AttributeError, OSError):
        os.nice(10)  # people who only write come first
    limit_memory(int(sys.argv[1]))
    serve(sys.stdin.buffer, sys.stdout.buffer, int(sys.argv[2]), answer)


def limit_memory(megabytes: int) -> None:
    """Let no file take more; a system without such limits leaves it to what is counted."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on every system

        most = megabytes << 20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_time(seconds: int) -> None:
    """End this process when the next file takes longer, also when nobody watches any more."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on every system

        used = resource.getrusage(resource.RUSAGE_SELF)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = int(used.ru_utime + used.ru_stime) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
