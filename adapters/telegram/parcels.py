"""One `Outbound` → the messages Telegram takes it in, and its buttons → a keyboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from adapters.telegram.api import Json
from adapters.telegram.inbound import pressable
from adapters.telegram.render import Words, pieces
from bot.channel import Attachment, Button, Outbound
from bot.channel.kit.text import units, width

MAX_CAPTION = 1024  # UTF-16 units below a picture or a file
MAX_PHOTO = 10_000_000  # bytes of what Telegram shows as a picture …
MAX_FILE = 50_000_000  # … and of any file
MAX_ROW = 40  # columns of labels side by side on a phone
MAX_BUTTONS = 100  # of one message

# A drawing and a format Telegram does not decode go out as files.
_NO_PHOTO = ("image/svg", "image/tiff", "image/x-icon", "image/vnd")

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message: words, a file, or a file with its words below."""

    words: Words | None = None
    file: Attachment | None = None

    @property
    def is_photo(self) -> bool:
        """Whether it is a picture to look at rather than a file to open."""
        if self.file is None or len(self.file.data) > MAX_PHOTO:
            return False
        mime = self.file.mime.lower()
        return mime.startswith("image/") and not mime.startswith(_NO_PHOTO)


def parcels(outbound: Outbound) -> list[Parcel]:
    """The messages in their order; none when there is nothing to show.

    Words that fit below a picture stand there; longer ones come before it.
    """
    words = pieces(outbound.text)
    files = [file for file in outbound.attachments if _fits(file)]
    if files and len(words) == 1 and units(words[0].plain) <= MAX_CAPTION:
        return [Parcel(words[0], files[0]), *(Parcel(file=file) for file in files[1:])]
    return [*(Parcel(each) for each in words), *(Parcel(file=file) for file in files)]


def keyboard(buttons: Sequence[Button]) -> Json | None:
    """The buttons as an inline keyboard, side by side as far as their labels fit."""
    rows: list[list[Json]] = []
    room = 0
    for button in buttons[:MAX_BUTTONS]:
        if not button.label.strip() or not pressable(button.command):
            _log.warning("telegram.button.left_out", command=button.command.partition(" ")[0][:32])
            continue
        taken = width(button.label) + 4
        if taken > room:
            rows.append([])
            room = MAX_ROW
        room -= taken
        rows[-1].append({"text": button.label, "callback_data": button.command})
    return {"inline_keyboard": rows} if rows else None


def _fits(file: Attachment) -> bool:
    if 0 < len(file.data) <= MAX_FILE:
        return True
    _log.warning("telegram.file.left_out", mime=file.mime, size=len(file.data))
    return False
