"""The composition root: the only place that wires everything together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import structlog

from bot import housekeeping, recovery, settings
from bot.agent.limits import LimitsResolver
from bot.agent.models import Model
from bot.agent.models.registry import Models, configured
from bot.agent.tools import Tool
from bot.agent.tools.mcp.servers import McpServers
from bot.agent.tools.plugins import ToolPlugins
from bot.backend import Backend, open_backend
from bot.channel import PAGE_OWNER, Address, Channel, ChannelPlugin
from bot.clock import DAY_MS, Clock, system_clock
from bot.commands.menu import KNOWN
from bot.composition import pages
from bot.composition.engine import Brought, engine_of
from bot.composition.ground import Ground
from bot.config import ANTHROPIC, Config, Settings
from bot.context import tokens
from bot.context.phrases import phrases
from bot.coordination import Event
from bot.dashboard.server import DashboardServer, Listening
from bot.dashboard.settings.served import ServedSettings
from bot.delivery.delivery import Delivery
from bot.doctor import urgent
from bot.doctor.urgent import Urgent
from bot.errors import ArchiveError, StorageError
from bot.gateway import channels
from bot.gateway.admission import chat_moved, read_books
from bot.gateway.channels import RunningChannels
from bot.gateway.gateway import Connections
from bot.identity import ConversationResolver, Policy
from bot.identity.policy import local_zone
from bot.memory import selftest
from bot.memory.memory import INDEX, Memory
from bot.memory.search import Searcher
from bot.memory.selftest import SelfTest
from bot.memory.transcripts import TranscriptFeed
from bot.memory.versions import Versions
from bot.metrics import Metrics
from bot.push.pusher import PUBLIC, Endpoints
from bot.scheduler import Scheduler
from bot.sessions import rooms
from bot.settings import Loaded
from bot.settings.changes import ChangeableSettings, adopted
from bot.speech.api import SpeechApi
from bot.storage import Database, backup, files
from bot.storage.meta import MetaStore
from bot.upkeep import nights

STOP_GRACE = 20.0  # seconds running turns may take to finish when the program stops
SWEEP_SECONDS = 60.0
UNSAVED_SECONDS, FIRST_UNSAVED = 30.0, 5.0  # between two looks at what is still to be saved
PARKED_SECONDS = 600.0  # between tries of what could not be sent
SEND_GRACE = 5.0  # seconds their replies may then take to go out

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a caller brings instead of the usual: tests a clock and a model, `chat` a terminal.

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

    def __init__(
        self, config: Config, plugins: Mapping[str, ChannelPlugin], parts: Parts | None = None
    ) -> None:
        self.settings = Settings(config)
        self._plugins = plugins
        self._parts = parts or Parts()
        self._clock = self._parts.clock
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self.server: DashboardServer | None = None
        self.metrics = Metrics()
        self._scheduler = Scheduler(
            lambda: self._clock(),  # noqa: PLW0108 - it is another one once the database is open
            lambda job: self.metrics.job_errors.labels(job).inc(),
        )
        self.tool_servers = McpServers(config.tools.mcp)
        self.tool_plugins = ToolPlugins()
        self.address: Listening | None = None
        self.channels: dict[str, Channel] = {}

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._stack.aclose()

    async def _open(self) -> tuple[Ground, ServedSettings]:
        """What everything is made on, and what of the configuration may be changed meanwhile."""
        backend = await open_backend(self.settings.now, self._parts.clock, self._stack)
        self._backend = backend
        database, clock = backend.database, backend.clock
        changes = await self._served(backend)
        self._clock, self._kept = clock, MetaStore(database, clock)
        models = self.models = self._models(self._kept)
        self._stack.push_async_callback(models.close)
        limits = await self._limits(models)
        self.channels = dict(self._make_channels())
        connections = Connections(self.metrics, backend.coordination, self.channels)
        self._running = RunningChannels(self.channels, connections)
        memory = self.memory = Memory.of(
            self.settings,
            clock,
            self._parts.searcher,
            backend.shared,
            versions=Versions(database, clock),
            database=database,
        )
        self._stack.push_async_callback(memory.close)
        await memory.open()
        self.resolver = await self._read_resolver(database)
        delivery = self._delivery(backend)
        self._look_for_texts = delivery.look
        backend.coordination.on("books", partial(self._read_books, database))
        backend.coordination.on("outbox", lambda _event: delivery.look())
        opened = Ground(
            settings=self.settings,
            plugins=self._plugins,
            backend=backend,
            models=models,
            limits=limits,
            channels=self.channels,
            connections=connections,
            memory=memory,
            resolver=self.resolver,
            delivery=delivery,
            metrics=self.metrics,
            scheduler=self._scheduler,
            stack=self._stack,
        )
        return opened, changes

    async def _start(self) -> None:
        ground, changes = await self._open()
        backend, database, delivery = ground.backend, ground.database, ground.delivery
        reached = pages.reached_of(ground, self._parts.push_endpoints)
        self._browsers = reached.browsers
        brought = Brought(self._parts.tools, self.tool_plugins, self.tool_servers)
        parts = await engine_of(
            ground, brought, reached.pusher, self._page_port, reached.browsers.relook
        )
        self.tasks, self.reminders = parts.tasks, parts.reminders
        self.sweeper, self.notices, self.nights = parts.sweeper, parts.notices, parts.nights
        self.upkeep = parts.upkeep
        gateway, lanes = parts.gateway, parts.lanes
        self.urgent = Urgent(
            resolver=self.resolver,
            database=database,
            committer=parts.committer,
            connections=ground.connections.all,
            clock=ground.clock,
        )
        language = self.settings.now.agent.language
        await database.write(lambda tx: recovery.tell(tx, language, ground.clock()))
        await delivery.look()
        if self._parts.dashboard:
            reread = partial(self._read_books, database, Event("books"))
            self.server = pages.server_of(ground, parts, reached, changes, reread)
        self._stack.push_async_callback(self._running.stop)
        await self._running.start(gateway, pages=True)  # first, so that they can be listed
        if self.server is not None:
            self.address = await self.server.start()
            if not backend.coordination.is_shared:
                self._note_address(self.address)
        self._stack.push_async_callback(delivery.stop, SEND_GRACE)
        if backend.turns is not None:
            self._stack.push_async_callback(backend.turns.close)
        self._stack.push_async_callback(lanes.stop, STOP_GRACE)
        if backend.turns is not None:
            self._stack.callback(backend.turns.stop)
        self._stack.push_async_callback(self.tasks.stop, STOP_GRACE)
        await self._running.start(gateway, pages=False)
        if backend.turns is not None:
            backend.turns.start(lanes.run)
        else:
            await lanes.recover()
        delivery.open()
        self._stack.push_async_callback(self._scheduler.close)
        self._stack.push_async_callback(self._stop_tasks)
        self._background(ground)

    def _delivery(self, backend: Backend) -> Delivery:
        """What sends texts."""
        database, speech = backend.database, self.settings.now.speech

        async def moved(address: Address, chat: str) -> None:
            await chat_moved(database, self.resolver, self._clock(), address, chat)

        return Delivery(
            database,
            self.channels,
            self._clock,
            self.metrics,
            coordination=backend.coordination,
            on_moved=moved,
            speaker=SpeechApi(speech) if speech.reply == "voice" else None,
        )

    async def _read_resolver(self, database: Database) -> ConversationResolver:
        """The configuration, and what people chose before the program was started."""
        now = self._clock()
        await database.write(lambda tx: rooms.prune(tx, now - DAY_MS))
        config = self.settings.now
        policy = Policy.of(config, local_zone(config), KNOWN)
        return ConversationResolver(policy, await database.read(read_books))

    async def _read_books(self, database: Database, _event: Event) -> None:
        # Where writes are made, so that it comes after every link made here before.
        self.resolver.read(await database.write(read_books))

    async def _limits(self, models: Models) -> LimitsResolver:
        """How much models take at once, with what was learned before."""
        tokenizer = self.settings.now.context.tokenizer
        counter = await asyncio.to_thread(tokens.counter, tokenizer)
        if tokenizer == "tiktoken" and counter.name == tokens.ESTIMATE:
            log.warning("tokens.no_ranks", counts=counter.name)
        limits = LimitsResolver(self.settings, models, self._kept, counter)
        await limits.load()
        self._stack.push_async_callback(limits.save)
        return limits

    def _models(self, store: MetaStore) -> Models:
        config, remote = self.settings.now.models, self._parts.remote
        services = configured(config, store) if remote is None else {ANTHROPIC: remote}
        return Models(self.settings, services)

    def _make_channels(self) -> Mapping[str, Channel]:
        if self._parts.channels is not None:
            return self._parts.channels
        return channels.made(self._plugins, self.settings.now.channels)

    async def adopt(self, found: Config) -> None:
        """Let another configuration count, as far as that may change while the program runs.

        One at a time. Services read it where they use it; these are all that act on a change.
        """
        before, remote, models = self.settings.now, self._parts.remote, self.models
        config = adopted(before, found)
        services = (
            configured(config.models, self._kept, before.models, models.services)
            if remote is None
            else {ANTHROPIC: remote}
        )
        self.settings.now = config
        self.resolver.adopt(Policy.of(config, local_zone(config), KNOWN))
        await models.adopt(services)
        self._backend.adopt(config)
        self._spawn(models.warm_up())
        await self._running.adopt(self._plugins, before.channels, config.channels)
        await self._look_for_texts()
        if self.server is not None and before.dashboard.token != config.dashboard.token:
            self.server.renew(config.dashboard.token)
            await self._end_owners_logins()
            await self._running.reopen_pages()  # whoever looks has to show the new one

    async def _served(self, backend: Backend) -> ServedSettings:
        """What may be changed while the program runs, with what was changed on any node before."""
        changeable = ChangeableSettings(self.settings, self._parts.loaded, backend.clock)
        database = backend.database if backend.coordination.is_shared else None
        found = ServedSettings(changeable, self._plugins, self.adopt, database)
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

    def _page_port(self) -> int:
        return self.address.port if self.address is not None else 0

    def _background(self, ground: Ground) -> None:
        backend, memory, clock = ground.backend, ground.memory, ground.clock
        for work in backend.housework:
            self._spawn(work())
        self._spawn(housekeeping.watch_loop(self.metrics))
        feed = TranscriptFeed(ground.database, memory.index, self.settings, clock)
        self._spawn(memory.keep(feed, backend.coordination))
        self._spawn(memory.keep_uses())
        self.reminders.start()
        self.tasks.start()
        again = ground.delivery.again
        self._scheduler.every("parked", PARKED_SECONDS, again, first=SWEEP_SECONDS)
        self._scheduler.every("sweep", SWEEP_SECONDS, lambda: self.sweeper.sweep(clock()))
        self._scheduler.every("notices", SWEEP_SECONDS, lambda: self.notices.sweep(clock()))
        self._scheduler.every("unsaved", UNSAVED_SECONDS, self.upkeep.look, first=FIRST_UNSAVED)
        self._spawn(_clear_stage(self.settings.now.storage.folder))
        if self.settings.now.backup.folder is not None:
            self._keep_backups(ground)
        asks = SelfTest(
            memory,
            ground.database,
            clock,
            self.settings,
            lambda: backend.coordination.owns(INDEX),
        )
        first, pause = selftest.FIRST_SECONDS, selftest.LOOK_SECONDS
        self._scheduler.every("selftest", pause, asks.look, first=first)
        first, pause = nights.FIRST_SECONDS, nights.LOOK_SECONDS
        self._scheduler.every("nights", pause, self.nights.look, first=first)
        first = urgent.FIRST_SECONDS
        self._scheduler.every("urgent", urgent.LOOK_SECONDS, self.urgent.look, first=first)
        self._spawn(self._scheduler.start())
        self._spawn(self.tool_plugins.load())
        if self.tool_servers:
            self._spawn(self.tool_servers.keep())
        self._spawn(self._finish_loading(ground.models, memory))

    def _keep_backups(self, ground: Ground) -> None:
        from bot.portability import schedule  # noqa: PLC0415 - few starts need what it imports

        loaded = self._parts.loaded
        backups = schedule.Backups(
            self.settings.now,
            ground.database,
            ground.backend.coordination,
            ground.clock,
            metrics=self.metrics,
            settings=lambda: settings.show(loaded) if loaded is not None else "",
        )
        first, pause = schedule.FIRST_SECONDS, schedule.LOOK_SECONDS
        self._scheduler.every("backups", pause, backups.look, first=first)

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

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(_told_if_failed)
        self._tasks.append(task)

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _clear_stage(folder: Path) -> None:
    """Remove what a kill left of a backup, unless somebody makes one just now."""
    place = folder / backup.FOLDER / backup.STAGE
    if not await asyncio.to_thread(lambda: place.is_dir() and any(place.iterdir())):
        return

    from bot.portability.backup import stage  # noqa: PLC0415 - few starts need what it imports

    with suppress(ArchiveError):
        async with stage(folder):
            pass


def _told_if_failed(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background.failed", error=type(error).__name__, exc_info=error)
