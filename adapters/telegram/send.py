"""Sending: one `Piece` → one message, and replies while they are being written.

In a direct chat Telegram has a place for an unfinished reply (sendMessageDraft), which the reply's
own message replaces. In groups it is one message that is edited until it is the reply. Which one
that is is kept on disk, once for each, so that the reply finds it after a restart too.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from hashlib import blake2b
from typing import Any

import structlog
from cachetools import LRUCache
from telegram.error import InvalidToken, TelegramError

from adapters.telegram.api import READ_TIMEOUT, Json, LeanBot, failure
from adapters.telegram.inbound import CHANNEL
from adapters.telegram.message import chat_id, objection, place_of, request_of
from adapters.telegram.render import LIMIT, formatted
from bot.channel import Address, Inbound, Piece
from bot.channel.kit.drafts import Draft, MessageDrafts, MessageGone
from bot.channel.kit.json_access import integer, mapping
from bot.channel.kit.supervisor import Supervisor
from bot.channel.kit.text import written_in
from bot.errors import ChannelError, SendLater, SendRefused, StorageError

UPLOAD_TIMEOUT = 90.0  # seconds until Telegram has a file and says so
MOST_A_MINUTE = 20  # messages in one group; Telegram refuses more
MOST_OF_ONE = 10  # of these, for one person: the others' answers do not wait for theirs
MINUTE = 60.0  # seconds
REMEMBERED = 1024  # groups that were written to a moment ago
MARK = " ▍"  # ends a reply in a group that is being written
SPARE = 8  # of a group's messages a minute, kept for what is finished
KEPT_FOR = 24 * 3600  # seconds; a reply that was not finished for so long never will be

_KEPT = "draft "  # what the names of kept drafts begin with; one for each place
_TOPIC_GONE = {
    "en": "This was meant for a topic that no longer exists.",
    "zh": "这条消息原本要发到的话题已经不存在了。",
}
_NEW_ONLY = ("reply_parameters", "message_thread_id")  # what an edit cannot have

_log = structlog.get_logger()


class Allowance:
    """A pace for writing to groups at which Telegram never has to refuse."""

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


class Sender(MessageDrafts):
    """Sends the messages of one account, each in the place of what showed of it before."""

    def __init__(self, bot: LeanBot, supervisor: Supervisor, first: float, every: float) -> None:
        super().__init__(supervisor, first, every)
        self._bot = bot
        self._account, self._engine = supervisor.account, supervisor.engine
        self._allowance = Allowance()
        self._has_own_place = True  # until Telegram's server says it knows no drafts

    async def call(self, method: str, parameters: Json) -> Any:
        """Call a method of the Bot API, unless the account stops.

        Raises:
            ChannelError: it was not done.
            Stopped: the account stops.
        """
        return await self._supervisor.unless_stopped(self._bot.told(method, parameters))

    # --- whole messages --------------------------------------------------------------------------

    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`.

        Raises:
            SendLater: Telegram asks to wait, or the group has had its messages of this minute.
        """
        chat, asker = piece.address.chat, piece.whole.asker
        method, parameters = request_of(piece)

        async def edit(message: str) -> str:
            return await self._edit(message, parameters, piece)

        async def send() -> str:
            return await self._post(method, parameters, piece)

        def fits(draft: Draft[Address]) -> bool:
            answers = piece.reply_to.partition(":")[0]
            return not piece.attachments and answers in {"", draft.answers}

        wait, own = self._allowance.wait(chat), self._allowance.wait_of(chat, asker)
        if max(wait, own) > 0:
            raise SendLater(max(wait, own), is_own=own > 0)
        self._allowance.spend(chat, asker)
        return await self.finish(piece, edit, send, fits)

    async def _edit(self, message: str, parameters: Json, piece: Piece) -> str:
        """Turn an unfinished message into what it was to become."""
        edit = {name: value for name, value in parameters.items() if name not in _NEW_ONLY}
        try:
            await self._post("editMessageText", edit | {"message_id": int(message)}, piece)
        except SendRefused as error:
            if "not modified" not in str(error).lower():
                with contextlib.suppress(ChannelError):  # it is gone, or too old
                    await self.delete(piece.address, message)
                raise MessageGone from None
        return message

    async def _post(self, method: str, parameters: Json, piece: Piece) -> str:
        """Send one message, with less of the trimmings each time Telegram objects to one."""
        timeout = UPLOAD_TIMEOUT if piece.attachments else READ_TIMEOUT
        has_topic = "message_thread_id" in parameters
        while True:
            try:
                result = await self._bot.told(method, parameters, read_timeout=timeout)
            except SendRefused as error:
                dropped = objection(str(error).lower(), parameters)
                if not dropped:
                    raise
                _log.warning("telegram.send.simplified", without=dropped, error=str(error))
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
            await self._bot.told("sendMessage", said | {"chat_id": chat_id(piece.address.chat)})
        except ChannelError as error:
            _log.warning("telegram.topic.unexplained", error=str(error))

    # --- unfinished replies ----------------------------------------------------------------------

    def hear(self, inbound: Inbound) -> None:
        """Know which message the next reply in a group answers."""
        if inbound.mentions_bot and inbound.message_id.isdecimal():
            self.asked[inbound.address] = inbound.message_id

    async def recall(self) -> None:
        """Know what an earlier run of the program left unfinished."""
        oldest = time.time() - KEPT_FOR
        try:
            kept = await self._engine.kept(CHANNEL, self._account)
            for name in (name for name in kept if name.startswith(_KEPT)):
                draft, at = self._read(kept[name])
                if at < oldest:
                    await self._engine.keep(CHANNEL, self._account, name, "")
                else:
                    self.leave(draft)
        except StorageError as error:
            said = type(error).__name__
            _log.error("telegram.drafts.unread", account=self._account, error=said)

    def _read(self, kept: str) -> tuple[Draft[Address], float]:
        """A draft that was kept, and when; what cannot be read is as old as can be."""
        try:
            chat, thread, draft_id, message, answers, at = json.loads(kept)
            place = Address(CHANNEL, self._account, str(chat), str(thread))
            return Draft(place, str(draft_id), str(answers), str(message)), float(at)
        except (ValueError, TypeError) as error:
            said = type(error).__name__
            _log.error("telegram.draft.unreadable", account=self._account, error=said)
            return Draft(Address(CHANNEL, self._account, "", ""), "", "", ""), 0.0

    async def delete(self, place: Address, message: str) -> None:
        """Delete a message; see `MessageDrafts.delete`."""
        where: Json = {"chat_id": chat_id(place.chat), "message_id": int(message)}
        await self.call("deleteMessage", where)

    def held(self, draft: Draft[Address]) -> float:
        """A group's few messages a minute are for what is finished."""
        return self._allowance.wait(draft.place.chat, SPARE)

    async def write(self, draft: Draft[Address]) -> None:
        """Show a draft; see `MessageDrafts.write`."""
        shown = formatted(draft.text, LIMIT - len(MARK))
        is_private = not draft.place.chat.startswith("-")
        if not shown or (is_private and not self._has_own_place):
            return
        words: Json = {"text": shown[0].text, "entities": shown[0].entities}
        parameters = place_of(draft.place) | words
        if is_private:
            parameters["draft_id"] = _number(draft.id)
            await self._supervisor.unless_stopped(self._put_in_place(parameters))
            return
        parameters["text"] += MARK
        parameters["link_preview_options"] = {"is_disabled": True}
        self._allowance.spend(draft.place.chat)
        if draft.message:
            parameters.pop("message_thread_id", None)
            parameters["message_id"] = int(draft.message)
            try:
                await self.call("editMessageText", parameters)
            except SendRefused as error:
                if "not modified" not in str(error).lower():
                    raise
            return
        draft.is_dead = True  # what may have been sent must not be sent once more
        sent = await self.call("sendMessage", parameters | place_of(draft.place, draft.answers))
        number = integer(mapping(sent), "message_id")
        draft.message, draft.is_dead = str(number) if number else "", False
        await self._keep(draft)

    async def _put_in_place(self, parameters: Json) -> None:
        """Show a draft where Telegram has a place for it, unless its server knows none."""
        try:
            await self._bot.call("sendMessageDraft", parameters)
        except InvalidToken as error:
            if "not found" not in error.message.lower():
                raise failure(error, self._bot.token) from None
            self._has_own_place = False  # so the SDK reads "there is no such method"
        except TelegramError as error:
            raise failure(error, self._bot.token) from None

    async def _keep(self, draft: Draft[Address]) -> None:
        """Note which message a draft is; the next one in its place overwrites that.

        Nothing is noted when it is finished: nobody else will ever ask for it by its id.
        """
        chat, thread, message = draft.place.chat, draft.place.thread, int(draft.message or 0)
        text = json.dumps([chat, thread, draft.id, message, draft.answers, int(time.time())])
        try:
            await self._engine.keep(CHANNEL, self._account, f"{_KEPT}{chat} {thread}", text)
        except StorageError as error:
            _log.info("telegram.draft.unkept", account=self._account, error=type(error).__name__)


def _number(draft_id: str) -> int:
    """A draft's id as Telegram takes it: a number other than 0."""
    digest = blake2b(draft_id.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return 1 + (int.from_bytes(digest, "big") >> 1) % (2**31 - 2)
