"""Passing on what other nodes say: beside everything else, each topic in its order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from bot.coordination import Event, Hear, Topic

MOST_WAITING = 1_000  # events of one topic

# What these say is missed when there is too much of it; what others say stands for all of them.
_PASSING: frozenset[Topic] = frozenset({"show", "account"})

log = structlog.get_logger(__name__)


class Hearing:
    """Calls whoever listens to a topic, in a task for each topic; nobody waits for it."""

    def __init__(self) -> None:
        self._hear: dict[Topic, list[Hear]] = {}
        self._waiting: dict[Topic, dict[Event, None]] = {}  # the same one twice says nothing more
        self._tasks: dict[Topic, asyncio.Task[None]] = {}

    def on(self, topic: Topic, hear: Hear) -> None:
        """Have `hear` called for the events of a topic; what it raises is logged."""
        self._hear.setdefault(topic, []).append(hear)

    def put(self, events: Iterable[Event]) -> None:
        """Pass these on; returns at once."""
        for event in events:
            topic = event.topic
            if topic not in self._hear:
                continue
            waiting = self._waiting.setdefault(topic, {})
            if len(waiting) >= MOST_WAITING:
                if topic in _PASSING:
                    del waiting[next(iter(waiting))]
                else:
                    waiting.clear()
                    event = Event(topic)  # noqa: PLW2901 - it stands for all of them
            waiting[event] = None
            if topic not in self._tasks:
                self._tasks[topic] = asyncio.create_task(self._pass_on(topic, waiting))

    async def close(self) -> None:
        """Pass on nothing more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass_on(self, topic: Topic, waiting: dict[Event, None]) -> None:
        try:
            while waiting:
                event = next(iter(waiting))
                del waiting[event]
                for hear in self._hear[topic]:
                    try:
                        await hear(event)
                    except Exception:
                        log.exception("node.event_failed", topic=topic)
        finally:
            del self._tasks[topic]
