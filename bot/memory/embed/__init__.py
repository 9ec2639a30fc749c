"""Texts as vectors, behind a small seam: a local model, any /v1/embeddings, or none at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.config import EmbedderConfig
from bot.errors import EmbedderError
from bot.memory.vectors import Vectors

__all__ = ["Embedder", "EmbedderError", "Identity", "NoEmbedder", "identity", "make"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Where vectors come from: those of two identities are never compared."""

    provider: str
    model: str
    endpoint: str


class Embedder(Protocol):
    """Something that makes vectors of texts."""

    @property
    def provider(self) -> str:
        """What it is called in the configuration: "local", "openai" or "none"."""
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
        """How long its vectors are; 0 until it was used."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector of length one for each text, in order.

        Raises:
            EmbedderError: it cannot, now or ever; its message says why.
        """
        ...

    async def close(self) -> None:
        """Let go of what it holds. Closing twice is harmless."""
        ...


class NoEmbedder:
    """Search by words alone."""

    provider = "none"
    model = ""
    endpoint = ""
    dims = 0

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Refuse.

        Raises:
            EmbedderError: always.
        """
        raise EmbedderError("no embedder is configured")

    async def close(self) -> None:
        """Nothing to do."""


def identity(embedder: Embedder) -> Identity:
    """Where an embedder's vectors come from."""
    return Identity(embedder.provider, embedder.model, embedder.endpoint)


def make(config: EmbedderConfig) -> Embedder:
    """The embedder a configuration asks for; nothing is loaded or connected yet."""
    # Imported here, so that numpy's models and HTTP clients cost nothing where they are off.
    if config.provider == "local":
        from bot.memory.embed.local import LocalEmbedder  # noqa: PLC0415

        return LocalEmbedder()
    if config.provider == "openai":
        from bot.memory.embed.remote import RemoteEmbedder  # noqa: PLC0415

        return RemoteEmbedder(config)
    return NoEmbedder()
