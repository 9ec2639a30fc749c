"""What a site's robots.txt asks of programs, by RFC 9309. Pure.

Of all rules for a program the one with the longest pattern counts, and where two are as long, the
one that allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote

LONGEST = 500 * 1024  # bytes that are read of one (RFC 9309, 2.5: at least so many)
EVERYBODY = "*"

_TOKEN = re.compile(r"[a-z_-]+|\*")
_UNRESERVED = re.compile(r"%([46][1-9a-f]|[57][0-9a]|3[0-9]|2[de]|5f|7e)", re.IGNORECASE)
_ESCAPE = re.compile(r"%[0-9a-f]{2}", re.IGNORECASE)
_KEPT = "%/?&=:@!$'()*+,;~-._#[]"  # what a path or pattern may hold as it is


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: str
    allows: bool


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a site for one program; without any, all may be read."""

    rules: tuple[_Rule, ...] = ()

    def allow(self, path: str) -> bool:
        """True when a path, with its query, may be read."""
        path = _normal(path)
        if path == "/robots.txt":
            return True
        found = [rule for rule in self.rules if _matches(rule.pattern, path)]
        if not found:
            return True
        return max(found, key=lambda rule: (len(rule.pattern), rule.allows)).allows


NOTHING = Rules((_Rule("/", allows=False),))
"""Nothing may be read."""


def parse(text: str, program: str) -> Rules:
    """The rules for a program of this name, in any case."""
    groups = list(_groups(text.removeprefix("\ufeff").splitlines()))
    named = [rules for names, rules in groups if program.lower() in names]
    chosen = named or [rules for names, rules in groups if EVERYBODY in names]
    return Rules(tuple(dict.fromkeys(rule for rules in chosen for rule in rules)))


def _groups(lines: Iterable[str]) -> Iterator[tuple[set[str], list[_Rule]]]:
    """Who is named together, and the rules for them."""
    names: set[str] = set()
    rules: list[_Rule] = []
    for key, value in _fields(lines):
        if key == "user-agent":
            if rules:
                yield names, rules
                names, rules = set(), []
            if found := _TOKEN.match(value.lower()):
                names.add(found[0])
        elif names and value:
            rules.append(_Rule(_normal(value), allows=key == "allow"))
    yield names, rules


def _fields(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The lines that say something: all others, also of other kinds, are passed over."""
    for line in lines:
        key, colon, value = line.partition("#")[0].partition(":")
        key = key.strip().lower()
        if colon and key in {"user-agent", "allow", "disallow"}:
            yield key, value.strip()


def _normal(path: str) -> str:
    """A path or a pattern in one spelling, so that both can be compared (RFC 9309, 2.2.2)."""
    path = quote(path, safe=_KEPT)
    path = _UNRESERVED.sub(lambda found: chr(int(found[1], 16)), path)
    return _ESCAPE.sub(lambda found: found[0].upper(), path)


def _matches(pattern: str, path: str) -> bool:
    """True when a path begins as a pattern says; "*" is anything, "$" at its end the path's end.

    Each part is looked for once, after the one before: no pattern takes longer than its length.
    """
    is_whole = pattern.endswith("$")
    first, *others = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    at = len(first)
    last = others.pop() if others and is_whole else None
    for part in others:
        at = path.find(part, at)
        if at < 0:
            return False
        at += len(part)
    if last is not None:
        return path.endswith(last) and len(path) - len(last) >= at
    return at == len(path) if is_whole else True
