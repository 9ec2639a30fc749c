"""Findings of the doctor, in words and for machines."""

from __future__ import annotations

from dataclasses import dataclass

from bot.channel import Finding, Level
from bot.i18n import DEFAULT_LANGUAGE
from bot.i18n import finding as said


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
    if finding.text or not finding.id:
        return Told(finding.level, finding.text, finding.fix, finding.account)
    text = said(language, f"{finding.id}.text", **finding.values)
    fix = said(language, f"{finding.id}.fix", **finding.values)
    return Told(finding.level, text or finding.id, fix, finding.account, language)


def named(language: str, check: str) -> str:
    """The name of a part of the program; a channel has its own. Pure."""
    return said(language, f"check.{check}") or check
