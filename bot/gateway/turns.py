"""Runs a lane's turns: asks, streams and runs tools, shows life, and has the result stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Literal, Self

from bot.agent.running import Stop, Stopped
from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import Meter, Turn, TurnRequest, TurnResult, without_confirmations
from bot.channel import Activity, Address, Capabilities, Channel
from bot.core import Core
from bot.delivery.delivery import LiveSigns
from bot.errors import ModelRefused, ModelTooLarge
from bot.gateway.commits import Approvals, TurnRecorder, answer_of, display_text
from bot.gateway.keeping import Keeper
from bot.gateway.lanes import Attempts, TurnWithdrawn
from bot.gateway.media import Understood, VoiceReader
from bot.gateway.reminders import Reminders
from bot.gateway.requests import PreparedRequest, Requests
from bot.health import Tries
from bot.memory.note_store import Watch
from bot.memory.notes import Notes
from bot.memory.uses import Uses
from bot.messages import Asked, Message, Quoted, ToolResult, ToolUse
from bot.money import LimitReached
from bot.sessions.inbox import QueuedMessage
from bot.storage import fulltext

TYPING_DELAY = 0.4  # seconds; a reply that is faster needs no sign of life
TYPING_EVERY = 4.5  # seconds; platforms show it for five
THOUGHT_EVERY = 0.25  # seconds between two states of what a model thinks
THOUGHT_CHARS = 4_000  # of it are shown, its end
SEARCHES = frozenset({"memory_search", "transcript_search"})  # tools that look into memory
STEP_CHARS = 120  # of what is looked for, or of a tool's name
MAX_STEPS = 64  # calls that are shown of one turn


_OWN_FAULTS = (LimitReached, ModelRefused, ModelTooLarge)  # say nothing of the service


class TurnRunner:
    """Answers messages of one session together, one call at a time for each key.

    Whatever it is at can be ended: then it is stored as far as it came.
    """

    def __init__(
        self,
        core: Core,
        *,
        voice: VoiceReader,
        requests: Requests,
        commits: TurnRecorder,
        toolbox: Toolbox,
        reminders: Reminders,
        live: LiveSigns,
        attempts: Attempts,
        notes: Notes,
        uses: Uses,
        replies: Tries,
    ) -> None:
        """`replies` hears which of them come about."""
        self._voice = voice
        self._requests = requests
        self._commits = commits
        self._toolbox = toolbox
        self._keeper = Keeper(toolbox)
        self._core = core
        self._reminders = reminders
        self._live = live
        self._attempts = attempts
        self._approvals = Approvals(core)
        self._notes = notes
        self._uses = uses
        self._replies = replies

    async def run(self, rows: Sequence[QueuedMessage], stop: Stop) -> None:
        """Answer these messages, all of one session, with one reply."""
        started = time.perf_counter()
        conversation = rows[-1].conversation
        async with self._notes.watching(conversation.view) as watch:
            preview = ReplyPreview(
                self._core.channels.get(conversation.address.channel),
                self._live,
                conversation.address,
                str(rows[0].id),
                streams=conversation.settings.streaming,
                is_direct=conversation.is_direct,
                forgotten=watch.words,
            )
            async with preview:
                async with self._attempts.preparing(rows):
                    understood = await self._heard(rows, stop)
                    prepared = await self._prepared(understood.rows, watch, stop)
                said = [row.inbound.text for row in understood.rows]
                topics = await self._reminders.about(conversation, said)
                async with self._commits.counting(prepared):
                    with self._core.metrics.running.track_inprogress():
                        answered = await self._answered(understood, prepared, preview, stop)
            prepared, result = answered
            try:
                await self._commits.must_be_served(understood.rows, prepared)
                unkept = await self._keeper.after(understood.rows, prepared, result)
                answer = answer_of(result, prepared, understood, unkept)
                await self._commits.commit(
                    understood.rows, prepared, result, answer, preview.draft, topics=topics
                )
            except TurnWithdrawn:
                await preview.clear()
                raise
            if answer.letter:
                context = prepared.request.context
                shown = (passage.place.path for passage in context.memory.recalled)
                self._uses.note(context.view, shown, result.reply, context.now.date())
            else:
                await preview.clear()
        end = type(result.error).__name__ if result.error else result.stop
        if not result.stopped and not isinstance(result.error, _OWN_FAULTS):
            self._replies.note(result.error)
        self._core.metrics.turns.labels("stopped" if result.stopped else end).inc()
        self._core.metrics.turn_seconds.observe(time.perf_counter() - started)

    async def _heard(self, rows: Sequence[QueuedMessage], stop: Stop) -> Understood:
        """The messages with what was said in them."""
        if all(row.inbound.voice is None for row in rows):
            return Understood(rows)
        try:
            async with stop.within("reply"):
                return await self._voice.understand(rows)
        except Stopped:
            return Understood(rows)

    async def _prepared(
        self, rows: Sequence[QueuedMessage], watch: Watch, stop: Stop
    ) -> PreparedRequest:
        """The request; without files and what is recalled when nobody wants it any more."""
        with suppress(Stopped):
            async with stop.within("reply"):
                return await self._requests.of(rows, watch)
        return await self._requests.of(rows, watch, bare=True)

    async def _answered(
        self,
        understood: Understood,
        prepared: PreparedRequest,
        preview: ReplyPreview,
        stop: Stop,
    ) -> tuple[PreparedRequest, TurnResult]:
        """The turn's result, and what was sent in the end.

        When the window overflows, room is made once and it goes on.

        Raises:
            TurnWithdrawn: it holds what was forgotten while it was prepared.
        """
        meter = prepared.account
        unsent = TurnResult(prepared.request.messages, "", error=prepared.refusal)
        size, room = prepared.fill.used + prepared.arriving, prepared.active.limits.budget.hard
        if unsent.error is None and not stop.is_asked and size > room:
            with suppress(Stopped):
                prepared = await self._smaller(prepared, stop) or prepared
        if stop.is_asked:
            return prepared, replace(unsent, error=None, stopped=True)
        if unsent.error is not None:
            return prepared, unsent
        context = replace(
            prepared.request.context, start=partial(self._approvals.start, understood.rows[0])
        )
        prepared = replace(prepared, request=replace(prepared.request, context=context))
        decided = await self._approvals.begin(understood.rows)  # from here on never again
        if not decided and _holds_forgotten(prepared.request):
            raise TurnWithdrawn  # what is still to be answered is, without these words
        result = await self._turn(replace(prepared.request, decided=decided), preview, meter, stop)
        if not isinstance(result.error, ModelTooLarge):
            return prepared, result
        # What tools have done is done: go on after their results. Half a reply is begun anew.
        last = max(n for n, message in enumerate(result.messages) if message.role == "user")
        messages = result.messages[: last + 1]
        try:
            smaller = await self._smaller(prepared, stop, messages)
        except Stopped:
            return prepared, replace(result, messages=messages, error=None, stopped=True)
        if smaller is None:
            return prepared, result
        again = await self._turn(smaller.request, preview, meter, stop)
        came = messages[len(prepared.request.messages) :]
        said = [display_text(message) for message in came if message.role == "assistant"]
        reply = "\n\n".join(part for part in (*said, again.reply) if part)
        return smaller, replace(again, reply=reply, silent=again.silent and not reply)

    async def _smaller(
        self, prepared: PreparedRequest, stop: Stop, messages: tuple[Message, ...] = ()
    ) -> PreparedRequest | None:
        """The same once there is room for it; None when none could be made.

        Raises:
            Stopped: nobody wants it any more.
        """
        async with stop.within("room"):
            return await self._requests.after_compaction(
                prepared, messages or prepared.request.messages
            )

    async def _turn(
        self, request: TurnRequest, preview: ReplyPreview, meter: Meter, stop: Stop
    ) -> TurnResult:
        turn = Turn(request, self._toolbox, meter=meter)
        if preview.shows_text:
            turn.on_text = preview.show
        if preview.shows_thoughts:
            turn.on_thought, turn.on_tool = preview.think, preview.step
        with stop.by(turn.stop, "reply"):
            return await turn.run()


def _holds_forgotten(request: TurnRequest) -> bool:
    """True when something was forgotten since a request was made that has it."""
    if not (forgotten := request.context.watch.words):
        return False
    said = (*request.history, *request.messages)
    held = (request.system, *(each.text for each in said), str(said))  # results of tools too
    return fulltext.holds_any("\n".join(held), forgotten)


class ReplyPreview:
    """Shows life for the length of an `async with`. Failures stay inside the channel.

    Attributes:
        shows_text: the channel shows a reply while it is being written.
        shows_thoughts: what the model thinks and which tools it calls is shown, in a direct chat.
        draft: the id under which a reply may have been shown, now or before a restart; or empty.
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
        forgotten: Sequence[str] = (),
    ) -> None:
        """`forgotten` are words that are not shown, also those that are added meanwhile."""
        able = channel.capabilities if channel is not None else Capabilities()
        self._live = live
        self._shows_typing = able.typing
        self.shows_text = streams and able.drafts
        self.shows_thoughts = is_direct and streams and able.activities
        self.draft = draft_id if self.shows_text else ""
        self._address = address
        self._draft_id = draft_id
        self._forgotten = forgotten
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
        if self._shows_typing:
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
            await self._live.activity(self._address, replace(broken_off, state="failed"))
        if self._is_thinking:
            await self._live.activity(self._address, self._activity("done"))
        if kind is not None and issubclass(kind, Exception):
            await self.clear()  # no reply will come of this try

    def show(self, text: str) -> None:
        """Show the text so far, as soon as the one before has been shown."""
        self._text = text
        if self._draft_task is None or self._draft_task.done():
            self._draft_task = asyncio.create_task(self._show_drafts())

    def think(self, text: str) -> None:
        """Show what the model thinks so far; an empty text says that it thinks no more."""
        self._thought = text[-THOUGHT_CHARS:]
        if self._thought_task is None or self._thought_task.done():
            self._thought_task = asyncio.create_task(self._show_thoughts())

    def step(self, use: ToolUse, result: ToolResult | None) -> None:
        """Show what the model looks for in memory, or which tool it calls, and how that ended."""
        if result is None and self._steps < MAX_STEPS:
            self._steps += 1
            self._calling[use.id] = shown = self._begun(use)
        elif result is not None and (begun := self._calling.pop(use.id, None)) is not None:
            shown = _ended(begun, result)
        else:
            return
        task = asyncio.create_task(self._live.activity(self._address, shown))
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
        if self.shows_text:
            await self._live.draft(self._address, self._draft_id, "")

    def _begin_typing(self) -> None:
        self._typing_task = asyncio.create_task(self._keep_typing())

    async def _keep_typing(self) -> None:
        while True:
            await self._live.typing(self._address)
            await asyncio.sleep(TYPING_EVERY)

    async def _show_drafts(self) -> None:
        while self._shown != self._text:
            self._shown = self._text
            if not fulltext.holds_any(self._shown, self._forgotten):
                # A ✓ is the engine's to give, and only when the reply is finished.
                words = without_confirmations(self._shown)
                await self._live.draft(self._address, self._draft_id, words)

    async def _show_thoughts(self) -> None:
        while self._thought_shown != self._thought:
            thought = self._thought_shown = self._thought
            if thought and not self._is_thinking:
                self._is_thinking = True
                await self._live.activity(self._address, self._activity("begun"))
            if thought:
                await self._live.activity(self._address, self._activity("begun", thought))
                await asyncio.sleep(THOUGHT_EVERY)
            else:
                await self._live.activity(self._address, self._activity("done"))
                self._is_thinking = False

    def _activity(self, state: Literal["begun", "done"], text: str = "") -> Activity:
        id_ = f"{self._draft_id}.thinking"
        return Activity(id_, "thinking", state, text=text, draft=self._draft_id)


def _ended(begun: Activity, result: ToolResult) -> Activity:
    """The end of a call, without its result; for a search, with how much it found."""
    if result.is_error:
        return replace(begun, state="failed")
    if isinstance(result.value, Asked):
        return replace(begun, state="asked")
    found = len(result.value.quotes) if isinstance(result.value, Quoted) else 0
    return replace(begun, state="done", found=found)
