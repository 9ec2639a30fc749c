"""Signs of life while a reply is made; they go out where their account is.

A turn runs on any node, but one of them speaks for an account, so that pace and order are in one
place. The others tell it what to show; what gets lost on the way nobody is owed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, replace
from typing import Any

import orjson
import structlog
from cachetools import LRUCache

from bot.channel import Activity, Address, Channel
from bot.coordination import Event, account_name
from bot.core import Core
from bot.errors import StorageError
from bot.sessions import inbox

MOST_TOLD = 900  # characters of a thought, its last ones, that another node is told
DRAFT_SECONDS = 0.5  # between two states of a draft that another node is told
REMEMBERED = 1024  # drafts of other nodes that are known to wait for their reply

log = structlog.get_logger(__name__)


class LiveSigns:
    """Typing, drafts and activities of every channel, on whichever node has its account."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._told: dict[Address, tuple[str, str]] = {}  # drafts other nodes want shown, the newest
        self._awaited: LRUCache[str, None] = LRUCache(REMEMBERED)
        self._tasks: set[asyncio.Task[None]] = set()
        if core.coordination.is_shared:
            core.coordination.on("account", self._hear)

    async def stop(self) -> None:
        """Show nothing more for other nodes."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def typing(self, address: Address) -> None:
        """See `Channel.typing`."""
        channel = self._core.channels.get(address.channel)
        if channel is None:
            return
        if self._is_here(channel, address):
            await channel.typing(address)
        else:
            await self._tell(address, {})

    async def draft(self, address: Address, draft_id: str, text: str) -> None:
        """See `Channel.draft`; takes a while where another node shows it."""
        channel = self._core.channels.get(address.channel)
        if channel is None:
            return
        if self._is_here(channel, address):
            await channel.draft(address, draft_id, text)
            return
        shown = text[: channel.capabilities.max_length]
        await self._tell(address, {"draft": draft_id, "text": shown})
        if text:
            # Whoever writes calls with the newest text after this.
            await asyncio.sleep(DRAFT_SECONDS)

    def shows_activities(self, address: Address) -> bool:
        """True when somebody may watch what is done for a conversation beside its replies."""
        channel = self._core.channels.get(address.channel)
        return channel is not None and channel.capabilities.activities

    async def activity(self, address: Address, activity: Activity) -> None:
        """See `Channel.activity`; takes a while where another node shows what is thought."""
        channel = self._core.channels.get(address.channel)
        if channel is None:
            return
        if self._is_here(channel, address):
            await channel.activity(address, activity)
            return
        is_thought = activity.kind == "thinking" and bool(activity.text)
        if is_thought:
            activity = replace(activity, text=activity.text[-MOST_TOLD:])
        await self._tell(address, {"activity": asdict(activity)}, stored=not is_thought)
        if is_thought:
            # Whoever thinks calls with the newest text after this.
            await asyncio.sleep(DRAFT_SECONDS)

    def _is_here(self, channel: Channel, address: Address) -> bool:
        name = account_name(address)
        # A page is open on any node: its channel tells all of them.
        return self._core.coordination.owns(name) or channel.capabilities.pages

    # --- between nodes ---------------------------------------------------------------------------

    async def _tell(
        self, address: Address, sign: Mapping[str, object], *, stored: bool = True
    ) -> None:
        name = account_name(address)
        body = orjson.dumps({"chat": address.chat, "thread": address.thread, **sign}).decode()
        tell = self._core.coordination.publish if stored else self._core.coordination.mention
        try:
            await tell(Event("account", name, body))
        except StorageError as error:
            log.debug("live.not_told", channel=address.channel, error=type(error).__name__)

    async def _hear(self, event: Event) -> None:
        """Begin to show what another node says; nothing here waits for a platform."""
        channel_name, _, account = event.name.partition("/")
        channel = self._core.channels.get(channel_name)
        if channel is None or not self._core.coordination.owns(event.name):
            return
        sign = orjson.loads(event.body)
        address = Address(channel_name, account, sign["chat"], sign["thread"])
        if "draft" in sign:
            is_shown = address in self._told
            self._told[address] = sign["draft"], sign["text"]
            if not is_shown:
                self._spawn(self._show(channel, address))
        elif "activity" in sign:
            self._spawn(channel.activity(address, Activity(**sign["activity"])))
        else:
            self._spawn(channel.typing(address))

    async def _show(self, channel: Channel, address: Address) -> None:
        """Show the newest state of a draft, until there is no newer one."""
        shown: tuple[str, str] | None = None
        try:
            while (newest := self._told[address]) != shown:
                draft_id, text = shown = newest
                if not text or await self._is_awaited(draft_id):
                    await channel.draft(address, draft_id, text)
        finally:
            del self._told[address]

    async def _is_awaited(self, draft_id: str) -> bool:
        """False when there is a reply in place of a draft: what came late must not bring it back.

        Asked once for each. Of one that is replied to later its channel knows by itself.
        """
        if draft_id not in self._awaited:
            try:
                waits = await self._core.database.read(
                    lambda tx: inbox.is_waiting(tx, int(draft_id))
                )
            except StorageError:
                return False
            if not waits:
                return False
            self._awaited[draft_id] = None
        return True

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
