"""Replies while they are being written: at most one in a place, changed at a calm pace."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog
from cachetools import LRUCache

from bot.channel import Address, Piece
from bot.channel.kit.supervisor import Supervisor, pause
from bot.errors import ChannelError, SendLater, SendRefused, SendTransient

_log = structlog.get_logger()

REMEMBERED = 1024  # drafts that a reply could not replace yet, and questions

P = TypeVar("P", bound=Hashable)


@dataclass(slots=True)
class Draft(Generic[P]):
    """A reply that is being written; `message` is the platform's id of what shows of it.

    `answers` is the message it was sent as a reply to. `serial` tells drafts of one id apart.
    `timer` runs until it may show for the first time, and `begun` is set when that is over.
    """

    place: P
    id: str
    answers: str = ""
    message: str = ""
    serial: int = 0
    text: str = ""  # the newest
    tried: str = ""  # the last one that was to be shown
    next_at: float = 0.0  # event loop time from which it may change
    is_dead: bool = False  # no later text will fare better
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    worker: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Let it change no more."""
        if self.timer is not None:
            self.timer.cancel()
        self.closing.set()
        self.begun.set()


class Drafts(ABC, Generic[P]):
    """The unfinished replies of one account; an adapter says how one is shown and taken away.

    `asked` has the message that the next reply in a place answers, as an adapter hears of it.

    Args:
        spawn: runs something in a task that ends with the account.
        first: seconds before a reply shows; one that is quicker needs no draft.
    """

    def __init__(
        self, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]], first: float = 0.0
    ) -> None:
        self._spawn = spawn
        self._first = first
        self.asked: LRUCache[P, str] = LRUCache(REMEMBERED)
        self._open: dict[P, Draft[P]] = {}
        # Those that ended and are not replaced yet.
        self._left: LRUCache[tuple[P, str], Draft[P]] = LRUCache(REMEMBERED)
        # Those whose reply came: what another node still says of them comes too late.
        self._replied: LRUCache[tuple[P, str], None] = LRUCache(REMEMBERED)
        self._count = 0

    # --- what an adapter says --------------------------------------------------------------------

    @abstractmethod
    async def put(self, draft: Draft[P]) -> float:
        """Show `draft.text` now; the seconds until it may change again. Never raises."""

    @abstractmethod
    async def remove(self, draft: Draft[P]) -> None:
        """Take away what shows of a draft. Never raises."""

    def held(self, draft: Draft[P]) -> float:
        """Seconds that a change has to wait for something else than its own pace."""
        return 0.0

    # --- what the engine and the sender do -------------------------------------------------------

    async def show(self, place: P, draft_id: str, text: str) -> None:
        """Show the text so far as soon as it may change; an empty one takes it away.

        Of many texts the newest is shown, and the last one always; `shown` waits for it.
        """
        if (place, draft_id) in self._replied:
            return
        draft = self._open.get(place)
        if draft is not None and (draft.id != draft_id or not text):
            await self._drop(await self._ended(place, draft.id))
            draft = None
        if not text:
            await self._drop(self._left.pop((place, draft_id), None))
            return
        if draft is None:
            self._count += 1
            left = self._left.pop((place, draft_id), None)
            answers = left.answers if left is not None else self.asked.get(place, "")
            draft = Draft(place, draft_id, answers, left.message if left is not None else "")
            draft.serial = self._count
            self._open[place] = draft
            if self._first > 0:  # most replies are quicker: no task for those
                loop = asyncio.get_running_loop()
                draft.timer = loop.call_later(self._first, self._begin, draft)
            else:
                self._begin(draft)
        draft.text = text
        if draft.worker is not None and draft.worker.done():
            draft.worker = self._spawn(self._work(draft))

    async def shown(self, place: P) -> None:
        """Wait until the newest text shows; whoever gives up does not break off a call."""
        draft = self._open.get(place)
        if draft is None:
            return
        await draft.begun.wait()
        if draft.worker is not None:
            await asyncio.wait({draft.worker})

    async def take(self, place: P, draft_id: str) -> Draft[P] | None:
        """End a draft, for the reply to replace it; None when no message shows it.

        It does not show again, whatever is still said of it.
        """
        self.replied(place, draft_id)
        return await self._ended(place, draft_id)

    def replied(self, place: P, draft_id: str) -> None:
        """Show a draft no more, whatever is still said of it: its reply is there."""
        if draft_id:
            self._replied[place, draft_id] = None

    async def _ended(self, place: P, draft_id: str) -> Draft[P] | None:
        draft = self._open.get(place)
        if draft is None or draft.id != draft_id:
            return self._left.pop((place, draft_id), None)
        del self._open[place]
        draft.close()
        if draft.worker is not None:
            await asyncio.wait({draft.worker})
        return draft if draft.message else None

    def leave(self, draft: Draft[P] | None) -> None:
        """Keep what a reply could not replace yet, for its next try."""
        if draft is not None and draft.message:
            self._left[draft.place, draft.id] = draft
            self._replied.pop((draft.place, draft.id), None)

    def holds(self, place: P, draft_id: str) -> bool:
        """True when this is the draft that is being written there."""
        draft = self._open.get(place)
        return draft is not None and draft.id == draft_id

    def shows(self, place: P, message: str) -> bool:
        """True when a message is, or may be, a reply that is being written."""
        draft = self._open.get(place)
        return draft is not None and draft.message in {message, ""}

    @property
    def texts(self) -> dict[str, str]:
        """The newest text of every open draft, by id."""
        return {draft.id: draft.text for draft in self._open.values()}

    def close(self) -> None:
        """Nothing changes any more, and nothing is taken away."""
        for draft in self._open.values():
            draft.close()

    def clear(self) -> list[str]:
        """Forget every open draft and show nothing more of it: their ids."""
        self.close()
        ids = [draft.id for draft in self._open.values()]
        self._open.clear()
        return ids

    async def _drop(self, draft: Draft[P] | None) -> None:
        if draft is not None:
            await self.remove(draft)

    def _begin(self, draft: Draft[P]) -> None:
        draft.worker = self._spawn(self._work(draft))
        draft.begun.set()

    async def _work(self, draft: Draft[P]) -> None:
        loop = asyncio.get_running_loop()
        while draft.tried != draft.text and not draft.is_dead:
            wait = max(draft.next_at - loop.time(), self.held(draft))
            if wait > 0:
                await pause(wait, draft.closing)
            elif not draft.closing.is_set():
                draft.tried = draft.text
                draft.next_at = await self.put(draft) + loop.time()
            if draft.closing.is_set():
                return


class MessageGone(SendRefused):
    """The message that was to be edited is not there."""


class MessageDrafts(Drafts[Address]):
    """Replies that show as one message, which is edited until it is the whole reply.

    Args:
        supervisor: that of the account.
        first, every: seconds before a reply shows, and between two edits of it.
    """

    def __init__(self, supervisor: Supervisor, first: float, every: float) -> None:
        super().__init__(supervisor.spawn, first)
        self._supervisor, self._every = supervisor, every

    @abstractmethod
    async def write(self, draft: Draft[Address]) -> None:
        """Show `draft.text`: in place of `draft.message`, which is set if there is none yet.

        Where a second try could show it twice, `draft.is_dead` is set meanwhile.

        Raises:
            ChannelError: it cannot be shown, or not now.
        """

    @abstractmethod
    async def delete(self, place: Address, message: str) -> None:
        """Delete a message.

        Raises:
            ChannelError: it cannot be deleted.
        """

    async def put(self, draft: Draft[Address]) -> float:
        """Show a draft; see `Drafts.put`."""
        try:
            await self.write(draft)
        except SendLater as error:
            draft.is_dead = False
            return max(self._every, error.seconds)
        except ChannelError as error:
            # No later step will fare better where the bot may not write.
            draft.is_dead |= not isinstance(error, SendTransient)
            self._failed("failed", error)
        return self._every

    async def remove(self, draft: Draft[Address]) -> None:
        """Take away what shows of a draft."""
        try:
            await self.delete(draft.place, draft.message)
        except ChannelError as error:
            self._failed("left", error)

    async def finish(
        self,
        piece: Piece,
        edit: Callable[[str], Awaitable[str]],
        send: Callable[[], Awaitable[str]],
        fits: Callable[[Draft[Address]], bool] = lambda _draft: True,
    ) -> str:
        """Send a piece in place of its draft; its id.

        Args:
            piece: the piece.
            edit: puts it in place of a message, by id; raises `MessageGone`.
            send: sends it as a message of its own.
            fits: False where a draft answers another message than the piece does.

        Raises:
            ChannelError: as `edit` and `send`; the draft is kept for the next try.
        """
        draft = await self.take(piece.address, piece.draft) if piece.draft else None
        try:
            if draft is not None and fits(draft):
                try:
                    return await edit(draft.message)
                except MessageGone:
                    draft.message = ""
            sent = await send()
        except ChannelError:
            self.leave(draft)
            raise
        if draft is not None and draft.message:
            await self.remove(draft)
        return sent

    def _failed(self, what: str, error: ChannelError) -> None:
        account = self._supervisor.account
        _log.info(f"{self._supervisor.channel}.draft.{what}", account=account, error=str(error))
