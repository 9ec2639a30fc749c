"""What was forgotten goes from the pages that are open, whoever had it forgotten, and wherever.

Each forgetting raises the number of its space in its transaction, so nothing has to be told in
words: whoever hears that something was forgotten looks which numbers are others than before.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from bot.channel import Address, Channel, ShowsHistory
from bot.coordination import Coordination, Event
from bot.errors import StorageError
from bot.identity import ConversationResolver, MessageOrigin
from bot.memory import versions
from bot.storage import Database

log = structlog.get_logger(__name__)


class Hiding:
    """Has channels that show what was said show it anew, for whoever had some of it forgotten."""

    def __init__(
        self,
        database: Database,
        resolver: ConversationResolver,
        channels: Mapping[str, Channel],
        coordination: Coordination,
    ) -> None:
        self._database = database
        self._resolver = resolver
        self._channels = channels
        self._known: Mapping[str, int] = {}
        coordination.on("forgotten", self._heard)

    async def begin(self) -> None:
        """Know what was forgotten before anybody looks.

        Raises:
            StorageError: the database cannot be read.
        """
        self._known = await self._database.read(versions.numbers)

    async def look(self) -> None:
        """Something was forgotten, here or elsewhere: let no page show it. Never raises."""
        try:
            numbers = await self._database.read(versions.numbers)
            changed = {space for space, n in numbers.items() if self._known.get(space) != n}
            if not changed:
                return
            for channel in tuple(self._channels.values()):
                if isinstance(channel, ShowsHistory):
                    await channel.forgotten(lambda address: self._space_of(address) in changed)
            self._known = numbers
        except StorageError as error:
            log.warning("forgotten.not_hidden", error=type(error).__name__)

    async def _heard(self, _event: Event) -> None:
        await self.look()

    def _space_of(self, address: Address) -> str:
        chat = address.chat
        origin = MessageOrigin(address.channel, address.account, chat, "direct", chat)
        return self._resolver.of(origin).view.space
