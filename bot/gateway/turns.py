"""Runs a lane's turns: asks, streams and runs tools, shows life, and has the result stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from bot.agent.meter import Meter
from bot.agent.replies import without_confirmations
from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import RunningTurns, Turn, TurnRequest, TurnResult
from bot.channel import Address, Channel, Drafts, Typing
from bot.delivery.live import LiveSigns
from bot.errors import ModelTooLarge
from bot.gateway.approvals import Approvals
from bot.gateway.attempts import Attempts
from bot.gateway.commits import TurnRecorder, answer_of, display_text
from bot.gateway.requests import PreparedRequest, Requests
from bot.gateway.voice import VoiceReader
from bot.memory.notes import Notes
from bot.metrics import Metrics
from bot.sessions.inbox import QueuedMessage

TYPING_DELAY = 0.4  # seconds; a reply that is faster needs no sign of life
TYPING_EVERY = 4.5  # seconds; platforms show it for five


class TurnRunner:
    """Answers messages of one session together, one call at a time for each key."""

    def __init__(
        self,
        *,
        voice: VoiceReader,
        requests: Requests,
        commits: TurnRecorder,
        toolbox: Toolbox,
        channels: Mapping[str, Channel],
        running: RunningTurns,
        live: LiveSigns,
        attempts: Attempts,
        approvals: Approvals,
        notes: Notes,
        metrics: Metrics,
    ) -> None:
        self._voice = voice
        self._requests = requests
        self._commits = commits
        self._toolbox = toolbox
        self._channels = channels
        self._running = running
        self._live = live
        self._attempts = attempts
        self._approvals = approvals
        self._notes = notes
        self._metrics = metrics

    async def run(self, key: str, rows: Sequence[QueuedMessage]) -> None:
        """Answer these messages, all of one session, with one reply."""
        started = time.perf_counter()
        conversation = rows[-1].conversation
        preview = ReplyPreview(
            self._channels.get(conversation.address.channel),
            self._live,
            conversation.address,
            str(rows[0].id),
            streams=conversation.settings.streaming,
        )
        async with self._notes.watching(conversation.view) as watch:
            async with preview:
                async with self._attempts.preparing(rows):
                    understood = await self._voice.understand(rows)
                    said = understood.rows
                    prepared = await self._requests.of(said, watch)
                async with self._commits.counting(prepared) as meter:
                    with self._metrics.running.track_inprogress():
                        answered = await self._answered(key, said, prepared, preview, meter)
            prepared, result = answered
            answer = answer_of(result, prepared, understood.told)
            await self._commits.commit(said, prepared, result, answer, preview.draft)
            if not answer.letter:
                await preview.clear()
        end = type(result.error).__name__ if result.error else result.stop
        self._metrics.turns.labels("stopped" if result.stopped else end).inc()
        self._metrics.turn_seconds.observe(time.perf_counter() - started)

    async def _answered(
        self,
        key: str,
        rows: Sequence[QueuedMessage],
        prepared: PreparedRequest,
        preview: ReplyPreview,
        meter: Meter,
    ) -> tuple[PreparedRequest, TurnResult]:
        """The turn's result, and what was sent in the end.

        When the window overflows, room is made once and it goes on.
        """
        if (refusal := prepared.refusal) is not None:
            return prepared, TurnResult(prepared.request.messages, "", error=refusal)
        if prepared.exceeds_window:
            prepared = (
                await self._requests.after_compaction(prepared, prepared.request.messages)
                or prepared
            )
        decided = await self._approvals.begin(rows)  # from here on never again
        result = await self._turn(key, replace(prepared.request, decided=decided), preview, meter)
        if not isinstance(result.error, ModelTooLarge):
            return prepared, result
        # What tools have done is done: go on after their results. Half a reply is begun anew.
        last = max(n for n, message in enumerate(result.messages) if message.role == "user")
        messages = result.messages[: last + 1]
        smaller = await self._requests.after_compaction(prepared, messages)
        if smaller is None:
            return prepared, result
        again = await self._turn(key, smaller.request, preview, meter)
        came = messages[len(prepared.request.messages) :]
        said = [display_text(message) for message in came if message.role == "assistant"]
        reply = "\n\n".join(part for part in (*said, again.reply) if part)
        return smaller, replace(again, reply=reply, silent=again.silent and not reply)

    async def _turn(
        self, key: str, request: TurnRequest, preview: ReplyPreview, meter: Meter
    ) -> TurnResult:
        turn = Turn(request, self._toolbox, preview.show if preview.shows_text else None, meter)
        with self._running.running(key, turn):
            return await turn.run()


class ReplyPreview:
    """Shows life for the length of an `async with`. Failures stay inside the channel."""

    def __init__(
        self,
        channel: Channel | None,
        live: LiveSigns,
        address: Address,
        draft_id: str,
        *,
        streams: bool = True,
    ) -> None:
        able = channel.capabilities if channel is not None else None
        self._typing = live if able is not None and able.typing else None
        self._drafts = live if streams and able is not None and able.drafts else None
        self._address = address
        self._draft_id = draft_id
        self._timer: asyncio.TimerHandle | None = None
        self._typing_task: asyncio.Task[None] | None = None
        self._draft_task: asyncio.Task[None] | None = None
        self._text = ""
        self._shown = ""

    async def __aenter__(self) -> Self:
        if self._typing is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(TYPING_DELAY, self._begin_typing)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task in (self._typing_task, self._draft_task) if task is not None]
        try:
            if self._draft_task is not None:
                await asyncio.sleep(0)  # what a fast model has said is shown as well
        finally:  # also when the lane is cancelled just now
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if kind is not None and issubclass(kind, Exception):
            await self.clear()  # no reply will come of this try

    @property
    def shows_text(self) -> bool:
        """Whether the channel shows a reply while it is being written."""
        return self._drafts is not None

    @property
    def draft(self) -> str:
        """The id under which a reply may have been shown, now or before a restart; or empty."""
        return self._draft_id if self.shows_text else ""

    def show(self, text: str) -> None:
        """Show the text so far, as soon as the one before has been shown."""
        self._text = text
        if self._drafts is not None and (self._draft_task is None or self._draft_task.done()):
            self._draft_task = asyncio.create_task(self._show_drafts(self._drafts))

    async def clear(self) -> None:
        """Take the text so far away, also that of an earlier run: no reply will replace it."""
        if self._drafts is not None:
            await self._drafts.draft(self._address, self._draft_id, "")

    def _begin_typing(self) -> None:
        if self._typing is not None:
            self._typing_task = asyncio.create_task(self._keep_typing(self._typing))

    async def _keep_typing(self, live: Typing) -> None:
        while True:
            await live.typing(self._address)
            await asyncio.sleep(TYPING_EVERY)

    async def _show_drafts(self, live: Drafts) -> None:
        while self._shown != self._text:
            self._shown = self._text
            # A ✓ is the engine's to give, and only when the reply is finished.
            await live.draft(self._address, self._draft_id, without_confirmations(self._shown))
