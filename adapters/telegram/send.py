"""Sending: one `Outbound` → one or more messages, and Telegram's errors → ours."""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict

import structlog
from telegram.error import BadRequest, ChatMigrated, Forbidden, RetryAfter, TelegramError

from adapters.telegram.api import Json, LeanBot, reason
from adapters.telegram.markup import Piece, pieces
from bot.channel import Outbound
from bot.errors import ChannelError, ChatMoved, SendLater, SendRefused, SendTransient

REMEMBERED = 1024  # half-sent messages to know the place in

_log = structlog.get_logger()


class Sender:
    """Sends the messages of one account."""

    def __init__(self, bot: LeanBot) -> None:
        self._bot = bot
        # How much of a message that takes several is out, so a retry goes on from there.
        self._progress: OrderedDict[str, tuple[int, str]] = OrderedDict()

    async def send(self, outbound: Outbound) -> str:
        """Send one piece of text; the id of its first message.

        Raises:
            SendLater: Telegram asks to wait.
            SendTransient: Telegram cannot be reached, or failed.
            SendRefused: Telegram will not deliver this.
            ChatMoved: the chat has another id now.
        """
        parts = pieces(outbound.text)
        if not parts:
            raise SendRefused("there is nothing to show in this message")
        done, first = self._progress.pop(outbound.id, (0, ""))
        for index in range(done, len(parts)):
            try:
                sent = await self._message(outbound, parts[index], answer=index == 0)
            except TelegramError as error:
                if index:
                    self._remember(outbound.id, index, first)
                raise failure(error, self._bot.token) from None
            first = first or sent
        return first

    async def typing(self, chat: str, thread: str) -> None:
        """Show "typing…" in a chat.

        Raises:
            TelegramError: it could not be shown.
        """
        parameters: Json = {"chat_id": chat_id(chat), "action": "typing"}
        if thread.isdecimal():
            parameters["message_thread_id"] = int(thread)
        await self._bot.call("sendChatAction", parameters)

    async def _message(self, outbound: Outbound, piece: Piece, *, answer: bool) -> str:
        """Send one message, with less of the trimmings each time Telegram objects to one."""
        parameters: Json = {
            "chat_id": chat_id(outbound.address.chat),
            "text": piece.html,
            "parse_mode": "HTML",
            "link_preview_options": {"is_disabled": True},
        }
        if outbound.address.thread.isdecimal():
            parameters["message_thread_id"] = int(outbound.address.thread)
        answered = outbound.reply_to.partition(":")[0] if answer else ""
        if answered.isdecimal():
            parameters["reply_parameters"] = {
                "message_id": int(answered),
                "allow_sending_without_reply": True,
            }
        while True:
            try:
                result = await self._bot.call("sendMessage", parameters)
            except BadRequest as error:
                dropped = _objection(error.message.lower(), parameters)
                if not dropped:
                    raise
                _log.warning("telegram.send.simplified", without=dropped)
                del parameters[dropped]
                if dropped == "parse_mode":
                    parameters["text"] = piece.plain
            else:
                return str(result["message_id"])

    def _remember(self, outbound_id: str, index: int, first: str) -> None:
        self._progress[outbound_id] = (index, first)
        if len(self._progress) > REMEMBERED:
            self._progress.popitem(last=False)


def chat_id(chat: str) -> int | str:
    """A chat's id as the Bot API wants it: a number, or the @name of a public chat."""
    return int(chat) if chat.removeprefix("-").isdecimal() else chat


def _objection(complaint: str, parameters: Json) -> str:
    """The parameter Telegram objects to and a message can do without, or empty."""
    causes = (
        ("parse_mode", ("can't parse entities", "too long")),
        ("reply_parameters", ("replied not found", "reply message not found")),
        ("message_thread_id", ("thread not found",)),
    )
    for name, signs in causes:
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
    # BadRequest is a NetworkError to the SDK, but asking again will not help.
    if isinstance(error, BadRequest | Forbidden):
        return SendRefused(message)
    # A rejected token or a second poller is the operator's to mend; the message waits for that.
    return SendTransient(message)
