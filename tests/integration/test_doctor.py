"""What the doctor finds where it is really so, and that --fix mends exactly that."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import orjson
import pytest
from typer.testing import CliRunner

from bot.cli.main import cli
from bot.clock import system_clock
from bot.delivery.delivery import Unspoken
from bot.storage import backup, schema
from bot.storage.files import DATABASE_NAME, ERASING, DataDirLock
from tests.fakes.telegram import FakeTelegram
from tests.support import running

HOUR = 3600
PROGRAM = (sys.executable, "-c", "from bot.cli import main; main()", "doctor", "--json")


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch, logs_stay):
    """A folder of its own, a page that nobody has, and no key of the environment's."""
    monkeypatch.chdir(tmp_path)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CONFIDANT_MEMORY__EMBEDDER__PROVIDER", "none")
    monkeypatch.setenv("CONFIDANT_DASHBOARD__PORT", "0")


@pytest.fixture
def data(tmp_path):
    """A storage folder in which something was said."""
    folder = tmp_path / "data"

    async def use() -> None:
        async with running(folder, dashboard={"port": 0}) as engine:
            await engine.ask("hello there")

    asyncio.run(use())
    (folder / "workspace" / "MEMORY.md").write_text("- the bike is blue\n")
    assert CliRunner().invoke(cli, ["memory", "index"]).exit_code == 0
    assert asked("doctor")["state"] == "warning"  # no key is set
    return folder


def asked(*arguments: str, code: int | None = None) -> dict[str, Any]:
    """What the doctor says to machines."""
    result = CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False)
    found = orjson.loads(result.stdout)
    wanted = code if code is not None else {"error": 1}.get(found["state"], 0)
    assert result.exit_code == wanted
    return found


def said(*arguments: str) -> str:
    """What it says to people."""
    return CliRunner().invoke(cli, ["doctor", *arguments], catch_exceptions=False).stdout


def serious(found: Mapping[str, Any]) -> dict[str, str]:
    """What is not well, but for what is new and hinted at: id and the repair for it."""
    return {
        each["id"]: each["repair"]
        for each in found["findings"]
        if each["level"] != "ok" and each["id"] not in {"model.no_key", "backups.all_off"}
    }


def content(folder: Path) -> dict[str, str]:
    """Every file that must stay as it is, with what it holds and who may read it."""
    return {
        str(path.relative_to(folder)): _look_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def _look_of(path: Path) -> str:
    digest = hashlib.blake2b(path.read_bytes()).hexdigest()
    return f"{digest} {stat.S_IMODE(path.stat().st_mode):o}"


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def test_a_folder_that_is_well_has_nothing_to_mend(data):
    before = content(data.parent)
    found = asked("doctor", "--fix")
    assert serious(found) == {}
    assert found["repaired"] == []
    assert changed(before, content(data.parent)) == set()
    ids = {each["id"] for each in found["findings"]}
    assert {"storage.sound", "storage.room", "memory.index_ready", "clock.zone"} <= ids


def test_a_damaged_database_is_found_and_left_to_the_start(data):
    path = data / DATABASE_NAME
    asyncio.run(asyncio.to_thread(backup.make, path, 3, system_clock()))
    tear(path)
    before = content(data.parent)
    found = asked("doctor", "--fix", code=1)
    assert serious(found) == {"storage.damaged": ""}
    assert changed(before, content(data.parent)) == set()
    shutil.rmtree(data / "backups")
    found = asked("doctor", code=1)
    assert serious(found) == {"storage.damaged_alone": ""}
    assert "sessions/" in said()


def test_a_database_of_another_version_is_not_touched(data):
    path = data / DATABASE_NAME
    execute(path, "INSERT INTO schema_versions VALUES (999, datetime('now'), '')")
    before = content(data)
    assert serious(asked("doctor", "--fix", code=1)) == {"storage.newer": ""}
    execute(path, f"DELETE FROM schema_versions WHERE version >= {schema.VERSION}")
    before = content(data)
    assert serious(asked("doctor", "--fix")) == {"storage.older": ""}
    assert changed(before, content(data)) == set()


def test_a_folder_of_another_account_is_not_looked_into(data, monkeypatch):
    owner = (data / DATABASE_NAME).stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)  # only an administrator can give it away
    before = content(data.parent)
    names = sorted(path.name for path in data.iterdir())
    assert serious(asked("doctor", "--fix", code=1)) == {"storage.other_owner": ""}
    assert changed(before, content(data.parent)) == set()
    assert sorted(path.name for path in data.iterdir()) == names


def test_a_lock_of_a_process_that_was_killed_is_cleared_and_one_that_is_held_is_not(data):
    program = (
        "import os, signal, sys; from pathlib import Path; from bot.storage.files import "
        "DataDirLock; DataDirLock(Path(sys.argv[1])).__enter__(); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.Popen([sys.executable, "-c", program, str(data)])
    killed.wait(60)
    assert (data / "confidant.lock").read_text() == f"{killed.pid}\n"
    assert serious(asked("doctor")) == {"storage.stale_lock": "lock"}
    before = content(data.parent)
    found = asked("doctor", "--fix")
    assert (serious(found), found["repaired"]) == ({}, [repaired("lock", "storage")])
    assert changed(before, content(data.parent)) == {"data/confidant.lock"}
    with DataDirLock(data):
        found = asked("doctor", "--fix")
        assert (data / "confidant.lock").read_text() == f"{os.getpid()}\n"
    assert (serious(found), found["repaired"]) == ({}, [])
    assert "storage.runs" in {each["id"] for each in found["findings"]}


def test_modes_are_mended_of_what_is_private_and_of_nothing_else(data, tmp_path):
    (tmp_path / ".env").write_text("CONFIDANT_AGENT__NAME=Heron\n")
    note = data / "workspace" / "MEMORY.md"
    (transcript,) = (data / "sessions").rglob("*.jsonl")
    private = [tmp_path / ".env", transcript, data / "sessions"]
    for path in (*private, note):
        path.chmod(0o755 if path.is_dir() else 0o644)
    found = asked("doctor")
    assert serious(found) == {"storage.modes": "modes"}
    (finding,) = (each for each in found["findings"] if each["id"] == "storage.modes")
    assert finding["values"]["count"] == 3
    before = content(tmp_path)
    out = said("--fix")
    assert "→ Removing other users' access to your private files.\n  ✓ done\n" in out
    assert changed(before, content(tmp_path)) == {
        ".env",
        transcript.relative_to(tmp_path).as_posix(),
    }
    assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in private] == [0, 0, 0]
    assert stat.S_IMODE(note.stat().st_mode) == 0o644
    assert serious(asked("doctor")) == {}


def test_a_damaged_index_is_built_anew_from_the_notes(data):
    tear(data / "index" / "index.db")
    before = content(data)
    assert serious(asked("doctor")) == {"memory.index_damaged": "index"}
    found = asked("doctor", "--fix")
    assert (serious(found), found["repaired"]) == ({}, [repaired("index", "memory")])
    assert {name.partition("/")[0] for name in changed(before, content(data))} == {"index"}
    result = CliRunner().invoke(cli, ["memory", "search", "bike"])
    assert "the bike is blue" in result.stdout


def test_notes_that_the_index_does_not_have_are_counted(data):
    folder = data / "workspace" / "memory"
    folder.mkdir(exist_ok=True)
    for number in range(3):
        (folder / f"2026-01-0{number + 1}.md").write_text("- new\n")
    (data / "workspace" / "MEMORY.md").unlink()
    (data / "workspace" / "picture.png").write_bytes(b"no note")
    assert "! 4 notes have changed since they were indexed" in said()


def test_an_interrupted_restore_is_completed(data, tmp_path):
    archive = tmp_path / "all.backup"
    assert CliRunner().invoke(cli, ["backup", str(archive)]).exit_code == 0
    (data / "workspace" / "MEMORY.md").write_text("- something later\n")
    with interrupted("bot.portability.restore.finish_interrupted"):
        CliRunner().invoke(cli, ["restore", str(archive)])
    found = asked("doctor", code=1)
    assert serious(found) == {"storage.restoring": "restore"}
    # Nothing else looked into what is half of it.
    assert not any(each["check"] in {"backups", "messages"} for each in found["findings"])
    assert not any(each["id"].startswith("memory.index") for each in found["findings"])
    assert "clock.zone" in {each["id"] for each in found["findings"]}
    found = asked("doctor", "--fix")
    assert found["repaired"] == [repaired("restore", "storage")]
    assert (data / "workspace" / "MEMORY.md").read_text() == "- the bike is blue\n"
    assert serious(found) == {}


def test_what_memory_found_of_itself_at_night_is_said_without_anybodys_places(data):
    connection = apsw.Connection(str(data / DATABASE_NAME))
    for space, found in (("main", 19), ("people/ada", 2)):
        value = f'{{"at":1,"asked":20,"found":{found},"missed":[["zqsecret.md",3,2]]}}'
        connection.execute("INSERT INTO meta VALUES (?, ?, 1)", (f"asked:{space}", value))
    connection.close()
    told = said()
    mine = "95 % of 20 of your notes were found in other words; 1 never are"
    assert f"✓ in last night's self-test, {mine}" in told
    assert "! in last night's self-test, only 10 % of 20 notes of everyone else were found" in told
    assert "zqsecret" not in told


def test_an_erasing_that_is_not_complete_is_found_and_nothing_else_looks(data):
    (data / ERASING).write_text("{}")
    found = asked("doctor", code=1)
    assert serious(found) == {"storage.erasing": ""}
    assert not any(each["check"] in {"backups", "messages"} for each in found["findings"])
    assert not any(each["id"].startswith("memory.index") for each in found["findings"])
    assert "clock.zone" in {each["id"] for each in found["findings"]}


def test_late_backups_are_found_by_when_something_was_last_written(data):
    path = data / DATABASE_NAME
    found = backup.make(path, 3, system_clock())
    now = path.stat().st_mtime
    os.utime(found, (now - 40 * HOUR, now - 40 * HOUR))
    assert serious(asked("doctor")) == {}
    os.utime(found, (now - 50 * HOUR, now - 50 * HOUR))
    assert serious(asked("doctor", code=1)) == {"backups.late": ""}
    found.unlink()
    assert serious(asked("doctor")) == {}  # it is as young as its first backup may be
    execute(path, "UPDATE schema_versions SET applied_at = datetime('now', '-3 days')")
    assert serious(asked("doctor", code=1)) == {"backups.none": ""}


@pytest.mark.proof
async def test_a_bot_that_runs_there_says_itself_how_its_parts_are(tmp_path):
    folder = tmp_path / "data"
    async with running(folder, serves=True) as engine:
        assert engine.app.address is not None
        for _ in range(2):
            engine.app.maintenance.health.speech.note(Unspoken("refused"))
        found = await asyncio.to_thread(asked, "doctor")
        words = await asyncio.to_thread(said)
    reported = [each for each in found["findings"] if each["check"] == "running"]
    assert [(each["id"], each["level"], each["account"]) for each in reported] == [
        ("health.reported", "ok", "default"),
        ("health.speech", "warning", "speech"),
    ]
    assert reported[1]["values"]["count"] == 2
    assert "! speech: the last 2 voice messages could not be transcribed or spoken" in words
    assert "confidant doctor` says what is wrong with [speech]" in words
    alone = await asyncio.to_thread(asked, "doctor")
    assert not [each for each in alone["findings"] if each["check"] == "running"]


@pytest.mark.parametrize("name", ["data", "data/workspace"])
def test_a_folder_that_everybody_may_write_into_is_closed(data, name):
    folder = data.parent / name
    folder.chmod(0o777)
    assert "storage.writable" in serious(asked("doctor"))
    assert "storage.writable" not in serious(asked("doctor", "--fix"))
    assert stat.S_IMODE(folder.stat().st_mode) & stat.S_IWOTH == 0


def test_a_small_disk_that_is_full_is_urgent(tmp_path, monkeypatch):
    place = tmp_path / "small"
    place.mkdir()
    monkeypatch.setenv("CONFIDANT_STORAGE__DIR", str(place))
    found = on_a_small_disk(place)
    if found is None:  # nobody may mount anything here
        room = SimpleNamespace(free=4_194_304)
        monkeypatch.setattr("shutil.disk_usage", lambda _path: room)
        found = asked("doctor", code=1)
    (finding,) = (each for each in found["findings"] if each["id"] == "storage.no_room")
    assert finding["values"]["megabytes"] == 4
    assert "Free some space now" in finding["fix"]


def on_a_small_disk(place: Path) -> dict[str, Any] | None:
    """What it says where a folder is a file system of four megabytes, in a space of its own."""
    mount = 'mount -t tmpfs -o size=4m none "$1" && shift && exec "$@"'
    apart = ["unshare", "-Urm", "sh", "-c"]
    try:
        subprocess.run([*apart, mount, "sh", str(place), "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    done = subprocess.run(
        [*apart, mount, "sh", str(place), *PROGRAM], capture_output=True, check=False
    )
    assert done.returncode == 1, done.stderr
    return orjson.loads(done.stdout)


def test_the_descriptors_that_count_are_those_of_the_bot_that_runs(data):
    held = (
        "import sys; from pathlib import Path; from bot.storage.files import DataDirLock\n"
        "with DataDirLock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    limited = ("sh", "-c", 'ulimit -Sn 100 && exec "$@"', "sh", sys.executable, "-c", held)
    with subprocess.Popen(
        [*limited, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as bot:
        assert bot.stdout is not None
        assert bot.stdout.readline() == b"held\n"
        found = asked("doctor", code=1 if Path("/proc/self/limits").exists() else None)
        bot.communicate()
    (finding,) = (each for each in found["findings"] if each["check"] == "limits")
    if Path("/proc/self/limits").exists():  # elsewhere nobody says it
        assert (finding["level"], finding["values"]["count"]) == ("error", 100)


@pytest.mark.parametrize(("soft", "level"), [(128, "error"), (512, "warning"), (2048, "ok")])
def test_too_few_descriptors_are_told(monkeypatch, soft, level):
    limits = {resource.RLIMIT_NOFILE: (soft, 4_096)}
    monkeypatch.setattr("resource.getrlimit", limits.__getitem__)
    (finding,) = (each for each in asked("doctor")["findings"] if each["check"] == "limits")
    assert (finding["level"], finding["values"]["count"]) == (level, soft)


async def test_webhook_and_menu_are_registered_once_more(tmp_path, monkeypatch):
    async with FakeTelegram() as fake:
        variables = {
            "TELEGRAM_BOT_TOKEN": fake.token,
            "CONFIDANT_CHANNELS__TELEGRAM__API_ROOT": fake.url,
            "CONFIDANT_CHANNELS__TELEGRAM__MODE": "webhook",
            "CONFIDANT_CHANNELS__TELEGRAM__WEBHOOK_URL": "http://127.0.0.1:9/",
            "CONFIDANT_CHANNELS__TELEGRAM__WEBHOOK_SECRET": "s3cret-of-nobody",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        found = await asyncio.to_thread(asked, "doctor", "telegram")
        wanted = {"telegram.no_webhook": "register", "telegram.menu": "register"}
        assert wanted.items() <= serious(found).items()
        assert fake.called("setWebhook") == fake.called("setMyCommands") == []
        out = await asyncio.to_thread(said, "telegram", "--fix")
        assert (
            out.count("→ Registering telegram's webhook and command menu again.\n  ✓ done\n") == 1
        )
        found = await asyncio.to_thread(asked, "doctor", "telegram", "--fix")
        assert (found["repaired"], wanted.keys() & serious(found).keys()) == ([], set())
        assert len(fake.called("setWebhook")) == 1


def test_it_speaks_the_language_of_the_terminal(data, monkeypatch):
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert "存储\n  ✓ 数据库完好" in said()
    assert asked("doctor")["findings"][0]["text"].startswith("the database is intact")
    monkeypatch.setenv("CONFIDANT_AGENT__LANGUAGE", "en")
    assert "storage\n  ✓ the database is intact" in said()


def test_what_cannot_be_looked_at_is_another_exit_status(tmp_path, monkeypatch):
    monkeypatch.setenv("CONFIDANT_AGENT__STEPS_OF_NOBODY", "x")
    result = CliRunner().invoke(cli, ["doctor", "--json"])
    assert result.exit_code == 2
    monkeypatch.delenv("CONFIDANT_AGENT__STEPS_OF_NOBODY")
    assert CliRunner().invoke(cli, ["doctor", "pigeon"]).exit_code == 2


def repaired(repair: str, check: str) -> dict[str, str]:
    return {"repair": repair, "check": check, "why": ""}


def tear(path: Path) -> None:
    """Write rubbish into the middle of a database."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\x07rubbish" * 512 * (path.stat().st_size // 8192))


def execute(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


@contextmanager
def interrupted(name: str) -> Iterator[None]:
    """Let the program end where it would call a function."""
    with pytest.MonkeyPatch.context() as patch:

        def end(*_: object) -> None:
            raise SystemExit(9)

        patch.setattr(name, end)
        yield
