"""Makes JPEGs that a model can look at of the pictures people send. Runs in a bounded process."""

from __future__ import annotations

import io

from PIL import Image, ImageOps

from bot.files.sandbox import Unreadable

SIDE = 1_568  # pixels; a service shrinks what is larger
MOST_PIXELS = 16_000_000  # that have to be held at once; of a JPEG every second can be left out
MOST_JPEG = 100_000_000  # pixels of a JPEG, however few of them are held
ROOM = 8  # bytes that each pixel takes while it is decoded
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


def prepare() -> None:
    """Load what opens pictures."""
    Image.MAX_IMAGE_PIXELS = None  # it would warn of what is looked at here
    Image.init()


def jpeg(data: bytes) -> bytes:
    """A picture as a JPEG no larger than a service looks at.

    Raises:
        Unreadable: it has too many pixels, is no picture, or damaged.
    """
    try:
        return _jpeg(data)
    except (Unreadable, MemoryError):
        raise Unreadable("large") from None
    except Exception:  # noqa: BLE001 - a decoder may raise anything for a file made to harm
        raise Unreadable("damaged" if _has_room() else "large") from None


def _jpeg(data: bytes) -> bytes:
    with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
        if opened.width * opened.height > MOST_JPEG:
            raise Unreadable("large")
        opened.draft("RGB", (SIDE, SIDE))
        if opened.width * opened.height > MOST_PIXELS:
            raise Unreadable("large")
        upright = ImageOps.exif_transpose(opened)
        upright.thumbnail((SIDE, SIDE))
        flat = Image.new("RGB", upright.size, "white")
        layered = upright.convert("RGBA")
        flat.paste(layered, mask=layered.getchannel("A"))
        out = io.BytesIO()
        flat.save(out, "JPEG", quality=85)
    return out.getvalue()


def _has_room() -> bool:
    """False when there is no memory for a large picture: decoders have other words for that."""
    try:
        bytearray(ROOM * MOST_PIXELS)
    except MemoryError:
        return False
    return True
