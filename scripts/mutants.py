"""Say what the last `make mutants` found: a line for each module, and every mutant nobody noticed.

A test that never ends is no proof that it would have failed: such mutants are counted apart. Those
that only write SQL or the name of a header in other letters say the same, and count for nothing.
Fails when the tests notice fewer than nine of ten in a module. `mutmut show NAME` prints a mutant.

With a number it prints the names of so many mutants of each module instead, the same ones each time
and those not tried yet alone: what to give `mutmut run` where all of them would take too long.
"""

from __future__ import annotations

import ast
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1] / "mutants"
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
    """What a function says, whatever it is called and however large its letters are."""
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
    """What became of the mutants of one module: those tried, by name, and how many there are."""

    name: str
    fates: Mapping[str, Fate]
    total: int

    @property
    def share(self) -> float:
        """The share a test failed on, of those tried that change something."""
        count = Counter(self.fates.values())
        changing = count.total() - count["same"]
        return count["killed"] / changing if changing else 1.0

    def __str__(self) -> str:
        """One line of the table."""
        count = Counter(self.fates.values())
        tried = count.total()
        line = (
            f"{self.name:40} {count['killed']:4} of {tried - count['same']:4}  {self.share:6.1%}"
            f"  {count['timeout']:3} without end"
            f"  {count['survived'] + count['untested']:3} left  {count['same']:3} the same"
        )
        return line if tried == self.total else f"{line}  ({self.total - tried} not tried)"


def noted(root: Path) -> Iterator[tuple[Path, dict[str, int | None]]]:
    """How each mutant of each module ended; None if it was not tried."""
    for meta in sorted(root.rglob("*.py.meta")):
        yield meta.relative_to(root), json.loads(meta.read_bytes())["exit_code_by_key"]


def untried(root: Path, count: int) -> Iterator[str]:
    """Up to so many mutants of each module that were not tried, at random."""
    for _, codes in noted(root):
        names = sorted(codes)
        random.Random(SEED).shuffle(names)  # noqa: S311
        yield from [name for name in names if codes[name] is None][:count]


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
            yield Module(str(path.with_suffix("")), fates, len(codes))


def main(root: Path = ROOT, count: int = 0) -> int:
    """Print the table, or up to `count` untried mutants of each module."""
    if count:
        print(*untried(root, count))  # noqa: T201
        return 0
    found = list(modules(root))
    for module in found:
        print(module)  # noqa: T201
    for fate in ("timeout", "untested", "survived"):
        for module in found:
            for name in (name for name, each in module.fates.items() if each == fate):
                print(f"{fate:9} {name}")  # noqa: T201
    return 0 if all(module.share >= GOAL for module in found) else 1


if __name__ == "__main__":
    sys.exit(main(count=int(sys.argv[1]) if sys.argv[1:] else 0))
