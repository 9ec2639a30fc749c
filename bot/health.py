"""Health of each part of the program, as values. Pure.

One report feeds `/readyz`, the metrics, the page, the doctor and what the owner is told. Its
sentences hold nothing that was said, no name of a note and no password; what `in_public` leaves
out is for the owner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from bot.channel import Finding, Level
from bot.clock import Clock

CheckState = Literal["ok", "degraded", "down"]
STATES: Final[dict[Level, CheckState]] = {"ok": "ok", "warning": "degraded", "error": "down"}

FEW: Final = 2  # replies that fail one after the other are worth a word …
MANY: Final = 3  # … and so many mean that the bot cannot answer
LATELY_MS: Final = 3_600_000  # what was longer ago says nothing of now
SURE_MS: Final = 60_000  # for which something lasts before the owner is told
WELL: Final = Finding("ok")


def worst(findings: Iterable[Finding]) -> Level:
    """The most serious level of some findings; "ok" for none. Pure."""
    levels: list[Level] = ["ok", *(each.level for each in findings)]
    return max(levels, key=list(STATES).index)


@dataclass(frozen=True, slots=True)
class Check:
    """The finding about one part; an empty one means that it is well."""

    name: str
    finding: Finding = WELL

    @property
    def state(self) -> CheckState:
        """The state of the part."""
        return STATES[self.finding.level]


@dataclass(frozen=True, slots=True)
class Readiness:
    """The health of all parts at one moment."""

    checks: tuple[Check, ...] = ()

    @property
    def state(self) -> CheckState:
        """The worst state of any part; without parts, ok."""
        return STATES[worst(check.finding for check in self.checks)]

    @property
    def ready(self) -> bool:
        """True if the bot can serve people: a degraded part does not stop it, one down does."""
        return self.state != "down"

    def of(self, state: CheckState) -> Sequence[Check]:
        """The parts in a state."""
        return [check for check in self.checks if check.state == state]


def in_public(finding: Finding) -> Finding:
    """The public part of it, without the database's address and user."""
    return Finding.of("error", "health.silent") if finding.id == "health.away" else finding


class Tries:
    """The last tries of something that people ask for, and why they failed, if they did."""

    def __init__(self, name: Literal["replies", "speech"], clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._failed: deque[tuple[int, type[Exception]]] = deque(maxlen=20)

    def note(self, error: Exception | None) -> None:
        """It worked, or failed by this."""
        if error is None:
            self._failed.clear()
        else:
            self._failed.append((self._clock(), type(error)))

    def check(self) -> Check:
        """The health of that part; only without replies the bot cannot do its work."""
        now = self._clock()
        lately = [kind for at, kind in self._failed if abs(now - at) < LATELY_MS]
        if len(lately) < FEW:
            return Check(self._name)
        why = (lately[-1].__doc__ or "").partition("\n")[0]
        level = "error" if self._name == "replies" and len(lately) >= MANY else "warning"
        found = Finding.of(level, f"health.{self._name}", count=len(lately), why=why)
        return Check(self._name, found)


@dataclass(frozen=True, slots=True)
class Outage:
    """Since when the bot could not do its work or can again (ms), and what the owner was told.

    Attributes:
        is_told: that it is down.
        parts: what is down, or was last.
        began: when an outage began that lasted and was over before the owner could be told, in ms;
            0 for none.
    """

    is_down: bool = False
    since: int = 0
    is_told: bool = False
    parts: tuple[str, ...] = ()
    began: int = 0

    def after(self, down: tuple[str, ...], now: int) -> Outage:
        """The same when these parts are down now."""
        parts = down or self.parts
        if bool(down) == self.is_down:
            return replace(self, parts=parts)
        is_missed = self.is_down and not self.is_told and abs(now - self.since) >= SURE_MS
        began = self.began or (self.since if is_missed else 0)
        return Outage(bool(down), now, self.is_told, parts, began)

    def is_due(self, now: int) -> bool:
        """True when the owner is to be told of what has lasted, either way, or is over."""
        is_news = self.is_down != self.is_told or (self.began > 0 and not self.is_down)
        return is_news and abs(now - self.since) >= SURE_MS

    def told(self) -> Outage:
        """The same once the owner was told."""
        return replace(self, is_told=self.is_down, began=0)
