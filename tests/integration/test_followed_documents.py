"""docs/cluster.md and docs/backup.md, followed to the letter: what they say to type is typed.

Their blocks of commands, SQL and files are taken in order; what cannot run here is in `NOT_HERE`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import psycopg
import pytest

from tests.fakes import commands
from tests.fakes.postgres import PostgresServer, installed, with_database
from tests.support import PATIENCE, pause, running, write_file

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("logs_stay")]

DOCS = Path(__file__).resolve().parents[2] / "docs"
CLUSTER, BACKUP = (DOCS / name for name in ("cluster.md", "backup.md"))
ON_SERVER = "\n## A PostgreSQL\n"  # in docs/backup.md, the part for many nodes
# Blocks that cannot run here, by how they begin, and why.
NOT_HERE = {
    "make install\n": "it installs from an index; tests/unit/test_packaging.py pretends that",
    "upstream confidant {": "tests/e2e/test_through_nginx.py runs nginx with it",
    "CONFIDANT_STORAGE__URL=postgresql://confidant:second-secret@pooler": (
        "it needs a PgBouncer; tests/integration/test_pooler.py runs one"
    ),
    "cp .env.example .env": "it needs Docker; tests/unit/test_packaging.py checks the files",
}
FILES = {"toml": "confidant.toml", "dotenv": ".env"}
TALK = "2 entries  agent:main:memory:dm:ada"  # how `talk_in` is listed
TOKEN = "0123456789abcdef0123456789abcdef"
NODES = 3


def all_blocks(text: str) -> list[tuple[str, str]]:
    """The language and content of each fenced block that has a language."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def blocks(language: str) -> list[str]:
    return [block for name, block in all_blocks(CLUSTER.read_text("utf-8")) if name == language]


class Reader:
    """Somebody in a folder who does what a document says; `server` is the one of its database.

    `told` is what the commands of the last block printed.
    """

    def __init__(self, folder: Path, server: PostgresServer | None = None) -> None:
        self.folder, self.server, self.told = folder, server, ""
        self._home = folder / "home"
        self._replaced = {
            "/mnt/usb/confidant/confidant-….backup": "confidant.backup",
            "/mnt/usb/confidant": str(folder),
            "sk-ant-…": "",
            **({"db.internal:5432": f"127.0.0.1:{server.port}"} if server else {}),
        }
        programs = folder / "programs"
        write_file(programs / "confidant", f'#!/bin/sh\nexec {shlex.join(commands.argv())} "$@"\n')
        (programs / "confidant").chmod(0o755)
        self._path = f"{programs}:{installed(18)}:{os.environ['PATH']}"

    @property
    def storage(self) -> Path:
        return self._home / ".confidant"

    def follow(self, text: str) -> int:
        """Do what each block says, in order; how many of them were commands."""
        count = 0
        for theirs, ours in self._replaced.items():
            text = text.replace(theirs, ours)
        for language, block in all_blocks(text):
            if block.startswith(tuple(NOT_HERE)):
                continue
            match language:
                case "sh":
                    self.type(block)
                    count += 1
                case "sql":
                    assert self.server is not None
                    run_sql(self.server, block)
                case _:
                    (self.folder / FILES[language]).write_text(block)
        return count

    def type(self, block: str, variables: Mapping[str, str] | None = None) -> None:
        """Have a shell run it; whatever fails ends it."""
        kept = {n: os.environ[n] for n in ("PYTHONPATH", "LANG", "TZ") if n in os.environ}
        done = subprocess.run(
            ["sh", "-euc", block],
            cwd=self.folder,
            env={
                **kept,
                "PATH": self._path,
                "HOME": str(self._home),
                "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
                **(variables or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, (block, done.stdout, done.stderr)
        self.told = done.stdout


def run_sql(server: PostgresServer, block: str, database: str = "confidant") -> None:
    """Run statements as an administrator: in the database, or where it is made."""
    is_made_there = "CREATE DATABASE" not in block
    url = server.url(database) if is_made_there else server.admin_url
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in filter(str.strip, block.split(";")):
            connection.execute(statement.encode())


def make_another(server: PostgresServer, name: str) -> None:
    """A new database made as the first step says, with another name."""
    first, second = blocks("sql")
    (statement,) = re.findall(r"CREATE DATABASE .*;", first)
    run_sql(server, f"DROP DATABASE IF EXISTS {name}")
    run_sql(server, statement.replace("DATABASE confidant", f"DATABASE {name}"))
    run_sql(server, second, name)


async def talk_in(folder: Path) -> None:
    """What a single machine has after one conversation."""
    folder.mkdir(parents=True)
    async with running(folder) as engine:
        await engine.ask("the boat is called Pinguin")


@pytest.fixture
def server():
    """One of its own: roles belong to a whole server."""
    found = PostgresServer()
    try:
        found.start()
        yield found
    finally:
        found.close()


def test_no_command_hides_from_this_test_and_no_reason_is_left_over():
    pages = [path.read_text("utf-8") for path in (CLUSTER, BACKUP)]
    every = [block for page in pages for _, block in all_blocks(page)]
    assert {language for page in pages for language, _ in all_blocks(page)} <= {
        *("sh", "sql", "nginx"),
        *FILES,
    }
    for start in NOT_HERE:
        assert len([block for block in every if block.startswith(start)]) == 1, start
    indented = re.compile(r"^ {4}(?:confidant|docker|make|pip|pg_\w+|psql)\b.*", re.MULTILINE)
    assert [line for page in pages for line in indented.findall(page)] == []


async def test_backups_of_one_machine_are_made_and_restored_as_the_page_says(tmp_path):
    reader = Reader(tmp_path)
    await talk_in(reader.storage)
    page, _, _ = BACKUP.read_text("utf-8").partition(ON_SERVER)
    before, _, after = page.partition("\n## After losing the disk\n")
    assert reader.follow(before) == 1
    shutil.rmtree(reader.storage)
    assert reader.follow(after) == 1
    reader.type("confidant sessions list; confidant config show")
    assert TALK in reader.told
    assert f'folder = "{tmp_path}"' in reader.told


async def test_a_cluster_is_set_up_backed_up_and_restored_as_the_pages_say(tmp_path, server):
    reader = Reader(tmp_path, server)
    await talk_in(reader.storage)
    setting_up, _, backups = CLUSTER.read_text("utf-8").partition("\n## Backups\n")
    assert reader.follow(setting_up) == 2
    make_another(server, "restored")
    assert reader.follow(backups) == 2
    # What was dumped is there, and the role of the nodes may read it.
    there = {"CONFIDANT_STORAGE__URL": server.url("restored").replace("postgres@", "confidant@")}
    reader.type("confidant sessions list", there)
    assert TALK in reader.told

    reader.type("confidant backup confidant.backup")
    for name in ("restored", "staging"):
        make_another(server, name)
    _, _, page = BACKUP.read_text("utf-8").partition(ON_SERVER)
    restoring, _, drill = page.partition("**A drill**")
    assert reader.follow(restoring) == 1
    with psycopg.connect(server.url("confidant")) as connection:
        connection.execute(
            "INSERT INTO nodes(name, beat_at, started_at, version) "
            "VALUES ('running', now() + interval '1 hour', now(), '0')"
        )
    assert reader.follow(drill) == 1
    assert TALK in reader.told


async def start(folder: Path, url: str, *words: str) -> asyncio.subprocess.Process:
    """A command of a node, with the page's configuration."""
    folder.mkdir(exist_ok=True)
    configuration, *_ = blocks("toml")  # the first is all that it takes to set nodes up
    (folder / "confidant.toml").write_text(configuration)
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
    return await asyncio.create_subprocess_exec(
        *commands.argv(),
        *words,
        cwd=folder,
        env={
            **kept,
            "HOME": str(folder),
            "CONFIDANT_STORAGE__URL": url,
            "CONFIDANT_STORAGE__NODE_TIMEOUT": "2",
            "CONFIDANT_DASHBOARD__HOST": "127.0.0.1",
            "CONFIDANT_DASHBOARD__PORT": "0",
            "CONFIDANT_DASHBOARD__TOKEN": TOKEN,
            "CONFIDANT_MEMORY__EMBEDDER__PROVIDER": "none",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT if words == ("run",) else asyncio.subprocess.DEVNULL,
    )


async def said(folder: Path, url: str, *words: str) -> str:
    process = await start(folder, url, *words)
    out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0
    return out.decode()


async def address(process: asyncio.subprocess.Process) -> str:
    """Where the page of a node is, once it is there."""
    assert process.stdout is not None
    said = ""
    async with asyncio.timeout(PATIENCE):
        while not (found := re.search(r"Confidant is at (http://\S+)", said)):
            line = (await process.stdout.readline()).decode()
            assert line, said
            said += line
    return found[1]


async def alive(session: aiohttp.ClientSession, url: str, count: int) -> None:
    """Return once a node says that so many are alive."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with session.get(f"{url}readyz") as response:
                checks: dict[str, Any] = (await response.json())["checks"]
            if checks.get("nodes", {}).get("detail") == f"{count} alive":
                return
            await pause(0.02)  # it is another process


@pytest.mark.proof
async def test_the_page_leads_to_three_nodes_of_which_one_may_die(server, tmp_path):
    for block in blocks("sql"):
        run_sql(server, block)
    base = with_database(server.admin_url, "confidant")
    owner = base.replace("postgres@", "confidant_owner@")
    runs = base.replace("postgres@", "confidant@")
    assert "are up to date" in await said(tmp_path / "first", owner, "migrate")
    processes = [await start(tmp_path / f"{n}", runs, "run") for n in range(NODES)]
    try:
        urls = [await address(process) for process in processes]
        async with aiohttp.ClientSession() as session:
            for url in urls:
                await alive(session, url, NODES)
            with psycopg.connect(server.admin_url) as connection:
                rows = connection.execute(
                    "SELECT application_name, count(*) FROM pg_stat_activity "
                    "WHERE application_name LIKE 'confidant %' GROUP BY 1"
                ).fetchall()
            assert len(rows) == NODES
            assert max(count for _, count in rows) <= 15  # as the page says
            processes[0].send_signal(signal.SIGKILL)
            await processes[0].wait()
            for url in urls[1:]:
                await alive(session, url, NODES - 1)
        found = orjson.loads(await said(tmp_path / "first", runs, "nodes", "--json"))
        assert len(found["nodes"]) == NODES - 1
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


def test_the_proxy_of_the_page_passes_on_what_the_page_needs():
    (nginx,) = blocks("nginx")
    assert "Upgrade" in nginx
    assert "proxy_set_header Host $http_host;" in nginx  # with its port, as the origin has it
