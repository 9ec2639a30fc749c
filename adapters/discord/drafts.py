"""Replies while they are being written: one message, edited at the pace Discord allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import structlog

from adapters.discord.api import Rest, as_json, reason
from adapters.discord.pace import Pace
from adapters.discord.sdk import discord
from adapters.discord.shapes import identity
from bot.channel.kit.shapes import Json
from bot.channel.kit.text import first_units, units

# Stands at the end of a reply that is being written. A message of the bot's that still ends so
# after a restart was never finished, and is taken away.
MARK = " ▍"
SHOWN = 1900  # UTF-16 units that are shown before the reply is finished
REMEMBERED = 1024  # drafts that a reply could not replace yet
QUIET: Json = {"parse": [], "replied_user": False}  # nobody is ever notified by a mention
NO_PREVIEWS = 1 << 2

_log = structlog.get_logger()


@dataclass(slots=True)
class Draft:
    """A reply being written; `message` is its id at Discord, empty before it shows."""

    chat: str
    id: str
    answers: str  # the message it was sent as a reply to, or empty
    number: int  # tells drafts of one id apart
    text: str = ""
    shown: str = ""
    message: str = ""
    next_at: float = 0.0  # event loop time from which it may change again
    is_dead: bool = False
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    worker: asyncio.Task[None] | None = None


class Drafts:
    """The open drafts of one account, one a chat."""

    def __init__(
        self,
        rest: Rest,
        account: str,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        pace: Pace,
    ) -> None:
        self._rest = rest
        self._account = account
        self._spawn = spawn
        self._pace = pace
        self._open: dict[str, Draft] = {}
        self._left: dict[tuple[str, str], Draft] = {}  # ended, and not replaced yet
        self._count = 0

    def shows(self, chat: str, message: str) -> bool:
        """True when a message is, or may be, a reply that is being written."""
        draft = self._open.get(chat)
        return draft is not None and (draft.message == message or not draft.message)

    def holds(self, chat: str, draft_id: str) -> bool:
        """True when this is the draft that is being written there."""
        draft = self._open.get(chat)
        return draft is not None and draft.id == draft_id

    async def show(self, chat: str, draft_id: str, text: str, answers: str = "") -> None:
        """Show the text so far as soon as it may change again; an empty one takes it away."""
        draft = self._open.get(chat)
        if draft is not None and (draft.id != draft_id or not text):
            await self.drop(await self.take(chat, draft.id))
            draft = None
        if not text:
            return
        if draft is None:
            self._count += 1
            draft = self._open[chat] = Draft(chat, draft_id, answers, self._count)
            draft.next_at = asyncio.get_running_loop().time() + self._pace.draft_first
        draft.text = text
        if draft.worker is None or draft.worker.done():
            draft.worker = self._spawn(self._work(draft))
        # Whoever gives up waiting here does not interrupt a call to Discord.
        await asyncio.wait({draft.worker})

    async def take(self, chat: str, draft_id: str) -> Draft | None:
        """End a draft, for the reply to take its place; None when nothing of it shows."""
        draft = self._open.get(chat)
        if draft is None or draft.id != draft_id:
            return self._left.pop((chat, draft_id), None)
        del self._open[chat]
        draft.closing.set()
        if draft.worker is not None:
            await asyncio.wait({draft.worker})
        return draft if draft.message else None

    def leave(self, draft: Draft | None) -> None:
        """Keep what a reply could not replace yet, for its next try."""
        if draft is not None and draft.message:
            self._left[draft.chat, draft.id] = draft
            if len(self._left) > REMEMBERED:
                self._left.pop(next(iter(self._left)))

    async def drop(self, draft: Draft | None) -> None:
        """Take away what shows of a draft."""
        if draft is None:
            return
        try:
            await self._rest.call(
                "DELETE",
                "/channels/{channel_id}/messages/{message_id}",
                channel_id=draft.chat,
                message_id=draft.message,
            )
        except discord.DiscordException as error:
            _log.info("discord.draft.left", account=self._account, error=reason(error))

    def close(self) -> None:
        """The account stops: nothing changes any more."""
        for draft in self._open.values():
            draft.closing.set()

    async def _work(self, draft: Draft) -> None:
        wait = draft.next_at - asyncio.get_running_loop().time()
        if wait > 0:
            try:
                async with asyncio.timeout(wait):
                    await draft.closing.wait()
            except TimeoutError:
                pass
        if draft.closing.is_set() or draft.is_dead or draft.shown == draft.text:
            return
        text = draft.text
        pause = self._pace.draft
        try:
            await self._put(draft, text)
            draft.shown = text
        except discord.RateLimited as error:
            pause = max(pause, error.retry_after)
        except discord.DiscordException as error:
            # No later step will fare better where the bot may not write.
            draft.is_dead = isinstance(error, discord.HTTPException) and error.status < 500
            _log.info("discord.draft.failed", account=self._account, error=reason(error))
        draft.next_at = asyncio.get_running_loop().time() + pause

    async def _put(self, draft: Draft, text: str) -> None:
        body: Json = {"content": shortened(text), "allowed_mentions": QUIET, "flags": NO_PREVIEWS}
        if draft.message:
            await self._rest.call(
                "PATCH",
                "/channels/{channel_id}/messages/{message_id}",
                body,
                channel_id=draft.chat,
                message_id=draft.message,
            )
            return
        # The same number gives the same message, should the answer to the first try get lost.
        body |= {"nonce": nonce(f"draft {draft.id} {draft.number}"), "enforce_nonce": True}
        body |= reference(draft.answers)
        sent = await self._rest.call(
            "POST", "/channels/{channel_id}/messages", body, channel_id=draft.chat
        )
        draft.message = identity(as_json(sent), "id")


def shortened(text: str) -> str:
    """The text so far as it may be shown: not too long, its code block closed, marked."""
    if units(text) > SHOWN:
        text = first_units(text, SHOWN).rstrip() + " …"
    fences = sum(line.lstrip().startswith("```") for line in text.split("\n"))
    return f"{text}\n```\n{MARK.strip()}" if fences % 2 else text.rstrip() + MARK


def nonce(name: str) -> str:
    """A name as Discord takes it: at most 25 characters; the same name gives the same message."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def reference(message_id: str) -> Json:
    """What makes a message a reply; a message that is gone does not stand in the way."""
    if not message_id:
        return {}
    return {"message_reference": {"message_id": message_id, "fail_if_not_exists": False}}
