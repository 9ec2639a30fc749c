"""How often the turn of a message failed, and what is done when it fails every time.

The count is on disk. A failure is counted when it has happened. A crash cannot be, so a turn of a
message that was there already when the program started is counted before it is prepared, and
all of that is forgotten once it was prepared: only a message that never gets there can be what ends
the program. Others end it too (a power cut, whoever kills it, another part that fails at each
start), so it takes many of them, and the last ones count only when the program had lived for some
seconds: one that was met so often waits until then. For one that was met twice nothing is recalled,
in case that is the cause, and because it takes long just after a start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress

import structlog

from bot.channel import Inbound
from bot.clock import Clock, moment
from bot.delivery.outbox import Extra
from bot.errors import StorageError
from bot.i18n import text
from bot.metrics import Metrics
from bot.sessions import inbox
from bot.sessions.entries import NewEntry
from bot.sessions.inbox import QueuedMessage
from bot.storage import Database
from bot.unit_of_work import Committer, UnitOfWork

MAX_TRIES = 4  # turns that may fail, with some seconds between them
MAX_DEATHS = 10  # ends of the program in a row while a message's turn was prepared
PLAIN_DEATHS = 2  # after as many nothing is recalled for its turn
SETTLED_DEATHS = 8  # after as many it begins only when the program has lived for …
SETTLED = 5.0  # … as many seconds

log = structlog.get_logger(__name__)


def is_hopeless(row: QueuedMessage) -> bool:
    """True when there is no use in another turn of this message."""
    return row.tries >= MAX_TRIES or row.deaths >= MAX_DEATHS


def is_plain(rows: Sequence[QueuedMessage]) -> bool:
    """True when these messages' turn has to do without what may take long or end the program."""
    return any(row.deaths >= PLAIN_DEATHS for row in rows)


class Attempts:
    """Counts turns that fail, and sets messages aside so that their chat goes on."""

    def __init__(
        self,
        *,
        database: Database,
        committer: Committer,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._database = database
        self._committer = committer
        self._clock = clock
        self._metrics = metrics
        self._newest = 0  # the id of the newest message from before the start
        self._begun = 0.0  # when the program started, by the loop's clock
        self._one_by_one = asyncio.Lock()

    async def begin(self) -> None:
        """Take over what was being done when the program ended; before anything is received.

        Raises:
            StorageError: the disk does not take it.
        """
        self._newest = await self._database.write(inbox.reclaim)
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
            await self._database.write(lambda tx: inbox.endanger(tx, old))
            try:
                yield
            finally:  # whatever came of it, the program is still there
                with suppress(StorageError):
                    await self._database.write(lambda tx: inbox.clear(tx, old))

    async def failed(self, rows: Sequence[QueuedMessage], error: Exception) -> bool:
        """Count a turn that failed; True when its message is set aside, as there is no use in more.

        Raises:
            StorageError: that could not be noted.
        """
        ids = [row.id for row in rows]
        counts = await self._database.write(lambda tx: [inbox.tried(tx, id_) for id_ in ids])
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
        now = self._clock()
        try:
            await self._committer.commit(now, lambda unit: self._told(unit, row, error))
        except StorageError:
            raise
        except Exception:
            # Nothing of the message can be used, not even where it came from.
            log.exception("message.untold", channel=row.inbound.channel)
            await self._database.write(lambda tx: inbox.set_aside(tx, row.id, error, now))
        self._metrics.set_aside.labels(row.inbound.channel).inc()
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
    """What a message is, in a word: its text, or what came with it."""
    if inbound.text.startswith("/"):
        return "command"
    return inbound.media[0].kind if inbound.media else "message"
