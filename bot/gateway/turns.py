"""Runs a lane's turns: asks, streams and runs tools, and has the result stored."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import RunningTurns, Turn, TurnRequest, TurnResult
from bot.channel import Channel
from bot.errors import ModelTooLarge, WindowTooSmall
from bot.gateway.attempts import Attempts
from bot.gateway.commits import TurnCommits, answer_of, read
from bot.gateway.presence import Presence
from bot.gateway.requests import Asked, Requests
from bot.memory.forgetting import Watch
from bot.memory.notes import Notes
from bot.metrics import Metrics
from bot.sessions.inbox import Waiting


class TurnRunner:
    """Answers messages of one session together, one call at a time for each key."""

    def __init__(
        self,
        *,
        requests: Requests,
        commits: TurnCommits,
        toolbox: Toolbox,
        channels: Mapping[str, Channel],
        running: RunningTurns,
        attempts: Attempts,
        notes: Notes,
        metrics: Metrics,
    ) -> None:
        self._requests = requests
        self._commits = commits
        self._toolbox = toolbox
        self._channels = channels
        self._running = running
        self._attempts = attempts
        self._notes = notes
        self._metrics = metrics

    async def run(self, key: str, rows: Sequence[Waiting]) -> None:
        """Answer these messages, all of one session, with one reply."""
        async with self._notes.watching(rows[-1].conversation.view) as watch:
            await self._run(key, rows, watch)

    async def _run(self, key: str, rows: Sequence[Waiting], watch: Watch) -> None:
        started = time.perf_counter()
        conversation = rows[-1].conversation
        address = conversation.address
        async with Presence(
            self._channels.get(address.channel),
            address,
            str(rows[0].id),
            streams=conversation.settings.streaming,
        ) as presence:
            async with self._attempts.preparing(rows):
                asked = await self._requests.of(rows, watch)
            self._metrics.running.inc()
            try:
                asked, result = await self._answered(key, asked, presence)
            finally:
                self._metrics.running.dec()
        answer = answer_of(result, asked)
        await self._commits.commit(rows, asked, result, answer, presence.draft)
        if not answer.letter:
            await presence.clear()
        end = type(result.error).__name__ if result.error else result.stop
        self._metrics.turns.labels("stopped" if result.stopped else end).inc()
        self._metrics.turn_seconds.observe(time.perf_counter() - started)

    async def _answered(
        self, key: str, asked: Asked, presence: Presence
    ) -> tuple[Asked, TurnResult]:
        """The turn's result, and what was asked in the end.

        When the window overflows, room is made once and it goes on.
        """
        if asked.talk.room.window.is_too_small:
            return asked, TurnResult(asked.request.messages, "", error=WindowTooSmall())
        if asked.is_over:
            asked = await self._requests.roomier(asked, asked.request.messages) or asked
        result = await self._turn(key, asked.request, presence)
        if not isinstance(result.error, ModelTooLarge):
            return asked, result
        # What tools have done is done: go on after their results. Half a reply is begun anew.
        last = max(n for n, message in enumerate(result.messages) if message.role == "user")
        messages = result.messages[: last + 1]
        roomier = await self._requests.roomier(asked, messages)
        if roomier is None:
            return asked, result
        again = await self._turn(key, roomier.request, presence)
        came = messages[len(asked.request.messages) :]
        said = [read(message) for message in came if message.role == "assistant"]
        reply = "\n\n".join(part for part in (*said, again.reply) if part)
        silent, usage = again.silent and not reply, result.usage + again.usage
        return roomier, replace(again, reply=reply, silent=silent, usage=usage)

    async def _turn(self, key: str, request: TurnRequest, presence: Presence) -> TurnResult:
        turn = Turn(request, self._toolbox, presence.show if presence.shows_text else None)
        with self._running.running(key, turn):
            return await turn.run()
