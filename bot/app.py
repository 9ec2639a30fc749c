"""The composition root: the only place that wires everything together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import structlog

from bot import housekeeping, recovery
from bot.agent.limits import LimitsResolver
from bot.agent.models import Model
from bot.agent.models.registry import Models, configured, renewed
from bot.agent.prefix import Prefixes
from bot.agent.recall import Recaller
from bot.agent.session_cache import SessionCache
from bot.agent.stopping import TurnStops
from bot.agent.tools import Tool
from bot.agent.tools.artifacts import ArtifactGet
from bot.agent.tools.mcp.servers import McpServers
from bot.agent.tools.memory import MemoryGet, MemoryWrite
from bot.agent.tools.plugins import ToolPlugins
from bot.agent.tools.schedule_message import ScheduleMessage
from bot.agent.tools.search import Elsewhere, MemorySearch, TranscriptSearch
from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import RunningTurns
from bot.backend import Backend, open_backend
from bot.channel import PAGE_OWNER, Address, Channel, ChannelPlugin, HttpRoutes, reveal
from bot.clock import DAY_MS, Clock, system_clock
from bot.commands.approvals import ApprovalCommands
from bot.commands.choices import ModelChoices
from bot.commands.commander import Commander, handlers
from bot.commands.context import ContextCommands
from bot.commands.conversation import ConversationCommands
from bot.commands.info import InfoCommands
from bot.commands.link import LinkCommands
from bot.commands.memory import MemoryCommands
from bot.commands.menu import KNOWN
from bot.commands.remind import RemindCommands
from bot.commands.rooms import RoomCommands
from bot.commands.timezone import TimezoneCommands
from bot.commands.tools import ToolCommands
from bot.commands.usage import UsageCommands
from bot.commands.web import WebCommands
from bot.config import ANTHROPIC, Config
from bot.context import tokens
from bot.coordination import Event
from bot.dashboard.account import AccountPages
from bot.dashboard.api import MemoryPages, Readiness
from bot.dashboard.browsers import LOOK_SECONDS, Browsers
from bot.dashboard.channels import ChannelPages
from bot.dashboard.context import ContextPages
from bot.dashboard.conversations import ConversationPages
from bot.dashboard.logins import LoginPages
from bot.dashboard.memory.browsing import MemoryBrowser
from bot.dashboard.memory.editing import MemoryEditor
from bot.dashboard.memory.forgetting import MemoryForgetting
from bot.dashboard.memory.searching import MemorySearching
from bot.dashboard.overview import OverviewPages
from bot.dashboard.pages import WayPages
from bot.dashboard.passwords import Passwords
from bot.dashboard.people import PeoplePages
from bot.dashboard.push import PushLogins, PushPages
from bot.dashboard.server import DashboardServer, Listening
from bot.dashboard.settings.pages import SettingsPages
from bot.dashboard.settings.served import ServedSettings
from bot.dashboard.settings.start import StartPages
from bot.dashboard.usage import UsagePages
from bot.dashboard.visits import Visits
from bot.delivery.delivery import Delivery
from bot.delivery.live import LiveSigns
from bot.errors import ConfigError, StorageError
from bot.files.opener import Opener
from bot.files.reading import FileReader
from bot.gateway import channels
from bot.gateway.admission import Admission, chat_moved, read_books
from bot.gateway.approvals import Approvals
from bot.gateway.attempts import Attempts
from bot.gateway.channels import RunningChannels
from bot.gateway.commits import TurnRecorder
from bot.gateway.gateway import Connections, Gateway
from bot.gateway.lanes import Lanes, tell_waiting
from bot.gateway.listener import Listener
from bot.gateway.media import MediaReader
from bot.gateway.reminders import Reminders
from bot.gateway.requests import Requests
from bot.gateway.tasks import TaskRunner
from bot.gateway.turns import TurnRunner
from bot.gateway.voice import VoiceReader
from bot.identity import ConversationResolver, Policy
from bot.identity.routing import channels_of
from bot.identity.zone import local_zone
from bot.memory.forgetter import Forgetter
from bot.memory.growth import MemoryGrowth
from bot.memory.lookup import Lookup
from bot.memory.memory import Memory
from bot.memory.search import Searcher
from bot.memory.transcripts import TranscriptFeed
from bot.memory.versions import Versions
from bot.metrics import Metrics
from bot.money.allowance import Allowance
from bot.money.measuring import measure
from bot.money.prices import Prices
from bot.push.pusher import PUBLIC, Endpoints, Pusher
from bot.scheduler import Scheduler
from bot.sessions import rooms
from bot.sessions.artifacts import ArtifactStore
from bot.sessions.search import TranscriptIndex
from bot.settings import Loaded
from bot.settings.changes import ChangeableSettings, adopted
from bot.settings.fields import Key
from bot.settings.live import LIVE
from bot.speech import local
from bot.speech.api import SpeechApi
from bot.speech.local import LocalSpeech
from bot.speech.transcriber import Transcriber
from bot.storage import Database
from bot.storage.meta import MetaStore
from bot.unit_of_work import Committer
from bot.upkeep.active_session import ActiveSessions
from bot.upkeep.compaction import CompactionService
from bot.upkeep.flush import Flusher, FlushService
from bot.upkeep.notices import NoticeSweep
from bot.upkeep.resets import Sweeper
from bot.upkeep.summary import Summariser
from bot.upkeep.upkeep import Upkeep

STOP_GRACE = 20.0  # seconds running turns may take to finish when the program stops
SWEEP_SECONDS = 60.0
GROWTH_SECONDS = 3600.0
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
        self._config = config
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
        self._configured: list[Callable[[Config], None]] = []  # what is told of another one

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        config = self._config
        backend = await open_backend(config, self._parts.clock, self._stack)
        database, clock = backend.database, backend.clock
        changes = await self._settings(backend)
        config = self._config
        self._clock, self._kept = clock, MetaStore(database, clock)
        models = self.models = self._models(self._kept)
        self._stack.push_async_callback(models.close)
        limits = await self._limits(models)
        self.channels = dict(self._make_channels())
        connections = Connections(self.metrics, backend.coordination, self.channels)
        self._running = RunningChannels(self.channels, connections)
        memory = Memory.of(
            config, clock, self._parts.searcher, backend.shared, Versions(database, clock)
        )
        self._stack.push_async_callback(memory.close)
        await memory.open()
        self._configured += [backend.configure, memory.configure]
        resolver = self.resolver = await self._read_resolver(database)

        delivery = self._delivery(backend)
        self._look_for_texts = delivery.look
        backend.coordination.on("books", partial(self._read_books, database))
        backend.coordination.on("outbox", lambda _event: delivery.look())
        gateway, lanes = await self._gateway(
            resolver=resolver,
            database=database,
            backend=backend,
            models=models,
            limits=limits,
            delivery=delivery,
            connections=connections,
            memory=memory,
        )
        await database.write(lambda tx: recovery.tell(tx, config.agent.language, clock()))
        await delivery.look()
        if self._parts.dashboard:
            self.server = self._server(backend, connections, memory, delivery, changes)
        self._stack.push_async_callback(self._running.stop)
        await self._running.start(gateway, pages=True)  # first, so that they can be listed
        if self.server is not None:
            self.address = await self.server.start()
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
        self._background(
            resolver=resolver,
            database=database,
            delivery=delivery,
            backend=backend,
            models=models,
            memory=memory,
        )

    async def _gateway(
        self,
        *,
        resolver: ConversationResolver,
        database: Database,
        backend: Backend,
        models: Models,
        limits: LimitsResolver,
        delivery: Delivery,
        connections: Connections,
        memory: Memory,
    ) -> tuple[Gateway, Lanes]:
        config, clock, prices = self._config, self._clock, Prices.of_config(self._config)
        live = LiveSigns(database, self.channels, backend.coordination)
        self._stack.push_async_callback(live.stop)
        running = RunningTurns()
        stops = TurnStops(running, backend.coordination, clock)
        cache = SessionCache(database, limits.count, is_shared=backend.coordination.is_shared)
        measured = partial(measure, self.metrics, prices)
        committer = self.committer = Committer(
            database, delivery, backend.mirrored, cache, measured
        )
        active = ActiveSessions(cache, limits, resolver)
        artifacts = ArtifactStore(database, clock)
        opener = Opener(MetaStore(database, clock), clock)
        self._stack.push_async_callback(opener.close)
        reader = FileReader(opener)
        self.reminders = Reminders(
            resolver=resolver,
            database=database,
            committer=committer,
            scheduler=self._scheduler,
            clock=clock,
        )
        allowance = self.allowance = Allowance(config.limits, database, resolver, prices, clock)
        elsewhere = Elsewhere(self.channels, channels_of(config.session))
        transcripts = TranscriptIndex(database)
        toolbox = Toolbox(
            (
                ScheduleMessage(self.reminders),
                MemorySearch(memory.searcher, memory.files, transcripts, elsewhere),
                MemoryGet(memory.files),
                MemoryWrite(memory.notes, memory.files),
                TranscriptSearch(transcripts, elsewhere),
                ArtifactGet(artifacts),
                *self._web_tools(reader),
                *self._parts.tools,
            ),
            more=lambda: (*self.tool_plugins.tools(), *self.tool_servers.tools()),
            artifacts=artifacts,
            metrics=self.metrics,
        )
        prefixes = Prefixes(config, memory.files)
        upkeep = self._upkeep(active, committer, memory, live)
        self._stack.push_async_callback(upkeep.stop)
        self.sweeper = Sweeper(resolver, database, committer, upkeep.flush_closed)
        self.notices = NoticeSweep(
            config=config.context,
            sessions=active,
            database=database,
            committer=committer,
            channels=self.channels,
        )
        context = self.context = ContextCommands(
            committer=committer,
            upkeep=upkeep,
            prefixes=prefixes,
            toolbox=toolbox,
            channels=self.channels,
        )
        info = InfoCommands(
            models=models,
            context=context,
            resolver=resolver,
            connections=connections.all,
        )
        choices = ModelChoices(models, resolver, database, config.agent.choices)
        lookup = Lookup(memory, database, config.memory.max_results)
        known = handlers(
            conversation=ConversationCommands(stops, models, choices),
            context=context,
            usage=UsageCommands(database, resolver, allowance),
            info=info,
            memory=MemoryCommands(
                memory,
                database,
                lookup,
                Forgetter(memory, database),
            ),
            remind=RemindCommands(self.reminders, self.channels),
            rooms=RoomCommands(self.channels),
            link=LinkCommands(),
            timezone=TimezoneCommands(),
            tools=ToolCommands(toolbox, self.tool_servers),
            approvals=ApprovalCommands(),
            web=WebCommands(lambda: self._config.dashboard, self._page_port),
        )
        commander = Commander(
            handlers=known,
            committer=committer,
            upkeep=upkeep,
            stops=stops,
            resolver=resolver,
            clock=clock,
        )
        attempts = Attempts(
            database=database, committer=committer, clock=clock, metrics=self.metrics
        )
        if not backend.coordination.is_shared:  # there, what a node was doing is seen to by others
            await attempts.begin()
        transcriber, listener = self._transcriber(), None
        if transcriber is not None:
            listener = Listener(transcriber, config.speech.model, committer, clock)
        recaller = Recaller(config.memory, memory.files, database, memory.searcher)
        requests = Requests(
            config=config,
            toolbox=toolbox,
            prefixes=prefixes,
            recaller=recaller,
            media=MediaReader(self.channels, artifacts, reader, listener),
            upkeep=upkeep,
            allowance=allowance,
            clock=clock,
        )
        self._configured += [
            limits.configure,
            prefixes.configure,
            requests.configure,
            allowance.configure,
            choices.configure,
            upkeep.configure,
            self.notices.configure,
            recaller.configure,
            lookup.configure,
        ]
        commits = TurnRecorder(committer, upkeep, self.channels, clock, prices)
        turns = TurnRunner(
            voice=VoiceReader(
                channels=self.channels,
                listener=listener,
                database=database,
                marks=MetaStore(database, clock),
                allowance=allowance,
                metrics=self.metrics,
                answers_aloud=config.speech.reply == "voice",
            ),
            requests=requests,
            commits=commits,
            toolbox=toolbox,
            channels=self.channels,
            running=running,
            live=live,
            attempts=attempts,
            approvals=Approvals(database, clock),
            notes=memory.notes,
            metrics=self.metrics,
        )
        self.tasks = TaskRunner(
            resolver=resolver,
            database=database,
            committer=committer,
            requests=requests,
            commits=commits,
            toolbox=toolbox,
            notes=memory.notes,
            metrics=self.metrics,
            scheduler=self._scheduler,
            clock=clock,
            longest=config.agent.turn_timeout,
            is_alone=not backend.coordination.is_shared,
        )
        self._configured.append(self.tasks.configure)
        admission = Admission(
            resolver=resolver,
            database=database,
            committer=committer,
            clock=clock,
            metrics=self.metrics,
        )
        lanes = Lanes(
            config=config.session,
            database=database,
            resolver=resolver,
            commander=commander,
            attempts=attempts,
            admit=admission.admit,
            run_turn=turns.run,
            overflowed=partial(tell_waiting, committer, clock, config.session.queue.cap),
            shared=backend.turns,
        )
        self._configured.append(lanes.configure)
        gateway = self.gateway = Gateway(
            admission=admission,
            commander=commander,
            lanes=lanes,
            upkeep=upkeep,
            connections=connections,
            database=database,
            committer=committer,
            clock=clock,
            choices=choices,
            reach=self._pusher(database).reach,
        )
        return gateway, lanes

    def _pusher(self, database: Database) -> Pusher:
        """What tells browsers that are let in, and the page where they ask for that."""
        self._browsers = Browsers(database, self.resolver, self._clock)
        logins = PushLogins(lambda: reveal(self._config.dashboard.token), self._browsers.of)
        pusher = Pusher(
            database,
            self._clock,
            self._config.agent.name,
            logins.holding,
            endpoints=self._parts.push_endpoints,
        )
        self._configured.append(pusher.configure)
        self._stack.push_async_callback(pusher.stop)
        self._push = PushPages(pusher, logins, database, self._clock)
        return pusher

    def _web_tools(self, reader: FileReader) -> Iterable[Tool]:
        web = self._config.tools.web
        if web.search == "off" and not web.fetch:
            return ()
        from bot.agent.tools.web import setup  # noqa: PLC0415 - only where it is configured

        return setup.tools_of(web, reader, self._stack)

    def _transcriber(self) -> Transcriber | None:
        """What understands voice messages, if anything does."""
        config = self._config.speech
        if config.kind == "none":
            return None
        if config.kind == "local" and (problem := local.missing(config)):
            raise ConfigError(problem)
        found = SpeechApi(config) if config.kind == "openai" else LocalSpeech(config, self._clock)
        self._stack.push_async_callback(found.close)
        return found

    def _upkeep(
        self, active: ActiveSessions, committer: Committer, memory: Memory, live: LiveSigns
    ) -> Upkeep:
        config, clock = self._config, self._clock
        flushes = FlushService(
            config=config.context,
            sessions=active,
            committer=committer,
            notes=memory.notes,
            flusher=Flusher(memory.notes, memory.files, config.memory.flush),
            live=live,
            clock=clock,
            metrics=self.metrics,
        )
        compactions = CompactionService(
            config=config.context,
            sessions=active,
            committer=committer,
            summariser=Summariser(),
            live=live,
            clock=clock,
            metrics=self.metrics,
        )
        return Upkeep(config.context, active, flushes, compactions)

    def _delivery(self, backend: Backend) -> Delivery:
        """What sends texts."""
        database, speech = backend.database, self._config.speech

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
        policy = Policy.of(self._config, local_zone(self._config), KNOWN)
        return ConversationResolver(policy, await database.read(read_books))

    async def _read_books(self, database: Database, _event: Event) -> None:
        # Where writes are made, so that it comes after every link made here before.
        self.resolver.read(await database.write(read_books))

    async def _limits(self, models: Models) -> LimitsResolver:
        """How much models take at once, with what was learned before."""
        config, context = self._config, self._config.context
        counter = await asyncio.to_thread(tokens.counter, context.tokenizer)
        if context.tokenizer == "tiktoken" and counter.name == tokens.ESTIMATE:
            log.warning("tokens.no_ranks", counts=counter.name)
        limits = LimitsResolver(config, models, self._kept, counter)
        await limits.load()
        self._stack.push_async_callback(limits.save)
        return limits

    def _models(self, store: MetaStore) -> Models:
        config, remote = self._config.models, self._parts.remote
        services = configured(config, store) if remote is None else {ANTHROPIC: remote}
        agent = self._config.agent
        return Models(config, services, agent.model, agent.fallback)

    def _make_channels(self) -> Mapping[str, Channel]:
        if self._parts.channels is not None:
            return self._parts.channels
        return channels.made(self._plugins, self._config.channels)

    async def adopt(self, found: Config) -> Config:
        """Let another configuration count, as far as that may change while the program runs.

        What counts then; one at a time.
        """
        before, remote, models = self._config, self._parts.remote, self.models
        config = adopted(before, found, LIVE)
        services = (
            renewed(before.models, models.services, config.models, self._kept)
            if remote is None
            else {ANTHROPIC: remote}
        )
        self._config = config
        self.resolver.configure(Policy.of(config, local_zone(config), KNOWN))
        agent = config.agent
        await models.configure(config.models, services, agent.model, agent.fallback)
        for take in self._configured:
            take(config)
        self._spawn(models.warm_up())
        await self._running.configure(self._plugins, before.channels, config.channels)
        await self._look_for_texts()
        if self.server is not None and before.dashboard.token != config.dashboard.token:
            self.server.renew(config.dashboard.token)
            await self._end_owners_logins()
            await self._running.reopen_pages()  # whoever looks has to show the new one
        return config

    async def _settings(self, backend: Backend) -> ServedSettings:
        """What may be changed while the program runs, with what was changed on any node before."""
        changeable = ChangeableSettings(self._config, self._parts.loaded, backend.clock)
        database = backend.database if backend.coordination.is_shared else None
        found = ServedSettings(changeable, self._plugins, self.adopt, database)
        if (said := await found.begin()) is not None:
            self._config = changeable.config = adopted(self._config, said, LIVE)
            backend.configure(self._config)
        backend.coordination.on("settings", lambda _event: found.hear())
        return found

    async def _end_owners_logins(self) -> None:
        """On every node: here the cookies are signed with another token, elsewhere they are not."""
        try:
            await self._browsers.end(PAGE_OWNER)
        except StorageError as error:
            log.warning("page.logins_not_ended", error=type(error).__name__)

    def _page_port(self) -> int:
        return self.address.port if self.address is not None else 0

    def _server(
        self,
        backend: Backend,
        connections: Connections,
        memory: Memory,
        delivery: Delivery,
        settings: ServedSettings,
    ) -> DashboardServer:
        if backend.standing is not None:
            housekeeping.count_nodes(self.metrics, backend.standing)
        pages = [channel for channel in self.channels.values() if isinstance(channel, HttpRoutes)]

        async def readiness() -> Readiness:
            return await housekeeping.readiness(
                backend.database, connections, memory, self._clock, backend.standing
            )

        zone = local_zone(self._config)
        visits, passwords = Visits(self.resolver), Passwords()
        usage = UsagePages(backend.database, zone, self._clock, self.allowance, visits)
        self._configured.append(usage.configure)
        growth = MemoryGrowth(memory, backend.database, self._clock)
        self._scheduler.every("growth", GROWTH_SECONDS, growth.note, first=SWEEP_SECONDS)
        overview = OverviewPages(backend.database, growth, zone, self._clock, backend.standing)
        self._configured.append(overview.configure)
        context = ContextPages(
            visits, self.context, backend.database, self.gateway.receive, self._clock
        )
        conversations = ConversationPages(
            backend.database, visits, self._clock, self._config.agent.name
        )
        self._configured.append(conversations.configure)
        lookup = Lookup(memory, backend.database, self._config.memory.max_results)
        self._configured.append(lookup.configure)
        browsers = self._browsers
        backend.coordination.on("books", browsers.heard)
        self._scheduler.every("logins", LOOK_SECONDS, browsers.look)
        ways = WayPages(self._config.agent.name, self._config.session.owner_name)
        self._configured.append(ways.configure)
        server = DashboardServer(
            self._config.dashboard,
            readiness=readiness,
            registry=self.metrics.registry,
            name=self._config.agent.name,
            channels=(
                ways,
                conversations,
                MemoryPages(memory),
                MemoryBrowser(visits, memory, self._clock),
                MemorySearching(visits, lookup),
                MemoryEditor(visits, memory, backend.database, self._clock),
                MemoryEditor(visits, memory, backend.database, self._clock, of_all=True),
                MemoryForgetting(
                    visits, Forgetter(memory, backend.database), self.committer, self._clock
                ),
                usage,
                overview,
                context,
                LoginPages(browsers, visits, lambda: self._config.dashboard),
                AccountPages(browsers, visits, passwords),
                *self._people(backend.database, connections, delivery, settings),
                StartPages(settings, connections.all),
                SettingsPages(settings),
                self._push,
                *pages,
            ),
            browsers=browsers,
            passwords=passwords,
        )
        self._stack.push_async_callback(server.stop)
        self._configured.append(server.configure)
        return server

    def _people(
        self,
        database: Database,
        connections: Connections,
        delivery: Delivery,
        settings: ServedSettings,
    ) -> tuple[HttpRoutes, ...]:
        """The owner's pages of people and of channels."""

        def origins() -> Mapping[Key, str]:
            return settings.kept.origins

        async def read_books() -> None:
            await self._read_books(database, Event("books"))
            await self._browsers.look()  # whoever may not talk any more may not look on either

        people = PeoplePages(
            database=database,
            resolver=self.resolver,
            origins=origins,
            read_books=read_books,
            post=delivery.post,
            clock=self._clock,
        )
        channels = ChannelPages(
            database=database,
            resolver=self.resolver,
            connections=connections.all,
            plugins=self._plugins,
            origins=origins,
            read_books=read_books,
            clock=self._clock,
        )
        return people, channels

    def _background(
        self,
        *,
        resolver: ConversationResolver,
        database: Database,
        delivery: Delivery,
        backend: Backend,
        models: Models,
        memory: Memory,
    ) -> None:
        config, clock = self._config, self._clock
        for work in backend.housework:
            self._spawn(work())
        self._spawn(housekeeping.watch_loop(self.metrics))
        feed = TranscriptFeed(database, memory.index, config.memory.retention_days, clock)
        self._configured.append(feed.configure)
        self._spawn(memory.keep(feed, backend.coordination))
        self.reminders.start()
        self.tasks.start()
        self._scheduler.every("parked", PARKED_SECONDS, delivery.again, first=SWEEP_SECONDS)
        self._scheduler.every("sweep", SWEEP_SECONDS, lambda: self.sweeper.sweep(clock()))
        self._scheduler.every("notices", SWEEP_SECONDS, lambda: self.notices.sweep(clock()))
        self._spawn(self._scheduler.start())
        self._spawn(self.tool_plugins.load())
        if self.tool_servers:
            self._spawn(self.tool_servers.keep())
        self._spawn(self._finish_loading(models))

    async def _finish_loading(self, models: Models) -> None:
        try:
            await models.warm_up()
        finally:
            self._parts.on_loaded()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(_told_if_failed)
        self._tasks.append(task)

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _told_if_failed(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background.failed", error=type(error).__name__, exc_info=error)
