"""How many lines of code there are, without blank lines, comments and docstrings: `make stats`."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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


def code_lines(source: str) -> int:
    """The lines of Python source that hold code."""
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            held.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(held)


def count(*places: str, without: str = "") -> int:
    """The lines of code of files, and of all files below folders."""
    found = 0
    for place in places:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if str(file.relative_to(ROOT)) != without and "node_modules" not in file.parts:
                found += code_lines(file.read_text("utf-8"))
    return found


def main() -> None:
    """Print a line for each part, and how many lines of tests there are for a line of code."""
    engine = count("bot", without="bot/testing.py")
    adapters = count("adapters")
    tests = count("tests", "bot/testing.py")
    for name, lines in (("engine", engine), ("adapters", adapters), ("tests", tests)):
        print(f"{name:10}{lines:>8}")  # noqa: T201
    print(f"{'tests ÷ code':10}{tests / (engine + adapters):>6.2f}")  # noqa: T201


if __name__ == "__main__":
    main()
