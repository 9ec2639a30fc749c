"""The seam to the index: documents, findings and its status."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Literal, Protocol

Mode = Literal["vector+keyword", "keyword", "vector", "none"]
Source = Literal["memory", "transcript", "folder"]


@dataclass(frozen=True, slots=True)
class Why:
    """Why a passage was found: words of the query that stand in it, or in the headings above it.

    `by_meaning` says that it means something like the query, `by_date` that it is of a time the
    query names. Without any of these it is in an answer only because nothing is nearer.
    """

    words: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    by_meaning: bool = False
    by_date: bool = False

    @property
    def is_any(self) -> bool:
        """True when there is a reason that can be told."""
        return bool(self.words or self.headings or self.by_meaning or self.by_date)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a snippet: what it has of the query's words, and how near in meaning it is."""

    text: str
    words: float
    meaning: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that answers a query; a higher `score` is a better match.

    `space` is the folder it stands in and `path` its name there; what was said in a conversation
    has an id for a path. `start_line` and `end_line` are the passage's lines, from 1,
    both included; the snippet stands somewhere in them. `at` is when it was said or what day the
    note is of, in milliseconds since the epoch, 0 when unknown. `strength` is that of the claim
    that answers best (`bot.memory.claims`), 1 for anything else. `words` is what the passage has of
    the query's words and `meaning` its cosine, 1 where nobody measured them. `lines` are the
    snippet's, scored, where that was done.
    """

    space: str
    path: str
    start_line: int
    end_line: int
    score: float
    snippet: str
    source: Source
    at: int = 0
    why: Why = field(default=Why(), compare=False)
    strength: float = field(default=1.0, compare=False)
    words: float = field(default=1.0, compare=False)
    meaning: float = field(default=1.0, compare=False)
    lines: tuple[Line, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of a search, best first; which legs found them; and what was missing.

    `many` says that many things were asked for: then there may be twice as many passages as were
    wanted, with no more text than so many have at most. `is_partial` says that something may have
    been missed, which is not so for all that is `degraded`.
    """

    hits: tuple[Hit, ...]
    mode: str
    degraded: tuple[str, ...] = ()
    many: bool = False
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A text to index that is no file: something that was said. `at` is in ms since the epoch."""

    partition: str
    id: str
    text: str
    at: int = 0


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of checking a part: if it works, and what it reports."""

    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Building:
    """The progress of an index: `done` of `total` notes are in it as they are to be.

    When it `is_first`, searches read the notes themselves, for words. Else they find the words of
    all notes, and the meaning of those that are done, where `by_meaning`.
    """

    done: int
    total: int
    is_first: bool
    by_meaning: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The contents of the index in numbers; `size` in bytes, `spaces` in chunks.

    `problems` maps a note's path to why it is not, or not all, in the index.
    """

    files: int = 0
    chunks: int = 0
    documents: int = 0
    vectors: int = 0
    dims: int = 0
    size: int = 0
    spaces: Mapping[str, int] = field(default_factory=dict[str, int])
    problems: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(Counts):
    """The state of the index.

    `degraded` says in words what does not work; empty when all is well. `words_off` and
    `vectors_off` say why a search does not look for words, or for what they mean: empty when it
    does, else "disabled", "weight", "empty", "building", "rebuilding", or what the embedder said.
    `last_sync` is in ms, 0 when there was none. `building` is how far it is.
    """

    mode: Mode
    why: str
    last_sync: int
    provider: str
    model: str
    endpoint: str
    degraded: tuple[str, ...] = ()
    words_off: str = ""
    vectors_off: str = ""
    building: Building | None = None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The numbers of rows removed from each place."""

    chunks: int = 0
    vectors: int = 0
    documents: int = 0
    cached: int = 0


BEING_BUILT = "the index is being built"


class Searcher(Protocol):
    """Something that searches memory."""

    async def search(
        self,
        query: str,
        partitions: Sequence[str],
        limit: int | None,
        /,
        *,
        today: date | None = None,
        room: int = 0,
        without: Collection[str] = (),
    ) -> Findings:
        """Passages of these partitions, and of no others, that match the words or their sense.

        At most `limit` of them, or twice as many of what is found as a list (`Findings.many`); None
        is as many as the configuration says. `today` is the day it is for whoever asks, by which
        "yesterday" is understood. With `room`, the best lines of all passages are shown in so many
        characters, rather than the best passages, and no hit says why. Messages whose ids are
        in `without` are left out.
        """
        ...


def how(answer: Findings) -> str:
    """The mode of a search, and what it had to do without, in a line."""
    why = "; ".join(answer.degraded)
    return f"{answer.mode} ({why})" if why else answer.mode
