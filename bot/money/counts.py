"""Counts models' usage in the database by time, person, conversation, model and purpose.

Each row stands for a quarter of an hour, because the days of every time zone begin with one: so
"today" can be asked for in any zone, also when somebody moves to another. What is older than
`KEPT_WHOLE_MS` is folded into one row for each day (UTC), person, model and purpose, and what is
older than `KEPT_MS` goes; see docs/usage.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from datetime import date
from typing import Any, Final, Literal

from bot.agent.models import Purpose, Usage
from bot.agent.turn import Meter
from bot.clock import DAY_MS
from bot.config import ANTHROPIC, OFFLINE, OPENAI, Config, PriceConfig
from bot.i18n import text
from bot.metrics import Metrics
from bot.money import KEPT_DAYS
from bot.storage import Transaction, Value, records

# What tokens cost, in US dollars for a million of them. Pure.
#
# The list has what Anthropic and OpenAI publish, looked up on `LOOKED_UP`: standard rates, with
# the cache that the program asks for (five minutes) or gets (thirty). `[prices.models]` says what
# others cost, and comes before the list. A model that neither names has no price: nobody's is
# guessed.
#
# Large prompts cost more: those of Haiku beyond 100 000 tokens five times as much, those of
# OpenAI's models beyond 272 000 twice, and their replies half as much again. What is counted are
# sums, which do not tell; as configured, conversations are summarised before that
# (docs/usage.md).

PRICES_LOOKED_UP: Final = date(2026, 11, 22)

_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens of each kind."""

    input: float
    output: float
    cache_read: float
    cache_write: float

    @classmethod
    def of(cls, config: PriceConfig) -> Price:
        """The price somebody configured; what they leave out costs what all input does."""
        read, write = config.cache_read, config.cache_write
        return cls(
            config.input,
            config.output,
            config.input if read is None else read,
            config.input if write is None else write,
        )

    def cost(self, usage: Usage) -> float:
        """The cost of some tokens in US dollars."""
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * self.cache_read
            + usage.cache_write_tokens * self.cache_write
        ) / _MILLION


FREE: Final = Price(0, 0, 0, 0)

# By the kind of the service and its own names for them.
LISTED: Final[Mapping[str, Mapping[str, Price]]] = {
    ANTHROPIC: {
        "claude-fable-5-2": Price(8, 40, 0.2, 10),
        "claude-haiku-5-5": Price(0.1, 0.5, 0.01, 0.125),
        "claude-opus-5-5": Price(4, 20, 0.2, 5),
        "claude-sonnet-5-5": Price(2, 10, 0.1, 2.5),
    },
    OPENAI: {
        "gpt-6.2-sol": Price(2, 10, 0.1, 2.5),
        "gpt-6.1-sol": Price(2, 10, 0.1, 2.5),
        "gpt-6.1-terra": Price(1, 5, 0.05, 1.25),
        "gpt-6-luna": Price(0.1, 0.5, 0.01, 0.125),
    },
}
_EVERY: Final = tuple(price for models in LISTED.values() for price in models.values())


@dataclass(frozen=True, slots=True)
class Bill:
    """The bill for tokens of several models.

    `usd` is of those whose price is known; `unpriced` are the models that have none.
    """

    usage: Usage = field(default_factory=Usage)
    usd: float = 0.0
    unpriced: tuple[str, ...] = ()


class Prices:
    """The prices that are known, by the name a model is counted under."""

    def __init__(self, known: Mapping[str, Price]) -> None:
        self._known = {**known, OFFLINE: FREE}

    @classmethod
    def of_config(cls, config: Config) -> Prices:
        """Those of the configuration, and of the list where the models are the maker's own."""
        models = config.models
        listed = {
            f"{service}/{name}": price
            for service, settings in models.services.items()
            if not settings.base_url.strip()
            for name, price in LISTED.get(models.kind_of(service), {}).items()
        }
        own = {
            "/".join(models.locate(name)): Price.of(each)
            for name, each in config.prices.models.items()
        }
        return cls({**listed, **own})

    def cost(self, model: str, usage: Usage) -> float | None:
        """The cost of a model's tokens in US dollars; None if its price is not known."""
        price = self._known.get(model)
        return None if price is None else price.cost(usage)

    def cost_at_most(self, model: str, usage: Usage) -> float:
        """The same; without a price of its own a model counts as the dearest that is known.

        Those of the list are always known: a service of one's own is no reason to count nothing.
        """
        known = self._known.get(model)
        if known is not None:
            return known.cost(usage)
        return max(price.cost(usage) for price in (*self._known.values(), *_EVERY))

    def is_known(self, model: str) -> bool:
        """True when a model has a price."""
        return model in self._known

    def bill(self, used: Mapping[str, Usage]) -> Bill:
        """The bill for tokens by model."""
        costs = {model: self.cost(model, usage) for model, usage in used.items()}
        return Bill(
            sum(used.values(), Usage()),
            sum(cost for cost in costs.values() if cost is not None),
            tuple(sorted(model for model, cost in costs.items() if cost is None)),
        )


def shown_price(usd: float) -> str:
    """An amount as people read it: cents, and fractions of them where it is less than a dollar."""
    if 0 < usd < 0.0001:
        return "<$0.0001"
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


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
    """The usage of one turn, saving or summary: person, conversation and model.

    `noted` is the key of `meta` under which it is noted while it is not counted.
    """

    person: str
    session_id: str
    model: str
    purpose: Purpose
    usage: Usage
    noted: str = ""


def spent_of(meter: Meter, person: str, session_id: str, purpose: Purpose) -> tuple[Spent, ...]:
    """A meter's usage for a person, ready to be counted."""
    used = meter.used.items()
    return tuple(Spent(person, session_id, name, purpose, each, meter.noted) for name, each in used)


@dataclass(frozen=True, slots=True)
class UsageCount:
    """The summed usage of `runs` turns, savings and summaries with the same `keys`."""

    keys: tuple[str | int, ...]
    runs: int
    usage: Usage


def add(tx: Transaction, spent: Spent, now: int) -> bool:
    """Count it, in the transaction that stores what it was used for; False if it is nothing."""
    usage = spent.usage
    if spent.noted:
        records.drop(tx, spent.noted)
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
) -> list[UsageCount]:
    """Sums of usage by group, from `start` to, not including, `end` (ms since the epoch).

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
    return [UsageCount(tuple(row[:width]), row[width], Usage(*row[width + 1 :])) for row in rows]


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


COLUMNS: Final = ("runs", "input", "cached", "written", "output", "cost")


@dataclass(frozen=True, slots=True)
class UsageLine:
    """The usage and bill under one name."""

    name: str
    runs: int
    bill: Bill

    @property
    def numbers(self) -> tuple[int, ...]:
        """Its calls and tokens, in the order of `COLUMNS`."""
        used = self.bill.usage
        cache = used.cache_read_tokens, used.cache_write_tokens
        return (self.runs, used.input_tokens, *cache, used.output_tokens)


def summed(
    found: Iterable[tuple[str, str, int, Usage]], prices: Prices, *, by_day: bool = False
) -> list[UsageLine]:
    """A line for each name, from usage by name and model with its runs.

    Days stay in order; of anything else that comes first which cost or used most.
    """
    used, runs = defaultdict[str, dict[str, Usage]](dict), Counter[str]()
    for name, model, count, usage in found:
        used[name][model] = used[name].get(model, Usage()) + usage
        runs[name] += count
    lines = [UsageLine(name, runs[name], prices.bill(models)) for name, models in used.items()]
    if not by_day:
        lines.sort(key=lambda line: (-line.bill.usd, -line.bill.usage.context_tokens, line.name))
    return lines


def total(found: Sequence[UsageLine]) -> UsageLine:
    """All of them together."""
    bills = [line.bill for line in found]
    unpriced = sorted({model for bill in bills for model in bill.unpriced})
    usage = sum((bill.usage for bill in bills), Usage())
    bill = Bill(usage, sum(bill.usd for bill in bills), tuple(unpriced))
    return UsageLine("", sum(line.runs for line in found), bill)


def cost_in_words(language: str, line: UsageLine) -> str:
    """The cost in words, as far as prices are known."""
    if not line.bill.unpriced:
        return shown_price(line.bill.usd)
    if not line.bill.usd:
        return text(language, "usage.unknown")
    return text(language, "usage.at_least", usd=shown_price(line.bill.usd))


def plain(line: UsageLine) -> dict[str, Any]:
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
