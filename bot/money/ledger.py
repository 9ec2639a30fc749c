"""What was used, summed up for whoever runs the bot: by person, model, day, purpose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

from bot.agent.models import Usage
from bot.clock import moment
from bot.i18n import text
from bot.money import Heading, counts
from bot.money.counts import By
from bot.money.prices import Bill, Prices, shown
from bot.storage import Transaction

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
    used: dict[str, dict[str, Usage]] = {}
    runs: dict[str, int] = {}
    groups: tuple[By, ...] = (_COLUMNS[by],) if by == "model" else (_COLUMNS[by], "model")
    for each in counts.sums(tx, groups, since, counts.EVER):
        key, model = each.keys[0], str(each.keys[-1])
        name = f"{moment(int(key), zone):%Y-%m-%d}" if by == "day" else str(key)
        models = used.setdefault(name, {})
        models[model] = models.get(model, Usage()) + each.usage
        runs[name] = runs.get(name, 0) + each.runs
    found = [Line(name, runs[name], prices.bill(models)) for name, models in used.items()]
    if by != "day":
        found.sort(key=lambda line: (-line.bill.usd, -line.bill.usage.context_tokens, line.name))
    return found


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
    usage = line.bill.usage
    return {
        "name": line.name,
        "runs": line.runs,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "usd": round(line.bill.usd, 6),
        "unpriced": list(line.bill.unpriced),
    }
