"""Where everything is kept: a folder of this machine, or a PostgreSQL that many nodes share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import structlog

from bot import housekeeping
from bot.channel import reveal
from bot.clock import Clock
from bot.cluster.extra import needing_extra
from bot.config import Config
from bot.coordination import Alone, Coordination, Shared, SharedTurns, Standing
from bot.invocation import confidant
from bot.recovery import TRANSCRIPTS, open_database
from bot.sessions.mirror import Mirror
from bot.sessions.store import Appended
from bot.storage import Database
from bot.storage.files import DATABASE_NAME, DataDirLock, clear_unbegun_restore

log = structlog.get_logger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Backend:
    """What the program stands on.

    Attributes:
        database: where everything said is.
        coordination: what is told to, and agreed with, other programs on the same database.
        mirrored: takes the lines that transactions added to transcripts.
        clock: the time that counts, in ms since the epoch; the same one for all nodes.
        housework: what it needs done while the program runs.
        shared: where notes are rows, what memory stands on; None where they are files.
        turns: where any of many nodes may answer a message; None where there is but this one.
        standing: how this node stands among many; None where there is but this one.
        adopt: goes by another configuration while the program runs.
    """

    database: Database
    coordination: Coordination
    mirrored: Callable[[Iterable[Appended]], object]
    clock: Clock
    housework: Sequence[Work]
    shared: Shared | None = None
    turns: SharedTurns | None = None
    standing: Callable[[], Standing] | None = None
    adopt: Callable[[Config], None] = lambda _config: None


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
        clock,
        (
            lambda: housekeeping.mend_modes(folder),
            lambda: housekeeping.repair_mirror(mirror),
            lambda: housekeeping.keep_copies(storage, database, clock),
            coordination.run,
        ),
    )


async def _shared(config: Config, url: str, clock: Clock, stack: AsyncExitStack) -> Backend:
    with needing_extra():
        from bot.cluster.census import mark_of  # noqa: PLC0415 - the same
        from bot.cluster.node import Node  # noqa: PLC0415 - its packages are an extra
        from bot.cluster.retention import Retention  # noqa: PLC0415
        from bot.cluster.tables import prune_lanes  # noqa: PLC0415
        from bot.cluster.turns import Turns  # noqa: PLC0415
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
        node.clock,
        (
            lambda: housekeeping.prune_regularly(node.database, node.clock, prune_lanes),
            retention.run,
            node.hear_others,
        ),
        Shared(node.database, node),
        Turns(node, config.session.max_turns),
        node.standing,
        adopt,
    )
