"""Carrying out tasks that come again and again, each time in a session of its own.

A run is claimed in one transaction, which also moves the task to its next time, and ended in
another: so it is carried out at most once, on whichever node claimed it. One that a kill left in
the middle is not begun anew, as nobody knows what its tools had done: it counts as failed. What it
comes to is said where the task was made, and noted there as the bot's words, with their origin.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import asdict, dataclass, replace

import structlog

from bot.agent.models.speed import LONGEST
from bot.agent.running import RunningTurns, Stopped
from bot.agent.tools.toolbox import Toolbox
from bot.agent.turn import Turn, TurnResult
from bot.channel import Foreign, Inbound
from bot.clock import moment
from bot.config import TURN_SECONDS
from bot.context import prompt
from bot.context.history import new_entry
from bot.core import Core
from bot.errors import StorageError
from bot.gateway.commits import Answer, TurnRecorder, answer_of
from bot.gateway.lanes import TurnWithdrawn
from bot.gateway.requests import PreparedRequest, Requests
from bot.i18n import text
from bot.identity import Conversation
from bot.identity.routing import agent_of
from bot.logs import about_turn
from bot.memory.layout import HEARTBEAT_FILE
from bot.memory.note_store import Watch
from bot.memory.notes import Notes
from bot.messages import Message, Text, mixture
from bot.scheduler import Scheduler
from bot.sessions import repeats, store
from bot.sessions.due_time import shown
from bot.sessions.inbox import QueuedMessage
from bot.sessions.repeats import MAX_FAILURES, Repeat
from bot.unit_of_work import Committer, UnitOfWork
from bot.upkeep.heartbeat import Heartbeats, is_awake

JOB = "tasks"
LOOK_SECONDS = 60.0  # between looks for what is due
MAX_RUNNING = 2  # tasks at the same time, so that people who write wait for none
GIVEN_UP = 10 * 60_000  # ms beyond a turn's longest time, after which a run has failed
MOST_MISSED = 100  # times that are counted

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run of a task that is this program's to carry out, and the session it has for that."""

    repeat: Repeat
    session_id: str
    conversation: Conversation
    missed: int


class GivenUp(Exception):
    """A run took so long that it was taken for failed; of it only what it used is stored."""


class TaskRunner:
    """Claims tasks that are due, and carries them out beside everything else.

    `is_alone` says that no other program does the same for this database.
    """

    def __init__(
        self,
        core: Core,
        committer: Committer,
        *,
        requests: Requests,
        commits: TurnRecorder,
        toolbox: Toolbox,
        notes: Notes,
        running: RunningTurns,
        scheduler: Scheduler,
        heartbeats: Heartbeats,
    ) -> None:
        self._core = core
        self._committer = committer
        self._requests = requests
        self._commits = commits
        self._toolbox = toolbox
        self._notes = notes
        self._at_work = running
        self._scheduler = scheduler
        self._heartbeats = heartbeats
        self._is_first = not core.coordination.is_shared
        self._running: set[asyncio.Task[None]] = set()
        self._beginning = asyncio.Lock()  # one look at a time counts what runs, and adds to it

    def start(self) -> None:
        """Look now, every minute, and when the next one is due."""
        self._scheduler.every(JOB, LOOK_SECONDS, self.begin, first=0)

    async def begin(self) -> None:
        """Begin what is due, as far as there is room; the rest when one has ended.

        Raises:
            StorageError: it was not stored; the next look tries again.
        """
        async with self._beginning:
            await self._begin(self._core.clock())

    async def _begin(self, now: int) -> None:
        # Where nobody else carries tasks out, what was running at the start runs no longer.
        agents = self._core.resolver.policy.agents.values()
        given_up = max(_given_up_after(each.agent.turn_timeout) for each in agents)
        await self._give_up(now + 1 if self._is_first else now - given_up)
        self._is_first = False
        while len(self._running) < MAX_RUNNING:
            due_at = await self._core.database.read(lambda tx: repeats.next_due(tx, "task"))
            if due_at is None:
                return
            if due_at > now:
                self._scheduler.once(f"{JOB}.next", due_at, self.begin)
                return
            claimed = (await self._committer.commit(now, self._claim)).result
            if claimed is not None:
                task = asyncio.create_task(self._carry_out(claimed))
                self._running.add(task)
                task.add_done_callback(self._ended)

    async def stop(self, grace: float) -> None:
        """Let what runs finish for up to `grace` seconds; the rest has failed at the next start."""
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """There is room for another one."""
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task.failed", error=type(error).__name__)
        self._scheduler.once(f"{JOB}.next", self._core.clock(), self.begin)

    # --- claiming ---------------------------------------------------------------------------------

    def _claim(self, unit: UnitOfWork) -> ClaimedRun | None:
        """The run of a task that is due, if that is to be carried out."""
        due = repeats.due(unit.tx, unit.now, 1, "task")
        if not due:
            return None  # another node was faster
        with repeats.REPEATS.apart(unit.tx, due[0].id):
            return self._begin_run(unit, due[0])
        return None  # it was set aside

    def _begin_run(self, unit: UnitOfWork, repeat: Repeat) -> ClaimedRun | None:
        here = self._core.resolver.of(repeat.origin)
        missed = repeat.series.count(repeat.due_at, unit.now, here.zone, MOST_MISSED)
        looks_in = repeat.made_by == "program"
        is_off = looks_in and not is_awake(here.config.heartbeat, unit.now, here.zone)
        state = "silent" if is_off else "running"
        is_new = repeats.begin_run(unit.tx, repeat, 0 if looks_in else missed, unit.now, state)
        repeats.move_on(unit.tx, repeat, here.zone, unit.now)
        if not is_new or is_off:
            return None
        if not here.is_served:
            _failed(unit, repeat, text(repeat.target.language, "task.why_refused"))
            return None
        if agent_of(repeat.target.key) not in here.config.agents.sharing(here.agent):
            # What it came to would stand in a conversation that does not share this memory.
            _failed(unit, repeat, text(repeat.target.language, "task.why_agent"))
            return None
        place = replace(here.place, key=f"{here.key}:task:{repeat.id}")
        session, header = store.start(unit.tx, place, unit.now, by="task")
        unit.mirror.append(header)
        return ClaimedRun(repeat, session.id, here, missed)

    async def _give_up(self, before: int) -> None:
        if not await self._core.database.read(lambda tx: repeats.left_running(tx, before)):
            return

        def work(unit: UnitOfWork) -> None:
            for repeat in repeats.left_running(unit.tx, before):
                _failed(unit, repeat, text(repeat.target.language, "task.why_ended"))

        await self._committer.commit(self._core.clock(), work)

    # --- carrying out -----------------------------------------------------------------------------

    async def _carry_out(self, run: ClaimedRun) -> None:
        repeat, here = run.repeat, run.conversation
        about_turn(f"task-{secrets.token_hex(4)}")
        result = "failed"
        try:
            async with self._notes.watching(here.view) as watch:
                row = await self._asked(run)
                with self._at_work.running(here.key, "task", (here,)) as stop:
                    async with stop.within("task"):
                        prepared, came = await self._turn(row, watch)
                answer = answer_of(came, prepared)
                await self._end(run, row, prepared, came, answer)
                result = "failed" if came.error else "done"
        except (Stopped, TurnWithdrawn):  # by whoever asked for it, or they are not served now
            result = "stopped"
            await self._committer.commit(
                self._core.clock(),
                lambda unit: repeats.end_run(unit.tx, repeat, "stopped", now=unit.now),
                until_stored=True,
            )
        except GivenUp:
            log.warning("task.given_up", repeat=repeat.id)
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 - it is told in the list, and tried the next time
            # Only the kind: an exception's own words may hold what a person said.
            log.error("task.broke", repeat=repeat.id, error=type(error).__name__)  # noqa: TRY400
            why = text(repeat.target.language, "task.why_broke")
            await self._committer.commit(
                self._core.clock(), lambda unit: _failed(unit, repeat, why), until_stored=True
            )
        log.info("task.ended", channel=repeat.target.address.channel, repeat=repeat.id, came=result)

    async def _turn(self, row: QueuedMessage, watch: Watch) -> tuple[PreparedRequest, TurnResult]:
        prepared = await self._requests.of([row], watch)
        # It sets nothing for later itself: a task that makes tasks would never end.
        context = replace(prepared.request.context, target=None)
        request = replace(prepared.request, context=context, unasked=True)
        prepared = replace(prepared, request=request)
        if prepared.refusal is not None:
            return prepared, TurnResult(request.messages, "", error=prepared.refusal)
        async with self._commits.counting(prepared):
            with self._core.metrics.running.track_inprogress():
                return prepared, await Turn(request, self._toolbox, meter=prepared.account).run()

    async def _asked(self, run: ClaimedRun) -> QueuedMessage:
        """The task as a message of whoever made it."""
        repeat, origin = run.repeat, run.repeat.origin
        origin = replace(origin, chat_type="direct" if run.conversation.is_direct else "group")
        inbound = Inbound(
            **asdict(origin), message_id="", text=repeat.text, sent_at=self._core.clock()
        )
        if repeat.made_by == "program":
            words = await self._heartbeats.words(run.conversation)
            news = await self._heartbeats.news(repeat, run.conversation)
            told = (Foreign("event", news, HEARTBEAT_FILE),)
            inbound = replace(inbound, text=words or repeat.text, foreign=told)
        session = run.session_id
        return QueuedMessage(0, run.conversation.key, session, inbound, run.conversation)

    async def _end(
        self,
        run: ClaimedRun,
        row: QueuedMessage,
        prepared: PreparedRequest,
        result: TurnResult,
        answer: Answer,
    ) -> None:
        """Store the run's turn with what it comes to.

        Raises:
            GivenUp: that it had failed was stored before; only what it used is counted.
        """
        repeat, language = run.repeat, prepared.request.language

        def deliver(unit: UnitOfWork, spoken: tuple[Message, ...]) -> None:
            unit.change(run.session_id, ended_by="left", ended_at=unit.now)
            if result.error is not None:
                if not _failed(unit, repeat, answer.notice):
                    raise GivenUp
                return
            letter = 0
            if answer.letter:
                words = text(language, "task.answer", text=_late(run, answer.letter, language))
                letter = _say(unit, repeat, words, spoken, language)
            state = "said" if answer.letter else "silent"
            if repeats.end_run(unit.tx, repeat, state, now=unit.now, letter=letter) is None:
                raise GivenUp

        await self._commits.commit([row], prepared, result, answer, "", deliver=deliver)


def _late(run: ClaimedRun, words: str, language: str) -> str:
    """The result of a task, with the times it stands for if those are several."""
    if not run.missed:
        return words
    when = shown(language, moment(run.repeat.due_at, run.conversation.zone))
    return f"{words}\n\n{text(language, 'task.missed', count=run.missed + 1, when=when)}"


def _say(
    unit: UnitOfWork, repeat: Repeat, words: str, spoken: tuple[Message, ...], language: str
) -> int:
    """Say what a task came to where it was made, and note it there for later turns too.

    What its tools showed is not there, so its words keep the mark of that.
    """
    target, entry = repeat.target, ""
    session = store.current(unit.tx, target.key)
    if session is not None:
        origin = mixture(
            origin
            for message in spoken
            if message.role == "assistant"
            for origin in message.origins
        )
        note = Text(prompt.task(repeat.text), note=True, origin="program")
        said = Text(words, origin=origin or "bot")
        news = (
            new_entry(Message("user", (note,)), text=""),
            new_entry(Message("assistant", (said,))),
        )
        entry = unit.append(session.id, news)[-1]
        unit.stale.add(session.id)
    letter = unit.say(target.address, words, "reminder", language=language, entry=entry)
    return letter.id


def _failed(unit: UnitOfWork, repeat: Repeat, why: str) -> bool:
    """Note that a run failed; after `MAX_FAILURES` the task is paused, and its person told.

    False when it was noted before.
    """
    after = repeats.end_run(unit.tx, repeat, "failed", now=unit.now, error=why)
    if after is None:
        return False
    if after.state == "paused" and after.failures == MAX_FAILURES:
        language = repeat.target.language
        words = text(language, "task.paused", count=MAX_FAILURES, text=repeat.text, why=why)
        session = store.current(unit.tx, repeat.target.key)
        unit.say(
            repeat.target.address,
            words,
            "notice",
            language=language,
            noted_in=session.id if session is not None else "",
        )
        if session is not None:
            unit.refresh(session.id)
    return True


def _given_up_after(longest: float) -> int:
    """The time in ms after which a run has failed whose turn may take so many seconds.

    The usual limit may have grown for a slow model.
    """
    longest = LONGEST if longest == TURN_SECONDS else longest
    return round(longest * 1000) + GIVEN_UP
