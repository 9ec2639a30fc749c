"""What goes into the index and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["vector+keyword", "keyword", "vector", "none"]
Source = Literal["memory", "transcript"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that answers a query.

    `start_line` and `end_line` are the passage's lines in its file, from 1, both included; the
    snippet stands somewhere in them. A transcript's `path` is its document's id. `at` is when it
    was said or what day the note is of, in milliseconds since the epoch, 0 when unknown.
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
class Answer:
    """What a search found, best first; which legs found it; and what it had to do without."""

    hits: tuple[Hit, ...]
    mode: Mode
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A text to index that is no file: something that was said. `at` is in ms since the epoch."""

    partition: str
    id: str
    text: str
    at: int = 0


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a part works, and what it says about itself."""

    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Status:
    """How the index is doing.

    `problems` maps a note's path to why it is not, or not all, in the index. `degraded` says in
    words what does not work; empty when all is well. `words_off` and `vectors_off` say why a search
    does not look for words, or for what they mean: empty when it does, else "disabled", "weight",
    "empty", "building", or what the embedder said. `last_sync` is in ms, 0 when there was none.
    """

    files: int
    chunks: int
    documents: int
    spaces: Mapping[str, int]
    vectors: int
    mode: Mode
    why: str
    last_sync: int
    last_sync_reason: str
    syncing: bool
    provider: str
    model: str
    endpoint: str
    dims: int
    size: int
    degraded: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    words_off: str = ""
    vectors_off: str = ""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was removed from each place."""

    chunks: int = 0
    vectors: int = 0
    documents: int = 0
    cached: int = 0
