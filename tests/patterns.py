"""Every regular expression of the program, and texts that are hard for one.

`sites` finds each call of `re` in the source; `pumps` makes, from the parts of a pattern, texts
that nearly match it again and again, which is what takes long where anything does.
"""

from __future__ import annotations

import ast
import importlib
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from re import _constants as codes  # the standard's own reading of a pattern
from re import _parser
from typing import Any

ROOT = Path(__file__).parent.parent
_CALLS = {"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
_ANCHORED = {"match", "fullmatch"}


@dataclass(frozen=True)
class Site:
    """A place in the source that makes or uses a pattern; `how` it is used with texts.

    `patterns` is None where they depend on what only a run knows.
    """

    name: str
    how: frozenset[str]
    patterns: tuple[re.Pattern[Any], ...] | None = field(compare=False)


def sites() -> Iterator[Site]:
    """Every one, each named by its module and by what it is assigned to or the function around."""
    sources = {path: ast.parse(path.read_text()) for path in sorted(modules())}
    everywhere = _used(sources.values())
    for path, tree in sources.items():
        here = _used([tree])
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for call, name in _calls(tree, ""):
            attribute = call.func.attr
            used = (here if name.startswith("_") else everywhere).get(name, {"search"})
            how = used if attribute == "compile" else {attribute}
            yield Site(f"{module}.{name}", frozenset(how), _evaluated(module, call))


def modules() -> Iterator[Path]:
    """The source of everything that is ours."""
    for package in ("bot", "adapters"):
        yield from (ROOT / package).rglob("*.py")


def _calls(node: ast.AST, name: str) -> Iterator[tuple[ast.Call, str]]:
    for child in ast.iter_child_nodes(node):
        inner = name
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}".lstrip(".")
        elif isinstance(child, ast.Assign | ast.AnnAssign) and not name:
            target = child.targets[0] if isinstance(child, ast.Assign) else child.target
            inner = ast.unparse(target)
        if (
            isinstance(child, ast.Call)
            and isinstance(child.func, ast.Attribute)
            and ast.unparse(child.func.value) == "re"
            and child.func.attr in _CALLS
        ):
            yield child, name
        yield from _calls(child, inner)


def _used(trees) -> dict[str, set[str]]:
    """By a name, how the pattern of that name is used: `_NAME.search(…)`, `module.NAME.sub(…)`."""
    used: dict[str, set[str]] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in _CALLS:
                of = ast.unparse(node.value).rpartition(".")[2]
                used.setdefault(of, set()).add(node.attr)
    return used


def _evaluated(module: str, call: ast.Call) -> tuple[re.Pattern[Any], ...] | None:
    names = vars(importlib.import_module(module))
    keywords = {each.arg: each.value for each in call.keywords}
    at = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(call.func.attr, 2)
    flags = call.args[at] if len(call.args) > at else keywords.get("flags", ast.Constant(0))
    try:
        pattern, flag = (
            eval(ast.unparse(each), dict(names))  # noqa: S307 - our own source
            for each in (call.args[0], flags)
        )
    except NameError:
        return None
    return (re.compile(pattern, flag),)


def held(value: object, depth: int = 5) -> Iterator[re.Pattern[Any]]:
    """The patterns in a value, whatever it is made of."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth:
        parts: Any = ()
        if isinstance(value, dict):
            parts = value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            parts = value
        elif hasattr(value, "__dataclass_fields__"):
            parts = (getattr(value, name) for name in value.__dataclass_fields__)
        for part in parts:
            yield from held(part, depth - 1)


# Signs that matter to some pattern, alone and in threes.
# fmt: off
PIECES = (
    *"aA1 \n\t\r([<`\"'“「|~.!?。中的九\u0301\u200f\u202e\u2028\\/=&_$第😀\0",
    *("a.", "a ", "a\n", "\n\n", " \n", "*_", "](", "<a ", "<!-- ", "-->", "```", "| "),
    *("- ", "--", "# ", "> ", "1-", "2024-01-01 ", "12:00 ", "1,", "1 ", "http://a", "a@"),
    *('{"', "[[", "I ", "my ", "Ab ", "no ", "the ", "<think>", "```\n", "in 5 "),
    "every ",
)
# fmt: on
ENDS = ("\x01", "", "\n\x01!")


def seeded(word: str) -> random.Random:
    """The same choices each time."""
    return random.Random(word)  # noqa: S311


def pumps(pattern: re.Pattern[Any], seed: random.Random, rounds: int) -> set[tuple[str, str]]:
    """Beginnings, and what to repeat after them, that a pattern takes apart in many ways."""
    found: set[tuple[str, str]] = {("", "".join(seed.choices(PIECES, k=3))) for _ in range(rounds)}
    tree = _parser.parse(pattern.pattern, pattern.flags)
    for _ in range(rounds):
        found |= set(_pumps(list(tree), "", seed))
        found.add(("", _sample(tree, seed)))
    return {(start, again) for start, again in found if again}


def _pumps(items: list[Any], start: str, seed: random.Random) -> Iterator[tuple[str, str]]:
    for at, (code, value) in enumerate(items):
        before = start + _sample(items[:at], seed)
        if code in _REPEATS:
            _, most, inner = value
            if most is codes.MAXREPEAT or most > 20:
                one = _sample(inner, seed)
                yield from ((before, one), ("", one), ("", before + one), ("", before))
            yield from _pumps(list(inner), before, seed)
        elif code is codes.SUBPATTERN:
            yield from _pumps(list(value[3]), before, seed)
        elif code is codes.ATOMIC_GROUP:
            yield from _pumps(list(value), before, seed)
        elif code is codes.BRANCH:
            for branch in value[1]:
                yield from _pumps(list(branch), before, seed)
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _pumps(list(value[1]), before, seed)


_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_KINDS: dict[Any, Callable[[str], bool]] = {
    codes.CATEGORY_DIGIT: str.isdigit,
    codes.CATEGORY_SPACE: str.isspace,
    codes.CATEGORY_WORD: lambda sign: sign.isalnum() or sign == "_",
    codes.CATEGORY_NOT_DIGIT: lambda sign: not sign.isdigit(),
    codes.CATEGORY_NOT_SPACE: lambda sign: not sign.isspace(),
    codes.CATEGORY_NOT_WORD: lambda sign: not (sign.isalnum() or sign == "_"),
}
_SIGNS = "a 1-\n.<\"'`é中~|"


def _sample(items: Any, seed: random.Random) -> str:
    """A text that a part of a pattern matches, or nearly."""
    return "".join(_one(code, value, seed) for code, value in items)


def _one(code: Any, value: Any, seed: random.Random) -> str:  # noqa: PLR0911 - a table
    if code is codes.LITERAL:
        return chr(value)
    if code is codes.NOT_LITERAL:
        return "x" if value != ord("x") else "y"
    if code is codes.ANY:
        return "a"
    if code is codes.IN:
        return _of_set(value, seed)
    if code in _REPEATS:
        least, most, inner = value
        count = max(least, min(1, most)) if seed.random() < 0.7 else min(most, least + 2)
        return "".join(_sample(inner, seed) for _ in range(min(count, 30)))
    if code is codes.SUBPATTERN:
        return _sample(value[3], seed)
    if code is codes.ATOMIC_GROUP:
        return _sample(value, seed)
    if code is codes.BRANCH:
        return _sample(seed.choice(value[1]), seed)
    if code is codes.ASSERT and value[0] < 0 and seed.random() < 0.5:
        return _sample(value[1], seed)
    return ""


def _of_set(value: list[Any], seed: random.Random) -> str:
    if value[0][0] is codes.NEGATE:
        return next((sign for sign in _SIGNS if not any(_is_in(sign, *v) for v in value[1:])), "?")
    code, what = seed.choice(value)
    if code is codes.LITERAL:
        return chr(what)
    if code is codes.RANGE:
        return chr(what[0])
    return next(sign for sign in _SIGNS if _KINDS[what](sign))


def _is_in(sign: str, code: Any, value: Any) -> bool:
    if code is codes.LITERAL:
        return ord(sign) == value
    if code is codes.RANGE:
        return value[0] <= ord(sign) <= value[1]
    return _KINDS[value](sign)


SUSPICIOUS = 0.0008  # seconds: what took longer is measured again, and at four times the length
MOST_BOUNDED = 0.02  # seconds for the longest text that a pattern is ever given
MOST_GROWTH = 7.0  # for four times the length: 4 is linear, 16 quadratic
LENGTHS = (24, 200, 2_000)


def slow_text(
    pattern: re.Pattern[Any],
    how: frozenset[str],
    seed: random.Random,
    rounds: int = 2,
    longest: int | None = None,
) -> str:
    """A text for which a pattern takes more than linear time, described; empty if none is found.

    `longest` is how many characters it is given at most: then all that counts is the time.
    """
    pieces = PIECES[seed.randrange(3) :: 3] if rounds == 1 else PIECES
    tried = {("", piece) for piece in pieces} | pumps(pattern, seed, rounds)
    for start, again in sorted(tried):
        for end in ENDS[:rounds]:
            for act in {"finditer"} if how - _ANCHORED else how:
                if length := _length_that_is_slow(pattern, act, (start, again, end), longest):
                    return f"{act}({start!r} + {again!r} × … + {end!r}) of {length} characters"
    return ""


def _length_that_is_slow(
    pattern: re.Pattern[Any], act: str, parts: tuple[str, str, str], longest: int | None
) -> int:
    for length in LENGTHS if longest is None else (min(24, longest), longest):
        most = SUSPICIOUS if longest is None else MOST_BOUNDED
        took = _took(pattern, act, parts, length)
        took = min(took, _took(pattern, act, parts, length)) if took > most else took
        if took <= most:
            continue
        if longest is not None or length == LENGTHS[0]:
            return length
        more = _took(pattern, act, parts, 4 * length)
        if more > MOST_GROWTH * took and more > MOST_GROWTH * _took(pattern, act, parts, length):
            return 4 * length
    return 0


def _took(pattern: re.Pattern[Any], act: str, parts: tuple[str, str, str], length: int) -> float:
    start, again, end = parts
    text: Any = (start + again * (length // len(again) + 1))[:length] + end
    if isinstance(pattern.pattern, bytes):
        text = text.encode("latin-1", "replace")
    began = time.thread_time()
    if act == "finditer":
        for _ in pattern.finditer(text):
            pass
    else:
        getattr(pattern, act)(text)
    return time.thread_time() - began
