"""`confidant import chatgpt` and `import claude`: brought once, dated as they were, one's own."""

from __future__ import annotations

import asyncio
import html
import json
import zipfile
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import pytest
from typer.testing import CliRunner, Result

from bot.cli.main import cli
from bot.identity.routing import OWNER
from bot.identity.view import MemoryView
from bot.importing import exports as reading
from bot.sessions import forgetting, search, store
from bot.sessions.transcript_files import everything as transcripts
from bot.storage.files import DataDirLock
from bot.storage.sqlite import SqliteDatabase
from tests.fakes import exports
from tests.support import running

pytestmark = pytest.mark.usefixtures("logs_stay")

VIEW = MemoryView("main", (), private=True, people=(OWNER,))
TALKS = [
    exports.chatgpt("c1", "my boat is called Quallenfischer", "A fine name.", title="Boats"),
    exports.chatgpt("c2", "我的自行车密码是四七一一", "知道了", began=exports.BEGAN + 1e6),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def invoke(folder: Path, *words: str, **environment: str) -> Result:
    where = {
        "CONFIDANT_STORAGE__DIR": str(folder),
        "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
        "CONFIDANT_AGENT__TIMEZONE": "UTC",
    }
    return CliRunner().invoke(cli, list(words), env={**where, **environment})


def imported(folder: Path, *words: str) -> str:
    result = invoke(folder, "import", *words, "--yes", "--quiet")
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(folder: Path, *words: str) -> str:
    """What an import says that fails, which is one line and makes nothing."""
    before = everything(folder)
    result = invoke(folder, "import", *words, "--yes", "--quiet")
    assert result.exit_code == 1
    assert everything(folder) == before
    said = str(result.exception)
    assert "\n" not in said
    return said


def everything(folder: Path) -> dict[str, Any]:
    """All that was said, and every transcript file."""
    files = {path.name: path.read_bytes() for path in transcripts(folder / "sessions")}
    if not (folder / "confidant.db").exists():
        return files
    connection = apsw.Connection(str(folder / "confidant.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        for table in ("sessions", "entries", "titles", "conversations", "pairing"):
            files[table] = list(connection.execute(f"SELECT * FROM {table} ORDER BY 1"))
    finally:
        connection.close()
    return files


def said_in(folder: Path) -> list[tuple[str, int, str]]:
    """Who said what, and when (seconds): of every conversation, in order."""
    found: list[tuple[str, int, str]] = []
    for file in sorted((folder / "sessions").rglob("*.jsonl")):
        for line in file.read_text().splitlines()[1:]:
            entry = json.loads(line)
            found.append((entry["message"]["role"], entry["at"] // 1000, entry["message"]["text"]))
    return sorted(found, key=lambda each: each[1])


# --- brought, and once --------------------------------------------------------------------------


def test_an_export_of_chatgpt_is_brought_dated_as_it_was(folder, tmp_path):
    said = imported(folder, "chatgpt", str(exports.pack(tmp_path / "gpt.zip", TALKS)))
    assert "ChatGPT, for the owner:\n  2 new conversations" in said
    assert "of 2024-05-01 08:00 to 2024-05-12 21:47" in said
    began = int(exports.BEGAN)
    assert said_in(folder)[:2] == [
        ("user", began, "my boat is called Quallenfischer"),
        ("assistant", began + 60, "A fine name."),
    ]


def test_an_export_of_claude_is_brought_too(folder, tmp_path):
    archive = exports.pack(tmp_path / "claude.zip", [exports.claude("c1", "on a Tuesday", "yes")])
    assert "Claude, for the owner:\n  1 new conversation," in imported(
        folder, "claude", str(archive)
    )
    assert [text for _, _, text in said_in(folder)] == ["on a Tuesday", "yes"]


def test_a_second_import_changes_nothing_and_a_later_export_adds_what_is_new(folder, tmp_path):
    archive = exports.pack(tmp_path / "gpt.zip", TALKS)
    imported(folder, "chatgpt", str(archive))
    before = everything(folder)
    assert "There is nothing new. Nothing was changed." in imported(folder, "chatgpt", str(archive))
    assert everything(folder) == before
    longer = exports.chatgpt(
        "c1", "my boat is called Quallenfischer", "A fine name.", "I sold it.", title="Boats"
    )
    third = exports.chatgpt("c3", "a third one")
    later = exports.pack(tmp_path / "later.zip", [third, longer, TALKS[1]])
    assert "1 new conversation, 1 that went on, 1 known; 2 new messages" in imported(
        folder, "chatgpt", str(later)
    )
    after = said_in(folder)
    assert [text for _, _, text in after].count("I sold it.") == 1
    assert len(after) == 6


def test_nothing_is_made_where_it_is_only_shown_or_refused(folder, tmp_path):
    archive = str(exports.pack(tmp_path / "gpt.zip", TALKS))
    shown = invoke(folder, "import", "chatgpt", archive, "--dry-run")
    assert "2 new conversations" in shown.output
    assert shown.output.endswith("Nothing was changed.\n")
    asked = CliRunner().invoke(
        cli,
        ["import", "chatgpt", archive],
        input="n\n",
        env={"CONFIDANT_STORAGE__DIR": str(folder)},
    )
    assert asked.exit_code == 1
    assert "Import this? [y/N]" in asked.output
    assert not folder.exists()


def test_a_browser_may_have_unpacked_it_and_it_may_come_in_numbered_files(folder, tmp_path):
    unpacked = tmp_path / "export"
    unpacked.mkdir()
    for number, talk in enumerate(TALKS):
        (unpacked / f"conversations-00{number}.json").write_text(json.dumps([talk]))
    (unpacked / "user.json").write_text("{}")
    assert "2 new conversations" in imported(folder, "chatgpt", str(unpacked))
    single = str(unpacked / "conversations-001.json")
    assert "0 new conversations, 0 that went on, 1 known" in imported(folder, "chatgpt", single)


def test_while_the_bot_runs_nothing_is_read(folder, tmp_path):
    archive = str(exports.pack(tmp_path / "gpt.zip", TALKS))
    folder.mkdir()
    with DataDirLock(folder):
        assert "Stop that one first" in refused(folder, "chatgpt", archive)


# --- whose they are -----------------------------------------------------------------------------


def people_of(folder: Path) -> set[str]:
    return {row[2] for row in everything(folder)["sessions"]}


@pytest.mark.parametrize(
    ("typed", "identity"),
    [("owner", "main"), ("main", "main"), ("telegram:42", "telegram:42"), ("telegram:7", "main")],
)
def test_they_are_the_owners_or_those_of_whoever_is_named(folder, tmp_path, typed, identity):
    (tmp_path / "confidant.toml").write_text('[session]\nowner = ["telegram:7"]\n')
    archive = str(exports.pack(tmp_path / "gpt.zip", TALKS))
    imported(folder, "chatgpt", archive, "--as", typed)
    assert people_of(folder) == {identity}


def test_nobody_of_that_name_is_refused(folder, tmp_path):
    archive = str(exports.pack(tmp_path / "gpt.zip", TALKS))
    for name in ("ada", "telegram:", ""):
        assert "Nobody is called" in refused(folder, "chatgpt", archive, "--as", name)


async def page(engine: Any, path: str) -> str:
    async with aiohttp.ClientSession() as client:
        url = f"{engine.app.address.url.rstrip('/')}{path}"
        async with client.get(url, headers={"Accept-Language": "en"}) as answer:
            assert answer.status == 200, path
            return html.unescape(await answer.text())


async def test_the_page_lists_them_as_imported_with_who_said_what(folder, tmp_path):
    archive = str(exports.pack(tmp_path / "gpt.zip", TALKS))
    await asyncio.to_thread(imported, folder, "chatgpt", archive)
    async with running(folder, serves=True) as engine:
        listed = await page(engine, "/conversations")
        assert "Boats" in listed
        assert "imported from ChatGPT" in listed
        found = await page(engine, "/conversations?q=Quallenfischer")
        id_ = found.split('href="/conversations/import-')[1].split("?")[0]
        shown = await page(engine, f"/conversations/import-{id_}")
        assert "imported from ChatGPT, begun Wednesday, 2024-05-01" in shown
        assert 'class="who">ChatGPT <time' in shown
        assert 'class="who">Confidant' not in shown


async def test_nobody_else_finds_them_and_the_person_does(folder, tmp_path):
    archive = str(exports.pack(tmp_path / "gpt.zip", TALKS))
    await asyncio.to_thread(imported, folder, "chatgpt", archive, "--as", "memory:ada")
    async with running(folder) as engine:
        # Without a key the offline model is another one: the search itself is asked.
        await engine.ask("hello")
        await engine.ask("hello", sender="bo")
        found = await engine.ask("/status")
        assert "Quallenfischer" not in found
    database = await SqliteDatabase.open(folder / "confidant.db")
    try:
        for who, count in (("memory:ada", 1), ("memory:bo", 0), (OWNER, 0)):
            view = MemoryView("people/x", (), private=True, people=(who,))
            hits = await database.read(lambda tx, v=view: search.find(tx, v, "Quallenfischer", 9))
            assert len(hits) == count, who
        # It is no chat in which the person could be told anything.
        latest = await database.read(lambda tx: store.latest_direct(tx, "memory:ada"))
        assert latest is not None
        assert latest.channel == "memory"
    finally:
        await database.close()


async def test_the_model_is_told_that_it_was_said_to_another_program(folder, tmp_path):
    archive = str(exports.pack(tmp_path / "gpt.zip", TALKS))
    await asyncio.to_thread(imported, folder, "chatgpt", archive, "--as", "memory:ada")
    async with running(folder) as engine:
        await engine.ask("what was my boat Quallenfischer about?")
        prompt = str(engine.model.requests[-1])
    assert "said to ChatGPT, not to you" in prompt
    assert "ChatGPT: A fine name." in prompt
    assert "you: A fine name." not in prompt


async def test_what_is_forgotten_stays_so_when_it_is_imported_again(folder, tmp_path):
    archive = str(exports.pack(tmp_path / "gpt.zip", TALKS))
    await asyncio.to_thread(imported, folder, "chatgpt", archive)
    database = await SqliteDatabase.open(folder / "confidant.db")
    try:
        gone = await database.write(
            lambda tx: forgetting.forget_in(tx, VIEW, "Quallenfischer", 1_800_000_000_000)
        )
        assert len(gone) == 1
    finally:
        await database.close()
    assert "nothing new" in await asyncio.to_thread(imported, folder, "chatgpt", archive)
    database = await SqliteDatabase.open(folder / "confidant.db")
    try:
        assert await database.read(lambda tx: search.find(tx, VIEW, "Quallenfischer", 9)) == []
    finally:
        await database.close()


async def test_a_lost_database_gets_them_back_from_their_transcripts(folder, tmp_path):
    archive = str(exports.pack(tmp_path / "gpt.zip", TALKS))
    await asyncio.to_thread(imported, folder, "chatgpt", archive)
    before = everything(folder)
    for file in folder.glob("confidant.db*"):
        file.unlink()
    async with running(folder):
        pass
    after = everything(folder)
    assert after["conversations"] == []
    assert [row[2:] for row in after["entries"]] == [row[2:] for row in before["entries"]]
    assert [row[1] for row in after["titles"]] == [row[1] for row in before["titles"]]
    assert "nothing new" in await asyncio.to_thread(imported, folder, "chatgpt", archive)


# --- broken, huge and hostile -------------------------------------------------------------------


def test_what_is_broken_in_one_conversation_is_told_and_the_rest_is_kept(folder, tmp_path):
    talks = [exports.chatgpt(f"c{n}", f"number {n}") for n in range(4)]
    data = json.dumps(talks)
    for number, (wrong, told) in enumerate(
        (
            ('"title": x"Talk c1"', "conversation 2 of conversations.json: it is damaged"),
            ('"title": "Talk c1', "conversation 2 of conversations.json: it is damaged"),
        )
    ):
        archive = exports.pack(
            tmp_path / f"{number}.zip", data.replace('"title": "Talk c1"', wrong, 1)
        )
        assert told in imported(folder, "chatgpt", str(archive))
        assert {text for _, _, text in said_in(folder)} == {"number 0", "number 2", "number 3"}
    talks[2]["mapping"] = "gone"
    other = imported(folder, "chatgpt", str(exports.pack(tmp_path / "b.zip", talks)))
    assert "Talk c2: it is no conversation of ChatGPT" in other
    assert len(said_in(folder)) == 4


def test_names_that_lead_elsewhere_lead_nowhere(folder, tmp_path):
    archive = exports.pack(tmp_path / "a.zip", TALKS, **{"..__..__evil.json": "[]"})
    with zipfile.ZipFile(archive, "a") as more:
        more.writestr("../../conversations-001.json", json.dumps([exports.chatgpt("x", "hi")]))
        more.writestr("/etc/conversations-002.json", json.dumps([exports.chatgpt("y", "ho")]))
        more.writestr("__MACOSX/conversations.json", "junk")
    before = set(tmp_path.parent.iterdir())
    assert "4 new conversations" in imported(folder, "chatgpt", str(archive))
    assert set(tmp_path.parent.iterdir()) == before
    assert {path.name for path in tmp_path.iterdir()} == {"a.zip", "home"}


def test_a_zip_that_unpacks_to_far_too_much_is_refused_unread(folder, tmp_path):
    path = tmp_path / "bomb.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("conversations.json", "w", force_zip64=True) as member,
    ):
        for _ in range(60):
            member.write(b" " * 1_000_000)
    said = refused(folder, "chatgpt", str(path))
    assert "would unpack to 60,000,000 bytes" in said


def test_too_much_is_refused_by_its_size(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_BYTES", 100)
    archive = str(exports.pack(tmp_path / "gpt.zip", TALKS))
    assert "at most 100 are read" in refused(folder, "chatgpt", archive)


def test_what_is_no_export_is_refused_in_one_line(folder, tmp_path):
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", "hi")
    text = tmp_path / "text.zip"
    text.write_text("no zip")
    torn = tmp_path / "torn.zip"
    whole = exports.pack(tmp_path / "whole.zip", TALKS).read_bytes()
    torn.write_bytes(whole[: len(whole) // 2])
    cases = {
        other: "There is no conversations.json in other.zip",
        text: "text.zip is no ZIP",
        torn: "torn.zip is no ZIP",
        tmp_path / "none.zip": "cannot be read: No such file or directory",
        exports.pack(tmp_path / "object.zip", '{"a": 1}'): "is no list of conversations",
    }
    for path, expected in cases.items():
        assert expected in refused(folder, "chatgpt", str(path)), path
    altered = tmp_path / "altered.zip"
    at = whole.index(b"conversations.json") + 60
    altered.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    assert "altered.zip is damaged" in refused(folder, "chatgpt", str(altered))


def test_an_export_of_the_other_program_is_told_so(folder, tmp_path):
    archive = str(exports.pack(tmp_path / "gpt.zip", TALKS))
    said = imported(folder, "claude", archive)
    assert "an entry: it is no conversation of Claude" in said
    assert "There is nothing new." in said


def test_a_zip_with_a_table_of_contents_that_fills_the_memory_is_refused(
    folder, tmp_path, monkeypatch
):
    archive = exports.pack(tmp_path / "gpt.zip", TALKS)
    monkeypatch.setattr(reading, "MAX_DIRECTORY", 100)
    assert "holds more files than any export" in refused(folder, "chatgpt", str(archive))
