"""The record of a space's last night: kept so that it can be reported, and undone as a whole.

It holds no words: notes by name, entries by digest, comments that say whose an entry is and since
when. One text in `meta` for each space.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Final, Literal

import orjson

from bot.memory.night import edits
from bot.memory.night.edits import Edit
from bot.memory.night.rules import Change
from bot.sessions.erasing import NIGHT
from bot.storage import Transaction
from bot.storage.records import drop_under, from_json, keep, value_of

LEFT: Final = 300  # names of changes that were taken back, and are not made again

# "begun": it may have been made in part; "done"; "undoing" and "undone" after it was taken back.
State = Literal["begun", "done", "undoing", "undone"]


@dataclass(frozen=True, slots=True)
class Night:
    """The changes of a space on a day; `was_told` once its person has been notified.

    What is `asked` is done when they say so, and else nothing.
    """

    day: date
    changes: tuple[Change, ...]
    asked: tuple[Change, ...] = ()
    state: State = "begun"
    was_told: bool = False

    @property
    def is_untold(self) -> bool:
        """True once it is done, until its person knows of it."""
        return self.state == "done" and not self.was_told

    @property
    def questions(self) -> tuple[Edit, ...]:
        """The changes that are asked about."""
        return tuple(edit for change in self.asked for edit in change.edits)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All its edits, in order."""
        return tuple(edit for change in self.changes for edit in change.edits)


@dataclass(frozen=True, slots=True)
class Record:
    """A space's nights: the last one that changed anything, and the day that was last looked at.

    `shown` is the digest of the entries that a model was last asked about. `tries` is how often it
    failed tonight; `why` is why it did when it was asked last, empty when it did not.
    """

    looked: str = ""
    night: Night | None = None
    left: tuple[str, ...] = ()
    shown: str = ""
    tries: int = 0
    why: str = ""

    def with_left(self, names: tuple[str, ...]) -> Record:
        """The same, with changes that are not to be made again."""
        known = dict.fromkeys((*self.left, *filter(None, names)))
        return replace(self, left=tuple(known)[-LEFT:])

    def without(self, standing: Collection[str]) -> Record:
        """The same without any trace of entries that stand in no note, by their digests."""
        night, known = self.night, {*standing}
        if night is not None:
            for edit in edits.without((*night.edits, *night.questions), standing):
                known |= {edit.before, edit.after}
                known.update(*(need.digests for need in edit.needs))
            changes, asked = (_without(each, known) for each in (night.changes, night.asked))
            night = replace(night, changes=changes, asked=asked)
        left = tuple(name for name in self.left if known.issuperset(edits.named_in(name)))
        return replace(self, night=night, left=left, shown="")


def of_space(tx: Transaction, space: str) -> Record:
    """The record of a space; an empty one before its first night, or if it cannot be read."""
    return value_of(tx, f"{NIGHT}{space}", partial(from_json, Record)) or Record()


def put(tx: Transaction, space: str, record: Record, now: int) -> None:
    """Keep a record."""
    keep(tx, f"{NIGHT}{space}", orjson.dumps(record, default=list).decode(), now)


def forget(tx: Transaction, space: str, standing: Collection[str], now: int) -> None:
    """Keep nothing of entries of a space that stand in no note any more, by their digests."""
    found = of_space(tx, space)
    left = found.without(standing)
    if left != found:
        put(tx, space, left, now)


def clear(tx: Transaction) -> None:
    """Let go of all of them: an older database may know entries that were forgotten since."""
    drop_under(tx, NIGHT)


def tell(tx: Transaction, space: str, day: date, now: int) -> bool:
    """Note that a night is told, in the transaction that tells it; False if there is no need."""
    found = of_space(tx, space)
    if found.night is None or found.night.day != day or not found.night.is_untold:
        return False
    put(tx, space, replace(found, night=replace(found.night, was_told=True)), now)
    return True


def _without(changes: Sequence[Change], known: set[str]) -> tuple[Change, ...]:
    left: list[Change] = []
    for change in changes:
        made = tuple(edits.without(change.edits, known))
        name = change.name if known.issuperset(edits.named_in(change.name)) else ""
        left += [replace(change, name=name, edits=made)] if made else []
    return tuple(left)
