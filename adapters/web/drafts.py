"""Replies while they are being written: many small steps in, few frames out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

INTERVAL = 0.08  # seconds between two frames of one draft
BUSY_SHARE = 10  # rendering may take one tenth of the time: long drafts update less often

log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class _Draft:
    text: str
    next_at: float = 0.0  # event loop time from which it may be shown again
    timer: asyncio.TimerHandle | None = None
    showing: asyncio.Task[None] | None = None


class DraftBoard:
    """Passes on the newest text of each draft at a calm pace; the last state always gets shown.

    `publish` may take its time: nothing more of a draft is passed on before it returns, and it is
    cancelled when the draft is forgotten.
    """

    def __init__(self, publish: Callable[[str, str], Awaitable[None]]) -> None:
        self._publish = publish
        self._drafts: dict[str, _Draft] = {}

    @property
    def texts(self) -> dict[str, str]:
        """The newest text of every open draft, by id."""
        return {draft_id: draft.text for draft_id, draft in self._drafts.items()}

    def show(self, draft_id: str, text: str) -> None:
        """Take the newest text of a draft."""
        draft = self._drafts.setdefault(draft_id, _Draft(text))
        draft.text = text
        if draft.timer is None and draft.showing is None:
            self._schedule(draft_id, draft)

    def forget(self, draft_id: str) -> bool:
        """Show nothing more of a draft; True when there was one."""
        draft = self._drafts.pop(draft_id, None)
        if draft is None:
            return False
        if draft.timer is not None:
            draft.timer.cancel()
        if draft.showing is not None:
            draft.showing.cancel()
        return True

    def clear(self) -> list[str]:
        """Forget every draft, without a word to anyone: their ids."""
        ids = list(self._drafts)
        for draft_id in ids:
            self.forget(draft_id)
        return ids

    def _schedule(self, draft_id: str, draft: _Draft) -> None:
        loop = asyncio.get_running_loop()
        delay = max(0.0, draft.next_at - loop.time())
        draft.timer = loop.call_later(delay, self._begin, draft_id, draft)

    def _begin(self, draft_id: str, draft: _Draft) -> None:
        draft.timer = None
        draft.showing = asyncio.create_task(self._show(draft_id, draft, draft.text))

    async def _show(self, draft_id: str, draft: _Draft, text: str) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._publish(draft_id, text)
        except Exception:
            log.exception("web.draft.failed")
        now = loop.time()
        draft.next_at = now + max(INTERVAL, (now - began) * BUSY_SHARE)
        draft.showing = None
        if draft.text is not text:
            self._schedule(draft_id, draft)
