"""What the last night did to a space: kept so that it can be told, and taken back as a whole.

It holds no words: notes by name, entries by digest, comments that say whose an entry is and since
when. One text in `meta` for each space.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import date
from typing import Any, Final, Literal

import orjson

from bot.memory.night.edits import Edit, Need
from bot.memory.night.rules import Change
from bot.sessions.erasing import NIGHT
from bot.storage import Transaction
from bot.storage.meta import keep, text_of

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
    """A space's nights: the last one that changed anything, and the day that was last looked at."""

    looked: str = ""
    night: Night | None = None
    left: tuple[str, ...] = ()

    def with_left(self, names: tuple[str, ...]) -> Record:
        """The same, with changes that are not to be made again."""
        return replace(self, left=tuple(dict.fromkeys((*self.left, *names)))[-LEFT:])


def of_space(tx: Transaction, space: str) -> Record:
    """The record of a space; an empty one before its first night."""
    said = text_of(tx, f"{NIGHT}{space}")
    return _read(orjson.loads(said)) if said is not None else Record()


def put(tx: Transaction, space: str, record: Record, now: int) -> None:
    """Keep a record."""
    keep(tx, f"{NIGHT}{space}", orjson.dumps(_written(record)).decode(), now)


def tell(tx: Transaction, space: str, day: date, now: int) -> bool:
    """Note that a night is told, in the transaction that tells it; False if there is no need."""
    found = of_space(tx, space)
    if found.night is None or found.night.day != day or not found.night.is_untold:
        return False
    put(tx, space, replace(found, night=replace(found.night, was_told=True)), now)
    return True


def _read(said: Mapping[str, Any]) -> Record:
    night = said["night"]
    return Record(said["looked"], None if night is None else _night(night), tuple(said["left"]))


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
    return {"looked": record.looked, "night": told, "left": list(record.left)}


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
