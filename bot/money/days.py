"""What was used on each of the last days; a day that is over is asked for once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Final

from bot.agent.models import Usage
from bot.agent.turn import added
from bot.clock import moment
from bot.money import counts
from bot.money.counts import Count, Line
from bot.money.limits import period
from bot.money.prices import Prices
from bot.storage import Transaction

SETTLED_MS: Final = 60 * 60_000  # nothing is counted for a time that is so long ago
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
    """What was used on a day, by model and purpose."""

    day: Day
    counts: tuple[Count, ...]

    @property
    def models(self) -> Mapping[str, Usage]:
        """What each model used."""
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
class Used:
    """What was used on some days, by whom, and on each of them by those who used most."""

    days: tuple[DayUsage, ...]
    people: Sequence[Line]
    most: Sequence[tuple[str, PerDay]]


@dataclass(frozen=True, slots=True)
class _Kept:
    """What need not be asked again of the days from `start` to, not including, `end`."""

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

    def __init__(self, zone: tzinfo, prices: Prices) -> None:
        self.zone = zone
        self._prices = prices
        self._kept = _Kept()

    def look(self, tx: Transaction, now: int, count: int, most: int = 0) -> Used:
        """What was used on each of the last `count` days, and by the `most` who used most."""
        found = last_days(now, self.zone, count)
        kept = self._kept
        if kept.start != found[0].start or kept.end > now:
            kept = _Kept(found[0].start, found[0].start)
        fresh = {
            day.start: counts.sums(tx, ("person", "model", "purpose"), day.start, day.end)
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
        lines = people(by_person, self._prices)
        largest = sorted(lines, key=lambda line: -line.bill.usage.context_tokens)[:most]
        drawn = [(line.name, self._per_day(tx, line.name, found, kept, fresh)) for line in largest]
        self._kept = self._settled(kept, used, fresh, drawn, now)
        return Used(used, lines, drawn)

    def _per_day(
        self,
        tx: Transaction,
        person: str,
        found: Sequence[Day],
        kept: _Kept,
        fresh: Mapping[int, Sequence[Count]],
    ) -> PerDay:
        before = [day for day in found if day.start < kept.end]
        known = kept.most.get(person)
        if known is None:
            known = of_person(tx, person, before, self._prices)
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
        fresh: Mapping[int, Sequence[Count]],
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


def people(found: _ByPerson, prices: Prices) -> list[Line]:
    """Everybody who used something, the dearest first."""
    rows = (
        (person, model, runs, usage)
        for person, models in found.items()
        for model, (runs, usage) in models.items()
    )
    return counts.summed(rows, prices)


def lines(found: Sequence[DayUsage], by: str, prices: Prices) -> list[Line]:
    """The same summed up by "day", "model" or "purpose": days in order, else the dearest first."""
    rows = [
        (
            {"day": each.day.name, "model": model, "purpose": purpose}[by],
            model,
            count.runs,
            count.usage,
        )
        for each in found
        for count in each.counts
        for model, purpose in [map(str, count.keys)]
    ]
    return counts.summed(rows, prices, by_day=by == "day")


def of_person(tx: Transaction, person: str, days: Sequence[Day], prices: Prices) -> PerDay:
    """What a person used on each day."""
    return tuple(
        _amounts(((each.keys[0], each.usage) for each in day.counts), prices)
        for day in days_of(tx, person, days)
    )


def days_of(tx: Transaction, person: str, days: Sequence[Day]) -> list[DayUsage]:
    """What one person used on each of some days that follow each other."""
    if not days:
        return []
    found: list[list[Count]] = [[] for _ in days]
    starts = [day.start for day in days]
    groups = ("at", "model", "purpose")
    for each in counts.sums(tx, groups, starts[0], days[-1].end, person=person):
        found[bisect_right(starts, int(each.keys[0])) - 1].append(each)
    return [DayUsage(day, _anybodys(many)) for day, many in zip(days, found, strict=True)]


def _amounts(used: Iterable[tuple[str | int, Usage]], prices: Prices) -> Amounts:
    tokens, dollars = 0, 0.0
    for model, usage in used:
        tokens += usage.context_tokens
        dollars += prices.cost(str(model), usage) or 0
    return tokens, dollars


def _anybodys(found: Iterable[Count]) -> tuple[Count, ...]:
    """The same by model and purpose, whoever used it and when."""
    summed: dict[tuple[str | int, ...], Count] = {}
    for each in found:
        keys = each.keys[1:]
        known = summed.get(keys)
        runs, usage = (known.runs, known.usage) if known else (0, Usage())
        summed[keys] = Count(keys, runs + each.runs, usage + each.usage)
    return tuple(summed.values())


def _together(known: _ByPerson, more: Sequence[Count]) -> _ByPerson:
    found = dict(known)
    for each in more:
        person, model = map(str, each.keys[:2])
        models = dict(found.get(person, {}))
        runs, usage = models.get(model, (0, Usage()))
        models[model] = runs + each.runs, usage + each.usage
        found[person] = models
    return found
