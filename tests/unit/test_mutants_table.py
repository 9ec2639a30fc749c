"""What `make mutants` says at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import mutants

NO_RECORD = Path("there/is/none.json")
KILLED, SURVIVED, TIMEOUT, UNTESTED, CRASHED, WAITS = 1, 0, -24, 33, -11, None


def noted(root: Path, module: str, *codes: int | None) -> None:
    path = root / f"{module}.meta"
    path.parent.mkdir(parents=True, exist_ok=True)
    names = {f"{Path(module).stem}.m{number}": code for number, code in enumerate(codes)}
    path.write_text(json.dumps({"exit_code_by_key": names}))


def test_each_module_has_its_line_and_each_mutant_left_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
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
def test_it_fails_below_nine_of_ten_and_what_never_ends_is_none_of_them(
    tmp_path: Path, others: list[int | None], code: int
):
    noted(tmp_path, "bot/one.py", *[KILLED] * 9, *others)
    assert mutants.main([], tmp_path, NO_RECORD) == code


def test_a_part_is_chosen_at_random_and_the_same_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
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


CODE = """
def x_keep__mutmut_orig(tx, a):
    tx.execute(f"UPDATE {TABLE} SET state = 'sent' WHERE id = ?", (a, "Here"))
def x_keep__mutmut_1(tx, a):
    tx.execute(f"update {TABLE} set state = 'sent' where id = ?", (a, "Here"))
def x_keep__mutmut_2(tx, a):
    tx.execute(f"UPDATE {TABLE} SET STATE = 'SENT' WHERE ID = ?", (a, "Here"))
def x_keep__mutmut_3(tx, a):
    tx.execute(f"UPDATE {TABLE} SET state = 'sent' WHERE id = ?", (a, "here"))
class Guard:
    async def xǁGuardǁask__mutmut_orig(self, request):
        if request.headers.get("Host", "A").lower():
            request.headers["Allow"] = "GET"
        return Response("SELECTED", headers={"Location": "/In"})
    async def xǁGuardǁask__mutmut_1(self, request):
        if request.headers.get("HOST", "A").lower():
            request.headers["Allow"] = "GET"
        return Response("SELECTED", headers={"Location": "/In"})
    async def xǁGuardǁask__mutmut_2(self, request):
        if request.headers.get("Host", "a").lower():
            request.headers["Allow"] = "GET"
        return Response("SELECTED", headers={"Location": "/In"})
    async def xǁGuardǁask__mutmut_3(self, request):
        if request.headers.get("Host", "A").lower():
            request.headers["allow"] = "GET"
        return Response("SELECTED", headers={"Location": "/In"})
    async def xǁGuardǁask__mutmut_4(self, request):
        if request.headers.get("Host", "A").lower():
            request.headers["Allow"] = "get"
        return Response("SELECTED", headers={"Location": "/In"})
    async def xǁGuardǁask__mutmut_5(self, request):
        if request.headers.get("Host", "A").lower():
            request.headers["Allow"] = "GET"
        return Response("SELECTED", headers={"LOCATION": "/In"})
    async def xǁGuardǁask__mutmut_6(self, request):
        if request.headers.get("Host", "A").lower():
            request.headers["Allow"] = "GET"
        return Response("SELECTED", headers={"Location": "/in"})
    async def xǁGuardǁask__mutmut_7(self, request):
        if request.headers.get("Host", "A").lower():
            request.headers["Allow"] = "GET"
        return Response("selected", headers={"Location": "/In"})
"""


def test_sql_and_names_of_headers_say_the_same_in_other_letters_and_nothing_else_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    keep = [f"one.x_keep__mutmut_{number}" for number in range(1, 4)]
    ask = [f"one.xǁGuardǁask__mutmut_{number}" for number in range(1, 8)]
    assert mutants.same(CODE, [*keep, *ask]) == {keep[0], ask[0], ask[2], ask[4]}
    codes = dict.fromkeys(keep, SURVIVED) | dict.fromkeys(ask, KILLED)
    (tmp_path / "one.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    (tmp_path / "one.py").write_text(CODE, "utf-8")
    mutants.main([], tmp_path, NO_RECORD)
    first, *left = capsys.readouterr().out.splitlines()
    assert " ".join(first.split()) == "one.py 7 of 9 77.8% 0 without end 2 left 1 the same"
    assert left == [f"survived  {name}" for name in keep[1:]]


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


def test_a_function_whose_tests_notice_less_than_before_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
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
