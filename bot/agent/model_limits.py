"""Limits of a session's model: its share of the window, and the weight of its tokens.

The one place that asks: turns, compaction, commands and notices all get the same answer here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from bot.agent.models import Writer, speed
from bot.agent.models.registry import Models
from bot.agent.models.speed import Speed
from bot.config import AgentConfig, Settings
from bot.context import budget, tokens
from bot.context.budget import Budget, Window
from bot.context.tokens import Calibration, Count, TokenCounter
from bot.errors import StorageError
from bot.storage.records import MetaStore

SPEEDS = "models.speeds"  # what speeds are kept under
EMPTY = "{}"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """A session's model, by its full name, and how much of its window it may use.

    `factor` is what the model's own token counts come to for one token of `count`.
    """

    model: Writer
    name: str
    window: Window
    budget: Budget
    factor: float
    count: Count
    speed: Speed = field(default_factory=Speed)

    @property
    def wants_short(self) -> bool:
        """True when a conversation that begins now has a short prompt."""
        return self.window.wants_short or self.speed.is_slow

    def seconds(self, configured: float, usual: float, *, prompt: float, answer: int) -> float:
        """A time limit (`Speed.limit`) for so many tokens of `count` to read, and an answer."""
        return self.speed.limit(configured, usual, prompt=prompt * self.factor, output=answer)


class LimitsResolver:
    """Finds the limits of models, and learns from what services report."""

    def __init__(
        self, settings: Settings, models: Models, kept: MetaStore, counter: TokenCounter
    ) -> None:
        self._settings = settings
        # How texts are weighed; without an encoding there is nothing but the estimate.
        self.count: Count = tokens.estimate if counter.name == tokens.ESTIMATE else counter
        # What was learned of one way of counting says nothing about another.
        self._kept_under = f"tokens.calibration.{counter.name}"
        self._models = models
        self._kept = kept
        self._calibration = Calibration()
        self._saved: dict[str, str] = {}  # what is kept, by its key

    async def load(self) -> None:
        """Take up what was learned before.

        Raises:
            StorageError: it cannot be read.
        """
        for key in (self._kept_under, SPEEDS):
            self._saved[key] = await self._kept.get(key) or EMPTY
        self._calibration = tokens.from_json(self._saved[self._kept_under])
        self._models.speeds = speed.from_json(self._saved[SPEEDS])

    async def save(self) -> None:
        """Keep what was learned; it is only an estimate, so a disk that is full is no error."""
        calibration, speeds = self._calibration.to_json(), speed.to_json(self._models.speeds)
        try:
            for key, learned in ((self._kept_under, calibration), (SPEEDS, speeds)):
                if learned not in {EMPTY, self._saved.get(key)}:
                    await self._kept.set(key, learned)
                    self._saved[key] = learned
        except StorageError as error:
            log.warning("tokens.not_saved", error=type(error).__name__)

    def learn(self, model: str, estimated: int, reported: int) -> None:
        """A service reported so many tokens for what was estimated."""
        self._calibration = self._calibration.learn(model, estimated, reported)

    async def for_chores(self, limits: ModelLimits, agent: AgentConfig) -> ModelLimits:
        """The limits of the model that does chores for an agent's conversations with these."""
        return await self.of(agent.chores, agent) if agent.chores else limits

    async def of(self, chosen: str, agent: AgentConfig) -> ModelLimits:
        """The limits of an agent's sessions that chose a model, by its name; empty for its own."""
        name, config = self._models.full(chosen, agent.model), self._settings.now
        sizes = await self._models.window(name)
        window = budget.resolve(
            sizes.max_input_tokens,
            config.context,
            name,
            configured=sizes.configured,
            assumed=sizes.assumed,
        )
        most = min(agent.max_tokens, sizes.max_output_tokens)
        shares = budget.budget(window.tokens, config.context, most)
        factor = self._calibration.factor(name)
        measured, model = self._models.speed(name), self._models.of_agent(agent)
        return ModelLimits(model, name, window, shares, factor, self.count, measured)
