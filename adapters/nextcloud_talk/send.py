"""Sending: one `Piece` → one message, and Talk's answers → the errors of the contract."""

from __future__ import annotations

import hashlib
import re
from typing import cast

import structlog
from cachetools import LRUCache

from adapters.nextcloud_talk.api import PAGE, TalkApi, data_of, retry_after
from adapters.nextcloud_talk.files import Files
from adapters.nextcloud_talk.inbound import room_token
from bot.channel import Address, Outbound, Piece
from bot.channel.kit import client
from bot.channel.kit.client import Answer, Unreachable
from bot.channel.kit.json_access import Json, is_blank, mapping, storable
from bot.channel.kit.text import numbered, seen, split
from bot.errors import ChannelError, SendRefused, SendUnreachable

LIMIT = 32_000  # characters of one message
REMEMBERED = 1024  # reactions, to know what to take away, and sends nobody knows the end of
_SILENT = frozenset({"notice", "receipt"})
_TOKEN = re.compile(r"[A-Za-z0-9]{1,64}")
# "@all" and "@"group/…"" would call everybody, whoever made the model say it. Talk sees a mention
# only at the beginning of a word, and takes letters, digits and these signs for parts of a name.
_CALLS_EVERYBODY = re.compile(
    r"""(?<![^\s@.'-])@(?=all(?![A-Za-z0-9_]|[@.'-]+[A-Za-z0-9_])|"all"|"(?:federated_)?(?:group|team)/)""",
    re.IGNORECASE,
)

NOT_ACCEPTED = (
    "Nextcloud does not accept what this bot says (401). Most often the feature response is "
    "missing: occ talk:bot:state --feature webhook --feature response NUMBER 1 sets it, with the "
    "bot's number from occ talk:bot:list. Otherwise the secrets differ, or the bot is not switched "
    "on in that conversation."
)

_log = structlog.get_logger()


class NotAccepted(SendUnreachable):
    """Nextcloud does not accept what this bot says."""


class Sender:
    """Sends the messages of one bot."""

    def __init__(self, account: str, api: TalkApi, files: Files) -> None:
        self._account = account
        self._api = api
        self._files = files
        self._reactions: LRUCache[tuple[str, str], str] = LRUCache(REMEMBERED)
        self._unsure: LRUCache[str, None] = LRUCache(REMEMBERED)
        # What was said, by room and words, with its reference id: reactions tell only these.
        self.said: LRUCache[tuple[str, str], str] = LRUCache(REMEMBERED)

    async def send(self, piece: Piece) -> str:
        """Send one message, or show one file.

        Returns:
            A reference id that Talk keeps with the message: it tells bots no message id.

        Raises:
            SendLater: Talk asks to wait.
            SendTransient: the server cannot be reached, or failed.
            NotAccepted: the signature does not count there.
            SendRefused: Talk will not take this.
        """
        room = room_token(piece.address.chat)
        if not _TOKEN.fullmatch(room):
            raise SendRefused("this is no conversation of Nextcloud Talk")
        reference = reference_id(piece.id)
        if piece.attachments:
            await self._files.share(room, piece.attachments[0], reference)
        elif reference not in self._unsure or not await self._arrived(room, reference):
            await self._say(room, body_of(piece))
        self.said[room, piece.text.strip()] = reference
        return reference

    async def _say(self, room: str, message: Json) -> None:
        answer = await self._post(room, message)
        if answer.status == 400 and "replyTo" in message:
            # What it answers was deleted meanwhile.
            _log.warning("nextcloud_talk.send.simplified", without="replyTo")
            del message["replyTo"]
            answer = await self._post(room, message)
        if answer.status not in {200, 201}:
            raise failure(answer)
        self._unsure.pop(str(message["referenceId"]), None)

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a reaction below a message, or take ours away."""
        room = room_token(address.chat)
        if not _TOKEN.fullmatch(room) or not message_id.isdecimal():
            return
        before, emoji = self._reactions.pop((room, message_id), ""), storable(emoji)
        shown = emoji or before
        if not shown:
            return
        answer = await self._api.react(room, message_id, shown, add=bool(emoji))
        if answer.status not in {200, 201}:
            raise failure(answer)
        if emoji:
            self._reactions[room, message_id] = emoji

    async def _arrived(self, room: str, reference: str) -> bool:
        """True if a try that seemed to fail did arrive, as far as the API user can tell."""
        if not self._api.has_login:
            return False
        answer = await self._api.chat(room, PAGE, None)
        said = cast("list[object]", data_of(answer)) if isinstance(data_of(answer), list) else []
        found = any(mapping(each).get("referenceId") == reference for each in said)
        if found:
            _log.info("nextcloud_talk.send.had_arrived", account=self._account)
            self._unsure.pop(reference, None)
        return found

    async def _post(self, room: str, message: Json) -> Answer:
        try:
            return await self._api.send(room, message)
        except Unreachable as error:
            if error.sent:
                self._unsure[str(message["referenceId"])] = None
            raise


def messages(outbound: Outbound) -> list[Piece]:
    """The messages a text and its files become: each file is one of its own.

    Raises:
        SendRefused: there is nothing to show.
    """
    chunks = (chunk for chunk in split(outbound.text, LIMIT) if not is_blank(chunk))
    words = [Piece(outbound, harmless(chunk)) for chunk in chunks]
    files = [Piece(outbound, "", attachments=(file,)) for file in outbound.attachments]
    return numbered([*words, *files])


def harmless(markdown: str) -> str:
    """A text of which something shows, and that calls nobody."""
    return _CALLS_EVERYBODY.sub("＠", storable(seen(markdown)))


def body_of(piece: Piece) -> Json:
    """The body of the request that posts one message."""
    message: Json = {
        "message": piece.text,
        "referenceId": reference_id(piece.id),
        "silent": piece.kind in _SILENT,
    }
    if piece.reply_to.isascii() and piece.reply_to.isdecimal():
        message["replyTo"] = int(piece.reply_to)
    if piece.address.thread.isascii() and piece.address.thread.isdecimal():
        message["threadId"] = int(piece.address.thread)
    return message


def reference_id(outbound_id: str) -> str:
    """The reference that Talk keeps with a message, the same for each try of a piece."""
    return hashlib.sha256(outbound_id.encode("utf-8", "surrogatepass")).hexdigest()


def failure(answer: Answer) -> ChannelError:
    """The error of the contract that an answer stands for."""
    if answer.status == 401:
        return NotAccepted(NOT_ACCEPTED)
    reasons = {
        400: "Nextcloud says that there is nothing to show in this message, or no such thread",
        404: "this conversation does not exist any more",
        413: "this message is too long for this Nextcloud",
    }
    if answer.status in reasons:
        kind = SendUnreachable if answer.status == 404 else SendRefused
        return kind(reasons[answer.status])
    return client.failure("Nextcloud", answer.status, retry_after(answer))
