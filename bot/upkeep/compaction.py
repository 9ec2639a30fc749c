"""Compaction: a summary takes the place of the older part of a conversation.

`Upkeep` begins it; `summary` has the summary written, `bot.context.quality` checks it, and
`bot.sessions.compactions` is how it is stored.

It replaces what the model sees, never what was said. Turns only ever add to a conversation's end,
so it can be put in at any time; when it cannot, the history stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

import structlog
from cachetools import LRUCache

from bot.channel import Button
from bot.config import SUMMARY_SECONDS
from bot.context import budget
from bot.context.history import can_begin, turn_starts
from bot.core import Core
from bot.delivery.delivery import LiveSigns
from bot.delivery.outbox import Extra
from bot.errors import CompactionFailed
from bot.i18n import text
from bot.messages import Message, Whose, mixture
from bot.money import LimitReached, Spent, unsummarised
from bot.sessions import compactions, store
from bot.sessions.compactions import Compaction
from bot.sessions.entries import NewEntry
from bot.sessions.store import Session
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep.active_session import ActiveSession, ActiveSessions, Fill, shown
from bot.upkeep.summary import MOST_TOKENS, Summariser, Summary, SummaryRequest

Outcome = Literal["done", "nothing", "failed"]

Why = Literal["full", "wished", "forced"]
"""It is full, its person wishes it, or the model takes no more."""

KEPT_SHARE = 0.5  # of the window; when the last turns are more than this, fewer stay whole
SUMMARIES = 2  # of parts and then of those, or of the same once more
LEAST_TOKENS = 200  # a summary of less than this would be no shorter
MAX_FAILED = 10_000  # conversations whose failed compaction is remembered

log = structlog.get_logger(__name__)


def where_to_cut(
    messages: Sequence[Message],
    sizes: Sequence[int],
    *,
    window: int,
    keep_recent: int,
    keep_turns: int,
) -> int | None:
    """The number of messages to summarise; None when there is nothing to. Pure.

    A cut is always before something a person said, so that no tool result loses its call.

    The last `keep_turns` turns stay whole, and more of them as long as they come to no more than
    `keep_recent` tokens (0: no more than those turns). When they alone would fill half of the
    window, fewer stay, but at least one.
    """
    cuts = [n for n, message in enumerate(messages) if can_begin(message)]
    turns = turn_starts(messages)
    if not turns:
        return None
    # What each message and all after it come to; one more, 0, for the end.
    tails = [*accumulate(reversed(sizes), initial=0)][::-1]
    found = turns[max(0, len(turns) - max(1, keep_turns))]
    found = min([found, *(n for n in turns if tails[n] <= keep_recent)])
    most = int(window * KEPT_SHARE)
    if tails[found] > most:  # later: between turns, else anywhere, else before the last turn
        small = (n for n in (*turns, *cuts) if n > found and tails[n] <= most)
        found = next(small, max(found, turns[-1]))
    return found if tails[0] - tails[found] >= LEAST_TOKENS else None


class CompactionService:
    """Summarises the older part of conversations, and tells of it."""

    def __init__(
        self,
        core: Core,
        *,
        sessions: ActiveSessions,
        committer: Committer,
        summariser: Summariser,
        live: LiveSigns,
    ) -> None:
        self._sessions = sessions
        self._committer = committer
        self._summariser = summariser
        self._live = live
        self._core = core
        self.failed_at: LRUCache[str, int] = LRUCache(MAX_FAILED)
        self.running: set[str] = set()  # the sessions of which a summary is being written

    def cut(self, active: ActiveSession, why: Why = "full") -> int | None:
        """The number of messages that would be summarised; None when there is nothing to.

        A person who wishes it means all but the last turns.

        When the window is full of what looks like little, less stays whole: `forced`, one turn.
        """
        history, limits = active.cached.history, active.limits
        turns = active.conversation.config.context.compaction.keep_turns
        tries = (
            [(0, turns)] if why == "wished" else [(limits.budget.keep_recent, turns), (0, turns)]
        )
        for keep_recent, keep_turns in [*tries, (0, 1)] if why == "forced" else tries:
            cut = where_to_cut(
                history.shown,
                history.sizes,
                # In the tokens that messages are weighed in, not in the model's own.
                window=int(limits.window.tokens / limits.factor),
                keep_recent=int(keep_recent / limits.factor),
                keep_turns=keep_turns,
            )
            if cut is not None:
                return cut
        return None

    async def run(self, active: ActiveSession, why: Why, focus: str = "") -> Outcome:
        """Let a summary stand for the older part; `focus` is what its person wants kept above all.

        What a turn waits for is forced, and waits for nobody's chores.

        Raises:
            StorageError: the session cannot be read.
        """
        if why == "forced":
            return await self._run(active, why, focus)
        async with self._sessions.chore("compaction", active.conversation):
            return await self._run(active, why, focus)

    async def _run(self, active: ActiveSession, why: Why, focus: str) -> Outcome:
        active = await self._sessions.now(active)
        cut = self.cut(active, why)
        if cut is None:
            return "nothing"
        self.running.add(active.cached.session.id)
        try:
            return await self._compact(active, cut, why, focus)
        finally:
            self.running.discard(active.cached.session.id)

    async def _compact(self, active: ActiveSession, cut: int, why: Why, focus: str) -> Outcome:
        session = active.cached.session
        log.info("compaction.start", session=session.id)
        before = active.fill()
        request = await self._request(active, cut, why, focus)
        tells = why == "wished" or active.is_told
        counting = self._committer.counting(
            self._core.clock, lambda: active.spent("summary", request.meter)
        )
        try:
            async with counting, shown(self._live, active, "summarising") as ending:
                made = await self._summariser.summarise(request)
                ending.state = "done"
        except CompactionFailed as error:
            log.warning("compaction.failed", session=session.id, error=type(error).__name__)
            self._core.metrics.compactions.labels("failed").inc()
            self.failed_at[session.id] = before.used
            if tells or why == "forced":
                await self._tell_failed(active, error)
            return "failed"
        again = bool(session.held) and why != "wished"
        # That nothing is left of them but a note is told in any case.
        tells = tells or made.plain
        spent = active.spent("summary", request.meter)
        done = await self._commit(
            active, session, cut, made, before, again=again, tells=tells, spent=spent
        )
        log.info("compaction.end", session=session.id, messages=cut, plain=made.plain, done=done)
        self._core.metrics.compactions.labels("done" if done else "dropped").inc()
        self.failed_at.pop(session.id, None)
        if why == "wished" and not done:
            await self._tell_failed(active, CompactionFailed())
        return "done" if done else "failed"

    async def _request(
        self, active: ActiveSession, cut: int, why: Why, focus: str
    ) -> SummaryRequest:
        history = active.cached.history
        agent = active.conversation.config.agent
        limits = await self._sessions.limits.for_chores(active.limits, agent)
        return SummaryRequest(
            model=limits.model,
            model_name=limits.name,
            language=active.conversation.language,
            messages=tuple(history.shown[:cut]),
            sizes=tuple(history.sizes[:cut]),
            window=limits.window.tokens,
            previous=history.summary,
            focus=focus,
            timeout=limits.seconds(
                active.conversation.config.context.compaction.timeout,
                SUMMARY_SECONDS,
                prompt=SUMMARIES * sum(history.sizes[:cut]),
                answer=SUMMARIES * MOST_TOKENS,
            ),
            last_resort=why == "forced",
            meter=self._sessions.allowance.account(active.conversation),
        )

    async def _commit(
        self,
        active: ActiveSession,
        session: Session,
        cut: int,
        compacted: Summary,
        before: Fill,
        *,
        again: bool,
        tells: bool,
        spent: Sequence[Spent],
    ) -> bool:
        """Let the summary count, and tell; False when the conversation is another one by now.

        It is made `again` when the one before was taken back and there is no room left.
        `session` is the row that the summary was begun with: since then the person may have taken
        a summary back, or had something forgotten that this one may tell of.
        """
        history, summary = active.cached.history, compacted.summary
        first_kept = history.lines[cut].entry
        kept = sum(history.sizes[cut:])
        after = round((before.fixed + kept + active.limits.count(summary)) * active.limits.factor)
        summarised = (line.message.origins for line in history.lines[:cut])
        origin = mixture(frozenset[Whose]({history.summary_origin}).union(*summarised))
        made = Compaction(summary, first_kept, before.used, cut, session.compaction, origin)
        language, address = active.conversation.language, active.conversation.address
        key = "receipt.plain" if compacted.plain else "receipt.compacted"

        now = self._core.clock()

        def work(unit: UnitOfWork) -> bool:
            unit.count(spent)
            current = store.get(unit.tx, session.id)
            if current is None or current.compaction != session.compaction:
                return False
            if (
                store.hidden_count(unit.tx, session.id, since=current.first_seq)
                != active.cached.hidden
            ):
                return False
            entry = unit.append(session.id, [compactions.entry_of(made)])[-1]
            compactions.apply(unit.tx, session.id, entry, after)
            words = text(
                language,
                f"{key}_saved" if current.saved else key,
                messages=cut,
                before=budget.grouped(before.used),
                after=budget.grouped(after),
                where=current.saved,
            )
            if again:
                words = f"{text(language, 'receipt.again')}\n{words}"
            if tells and not current.ended_by:
                undo = undo_button(language)
                unit.say(
                    address, words, "receipt", language=language, noted_in=session.id, extra=undo
                )
            else:
                unit.append(session.id, [NewEntry("notice", "assistant", words)])
            unit.refresh(session.id)
            return True

        done = (await self._committer.commit(now, work, until_stored=True)).result
        if not done or not history.compact(summary, first_kept, origin):
            self._sessions.cache.forget(session.id)
        self._sessions.cache.settle(active.cached)
        return done

    async def _tell_failed(self, active: ActiveSession, error: CompactionFailed) -> None:
        """Tell that there is no summary, and from when on there may be one."""
        here, noted_in = active.conversation, active.cached.session.id
        language, address, words = here.language, here.address, text(here.language, error.key)
        if isinstance(error.__cause__, LimitReached):
            words = unsummarised(language, error.__cause__.limit, here)
        await self._committer.commit(
            self._core.clock(),
            lambda unit: unit.say(address, words, "notice", language=language, noted_in=noted_in),
            until_stored=True,
        )


def undo_button(language: str) -> Extra:
    """The button below whatever can be taken back."""
    return Extra((Button(text(language, "button.undo"), "/undo"),))
