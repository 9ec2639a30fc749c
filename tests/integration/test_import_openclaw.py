"""`confidant import openclaw`: notes by their days, sessions of both formats, people, settings."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bot.identity.view import MemoryView
from bot.importing.openclaw import proposal
from bot.sessions import search
from bot.storage.sqlite import SqliteDatabase
from tests.fakes import openclaw as made
from tests.integration.test_import_chats import everything, imported, invoke, refused, said_in
from tests.support import running

pytestmark = pytest.mark.usefixtures("logs_stay")

LONG = "the packing list: " + "rope, " * 400
TALKS = {
    "agent:main:main": made.session("a", "my dentist is Dr Quast", "Noted.", LONG, "NO_REPLY"),
    "agent:main:telegram:direct:42": made.session("b", "I am Bo", "Hello Bo."),
    "agent:main:telegram:group:-1001": made.session("c", "who brings the tent?", "Ada does."),
    "agent:main:cron:weather": made.session("d", "look at the weather", "It rains."),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture(params=["files", "database"])
def claw(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A whole folder, of the older and of the newer kind."""
    home = tmp_path / "claw"
    made.workspace(home / "workspace")
    if request.param == "files":
        made.in_files(home, TALKS)
        (home / "credentials").mkdir()
        (home / "credentials" / "telegram-allowFrom.json").write_text(
            json.dumps({"version": 1, "allowFrom": ["42", "telegram:43", "*"]})
        )
    else:
        made.in_database(home, TALKS)
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
    assert "AGENTS.md: it is about how OpenClaw works" in said
    assert "7 messages, 2 people." in said
    after = whole(folder)
    assert "There is nothing new." in imported(folder, "openclaw", str(claw))
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
    assert "1 conversation of which nothing says whose they are, left out: --mine" in said
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
                if await database.read(lambda tx, v=view, w=words: search.find(tx, v, w, 9))
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
    text = (folder / proposal.NAME).read_text()
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
    assert said.startswith("Its notes are those of this bot already, and stay as they are.")
    assert said.endswith("There is nothing new. Nothing was changed.\n")
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
