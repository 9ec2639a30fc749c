"""The settings as pages use them: one change after the other, each in effect when it returns.

Where nodes share a database, options without secrets are changed for all of them, there; secrets,
and what belongs to them, are this node's.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping

import structlog

from bot.channel import ChannelPlugin, Trial
from bot.config import Config
from bot.errors import ConfigError, StorageError
from bot.settings import Loaded
from bot.settings.changes import CHANGED_SINCE, Change, ChangeableSettings, SharedSettings
from bot.settings.fields import Key, is_shared
from bot.storage import Database, Transaction, records

TRIAL_SECONDS = 30.0  # for all that a channel asks about a secret
KEPT_UNDER = "settings"  # in the table of small facts

log = structlog.get_logger(__name__)

Apply = Callable[[Config], Awaitable[None]]  # puts one into effect


class ServedSettings:
    """`ChangeableSettings` for many requests at once, and for all nodes."""

    def __init__(
        self,
        settings: ChangeableSettings,
        plugins: Mapping[str, ChannelPlugin],
        apply: Apply,
        database: Database | None = None,
    ) -> None:
        """`database` is what other nodes work on as well, with files of their own, if any do."""
        self.kept = settings
        self.plugins = plugins
        self._apply = apply
        self._database = database
        self._one_by_one = asyncio.Lock()

    @property
    def is_shared(self) -> bool:
        """True where other nodes work on the same database."""
        return self._database is not None

    @property
    def config(self) -> Config:
        """What counts now."""
        return self.kept.settings.now

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
        if plugin is None or not plugin.ready(section := loaded.config.channels.get(name)):
            return Trial("untried")
        channel = await asyncio.to_thread(plugin.create, section)  # it imports an SDK
        try:
            async with asyncio.timeout(TRIAL_SECONDS):
                trial = await channel.tried(str(key[-1]))
        except TimeoutError:
            trial = Trial("slow")
        log.info("settings.secret_tried", option=".".join(map(str, key)), outcome=trial.outcome)
        return trial

    async def change(self, wanted: Mapping[Key, str | None]) -> None:
        """Keep these options, and let them count: on all nodes, where none is a node's own.

        Raises:
            ConfigError: they cannot be used, or not be written. Nothing was changed.
            StorageError: the database did not take it. Nothing was changed.
        """
        if not wanted:
            return
        if self._is_for_all(wanted):
            await asyncio.shield(self._changed_for_all(wanted))
        else:
            await asyncio.shield(self._changed_here(lambda: self.kept.change(wanted)))

    async def take_back(self, change_id: str) -> None:
        """Let count what did before a change, wherever that one counts.

        Raises:
            ConfigError: it cannot be taken back.
            StorageError: the database did not take it. Nothing was changed.
        """
        found = next((each for each in self.kept.shared.changes if each.id == change_id), None)
        if found is None:
            await asyncio.shield(self._changed_here(lambda: self.kept.take_back(change_id)))
        else:
            before: dict[Key, str | None] = {step.key: step.before for step in found.steps}
            await asyncio.shield(self._changed_for_all(before, takes_back=found))

    async def hear(self) -> None:
        """Another node may have changed something for all: let that count here."""
        async with self._one_by_one:
            await self._read()

    async def begin(self) -> Config | None:
        """What counts at the start by what was changed for all nodes; None where nobody can."""
        loaded = await self._look()
        return None if loaded is None else loaded.config

    async def changes(self) -> list[tuple[Change, bool]]:
        """The last changes, each with whether it can be taken back."""

        def look() -> list[tuple[Change, bool]]:
            return [(each, self.kept.may_take_back(each)) for each in self.kept.changes()]

        return await asyncio.to_thread(look)

    async def ours(self) -> frozenset[Key]:
        """The options that are set where they are changed here."""
        return await asyncio.to_thread(self.kept.ours)

    # --- for all nodes ----------------------------------------------------------------------------

    def _is_for_all(self, wanted: Mapping[Key, str | None]) -> bool:
        if self._database is None or not all(map(is_shared, wanted)):
            return False
        # What is taken out may stand in this node's file, from before.
        return any(
            value is not None or key in self.kept.shared.values for key, value in wanted.items()
        )

    async def _changed_for_all(
        self, wanted: Mapping[Key, str | None], takes_back: Change | None = None
    ) -> None:
        # A request that is broken off must not leave one thing that is kept while another counts.
        async with self._one_by_one:
            if self._database is None:
                return
            await self._look()
            await asyncio.to_thread(self.kept.tried_shared, wanted)
            made = (secrets.token_hex(8), self.kept.now())

            def work(tx: Transaction) -> bool:
                found = SharedSettings.from_json(records.text_of(tx, KEPT_UNDER))
                if takes_back is not None and not found.may_take_back(takes_back):
                    return False
                steps = tuple(
                    found.step(tuple(map(str, key)), value) for key, value in wanted.items()
                )
                undone = takes_back.id if takes_back is not None else ""
                after = found.changed(Change(*made, steps, undone))
                records.keep(tx, KEPT_UNDER, after.to_json(), made[1])
                tx.publish("settings")
                return True

            if not await self._database.write(work):
                raise ConfigError(CHANGED_SINCE)
            names = sorted(".".join(map(str, key)) for key in wanted)
            log.info("settings.changed_for_all", options=names, taken_back=takes_back is not None)
            await self._read()

    async def _read(self) -> None:
        """Let what the database says count here."""
        loaded = await self._look()
        if loaded is not None:
            await self._apply(loaded.config)

    async def _look(self) -> Loaded | None:
        """What the database says, with this node's own files; None without files."""
        if self._database is None:
            return None
        text = await self._database.read(lambda tx: records.text_of(tx, KEPT_UNDER))
        found = SharedSettings.from_json(text)
        return await asyncio.to_thread(self.kept.take_shared, found)

    # --- for this one -----------------------------------------------------------------------------

    async def _changed_here(self, change: Callable[[], Loaded]) -> None:
        async with self._one_by_one:
            loaded = await asyncio.to_thread(change)
            # What could not be used here before may be now, such as a model with its key.
            try:
                loaded = await self._look() or loaded
            except StorageError as error:  # the file is written: it must count
                log.warning("settings.shared_not_read", error=type(error).__name__)
            await self._apply(loaded.config)
