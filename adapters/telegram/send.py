"""Sending: one `Outbound` → one or more messages, and Telegram's errors → ours."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections import OrderedDict
from dataclasses import dataclass

import structlog
from telegram import InputFile
from telegram.error import BadRequest, ChatMigrated, Forbidden, RetryAfter, TelegramError

from adapters.telegram.api import READ_TIMEOUT, Json, LeanBot, reason
from adapters.telegram.inbound import GENERAL_TOPIC
from adapters.telegram.pace import Allowance
from adapters.telegram.parcels import Parcel, keyboard, parcels
from bot.channel import Address, Outbound
from bot.errors import ChannelError, ChatMoved, SendLater, SendRefused, SendTransient

REMEMBERED = 1024  # half-sent messages to know the place in
UPLOAD_TIMEOUT = 90.0  # seconds until Telegram has a file and says so

# What Telegram says about a part of a message that is not needed; a photo goes out as a file then.
_CAUSES = (
    ("parse_mode", ("can't parse entities", "too long")),
    ("reply_parameters", ("replied not found", "reply message not found")),
    ("message_thread_id", ("thread not found",)),
    ("reply_markup", ("button_", "reply markup", "keyboard")),
    ("photo", ("photo_", "image_process_failed", "too big for a photo")),
)
_TOO_LARGE = re.compile(r"entity too large|\(413\)", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w.()+-]+")  # in the name of a file

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Standing:
    """What shows of an unfinished reply in a group: a message, and the one it answers."""

    message: int
    answers: str = ""


@dataclass(slots=True)
class _Progress:
    """How much of an outbound is out: messages, the first one's id, and what it may replace."""

    done: int = 0
    first: str = ""
    standing: Standing | None = None


class Sender:
    """Sends the messages of one account."""

    def __init__(self, bot: LeanBot, allowance: Allowance) -> None:
        self._bot = bot
        self._allowance = allowance
        # What is half sent, so a retry goes on from there.
        self._progress: OrderedDict[str, _Progress] = OrderedDict()

    def knows(self, outbound_id: str) -> bool:
        """Whether a part of this is out."""
        return outbound_id in self._progress

    async def send(self, outbound: Outbound, standing: Standing | None = None) -> str:
        """Send one piece of text and what comes with it; the id of its first message.

        Args:
            outbound: what to send.
            standing: what showed of it while it was being written, for it to replace.

        Raises:
            SendLater: Telegram asks to wait, or the group has had its messages of this minute.
            SendTransient: Telegram cannot be reached, or failed.
            SendRefused: Telegram will not deliver this.
            ChatMoved: the chat has another id now.
        """
        parts = parcels(outbound)
        if not parts:
            raise SendRefused("there is nothing to show in this message")
        progress = self._progress.pop(outbound.id, None) or _Progress(standing=standing)
        chat = outbound.address.chat
        while progress.done < len(parts):
            index = progress.done
            frame = _frame(outbound, answer=index == 0, buttons=index + 1 == len(parts))
            wait = self._allowance.wait(chat)
            if wait > 0:
                self._remember(outbound.id, progress)
                raise SendLater(wait)
            self._allowance.spend(chat)
            try:
                sent = await self._place(frame, parts[index], outbound, progress)
            except TelegramError as error:
                self._remember(outbound.id, progress)
                raise failure(error, self._bot.token) from None
            progress.first = progress.first or sent
            progress.done += 1
        return progress.first

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

    async def _place(
        self, frame: Json, parcel: Parcel, outbound: Outbound, progress: _Progress
    ) -> str:
        """Send one message, in the place of an unfinished one if there is one."""
        standing = progress.standing
        if standing is None:
            return await self._message(frame, parcel)
        fits = outbound.reply_to.partition(":")[0] in {"", standing.answers}
        if parcel.file is None and fits:
            with contextlib.suppress(BadRequest):  # it is gone, or too old: send a new one
                await self._finish(frame, parcel, standing)
                progress.standing = None
                return str(standing.message)
        progress.standing = None
        where: Json = {"chat_id": frame["chat_id"], "message_id": standing.message}
        with contextlib.suppress(BadRequest):
            await self._bot.call("deleteMessage", where)
        return await self._message(frame, parcel)

    async def _finish(self, frame: Json, parcel: Parcel, standing: Standing) -> None:
        """Turn an unfinished message into what it was to become.

        Raises:
            TelegramError: that cannot be done.
        """
        parameters: Json = {"chat_id": frame["chat_id"], "message_id": standing.message}
        if "reply_markup" in frame:
            parameters["reply_markup"] = frame["reply_markup"]
        try:
            await self._message(parameters, parcel, edit=True)
        except BadRequest as error:
            if "not modified" not in error.message.lower():
                raise

    async def _message(self, parameters: Json, parcel: Parcel, *, edit: bool = False) -> str:
        """Send one message, with less of the trimmings each time Telegram objects to one."""
        method = _fill(parameters, parcel)
        if edit:
            method = "editMessageText"
        timeout = READ_TIMEOUT if parcel.file is None else UPLOAD_TIMEOUT
        while True:
            try:
                result = await self._bot.call(method, parameters, read_timeout=timeout)
            except BadRequest as error:
                dropped = _objection(error.message.lower(), parameters)
                if not dropped:
                    raise
                _log.warning("telegram.send.simplified", without=dropped)
                taken = parameters.pop(dropped)
                if dropped == "parse_mode" and parcel.words is not None:
                    parameters["text" if "text" in parameters else "caption"] = parcel.words.plain
                elif dropped == "photo":
                    method, parameters["document"] = "sendDocument", taken
            else:
                return str(result["message_id"])

    def _remember(self, outbound_id: str, progress: _Progress) -> None:
        if not progress.done and progress.standing is None:
            return
        self._progress[outbound_id] = progress
        if len(self._progress) > REMEMBERED:
            self._progress.popitem(last=False)


def chat_id(chat: str) -> int | str:
    """A chat's id as the Bot API wants it: a number, or the @name of a public chat."""
    return int(chat) if chat.removeprefix("-").isdecimal() else chat


def place(address: Address) -> Json:
    """Where a message goes. A forum's general topic is the one that is not named."""
    parameters: Json = {"chat_id": chat_id(address.chat)}
    is_general = address.thread == GENERAL_TOPIC and address.chat.startswith("-")
    if address.thread.isdecimal() and not is_general:
        parameters["message_thread_id"] = int(address.thread)
    return parameters


def _frame(outbound: Outbound, *, answer: bool, buttons: bool) -> Json:
    """What a message has beside what it shows."""
    parameters = place(outbound.address)
    answered = outbound.reply_to.partition(":")[0] if answer else ""
    if answered.isdecimal():
        parameters["reply_parameters"] = {
            "message_id": int(answered),
            "allow_sending_without_reply": True,
        }
    markup = keyboard(outbound.buttons) if buttons and outbound.buttons else None
    if markup is not None:
        parameters["reply_markup"] = markup
    return parameters


def _fill(parameters: Json, parcel: Parcel) -> str:
    """Put in what the message shows; the method that sends it."""
    if parcel.words is not None:
        parameters["text" if parcel.file is None else "caption"] = parcel.words.html
        parameters["parse_mode"] = "HTML"
    if parcel.file is None:
        parameters["link_preview_options"] = {"is_disabled": True}
        return "sendMessage"
    upload = InputFile(parcel.file.data, filename=_UNSAFE.sub("_", parcel.file.name)[-64:])
    upload.mimetype = parcel.file.mime or upload.mimetype
    if parcel.is_photo:
        parameters["photo"] = upload
        return "sendPhoto"
    parameters["document"] = upload
    return "sendDocument"


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
