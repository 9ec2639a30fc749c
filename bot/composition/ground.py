"""What the engine and the page are made on: opened before them, closed after them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bot.agent.limits import LimitsResolver
from bot.agent.models.registry import Models
from bot.backend import Backend
from bot.channel import Channel, ChannelPlugin
from bot.clock import Clock
from bot.config import Config, Settings
from bot.delivery.delivery import Delivery
from bot.gateway.gateway import Connections
from bot.identity import ConversationResolver
from bot.memory.memory import Memory
from bot.metrics import Metrics
from bot.scheduler import Scheduler
from bot.storage import Database


@dataclass(slots=True)
class LiveConfig(Settings):
    """The configuration that counts, and what is told when it is another one."""

    told: list[Callable[[Config], None]] = field(default_factory=list[Callable[[Config], None]])

    def tell(self, *takes: Callable[[Config], None]) -> None:
        """Have these called with each configuration that counts from then on."""
        self.told += takes

    def announce(self) -> None:
        """Tell them of the one that counts now."""
        for take in self.told:
            take(self.now)


@dataclass(frozen=True, slots=True)
class Ground:
    """What everything is made of; what is made puts its own end onto `stack`."""

    settings: LiveConfig
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
