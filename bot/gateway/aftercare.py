"""What a conversation needs beside its turns: saving memory, making room, and saying so.

It runs in tasks of its own, beside the replies. Whatever fails here costs nothing that was said:
the history stays as it was, and the person is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

import structlog

from bot.agent.live import Live, LiveSessions
from bot.agent.prefix import name_of
from bot.agent.tools import ToolContext
from bot.agent.windows import Room, Windows
from bot.channel import Activities, Activity, Button, Channel
from bot.clock import Clock
from bot.config import Config
from bot.context import budget, compaction, notices, report
from bot.context.budget import Budget
from bot.context.compaction import Plan
from bot.context.conversation import Line
from bot.delivery.outbox import Extra
from bot.errors import CompactionFailed
from bot.i18n import text
from bot.identity import MANY, Conversation
from bot.identity.directory import Directory
from bot.ledger import Draft, Ledger
from bot.memory.forgetting import Watch
from bot.memory.notes import Notes, listed
from bot.messages import Whose, mixture
from bot.metrics import Metrics
from bot.sessions import compactions, hiding, store
from bot.sessions.compactions import Compaction
from bot.sessions.entries import NewEntry, number_of
from bot.sessions.store import Session
from bot.upkeep.flush import Flushed, Flusher, FlushRequest
from bot.upkeep.summary import Compacted, Compactor, CompactRequest

AT_ONCE = 8  # conversations that are saved or compacted at the same time
GROWTH = 1.05  # how much fuller a conversation gets before a compaction that failed is tried again

Outcome = Literal["done", "nothing", "failed"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Fill:
    """How full a conversation is: tokens in the window, and what its requests begin with."""

    used: int
    fixed: int


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation's session, whose it is now, and the room its model has."""

    live: Live
    conversation: Conversation
    room: Room

    @property
    def session(self) -> Session:
        """The session's row as it is now."""
        return self.live.session

    @property
    def shares(self) -> Budget:
        """How its window is shared out now."""
        return budget.while_held(self.room.budget) if self.session.held else self.room.budget


@dataclass(slots=True)
class _Ended:
    """How something that was shown has ended, as in `Activity`; failed unless it says otherwise."""

    state: Literal["done", "failed"] = "failed"
    where: str = ""


class Aftercare:
    """Begins what is due after a turn, and makes room when there is none before one."""

    def __init__(
        self,
        *,
        config: Config,
        directory: Directory,
        windows: Windows,
        live: LiveSessions,
        ledger: Ledger,
        notes: Notes,
        flusher: Flusher,
        compactor: Compactor,
        channels: Mapping[str, Channel],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._config = config
        self._directory = directory
        self._windows = windows
        self._live = live
        self._ledger = ledger
        self._notes = notes
        self._flusher = flusher
        self._compactor = compactor
        self._channels = channels
        self._clock = clock
        self._metrics = metrics
        self._tasks: dict[tuple[str, str], asyncio.Task[Any]] = {}
        # One for each kind: a compaction waits for the flush of its own session.
        self._slots = {kind: asyncio.Semaphore(AT_ONCE) for kind in ("flush", "compaction")}
        self._failed_at: dict[str, int] = {}  # how full a session was when its compaction failed

    # --- asked by turns ---------------------------------------------------------------------------

    def fill(self, talk: Talk) -> Fill:
        """How full a conversation is, as its next message's view sees it."""
        live, room = talk.live, talk.room
        view = name_of(talk.conversation.view)
        prefix = live.snapshots.get(view)
        if view not in live.fixed and prefix is not None:
            live.fixed[view] = room.count(prefix.system) + room.count(prefix.tools)
        fixed = live.fixed.get(view, 0)
        return Fill(live.conversation.used(fixed, room.factor), fixed)

    def look(self, talk: Talk, used: int) -> None:
        """Begin what is due when a window holds so many tokens; returns at once."""
        session = talk.session
        if session.ended_by:  # a command began another one while this turn ran
            self.ended(session)
        elif self._should_compact(talk, used):
            self._begin(session.id, "compaction", self._compact(talk))
        else:
            self.look_within(talk, used)

    def look_within(self, talk: Talk, used: int) -> None:
        """The same in the middle of a turn, when a tool's result may have jumped past a bound."""
        if self._should_flush(talk, used):
            self._begin(talk.session.id, "flush", self._flush(talk))

    async def make_room(self, talk: Talk) -> bool:
        """Compact now, before a request that would not fit; whether there is more room.

        One that runs already is waited for; if that fails, another one tries harder.
        """
        running = self._tasks.get((talk.session.id, "compaction"))
        if running is not None and await _is_done(running):
            return True
        work = self._compact(talk, forced=True)
        return await _is_done(self._begin(talk.session.id, "compaction", work))

    async def now(self, talk: Talk) -> Talk:
        """The same as it is now: a command may have had it read again, or changed whose it is."""
        live = await self._live.get(talk.session.id)
        return replace(talk, live=live, conversation=self._directory.renewed(talk.conversation))

    def due(self, talk: Talk, used: int) -> int | None:
        """The level that is to be told now, in percent; None for nothing.

        What is made room in at once is told of by the receipt.
        """
        if not self._may_tell(talk):
            return None
        if self._should_compact(talk, used) and self._plan(talk) is not None:
            return None
        percent = budget.percent_full(used, talk.room.budget)
        return notices.due(percent, talk.session.told, self._config.context.notice_percent)

    # --- asked by commands and at the end of a conversation ---------------------------------------

    async def talk(self, session: Session, conversation: Conversation) -> Talk:
        """A session as it is now, and whose conversation it is."""
        live = await self._live.get(session.id)
        return Talk(live, conversation, await self._windows.of(live.session))

    def wish(self, conversation: Conversation) -> Literal["auto", "on", "off"]:
        """Whether the configuration wants people told there."""
        return conversation.settings.notices or self._config.context.notices

    async def compact(self, session: Session, conversation: Conversation, focus: str) -> bool:
        """Begin to compact because the person wishes it; False when there is nothing to."""
        talk = await self.talk(session, conversation)
        if self._plan(talk, wished=True) is None:
            return False
        self._begin(session.id, "compaction", self._compact(talk, focus=focus, wished=True))
        return True

    def ended(self, session: Session) -> None:
        """Another conversation was begun after this one: save what matters of it."""
        self._begin(session.id, "flush", self._flush_ended(session, quietly=False))

    async def close(self, session: Session) -> None:
        """Save what matters of a conversation that ended while nobody was there."""
        work = self._flush_ended(session, quietly=True)
        await asyncio.wait({self._begin(session.id, "flush", work)})

    async def stop(self) -> None:
        """Give up what is running; it is done again when it is due again."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def settled(self) -> None:
        """Wait until nothing runs."""
        while self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # --- saving memory ----------------------------------------------------------------------------

    def _should_flush(self, talk: Talk, used: int) -> bool:
        return budget.should_flush(
            used,
            talk.room.budget,
            flushed_in_cycle=talk.session.is_flushed,
            enabled=self._config.context.enable_memory_flush,
        )

    async def _flush_ended(self, session: Session, *, quietly: bool) -> None:
        if not self._config.context.enable_memory_flush or not session.turns:
            return
        if not session.sender:
            return
        conversation = self._directory.of(session.facts)
        await self._flush(await self.talk(session, conversation), quietly=quietly)

    async def _flush(self, talk: Talk, *, quietly: bool = False, early: bool = False) -> None:
        """Save what was said since the last time, and note that this cycle has done so.

        If it fails it is left to the next cycle, or to the end of the conversation. What was
        forgotten meanwhile it may have read: then it begins again, with what is left. And when the
        conversation is over by then, nobody else will save what was said meanwhile. What is done
        `early`, or at an end that may be taken back, leaves much of the cycle to be saved.
        """
        while True:
            talk = await self.now(talk)
            if talk.conversation.key != talk.session.key:
                return  # by now this is somebody else's
            async with self._notes.watching(talk.conversation.view) as watch:
                talk = replace(talk, live=await self._live.get(talk.session.id))
                lines = self._unsaved(talk)
                if not any(line.message.begins_turn for line in lines):
                    return
                counts = not early and not talk.session.ended_by
                log.info("memory.flush.start", session=talk.session.id)
                async with self._shown(talk, "saving") as ended:
                    flushed = await self._flusher.flush(self._flush_request(talk, lines, watch))
                    ended.state = "failed" if flushed.error else "done"
                    if quietly or not self._may_tell(talk):  # else a message says so
                        ended.where = listed(flushed.saved)
            log.info("memory.flush.end", session=talk.session.id, saved=len(flushed.saved))
            if watch.words:
                continue
            looked_to = number_of(lines[-1].entry)
            await self._note_flush(talk, flushed, looked_to, quietly=quietly, counts=counts)
            talk = await self.now(talk)
            if flushed.error is not None or not talk.session.ended_by:
                return

    def _unsaved(self, talk: Talk) -> list[Line]:
        """What was said since memory was saved; nothing where several people are taken for one."""
        session = talk.session
        if talk.conversation.sender_after(session.sender) == MANY:
            return []  # what one person said is not for another one's memory
        said = talk.live.conversation.lines
        return [line for line in said if number_of(line.entry) > session.flushed_to]

    async def _note_flush(
        self, talk: Talk, flushed: Flushed, looked_to: int, *, quietly: bool, counts: bool
    ) -> None:
        """Note that memory was saved, and tell where; `looked_to` is the last entry looked at.

        `counts` says that it is what is done once in each cycle.
        """
        session, language = talk.session, talk.conversation.language
        address = talk.conversation.address
        self._metrics.flushes.labels("failed" if flushed.error else "done").inc()
        where = listed(flushed.saved)
        told = bool(where) and not quietly and self._may_tell(talk)
        saved_to = session.flushed_to if flushed.error else looked_to
        failed = flushed.error is not None and not where
        now = self._clock()

        def work(draft: Draft) -> None:
            current = store.get(draft.tx, session.id)
            if current is None:
                return
            store.change(
                draft.tx,
                session.id,
                memory_flush_at=current.memory_flush_at if failed else now,
                flushed_to=saved_to,
                memory_flush_compaction_count=current.compaction_count
                if counts
                else current.memory_flush_compaction_count,
                saved=", ".join(part for part in (current.saved, where) if part),
            )
            draft.touch(session.id)
            if told:
                words = text(language, "notice.saved", count=len(flushed.saved), where=where)
                draft.tell(session.id, address, words, "notice", language=language)

        await self._ledger.write(now, work, must=True)

    def _flush_request(self, talk: Talk, lines: Sequence[Line], watch: Watch) -> FlushRequest:
        conversation, room = talk.conversation, talk.room
        return FlushRequest(
            model=room.model,
            model_name=room.name,
            messages=tuple(line.message for line in lines),
            context=ToolContext(
                view=conversation.view,
                session_id=talk.session.id,
                now=datetime.fromtimestamp(self._clock() / 1000, conversation.zone),
                window=room.window.tokens,
                watch=watch,
            ),
            language=conversation.language,
            max_tokens=room.budget.output,
            timeout=self._config.context.memory_flush_timeout,
        )

    # --- making room ------------------------------------------------------------------------------

    def _should_compact(self, talk: Talk, used: int) -> bool:
        """Whether it is full, and not only as full as when the last summary failed."""
        session = talk.session
        is_full = budget.should_compact(used, talk.shares, held=bool(session.held))
        return is_full and used > self._failed_at.get(session.id, 0) * GROWTH

    def _plan(self, talk: Talk, *, wished: bool = False, forced: bool = False) -> Plan | None:
        """What would become a summary; a person who wishes it means all but the last turns.

        When the window is full of what looks like little, less stays whole: `forced`, one turn.
        """
        conversation, room = talk.live.conversation, talk.room
        turns = self._config.context.compaction.keep_turns
        tries = [(0, turns)] if wished else [(room.budget.keep_recent, turns), (0, turns)]
        for keep_recent, keep_turns in [*tries, (0, 1)] if forced else tries:
            plan = compaction.plan(
                conversation.shown,
                conversation.sizes,
                # In the tokens that messages are weighed in, not in the model's own.
                window=int(room.window.tokens / room.factor),
                keep_recent=int(keep_recent / room.factor),
                keep_turns=keep_turns,
            )
            if plan is not None:
                return plan
        return None

    async def _compact(
        self, talk: Talk, *, focus: str = "", wished: bool = False, forced: bool = False
    ) -> Outcome:
        """Save memory if this cycle has not, then let a summary stand for the older part.

        `wished` by the person, or `forced` because the model takes no more.
        """
        if self._config.context.enable_memory_flush and not talk.session.is_flushed:
            # It goes on whether that works or not.
            flush = self._flush(talk, quietly=True, early=wished)
            await asyncio.wait({self._begin(talk.session.id, "flush", flush)})
        talk = await self.now(talk)
        plan = self._plan(talk, wished=wished, forced=forced)
        if plan is None:
            return "nothing"
        session = talk.session
        log.info("compaction.start", session=session.id)
        before = self.fill(talk)
        tells = wished or self._may_tell(talk)
        try:
            async with self._shown(talk, "summarising") as ended:
                made = await self._summarised(talk, plan, focus, last_resort=forced)
                ended.state = "done"
        except CompactionFailed as error:
            log.warning("compaction.failed", session=session.id, error=type(error).__name__)
            self._metrics.compactions.labels("failed").inc()
            self._failed_at[session.id] = before.used
            if tells or forced:
                await self._tell_failure(talk)
            return "failed"
        again = bool(session.held) and not wished
        done = await self._commit(
            # That nothing is left of them but a note is told in any case.
            *(talk, session, plan, made, before),
            again=again,
            tells=tells or made.plain,
        )
        log.info(
            "compaction.end", session=session.id, messages=plan.cut, plain=made.plain, done=done
        )
        self._metrics.compactions.labels("done" if done else "dropped").inc()
        self._failed_at.pop(session.id, None)
        if wished and not done:
            await self._tell_failure(talk)
        return "done" if done else "failed"

    async def _summarised(
        self, talk: Talk, plan: Plan, focus: str, *, last_resort: bool
    ) -> Compacted:
        conversation, room = talk.live.conversation, talk.room
        request = CompactRequest(
            model=room.model,
            model_name=room.name,
            language=talk.conversation.language,
            messages=tuple(conversation.shown[: plan.cut]),
            sizes=tuple(conversation.sizes[: plan.cut]),
            window=room.window.tokens,
            previous=conversation.summary,
            focus=focus,
            timeout=self._config.context.compaction.timeout,
            last_resort=last_resort,
        )
        return await self._compactor.compact(request)

    async def _commit(
        self,
        talk: Talk,
        session: Session,
        plan: Plan,
        compacted: Compacted,
        before: Fill,
        *,
        again: bool,
        tells: bool,
    ) -> bool:
        """Let the summary count, and tell; False when the conversation is another one by now.

        It is made `again` when the one before was taken back and there is no room left.
        `session` is the row that the summary was begun with: since then the person may have taken
        a summary back, or had something forgotten that this one may tell of.
        """
        conversation, summary = talk.live.conversation, compacted.summary
        first_kept = conversation.lines[plan.cut].entry
        kept = sum(conversation.sizes[plan.cut :])
        after = round((before.fixed + kept + talk.room.count(summary)) * talk.room.factor)
        summarised = (line.message.origins for line in conversation.lines[: plan.cut])
        origin = mixture(frozenset[Whose]({conversation.summary_origin}).union(*summarised))
        made = Compaction(summary, first_kept, before.used, plan.cut, session.compaction, origin)
        language = talk.conversation.language
        address = talk.conversation.address

        def work(draft: Draft) -> bool:
            current = store.get(draft.tx, session.id)
            if current is None or current.compaction != session.compaction:
                return False
            if hiding.marks(draft.tx, session.id) != talk.live.hidden:
                return False
            entry = draft.append(session.id, [compactions.entry_of(made)])[-1]
            compactions.apply(draft.tx, session.id, entry, after)
            words = _receipt(language, compacted, before, after, saved=current.saved, again=again)
            if tells and not current.ended_by:
                draft.tell(
                    session.id,
                    address,
                    words,
                    "receipt",
                    language=language,
                    extra=undo_button(language),
                )
            else:
                draft.append(session.id, [NewEntry("notice", "assistant", words)])
            draft.touch(session.id)
            return True

        done = (await self._ledger.write(self._clock(), work, must=True)).result
        if not done or not conversation.compact(summary, first_kept, origin):
            self._live.forget(session.id)
        self._live.settle(talk.live)
        return done

    async def _tell_failure(self, talk: Talk) -> None:
        language = talk.conversation.language
        words = text(language, CompactionFailed.key)
        address = talk.conversation.address
        await self._ledger.write(
            self._clock(),
            lambda draft: draft.tell(talk.session.id, address, words, "notice", language=language),
            must=True,
        )

    # ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _shown(
        self, talk: Talk, kind: Literal["saving", "summarising"]
    ) -> AsyncGenerator[_Ended]:
        """Let whoever watches the conversation see that something is done for it, and its end."""
        address = talk.conversation.address
        channel = self._channels.get(address.channel)
        ended = _Ended()
        if channel is None or not channel.capabilities.activities:
            yield ended
            return
        if not isinstance(channel, Activities):
            raise TypeError("a channel declares activities and shows none")
        name = f"{talk.session.id}.{kind}"
        await channel.activity(address, Activity(name, kind, "begun"))
        try:
            yield ended
        finally:
            await channel.activity(address, Activity(name, kind, ended.state, ended.where))

    def _may_tell(self, talk: Talk) -> bool:
        chosen = talk.session.notices
        return notices.wanted(self.wish(talk.conversation), chosen, talk.session.chat_type)

    def _begin(
        self, session_id: str, what: str, work: Coroutine[Any, Any, Any]
    ) -> asyncio.Task[Any]:
        """Run work in a task, or join the one that does the same for this session already."""
        key = (session_id, what)
        running = self._tasks.get(key)
        if running is not None:
            work.close()
            return running
        task = asyncio.create_task(self._bounded(what, work))
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._finished(key, done))
        return task

    async def _bounded(self, what: str, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            async with self._slots[what]:
                return await work
        finally:
            work.close()  # when it was cancelled before it began

    def _finished(self, key: tuple[str, str], task: asyncio.Task[Any]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("aftercare.failed", what=key[1], error=type(error).__name__, exc_info=error)


async def _is_done(task: asyncio.Task[Any]) -> bool:
    """Whether a compaction has made room, once it has ended."""
    await asyncio.wait({task})
    return not task.cancelled() and task.exception() is None and task.result() == "done"


def undo_button(language: str) -> Extra:
    """The button below whatever can be taken back."""
    return Extra((Button(text(language, "button.undo"), "/undo"),))


def _receipt(
    language: str, made: Compacted, before: Fill, after: int, *, saved: str, again: bool
) -> str:
    """What became of the older part, and why it was done `again`, if it was."""
    key = "receipt.plain" if made.plain else "receipt.compacted"
    words = text(
        language,
        f"{key}_saved" if saved else key,
        messages=made.messages,
        before=report.grouped(before.used),
        after=report.grouped(after),
        where=saved,
    )
    return f"{text(language, 'receipt.again')}\n{words}" if again else words
