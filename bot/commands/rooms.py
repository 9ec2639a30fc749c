"""`/activation`: when the bot answers in a room."""

from __future__ import annotations

from typing import Protocol

from bot.commands.base import Answer, Apply, Call, saying
from bot.i18n import text
from bot.identity import Activation
from bot.identity.message import is_always
from bot.ledger import Draft
from bot.sessions import rooms
from bot.sessions.store import Session

_WISHES: dict[str, Activation] = {"mention": "mention", "always": "always"}


class RoomDesk(Protocol):
    """What this command may ask of the running program."""

    async def may_manage(self, call: Call) -> bool:
        """Whether the caller looks after the room."""
        ...


class RoomCommands:
    """`/activation`."""

    def __init__(self, desk: RoomDesk) -> None:
        self._desk = desk

    async def activation(self, call: Call) -> Apply:
        """Show when the bot answers in a room, or choose it."""
        if call.is_direct:
            return saying(text(call.language, "rooms.direct"))
        wish = _WISHES.get(call.rest.lower())
        if wish is None:
            here = call.conversation
            now = "always" if is_always(here.settings, here.activation) else "mention"
            return saying(text(call.language, f"rooms.now_{now}"))
        if not await self._desk.may_manage(call):
            return saying(text(call.language, "rooms.not_admin"))
        key = call.place.key

        def apply(draft: Draft, session: Session) -> Answer:
            rooms.activate(draft.tx, key, wish, call.now)
            return Answer(text(call.language, f"rooms.set_{wish}"), activation=wish)

        return apply
