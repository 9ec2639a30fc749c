"""Vectors of an embedder that another package brings (entry points `confidant.embedders`)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint

import numpy as np

from bot.errors import EmbedderError
from bot.memory.vectors import Vectors
from bot.plugins import EMBEDDERS, EmbedderPlugin, Guest, PluginFailed, load_all

MOST_DIMS = 8_192


class PluginEmbedder:
    """Asks a package's function in threads, within a time; what it answers is checked."""

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


def made(name: str, seconds: float) -> PluginEmbedder | str:
    """The embedder of that name, or why there is none."""

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
