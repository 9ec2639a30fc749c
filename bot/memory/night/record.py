"""What the last night did to a space: kept so that it can be told, and taken back as a whole.

It holds no words: notes by name, entries by digest, comments that say whose an entry is and since
when. One text in `meta` for each space.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from typing import Any, Final, Literal

import orjson

from bot.memory.night import edits
from bot.memory.night.edits import Edit, Need
from bot.memory.night.rules import Change
from bot.sessions.erasing import NIGHT
from bot.storage import Transaction
from bot.storage.meta import drop_under, keep, text_of

LEFT: Final = 300  # names of changes that were taken back, and are not made again

# "begun": it may have been made in part; "done"; "undoing" and "undone" after it was taken back.
State = Literal["begun", "done", "undoing", "undone"]


@dataclass(frozen=True, slots=True)
class Night:
    """What was changed on a day, of a space; `was_told` once its person knows of it.

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
        """What is asked."""
        return tuple(edit for change in self.asked for edit in change.edits)

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All it comes to, in order."""
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
    """The record of a space; an empty one before its first night."""
    said = text_of(tx, f"{NIGHT}{space}")
    return _read(orjson.loads(said)) if said is not None else Record()


def put(tx: Transaction, space: str, record: Record, now: int) -> None:
    """Keep a record."""
    keep(tx, f"{NIGHT}{space}", orjson.dumps(_written(record)).decode(), now)


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


def _read(said: Mapping[str, Any]) -> Record:
    night = said["night"]
    told = None if night is None else _night(night)
    failed = said.get("tries", 0), said.get("why", "")
    return Record(said["looked"], told, tuple(said["left"]), said.get("shown", ""), *failed)


def _night(said: Mapping[str, Any]) -> Night:
    return Night(
        date.fromisoformat(said["day"]),
        tuple(map(_change, said["changes"])),
        tuple(map(_change, said["asked"])),
        said["state"],
        said["was_told"],
    )


def _change(said: Mapping[str, Any]) -> Change:
    return Change(said["kind"], said["name"], tuple(map(_edit, said["edits"])))


def _edit(said: dict[str, Any]) -> Edit:
    needs = said.pop("needs")
    return Edit(**said, needs=tuple(Need(path, tuple(digests)) for path, digests in needs))


def _written(record: Record) -> Mapping[str, Any]:
    night = record.night
    told = night and {
        "day": night.day.isoformat(),
        "changes": list(map(_change_written, night.changes)),
        "asked": list(map(_change_written, night.asked)),
        "state": night.state,
        "was_told": night.was_told,
    }
    left = list(record.left)
    known = {"looked": record.looked, "night": told, "left": left, "shown": record.shown}
    return known | {"tries": record.tries, "why": record.why}


def _change_written(change: Change) -> Mapping[str, Any]:
    return {
        "kind": change.kind,
        "name": change.name,
        "edits": list(map(_edit_written, change.edits)),
    }


def _edit_written(edit: Edit) -> Mapping[str, Any]:
    return {
        **{each.name: getattr(edit, each.name) for each in fields(edit)},
        "needs": [[need.path, list(need.digests)] for need in edit.needs],
    }
