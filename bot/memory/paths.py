"""Which file a name means in a view: the rules of what may be read and written. Pure.

Names are as the person knows them, counted from their own space: `MEMORY.md`, `memory/trip.md`,
and `shared/…` for what the operator gives to everyone. Every name that means nothing here gets the
same refusal, whether there is such a file somewhere else or not.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.errors import NotVisible
from bot.scope import MAIN_SPACE, SHARED_SPACE, MemoryView

NOTES_FOLDER = "memory"
AGENTS_FILE = "AGENTS.md"
MEMORY_FILE = "MEMORY.md"
USER_FILE = "USER.md"
ROOM_FILE = "ROOM.md"
SUFFIX = ".md"
MAX_NAME = 200  # bytes of one component
MAX_DEPTH = 8  # folders below the space


@dataclass(frozen=True, slots=True)
class Target:
    """A file a view may name: `folders` stand below the workspace."""

    path: str
    folders: tuple[str, ...]
    name: str


def resolve(view: MemoryView, path: str, *, writing: bool = False) -> Target:
    """The file that `path` means in a view.

    Raises:
        NotVisible: none, or one that can only be read when `writing`.
    """
    parts = tuple(path.split("/"))
    if len(parts) > MAX_DEPTH or not all(map(is_plain, parts)) or not parts[-1].endswith(SUFFIX):
        raise NotVisible
    folders = space_folders(view)
    if len(parts) == 1 and parts[0] in curated_files(view):
        return Target(path, folders, parts[0])
    if len(parts) > 1 and parts[0] == NOTES_FOLDER:
        return Target(path, (*folders, *parts[:-1]), parts[-1])
    if len(parts) > 1 and parts[0] == SHARED_SPACE and SHARED_SPACE in view.spaces and not writing:
        return Target(path, parts[:-1], parts[-1])
    raise NotVisible


def curated_files(view: MemoryView) -> tuple[str, ...]:
    """The files of a view beside its notes: a room's own, or those of a direct chat."""
    if view.space.startswith("rooms/"):
        return (ROOM_FILE,)
    return (MEMORY_FILE, USER_FILE) if view.private and view.space else ()


def main_file(view: MemoryView) -> str:
    """Where a view's lasting facts stand.

    Raises:
        NotVisible: it has no such file.
    """
    names = curated_files(view)
    if not names:
        raise NotVisible
    return names[0]


def space_folders(view: MemoryView) -> tuple[str, ...]:
    """The folders of a view's space, below the workspace.

    Raises:
        NotVisible: the view has no space.
    """
    if view.space == MAIN_SPACE:
        return ()
    parts = tuple(view.space.split("/"))
    if len(parts) != 2 or parts[0] not in {"people", "rooms"} or not is_plain(parts[1]):
        raise NotVisible
    return parts


def shown(space: str, path: str) -> str:
    """A path within a space, as the person knows it."""
    return f"{SHARED_SPACE}/{path}" if space == SHARED_SPACE else path


def is_plain(name: str) -> bool:
    """Whether a component is a visible name and nothing but a name."""
    return (
        bool(name)
        and not name.startswith(".")
        and not any(c in "\\:" or not c.isprintable() for c in name)
        and len(name.encode("utf-8", "surrogatepass")) <= MAX_NAME
    )
