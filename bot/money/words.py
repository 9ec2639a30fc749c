"""What people are told of limits: when one is nearly used up, when it is, and how they stand."""

from __future__ import annotations

from datetime import tzinfo

from bot.clock import moment
from bot.context.report import grouped
from bot.i18n import text
from bot.money.limits import Limit, Standing
from bot.money.prices import shown as in_dollars
from bot.sessions.due_time import shown


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
