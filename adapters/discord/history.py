"""What was said while nobody listened, and channels nobody described: asking Discord, patiently."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from cachetools import LRUCache

from adapters.discord import DiscordConfig
from adapters.discord.api import Rest, first_id_at, identity, number_in, reason, sent_at
from adapters.discord.drafts import EPHEMERAL, MARK, MESSAGE
from adapters.discord.inbound import CREATED, UPDATED, edited_at
from adapters.discord.interactions import Interaction
from adapters.discord.places import Place, Places
from adapters.discord.sdk import discord
from bot.channel import Piece
from bot.channel.kit.drafts import Drafts
from bot.channel.kit.intake import MAX_AGE, MAX_MISSED, Where, listens, newest_chats
from bot.channel.kit.json_access import Json, child, children, mapping, text
from bot.channel.kit.supervisor import Supervisor
from bot.clock import system_clock

PAGE = 100
MAX_STARTED = 10_000  # threads whose first message was looked up
START_TIMEOUT = 3.0  # seconds

_log = structlog.get_logger()
T = TypeVar("T")


class History:
    """Reads what one account missed."""

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        rest: Rest,
        config: DiscordConfig,
        places: Places,
        drafts: Drafts[str],
    ) -> None:
        self._supervisor = supervisor
        self._rest = rest
        self._account = supervisor.account
        self._config = config
        self._places = places
        self._drafts = drafts
        self._started: LRUCache[str, None] = LRUCache(MAX_STARTED)

    async def place(self, chat: str) -> Place | None:
        """Where a chat is; None when the bot may not know.

        Raises:
            Stopped: the account stops before Discord answers.
        """
        known = self._places.place(chat)
        if known is not None:
            return known
        try:
            found = await self._patiently(
                lambda: self._rest.call("GET", "/channels/{channel_id}", channel_id=chat)
            )
        except discord.HTTPException as error:
            _log.info("discord.place.unknown", account=self._account, error=reason(error))
            return None
        return self._places.learn({**mapping(found), "id": chat})

    async def start(self, parent: str, thread: str) -> Json:
        """The message with which a thread began, the first time it is asked for; or nothing.

        It has the thread's id: in a forum it is the post itself, elsewhere it is in the parent.
        Nobody waits for it long: a message can be answered without.
        """
        if thread in self._started:
            return {}
        self._started[thread] = None
        for chat in filter(None, (thread, parent)):
            try:
                async with asyncio.timeout(START_TIMEOUT):
                    found = await self._rest.call(
                        "GET", MESSAGE, channel_id=chat, message_id=thread
                    )
                return mapping(found)
            except (discord.DiscordException, TimeoutError) as error:
                _log.info("discord.start.unknown", account=self._account, error=reason(error))
        return {}

    async def missed(self, chat: str, after: int) -> list[tuple[str, Json]]:
        """What happened in a chat after the message with this id, oldest first.

        That is its newest messages, as `CREATED`, and the edits of those before, as `UPDATED`.
        Replies of the bot's that were never finished are taken away on the way.

        Raises:
            Stopped: the account stops before Discord answers.
        """
        place = await self.place(chat)
        if place is None or not self._listens(chat, place):
            return []
        try:
            page = await self._patiently(
                lambda: self._rest.call(
                    "GET",
                    "/channels/{channel_id}/messages",
                    query={"limit": str(min(PAGE, MAX_MISSED))},
                    channel_id=chat,
                )
            )
        except discord.HTTPException as error:
            _log.info("discord.history.refused", account=self._account, error=reason(error))
            return []
        since = system_clock() - MAX_AGE
        messages = children({"page": page}, "page")
        found = [new for message in messages if (new := _new(message, after, since))]
        created = [message for _, kind, message in found if kind == CREATED]
        if len(created) >= MAX_MISSED:
            _log.warning("discord.history.cut", account=self._account, kept=len(created))
        for message in created:
            await self._clean(chat, message)
        found.sort(key=lambda new: (new[0], int(identity(new[2], "id"))))
        return [(kind, message) for _, kind, message in found]

    def chats(self, last_seen: Mapping[str, str], since: int, server: str = "") -> dict[str, int]:
        """The chats to look through, each with the id of the message to begin after.

        They are those of `last_seen`, and the listed ones of one server or of all in which there
        is something newer than the message id `since`; the ones with the newest messages, when
        they are many.
        """
        numbers = {chat: number_in(message) for chat, message in last_seen.items()}
        begin = {chat: int(seen) for chat, seen in numbers.items() if seen and chat.isdecimal()}
        newest = self._places.newest(server)
        for chat, number in newest.items():
            place = self._places.place(chat)
            if place is None:
                continue
            # What was said before the bot joined was not said to it.
            known = max(since, int(first_id_at(self._places.joined(place.server))))
            if number > known and self._listens(chat, place):
                begin.setdefault(chat, known)
        chosen = newest_chats({chat: max(at, newest.get(chat, 0)) for chat, at in begin.items()})
        if len(chosen) < len(begin):
            _log.warning("discord.history.chats_cut", account=self._account, chats=len(begin))
        return {chat: begin[chat] for chat in chosen}

    def _listens(self, chat: str, place: Place) -> bool:
        return listens(self._config, Where(place.kind, chat, place.parent, place.server))

    async def _clean(self, chat: str, message: Json) -> None:
        number = identity(message, "id")
        is_own = identity(child(message, "author"), "id") == self._places.me
        is_draft = is_own and text(message, "content").endswith(MARK.strip())
        if not is_draft or self._drafts.shows(chat, number):
            return
        try:
            await self._patiently(
                lambda: self._rest.call("DELETE", MESSAGE, channel_id=chat, message_id=number)
            )
        except discord.HTTPException as error:
            _log.info("discord.draft.left", account=self._account, error=reason(error))

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer to a call, asked again until there is one.

        Raises:
            HTTPException: Discord says no.
            Stopped: the account stops first.
        """
        backoff = self._supervisor.backoff()
        while True:
            try:
                return await call()
            except discord.RateLimited as error:
                delay = error.retry_after
            except discord.HTTPException as error:
                if error.status < 500 and error.status != 401:
                    raise
                delay = backoff.next()
            except discord.DiscordException:
                delay = backoff.next()
            await self._supervisor.pause(delay)


def _new(message: Json, after: int, since: int) -> tuple[int, str, Json] | None:
    """When it happened (ms since the epoch), what, and the message; None when it is known or old.

    `after` is the id of a message that is known, `since` is in ms since the epoch.
    """
    number, edited = identity(message, "id"), edited_at(message)
    if not number:
        return None
    at = sent_at(number)
    if int(number) > after and at >= since:
        return at, CREATED, message
    if edited is not None and edited >= since:
        return edited, UPDATED, message
    return None


# Interactions that wait: acknowledging them, and finding the one an answer belongs to.

REMEMBERED = 1024  # interactions and pressed messages kept in mind
ACK_WAIT = 5.0  # seconds an answer waits for the acknowledgement before it

_DEFERRED, _DEFERRED_UPDATE, _UPDATE = 5, 6, 7


@dataclass(slots=True)
class Waiting:
    """A command whose answer is awaited; `answer` is the id of the text that answers it."""

    interaction: Interaction
    acknowledged: asyncio.Future[bool]
    answer: str = ""
    is_filled: bool = False  # whether the answer has taken the place of "thinking…"
    timer: asyncio.TimerHandle | None = None


class PendingInteractions:
    """The interactions of one account. Tokens live here for 15 minutes and are never stored.

    After a restart, or when Discord no longer knows a token, the answer is a plain message; one for
    a person alone goes to their direct chat (`Sender`). It has many methods because an interaction
    opens, is stored, acknowledged, claimed, filled, and ends in several ways.

    Args:
        spawn: runs something in a task that ends with the account.
        unanswered: seconds until a "thinking…" that nobody answers is taken away.
    """

    def __init__(
        self,
        rest: Rest,
        account: str,
        spawn: Callable[[Coroutine[Any, Any, Any]], object],
        unanswered: float,
    ) -> None:
        self._rest = rest
        self._account = account
        self._spawn = spawn
        self._unanswered = unanswered
        self._waiting: dict[str, Waiting] = {}
        # Messages, and the press on them that counts.
        self._pressed: LRUCache[str, str] = LRUCache(REMEMBERED)

    # --- what comes in ---------------------------------------------------------------------------

    def repeated(self, interaction: Interaction) -> bool:
        """True if it came before, or the buttons it belongs to were pressed already."""
        if interaction.kind == "command":
            return interaction.id in self._waiting
        return self._pressed.get(interaction.message, interaction.id) != interaction.id

    def opened(self, interaction: Interaction) -> None:
        """It is about to be stored: its answer may come at any time from now."""
        if interaction.kind == "command":
            future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._waiting[interaction.id] = Waiting(interaction, future)
            if len(self._waiting) > REMEMBERED:
                self._forget(next(iter(self._waiting)))

    def stored(self, interaction: Interaction) -> None:
        """It is on disk: tell the person's screen."""
        if interaction.kind == "press":
            if interaction.message:
                self._pressed[interaction.message] = interaction.id
            self._spawn(self._take_away(interaction))
            return
        waiting = self._waiting.get(interaction.id)
        if waiting is not None:
            self._spawn(self._acknowledge(waiting))

    def dismiss(self, interaction: Interaction) -> None:
        """It is nothing for the engine: end the waiting sign of a press, and nothing else."""
        if interaction.kind == "press":
            self._spawn(self._call_back(interaction, {"type": _DEFERRED_UPDATE}))

    def close(self) -> None:
        """The account stops: nothing is taken away any more."""
        for number in tuple(self._waiting):
            self._forget(number)

    # --- what goes out ---------------------------------------------------------------------------

    async def claim(self, piece: Piece, *, exact: bool) -> Waiting | None:
        """The interaction a text answers, or None when it is a message like any other.

        It is the one `reply_to` names; without `reply_to` the chat's oldest that has no answer yet,
        unless `exact`.
        """
        waiting = self._find(piece, exact=exact)
        if waiting is None:
            return None
        try:
            async with asyncio.timeout(ACK_WAIT):
                acknowledged = await asyncio.shield(waiting.acknowledged)
        except TimeoutError:
            acknowledged = False
        if not acknowledged:
            self._forget(waiting.interaction.id)
            return None
        waiting.answer = piece.whole.id
        return waiting

    def filled(self, waiting: Waiting) -> None:
        """The answer stands where "thinking…" was."""
        waiting.is_filled = True
        if waiting.timer is not None:
            waiting.timer.cancel()
            waiting.timer = None

    def lost(self, waiting: Waiting) -> None:
        """Discord no longer knows it: the answer goes out as a message."""
        self._forget(waiting.interaction.id)

    def _find(self, piece: Piece, *, exact: bool) -> Waiting | None:
        if piece.kind == "reminder":
            return None  # it comes by itself
        chat = piece.address.chat
        here = [w for w in self._waiting.values() if w.interaction.chat == chat]
        for waiting in here:
            if waiting.answer == piece.whole.id:
                return waiting
        free = [waiting for waiting in here if not waiting.answer]
        if piece.reply_to:
            names = (w for w in free if piece.reply_to == w.interaction.message_id)
            return next(names, None)
        return free[0] if free and not piece.index and not exact else None

    # --- courtesies ------------------------------------------------------------------------------

    async def _acknowledge(self, waiting: Waiting) -> None:
        flags = EPHEMERAL if waiting.interaction.is_private else 0
        done = await self._call_back(
            waiting.interaction, {"type": _DEFERRED, "data": {"flags": flags}}
        )
        if not waiting.acknowledged.done():
            waiting.acknowledged.set_result(done)
        if done and not waiting.is_filled and waiting.interaction.id in self._waiting:
            loop = asyncio.get_running_loop()
            waiting.timer = loop.call_later(self._unanswered, self._give_up, waiting)
        elif not done:
            self._forget(waiting.interaction.id)

    def _give_up(self, waiting: Waiting) -> None:
        """Nobody answers: whoever may not talk here gets no answer, only their screen back."""
        self._forget(waiting.interaction.id)
        self._spawn(self._withdraw(waiting.interaction))

    async def _withdraw(self, interaction: Interaction) -> None:
        try:
            await self._rest.call(
                "DELETE",
                "/webhooks/{webhook_id}/{webhook_token}/messages/@original",
                webhook_id=interaction.application,
                webhook_token=interaction.token,
            )
        except discord.DiscordException as error:
            _log.debug("discord.interaction.kept", account=self._account, error=reason(error))

    async def _take_away(self, interaction: Interaction) -> None:
        """End the waiting sign and take the buttons away, in one call."""
        answer: Json = {"type": _UPDATE, "data": {"components": []}}
        if not await self._call_back(interaction, answer):
            self._pressed.pop(interaction.message, None)  # they still stand there, so must work

    async def _call_back(self, interaction: Interaction, answer: Json) -> bool:
        try:
            await self._rest.call(
                "POST",
                "/interactions/{webhook_id}/{webhook_token}/callback",
                answer,
                webhook_id=interaction.id,
                webhook_token=interaction.token,
            )
        except discord.DiscordException as error:
            said = reason(error)
            _log.info("discord.interaction.unanswered", account=self._account, error=said)
            return False
        return True

    def _forget(self, number: str) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is None:
            return
        if waiting.timer is not None:
            waiting.timer.cancel()
        if not waiting.acknowledged.done():
            waiting.acknowledged.set_result(False)
