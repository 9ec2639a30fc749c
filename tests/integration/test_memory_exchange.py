"""`confidant memory pull`, `push` and `edit`, over files and over rows, as they are typed."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from prometheus_client import generate_latest
from typer.testing import CliRunner, Result

from bot import __version__, housekeeping
from bot.cli.main import cli
from bot.clock import system_clock
from bot.cluster import census
from bot.cluster.extra import visiting
from bot.coordination import Standing
from bot.errors import ConfidantError
from bot.memory.exchange import MADE_OF
from bot.memory.memory import store_of
from bot.memory.note_store import MAX_WRITE, NoteStore
from bot.metrics import Metrics
from bot.sessions.mirror import path_of
from bot.settings import load
from bot.storage.postgres import PostgresDatabase
from bot.testing import InMemoryChannel, ScriptedModel
from bot.views.outcomes import told
from tests.proofs.rounds import sample
from tests.support import PATIENCE, pause, running, until, write_file

pytestmark = pytest.mark.usefixtures("logs_stay")

OWNER = {
    "MEMORY.md": "# Memory\n\n- Lives in Berlin\n",
    "SOUL.md": "Be kind.\n",
    "memory/trip.md": "# Trip\n\n去北京\n",
    "shared/house.md": "Everyone may know.\n",
}
OTHERS = {
    "people/ada/MEMORY.md": "Ada's secret\n",
    "rooms/telegram-7/ROOM.md": "The room's secret\n",
}


@dataclass
class Desk:
    """A person at a terminal."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, *arguments: str | Path, given: str = "") -> Result:
        return CliRunner().invoke(cli, ["memory", *map(str, arguments)], input=given)

    def use(self, work: Callable[[NoteStore], None]) -> None:
        """What another program does with the notes."""

        async def once() -> None:
            config = load(None, os.environ, Path.cwd()).config
            async with visiting(config) as shared:
                store = store_of(config, system_clock, shared)
                await asyncio.to_thread(work, store)

        asyncio.run(once())

    def write(self, notes: Mapping[str, str]) -> None:
        def work(store: NoteStore) -> None:
            for path, text in notes.items():
                store.rewrite(path, lambda _, text=text: text.encode())

        self.use(work)

    def read(self, path: str) -> str:
        found: list[str] = []
        self.use(lambda store: found.append(store.read(path, MAX_WRITE)[0].decode()))
        return found[0]

    def editor(self, script: str) -> None:
        """What the person's editor does to the file it is given."""
        program = self.folder / "an editor"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.monkeypatch.setenv("EDITOR", f"'{program}'")


@pytest.fixture
def desk(request, tmp_path, monkeypatch):
    rows = getattr(request, "param", "files") == "rows"
    url = request.getfixturevalue("postgres_url") if rows else None
    for name in [name for name in os.environ if name.startswith("CONFIDANT_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    if url is not None:
        monkeypatch.setenv("CONFIDANT_STORAGE__URL", url)
        CliRunner().invoke(cli, ["migrate"], catch_exceptions=False)
    desk = Desk(tmp_path, monkeypatch)
    desk.write({**OWNER, **OTHERS})
    return desk


# What the stores do is shown of both in tests/contract.
rows_too = pytest.mark.parametrize("desk", sample(["files"], ["rows"]), indirect=True)


@rows_too
def test_what_was_pulled_and_edited_is_pushed(desk):
    copy = desk.folder / "copy"
    assert desk("pull", copy).exit_code == 0
    found = {path.relative_to(copy).as_posix() for path in copy.rglob("*.md")}
    assert found == {*OWNER}  # and nothing of anybody else's
    (copy / "MEMORY.md").write_text("# Memory\n\n- Lives in Paris\n")
    (copy / "memory/new.md").write_text("# New\n")
    done = desk("push", copy, given="y\n")
    assert done.exit_code == 0, done.output
    assert "-- Lives in Berlin\n+- Lives in Paris\n" in done.output
    assert desk.read("MEMORY.md") == "# Memory\n\n- Lives in Paris\n"
    assert desk.read("memory/new.md") == "# New\n"
    again = desk("push", copy)
    assert (again.exit_code, again.output) == (0, "There is nothing to write.\n")
    (copy / "MEMORY.md").write_text("# Memory\n")  # it goes on from what was pushed
    assert desk("push", copy, "--yes").exit_code == 0
    assert desk.read("MEMORY.md") == "# Memory\n"


@rows_too
def test_notes_of_an_agents_own_are_pulled_and_pushed(desk):
    mine, hers = "agents/family/memory/trip.md", "agents/family/people/eve/memory/trip.md"
    desk.write({mine: "# Trip\n", hers: "Eve's secret\n"})
    copy = desk.folder / "copy"
    assert desk("pull", copy).exit_code == 0
    assert (copy / mine).read_text() == "# Trip\n"
    assert not (copy / hers).exists()
    (copy / mine).write_text("# Trip to Rome\n")
    write_file(copy / hers, "Mine now\n")
    done = desk("push", copy, given="y\n")
    assert f"{hers}: no note can have this name" in done.output
    assert desk.read(mine) == "# Trip to Rome\n"
    assert desk.read(hers) == "Eve's secret\n"


@rows_too
def test_what_changed_meanwhile_is_refused_and_all_else_is_written(desk):
    copy = desk.folder / "copy"
    desk("pull", copy)
    desk.write({"MEMORY.md": "# Memory\n\n- Lives in Rome\n"})
    (copy / "MEMORY.md").write_text("# Memory\n\n- Lives in Paris\n")
    (copy / "SOUL.md").write_text("Be brief.\n")
    done = desk("push", copy, "--yes")
    assert done.exit_code == 1
    assert "MEMORY.md: it was changed meanwhile" in done.output
    assert desk.read("MEMORY.md") == "# Memory\n\n- Lives in Rome\n"
    assert desk.read("SOUL.md") == "Be brief.\n"


def test_nothing_is_written_when_the_person_says_no(desk):
    copy = desk.folder / "copy"
    desk("pull", copy)
    (copy / "SOUL.md").write_text("Be brief.\n")
    assert desk("push", copy, given="n\n").exit_code == 1
    assert desk.read("SOUL.md") == "Be kind.\n"


def test_what_is_no_note_is_refused_by_name(desk):
    copy = desk.folder / "copy"
    desk("pull", copy)
    for name, data, why in (
        ("people/ada/MEMORY.md", b"mine now\n", "no note can have this name"),
        ("memory/.hidden/a.txt", b"", ""),
        ("notes.txt", b"text\n", "no note can have this name"),
        ("memory/cafe.md", "café".encode("latin-1"), "not UTF-8"),
        ("memory/picture.md", b"PNG\0\0", "binary"),
        ("memory/long.md", b"x" * (MAX_WRITE + 1), "at most 1000 kB"),
    ):
        write_file(copy / name, data)
        done = desk("push", copy, "--yes")
        assert done.exit_code == bool(why), name
        assert why in done.output
        (copy / name).unlink()
    assert desk.read("people/ada/MEMORY.md") == "Ada's secret\n"


def test_a_link_in_a_copy_is_not_followed(desk):
    copy = desk.folder / "copy"
    desk("pull", copy)
    (copy / "memory/passwd.md").symlink_to("/etc/passwd")
    done = desk("push", copy, "--yes")
    assert done.exit_code == 1
    assert "memory/passwd.md: it is no plain file" in done.output


def test_folders_that_will_not_do_are_told(desk):
    full = desk.folder / "full"
    write_file(full / "mine.md", "mine\n")
    for arguments, why in (
        (("pull", full), "is not empty"),
        (("push", full), "no copy of the notes"),
        (("push", desk.folder / "nowhere"), "no copy of the notes"),
    ):
        done = desk(*arguments)
        assert done.exit_code
        assert why in str(done.exception)
        assert isinstance(done.exception, ConfidantError)
    assert [path.name for path in full.iterdir()] == ["mine.md"]
    (full / MADE_OF).write_text("[]")
    assert "damaged" in str(desk("push", full).exception)


def test_a_note_that_left_the_copy_stays_where_it_is(desk):
    copy = desk.folder / "copy"
    desk("pull", copy)
    (copy / "SOUL.md").unlink()
    done = desk("push", copy, "--yes")
    assert "SOUL.md: it is not in the folder; push removes no note" in done.output
    assert desk.read("SOUL.md") == "Be kind.\n"


# --- in an editor ---------------------------------------------------------------------------------


def test_a_note_is_edited(desk):
    desk.editor('echo "- more" >> "$1"')
    for path in (*OWNER, "memory/deep/new.md"):
        done = desk("edit", path)
        assert (done.exit_code, done.output) == (0, f"{path}: written\n")
        assert desk.read(path) == f"{OWNER.get(path, '')}- more\n"


def test_an_editor_that_changes_nothing_changes_nothing(desk):
    desk.editor("true")
    assert desk("edit", "memory/new.md").output == "Nothing was changed.\n"
    assert not list(desk.folder.glob("confidant-*"))


def test_a_name_that_is_none_of_the_owners_is_refused(desk):
    desk.editor('echo "more" >> "$1"')
    names = ("people/ada/MEMORY.md", "../MEMORY.md", "/etc/passwd", "ROOM.md", "a.txt", "shared")
    for path in names:
        assert "is not a note" in str(desk("edit", path).exception), path
    assert desk.read("people/ada/MEMORY.md") == "Ada's secret\n"


def test_an_editor_that_fails_changes_nothing_and_loses_no_text(desk):
    for number, (script, why) in enumerate(
        (
            ("exit 3", "status 3"),
            ('echo "half" >> "$1"; exit 3', "Your text is kept in"),
            ('printf "\\377" >> "$1"', "not UTF-8"),
            (f'head -c {MAX_WRITE + 1} /dev/zero | tr "\\0" x > "$1"', "too long"),
        )
    ):
        desk.editor(script)
        assert why in str(desk("edit", "MEMORY.md").exception), script
        assert desk.read("MEMORY.md") == OWNER["MEMORY.md"]
        # Its text is kept, but where there is none.
        assert len(list(desk.folder.glob("confidant-*/MEMORY.md"))) == number


def test_an_editor_that_is_not_there_is_told(desk):
    for named in ("/nowhere/editor", "an 'open quote"):
        desk.monkeypatch.setenv("EDITOR", named)
        assert "set $EDITOR" in str(desk("edit", "MEMORY.md").exception)


@rows_too
def test_a_note_that_changes_while_it_is_edited_is_not_written_over(desk):
    other = desk.folder / "other.py"
    other.write_text(
        "import asyncio, os, pathlib\n"
        "from bot.cluster.extra import visiting\n"
        "from bot.clock import system_clock\n"
        "from bot.memory.memory import store_of\n"
        "from bot.settings import load\n"
        "async def once():\n"
        "    config = load(None, os.environ, pathlib.Path.cwd()).config\n"
        "    async with visiting(config) as shared:\n"
        "        store = store_of(config, system_clock, shared)\n"
        "        await asyncio.to_thread(store.append, 'MEMORY.md', '- theirs\\n', '')\n"
        "asyncio.run(once())\n"
    )
    python, here = sys.executable, Path(__file__).parents[2]
    desk.editor(f'echo "- mine" >> "$1"; PYTHONPATH="{here}" "{python}" "{other}"')
    done = desk("edit", "MEMORY.md")
    assert "changed meanwhile" in str(done.exception)
    assert desk.read("MEMORY.md") == f"{OWNER['MEMORY.md']}- theirs\n"
    (kept,) = desk.folder.glob("confidant-*/MEMORY.md")
    assert str(kept) in str(done.exception)
    assert kept.read_text() == f"{OWNER['MEMORY.md']}- mine\n"


@pytest.mark.parametrize("desk", ["rows"], indirect=True)
def test_an_edit_of_rows_reaches_the_nodes(desk, postgres_url):
    desk.editor('echo "- more" >> "$1"')
    desk("edit", "MEMORY.md")
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute("SELECT name FROM events WHERE topic = 'notes'").fetchall()
    assert ("MEMORY.md",) in rows


WORDS = "harbour code"


@pytest.fixture
async def session(tmp_path):
    """A conversation in a folder, of which something was forgotten."""
    async with running(tmp_path / "data") as engine:
        await engine.ask_each(f"my {WORDS} is 4711", "and the cat is grey")
        await engine.ask_each(f"/memory forget {WORDS}", "/memory forget yes")
    (mirror,) = (tmp_path / "data" / "sessions").rglob("*.jsonl")
    assert WORDS in mirror.read_text("utf-8")  # what the program keeps only grows
    return mirror.stem


def ran(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["sessions", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_what_was_forgotten_is_neither_shown_nor_exported(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(tmp_path / "data"))
    shown = ran("show", session)
    ran("export", str(tmp_path / "out"))
    lines = (tmp_path / "out" / f"{session}.jsonl").read_text("utf-8")
    for text in (shown, lines):
        assert WORDS not in text
        assert "4711" not in text
        assert "and the cat is grey" in text
    assert shown.count(": (forgotten)\n") == 2
    mirror = path_of(tmp_path / "data" / "sessions", session)
    kept = mirror.read_text("utf-8").splitlines()
    same = [line for line in kept if WORDS not in line and "4711" not in line]
    written = lines.splitlines()
    assert len(written) == len(kept)
    assert set(same) <= set(written)  # to the byte


def shared(url: str) -> dict[str, Any]:
    return {"url": url, "node_timeout": 8}


def typed(
    monkeypatch: pytest.MonkeyPatch, folder: Path, url: str, *arguments: str, command: str = "nodes"
) -> str:
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(folder))
    if url:
        monkeypatch.setenv("CONFIDANT_STORAGE__URL", url)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(cli, [command, *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_one_machine_says_so_in_one_line(monkeypatch, tmp_path):
    said = typed(monkeypatch, tmp_path, "")
    assert said == (
        "This is a single machine with a storage folder: [storage] url names no PostgreSQL.\n"
    )
    assert typed(monkeypatch, tmp_path, "", "--json") == "null\n"
    assert "`confidant run` upgrades its database" in typed(
        monkeypatch, tmp_path, "", command="migrate"
    )


def test_a_database_on_which_no_node_ran_has_none(monkeypatch, tmp_path, empty_postgres_url):
    assert "are up to date" in typed(monkeypatch, tmp_path, empty_postgres_url, command="migrate")
    assert "No node is running." in typed(monkeypatch, tmp_path, empty_postgres_url)
    assert orjson.loads(typed(monkeypatch, tmp_path, empty_postgres_url, "--json"))["nodes"] == []


async def test_every_node_is_listed_with_what_it_does(monkeypatch, tmp_path, postgres_url):
    model = ScriptedModel(gate=asyncio.Event())
    two = InMemoryChannel()
    async with (
        running(tmp_path / "a", storage=shared(postgres_url), model=model) as one,
        running(tmp_path / "b", storage=shared(postgres_url), model=model, channel=two),
    ):
        await one.say("hello")
        await asyncio.wait_for(model.started.wait(), PATIENCE)
        said = await asyncio.to_thread(typed, monkeypatch, tmp_path, postgres_url, "--json")
        found = orjson.loads(said)
        assert len(found["nodes"]) == 2
        assert {node["version"] for node in found["nodes"]} == {__version__}
        assert all(node["silent"] < 2_000 for node in found["nodes"])
        assert sum(node["lanes"] for node in found["nodes"]) == 1
        assert (found["jobs"], found["messages"]) == (0, 1)
        owned = [name for node in found["nodes"] for name in node["owns"]]
        assert owned == sorted(set(owned))
        table = await asyncio.to_thread(typed, monkeypatch, tmp_path, postgres_url)
        for node in found["nodes"]:
            assert node["name"] in table
        assert "1 messages are unanswered" in table
        model.gate.set()
        await until(lambda: bool(one.channel.sent or two.sent))


async def test_what_a_node_tells_with_its_beat_is_small_and_has_no_secret(tmp_path, postgres_url):
    async with running(tmp_path, storage=shared(postgres_url)):
        database = await PostgresDatabase.open(postgres_url)
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    rows = await database.read(
                        lambda tx: tx.execute("SELECT CAST(facts AS TEXT) FROM nodes")
                    )
                    facts = orjson.loads(rows[0][0])
                    if facts.get("database"):
                        break
                    await pause(0.02)
        finally:
            await database.close()
        assert set(facts) == {"clock_ahead", "database", "loop"}
        assert all(isinstance(number, int | float) for number in facts.values())


def test_facts_of_another_version_are_taken_as_far_as_they_are_known():
    assert census.NodeFacts.parse({"loop": 3, "clock_ahead": "?", "more": 1}) == census.NodeFacts(
        loop=3
    )
    assert census.NodeFacts.parse({}) == census.NodeFacts()


def standing(**changes: Any) -> Standing:
    usual = {
        "nodes": 3,
        "is_registered": True,
        "is_connected": True,
        "owned": 2,
        "jobs": 5,
        "oldest_job": 1_500,
        "takeovers": 1,
        "reruns": 4,
    }
    return Standing(**{**usual, **changes})


def test_metrics_have_numbers_of_all_nodes_and_no_names():
    metrics = Metrics()
    now = [standing()]
    housekeeping.count_nodes(metrics, lambda: now[0])
    told = generate_latest(metrics.registry).decode()
    for line in (
        "nodes 3.0",
        "node_owned 2.0",
        "jobs_waiting 5.0",
        "jobs_oldest_seconds 1.5",
        "transactions_rerun 4.0",
    ):
        assert f"\nconfidant_{line}\n" in told
    now[0] = standing(nodes=2, takeovers=2)
    told = generate_latest(metrics.registry).decode()
    assert "\nconfidant_nodes 2.0\n" in told
    assert "\nconfidant_node_takeovers 2.0\n" in told


async def test_readiness_says_how_many_nodes_there_are(tmp_path, postgres_url):
    import aiohttp

    async with (
        running(tmp_path, storage=shared(postgres_url), serves=True) as engine,
        aiohttp.ClientSession() as session,
    ):
        assert engine.app.address is not None
        async with asyncio.timeout(PATIENCE):
            while True:
                async with session.get(f"{engine.app.address.url}readyz") as response:
                    check = (await response.json())["checks"]["nodes"]
                if check["detail"] == "1 alive":
                    break
                assert check["state"] in {"ok", "degraded"}
                await pause(0.02)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"is_connected": False}, "direct connection"),
        ({"is_registered": False}, "consider this one gone"),
        ({"is_deaf": True}, "polls every second"),
    ],
)
def test_a_node_that_is_cut_off_is_degraded(changes, words):
    check = housekeeping.among_nodes(standing(**changes))
    assert check.state == "degraded"
    assert words in told(check.finding, "en").text


async def test_a_command_that_was_stored_after_its_node_was_given_up_is_answered_once(
    tmp_path, postgres_url
):
    async with running(tmp_path, storage=shared(postgres_url)) as engine:
        await engine.ask("hello")
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            given_up = "UPDATE fences SET epoch = epoch + 1 WHERE name LIKE 'node/%'"
            assert connection.execute(given_up).rowcount == 1
        assert "Model:" in await engine.ask("/status")
        await engine.ask("bye")
        assert len(engine.channel.sent) == 3
