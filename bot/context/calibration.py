"""How far estimates of tokens are from what each model's service reports. Pure.

Every reported usage teaches a little: a factor for each model moves towards what the last requests
were off by, the long ones counting more than the short ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

import orjson
from pydantic import Field, TypeAdapter, ValidationError

LOW, HIGH = 0.5, 3.0  # what is further off was not the same request
LEAST = 200  # tokens; in fewer, what a service adds to every request would count too much
START = 2_000  # tokens that an estimate is believed for before anything was reported
SAMPLE_CAP = 20_000  # tokens that one report can count for
MEMORY_CAP = 60_000  # tokens that all reports before it count for
MOST_MODELS = 64

_Factor = Annotated[float, Field(ge=LOW, le=HIGH)]
_Seen = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_KEPT: Final[TypeAdapter[dict[str, tuple[_Factor, _Seen]]]] = TypeAdapter(
    Annotated[dict[str, tuple[_Factor, _Seen]], Field(max_length=MOST_MODELS)]
)


@dataclass(frozen=True, slots=True)
class Learned:
    """A model's factor, and the tokens it was learned from."""

    factor: float
    seen: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """What an estimate is multiplied by, for each model."""

    models: Mapping[str, Learned] = field(default_factory=dict[str, Learned])

    def factor(self, model: str) -> float:
        """Reported tokens for each estimated one; 1.0 for a model nothing is known of."""
        learned = self.models.get(model)
        return learned.factor if learned else 1.0

    def learn(self, model: str, estimated: int, reported: int) -> Calibration:
        """This, after a request that was estimated at so many tokens and reported as so many."""
        if min(estimated, reported) < LEAST:
            return self
        ratio = min(max(reported / estimated, LOW), HIGH)
        before = self.models.get(model, Learned(1.0, START))
        counts = min(estimated, SAMPLE_CAP)
        seen = before.seen + counts
        factor = (before.factor * before.seen + ratio * counts) / seen
        others = {name: each for name, each in self.models.items() if name != model}
        while len(others) >= MOST_MODELS:
            del others[next(iter(others))]  # the one that was heard of least recently
        return Calibration({**others, model: _learned(factor, seen)})

    def to_json(self) -> str:
        """As a text to keep."""
        return orjson.dumps({name: [m.factor, m.seen] for name, m in self.models.items()}).decode()


def from_json(raw: str | None) -> Calibration:
    """What was kept; nothing is known when that is not what `to_json` writes."""
    try:
        kept = _KEPT.validate_json(raw or "{}", strict=True)
    except ValidationError:
        return Calibration()
    return Calibration({name: _learned(factor, seen) for name, (factor, seen) in kept.items()})


def _learned(factor: float, seen: float) -> Learned:
    return Learned(min(max(float(factor), LOW), HIGH), min(float(seen), float(MEMORY_CAP)))
