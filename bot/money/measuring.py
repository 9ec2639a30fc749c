"""Tokens and money as numbers for Prometheus: by model and purpose, never by person."""

from __future__ import annotations

from bot.metrics import Metrics
from bot.money.counts import Spent
from bot.money.prices import Prices


def measure(metrics: Metrics, prices: Prices, spent: Spent) -> None:
    """Add what was counted to the metrics of this program."""
    usage = spent.usage
    kinds = {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cache_read": usage.cache_read_tokens,
        "cache_write": usage.cache_write_tokens,
    }
    for kind, number in kinds.items():
        if number:
            metrics.tokens.labels(spent.model, spent.purpose, kind).inc(number)
    if usd := prices.cost(spent.model, usage):
        metrics.cost.labels(spent.model, spent.purpose).inc(usd)
