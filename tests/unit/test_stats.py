"""`make stats`: how large the parts of a small project are, and its limits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import stats

SOURCE = """# a comment
\"\"\"A module,
with a docstring.\"\"\"

import os  # 1


class Named:
    \"\"\"Only a docstring.\"\"\"

    async def call(
        self,
    ):
        \"\"\"Two

        lines.\"\"\"
        text = \'\'\'one

        three\'\'\'
        return text, "no docstring"
"""
LIMITS = """# How to raise one.
[lines]
"adapters/web" = { max = 1, since = 2026-01-31 }  # with a reason
"bot" = { max = 9, since = 2026-01-31 }
"bot/*.py" = { max = 1, since = 2026-01-31 }
"bot/memory" = { max = 8, since = 2026-01-31 }
"bot/testing.py" = { max = 1, since = 2026-01-31 }
"tests" = { max = 5, since = 2026-01-31 }
"tests/unit" = { max = 1, since = 2026-01-31 }

[files]
"bot" = { max = 3, since = 2026-01-31 }

[protocols]
"bot" = { max = 2, since = 2026-01-31 }

[message]
"functions" = { max = 40, since = 2026-01-31 }
"""
DELETES = "`make stats ARGS=--tighten` deletes it"
SEAMS = """
import asyncio, typing
from typing import Protocol
class Reading(Protocol): ...
class Writing(Reading, typing.Protocol[str]): ...
class Wire(asyncio.Protocol): ...
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "bot/app.py": "a = 1",
        "bot/testing.py": "a = 1",
        "bot/memory/disk.py": SEAMS,
        "bot/memory/index/rows.py": "# nothing yet\n\na = 1\nb = 1\nc = 1",
        "adapters/web/channel.py": "a = 1",
        "tests/unit/test_app.py": "a = 1",
        "tests/aimock/node_modules/gyp.py": "a = 1",
        "docs/sizes.toml": LIMITS,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def static(project: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, list[str]]:
    code = stats.main(["--static", *flags], project)
    return code, capsys.readouterr().err.splitlines()


def test_lines_of_code_are_counted_without_blanks_comments_and_docstrings():
    assert stats.code_lines(SOURCE) == 9
    assert stats.code_lines("") == 0
    assert stats.code_lines("a = (\n    'x'\n    # why\n    'y'\n)\n") == 4
    journal = stats.count("bot/money/prices.py")
    assert journal == stats.code_lines((stats.ROOT / "bot/money/prices.py").read_text("utf-8"))
    assert stats.count("bot/money/prices.py", "bot/money/days.py") > journal


def test_each_folder_is_a_part_and_the_totals_are_their_sums(project):
    lines = {name: size for (what, name), size in stats.measure(project).items() if what == "lines"}
    assert lines == {
        "adapters/web": 1,
        "bot": 9,
        "bot/*.py": 1,
        "bot/memory": 8,
        "bot/testing.py": 1,  # what ships for others' tests is not the engine's
        "tests": 1,
        "tests/unit": 1,
    }


def test_the_table_has_lines_files_and_protocols_of_each_part(project, capsys):
    assert stats.main(["--static"], project) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split() for line in table[2:5]] == [
        ["bot", "9", "9", "3", "2"],
        ["bot/*.py", "1", "1", "1", "0"],
        ["bot/memory", "8", "8", "2", "2"],
    ]


def test_a_part_that_outgrows_its_limit_fails_and_is_named(project, capsys):
    assert static(project, capsys) == (0, [])
    (project / "bot/memory/more.py").write_text("class C(Protocol[int]):\n    a = 1\n    b = 1\n")
    assert static(project, capsys) == (
        1,
        [
            "sizes: bot has 4 files, and the limit is 3",
            "sizes: bot has 12 lines, and the limit is 9",
            "sizes: bot/memory has 11 lines, and the limit is 8",
            "sizes: bot has 3 protocols, and the limit is 2",
        ],
    )


def test_a_part_without_a_limit_fails_and_so_does_a_limit_without_its_part(project, capsys):
    (project / "bot/memory").rename(project / "bot/recall")
    assert static(project, capsys) == (
        1,
        [
            "sizes: bot/recall has 8 lines and no limit: give it one",
            "sizes: bot/memory has a limit on its lines and is gone: " + DELETES,
        ],
    )


def test_tightening_lowers_every_limit_raises_none_and_keeps_what_was_not_measured(project, capsys):
    (project / "bot/memory/disk.py").unlink()
    (project / "bot/app.py").write_text("a = 1\nb = 1\n")
    code, said = static(project, capsys, "--tighten")
    assert (code, said) == (1, ["sizes: bot/*.py has 2 lines, and the limit is 1"])
    text = (project / "docs/sizes.toml").read_text("utf-8")
    assert "2026-01-31" not in re.findall(r'(?m)^"bot" = .*$', text)[0]
    assert stats.limits(text) == {
        ("lines", "adapters/web"): 1,
        ("lines", "bot"): 5,
        ("lines", "bot/*.py"): 1,
        ("lines", "bot/memory"): 3,
        ("lines", "bot/testing.py"): 1,
        ("lines", "tests"): 1,
        ("lines", "tests/unit"): 1,
        ("files", "bot"): 2,
        ("protocols", "bot"): 0,
        ("message", "functions"): 40,
    }
    assert '"adapters/web" = { max = 1, since = 2026-01-31 }  # with a reason\n' in text
    assert text.startswith("# How to raise one.\n")
    (project / "adapters/web/channel.py").unlink()
    assert "adapters/web" in static(project, capsys)[1][-1]
    static(project, capsys, "--tighten")
    assert "adapters/web" not in (project / "docs/sizes.toml").read_text("utf-8")


def test_the_path_of_a_message_is_measured_and_limited_too(project, capsys, monkeypatch):
    passed = {("message", "functions"): 41, ("message", "files"): 7}
    monkeypatch.setattr(stats, "on_the_path", lambda: passed)
    assert stats.main([], project) == 1
    said = capsys.readouterr()
    assert "41 functions (limit 40) in 7 files (limit –)" in said.out
    assert said.err == "sizes: a message passes 41 functions, and the limit is 40\n"


def test_a_limit_that_cannot_be_rewritten_is_refused():
    with pytest.raises(ValueError, match="each limit is a line"):
        stats.limits("[lines]\nbot = { max = 1, since = 2026-01-31 }\n")
