"""What tokens cost, in US dollars for a million of them. Pure.

The list has what Anthropic and OpenAI publish, looked up on `LOOKED_UP`: standard rates, with the
cache that the program asks for (five minutes) or gets (thirty). `[prices.models]` says what others
cost, and comes before the list. A model that neither names has no price: nobody's is guessed.

Large prompts cost more: those of Haiku beyond 100 000 tokens five times as much, those of OpenAI's
models beyond 272 000 twice, and their replies half as much again. What is counted are sums, which
do not tell; as configured, conversations are summarised before that (docs/usage.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from bot.agent.models import Usage
from bot.config import ANTHROPIC, OFFLINE, OPENAI, Config, PriceConfig

LOOKED_UP: Final = date(2026, 11, 22)

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
        """What some tokens cost, in US dollars."""
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
    """What tokens of several models come to.

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
        """What tokens of a model cost, in US dollars; None where its price is not known."""
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
        """What tokens come to, by model."""
        costs = {model: self.cost(model, usage) for model, usage in used.items()}
        return Bill(
            sum(used.values(), Usage()),
            sum(cost for cost in costs.values() if cost is not None),
            tuple(sorted(model for model, cost in costs.items() if cost is None)),
        )


def shown(usd: float) -> str:
    """An amount as people read it: cents, and fractions of them where it is less than a dollar."""
    if 0 < usd < 0.0001:
        return "<$0.0001"
    return f"${usd:.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"
