"""The database, the folder and the channels: what every other part is built on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from typing import Any

import structlog

from bot import backoff, housekeeping
from bot.channel import Address, Channel, reveal
from bot.clock import DAY_MS, Clock
from bot.cluster.extra import needing_extra
from bot.commands.commander import KNOWN
from bot.config import Config, Settings
from bot.coordination import Alone, Coordination, Event, Shared, SharedTurns, Standing
from bot.core import Core
from bot.delivery.delivery import Delivery
from bot.gateway.admission import chat_moved, read_books
from bot.gateway.gateway import Connections
from bot.identity import ConversationResolver, Policy
from bot.identity.conversation import local_zone
from bot.invocation import confidant
from bot.recovery import TRANSCRIPTS, open_database
from bot.scheduler import Scheduler
from bot.sessions import rooms
from bot.sessions.mirror import Mirror
from bot.sessions.store import Appended
from bot.speech.api import SpeechApi
from bot.storage import Database
from bot.storage.files import DATABASE_NAME, DataDirLock, clear_unbegun_restore

log = structlog.get_logger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Backend:
    """The foundation of the program.

    Attributes:
        database: where everything said is.
        coordination: what is told to, and agreed with, other programs on the same database.
        mirrored: takes the lines that transactions added to transcripts.
        renewed: writes the file of a transcript again, of which some was removed for good.
        clock: the time that counts, in ms since the epoch; the same one for all nodes.
        housework: what it needs done while the program runs, by name.
        shared: where notes are rows, what memory stands on; None where they are files.
        turns: where any of many nodes may answer a message; None where there is but this one.
        standing: how this node stands among many; None where there is but this one.
        adopt: goes by another configuration while the program runs.
    """

    database: Database
    coordination: Coordination
    mirrored: Callable[[Iterable[Appended]], object]
    renewed: Callable[[str], Awaitable[None]]
    clock: Clock
    housework: Mapping[str, Work]
    shared: Shared | None = None
    turns: SharedTurns | None = None
    standing: Callable[[], Standing] | None = None
    adopt: Callable[[Config], None] = lambda _config: None


async def _nothing(_session_id: str) -> None:
    """Nodes that share a database have no such files."""


async def open_backend(config: Config, clock: Clock, stack: AsyncExitStack) -> Backend:
    """Open what the configuration names; `stack` closes it.

    Raises:
        StorageError: it cannot be used; the message says what to do.
        ConfigError: it names a PostgreSQL, and the extra for it is not installed.
    """
    url = reveal(config.storage.url)
    return await (_shared(config, url, clock, stack) if url else _alone(config, clock, stack))


async def _alone(config: Config, clock: Clock, stack: AsyncExitStack) -> Backend:
    storage, folder = config.storage, config.storage.folder
    stack.enter_context(DataDirLock(folder))
    await asyncio.to_thread(clear_unbegun_restore, folder, config.workspace)
    database = await open_database(folder, clock)
    stack.push_async_callback(database.close)
    mirror = Mirror(database, folder / TRANSCRIPTS)
    await mirror.start()
    stack.push_async_callback(mirror.stop)
    coordination = Alone(database)
    return Backend(
        database,
        coordination,
        mirror.add,
        mirror.renew,
        clock,
        {
            "storage.modes": lambda: housekeeping.mend_modes(folder),
            "mirror.repair": lambda: housekeeping.repair_mirror(mirror),
            "storage.copies": lambda: housekeeping.keep_copies(storage, database, clock),
            "storage.look": coordination.run,
        },
    )


async def _shared(config: Config, url: str, clock: Clock, stack: AsyncExitStack) -> Backend:
    with needing_extra():
        from bot.cluster.census import mark_of, prune_lanes  # noqa: PLC0415 - an extra
        from bot.cluster.node import Node, Retention  # noqa: PLC0415 - the same
        from bot.cluster.turns import Turns  # noqa: PLC0415 - the same
    if (config.storage.folder / DATABASE_NAME).exists():
        hint = (
            "it holds conversations, and [storage] url is what is used: they are not in that "
            f"database unless `{confidant('move')}` copied them, and nothing here is changed"
        )
        log.warning("storage.folder_left", folder=str(config.storage.folder), hint=hint)
    storage = config.storage
    direct = reveal(storage.direct_url)
    node = await Node.open(url, clock, storage.node_timeout, direct=direct, cluster=storage.cluster)
    stack.push_async_callback(node.close)
    retention = Retention(url, node.database, storage.keep_months)

    def adopt(config: Config) -> None:
        retention.keep(config.storage.keep_months)
        node.page_token = mark_of(reveal(config.dashboard.token))

    node.page_token = mark_of(reveal(config.dashboard.token))
    return Backend(
        node.database,
        node,
        lambda _lines: None,
        _nothing,
        node.clock,
        {
            "storage.prune": lambda: housekeeping.prune_regularly(
                node.database, node.clock, prune_lanes
            ),
            "retention": retention.run,
            "node.hear": node.hear_others,
        },
        Shared(node.database, node),
        Turns(node, config.session.max_turns),
        node.standing,
        adopt,
    )


# What everything else is built on.


@dataclass(slots=True)
class PageAddress:
    """The address of the page. `port` is 0 while it is not served."""

    port: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCore(Core):
    """The core, and what the program itself starts. What is opened is closed by `stack`."""

    backend: Backend
    connections: Connections
    delivery: Delivery
    scheduler: Scheduler
    page: PageAddress
    stack: AsyncExitStack

    async def read_books(self, _event: Event | None = None) -> None:
        """Read again what people chose: links, pairings, rooms."""
        # Where writes are made, so that it comes after every link made here before.
        self.resolver.read(await self.database.write(read_books))


async def open_core(
    settings: Settings, backend: Backend, channels: Mapping[str, Channel], stack: AsyncExitStack
) -> ProgramCore:
    """Open what everything is built on, once it is known where everything is kept."""
    database, clock = backend.database, backend.clock
    await database.write(lambda tx: rooms.prune(tx, clock() - DAY_MS))
    policy = Policy.of(settings.now, local_zone(settings.now), KNOWN)
    base = Core(
        settings=settings,
        database=database,
        clock=clock,
        coordination=backend.coordination,
        resolver=ConversationResolver(policy, await database.read(read_books)),
        channels=dict(channels),
    )
    metrics, shared = base.metrics, {each.name: getattr(base, each.name) for each in fields(base)}
    core = ProgramCore(
        **shared,
        backend=backend,
        connections=Connections(base),
        delivery=_delivery(base),
        scheduler=Scheduler(clock, lambda job: metrics.job_errors.labels(job).inc()),
        page=PageAddress(),
        stack=stack,
    )
    metrics.follow(
        "background_failures",
        "How often background tasks failed since the start; each begins anew.",
        backoff.failures,
    )
    metrics.follow(
        "clock_jumps",
        "How often the machine's clock has jumped since the start.",
        lambda: core.scheduler.jumps,
    )
    core.coordination.on("books", core.read_books)
    core.coordination.on("outbox", lambda _event: core.delivery.look())
    return core


def _delivery(core: Core) -> Delivery:
    """Build what sends texts."""
    speech = core.settings.now.speech

    async def moved(address: Address, chat: str) -> None:
        await chat_moved(core.database, core.resolver, core.clock(), address, chat)

    speaker = SpeechApi(speech) if speech.reply == "voice" else None
    return Delivery(core, on_moved=moved, speaker=speaker)
