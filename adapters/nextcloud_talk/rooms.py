"""What kind of chat a room is: asked of its server, and remembered for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from cachetools import LRUCache

from adapters.nextcloud_talk.api import TalkApi, Unreachable
from bot.channel.kit.client import TooLarge
from bot.channel.kit.json_access import mapping, number

PATIENCE = 1.5  # seconds for an answer; Talk itself waits 5 for ours
KEPT = 600.0  # seconds an answer counts
RETRY = 30.0  # seconds until a room is asked for again that could not be looked up
MOST = 10_000  # rooms

ONE_TO_ONE, FORMER_ONE_TO_ONE, NOTE_TO_SELF = 1, 5, 6
DIRECT = (ONE_TO_ONE, FORMER_ONE_TO_ONE, NOTE_TO_SELF)

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Room:
    kind: int  # Talk's own number, 0 when it is not known
    until: float


class Rooms:
    """The rooms of one server, as one API user sees them; without one, all are groups."""

    def __init__(
        self,
        account: str,
        api: TalkApi,
        api_user: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._account = account
        self._api = api
        self._api_user = api_user
        self._clock = clock
        self._rooms: LRUCache[str, _Room] = LRUCache(MOST)

    def __len__(self) -> int:
        return len(self._rooms)

    async def is_direct(self, token: str, sender: str) -> bool:
        """Whether nobody but this person and the bot's account reads along; False when unknown."""
        kind = await self._kind(token)
        if kind == ONE_TO_ONE:
            # What that account's own user writes there, another person reads.
            return sender != self._api_user
        return kind in DIRECT

    def keep(self, token: str, kind: int) -> None:
        """Remember what kind a room is, as Talk's own number."""
        self._rooms[token] = _Room(kind, self._clock() + KEPT)

    def forget(self, token: str) -> None:
        """Ask again next time."""
        self._rooms.pop(token, None)

    async def _kind(self, token: str) -> int:
        if not self._api.has_login:
            return 0
        known, now = self._rooms.get(token), self._clock()
        if known is not None and known.until > now:
            return known.kind
        kind = await self._ask(token)
        if kind:
            found = _Room(kind, now + KEPT)
        else:
            # What was known stays true: Talk does not turn a direct chat into a group.
            found = _Room(known.kind if known is not None else 0, now + RETRY)
        self._rooms[token] = found
        return found.kind

    async def _ask(self, token: str) -> int:
        try:
            answer = await self._api.room(token, PATIENCE)
        except (Unreachable, TooLarge) as error:
            self._unknown(str(error) or type(error).__name__)
            return 0
        if answer.status != 200:
            self._unknown(f"HTTP {answer.status}")
            return 0
        return number(mapping(answer.data), "type")

    def _unknown(self, reason: str) -> None:
        _log.info("nextcloud_talk.room.unknown", account=self._account, reason=reason)
