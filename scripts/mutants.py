"""Say what the last `make mutants` found: a line for each module, and every mutant nobody noticed.

A test that never ends is no proof that it would have failed: such mutants are counted apart.
Fails when the tests notice fewer than nine of ten in a module. `mutmut show NAME` prints a mutant.

With a number it prints the names of so many mutants of each module instead, the same ones each time
and those not tried yet alone: what to give `mutmut run` where all of them would take too long.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1] / "mutants"
GOAL = 0.9
SEED = 27

Fate = Literal["killed", "timeout", "survived", "untested"]
# Exit codes as mutmut notes them; any other is that of a run which ended in another way than by a
# test that failed, and proves nothing.
FATES: Mapping[int, Fate] = {
    **dict.fromkeys((1, 3, 37), "killed"),
    **dict.fromkeys((36, 24, -24, 152, 255), "timeout"),
    33: "untested",
}


@dataclass(frozen=True, slots=True)
class Module:
    """What became of the mutants of one module: those tried, by name, and how many there are."""

    name: str
    fates: Mapping[str, Fate]
    total: int

    @property
    def share(self) -> float:
        """The share a test failed on, of those tried."""
        return Counter(self.fates.values())["killed"] / len(self.fates)

    def __str__(self) -> str:
        """One line of the table."""
        count = Counter(self.fates.values())
        tried = len(self.fates)
        line = f"{self.name:40} {count['killed']:4} of {tried:4}  {self.share:6.1%}"
        line += (
            f"  {count['timeout']:3} without end  {count['survived'] + count['untested']:3} left"
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
