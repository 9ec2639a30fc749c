"""Asking the model that does chores what could be done with notes at night.

What it answers is only read by `bot.memory.night.proposals`; when it fails there is no answer, and
the plain rules do what they do.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final

import structlog

from bot.agent.limits import ModelLimits
from bot.agent.meter import Meter
from bot.agent.models import Request, TextDelta
from bot.clock import Clock
from bot.config import OFFLINE
from bot.context import tokens
from bot.errors import ConfidantError
from bot.identity import Conversation
from bot.memory.night.proposals import SYSTEM
from bot.messages import Message, Text
from bot.money.counts import Spent
from bot.sessions.store import Session
from bot.unit_of_work import Committer
from bot.upkeep.active_session import ActiveSessions

MOST_TOKENS: Final = 2_000  # of an answer
SECONDS: Final = 120.0  # for it

log = structlog.get_logger(__name__)


class NightModel:
    """Shows a model entries of somebody's notes, and counts what that costs as theirs."""

    def __init__(self, sessions: ActiveSessions, committer: Committer, clock: Clock) -> None:
        self._sessions = sessions
        self._committer = committer
        self._clock = clock

    async def propose(self, session: Session, conversation: Conversation, listed: str) -> str:
        """What a model answers to some entries; empty when it fails, or is the offline one.

        Raises:
            StorageError: what it used could not be counted.
        """
        meter = Meter()
        chosen = await self._sessions.limits.of(session.model)
        limits = await self._sessions.for_chores(chosen, conversation, meter)
        if limits.name == OFFLINE:
            return ""

        def spent() -> list[Spent]:
            who = conversation.person
            return [Spent(who, session.id, name, "night", u) for name, u in meter.used.items()]

        async with self._sessions.allowance.chore(conversation):
            async with self._committer.counting(self._clock, spent):
                reply = await _asked(limits, conversation.language, listed, meter)
            await self._committer.count(self._clock(), spent())
        return reply


async def _asked(limits: ModelLimits, language: str, listed: str, meter: Meter) -> str:
    request = Request(
        model=limits.name,
        system=SYSTEM,
        messages=(Message("user", (Text(listed),)),),
        max_tokens=MOST_TOKENS,
        language=language,
        purpose="night",
        on_usage=meter.hear,
        on_asked=meter.asks,
    )
    meter.asks(limits.name)
    written: list[str] = []
    try:
        async with asyncio.timeout(SECONDS), aclosing(limits.model.stream(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    written.append(event.text)
                else:
                    meter.replied(event)
                    return event.message.text
    except BaseException as error:
        sent = tokens.estimate(SYSTEM) + tokens.estimate(listed)
        meter.broke_off(error, sent=sent, written=tokens.estimate("".join(written)))
        if not isinstance(error, (ConfidantError, TimeoutError)):
            raise
        log.warning("memory.night_model_failed", error=type(error).__name__)
    return ""
