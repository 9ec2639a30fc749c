"""Which model answers: the one a conversation chose, the configured one, or the offline one."""

from __future__ import annotations

from dataclasses import dataclass

from bot.agent.models import Model

OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class Models:
    """The models of this program. `remote` is None when no key is set."""

    offline: Model
    remote: Model | None
    configured: str

    @property
    def default(self) -> str:
        """The model that answers when a conversation chose none."""
        return self.configured if self.remote is not None else OFFLINE

    def pick(self, chosen: str) -> tuple[Model, str]:
        """The model for a conversation's choice (empty for none), and the name to ask it for."""
        name = chosen or self.configured
        if name == OFFLINE or self.remote is None:
            return self.offline, OFFLINE
        return self.remote, name

    async def names(self) -> tuple[str, ...]:
        """Every model that can be chosen now."""
        if self.remote is None:
            return (OFFLINE,)
        return tuple(dict.fromkeys((self.configured, *await self.remote.names(), OFFLINE)))

    async def close(self) -> None:
        """Release their connections."""
        await self.offline.close()
        if self.remote is not None:
            await self.remote.close()
