"""Sending: one `Piece` → one message, and Discord's errors → ours."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import structlog
from cachetools import LRUCache

from adapters.discord.api import Rest, Unreachable, file_name, reason
from adapters.discord.drafts import MESSAGE, NO_PREVIEWS, QUIET, nonce, reference
from adapters.discord.ids import identity, is_id, number_in
from adapters.discord.interactions import pressable, private_to
from adapters.discord.pending import PendingInteractions, Waiting
from adapters.discord.places import Places
from adapters.discord.render import LIMIT, rendered
from adapters.discord.sdk import discord
from bot.channel import Attachment, Button, Outbound, Piece
from bot.channel.kit.drafts import Draft, Drafts
from bot.channel.kit.json_access import Json, is_blank, mapping
from bot.channel.kit.text import numbered, split
from bot.errors import ChannelError, SendLater, SendRefused, SendTransient

REMEMBERED = 1024  # direct chats, texts sent there, and reactions
MAX_FILES = 10  # of one message
MAX_FILE = 10_000_000  # bytes; what a server without boosts takes, for one message together
MAX_ROW, MAX_ROWS = 5, 5  # buttons side by side, and rows of them
MAX_BUTTON_LABEL = 80

_EPHEMERAL = 1 << 6
# An interaction's token is over, or its message is gone: a message does it too.
_TOKEN_OVER = frozenset({10008, 10015, 10062, 50027})

# The first line in a direct chat of an answer that was asked for in a room.
_WHY_HERE = {
    "en": "-# You asked in <#{room}>. It can no longer be shown to you alone there, so it is here.",
    "zh": "-# 这是你在 <#{room}> 里要的。那里已不能只给你一个人看，所以发在这里。",
}
_CHINESE = re.compile("[\u4e00-\u9fff]")

_log = structlog.get_logger()


class Sender:
    """Sends the messages of one account."""

    def __init__(
        self,
        account: str,
        rest: Rest,
        drafts: Drafts[str],
        pending: PendingInteractions,
        places: Places,
    ) -> None:
        self._account = account
        self._rest = rest
        self._places = places
        self._drafts = drafts
        self._pending = pending
        self._direct: LRUCache[str, str] = LRUCache(REMEMBERED)  # direct chats, by person
        self._signs: LRUCache[tuple[str, str], str] = LRUCache(REMEMBERED)  # to take them away
        self._explained: LRUCache[str, None] = LRUCache(REMEMBERED)  # texts said to be private

    async def send(self, piece: Piece) -> str:
        """Send one message; its id.

        Raises:
            SendLater: Discord asks to wait.
            SendTransient: Discord cannot be reached, or failed.
            SendRefused: Discord will not deliver this.
        """
        if not is_id(piece.address.chat):
            raise SendRefused("this is no chat of Discord's")
        try:
            return await self._message(piece)
        except discord.DiscordException as error:
            raise failure(error) from None

    async def typing(self, chat: str) -> None:
        """Show "is typing…" in a chat, if that works."""
        try:
            await self._rest.call("POST", "/channels/{channel_id}/typing", channel_id=chat)
        except discord.DiscordException as error:
            _log.debug("discord.typing.failed", account=self._account, error=reason(error))

    async def react(self, chat: str, message: str, emoji: str) -> None:
        """Put a sign below a message, or take the last one away."""
        method, sign = ("PUT", emoji) if emoji else ("DELETE", self._signs.pop((chat, message), ""))
        if not sign:
            return
        path = "/channels/{channel_id}/messages/{message_id}/reactions/{emoji}/@me"
        try:
            await self._rest.call(method, path, channel_id=chat, message_id=message, emoji=sign)
        except discord.DiscordException as error:
            _log.debug("discord.reaction.failed", account=self._account, error=reason(error))
            return
        if emoji:
            self._signs[chat, message] = emoji

    async def _message(self, piece: Piece) -> str:
        body: Json = {"content": piece.text, "allowed_mentions": QUIET, "flags": NO_PREVIEWS}
        if piece.attachments:
            names = enumerate(map(file_name, piece.attachments))
            body["attachments"] = [{"id": number, "filename": name} for number, name in names]
        if piece.buttons:
            body["components"] = rows(piece.buttons)
        waiting = await self._pending.claim(
            piece, exact=self._drafts.holds(piece.address.chat, piece.draft)
        )
        if waiting is not None:
            try:
                return await self._answer(waiting, body, piece.attachments)
            except discord.HTTPException as error:
                if error.status != 401 and error.code not in _TOKEN_OVER:
                    raise
                self._pending.lost(waiting)
        person = self._person_of(piece, waiting)
        if person:
            return await self._alone(person, piece, body)
        answers = number_in(piece.reply_to) if piece.reply_to[:1].isdecimal() else ""
        if piece.draft:
            return await self._first(piece, body, answers)
        return await self._create(piece.id, piece.address.chat, body, piece.attachments, answers)

    async def _first(self, piece: Piece, body: Json, answers: str) -> str:
        """Send the beginning of a reply, in place of what showed while it was being written."""
        chat = piece.address.chat
        draft = await self._drafts.take(chat, piece.draft)
        try:
            if draft is not None:
                place = self._places.place(chat)
                # In a room it matters whom a reply answers; with two people it does not.
                if answers in {"", draft.answers} or (place is not None and place.kind == "direct"):
                    try:
                        return await self._finish(draft, body, piece.attachments)
                    except discord.NotFound:
                        draft.message = ""
            sent = await self._create(piece.id, chat, body, piece.attachments, answers)
        except discord.DiscordException:
            self._drafts.leave(draft)  # for the next try
            raise
        if draft is not None and draft.message:
            await self._drafts.remove(draft)
        return sent

    async def _finish(self, draft: Draft[str], body: Json, files: tuple[Attachment, ...]) -> str:
        # What a reply has now replaces what the draft had.
        edit: Json = {"components": [], **body}
        ids = {"channel_id": draft.place, "message_id": draft.message}
        await self._try("PATCH", MESSAGE, edit, files, ids)
        return draft.message

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
        path = "/channels/{channel_id}/messages"
        sent = await self._try("POST", path, whole, files, {"channel_id": chat})
        return identity(mapping(sent), "id") or "sent"

    async def _answer(self, waiting: Waiting, body: Json, files: tuple[Attachment, ...]) -> str:
        """Answer an interaction: in place of "thinking…" first, below it then."""
        interaction = waiting.interaction
        ids = {"webhook_id": interaction.application, "webhook_token": interaction.token}
        path = "/webhooks/{webhook_id}/{webhook_token}"
        if waiting.is_filled:
            flags = body["flags"] | (_EPHEMERAL if interaction.is_private else 0)
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
                raise Unreachable("no direct chat")
            self._direct[person] = chat
        whole = piece.whole
        if chat != piece.address.chat and whole.id not in self._explained:
            words = _WHY_HERE["zh" if _CHINESE.search(piece.text) else "en"]
            why: Json = {"content": words.format(room=piece.address.chat)}
            why |= {"allowed_mentions": QUIET, "flags": NO_PREVIEWS}
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
            except discord.HTTPException as error:
                dropped = _objection(error, body)
                if not dropped:
                    raise
                _log.warning("discord.send.simplified", without=dropped)
                body = {key: value for key, value in body.items() if key != dropped}
                if dropped == "attachments":
                    files = ()
                    if not body["content"]:
                        raise


def messages(outbound: Outbound) -> list[Piece]:
    """The messages a text and its files become; the first files come with the words.

    Raises:
        SendRefused: there is nothing to show.
    """
    groups: list[list[Attachment]] = [[]]
    size = 0
    for file in outbound.attachments:
        if not 0 < len(file.data) <= MAX_FILE:
            _log.warning("discord.file.left_out", mime=file.mime, size=len(file.data))
            continue
        if len(groups[-1]) >= MAX_FILES or size + len(file.data) > MAX_FILE:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += len(file.data)
    chunks = split(outbound.text, LIMIT, "utf16")
    words = ["" if is_blank(chunk) else rendered(chunk) for chunk in chunks] or [""]
    made = [Piece(outbound, each) for each in words]
    made[-1] = replace(made[-1], attachments=tuple(groups[0]))
    made += [Piece(outbound, "", attachments=tuple(group)) for group in groups[1:]]
    return numbered(each for each in made if each.text or each.attachments)


def rows(buttons: tuple[Button, ...]) -> list[Json]:
    """The buttons as Discord draws them, five side by side."""
    made: list[Json] = []
    seen: set[str] = set()
    for button in buttons:
        shown = button.label.strip()[:MAX_BUTTON_LABEL]
        if not shown or not pressable(button.command) or button.command in seen:
            _log.warning("discord.button.left_out", command=button.command.partition(" ")[0][:32])
            continue
        seen.add(button.command)
        made.append({"type": 2, "style": 2, "label": shown, "custom_id": button.command})
    cut = [made[at : at + MAX_ROW] for at in range(0, len(made), MAX_ROW)][:MAX_ROWS]
    return [{"type": 1, "components": row} for row in cut]


def _objection(error: discord.HTTPException, body: Json) -> str:
    """The part of a message Discord objects to and a message can do without, or empty."""
    # It may not read what was said before, so it may not refer to it.
    if error.code == 160002 and "message_reference" in body:
        return "message_reference"
    if (error.status == 413 or error.code == 40005) and "attachments" in body:
        return "attachments"
    if error.status != 400:
        return ""
    names = ("components", "message_reference")
    return next((n for n in names if body.get(n) and f"({n}" in error.text), "")


def failure(error: discord.DiscordException) -> ChannelError:
    """The error of the contract that an SDK error stands for; its message has no token."""
    if isinstance(error, discord.RateLimited):
        return SendLater(error.retry_after)
    message = f"Discord: {reason(error)}"
    if not isinstance(error, discord.HTTPException):
        return SendTransient(message)
    # A rejected token is the operator's to mend; a page without a code is some proxy's.
    waits = error.status in {401, 408} or error.status >= 500
    foreign = error.status in {403, 404} and not error.code
    return SendTransient(message) if waits or foreign else SendRefused(message)
