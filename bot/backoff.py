"""How long to wait before something that failed is tried again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Doubling waits in seconds, from `first` to `longest`, until something succeeds."""

    first: float
    longest: float
    _next: float = 0.0  # 0 before the first failure

    def next(self) -> float:
        """The wait after one more failure, in seconds."""
        delay = self._next or self.first
        self._next = min(delay * 2, self.longest)
        return delay

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._next = 0.0
