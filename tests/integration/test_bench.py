"""`python -m bench` from beginning to end, with next to no load."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_every_program_answers_every_message_exactly_once_and_the_table_is_written(tmp_path):
    small = ["--messages", "3", "--chats", "3", "--each", "2", "--bursts", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", *small, "--out", tmp_path],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    report = (tmp_path / "bench.md").read_text("utf-8")
    assert report in done.stdout
    assert "| Confidant ÷ floor on aiohttp + uvloop |" in report
    assert [path.name for path in tmp_path.iterdir()] == ["bench.md"]
