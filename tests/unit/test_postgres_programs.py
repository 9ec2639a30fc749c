"""The PostgreSQL of the tests: its programs, where the folder they are in is closed to others."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fakes import postgres


@pytest.mark.parametrize("version", [16, 18])
def test_copied_programs_find_their_libraries(tmp_path: Path, version: int) -> None:
    programs = postgres.copied(postgres.installed(version), tmp_path)
    for name in ("initdb", "postgres"):
        said = subprocess.run(
            [programs / name, "--version"], capture_output=True, text=True, check=False
        )
        assert (said.returncode, said.stderr) == (0, "")
        assert f"PostgreSQL) {version}." in said.stdout
