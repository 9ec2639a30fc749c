"""The sessions that are being talked in, in memory: their row and what the model sees of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast

import orjson
from cachetools import LRUCache

from bot.agent.model_limits import ModelLimits
from bot.agent.models import ToolSpec
from bot.agent.tools.toolbox import SHORT, ToolList
from bot.agent.turn import TOKENS
from bot.context import prompt, tokens
from bot.context.history import History, HistoryMessage, lines_of
from bot.context.tokens import Count
from bot.errors import StorageError
from bot.identity import Conversation
from bot.identity.view import MemoryView, is_owners_own
from bot.memory.notes import SpaceFiles
from bot.memory.uses import Uses
from bot.messages import Message, Picture
from bot.sessions import artifacts, compactions, store
from bot.sessions.compactions import Snapshot
from bot.sessions.store import Session
from bot.storage import Database, Transaction

MAX_CACHED = 500  # sessions
MAX_BYTES = 64 << 20  # that they take together, about; pictures are most of it
TOKEN_BYTES = 8  # that a token takes, as it was said and as it is shown
MAX_MESSAGES = 4_000  # of a transcript that are read back; the window is smaller still


@dataclass(slots=True)
class CachedSession:
    """A session in memory.

    Attributes:
        session: its row.
        history: the messages a model sees of it.
        snapshots: what its requests begin with, by view and tools.
        unsaved: the names of snapshots that are not on disk yet.
        begins: the name of the snapshot with which the latest request of a view began.
        called_at: when its model was last asked, in ms, or 0.
        hidden: how much was hidden of it (`store.hidden_count`) when it was read.
        version: that of the row the history belongs to, which `session` may be ahead of.
        fixed: tokens of each snapshot.
    """

    session: Session
    history: History
    snapshots: dict[str, Snapshot] = field(default_factory=dict[str, Snapshot])
    unsaved: list[str] = field(default_factory=list[str])
    begins: dict[str, str] = field(default_factory=dict[str, str])
    called_at: int = 0
    hidden: int = 0
    version: int = 0
    fixed: dict[str, int] = field(default_factory=dict[str, int])

    def snapshot_of(self, view: str) -> str:
        """The name of the snapshot that the requests of a view begin with."""
        return self.begins.get(view, view)


def size_of(live: CachedSession) -> int:
    """About how many bytes of `MAX_BYTES` a session takes; no more than `MAX_CACHED` fit."""
    blocks = (block for line in live.history.lines for block in line.message.blocks)
    pictures = sum(len(block.data) for block in blocks if isinstance(block, Picture))
    taken = pictures + live.history.estimated * TOKEN_BYTES
    return min(max(taken, MAX_BYTES // MAX_CACHED), MAX_BYTES)


class SessionCache:
    """A bounded cache over the database; dropping from it costs one read.

    The writer's thread looks into it too, so each use is behind a lock.
    """

    def __init__(
        self, database: Database, count: Count = tokens.estimate, *, is_shared: bool = False
    ) -> None:
        """With `is_shared`, other nodes change sessions: what is kept is compared with its row."""
        self._is_shared = is_shared
        self._database = database
        self._count = count
        self._live: LRUCache[str, CachedSession] = LRUCache(MAX_BYTES, size_of)
        self._lock = threading.Lock()
        self._loading: dict[str, object] = {}  # a mark for what is being read

    def note(self, session: Session) -> None:
        """A session's row as a transaction has just left it."""
        live = self._known(session.id)
        if live is not None:
            live.session = session
            return
        self._loading.pop(session.id, None)  # it may have been read before this
        if session.entry_count == 0:
            self._keep(CachedSession(session, History(count=self._count), version=session.version))

    def forget(self, session_id: str) -> None:
        """Read this session again the next time it is asked for."""
        with self._lock:
            self._live.pop(session_id, None)
        self._loading.pop(session_id, None)  # what is being read may be out of date already

    def holds(self, live: CachedSession) -> bool:
        """True if this is the cached state of its session, and no earlier one."""
        return self._known(live.session.id) is live

    def _known(self, session_id: str) -> CachedSession | None:
        with self._lock:  # looking moves it to the front
            return self._live.get(session_id)

    def _keep(self, live: CachedSession) -> None:
        with self._lock:
            self._live[live.session.id] = live

    def is_up_to_date(self, tx: Transaction, live: CachedSession) -> bool:
        """True when no other node has changed a session since its history was read."""
        return not self._is_shared or store.version(tx, live.session.id) == live.version

    def settle(self, live: CachedSession, *, is_whole: bool = False) -> None:
        """This session was changed in memory too; if it was read anew meanwhile, that is outdated.

        `is_whole` says that the change found it `is_up_to_date`; where other nodes may have come
        in between, it is read again.
        """
        live.version = live.session.version
        if (self._is_shared and not is_whole) or not self.holds(live):
            self.forget(live.session.id)
        else:
            self._keep(live)  # it has grown

    async def get(self, session_id: str) -> CachedSession:
        """A session with its conversation.

        Raises:
            StorageError: there is no such session, or it cannot be read.
        """
        if self._is_shared and (known := self._known(session_id)) is not None:
            version = await self._database.read(lambda tx: store.version(tx, session_id))
            if version != known.version and self.holds(known):
                self.forget(session_id)
        while (live := self._known(session_id)) is None:
            mark = self._loading.setdefault(session_id, object())
            live = await self._database.read(lambda tx: _load(tx, session_id, self._count))
            if self._loading.get(session_id) is mark:
                del self._loading[session_id]
                self._keep(live)
        return live


def _load(tx: Transaction, session_id: str, count: Count) -> CachedSession:
    session = store.get(tx, session_id)
    if session is None:
        raise StorageError("a message belongs to a session that is not there")
    compaction = compactions.current(tx, session)
    first, summary = (compaction.first_kept, compaction.summary) if compaction else ("", "")
    origin = compaction.origin if compaction else ""
    since = session.first_seq
    said = store.messages(tx, session_id, MAX_MESSAGES, first, since=since)
    lines = _with_pictures(tx, lines_of(said))
    history = History(lines, summary, origin=origin, known=session.context_tokens, count=count)
    return CachedSession(
        session,
        history,
        compactions.load(tx, session_id),
        called_at=session.last_turn_at,
        hidden=store.hidden_count(tx, session_id, since=since),
        version=session.version,
    )


def _with_pictures(tx: Transaction, lines: list[HistoryMessage]) -> list[HistoryMessage]:
    """The lines with their pictures at hand."""
    blocks = (block for line in lines for block in line.message.blocks)
    refs = [block.ref for block in blocks if isinstance(block, Picture)]
    if not refs:
        return lines
    data = artifacts.pictures(tx, refs)
    return [replace(line, message=_shown(line.message, data)) for line in lines]


def _shown(message: Message, data: Mapping[str, str]) -> Message:
    blocks = (
        replace(block, data=data.get(block.ref, "")) if isinstance(block, Picture) else block
        for block in message.blocks
    )
    return Message(message.role, tuple(blocks))


# What every request of a session begins with: made once, then the same bytes to its end.

SHARED = 128  # texts that several sessions may have in common
SHORT_PERSONA = 380  # tokens of the files in a short prompt, of which all is 900 at most
PERSONA_SHARE = 3  # the files take at most this part (one third) of what the model is shown
MEMORY_SHARE = 0.7  # of `max_injected_chars` is for lasting facts; the rest is left for recall


class Prefixes:
    """Makes the prefix of a session, view and list of tools once, and gives the same ever after.

    Where other tools may be used from some message on (the rules were changed, or somebody else
    speaks in a room), that begins with a prefix of its own: a list never changes under a session.
    """

    def __init__(self, files: SpaceFiles, uses: Uses) -> None:
        self._files = files
        self._uses = uses
        self._shared: LRUCache[str, str] = LRUCache(SHARED)

    async def of(
        self, live: CachedSession, here: Conversation, tools: ToolList, limit: int
    ) -> Snapshot:
        """The prefix for a session as one conversation sees it; `limit` is the window in tokens.

        With the tools of a short prompt all of it is short.
        """
        view, config = here.view, here.config
        name = f"{name_of(view)}+{tools.mark}" if tools.mark else name_of(view)
        live.begins[name_of(view)] = name
        if name in live.snapshots:
            return live.snapshots[name]
        cap = min(prompt.PERSONA_FILE_CAP, int(config.memory.max_injected_chars * MEMORY_SHARE))
        files = [
            replace(file, cap=cap) if file.remembered else file
            for file in await self._files.bootstrap(view, await self._uses.aging(view.spaces))
        ]
        short = tools.mark.startswith(SHORT)
        most = SHORT_PERSONA if short else limit // PERSONA_SHARE
        # Files that people write may be long.
        shown = await asyncio.to_thread(prompt.assemble_persona, files, most, short=short)
        system = prompt.system_prompt(
            name=config.agent.name,
            language=here.language,
            tools=[tool.name for tool in tools.specs],
            owner=config.session.owner_name if is_owners_own(view) else "",
            cite=cites(here),
            silent=TOKENS[0] if live.session.chat_type != "direct" else "",
            persona=shown.text,
            short=short,
        )
        system = self._shared.setdefault(system, system)  # most sessions begin with the same words
        made = Snapshot(system, tools.json, shown.own, shown.remembered)
        live.snapshots[name] = made
        live.unsaved.append(name)
        return made


def cites(here: Conversation) -> bool:
    """True if answers name the files they rest on."""
    wanted = here.config.memory.citations
    return wanted == "on" or (wanted == "auto" and here.view.private)


def name_of(view: MemoryView) -> str:
    """A name that tells the views of one session apart."""
    return f"{view.space}{'#private' if view.private else ''}"


def is_short(live: CachedSession, limits: ModelLimits) -> bool:
    """True for a session whose prompts are short: what it began with holds to its end."""
    if not live.snapshots:
        return limits.wants_short
    return any(name.partition("+")[2].startswith(SHORT) for name in live.snapshots)


def save(tx: Transaction, live: CachedSession, now: int) -> None:
    """Keep the prefixes that are new; part of the turn's transaction."""
    for name in live.unsaved:
        compactions.keep(tx, live.session.id, name, live.snapshots[name], now)


@lru_cache(SHARED)
def tools_of(tools: str) -> tuple[ToolSpec, ...]:
    """The tools of a prefix, which has them as JSON."""
    raw = cast("list[dict[str, Any]]", orjson.loads(tools))
    return tuple(ToolSpec(item["name"], item["description"], item["schema"]) for item in raw)
