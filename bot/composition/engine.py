"""The engine, built: memory, what a model is asked with, and what answers messages."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

import structlog

from bot.agent.model_limits import LimitsResolver
from bot.agent.models.registry import Models
from bot.agent.recall import Recaller
from bot.agent.running import RunningTurns, TurnStops
from bot.agent.session_cache import Prefixes, SessionCache
from bot.agent.tools import Tool
from bot.agent.tools.mcp.servers import McpServers
from bot.agent.tools.memory import MemoryGet, MemoryWrite
from bot.agent.tools.schedule_message import ManageReminders, ScheduleMessage
from bot.agent.tools.search import Elsewhere, MemorySearch, TranscriptSearch
from bot.agent.tools.sending import SendFile, WriteElsewhere
from bot.agent.tools.toolbox import ArtifactGet, Toolbox, ToolPlugins
from bot.commands.commander import Commander, handlers, menu
from bot.commands.conversation import ConversationCommands, ModelChoices
from bot.commands.info import (
    ApprovalCommands,
    ContextCommands,
    InfoCommands,
    ToolCommands,
    UsageCommands,
)
from bot.commands.link import LinkCommands, RoomCommands, WebCommands
from bot.commands.memory import MemoryCommands, NightCommands
from bot.commands.remind import RemindCommands, TimezoneCommands
from bot.composition.core import ProgramCore
from bot.config import OFFLINE
from bot.context import tokens
from bot.delivery.delivery import LiveSigns
from bot.doctor.urgent import Urgent
from bot.errors import ConfigError
from bot.files.opener import FileReader, Limits, Opener
from bot.files.sandbox import Unreadable
from bot.gateway.admission import Admission, Dismissals
from bot.gateway.channels import Hiding
from bot.gateway.commits import TurnRecorder
from bot.gateway.gateway import Gateway
from bot.gateway.lanes import Attempts, Lanes
from bot.gateway.media import Listener, MediaReader, VoiceReader
from bot.gateway.reminders import Reminders
from bot.gateway.requests import Requests
from bot.gateway.tasks import TaskRunner
from bot.gateway.turns import TurnRunner
from bot.housekeeping import Monitor
from bot.i18n import text
from bot.identity.routing import channels_of
from bot.memory.memory import Forgetter, Lookup, Memory
from bot.memory.search import Searcher
from bot.memory.versions import Versions
from bot.money import RUNNING, Allowance, Prices, measure
from bot.push.pusher import Pusher
from bot.sessions.artifacts import ArtifactStore
from bot.sessions.browsing import TranscriptIndex
from bot.speech import api
from bot.speech.api import LocalSpeech, SpeechApi
from bot.storage import records
from bot.storage.records import MetaStore
from bot.unit_of_work import Committer
from bot.upkeep.active_session import ActiveSessions
from bot.upkeep.compaction import CompactionService
from bot.upkeep.deletions import Deletions
from bot.upkeep.flush import Flusher, FlushService
from bot.upkeep.heartbeat import Heartbeats
from bot.upkeep.nights import Nights
from bot.upkeep.notices import NoticeSweep
from bot.upkeep.resets import Sweeper
from bot.upkeep.summary import Summariser, Titles
from bot.upkeep.upkeep import Upkeep
from bot.views.usage import UsageViews

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExtraTools:
    """Tools beside the built-in ones: of a caller, of packages, of MCP servers."""

    tools: tuple[Tool, ...]
    plugins: ToolPlugins
    servers: McpServers


@dataclass(frozen=True, slots=True)
class Agent:
    """The models, and what they are given: limits, prompts, tools and memory."""

    memory: Memory
    models: Models
    limits: LimitsResolver
    prices: Prices
    allowance: Allowance
    committer: Committer
    sessions: ActiveSessions
    prefixes: Prefixes
    recaller: Recaller
    toolbox: Toolbox
    artifacts: ArtifactStore
    files: FileReader
    reminders: Reminders
    servers: McpServers
    forgetter: Forgetter
    lookup: Lookup


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The services that conversations and notes need beside replies."""

    live: LiveSigns
    running: RunningTurns
    upkeep: Upkeep
    sweeper: Sweeper
    notices: NoticeSweep
    nights: Nights
    heartbeats: Heartbeats
    deletions: Deletions
    urgent: Urgent
    health: Monitor


@dataclass(frozen=True, slots=True)
class Engine:
    """The services that answer messages, and send what is due."""

    gateway: Gateway
    lanes: Lanes
    tasks: TaskRunner
    reminders: Reminders
    context: ContextCommands
    maintenance: Maintenance
    dismissals: Dismissals


async def build_memory(core: ProgramCore, searcher: Searcher | None = None) -> Memory:
    """Open the notes and their index; tests may bring another `searcher`."""
    opener = Opener(None, core.clock, Limits(share=math.inf))  # nobody else's files wait for these
    core.stack.push_async_callback(opener.close)
    reader = FileReader(opener)

    async def read(name: str, data: bytes) -> tuple[str, str]:
        try:
            found = await reader.text("", data, name=name)
        except Unreadable as error:
            return "", text("en", f"media.why.{error.reason}")
        return found.text, "only its beginning is read" if found.is_cut else ""

    memory = Memory.from_settings(
        core.settings,
        core.clock,
        searcher,
        core.backend.shared,
        versions=Versions(core.database, core.clock),
        database=core.database,
        read=read,
        saved=core.hooks.saved,
    )
    core.stack.push_async_callback(memory.close)
    await memory.open()
    return memory


async def build_agent(
    core: ProgramCore, memory: Memory, models: Models, extra: ExtraTools, kept: MetaStore
) -> Agent:
    """Build what a model is asked with. `kept` is where limits that were learned are stored."""
    settings, database, clock = core.settings, core.database, core.clock
    core.stack.push_async_callback(models.close)
    limits = await _limits(core, models, kept)
    prices = Prices.of_config(settings.now)
    cache = SessionCache(database, limits.count, is_shared=core.coordination.is_shared)
    spent = partial(measure, core.metrics, prices)
    committer = Committer(database, core.delivery, core.backend.mirrored, cache, spent)
    allowance = Allowance(database, core.resolver, prices, clock)
    if not core.coordination.is_shared:  # nothing runs that was noted before
        await database.write(lambda tx: records.drop_under(tx, RUNNING))
    hiding = Hiding(core)
    await hiding.begin()
    opener = Opener(kept, clock)
    core.stack.push_async_callback(opener.close)
    files, artifacts = FileReader(opener), ArtifactStore(database, clock)
    reminders = Reminders(core, committer, core.scheduler, memory.embedder)
    planning = (ScheduleMessage(database, reminders.expect), ManageReminders(database))
    sending = (SendFile(core.channels, artifacts), WriteElsewhere(database, core.resolver, clock))
    built_in = (*planning, *sending, *_memory_tools(core, memory), ArtifactGet(artifacts))
    toolbox = Toolbox(
        (*built_in, *_web_tools(core, files), *extra.tools),
        more=lambda: (*extra.plugins.tools, *extra.servers.tools()),
        artifacts=artifacts,
        metrics=core.metrics,
        hooks=core.hooks,
    )
    return Agent(
        memory=memory,
        models=models,
        limits=limits,
        prices=prices,
        allowance=allowance,
        committer=committer,
        sessions=ActiveSessions(core, cache, limits, allowance, committer),
        prefixes=Prefixes(memory.files, memory.uses),
        recaller=Recaller(settings, memory.files, database, memory.searcher, memory.uses),
        toolbox=toolbox,
        artifacts=artifacts,
        files=files,
        reminders=reminders,
        servers=extra.servers,
        forgetter=Forgetter(memory, database, hiding.look),
        lookup=Lookup(memory, database, settings),
    )


def build_maintenance(core: ProgramCore, agent: Agent) -> Maintenance:
    """Build what saves memory, makes room, ends conversations, and tells of it."""
    live = LiveSigns(core)
    core.stack.push_async_callback(live.stop)
    running = RunningTurns()
    upkeep = _upkeep(core, agent, live, running)
    core.stack.push_async_callback(upkeep.stop)
    health = Monitor(
        core, core.connections, agent.memory, core.backend.standing, core.delivery.speech
    )
    core.stack.push_async_callback(health.close)
    return Maintenance(
        live=live,
        running=running,
        upkeep=upkeep,
        sweeper=Sweeper(core, agent.committer, upkeep.flush_closed),
        notices=NoticeSweep(core, agent.committer, agent.sessions),
        nights=Nights(core, agent.committer, agent.memory, agent.sessions),
        heartbeats=Heartbeats(core, agent.committer, agent.memory.files),
        deletions=Deletions(
            core,
            agent.committer,
            memory=agent.memory,
            forgetter=agent.forgetter,
            ended=upkeep.end,
            renewed=core.backend.renewed,
        ),
        urgent=Urgent(core, agent.committer, core.connections.all, health.report),
        health=health,
    )


async def build_engine(
    core: ProgramCore,
    agent: Agent,
    maintenance: Maintenance,
    pusher: Pusher,
    joined: Callable[[], Awaitable[None]],
) -> Engine:
    """Build what answers. `joined` is called when somebody joined or parted accounts.

    Raises:
        ConfigError: voice messages are to be understood here, and cannot be.
    """
    committer, upkeep, running = agent.committer, maintenance.upkeep, maintenance.running
    context = ContextCommands(
        committer=committer,
        upkeep=upkeep,
        prefixes=agent.prefixes,
        toolbox=agent.toolbox,
        channels=core.channels,
    )
    choices = ModelChoices(agent.models, core.resolver, core.database)
    stops = TurnStops(running, core.coordination, core.clock)
    services = _commands(core, agent, maintenance, context, choices=choices, stops=stops)
    commander = Commander(
        core,
        handlers=handlers(services),
        committer=committer,
        upkeep=upkeep,
        stops=stops,
        joined=joined,
    )
    admission = Admission(core, committer)
    tasks, lanes = await _turns(core, agent, maintenance, commander, admission)
    gateway = Gateway(
        core,
        committer,
        admission=admission,
        commander=commander,
        stops=stops,
        lanes=lanes,
        upkeep=upkeep,
        connections=core.connections,
        choices=choices,
        reach=pusher.reach,
        sent=core.delivery.sent,
    )
    dismissals = Dismissals(core, running, upkeep)
    return Engine(gateway, lanes, tasks, agent.reminders, context, maintenance, dismissals)


def _commands(
    core: ProgramCore,
    agent: Agent,
    maintenance: Maintenance,
    context: ContextCommands,
    *,
    choices: ModelChoices,
    stops: TurnStops,
) -> tuple[object, ...]:
    """Build the service that carries out commands."""
    info = InfoCommands(
        models=agent.models,
        context=context,
        resolver=core.resolver,
        connections=core.connections.all,
        menu=menu,
    )
    by_night = NightCommands(maintenance.nights.keeper)
    return (
        ConversationCommands(stops, agent.models, choices, by_night),
        context,
        UsageCommands(UsageViews(core.database, core.clock, agent.allowance)),
        info,
        MemoryCommands(agent.memory, core.database, agent.lookup, agent.forgetter, by_night),
        RemindCommands(agent.reminders.expect, core.channels),
        RoomCommands(core.channels),
        LinkCommands(),
        TimezoneCommands(),
        ToolCommands(agent.toolbox, agent.servers),
        ApprovalCommands(),
        WebCommands(core.settings, lambda: core.page.port),
    )


async def _turns(
    core: ProgramCore,
    agent: Agent,
    maintenance: Maintenance,
    commander: Commander,
    admission: Admission,
) -> tuple[TaskRunner, Lanes]:
    """Build what runs tasks, and the lanes with what runs the turns of messages."""
    attempts = Attempts(core, agent.committer)
    if not core.coordination.is_shared:  # there, what a node was doing is seen to by others
        await attempts.begin()
    listener = _listener(core, agent)
    requests = Requests(
        toolbox=agent.toolbox,
        prefixes=agent.prefixes,
        recaller=agent.recaller,
        media=MediaReader(core, agent.artifacts, agent.files, listener),
        upkeep=maintenance.upkeep,
        allowance=agent.allowance,
        clock=core.clock,
    )
    commits = TurnRecorder(core, agent.committer, maintenance.upkeep, agent.prices)
    tasks = TaskRunner(
        core,
        agent.committer,
        requests=requests,
        commits=commits,
        toolbox=agent.toolbox,
        notes=agent.memory.notes,
        running=maintenance.running,
        scheduler=core.scheduler,
        heartbeats=maintenance.heartbeats,
    )
    turns = _turn_runner(
        core, agent, maintenance, requests, commits=commits, listener=listener, attempts=attempts
    )
    return tasks, Lanes(
        core,
        agent.committer,
        commander=commander,
        attempts=attempts,
        admit=admission.admit,
        run_turn=turns.run,
        running=maintenance.running,
        shared=core.backend.turns,
    )


def _turn_runner(
    core: ProgramCore,
    agent: Agent,
    maintenance: Maintenance,
    requests: Requests,
    *,
    commits: TurnRecorder,
    listener: Listener | None,
    attempts: Attempts,
) -> TurnRunner:
    aloud = core.settings.now.speech.reply == "voice"
    return TurnRunner(
        core,
        voice=VoiceReader(core, listener, core.delivery.speech, answers_aloud=aloud),
        requests=requests,
        commits=commits,
        toolbox=agent.toolbox,
        reminders=agent.reminders,
        live=maintenance.live,
        uses=agent.memory.uses,
        attempts=attempts,
        notes=agent.memory.notes,
        replies=maintenance.health.replies,
    )


async def _limits(core: ProgramCore, models: Models, kept: MetaStore) -> LimitsResolver:
    """The capacities of models, with what was learned before."""
    tokenizer = core.settings.now.context.tokenizer
    counter = await asyncio.to_thread(tokens.counter, tokenizer)
    if tokenizer == "tiktoken" and counter.name == tokens.ESTIMATE:
        log.warning("tokens.no_ranks", counts=counter.name)
    limits = LimitsResolver(core.settings, models, kept, counter)
    await limits.load()
    core.stack.push_async_callback(limits.save)
    return limits


def _memory_tools(core: ProgramCore, memory: Memory) -> Iterable[Tool]:
    elsewhere = Elsewhere(core.channels, channels_of(core.settings.now.session))
    transcripts = TranscriptIndex(core.database)
    return (
        MemorySearch(memory.searcher, memory.files, transcripts, elsewhere, core.hooks.find),
        MemoryGet(memory.files),
        MemoryWrite(memory.notes, memory.files),
        TranscriptSearch(transcripts, elsewhere),
    )


def _web_tools(core: ProgramCore, files: FileReader) -> Iterable[Tool]:
    web = core.settings.now.tools.web
    if web.search == "off" and not web.fetch:
        return ()
    from bot.agent.tools.web import search  # noqa: PLC0415 - only where it is configured

    return search.tools_of(web, files, core.stack)


def _listener(core: ProgramCore, agent: Agent) -> Listener | None:
    """Build what understands voice messages, if anything is to."""
    config = core.settings.now.speech
    if config.kind == "none":
        return None
    if config.kind == "local" and (problem := api.local_missing(config)):
        raise ConfigError(problem)
    is_service = config.kind == "openai"
    transcriber = SpeechApi(config) if is_service else LocalSpeech(config, core.clock)
    core.stack.push_async_callback(transcriber.close)
    model = config.model if is_service else OFFLINE
    return Listener(transcriber, model, agent.committer, agent.allowance)


def _upkeep(core: ProgramCore, agent: Agent, live: LiveSigns, running: RunningTurns) -> Upkeep:
    flushes = FlushService(
        core,
        sessions=agent.sessions,
        committer=agent.committer,
        notes=agent.memory.notes,
        flusher=Flusher(agent.memory.notes, agent.memory.files, agent.memory.searcher),
        live=live,
    )
    compactions = CompactionService(
        core,
        sessions=agent.sessions,
        committer=agent.committer,
        summariser=Summariser(),
        live=live,
    )
    return Upkeep(
        core,
        agent.sessions,
        flushes,
        compactions,
        Titles(core, agent.sessions, agent.committer),
        running=running,
    )
