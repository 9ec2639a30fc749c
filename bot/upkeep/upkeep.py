"""Begins what a conversation needs, in tasks of its own beside the replies.

Whatever fails here costs nothing that was said: the history stays as it was, and the person is
told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from bot import fencing
from bot.agent.running import RunningTurns
from bot.core import Core
from bot.identity import Conversation
from bot.money import LimitReached
from bot.plugins import Ended
from bot.sessions import unsaved
from bot.sessions.store import Session
from bot.upkeep import active_session
from bot.upkeep.active_session import ActiveSession, ActiveSessions, Due, Kind
from bot.upkeep.compaction import CompactionService, Outcome, Why
from bot.upkeep.flush import FlushService
from bot.upkeep.summary import AFTER_TURNS, Titles

log = structlog.get_logger(__name__)


class Upkeep:
    """Begins what is due after a turn, and makes room when there is none before one."""

    def __init__(
        self,
        core: Core,
        sessions: ActiveSessions,
        flushes: FlushService,
        compactions: CompactionService,
        titles: Titles,
        *,
        running: RunningTurns,
    ) -> None:
        """A summary that a person asked for is among what is `running`, which they can end."""
        self._running = running
        self._core = core
        self._is_first = not core.coordination.is_shared
        self.sessions = sessions
        self._flushes = flushes
        self._compactions = compactions
        self._titles = titles
        self._tasks: dict[tuple[str, Kind], asyncio.Task[Any]] = {}

    # --- asked by turns ---------------------------------------------------------------------------

    def due(self, active: ActiveSession, used: int) -> Due:
        """Decide what is due when a window holds so many tokens.

        What is made room in at once is told of by the receipt, and by no notice.
        """
        session = active.cached.session
        due = active_session.due_upkeep(
            session,
            used,
            active.limits.budget,
            active.conversation.config.context,
            is_told=active.is_told,
            failed_at=self._compactions.failed_at.get(session.id, 0),
        )
        if due.notice and due.compaction and self._compactions.cut(active) is not None:
            return replace(due, notice=None)
        return due

    def begin_due(self, active: ActiveSession, due: Due) -> None:
        """Begin what was due; returns at once."""
        session = active.cached.session
        if session.turns == AFTER_TURNS:
            self._begin(session.id, "title", self._titles.run(session))
        if session.ended_by:  # a command began another one meanwhile
            self.flush_ended([session])
        elif due.compaction:
            self._begin(session.id, "compaction", self._compact(active, "full"))
        elif due.flush and not session.is_flushed:
            self._begin(session.id, "flush", self._flushes.run(active))

    def flush_within_turn(self, active: ActiveSession, used: int) -> None:
        """In the middle of a turn, save memory when a tool's result has jumped past the bound."""
        if not active.cached.session.ended_by and self.due(active, used).flush:
            self._begin(active.cached.session.id, "flush", self._flushes.run(active))

    async def compact_now(self, active: ActiveSession) -> bool:
        """Compact now, before a request that would not fit; True when there is more room.

        One that runs already is waited for; if that fails, another one tries harder. One that has
        not begun, because it waits for other chores or memory is being saved first, makes way.
        Cancelled, it ends what it waits for.
        """
        id_ = active.cached.session.id
        running = self._tasks.get((id_, "compaction"))
        if running is not None and id_ not in self._compactions.running:
            running.cancel()
            await asyncio.wait({running})
        elif running is not None and await _is_done(running):
            return True
        work = self._compact(active, "forced")
        return await _is_done(self._begin(id_, "compaction", work))

    # --- asked by commands and at the end of a conversation ---------------------------------------

    async def compact(self, session: Session, conversation: Conversation, focus: str) -> bool:
        """Begin to compact because the person wishes it; False when there is nothing to.

        Raises:
            LimitReached: nothing is left to pay for it.
        """
        active = await self.sessions.of(session.id, conversation)
        if self._compactions.cut(active, "wished") is None:
            return False
        agent = conversation.config.agent
        chores = await self.sessions.limits.for_chores(active.limits, agent)
        balance = await self.sessions.allowance.of(conversation, chores.name)
        if balance.refused is not None:
            raise LimitReached(balance.refused)
        task = self._begin(session.id, "compaction", self._compact(active, "wished", focus))
        scope = ExitStack()
        stop = scope.enter_context(self._running.running(conversation.key, "summary"))
        scope.enter_context(stop.by(task.cancel, "summary"))
        task.add_done_callback(lambda _: scope.close())
        return True

    def flush_ended(self, sessions: Iterable[Session]) -> None:
        """Other conversations were begun after these: save what matters of them."""
        for session in sessions:
            self._core.hooks.ended(_ended(session))
            self._begin(session.id, "flush", self._flushes.of_ended(session, quietly=False))
            self._begin(session.id, "title", self._titles.run(session))

    async def flush_closed(self, session: Session) -> None:
        """Save what matters of a conversation that ended while nobody was there."""
        self._core.hooks.ended(_ended(session))
        self._begin(session.id, "title", self._titles.run(session))
        work = self._flushes.of_ended(session, quietly=True)
        await asyncio.wait({self._begin(session.id, "flush", work)})

    async def look(self) -> None:
        """Save what could not be saved before, as far as its time has come.

        Where nobody else does the same, the first look finds what the program was at as it ended.

        Raises:
            StorageError: it cannot be read.
        """
        now, interrupted = self._core.clock(), self._is_first
        self._is_first = False
        config = self.sessions.resolver.policy.config.context
        if not self._core.is_leader or not config.enable_memory_flush:
            return
        found = await self.sessions.database.read(
            lambda tx: unsaved.due(tx, now, interrupted=interrupted)
        )
        for session_id in found:
            self._begin(session_id, "flush", self._flushes.again(session_id))

    def end(self, session_id: str) -> None:
        """End what is done for a session: its person deleted it."""
        for (id_, _), task in self._tasks.items():
            if id_ == session_id:
                task.cancel()

    def review(self) -> None:
        """Others are served than before."""
        self._flushes.review()

    async def stop(self) -> None:
        """Give up what is running; it is done again when it is due again."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ----------------------------------------------------------------------------------------------

    async def _compact(self, active: ActiveSession, why: Why, focus: str = "") -> Outcome:
        """Save memory if this cycle has not, and make room whether that works or not.

        When a person waits for the room, memory is saved afterwards: it reads the transcript.
        """
        config = active.conversation.config.context
        saves = config.enable_memory_flush and not active.cached.session.is_flushed
        if saves and why != "forced":
            await asyncio.wait({self._begin_flush(active, why)})
        outcome = await self._compactions.run(active, why, focus)
        if saves and why == "forced":
            self._begin_flush(active, why)
        return outcome

    def _begin_flush(self, active: ActiveSession, why: Why) -> asyncio.Task[Any]:
        # The receipt of the summary tells what was saved before it, and only that.
        work = self._flushes.run(active, quietly=why != "forced", early=why != "full")
        return self._begin(active.cached.session.id, "flush", work)

    def _begin(
        self, session_id: str, kind: Kind, work: Coroutine[Any, Any, Any]
    ) -> asyncio.Task[Any]:
        """Run work in a task, or join the one that does the same for this session already."""
        key = (session_id, kind)
        running = self._tasks.get(key)
        if running is not None:
            work.close()
            return running
        task = asyncio.create_task(self._unfenced(work))
        self._tasks[key] = task
        task.add_done_callback(partial(self._finished, key))
        return task

    async def _unfenced(self, work: Coroutine[Any, Any, Any]) -> Any:
        fencing.put(None)  # it outlives the turn that began it
        try:
            return await work
        finally:
            work.close()  # when it was cancelled before it began

    def _finished(self, key: tuple[str, Kind], task: asyncio.Task[Any]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("aftercare.failed", what=key[1], error=type(error).__name__, exc_info=error)


async def _is_done(task: asyncio.Task[Any]) -> bool:
    """True when a compaction has made room, once it has ended; cancelled, it ends it."""
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        raise
    return not task.cancelled() and task.exception() is None and task.result() == "done"


def _ended(session: Session) -> Ended:
    """A conversation that is over, as hooks hear of it."""
    where = (session.id, session.person, session.channel, session.chat_type)
    return Ended(*where, session.turns, session.started_at, session.ended_by or "left")
