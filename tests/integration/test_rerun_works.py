"""What is given to `Database.write` may be run again: `tests.rerunning` finds what may not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = """
from bot.storage.sqlite import SqliteDatabase

async def test_a_work_that_does_something_outside_of_its_transaction(tmp_path):
    database = await SqliteDatabase.open(tmp_path / "confidant.db")
    done = []
    await database.write(lambda tx: done.append(tx))
    await database.close()
    assert len(done) == 1
"""


def rerunning(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run tests with every work run twice."""
    command = ("-m", "pytest", "-q", "-p", "tests.rerunning", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, *command, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_work_with_an_effect_outside_is_found(tmp_path):
    test = tmp_path / "test_outside.py"
    test.write_text(OUTSIDE)
    done = rerunning(test, "-c", ROOT / "pyproject.toml")
    assert "assert 2 == 1" in done.stdout, done.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("integration/test_link.py", "joins or tries or ended"),
        ("unit/test_changes.py", "another_database"),
    ],
)
def test_nobody_notices_what_is_run_again(file, names):
    done = rerunning(f"tests/{file}", "-k", names)
    assert done.returncode == 0, done.stdout[-3000:]
