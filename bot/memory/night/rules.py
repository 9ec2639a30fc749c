"""What the night may change, found by plain rules. Pure.

What came from elsewhere takes no part: it neither stays in the place of anything nor ends it. What
the person said themselves is ended by their own words alone. No change touches an entry that
another one rests on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from bot.memory import layout
from bot.memory.claims import Aging
from bot.memory.night import edits, statements
from bot.memory.night.edits import Edit, Entry, Need
from bot.memory.night.known import LASTING, Known, Place, known
from bot.memory.notes import is_day_note

NOBODYS: Final = 0.05  # a strength below which it is asked whether a conclusion may go
MOST_ASKED: Final = 3  # questions of a night
LONG: Final = 60  # days
MOST_TOGETHER: Final = 6  # entries that are put together in one change

LATEST: Final = 20  # of what is said of one thing, by which the others may be over

_TRUST: Final = {"hand": 3, "owner": 3, "imported": 2, "agent": 1}


@dataclass(frozen=True, slots=True)
class Change:
    """One thing the night does: `edits` are what it comes to.

    `name` tells it from others, and has the digests of the entries it rests on.
    """

    kind: edits.Kind
    name: str
    edits: tuple[Edit, ...]


@dataclass(slots=True)
class Draft:
    """What is put together for a night: changes, and others that are made only when asked for."""

    today: date
    most: int
    left: Collection[str]  # names of changes that were taken back, or asked for
    standing: Collection[Place]  # every entry there is
    changes: list[Change] = field(default_factory=list[Change])
    asked: list[Change] = field(default_factory=list[Change])
    _edited: set[Place] = field(default_factory=set[Place])
    _needed: set[Place] = field(default_factory=set[Place])

    def add(
        self, kind: edits.Kind, made: Sequence[Edit], needed: Known | None, *, asks: bool = False
    ) -> None:
        """Take a change up while there is room, unless it would touch what another one rests on."""
        places = {(each.path, each.before) for each in made}
        rests_on = {needed.place} if needed is not None else set[Place]()
        name = edits.name_of(kind, (each for _, each in places | rests_on))
        is_free = not places & (self._edited | self._needed) and not rests_on & self._edited
        # What was done today to one that is the same to the last byte is done another day to this.
        is_free = is_free and not any((each.path, each.after) in self.standing for each in made)
        room = min(self.most - len(self.changes), MOST_ASKED) if asks else self.most
        to = self.asked if asks else self.changes
        if is_free and len(to) < room and name not in self.left:
            self._edited |= places
            self._needed |= rests_on
            to.append(Change(kind, name, tuple(made)))

    def is_over(self, known: Known) -> bool:
        """True for an entry that is changed already."""
        return known.place in self._edited


def plan(
    notes: Mapping[str, str],
    aging: Aging,
    *,
    most: int,
    left: Collection[str] = (),
    space: str = "",
    more: Callable[[Draft], None] | None = None,
) -> Draft:
    """At most so many changes, none of those that are `left`; what is over comes first.

    `more` puts in others while there is room, before what only moves; what is asked comes last.
    """
    found = known(notes, aging, space)
    standing = {
        (path, entry.digest) for path, text in notes.items() for entry in edits.entries(path, text)
    }
    made = Draft(aging.today, most, left, standing)
    for old, new in _ended(found):
        end(made, old, new)
    for group in _same([each for each in found if not made.is_over(each)]):
        put_together(made, group)
    if more is not None:
        more(made)
    for each in found:
        if each.states.is_lasting and matters(each):
            move(made, each, LASTING)
    for old, new in _doubtful(found):
        end(made, old, new, asks=True)
    for each in found:
        if each.claim.whose == "agent" and aging.strength(each.claim, space) < NOBODYS:
            drop(made, each)
    return made


# --- what says the same --------------------------------------------------------------------------


def _same(found: Sequence[Known]) -> Iterator[Sequence[Known]]:
    by_core: dict[str, list[Known]] = defaultdict(list)
    for each in found:
        if each.states.core and each.states.is_lasting:
            by_core[each.states.core].append(each)
    yield from (group for group in by_core.values() if len(group) > 1)


def put_together(made: Draft, group: Sequence[Known]) -> None:
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


def _strike(made: Draft, others: Sequence[Known], stays: Known) -> None:
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


def _confirm(made: Draft, each: Known, by: Known, day: date) -> None:
    last = each.claim.confirmed or each.claim.said
    if last is None or last >= day:
        return
    comment = f"{each.claim.whose} {each.claim.said or last:%Y-%m-%d} confirmed {day:%Y-%m-%d}"
    needs = (Need(by.path, (by.entry.digest,)),)
    made.add("kept", (edits.keeping(each.entry, comment, needs),), by)


def _distinct(others: Sequence[Known], stays: Known) -> list[Known]:
    """Without those that cannot be told apart from another one in their note."""
    seen = {stays.place}
    found: list[Known] = []
    for each in others:
        if each.place not in seen:
            seen.add(each.place)
            found.append(each)
    return found


def _age(known: Known) -> int:
    """Higher for what was said earlier; what has no day counts as the earliest."""
    return -(known.claim.said or date.min).toordinal()


def _rank(known: Known) -> int:
    path = known.path
    return 2 if path in layout.CURATED else 0 if is_day_note(path) else 1


# --- what matters for long -----------------------------------------------------------------------


def matters(known: Known) -> bool:
    """True for an entry of a day's note that was borne out long after it was said."""
    claim = known.claim
    if claim.said is None or claim.whose == "hand":
        return False
    is_long = claim.borne_out is not None and (claim.borne_out - claim.said).days >= LONG
    return is_long and is_day_note(known.path)


def move(made: Draft, known: Known, to: str) -> None:
    """Have an entry of a day's note stand in a topic."""
    claim = known.claim
    label = f"{claim.whose} {claim.said:%Y-%m-%d}"
    label += f" confirmed {claim.confirmed:%Y-%m-%d}" if claim.confirmed is not None else ""
    comment = _until(known.entry, made.today, _named(to, "moved to"))
    made.add("moved", (edits.moving(known.entry, comment, to, label),), None)


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
        latest = group[-LATEST:][::-1]
        for old in group:
            if (new := next((each for each in latest if _ends(each, old)), None)) is not None:
                yield old, new


def _ends(new: Known, old: Known) -> bool:
    return may_end(new, old) and statements.contradict(new.states, old.states)


def _doubtful(found: Sequence[Known]) -> Iterator[tuple[Known, Known]]:
    """What may be over, as nobody knows since when it stands there, with what may have ended it."""
    dated = [
        each
        for each in found
        if each.claim.said is not None and each.claim.is_own and _may_contradict(each)
    ][-LATEST:]
    for old in found:
        if old.claim.said is None and _may_contradict(old):
            later = (n for n in reversed(dated) if statements.contradict(n.states, old.states))
            if (new := next(later, None)) is not None:
                yield old, new


def _may_contradict(known: Known) -> bool:
    return bool(known.states.slot or known.states.denies)


def may_end(new: Known, old: Known) -> bool:
    """True when words may end others: said later, and by the person if the others were."""
    if old.claim.said is None or new.claim.said is None:
        return False
    is_later = new.claim.said > old.claim.said or (
        new.order > old.order and new.path == old.path and is_day_note(old.path)
    )
    # Said again on a later day it was so still.
    borne_out = old.claim.confirmed is None or old.claim.confirmed < new.claim.said
    return (
        is_later
        and borne_out
        and (new.claim.is_own or not (old.claim.is_own or new.claim.whose == "imported"))
    )


def end(made: Draft, old: Known, new: Known, *, asks: bool = False) -> None:
    """Strike out what is over, by what another entry says."""
    where = _named(new.path, "ended by")
    needs = (Need(new.path, (new.entry.digest,)),)
    struck = edits.striking(old.entry, "ended", _until(old.entry, made.today, where), needs)
    made.add("ended", (struck,), new, asks=asks)


def drop(made: Draft, known: Known) -> None:
    """Ask whether an entry may be struck out."""
    comment = _until(known.entry, made.today, "let go")
    made.add("dropped", (edits.striking(known.entry, "dropped", comment),), None, asks=True)


# --- comments ------------------------------------------------------------------------------------


def _until(entry: Entry, today: date, why: str) -> str:
    """The comment of an entry that is struck out: whose it was, since when it is not, and why."""
    comment = entry.comment
    before = f"{comment}, " if " " in comment else f"{comment} " if comment else ""
    return f"{before}until {today:%Y-%m-%d}, {why}"


def _named(path: str, words: str) -> str:
    """Words that name a note, if a comment can hold its name."""
    is_safe = not {"<", ">"} & {*path} and "--" not in path
    return f"{words} {path}" if is_safe else words
