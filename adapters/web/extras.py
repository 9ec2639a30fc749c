"""Extras below a message on the page: buttons, pictures, files.

Pictures travel inside the frames as data addresses, so there is no further address to guard and
nothing for a browser to keep. Only what every browser draws without running anything is shown; the
rest is offered as a download.
"""

from __future__ import annotations

from base64 import b64encode
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from bot.channel import Attachment, Piece

SHOWN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "audio/ogg"})
MAX_BYTES = 2_000_000  # of the files of one message; what goes beyond is only named
MAX_NAME = 128  # characters
MAX_BUTTONS = 32
KEPT = 64  # messages whose buttons and files a page gets again …
KEPT_CHARS = 6_000_000  # … as long as they are no larger than this together

Fields = Mapping[str, Any]

NOTHING: Fields = {}


def fields(piece: Piece) -> Fields:
    """The fields of a frame that carry what comes with a message; none when nothing does."""
    found: dict[str, Any] = {}
    if piece.buttons:
        found["buttons"] = [
            {"label": button.label, "command": button.command}
            for button in piece.buttons[:MAX_BUTTONS]
        ]
    if piece.attachments:
        room, listed = MAX_BYTES, list[dict[str, Any]]()
        for file in piece.attachments:
            fits = len(file.data) <= room
            room -= len(file.data) if fits else 0
            listed.append(_described(file, with_data=fits))
        found["attachments"] = listed
    return found


def without_data(extras: Fields) -> Fields:
    """The same for a client that shows no pictures: their names and sizes."""
    if "attachments" not in extras:
        return extras
    named = [{**file, "data": ""} for file in extras["attachments"]]
    return {**extras, "attachments": named}


class Shelf:
    """Extras of the newest messages, for pages that are loaded again.

    The transcript holds words only; once the process ends, so do pictures and unpressed buttons.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Fields] = OrderedDict()
        self._chars = 0

    def keep(self, message_id: str, extras: Fields) -> None:
        """Remember them, and forget the oldest as far as there is no room."""
        self._chars -= size(self._kept.pop(message_id, NOTHING))
        self._kept[message_id] = extras
        self._chars += size(extras)
        while len(self._kept) > KEPT or self._chars > KEPT_CHARS:
            self._chars -= size(self._kept.popitem(last=False)[1])

    def drop(self, message_ids: Iterable[str]) -> None:
        """Remember no more what came with some messages."""
        for message_id in message_ids:
            self._chars -= size(self._kept.pop(message_id, NOTHING))

    def of(self, message_id: str) -> Fields:
        """The extras of a message, as far as they are remembered."""
        return self._kept.get(message_id, NOTHING)


def _described(file: Attachment, *, with_data: bool) -> dict[str, Any]:
    mime = file.mime.lower()
    shown = mime if mime in SHOWN else "application/octet-stream"
    encoded = b64encode(file.data).decode() if with_data else ""
    return {
        "name": file.name[:MAX_NAME],
        "size": len(file.data),
        "picture": mime.startswith("image/"),
        "data": f"data:{shown};base64,{encoded}" if encoded else "",
    }


def size(extras: Fields) -> int:
    """The size of its files in characters."""
    return sum(len(file["data"]) for file in extras.get("attachments", ()))
