"""How long to wait, and between what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Waits in seconds; tests make them short."""

    # After storing failed. Talk brings a message once and waits 5 s, so it is tried again at once.
    store: Sequence[float] = (0.2, 0.5, 1.0)
    first: float = 2.0  # after the first failure of what can wait, doubled after each further one
    longest: float = 30.0
    hold: float = 20.0  # a message waits at most for what was said before it to be read
