"""What the engine and the page are made on: opened before them, closed after them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bot.agent.limits import LimitsResolver
from bot.agent.models.registry import Models
from bot.backend import Backend
from bot.channel import Channel, ChannelPlugin
from bot.clock import Clock
from bot.config import Settings
from bot.delivery.delivery import Delivery
from bot.gateway.gateway import Connections
from bot.identity import ConversationResolver
from bot.memory.memory import Memory
from bot.metrics import Metrics
from bot.scheduler import Scheduler
from bot.storage import Database


@dataclass(frozen=True, slots=True)
class Ground:
    """What everything is made of; what is made puts its own end onto `stack`."""

    settings: Settings
    plugins: Mapping[str, ChannelPlugin]
    backend: Backend
    models: Models
    limits: LimitsResolver
    channels: Mapping[str, Channel]
    connections: Connections
    memory: Memory
    resolver: ConversationResolver
    delivery: Delivery
    metrics: Metrics
    scheduler: Scheduler
    stack: AsyncExitStack

    @property
    def database(self) -> Database:
        """Where everything said is."""
        return self.backend.database

    @property
    def clock(self) -> Clock:
        """The time that counts, in ms since the epoch."""
        return self.backend.clock
