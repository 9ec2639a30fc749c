"""Sending: one `Piece` → one message, and Discord's errors → ours."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import structlog
from cachetools import LRUCache
from yarl import URL

from adapters.discord import PUBLIC_API
from adapters.discord.api import (
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    Rest,
    Unreachable,
    file_name,
    identity,
    is_id,
    number_in,
    reason,
)
from adapters.discord.drafts import (
    EPHEMERAL,
    MESSAGE,
    MESSAGES,
    NO_PREVIEWS,
    QUIET,
    nonce,
    reference,
)
from adapters.discord.history import PendingInteractions, Waiting
from adapters.discord.interactions import pressable, private_to
from adapters.discord.places import Places
from adapters.discord.sdk import discord
from bot.channel import Attachment, Button, Media, Outbound, Piece
from bot.channel.kit.client import download
from bot.channel.kit.drafts import Draft, Drafts
from bot.channel.kit.json_access import Json, is_blank, mapping
from bot.channel.kit.text import numbered, seen, split, table, units, written_in
from bot.errors import ChannelError, SendLater, SendRefused, SendTransient, SendUnreachable

# CommonMark → the Markdown Discord shows: pure. Most of it is the same; the rest is made
# readable.
#
# Tables become aligned code blocks, deep headings bold, pictures links.

LIMIT = 2000  # UTF-16 units of one message

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_RULE = re.compile(r"^\s*+\|?\s*+:?-++:?\s*+(\|\s*+:?-++:?\s*+)++\|?\s*+$")
_HEADING = re.compile(r"^ {0,3}#{4,6}\s+(\S.*)$")
_PICTURE = re.compile(r"!\[([^\[\]\n]*+)\]\(([^)\s]++)(?:\s[^)\n]*+)?\)")
_CODE = re.compile(r"((?<!`)`++[^`\n]++`++)")


def rendered(text: str) -> str:
    """The text for Discord; as it was when it would be too long otherwise."""
    text = seen(text)
    lines = text.split("\n")
    made: list[str] = []
    fence = ""
    at = 0
    while at < len(lines):
        line = lines[at]
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1][:3]
        if fence or mark:
            made.append(line)
        elif "|" in line and at + 1 < len(lines) and _RULE.match(lines[at + 1]):
            end = at + 2
            while end < len(lines) and "|" in lines[end] and not _FENCE.match(lines[end]):
                end += 1
            rows = [_cells(row) for row in (lines[at], *lines[at + 2 : end])]
            made += ["```", *table(rows), "```"]
            at = end
            continue
        else:
            made.append(_line(line))
        at += 1
    whole = "\n".join(made)
    return whole if units(whole) <= LIMIT else text


def _line(line: str) -> str:
    heading = _HEADING.match(line)
    words = heading[1].rstrip().rstrip("#").rstrip() if heading else ""
    if words:
        return f"**{words.replace('**', '')}**"
    if "![" not in line:
        return line
    # What stands in code stays as it is: every second part.
    parts = _CODE.split(line)
    parts[::2] = [_PICTURE.sub(r"[\1](\2)", part) for part in parts[::2]]
    return "".join(parts)


def _cells(row: str) -> list[str]:
    """The words of a row: marks show as they are in code, and a fence would end the block."""
    cells = re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))
    return [re.sub(r"\*\*|__|`", "", cell.strip().replace("\\|", "|")) for cell in cells]


REMEMBERED = 1024  # direct chats, texts sent there, and reactions
MAX_FILES = 10  # of one message
MAX_FILE = 10_000_000  # bytes; what a server without boosts takes, for one message together
MAX_ROW, MAX_ROWS = 5, 5  # buttons side by side, and rows of them
MAX_BUTTON_LABEL = 80

# An interaction's token is over, or its message is gone: a message does it too.
_TOKEN_OVER = frozenset({10008, 10015, 10062, 50027})

# The first line in a direct chat of an answer that was asked for in a room.
_WHY_HERE = {
    "en": "-# You asked in <#{room}>. It can no longer be shown to you alone there, so it is here.",
    "zh": "-# 这是你在 <#{room}> 里要的。那里已不能只给你一个人看，所以发在这里。",
}

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
                raise Unreachable("no direct chat")
            self._direct[person] = chat
        whole = piece.whole
        if chat != piece.address.chat and whole.id not in self._explained:
            words = _WHY_HERE[written_in(piece.text)]
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


# Nobody is there: no access, closed direct messages, no permission, no such channel.
_AWAY = frozenset({50001, 50007, 50013, 10003})


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
    if waits or foreign:
        return SendTransient(message)
    return SendUnreachable(message) if error.code in _AWAY else SendRefused(message)


# Fetching what came with a message: bounded, and only from Discord and hosts that are named.

HOSTS = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
TOTAL_TIMEOUT = 120.0  # seconds for one file

Origin = tuple[str, str, int]  # scheme, host, port


def origin(url: URL) -> Origin:
    """Who is called by an address."""
    return url.scheme, url.host or "", url.port or 0


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where the files of one account lie; `hosts` are the origins besides Discord's."""

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
        if media.size > most:
            raise SendRefused("this file is too large")
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
