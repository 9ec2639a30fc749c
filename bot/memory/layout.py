"""The layout of memory: the space and partition of a file, and who may name it. Pure.

A partition is what a search names: a space, or the private part of one. `MemoryView.partitions`
says which ones a view holds, `_partition` which one a file lies in. Reading by name, listing and
searching all go by these two, so nothing else has to remember that MEMORY.md is private.

People name files from their own space: `MEMORY.md`, `memory/trip.md`, and `shared/…` for what the
operator gives to everyone, which only the operator's own view of it (`memory.SHARED_VIEW`) may
write. Every name that means nothing in a view gets the same refusal, whether
there is such a file somewhere else or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

import structlog

from bot.config import MAIN_AGENT
from bot.errors import NotVisible
from bot.identity.view import FOLDERS, MAIN_SPACE, PRIVATE, SHARED_SPACE, MemoryView
from bot.storage import files

AGENTS = "agents"
PEOPLE = "people"
ROOMS = "rooms"
NOTES_FOLDER = "memory"
AGENTS_FILE = "AGENTS.md"
MEMORY_FILE = "MEMORY.md"
USER_FILE = "USER.md"
ROOM_FILE = "ROOM.md"
PRIVATE_FILES = (MEMORY_FILE, USER_FILE)
CURATED = (*PRIVATE_FILES, ROOM_FILE)
HEARTBEAT_FILE = "HEARTBEAT.md"  # what somebody is looked in on for; in no other prompt
BOOTSTRAP = (
    AGENTS_FILE,
    "SOUL.md",
    "IDENTITY.md",
    USER_FILE,
    "TOOLS.md",
    HEARTBEAT_FILE,
    MEMORY_FILE,
    ROOM_FILE,
)
SUFFIX = ".md"
MAX_NAME = 200  # bytes of one component
MAX_DEPTH = 8  # components of a name, counted from the space
MAX_PARTS = 24  # components below the workspace; a file deeper than this is not indexed


@dataclass(frozen=True, slots=True)
class Located:
    """The location of a file: its space, its path inside it, and the partition that holds it."""

    space: str
    path: str
    partition: str


def locate(relative: PurePosixPath) -> Located | None:
    """The place of a file below the workspace, or None when it is no searchable note.

    Symlinks and what is no plain file are for the caller to leave out: a path cannot tell.
    """
    parts = relative.parts
    if not 0 < len(parts) <= MAX_PARTS or not all(map(is_plain, parts)):
        return None
    match parts:
        case ((("people" | "rooms") as kind), name, *inner):
            space = f"{kind}/{name}"
        case ("people" | "rooms", *_):
            return None
        case ("shared", *inner):
            space = SHARED_SPACE
        case (*inner,):
            space = MAIN_SPACE
    partition = _partition(space, tuple(inner))
    return Located(space, "/".join(inner), partition) if partition else None


def resolve(view: MemoryView, path: str, *, writing: bool = False) -> str:
    """The file that `path` means in a view, as its path below the workspace.

    Raises:
        NotVisible: none, or one that can only be read when `writing`.
    """
    parts = tuple(path.split("/"))
    if len(parts) > MAX_DEPTH or not all(map(is_plain, parts)):
        raise NotVisible
    if parts[0] == SHARED_SPACE:
        folders, space, inner = (), SHARED_SPACE, parts[1:]
    else:
        folders, space, inner = space_folders(view), view.space, parts
    is_closed = space == SHARED_SPACE and writing and view.space != SHARED_SPACE
    if is_closed or _partition(space, inner) not in view.partitions:
        raise NotVisible
    return "/".join((*folders, *parts))


def in_folder(view: MemoryView, path: str) -> tuple[str, str] | None:
    """The partition of a folder of documents that a path leads into, and the path in there.

    None where it leads elsewhere, or into a folder that the view may not see.
    """
    name, _, inner = path.partition("/")
    return (f"{FOLDERS}{name}", inner) if inner and name in view.folders else None


def may_see(view: MemoryView, space: str, path: str) -> bool:
    """True when a view may read a file, by its path within a space."""
    if space.startswith(FOLDERS):
        return space in view.partitions
    try:
        resolve(view, shown(space, path))
    except NotVisible:
        return False
    return space in view.spaces


def curated_files(view: MemoryView) -> tuple[str, ...]:
    """The files of a view beside its notes: a room's own, or those of a direct chat."""
    held = view.partitions
    return tuple(name for name in CURATED if _partition(view.space, (name,)) in held)


def persona_file(agent: str, name: str) -> str:
    """The path of an agent's own file below the workspace, such as its SOUL.md."""
    return name if agent == MAIN_AGENT else f"{AGENTS}/{agent}/{name}"


def main_file(view: MemoryView) -> str:
    """The file of a view's lasting facts.

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
    if len(parts) != 2 or parts[0] not in {PEOPLE, ROOMS} or not is_plain(parts[1]):
        raise NotVisible
    return parts


def shown(space: str, path: str) -> str:
    """A path within a space, as the person knows it."""
    if space == SHARED_SPACE or space.startswith(FOLDERS):
        return f"{space.removeprefix(FOLDERS)}/{path}"
    return path


def space_of(partition: str) -> str:
    """The space that a partition is the whole or the private part of."""
    return partition.removesuffix(PRIVATE)


def is_note(name: str) -> bool:
    """True for the name of a Markdown file."""
    return name.endswith(SUFFIX)


def is_plain(name: str) -> bool:
    """True if a component is a visible name and nothing but a name."""
    return (
        name.isprintable()
        and bool(name)
        and name[0] != "."
        and not {*name} & {"\\", ":", "/"}
        and len(name.encode("utf-8", "surrogatepass")) <= MAX_NAME
    )


def _partition(space: str, inner: tuple[str, ...]) -> str:
    """The partition that holds a file of a space; empty for one that is no note."""
    if not inner or not is_note(inner[-1]):
        return ""
    if space == SHARED_SPACE or (len(inner) > 1 and inner[0] == NOTES_FOLDER):
        return space
    if len(inner) == 1 and space.startswith(f"{ROOMS}/"):
        return space if inner[0] == ROOM_FILE else ""
    return f"{space}{PRIVATE}" if len(inner) == 1 and inner[0] in PRIVATE_FILES else ""


log = structlog.get_logger(__name__)


def source() -> Traversable:
    """The folder of the templates: in the installed package, or in the repository's `config`."""
    packaged = resources.files("bot.memory").joinpath("workspace")
    if packaged.is_dir():
        return packaged
    return Path(__file__).parents[2] / "config" / "workspace"


def templates() -> dict[str, str]:
    """The files of a new workspace: texts by name, in the order of the names."""
    found = sorted(source().iterdir(), key=lambda file: file.name)
    return {file.name: file.read_text("utf-8") for file in found if file.name in BOOTSTRAP}


def prepare(workspace: Path) -> int:
    """Copy the templates into a workspace that has none of these files yet; how many were copied.

    A workspace with any of them is somebody's own: what is missing there was left out on purpose.
    A `memory.md` without a MEMORY.md becomes that.
    """
    try:
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        _adopt(workspace)
        if any((workspace / name).exists() for name in BOOTSTRAP):
            return 0
        copied = 0
        for name, text in templates().items():
            # "x": should another process be quicker, its file stays.
            with open(workspace / name, "x", encoding="utf-8", opener=files.opener) as file:
                file.write(text)
            copied += 1
    except OSError as error:
        log.warning("workspace.not_prepared", error=type(error).__name__)
        return 0
    log.info("workspace.prepared", files=copied)
    return copied


def _adopt(workspace: Path) -> None:
    """Let a `memory.md`, as an OpenClaw workspace may have it, be MEMORY.md; a link is left."""
    names = {path.name for path in workspace.iterdir() if path.is_file() and not path.is_symlink()}
    older = sorted(name for name in names if name.lower() == MEMORY_FILE.lower())
    if older and MEMORY_FILE not in names:
        (workspace / older[0]).rename(workspace / MEMORY_FILE)
        log.warning("workspace.older_memory", name=older[0])
