"""How much may be used: limits, how far each is used up, and what follows. Pure.

A turn is made while no limit of it is used up, so a limit can be exceeded by what the turns use
that run at the same time: one for each conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from bot.agent.models import Usage
from bot.config import OFFLINE, CapsConfig
from bot.money.periods import Period, Span
from bot.money.prices import Prices

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
