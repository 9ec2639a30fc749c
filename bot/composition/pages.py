"""The page: its server, what stands behind the guard, and the browsers that are let in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot import housekeeping
from bot.channel import reveal
from bot.composition.core import ProgramCore
from bot.composition.engine import Agent, Engine
from bot.dashboard.backups import BackupPages
from bot.dashboard.browsers import LOOK_SECONDS, Browsers
from bot.dashboard.channels import ChannelPages
from bot.dashboard.conversations import ConversationPages
from bot.dashboard.logins import AccountPages, LoginPages, Passwords, ProgramPages
from bot.dashboard.mcp import McpPages
from bot.dashboard.memory.browsing import MemoryBrowser, MemorySearching
from bot.dashboard.memory.editing import MemoryEditor
from bot.dashboard.memory.forgetting import MemoryConfirming, MemoryForgetting, MemoryNight
from bot.dashboard.memory.sources import MemorySources
from bot.dashboard.overview import ContextPages, OverviewPages
from bot.dashboard.pages import Visits, WayPages
from bot.dashboard.people import PeoplePages
from bot.dashboard.push import PushLogins, PushPages
from bot.dashboard.reminders import ReminderPages
from bot.dashboard.scope import ScopePages
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
    return PageAccess(browsers, pusher, PushPages(pusher, logins, database, clock))


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
    visits, passwords, browsers = Visits(core.resolver), Passwords(), access.browsers
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
            *_chat_pages(core, agent, engine, visits),
            *_memory_pages(core, agent, engine.maintenance.nights, visits),
            *_login_pages(core, access, visits, passwords),
            people,
            rooms,
            *_owner_pages(core, agent, settings, visits, backups=backups),
            *core.channels.values(),
        ),
        browsers=browsers,
        passwords=passwords,
        waiting=waiting,
    )
    core.stack.push_async_callback(server.stop)
    return server


def _chat_pages(
    core: ProgramCore, agent: Agent, engine: Engine, visits: Visits
) -> tuple[HasRoutes, ...]:
    """Build the pages about conversations, and the overview."""
    receive, care = engine.gateway.receive, engine.maintenance
    growth = MemoryGrowth(agent.memory, core.database, core.clock)
    core.scheduler.every("growth", GROWTH_SECONDS, growth.note, first=FIRST_GROWTH_SECONDS)
    programs = McpPages(core, visits, agent.toolbox, agent.memory.notes)
    core.stack.push_async_callback(programs.stop)
    return (
        ConversationPages(core, visits, receive, care.deletions),
        ReminderPages(core, visits, agent.reminders.expect),
        UsagePages(UsageViews(core.database, core.clock, agent.allowance), visits),
        OverviewPages(core, growth, visits, care.health.report),
        ContextPages(core, visits, engine.context, receive),
        TemporaryPages(
            visits=visits,
            limits=agent.limits,
            files=agent.memory.files,
            charging=lambda here: agent.committer.charging(
                agent.allowance.account(here), "", "chat"
            ),
            running=care.running,
            clock=core.clock,
        ),
        programs,
    )


def _login_pages(
    core: ProgramCore, access: PageAccess, visits: Visits, passwords: Passwords
) -> tuple[HasRoutes, ...]:
    """Build the pages of accounts, browsers and programs that are let in."""
    return (
        LoginPages(access.browsers, visits, core.settings),
        AccountPages(access.browsers, visits, passwords),
        ProgramPages(access.browsers, visits, core.settings),
        access.pages,
    )


def _owner_pages(
    core: ProgramCore,
    agent: Agent,
    settings: ServedSettings,
    visits: Visits,
    *,
    backups: Callable[[], Backups],
) -> tuple[HasRoutes, ...]:
    """Build the owner's pages of settings and backups."""
    made = BackupPages(
        lambda: backups().files(), lambda: backups().make_now(), core.settings, visits
    )
    core.stack.push_async_callback(made.stop)
    return (
        ScopePages(settings, core.database),
        made,
        StartPages(
            settings,
            core.connections.all,
            MetaStore(core.database, core.clock),
            lambda request: agent.committer.charging(
                agent.allowance.account(visits.of(request)), "", "trial"
            ),
        ),
        SettingsPages(settings, agent.models.names),
    )


def _memory_pages(
    core: ProgramCore, agent: Agent, nights: Nights, visits: Visits
) -> tuple[HasRoutes, ...]:
    memory, database, clock = agent.memory, core.database, core.clock
    return (
        MemoryPages(memory),
        MemoryBrowser(core, visits, memory),
        MemorySources(visits, memory, database),
        MemorySearching(visits, agent.lookup, clock),
        MemoryConfirming(visits, memory, clock),
        MemoryEditor(core, visits, memory),
        MemoryEditor(core, visits, memory, of_all=True),
        MemoryNight(visits, nights.keeper),
        MemoryForgetting(visits, agent.forgetter, agent.committer, clock),
    )


def _people(
    core: ProgramCore, browsers: Browsers, settings: ServedSettings
) -> tuple[PeoplePages, ChannelPages]:
    """The owner's pages of people and of channels."""

    def origins() -> Mapping[Key, str]:
        return settings.origins

    def invitation(channel: str, account: str) -> str:
        found = core.channels.get(channel)
        return found.invitation(account) if found is not None else ""

    async def changed() -> None:
        await core.read_books()
        await browsers.look()  # whoever may not talk any more may not look on either

    people = PeoplePages(core, origins=origins, read_books=changed, post=core.delivery.post)
    channels = ChannelPages(
        core,
        connections=core.connections.all,
        plugins=settings.plugins,
        invitation=invitation,
        examine=examined,
        origins=origins,
        read_books=changed,
    )
    return people, channels
