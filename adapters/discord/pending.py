"""Interactions that wait: acknowledging them, and finding the one an answer belongs to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog
from cachetools import LRUCache

from adapters.discord.api import Rest, reason
from adapters.discord.interactions import Interaction
from adapters.discord.sdk import discord
from bot.channel import Piece
from bot.channel.kit.json_access import Json

REMEMBERED = 1024  # interactions and pressed messages kept in mind
ACK_WAIT = 5.0  # seconds an answer waits for the acknowledgement before it

_DEFERRED, _DEFERRED_UPDATE, _UPDATE = 5, 6, 7
_EPHEMERAL = 1 << 6

_log = structlog.get_logger()


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
        """Whether it came before, or the buttons it belongs to were pressed already."""
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
        flags = _EPHEMERAL if waiting.interaction.is_private else 0
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
