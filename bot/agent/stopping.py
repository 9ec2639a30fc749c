"""Stopping a turn from whichever node somebody asks for it."""

from __future__ import annotations

import asyncio
import secrets

import structlog

from bot.agent.turn import RunningTurns
from bot.clock import Clock
from bot.coordination import Coordination, Event
from bot.errors import StorageError

HEARD_MS = 1_000  # after so long a node no longer does what it is asked: another turn may run now
ANSWER_SECONDS = 1.5  # for which an answer is waited

log = structlog.get_logger(__name__)


class TurnStops:
    """Reaches the turns that run on any node; `running` are those of this one.

    A node that has the turn answers, so what the person is told is what happened. Where there is
    but one node nobody is asked.
    """

    def __init__(self, running: RunningTurns, coordination: Coordination, clock: Clock) -> None:
        self._running = running
        self._coordination = coordination
        self._clock = clock
        self._asked: dict[str, asyncio.Event] = {}
        if coordination.is_shared:
            coordination.on("stop", self._hear)

    async def stop(self, key: str) -> bool:
        """Stop the turn of a session key; False when none runs."""
        return self._running.stop(key) or await self._ask("stop", key)

    async def is_running(self, key: str) -> bool:
        """True when a turn of a session key runs."""
        return key in self._running or await self._ask("running", key)

    async def _ask(self, what: str, key: str) -> bool:
        if not self._coordination.is_shared:
            return False
        name, answered = secrets.token_hex(8), asyncio.Event()
        self._asked[name] = answered
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                told = Event("stop", key, f"{what} {name} {self._clock()}")
                await self._coordination.publish(told)
                return await answered.wait()
        except TimeoutError:
            return False
        except StorageError as error:
            log.warning("stop.not_told", error=type(error).__name__)
            return False
        finally:
            del self._asked[name]

    async def _hear(self, event: Event) -> None:
        what, name, at = event.body.split(" ")
        if what == "yes":
            if name in self._asked:
                self._asked[name].set()
            return
        if self._clock() - int(at) > HEARD_MS:
            return
        found = self._running.stop(event.name) if what == "stop" else event.name in self._running
        if found:
            await self._coordination.publish(Event("stop", event.name, f"yes {name} {at}"))
