"""Transcripts in a folder a month: moved there, kept open while written to, noted as in step."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from bot.identity import Place
from bot.recovery import open_database
from bot.sessions import store, transcript_files
from bot.sessions.entries import NewEntry
from bot.sessions.mirror import Mirror
from bot.sessions.transcript_files import MARK, OpenFiles, path_of
from bot.storage.files import DATABASE_NAME
from tests.support import NOON

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
    assert transcript_files.place_of(session_id) == place
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


async def run(folder: Path, *texts: str, stops: bool = True) -> int:
    """A start that says something; how many transcripts were read at it."""
    looked = 0
    found = transcript_files.all_found

    def counted(sessions: Path) -> list[transcript_files.Found]:
        nonlocal looked
        looked += 1
        return found(sessions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transcript_files, "all_found", counted)
        database = await open_database(folder, lambda: NOON)
    mirror = Mirror(database, folder / "sessions")
    await mirror.start()
    for text in texts:
        there = await database.read(lambda tx: store.current(tx, PLACE.key))
        if there is None:
            there, header = await database.write(
                lambda tx: store.start(tx, PLACE, NOON, by="first")
            )
            mirror.add([header])
        added = partial(store.append, session_id=there.id, now=NOON)
        news = [NewEntry("message", "user", text)]
        mirror.add([await database.write(partial(added, news=news))])
    await mirror.repair()
    await mirror.stop()
    if not stops:  # a kill: the note of the end was not made
        (folder / MARK).unlink()
    await database.close()
    return looked


async def said(folder: Path) -> list[str]:
    database = await open_database(folder, lambda: NOON)
    rows = await database.read(
        lambda tx: tx.execute("SELECT json_extract(line, '$.message.text') FROM entries")
    )
    await database.close()
    return [row[0] for row in rows]


async def test_after_a_stop_no_transcript_is_looked_at_and_after_a_kill_all_are(tmp_path):
    await run(tmp_path, "one")
    assert await run(tmp_path) == 0
    assert await run(tmp_path, "two") == 0
    assert await run(tmp_path, stops=False) == 0
    assert await run(tmp_path) == 1
    assert await run(tmp_path) == 0


async def test_what_an_older_database_lacks_is_read_back_and_so_is_a_file_put_there(tmp_path):
    await run(tmp_path, "one")
    older = (tmp_path / DATABASE_NAME).read_bytes()
    await run(tmp_path, "two")
    await run(tmp_path)
    (tmp_path / DATABASE_NAME).write_bytes(older)  # by hand
    assert await said(tmp_path) == ["one", "two"]
    # A transcript from elsewhere.
    other = tmp_path / "other"
    other.mkdir()
    await run(other, "three")
    assert await run(tmp_path) == 0  # it has all of it again
    (there,) = (other / "sessions").rglob("*.jsonl")
    shutil.copy(there, tmp_path / "sessions" / there.name)
    assert await said(tmp_path) == ["one", "two", "three"]


@pytest.mark.parametrize("torn", [b"", b"{", b"[]", b'{"entries":7}', b'{"entries":[],"places":7}'])
async def test_a_note_that_says_nothing_is_none(tmp_path, torn):
    await run(tmp_path, "one")
    (tmp_path / MARK).write_bytes(torn)
    assert await run(tmp_path) == 1
