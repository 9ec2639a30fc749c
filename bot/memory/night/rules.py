"""The changes the night may make by itself: same words, and facts that are over. Pure.

Of entries that are the same but for a number, a date or a name nobody but the person knows whether
both are so: that is asked.

What came from elsewhere takes no part: it neither stays in the place of anything nor ends it. What
the person said themselves is ended by their own words alone. No change touches an entry that
another one rests on.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import PurePosixPath
from typing import Final

from bot.clock import MONTH_NAME
from bot.context import sentences
from bot.memory import claims, layout, markdown, periods
from bot.memory.claims import Aging, Claim
from bot.memory.night import edits
from bot.memory.night.edits import Edit, Entry, Kind, Need
from bot.memory.notes import is_day_note

# Reads from an entry the few facts somebody has one of, in English and Chinese. Pure.
#
# Where somebody lives and works, their age, phone number and e-mail address: of two entries that
# differ in one of these the later counts. Of two others that are the same sentence but for
# numbers, dates or names, `frame` tells that much, in any language; the rest is left to the
# model.

MOST_SLOTS: Final = 300  # characters of an entry that is looked at

_WHO = r"(?:(?:The )?(?P<who>[Mm]y \w+|[A-Za-z]\w*)(?:['’](?:ve|m))? )?"
_LATELY = r"(?i:(?:just |recently |now |have |has |am )*)"
_NAME = r"(?P<value>[A-ZÀ-Þ][\w'’-]*(?: [A-ZÀ-Þ][\w'’-]*){0,3})"
_SINCE = r"(?i: now| today| yesterday| recently| since .{1,20}| (?:last|this) \w+)?"
_HAS = r"(?:(?P<who>[Mm]y \w+|[A-Z]\w*)['’]s |[Mm]y )?(?i:new )?(?P<kind>(?i:work|home|private) )?"
_PHONE = r"(?P<value>[+\d][\d ()/.-]{4,20}\d)"
_EMAIL = r"(?P<value>\S{1,60}@\S{1,60})"
_KIN_ZH = "妹妹|姐姐|哥哥|弟弟|妈妈|爸爸|母亲|父亲|女儿|儿子|老婆|妻子|老公|丈夫|奶奶|爷爷"
_WHO_ZH = (
    rf"(?:我们?|用户)?的?(?P<who>{_KIN_ZH}|[A-Za-z]{{2,20}}|)的?(?:现在|已经|刚|最近|今年)?新?的?"
)
_NAME_ZH = r"(?P<value>(?![一这那哪个家早晚])[\w·]{2,12}?)(?<!公寓)(?<!房子)(?<!附近)"
_IS_ZH = r"(?:现在)?(?:是|改成|换成|变成|[:：])了?\s?"
_TABLE: Final = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("home", rf"{_WHO}{_LATELY}(?i:lives?|moved|relocated)(?: now)? (?:in|to) {_NAME}{_SINCE}"),
        (
            "work",
            rf"{_WHO}{_LATELY}(?i:works?|started|working)(?: now)? (?:at|for) {_NAME}{_SINCE}",
        ),
        ("age", rf"{_WHO}(?:am |is )?(?P<value>\d{{1,3}}) years? old{_SINCE}"),
        ("age", rf"{_WHO}(?:just )?(?i:turned|turns) (?P<value>\d{{1,3}}){_SINCE}"),
        ("phone", rf"{_HAS}(?i:(?:tele|mobile )?phone(?: number)?)(?: is|:)?(?: now)? {_PHONE}"),
        ("email", rf"{_HAS}(?i:e-?mail(?: address)?)(?: is|:)?(?: now)? {_EMAIL}"),
        ("home", rf"{_WHO_ZH}(?:住在|定居在|搬家?到|搬去)了?{_NAME_ZH}(?:生活)?了?"),
        ("work", rf"{_WHO_ZH}在{_NAME_ZH}(?:工作|上班)了?"),
        ("age", rf"{_WHO_ZH}(?P<value>\d{{1,3}})岁了?"),
        ("phone", rf"{_WHO_ZH}(?:电话|手机)(?:号码?)?{_IS_ZH}{_PHONE}"),
        ("email", rf"{_WHO_ZH}(?:电子)?邮[箱件](?:地址)?{_IS_ZH}{_EMAIL}"),
    )
)
GAP: Final = "…"
LEAST: Final = 1  # words, or Chinese characters, that tell what an entry is about
# A name is a word with a capital that does not begin the sentence, where it is the subject.
_VALUE: Final = re.compile(
    rf"\d+(?:[.,:/]\d+)*|\b(?i:{MONTH_NAME})\b|(?<=\S )[A-ZÀ-ÖØ-Þ\u0410-\u042f]\w+"
)
_CJK: Final = re.compile(r"[\u3400-\u9fff]")
_SELF: Final = frozenset({"", "i", "user", "owner", "person"})
_NOBODY: Final = frozenset({"he", "she", "they", "it", "we", "who", "this", "that", "there"})


def read_slots(words: str) -> tuple[str, str] | None:
    """Of whom an entry says what (`sister home`), and its value; None when it fits no pattern."""
    flat = " ".join(unicodedata.normalize("NFKC", words[: MOST_SLOTS + 1]).split()).rstrip(
        "。.!！~ "
    )
    if len(flat) > MOST_SLOTS:
        return None
    for name, pattern in _TABLE:
        if (found := pattern.fullmatch(flat)) is not None:
            who = (found["who"] or "").casefold().removeprefix("my ")
            kind = (found.groupdict().get("kind") or "").casefold()
            who = "" if who in _SELF else f"{who} "
            return None if who.strip() in _NOBODY else (f"{who}{kind}{name}", found["value"])
    return None


def slot_frame(words: str) -> tuple[str, tuple[str, ...]]:
    """An entry with a gap for each number, month and name, and what stood there.

    Both are empty where nothing would be left that tells what the entry is about.
    """
    if len(words) > MOST_SLOTS or words.endswith(("?", "\uff1f")):
        return "", ()
    flat = " ".join(unicodedata.normalize("NFKC", words).split()).rstrip("。.!！ ")
    bare = _VALUE.sub(GAP, flat)
    if len(sentences.stems(bare)) < LEAST:
        return "", ()
    return bare.casefold(), tuple(value.casefold() for value in _VALUE.findall(flat))


def contradict(one: str, other: str) -> bool:
    """True for two values of one slot that cannot both be so at the same time."""
    numbers = [re.sub(r"\D", "", each)[-7:] for each in (one, other)]
    if all(len(each) >= 5 for each in numbers):
        return numbers[0] != numbers[1]
    one, other = one.casefold(), other.casefold()
    # "Bonn" and 波恩 may be one place, and "Bonn-Beuel" is in Bonn.
    is_one_script = bool(_CJK.search(one)) == bool(_CJK.search(other))
    return is_one_script and one not in other and other not in one


# The entries of notes that may take part in what the night does. Pure.

LASTING: Final = "memory/lasting.md"  # where goes what mattered for long

_DAY: Final = r"\d{4}-\d\d-\d\d"
# Comments of entries that may be changed; those that people wrote are theirs.
_MARK: Final = re.compile(rf"(?:(?:owner|agent|imported)(?: {_DAY})?(?: confirmed {_DAY})?)?")

_NAMES_SUBJECT: Final = re.compile(r"(?:I|[Mm]y|[Uu]ser)\b|我|用户")
_AROUND: Final = ".,;:!?\"'“”‘’()[]*_`…。，、；：！？"

Place = tuple[str, str]
"""Of an entry: its note, and its digest."""


@dataclass(frozen=True, slots=True)
class Known:
    """An entry that may take part: whose claim it is since when, and what it says.

    `context` is what it stands below: those of other headings are about something else. `words` are
    the same for entries that say the same; a `slot` is a fact of which only one `value` is so.
    """

    entry: Entry
    claim: Claim
    context: str
    words: str
    slot: str = ""
    value: str = ""

    @property
    def path(self) -> str:
        """The note it stands in."""
        return self.entry.path

    @property
    def place(self) -> Place:
        """Its note and digest, which identify it."""
        return self.path, self.entry.digest

    @property
    def order(self) -> tuple[date, str, int]:
        """Sorts by when it was said, and within a note by its place."""
        return self.claim.said or date.min, self.path, self.entry.start


def known_entries(notes: Mapping[str, str], aging: Aging, space: str = "") -> list[Known]:
    """The entries of a space's notes that may take part, by path; the oldest first.

    What came from elsewhere may not, nor what cannot be had back to the last byte.
    """
    found = [each for path, text in notes.items() for each in _of_note(path, text, aging, space)]
    return sorted(found, key=lambda each: each.order)


def _of_note(path: str, text: str, aging: Aging, space: str) -> Iterator[Known]:
    contexts = _contexts(path, text)
    for entry, claim in zip(edits.entries(path, text), claims.of_note(path, text), strict=True):
        if not edits.is_plain(entry) or _MARK.fullmatch(entry.comment) is None:
            continue
        text = markdown.untimed(claim.text)
        context = next(each for line, each in reversed(contexts) if line <= entry.start)
        context = "" if _NAMES_SUBJECT.match(text) else context
        slot, value = read_slots(text) or ("", "")
        yield Known(entry, aging.aged(claim, space), context, _normal(text), slot, value)


def _normal(text: str) -> str:
    """Words without case and without punctuation around them; nothing of what asks or is long."""
    if len(text) > MOST_SLOTS or text.endswith(("?", "？")):
        return ""
    flat = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(filter(None, (word.strip(_AROUND) for word in flat.split())))


def _contexts(path: str, text: str) -> list[tuple[int, str]]:
    """From which line on, from 0, entries stand below which words: a note's name and headings."""
    name = PurePosixPath(path)
    is_open = is_day_note(path) or path in {*layout.CURATED, LASTING}
    about = "" if is_open else markdown.normal(str(name.with_suffix("")))
    found, above = [(0, about)], dict[int, str]()
    for number, level, words in markdown.headings(text.split("\n")):
        title = markdown.plain(words)
        above = {other: heading for other, heading in above.items() if other < level}
        if level > 1 and periods.first_day(title) is None:
            above[level] = markdown.normal(title)
        found.append((number, "/".join(filter(None, (about, *above.values())))))
    return found


NOBODYS: Final = 0.05  # a strength below which it is asked whether a conclusion may go
MOST_ASKED: Final = 3  # questions of a night
LONG: Final = 60  # days
MOST_TOGETHER: Final = 6  # entries that are put together in one change
LATEST: Final = 20  # of what is said of one thing, by which the others may be over

_TRUST: Final = {"hand": 3, "owner": 3, "imported": 2, "agent": 1}


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a night; `edits` make it.

    `name` tells it from others, and has the digests of the entries it rests on.
    """

    kind: Kind
    name: str
    edits: tuple[Edit, ...]


@dataclass(slots=True)
class Draft:
    """A night being planned: changes, and others that are made only if the person agrees."""

    today: date
    most: int
    left: Collection[str]  # names of changes that were taken back, or asked for
    standing: Collection[Place]  # every entry there is
    changes: list[Change] = field(default_factory=list[Change])
    asked: list[Change] = field(default_factory=list[Change])
    _edited: set[Place] = field(default_factory=set[Place])
    _needed: set[Place] = field(default_factory=set[Place])

    def add(
        self, kind: Kind, made: Sequence[Edit], needed: Known | None, *, asks: bool = False
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
    found = known_entries(notes, aging, space)
    standing = {
        (path, entry.digest) for path, text in notes.items() for entry in edits.entries(path, text)
    }
    made = Draft(aging.today, most, left, standing)
    over = list(_over(found))
    for old, new in (pair for pair in over if pair[0].claim.said is not None):
        end(made, old, new)
    for group in _same(each for each in found if not made.is_over(each)):
        put_together(made, group)
    if more is not None:
        more(made)
    for each in filter(matters, found):
        move(made, each, LASTING)
    for old, new in _differing(found):
        end(made, old, new, asks=True)
    for old, new in (pair for pair in over if pair[0].claim.said is None):
        end(made, old, new, asks=True)
    for each in found:
        if each.claim.whose == "agent" and aging.strength(each.claim, space) < NOBODYS:
            drop(made, each)
    return made


# --- what says the same --------------------------------------------------------------------------


def _same(found: Iterable[Known]) -> Iterator[Sequence[Known]]:
    """Entries in the same words; those of a diary by hand are what happened on each of its days."""
    by_words: dict[tuple[str, str], list[Known]] = defaultdict(list)
    for each in found:
        if each.words and not (each.claim.whose == "hand" and is_day_note(each.path)):
            by_words[each.context, each.words].append(each)
    yield from (group for group in by_words.values() if len(group) > 1)


def put_together(made: Draft, group: Sequence[Known]) -> None:
    """Strike all but one: the person's own words stay, then what every conversation begins with.

    It has the first day and is confirmed on the last. A conclusion that every conversation begins
    with stays beside the person's words, and is confirmed by them.
    """
    own = [each for each in group if each.claim.is_own] or list(group)
    stays = max(own, key=lambda each: (_rank(each), _TRUST[each.claim.whose], _age(each)))
    others = list({each.place: each for each in group if each.place != stays.place}.values())
    struck = [each for each in others if _rank(each) <= _rank(stays)][:MOST_TOGETHER]
    if struck:
        kept = _staying(stays, struck)
        need = Need(stays.path, (stays.entry.digest, *(each.after for each in kept)))
        gone = (_struck(made, each, "same", "same as", need, path=stays.path) for each in struck)
        made.add("same", (*kept, *gone), stays)
    for each in others:
        said, last = stays.claim.said, each.claim.confirmed or each.claim.said
        if said is None or last is None or last >= said:
            continue
        if _rank(each) > _rank(stays) and not each.claim.is_own:
            comment = _dated(each.claim.whose, each.claim.said or last, said)
            needs = (Need(stays.path, (stays.entry.digest,)),)
            made.add("kept", (edits.keeping(each.entry, comment, needs),), stays)


def _staying(stays: Known, others: Sequence[Known]) -> tuple[Edit, ...]:
    """The new comment of the one that stays, if the others give it another day."""
    claim = stays.claim
    if claim.whose == "hand" or claim.said is None:
        return ()
    alike = [each.claim for each in others if each.claim.whose == claim.whose]
    days = [day for each in alike for day in (each.said, each.confirmed) if day is not None]
    first, last = min((claim.said, *days)), max((claim.confirmed or claim.said, *days))
    is_news = (first, last) != (claim.said, claim.confirmed or claim.said)
    return (edits.keeping(stays.entry, _dated(claim.whose, first, last)),) if is_news else ()


def _age(known: Known) -> int:
    """Higher for what was said earlier; what has no day counts as the earliest."""
    return -(known.claim.said or date.min).toordinal()


def _rank(known: Known) -> int:
    path = known.path
    return 2 if path in layout.CURATED else 0 if is_day_note(path) else 1


# --- what matters for long, and what is over -----------------------------------------------------


def matters(known: Known) -> bool:
    """True for an entry of a day's note that was borne out long after it was said."""
    said, borne_out = known.claim.said, known.claim.borne_out
    if said is None or borne_out is None or known.claim.whose == "hand":
        return False
    return (borne_out - said).days >= LONG and is_day_note(known.path)


def move(made: Draft, known: Known, to: str) -> None:
    """Have an entry of a day's note stand in a topic."""
    claim = known.claim
    label = _dated(claim.whose, claim.said or made.today, claim.confirmed)
    comment = until(made.today, known.entry, "moved to", to)
    made.add("moved", (edits.moving(known.entry, comment, to, label),), None)


def _over(found: Sequence[Known]) -> Iterator[tuple[Known, Known]]:
    """Entries that are over, each with the one that ended it: the latest about a thing counts.

    Of what has no day nobody knows whether it is over; that is to be asked.
    """
    about: dict[tuple[str, str], list[Known]] = defaultdict(list)
    for each in found:
        if each.slot:
            about[each.context, each.slot].append(each)
    for group in about.values():
        latest = group[-LATEST:][::-1]
        for old in group:
            others = (new for new in latest if contradict(new.value, old.value))
            if (new := next((new for new in others if _is_later(new, old)), None)) is not None:
                yield old, new


def _differing(found: Sequence[Known]) -> Iterator[tuple[Known, Known]]:
    """Lasting entries, each with a later one that differs only in numbers, dates or names.

    A day's note tells what was so on that day, and entries of one topic may be a list.
    """
    framed: dict[tuple[str, str], list[tuple[Known, tuple[str, ...]]]] = defaultdict(list)
    for each in found:
        if not each.slot:
            about, values = slot_frame(markdown.untimed(each.claim.text))
            if values:
                framed[each.context, about].append((each, values))
    for group in framed.values():
        latest = group[-LATEST:][::-1]
        for old, was in group:
            if is_day_note(old.path):
                continue
            others = (new for new, values in latest if values != was and _is_apart(old, new))
            if (new := next((new for new in others if _is_later(new, old)), None)) is not None:
                yield old, new


def _is_apart(old: Known, new: Known) -> bool:
    """True for entries that cannot be two of one list."""
    return old.path != new.path or old.path in layout.CURATED


def _is_later(new: Known, old: Known) -> bool:
    if old.claim.said is None:
        return new.claim.said is not None and new.claim.is_own
    return may_end(new, old)


def let_go(path: str, text: str, wanted: str, today: date) -> str:
    """A note in which the entries that make a claim, by its `Claim.digest`, are struck out.

    The same text when none does that can be struck out and had back.
    """
    found = zip(edits.entries(path, text), claims.of_note(path, text), strict=True)
    made = [
        edits.striking(entry, "dropped", until(today, entry, "let go"))
        for entry, claim in found
        if claim.digest == wanted and not claim.is_over and edits.is_plain(entry)
    ]
    return edits.apply({path: text}, made).get(path, text)


def may_end(new: Known, old: Known) -> bool:
    """True when an entry may end another one (`claims.may_end`)."""
    follows = new.order > old.order and new.path == old.path and is_day_note(old.path)
    return claims.may_end(new.claim, old.claim, follows=follows)


def end(made: Draft, old: Known, new: Known, *, asks: bool = False) -> None:
    """Strike out what is over, by what another entry says."""
    need = Need(new.path, (new.entry.digest,))
    struck = _struck(made, old, "ended", "ended by", need, path=new.path)
    made.add("ended", (struck,), new, asks=asks)


def drop(made: Draft, known: Known) -> None:
    """Ask whether an entry may be struck out."""
    made.add("dropped", (_struck(made, known, "dropped", "let go"),), None, asks=True)


# --- comments ------------------------------------------------------------------------------------


def _struck(made: Draft, known: Known, kind: Kind, why: str, *needs: Need, path: str = "") -> Edit:
    return edits.striking(known.entry, kind, until(made.today, known.entry, why, path), needs)


def until(today: date, entry: Entry, why: str, path: str = "") -> str:
    """The comment of an entry that is struck out: whose it was, since when it is not, and why."""
    comment = entry.comment
    before = f"{comment}, " if " " in comment else f"{comment} " if comment else ""
    is_safe = not {"<", ">"} & {*path} and "--" not in path  # in a comment
    return f"{before}until {today:%Y-%m-%d}, {why} {path if is_safe else ''}".rstrip()


def _dated(whose: str, said: date, confirmed: date | None) -> str:
    """The comment of an entry that stays: whose it is, said when and confirmed when."""
    comment = f"{whose} {said:%Y-%m-%d}"
    return comment if confirmed in {None, said} else f"{comment} confirmed {confirmed:%Y-%m-%d}"
