"""Sessions that are talked in now: each with whose it is and the limits of its model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Literal

from bot.agent.limits import LimitsResolver, ModelLimits
from bot.agent.models import Purpose, Usage
from bot.agent.prefix import name_of
from bot.agent.session_cache import CachedSession, SessionCache
from bot.agent.turn import Meter
from bot.channel import Activity
from bot.context import budget
from bot.context.budget import Budget
from bot.delivery.live import LiveSigns
from bot.identity import Conversation, ConversationResolver
from bot.money.allowance import Allowance, CappedModel
from bot.money.counts import Spent
from bot.sessions.store import Session
from bot.storage import Database
from bot.upkeep import policy

AT_ONCE = 8  # conversations that are saved, or compacted, at the same time

Kind = Literal["flush", "compaction"]


@dataclass(frozen=True, slots=True)
class Fill:
    """The tokens in a session's window, and those of what its requests begin with (`fixed`)."""

    used: int
    fixed: int


@dataclass(frozen=True, slots=True)
class ActiveSession:
    """A session in memory, whose conversation it is now, and the limits of its model."""

    cached: CachedSession
    conversation: Conversation
    limits: ModelLimits

    @property
    def shares(self) -> Budget:
        """The shares of its window; other ones once its compaction was taken back."""
        return (
            budget.after_undo(self.limits.budget)
            if self.cached.session.held
            else self.limits.budget
        )

    @property
    def is_theirs(self) -> bool:
        """True while it belongs to whom it belonged to when its session began."""
        return self.conversation.key == self.cached.session.key

    @property
    def sender(self) -> str:
        """Who writes in it, with what was said last: one account, or `MANY`."""
        session = self.cached.session
        return self.conversation.sender_after(session.origin, session.person)

    @property
    def is_told(self) -> bool:
        """True when its person wants to hear of its upkeep."""
        return policy.is_told(self.conversation, self.cached.session.notices)

    def spent(self, purpose: Purpose, used: Mapping[str, Usage]) -> tuple[Spent, ...]:
        """What was used for it of each model, as it is counted: by whoever wrote last."""
        session_id, person = self.cached.session.id, self.conversation.person
        return tuple(
            Spent(person, session_id, model, purpose, usage) for model, usage in used.items()
        )

    def fill(self) -> Fill:
        """The tokens in its window, as its next message's view sees it."""
        cached, limits = self.cached, self.limits
        name = cached.snapshot_of(name_of(self.conversation.view))
        prefix = cached.snapshots.get(name)
        if name not in cached.fixed and prefix is not None:
            cached.fixed[name] = limits.count(prefix.system) + limits.count(prefix.tools)
        fixed = cached.fixed.get(name, 0)
        return Fill(cached.history.used(fixed, limits.factor), fixed)


class ActiveSessions:
    """Finds them: sessions in memory, with what counts of people and models now."""

    def __init__(
        self,
        cache: SessionCache,
        database: Database,
        limits: LimitsResolver,
        resolver: ConversationResolver,
        allowance: Allowance,
    ) -> None:
        self.cache = cache
        self.database = database
        self.limits = limits
        self.resolver = resolver
        self.allowance = allowance
        self._slots: Mapping[Kind, asyncio.Semaphore] = {
            "flush": asyncio.Semaphore(AT_ONCE),
            "compaction": asyncio.Semaphore(AT_ONCE),
        }

    async def of(self, session_id: str, conversation: Conversation) -> ActiveSession:
        """A session as it is now, for something that was said in it.

        Raises:
            StorageError: it cannot be read.
        """
        cached = await self.cache.get(session_id)
        return ActiveSession(cached, conversation, await self.limits.of(cached.session.model))

    async def resumed(self, session: Session) -> ActiveSession:
        """A session with no message at hand, for whoever wrote in it last.

        Raises:
            StorageError: it cannot be read.
        """
        return await self.of(session.id, self.resolver.of(session.origin))

    @asynccontextmanager
    async def chore(self, kind: Kind, payer: Conversation) -> AsyncGenerator[None]:
        """Wait until work may begin that `payer` is charged for.

        Those who wait for another chore of their own take no place from others.
        """
        async with self.allowance.chore(payer), self._slots[kind]:
            yield

    async def for_chores(
        self, limits: ModelLimits, payer: Conversation, meter: Meter
    ) -> ModelLimits:
        """The limits of the model that does chores, whose calls `payer` is charged for."""
        chores = await self.limits.for_chores(limits)
        return replace(chores, model=CappedModel(chores.model, self.allowance, payer, meter))

    async def now(self, active: ActiveSession) -> ActiveSession:
        """The same as it is now: it may have been read again since, or be somebody else's.

        Its model's window may have been learned to be smaller as well.

        Raises:
            StorageError: it cannot be read.
        """
        cached = await self.cache.get(active.cached.session.id)
        return replace(
            active,
            cached=cached,
            conversation=self.resolver.renewed(active.conversation),
            limits=await self.limits.of(cached.session.model),
        )


@dataclass(slots=True)
class Ending:
    """How something that was shown has ended, as in `Activity`; failed unless it says otherwise."""

    state: Literal["done", "failed"] = "failed"
    where: str = ""


@asynccontextmanager
async def shown(
    live: LiveSigns, active: ActiveSession, kind: Literal["saving", "summarising"]
) -> AsyncGenerator[Ending]:
    """Let whoever watches a conversation see that something is done for it, and its end."""
    address = active.conversation.address
    ending = Ending()
    if not live.shows_activities(address):
        yield ending
        return
    name = f"{active.cached.session.id}.{kind}"
    await live.activity(address, Activity(name, kind, "begun"))
    try:
        yield ending
    finally:
        await live.activity(address, Activity(name, kind, ending.state, ending.where))
