"""The benchmarks from beginning to end, with next to no load."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_every_program_answers_every_message_exactly_once_and_the_table_is_written(tmp_path):
    small = ["--messages", "3", "--chats", "3", "--each", "2", "--bursts", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "bench", "engine", "--quick", *small, "--out", tmp_path],
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
    assert "| Confidant, Discord and Nextcloud Talk on too |" in report
    assert [path.name for path in tmp_path.iterdir()] == ["bench.md"]


@pytest.mark.slow
def test_the_other_benchmarks_print_their_tables_and_nothing_else(tmp_path):
    def output(*arguments: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "bench", *arguments],
            check=False,
            cwd=ROOT,
            env={**os.environ, "CONFIDANT_LOCOMO": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=110,
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    for arguments in (("memory", "120"), ("chinese",), ("rooms", "20", "10"), ("context", "200")):
        lines = [line for line in output(*arguments) if line]
        assert len(lines) > 2
        assert all(line.startswith("| ") or set(line) <= set("|-") for line in lines)
    assert output("locomo") == [
        "LoCoMo's conversations are not here: name their folder, or set CONFIDANT_LOCOMO."
    ]
    assert "chinese" in "\n".join(output("--help"))
