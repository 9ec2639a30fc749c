"""aimock: a Messages API that nobody here wrote, as a process on a free port of this machine.

The npm package is installed once from `tests/aimock/package-lock.json`, with the Node.js that comes
with the type checker, so tests need nothing but the virtual environment.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.fakes import mocks
from tests.fakes.npm import NODE, install

HOME = Path(__file__).resolve().parents[1] / "aimock"
FIXTURES = HOME / "fixtures"
CLI = HOME / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"

READY_TIMEOUT = 30.0  # seconds


@contextmanager
def running() -> Generator[str]:
    """Start aimock with the fixtures, which all tests share; its address."""
    install(HOME)

    def command(port: int) -> Sequence[str | Path]:
        where = ("-p", str(port), "-h", "127.0.0.1", "-f", FIXTURES)
        return NODE, CLI, *where, "--log-level", "silent"

    with mocks.serving(command, "/health", READY_TIMEOUT) as address:
        yield address
