"""What the night may change, found by plain rules. Pure.

What came from elsewhere takes no part: it neither stays in the place of anything nor ends it. What
the person said themselves is ended by their own words alone. No change touches an entry that
another one rests on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import PurePosixPath
from typing import Final

from bot.memory import claims, dates, layout, markdown
from bot.memory.claims import Claim
from bot.memory.night import edits, statements
from bot.memory.night.edits import Edit, Entry, Need
from bot.memory.night.statements import Statement
from bot.memory.notes import is_day_note

LASTING: Final = "memory/lasting.md"  # where goes what mattered for long
LONG: Final = 60  # days
MOST_TOGETHER: Final = 6  # entries that are put together in one change

_DAY: Final = r"\d{4}-\d\d-\d\d"
# Comments of entries that may be changed; those that people wrote are theirs.
_MARK: Final = re.compile(rf"(?:(?:owner|agent|imported)(?: {_DAY})?(?: confirmed {_DAY})?)?")
_CLOCK: Final = re.compile(r"^\d{1,2}:\d{2}\s+")
_TRUST: Final = {"hand": 3, "owner": 3, "imported": 2, "agent": 1}


_Place = tuple[str, str]  # of an entry: its note, and its digest


@dataclass(frozen=True, slots=True)
class Known:
    """An entry that may take part: whose claim it is since when, and what it states."""

    entry: Entry
    claim: Claim
    states: Statement

    @property
    def path(self) -> str:
        """The note it stands in."""
        return self.entry.path

    @property
    def order(self) -> tuple[date, str, int]:
        """Sorts by when it was said, and within a note by its place."""
        return self.claim.said or date.min, self.path, self.entry.start


@dataclass(frozen=True, slots=True)
class Change:
    """One thing the night does: `name` tells it from others, `edits` are what it comes to."""

    kind: edits.Kind
    name: str
    edits: tuple[Edit, ...]


@dataclass(slots=True)
class _Plan:
    today: date
    most: int
    left: Collection[str]  # names of changes that were taken back
    standing: Collection[_Place]  # every entry there is
    changes: list[Change] = field(default_factory=list[Change])
    _edited: set[_Place] = field(default_factory=set[_Place])
    _needed: set[_Place] = field(default_factory=set[_Place])

    def add(self, kind: edits.Kind, made: Sequence[Edit], needed: Known | None) -> None:
        """Take a change up while there is room, unless it would touch what another one rests on."""
        places = {(each.path, each.before) for each in made}
        rests_on = {_place(needed)} if needed is not None else set[_Place]()
        name = edits.digest(kind + "".join(sorted(each for _, each in places | rests_on)))
        is_free = not places & (self._edited | self._needed) and not rests_on & self._edited
        # What was done today to one that is the same to the last byte is done another day to this.
        is_free = is_free and not any((each.path, each.after) in self.standing for each in made)
        if is_free and len(self.changes) < self.most and name not in self.left:
            self._edited |= places
            self._needed |= rests_on
            self.changes.append(Change(kind, name, tuple(made)))

    def is_over(self, known: Known) -> bool:
        """True for an entry that is changed already."""
        return _place(known) in self._edited


def known(notes: Mapping[str, str], used: Mapping[str, date] | None = None) -> list[Known]:
    """The entries of notes that may take part in a change, by path; the oldest first.

    `used` says when claims were last used, by digest.
    """
    found = [each for path, text in notes.items() for each in _of_note(path, text, used or {})]
    return sorted(found, key=lambda each: each.order)


def plan(
    notes: Mapping[str, str],
    today: date,
    *,
    most: int,
    left: Collection[str] = (),
    used: Mapping[str, date] | None = None,
) -> tuple[Change, ...]:
    """At most so many changes, none of those that are `left`; what is over comes first."""
    found = known(notes, used)
    standing = {
        (path, entry.digest) for path, text in notes.items() for entry in edits.entries(path, text)
    }
    made = _Plan(today, most, left, standing)
    for old, new in _ended(found):
        _end(made, old, new)
    for group in _same([each for each in found if not made.is_over(each)]):
        _put_together(made, group)
    for each in found:
        if _matters(each):
            _move(made, each)
    return tuple(made.changes)


# --- what says the same --------------------------------------------------------------------------


def _same(found: Sequence[Known]) -> Iterator[Sequence[Known]]:
    by_core: dict[str, list[Known]] = defaultdict(list)
    for each in found:
        if each.states.core and each.states.is_lasting:
            by_core[each.states.core].append(each)
    yield from (group for group in by_core.values() if len(group) > 1)


def _put_together(made: _Plan, group: Sequence[Known]) -> None:
    """Strike all but one: the person's own words stay, then what every conversation begins with.

    A conclusion that every conversation begins with stays beside them, and is confirmed by them.
    """
    own = [each for each in group if each.claim.is_own] or list(group)
    stays = max(own, key=lambda each: (_rank(each), _TRUST[each.claim.whose], _age(each)))
    others = _distinct([each for each in group if each is not stays], stays)
    struck = [each for each in others if _rank(each) <= _rank(stays)][:MOST_TOGETHER]
    if struck:
        _strike(made, struck, stays)
    for each in others:
        if _rank(each) > _rank(stays) and not each.claim.is_own and stays.claim.said is not None:
            _confirm(made, each, stays, stays.claim.said)


def _strike(made: _Plan, others: Sequence[Known], stays: Known) -> None:
    changed = _staying(stays, others)
    states = tuple(each.after for each in changed)
    needs = (Need(stays.path, (stays.entry.digest, *states)),)
    where = _named(stays.path, "same as")
    struck = [
        edits.striking(each.entry, "same", _until(each.entry, made.today, where), needs)
        for each in others
    ]
    made.add("same", (*changed, *struck), stays)


def _staying(stays: Known, others: Sequence[Known]) -> tuple[Edit, ...]:
    """The new comment of the one that stays: said on the first day, confirmed on the last."""
    alike = [stays, *(each for each in others if each.claim.whose == stays.claim.whose)]
    days = [each.claim.said for each in alike if each.claim.said is not None]
    if stays.claim.whose == "hand" or stays.claim.said is None:
        return ()
    last = max(
        day for each in alike if (day := each.claim.confirmed or each.claim.said) is not None
    )
    comment = f"{stays.claim.whose} {min(days):%Y-%m-%d}"
    comment += f" confirmed {last:%Y-%m-%d}" if last > min(days) else ""
    is_news = (min(days), last) != (stays.claim.said, stays.claim.confirmed or stays.claim.said)
    return (edits.keeping(stays.entry, comment),) if is_news else ()


def _confirm(made: _Plan, each: Known, by: Known, day: date) -> None:
    last = each.claim.confirmed or each.claim.said
    if last is None or last >= day:
        return
    comment = f"{each.claim.whose} {each.claim.said or last:%Y-%m-%d} confirmed {day:%Y-%m-%d}"
    needs = (Need(by.path, (by.entry.digest,)),)
    made.add("kept", (edits.keeping(each.entry, comment, needs),), by)


def _distinct(others: Sequence[Known], stays: Known) -> list[Known]:
    """Without those that cannot be told apart from another one in their note."""
    seen = {_place(stays)}
    found: list[Known] = []
    for each in others:
        if _place(each) not in seen:
            seen.add(_place(each))
            found.append(each)
    return found


def _place(known: Known) -> _Place:
    return known.path, known.entry.digest


def _age(known: Known) -> int:
    """Higher for what was said earlier; what has no day counts as the earliest."""
    return -(known.claim.said or date.min).toordinal()


def _rank(known: Known) -> int:
    path = known.path
    return 2 if path in layout.CURATED else 0 if is_day_note(path) else 1


# --- what matters for long -----------------------------------------------------------------------


def _matters(known: Known) -> bool:
    """True for a fact of a day's note that was borne out long after it was said."""
    claim = known.claim
    if claim.said is None or claim.whose == "hand" or not known.states.is_lasting:
        return False
    is_long = claim.borne_out is not None and (claim.borne_out - claim.said).days >= LONG
    return is_long and is_day_note(known.path)


def _move(made: _Plan, known: Known) -> None:
    claim = known.claim
    label = f"{claim.whose} {claim.said:%Y-%m-%d}"
    label += f" confirmed {claim.confirmed:%Y-%m-%d}" if claim.confirmed is not None else ""
    comment = _until(known.entry, made.today, _named(LASTING, "moved to"))
    made.add("moved", (edits.moving(known.entry, comment, LASTING, label),), None)


# --- what is over --------------------------------------------------------------------------------


def _ended(found: Sequence[Known]) -> Iterator[tuple[Known, Known]]:
    """What is over, with what ended it: of what is said of one thing the latest counts."""
    about: dict[str, list[Known]] = defaultdict(list)
    for each in found:
        states = each.states
        for name in {states.slot, states.denies, "" if states.passes else states.core}:
            if name:
                about[name].append(each)
    for group in about.values():
        for number, old in enumerate(group):
            later = (new for new in reversed(group[number + 1 :]) if _ends(new, old))
            if (new := next(later, None)) is not None:
                yield old, new


def _ends(new: Known, old: Known) -> bool:
    if (
        old.claim.said is None
        or new.claim.said is None
        or not statements.contradict(new.states, old.states)
    ):
        return False
    is_later = new.claim.said > old.claim.said or (
        new.claim.said == old.claim.said and new.path == old.path and is_day_note(old.path)
    )
    # Said again on a later day it was so still.
    borne_out = old.claim.confirmed is None or old.claim.confirmed < new.claim.said
    may = new.claim.is_own or not (old.claim.is_own or new.claim.whose == "imported")
    return is_later and borne_out and may


def _end(made: _Plan, old: Known, new: Known) -> None:
    where = _named(new.path, "ended by")
    needs = (Need(new.path, (new.entry.digest,)),)
    struck = edits.striking(old.entry, "ended", _until(old.entry, made.today, where), needs)
    made.add("ended", (struck,), new)


# --- entries -------------------------------------------------------------------------------------


def _until(entry: Entry, today: date, why: str) -> str:
    """The comment of an entry that is struck out: whose it was, since when it is not, and why."""
    comment = entry.comment
    before = f"{comment}, " if " " in comment else f"{comment} " if comment else ""
    return f"{before}until {today:%Y-%m-%d}, {why}"


def _named(path: str, words: str) -> str:
    """Words that name a note, if a comment can hold its name."""
    is_safe = not {"<", ">"} & {*path} and "--" not in path
    return f"{words} {path}" if is_safe else words


def _of_note(path: str, text: str, used: Mapping[str, date]) -> Iterator[Known]:
    contexts = _contexts(path, text)
    for entry, claim in zip(edits.entries(path, text), claims.of_note(path, text), strict=True):
        if _MARK.fullmatch(entry.comment) is None or not edits.is_plain(entry):
            continue
        words = _CLOCK.sub("", claim.text)
        context = next(each for line, each in reversed(contexts) if line <= entry.start)
        aged = replace(claim, used=used.get(claim.digest))
        yield Known(entry, aged, statements.read(words, context))


def _contexts(path: str, text: str) -> list[tuple[int, str]]:
    """From which line on, from 0, entries stand below which words: a note's name and headings."""
    name = PurePosixPath(path)
    is_open = is_day_note(path) or path in {*layout.CURATED, LASTING}
    about = "" if is_open else markdown.normal(str(name.with_suffix("")))
    found, above, fenced = [(0, about)], dict[int, str](), False
    for number, line in enumerate(text.split("\n")):
        fenced ^= bool(markdown.FENCE.match(line))
        heading = None if fenced else markdown.HEADING.match(line)
        if heading is None:
            continue
        level, title = len(heading["level"]), markdown.plain(heading["title"])
        above = {other: words for other, words in above.items() if other < level}
        if level > 1 and dates.first_day(title) is None:
            above[level] = markdown.normal(title)
        found.append((number, "/".join(filter(None, (about, *above.values())))))
    return found
