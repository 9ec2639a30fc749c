"""Whether a model that failed is worth asking again. Pure: times are passed in, in seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_PAUSE = 30.0  # seconds a model is spared after its first failure; doubles
LONGEST_PAUSE = 600.0
LONGEST_WAIT = 3600.0  # that a service may ask for
PROBE = 60.0  # seconds in which one request alone finds out whether it works again


@dataclass(frozen=True, slots=True)
class Breaker:
    """How often a model failed since it last worked, and until when it is spared.

    `is_probed` says that a request is finding out just now.
    """

    failures: int = 0
    until: float = 0.0
    is_probed: bool = False

    def is_open(self, now: float) -> bool:
        """True while the model is spared."""
        return now < self.until

    def asked(self, now: float) -> Breaker:
        """This, once a request is made: while nobody knows whether it works, the only one."""
        return replace(self, until=now + PROBE, is_probed=True) if self.failures else self

    def failed(self, now: float, wait: float = 0.0) -> Breaker:
        """This, after a failure whose service asked to wait so long.

        What fails while the model is spared was asked before: it tells nothing new.
        """
        if self.is_open(now) and not self.is_probed:
            return replace(self, until=max(self.until, now + min(wait, LONGEST_WAIT)))
        pause = min(FIRST_PAUSE * 2 ** min(self.failures, 10), LONGEST_PAUSE)
        return Breaker(self.failures + 1, now + max(pause, min(wait, LONGEST_WAIT)))
