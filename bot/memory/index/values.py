"""What goes into the index and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.memory.search import Mode


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How much of what is in the index; `size` in bytes, `spaces` in chunks.

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
    """How the index is doing.

    `degraded` says in words what does not work; empty when all is well. `words_off` and
    `vectors_off` say why a search does not look for words, or for what they mean: empty when it
    does, else "disabled", "weight", "empty", "building", or what the embedder said. `last_sync` is
    in ms, 0 when there was none.
    """

    mode: Mode
    why: str
    last_sync: int
    last_sync_reason: str
    syncing: bool
    provider: str
    model: str
    endpoint: str
    degraded: tuple[str, ...] = ()
    words_off: str = ""
    vectors_off: str = ""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was removed from each place."""

    chunks: int = 0
    vectors: int = 0
    documents: int = 0
    cached: int = 0
