"""Every option changes something: where it is ignored, a test notices.

`tests/data/options.toml` names that test for each option. It runs here once more, in a process of
its own, while whoever acts on the option gets its default (`tests/ignoring.py`), and has to fail.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test

from tests.ignoring import options

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 6  # processes
ROWS: dict[str, str] = tomllib.loads((ROOT / "tests/data/options.toml").read_text())


def test_every_option_has_a_row():
    assert ROWS.keys() == options().keys()


def test_what_a_test_notices_does_not_depend_on_what_is_drawn():
    tests = {tuple(test.split("::")) for test in ROWS.values()}
    modules = {path: import_module(f"tests.{path[:-3].replace('/', '.')}") for path, _ in tests}
    assert not [name for path, name in tests if is_hypothesis_test(getattr(modules[path], name))]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_option_that_is_ignored_is_noticed(tmp_path: Path):
    assert unnoticed(tmp_path, ROWS) == []


@pytest.mark.slow
def test_a_test_that_has_nothing_to_do_with_an_option_does_not_count(tmp_path: Path):
    other = "unit/test_options.py::test_a_rule_matches_by_what_it_names"
    assert unnoticed(tmp_path, {"log.level": other}) == ["log.level"]


def unnoticed(folder: Path, rows: dict[str, str]) -> list[str]:
    """The options whose tests pass all the same when they are ignored."""
    plan: dict[str, list[str]] = defaultdict(list)
    for option, test in sorted(rows.items(), key=lambda row: row[1]):
        plan[f"tests/{test}"].append(option)
    # Several at once: some wait long for what does not come. Each imports files of its own.
    files = sorted({test.partition("::")[0] for test in plan})
    parts = [
        {test: options for test, options in plan.items() if test.partition("::")[0] in these}
        for these in (files[n::AT_ONCE] for n in range(min(AT_ONCE, len(files))))
    ]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        found = threads.map(noticed, (folder / f"{n}.json" for n in range(len(parts))), parts)
        return sorted(rows.keys() - {option for part in found for option in part})


def noticed(file: Path, plan: dict[str, list[str]]) -> list[str]:
    """The options of a plan that its tests notice, run in a process of their own."""
    file.write_text(json.dumps(plan))
    environment = {"HOME": str(file.parent), "IGNORING": str(file), "PYTEST_ADDOPTS": ""}
    # What a failed test left open must not fail the next one in another way than by its assertion.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.ignoring", "-p", "no:cacheprovider",
         "-p", "no:unraisableexception", "-p", "no:xdist", "--timeout", "90",
         "--assert", "plain", "--tb", "native", *plan],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = file.with_suffix(".noticed")
    assert found.exists(), done.stdout[-2_000:] + done.stderr[-2_000:]
    return json.loads(found.read_text())
