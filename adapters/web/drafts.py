"""Replies while they are being written: many small steps in, few frames out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

INTERVAL = 0.08  # seconds between two frames of one draft
BUSY_SHARE = 10  # rendering may take one tenth of the time: long drafts update less often


@dataclass(slots=True)
class _Draft:
    text: str
    next_at: float = 0.0  # event loop time from which it may be shown again
    timer: asyncio.TimerHandle | None = None


class DraftBoard:
    """Passes on the newest text of each draft at a calm pace; the last state always gets shown."""

    def __init__(self, publish: Callable[[str, str], None]) -> None:
        self._publish = publish
        self._drafts: dict[str, _Draft] = {}

    @property
    def texts(self) -> dict[str, str]:
        """The newest text of every open draft, by id."""
        return {draft_id: draft.text for draft_id, draft in self._drafts.items()}

    def show(self, draft_id: str, text: str) -> None:
        """Take the newest text; an empty one takes the draft away at once."""
        if not text:
            if self._forget(draft_id):
                self._publish(draft_id, "")
            return
        draft = self._drafts.setdefault(draft_id, _Draft(text))
        draft.text = text
        if draft.timer is None:
            loop = asyncio.get_running_loop()
            delay = max(0.0, draft.next_at - loop.time())
            if delay:
                draft.timer = loop.call_later(delay, self._emit, draft_id)
            else:
                self._emit(draft_id)

    def clear(self) -> list[str]:
        """Forget every draft, without a word to anyone: their ids."""
        ids = list(self._drafts)
        for draft_id in ids:
            self._forget(draft_id)
        return ids

    def _emit(self, draft_id: str) -> None:
        draft = self._drafts[draft_id]
        draft.timer = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._publish(draft_id, draft.text)
        now = loop.time()
        draft.next_at = now + max(INTERVAL, (now - began) * BUSY_SHARE)

    def _forget(self, draft_id: str) -> bool:
        draft = self._drafts.pop(draft_id, None)
        if draft is not None and draft.timer is not None:
            draft.timer.cancel()
        return draft is not None
