"""How much may be used: limits, how far each is used up, and what follows. Pure.

A turn is made while no limit of it is used up, so a limit can be exceeded by what the turns use
that run at the same time: one for each conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, tzinfo
from typing import Final, Literal

from bot.agent.models import Usage
from bot.clock import moment
from bot.config import OFFLINE, CapsConfig
from bot.context.report import grouped
from bot.i18n import text
from bot.money.prices import Prices
from bot.money.prices import shown as in_dollars
from bot.sessions.due_time import shown

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
    """When a day begins; where clocks skip midnight, at the moment they skip it."""
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
class Standing:
    """How far a limit is used up in the period that runs now.

    `guessed` are the models without a price, which count as the dearest known one.
    """

    limit: Limit
    period: Period
    used: float
    guessed: tuple[str, ...] = ()

    @property
    def percent(self) -> int:
        """How much of it is used; 100 only when nothing is left."""
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

    standings: tuple[Standing, ...] = ()

    @property
    def refused(self) -> Standing | None:
        """The limit that is used up; of several the one that ends last."""
        reached = [each for each in self.standings if each.is_reached]
        return max(reached, key=lambda each: each.period.end, default=None)

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
    def near(self) -> tuple[Standing, ...]:
        """Those of which most is used."""
        return tuple(each for each in self.standings if each.is_near)


def limits_of(caps: CapsConfig, whose: Whose) -> tuple[Limit, ...]:
    """The limits that are configured for somebody."""
    found = (
        Limit(whose, "day", "usd", caps.day_usd),
        Limit(whose, "day", "tokens", caps.day_tokens),
        Limit(whose, "month", "usd", caps.month_usd),
        Limit(whose, "month", "tokens", caps.month_tokens),
    )
    return tuple(each for each in found if each.most)


def standing(limit: Limit, period: Period, used: Mapping[str, Usage], prices: Prices) -> Standing:
    """How far a limit is used up by what models used in a period."""
    return Standing(
        limit, period, amount(limit.unit, used, prices), guessed(limit.unit, used, prices)
    )


def amount(unit: Unit, used: Mapping[str, Usage], prices: Prices) -> float:
    """What tokens come to under a limit: all of them, or their price; offline ones are nothing."""
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


def refusal(language: str, each: Standing, zone: tzinfo, *, tells_amounts: bool) -> str:
    """Why there is no answer now, until when, what was kept and who can change it."""
    words = _said(language, "refused", each, zone)
    return _with_amounts(language, words, each) if tells_amounts else words


def notice(language: str, each: Standing, zone: tzinfo) -> str:
    """That most of a limit is used, or all of it."""
    key = "reached" if each.is_reached else "near"
    return _with_amounts(language, _said(language, key, each, zone), each)


def line(language: str, each: Standing, zone: tzinfo) -> str:
    """How a limit stands."""
    return _with_amounts(language, _said(language, "line", each, zone), each)


def _said(language: str, key: str, each: Standing, zone: tzinfo) -> str:
    name = f"{each.limit.whose}.{each.limit.span}"
    return text(
        language,
        f"limit.{key}",
        what=text(language, f"limit.{name}"),
        percent=each.percent,
        when=shown(language, moment(each.period.end, zone)),
    )


def _with_amounts(language: str, words: str, each: Standing) -> str:
    used, most = (_amount(language, each.limit, n) for n in (each.used, each.limit.most))
    parts = [words, text(language, "limit.amounts", used=used, most=most)]
    if each.guessed:
        models = ", ".join(f"`{model}`" for model in each.guessed)
        parts.append(text(language, "limit.guessed", models=models))
    return " ".join(parts)


def _amount(language: str, limit: Limit, amount: float) -> str:
    if limit.unit == "usd":
        return in_dollars(amount)
    return text(language, "limit.tokens", count=grouped(int(amount)))
