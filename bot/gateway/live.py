"""Sessions that are being talked in, kept in memory: their row and what the model sees of them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from bot.agent.models import Message
from bot.agent.transcript import message_of, repaired
from bot.context.conversation import Conversation
from bot.errors import StorageError
from bot.sessions import snapshots, store
from bot.sessions.snapshots import Snapshot
from bot.sessions.store import Session
from bot.storage import Database, Transaction

MAX_LIVE = 500  # sessions kept in memory
MAX_MESSAGES = 4_000  # of a transcript that are read back; the window is smaller still


@dataclass(slots=True)
class Live:
    """A session in memory. Only the lane of its key changes `conversation` and `snapshots`.

    `snapshots` is what its requests begin with, by view; those in `unsaved` are not on disk yet.
    """

    session: Session
    conversation: Conversation[Message]
    snapshots: dict[str, Snapshot] = field(default_factory=dict[str, Snapshot])
    unsaved: list[str] = field(default_factory=list[str])


class LiveSessions:
    """A bounded cache over the database; dropping from it costs one read."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._live: OrderedDict[str, Live] = OrderedDict()

    def note(self, session: Session) -> None:
        """A session's row as a transaction has just left it."""
        live = self._live.get(session.id)
        if live is not None:
            live.session = session
        elif session.entry_count == 0:
            self._keep(Live(session, Conversation()))

    def forget(self, session_id: str) -> None:
        """Read this session again the next time it is asked for."""
        self._live.pop(session_id, None)

    async def get(self, session_id: str) -> Live:
        """A session with its conversation.

        Raises:
            StorageError: there is no such session, or it cannot be read.
        """
        live = self._live.get(session_id)
        if live is None:
            live = await self._database.read(lambda tx: _load(tx, session_id))
            self._keep(live)
        self._live.move_to_end(session_id)
        return live

    def _keep(self, live: Live) -> None:
        self._live[live.session.id] = live
        while len(self._live) > MAX_LIVE:
            self._live.popitem(last=False)


def _load(tx: Transaction, session_id: str) -> Live:
    session = store.get(tx, session_id)
    if session is None:
        raise StorageError("a message belongs to a session that is not there")
    entries = store.messages(tx, session_id, MAX_MESSAGES)
    conversation = Conversation(repaired(message_of(entry) for entry in entries))
    return Live(session, conversation, snapshots.load(tx, session_id))
