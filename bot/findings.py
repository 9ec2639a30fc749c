"""What the doctor found, in words and for machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bot.channel import Finding, Level
from bot.i18n import DEFAULT_LANGUAGE
from bot.i18n import finding as said

_WORST: Final[tuple[Level, ...]] = ("error", "warning", "ok")


@dataclass(frozen=True, slots=True)
class Told:
    """A finding as a person reads it; `fix` is what to do, empty for nothing.

    `language` is that of its words, which are English where a package brought them.
    """

    level: Level
    text: str
    fix: str
    account: str
    language: str = DEFAULT_LANGUAGE


def told(finding: Finding, language: str) -> Told:
    """A finding in somebody's language; one that a package brought keeps its own words. Pure."""
    if finding.text:
        return Told(finding.level, finding.text, finding.fix, finding.account)
    text = said(language, f"{finding.id}.text", **finding.values)
    fix = said(language, f"{finding.id}.fix", **finding.values)
    return Told(finding.level, text or finding.id, fix, finding.account, language)


def worst(findings: Iterable[Finding]) -> Level:
    """The most serious level of some findings; "ok" for none. Pure."""
    levels = {each.level for each in findings}
    for level in _WORST:
        if level in levels:
            return level
    return "ok"
