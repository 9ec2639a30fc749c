"""What was used on each of the last days; a day that is over is asked for once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from bot.agent.meter import added
from bot.agent.models import Usage
from bot.clock import moment
from bot.money import counts
from bot.money.counts import EVER, Count
from bot.money.ledger import Line
from bot.money.periods import period
from bot.money.prices import Prices
from bot.storage import Transaction

SETTLED_MS: Final = 60 * 60_000  # nothing is counted for a time that is so long ago
MOST_KEPT: Final = 20_000  # people, some 10 MB

_ByPerson = Mapping[str, Mapping[str, tuple[int, Usage]]]
_NOBODY: Final[_ByPerson] = {}


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


class UsageDays:
    """Asks for days by model and purpose, which are few however many people and sessions are.

    What it keeps is as small: a handful of counts for each day.
    """

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        self._settled: Mapping[int, DayUsage] = {}

    def look(self, tx: Transaction, now: int, count: int) -> list[DayUsage]:
        """What was used on each of the last `count` days."""
        known = self._settled
        found = [
            known.get(day.start) or DayUsage(day, _counted(tx, day))
            for day in last_days(now, self._zone, count)
        ]
        self._settled = {each.day.start: each for each in found if each.day.end + SETTLED_MS <= now}
        return found


class UsagePeople:
    """Asks for what each person used; what is settled is asked for once a day.

    With more people than `MOST_KEPT` nothing is kept, so that it stays small.
    """

    def __init__(self) -> None:
        self._kept: tuple[int, int, _ByPerson] = (0, 0, _NOBODY)

    def look(self, tx: Transaction, start: int, now: int) -> _ByPerson:
        """What each used since `start` (ms), by person and model, with how often."""
        until = now - now % SETTLED_MS - SETTLED_MS
        begun, before, known = self._kept
        if begun != start or before > until:
            before, known = start, _NOBODY
        known = _together(known, counts.sums(tx, ("person", "model"), before, max(before, until)))
        self._kept = (
            (start, max(before, until), known) if len(known) <= MOST_KEPT else (0, 0, _NOBODY)
        )
        return _together(known, counts.sums(tx, ("person", "model"), max(before, until), EVER))


def people(found: _ByPerson, prices: Prices) -> list[Line]:
    """Everybody who used something, the dearest first."""
    summed = [
        Line(
            person,
            sum(runs for runs, _ in models.values()),
            prices.bill({model: usage for model, (_, usage) in models.items()}),
        )
        for person, models in found.items()
    ]
    summed.sort(key=_dearest)
    return summed


def lines(found: Sequence[DayUsage], by: str, prices: Prices) -> list[Line]:
    """The same summed up by "day", "model" or "purpose": days in order, else the dearest first."""
    used: dict[str, dict[str, Usage]] = {}
    runs: dict[str, int] = {}
    for each in found:
        for count in each.counts:
            model, purpose = map(str, count.keys)
            name = {"day": each.day.name, "model": model, "purpose": purpose}[by]
            used[name] = added(used.get(name, {}), {model: count.usage})
            runs[name] = runs.get(name, 0) + count.runs
    summed = [Line(name, runs[name], prices.bill(models)) for name, models in used.items()]
    if by != "day":
        summed.sort(key=_dearest)
    return summed


def of_person(
    tx: Transaction, person: str, days: Sequence[Day], prices: Prices
) -> list[tuple[int, float]]:
    """The tokens, and the US dollars as far as known, that a person used on each day."""
    tokens, dollars = [0] * len(days), [0.0] * len(days)
    starts = {day.start: at for at, day in enumerate(days)}
    for each in counts.sums(tx, ("at", "model"), days[0].start, EVER, person=person):
        at = max(place for start, place in starts.items() if start <= int(each.keys[0]))
        tokens[at] += each.usage.context_tokens
        dollars[at] += prices.cost(str(each.keys[1]), each.usage) or 0
    return list(zip(tokens, dollars, strict=True))


def _counted(tx: Transaction, day: Day) -> tuple[Count, ...]:
    return tuple(counts.sums(tx, ("model", "purpose"), day.start, day.end))


def _together(known: _ByPerson, more: Sequence[Count]) -> _ByPerson:
    found = dict(known)
    for each in more:
        person, model = map(str, each.keys)
        models = dict(found.get(person, {}))
        runs, usage = models.get(model, (0, Usage()))
        models[model] = runs + each.runs, usage + each.usage
        found[person] = models
    return found


def _dearest(line: Line) -> tuple[float, int, str]:
    return -line.bill.usd, -line.bill.usage.context_tokens, line.name
