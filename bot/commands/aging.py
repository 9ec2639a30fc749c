"""How old a claim is, what bore it out, and whether it has faded: in words."""

from __future__ import annotations

from datetime import date

from bot.i18n import text
from bot.memory.claims import Aging, Claim

MONTH, YEAR = 30, 365  # days
FIRST_MONTHS, FIRST_YEARS = 2 * MONTH, 2 * YEAR  # below, smaller units are told


def age_of(language: str, claim: Claim, today: date) -> str:
    """How long ago a claim was said; empty when nobody knows."""
    if claim.said is None:
        return ""
    days = max(0, (today - claim.said).days)
    if days == 0:
        return text(language, "memory.aged.today")
    if days < FIRST_MONTHS:
        return text(language, "memory.aged.days", count=days)
    if days < FIRST_YEARS:
        return text(language, "memory.aged.months", count=days // MONTH)
    return text(language, "memory.aged.years", count=days // YEAR)


def told_of(language: str, claim: Claim, aging: Aging, space: str) -> list[str]:
    """What there is to say of a claim's age, `aged` or not."""
    aged = aging.aged(claim, space)
    told = [age_of(language, aged, aging.today)]
    for name, day in (("confirmed", aged.confirmed), ("used", aged.used)):
        if day is not None:
            told.append(text(language, f"memory.aged.{name}", date=f"{day:%Y-%m-%d}"))
    if not aged.is_over and aging.is_faded(aged, space):
        told.append(text(language, "memory.aged.faded"))
    return [each for each in told if each]
