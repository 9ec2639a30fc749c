"""What a person sees while a reply is being written: typing, and the text so far."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from bot.agent.replies import without_ticks
from bot.channel import Address, Channel, Drafts, Typing

TYPING_DELAY = 0.4  # seconds; a reply that is faster needs no sign of life
TYPING_EVERY = 4.5  # seconds; platforms show it for five


class Presence:
    """Shows life for the length of an `async with`. Failures stay inside the channel."""

    def __init__(
        self, channel: Channel | None, address: Address, draft_id: str, *, streams: bool = True
    ) -> None:
        able = channel.capabilities if channel is not None else None
        self._typing = channel if able and able.typing and isinstance(channel, Typing) else None
        drafts = streams and able is not None and able.drafts
        self._drafts = channel if drafts and isinstance(channel, Drafts) else None
        self._address = address
        self._draft_id = draft_id
        self._timer: asyncio.TimerHandle | None = None
        self._typing_task: asyncio.Task[None] | None = None
        self._draft_task: asyncio.Task[None] | None = None
        self._text = ""
        self._shown = ""

    async def __aenter__(self) -> Self:
        if self._typing is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(TYPING_DELAY, self._begin_typing)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task in (self._typing_task, self._draft_task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if kind is not None and issubclass(kind, Exception):
            await self.clear()  # no reply will come of this try

    @property
    def shows_text(self) -> bool:
        """Whether the channel shows a reply while it is being written."""
        return self._drafts is not None

    @property
    def draft(self) -> str:
        """The id under which a reply may have been shown, now or before a restart; or empty."""
        return self._draft_id if self.shows_text else ""

    def show(self, text: str) -> None:
        """Show the text so far, as soon as the one before has been shown."""
        self._text = text
        if self._drafts is not None and (self._draft_task is None or self._draft_task.done()):
            self._draft_task = asyncio.create_task(self._show_drafts(self._drafts))

    async def clear(self) -> None:
        """Take the text so far away, also that of an earlier run: no reply will replace it."""
        if self._drafts is not None:
            await self._drafts.draft(self._address, self._draft_id, "")

    def _begin_typing(self) -> None:
        if self._typing is not None:
            self._typing_task = asyncio.create_task(self._keep_typing(self._typing))

    async def _keep_typing(self, channel: Typing) -> None:
        while True:
            await channel.typing(self._address)
            await asyncio.sleep(TYPING_EVERY)

    async def _show_drafts(self, channel: Drafts) -> None:
        while self._shown != self._text:
            self._shown = self._text
            # A ✓ is the engine's to give, and only when the reply is finished.
            await channel.draft(self._address, self._draft_id, without_ticks(self._shown))
