"""One event of the gateway → a stored message: its place, its reading, what else it needs."""

from __future__ import annotations

from collections.abc import Collection

import structlog

from adapters.discord import interactions
from adapters.discord.history import History
from adapters.discord.ids import identity, number_in
from adapters.discord.inbound import Identity, Ignored, normalise
from adapters.discord.interactions import Interaction, interaction_of
from adapters.discord.pending import PendingInteractions
from adapters.discord.places import Place, Places, Room
from bot.channel import Inbound
from bot.channel.kit.drafts import Drafts
from bot.channel.kit.json_access import Json, integer
from bot.channel.kit.supervisor import Stopped, Supervisor

_log = structlog.get_logger()

Event = tuple[str, Json]  # its name, and what it holds


class Events:
    """What one account does with the messages and interactions it gets."""

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        places: Places,
        history: History,
        pending: PendingInteractions,
        drafts: Drafts[str],
    ) -> None:
        self.me = Identity("")
        self.public: Collection[str] = ()  # commands whose answers everybody may read
        self._supervisor = supervisor
        self._places = places
        self._history = history
        self._pending = pending
        self._drafts = drafts

    async def read(self, chat: str, after: int) -> Collection[int]:
        """Store what was missed in a chat after a message; the numbers of what is there.

        Raises:
            Stopped: the account stops first.
        """
        missed = await self._history.missed(chat, after)
        if missed:
            account = self._supervisor.account
            _log.info("discord.history.read", account=account, messages=len(missed))
        for kind, message in missed:
            await self.store(chat, (kind, {**message, "channel_id": chat}))
        return {int(identity(message, "id")) for _, message in missed}

    async def store(self, chat: str, event: Event) -> None:
        """Store the message in an event, however often it takes, or count why there is none.

        Raises:
            Stopped: the account stops first.
        """
        try:
            read = await self._read(chat, *event)
        except Stopped:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it holds, the others must go on
            self.leave_out("unreadable")
            name, account = type(error).__name__, self._supervisor.account
            _log.warning("discord.event.unreadable", account=account, error=name)
            return
        if read is None:
            return
        found, interaction = read
        if interaction is not None:
            self._pending.opened(interaction)
        elif found.chat_type != "direct" and found.mentions_bot:
            # In a room a reply is one from its first word.
            self._drafts.asked[found.chat] = number_in(found.message_id)
        if await self._supervisor.receive(found) and interaction is not None:
            self._pending.stored(interaction)

    async def _read(
        self, chat: str, kind: str, data: Json
    ) -> tuple[Inbound, Interaction | None] | None:
        """The message in an event, or None after counting why there is none."""
        if kind == interactions.EVENT:
            interaction = interaction_of(data, self.public)
            found = interactions.normalise(data, self._supervisor.account, self.me, self.public)
            if interaction is None or found is None:
                self.leave_out("interaction")
            elif self._pending.repeated(interaction):
                self.leave_out("repeated")
            else:
                self._places.keep(chat, interactions.place_in(data))
                return found, interaction
            if interaction is not None:
                self._pending.dismiss(interaction)
            return None
        # Most of what is left out can be told without knowing the place.
        first = normalise(kind, data, self._supervisor.account, self.me, Room(Place("group")))
        if isinstance(first, Ignored):
            self.leave_out(first.reason)
            return None
        room = self._places.room(await self._place(chat, data))
        result = normalise(kind, data, self._supervisor.account, self.me, room)
        return None if isinstance(result, Ignored) else (result, None)

    async def _place(self, chat: str, data: Json) -> Place:
        known = self._places.place(chat)
        if known is not None:
            return known
        server = identity(data, "guild_id")
        if integer(data, "channel_type") == 1 and not server:
            return self._places.learn({"id": chat, "type": 1})
        found = await self._history.place(chat)
        # Who may not know where this is takes it for a room: there nothing private shows.
        return found or Place("channel" if server else "group", "", server)

    def leave_out(self, why: str) -> None:
        """Count something that becomes no message."""
        self._supervisor.drop(why)
        _log.debug("discord.event.ignored", account=self._supervisor.account, reason=why)
