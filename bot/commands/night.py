"""`/undo night`, `/memory night`: what the last night changed, asked, and taking it back."""

from __future__ import annotations

from datetime import date

from bot.commands.base import Apply, Call, saying
from bot.errors import ToolError
from bot.i18n import text
from bot.memory.night.keeper import Keeper
from bot.upkeep import nights

NIGHT = frozenset({"night", "昨夜", "昨晚", "夜里"})


class NightCommands:
    """What a person says of the changes in their own notes."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def undo(self, call: Call) -> Apply:
        """Take back what was changed in the notes of whoever asks."""
        if not call.view.private:
            return saying(text(call.language, "memory.closed"))
        try:
            done = await self._keeper.take_back(call.view)
        except ToolError as error:
            return saying(text(call.language, "memory.refused", reason=str(error)))
        return saying(nights.undone(call.language, done))

    async def memory(self, call: Call, rest: str) -> Apply:
        """What was changed, or an answer to what was asked on a day ("yes 2026-07-01").

        Raises:
            ToolError: something was forgotten meanwhile.
        """
        if not call.view.private:
            return saying(text(call.language, "memory.closed"))
        word, _, said = rest.partition(" ")
        if word in {"yes", "no"}:
            return await self._answer(call, said.strip(), agrees=word == "yes")
        night = (await self._keeper.of(call.view.space)).night
        if night is None or night.state == "undone" or not night.edits:
            return saying(text(call.language, "night.nothing_done"))
        spots = await self._keeper.spots(call.view, night.edits)
        return saying(nights.receipt(night, spots, call.language))

    async def _answer(self, call: Call, said: str, *, agrees: bool) -> Apply:
        try:
            count = await self._keeper.answer(call.view, date.fromisoformat(said), agrees=agrees)
        except ValueError:
            count = None
        if count is None:
            return saying(text(call.language, "night.not_asked"))
        return saying(text(call.language, "night.struck" if agrees else "night.stays", count=count))
