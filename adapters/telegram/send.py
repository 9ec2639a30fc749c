"""Sending: one `Piece` → one message, and Telegram's errors → ours."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import time
from collections import deque
from collections.abc import Sequence

import structlog
from cachetools import LRUCache
from telegram import InputFile
from telegram.error import BadRequest, ChatMigrated, Forbidden, RetryAfter, TelegramError

from adapters.telegram.api import READ_TIMEOUT, Json, LeanBot, reason
from adapters.telegram.inbound import GENERAL_TOPIC, pressable
from bot.channel import Address, Attachment, Button, Piece
from bot.channel.kit.drafts import Draft, Drafts
from bot.channel.kit.text import width
from bot.errors import ChannelError, ChatMoved, SendLater, SendRefused, SendTransient

UPLOAD_TIMEOUT = 90.0  # seconds until Telegram has a file and says so
MAX_PHOTO = 10_000_000  # bytes of what Telegram shows as a picture
MAX_ROW = 40  # columns of labels side by side on a phone
MAX_BUTTONS = 100  # of one message
MOST_A_MINUTE = 20  # messages in one group; Telegram refuses more
MINUTE = 60.0  # seconds
REMEMBERED = 1024  # groups that were written to a moment ago

# A drawing and a format Telegram does not decode go out as files.
_NO_PHOTO = ("image/svg", "image/tiff", "image/x-icon", "image/vnd")
_VOICE = "audio/ogg"  # what Telegram shows as a voice message
# What Telegram says about a part of a message that is not needed; a photo goes out as a file then.
_CAUSES = (
    ("parse_mode", ("can't parse entities", "too long")),
    ("reply_parameters", ("replied not found", "reply message not found")),
    ("message_thread_id", ("thread not found",)),
    ("reply_markup", ("button_", "reply markup", "keyboard")),
    ("photo", ("photo_", "image_process_failed", "too big for a photo")),
)
_NEW_ONLY = ("reply_parameters", "message_thread_id")  # what an edit cannot have
_TOO_LARGE = re.compile(r"entity too large|\(413\)", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w.()+-]+")  # in the name of a file

_log = structlog.get_logger()


class Allowance:
    """How often groups may be written to, so that Telegram never has to refuse."""

    def __init__(self, most: int = MOST_A_MINUTE, period: float = MINUTE) -> None:
        self._most = most
        self._period = period
        self._spent: LRUCache[str, deque[float]] = LRUCache(REMEMBERED)

    def wait(self, chat: str, spare: int = 0) -> float:
        """Seconds until this chat may be written to, with `spare` messages left after that."""
        spent = self._spent.get(chat)
        if spent is None:
            return 0.0
        now = time.monotonic()
        while spent and now - spent[0] >= self._period:
            spent.popleft()
        over = len(spent) + spare + 1 - self._most
        return max(0.0, spent[over - 1] + self._period - now) if over > 0 else 0.0

    def spend(self, chat: str) -> None:
        """Note that something was written there; direct chats have no such limit."""
        if not chat.startswith("-"):
            return
        self._spent.setdefault(chat, deque(maxlen=self._most)).append(time.monotonic())


class Sender:
    """Sends the messages of one account, each in the place of what showed of it before."""

    def __init__(self, bot: LeanBot, allowance: Allowance, drafts: Drafts[Address]) -> None:
        self._bot = bot
        self._allowance = allowance
        self._drafts = drafts

    async def send(self, piece: Piece) -> str:
        """Send one message; its id.

        Raises:
            SendLater: Telegram asks to wait, or the group has had its messages of this minute.
            SendTransient: Telegram cannot be reached, or failed.
            SendRefused: Telegram will not deliver this.
            ChatMoved: the chat has another id now.
        """
        chat = piece.address.chat
        draft = await self._drafts.take(piece.address, piece.draft) if piece.draft else None
        wait = self._allowance.wait(chat)
        if wait > 0:
            self._drafts.leave(draft)
            raise SendLater(wait)
        self._allowance.spend(chat)
        method, parameters = request_of(piece)
        try:
            if draft is None or not draft.message:
                return await self._post(method, parameters, piece)
            return await self._replace(draft, method, parameters, piece)
        except TelegramError as error:
            self._drafts.leave(draft)
            raise failure(error, self._bot.token) from None

    async def typing(self, chat: str, thread: str) -> None:
        """Show "typing…" in a chat.

        Raises:
            TelegramError: it could not be shown.
        """
        parameters: Json = {"chat_id": chat_id(chat), "action": "typing"}
        if thread.isdecimal():  # here also that of the general topic
            parameters["message_thread_id"] = int(thread)
        await self._bot.call("sendChatAction", parameters)

    async def react(self, chat: str, message_id: str, emoji: str) -> None:
        """Put a sign below a message, or take it away.

        Raises:
            TelegramError: it could not be done.
        """
        signs = [{"type": "emoji", "emoji": emoji}] if emoji else []
        where: Json = {"chat_id": chat_id(chat), "message_id": int(message_id)}
        await self._bot.call("setMessageReaction", where | {"reaction": signs})

    async def _replace(
        self, draft: Draft[Address], method: str, parameters: Json, piece: Piece
    ) -> str:
        """Turn an unfinished message into what it was to become, or send that in its place."""
        where: Json = {"chat_id": parameters["chat_id"], "message_id": int(draft.message)}
        fits = piece.reply_to.partition(":")[0] in {"", draft.answers}
        if not piece.attachments and fits:
            edit = {name: value for name, value in parameters.items() if name not in _NEW_ONLY}
            try:
                await self._post("editMessageText", edit | where, piece)
            except BadRequest as error:
                if "not modified" in error.message.lower():
                    return draft.message
            else:
                return draft.message
        draft.message = ""  # it is gone, or too old
        with contextlib.suppress(BadRequest):
            await self._bot.call("deleteMessage", where)
        return await self._post(method, parameters, piece)

    async def _post(self, method: str, parameters: Json, piece: Piece) -> str:
        """Send one message, with less of the trimmings each time Telegram objects to one."""
        timeout = UPLOAD_TIMEOUT if piece.attachments else READ_TIMEOUT
        while True:
            try:
                result = await self._bot.call(method, parameters, read_timeout=timeout)
            except BadRequest as error:
                dropped = _objection(error.message.lower(), parameters)
                if not dropped:
                    raise
                _log.warning("telegram.send.simplified", without=dropped)
                taken = parameters.pop(dropped)
                if dropped == "parse_mode":
                    parameters["text" if "text" in parameters else "caption"] = piece.plain
                elif dropped == "photo":
                    method, parameters["document"] = "sendDocument", taken
            else:
                return str(result["message_id"])


def chat_id(chat: str) -> int | str:
    """A chat's id as the Bot API wants it: a number, or the @name of a public chat."""
    return int(chat) if chat.removeprefix("-").isdecimal() else chat


def place_of(address: Address) -> Json:
    """Where a message goes. A forum's general topic is the one that is not named."""
    parameters: Json = {"chat_id": chat_id(address.chat)}
    is_general = address.thread == GENERAL_TOPIC and address.chat.startswith("-")
    if address.thread.isdecimal() and not is_general:
        parameters["message_thread_id"] = int(address.thread)
    return parameters


def request_of(piece: Piece) -> tuple[str, Json]:
    """The method that sends a message, and its parameters."""
    parameters = place_of(piece.address)
    answered = piece.reply_to.partition(":")[0]
    if answered.isdecimal():
        parameters["reply_parameters"] = {
            "message_id": int(answered),
            "allow_sending_without_reply": True,
        }
    markup = keyboard(piece.buttons) if piece.buttons else None
    if markup is not None:
        parameters["reply_markup"] = markup
    if piece.text:
        parameters["caption" if piece.attachments else "text"] = piece.text
        parameters["parse_mode"] = "HTML"
    if not piece.attachments:
        parameters["link_preview_options"] = {"is_disabled": True}
        return "sendMessage", parameters
    file = piece.attachments[0]
    upload = InputFile(file.data, filename=_UNSAFE.sub("_", file.name)[-64:])
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


def _objection(complaint: str, parameters: Json) -> str:
    """The parameter Telegram objects to and a message can do without, or empty."""
    for name, signs in _CAUSES:
        if name in parameters and any(sign in complaint for sign in signs):
            return name
    return ""


def failure(error: TelegramError, token: str = "") -> ChannelError:
    """The error of the contract that an SDK error stands for; its message has no token."""
    if isinstance(error, RetryAfter):
        wait = error.retry_after
        return SendLater(wait.total_seconds() if isinstance(wait, dt.timedelta) else float(wait))
    if isinstance(error, ChatMigrated):
        return ChatMoved(str(error.new_chat_id))
    message = f"Telegram: {reason(error, token)}"
    # BadRequest is a NetworkError to the SDK, as is 413, but asking again will not help.
    if isinstance(error, BadRequest | Forbidden) or _TOO_LARGE.search(message):
        return SendRefused(message)
    # A rejected token or a second poller is the operator's to mend; the message waits for that.
    return SendTransient(message)
