"""What is given to `Database.write` may be run again: `tests.rerunning` finds what may not."""

from __future__ import annotations

import os
import re
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


# Whose works are run twice: of each file some tests, which nobody notices.
FILES = ("tests/integration/test_link.py", "tests/unit/test_changes.py")
NAMES = "joins or tries or another_database or outside_of_its"


@pytest.mark.proof
def test_a_work_that_is_run_again_has_no_effect_but_one_outside_is_found(tmp_path):
    outside = tmp_path / "test_outside.py"
    outside.write_text(OUTSIDE)
    command = ("-m", "pytest", "-q", "-p", "tests.rerunning", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, *command, "-c", "pyproject.toml", "-k", NAMES, outside, *FILES],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "assert 2 == 1" in done.stdout, done.stdout[-3000:]
    (counts,) = re.findall(r"^(\d+) failed, (\d+) passed", done.stdout, re.MULTILINE)
    assert int(counts[0]) == 1, done.stdout[-3000:]
    assert int(counts[1]) == 4
