"""Every function that takes somebody's text, found by its parameters, and what to call it with."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import time
import zoneinfo
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any

from tests.patterns import ROOT, modules

# Parameters that hold what somebody wrote; names of our own are keys, paths, kinds and languages.
OF_TEXT = frozenset(
    {"answer", "bare", "body", "code", "content", "data", "digits", "flat", "html", "label"}
    | {"line", "markdown", "message", "name", "note", "old", "one", "other", "own", "phrase"}
    | {"query", "question", "raw", "reply", "rest", "said", "sentence", "source", "src", "summary"}
    | {"text", "title", "typed", "url", "value", "wish", "word", "words", "written"}
)
_NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
# By a parameter's type, what it gets where that is not the text.
_EXAMPLES: Mapping[str, Any] = MappingProxyType(
    {
        "int": 1_000,
        "float": 1.0,
        "bool": True,
        "datetime": _NOW,
        "date": date(2026, 11, 28),
        "tzinfo": UTC,
        "tzinfo | None": UTC,
        "ZoneInfo": zoneinfo.ZoneInfo("Europe/Berlin"),
        "LengthUnit": "characters",
        "Tools": {"look": {"type": "object"}},
        "Literal['NFD', 'NFKC']": "NFKC",
        "_Fence | None": None,
        "StopReason": "end",
        "Role": "user",
        "Json": {},
    }
)
_TEXTS: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {
        "str": str,
        "str | None": str,
        "object": str,
        "bytes": lambda text: text.encode("utf-8", "replace"),
        "str | bytes": str,
        "Sequence[str]": str.splitlines,
        "Iterable[str]": str.splitlines,
        "list[str]": str.splitlines,
        "Collection[str]": str.splitlines,
    }
)
_NAMED = {"language": "en", "locale": "en"}


# What a function has that acts on files, a database or a connection, and is not pure.
_ACTING = frozenset(
    {"Transaction", "SqliteTransaction", "PostgresTransaction", "UnitOfWork", "Connection", "Path"}
    | {"IO[bytes]", "web.Request", "Config", "type[Config]", "Setup", "PolicySnapshot"}
)


def acts(function: Callable[..., Any]) -> bool:
    """True for a function that is not pure, by its parameters."""
    return any(str(each.annotation) in _ACTING for each in _needed(function))


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Those of all modules that take somebody's text, by their whole names."""
    for path in modules():
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name.endswith("__main__"):
            continue
        module = importlib.import_module(name)
        for function in vars(module).values():
            if not inspect.isfunction(function) and not hasattr(function, "__wrapped__"):
                continue
            plain = inspect.unwrap(function)
            if not inspect.isfunction(plain) or plain.__module__ != name:
                continue
            if inspect.iscoroutinefunction(plain) or plain.__qualname__ != plain.__name__:
                continue
            if any(_is_text(each) for each in _needed(plain)):
                yield f"{name}.{plain.__name__}", plain


def _needed(function: Callable[..., Any]) -> list[inspect.Parameter]:
    every = inspect.signature(function).parameters.values()
    return [each for each in every if each.default is each.empty and each.kind < each.VAR_KEYWORD]


def _is_text(parameter: inspect.Parameter) -> bool:
    return parameter.name in OF_TEXT and str(parameter.annotation) in _TEXTS


def caller(function: Callable[..., Any]) -> Callable[[str], Any] | None:
    """Calls a function with a text wherever one may be; None where more is needed than texts."""
    made: dict[str, Callable[[str], Any]] = {}
    for each in _needed(function):
        kind = str(each.annotation)
        if each.kind is each.VAR_POSITIONAL:
            continue
        if each.name in _NAMED:
            made[each.name] = lambda _, value=_NAMED[each.name]: value
        elif kind in _TEXTS:
            made[each.name] = _TEXTS[kind]
        elif kind in _EXAMPLES:
            made[each.name] = lambda _, value=_EXAMPLES[kind]: value
        else:
            return None
    positional = [
        n
        for n, p in inspect.signature(function).parameters.items()
        if n in made and p.kind is not p.KEYWORD_ONLY
    ]

    def call(text: str) -> None:
        values = {name: make(text) for name, make in made.items()}
        first = [values.pop(name) for name in positional]
        found = function(*first, **values)
        if inspect.isgenerator(found):
            for _ in found:
                pass

    return call


SIZES = (1_000, 5_000, 20_000)  # characters
SLOW = 0.04  # seconds, and for each character so many more, until growth is measured
RATE = 2e-6
MOST_GROWTH = 8.0  # for four times as many characters: 4 is linear, 16 quadratic


def slow_length(
    call: Callable[[str], Any],
    piece: str,
    longest: int = 80_000,
    rate: float = RATE,
    sizes: Sequence[int] = SIZES,
) -> int:
    """For how many characters, made of a piece, the work grew by more than their number; or 0.

    A function is called with `longest` characters at most, and what takes `rate` seconds for each
    of them is not looked at.
    """
    for size in (each for each in sizes if 4 * each <= longest):
        if took_for(call, piece, size) <= SLOW + rate * size:
            continue
        took, more = (
            min(took_for(call, piece, length) for _ in range(3)) for length in (size, 4 * size)
        )
        if took > SLOW / 2 and more > MOST_GROWTH * took:
            return 4 * size
    return 0


def took_for(call: Callable[[str], Any], piece: str, size: int) -> float:
    """Seconds of processor time for so many characters; what it raises does not matter."""
    text = (piece * (size // len(piece) + 1))[:size]
    began = time.thread_time()
    with contextlib.suppress(Exception):  # most texts are nothing that it takes
        call(text)
    return time.thread_time() - began
