"""What channels left out, counted by reason."""

from __future__ import annotations

import re

from bot.metrics import Metrics

MOST = 50  # different reasons of one channel; a metric keeps every one for good
LONGEST = 40  # characters of a reason
OTHER = "other"

_NO_WORD = re.compile(r"[^a-z_]+")


class Drops:
    """Counts them as results of `Metrics.received`, whatever a channel calls its reasons."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._known: dict[str, set[str]] = {}

    def count(self, channel: str, reason: str) -> None:
        """Count one update of a channel."""
        word = _NO_WORD.sub("_", reason.lower())[:LONGEST] or OTHER
        known = self._known.setdefault(channel, set())
        if word not in known and len(known) >= MOST:
            word = OTHER
        elif word != OTHER:
            known.add(word)
        self._metrics.received.labels(channel, f"dropped_{word}").inc()
