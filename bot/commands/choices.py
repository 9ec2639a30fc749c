"""Which models people may choose, and which one answers them."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from bot.agent.models.registry import Models
from bot.channel import Address, ModelChoice
from bot.config import Config
from bot.identity import Conversation, ConversationResolver
from bot.identity.values import MessageOrigin
from bot.sessions import store
from bot.storage import Database

MOST_NAMED = 40  # models at a time; services may have hundreds


class ModelChoices:
    """What `/model` and the page offer.

    `patterns` are those of the models that people may choose; empty for all.
    """

    def __init__(
        self,
        models: Models,
        resolver: ConversationResolver,
        database: Database,
        patterns: Sequence[str] = (),
    ) -> None:
        self._models = models
        self._resolver = resolver
        self._database = database
        self._patterns = patterns

    def configure(self, config: Config) -> None:
        """What it says may be chosen from now on."""
        self._patterns = config.agent.choices

    async def offered(self, here: Conversation) -> tuple[str, ...]:
        """The models that may be chosen there."""
        return tuple(name for name in await self._models.names() if self.may(here, name))

    def may(self, here: Conversation, name: str) -> bool:
        """True when a model may be chosen there, should there be one of that name."""
        if not self._patterns or (here.is_owner and here.is_direct):
            return True
        patterns = (self._models.default, *self._patterns)
        return any(fnmatchcase(name, pattern) for pattern in patterns)

    async def at(self, address: Address, sender: str) -> ModelChoice:
        """What a person in a direct chat may choose, and what answers them.

        Raises:
            StorageError: it cannot be read.
        """
        where = (address.channel, address.account, address.chat, "direct", sender, address.thread)
        here = self._resolver.of(MessageOrigin(*where))
        session = await self._database.read(lambda tx: store.current(tx, here.key))
        chosen, stand_in = (session.model, session.stand_in) if session is not None else ("", "")
        offered = await self.offered(here)
        named = offered[:MOST_NAMED]
        return ModelChoice(self._models.full(chosen), stand_in, named, len(offered) - len(named))
