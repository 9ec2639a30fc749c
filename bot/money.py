"""Money: what models cost, what was used, and how far limits are used up.

Whatever asks a model has a `BillingAccount`, which is charged before each call: a call is made
while no limit is used up, even if those that run now come to the most they may. Otherwise it waits
for them. So a limit is exceeded by one call at most, whatever runs beside it, on all nodes.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from datetime import date, datetime, timedelta, tzinfo
from functools import partial
from typing import Any, Final, Literal

import structlog
from pydantic import TypeAdapter

from bot import fencing
from bot.agent.models import Purpose, Usage
from bot.agent.turn import Meter, added
from bot.clock import DAY_MS, Clock, moment
from bot.config import ANTHROPIC, OFFLINE, OPENAI, CapsConfig, Config, LimitsConfig, PriceConfig
from bot.context.budget import grouped
from bot.errors import ModelError, StorageError
from bot.i18n import text
from bot.identity import Conversation, ConversationResolver
from bot.identity.routing import OWNER
from bot.metrics import Metrics
from bot.sessions.due_time import shown
from bot.storage import Database, Transaction, Value, insist, records

log = structlog.get_logger(__name__)

KEPT_DAYS: Final = 400

Heading = Literal["person", "model", "day", "purpose"]
"""The keys by which usage is summed up."""

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


# --- limits ---------------------------------------------------------------------------------------


Span = Literal["day", "month"]


@dataclass(frozen=True, slots=True)
class Period:
    """A day or a month of some time zone: from `start` to, not including, `end`.

    Both are in ms since the epoch.
    """

    span: Span
    start: int
    end: int


def period(span: Span, now: int, zone: tzinfo) -> Period:
    """The day or month that a time in ms since the epoch belongs to, in a time zone."""
    today = moment(now, zone).date()
    if span == "day":
        return Period(span, _begin(today, zone), _begin(today + timedelta(days=1), zone))
    first = today.replace(day=1)
    following = (first + timedelta(days=32)).replace(day=1)
    return Period(span, _begin(first, zone), _begin(following, zone))


def _begin(day: date, zone: tzinfo) -> int:
    """The beginning of a day; where clocks skip midnight, the moment they skip it."""
    return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)


NEAR_PERCENT: Final = 80  # from here on it is told, once

Whose = Literal["person", "all"]
Unit = Literal["usd", "tokens"]


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that one person, or all together, may use in a day or a month."""

    whose: Whose
    span: Span
    unit: Unit
    most: float


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """The use of a limit in the current period.

    `guessed` are the models without a price, which count as the dearest known one; `held` is the
    most that calls may come to that run now.
    """

    limit: Limit
    period: Period
    used: float
    guessed: tuple[str, ...] = ()
    held: float = 0.0

    @property
    def percent(self) -> int:
        """The share that is used; 100 only when nothing is left."""
        return int(100 * self.used / self.limit.most)

    @property
    def is_reached(self) -> bool:
        """True when nothing of it is left."""
        return self.used >= self.limit.most

    @property
    def is_near(self) -> bool:
        """True when it is to be told how much of it is used."""
        return 100 * self.used >= NEAR_PERCENT * self.limit.most


@dataclass(frozen=True, slots=True)
class Balance:
    """Every limit that holds for a turn, as it is before that; none where nothing is limited."""

    standings: tuple[LimitStatus, ...] = ()

    @property
    def refused(self) -> LimitStatus | None:
        """The limit that is used up; of several the one that ends last."""
        reached = [each for each in self.standings if each.is_reached]
        return max(reached, key=lambda each: each.period.end, default=None)

    @property
    def is_held(self) -> bool:
        """True when nothing may be left of a limit once the calls that run now have ended."""
        return any(each.used + each.held >= each.limit.most for each in self.standings)

    def after(self, used: Mapping[str, Usage], prices: Prices) -> Balance:
        """The same once a turn has used this."""
        return Balance(
            tuple(
                replace(
                    each,
                    used=each.used + amount(each.limit.unit, used, prices),
                    guessed=tuple(sorted({*each.guessed, *guessed(each.limit.unit, used, prices)})),
                )
                for each in self.standings
            )
        )

    @property
    def near(self) -> tuple[LimitStatus, ...]:
        """Those of which most is used."""
        return tuple(each for each in self.standings if each.is_near)


@dataclass(frozen=True, slots=True)
class PendingUsage:
    """Usage of running work that is not counted yet, and the most its call may come to.

    `at` is when that was noted, in ms since the epoch.
    """

    used: Mapping[str, Usage] = field(default_factory=dict[str, Usage])
    held: Mapping[str, Usage] = field(default_factory=dict[str, Usage])
    at: int = 0


NOTHING: Final = PendingUsage()


class LimitReached(ModelError):
    """A limit is used up."""

    key = "error.model.limit"

    def __init__(self, limit: LimitStatus) -> None:
        super().__init__()
        self.limit = limit


def limits_of(caps: CapsConfig, whose: Whose) -> tuple[Limit, ...]:
    """The limits that are configured for somebody."""
    found = (
        Limit(whose, "day", "usd", caps.day_usd),
        Limit(whose, "day", "tokens", caps.day_tokens),
        Limit(whose, "month", "usd", caps.month_usd),
        Limit(whose, "month", "tokens", caps.month_tokens),
    )
    return tuple(each for each in found if each.most)


def standing(
    limit: Limit,
    period: Period,
    used: Mapping[str, Usage],
    prices: Prices,
    beside: PendingUsage = NOTHING,
) -> LimitStatus:
    """The use of a limit, from what models used in a period and what runs now."""
    unit, used = limit.unit, added(used, beside.used)
    held = amount(unit, beside.held, prices)
    return LimitStatus(limit, period, amount(unit, used, prices), guessed(unit, used, prices), held)


def amount(unit: Unit, used: Mapping[str, Usage], prices: Prices) -> float:
    """The amount that counts under a limit: tokens or their price; offline ones are free."""
    paid = [(model, usage) for model, usage in used.items() if model != OFFLINE]
    if unit == "tokens":
        return sum(usage.context_tokens for _, usage in paid)
    return sum(prices.cost_at_most(model, usage) for model, usage in paid)


def guessed(unit: Unit, used: Mapping[str, Usage], prices: Prices) -> tuple[str, ...]:
    """The models whose price had to be guessed for that."""
    if unit == "tokens":
        return ()
    return tuple(
        sorted(m for m, usage in used.items() if usage != Usage() and not prices.is_known(m))
    )


# --- in words -------------------------------------------------------------------------------------


def refusal(language: str, each: LimitStatus, zone: tzinfo, *, tells_amounts: bool) -> str:
    """Why there is no answer now, until when, what was kept and who can change it."""
    words = _said(language, "refused", each, zone)
    return _with_amounts(language, words, each) if tells_amounts else words


def unsummarised(language: str, each: LimitStatus, here: Conversation) -> str:
    """Why no summary is written now, and from when on one may be."""
    return _said(language, "unsummarised", each, here.snapshot.zone_of(here.person))


def notice(language: str, each: LimitStatus, zone: tzinfo) -> str:
    """That most of a limit is used, or all of it."""
    key = "reached" if each.is_reached else "near"
    return _with_amounts(language, _said(language, key, each, zone), each)


def line(language: str, each: LimitStatus, zone: tzinfo) -> str:
    """A line about the use of a limit."""
    return _with_amounts(language, _said(language, "line", each, zone), each)


def _said(language: str, key: str, each: LimitStatus, zone: tzinfo) -> str:
    name = f"{each.limit.whose}.{each.limit.span}"
    return text(
        language,
        f"limit.{key}",
        what=text(language, f"limit.{name}"),
        percent=each.percent,
        when=shown(language, moment(each.period.end, zone)),
    )


def _with_amounts(language: str, words: str, each: LimitStatus) -> str:
    used, most = amounts(language, each)
    parts = [words, text(language, "limit.amounts", used=used, most=most)]
    if each.guessed:
        models = ", ".join(f"`{model}`" for model in each.guessed)
        parts.append(text(language, "limit.guessed", models=models))
    return " ".join(parts)


def amounts(language: str, each: LimitStatus) -> tuple[str, str]:
    """The used amount of a limit, and its maximum."""
    if each.limit.unit == "usd":
        return shown_price(each.used), shown_price(each.limit.most)
    most = text(language, "limit.tokens", count=grouped(int(each.limit.most)))
    return grouped(int(each.used)), most


# Asks the counts whether somebody may use a model, and notes what was told of that.

SETTLED_MS: Final = 60 * 60_000  # nothing is counted for a time that is so long ago
NO_LIMITS: Final = LimitsConfig()
UNLIMITED: Final = Balance()
UNKNOWN: Final = 1 << 40  # tokens of a call of which nobody knows what it may come to

# What is noted in `meta` of work that runs, by its person's digest and a number of its own.
RUNNING: Final = "running_cost:"
HELD_MS: Final = 10 * 60_000  # after which a call is taken for lost, with the node that made it
NOTED_MS: Final = 24 * 60 * 60_000  # after which what was used for it is
LOOK_SECONDS: Final = 1.0  # between looks whether calls of other nodes have ended
SETTLE_SECONDS: Final = 5.0  # for noting that a call has ended, as its program may be ending too


_RUNNING: Final = TypeAdapter(PendingUsage)


def _note(tx: Transaction, key: str, noted: PendingUsage) -> None:
    if noted.used or noted.held:
        records.keep(tx, key, _RUNNING.dump_json(noted).decode(), noted.at)
    else:
        records.drop(tx, key)


def _running(
    tx: Transaction, prefix: str, now: int, but: str, used: Mapping[str, Usage]
) -> PendingUsage:
    """All together of what is noted under a prefix, but for one key, whose work has `used` this."""
    found = PendingUsage(used)
    for name, each in records.values_under(tx, prefix, _RUNNING.validate_json).items():
        if prefix + name != but and abs(now - each.at) < NOTED_MS:
            is_lost = abs(now - each.at) >= HELD_MS
            held = found.held if is_lost else added(found.held, each.held)
            found = PendingUsage(added(found.used, each.used), held)
    return found


def _prefix(person: str) -> str:
    return f"{RUNNING}{hashlib.blake2b(person.encode(), digest_size=16).hexdigest()}:"


@dataclass(eq=False, kw_only=True)
class BillingAccount(Meter):
    """The meter of one piece of work, which somebody is charged for before each call."""

    allowance: Allowance
    payer: Conversation

    @asynccontextmanager
    async def call(self, model: str, sent: int, most: int) -> AsyncGenerator[None]:
        """See `Meter.call`; waits while other calls may use up what is left."""
        before, is_held = self.usage.context_tokens, True  # it may be, should it be cancelled
        try:
            is_held = await self.allowance.hold(self, model, sent, most)
            self.asks(model)
            yield
        finally:
            if is_held:
                used = self.usage.context_tokens - before
                await self.allowance.settle(self, model, used if used > sent + most else 0)


_Settled = tuple[int, dict[str, Usage]]


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits that hold for a person: their own, and those of everybody together."""

    person: str
    own: tuple[Limit, ...] = ()
    in_all: tuple[Limit, ...] = ()


class Allowance:
    """Checks people's spending against `[limits]`; without limits nothing is read."""

    def __init__(
        self, database: Database, resolver: ConversationResolver, prices: Prices, clock: Clock
    ) -> None:
        self._database = database
        self._resolver = resolver
        self.clock = clock
        # What everybody used from the beginning of a period to some time that is settled.
        self._settled: dict[int, _Settled] = {}
        self._changed = asyncio.Event()  # a call has ended
        self._most: dict[str, int] = {}  # tokens of calls that came to more than was thought
        self.prices = prices

    def account(self, payer: Conversation) -> BillingAccount:
        """Pays for the calls of one piece of work."""
        return BillingAccount(allowance=self, payer=payer)

    async def of(self, conversation: Conversation, model: str = "") -> Balance:
        """The limits that apply to whoever speaks in a conversation, for a turn with a model.

        Raises:
            StorageError: it cannot be read.
        """
        if model == OFFLINE or self._resolver.policy.config.limits == NO_LIMITS:
            return UNLIMITED
        limits = self._limits(conversation.person, is_owner=conversation.is_owner)
        now = self.clock()
        if not (limits.own or limits.in_all):
            return UNLIMITED
        found, self._settled = await self._database.read(lambda tx: self._look(tx, limits, now))
        return found

    async def hold(self, account: BillingAccount, model: str, sent: int, most: int) -> bool:
        """Wait until a call may be made, and note the most it may come to; False: without limits.

        Raises:
            LimitReached: nothing is left to pay for it.
            StorageClosed: the database was closed meanwhile.
        """
        if self._resolver.policy.config.limits == NO_LIMITS:
            return False
        while model != OFFLINE:
            limits = self._limits(account.payer.person, is_owner=account.payer.is_owner)
            if not (limits.own or limits.in_all):
                break
            changed, now = self._changed, self.clock()
            if not account.noted:
                account.noted = f"{_prefix(account.payer.person)}{secrets.token_hex(8)}"
            written = max(most, self._most.get(model, 0) - sent)
            noted = PendingUsage(account.used, {model: Usage(0, written, 0, sent)}, now)
            work = partial(self._look, limits=limits, now=now, key=account.noted, noted=noted)
            balance, self._settled = await insist(self._database, work)
            if balance.refused is not None:
                raise LimitReached(balance.refused)
            if not balance.is_held:
                return True
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), LOOK_SECONDS)
        return False

    async def settle(self, account: BillingAccount, model: str, over: int) -> None:
        """Note that a call has ended; what counts it drops the note.

        `over` are its tokens if they were more than was thought, else 0.
        """
        self._most[model] = max(over, self._most.get(model, 0))
        noted = PendingUsage(account.used, at=self.clock())
        try:
            with fencing.behind(None):
                async with asyncio.timeout(SETTLE_SECONDS):
                    await insist(self._database, lambda tx: _note(tx, account.noted, noted))
        except (StorageError, TimeoutError) as error:
            log.warning("limit.not_settled", error=type(error).__name__)
        finally:
            self._changed.set()
            self._changed = asyncio.Event()

    async def in_all(self) -> tuple[LimitStatus, ...]:
        """The use of the limits for everybody together.

        Raises:
            StorageError: it cannot be read.
        """
        limits, now = limits_of(self._resolver.policy.config.limits.in_all, "all"), self.clock()
        if not limits:
            return ()
        return await self._database.read(lambda tx: self._stand_in_all(tx, limits, now)[0])

    async def of_people(self, people: Sequence[str]) -> Mapping[str, tuple[LimitStatus, ...]]:
        """The use of each person's own limits; without people who have none.

        Raises:
            StorageError: it cannot be read.
        """
        every, now = [self._limits(each, is_owner=each == OWNER) for each in people], self.clock()
        found = [limits for limits in every if limits.own]

        def look(tx: Transaction) -> Mapping[str, tuple[LimitStatus, ...]]:
            return {limits.person: self._stand(tx, limits, now) for limits in found}

        return await self._database.read(look) if found else {}

    def _look(
        self,
        tx: Transaction,
        limits: _Limits,
        now: int,
        key: str = "",
        noted: PendingUsage = NOTHING,
    ) -> tuple[Balance, dict[int, _Settled]]:
        """The use of all limits that apply to a person, with what runs now.

        Of the work with this key as it says itself, which is `noted` if its call may be made.
        """
        everybody = _running(tx, RUNNING, now, key, noted.used) if limits.in_all else NOTHING
        in_all, settled = self._stand_in_all(tx, limits.in_all, now, everybody)
        theirs = _running(tx, _prefix(limits.person), now, key, noted.used)
        balance = Balance((*self._stand(tx, limits, now, theirs), *in_all))
        if key and not balance.is_held:
            _note(tx, key, noted)
        return balance, settled

    def _stand(
        self, tx: Transaction, limits: _Limits, now: int, beside: PendingUsage = NOTHING
    ) -> tuple[LimitStatus, ...]:
        person, zone = limits.person, self._resolver.now.zone_of(limits.person)
        own = [(limit, period(limit.span, now, zone)) for limit in limits.own]
        starts = {lasting.start for _, lasting in own}
        used = {start: _by_model(tx, start, EVER, person) for start in starts}
        return tuple(
            standing(limit, each, used[each.start], self.prices, beside) for limit, each in own
        )

    def _stand_in_all(
        self, tx: Transaction, limits: Sequence[Limit], now: int, beside: PendingUsage = NOTHING
    ) -> tuple[tuple[LimitStatus, ...], dict[int, _Settled]]:
        """The use of everybody's limits, and the sums that need not be read again."""
        zone, until = self._resolver.now.policy.zone, now - now % SETTLED_MS - SETTLED_MS
        asked = [(limit, period(limit.span, now, zone)) for limit in limits]
        used = {each.start: self._together(tx, each, until) for _, each in asked}
        found = tuple(
            standing(limit, each, used[each.start][0], self.prices, beside) for limit, each in asked
        )
        return found, {start: settled for start, (_, settled) in used.items()}

    def _limits(self, person: str, *, is_owner: bool) -> _Limits:
        """The limits that hold for somebody; none for an owner who is exempt."""
        config = self._resolver.policy.config.limits
        if is_owner and config.exempt_owner:
            return _Limits(person)
        people = config.people
        names = self._resolver.now.names_of(person) if people else ()
        caps = next((people[name] for name in names if name in people), config.each)
        return _Limits(person, limits_of(caps, "person"), limits_of(config.in_all, "all"))

    def _together(
        self, tx: Transaction, lasting: Period, until: int
    ) -> tuple[dict[str, Usage], _Settled]:
        """Everybody's usage in a period, and the part that need not be read again."""
        before, known = self._settled.get(lasting.start, (lasting.start, {}))
        if before > until:  # it has only just begun, or the clock was set back
            before, known = lasting.start, {}
        else:
            known = added(known, _by_model(tx, before, until, None))
            before = until
        now = _by_model(tx, before, EVER, None)
        return added(known, now), (before, known)


def is_first(tx: Transaction, whom: str, each: LimitStatus, now: int) -> bool:
    """Note that somebody is told of a limit; False when they were told in this period."""
    rows = tx.execute(
        "INSERT INTO limit_notices(person, whose, span, unit, start, told_at) "
        "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING start",
        (whom, each.limit.whose, each.limit.span, each.limit.unit, each.period.start, now),
    )
    return bool(rows)


def prune_notices(tx: Transaction, now: int) -> None:
    """Forget what was told of periods that are over, and what was noted of work that is lost."""
    tx.execute("DELETE FROM limit_notices WHERE told_at < ?", (now - KEPT_WHOLE_MS,))
    stale = f"key LIKE '{RUNNING}%' AND updated_at < ?"
    tx.execute(f"DELETE FROM meta WHERE {stale}", (now - NOTED_MS,))


def _by_model(tx: Transaction, start: int, end: int, person: str | None) -> dict[str, Usage]:
    found = sums(tx, ("model",), start, end, person=person)
    return {str(each.keys[0]): each.usage for each in found}
