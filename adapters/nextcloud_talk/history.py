"""Missed messages of a room, asked of its server as the API user, patiently.

Patience has an end, because replies wait for it: a server that is not there is asked for some
minutes, an answer that makes no sense a few times.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import structlog

from adapters.nextcloud_talk.api import PAGE, TalkApi, data_of, last_given, retry_after
from adapters.nextcloud_talk.inbound import Identity, Ignored, normalise
from adapters.nextcloud_talk.rich import Rooms
from bot.channel import Inbound
from bot.channel.kit.client import Answer, TooLong, Unreachable
from bot.channel.kit.intake import MAX_AGE, MAX_MISSED
from bot.channel.kit.json_access import Json, child, identifier, mapping, number, text
from bot.channel.kit.supervisor import Supervisor
from bot.clock import system_clock

# A room's own record of what was said → the messages Talk would have brought: pure.
#
# Talk tells the webhook of no threads, so none is read here either: a message that comes both
# ways has to be the same one.

# Talk's calls do not come in order, so what was said shortly before the newest message that was
# stored may not have arrived.
SHORTLY = 5_000  # ms; Talk waits as long for an answer
OVERLAP = 100  # ids of messages, the whole server's, among which that is looked for

_REACTIONS = ("reaction", "reaction_deleted", "reaction_revoked")
# How Talk tells words and files from what it says itself.
_SAID = ("", "comment", "voice-message", "record-audio", "record-video")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a room's record: its id, its time (ms since the epoch), and what it says."""

    number: int
    sent_at: int
    content: Inbound | Ignored


def read(message: object, room: str, me: Identity, now: int) -> Entry:
    """Read one entry of a room's record; total over any JSON."""
    said = mapping(message)
    sent_at = min(number(said, "timestamp") * 1000, now)
    return Entry(number(said, "id"), sent_at, _content(said, room, me, sent_at))


def _content(said: Json, room: str, me: Identity, sent_at: int) -> Inbound | Ignored:
    kind, system = text(said, "messageType"), text(said, "systemMessage")
    if said.get("deleted") is True or kind == "comment_deleted":
        return Ignored("deleted")
    if system in _REACTIONS or kind in _REACTIONS:
        return Ignored("reaction")
    note = {**_note(said), "name": system or ("message" if kind in _SAID else kind)}
    answered = child(said, "parent")
    if identifier(answered, "id") and answered.get("deleted") is not True:
        note["inReplyTo"] = {"actor": _actor(answered), "object": _note(answered)}
    # What was shared with a room and is no file comes to the webhook as Talk's own words.
    is_shared = text(said, "message").strip() == "{object}"
    payload = {
        "type": "Activity" if system or is_shared else "Create",
        "actor": _actor(said),
        "object": note,
        "target": {"id": room},
    }
    found = normalise(payload, me, sent_at)
    return found if isinstance(found, Inbound | Ignored) else Ignored("malformed")


def _actor(said: Json) -> Json:
    return {
        "type": "Person",
        "id": f"{text(said, 'actorType')}/{text(said, 'actorId')}",
        "name": text(said, "actorDisplayName"),
    }


def _note(said: Json) -> Json:
    content = {"message": said.get("message"), "parameters": said.get("messageParameters")}
    return {"id": said.get("id"), "content": content}


class Missed:
    """Gathers, out of a room's record, what came after one message and is not too old."""

    def __init__(self, after: int, oldest: int) -> None:
        self.ignored: Counter[str] = Counter()  # what is no message, by reason
        self.cut = False  # whether there were more than are kept
        self._after = after
        self._oldest = oldest
        self._since = 0  # when the message `after` was said, or 0
        self._before: deque[Entry] = deque(maxlen=OVERLAP)
        self._newer: dict[int, Entry] = {}

    def add(self, entry: Entry) -> None:
        """Take one entry; the order does not matter."""
        if entry.number == self._after:
            self._since = entry.sent_at
        elif entry.sent_at < self._oldest:
            return
        elif isinstance(entry.content, Ignored):
            if entry.number > self._after:
                self.ignored[entry.content.reason] += 1
        elif entry.number < self._after:
            self._before.append(entry)
        else:
            self._newer[entry.number] = entry
            if len(self._newer) > MAX_MISSED:
                del self._newer[min(self._newer)]
                self.cut = True

    def messages(self) -> list[Inbound]:
        """The missed messages, oldest first.

        That includes what was said shortly before the message `after`, if that is there.
        """
        edge = self._since - SHORTLY
        found = [e for e in self._before if self._since and e.sent_at >= edge]
        found += self._newer.values()
        found.sort(key=lambda entry: entry.number)
        return [entry.content for entry in found if isinstance(entry.content, Inbound)]


MAX_PAGES = 20  # of one room, before only the newest is looked at
PATIENCE = 10.0  # seconds for one answer
MAX_TRIES = 12  # of a call, while the server is not there
SENSELESS = 4  # of these tries an answer that makes no sense costs
CLOSED = 600.0  # seconds in which a server that was given up, or refused us, is left alone
WEBHOOK = 1  # the feature of a bot that is told what is said

_BUSY = (408, 425, 429, 502, 503, 504)

_log = structlog.get_logger()


class Unreadable(Exception):
    """A room cannot be read; `reason` is one word for counting."""

    def __init__(self, why: str, reason: str = "unread") -> None:
        super().__init__(why)
        self.reason = reason


class History:
    """Reads what one account missed."""

    def __init__(self, supervisor: Supervisor, api: TalkApi, rooms: Rooms) -> None:
        self._supervisor = supervisor
        self._account = supervisor.account
        self._api = api
        self._rooms = rooms
        self._closed_until = 0.0

    async def kind(self, room: str) -> int:
        """The kind of a room, as Talk's own number; the account remembers it.

        Raises:
            Unreadable: the API user is not in it, or there is no answer.
            Stopped: the account stops first.
        """
        answer = await self._ask(
            partial(self._api.room, room, PATIENCE), lambda answer: bool(_kind(answer))
        )
        self._rooms.keep(room, _kind(answer))
        return _kind(answer)

    async def missed(self, room: str, after: int, entry: Callable[[object], Entry]) -> Missed:
        """The messages of a room after the one with this id.

        Raises:
            Unreadable: the API user is not in it, or there is no answer.
            Stopped: the account stops first.
        """
        found = Missed(after, system_clock() - MAX_AGE)
        since = max(after - OVERLAP, 0)
        for _ in range(MAX_PAGES):
            page, last = await self._page(room, since)
            for message in page:
                found.add(entry(message))
            if last <= since:  # nothing newer, or a server that leads us round in circles
                return found
            since = last
        page, _ = await self._page(room, None)
        for message in page:
            found.add(entry(message))
        found.cut = True
        return found

    async def is_told(self, room: str) -> bool:
        """True if the bot is switched on in a room, so that it would have been told.

        Raises:
            Unreadable: there is no answer.
            Stopped: the account stops first.
        """
        known = await self._ask(
            partial(self._api.features, room), lambda answer: answer.status in {200, 401, 404, 405}
        )
        if known.status == 200:
            return bool(number(mapping(data_of(known)), "features") & WEBHOOK)
        if known.status == 401:
            return False
        tried = await self._ask(  # before Talk 25
            partial(self._api.touch, room), lambda answer: answer.status in {200, 401, 404}
        )
        return tried.status != 401

    async def _page(self, room: str, since: int | None) -> tuple[list[object], int]:
        """One page of a room's record, and the id up to which it goes."""
        for limit in (PAGE, PAGE // 10, 1):
            try:
                answer = await self._ask(
                    partial(self._api.chat, room, limit, since, PATIENCE), _is_page
                )
            except TooLong:
                continue
            page = cast("list[object]", data_of(answer)) if answer.status == 200 else []
            newest = max((number(mapping(message), "id") for message in page[:limit]), default=0)
            return page[:limit], last_given(answer) or newest
        raise Unreadable("TooLong")

    async def _ask(
        self, call: Callable[[], Awaitable[Answer]], makes_sense: Callable[[Answer], bool]
    ) -> Answer:
        """The answer to a call, asked again a few times until there is one that makes sense.

        Raises:
            Unreadable: the server says no, or nothing.
            TooLong: the answer is longer than what can be read.
            Stopped: the account stops first.
        """
        backoff = self._supervisor.backoff()
        tries, why = 0, ""
        while tries < MAX_TRIES:
            if self._closed_until > time.monotonic():
                raise Unreadable("closed")
            answer: Answer | None = None
            try:
                answer = await call()
            except TooLong:
                raise
            except Unreachable as error:
                why = error.reason
            if answer is not None and makes_sense(answer):
                return answer
            asked_to_wait = 0.0
            if answer is not None:
                why, asked_to_wait = f"HTTP {answer.status}", retry_after(answer)
                self._give_up_if_refused(answer.status)
            busy = answer is None or answer.status in _BUSY
            tries += 1 if busy else SENSELESS
            if tries >= MAX_TRIES and busy:
                self._close(why)
            if tries < MAX_TRIES:
                delay = min(asked_to_wait, self._supervisor.longest) or backoff.next()
                await self._supervisor.pause(delay)
        raise Unreadable(why)

    def _give_up_if_refused(self, status: int) -> None:
        """Leave alone what the server will not give.

        Raises:
            Unreadable: that is so.
        """
        if status == 401:
            # Whoever is refused often gets slow answers, or none, to everything.
            self._close("HTTP 401")
            raise Unreadable("HTTP 401", "login")
        if status in {403, 404, 412}:
            raise Unreadable(f"HTTP {status}", "not_a_member")
        if status < 500 and status != 200 and status not in _BUSY:
            raise Unreadable(f"HTTP {status}")

    def _close(self, why: str) -> None:
        self._closed_until = time.monotonic() + CLOSED
        _log.warning("nextcloud_talk.history.closed", account=self._account, error=why)


def _kind(answer: Answer) -> int:
    return number(mapping(data_of(answer)), "type") if answer.status == 200 else 0


def _is_page(answer: Answer) -> bool:
    return answer.status == 304 or (answer.status == 200 and isinstance(data_of(answer), list))
