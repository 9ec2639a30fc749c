"""The benchmarks from beginning to end, with next to no load."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import stats

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 500  # seconds

pytestmark = [pytest.mark.proof, pytest.mark.timeout(2 * PATIENCE)]


def test_every_program_answers_every_message_exactly_once_and_the_table_is_written(tmp_path):
    small = ["--messages", "3", "--chats", "3", "--each", "2", "--bursts", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "bench", "engine", "--quick", *small, "--out", tmp_path],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    report = (tmp_path / "bench.md").read_text("utf-8")
    assert report in done.stdout
    assert "| Confidant ÷ floor on aiohttp + uvloop |" in report
    assert "| Confidant ÷ floor that does not stream |" in report
    assert "| Confidant, Discord and Nextcloud Talk on too |" in report
    assert [path.name for path in tmp_path.iterdir()] == ["bench.md"]


# Several in one process: what each of them measures counts for nothing here.
RUNS_THEM = """
import runpy, sys
for line in sys.argv[1].splitlines():
    name, *sys.argv[1:] = line.split()
    print("#", line, flush=True)
    try:
        runpy.run_module(f"bench.{name}", run_name="__main__", alter_sys=True)
    except SystemExit:
        pass
"""


def test_the_other_benchmarks_print_their_tables_and_nothing_else(tmp_path):
    def output(*arguments: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, *arguments],
            check=False,
            cwd=ROOT,
            env={**os.environ, "CONFIDANT_LOCOMO": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    runs = (
        "memory 120",
        "embedding --quick",
        "chinese --quick",
        "facts --quick --mode vector",
        "offline --quick",
        "aging --quick",
        "pieces --quick",
        "fits --quick",
        "rooms 20 10",
        "context --quick",
        "notes 3",
        "page 2",
        "large --quick",
        "fairness --quick pairing",
    )
    said = output("-c", RUNS_THEM, "\n".join(runs))
    tables = [part.splitlines() for part in "\n".join(said).split("# ")[1:]]
    assert [name for name, *_ in tables] == list(runs)
    for _, *lines in tables:
        rows = [line for line in lines if line]
        assert len(rows) > 2
        assert all(row.startswith("| ") or set(row) <= set("|-") for row in rows)
    assert output("-m", "bench", "locomo") == [
        "LoCoMo's conversations are not here: name their folder, or set CONFIDANT_LOCOMO."
    ]
    assert "chinese" in "\n".join(output("-m", "bench", "--help"))


def test_the_way_of_a_message_is_counted_and_listed_from_the_poll_to_the_reply(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bench", "journey", "--messages", "3", "--list", "--out", tmp_path],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    report = (tmp_path / "journey.md").read_text("utf-8")
    assert report == done.stdout
    table, listing = (
        [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()[2:]]
        for part in report.split("\n\n")
    )
    figures = {what: int(figure) for what, figure, _ in table}
    files = [file for _, _, file, _ in listing]
    calls = [int(calls) for _, _, _, calls in listing if calls != "…"]
    assert figures["functions"] == len(listing) > 100
    assert figures["calls"] == sum(calls)
    assert figures["files"] == len(set(files))
    assert figures["files"] <= figures["changes of file"] < figures["calls"]
    for what in ("session key", "memory view", "command"):
        # Once at least, and not what all the messages before have cost.
        assert 1 <= figures[f"{what} worked out"] <= 10
    assert all((ROOT / file).is_file() for file in files)
    passed = {("message", what): figures[what] for what in ("functions", "files")}
    most = stats.limits((ROOT / stats.LIMITS).read_text("utf-8"))
    assert stats.complaints(passed, most) == []
    # It begins where Telegram's answer is read, passes the engine, and the reply goes out.
    assert files[0].startswith("adapters/telegram/")
    way = [files.index(f) for f in ("bot/gateway/gateway.py", "bot/agent/turn.py")]
    assert way == sorted(way)
    assert "adapters/telegram/send.py" in files[way[-1] :]
