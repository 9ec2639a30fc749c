"""Say what the last `make mutants` found: a line for each module, and every mutant nobody noticed.

Fails when the tests notice fewer than nine of ten in a module. `mutmut show NAME` prints a mutant.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1] / "mutants"
GOAL = 0.9
SURVIVED, UNTESTED = 0, 33  # what mutmut notes; None: not tried yet


def main() -> int:
    """Print the table."""
    missed: list[str] = []
    is_good = True
    for meta in sorted(ROOT.rglob("*.py.meta")):
        codes: dict[str, int | None] = json.loads(meta.read_bytes())["exit_code_by_key"]
        tried = {name: code for name, code in codes.items() if code is not None}
        if not tried:
            continue
        alive = [name for name, code in tried.items() if code in {SURVIVED, UNTESTED}]
        share = 1 - len(alive) / len(tried)
        missed += alive
        is_good &= share >= GOAL
        module = meta.relative_to(ROOT).with_suffix("")
        print(f"{module!s:40} {len(tried) - len(alive):4} of {len(tried):4}  {share:6.1%}")  # noqa: T201
        if len(tried) < len(codes):
            print(f"{'':40} {len(codes) - len(tried):4} not tried")  # noqa: T201
    print(*missed, sep="\n")  # noqa: T201
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
