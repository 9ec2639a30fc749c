"""Sending: one `Piece` → one message, and Telegram's errors → ours."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import quote

import aiohttp
import structlog
from cachetools import LRUCache, TTLCache
from telegram import InputFile
from telegram.error import BadRequest, ChatMigrated, Forbidden, RetryAfter, TelegramError

from adapters.telegram.api import READ_TIMEOUT, AiohttpRequest, Json, LeanBot, reason
from adapters.telegram.inbound import GENERAL_TOPIC, pressable
from bot.channel import Address, Attachment, Button, Media, Piece
from bot.channel.kit.client import download
from bot.channel.kit.drafts import Draft, Drafts
from bot.channel.kit.json_access import integer, mapping, text
from bot.channel.kit.text import width, written_in
from bot.errors import (
    ChannelError,
    ChatMoved,
    SendLater,
    SendRefused,
    SendTransient,
    SendUnreachable,
)

UPLOAD_TIMEOUT = 90.0  # seconds until Telegram has a file and says so
MAX_PHOTO = 10_000_000  # bytes of what Telegram shows as a picture
MAX_ROW = 40  # columns of labels side by side on a phone
MAX_BUTTONS = 100  # of one message
MOST_A_MINUTE = 20  # messages in one group; Telegram refuses more
MOST_OF_ONE = 10  # of these, for one person: the others' answers do not wait for theirs
MINUTE = 60.0  # seconds
REMEMBERED = 1024  # groups that were written to a moment ago

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
_TOPIC_GONE = {
    "en": "This was meant for a topic that no longer exists.",
    "zh": "这条消息原本要发到的话题已经不存在了。",
}
_NEW_ONLY = ("reply_parameters", "message_thread_id")  # what an edit cannot have
_TOO_LARGE = re.compile(r"entity too large|\(413\)", re.IGNORECASE)
_UNSAFE = re.compile(r"[^\w.()+-]+")  # in the name of a file

_log = structlog.get_logger()


class Allowance:
    """How often groups may be written to, so that Telegram never has to refuse."""

    def __init__(self, most: int = MOST_A_MINUTE, period: float = MINUTE) -> None:
        self._most = most
        self._period = period
        self._spent: LRUCache[str, deque[tuple[float, str]]] = LRUCache(REMEMBERED)

    def wait(self, chat: str, spare: int = 0) -> float:
        """Seconds until this chat may be written to, with `spare` messages left after that."""
        spent = self._spent.get(chat)
        if spent is None:
            return 0.0
        now = time.monotonic()
        while spent and now - spent[0][0] >= self._period:
            spent.popleft()
        over = len(spent) + spare + 1 - self._most
        return max(0.0, spent[over - 1][0] + self._period - now) if over > 0 else 0.0

    def wait_of(self, chat: str, asker: str) -> float:
        """Seconds until this chat may be written to for somebody who has had their share there."""
        theirs = [at for at, whose in self._spent.get(chat, ()) if whose == asker] if asker else []
        if len(theirs) < MOST_OF_ONE:
            return 0.0
        return max(0.0, theirs[-MOST_OF_ONE] + self._period - time.monotonic())

    def spend(self, chat: str, asker: str = "") -> None:
        """Note that something was written there; direct chats have no such limit."""
        if not chat.startswith("-"):
            return
        spent = self._spent.setdefault(chat, deque(maxlen=self._most))
        spent.append((time.monotonic(), asker))


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
        wait, own = self._allowance.wait(chat), self._allowance.wait_of(chat, piece.whole.asker)
        if max(wait, own) > 0:
            self._drafts.leave(draft)
            raise SendLater(max(wait, own), is_own=own > 0)
        self._allowance.spend(chat, piece.whole.asker)
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
        has_topic = "message_thread_id" in parameters
        while True:
            try:
                result = await self._bot.call(method, parameters, read_timeout=timeout)
            except BadRequest as error:
                dropped = _objection(error.message.lower(), parameters)
                if not dropped:
                    raise
                said = reason(error, self._bot.token)
                _log.warning("telegram.send.simplified", without=dropped, error=said)
                taken = parameters.pop(dropped)
                if dropped == "photo":
                    method, parameters["document"] = "sendDocument", taken
            else:
                if "reply_parameters" in parameters and "reply_to_message" not in result:
                    _log.info("telegram.reply.gone", chat=piece.address.chat)
                is_topic_gone = has_topic and "message_thread_id" not in parameters
                if is_topic_gone and piece.index + 1 == piece.count:
                    await self._explain(piece)
                return str(result["message_id"])

    async def _explain(self, piece: Piece) -> None:
        """Say below a text why it is not in its topic."""
        said: Json = {"text": _TOPIC_GONE[written_in(piece.whole.text)]}
        self._allowance.spend(piece.address.chat)
        try:
            await self._bot.call("sendMessage", said | {"chat_id": chat_id(piece.address.chat)})
        except TelegramError as error:
            _log.warning("telegram.topic.unexplained", error=reason(error, self._bot.token))


def chat_id(chat: str) -> int | str:
    """A chat's id as the Bot API wants it: a number, or the @name of a public chat."""
    return int(chat) if chat.removeprefix("-").isdecimal() else chat


def place_of(address: Address, answered: str = "") -> Json:
    """Where a message goes, and the id of the one it answers.

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


_AWAY = re.compile("chat not found|not enough rights|CHAT_WRITE_FORBIDDEN", re.IGNORECASE)


def failure(error: TelegramError, token: str = "") -> ChannelError:
    """The error of the contract that an SDK error stands for; its message has no token."""
    if isinstance(error, RetryAfter):
        wait = error.retry_after
        return SendLater(wait.total_seconds() if isinstance(wait, dt.timedelta) else float(wait))
    if isinstance(error, ChatMigrated):
        return ChatMoved(str(error.new_chat_id))
    message = f"Telegram: {reason(error, token)}"
    # BadRequest is a NetworkError to the SDK, as is 413, but asking again will not help.
    if isinstance(error, Forbidden) or _AWAY.search(message):  # blocked, taken out, never begun
        return SendUnreachable(message)
    if isinstance(error, BadRequest) or _TOO_LARGE.search(message):
        return SendRefused(message)
    # A rejected token or a second poller is the operator's to mend; the message waits for that.
    return SendTransient(message)


# Fetching what came with a message: never more than was asked for.

MAX_DOWNLOAD = 20_000_000  # bytes; Telegram's limit for bots
TIMEOUT = 60.0  # seconds for one file


class Fetcher:
    """Fetches the files of one account."""

    def __init__(self, bot: LeanBot, api_root: str, session: aiohttp.ClientSession) -> None:
        self._bot = bot
        self._root = api_root.rstrip("/")
        self._request = AiohttpRequest(session)

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file, if they are no more than `most`.

        Raises:
            SendLater, SendTransient: it may work later.
            SendRefused: it never will.
        """
        most = min(most, MAX_DOWNLOAD)
        if not media.ref:
            raise SendRefused("this file has no handle")
        if media.size > most:
            raise SendRefused("this file is too large")
        try:
            found = mapping(await self._bot.call("getFile", {"file_id": media.ref}))
        except TelegramError as error:
            raise failure(error, self._bot.token) from None
        path = text(found, "file_path")
        if not path or path.startswith("/") or ".." in path.split("/"):
            # A server of one's own that runs with --local names a file on its own disk.
            raise SendRefused("Telegram does not say where this file is")
        if (integer(found, "file_size") or 0) > most:
            raise SendRefused("this file is too large")
        url = f"{self._root}/file/bot{self._bot.token}/{quote(path)}"
        return await download(self._request.get(url, TIMEOUT), most, "Telegram")


# Who looks after a group, as Telegram tells; asked rarely.

KEPT = 300.0  # seconds an answer counts
MEMBERS_REMEMBERED = 4096  # answers


class Members:
    """The admins of one account's groups.

    Args:
        call: calls a method of the Bot API.
    """

    def __init__(self, account: str, call: Callable[[str, Json], Awaitable[Any]]) -> None:
        self._account = account
        self._call = call
        self._known: TTLCache[tuple[str, str], bool] = TTLCache(
            MEMBERS_REMEMBERED, KEPT, timer=time.monotonic
        )

    async def is_admin(self, address: Address, sender: str) -> bool:
        """Whether somebody is an admin of a chat; False when Telegram does not say."""
        if sender == address.chat:
            return True  # a direct chat is one's own, and only admins speak as their group
        if not address.chat.startswith("-") or not sender.isdecimal():
            return False
        key = address.chat, sender
        known = self._known.get(key)
        if known is not None:
            return known
        try:
            asked: Json = {"chat_id": chat_id(address.chat), "user_id": int(sender)}
            member = mapping(await self._call("getChatMember", asked))
        except TelegramError as error:
            said = reason(error, "")
            _log.info("telegram.admins.unknown", account=self._account, error=said)
            return False
        answer = text(member, "status") in {"creator", "administrator"}
        self._known[key] = answer
        return answer
