"""How much a bench asks for: its usual load, or a small one with `--quick`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any


def parsed(
    parser: argparse.ArgumentParser, usual: Mapping[str, Any], small: Mapping[str, Any]
) -> argparse.Namespace:
    """What was asked for on the command line; what was not is of one of the two loads."""
    parser.add_argument("--quick", action="store_true", help="a small load: does it run?")
    asked, _ = parser.parse_known_args()
    parser.set_defaults(**(small if asked.quick else usual))
    return parser.parse_args()


def every(prog: str, few: int) -> int:
    """Of how many things of a set one is asked: of each, or of `few` with `--quick`."""
    parser = argparse.ArgumentParser(prog=f"python -m bench {prog}")
    return parsed(parser, {"every": 1}, {"every": few}).every
