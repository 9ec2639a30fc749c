"""The engine: what receives a message, answers it and does what is due afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

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
from bot.commands.commander import Commander
from bot.commands.context import ContextCommands
from bot.commands.conversation import ConversationCommands, ModelChoices
from bot.commands.info import InfoCommands, UsageCommands
from bot.commands.link import LinkCommands, RoomCommands, WebCommands
from bot.commands.memory import MemoryCommands
from bot.commands.menu import Services, handlers, menu
from bot.commands.night import NightCommands
from bot.commands.remind import RemindCommands, TimezoneCommands
from bot.commands.tools import ApprovalCommands, ToolCommands
from bot.composition.ground import Ground
from bot.delivery.live import LiveSigns
from bot.errors import ConfigError
from bot.files.opener import Opener
from bot.files.reading import FileReader
from bot.gateway.admission import Admission
from bot.gateway.approvals import Approvals
from bot.gateway.attempts import Attempts
from bot.gateway.channels import Hiding
from bot.gateway.commits import TurnRecorder
from bot.gateway.gateway import Gateway
from bot.gateway.lanes import Lanes, tell_waiting
from bot.gateway.media import MediaReader
from bot.gateway.reminders import Reminders
from bot.gateway.requests import Requests
from bot.gateway.tasks import TaskRunner
from bot.gateway.turns import TurnRunner
from bot.gateway.voice import Listener, VoiceReader
from bot.identity.routing import channels_of
from bot.memory.forgetter import Forgetter
from bot.memory.lookup import Lookup
from bot.memory.memory import INDEX
from bot.money.allowance import Allowance
from bot.money.counts import measure
from bot.money.prices import Prices
from bot.push.pusher import Pusher
from bot.sessions.artifacts import ArtifactStore
from bot.sessions.search import TranscriptIndex
from bot.speech import local
from bot.speech.api import SpeechApi
from bot.speech.local import LocalSpeech
from bot.speech.transcriber import Transcriber
from bot.storage.meta import MetaStore
from bot.unit_of_work import Committer
from bot.upkeep.active_session import ActiveSessions
from bot.upkeep.compaction import CompactionService
from bot.upkeep.flush import Flusher, FlushService
from bot.upkeep.nights import NightModel, Nights
from bot.upkeep.notices import NoticeSweep
from bot.upkeep.resets import Sweeper
from bot.upkeep.summary import Summariser
from bot.upkeep.upkeep import Upkeep


@dataclass(frozen=True, slots=True)
class Brought:
    """Tools that come from elsewhere: of a caller, of packages, of servers."""

    tools: tuple[Tool, ...]
    plugins: ToolPlugins
    servers: McpServers


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What was made, as far as it is started, stopped or shown in the page."""

    gateway: Gateway
    lanes: Lanes
    committer: Committer
    reminders: Reminders
    tasks: TaskRunner
    sweeper: Sweeper
    upkeep: Upkeep
    notices: NoticeSweep
    nights: Nights
    context: ContextCommands
    allowance: Allowance
    forgetter: Forgetter
    lookup: Lookup


async def engine_of(
    ground: Ground,
    brought: Brought,
    pusher: Pusher,
    page_port: Callable[[], int],
    joined: Callable[[], Awaitable[None]],
) -> EngineParts:
    """Make the engine; `page_port` is that of the page, 0 while it has none.

    `joined` is called when somebody joined accounts, or parted them.

    Raises:
        ConfigError: voice messages are to be understood here, and cannot be.
    """
    config, clock, database = ground.settings.now, ground.clock, ground.database
    memory, resolver, metrics = ground.memory, ground.resolver, ground.metrics
    channels, coordination, stack = ground.channels, ground.backend.coordination, ground.stack
    prices = Prices.of_config(config)
    live = LiveSigns(database, channels, coordination)
    stack.push_async_callback(live.stop)
    running = RunningTurns()
    stops = TurnStops(running, coordination, clock)
    cache = SessionCache(database, ground.limits.count, is_shared=coordination.is_shared)
    measured = partial(measure, metrics, prices)
    committer = Committer(database, ground.delivery, ground.backend.mirrored, cache, measured)
    allowance = Allowance(database, resolver, prices, clock)
    active = ActiveSessions(cache, database, ground.limits, resolver, allowance)
    artifacts = ArtifactStore(database, clock)
    opener = Opener(MetaStore(database, clock), clock)
    stack.push_async_callback(opener.close)
    reader = FileReader(opener)
    reminders = Reminders(
        resolver=resolver,
        database=database,
        committer=committer,
        scheduler=ground.scheduler,
        clock=clock,
    )
    elsewhere = Elsewhere(channels, channels_of(config.session))
    transcripts = TranscriptIndex(database)
    toolbox = Toolbox(
        (
            ScheduleMessage(reminders),
            MemorySearch(memory.searcher, memory.files, transcripts, elsewhere),
            MemoryGet(memory.files),
            MemoryWrite(memory.notes, memory.files),
            TranscriptSearch(transcripts, elsewhere),
            ArtifactGet(artifacts),
            *_web_tools(ground, reader),
            *brought.tools,
        ),
        more=lambda: (*brought.plugins.tools(), *brought.servers.tools()),
        artifacts=artifacts,
        metrics=metrics,
    )
    prefixes = Prefixes(ground.settings, memory.files, memory.uses)
    upkeep = _upkeep(ground, active, committer, live)
    stack.push_async_callback(upkeep.stop)
    sweeper = Sweeper(resolver, database, committer, upkeep.flush_closed)
    notices = NoticeSweep(
        sessions=active, database=database, committer=committer, channels=channels
    )
    nights = Nights(
        memory=memory,
        resolver=resolver,
        database=database,
        committer=committer,
        clock=clock,
        owns=lambda: coordination.owns(INDEX),
        model=NightModel(active, committer, clock),
    )
    context = ContextCommands(
        committer=committer, upkeep=upkeep, prefixes=prefixes, toolbox=toolbox, channels=channels
    )
    info = InfoCommands(
        models=ground.models,
        context=context,
        resolver=resolver,
        connections=ground.connections.all,
        menu=menu,
    )
    choices = ModelChoices(ground.models, resolver, database)
    lookup = Lookup(memory, database, ground.settings)
    forgetter = await _forgetter(ground)
    services = Services(
        conversation=ConversationCommands(
            stops, ground.models, choices, NightCommands(nights.keeper)
        ),
        context=context,
        usage=UsageCommands(database, resolver, allowance),
        info=info,
        memory=MemoryCommands(memory, database, lookup, forgetter, NightCommands(nights.keeper)),
        remind=RemindCommands(reminders, channels),
        rooms=RoomCommands(channels),
        link=LinkCommands(),
        timezone=TimezoneCommands(),
        tools=ToolCommands(toolbox, brought.servers),
        approvals=ApprovalCommands(),
        web=WebCommands(ground.settings, page_port),
    )
    commander = Commander(
        handlers=handlers(services),
        committer=committer,
        upkeep=upkeep,
        stops=stops,
        resolver=resolver,
        clock=clock,
        joined=joined,
    )
    attempts = Attempts(database=database, committer=committer, clock=clock, metrics=metrics)
    if not coordination.is_shared:  # there, what a node was doing is seen to by others
        await attempts.begin()
    transcriber, listener = _transcriber(ground), None
    if transcriber is not None:
        listener = Listener(transcriber, config.speech.model, committer, clock)
    recaller = Recaller(ground.settings, memory.files, database, memory.searcher, memory.uses)
    requests = Requests(
        toolbox=toolbox,
        prefixes=prefixes,
        recaller=recaller,
        media=MediaReader(channels, artifacts, reader, listener),
        upkeep=upkeep,
        allowance=allowance,
        clock=clock,
    )
    commits = TurnRecorder(committer, upkeep, channels, clock, prices)
    turns = TurnRunner(
        voice=VoiceReader(
            channels=channels,
            listener=listener,
            database=database,
            marks=MetaStore(database, clock),
            allowance=allowance,
            metrics=metrics,
            answers_aloud=config.speech.reply == "voice",
        ),
        requests=requests,
        commits=commits,
        toolbox=toolbox,
        channels=channels,
        running=running,
        live=live,
        uses=memory.uses,
        attempts=attempts,
        approvals=Approvals(database, clock),
        notes=memory.notes,
        metrics=metrics,
    )
    tasks = TaskRunner(
        resolver=resolver,
        database=database,
        committer=committer,
        requests=requests,
        commits=commits,
        toolbox=toolbox,
        notes=memory.notes,
        metrics=metrics,
        scheduler=ground.scheduler,
        clock=clock,
        is_alone=not coordination.is_shared,
    )
    admission = Admission(
        resolver=resolver, database=database, committer=committer, clock=clock, metrics=metrics
    )
    lanes = Lanes(
        settings=ground.settings,
        database=database,
        resolver=resolver,
        commander=commander,
        attempts=attempts,
        admit=admission.admit,
        run_turn=turns.run,
        overflowed=partial(tell_waiting, committer, clock, config.session.queue.cap),
        shared=ground.backend.turns,
    )
    gateway = Gateway(
        admission=admission,
        commander=commander,
        lanes=lanes,
        upkeep=upkeep,
        connections=ground.connections,
        database=database,
        committer=committer,
        clock=clock,
        choices=choices,
        reach=pusher.reach,
    )
    return EngineParts(
        gateway=gateway,
        lanes=lanes,
        committer=committer,
        reminders=reminders,
        tasks=tasks,
        sweeper=sweeper,
        upkeep=upkeep,
        notices=notices,
        nights=nights,
        context=context,
        allowance=allowance,
        forgetter=forgetter,
        lookup=lookup,
    )


async def _forgetter(ground: Ground) -> Forgetter:
    coordination = ground.backend.coordination
    hiding = Hiding(ground.database, ground.resolver, ground.channels, coordination)
    await hiding.begin()
    return Forgetter(ground.memory, ground.database, hiding.look)


def _web_tools(ground: Ground, reader: FileReader) -> Iterable[Tool]:
    web = ground.settings.now.tools.web
    if web.search == "off" and not web.fetch:
        return ()
    from bot.agent.tools.web import setup  # noqa: PLC0415 - only where it is configured

    return setup.tools_of(web, reader, ground.stack)


def _transcriber(ground: Ground) -> Transcriber | None:
    """What understands voice messages, if anything does."""
    config = ground.settings.now.speech
    if config.kind == "none":
        return None
    if config.kind == "local" and (problem := local.missing(config)):
        raise ConfigError(problem)
    found = SpeechApi(config) if config.kind == "openai" else LocalSpeech(config, ground.clock)
    ground.stack.push_async_callback(found.close)
    return found


def _upkeep(
    ground: Ground, active: ActiveSessions, committer: Committer, live: LiveSigns
) -> Upkeep:
    notes = ground.memory.notes
    flushes = FlushService(
        sessions=active,
        committer=committer,
        notes=notes,
        flusher=Flusher(notes, ground.memory.files, ground.memory.searcher),
        live=live,
        clock=ground.clock,
        metrics=ground.metrics,
    )
    compactions = CompactionService(
        sessions=active,
        committer=committer,
        summariser=Summariser(),
        live=live,
        clock=ground.clock,
        metrics=ground.metrics,
    )
    coordination = ground.backend.coordination
    return Upkeep(
        active,
        flushes,
        compactions,
        clock=ground.clock,
        owns=lambda: coordination.owns(INDEX),
        is_alone=not coordination.is_shared,
    )
