"""The seam to whatever finds things in memory: the index, or a double."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Found(Protocol):
    """A passage that matched. Lines count from 1; `at` is in ms since the epoch, 0 when unknown.

    `space` is the folder of Markdown it stands in and `path` its name there; what was said in a
    conversation has an id for a path and the source "transcript".
    """

    @property
    def space(self) -> str:
        """Where it stands."""
        ...

    @property
    def path(self) -> str:
        """The file's name within the space."""
        ...

    @property
    def start_line(self) -> int:
        """The first line of the passage."""
        ...

    @property
    def end_line(self) -> int:
        """The last line of the passage."""
        ...

    @property
    def score(self) -> float:
        """How well it matches, higher is better."""
        ...

    @property
    def snippet(self) -> str:
        """The words."""
        ...

    @property
    def source(self) -> str:
        """What kind of text it is."""
        ...

    @property
    def at(self) -> int:
        """When it was said, or what day the note is of."""
        ...


class Findings(Protocol):
    """What a search came to; `mode` and `degraded` say how it was done and what was missing."""

    @property
    def hits(self) -> Sequence[Found]:
        """Passages, best first."""
        ...

    @property
    def mode(self) -> str:
        """Which parts answered."""
        ...

    @property
    def degraded(self) -> str | Sequence[str]:
        """What did not, and why; empty when all is well."""
        ...


class Searcher(Protocol):
    """Something that searches memory."""

    async def search(self, query: str, partitions: Sequence[str], limit: int | None, /) -> Findings:
        """Passages of these partitions, and of no others, that match the words or their sense.

        At most `limit` of them; None is as many as the configuration says.
        """
        ...


def how(findings: Findings) -> str:
    """How a search was done, in a line."""
    missing = findings.degraded
    why = missing if isinstance(missing, str) else "; ".join(missing)
    return f"{findings.mode} ({why})" if why else findings.mode
