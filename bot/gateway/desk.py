"""What commands may ask of the running program."""

from __future__ import annotations

from bot.agent.select import Models
from bot.channel import Health
from bot.gateway.health import HealthBoard
from bot.gateway.running import RunningTurns


class GatewayDesk:
    """`bot.commands.base.Desk` over the running turns, the models and the channels' health."""

    def __init__(
        self, running: RunningTurns, health: HealthBoard, models: Models, context_tokens: int
    ) -> None:
        self._running = running
        self._health = health
        self._models = models
        self._context_tokens = context_tokens

    def stop_turn(self, key: str) -> bool:
        """Stop the running turn of a key; False when none runs."""
        return self._running.stop(key)

    def health(self) -> list[tuple[str, str, Health, str]]:
        """Each connection: channel, account, health, one sentence."""
        return self._health.all()

    def default_model(self) -> str:
        """The model that answers when a session chose none."""
        return self._models.default

    async def model_names(self) -> tuple[str, ...]:
        """Models that can be chosen."""
        return await self._models.names()

    async def context_window(self, model: str) -> int:
        """How many tokens of a conversation that model is shown at most."""
        picked, name = self._models.pick(model)
        window = await picked.window(name)
        return min(window.max_input_tokens, self._context_tokens)
