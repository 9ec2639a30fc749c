"""The settings as pages use them: one change after the other, each in effect when it returns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from bot.channel import ChannelPlugin, Trial, TriesSecrets
from bot.config import Config
from bot.settings import Loaded
from bot.settings.changes import Change, ChangeableSettings
from bot.settings.fields import Key

TRIAL_SECONDS = 30.0  # for all that a channel asks about a secret

log = structlog.get_logger(__name__)

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

    async def try_secret(self, key: Key, value: str) -> Trial:
        """Try a channel's secret as it would be used; "untried" where nobody can be asked.

        Raises:
            ConfigError: it cannot be used at all.
        """
        loaded = await self.tried({key: value})
        name = str(key[1])
        plugin = self.plugins.get(name) if key[0] == "channels" else None
        section = loaded.config.channels.get(name) if plugin is not None else None
        if plugin is None or section is None or not plugin.ready(section):
            return Trial("untried")
        channel = await asyncio.to_thread(plugin.create, section)  # it imports an SDK
        if not isinstance(channel, TriesSecrets):
            return Trial("untried")
        try:
            async with asyncio.timeout(TRIAL_SECONDS):
                trial = await channel.tried(str(key[-1]))
        except TimeoutError:
            trial = Trial("slow")
        log.info("settings.secret_tried", option=".".join(map(str, key)), outcome=trial.outcome)
        return trial

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
