"""Longer digests: what version 0.1.0 kept under short ones before is moved when it starts.

`tests/data/short-digests.tar.gz` is a storage folder as that version left it when it was killed:
conversations, notes, a reminder, a room's choice, two messages that wait, and two pairs of people
with ids that were chosen to share a folder (40 bits) and a session key (48 bits).
"""

from __future__ import annotations

import itertools
import tarfile
from pathlib import Path
from typing import Any

import apsw
import pytest

from bot import id_migration
from bot.errors import StorageFull
from bot.identity import routing
from bot.identity.view import folder_name, room_name
from bot.memory import folders
from bot.sessions import store
from bot.sessions.transcript_files import path_of
from bot.testing import ScriptedModel
from tests.support import Engine, running

ARCHIVE = Path(__file__).parents[1] / "data" / "short-digests.tar.gz"
SECTIONS: dict[str, Any] = {
    "session": {"identity_links": {"Grace": ["memory:grace1"]}, "owner": ["memory:Boss"]},
    "channels": {"memory": {"group_policy": "open"}},
}
ONE_FOLDER = ("kOLliSIOnsFReUnduNDnAchbarin", "kOllISionsFReUNDunDNAchbarin")
ONE_KEY = ("kOlliSiOnSFReuNdUndnAcHBarin", "kOllisiONSFREunDuNDNaChBArin")
DEN = "Den!Room"
_numbers = itertools.count()
SHARED = "memory-kollisionsfreundundnachbarin-9f7d243e75"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "storage"


def starting(folder: Path, **options: Any) -> Any:
    return running(folder, **{**SECTIONS, **options})


def space(folder: Path, identity: str, kind: str = "people") -> Path:
    return folder / "workspace" / kind / folder_name(identity)


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(folder / "confidant.db"))
    try:
        return list(connection.execute(sql))
    finally:
        connection.close()


def short_keys(folder: Path) -> set[str]:
    tables = ("sessions", "conversations", "reminders", "rooms", "inbox", "link_codes")
    found = {row[0] for table in tables for row in rows(folder, f"SELECT key FROM {table}")}
    return {
        key for key in found if id_migration.lengthened(key) and id_migration._IN_KEY.search(key)
    }


async def ask(engine: Engine, words: str, **changes: Any) -> str:
    """As `Engine.ask`, with an id that no message in the archive has."""
    return await engine.ask(words, message_id=f"later-{next(_numbers)}", **changes)


async def settled(engine: Engine) -> None:
    """The two messages that waited are answered."""
    await engine.channel.wait_until(lambda _: any("waits behind" in t for t in said(engine)))


def said(engine: Engine) -> list[str]:
    return engine.sent_to("Ada")


async def test_everybody_finds_their_conversation_and_notes_again(old: Path):
    model = ScriptedModel()
    async with starting(old, model=model) as engine:
        await settled(engine)
        assert "my second conversation" in str(model.requests[0].messages)
        assert "feed the cat" in await ask(engine, "/reminders", sender="Ada")
        assert "conversation before" in await ask(engine, "/undo", sender="Ada")
        told = await ask(engine, "/memory search harbour", sender="Ada")
        assert "the harbour code is 4711" in told
        assert "red boat" in await ask(engine, "/memory show MEMORY.md", sender="Ada")
        for who, words in (("grace1", "I am Grace"), ("eve", "plain people"), ("Zoe", "second")):
            account = "Work" if who == "Zoe" else "default"
            told = await ask(engine, f"/memory search {words}", sender=who, account=account)
            assert words in told
        room = {"chat": DEN, "chat_type": "group", "message_id": "later in the room"}
        await engine.say("no mention", sender="Ada", **room)
        await engine.channel.wait_until(lambda _: bool(engine.sent_to(DEN)))
        assert "the room hears this" in str(model.requests[-1].messages)
    assert short_keys(old) == set()
    folders = id_migration.short_folders(old / "workspace")
    assert folders == [f"people/{SHARED}"]
    assert (space(old, "memory:Ada") / "MEMORY.md").read_text().endswith("red boat\n")
    den = space(old, room_name("memory", "default", DEN), "rooms")
    assert (den / "memory" / "2026-11-20.md").exists()


async def test_what_is_moved_was_copied_before(old: Path):
    short = {name for name in id_migration.short_folders(old / "workspace") if SHARED not in name}
    notes = {
        path.relative_to(old / "workspace"): path.read_text()
        for name in short
        for path in (old / "workspace" / name).rglob("*.md")
    }
    keys = short_keys(old)
    assert notes
    assert keys
    async with starting(old) as engine:
        await settled(engine)
    copies = old / "before-upgrade"
    found = {
        path.relative_to(copies / "notes"): path.read_text()
        for path in (copies / "notes").rglob("*.md")
    }
    assert found == notes
    names = [path.name for path in copies.glob("*.db")]
    (first, last) = sorted(names, key=lambda name: int(name.rpartition("-")[2][:-3]))
    for name in (first, last):
        (copies / name).replace(old / "confidant.db")
        assert short_keys(old) == keys


async def test_the_files_of_transcripts_follow_and_nothing_is_set_aside(old: Path):
    async with starting(old) as engine:
        await settled(engine)
    for id_, size in rows(old, "SELECT id, mirror_bytes FROM sessions"):
        assert path_of(old / "sessions", id_).stat().st_size == size
    assert list((old / "sessions").rglob("*.kept-*")) == []


async def test_two_people_who_shared_a_key_part_with_what_each_of_them_began(old: Path):
    one, two = ONE_KEY
    before = rows(old, f"SELECT key FROM sessions WHERE chat IN {ONE_KEY}")
    assert len(before) == 1
    model = ScriptedModel()
    async with starting(old, model=model) as engine:
        await settled(engine)
        await ask(engine, "do you know me?", sender=two)
        assert f"word of {one}" not in str(model.requests[-1].messages)
        await ask(engine, "do you know me?", sender=one)
        assert f"word of {one}" in str(model.requests[-1].messages)


async def test_a_folder_two_people_shared_is_nobodys_and_stays_where_it_is(old: Path):
    async with starting(old) as engine:
        await settled(engine)
        for who in ONE_FOLDER:
            told = await ask(engine, "/memory search shared folder", sender=who)
            other = next(each for each in ONE_FOLDER if each != who)
            assert f"shared folder of {other}" not in told
    kept = (old / "workspace" / "people" / SHARED / "memory" / "2026-11-21.md").read_text()
    assert f"shared folder of {ONE_FOLDER[0]}" in kept


async def test_a_folder_that_comes_back_by_hand_is_joined_at_the_next_start(old: Path):
    short = old / "workspace" / "people" / folder_name("memory:Ada", 10)
    async with starting(old) as engine:
        await settled(engine)
    short.mkdir()
    (short / "MEMORY.md").write_text("- written by hand\n")
    (short / "USER.md").write_text("- Ada, by hand\n")
    async with starting(old) as engine:
        told = await ask(engine, "/memory show MEMORY.md", sender="Ada")
        assert "red boat" in told
        assert "written by hand" in told
        assert "Ada, by hand" in await ask(engine, "/memory show USER.md", sender="Ada")
    assert not short.exists()


class Killed(BaseException):
    """The program ends here."""


@pytest.mark.parametrize("moment", range(6))
async def test_a_kill_on_the_way_is_completed_by_the_next_start(
    old: Path, moment: int, monkeypatch: pytest.MonkeyPatch
):
    real, left = folders.move, [moment]

    def killed(*arguments: Any) -> Any:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(folders, "move", killed)
        if moment < 5:
            with pytest.raises(Killed):
                async with starting(old):
                    pass
    async with starting(old) as engine:
        await settled(engine)
        assert "red boat" in await ask(engine, "/memory show MEMORY.md", sender="Ada")
    assert short_keys(old) == set()
    assert id_migration.short_folders(old / "workspace") == [f"people/{SHARED}"]


async def test_a_disk_that_is_full_changes_no_key(old: Path, monkeypatch: pytest.MonkeyPatch):
    before = sorted(rows(old, "SELECT id, key, mirror_bytes FROM sessions"))
    count = [0]
    real = store.rekey

    def full(*arguments: Any) -> None:
        count[0] += 1
        if count[0] == 4:
            raise apsw.FullError
        real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(store, "rekey", full)
        with pytest.raises(StorageFull):
            async with starting(old):
                pass
    assert sorted(rows(old, "SELECT id, key, mirror_bytes FROM sessions")) == before
    async with starting(old) as engine:
        await settled(engine)
    assert short_keys(old) == set()


async def test_what_was_said_in_a_restored_backup_follows_too(old: Path):
    """A backup from before has the short keys again, and the files know what came later."""
    backup = (old / "confidant.db").read_bytes(), (old / "confidant.db-wal").read_bytes()
    async with starting(old) as engine:
        await settled(engine)
        await ask(engine, "said after the move", sender="Ada")
    for name in ("confidant.db-wal", "confidant.db-shm"):
        (old / name).unlink(missing_ok=True)
    (old / "confidant.db").write_bytes(backup[0])
    (old / "confidant.db-wal").write_bytes(backup[1])
    model = ScriptedModel()
    async with starting(old, model=model) as engine:
        await ask(engine, "go on", sender="Ada")
        assert "said after the move" in str(model.requests[-1].messages)
    assert short_keys(old) == set()


async def test_what_a_journal_gives_back_under_a_short_key_is_moved_too(old: Path):
    async with starting(old) as engine:
        await settled(engine)
    key, session = rows(old, "SELECT key, session_id FROM conversations WHERE key LIKE '%ada~%'")[0]
    short = key[:-20]
    for statement in (
        f"INSERT INTO conversations VALUES ('{short}', '{session}', 1)",
        f"UPDATE reminders SET key = '{short}'",
        f"INSERT INTO rooms VALUES ('{short}', 'mention', 0, 1)",
    ):
        rows(old, statement)
    async with starting(old) as engine:
        assert "feed the cat" in await ask(engine, "/reminders", sender="Ada")
    assert short_keys(old) == set()


async def test_everything_comes_back_when_only_files_are_left(old: Path):
    async with starting(old) as engine:
        await settled(engine)
        assert "conversation before" in await ask(engine, "/undo", sender="Ada")
    for name in old.glob("confidant.db*"):
        name.unlink()
    model = ScriptedModel()
    async with starting(old, model=model) as engine:
        assert "feed the cat" in await ask(engine, "/reminders", sender="Ada")
        await ask(engine, "and now?", sender="Ada")
        shown = str(model.requests[-1].messages)
        assert "harbour code" in shown
        assert "my second conversation" not in shown
    assert short_keys(old) == set()


# --- pure -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", ["Ada", "users/Ada", "!Room:Server", "A.B", "@Ada"])
def test_a_key_gets_the_digest_it_would_have_now(id_: str):
    short, long = routing.part(id_, 12), routing.part(id_)
    ids = id_migration.ids_of([id_, "Eve", "plain"])
    forms = (
        "agent:main:x:dm:{}",
        "agent:main:dm:x.{}",
        "a:@{}:thread:t",
        "a:@@{}",
        "g:{}:topic:{}",
    )
    for form in forms:
        key = form.format(short, short)
        assert id_migration.lengthened(key, ids) == form.format(long, long)
        assert id_migration.lengthened(form.format(long, long), ids) == form.format(long, long)
        assert id_migration.lengthened(key, id_migration.ids_of(["Eve"])) == key


def test_what_a_session_knows_itself_comes_before_what_everybody_is_called():
    one, two = ONE_KEY
    key = f"agent:main:x:dm:{routing.part(one, 12)}"
    everybody = id_migration.ids_of([one, two])
    assert id_migration.lengthened(key, everybody) == key
    assert id_migration.lengthened(key, id_migration.ids_of([two]), everybody) == (
        f"agent:main:x:dm:{routing.part(two)}"
    )
    assert routing.part(one) != routing.part(two)
