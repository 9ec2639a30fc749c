"""Searching memory: what is found, and the seam to whatever finds it, the index or a double."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Mode = Literal["vector+keyword", "keyword", "vector", "none"]
Source = Literal["memory", "transcript"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that answers a query; a higher `score` is a better match.

    `space` is the folder of Markdown it stands in and `path` its name there; what was said in a
    conversation has an id for a path. `start_line` and `end_line` are the passage's lines, from 1,
    both included; the snippet stands somewhere in them. `at` is when it was said or what day the
    note is of, in milliseconds since the epoch, 0 when unknown.
    """

    space: str
    path: str
    start_line: int
    end_line: int
    score: float
    snippet: str
    source: Source
    at: int = 0


@dataclass(frozen=True, slots=True)
class Findings:
    """What a search found, best first; which legs found it; and what it had to do without."""

    hits: tuple[Hit, ...]
    mode: str
    degraded: tuple[str, ...] = ()


class Searcher(Protocol):
    """Something that searches memory."""

    async def search(self, query: str, partitions: Sequence[str], limit: int | None, /) -> Findings:
        """Passages of these partitions, and of no others, that match the words or their sense.

        At most `limit` of them; None is as many as the configuration says.
        """
        ...


def how(answer: Findings) -> str:
    """How a search was done, in a line."""
    why = "; ".join(answer.degraded)
    return f"{answer.mode} ({why})" if why else answer.mode
