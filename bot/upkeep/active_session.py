"""Sessions that are talked in now: each with whose it is and the limits of its model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from bot.agent.model_limits import LimitsResolver, ModelLimits
from bot.agent.models import Purpose, Request
from bot.agent.models.speed import time_limit, when_free
from bot.agent.session_cache import CachedSession, SessionCache, name_of
from bot.agent.turn import Meter
from bot.channel import Activity
from bot.config import OFFLINE, ContextConfig
from bot.context import tokens
from bot.context.budget import Budget, percent_full
from bot.core import Core
from bot.delivery.delivery import LiveSigns
from bot.errors import ModelTimeout
from bot.identity import Conversation
from bot.messages import Message, Text
from bot.money import Allowance, Spent, spent_of
from bot.sessions.store import Session
from bot.shares import FLUSHES, SUMMARIES, Pool
from bot.unit_of_work import Committer

# What is due for a conversation, from how full it is and what was done for it before. Pure.

CHORE_TOKENS = 2_000  # of an answer, with what a model thinks before it
CHORE_SECONDS = 120.0  # for it, by a model of usual speed
GROWTH = 1.05  # how much fuller a conversation gets before a compaction that failed is tried again

Chosen = Literal["", "on", "off", "later"]
"""A person's choice about notices in a conversation; "later" is "off" for this one only."""


@dataclass(frozen=True, slots=True)
class Due:
    """The work due: save memory, then summarise the older part; and the level to tell.

    What is made room in needs no notice: the receipt tells of it.
    """

    flush: bool = False
    compaction: bool = False
    notice: int | None = None


def due_upkeep(
    session: Session,
    used: int,
    shares: Budget,
    config: ContextConfig,
    *,
    is_told: bool,
    failed_at: int = 0,
) -> Due:
    """Decide what is due when the window of a session holds `used` tokens.

    Memory is saved once in each cycle, from `flush_from` on. Room is made above `compact_above`;
    when this cycle's compaction was taken back, only above what can still be sent; and after one
    that failed with `failed_at` tokens, only when it is fuller by a twentieth. Of the levels the
    highest that is reached is told, once, and none where room is made: that is told by itself. Of a
    session that is over, only memory is still to be saved.
    """
    saves = config.enable_memory_flush
    if session.ended_by:
        return Due(flush=saves)
    full = shares.hard if session.held else shares.compact_above
    percent = percent_full(used, shares)
    level = max((each for each in config.notice_percent if 0 < each <= percent), default=0)
    makes_room = used > full and used > failed_at * GROWTH
    return Due(
        flush=saves and not session.is_flushed and used >= shares.flush_from > 0,
        compaction=makes_room,
        notice=level if is_told and level > session.told and not makes_room else None,
    )


def is_told(conversation: Conversation, chosen: Chosen = "") -> bool:
    """True when people are told there how full it gets.

    What was `chosen` in the session comes first, then the channel's settings, then the
    configuration's; "auto" means in direct chats.
    """
    if chosen:
        return chosen == "on"
    config = conversation.config.context
    wish = conversation.settings.notices or config.notices
    return wish == "on" or (wish == "auto" and conversation.is_direct)


Kind = Literal["flush", "compaction", "title"]


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
    def is_theirs(self) -> bool:
        """True while it belongs to whom it belonged to when its session began."""
        return self.conversation.key == self.cached.session.key

    @property
    def sender(self) -> str:
        """The writer of what was said last: one account, or `MANY`."""
        session = self.cached.session
        return self.conversation.sender_after(session.origin, session.person)

    @property
    def is_told(self) -> bool:
        """True when its person wants to hear of its upkeep."""
        return is_told(self.conversation, self.cached.session.notices)

    def spent(self, purpose: Purpose, meter: Meter) -> tuple[Spent, ...]:
        """The usage of each model for it, as it is counted: for whoever wrote last."""
        return spent_of(meter, self.conversation.person, self.cached.session.id, purpose)

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
        core: Core,
        cache: SessionCache,
        limits: LimitsResolver,
        allowance: Allowance,
        committer: Committer,
    ) -> None:
        self.cache = cache
        self.database = core.database
        self.limits = limits
        self.resolver = core.resolver
        self.allowance = allowance
        self._committer = committer
        shares = {"flush": FLUSHES, "compaction": SUMMARIES, "title": SUMMARIES}
        self._pools = {kind: Pool(share) for kind, share in shares.items()}

    async def of(self, session_id: str, conversation: Conversation) -> ActiveSession:
        """A session as it is now, for something that was said in it.

        Raises:
            StorageError: it cannot be read.
        """
        cached = await self.cache.get(session_id)
        limits = await self.limits.of(cached.session.model, conversation.config.agent)
        return ActiveSession(cached, conversation, limits)

    async def resumed(self, session: Session) -> ActiveSession:
        """A session with no message at hand, for whoever wrote in it last.

        Raises:
            StorageError: it cannot be read.
        """
        return await self.of(session.id, self.resolver.of(session.origin))

    def chore(self, kind: Kind, payer: Conversation) -> AbstractAsyncContextManager[None]:
        """Wait until work may begin that `payer` is charged for."""
        return self._pools[kind].place(payer.person)

    async def ask_chores(
        self,
        session: Session,
        payer: Conversation,
        purpose: Literal["title", "night"],
        system: str,
        words: str,
    ) -> str:
        """Return the chores model's answer to one question; empty if that is the offline one.

        It is asked once no person needs it, and `payer` is charged.

        Raises:
            ModelError: it failed, or took too long.
            StorageError: the session cannot be read, or the usage not be stored.
        """
        agent = payer.config.agent
        limits = await self.limits.for_chores(await self.limits.of(session.model, agent), agent)
        if limits.name == OFFLINE:
            return ""
        request = Request(
            model=limits.name,
            system=system,
            messages=(Message("user", (Text(words),)),),
            max_tokens=CHORE_TOKENS,
            language=payer.language,
            purpose=purpose,
        )
        prompt = tokens.estimate(system) + tokens.estimate(words)
        seconds = limits.seconds(CHORE_SECONDS, CHORE_SECONDS, prompt=prompt, answer=CHORE_TOKENS)

        async def ask(meter: Meter) -> str:
            async with time_limit(seconds):
                return (await meter.ask(limits.model, request)).message.text

        account = self.allowance.account(payer)
        async with self._committer.charging(account, session.id, purpose) as meter:
            try:
                return await when_free(lambda: ask(meter))
            except TimeoutError as error:
                raise ModelTimeout from error

    async def now(self, active: ActiveSession) -> ActiveSession:
        """The same as it is now: it may have been read again since, or be somebody else's.

        Its model's window may have been learned to be smaller as well.

        Raises:
            StorageError: it cannot be read.
        """
        cached = await self.cache.get(active.cached.session.id)
        conversation = self.resolver.renewed(active.conversation)
        limits = await self.limits.of(cached.session.model, conversation.config.agent)
        return ActiveSession(cached, conversation, limits)


@dataclass(slots=True)
class Ending:
    """The end of something that was shown, as in `Activity`; failed unless it says otherwise."""

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
