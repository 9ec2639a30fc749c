"""The storage folder: one process at a time serves from it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from bot.errors import StorageBusy, StorageError

LOCK_NAME = "confidant.lock"


class DataDirLock:
    """Holds a storage folder for the length of a `with`.

    The lock belongs to the process and goes with it, however it ends; the number inside the file
    only tells others whom to look for.

    Raises:
        StorageBusy: another process has it; the message says which.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_NAME
        self._file: int | None = None

    def __enter__(self) -> Self:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise StorageError(
                f"The storage folder {self._path.parent} cannot be used: {exc.strerror}. "
                "Check its permissions or choose another with [storage] dir."
            ) from exc
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            holder = os.read(file, 32).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise StorageBusy(
                f"Confidant already runs on {self._path.parent} (process {holder}). Stop that one "
                "first, or choose another folder with [storage] dir."
            ) from exc
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        self._file = file
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None
