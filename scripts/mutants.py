"""Say what the last `make mutants` found: a line for each module, and every mutant nobody noticed.

A test that never ends is no proof that it would have failed: such mutants are counted apart. Those
that only write SQL or the name of a header in other letters say the same, and count for nothing.
Fails when the tests notice a smaller share of a function's than `tests/mutants.json` says, or in a
module that it does not name fewer than nine of ten. `--write` puts what was found there and keeps
what it says of functions not tried this time. `mutmut show NAME` prints a mutant.

With a number it prints the names of about so many mutants of each module instead, all of a function
or none, the same ones each time and those not tried yet alone: what to give `mutmut run` where all
of them would take too long.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PROJECT = Path(__file__).resolve().parents[1]
ROOT = PROJECT / "mutants"
RECORD = PROJECT / "tests" / "mutants.json"
GOAL = 0.9
SEED = 27

Fate = Literal["killed", "timeout", "survived", "untested", "same"]
# Exit codes as mutmut notes them; any other is that of a run which ended in another way than by a
# test that failed, and proves nothing.
FATES: Mapping[int, Fate] = {
    **dict.fromkeys((1, 3, 37), "killed"),
    **dict.fromkeys((36, 24, -24, 152, 255), "timeout"),
    33: "untested",
}


_SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
_UNQUOTED = re.compile(r"[^']+(?=(?:[^']*'[^']*')*[^']*$)")


class _Folded(ast.NodeTransformer):
    """The same code, with the letters small that mean the same when they are large."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """A statement of SQL; not what stands quoted in it."""
        is_sql = isinstance(node.value, str) and _SQL.match(node.value)
        return self._unquoted(node) if is_sql else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.JoinedStr:
        """A statement of SQL with names put into it."""
        first = node.values[0] if node.values else None
        if isinstance(first, ast.Constant) and _SQL.match(str(first.value)):
            parts = [self._unquoted(p) if isinstance(p, ast.Constant) else p for p in node.values]
            return ast.JoinedStr(parts)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`headers.get(name, …)`."""
        match node:
            case ast.Call(ast.Attribute(ast.Attribute(attr="headers"), "get"), [name, *others]):
                return ast.Call(node.func, [_small(name), *others], node.keywords)
            case _:
                return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """`headers[name]`."""
        match node.value:
            case ast.Attribute(attr="headers"):
                return ast.Subscript(node.value, _small(node.slice), node.ctx)
            case _:
                return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        """`headers={name: …}`."""
        match node:
            case ast.keyword("headers", ast.Dict(keys, values)):
                return ast.keyword(
                    "headers", ast.Dict([key and _small(key) for key in keys], values)
                )
            case _:
                return self.generic_visit(node)

    @staticmethod
    def _unquoted(node: ast.Constant) -> ast.Constant:
        return ast.Constant(_UNQUOTED.sub(lambda found: found[0].lower(), str(node.value)))


def _small(node: ast.expr) -> ast.expr:
    """A text in small letters; anything else as it is."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return ast.Constant(node.value.lower())
    return node


def _said(function: ast.AST) -> str:
    """A function as text, without its name and the case of its letters."""
    folded = _Folded().visit(function)
    folded.name = ""
    return ast.dump(folded)


def same(source: str, names: Collection[str]) -> set[str]:
    """Those of some mutants that say the same as what they were made of."""
    functions = {
        node.name: node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    found: set[str] = set()
    for name in names:
        mutant = name.rpartition(".")[2]
        origin = functions.get(re.sub(r"\d+$", "orig", mutant))
        if origin and mutant in functions and _said(origin) == _said(functions[mutant]):
            found.add(name)
    return found


@dataclass(frozen=True, slots=True)
class Module:
    """The results of one module's mutants: of those tried, by name, and the names of all."""

    name: str
    fates: Mapping[str, Fate]
    names: Collection[str]

    @property
    def share(self) -> float:
        """The share a test failed on, of those tried that change something."""
        count = Counter(self.fates.values())
        changing = count.total() - count["same"]
        return count["killed"] / changing if changing else 1.0

    @property
    def functions(self) -> Mapping[str, tuple[int, int]]:
        """Killed and all changing mutants of each function whose mutants were all tried."""
        found: defaultdict[str, Counter[Fate | None]] = defaultdict(Counter)
        for name in self.names:
            found[function_of(name)][self.fates.get(name)] += 1
        return {
            function: (count["killed"], count.total() - count["same"])
            for function, count in found.items()
            if not count[None]
        }

    def __str__(self) -> str:
        """One line of the table."""
        count = Counter(self.fates.values())
        tried = count.total()
        line = (
            f"{self.name:40} {count['killed']:4} of {tried - count['same']:4}  {self.share:6.1%}"
            f"  {count['timeout']:3} without end"
            f"  {count['survived'] + count['untested']:3} left  {count['same']:3} the same"
        )
        left = len(self.names) - tried
        return f"{line}  ({left} not tried)" if left else line


def noted(root: Path) -> Iterator[tuple[Path, dict[str, int | None]]]:
    """The exit code of each mutant of each module; None if it was not tried."""
    for meta in sorted(root.rglob("*.py.meta")):
        yield meta.relative_to(root), json.loads(meta.read_bytes())["exit_code_by_key"]


def function_of(name: str) -> str:
    """The function a mutant was made of: `Class.method` of `bot.m.xǁClassǁmethod__mutmut_3`."""
    mangled = name.rpartition(".")[2].partition("__mutmut_")[0]
    return mangled.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")


def untried(root: Path, count: int) -> Iterator[str]:
    """Mutants of each module that were not tried: at least so many, in whole functions."""
    for _, codes in noted(root):
        functions: defaultdict[str, list[str]] = defaultdict(list)
        for name in sorted(codes):
            functions[function_of(name)].append(name)
        order = sorted(functions)
        random.Random(SEED).shuffle(order)  # noqa: S311
        chosen = 0
        for function in order:
            names = [name for name in functions[function] if codes[name] is None]
            if chosen < count:
                yield from names
            chosen += len(names)


def modules(root: Path) -> Iterator[Module]:
    """Every module of which at least one mutant was tried."""
    for path, codes in noted(root):
        fates: dict[str, Fate] = {
            name: FATES.get(code, "survived") for name, code in codes.items() if code is not None
        }
        alive = [name for name, fate in fates.items() if fate == "survived"]
        source = (root / path).with_suffix("")
        if alive and source.exists():
            unchanged: Fate = "same"
            fates.update(dict.fromkeys(same(source.read_text("utf-8"), alive), unchanged))
        if fates:
            yield Module(str(path.with_suffix("")), fates, tuple(codes))


Record = Mapping[str, Mapping[str, str]]  # "8/9" killed, by module and function


def record_of(found: Collection[Module], before: Record) -> Record:
    """The results merged over earlier ones; functions with nothing killed are left out."""
    tried = {
        module.name: {name: f"{dead}/{n}" for name, (dead, n) in module.functions.items() if dead}
        for module in found
    }
    modules_ = sorted({*before, *(name for name, functions in tried.items() if functions)})
    return {
        name: dict(sorted({**before.get(name, {}), **tried.get(name, {})}.items()))
        for name in modules_
    }


def fallen(found: Collection[Module], before: Record) -> Iterator[str]:
    """A line for each function of whose mutants a smaller share is killed than before."""
    for module in found:
        for name, (killed, count) in module.functions.items():
            then = before.get(module.name, {}).get(name)
            if then is None:
                continue
            killed_then, count_then = map(int, then.split("/"))
            if killed * count_then < killed_then * count:
                yield f"fallen    {module.name} {name}: {killed}/{count}, was {then}"


def main(arguments: Sequence[str] = (), root: Path = ROOT, record: Path = RECORD) -> int:
    """Print the table, or untried mutants of each module; 1 if tests notice too few."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", help="name so many untried mutants a module")
    parser.add_argument("--write", action="store_true", help="write tests/mutants.json")
    asked = parser.parse_args(arguments)
    if asked.count:
        print(*untried(root, asked.count))  # noqa: T201
        return 0
    found = list(modules(root))
    for module in found:
        print(module)  # noqa: T201
    for fate in ("timeout", "untested", "survived"):
        for module in found:
            for name in (name for name, each in module.fates.items() if each == fate):
                print(f"{fate:9} {name}")  # noqa: T201
    kept = json.loads(record.read_bytes()) if record.exists() else {"note": "", "functions": {}}
    fell = list(fallen(found, kept["functions"]))
    for line in fell:
        print(line)  # noqa: T201
    if asked.write:
        kept["functions"] = record_of(found, kept["functions"])
        record.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
    enough = all(each.share >= GOAL or each.name in kept["functions"] for each in found)
    return 0 if enough and not fell else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
