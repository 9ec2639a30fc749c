"""The time of day, as a value that is passed in, so that nothing else asks the machine for it."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Milliseconds since the epoch. It may jump; durations are measured with `time.monotonic`."""


def system_clock() -> int:
    """The machine's clock."""
    return time.time_ns() // 1_000_000
