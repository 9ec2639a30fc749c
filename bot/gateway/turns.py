"""Runs a lane's turns: asks, streams and runs tools, shows life, and has the result stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Literal, Self

from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import Meter, RunningTurns, Turn, TurnRequest, TurnResult, without_confirmations
from bot.channel import Activity, Address, Channel, Drafts, Typing
from bot.delivery.live import LiveSigns
from bot.errors import ModelTooLarge
from bot.gateway.approvals import Approvals
from bot.gateway.attempts import Attempts
from bot.gateway.commits import TurnRecorder, answer_of, display_text
from bot.gateway.keeping import Keeper
from bot.gateway.requests import PreparedRequest, Requests
from bot.gateway.voice import Listening, Understood, VoiceReader
from bot.memory.notes import Notes
from bot.memory.uses import Uses
from bot.messages import ToolResult, ToolUse
from bot.metrics import Metrics
from bot.sessions.inbox import QueuedMessage
from bot.tool_results import Asked, Quoted

TYPING_DELAY = 0.4  # seconds; a reply that is faster needs no sign of life
TYPING_EVERY = 4.5  # seconds; platforms show it for five
THOUGHT_EVERY = 0.25  # seconds between two states of what a model thinks
THOUGHT_CHARS = 4_000  # of it are shown, its end
SEARCHES = frozenset({"memory_search", "transcript_search"})  # tools that look into memory
STEP_CHARS = 120  # of what is looked for, or of a tool's name
MAX_STEPS = 64  # calls that are shown of one turn


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
        uses: Uses,
        metrics: Metrics,
    ) -> None:
        self._voice = voice
        self._requests = requests
        self._commits = commits
        self._toolbox = toolbox
        self._keeper = Keeper(toolbox)
        self._channels = channels
        self._running = running
        self._live = live
        self._attempts = attempts
        self._approvals = approvals
        self._notes = notes
        self._uses = uses
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
            is_direct=conversation.is_direct,
        )
        async with self._notes.watching(conversation.view) as watch:
            async with preview:
                async with self._attempts.preparing(rows):
                    understood = await self._heard(key, rows)
                    prepared = await self._requests.of(understood.rows, watch)
                async with self._commits.counting(prepared) as meter:
                    with self._metrics.running.track_inprogress():
                        answered = await self._answered(key, understood, prepared, preview, meter)
            prepared, result = answered
            unkept = await self._keeper.after(understood.rows, prepared, result)
            answer = answer_of(result, prepared, understood, unkept)
            await self._commits.commit(understood.rows, prepared, result, answer, preview.draft)
            if answer.letter:
                context = prepared.request.context
                shown = (passage.place.path for passage in context.memory.recalled)
                self._uses.note(context.view, shown, result.reply, context.now.date())
            else:
                await preview.clear()
        end = type(result.error).__name__ if result.error else result.stop
        self._metrics.turns.labels("stopped" if result.stopped else end).inc()
        self._metrics.turn_seconds.observe(time.perf_counter() - started)

    async def _heard(self, key: str, rows: Sequence[QueuedMessage]) -> Understood:
        """The messages with what was said in them, which can be stopped as the rest can."""
        if all(row.inbound.voice is None for row in rows):
            return Understood(rows)
        listening = Listening(self._voice, rows)
        with self._running.running(key, listening):
            return await listening.result()

    async def _answered(
        self,
        key: str,
        understood: Understood,
        prepared: PreparedRequest,
        preview: ReplyPreview,
        meter: Meter,
    ) -> tuple[PreparedRequest, TurnResult]:
        """The turn's result, and what was sent in the end.

        When the window overflows, room is made once and it goes on.
        """
        if understood.stopped:
            return prepared, TurnResult(prepared.request.messages, "", stopped=True)
        if (refusal := prepared.refusal) is not None:
            return prepared, TurnResult(prepared.request.messages, "", error=refusal)
        if prepared.exceeds_window:
            prepared = (
                await self._requests.after_compaction(prepared, prepared.request.messages)
                or prepared
            )
        decided = await self._approvals.begin(understood.rows)  # from here on never again
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
        show = preview.show if preview.shows_text else None
        think = preview.think if preview.shows_thoughts else None
        step = preview.step if preview.shows_thoughts else None
        turn = Turn(request, self._toolbox, show, meter, think, on_tool=step)
        with self._running.running(key, turn):
            return await turn.run()


class ReplyPreview:
    """Shows life for the length of an `async with`. Failures stay inside the channel.

    What the model thinks and which tools it calls is shown to whoever watches a direct chat.
    """

    def __init__(
        self,
        channel: Channel | None,
        live: LiveSigns,
        address: Address,
        draft_id: str,
        *,
        streams: bool = True,
        is_direct: bool = True,
    ) -> None:
        able = channel.capabilities if channel is not None else None
        self._typing = live if able is not None and able.typing else None
        self._drafts = live if streams and able is not None and able.drafts else None
        watched = is_direct and streams and live.shows_activities(address)
        self._watchers = live if watched else None
        self._address = address
        self._draft_id = draft_id
        self._timer: asyncio.TimerHandle | None = None
        self._typing_task: asyncio.Task[None] | None = None
        self._draft_task: asyncio.Task[None] | None = None
        self._thought_task: asyncio.Task[None] | None = None
        self._text = ""
        self._shown = ""
        self._thought = ""
        self._thought_shown = ""
        self._is_thinking = False  # as far as was shown
        self._calling: dict[str, Activity] = {}  # what is not over yet, by the id of the call
        self._steps = 0  # that were begun
        self._telling: set[asyncio.Task[None]] = set()

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
        live = (self._typing_task, self._draft_task, self._thought_task)
        tasks = [task for task in live if task is not None]
        try:
            if self._draft_task is not None:
                await asyncio.sleep(0)  # what a fast model has said is shown as well
        finally:  # also when the lane is cancelled just now
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, *self._telling, return_exceptions=True)
        for broken_off in self._calling.values():
            if self._watchers is not None:
                await self._watchers.activity(self._address, replace(broken_off, state="failed"))
        if self._is_thinking and self._watchers is not None:
            await self._watchers.activity(self._address, self._activity("done"))
        if kind is not None and issubclass(kind, Exception):
            await self.clear()  # no reply will come of this try

    @property
    def shows_text(self) -> bool:
        """Whether the channel shows a reply while it is being written."""
        return self._drafts is not None

    @property
    def shows_thoughts(self) -> bool:
        """True when somebody may watch what the model thinks."""
        return self._watchers is not None

    @property
    def draft(self) -> str:
        """The id under which a reply may have been shown, now or before a restart; or empty."""
        return self._draft_id if self.shows_text else ""

    def show(self, text: str) -> None:
        """Show the text so far, as soon as the one before has been shown."""
        self._text = text
        if self._drafts is not None and (self._draft_task is None or self._draft_task.done()):
            self._draft_task = asyncio.create_task(self._show_drafts(self._drafts))

    def think(self, text: str) -> None:
        """Show what the model thinks so far; an empty text says that it thinks no more."""
        self._thought = text[-THOUGHT_CHARS:]
        idle = self._thought_task is None or self._thought_task.done()
        if self._watchers is not None and idle:
            self._thought_task = asyncio.create_task(self._show_thoughts(self._watchers))

    def step(self, use: ToolUse, result: ToolResult | None) -> None:
        """Show what the model looks for in memory, or which tool it calls, and how that ended."""
        if self._watchers is None:
            return
        if result is None and self._steps < MAX_STEPS:
            self._steps += 1
            self._calling[use.id] = shown = self._begun(use)
        elif result is not None and (begun := self._calling.pop(use.id, None)) is not None:
            shown = _ended(begun, result)
        else:
            return
        task = asyncio.create_task(self._watchers.activity(self._address, shown))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def _begun(self, use: ToolUse) -> Activity:
        wanted = use.input.get("query")
        is_search = use.name in SEARCHES and isinstance(wanted, str)
        words = " ".join(str(wanted if is_search else use.name).split())[:STEP_CHARS]
        # Not by the call's id: a service may give the same one again.
        id_, kind = f"{self._draft_id}.{self._steps}", "searching" if is_search else "calling"
        return Activity(id_, kind, "begun", text=words, draft=self._draft_id)

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

    async def _show_thoughts(self, live: LiveSigns) -> None:
        while self._thought_shown != self._thought:
            thought = self._thought_shown = self._thought
            if thought and not self._is_thinking:
                self._is_thinking = True
                await live.activity(self._address, self._activity("begun"))
            if thought:
                await live.activity(self._address, self._activity("begun", thought))
                await asyncio.sleep(THOUGHT_EVERY)
            else:
                await live.activity(self._address, self._activity("done"))
                self._is_thinking = False

    def _activity(self, state: Literal["begun", "done"], text: str = "") -> Activity:
        id_ = f"{self._draft_id}.thinking"
        return Activity(id_, "thinking", state, text=text, draft=self._draft_id)


def _ended(begun: Activity, result: ToolResult) -> Activity:
    """How a call ended, without what came of it but how much a search found."""
    if result.is_error:
        return replace(begun, state="failed")
    if isinstance(result.value, Asked):
        return replace(begun, state="asked")
    found = len(result.value.quotes) if isinstance(result.value, Quoted) else 0
    return replace(begun, state="done", found=found)
