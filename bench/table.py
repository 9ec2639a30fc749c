"""From measurements to a table: medians, ratios, and whether the goals are met. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

BUSY = 0.85  # of one processor: a fake server above it may be what was measured


@dataclass(frozen=True, slots=True)
class Measured:
    """One program in one round, or the medians of several rounds."""

    cold_start: float  # seconds from its start to its first poll
    first_message: float  # seconds from the first message after that to its reply
    p50: float  # milliseconds from a message to its reply, one by one, as all below going on
    p95: float
    turns_per_second: float  # in a burst
    cpu: float  # milliseconds of processor time a turn, in a burst
    resident: float  # megabytes after the load
    telegram_busy: float  # share of one processor the load generator took, at most
    model_busy: float


@dataclass(frozen=True, slots=True)
class Goal:
    """Something promised about the engine: a figure and its bound."""

    what: str
    value: float
    bound: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the promise is kept."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least so many percent of the values do not exceed.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(int(rank), 1) - 1]


def medians(rounds: Sequence[Measured]) -> Measured:
    """Each figure's median over the rounds."""
    return Measured(
        **{
            field.name: statistics.median(getattr(measured, field.name) for measured in rounds)
            for field in fields(Measured)
        }
    )


def goals(
    engine: Measured, floors: Mapping[str, Measured], words_only: Measured | None = None
) -> list[Goal]:
    """What is promised, next to floors on the same transports, each by what it is called.

    `words_only` is the engine without its embedder, which is loaded with the first search; None
    leaves its goal out.
    """
    found: list[Goal] = []
    for name, floor in floors.items():
        rate = engine.turns_per_second / floor.turns_per_second
        found += [
            Goal(f"turns/s, of those of the {name}", rate, 0.65, "×", at_least=True),
            Goal(f"added to the p50 of the {name}", engine.p50 - floor.p50, 4.0, "ms"),
        ]
    found += [
        Goal("processor time a turn", engine.cpu, 5.0, "ms"),
        Goal("cold start to the first poll", engine.cold_start, 1.5, "s"),
        Goal("first message after it", engine.first_message, 0.3, "s"),
        Goal("resident memory, embedder and SDK loaded", engine.resident, 210.0, "MB"),
    ]
    if words_only is not None:
        found.append(Goal("resident memory, by words alone", words_only.resident, 130.0, "MB"))
    return found


_COLUMNS = (
    ("cold start to first poll", "cold_start", "{:.2f} s"),
    ("first message", "first_message", "{:.2f} s"),
    ("p50", "p50", "{:.1f} ms"),
    ("p95", "p95", "{:.1f} ms"),
    ("turns/s in a burst", "turns_per_second", "{:.0f}"),
    ("CPU a turn", "cpu", "{:.1f} ms"),
    ("resident", "resident", "{:.0f} MB"),
)


def markdown(results: Mapping[str, Measured], engine: str) -> str:
    """The table: a row for each program, then the engine's ratio to each of the others."""
    header = ("", *(title for title, _, _ in _COLUMNS))
    rows = [
        (title, *(form.format(getattr(measured, name)) for _, name, form in _COLUMNS))
        for title, measured in results.items()
    ]
    rows += [
        (
            f"{engine} ÷ {title}",
            *(
                f"{getattr(results[engine], name) / getattr(measured, name):.2f}"
                for _, name, _ in _COLUMNS
            ),
        )
        for title, measured in results.items()
        if title != engine
    ]
    return table(header, rows)


def goals_markdown(checked: Sequence[Goal]) -> str:
    """The goals as a table."""
    rows = [
        (
            goal.what,
            f"{goal.value:.2f} {goal.unit}",
            f"{'≥' if goal.at_least else '≤'} {goal.bound:g} {goal.unit}",
            "yes" if goal.met else "**no**",
        )
        for goal in checked
    ]
    return table(("goal", "measured", "promised", "met"), rows)


def busy_note(results: Mapping[str, Measured]) -> str:
    """How busy the fake servers were; a warning when they may be what was measured."""
    telegram = max(measured.telegram_busy for measured in results.values())
    model = max(measured.model_busy for measured in results.values())
    note = f"Fake Telegram took at most {telegram:.0%} of one processor, fake model {model:.0%}."
    if max(telegram, model) > BUSY:
        note += " **They were the bottleneck: turns/s says little.**"
    return note


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown: words in the first column, figures in the others."""
    lines = [header, ("---", *("---:" for _ in header[1:])), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
