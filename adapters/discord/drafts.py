"""Replies while they are being written: one message, edited at the pace Discord allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from hashlib import blake2b
from typing import Any

import structlog

from adapters.discord.api import Rest, identity, reason
from adapters.discord.sdk import discord
from bot.channel.kit.drafts import Draft, Drafts
from bot.channel.kit.json_access import Json, mapping
from bot.channel.kit.text import first_units, units

# Stands at the end of a reply that is being written. A message of the bot's that still ends so
# after a restart was never finished, and is taken away.
MARK = " ▍"
SHOWN = 1900  # UTF-16 units that are shown before the reply is finished
QUIET: Json = {"parse": [], "replied_user": False}  # nobody is ever notified by a mention
NO_PREVIEWS, EPHEMERAL = 1 << 2, 1 << 6
MESSAGES = "/channels/{channel_id}/messages"
MESSAGE = f"{MESSAGES}/{{message_id}}"

_log = structlog.get_logger()


class DiscordDrafts(Drafts[str]):
    """The open drafts of one account, one a chat.

    Args:
        first, every: seconds before a reply shows, and between two edits of it.
    """

    def __init__(
        self,
        rest: Rest,
        account: str,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        first: float,
        every: float,
    ) -> None:
        super().__init__(spawn, first)
        self._rest = rest
        self._account = account
        self._every = every

    async def remove(self, draft: Draft[str]) -> None:
        """Take away what shows of a draft."""
        chat, message = draft.place, draft.message
        try:
            await self._rest.call("DELETE", MESSAGE, channel_id=chat, message_id=message)
        except discord.DiscordException as error:
            _log.info("discord.draft.left", account=self._account, error=reason(error))

    async def put(self, draft: Draft[str]) -> float:
        """Show a draft; see `Drafts.put`."""
        try:
            await self._put(draft)
        except discord.RateLimited as error:
            return max(self._every, error.retry_after)
        except discord.DiscordException as error:
            # No later step will fare better where the bot may not write.
            draft.is_dead = isinstance(error, discord.HTTPException) and error.status < 500
            _log.info("discord.draft.failed", account=self._account, error=reason(error))
        return self._every

    async def _put(self, draft: Draft[str]) -> None:
        body: Json = {
            "content": shortened(draft.text),
            "allowed_mentions": QUIET,
            "flags": NO_PREVIEWS,
        }
        chat, message = draft.place, draft.message
        if message:
            await self._rest.call("PATCH", MESSAGE, body, channel_id=chat, message_id=message)
            return
        # The same number gives the same message, should the answer to the first try get lost.
        body |= {"nonce": nonce(f"draft {draft.id} {draft.serial}"), "enforce_nonce": True}
        body |= reference(draft.answers)
        sent = await self._rest.call("POST", MESSAGES, body, channel_id=chat)
        draft.message = identity(mapping(sent), "id")


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
