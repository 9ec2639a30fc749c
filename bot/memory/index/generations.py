"""The index files in a folder: each rebuild writes a new one, and the newest complete one counts.

A new name for each makes the swap atomic, and keeps SQLite's log of one file from another's.
"""

from __future__ import annotations

import re
from pathlib import Path

import apsw

from bot.memory.index import schema
from bot.memory.index.connection import Extension, connect, run

_NAME = re.compile(r"index-(\d{6,})\.db")
_BESIDE = ("", "-wal", "-shm", "-journal")


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """The index files, newest first."""
    found = [(int(m[1]), path) for path in folder.iterdir() if (m := _NAME.fullmatch(path.name))]
    return sorted(found, reverse=True)


def newest(folder: Path, extension: Extension) -> Path | None:
    """The newest file that was completed and can be read."""
    return next((path for _, path in numbered(folder) if _is_complete(path, extension)), None)


def following(folder: Path) -> Path:
    """The name of the next one."""
    last = max((number for number, _ in numbered(folder)), default=0)
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
