"""Sending: one `Piece` → one message, and replies while they are being written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import structlog
from cachetools import LRUCache
from yarl import URL

from adapters.discord import PUBLIC_API
from adapters.discord.api import (
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    Answered,
    Rest,
    identity,
    number_in,
)
from adapters.discord.interactions import (
    EPHEMERAL,
    PendingInteractions,
    Waiting,
    private_to,
)
from adapters.discord.places import Places
from adapters.discord.render import nonce, reference, rows, shortened
from bot.channel import Address, Attachment, Media, Piece
from bot.channel.kit.client import download
from bot.channel.kit.drafts import Draft, MessageDrafts, MessageGone
from bot.channel.kit.json_access import Json, mapping
from bot.channel.kit.supervisor import Supervisor
from bot.channel.kit.text import file_name, written_in
from bot.errors import SendRefused, SendTransient

REMEMBERED = 1024  # direct chats, texts sent there, and reactions
QUIET: Json = {"parse": [], "replied_user": False}  # nobody is ever notified by a mention
NO_PREVIEWS: Final = 1 << 2
MESSAGES: Final = "/channels/{channel_id}/messages"
MESSAGE: Final = f"{MESSAGES}/{{message_id}}"

# An interaction's token is over, or its message is gone: a message does it too.
_TOKEN_OVER = frozenset({10008, 10015, 10062, 50027})

# The first line in a direct chat of an answer that was asked for in a room.
_WHY_HERE = {
    "en": "-# You asked in <#{room}>. It can no longer be shown to you alone there, so it is here.",
    "zh": "-# 这是你在 <#{room}> 里要的。那里已不能只给你一个人看，所以发在这里。",
}

_log = structlog.get_logger()


class Sender(MessageDrafts):
    """Sends the messages of one account: finished ones, and one while it is being written."""

    def __init__(
        self,
        supervisor: Supervisor,
        rest: Rest,
        pending: PendingInteractions,
        places: Places,
        *,
        pace: tuple[float, float],
    ) -> None:
        super().__init__(supervisor, *pace)
        self._rest = rest
        self._places = places
        self._pending = pending
        self._direct: LRUCache[str, str] = LRUCache(REMEMBERED)  # direct chats, by person
        self._signs: LRUCache[tuple[str, str], str] = LRUCache(REMEMBERED)  # to take them away
        self._explained: LRUCache[str, None] = LRUCache(REMEMBERED)  # texts said to be private

    async def write(self, draft: Draft[Address]) -> None:
        """Show a draft; see `MessageDrafts.write`."""
        body, chat = _content(shortened(draft.text)), draft.place.chat
        if draft.message:
            await self._rest.call("PATCH", MESSAGE, body, channel_id=chat, message_id=draft.message)
            return
        # The same number gives the same message, should the answer to the first try get lost.
        body |= {"nonce": nonce(f"draft {draft.id} {draft.serial}"), "enforce_nonce": True}
        body |= reference(draft.answers)
        sent = await self._rest.call("POST", MESSAGES, body, channel_id=chat)
        draft.message = identity(mapping(sent), "id")

    async def delete(self, place: Address, message: str) -> None:
        """Delete a message; see `MessageDrafts.delete`."""
        await self._rest.call("DELETE", MESSAGE, channel_id=place.chat, message_id=message)

    async def react(self, chat: str, message: str, emoji: str) -> None:
        """Put a sign below a message, or take the last one away."""
        method, sign = ("PUT", emoji) if emoji else ("DELETE", self._signs.pop((chat, message), ""))
        if not sign:
            return
        path = f"{MESSAGE}/reactions/{{emoji}}/@me"
        await self._rest.call(method, path, channel_id=chat, message_id=message, emoji=sign)
        if emoji:
            self._signs[chat, message] = emoji

    async def send(self, piece: Piece) -> str:
        """Send one message; see `Channel.send`."""
        chat, files, body = piece.address.chat, piece.attachments, _content(piece.text)
        if files:
            names = enumerate(map(file_name, files))
            body["attachments"] = [{"id": number, "filename": name} for number, name in names]
        if piece.buttons:
            body["components"] = rows(piece.buttons)
        waiting = await self._pending.claim(piece, exact=self.holds(piece.address, piece.draft))
        if waiting is not None:
            try:
                return await self._answer(waiting, body, files)
            except Answered as error:
                if error.status != 401 and error.code not in _TOKEN_OVER:
                    raise
                self._pending.lost(waiting)
        person = self._person_of(piece, waiting)
        if person:
            return await self._alone(person, piece, body)
        answers = number_in(piece.reply_to) if piece.reply_to[:1].isdecimal() else ""
        place = self._places.place(chat)
        is_direct = place is not None and place.kind == "direct"

        async def edit(message: str) -> str:
            # What a reply has now replaces what the draft had.
            ids = {"channel_id": chat, "message_id": message}
            try:
                await self._try("PATCH", MESSAGE, {"components": [], **body}, files, ids)
            except Answered as error:
                if error.status != 404:
                    raise
                raise MessageGone from None
            return message

        return await self.finish(
            piece,
            edit,
            lambda: self._create(piece.id, chat, body, files, answers),
            # In a room it matters whom a reply answers; with two people it does not.
            lambda draft: answers in {"", draft.answers} or is_direct,
        )

    async def _create(
        self,
        name: str,
        chat: str,
        body: Json,
        files: tuple[Attachment, ...] = (),
        answers: str = "",
    ) -> str:
        """Send a message of its own; the same `name` gives the same one."""
        whole = body | {"nonce": nonce(name), "enforce_nonce": True} | reference(answers)
        sent = await self._try("POST", MESSAGES, whole, files, {"channel_id": chat})
        return identity(mapping(sent), "id") or "sent"

    async def _answer(self, waiting: Waiting, body: Json, files: tuple[Attachment, ...]) -> str:
        """Answer an interaction: in place of "thinking…" first, below it then."""
        interaction = waiting.interaction
        ids = {"webhook_id": interaction.application, "webhook_token": interaction.token}
        path = "/webhooks/{webhook_id}/{webhook_token}"
        if waiting.is_filled:
            flags = body["flags"] | (EPHEMERAL if interaction.is_private else 0)
            sent = await self._try("POST", path, body | {"flags": flags}, files, ids)
        else:
            edit = {key: value for key, value in body.items() if key != "flags"}
            sent = await self._try("PATCH", f"{path}/messages/@original", edit, files, ids)
            self._pending.filled(waiting)
        return identity(mapping(sent), "id") or f"interaction-{interaction.id}"

    def _person_of(self, piece: Piece, waiting: Waiting | None) -> str:
        """Whom a text is for alone where others could read it too, or empty."""
        place = self._places.place(piece.address.chat)
        if place is not None and place.kind == "direct":
            return ""
        person = private_to(piece.whole.reply_to)
        if not person and waiting is not None and waiting.interaction.is_private:
            person = waiting.interaction.person
        return person

    async def _alone(self, person: str, piece: Piece, body: Json) -> str:
        """Answer in a person's direct chat what can no longer be shown to them alone in a room.

        It never goes to the room, also when the person takes no direct messages.
        """
        chat = self._direct.get(person)
        if chat is None:
            opened = await self._rest.call("POST", "/users/@me/channels", {"recipient_id": person})
            chat = identity(mapping(opened), "id")
            if not chat:
                raise SendTransient("Discord: no direct chat")
            self._direct[person] = chat
        whole = piece.whole
        if chat != piece.address.chat and whole.id not in self._explained:
            words = _WHY_HERE[written_in(piece.text)]
            why = _content(words.format(room=piece.address.chat))
            await self._create(f"{whole.id} why", chat, why)
            self._explained[whole.id] = None
        # A button would be pressed in another conversation than the one it is about.
        body = {key: value for key, value in body.items() if key != "components"}
        return await self._create(piece.id, chat, body, piece.attachments)

    async def _try(
        self,
        method: str,
        path: str,
        body: Json,
        files: tuple[Attachment, ...],
        ids: dict[str, str],
    ) -> Any:
        """One message, with less of the trimmings each time Discord objects to one."""
        query = {"wait": "true"} if path.startswith("/webhooks/") and method == "POST" else None
        while True:
            try:
                return await self._rest.call(method, path, body, files=files, query=query, **ids)
            except Answered as error:
                dropped = _objection(error, body)
                if not dropped:
                    raise
                _log.warning("discord.send.simplified", without=dropped)
                body = {key: value for key, value in body.items() if key != dropped}
                if dropped == "attachments":
                    files = ()
                    if not body["content"]:
                        raise


def _content(words: str) -> Json:
    """The body of a message with these words."""
    return {"content": words, "allowed_mentions": QUIET, "flags": NO_PREVIEWS}


def _objection(error: Answered, body: Json) -> str:
    """The part of a message Discord objects to and a message can do without, or empty."""
    # It may not read what was said before, so it may not refer to it.
    if error.code == 160002 and "message_reference" in body:
        return "message_reference"
    if (error.status == 413 or error.code == 40005) and "attachments" in body:
        return "attachments"
    if error.status != 400:
        return ""
    names = ("components", "message_reference")
    return next((n for n in names if body.get(n) and f"({n}" in error.words), "")


# Fetching what came with a message: bounded, and only from Discord and hosts that are named.

HOSTS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
TOTAL_TIMEOUT = 120.0  # seconds for one file

Origin = tuple[str, str, int]  # scheme, host, port


def origin(url: URL) -> Origin:
    """The origin of an address."""
    return url.scheme, url.host or "", url.port or 0


@dataclass(frozen=True, slots=True)
class Shelf:
    """The files of one account; `hosts` are the origins besides Discord's."""

    rest: Rest
    api_root: str
    hosts: frozenset[Origin]

    def is_ours(self, url: URL) -> bool:
        """True if an address is one a file of Discord's can have.

        What a message says of its files is not trusted: it must not make us call anybody else.
        """
        if not url.user and origin(url) in self.hosts:
            return True
        if self.api_root != PUBLIC_API and url.authority == self.rest.api_host:
            return url.scheme in {"http", "https"} and not url.user
        return url.scheme == "https" and url.host in HOSTS and url.port == 443 and not url.user

    async def fetch(self, media: Media, most: int) -> bytes:
        """The bytes of a file, if they are no more than `most`.

        Raises:
            SendLater, SendTransient: it may work later.
            SendRefused: it never will.
        """
        try:
            url = URL(media.ref, encoded=True)
        except ValueError:
            raise SendRefused("the file has no address") from None
        if not self.is_ours(url):
            raise SendRefused("the file does not lie at Discord")
        call = self.rest.session.get(
            url,
            timeout=aiohttp.ClientTimeout(
                total=TOTAL_TIMEOUT, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT
            ),
            allow_redirects=False,
            headers={"User-Agent": self.rest.user_agent, "Accept-Encoding": "identity"},
        )
        return await download(call, most, "Discord")
