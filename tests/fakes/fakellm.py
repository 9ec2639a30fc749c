"""fakellm: a server of both APIs that nobody here wrote, and not aimock's authors either."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fakes import mocks

READY_TIMEOUT = 60.0  # seconds


@contextmanager
def running(folder: Path, rules: Sequence[Mapping[str, Any]]) -> Generator[str]:
    """Start one with these rules; its address, without a path."""
    config = folder / "fakellm.yaml"
    config.write_text(json.dumps({"version": 1, "rules": rules}), "utf-8")  # JSON is YAML

    def command(port: int) -> Sequence[str | Path]:
        code = "from fakellm.cli import main; main()"
        return sys.executable, "-c", code, "serve", "--port", str(port), "--config", config

    with mocks.serving(command, "/_fakellm/stats", READY_TIMEOUT) as address:
        yield address
