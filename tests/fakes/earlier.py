"""Storage folders as the programs of every earlier version of the tables left them.

`scripts/earlier_folders.py` made them, with the program of then: ada, bo and cleo talked, something
was forgotten, and a message waits. What was said is beside.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

import apsw

from bot.storage.files import DATABASE_NAME

FOLDERS = Path(__file__).parents[1] / "data" / "folders"
VERSIONS = tuple(sorted(int(path.name[8:10]) for path in FOLDERS.glob("version-*.tar.gz")))


@dataclass(frozen=True)
class Earlier:
    """A folder of a version; `said` are the answers of then."""

    version: int
    folder: Path
    said: dict[str, str]

    @property
    def database(self) -> Path:
        return self.folder / DATABASE_NAME


def earlier(version: int, folder: Path) -> Earlier:
    """Make a version's folder anew."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(FOLDERS / f"version-{version:02}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    dump, said = folder / "confidant.sql", folder / "said.json"
    connection = apsw.Connection(str(folder / DATABASE_NAME))
    connection.execute(dump.read_text("utf-8"))
    connection.close()
    found = Earlier(version, folder, json.loads(said.read_text("utf-8")))
    dump.unlink()
    said.unlink()
    return found
