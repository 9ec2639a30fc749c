"""How much a bench asks for: its usual load, or a small one with `--quick`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping


def parsed(
    parser: argparse.ArgumentParser, usual: Mapping[str, int], small: Mapping[str, int]
) -> argparse.Namespace:
    """What was asked for on the command line; what was not is of one of the two loads."""
    parser.add_argument("--quick", action="store_true", help="a small load: does it run?")
    asked, _ = parser.parse_known_args()
    parser.set_defaults(**(small if asked.quick else usual))
    return parser.parse_args()
