"""Print how large each part of the project is, and fail when one outgrows its limit: `make stats`.

The limits are in `docs/sizes.toml`. Counted are lines of code (no blank lines, comments or
docstrings), Python files, Protocols, and the functions and files that one message passes
(`bench/journey.py`, which runs the program for about ten seconds).

`--static` leaves the message out. `--tighten` lowers every limit to the size measured, never raises
one, and deletes the limits of parts that are gone.
"""

from __future__ import annotations

import argparse
import ast
import io
import math
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMITS = "docs/sizes.toml"
SPLIT = ("bot", "adapters", "tests")  # each folder in them is a part
WHOLE = ("bench", "scripts")
DOUBLES = (
    "bot/testing.py"  # ships with the program for those who write tests; no part of the engine
)
TOTALS = ("bot", "tests")  # parts of their own: the sum of their folders
MESSAGES = 3
BUSY = 1.01  # a busy machine shows a reply in a few steps more: 425 functions instead of 422

Figures = Mapping[tuple[str, str], int]  # by what is counted ("lines") and where ("bot/agent")

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_SECTION = re.compile(r"\[(\w+)\]")
_LIMIT = re.compile(r'"([^"]+)" = \{ max = (\d+), since = [\d-]+ \}')


def code_lines(source: str) -> int:
    """The lines of Python source that hold code."""
    return _code_lines(source, ast.parse(source))


def _code_lines(source: str, tree: ast.Module) -> int:
    lines = source.splitlines()
    empty = {at for at, line in enumerate(lines, 1) if not line.strip() or line.strip()[0] == "#"}
    documented: set[int] = set()
    long: list[ast.expr] = []
    for node in _spanning(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            documented.update(_lines_of(node.body[0]))
        elif isinstance(node, (ast.Constant, ast.JoinedStr)) and node.end_lineno != node.lineno:
            long.append(node)
    # What looks empty in a long string is none of these; tokenizing is exact, and thrice as slow.
    if any(
        node.lineno not in documented and not empty.isdisjoint(_lines_of(node)) for node in long
    ):
        empty = set(range(1, len(lines) + 1))
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type not in _NO_CODE:
                empty.difference_update(range(token.start[0], token.end[0] + 1))
    return len(lines) - len(empty | documented)


def _lines_of(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def protocols(tree: ast.Module) -> int:
    """The classes that have `Protocol`, of `typing`, among their bases."""
    return sum(
        any(re.match(r"(typing\.)?Protocol\b", ast.unparse(base)) for base in node.bases)
        for node in _spanning(tree)
        if isinstance(node, ast.ClassDef)
    )


def _spanning(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree but for those inside of what is on one line: a sixth of the time."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if getattr(node, "lineno", 0) != getattr(node, "end_lineno", -1):
            waiting.extend(ast.iter_child_nodes(node))


def count(*places: str) -> int:
    """The lines of code of files, and of all files below folders."""
    files = (file for place in places for file in _files(ROOT, place))
    return sum(code_lines(file.read_text("utf-8")) for file in files)


def _files(root: Path, place: str) -> Iterator[Path]:
    path = root / place
    for file in [path] if path.suffix else sorted(path.rglob("*.py")):
        if "node_modules" not in file.parts:
            yield file


def _part(file: str) -> str:
    """The part of the project that a file belongs to."""
    first, *others = file.split("/")
    if first in WHOLE or file == DOUBLES:
        return file if file == DOUBLES else first
    return f"{first}/{others[0]}" if len(others) > 1 else f"{first}/*.py"


def measure(root: Path = ROOT) -> Figures:
    """The lines and files of every part, the totals, and the Protocols of the engine."""
    found: Counter[tuple[str, str]] = Counter()
    for file in (file for top in (*SPLIT, *WHOLE) for file in _files(root, top)):
        part = _part(str(file.relative_to(root)))
        source = file.read_text("utf-8")
        tree = ast.parse(source)
        size = {"lines": _code_lines(source, tree), "files": 1, "protocols": protocols(tree)}
        total = part.partition("/")[0]
        for what, amount in size.items():
            found[what, part] += amount
            if total in TOTALS and part != DOUBLES:
                found[what, total] += amount
    return found


def on_the_path() -> Figures:
    """Count the functions and files that one message passes, by running the program."""
    import uvloop  # noqa: PLC0415 (what only counts lines needs neither)

    from bench import journey, quiet  # noqa: PLC0415

    quiet.logs()
    figures = uvloop.run(journey.measure(MESSAGES)).figures()
    return {("message", what): figures[what] for what in ("functions", "files")}


def limits(text: str) -> Figures:
    """What each part may hold at most.

    Raises:
        ValueError: it is no TOML, or not of this form.
    """
    read = {
        (what, name): int(line["max"])
        for what, lines in tomllib.loads(text).items()
        for name, line in lines.items()
    }
    if read != {key: most for *_, key, most in _rows(text) if key}:
        raise ValueError('each limit is a line: "name" = { max = 1, since = 2026-01-31 }')
    return read


def _rows(text: str) -> Iterator[tuple[str, tuple[str, str] | None, int]]:
    """Each line, with what it limits and by how much, if it does."""
    section = ""
    for line in text.splitlines(keepends=True):
        if found := _SECTION.match(line):
            section = found[1]
        limit = _LIMIT.match(line)
        yield (line, (section, limit[1]), int(limit[2])) if limit else (line, None, 0)


def complaints(figures: Figures, most: Figures) -> list[str]:
    """A sentence for each part that outgrew its limit, has none, or is gone."""
    found: list[str] = []
    for (what, name), size in sorted(figures.items()):
        held = (
            f"a message passes {size} {name}" if what == "message" else f"{name} has {size} {what}"
        )
        limit = most.get((what, name))
        if limit is not None and size > limit:
            found.append(f"{held}, and the limit is {limit}")
        elif limit is None and what == "lines":
            found.append(f"{held} and no limit: give it one")
    measured = {what for what, _ in figures}
    found += [
        f"{name} has a limit on its {what} and is gone: `make stats ARGS=--tighten` deletes it"
        for what, name in sorted(most.keys() - figures.keys())
        if what in measured
    ]
    return found


def tightened(text: str, figures: Figures, today: str) -> str:
    """The limits lowered to the sizes measured; what was not measured stays as it is."""
    measured = {what for what, _ in figures}
    lines: list[str] = []
    for line, key, most in _rows(text):
        size = figures.get(key) if key else None
        if size is not None and key and size < most:
            lines.append(f'"{key[1]}" = {{ max = {size}, since = {today} }}\n')
        elif size is not None or not key or key[0] not in measured:
            lines.append(line)
    return "".join(lines)


def table(figures: Figures, most: Figures) -> Iterator[str]:
    """A line for each part, and one for the message if it was measured."""
    yield f"{'':24}{'lines':>8}{'limit':>8}{'files':>8}{'Protocols':>11}"
    for name in sorted({name for what, name in figures if what == "lines"}):
        limit = most.get(("lines", name), "–")
        lines, files, seams = (figures[what, name] for what in ("lines", "files", "protocols"))
        yield f"{name:24}{lines:>8}{limit:>8}{files:>8}{seams:>11}"
    if ("message", "functions") in figures:
        passed = (
            f"{figures[key]} {key[1]} (limit {most.get(key, '–')})"
            for key in (("message", "functions"), ("message", "files"))
        )
        yield f"{'a message passes':24}{' in '.join(passed)}"


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Print the table and what is too large; 1 if something is."""
    parser = argparse.ArgumentParser(prog="make stats", description=__doc__)
    parser.add_argument("--static", action="store_true", help="run nothing, count source alone")
    parser.add_argument("--tighten", action="store_true", help="lower the limits to today's sizes")
    asked = parser.parse_args(arguments)
    file = root / LIMITS
    text = file.read_text("utf-8")
    figures = {**measure(root), **({} if asked.static else on_the_path())}
    if asked.tighten:
        room = {key: math.ceil(size * BUSY) for key, size in figures.items() if key[0] == "message"}
        text = tightened(text, figures | room, datetime.now(UTC).date().isoformat())
        file.write_text(text, "utf-8")
    most = limits(text)
    for line in table(figures, most):
        print(line)  # noqa: T201
    found = complaints(figures, most)
    for line in found:
        print(f"sizes: {line}", file=sys.stderr)  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
