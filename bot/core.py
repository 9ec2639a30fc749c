"""The infrastructure that every service is built on, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from bot.channel import Channel
from bot.clock import Clock
from bot.config import Settings
from bot.coordination import Coordination
from bot.identity import ConversationResolver
from bot.metrics import Metrics
from bot.plugins import Hooks
from bot.storage import Database

INDEX = "index"  # what the node that builds the index is alone in doing


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The parts that all services share.

    Attributes:
        settings: the configuration; read it where it is used (`settings.now`).
        database: the database; with PostgreSQL, all nodes have the same one.
        clock: the current time in ms since the epoch; the same one for all nodes.
        coordination: events and ownership between the programs on one database.
        resolver: resolves who wrote, and where, into a `Conversation`.
        channels: the channels that are running, by name.
    """

    settings: Settings
    database: Database
    clock: Clock
    coordination: Coordination
    resolver: ConversationResolver
    channels: dict[str, Channel]
    metrics: Metrics = field(default_factory=Metrics)
    hooks: Hooks = field(default_factory=Hooks)

    @property
    def is_leader(self) -> bool:
        """True on the one node that builds the index and does what is done once for all nodes."""
        return self.coordination.owns(INDEX)
