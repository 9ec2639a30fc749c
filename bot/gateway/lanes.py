"""One lane for each session key: its messages are answered one turn at a time, in order.

Different lanes run side by side, up to a cap for the whole program. In "collect" mode, and when
more waits than fits in memory, what waits is answered together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from bot.clock import Clock
from bot.commands.commander import Commander
from bot.config import Settings
from bot.coordination import SharedTurns
from bot.errors import StorageError
from bot.gateway.admission import Admitted
from bot.gateway.attempts import Attempts, is_hopeless
from bot.i18n import text
from bot.identity import ConversationResolver
from bot.sessions import inbox
from bot.sessions.inbox import QueuedMessage
from bot.storage import Database
from bot.unit_of_work import Committer
from bot.workers import Backlog, Workers

Admit = Callable[[str, Sequence[QueuedMessage]], Awaitable[Admitted]]
RunTurn = Callable[[str, Sequence[QueuedMessage]], Awaitable[None]]


class Lanes:
    """Hands each lane's messages to `run_turn`, those that `admit` leaves there.

    `overflowed` is called once each time a lane fills up, with the message that did not fit.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        database: Database,
        resolver: ConversationResolver,
        commander: Commander,
        attempts: Attempts,
        admit: Admit,
        run_turn: RunTurn,
        overflowed: Callable[[QueuedMessage], Awaitable[None]],
        shared: SharedTurns | None = None,
    ) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.now.session.max_turns)
        self._database = database
        self._resolver = resolver
        self._commander = commander
        self._attempts = attempts
        self._admit = admit
        self._run_turn = run_turn
        self._overflowed = overflowed
        self._full: set[str] = set()  # lanes with more waiting than fits in memory
        self._shared = shared
        self._workers = Workers[str, QueuedMessage](
            self._handle,
            self._load,
            settings.now.session.queue.cap,
            fence_of=shared.fence_of if shared is not None else lambda _key: None,
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
            await self._overflowed(waiting)

    async def recover(self) -> int:
        """Queue everything that has no answer yet from before a restart; how many lanes."""
        keys = await self._database.read(inbox.waiting_keys)
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

    async def _load(self, key: str, limit: int) -> Sequence[QueuedMessage]:
        found = await self._database.read(
            lambda tx: inbox.waiting(tx, key, limit, self._resolver.resolve)
        )
        if self._shared is not None and len(found) == limit and key not in self._full:
            self._full.add(key)
            await self._overflowed(found[-1])
        return found

    async def _handle(self, key: str, backlog: Backlog[QueuedMessage]) -> None:
        full, queue = key in self._full, self._settings.now.session.queue
        if queue.mode == "collect" and not full:
            await _debounce(backlog, queue.debounce)
            if self._shared is not None:
                await self._workers.reload(key, backlog)
        collect = full or queue.mode == "collect"
        rows = self._next(backlog, queue.cap if collect else 1)
        if not backlog.more:
            self._full.discard(key)
        if is_hopeless(rows[0]):
            await self._attempts.set_aside(rows[0])
            return
        try:
            await self._answer(key, rows)
        except StorageError:  # the disk's fault, not theirs
            raise
        except Exception as error:
            if not await self._attempts.failed(rows, error):
                raise

    async def _answer(self, key: str, rows: list[QueuedMessage]) -> None:
        command = rows[0].conversation.command
        if command is not None:
            conversation = self._resolver.renewed(rows[0].conversation)
            rows = [replace(rows[0], conversation=conversation)]
            if conversation.is_admitted:
                async with self._attempts.preparing(rows):
                    rest = await self._commander.run(rows[0], command)
                if rest is None:
                    return
                rows = [rest]
        async with self._slots:
            admitted = await self._admit(key, rows)
            for row in admitted.elsewhere:
                await self.put(row)
            if admitted.rows:
                await self._run_turn(key, admitted.rows)

    def _next(self, backlog: Backlog[QueuedMessage], most: int) -> list[QueuedMessage]:
        """The first message and those that can be answered with it.

        They are plain, of its session, and no turn has failed because of them.
        """
        rows = backlog.take()
        if rows[0].is_suspect or rows[0].conversation.command is not None:
            return rows
        while len(rows) < most and backlog.rows:
            following = backlog.rows[0]
            if following.session_id != rows[0].session_id or following.is_suspect:
                break
            if following.conversation.command is not None:
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


async def tell_waiting(
    committer: Committer, clock: Clock, count: int, waiting: QueuedMessage
) -> None:
    """Say that more waits than fits (`count` messages), and is answered together."""
    language, address = waiting.conversation.language, waiting.conversation.address
    words = text(language, "turn.waiting", count=count)
    await committer.commit(
        clock(), lambda unit: unit.say(address, words, "notice", language=language)
    )
