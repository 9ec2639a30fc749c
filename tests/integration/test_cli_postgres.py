"""The command line of a bot whose database is a PostgreSQL, as it is typed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs
from typer.testing import CliRunner

from bot.cli.common import opened_database
from bot.cli.main import cli
from bot.clock import system_clock
from bot.cluster.extra import visiting
from bot.composition import core
from bot.errors import StorageError
from bot.sessions import pairing, store
from bot.storage import Transaction
from bot.storage.files import DATABASE_NAME
from bot.storage.postgres import PostgresDatabase
from bot.unit_of_work import UnitOfWork
from tests.fakes import commands
from tests.integration.test_cluster_settings import look
from tests.support import make_config

pytestmark = pytest.mark.slow

PLACE = store.Place("agent:main:web:dm:ada", "ada", "web", "default", "ada", "", "direct")

PROGRAM = (sys.executable, "-c", "from bot.cli import main; main()")
TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' ORDER BY relname"


@pytest.fixture
def postgres_url(empty_postgres_url):
    """Empty: commands make the tables, or only look."""
    return empty_postgres_url


async def started(
    folder: Path, url: str, *arguments: str, program: Sequence[str] = PROGRAM
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *program,
        *arguments,
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONUTF8": "1",
            "CONFIDANT_STORAGE__URL": url,
            "CONFIDANT_STORAGE__CLUSTER": "anna",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def confidant(folder: Path, url: str, *arguments: str) -> tuple[int | None, str]:
    process = await started(folder, url, *arguments, program=commands.argv())
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode()


async def test_the_commands_use_the_database_of_the_url(tmp_path, postgres_url):
    code, out = await confidant(tmp_path, postgres_url, "doctor")
    assert code == 0
    assert "storage\n  ✓ PostgreSQL 1" in out
    assert "no tables yet\n  ✓ the role has the rights it needs\n  ! The tables of this" in out
    code, out = await confidant(tmp_path, postgres_url, "migrate")
    assert (code, out) == (0, "The tables are up to date.\n")
    database = await PostgresDatabase.open(postgres_url, cluster="anna")
    session = await database.write(lambda tx: UnitOfWork(tx, 1).current(PLACE)[0])
    await database.close()
    code, out = await confidant(tmp_path, postgres_url, "sessions", "list")
    assert (code, session.id in out) == (0, True)
    code, out = await confidant(tmp_path, postgres_url, "pairing", "list")
    assert (code, out) == (0, "Nobody has asked yet.\n")
    code, out = await confidant(tmp_path, postgres_url, "doctor")
    assert code == 0
    assert "messages\n  ✓ every message was answered" in out
    assert not (tmp_path / ".confidant" / DATABASE_NAME).exists()


async def test_a_server_that_is_not_there_is_told_in_a_line_and_without_the_password(tmp_path):
    url = "postgresql://me:very-secret@127.0.0.1:1/db"
    for arguments in (("sessions", "list"), ("pairing", "list"), ("doctor",)):
        code, out = await confidant(tmp_path, url, *arguments)
        assert code == 1
        assert "The database server at 127.0.0.1:1/db cannot be used: Connection refused" in out
        assert "very-secret" not in out
        assert "Traceback" not in out


@pytest.mark.usefixtures("logs_stay")
@pytest.mark.parametrize("made", ["not made yet", "older than this version"])
async def test_commands_only_look_at_the_tables(tmp_path, monkeypatch, postgres_url, made):
    if made.startswith("older"):
        await (await PostgresDatabase.open(postgres_url, cluster="anna")).close()
        look(postgres_url, "DELETE FROM schema_parts WHERE name = 'memory'")
    before = look(postgres_url, TABLES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONFIDANT_STORAGE__URL", postgres_url)
    monkeypatch.setenv("CONFIDANT_STORAGE__CLUSTER", "anna")
    for arguments in (("sessions", "list"), ("pairing", "list"), ("nodes",), ("doctor",)):
        done = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
        told = done.output if arguments == ("doctor",) else str(done.exception)
        assert f"are {made}" in told
        assert "`confidant migrate` makes them" in told
    assert look(postgres_url, TABLES) == before


@pytest.mark.proof
async def test_one_signal_ends_a_program_that_waits_for_its_server(tmp_path):
    process = await started(tmp_path, "postgresql://me@127.0.0.1:1/db", "run")
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while b"storage.waiting" not in await process.stdout.readline():
            pass
        process.send_signal(signal.SIGTERM)
        out, _ = await process.communicate()
    assert process.returncode == 0
    assert [orjson.loads(line)["event"] for line in out.splitlines()] == ["program.stopping"]


async def test_nodes_hear_of_what_a_command_changed(tmp_path, postgres_url):
    config, _ = make_config(tmp_path, storage={"url": SecretStr(postgres_url)})

    def revoke(tx: Transaction) -> None:
        tx.execute(
            "INSERT INTO pairing VALUES "
            "('web', 'default', 'ada', 'approved', '', 'Ada', '', 'ada', '', 1, 1, 1)"
        )
        assert pairing.revoke(tx, "web", "ada")

    async with visiting(config, migrates=True):
        pass
    async with opened_database(config) as database:
        await database.write(revoke)
        topics = await database.read(lambda tx: tx.execute("SELECT DISTINCT topic FROM events"))
    assert ("books",) in topics


async def test_a_bot_of_another_name_does_not_share_the_database(tmp_path, postgres_url):
    storage = {"url": SecretStr(postgres_url), "cluster": "anna"}
    config, _ = make_config(tmp_path, storage=storage)
    async with visiting(config, migrates=True):
        pass
    config, _ = make_config(tmp_path, storage={**storage, "cluster": "berta"})
    with pytest.raises(StorageError, match='belongs to the cluster "anna"'):
        async with opened_database(config):
            pass


async def test_conversations_in_the_folder_beside_a_url_are_told_of_and_left_alone(
    tmp_path, postgres_url
):
    config, _ = make_config(tmp_path, storage={"url": SecretStr(postgres_url)})
    for there in (False, True):
        if there:
            (tmp_path / DATABASE_NAME).write_bytes(b"as it is")
        with capture_logs() as logs:
            async with AsyncExitStack() as stack:
                await core.open_backend(config, system_clock, stack)
        told = [log["hint"] for log in logs if log["event"] == "storage.folder_left"]
        assert len(told) == there
    assert "`confidant move`" in told[0]
    assert (tmp_path / DATABASE_NAME).read_bytes() == b"as it is"
