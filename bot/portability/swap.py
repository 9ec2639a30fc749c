"""Putting what was unpacked in the place of what is there, by renaming.

Until all of it lies in `restoring/`, checked and on the disk, nothing that was there is touched.
Then a file says which names have to be changed, and from there on there is only one way: forward,
by this program or by whoever calls `finish_interrupted`. What was there is kept aside.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import orjson

from bot.errors import ArchiveError, StorageError
from bot.invocation import confidant
from bot.memory.memory import INDEX_FOLDER
from bot.portability.archive import JOURNAL, WORKSPACE
from bot.recovery import TRANSCRIPTS
from bot.storage import backup, changes, files
from bot.storage.files import DATABASE_NAME, RESTORE_BEGUN, RESTORING, DataDirLock

ASIDE = "before-restore-"  # what the folder of what was there begins with
SETTINGS = "restored-settings.toml"  # what the backup says of the configuration, to be compared
MODE = 0o700  # of folders
_NEW = "new"


class Staging:
    """The folders in which a backup is unpacked, beside those it will replace."""

    def __init__(self, folder: Path, workspace: Path) -> None:
        workspace = workspace.resolve()  # what a link leads to takes part, and the link stays
        self.was_there = folder.exists()
        self.folder = folder
        self.restoring = folder / RESTORING
        self.new = self.restoring / _NEW
        self.old_workspace = workspace
        self.is_inside = workspace.is_relative_to(folder.resolve())
        self.workspace = (
            self.new / WORKSPACE if self.is_inside else files.restored_workspace(workspace)
        )

    def must_be_movable(self) -> None:
        """Make sure that what is there can get other names.

        Raises:
            ArchiveError: it cannot.
        """
        if self.folder.resolve().is_relative_to(self.old_workspace):
            raise ArchiveError(
                f"{self.folder} is in the workspace {self.old_workspace}, so the one cannot be put "
                "aside without the other. Nothing was changed: restore into a workspace of its own "
                "(CONFIDANT_MEMORY__WORKSPACE)."
            )
        for path in (*parts(self.folder), self.old_workspace):
            if path.is_mount():
                raise ArchiveError(
                    f"{path} is a file system of its own, so it cannot be put aside. Nothing was "
                    "changed: restore into a folder inside of it (CONFIDANT_STORAGE__DIR, "
                    "CONFIDANT_MEMORY__WORKSPACE)."
                )

    def clear(self) -> None:
        """Remove what an earlier try left; nothing of it counts unless it was begun."""
        files.clear_unbegun_restore(self.folder, self.old_workspace)

    def begin(self, now: int) -> None:
        """Say what is to be done, once all that is new is on the disk: the way back ends here.

        Raises:
            StorageError: the disk does not take it; nothing was changed.
        """
        try:
            self.workspace.mkdir(mode=MODE, parents=True, exist_ok=True)
            for top in (self.new, self.workspace):
                for parent, _, _ in os.walk(top):
                    Path(parent).chmod(MODE)
                    files.sync_folder(Path(parent))
            files.sync_folder(self.folder)
            files.put(self.restoring / RESTORE_BEGUN, orjson.dumps(self._plan(now)))
        except OSError as exc:
            with suppress(OSError):
                (self.restoring / RESTORE_BEGUN).unlink()
            raise StorageError(
                f"The backup was not restored: {exc.strerror}. Nothing was changed."
            ) from exc

    def _plan(self, now: int) -> dict[str, object]:
        """Which names change: pairs of the old one and the new one, in order."""
        moment = f"{datetime.fromtimestamp(now / 1000, UTC):%Y%m%d-%H%M%S}"
        aside = files.free_name(self.folder / f"{ASIDE}{moment}")
        moved = [(path, aside / path.relative_to(self.folder)) for path in parts(self.folder)]
        if self.old_workspace.exists():
            name = f"{self.old_workspace.name}-{aside.name}"
            beside = files.free_name(self.old_workspace.with_name(name))
            to = aside / WORKSPACE if self.is_inside else beside
            moved.append((self.old_workspace, to))
        put = [
            (path, self.folder / path.name)
            for path in sorted(self.new.iterdir())
            if path != self.workspace
        ]
        put.append((self.workspace, self.old_workspace))
        return {
            "kept": aside.name if moved else "",
            "aside": [(self._named(one), self._named(other)) for one, other in moved],
            "put": [(self._named(one), self._named(other)) for one, other in put],
        }

    def _named(self, path: Path) -> str:
        """By its place in the folder, which may be somewhere else by then."""
        for folder in (self.folder, self.folder.resolve()):
            if path.is_relative_to(folder):
                return str(path.relative_to(folder))
        return str(path)


def parts(folder: Path) -> Iterator[Path]:
    """The files of a storage folder that belong to its database, as far as they are there."""
    names = (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm")
    for name in (*names, TRANSCRIPTS, JOURNAL, INDEX_FOLDER, SETTINGS):
        if os.path.lexists(folder / name):
            yield folder / name
    yield from sorted(folder.glob(f"{JOURNAL}.kept-*"))
    stem = Path(DATABASE_NAME).stem
    yield from sorted((folder / backup.FOLDER).glob(f"{stem}-*.db"))
    yield from sorted((folder / backup.FOLDER).glob(f"{stem}-*{changes.SUFFIX}*"))


def finish(folder: Path) -> Path | None:
    """Complete a restore that was interrupted; see `finish_interrupted`.

    Raises:
        ArchiveError: none was.
        StorageBusy: a program runs on the folder.
        StorageError: a name cannot be changed.
    """
    if not (folder / RESTORING / RESTORE_BEGUN).exists():
        raise ArchiveError(f"No restore into {folder} was interrupted. Nothing was changed.")
    with DataDirLock(folder):
        return finish_interrupted(folder)


def finish_interrupted(folder: Path) -> Path | None:
    """Complete a restore that was begun; where what was there before it is now, if there was any.

    Does nothing where none was begun. It can be interrupted anywhere and called again. Only while
    no program runs on the folder.

    Raises:
        StorageError: a name cannot be changed; nothing is lost, and it can be called again.
    """
    begun = folder / RESTORING / RESTORE_BEGUN
    try:
        if not begun.exists():
            return None
        plan = orjson.loads(begun.read_bytes())
        # First what was there goes aside, then what is new takes its names. What has its new name
        # already was moved before.
        for source, target in (*plan["aside"], *plan["put"]):
            _rename(folder / source, folder / target)
        begun.unlink()
        files.sync_folder(begun.parent)
    except OSError as exc:
        raise StorageError(
            f"The restore into {folder} could not be completed: {exc.strerror}. Nothing is lost: "
            f"mend that, and then `{confidant('restore --finish')}` completes it."
        ) from exc
    shutil.rmtree(folder / RESTORING, ignore_errors=True)
    return folder / plan["kept"] if plan["kept"] else None


def _rename(source: Path, target: Path) -> None:
    if not os.path.lexists(source) or os.path.lexists(target):
        return
    target.parent.mkdir(mode=MODE, parents=True, exist_ok=True)
    source.rename(target)
    files.sync_folder(target.parent)
    files.sync_folder(source.parent)


def remove_empty(folder: Path) -> None:
    """Remove a folder in which nothing is but the lock."""
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] == [files.LOCK_NAME]:
            (folder / files.LOCK_NAME).unlink()
            folder.rmdir()
