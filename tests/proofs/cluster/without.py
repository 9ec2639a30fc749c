"""What a proof changes in a node: a clock that is off. Never read by the program.

`PROOF_CLOCK_OFF` is by how many seconds the node's clock is ahead of the others'.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

CLOCK_OFF = "PROOF_CLOCK_OFF"


def apply(environment: Mapping[str, str]) -> None:
    """Change this process as its environment says."""
    ahead = float(environment.get(CLOCK_OFF, 0))
    if ahead:
        _shift(ahead)


def _shift(ahead: float) -> None:
    now, now_ns, shift = time.time, time.time_ns, round(ahead * 1e9)
    time.time = lambda: now() + ahead
    time.time_ns = lambda: now_ns() + shift
