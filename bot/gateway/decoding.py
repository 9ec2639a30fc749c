"""The program that opens pictures, in a process of its own: `python decoding.py MEGABYTES SECONDS`.

Whatever a stranger sends is opened here, without the bot's secrets, with bounded memory and time,
so that the worst a file can do is to end this process. It reads frames (four bytes of length, then
a file) from standard input and answers each with one byte, a length, and a JPEG or nothing; it ends
with its input. Only what opens pictures is imported: it starts in a moment.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import struct
import sys
from typing import BinaryIO

LENGTH = struct.Struct(">I")
SHOWN, LARGE, DAMAGED = b"s", b"l", b"d"
SIDE = 1_568  # pixels; a service shrinks what is larger
MOST_PIXELS = 16_000_000  # that have to be held at once; of a JPEG every second can be left out
MOST_JPEG = 100_000_000  # pixels of a JPEG, however few of them are held
ROOM = 8  # bytes that each pixel takes while it is decoded
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


class TooLarge(Exception):
    """A picture has more pixels than are opened."""


def jpeg(data: bytes) -> bytes:
    """A picture as a JPEG no larger than a service looks at.

    Raises:
        TooLarge: it has too many pixels.
        OSError: it is no picture, or damaged.
    """
    from PIL import Image, ImageOps  # noqa: PLC0415 - the bot reads the figures here, no pictures

    with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
        if opened.width * opened.height > MOST_JPEG:
            raise TooLarge
        opened.draft("RGB", (SIDE, SIDE))
        if opened.width * opened.height > MOST_PIXELS:
            raise TooLarge
        upright = ImageOps.exif_transpose(opened)
        upright.thumbnail((SIDE, SIDE))
        flat = Image.new("RGB", upright.size, "white")
        layered = upright.convert("RGBA")
        flat.paste(layered, mask=layered.getchannel("A"))
        out = io.BytesIO()
        flat.save(out, "JPEG", quality=85)
    return out.getvalue()


def answer(data: bytes) -> tuple[bytes, bytes]:
    """What became of a picture, and the JPEG if it can be shown."""
    try:
        return SHOWN, jpeg(data)
    except (TooLarge, MemoryError):
        return LARGE, b""
    except Exception:  # noqa: BLE001 - a decoder may raise anything for a file made to harm
        return DAMAGED if _has_room() else LARGE, b""


def _has_room() -> bool:
    """False when there is no memory for a large picture: decoders have other words for that."""
    try:
        bytearray(ROOM * MOST_PIXELS)
    except MemoryError:
        return False
    return True


def serve(source: BinaryIO, target: BinaryIO, seconds: int) -> None:
    """Answer every frame until there are no more."""
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        data = source.read(LENGTH.unpack(head)[0])
        _limit_time(seconds)
        verdict, shown = answer(data)
        target.write(verdict + LENGTH.pack(len(shown)) + shown)
        target.flush()


def _limit_memory(megabytes: int) -> None:
    """Let no picture take more; a system without such limits leaves it to the count of pixels."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on every system

        most = megabytes << 20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_time(seconds: int) -> None:
    """End this process when the next picture takes longer, also when nobody watches any more."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on every system

        used = resource.getrusage(resource.RUSAGE_SELF)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = int(used.ru_utime + used.ru_stime) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def main() -> None:
    """Serve whoever started this process."""
    for number in (signal.SIGINT, signal.SIGTERM):  # those are for the bot, which ends this one
        signal.signal(number, signal.SIG_IGN)
    from PIL import Image  # noqa: PLC0415

    Image.MAX_IMAGE_PIXELS = None  # it would warn of what is looked at here
    Image.init()  # what has to be loaded is loaded while there is room
    with contextlib.suppress(AttributeError, OSError):
        os.nice(10)  # people who only write come first
    _limit_memory(int(sys.argv[1]))
    serve(sys.stdin.buffer, sys.stdout.buffer, int(sys.argv[2]))


if __name__ == "__main__":
    main()
