"""Asks the counts whether somebody may use a model, and notes what was told of that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from bot.agent.models import Reply, Request, TextDelta, Usage, Writer
from bot.agent.turn import Meter, added
from bot.clock import Clock
from bot.config import OFFLINE, LimitsConfig
from bot.errors import LimitReached
from bot.identity import Conversation, ConversationResolver
from bot.identity.routing import OWNER
from bot.money import counts, limits
from bot.money.counts import EVER
from bot.money.limits import Balance, Limit, Period, Standing, period
from bot.money.prices import Prices
from bot.storage import Database, Transaction

SETTLED_MS: Final = 60 * 60_000  # nothing is counted for a time that is so long ago
UNLIMITED: Final = Balance()

_Settled = tuple[int, dict[str, Usage]]


class Allowance:
    """What people may still use, by `[limits]`; where none are configured, nothing is asked."""

    def __init__(
        self, database: Database, resolver: ConversationResolver, prices: Prices, clock: Clock
    ) -> None:
        self._database = database
        self._resolver = resolver
        self._clock = clock
        # What everybody used from the beginning of a period to some time that is settled.
        self._settled: dict[int, _Settled] = {}
        self._chores: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.prices = prices

    async def of(self, conversation: Conversation, model: str = "") -> Balance:
        """What holds for whoever speaks in a conversation, and for a turn with a model.

        Raises:
            StorageError: it cannot be read.
        """
        if model == OFFLINE or not self._is_limited(conversation):
            return UNLIMITED
        person, snapshot = conversation.person, self._resolver.now
        own, now = self._own(person), self._clock()
        asked = [(limit, period(limit.span, now, snapshot.zone_of(person))) for limit in own]

        def look(tx: Transaction) -> tuple[tuple[Standing, ...], dict[int, _Settled]]:
            in_all, settled = self._stand_in_all(tx, now)
            return (*self._stand(tx, person, asked), *in_all), settled

        found, self._settled = await self._database.read(look)
        return Balance(found)

    @asynccontextmanager
    async def chore(self, conversation: Conversation) -> AsyncGenerator[None]:
        """Run the chores of one person one at a time, where a limit holds for them.

        Each then knows what the one before used, so together they exceed a limit by one call.
        """
        if not self._is_limited(conversation):
            yield
            return
        async with self._chores.setdefault(conversation.person, asyncio.Lock()):
            yield

    async def in_all(self) -> tuple[Standing, ...]:
        """How far the limits are used up that hold for everybody together.

        Raises:
            StorageError: it cannot be read.
        """
        if not self._in_all:
            return ()
        now = self._clock()
        return await self._database.read(lambda tx: self._stand_in_all(tx, now)[0])

    async def of_people(self, people: Sequence[str]) -> Mapping[str, tuple[Standing, ...]]:
        """How far each of these has used up their own limits; without those who have none.

        Raises:
            StorageError: it cannot be read.
        """
        now, snapshot = self._clock(), self._resolver.now
        asked = {
            person: [
                (limit, period(limit.span, now, snapshot.zone_of(person)))
                for limit in self._own(person)
            ]
            for person in people
            if person != OWNER or not self._config.exempt_owner
        }

        def look(tx: Transaction) -> Mapping[str, tuple[Standing, ...]]:
            return {person: self._stand(tx, person, own) for person, own in asked.items() if own}

        return await self._database.read(look) if any(asked.values()) else {}

    def _stand(
        self, tx: Transaction, person: str, own: Sequence[tuple[Limit, Period]]
    ) -> tuple[Standing, ...]:
        used: dict[int, dict[str, Usage]] = {}
        for _, lasting in own:
            if lasting.start not in used:
                used[lasting.start] = _by_model(tx, lasting.start, EVER, person)
        return tuple(
            limits.standing(limit, lasting, used[lasting.start], self.prices)
            for limit, lasting in own
        )

    def _stand_in_all(
        self, tx: Transaction, now: int
    ) -> tuple[tuple[Standing, ...], dict[int, _Settled]]:
        """How far everybody's limits are used up, and what need not be asked again of that."""
        zone, until = self._resolver.now.policy.zone, now - now % SETTLED_MS - SETTLED_MS
        asked = [(limit, period(limit.span, now, zone)) for limit in self._in_all]
        used = {each.start: self._together(tx, each, until) for _, each in asked}
        found = tuple(
            limits.standing(limit, each, used[each.start][0], self.prices) for limit, each in asked
        )
        return found, {start: settled for start, (_, settled) in used.items()}

    @property
    def _config(self) -> LimitsConfig:
        return self._resolver.policy.config.limits

    @property
    def _in_all(self) -> tuple[Limit, ...]:
        return limits.limits_of(self._config.in_all, "all")

    def _is_limited(self, conversation: Conversation) -> bool:
        is_exempt = conversation.is_owner and self._config.exempt_owner
        return not is_exempt and bool(self._in_all or self._own(conversation.person))

    def _own(self, person: str) -> tuple[Limit, ...]:
        people = self._config.people
        names = self._resolver.now.names_of(person) if people else ()
        caps = next((people[name] for name in names if name in people), self._config.each)
        return limits.limits_of(caps, "person")

    def _together(
        self, tx: Transaction, lasting: Period, until: int
    ) -> tuple[dict[str, Usage], _Settled]:
        """What everybody used in a period, and how much of that need not be asked again."""
        before, known = self._settled.get(lasting.start, (lasting.start, {}))
        if before > until:  # it has only just begun, or the clock was set back
            before, known = lasting.start, {}
        else:
            known = added(known, _by_model(tx, before, until, None))
            before = until
        now = _by_model(tx, before, EVER, None)
        return added(known, now), (before, known)


@dataclass(frozen=True, slots=True)
class CappedModel(Writer):
    """Writes for chores: no call is made once a limit of whoever pays is reached.

    `meter` has what the chore used so far, which is not counted yet.
    """

    model: Writer
    allowance: Allowance
    payer: Conversation
    meter: Meter

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        """Answer a request.

        Raises:
            LimitReached: nothing is left to pay for it.
        """
        balance = await self.allowance.of(self.payer, request.model)
        if balance.after(self.meter.used, self.allowance.prices).refused is not None:
            raise LimitReached
        async with aclosing(self.model.stream(request)) as events:
            async for event in events:
                yield event


def is_first(tx: Transaction, whom: str, each: Standing, now: int) -> bool:
    """Note that somebody is told of a limit; False when they were told in this period."""
    rows = tx.execute(
        "INSERT INTO limit_notices(person, whose, span, unit, start, told_at) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING start",
        (whom, each.limit.whose, each.limit.span, each.limit.unit, each.period.start, now),
    )
    return bool(rows)


def prune(tx: Transaction, now: int) -> None:
    """Forget what was told of periods that are over."""
    tx.execute("DELETE FROM limit_notices WHERE told_at < ?", (now - counts.KEPT_WHOLE_MS,))


def _by_model(tx: Transaction, start: int, end: int, person: str | None) -> dict[str, Usage]:
    found = counts.sums(tx, ("model",), start, end, person=person)
    return {str(each.keys[0]): each.usage for each in found}
