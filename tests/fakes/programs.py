"""Servers that stand around a cluster, as a distribution has them: found here, or not needed.

Where one is not installed, what is tested with it is skipped; `.ci/run` installs them.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes.ports import free_port

USER = "nobody"  # who they run as when the tests run as root
START_SECONDS = 60.0
_PLACES = ("/usr/sbin", "/usr/local/sbin", "/sbin")  # which people's PATH often leaves out


def find(name: str) -> str:
    """Where a program is: what the variable of its name says (PGBOUNCER), or on the PATH."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *_PLACES))
    found = shutil.which(os.environ.get(name.upper()) or name, path=path)
    if found is None:
        pytest.skip(f"there is no {name} here; {name.upper()} may name one")
    return found


class Program:
    """One such server in a folder of its own, listening on 127.0.0.1. Not started yet."""

    def __init__(self, name: str) -> None:
        self.path = find(name)
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"confidant-{name}-"))
        self._user = USER if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, arguments: Sequence[str | Path]) -> None:
        """Start it; returns when it takes connections."""
        # nginx takes the variable of its name for sockets that it inherits.
        environment = {"PATH": os.environ.get("PATH", "")}
        # What it says is in its own log: a pipe that nobody reads would stop it.
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.path, *arguments],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self.folder,
                env=environment,
            )
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=2).close()
            except OSError:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise AssertionError(self.log()) from None
                time.sleep(0.02)
            else:
                return

    def log(self) -> str:
        """The end of what it said."""
        return (self.folder / "log").read_text()[-4000:]

    def kill(self) -> None:
        """End it at once: every connection is cut."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """End it, and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
