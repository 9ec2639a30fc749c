"""`confidant import chatgpt` and `import claude`: brought once, dated as they were, one's own."""

from __future__ import annotations

import asyncio
import hashlib
import html
import json
import re
import tomllib
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
from bot.importing.openclaw import moving
from bot.sessions import browsing, forgetting, store
from bot.sessions.mirror import all_transcripts as transcripts
from bot.storage.files import DataDirLock
from bot.storage.sqlite import SqliteDatabase
from tests.fakes import exports
from tests.fakes import openclaw as made
from tests.support import beside, running, write_file

pytestmark = pytest.mark.usefixtures("logs_stay")

VIEW = MemoryView("main", (), private=True, people=(OWNER,))
TALKS = [
    exports.chatgpt("c1", "my boat is called Quallenfischer", "A fine name.", title="Boats"),
    exports.chatgpt("c2", "我的自行车密码是四七一一", "知道了", began=exports.BEGAN + 1e6),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def archive(tmp_path):
    return str(exports.pack(tmp_path / "gpt.zip", TALKS))


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


def test_what_others_said_in_a_messenger_keeps_their_name(folder, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(exports.telegram(42, ("Ada", "my boat leaks"), ("Bo", "again?"))))
    assert "Telegram, for the owner:\n  1 new conversation," in imported(folder, "from", str(path))
    assert [(role, text) for role, _, text in said_in(folder)] == [
        ("user", "my boat leaks"),
        ("assistant", "Bo: again?"),
    ]


def test_a_second_import_changes_nothing_and_a_later_export_adds_what_is_new(folder, tmp_path):
    archive = exports.pack(tmp_path / "gpt.zip", TALKS)
    imported(folder, "chatgpt", str(archive))
    before = everything(folder)
    assert "There is nothing new, so nothing was changed." in imported(
        folder, "chatgpt", str(archive)
    )
    assert everything(folder) == before
    longer = exports.chatgpt(
        "c1", "my boat is called Quallenfischer", "A fine name.", "I sold it.", title="Boats"
    )
    third = exports.chatgpt("c3", "a third one")
    later = exports.pack(tmp_path / "later.zip", [third, longer, TALKS[1]])
    assert "1 new conversation, 1 continued, 1 known; 2 new messages" in imported(
        folder, "chatgpt", str(later)
    )
    after = said_in(folder)
    assert [text for _, _, text in after].count("I sold it.") == 1
    assert len(after) == 6


def test_what_comes_twice_in_an_export_is_counted_once(folder, tmp_path):
    archive = exports.pack(tmp_path / "gpt.zip", [*TALKS, TALKS[0]])
    said = invoke(folder, "import", "chatgpt", str(archive), "--dry-run", "--quiet").output
    assert "2 new conversations, 0 continued, 1 known; 4 new messages" in said
    assert said.split("\nImported")[0] in imported(folder, "chatgpt", str(archive)).replace(
        "\nImported", "\nNothing was changed.\nImported"
    )


@pytest.mark.parametrize(("typed", "space"), [(None, ""), ("telegram:42", "people/telegram-42-*/")])
def test_what_was_remembered_becomes_notes_of_whoever_it_is_for(folder, tmp_path, typed, space):
    memory = [{"conversations_memory": "**Work**\n\nAda sails.", "project_memories": {}}]
    project = {"uuid": "0a", "name": "Boat", "prompt_template": "Be brief.", "docs": []}
    archive = exports.pack(
        tmp_path / "claude.zip",
        [exports.claude("c1", "hello")],
        **{
            "memories.json": json.dumps(memory),
            "projects.json": json.dumps([project, project]),
        },
    )
    words = ("claude", str(archive), *(("--as", typed) if typed else ()))
    assert "Imported 1 message and 2 notes" in imported(folder, *words)
    workspace = folder / "workspace"
    (memories,) = workspace.glob(f"{space}MEMORY.md")
    lines = memories.read_text().splitlines()
    assert "## From Claude" in lines
    assert re.fullmatch(r"Ada sails\. <!-- imported \d{4}-\d\d-\d\d -->", lines[-1])
    (boat,) = workspace.glob(f"{space}memory/claude/project-0a.md")
    assert boat.read_text().count("Be brief.") == 1
    assert sorted(path.name for path in workspace.rglob("project-*")) == ["project-0a.md"]
    before = memories.read_text()
    assert "There is nothing new" in imported(folder, *words)
    assert memories.read_text() == before


async def test_what_has_no_date_is_shown_and_found_without_one(folder, tmp_path):
    undated = exports.chatgpt("c1", "the Quallenfischer leaks", create_time=None)
    undated["mapping"]["c1-0"]["message"]["create_time"] = None
    archive = exports.pack(tmp_path / "gpt.zip", [undated])
    said = await asyncio.to_thread(imported, folder, "chatgpt", str(archive))
    assert "1 conversation without a date, kept without one" in said
    async with running(folder, serves=True) as engine:
        assert "No date" in await page(engine, "/conversations")
        found = await page(engine, "/conversations?q=Quallenfischer")
        assert "No date" in found
        assert "1970" not in found


def test_nothing_is_made_where_it_is_only_shown_or_refused(folder, archive):
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
    assert "0 new conversations, 0 continued, 1 known" in imported(folder, "chatgpt", single)


def test_while_the_bot_runs_nothing_is_read(folder, archive):
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
def test_they_are_the_owners_or_those_of_whoever_is_named(
    folder, tmp_path, typed, identity, archive
):
    (tmp_path / "confidant.toml").write_text('[session]\nowner = ["telegram:7"]\n')
    imported(folder, "chatgpt", archive, "--as", typed)
    assert people_of(folder) == {identity}


def test_nobody_of_that_name_is_refused(folder, archive):
    for name in ("ada", "telegram:", ""):
        assert "Nobody is called" in refused(folder, "chatgpt", archive, "--as", name)


async def page(engine: Any, path: str) -> str:
    async with aiohttp.ClientSession() as client:
        url = f"{engine.app.address.url.rstrip('/')}{path}"
        async with client.get(url, headers={"Accept-Language": "en"}) as answer:
            assert answer.status == 200, path
            return html.unescape(await answer.text())


async def test_the_page_lists_them_as_imported_with_who_said_what(folder, archive):
    await asyncio.to_thread(imported, folder, "chatgpt", archive)
    async with running(folder, serves=True) as engine:
        listed = await page(engine, "/conversations")
        assert "Boats" in listed
        assert "imported from ChatGPT" in listed
        found = await page(engine, "/conversations?q=Quallenfischer")
        id_ = found.split('href="/conversations/import-')[1].split("?")[0]
        shown = await page(engine, f"/conversations/import-{id_}")
        assert "imported from ChatGPT · started Wednesday, 2024-05-01" in shown
        assert 'class="who">ChatGPT <time' in shown
        assert 'class="who">Confidant' not in shown


async def test_nobody_else_finds_them_and_the_person_does(folder, archive):
    await asyncio.to_thread(imported, folder, "chatgpt", archive, "--as", "memory:ada")
    async with running(folder) as engine:
        # Without a key the offline model is another one: the search itself is asked.
        await engine.ask("hello")
        await engine.ask("hello", sender="bo")
        found = await engine.ask("/status")
        assert "Quallenfischer" not in found
    async with beside(folder) as database:
        for who, count in (("memory:ada", 1), ("memory:bo", 0), (OWNER, 0)):
            view = MemoryView("people/x", (), private=True, people=(who,))
            hits = await database.read(lambda tx, v=view: browsing.find(tx, v, "Quallenfischer", 9))
            assert len(hits) == count, who
        # It is no chat in which the person could be told anything.
        latest = await database.read(lambda tx: store.latest_direct(tx, "memory:ada"))
        assert latest is not None
        assert latest.channel == "memory"


async def test_the_model_is_told_that_it_was_said_to_another_program(folder, archive):
    await asyncio.to_thread(imported, folder, "chatgpt", archive, "--as", "memory:ada")
    async with running(folder) as engine:
        await engine.ask("what was my boat Quallenfischer about?")
        prompt = str(engine.model.requests[-1])
    assert "said to ChatGPT, not to you" in prompt
    assert "ChatGPT: A fine name." in prompt
    assert "you: A fine name." not in prompt


async def test_what_is_forgotten_stays_so_when_it_is_imported_again(folder, archive):
    await asyncio.to_thread(imported, folder, "chatgpt", archive)
    async with beside(folder) as database:
        gone = await database.write(
            lambda tx: forgetting.forget_in(tx, VIEW, "Quallenfischer", 1_800_000_000_000)
        )
        assert len(gone) == 1
    assert "nothing new" in await asyncio.to_thread(imported, folder, "chatgpt", archive)
    async with beside(folder) as database:
        assert await database.read(lambda tx: browsing.find(tx, VIEW, "Quallenfischer", 9)) == []


async def test_a_lost_database_gets_them_back_from_their_transcripts(folder, archive):
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
        exports.pack(tmp_path / "object.zip", '{"a": 1}'): "is no export of a program that",
    }
    for path, expected in cases.items():
        assert expected in refused(folder, "chatgpt", str(path)), path
    altered = tmp_path / "altered.zip"
    at = whole.index(b"conversations.json") + 60
    altered.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
    assert "altered.zip is damaged" in refused(folder, "chatgpt", str(altered))


def test_an_export_of_the_other_program_is_told_so(folder, archive):
    assert "gpt.zip is an export of ChatGPT, not of Claude" in refused(folder, "claude", archive)


def test_a_zip_with_a_table_of_contents_that_fills_the_memory_is_refused(
    folder, tmp_path, monkeypatch
):
    archive = exports.pack(tmp_path / "gpt.zip", TALKS)
    monkeypatch.setattr(reading, "MAX_DIRECTORY", 100)
    assert "holds more files than any export" in refused(folder, "chatgpt", str(archive))


LONG = "the packing list: " + "rope, " * 400
SESSIONS = {
    "agent:main:main": made.session("a", "my dentist is Dr Quast", "Noted.", LONG, "NO_REPLY"),
    "agent:main:telegram:direct:42": made.session("b", "I am Bo", "Hello Bo."),
    "agent:main:telegram:group:-1001": made.session("c", "who brings the tent?", "Ada does."),
    "agent:main:cron:weather": made.session("d", "look at the weather", "It rains."),
}


@pytest.fixture(params=["files", "database"])
def claw(request, tmp_path):
    """A whole folder, of the older and of the newer kind."""
    home = tmp_path / "claw"
    made.workspace(home / "workspace")
    if request.param == "files":
        made.in_files(home, SESSIONS)
        (home / "credentials").mkdir()
        (home / "credentials" / "telegram-allowFrom.json").write_text(
            json.dumps({"version": 1, "allowFrom": ["42", "telegram:43", "*"]})
        )
    else:
        made.in_database(home, SESSIONS)
        made.let_in(home, ("telegram", "default", "42"), ("telegram", "default", "43"))
    made.settings(
        home,
        agents={"defaults": {"workspace": "/elsewhere/workspace", "userTimezone": "Asia/Shanghai"}},
        session={"dmScope": "per-channel-peer", "reset": {"mode": "idle", "idleMinutes": 90}},
        channels={
            "telegram": {
                "botToken": "123456:secret",
                "dmPolicy": "pairing",
                "allowFrom": [42],
                "groups": {"-1001": {"requireMention": True}},
            }
        },
        commands={"ownerAllowFrom": ["telegram:7"]},
    )
    return home


def note(folder: Path, name: str) -> str:
    return (folder / "workspace" / name).read_text()


def whole(folder: Path) -> dict[str, Any]:
    """All that was said, and every note."""
    notes = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "workspace").rglob("*"))
        if path.is_file()
    }
    return {**everything(folder), **notes}


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- what is brought ----------------------------------------------------------------------------


def test_everything_is_brought_once_and_nothing_there_is_changed(folder, claw):
    before = digests(claw)
    shown = invoke(folder, "import", "openclaw", str(claw), "--dry-run")
    assert shown.output.endswith("Nothing was changed.\n")
    assert not folder.exists()
    said = imported(folder, "openclaw", str(claw))
    assert "memory/2026-01-05.md: new, 2 pieces" in said
    assert "3 new conversations" in said
    assert "1 conversation of telegram:42 (if that is you, put owner" in said
    assert "1 run of tasks, hooks and helpers, left out" in said
    assert "AGENTS.md: it is about how the other program works" in said
    assert "7 messages, 2 people." in said
    after = whole(folder)
    assert "There is nothing new" in imported(folder, "openclaw", str(claw))
    assert whole(folder) == after
    assert digests(claw) == before


def test_notes_keep_their_days_and_bear_a_mark(folder, claw):
    imported(folder, "openclaw", str(claw))
    assert note(folder, "memory/2026-01-05.md") == (
        "# 2026-01-05\n\n- bought rope at the harbour <!-- imported -->\n"
        "- 14:03 met Bo <!-- imported -->\n"
    )
    assert note(folder, "memory/2026-01-06.md") == "- sailed to Kiel <!-- imported -->\n"
    trip = note(folder, "memory/2026-01-06-trip.md")
    assert trip == "The trip took nine hours. <!-- imported 2026-01-09 -->\n"
    assert note(folder, "memory/people/bo.md") == "- Bo has a dog <!-- imported 2026-01-09 -->\n"
    memory = note(folder, "MEMORY.md")
    assert "Ada is the captain of a small boat. <!-- imported 2026-01-09 -->" in memory
    assert "- 女儿对花生过敏 <!-- not owner --> <!-- imported 2026-01-09 -->" in memory
    assert "<!-- owner" not in memory
    assert (
        "## Projects\n\n- Paint the hull before May <!-- imported 2026-01-09 -->\n"
        "  with the blue paint\n"
    ) in memory
    assert note(folder, "SOUL.md") == "You are a lobster with manners.\n"
    assert "OpenClaw" not in note(folder, "AGENTS.md")


def test_what_openclaw_itself_put_into_its_notes_is_not_brought(folder, tmp_path):
    claw = tmp_path / "claw"
    # A sentence of each of its templates; the rest of the first is somebody's own.
    notes = {
        "USER.md": "# USER.md - User Model\n\nUse one directive per entry:\n\n- Call me Ada\n",
        "SOUL.md": "# SOUL.md - Who You Are\n\n_You're not a chatbot. You're becoming someone._\n",
    }
    made.workspace(claw, notes)
    said = imported(folder, "openclaw", str(claw))
    assert "USER.md: new, 1 piece" in said
    assert "SOUL.md: it is as OpenClaw made it" in said
    assert "Use one directive" not in note(folder, "USER.md")
    assert "- Call me Ada <!-- imported 2026-01-09 -->" in note(folder, "USER.md")
    assert "becoming someone" not in note(folder, "SOUL.md")


def test_notes_that_are_there_get_only_what_they_have_not(folder, claw, tmp_path):
    own = folder / "workspace" / "memory" / "2026-01-05.md"
    own.parent.mkdir(parents=True)
    own.write_text(
        "# 2026-01-05\n\n- 09:00 woke up <!-- owner -->\n- 14:03 met Bo <!-- owner -->\n"
    )
    (folder / "workspace" / "SOUL.md").write_text("I am somebody else.\n")
    said = imported(folder, "openclaw", str(claw))
    assert "memory/2026-01-05.md: added to, 1 piece" in said
    assert "SOUL.md: there is one here that somebody wrote" in said
    assert own.read_text() == (
        "# 2026-01-05\n\n- 09:00 woke up <!-- owner -->\n- 14:03 met Bo <!-- owner -->\n\n"
        "- bought rope at the harbour <!-- imported -->\n"
    )
    assert note(folder, "SOUL.md") == "I am somebody else.\n"


def test_what_was_removed_since_stays_away_and_what_is_new_there_comes(folder, claw):
    imported(folder, "openclaw", str(claw))
    path = folder / "workspace" / "MEMORY.md"
    path.write_text(re.sub(r".*Quallenfischer.*\n", "", path.read_text()))
    theirs = claw / "workspace" / "memory.md"
    theirs.write_text(theirs.read_text() + "- The cat is called Mimi\n")
    said = imported(folder, "openclaw", str(claw))
    assert "MEMORY.md: added to, 1 piece" in said
    assert path.read_text().count("## Projects") == 2  # the heading it stands below
    assert "Quallenfischer" not in path.read_text()
    assert "- The cat is called Mimi <!-- imported" in path.read_text()


async def test_the_model_is_told_what_was_imported(folder, claw):
    await asyncio.to_thread(imported, folder, "openclaw", str(claw))
    async with running(folder, session={"owner": ["memory:ada"]}) as engine:
        await engine.ask("hello")
        prompt = str(engine.model.requests[-1])
    assert "The boat is called Quallenfischer (imported 2026-01-09)" in prompt
    assert "Quallenfischer (said" not in prompt


def test_conversations_are_dated_and_without_what_the_program_put_around_them(folder, tmp_path):
    claw = tmp_path / "claw"
    about = 'Conversation info (untrusted metadata):\n```json\n{"message_id": "7"}\n```\n\n'
    sender = 'Sender (untrusted metadata):\n```json\n{"id": "42"}\n```\n\n'
    made.in_files(
        claw,
        {
            "agent:main:main": [
                *made.session(
                    "a", f"{about}{sender}where is the key?", "[[reply_to_current]] here"
                ),
                made.event(5, "user", "[Telegram Ada id:42 2026-01-05 14:03 UTC] and the bag?"),
                made.event(6, "user", "Read HEARTBEAT.md if it exists. Otherwise HEARTBEAT_OK."),
                made.event(7, "assistant", "HEARTBEAT_OK"),
                made.event(8, "user", "/new"),
                made.event(9, "user", "thanks\n[message_id: 99]"),
                "{torn",
            ]
        },
    )
    said = imported(folder, "openclaw", str(claw))
    assert "main/main-s0.jsonl: 1 line is damaged; the rest is kept" in said
    began = made.BEGAN // 1000
    assert said_in(folder) == [
        ("user", began, "where is the key?"),
        ("assistant", began + 60, "here"),
        ("user", began + 300, "and the bag?"),
        ("user", began + 540, "thanks"),
    ]


def test_a_session_that_is_in_files_and_in_the_database_is_one(folder, tmp_path):
    claw = tmp_path / "claw"
    talks = {"agent:main:main": made.session("a", "only once", "yes")}
    made.in_files(claw, talks)
    made.in_database(claw, talks)
    imported(folder, "openclaw", str(claw))
    assert [text for _, _, text in said_in(folder)] == ["only once", "yes"]


def test_what_nothing_says_whose_it_is_waits_for_a_word(folder, tmp_path):
    claw = tmp_path / "claw"
    sessions = made.in_files(claw, {"agent:main:main": made.session("a", "mine")})
    lines = [json.dumps(each) for each in made.session("z", "an older one")]
    (sessions / "old.jsonl.reset.2026-01-04T04-00-00.000Z").write_text("\n".join(lines))
    said = imported(folder, "openclaw", str(claw))
    assert "1 conversation that name nobody, left out: --mine" in said
    assert [text for _, _, text in said_in(folder)] == ["mine"]
    imported(folder, "openclaw", str(claw), "--mine")
    assert {text for _, _, text in said_in(folder)} == {"mine", "an older one"}


# --- whose it is --------------------------------------------------------------------------------


async def test_each_person_and_each_room_finds_its_own_and_nothing_else(folder, claw):
    await asyncio.to_thread(imported, folder, "openclaw", str(claw))
    database = await SqliteDatabase.open(folder / "confidant.db")
    key = "agent:main:telegram:group:-1001"
    views = {
        "owner": MemoryView("main", ("agent:main:main",), private=True, people=("main",)),
        "bo": MemoryView("people/bo", (), private=True, people=("telegram:42",)),
        "room": MemoryView("rooms/telegram--1001", (key,), private=False),
        "other": MemoryView("people/x", (), private=True, people=("telegram:99",)),
    }
    try:
        for words, whose in (
            ("dentist", {"owner"}),
            ("Hello", {"bo"}),
            ("tent", {"room"}),
            ("weather", set()),
        ):
            found = {
                name
                for name, view in views.items()
                if await database.read(lambda tx, v=view, w=words: browsing.find(tx, v, w, 9))
            }
            assert found == whose, words
    finally:
        await database.close()


def test_an_account_that_the_configuration_calls_the_owners_is_the_owners(folder, claw, tmp_path):
    (tmp_path / "confidant.toml").write_text('[session]\nowner = ["telegram:42"]\n')
    said = imported(folder, "openclaw", str(claw))
    assert "2 conversations of you" in said
    assert {row[2] for row in everything(folder)["sessions"]} == {"main", ""}


# --- people and settings ------------------------------------------------------------------------


async def test_people_are_let_in_and_whoever_was_shut_out_since_stays_out(folder, claw):
    await asyncio.to_thread(imported, folder, "openclaw", str(claw))
    shown = await asyncio.to_thread(invoke, folder, "pairing", "list")
    assert "42" in shown.output
    await asyncio.to_thread(invoke, folder, "pairing", "revoke", "telegram", "42")
    assert "nothing new" in await asyncio.to_thread(imported, folder, "openclaw", str(claw))
    rows = everything(folder)["pairing"]
    assert [row[2] for row in rows if row[3] == "approved"] == ["43"]


def test_settings_are_proposed_without_a_secret_and_can_be_used(folder, claw, tmp_path):
    imported(folder, "openclaw", str(claw))
    text = (folder / moving.PROPOSAL).read_text()
    assert "secret" not in text
    assert "TELEGRAM_BOT_TOKEN" in text
    found = tomllib.loads(text)
    assert found["session"] == {
        "dm_scope": "per-channel-peer",
        "owner": ["telegram:7"],
        "reset": {"mode": "idle", "idle_minutes": 90},
    }
    assert found["channels"]["telegram"]["groups"] == {"-1001": {"require_mention": True}}
    (tmp_path / "confidant.toml").write_text(text)
    checked = invoke(folder, "config", "check", TELEGRAM_BOT_TOKEN="123456:x")
    assert checked.exit_code == 0, (checked.output, checked.exception)


JOBS = {  # as OpenClaw's documentation of cron and stores of it show them
    "version": 1,
    "jobs": [
        {
            "id": "1",
            "name": "Water",
            "enabled": True,
            "schedule": {"kind": "cron", "expr": "0 9 * * 1-5", "tz": "UTC"},
            "sessionTarget": "main",
            "payload": {"kind": "systemEvent", "text": "Water the plants"},
            "state": {},
        },
        {
            "id": "2",
            "name": "News",
            "schedule": {"kind": "every", "everyMs": 7_200_000, "anchorMs": 0},
            "sessionTarget": "isolated",
            "payload": {"kind": "agentTurn", "message": "Look for news of boats"},
            "delivery": {"mode": "announce", "channel": "telegram", "to": "telegram:7"},
        },
        {
            "id": "3",
            "name": "Dentist",
            "schedule": {"kind": "at", "at": "2090-02-01T16:00:00Z"},
            "payload": {"kind": "systemEvent", "text": "Dentist"},
        },
        {
            "id": "4",
            "name": "Bo's",
            "schedule": {"kind": "cron", "expr": "0 9 * * *"},
            "payload": {"kind": "systemEvent", "text": "for Bo"},
            "delivery": {"mode": "announce", "channel": "telegram", "to": "42"},
        },
        {
            "id": "5",
            "name": "Often",
            "schedule": {"kind": "cron", "expr": "* * * * *"},
            "payload": {"kind": "systemEvent", "text": "often"},
        },
        {"id": "6", "name": "Off", "enabled": False},
        {"id": "7", "schedule": [], "payload": 3},
        None,
    ],
}


def scheduled(folder: Path) -> dict[str, list[Any]]:
    connection = apsw.Connection(str(folder / "confidant.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return {
            "reminders": list(connection.execute("SELECT person, chat, text FROM reminders")),
            "repeats": list(
                connection.execute("SELECT person, chat, kind, text, rule, state FROM repeats")
            ),
        }
    finally:
        connection.close()


def test_jobs_become_reminders_and_tasks_of_the_owner_once(folder, claw, tmp_path):
    (tmp_path / "confidant.toml").write_text('[session]\nowner = ["telegram:7"]\n')
    write_file(claw / "cron" / "jobs.json", json.dumps(JOBS))
    said = imported(folder, "openclaw", str(claw))
    assert "Reminders and tasks: 3," in said
    assert "the job Bo's: it goes to no chat of yours" in said
    assert "the job Often: that is too often" in said
    assert "the job Off: it is switched off there" in said
    rule = "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=9;BYMINUTE=0"
    assert scheduled(folder) == {
        "reminders": [("main", "7", "Dentist")],
        "repeats": [
            ("main", "7", "text", "Water the plants", rule, "waiting"),
            ("main", "7", "task", "Look for news of boats", "FREQ=HOURLY;INTERVAL=2", "waiting"),
        ],
    }
    connection = apsw.Connection(str(folder / "confidant.db"))
    connection.execute("UPDATE repeats SET state = 'cancelled'")
    connection.close()
    assert "There is nothing new" in imported(folder, "openclaw", str(claw))
    assert {row[-1] for row in scheduled(folder)["repeats"]} == {"cancelled"}


@pytest.mark.parametrize("text", ["{", "[]", '{"jobs": 3}', '{"jobs": [[]]}', "[" * 100_000])
def test_jobs_that_cannot_be_read_stop_nothing(folder, claw, text):
    write_file(claw / "cron" / "jobs.json", text)
    assert "Imported" in imported(folder, "openclaw", str(claw))


def test_settings_as_people_write_them_are_read():
    from bot.importing.openclaw import home

    text = """{
      // a note, with "quotes" and , ]
      channels: { telegram: { botToken: 'it\\'s', "a//b": "http://x", }, }, /* more */
      list: [1, 2, ],
    }"""
    assert home.parse(text) == {
        "channels": {"telegram": {"botToken": "it's", "a//b": "http://x"}},
        "list": [1, 2],
    }
    assert home.parse("{") is None
    assert home.parse("[1]") is None


# --- broken and hostile -------------------------------------------------------------------------


def test_what_is_nothing_of_openclaw_is_refused(folder, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds nothing of OpenClaw" in refused(folder, "openclaw", str(empty))
    assert "cannot be read" in refused(folder, "openclaw", str(tmp_path / "none"))


def test_a_workspace_alone_is_enough(folder, tmp_path):
    made.workspace(tmp_path / "space")
    said = imported(folder, "openclaw", str(tmp_path / "space"))
    assert "AGENTS.md" in said
    assert "Quallenfischer" in note(folder, "MEMORY.md")


def test_its_own_workspace_is_left_as_it_is(folder, tmp_path):
    made.workspace(folder / "workspace")
    before = digests(folder)
    said = imported(folder, "openclaw", str(folder / "workspace"))
    assert said.startswith("This bot already uses these notes, so they stay as they are.")
    assert said.endswith("There is nothing new, so nothing was changed.\n")
    assert digests(folder) | {str(folder / "confidant.lock"): ""} == before | {
        str(folder / "confidant.lock"): ""
    }


def test_links_and_what_is_no_text_stay_where_they_are(folder, tmp_path):
    claw = tmp_path / "claw"
    made.workspace(claw, {"MEMORY.md": "- fine\n"})
    secret = tmp_path / "secret.md"
    secret.write_text("- a secret\n")
    (claw / "memory").mkdir()
    (claw / "memory" / "link.md").symlink_to(secret)
    (claw / "memory" / "binary.md").write_bytes(b"\xff\xfe\x00")
    (claw / "memory" / "long.md").write_text("- x\n" * 400_000)
    (claw / "memory" / ".hidden.md").write_text("- hidden\n")
    said = imported(folder, "openclaw", str(claw))
    assert "memory/binary.md is not UTF-8" in said
    assert "memory/long.md is too long" in said
    there = {path.name for path in (folder / "workspace" / "memory").glob("*")}
    assert there == set()
    assert "a secret" not in str(whole(folder))


def test_a_damaged_database_or_index_is_told(folder, tmp_path):
    claw = tmp_path / "claw"
    path = made.in_database(claw, {"agent:main:main": made.session("a", "hello")})
    path.write_bytes(b"no database at all, but long enough to be looked at" * 100)
    assert "is damaged, or no database" in refused(folder, "openclaw", str(claw))
    other = tmp_path / "other"
    sessions = made.in_files(other, {"agent:main:main": made.session("a", "hello")})
    (sessions / "sessions.json").write_text("{")
    said = imported(folder, "openclaw", str(other))
    assert "main/sessions.json: it is damaged, so nothing says whose" in said
    assert "--mine makes them yours" in said


def test_no_command_of_the_terminal_is_shown(folder, tmp_path):
    claw = tmp_path / "claw"
    made.in_files(claw, {"agent:main:telegram:direct:\x1b[31m42": made.session("a", "hello")})
    made.let_in(claw, ("sig\x1bnal", "default", "\x1b]0;x\x07"))
    result = invoke(folder, "import", "openclaw", str(claw), "--dry-run")
    assert "\x1b" not in result.output
    assert "\x07" not in result.output
