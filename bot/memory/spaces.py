"""Which Markdown file belongs to which space, and who may hold it. Pure.

A partition is what a search names: a space, or the private part of one. A view that may not see
MEMORY.md and USER.md does not hold the private partition, so nothing else has to remember the rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from bot.scope import MAIN_SPACE, SHARED_SPACE
from bot.scope.view import PRIVATE

NOTES_FOLDER = "memory"
PRIVATE_FILES = frozenset({"MEMORY.md", "USER.md"})
ROOM_FILE = "ROOM.md"
MAX_PARTS = 24  # a path deeper than this is no note


@dataclass(frozen=True, slots=True)
class Located:
    """Where a file stands: its space, its path inside it, and the partition that holds it."""

    space: str
    path: str
    partition: str


def locate(relative: PurePosixPath) -> Located | None:
    """The place of a file below the workspace, or None when it is no searchable note.

    Symlinks and what is no plain file are for the caller to leave out: a path cannot tell.
    """
    parts = relative.parts
    visible = 0 < len(parts) <= MAX_PARTS and all(_is_visible(part) for part in parts)
    if not visible or not parts[-1].endswith(".md"):
        return None
    match parts:
        case ("people", person, *inner) if inner:
            return _in_space(f"people/{person}", tuple(inner), room=False)
        case ("rooms", room, *inner) if inner:
            return _in_space(f"rooms/{room}", tuple(inner), room=True)
        case ("people" | "rooms", *_):
            return None
        case ("shared", *inner) if inner:
            return Located(SHARED_SPACE, "/".join(inner), SHARED_SPACE)
        case _:
            return _in_space(MAIN_SPACE, parts, room=False)


def private_partition(space: str) -> str:
    """The partition of a space's MEMORY.md and USER.md."""
    return f"{space}{PRIVATE}"


def _in_space(space: str, inner: tuple[str, ...], *, room: bool) -> Located | None:
    path = "/".join(inner)
    if inner[0] == NOTES_FOLDER and len(inner) > 1:
        return Located(space, path, space)
    if room:
        return Located(space, path, space) if path == ROOM_FILE else None
    return Located(space, path, private_partition(space)) if path in PRIVATE_FILES else None


def _is_visible(part: str) -> bool:
    return not part.startswith(".") and part not in {"", "/"}
