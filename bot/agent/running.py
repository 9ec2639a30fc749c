"""What is at work for each conversation now, so that `/stop` and a block reach it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Literal

from bot.identity import Conversation

Stage = Literal["reply", "room", "summary", "task"]
"""What it is at: a reply with all that comes before it (voice, files, recall), the summary that
makes room for one, a summary that was asked for, or a task that was set for this time.
"""


class Stopped(Exception):
    """Somebody ended this."""


class Stop:
    """A way to end one piece of work; `conversations` are those that it is for."""

    def __init__(self, stage: Stage) -> None:
        self.stage: Stage = stage
        self.conversations: Sequence[Conversation] = ()
        self.is_asked = False
        self._end: Callable[[], object] | None = None

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
        stop = Stop(stage)
        stop.conversations = conversations
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
