"""Entries of notes as claims: whose each is, since when, how strong it still is. Pure.

What a person said, or wrote by hand, stays until they change it. What was concluded, imported or
came from elsewhere loses half of its strength in each half-life, counted from the last day that
bore it out: when it was said, confirmed by the person's own words, or used in an answer. What came
from elsewhere is borne out by nothing: to be said again does not make it true.

When a claim was confirmed stands in the note, in the comment of its entry:
`<!-- agent 2026-07-01 confirmed 2026-08-01 -->`. When it was used does not: see `bot.memory.uses`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Final, Literal, cast

from bot.config import AgingConfig
from bot.memory import markdown, periods
from bot.memory.markdown import Provenance

Whose = Provenance | Literal["hand"]

FADED: Final = 0.25  # a strength below which a claim counts as faded: after two half-lives
_OWN: Final = frozenset[Whose]({"owner", "hand"})
_DAY: Final = r"\d{4}-\d\d-\d\d"
_BY: Final = re.compile(r"(?:owner|agent|imported|untrusted)\b")
_SAID: Final = re.compile(rf"\w+ (?P<day>{_DAY})\b")
_CONFIRMED: Final = re.compile(rf" confirmed (?P<day>{_DAY})\b")
_END: Final = re.compile(r"(?P<mark><!--\s*(?:agent|imported)\b[^<>]*?)(?<![ \t])[ \t]*-->(?=\s*$)")
_IN_MARK: Final = re.compile(rf"(<!--[^<>\n]*?) confirmed {_DAY}")


@dataclass(frozen=True, slots=True)
class Claim:
    """An entry of a note: its first and last line, from 1, and what it says, without comments.

    `said` is the day in its comment, else of its file, else of the heading above it; None when
    nothing tells. `used` is known only to who looked (`dataclasses.replace`). One that `is_over`
    was struck out: it is not true any more.
    """

    first: int
    last: int
    text: str
    whose: Whose
    said: date | None = None
    confirmed: date | None = None
    used: date | None = None
    is_over: bool = False

    @property
    def is_own(self) -> bool:
        """True for what the person said themselves, or wrote by hand."""
        return self.whose in _OWN

    @property
    def can_be_confirmed(self) -> bool:
        """True for what the person's word would make stronger."""
        return self.whose in {"agent", "imported"} and not self.is_over

    @property
    def words(self) -> str:
        """Its words for comparing; empty when it is over."""
        return markdown.entry_words(self.text)

    @property
    def dated(self) -> str:
        """Its author and date in words, as far as they are known."""
        if self.said is None:
            return ""
        said = f"{markdown.SHOWN.get(self.whose, markdown.NOTED)} {self.said:%Y-%m-%d}"
        return said if self.confirmed is None else f"{said}, confirmed {self.confirmed:%Y-%m-%d}"

    @property
    def digest(self) -> str:
        """Another one for another first line; what is kept of a claim outside of its note."""
        return digest(markdown.entry_words(self.text.partition("\n")[0]))

    @property
    def borne_out(self) -> date | None:
        """The last day that bears it out; None when none is known."""
        of_elsewhere = self.whose == "untrusted"
        days = (self.said,) if of_elsewhere else (self.said, self.confirmed, self.used)
        return max((day for day in days if day is not None), default=None)


@dataclass(frozen=True, slots=True)
class Aging:
    """The inputs of strengths: today, the configuration, and when claims were used.

    `used` is by space and `Claim.digest`.
    """

    today: date
    config: AgingConfig = field(default_factory=AgingConfig)
    used: Mapping[str, Mapping[str, date]] = field(default_factory=dict[str, Mapping[str, date]])

    def aged(self, claim: Claim, space: str) -> Claim:
        """The claim of a space with the day it was last used."""
        used = self.used.get(space, {}).get(claim.digest)
        return claim if used is None else replace(claim, used=used)

    def strength(self, claim: Claim, space: str) -> float:
        """The `strength` of a claim of a space today."""
        return strength(self.aged(claim, space), self.today, self.config)

    def is_faded(self, claim: Claim, space: str) -> bool:
        """True for a claim that hardly counts any more."""
        return self.strength(claim, space) < FADED


def digest(words: str) -> str:
    """A digest of some words as `Claim.words` gives them, from which they cannot be recovered."""
    return blake2b(words.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def of_note(path: str, text: str, day: date | None = None) -> Iterator[Claim]:
    """The claims of a note, in order; `path` is its name, by which a day's note tells its day.

    `day` is that of what nothing in the text tells one of.
    """
    own_day = periods.first_day(PurePosixPath(path).stem)
    headings = _headings(text)
    above: date | None = None
    coming = next(headings, None)
    for item in markdown.items(text):
        while coming is not None and coming[0] < item.start:
            above, coming = coming[1], next(headings, None)
        yield of_entry(item, own_day or above or day)


def of_entry(item: markdown.Item, day: date | None = None) -> Claim:
    """An entry as a claim; `day` is when it was said unless its comment tells."""
    mark = markdown.mark_of(item.text)
    confirmations = (_day(found) for found in _CONFIRMED.finditer(mark))
    return Claim(
        item.start + 1,
        item.end,
        markdown.plain(item.text).strip(),
        _whose(mark),
        _day(_SAID.match(mark)) or day,
        max((each for each in confirmations if each is not None), default=None),
        is_over=markdown.is_struck(item.text),
    )


def strength(claim: Claim, today: date, config: AgingConfig) -> float:
    """The weight of a claim, from 0 to 1; it only ever falls as time goes by.

    What the person said themselves counts fully, and what was struck out not at all. A conclusion
    of which no day is known is older than any other.
    """
    if claim.is_over:
        return 0.0
    half_lives = {"agent": config.agent, "imported": config.imported, "untrusted": config.untrusted}
    half_life = half_lives.get(claim.whose, 0)
    if half_life <= 0:
        return 1.0
    since = claim.borne_out
    if since is None:
        return 0.0
    return 0.5 ** (max(0, (today - since).days) / half_life)


def without_faded(
    path: str, text: str, aging: Aging, space: str, day: date | None = None
) -> tuple[str, int]:
    """A note without its faded claims, and how many these are; the rest stays byte for byte."""
    faded = [claim for claim in of_note(path, text, day) if aging.is_faded(claim, space)]
    if not faded:
        return text, 0
    gone = {number for claim in faded for number in range(claim.first, claim.last + 1)}
    lines = text.split("\n")
    kept = "\n".join(line for number, line in enumerate(lines, 1) if number not in gone)
    return kept, len(faded)


def strengths(path: str, text: str, aging: Aging, space: str) -> dict[str, float]:
    """The strengths of the claims of a note, by their digests."""
    return {claim.digest: aging.strength(claim, space) for claim in of_note(path, text)}


def may_end(new: Claim, old: Claim, *, follows: bool = False) -> bool:
    """True when a claim may end another: it was said later, and by the person if that was.

    One that `follows` stands behind the other in the note of one day.
    """
    if old.said is None or new.said is None:
        return False
    # Said again on a later day it was so still.
    is_borne_out = old.confirmed is not None and old.confirmed >= new.said
    is_theirs = new.is_own or not (old.is_own or new.whose == "imported")
    return (new.said > old.said or follows) and is_theirs and not is_borne_out


def confirms(by: Provenance) -> bool:
    """True when words that say again what a claim says confirm it: the person's own alone do.

    `by` is what the program found by comparing them with what was said (`agent.tools.provenance`),
    never what a model says of them.
    """
    return by == "owner"


def confirmed(text: str, line: int, day: date) -> str:
    """A note in which the entry that begins at `line`, from 1, is confirmed on a day.

    The same text when no entry that can be confirmed begins there, or it was on that day or later.
    """
    lines = text.split("\n")
    for item in markdown.items(text):
        if item.start == line - 1:
            claim = of_entry(item)
            is_known = claim.confirmed is not None and claim.confirmed >= day
            if claim.can_be_confirmed and not is_known:
                lines[item.start] = _END.sub(
                    lambda found: _with(found["mark"], day), lines[item.start]
                )
            break
    return "\n".join(lines)


def unconfirmed(text: str) -> str:
    """A note without any confirmation, to tell whether anything else was changed."""
    return _IN_MARK.sub(r"\1", text)


def _with(mark: str, day: date) -> str:
    """The beginning of a comment, with the day on which its entry was confirmed."""
    rest = _CONFIRMED.sub("", mark)
    head = re.match(rf"<!--\s*\w+(?: {_DAY})?", rest)
    end = head.end() if head is not None else len(rest)
    return f"{rest[:end]} confirmed {day:%Y-%m-%d}{rest[end:]} -->"


def _whose(mark: str) -> Whose:
    by = _BY.match(mark)
    return cast("Provenance", by.group()) if by is not None else "hand"


def _day(found: re.Match[str] | None) -> date | None:
    if found is None:
        return None
    try:
        return date.fromisoformat(found["day"])
    except ValueError:  # the thirtieth of February
        return None


def _headings(text: str) -> Iterator[tuple[int, date | None]]:
    """The line, from 0, of each heading, and the day that counts below it."""
    known: dict[int, date | None] = {}
    for number, level, title in markdown.headings(text.split("\n")):
        known = {other: day for other, day in known.items() if other < level}
        known[level] = periods.first_day(title)
        yield number, next((day for _, day in sorted(known.items(), reverse=True) if day), None)
