"""Work in progress for each conversation, so that `/stop` and a block can end it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final, Literal

import structlog

from bot.clock import Clock
from bot.coordination import Coordination, Event
from bot.errors import StorageError
from bot.identity import Conversation

Stage = Literal["reply", "room", "summary", "task"]
"""The stage of work: a reply with all that comes before it (voice, files, recall), the summary that
makes room for one, a summary that was asked for, or a task that was set for this time.
"""


class Stopped(Exception):
    """Somebody ended this."""


@dataclass(eq=False, slots=True)
class Stop:
    """A way to end one piece of work; `conversations` are those that it is for."""

    stage: Stage
    conversations: Sequence[Conversation] = ()
    is_asked: bool = False
    _end: Callable[[], object] | None = None

    def ask(self) -> None:
        """End it as soon as possible."""
        self.is_asked = True
        if self._end is not None:
            self._end()

    @contextmanager
    def by(self, end: Callable[[], object], stage: Stage) -> Generator[None]:
        """Have `end` end a stage of it, for the length of a `with`."""
        self.stage, self._end = stage, end
        try:
            if self.is_asked:
                end()
            yield
        finally:
            self._end = None

    @asynccontextmanager
    async def within(self, stage: Stage) -> AsyncGenerator[None]:
        """Cancel what is within an `async with` when it is to end.

        Raises:
            Stopped: it was.
        """
        if self.is_asked:
            raise Stopped
        try:
            async with asyncio.timeout(None) as limit:
                with self.by(lambda: limit.expired() or limit.reschedule(0), stage):
                    yield
        except TimeoutError:
            if not self.is_asked:
                raise
        if self.is_asked:  # perhaps it was over before its limit could end it
            raise Stopped


class RunningTurns:
    """Running turns, tasks and summaries, by session key."""

    def __init__(self) -> None:
        self._stops: dict[str, list[Stop]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._stops

    def __len__(self) -> int:
        return len(self._stops)

    @contextmanager
    def running(
        self, key: str, stage: Stage = "reply", conversations: Sequence[Conversation] = ()
    ) -> Generator[Stop]:
        """Be at work for a key for the length of a `with`."""
        stop = Stop(stage, conversations)
        self._stops.setdefault(key, []).append(stop)
        try:
            yield stop
        finally:
            self._stops[key].remove(stop)
            if not self._stops[key]:
                del self._stops[key]

    def stop(self, key: str) -> frozenset[Stage]:
        """End all that is at work for a key; what it was at, nothing if there was none."""
        found = tuple(self._stops.get(key, ()))
        for each in found:
            each.ask()
        return frozenset(each.stage for each in found)

    def review(self, is_served: Callable[[Conversation], bool]) -> None:
        """End what is at work for somebody who is not served any more."""
        for each in [stop for stops in self._stops.values() for stop in stops]:
            if not all(map(is_served, each.conversations)):
                each.ask()


# Stopping a turn from whichever node somebody asks for it.

HEARD_MS = 1_000  # after so long a node no longer does what it is asked: another turn may run now
ANSWER_SECONDS = 1.5  # for which an answer is waited
NOTHING: Final = frozenset[str]()

log = structlog.get_logger(__name__)


class TurnStops:
    """Reaches what runs on any node; `running` is what does on this one.

    A node that has something answers, so what the person is told is what happened. Where there is
    but one node nobody is asked.
    """

    def __init__(self, running: RunningTurns, coordination: Coordination, clock: Clock) -> None:
        self._running = running
        self._coordination = coordination
        self._clock = clock
        self._asked: dict[str, asyncio.Future[frozenset[str]]] = {}
        if coordination.is_shared:
            coordination.on("stop", self._hear)

    async def stop(self, key: str) -> frozenset[str]:
        """Stop what runs for a session key: what it was at (`Stage`), nothing if there is none."""
        found = self._running.stop(key)
        if found:  # what else runs for it elsewhere ends as well, and nobody waits for that
            await self._tell("stop", key, "unasked")
        return found or await self._ask("stop", key)

    async def is_running(self, key: str) -> bool:
        """True when something runs for a session key."""
        return key in self._running or bool(await self._ask("running", key))

    async def _ask(self, what: str, key: str) -> frozenset[str]:
        if not self._coordination.is_shared:
            return NOTHING
        name, answered = secrets.token_hex(8), asyncio.get_running_loop().create_future()
        self._asked[name] = answered
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await answered if await self._tell(what, key, name) else NOTHING
        except TimeoutError:
            return NOTHING
        finally:
            del self._asked[name]

    async def _tell(self, what: str, key: str, name: str) -> bool:
        """Tell the other nodes; False when that did not work, or there are none."""
        if not self._coordination.is_shared:
            return False
        try:
            await self._coordination.publish(Event("stop", key, f"{what} {name} {self._clock()}"))
        except StorageError as error:
            log.warning("stop.not_told", error=type(error).__name__)
            return False
        return True

    async def _hear(self, event: Event) -> None:
        what, name, rest = event.body.split(" ")
        if what == "yes":
            answered = self._asked.get(name)
            if answered is not None and not answered.done():
                answered.set_result(frozenset(rest.split(",")))
            return
        if self._clock() - int(rest) > HEARD_MS:
            return
        found: Collection[str] = ()
        if what == "stop":
            found = self._running.stop(event.name)
        elif event.name in self._running:
            found = ("reply",)
        if found and name != "unasked":
            told = ",".join(sorted(found))
            await self._coordination.publish(Event("stop", event.name, f"yes {name} {told}"))
