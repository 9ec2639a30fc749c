"""The page: its server, what stands behind the guard, and the browsers that are let in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot import housekeeping
from bot.channel import reveal
from bot.composition.core import ProgramCore
from bot.composition.engine import Agent, Engine
from bot.dashboard.browsers import LOOK_SECONDS, Browsers
from bot.dashboard.channels import ChannelPages, ScopePages
from bot.dashboard.conversations import ConversationPages
from bot.dashboard.mcp import McpPages
from bot.dashboard.memory.browsing import MemoryBrowser, MemorySources
from bot.dashboard.memory.editing import MemoryEditor
from bot.dashboard.memory.forgetting import MemoryConfirming, MemoryForgetting, MemoryNight
from bot.dashboard.overview import BackupPages, ContextPages, OverviewPages
from bot.dashboard.pages import WayPages
from bot.dashboard.people import AccountPages, LoginPages, Passwords, PeoplePages, ProgramPages
from bot.dashboard.push import PushLogins, PushPages
from bot.dashboard.reminders import ReminderPages
from bot.dashboard.server import DashboardServer, HasRoutes, MemoryPages
from bot.dashboard.settings.pages import SettingsPages
from bot.dashboard.settings.start import StartPages
from bot.dashboard.temporary import TemporaryPages
from bot.dashboard.usage import UsagePages
from bot.doctor.services import examined
from bot.memory.selftest import MemoryGrowth
from bot.push.pusher import Endpoints, Pusher
from bot.settings.changes import ServedSettings
from bot.settings.fields import Key
from bot.storage.records import MetaStore
from bot.upkeep.nights import Nights
from bot.views.usage import UsageViews

if TYPE_CHECKING:
    from bot.portability.schedule import Backups

GROWTH_SECONDS = 3600.0
FIRST_GROWTH_SECONDS = 60.0  # after a start


@dataclass(frozen=True, slots=True)
class PageAccess:
    """The browsers that are let in, what tells them, and the page where they ask for that."""

    browsers: Browsers
    pusher: Pusher
    pages: PushPages


def build_page_access(core: ProgramCore, endpoints: Endpoints) -> PageAccess:
    """Build what tells browsers; `endpoints` says where notes to them may go."""
    settings, database, clock = core.settings, core.database, core.clock
    browsers = Browsers(database, core.resolver, clock)
    logins = PushLogins(lambda: reveal(settings.now.dashboard.token), browsers.of)
    pusher = Pusher(database, clock, settings, logins.holding, endpoints=endpoints)
    core.stack.push_async_callback(pusher.stop)
    return PageAccess(browsers, pusher, PushPages(pusher, logins, database))


def build_pages(
    core: ProgramCore,
    agent: Agent,
    engine: Engine,
    access: PageAccess,
    settings: ServedSettings,
    *,
    backups: Callable[[], Backups],
) -> DashboardServer:
    """Build the server with every page."""
    if (standing := core.backend.standing) is not None:
        housekeeping.count_nodes(core.metrics, standing)
    passwords, browsers = Passwords(), access.browsers
    core.coordination.on("books", browsers.heard)
    core.scheduler.every("logins", LOOK_SECONDS, browsers.look)
    people, rooms = _people(core, browsers, settings)

    async def waiting() -> Mapping[str, int]:
        return {"/people": await people.waiting(), "/channels": await rooms.waiting()}

    server = DashboardServer(
        core.settings.now.dashboard,
        readiness=engine.maintenance.health.report,
        registry=core.metrics.registry,
        name=lambda: core.settings.now.agent.name,
        language=lambda: core.settings.now.agent.language,
        channels=(
            WayPages(core.settings),
            *_chat_pages(core, agent, engine),
            *_memory_pages(core, agent, engine.maintenance.nights),
            LoginPages(browsers, core.settings),
            AccountPages(browsers, passwords),
            ProgramPages(browsers, core.settings),
            access.pages,
            people,
            rooms,
            *_owner_pages(core, agent, settings, backups=backups),
            *core.channels.values(),
        ),
        browsers=browsers,
        resolver=core.resolver,
        clock=core.clock,
        passwords=passwords,
        waiting=waiting,
    )
    core.stack.push_async_callback(server.stop)
    return server


def _chat_pages(core: ProgramCore, agent: Agent, engine: Engine) -> tuple[HasRoutes, ...]:
    """Build the pages about conversations, and the overview."""
    receive, care = engine.gateway.receive, engine.maintenance
    growth = MemoryGrowth(agent.memory, core.database, core.clock)
    core.scheduler.every("growth", GROWTH_SECONDS, growth.note, first=FIRST_GROWTH_SECONDS)
    programs = McpPages(agent.toolbox, agent.memory.notes, core.database)
    core.stack.push_async_callback(programs.stop)
    return (
        ConversationPages(core.database, receive, care.deletions),
        ReminderPages(core.database, agent.reminders.expect),
        UsagePages(UsageViews(core.database, core.clock, agent.allowance)),
        OverviewPages(core.database, growth, care.health.report),
        ContextPages(engine.context, core.database, receive),
        TemporaryPages(
            limits=agent.limits,
            files=agent.memory.files,
            charging=lambda here: agent.committer.charging(
                agent.allowance.account(here), "", "chat"
            ),
            running=care.running,
        ),
        programs,
    )


def _owner_pages(
    core: ProgramCore,
    agent: Agent,
    settings: ServedSettings,
    *,
    backups: Callable[[], Backups],
) -> tuple[HasRoutes, ...]:
    """Build the owner's pages of settings and backups."""
    made = BackupPages(lambda: backups().files(), lambda: backups().make_now(), core.settings)
    core.stack.push_async_callback(made.stop)
    return (
        ScopePages(settings, core.database),
        made,
        StartPages(
            settings,
            core.connections.all,
            MetaStore(core.database, core.clock),
            lambda here: agent.committer.charging(agent.allowance.account(here), "", "trial"),
        ),
        SettingsPages(settings, agent.models.names),
    )


def _memory_pages(core: ProgramCore, agent: Agent, nights: Nights) -> tuple[HasRoutes, ...]:
    memory, database = agent.memory, core.database
    return (
        MemoryPages(memory),
        MemoryBrowser(memory, agent.lookup, database),
        MemorySources(memory, database),
        MemoryConfirming(memory),
        MemoryEditor(memory, database),
        MemoryNight(nights.keeper),
        MemoryForgetting(agent.forgetter, agent.committer),
    )


def _people(
    core: ProgramCore, browsers: Browsers, settings: ServedSettings
) -> tuple[PeoplePages, ChannelPages]:
    """The owner's pages of people and of channels."""

    def origins() -> Mapping[Key, str]:
        return settings.origins

    async def changed() -> None:
        await core.read_books()
        await browsers.look()  # whoever may not talk any more may not look on either

    people = PeoplePages(core, origins=origins, read_books=changed, post=core.delivery.post)
    channels = ChannelPages(
        core,
        connections=core.connections.all,
        plugins=settings.plugins,
        examine=examined,
        origins=origins,
        read_books=changed,
    )
    return people, channels
