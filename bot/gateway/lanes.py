"""One lane for each session key: its messages are answered one turn at a time, in order.

Different lanes run side by side, up to a cap for the whole program and one for each person. In
"collect" mode, and when more waits than fits in memory, what waits is answered together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial

import structlog

from bot.agent.running import RunningTurns, Stop
from bot.channel import Inbound
from bot.clock import moment
from bot.commands.commander import Commander
from bot.coordination import SharedTurns
from bot.core import Core
from bot.delivery.outbox import Extra
from bot.errors import StorageError
from bot.gateway.admission import Admitted
from bot.i18n import text
from bot.logs import about_turn
from bot.money import NO_LIMITS
from bot.sessions import inbox
from bot.sessions.entries import NewEntry
from bot.sessions.inbox import QueuedMessage
from bot.shares import Pool, turns
from bot.unit_of_work import Committer, UnitOfWork
from bot.workers import Backlog, Workers

# How often the turn of a message failed, and what is done when it fails every time.
#
# The count is on disk. A failure is counted when it has happened. A crash cannot be, so a turn of
# a message that was there already when the program started is counted before it is prepared, and
# all of that is forgotten once it was prepared: only a message that never gets there can be what
# ends the program. Others end it too (a power cut, whoever kills it, another part that fails at
# each start), so it takes many of them, and the last ones count only when the program had lived
# for some seconds: one that was met so often waits until then. For one that was met twice nothing
# is recalled, in case that is the cause, and because it takes long just after a start.

MAX_TRIES = 4  # turns that may fail, with some seconds between them
MAX_DEATHS = 10  # ends of the program in a row while a message's turn was prepared
PLAIN_DEATHS = 2  # after as many nothing is recalled for its turn
SETTLED_DEATHS = 8  # after as many it begins only when the program has lived for …
SETTLED = 5.0  # … as many seconds

log = structlog.get_logger(__name__)


def is_plain(rows: Sequence[QueuedMessage]) -> bool:
    """True when these messages' turn has to do without what may take long or end the program."""
    return any(row.deaths >= PLAIN_DEATHS for row in rows)


class Attempts:
    """Counts turns that fail, and sets messages aside so that their chat goes on."""

    def __init__(self, core: Core, committer: Committer) -> None:
        self._core = core
        self._committer = committer
        self._newest = 0  # the id of the newest message from before the start
        self._begun = 0.0  # when the program started, by the loop's clock
        self._one_by_one = asyncio.Lock()

    async def begin(self) -> None:
        """Take over what was being done when the program ended; before anything is received.

        Raises:
            StorageError: the disk does not take it.
        """
        self._newest = await self._core.database.write(inbox.reclaim)
        self._begun = asyncio.get_running_loop().time()

    @asynccontextmanager
    async def preparing(self, rows: Sequence[QueuedMessage]) -> AsyncGenerator[None]:
        """While this lasts, the end of the program counts as a failure of these messages' turn.

        Suspects are taken one by one, so that none is suspected for what another one did.

        Raises:
            StorageError: that could not be noted.
        """
        old = [row.id for row in rows if row.id <= self._newest]
        if not old:
            yield
            return
        if any(row.deaths >= SETTLED_DEATHS for row in rows):
            lived = asyncio.get_running_loop().time() - self._begun
            await asyncio.sleep(max(0.0, SETTLED - lived))
        async with self._one_by_one if any(row.is_suspect for row in rows) else nullcontext():
            await self._core.database.write(lambda tx: inbox.endanger(tx, old))
            try:
                yield
            finally:  # whatever came of it, the program is still there
                with suppress(StorageError):
                    await self._core.database.write(lambda tx: inbox.clear(tx, old))

    async def failed(self, rows: Sequence[QueuedMessage], error: Exception) -> bool:
        """Count a turn that failed; True when its message is set aside, as there is no use in more.

        Raises:
            StorageError: that could not be noted.
        """
        ids = [row.id for row in rows]
        counts = await self._core.database.write(lambda tx: [inbox.tried(tx, id_) for id_ in ids])
        # Together they say nothing about any of them; from now on each has a turn of its own.
        if len(rows) > 1 or counts[0] < MAX_TRIES:
            return False
        await self.set_aside(rows[0], type(error).__name__)
        return True

    async def set_aside(self, row: QueuedMessage, error: str = "the program ended") -> None:
        """Give up a message: its words are noted in the transcript, and its person is told.

        Raises:
            StorageError: that could not be noted; the message waits as before.
        """
        now = self._core.clock()
        try:
            await self._committer.commit(now, lambda unit: self._told(unit, row, error))
        except StorageError:
            raise
        except Exception:
            # Nothing of the message can be used, not even where it came from.
            log.exception("message.untold", channel=row.inbound.channel)
            await self._core.database.write(lambda tx: inbox.set_aside(tx, row.id, error, now))
        self._core.metrics.set_aside.labels(row.inbound.channel).inc()
        log.error("message.set_aside", channel=row.inbound.channel, row=row.id, error=error)

    def _told(self, unit: UnitOfWork, row: QueuedMessage, error: str) -> None:
        inbound = row.inbound
        came = inbox.set_aside(unit.tx, row.id, error, unit.now)
        language = row.conversation.language
        when = moment(came, row.conversation.zone)
        kind = text(language, f"turn.kind.{_kind(inbound)}")
        words = text(language, "turn.set_aside", kind=kind, when=f"{when:%Y-%m-%d %H:%M}")
        # Like a command it is kept, and no request holds it: it might stop them all.
        said = NewEntry("command", "user", inbound.shown, source=inbound.message_id)
        unit.append(row.session_id, [said])
        unit.say(
            inbound.address,
            words,
            "notice",
            language=language,
            noted_in=row.session_id,
            asker=inbound.asker,
            reply_to=inbound.to_answer,
            extra=Extra(failed=(inbound.message_id,)),
        )
        unit.refresh(row.session_id)


def _kind(inbound: Inbound) -> str:
    """The kind of a message, in a word: a command, an attachment, or plain text."""
    if inbound.text.startswith("/"):
        return "command"
    return inbound.media[0].kind if inbound.media else "message"


class TurnWithdrawn(Exception):
    """Some of its messages are not to be answered any more; nothing of the turn was stored."""


Admit = Callable[[str, Sequence[QueuedMessage]], Awaitable[Admitted]]
RunTurn = Callable[[Sequence[QueuedMessage], Stop], Awaitable[None]]


class Lanes:
    """Hands each lane's messages to `run_turn`, those that `admit` leaves there.

    From the moment a message's turn has come it is among what is `running`.
    """

    def __init__(
        self,
        core: Core,
        committer: Committer,
        *,
        commander: Commander,
        attempts: Attempts,
        admit: Admit,
        run_turn: RunTurn,
        running: RunningTurns,
        shared: SharedTurns | None = None,
    ) -> None:
        self._core = core
        self._slots = Pool(turns(core.settings.now.session.max_turns))
        self._commander = commander
        self._attempts = attempts
        self._admit = admit
        self._run_turn = run_turn
        self._running = running
        self._committer = committer
        self._full: set[str] = set()  # lanes with more waiting than fits in memory
        self._shared = shared
        self._workers = Workers[str, QueuedMessage](
            self._handle,
            self._load,
            core.settings.now.session.queue.cap,
            fence_of=shared.fence_of if shared is not None else None,
        )

    async def put(self, waiting: QueuedMessage) -> None:
        """Queue a stored message in the lane of its key.

        Where turns are shared its transaction has done that, for whichever node takes it up.
        """
        if self._shared is not None:
            return
        fits = self._workers.put(waiting.key, waiting)
        if not fits and waiting.key not in self._full:
            self._full.add(waiting.key)
            await self._tell_waiting(waiting)

    async def recover(self) -> int:
        """Queue everything that has no answer yet from before a restart; how many lanes."""
        keys = await self._core.database.read(inbox.waiting_keys)
        for key in keys:
            self._workers.look(key)
        return len(keys)

    async def run(self, key: str) -> None:
        """Answer what waits for a key; once its `shared` turn was taken up.

        What comes from then on has another one.
        """
        await self._workers.run(key)

    async def stop(self, grace: float) -> None:
        """Let running turns finish for up to `grace` seconds; the rest is answered next time."""
        await self._workers.stop(grace)

    async def _tell_waiting(self, waiting: QueuedMessage) -> None:
        """Say, once each time a lane fills up, that more waits and is answered together."""
        language, address = waiting.conversation.language, waiting.conversation.address
        words = text(language, "turn.waiting", count=self._core.settings.now.session.queue.cap)
        await self._committer.commit(
            self._core.clock(), lambda unit: unit.say(address, words, "notice", language=language)
        )

    async def _load(self, key: str, limit: int) -> Sequence[QueuedMessage]:
        found = await self._core.database.read(
            lambda tx: inbox.waiting(tx, key, limit, self._core.resolver.resolve)
        )
        if self._shared is not None and len(found) == limit and key not in self._full:
            self._full.add(key)
            await self._tell_waiting(found[-1])
        return found

    async def _handle(self, key: str, backlog: Backlog[QueuedMessage]) -> None:
        with self._running.running(key) as stop:
            full, queue = key in self._full, self._core.settings.now.session.queue
            if queue.mode == "collect" and not full:
                await _debounce(backlog, queue.debounce)
                if self._shared is not None:
                    await self._workers.reload(key, backlog)
            collect = full or queue.mode == "collect"
            rows = self._next(backlog, queue.cap if collect else 1)
            about_turn(str(rows[0].id))
            if not backlog.more:
                self._full.discard(key)
            if rows[0].tries >= MAX_TRIES or rows[0].deaths >= MAX_DEATHS:
                await self._attempts.set_aside(rows[0])
                return
            stop.conversations = [row.conversation for row in rows]
            try:
                await self._answer(key, rows, stop)
            except TurnWithdrawn:
                log.info("turn.withdrawn", channel=rows[0].inbound.channel)
                await self._workers.reload(key, backlog)  # the others are answered without them
            except StorageError:  # the disk's fault, not theirs
                raise
            except Exception as error:
                if not await self._attempts.failed(rows, error):
                    raise

    async def _answer(self, key: str, rows: list[QueuedMessage], stop: Stop) -> None:
        ids = [row.id for row in rows]
        waiting = await self._core.database.read(partial(inbox.still_waiting, rows=ids))
        rows = [row for row in rows if row.id in waiting]
        if not rows:  # forgotten, or of somebody who was blocked
            return
        command = rows[0].conversation.command
        if command is not None:
            conversation = self._core.resolver.renewed(rows[0].conversation)
            rows = [replace(rows[0], conversation=conversation)]
            if conversation.is_admitted:
                async with self._attempts.preparing(rows):
                    rest = await self._commander.run(rows[0], command)
                if rest is None:
                    return
                rows = [rest]
        async with self._slots.place(rows[0].conversation.person):
            admitted = await self._admit(key, rows)
            for row in admitted.elsewhere:
                await self.put(row)
            if admitted.rows:
                await self._run_turn(admitted.rows, stop)

    def _next(self, backlog: Backlog[QueuedMessage], most: int) -> list[QueuedMessage]:
        """The first message and those that can be answered with it.

        They are plain, of its session, and no turn has failed because of them; where there are
        limits, of one person: each is charged for what they asked.
        """
        rows = backlog.take()
        if rows[0].is_suspect or rows[0].conversation.command is not None:
            return rows
        is_limited = self._core.settings.now.limits != NO_LIMITS
        while len(rows) < most and backlog.rows:
            following = backlog.rows[0]
            if following.session_id != rows[0].session_id or following.is_suspect:
                break
            if following.conversation.command is not None:
                break
            if is_limited and following.conversation.person != rows[0].conversation.person:
                break
            rows.extend(backlog.take())
        return rows


async def _debounce(backlog: Backlog[QueuedMessage], seconds: float) -> None:
    """Wait until nothing has arrived for so long."""
    while True:
        backlog.arrived.clear()
        try:
            async with asyncio.timeout(seconds):
                await backlog.arrived.wait()
        except TimeoutError:
            return
