"""The folders of the workspace: what a new one begins with, and moving a space's notes to another.

What a person has written is never touched. A kill at any moment of a move leaves every word in one
of the two folders, and doing it again completes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

import structlog

from bot.errors import ToolError
from bot.memory import disk
from bot.memory.layout import BOOTSTRAP, MEMORY_FILE, NOTES_FOLDER, SUFFIX
from bot.storage import files

Moved = Literal["moved", "merged", "left"]

_CLAIMED = ".moving"  # what a file is called while its words are being added to another one

log = structlog.get_logger(__name__)


def source() -> Traversable:
    """Where the templates are: inside the installed package, or in the repository's `config`."""
    packaged = resources.files("bot.memory").joinpath("workspace")
    if packaged.is_dir():
        return packaged
    return Path(__file__).parents[2] / "config" / "workspace"


def templates() -> dict[str, str]:
    """What a new workspace begins with: texts by name, in the order of the names."""
    found = sorted(source().iterdir(), key=lambda file: file.name)
    return {file.name: file.read_text("utf-8") for file in found if file.name in BOOTSTRAP}


def prepare(workspace: Path) -> int:
    """Copy the templates into a workspace that has none of these files yet; how many were copied.

    A workspace with any of them is somebody's own: what is missing there was left out on purpose.
    The `memory.md` of an older one becomes MEMORY.md.
    """
    try:
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        if done := adopt(workspace):
            log.warning("workspace.older_memory", done=done)
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


def move(workspace: Path, old: str, new: str) -> Moved:
    """Move a folder below the workspace to another name; where both are there, join them.

    "merged" when both were there: what stood in only one is kept as it was, and of a note that
    stood in both the older folder's words were added to the end of the other. "left" when
    something could not be moved; it is where it was.

    Raises:
        OSError: the disk did not take it; it can be tried again.
    """
    source, target = workspace / old, workspace / new
    if not os.path.lexists(target):
        source.rename(target)
        _flush(source.parent)
        return "moved"
    if not (_is_folder(source) and _is_folder(target)):
        return "left"
    whole = _join(source, target, old)
    return "merged" if whole else "left"


def adopt(workspace: Path) -> Moved | None:
    """Let a `memory.md`, as older workspaces have it, be MEMORY.md; None when there is none.

    Where both are there, its words are added to the end of MEMORY.md. What counts is how the
    names are spelled: on many disks either opens the other. A link is left.

    Raises:
        OSError: the disk did not take it; it can be tried again.
    """
    there = workspace / MEMORY_FILE
    claimed = _claimed(there)
    names = {path.name for path in _listed(workspace) if _is_plain(path)}
    older = sorted(name for name in names if name.lower() == MEMORY_FILE.lower())
    found = [name for name in (claimed.name, *older) if name in names and name != MEMORY_FILE]
    for name in found:
        if MEMORY_FILE in names:
            _add(workspace / name, there, name)
            continue
        # In two steps: where case does not count, one would be no change.
        if name != claimed.name:
            (workspace / name).rename(claimed)
        claimed.rename(there)
        names.add(MEMORY_FILE)
    if found:
        _flush(workspace)
        return "merged" if MEMORY_FILE in older or len(found) > 1 else "moved"
    return None


def _join(source: Path, target: Path, origin: str) -> bool:
    """Move everything in a folder into another; True when nothing is left."""
    whole = True
    for entry in _listed(source):
        name = entry.name
        if entry.name.startswith(".") and entry.name.endswith(_CLAIMED):  # a kill came in between
            name = entry.name[1 : -len(_CLAIMED)]
        there = target / name
        if _is_folder(entry) and _is_folder(there):
            whole = _join(entry, there, f"{origin}/{name}") and whole
        elif not os.path.lexists(there) and _is_folder(entry):
            entry.rename(there)
        elif _is_plain(entry) and _is_plain(there):
            _add(entry, there, f"{origin}/{name}")
        else:
            _rename(entry, there)
    _flush(target)
    try:
        source.rmdir()
    except OSError:  # something was put there meanwhile: the next start moves it
        return False
    _flush(source.parent)
    return whole


def _add(entry: Path, there: Path, origin: str) -> None:
    """Add a file's words to the end of another one, and remove it once they are on disk."""
    if _same(entry, there):
        entry.unlink()
        return
    # An editor that saves it meanwhile makes a new file, which is moved the next time.
    claimed = _claimed(entry.with_name(there.name))
    entry.rename(claimed)
    if not there.name.endswith(SUFFIX):
        _rename(claimed, _beside(there))
        return
    try:
        while not _holds(there.read_bytes(), data := claimed.read_bytes()):
            text = data.decode()
            lines = f"<!-- moved from {origin} -->\n{text}" + ("" if text.endswith("\n") else "\n")
            with disk.folder(there.parent, (), create=False) as parent:
                disk.append(parent, there.name, lines, "")
    except (ToolError, UnicodeDecodeError):  # too long to be one note, or none: it gets a name
        _rename(claimed, _beside(there))
        return
    claimed.unlink()


def _claimed(there: Path) -> Path:
    """What a file on its way to a name is called meanwhile."""
    return there.with_name(f".{there.name}{_CLAIMED}")


def _beside(there: Path) -> Path:
    """Where a file goes whose name is taken: among the notes, so that it is still found."""
    is_note = NOTES_FOLDER in there.parent.parts or not there.name.endswith(SUFFIX)
    folder = there.parent if is_note else there.parent / NOTES_FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{there.stem}-moved{there.suffix}"


def _rename(entry: Path, there: Path) -> None:
    """Give a file another name, or the next one that is free."""
    number = 1
    wanted = there
    while os.path.lexists(wanted):
        number += 1
        wanted = there.with_name(f"{there.stem}-{number}{there.suffix}")
    entry.rename(wanted)


def _holds(text: bytes, words: bytes) -> bool:
    """True when a text has these whole lines, together."""
    return b"\n" + words.strip(b"\n") + b"\n" in b"\n" + text + b"\n" or not words.strip()


def _same(one: Path, other: Path) -> bool:
    return one.samefile(other) or one.read_bytes() == other.read_bytes()


def _listed(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.iterdir()))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _flush(folder: Path) -> None:
    """See to it that names in a folder are on disk."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
