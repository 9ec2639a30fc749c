"""The index files in a folder: each rebuild writes a new one, and the newest complete one counts.

A new name for each makes the swap atomic, and keeps SQLite's log of one file from another's. Only
one program at a time builds or removes files: the command line works beside a running bot.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

import apsw

from bot.memory.index import schema
from bot.memory.index.connection import Extension, connect, run

_NAME = re.compile(r"index-(\d{6,})\.db")
_LOCK = "index.lock"
_BESIDE = ("", "-wal", "-shm", "-journal")


def claim(folder: Path) -> int | None:
    """Take the right to build and remove index files in a folder, until `os.close` gives it back.

    None while another program has it.

    Raises:
        OSError: the folder cannot be used.
    """
    file = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """The index files, newest first."""
    found = [(int(m[1]), path) for path in folder.iterdir() if (m := _NAME.fullmatch(path.name))]
    return sorted(found, reverse=True)


def newest(folder: Path, extension: Extension) -> Path | None:
    """The newest file that was completed and can be read."""
    return next((path for _, path in numbered(folder) if _is_complete(path, extension)), None)


def following(folder: Path, live: Path | None = None) -> Path:
    """The name of the next one: none that a search may still have open, even if it is gone."""
    names = [path.name for _, path in numbered(folder)] + ([live.name] if live else [])
    last = max((int(m[1]) for name in names if (m := _NAME.fullmatch(name))), default=0)
    return folder / f"index-{last + 1:06d}.db"


def remove(path: Path) -> None:
    """Remove an index file with its logs."""
    for suffix in _BESIDE:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def remove_others(folder: Path, live: Path | None) -> None:
    """Remove what an interrupted rebuild or an earlier one left."""
    for _, path in numbered(folder):
        if path != live:
            remove(path)
    for path in folder.glob("index-*.db-*"):
        if live is None or not path.name.startswith(live.name):
            path.unlink(missing_ok=True)


def _is_complete(path: Path, extension: Extension) -> bool:
    try:
        connection, _ = connect(path, writing=False, extension=extension)
    except apsw.Error:
        return False
    try:
        meta = {str(k): str(v) for k, v in run(connection, "SELECT key, value FROM meta")}
    except apsw.Error:
        return False
    finally:
        connection.close()
    return meta.get("complete") == "1" and meta.get("format") == str(schema.FORMAT)
