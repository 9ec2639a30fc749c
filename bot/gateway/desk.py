"""What commands may ask of the running program."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from bot.agent.models import Models, ToolSpec
from bot.agent.prefix import Prefixes, name_of
from bot.agent.turn import RunningTurns
from bot.channel import Admins, Channel, Health
from bot.commands.base import Call
from bot.context.report import Report
from bot.gateway.gateway import Connections
from bot.identity import Directory
from bot.ledger import Ledger
from bot.sessions.reset import Reason
from bot.sessions.store import Session
from bot.upkeep import policy, resets
from bot.upkeep.upkeep import Upkeep
from bot.upkeep.usage import report_of

log = structlog.get_logger(__name__)


class GatewayDesk:
    """`bot.commands.base.Desk` over the running turns, the models and the conversations."""

    def __init__(
        self,
        *,
        running: RunningTurns,
        connections: Connections,
        models: Models,
        ledger: Ledger,
        prefixes: Prefixes,
        tools: tuple[ToolSpec, ...],
        upkeep: Upkeep,
        channels: Mapping[str, Channel],
    ) -> None:
        self._running = running
        self._connections = connections
        self._models = models
        self._ledger = ledger
        self._prefixes = prefixes
        self._tools = tools
        self._upkeep = upkeep
        self._channels = channels

    def stop_turn(self, key: str) -> bool:
        """Stop the running turn of a key; False when none runs."""
        return self._running.stop(key)

    def health(self) -> list[tuple[str, str, Health, str]]:
        """Each connection: channel, account, health, one sentence."""
        return self._connections.all()

    def default_model(self) -> str:
        """The model that answers when a session chose none."""
        return self._models.default

    async def model_names(self) -> tuple[str, ...]:
        """Models that can be chosen."""
        return await self._models.names()

    async def report(self, call: Call) -> Report:
        """What fills the caller's conversation."""
        talk = await self._upkeep.talks.of((await self._current(call)).id, call.conversation)
        limit = talk.room.window.tokens
        await self._prefixes.of(talk.live, call.view, call.language, self._tools, limit)
        return report_of(talk, name_of(call.view), talk.fill())

    async def compact(self, call: Call, focus: str) -> bool:
        """Begin to summarise the caller's conversation; False when it is too short for that."""
        return await self._upkeep.compact(await self._current(call), call.conversation, focus)

    def tells(self, call: Call) -> bool:
        """Whether people are told here that a conversation gets full, by the configuration."""
        return policy.is_told(call.conversation)

    def shows_pictures(self, call: Call) -> bool:
        """Whether the caller's channel takes a picture."""
        channel = self._channels.get(call.inbound.channel)
        return channel is not None and channel.capabilities.attachments

    async def _current(self, call: Call) -> Session:
        commit = await self._ledger.write(call.now, lambda draft: draft.current(call.place))
        return commit.result[0]


class PeopleDesk:
    """`bot.commands.registry.PeopleDesk` over what channels and the configuration say."""

    def __init__(self, directory: Directory, channels: Mapping[str, Channel]) -> None:
        self._directory = directory
        self._channels = channels

    async def may_manage(self, call: Call) -> bool:
        """Whether the caller looks after the room: its admins do, and the owner."""
        if call.conversation.is_owner:
            return True
        channel = self._channels.get(call.inbound.channel)
        if not isinstance(channel, Admins):
            return False
        try:
            return await channel.is_admin(call.inbound.address, call.inbound.sender)
        except Exception as error:  # noqa: BLE001 - who is not known to be one is none
            log.warning("room.admin_unknown", channel=channel.name, error=type(error).__name__)
            return False

    def ends_at(self, session: Session, taken_up_at: int) -> tuple[int, Reason] | None:
        """When a conversation is over by itself if nothing more is said, and why."""
        return resets.ends_at(self._directory.policy, session, taken_up_at)
