"""Transcripts in a folder a month: moved there, kept open while written to, noted as in step."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.identity import Place
from bot.sessions import mirror
from bot.sessions.mirror import OpenFiles, path_of

ID = "20261123-181546-fd1b1921f6"


@pytest.mark.parametrize(
    ("session_id", "place"),
    [
        (ID, "2026-11"),
        ("import-20261123-1", "imported"),
        ("20261323-181546-fd1b1921f6", ""),
        ("../../etc", ""),
        ("s", ""),
    ],
)
def test_a_file_is_in_the_folder_of_its_month(tmp_path, session_id, place):
    assert mirror.transcript_place(session_id) == place
    if place:
        assert path_of(tmp_path, session_id) == tmp_path / place / f"{session_id}.jsonl"


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_few_files_are_open_at_once(tmp_path):
    folder = tmp_path / "sessions"
    folder.mkdir()
    opened = OpenFiles(folder, most=3)
    before = open_files()
    for _ in range(2):
        for number in range(9):
            name = f"202611{number + 10}-x"
            path = path_of(folder, name)
            assert opened.append(name, path.stat().st_size if path.exists() else 0, b"line\n")
            assert open_files() <= before + 3
    assert all(path_of(folder, f"202611{n}-x").read_bytes() == b"line\n" * 2 for n in range(10, 19))
    opened.close_all()
    assert open_files() == before


@pytest.mark.parametrize("damage", ["deleted", "renamed", "replaced", "longer", "shorter"])
def test_what_somebody_does_to_an_open_file_is_noticed(tmp_path, damage):
    opened = OpenFiles(tmp_path)
    assert opened.append(ID, 0, b"one\n")
    path = path_of(tmp_path, ID)
    match damage:
        case "deleted":
            path.unlink()
        case "renamed":
            path.rename(path.with_name("elsewhere"))
        case "replaced":
            path.with_name("other").write_bytes(b"their words\n")
            path.with_name("other").replace(path)
        case "longer":
            path.write_bytes(b"one\ntheir words\n")
        case _:
            path.write_bytes(b"")
    assert not opened.append(ID, 4, b"two\n")
    assert not path.exists() or b"two" not in path.read_bytes()
    opened.close_all()


# --- whether they are in step ---------------------------------------------------------------------

PLACE = Place("agent:main:telegram:dm:1", "telegram:1", "telegram", "default", "1", "", "direct")
