"""Noticing that a server sends without end."""

from __future__ import annotations

MAX_MESSAGES = 5_000  # within a window
WINDOW = 10.0  # seconds


class Flood:
    """Counts messages; more than a window may hold are a flood."""

    def __init__(self) -> None:
        self._began = 0.0
        self._count = 0

    def is_over(self, now: float) -> bool:
        """Count one more, at a time in seconds; True when it is one too many."""
        if now - self._began > WINDOW:
            self._began, self._count = now, 0
        self._count += 1
        return self._count > MAX_MESSAGES
