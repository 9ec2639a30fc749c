"""What scripts and pages for engineers say is so."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from scripts import mutants, stats
from tests.contract.channel_cases import cases

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CHANNELS = sorted(PROJECT["entry-points"]["confidant.channels"])
PAGES = {"console": "web"}  # the terminal is told of with the page


@pytest.mark.parametrize("name", CHANNELS)
def test_every_channel_passes_the_suite_of_all_and_has_a_page(name):
    assert [case for case in cases() if case.__name__.startswith(name)]
    page = f"docs/{PAGES.get(name, name)}.md"
    assert (ROOT / page).exists()
    assert f"({page})" in (ROOT / "README.md").read_text("utf-8")


def test_what_is_named_is_there():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = re.findall(r"`((?:bot|adapters|config|docs|scripts|tests)/[\w./-]+)`", page)
    assert len(named) > 15
    assert [path for path in named if not (ROOT / path).exists()] == []
    goals = (ROOT / "Makefile").read_text("utf-8")
    for goal in re.findall(r"`make ([\w-]+)", page):
        assert re.search(rf"^{goal}:", goals, re.MULTILINE), goal
    for link in re.findall(r"\]\(([\w./-]+\.md)", page):
        assert (ROOT / link).exists()


FILE = re.compile(r"`((?:bot|adapters|docs|scripts|tests)/[\w./-]*\.(?:py|md|toml|json))`")
PROOF = re.compile(r"`((?:cluster/)?test_\w+\.py)`")
MODULE = re.compile(r"`(bot(?:\.[a-z_]+)+)`")
LINK = re.compile(r"\]\(([\w./-]+\.md)(?:#([\w-]+))?\)")
READMES = ROOT / "README.md", ROOT / "README.zh-CN.md"
DOCS = [*sorted(ROOT.glob("docs/*.md")), *READMES, ROOT / "CONTRIBUTING.md"]


NAMING = ["architecture.md", "proofs.md", "writing-a-channel.md", "writing-a-model.md"]


@pytest.mark.parametrize("name", NAMING)
def test_every_file_that_is_named_exists(name):
    page = (ROOT / "docs" / name).read_text("utf-8")
    modules = (name.replace(".", "/") for name in MODULE.findall(page))
    named = {*FILE.findall(page), *(m if (ROOT / m).is_dir() else f"{m}.py" for m in modules)}
    named |= {f"tests/proofs/{proof}" for proof in PROOF.findall(page)}
    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_map_names_what_is_there():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    tree = page.split("```")[1]
    engine = tree.split("bot/\n")[1].split("\ntests/")[0]
    named = set(re.findall(r"^  ([\w.]+?)/? ", engine, re.MULTILINE))
    assert len(named) > 15
    assert [name for name in sorted(named) if not (ROOT / "bot" / name).exists()] == []
    folders = {path.name for path in (ROOT / "bot").iterdir() if (path / "__init__.py").exists()}
    assert folders - named == set()


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for link, anchor in LINK.findall(page.read_text("utf-8")):
        other = page.parent / link
        assert other.exists()
        if anchor:
            headings = re.findall(r"^#+ (.*)$", other.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}


def test_both_readmes_say_the_same():
    """What is the same in each language: links, pictures, commands, figures and the shape."""
    english, chinese = (page.read_text("utf-8") for page in READMES)
    for pattern in (
        r"```.*?```",  # whole blocks
        r"(?<!`)`[^`\n]+`(?!`)",  # commands, files and options within a line
        r"\]\(((?!README|#)[^)]+)\)",  # where links and pictures lead
        r"^(#+) ",  # headings, by their levels
        r"^\|",  # rows of tables
        r"\d+\.\d+",
    ):
        found = [re.findall(pattern, page, re.MULTILINE | re.DOTALL) for page in (english, chinese)]
        assert sorted(found[0]) == sorted(found[1]), pattern
    assert "(README.zh-CN.md)" in english
    assert "(README.md)" in chinese


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
        "bot/memory/note_store.py": SEAMS,
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
    journal = stats.count("bot/money.py")
    assert journal == stats.code_lines((stats.ROOT / "bot/money.py").read_text("utf-8"))
    assert stats.count("bot/money.py", "bot/views/usage.py") > journal


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
    (project / "bot/memory/note_store.py").unlink()
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


NO_RECORD = Path("there/is/none.json")
KILLED, SURVIVED, TIMEOUT, UNTESTED, CRASHED, WAITS = 1, 0, -24, 33, -11, None


def noted(root: Path, module: str, *codes: int | None) -> None:
    path = root / f"{module}.meta"
    path.parent.mkdir(parents=True, exist_ok=True)
    names = {f"{Path(module).stem}.m{number}": code for number, code in enumerate(codes)}
    path.write_text(json.dumps({"exit_code_by_key": names}))


def test_each_module_has_its_line_and_each_mutant_left_its_name(tmp_path, capsys):
    noted(tmp_path, "bot/one.py", *[KILLED] * 6, SURVIVED, TIMEOUT, UNTESTED, CRASHED, WAITS)
    noted(tmp_path, "bot/none.py", WAITS)
    noted(tmp_path, "bot/two.py", *[KILLED] * 10)
    assert mutants.main([], tmp_path, NO_RECORD) == 1
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "bot/one.py 6 of 10 60.0% 1 without end 3 left 0 the same (1 not tried)",
        "bot/two.py 10 of 10 100.0% 0 without end 0 left 0 the same",
        "timeout one.m7",
        "untested one.m8",
        "survived one.m6",
        "survived one.m9",
    ]


@pytest.mark.parametrize(
    ("others", "code"),
    [([KILLED], 0), ([SURVIVED], 0), ([SURVIVED] * 2, 1), ([TIMEOUT] * 2, 1), ([WAITS] * 9, 0)],
)
def test_it_fails_below_nine_of_ten_and_what_never_ends_is_none_of_them(tmp_path, others, code):
    noted(tmp_path, "bot/one.py", *[KILLED] * 9, *others)
    assert mutants.main([], tmp_path, NO_RECORD) == code


def test_a_part_is_chosen_at_random_and_the_same_each_time(tmp_path, capsys):
    noted(tmp_path, "bot/one.py", *[WAITS] * 50)
    noted(tmp_path, "bot/two.py", *[KILLED] * 48, *[WAITS] * 2)

    def chosen(count: int) -> list[str]:
        assert mutants.main([str(count)], tmp_path) == 0
        return capsys.readouterr().out.split()

    first = chosen(10)
    assert [name.split(".")[0] for name in first] == ["one"] * 10 + ["two"] * 2
    assert first[:10] != [f"one.m{number}" for number in range(10)]
    assert len({*first}) == 12
    assert chosen(10) == first
    # What was tried is not tried again, and the rest comes in the same order.
    noted(tmp_path, "bot/one.py", *(KILLED if f"one.m{n}" in first else WAITS for n in range(50)))
    rest = chosen(40)[:40]
    noted(tmp_path, "bot/one.py", *[WAITS] * 50)
    assert chosen(50)[:50] == first[:10] + rest


KEEP = """    tx.execute(f"UPDATE {TABLE} SET state = 'sent' WHERE id = ?", (a, "Here"))"""
ASK = """        if request.headers.get("Host", "A").lower():
            request.headers["Allow"] = "GET"
        return Response("SELECTED", headers={"Location": "/In"})"""
# What a mutant has instead of what, and whether it says the same.
KEPT = (
    ("UPDATE", "update", True),
    ("SET state = 'sent' WHERE id", "SET STATE = 'SENT' WHERE ID", False),
    ("Here", "here", False),
)
ASKED = (
    *(("Host", "HOST", True), ('"A"', '"a"', False), ("Allow", "allow", True)),
    *(("GET", "get", False), ("Location", "LOCATION", True), ("/In", "/in", False)),
    ("SELECTED", "selected", False),
)


def code() -> str:
    """A module as mutmut writes it, of a function and a method."""
    same = ("", "", True)
    lines = [
        f"def x_keep__mutmut_{n or 'orig'}(tx, a):\n{KEEP.replace(old, new)}"
        for n, (old, new, _) in enumerate((same, *KEPT))
    ]
    lines += ["class Guard:"]
    for n, (old, new, _) in enumerate((same, *ASKED)):
        lines += [f"    async def xǁGuardǁask__mutmut_{n or 'orig'}(self, request):"]
        lines += [ASK.replace(old, new)]
    return "\n".join(lines)


def test_sql_and_names_of_headers_say_the_same_in_other_letters_and_nothing_else_does(
    tmp_path, capsys
):
    keep = {f"one.x_keep__mutmut_{n}": is_same for n, (*_, is_same) in enumerate(KEPT, 1)}
    ask = {f"one.xǁGuardǁask__mutmut_{n}": is_same for n, (*_, is_same) in enumerate(ASKED, 1)}
    alike = {name for name, is_same in (keep | ask).items() if is_same}
    assert mutants.same(code(), [*keep, *ask]) == alike
    codes = dict.fromkeys(keep, SURVIVED) | dict.fromkeys(ask, KILLED)
    (tmp_path / "one.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    (tmp_path / "one.py").write_text(code(), "utf-8")
    mutants.main([], tmp_path, NO_RECORD)
    first, *left = capsys.readouterr().out.splitlines()
    assert " ".join(first.split()) == "one.py 7 of 9 77.8% 0 without end 2 left 1 the same"
    assert left == [f"survived  {name}" for name in [*keep][1:]]


def functions(root: Path, **codes: list[int | None]) -> None:
    path = root / "bot/one.py.meta"
    path.parent.mkdir(parents=True, exist_ok=True)
    names = {
        f"bot.one.{'xǁGuardǁ' if name == 'ask' else 'x_'}{name}__mutmut_{number}": code
        for name, each in codes.items()
        for number, code in enumerate(each, 1)
    }
    path.write_text(json.dumps({"exit_code_by_key": names}))


def test_a_part_is_made_of_whole_functions(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    functions(tmp_path, ask=[WAITS] * 7, keep=[WAITS] * 7, _drop=[WAITS] * 7)
    assert mutants.main(["8"], tmp_path) == 0
    chosen = capsys.readouterr().out.split()
    assert len(chosen) == 14
    assert len({mutants.function_of(name) for name in chosen}) == 2


def test_a_function_whose_tests_notice_less_than_before_is_named(tmp_path, capsys):
    record = tmp_path / "mutants.json"
    record.write_text(json.dumps({"note": "a part", "functions": {"bot/gone.py": {"f": "1/2"}}}))
    functions(tmp_path, ask=[KILLED] * 10 + [SURVIVED], keep=[KILLED] * 9, _drop=[KILLED, WAITS])
    assert mutants.main(["--write"], tmp_path, record) == 0
    kept = {"bot/gone.py": {"f": "1/2"}, "bot/one.py": {"Guard.ask": "10/11", "keep": "9/9"}}
    assert json.loads(record.read_text("utf-8")) == {"note": "a part", "functions": kept}
    # The same share of fewer is none that fell; what was tried in part is not compared.
    functions(tmp_path, ask=[KILLED] * 19 + [SURVIVED], keep=[KILLED] * 2, _drop=[SURVIVED, WAITS])
    assert mutants.main([], tmp_path, record) == 0
    capsys.readouterr()
    # What is written down counts instead of nine of ten.
    functions(tmp_path, new=[SURVIVED] * 3)
    assert mutants.main([], tmp_path, record) == 0
    functions(tmp_path, ask=[KILLED] * 10 + [SURVIVED], keep=[KILLED] * 19 + [SURVIVED])
    assert mutants.main([], tmp_path, record) == 1
    assert "fallen    bot/one.py keep: 19/20, was 9/9" in capsys.readouterr().out
