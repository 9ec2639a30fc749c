"""The composition root: the only place that wires everything together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import structlog

from bot import recovery, settings
from bot.agent.models import Model
from bot.agent.models.registry import Models, configured
from bot.agent.tools import Tool
from bot.agent.tools.mcp.servers import McpServers
from bot.agent.tools.toolbox import ToolPlugins
from bot.backoff import keep
from bot.channel import PAGE_OWNER, Channel, ChannelPlugin
from bot.clock import Clock, system_clock
from bot.commands.commander import KNOWN
from bot.composition.core import Backend, ProgramCore, open_backend, open_core
from bot.composition.engine import (
    Agent,
    Engine,
    ExtraTools,
    Maintenance,
    build_agent,
    build_engine,
    build_maintenance,
    build_memory,
)
from bot.composition.pages import build_page_access, build_pages
from bot.config import ANTHROPIC, Config, Settings
from bot.context.sentences import phrases
from bot.dashboard.server import DashboardServer, Listening
from bot.doctor import urgent
from bot.errors import ArchiveError, StorageError
from bot.gateway import channels
from bot.gateway.channels import RunningChannels
from bot.identity import Policy
from bot.identity.conversation import local_zone
from bot.memory import selftest
from bot.memory.memory import Memory
from bot.memory.search import Searcher
from bot.memory.selftest import SelfTest
from bot.memory.transcripts import TranscriptFeed
from bot.push.pusher import PUBLIC, Endpoints
from bot.settings import Loaded
from bot.settings.changes import ServedSettings, adopted
from bot.storage import backup, files
from bot.storage.records import MetaStore, begin_reports
from bot.upkeep import deletions, heartbeat, nights
from bot.watchdog import Watchdog

if TYPE_CHECKING:
    from bot.portability.schedule import Backups

STOP_GRACE = 18.0  # seconds running turns and tasks may take to finish when the program stops
SWEEP_SECONDS = 60.0
UNSAVED_SECONDS, FIRST_UNSAVED = 30.0, 5.0  # between two looks at what is still to be saved
PARKED_SECONDS = 600.0  # between tries of what could not be sent
SEND_GRACE = 5.0  # seconds their replies may then take to go out

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that a caller brings itself: tests a clock and a model, `chat` a terminal.

    `tools` are there beside the usual ones. `push_endpoints` says where notes to browsers may go.
    `on_loaded` is called once everything is imported, which goes on after the start. `loaded` is
    where the configuration was read from: without it nothing of it can be changed meanwhile.
    """

    clock: Clock = system_clock
    remote: Model | None = None
    searcher: Searcher | None = None
    channels: Mapping[str, Channel] | None = None
    tools: tuple[Tool, ...] = ()
    dashboard: bool = True
    push_endpoints: Endpoints = PUBLIC
    on_loaded: Callable[[], None] = lambda: None
    loaded: Loaded | None = None


class App:
    """One running Confidant. `async with` starts and stops it; `address` is where the page is."""

    core: ProgramCore
    agent: Agent
    maintenance: Maintenance
    engine: Engine

    def __init__(
        self, config: Config, plugins: Mapping[str, ChannelPlugin], parts: Parts | None = None
    ) -> None:
        self.settings = Settings(config)
        self._plugins = plugins
        self._parts = parts or Parts()
        self._stack = AsyncExitStack()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._grace_ends = 0.0  # by the loop's clock
        self.tool_servers = McpServers(config.tools.mcp)
        self.tool_plugins = ToolPlugins()
        self.server: DashboardServer | None = None
        self.address: Listening | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._build()
            await self._start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._close()

    async def _close(self) -> None:
        self._grace_ends = asyncio.get_running_loop().time() + STOP_GRACE
        await self._stack.aclose()

    async def _build(self) -> None:
        """Build every part. What is opened is closed by the stack, also when a later one fails."""
        parts, stack = self._parts, self._stack
        begin_reports()
        backend = await open_backend(self.settings.now, parts.clock, stack)
        served = await self._served(backend)
        core = self.core = await open_core(self.settings, backend, self._channels(), stack)
        stack.push_async_callback(core.hooks.close)
        self._kept = MetaStore(core.database, core.clock)
        memory = await build_memory(core, parts.searcher)
        extra = ExtraTools(parts.tools, self.tool_plugins, self.tool_servers)
        agent = self.agent = await build_agent(core, memory, self._models(), extra, self._kept)
        access = build_page_access(core, parts.push_endpoints)
        self._browsers = access.browsers
        care = self.maintenance = build_maintenance(core, agent)
        self.engine = await build_engine(core, agent, care, access.pusher, access.browsers.relook)
        if parts.dashboard:
            self.server = build_pages(
                core, agent, self.engine, access, served, backups=lambda: self.backups
            )

    async def _start(self) -> None:
        """Start the parts in order; the stack stops them the other way round."""
        core, engine, stack = self.core, self.engine, self._stack
        delivery, shared_turns = core.delivery, core.backend.turns
        self.watchdog = self._stack.enter_context(Watchdog(core.metrics))
        self.maintenance.health.held = self.watchdog.longest
        language = self.settings.now.agent.language
        await core.database.write(lambda tx: recovery.tell(tx, language, core.clock()))
        await engine.dismissals.sweep()
        await delivery.look()
        self._running = RunningChannels(core.channels, core.connections)
        stack.push_async_callback(self._running.stop)
        await self._running.start(engine.gateway, pages=True)  # first, so that they can be listed
        if self.server is not None:
            self.address = await self.server.start()
            core.page.port = self.address.port
            if not core.coordination.is_shared:
                self._note_address(self.address)
        stack.push_async_callback(delivery.stop, SEND_GRACE)
        if shared_turns is not None:
            stack.push_async_callback(shared_turns.close)
        stack.push_async_callback(self._stop_in_time, engine.lanes.stop)
        if shared_turns is not None:
            stack.callback(shared_turns.stop)
        stack.push_async_callback(self._stop_in_time, engine.tasks.stop)
        await self._running.start(engine.gateway, pages=False)
        if shared_turns is not None:
            shared_turns.start(engine.lanes.run)
        else:
            await engine.lanes.recover()
        delivery.open()
        stack.push_async_callback(core.scheduler.close)
        stack.push_async_callback(self._stop_tasks)
        self._schedule()
        self._start_background()

    def _models(self) -> Models:
        config, remote = self.settings.now.models, self._parts.remote
        services = configured(config, self._kept) if remote is None else {ANTHROPIC: remote}
        return Models(self.settings, services)

    def _channels(self) -> Mapping[str, Channel]:
        if self._parts.channels is not None:
            return self._parts.channels
        return channels.made(self._plugins, self.settings.now.channels)

    async def adopt(self, found: Config) -> None:
        """Let another configuration count, as far as that may change while the program runs.

        One at a time. Services read it where they use it; these are all that act on a change.
        """
        before, remote, models = self.settings.now, self._parts.remote, self.agent.models
        config = adopted(before, found)
        services = (
            configured(config.models, self._kept, before.models, models.services)
            if remote is None
            else {ANTHROPIC: remote}
        )
        self.settings.now = config
        self.core.resolver.adopt(Policy.of(config, local_zone(config), KNOWN))
        await models.adopt(services)
        self.core.backend.adopt(config)
        self._spawn("models.warm_up", models.warm_up)
        await self._running.adopt(self._plugins, before.channels, config.channels)
        await self.core.delivery.look()
        if self.server is not None and before.dashboard.token != config.dashboard.token:
            self.server.renew(config.dashboard.token)
            await self._end_owners_logins()
            await self._running.reopen_pages()  # whoever looks has to show the new one

    async def _served(self, backend: Backend) -> ServedSettings:
        """The settings that may change while the program runs, with earlier changes of any node."""
        found = ServedSettings(
            self.settings,
            self._parts.loaded,
            self._plugins,
            self.adopt,
            database=backend.database if backend.coordination.is_shared else None,
            clock=backend.clock,
        )
        if (said := await found.begin()) is not None:
            self.settings.now = adopted(self.settings.now, said)
            backend.adopt(self.settings.now)
        backend.coordination.on("settings", lambda _event: found.hear())
        return found

    async def _end_owners_logins(self) -> None:
        """On every node: here the cookies are signed with another token, elsewhere they are not."""
        try:
            await self._browsers.end(PAGE_OWNER)
        except StorageError as error:
            log.warning("page.logins_not_ended", error=type(error).__name__)

    def _note_address(self, address: Listening) -> None:
        """Let commands know where the page is, whatever port it got."""
        try:
            self._stack.enter_context(files.serving(self.settings.now.storage.folder, address.url))
        except OSError as error:
            log.warning("page.address_not_noted", error=type(error).__name__)

    def _schedule(self) -> None:
        """Have the scheduler wake what is to be done regularly."""
        core, care = self.core, self.maintenance
        every, clock = core.scheduler.every, core.clock
        again = core.delivery.again
        every("parked", PARKED_SECONDS, again, first=SWEEP_SECONDS)
        every("sweep", SWEEP_SECONDS, lambda: care.sweeper.sweep(clock()))
        every("notices", SWEEP_SECONDS, lambda: care.notices.sweep(clock()))
        every("unsaved", UNSAVED_SECONDS, care.upkeep.look, first=FIRST_UNSAVED)
        every("nights", nights.LOOK_SECONDS, care.nights.look, first=nights.FIRST_SECONDS)
        look = care.heartbeats.look
        every("heartbeats", heartbeat.LOOK_SECONDS, look, first=heartbeat.FIRST_SECONDS)
        every("deleted", deletions.LOOK_SECONDS, care.deletions.look)
        every("urgent", urgent.LOOK_SECONDS, care.urgent.look, first=urgent.FIRST_SECONDS)
        asks = SelfTest(
            self.agent.memory,
            core.database,
            clock,
            self.settings,
            lambda: core.is_leader,
        )
        every("selftest", selftest.LOOK_SECONDS, asks.look, first=selftest.FIRST_SECONDS)
        if self.settings.now.backup.folder is not None:
            from bot.portability import schedule  # noqa: PLC0415 - see `backups`

            first, pause = schedule.FIRST_SECONDS, schedule.LOOK_SECONDS
            every("backups", pause, self.backups.look, first=first)

    @cached_property
    def backups(self) -> Backups:
        """The maker of backups."""
        from bot.portability import schedule  # noqa: PLC0415 - few starts need what it imports

        core, loaded = self.core, self._parts.loaded
        return schedule.Backups(
            self.settings.now,
            core.database,
            core.coordination,
            core.clock,
            metrics=core.metrics,
            settings=lambda: settings.show(loaded) if loaded is not None else "",
        )

    def _start_background(self) -> None:
        """Start what runs for as long as the program does."""
        core, memory, engine = self.core, self.agent.memory, self.engine
        for name, work in core.backend.housework.items():
            self._spawn(name, work)
        feed = TranscriptFeed(core.database, memory.index, self.settings, core.clock)
        self._spawn("memory.feed", lambda: memory.keep(feed, core.coordination))
        self._spawn("memory.uses", memory.keep_uses)
        self._spawn("dismissals", engine.dismissals.keep)
        engine.reminders.start()
        engine.tasks.start()
        folder = self.settings.now.storage.folder
        self._spawn("backup.clear", lambda: _clear_stage(folder))
        self._spawn("scheduler", core.scheduler.start)
        self._spawn("clock.watch", core.scheduler.watch)
        self._spawn("tools.load", self.tool_plugins.load)
        self._spawn("hooks.load", self.core.hooks.load)
        if self.tool_servers:
            self._spawn("tools.servers", self.tool_servers.keep)
        self._spawn("load", lambda: self._finish_loading(self.agent.models, memory))

    async def _finish_loading(self, models: Models, memory: Memory) -> None:
        """Load what a first message needs, in the order in which it does."""
        try:
            await models.warm_up()
            await asyncio.to_thread(phrases)
        finally:
            try:
                await memory.warm_up()
            finally:
                self._parts.on_loaded()
        await models.load_sdks()

    def _spawn(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Begin something in the background, in the place of what has this name."""
        if (before := self._tasks.get(name)) is not None:
            before.cancel()
        self._tasks[name] = keep(name, work)

    async def _stop_in_time(self, stop: Callable[[float], Awaitable[None]]) -> None:
        """Stop something within what is left of `STOP_GRACE`, which all of them share."""
        await stop(max(0.0, self._grace_ends - asyncio.get_running_loop().time()))

    async def _stop_tasks(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _clear_stage(folder: Path) -> None:
    """Remove what a kill left of a backup, unless somebody makes one just now."""
    place = folder / backup.FOLDER / backup.STAGE
    if not await asyncio.to_thread(lambda: place.is_dir() and any(place.iterdir())):
        return

    from bot.portability.backup import stage  # noqa: PLC0415 - few starts need what it imports

    with suppress(ArchiveError):
        async with stage(folder):
            pass
