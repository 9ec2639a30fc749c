"""What models used, counted in the database: by when, person, conversation, model and purpose.

Each row stands for a quarter of an hour, because the days of every time zone begin with one: so
"today" can be asked for in any zone, also when somebody moves to another. What is older than
`KEPT_WHOLE_MS` is folded into one row for each day (UTC), person, model and purpose, and what is
older than `KEPT_MS` goes; see docs/usage.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from datetime import tzinfo
from typing import Any, Final, Literal

from bot.agent.models import Purpose, Usage
from bot.clock import DAY_MS, moment
from bot.config import OFFLINE
from bot.i18n import text
from bot.metrics import Metrics
from bot.money import KEPT_DAYS, Heading
from bot.money.prices import Bill, Prices, shown
from bot.storage import Transaction, Value

SLOT_MS: Final = 15 * 60_000
KEPT_WHOLE_MS: Final = 62 * DAY_MS  # this month and the last one, in whatever zone
KEPT_MS: Final = KEPT_DAYS * DAY_MS
EVER: Final = 1 << 62  # later than anything

_KEY: Final = ("person", "at", "session_id", "model", "purpose")
_SUMS: Final = ("runs", *(each.name for each in fields(Usage)))
_NAMES: Final = ", ".join((*_KEY, *_SUMS))
_TOTALS: Final = ", ".join(f"CAST(sum({name}) AS BIGINT)" for name in _SUMS)
_ADDED: Final = ", ".join(f"{name} = usage_counts.{name} + excluded.{name}" for name in _SUMS)

By = Literal["at", "person", "session_id", "model", "purpose"]


@dataclass(frozen=True, slots=True)
class Spent:
    """What one turn, saving or summary used: for whom, in which conversation, with which model."""

    person: str
    session_id: str
    model: str
    purpose: Purpose
    usage: Usage


@dataclass(frozen=True, slots=True)
class Count:
    """What was used together by `runs` turns, savings and summaries that have the same `keys`."""

    keys: tuple[str | int, ...]
    runs: int
    usage: Usage


def add(tx: Transaction, spent: Spent, now: int) -> bool:
    """Count it, in the transaction that stores what it was used for; False if it is nothing."""
    usage = spent.usage
    if usage == Usage() or spent.model == OFFLINE:
        return False
    tx.execute(
        f"INSERT INTO usage_counts({_NAMES}) VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?) "
        f"ON CONFLICT({', '.join(_KEY)}) DO UPDATE SET {_ADDED}",
        (
            *(spent.person, now - now % SLOT_MS, spent.session_id, spent.model, spent.purpose),
            *astuple(usage),
        ),
    )
    return True


def sums(
    tx: Transaction, by: Sequence[By], start: int, end: int, *, person: str | None = None
) -> list[Count]:
    """What was used from `start` to, not including, `end` (ms since the epoch), in groups.

    Only by one person, if that is given; nobody's is everybody's.
    """
    groups = ", ".join(by)
    only = "" if person is None else " AND person = ?"
    values: list[Value] = [start, end, *([] if person is None else [person])]
    rows = tx.execute(
        f"SELECT {groups}, {_TOTALS} FROM usage_counts WHERE at >= ? AND at < ?{only} "
        f"GROUP BY {groups} ORDER BY {groups}",
        values,
    )
    width = len(by)
    return [Count(tuple(row[:width]), row[width], Usage(*row[width + 1 :])) for row in rows]


def prune(tx: Transaction, now: int) -> None:
    """Fold what is older than anybody asks for by the hour, and drop what is older than a year."""
    tx.execute("DELETE FROM usage_counts WHERE at < ?", (now - KEPT_MS,))
    before = now - KEPT_WHOLE_MS
    tx.execute(
        f"INSERT INTO usage_counts({_NAMES}) "
        f"SELECT person, at - at % {DAY_MS}, '', model, purpose, {_TOTALS} FROM usage_counts "
        f"WHERE at < ? AND session_id <> '' GROUP BY person, at - at % {DAY_MS}, model, purpose "
        f"ON CONFLICT({', '.join(_KEY)}) DO UPDATE SET {_ADDED}",
        (before,),
    )
    tx.execute("DELETE FROM usage_counts WHERE at < ? AND session_id <> ''", (before,))


# --- summed up ------------------------------------------------------------------------------------


_COLUMNS: Final[dict[Heading, By]] = {
    "person": "person",
    "model": "model",
    "day": "at",
    "purpose": "purpose",
}


@dataclass(frozen=True, slots=True)
class Line:
    """What has one name in common, and what it comes to."""

    name: str
    runs: int
    bill: Bill


def lines(tx: Transaction, by: Heading, since: int, zone: tzinfo, prices: Prices) -> Sequence[Line]:
    """What was used since a time (ms since the epoch), summed up by what a heading names.

    Days are those of the zone, in order; everything else begins with what cost or used most.
    """
    groups: tuple[By, ...] = (_COLUMNS[by],) if by == "model" else (_COLUMNS[by], "model")
    found = [
        (
            f"{moment(int(each.keys[0]), zone):%Y-%m-%d}" if by == "day" else str(each.keys[0]),
            *(str(each.keys[-1]), each.runs, each.usage),
        )
        for each in sums(tx, groups, since, EVER)
    ]
    return summed(found, prices, by_day=by == "day")


def summed(
    found: Iterable[tuple[str, str, int, Usage]], prices: Prices, *, by_day: bool = False
) -> list[Line]:
    """What was used, by name, model and in how many runs, as a line a name.

    Days stay in order; of anything else that comes first which cost or used most.
    """
    used, runs = defaultdict[str, dict[str, Usage]](dict), Counter[str]()
    for name, model, count, usage in found:
        used[name][model] = used[name].get(model, Usage()) + usage
        runs[name] += count
    lines = [Line(name, runs[name], prices.bill(models)) for name, models in used.items()]
    if not by_day:
        lines.sort(key=lambda line: (-line.bill.usd, -line.bill.usage.context_tokens, line.name))
    return lines


def total(found: Sequence[Line]) -> Line:
    """All of them together."""
    bills = [line.bill for line in found]
    unpriced = sorted({model for bill in bills for model in bill.unpriced})
    usage = sum((bill.usage for bill in bills), Usage())
    bill = Bill(usage, sum(bill.usd for bill in bills), tuple(unpriced))
    return Line("", sum(line.runs for line in found), bill)


def cost_in_words(language: str, line: Line) -> str:
    """What it costs, as far as that is known."""
    if not line.bill.unpriced:
        return shown(line.bill.usd)
    if not line.bill.usd:
        return text(language, "usage.unknown")
    return text(language, "usage.at_least", usd=shown(line.bill.usd))


def plain(line: Line) -> dict[str, Any]:
    """A line for machines; `usd` leaves out the models in `unpriced`."""
    return {
        "name": line.name,
        "runs": line.runs,
        **asdict(line.bill.usage),
        "usd": round(line.bill.usd, 6),
        "unpriced": list(line.bill.unpriced),
    }


def measure(metrics: Metrics, prices: Prices, spent: Spent) -> None:
    """Add what was counted to the metrics of this program."""
    for name, number in asdict(spent.usage).items():
        if number:
            kind = name.removesuffix("_tokens")
            metrics.tokens.labels(spent.model, spent.purpose, kind).inc(number)
    if usd := prices.cost(spent.model, spent.usage):
        metrics.cost.labels(spent.model, spent.purpose).inc(usd)
