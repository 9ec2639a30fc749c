"""One message as the Bot API takes it: pure."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from telegram import InputFile

from adapters.telegram.inbound import GENERAL_TOPIC, pressable
from bot.channel import Address, Attachment, Button, Piece
from bot.channel.kit.json_access import Json
from bot.channel.kit.text import file_name, width

MAX_PHOTO = 10_000_000  # bytes of what Telegram shows as a picture
MAX_ROW = 40  # columns of labels side by side on a phone
MAX_BUTTONS = 100  # of one message
# A drawing and a format Telegram does not decode go out as files.
_NO_PHOTO = ("image/svg", "image/tiff", "image/x-icon", "image/vnd")
_VOICE = "audio/ogg"  # what Telegram shows as a voice message
# What Telegram says about a part of a message that is not needed; a photo goes out as a file then.
_CAUSES = (
    ("entities", ("entit",)),
    ("caption_entities", ("entit",)),
    ("reply_parameters", ("replied not found", "reply message not found")),
    ("message_thread_id", ("thread not found", "topic_deleted", "topic_id_invalid")),
    ("reply_markup", ("button_", "reply markup", "keyboard")),
    ("photo", ("photo_", "image_process_failed", "too big for a photo")),
)

_log = structlog.get_logger()


def chat_id(chat: str) -> int | str:
    """A chat's id as the Bot API wants it: a number, or the @name of a public chat."""
    return int(chat) if chat.removeprefix("-").isdecimal() else chat


def place_of(address: Address, answered: str = "") -> Json:
    """The address of a message, and the id of the one it answers.

    A forum's general topic is the one that is not named.
    """
    parameters: Json = {"chat_id": chat_id(address.chat)}
    if answered.isdecimal():
        answer = {"message_id": int(answered), "allow_sending_without_reply": True}
        parameters["reply_parameters"] = answer
    is_general = address.thread == GENERAL_TOPIC and address.chat.startswith("-")
    if address.thread.isdecimal() and not is_general:
        parameters["message_thread_id"] = int(address.thread)
    return parameters


def request_of(piece: Piece) -> tuple[str, Json]:
    """The method that sends a message, and its parameters."""
    parameters = place_of(piece.address, piece.reply_to.partition(":")[0])
    markup = keyboard(piece.buttons) if piece.buttons else None
    if markup is not None:
        parameters["reply_markup"] = markup
    if piece.text:
        parameters["caption" if piece.attachments else "text"] = piece.text
    if piece.entities:
        parameters["caption_entities" if piece.attachments else "entities"] = piece.entities
    if not piece.attachments:
        parameters["link_preview_options"] = {"is_disabled": True}
        return "sendMessage", parameters
    file = piece.attachments[0]
    upload = InputFile(file.data, filename=file_name(file, 64))
    upload.mimetype = file.mime or upload.mimetype
    kind = "photo" if _is_photo(file) else "voice" if file.mime == _VOICE else "document"
    return f"send{kind.capitalize()}", parameters | {kind: upload}


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


def _is_photo(file: Attachment) -> bool:
    """True for a picture to look at rather than a file to open."""
    mime = file.mime.lower()
    is_picture = mime.startswith("image/") and not mime.startswith(_NO_PHOTO)
    return is_picture and len(file.data) <= MAX_PHOTO


def objection(complaint: str, parameters: Json) -> str:
    """The parameter Telegram objects to and a message can do without, or empty."""
    for name, signs in _CAUSES:
        if name in parameters and any(sign in complaint for sign in signs):
            return name
    return ""
