"""The page: its server, what stands behind the guard, and the browsers that are let in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from bot import housekeeping
from bot.channel import HttpRoutes, reveal
from bot.composition.engine import EngineParts
from bot.composition.ground import Ground
from bot.dashboard.api import MemoryPages, Readiness
from bot.dashboard.browsers import LOOK_SECONDS, Browsers
from bot.dashboard.channels import ChannelPages
from bot.dashboard.conversations import ConversationPages
from bot.dashboard.logins import AccountPages, LoginPages, Passwords
from bot.dashboard.memory.browsing import MemoryBrowser, MemorySearching
from bot.dashboard.memory.editing import MemoryEditor
from bot.dashboard.memory.forgetting import MemoryConfirming, MemoryForgetting
from bot.dashboard.memory.night import MemoryNight
from bot.dashboard.overview import ContextPages, OverviewPages
from bot.dashboard.pages import Visits, WayPages
from bot.dashboard.people import PeoplePages
from bot.dashboard.push import PushLogins, PushPages
from bot.dashboard.server import DashboardServer
from bot.dashboard.settings.pages import SettingsPages
from bot.dashboard.settings.served import ServedSettings
from bot.dashboard.settings.start import StartPages
from bot.dashboard.usage import UsagePages
from bot.doctor.channels import examined
from bot.memory.growth import MemoryGrowth
from bot.push.pusher import Endpoints, Pusher
from bot.settings.fields import Key
from bot.storage.meta import MetaStore

GROWTH_SECONDS = 3600.0
FIRST_GROWTH_SECONDS = 60.0  # after a start


@dataclass(frozen=True, slots=True)
class Reached:
    """The browsers that are let in, what tells them, and the page where they ask for that."""

    browsers: Browsers
    pusher: Pusher
    pages: PushPages


def reached_of(ground: Ground, endpoints: Endpoints) -> Reached:
    """Make what tells browsers; `endpoints` says where notes to them may go."""
    settings, database, clock = ground.settings, ground.database, ground.clock
    browsers = Browsers(database, ground.resolver, clock)
    logins = PushLogins(lambda: reveal(settings.now.dashboard.token), browsers.of)
    pusher = Pusher(database, clock, settings, logins.holding, endpoints=endpoints)
    ground.stack.push_async_callback(pusher.stop)
    return Reached(browsers, pusher, PushPages(pusher, logins, database, clock))


def server_of(
    ground: Ground,
    engine: EngineParts,
    reached: Reached,
    settings: ServedSettings,
    read_books: Callable[[], Awaitable[None]],
) -> DashboardServer:
    """Make the server with every page; `read_books` has what people chose read again."""
    clock, database, backups = ground.clock, ground.database, ground.settings.now.backup
    memory, metrics, standing = ground.memory, ground.metrics, ground.backend.standing
    if standing is not None:
        housekeeping.count_nodes(metrics, standing)

    async def readiness() -> Readiness:
        return await housekeeping.readiness(
            *(database, ground.connections, memory, clock, standing), backups=backups
        )

    visits, passwords = Visits(ground.resolver), Passwords()
    growth = MemoryGrowth(memory, database, clock)
    ground.scheduler.every("growth", GROWTH_SECONDS, growth.note, first=FIRST_GROWTH_SECONDS)
    browsers = reached.browsers
    ground.backend.coordination.on("books", browsers.heard)
    ground.scheduler.every("logins", LOOK_SECONDS, browsers.look)
    server = DashboardServer(
        ground.settings.now.dashboard,
        readiness=readiness,
        registry=metrics.registry,
        name=lambda: ground.settings.now.agent.name,
        channels=(
            WayPages(ground.settings),
            ConversationPages(database, visits, clock),
            MemoryPages(memory),
            MemoryBrowser(visits, memory, database, clock),
            MemorySearching(visits, engine.lookup, clock),
            MemoryConfirming(visits, memory, clock),
            MemoryEditor(visits, memory, database, clock),
            MemoryEditor(visits, memory, database, clock, of_all=True),
            MemoryNight(visits, engine.nights.keeper),
            MemoryForgetting(visits, engine.forgetter, engine.committer, clock),
            UsagePages(database, clock, engine.allowance, visits),
            OverviewPages(database, growth, visits, clock, standing),
            ContextPages(visits, engine.context, database, engine.gateway.receive, clock),
            LoginPages(browsers, visits, ground.settings),
            AccountPages(browsers, visits, passwords),
            *_people(ground, browsers, settings, read_books),
            StartPages(settings, ground.connections.all, MetaStore(database, clock)),
            SettingsPages(settings),
            reached.pages,
            *(each for each in ground.channels.values() if isinstance(each, HttpRoutes)),
        ),
        browsers=browsers,
        passwords=passwords,
    )
    ground.stack.push_async_callback(server.stop)
    return server


def _people(
    ground: Ground,
    browsers: Browsers,
    settings: ServedSettings,
    read_books: Callable[[], Awaitable[None]],
) -> tuple[HttpRoutes, ...]:
    """The owner's pages of people and of channels."""

    def origins() -> Mapping[Key, str]:
        return settings.kept.origins

    async def changed() -> None:
        await read_books()
        await browsers.look()  # whoever may not talk any more may not look on either

    people = PeoplePages(
        database=ground.database,
        resolver=ground.resolver,
        origins=origins,
        read_books=changed,
        post=ground.delivery.post,
        clock=ground.clock,
    )
    channels = ChannelPages(
        database=ground.database,
        resolver=ground.resolver,
        connections=ground.connections.all,
        plugins=ground.plugins,
        examine=examined,
        origins=origins,
        read_books=changed,
        clock=ground.clock,
    )
    return people, channels
