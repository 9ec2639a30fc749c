"""The settings as pages use them: one change after the other, each in effect when it returns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from bot.channel import ChannelPlugin
from bot.config import Config
from bot.settings import Loaded
from bot.settings.changes import Change, ChangeableSettings
from bot.settings.fields import Key

Apply = Callable[[Config], Awaitable[Config]]  # puts one into effect; returns what counts then


class ServedSettings:
    """`ChangeableSettings` for many requests at once."""

    def __init__(
        self,
        settings: ChangeableSettings,
        plugins: Mapping[str, ChannelPlugin],
        apply: Apply,
        *,
        is_shared: bool = False,
    ) -> None:
        """`is_shared` when other nodes work on the same database, with files of their own."""
        self.kept = settings
        self.plugins = plugins
        self.is_shared = is_shared
        self._apply = apply
        self._one_by_one = asyncio.Lock()

    @property
    def config(self) -> Config:
        """What counts now."""
        return self.kept.config

    async def tried(self, wanted: Mapping[Key, str | None]) -> Loaded:
        """See `ChangeableSettings.tried`."""
        return await asyncio.to_thread(self.kept.tried, wanted)

    async def change(self, wanted: Mapping[Key, str | None]) -> None:
        """Keep these options, and let them count.

        Raises:
            ConfigError: they cannot be used, or not be written. Nothing was changed.
        """
        await self._take(lambda: self.kept.change(wanted))

    async def take_back(self, change_id: str) -> None:
        """Let count what did before a change.

        Raises:
            ConfigError: it cannot be taken back.
        """
        await self._take(lambda: self.kept.take_back(change_id))

    async def changes(self) -> list[tuple[Change, bool]]:
        """The last changes, each with whether it can be taken back."""

        def look() -> list[tuple[Change, bool]]:
            return [(each, self.kept.may_take_back(each)) for each in self.kept.changes()]

        return await asyncio.to_thread(look)

    async def ours(self) -> frozenset[Key]:
        """The options that are set in the file that is changed here."""
        return await asyncio.to_thread(self.kept.ours)

    async def _take(self, change: Callable[[], Loaded]) -> None:
        # A request that is broken off must not leave a file that says one thing while another
        # counts.
        await asyncio.shield(self._taken(change))

    async def _taken(self, change: Callable[[], Loaded]) -> None:
        async with self._one_by_one:
            loaded = await asyncio.to_thread(change)
            self.kept.config = await self._apply(loaded.config)
