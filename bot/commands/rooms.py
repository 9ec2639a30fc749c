"""`/activation`: when the bot answers in a room."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from bot.channel import Admins, Channel
from bot.commands.base import Answer, Apply, Call, saying
from bot.i18n import text
from bot.identity import Activation, Conversation
from bot.identity.message import is_always
from bot.sessions import rooms
from bot.sessions.store import Session
from bot.unit_of_work import UnitOfWork

_WISHES: dict[str, Activation] = {"mention": "mention", "always": "always"}

log = structlog.get_logger(__name__)


class RoomCommands:
    """`/activation`."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = channels

    async def activation(self, call: Call) -> Apply:
        """Show when the bot answers in a room, or choose it."""
        if call.is_direct:
            return saying(text(call.language, "rooms.direct"))
        wish = _WISHES.get(call.rest.lower())
        if wish is None:
            here = call.conversation
            now = "always" if is_always(here.settings, here.activation) else "mention"
            return saying(text(call.language, f"rooms.now_{now}"))
        if not await may_manage(self._channels, call.conversation):
            return saying(text(call.language, "rooms.not_admin"))
        key = call.place.key

        def apply(unit: UnitOfWork, session: Session) -> Answer:
            rooms.activate(unit.tx, key, wish, call.now)
            return Answer(text(call.language, f"rooms.set_{wish}"), activation=wish)

        return apply


async def may_manage(channels: Mapping[str, Channel], conversation: Conversation) -> bool:
    """True when whoever speaks looks after the room: its admins do, and the owner."""
    if conversation.is_owner:
        return True
    channel = channels.get(conversation.address.channel)
    if not isinstance(channel, Admins):
        return False
    try:
        return await channel.is_admin(conversation.address, conversation.origin.sender)
    except Exception as error:  # noqa: BLE001 - who is not known to be one is none
        log.warning("room.admin_unknown", channel=channel.name, error=type(error).__name__)
        return False
