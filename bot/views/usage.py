"""Usage, by day, model and person, and how far limits are used up."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Final

from bot import money
from bot.agent.models import Usage
from bot.agent.turn import added
from bot.clock import Clock, moment
from bot.identity import Conversation
from bot.money import (
    SETTLED_MS,
    Allowance,
    Bill,
    Heading,
    LimitStatus,
    Prices,
    Span,
    UsageCount,
    UsageLine,
    period,
)
from bot.sessions import store
from bot.sessions.store import Session
from bot.storage import Database, Transaction

DAYS: Final = 30  # that a report is about
MOST_DRAWN: Final = 7  # people whose days are told apart: those who used most
MOST_LIMITED: Final = 200  # people whose limits are checked: those who used most
LISTED: Final = 5  # conversations of a month that are told apart: those that cost most
MOST_KEPT: Final = 20_000  # people, some 10 MB

Amounts = tuple[int, float]  # tokens, and US dollars as far as they are known
PerDay = tuple[Amounts, ...]

_ByPerson = Mapping[str, Mapping[str, tuple[int, Usage]]]


@dataclass(frozen=True, slots=True)
class Day:
    """A day of a time zone (`name` is its date), from `start` to, not including, `end`."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DayUsage:
    """Usage on a day, by model and purpose."""

    day: Day
    counts: tuple[UsageCount, ...]

    @property
    def models(self) -> Mapping[str, Usage]:
        """Usage by model."""
        found: dict[str, Usage] = {}
        for each in self.counts:
            found = added(found, {str(each.keys[0]): each.usage})
        return found


def last_days(now: int, zone: tzinfo, count: int) -> list[Day]:
    """The days up to today, oldest first."""
    found: list[Day] = []
    at = now
    for _ in range(count):
        each = period("day", at, zone)
        found.append(Day(f"{moment(each.start, zone):%Y-%m-%d}", each.start, each.end))
        at = each.start - 1
    return found[::-1]


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Usage over some days: the sum, and each day by model and by those who used most.

    `lines` of people are there when it is everybody's. `limits` are those of whoever looks;
    `limited` are people with a limit of their own, the nearest to it first.
    """

    days: Sequence[DayUsage]
    lines: Mapping[Heading, Sequence[UsageLine]]
    models: Sequence[tuple[str, PerDay]]
    most: Sequence[tuple[str, PerDay]] = ()
    limits: Sequence[LimitStatus] = ()
    limited: Sequence[tuple[str, LimitStatus]] = ()


@dataclass(frozen=True, slots=True)
class _Kept:
    """Cached usage of the days from `start` to, not including, `end`."""

    start: int = 0
    end: int = 0
    days: Mapping[int, DayUsage] = field(default_factory=dict[int, DayUsage])
    people: _ByPerson = field(default_factory=dict[str, dict[str, tuple[int, Usage]]])
    most: Mapping[str, PerDay] = field(default_factory=dict[str, PerDay])


class UsageDays:
    """Asks for days in one pass; one that is over is asked for once.

    What it keeps is small: for each day what each model was used for, and for everybody what they
    used in all. With more people than `MOST_KEPT` it keeps nothing.
    """

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._zone: tzinfo | None = None
        self._kept = _Kept()

    def look(
        self, tx: Transaction, zone: tzinfo, now: int, count: int, most: int = 0
    ) -> UsageReport:
        """Usage on each of the last `count` days, and of the `most` who used most."""
        found = last_days(now, zone, count)
        kept = self._kept
        if self._zone != zone or kept.start != found[0].start or kept.end > now:
            self._zone = zone
            kept = _Kept(found[0].start, found[0].start)
        fresh = {
            day.start: money.sums(tx, ("person", "model", "purpose"), day.start, day.end)
            for day in found
            if day.start >= kept.end
        }
        used = tuple(
            DayUsage(day, _anybodys(fresh[day.start]))
            if day.start in fresh
            else kept.days[day.start]
            for day in found
        )
        by_person = _together(kept.people, [each for many in fresh.values() for each in many])
        people = money.summed(
            (
                (person, model, runs, usage)
                for person, models in by_person.items()
                for model, (runs, usage) in models.items()
            ),
            self._prices,
        )
        largest = sorted(people, key=lambda line: -line.bill.usage.context_tokens)[:most]
        drawn = [(line.name, self._per_day(tx, line.name, found, kept, fresh)) for line in largest]
        self._kept = self._settled(kept, used, fresh, drawn, now)
        report = _report(used, self._prices)
        return replace(report, lines={"person": people, **report.lines}, most=drawn)

    def _per_day(
        self,
        tx: Transaction,
        person: str,
        found: Sequence[Day],
        kept: _Kept,
        fresh: Mapping[int, Sequence[UsageCount]],
    ) -> PerDay:
        before = [day for day in found if day.start < kept.end]
        known = kept.most.get(person)
        if known is None:
            known = tuple(
                _amounts(((each.keys[0], each.usage) for each in day.counts), self._prices)
                for day in days_of(tx, person, before)
            )
        return (
            *known,
            *(
                _amounts(((e.keys[1], e.usage) for e in many if e.keys[0] == person), self._prices)
                for many in fresh.values()
            ),
        )

    def _settled(
        self,
        kept: _Kept,
        used: Sequence[DayUsage],
        fresh: Mapping[int, Sequence[UsageCount]],
        drawn: Sequence[tuple[str, PerDay]],
        now: int,
    ) -> _Kept:
        over = [each for each in used if each.day.end + SETTLED_MS <= now]
        if not over:
            return kept
        more = [count for each in over for count in fresh.get(each.day.start, ())]
        by_person = _together(kept.people, more)
        if len(by_person) > MOST_KEPT:
            return _Kept()
        return _Kept(
            kept.start,
            over[-1].day.end,
            {each.day.start: each for each in over},
            by_person,
            {person: amounts[: len(over)] for person, amounts in drawn},
        )


_NAMES: Final[Mapping[Heading, Callable[[DayUsage, UsageCount], str]]] = {
    "model": lambda _, count: str(count.keys[0]),
    "day": lambda each, _: each.day.name,
    "purpose": lambda _, count: str(count.keys[1]),
}


def _report(found: Sequence[DayUsage], prices: Prices) -> UsageReport:
    """Some days, summed up: days in order, else the dearest first."""
    lines: dict[Heading, Sequence[UsageLine]] = {
        heading: money.summed(
            (
                (name(each, count), str(count.keys[0]), count.runs, count.usage)
                for each in found
                for count in each.counts
            ),
            prices,
            by_day=heading == "day",
        )
        for heading, name in _NAMES.items()
    }
    used = [each.models for each in found]
    models = [
        (name, tuple(_amounts([(name, day.get(name, Usage()))], prices) for day in used))
        for name in dict.fromkeys(name for day in used for name in day)
    ]
    return UsageReport(found, lines, models)


@dataclass(frozen=True, slots=True)
class OwnUsage:
    """Somebody's usage today and this month; `sessions` are this month's most expensive."""

    today: Bill
    month: Bill
    sessions: Sequence[tuple[Session, Bill]]
    others: int
    limits: Sequence[LimitStatus]


class UsageViews:
    """Usage reports: everybody's for the owner, each person's own for themselves."""

    def __init__(self, database: Database, clock: Clock, allowance: Allowance) -> None:
        self._database = database
        self._clock = clock
        self._allowance = allowance
        self.prices = allowance.prices
        self._days = UsageDays(self.prices)

    async def everybodys(self, zone: tzinfo) -> UsageReport:
        """Everybody's usage in the last days of a zone."""
        now, most = self._clock(), MOST_DRAWN
        report = await self._database.read(lambda tx: self._days.look(tx, zone, now, DAYS, most))
        people = report.lines["person"]
        used_most = sorted(people, key=lambda line: -line.bill.usage.context_tokens)
        found = await self._allowance.of_people([line.name for line in used_most[:MOST_LIMITED]])
        limited = [(person, each) for person, own in found.items() for each in own]
        limited.sort(key=lambda found: -found[1].used / found[1].limit.most)
        return replace(report, limits=await self._allowance.in_all(), limited=limited)

    async def of(self, conversation: Conversation) -> UsageReport:
        """A person's usage in the last days of their zone."""
        last = last_days(self._clock(), conversation.zone, DAYS)
        used = await self._database.read(lambda tx: days_of(tx, conversation.person, last))
        return replace(_report(used, self.prices), limits=await self._limits(conversation))

    async def month_of(self, conversation: Conversation, now: int) -> OwnUsage:
        """A person's usage today, this month, and by conversation of this month."""
        limits = await self._limits(conversation)

        def look(tx: Transaction) -> OwnUsage:
            month = self._by_session(tx, conversation, "month", now)
            known = ((store.get(tx, line.name), line.bill) for line in month[:LISTED])
            return OwnUsage(
                money.total(self._by_session(tx, conversation, "day", now)).bill,
                money.total(month).bill,
                [(session, bill) for session, bill in known if session is not None],
                max(0, len(month) - LISTED),
                limits,
            )

        return await self._database.read(look)

    def _by_session(
        self, tx: Transaction, conversation: Conversation, span: Span, now: int
    ) -> Sequence[UsageLine]:
        within = period(span, now, conversation.zone)
        groups = ("session_id", "model")
        found = money.sums(tx, groups, within.start, within.end, person=conversation.person)
        rows = ((str(each.keys[0]), str(each.keys[1]), each.runs, each.usage) for each in found)
        return money.summed(rows, self.prices)

    async def _limits(self, conversation: Conversation) -> Sequence[LimitStatus]:
        """A person's own limits, and for the owner those of everybody together."""
        return [
            each
            for each in (await self._allowance.of(conversation)).standings
            if each.limit.whose == "person" or conversation.is_owner
        ]


def days_of(tx: Transaction, person: str, days: Sequence[Day]) -> list[DayUsage]:
    """One person's usage on each of some consecutive days."""
    if not days:
        return []
    found: list[list[UsageCount]] = [[] for _ in days]
    starts = [day.start for day in days]
    groups = ("at", "model", "purpose")
    for each in money.sums(tx, groups, starts[0], days[-1].end, person=person):
        found[bisect_right(starts, int(each.keys[0])) - 1].append(each)
    return [DayUsage(day, _anybodys(many)) for day, many in zip(days, found, strict=True)]


def _amounts(used: Iterable[tuple[str | int, Usage]], prices: Prices) -> Amounts:
    tokens, dollars = 0, 0.0
    for model, usage in used:
        tokens += usage.context_tokens
        dollars += prices.cost(str(model), usage) or 0
    return tokens, dollars


def _anybodys(found: Iterable[UsageCount]) -> tuple[UsageCount, ...]:
    """The same by model and purpose, whoever used it and when."""
    summed: dict[tuple[str | int, ...], UsageCount] = {}
    for each in found:
        keys = each.keys[1:]
        known = summed.get(keys)
        runs, usage = (known.runs, known.usage) if known else (0, Usage())
        summed[keys] = UsageCount(keys, runs + each.runs, usage + each.usage)
    return tuple(summed.values())


def _together(known: _ByPerson, more: Sequence[UsageCount]) -> _ByPerson:
    found = dict(known)
    for each in more:
        person, model = map(str, each.keys[:2])
        models = dict(found.get(person, {}))
        runs, usage = models.get(model, (0, Usage()))
        models[model] = runs + each.runs, usage + each.usage
        found[person] = models
    return found
