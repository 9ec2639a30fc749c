"""What is left of somebody in an index's folder when they leave it."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from bot.clock import system_clock
from bot.config import MemoryConfig
from bot.memory import chunking
from bot.memory.folder_notes import FolderNotes
from bot.memory.index import MemoryIndex
from bot.memory.index.cache import digest
from bot.memory.index.leaving import leave_folder
from bot.memory.index.service import CACHE
from bot.testing import HashEmbedder

OWNERS, ADAS = "- the bike is blue\n", "- my cat is grey\n"
BEFORE = "- my dog is brown\n"


def hashes_of(path: str, text: str) -> set[bytes]:
    return {digest(each) for passage in chunking.of_note(path, text) for each in passage.windows}


def cached(folder: Path) -> set[bytes]:
    path = folder / CACHE
    if not path.exists():
        return set()
    connection = apsw.Connection(str(path))
    rows = list(connection.execute("SELECT hash FROM embeddings"))
    connection.close()
    return {bytes(row[0]) for row in rows}


async def built(tmp_path: Path) -> Path:
    """An index with a note of the owner's and one of Ada's, which said something else before."""
    notes, folder = tmp_path / "workspace", tmp_path / "index"
    ada = notes / "people" / "ada" / "MEMORY.md"
    ada.parent.mkdir(parents=True)
    (notes / "MEMORY.md").write_text(OWNERS)
    config = MemoryConfig.model_validate({"watch": False})
    for words in (BEFORE, ADAS):
        ada.write_text(words)
        index = MemoryIndex.in_folder(
            config, FolderNotes(notes), folder, HashEmbedder(), system_clock
        )
        await index.sync("test")
        await index.close()
    return folder


def partitions_of_ada(folder: Path) -> list[str]:
    connection = apsw.Connection(str(folder / "index.db"))
    (table,) = connection.execute(
        "SELECT name FROM sqlite_schema WHERE name LIKE 'partitions!_%' ESCAPE '!'"
    )
    names = [str(row[0]) for row in connection.execute(f"SELECT name FROM {table[0]}")]
    connection.close()
    return [name for name in names if "ada" in name]


async def test_only_what_was_made_of_others_texts_stays(tmp_path: Path):
    folder = await built(tmp_path)
    theirs = partitions_of_ada(folder)
    assert theirs
    known = [hashes_of("MEMORY.md", text) for text in (OWNERS, ADAS, BEFORE)]
    assert cached(folder) == set.union(*known)
    leave_folder(folder, theirs)
    assert cached(folder) == known[0]
    assert not (folder / "index.db").exists()


@pytest.mark.parametrize("left", [None, b"no database at all"])
async def test_where_nothing_tells_whose_they_are_no_vector_stays(tmp_path: Path, left):
    folder = await built(tmp_path)
    theirs = partitions_of_ada(folder)
    (folder / "index.db").unlink()
    if left is not None:
        (folder / "index.db").write_bytes(left)
    leave_folder(folder, theirs)
    assert cached(folder) == set()
    leave_folder(tmp_path / "none", theirs)
