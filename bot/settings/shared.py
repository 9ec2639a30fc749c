"""Changes that were made while the program runs, and what all nodes on one database share. Pure.

Shared are options without secrets: by name, as they were typed, with the way back of each change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
import structlog

from bot.config import Config
from bot.settings.fields import Key, is_shared, shape_at

MOST_KEPT = 50  # changes that can be taken back
CHANGED_SINCE = "This was changed again since, so it cannot be taken back."

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Step:
    """One option of a change: what its variable was before and is after; None is not set."""

    key: tuple[str, ...]
    before: str | None
    after: str | None
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """Some options that were changed together, at `at` (ms since the epoch).

    `takes_back` is the change that it undid, if it did; `is_for_good` when it cannot be undone.
    """

    id: str
    at: int
    steps: tuple[Step, ...]
    takes_back: str = ""
    is_for_good: bool = False


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """What was changed for all nodes: values by option, and the changes, the newest first."""

    values: Mapping[Key, str] = field(default_factory=dict[Key, str])
    changes: tuple[Change, ...] = ()

    def step(self, key: tuple[str, ...], after: str | None) -> Step:
        """What it would be for an option to be this from now on."""
        return Step(key, self.values.get(key), after)

    def changed(self, change: Change) -> SharedSettings:
        """The same after a change."""
        values = dict(self.values)
        for step in change.steps:
            values.pop(step.key, None)
            if step.after is not None:
                values[step.key] = step.after
        return SharedSettings(values, (change, *self.changes)[:MOST_KEPT])

    def may_take_back(self, change: Change) -> bool:
        """True while what a change set is still what counts."""
        return all(self.values.get(step.key) == step.after for step in change.steps)

    def to_json(self) -> str:
        """As the database keeps it."""
        values = {".".join(map(str, key)): value for key, value in self.values.items()}
        return orjson.dumps({"values": values, "changes": [*map(asdict, self.changes)]}).decode()

    @classmethod
    def from_json(cls, text: str | None) -> SharedSettings:
        """What the database keeps; nothing of what is not to be shared, or cannot be read."""
        if text is None:
            return cls()
        try:
            data: dict[str, Any] = orjson.loads(text)
            said: dict[str, str] = data["values"]
            changes = tuple(change_from(each) for each in data["changes"])
            values = {tuple(name.split(".")): str(value) for name, value in said.items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("settings.shared_unreadable", error=type(error).__name__)
            return cls()
        return cls({key: value for key, value in values.items() if _may_be_shared(key)}, changes)


def _may_be_shared(key: Key) -> bool:
    shape = shape_at(Config, key) if is_shared(key) else None
    return shape is not None and shape.kind not in {"secret", "table", "map"}


def change_from(data: dict[str, Any]) -> Change:
    """A change as it was kept."""
    steps = tuple(
        Step(tuple(step["key"]), step["before"], step["after"], is_secret=step["is_secret"])
        for step in data["steps"]
    )
    taken = data["takes_back"]
    return Change(data["id"], data["at"], steps, taken, is_for_good=data["is_for_good"])
