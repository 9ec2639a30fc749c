"""The models of this program: the services that were configured, and which model is asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace

from bot.agent.models import Model, Reply, Request, TextDelta, Window
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.catalog import TextStore
from bot.agent.models.offline import OfflineModel
from bot.agent.models.openai import OpenAIModel
from bot.agent.models.service import ServiceModel
from bot.config import ANTHROPIC, OFFLINE, OPENAI, ModelsConfig, ServiceConfig
from bot.errors import ModelNotFound
from bot.messages import Message, Opaque


class Models:
    """Every model by its name, "<service>/<model>", or "offline".

    It is a `Model` itself: a request goes to the service that its model's name begins with.
    """

    name = "models"

    def __init__(
        self, config: ModelsConfig, services: Mapping[str, Model], configured: str
    ) -> None:
        """`services` are those that can be asked; without any the offline model answers."""
        self._config = config
        self.services = dict(services)
        self._offline = OfflineModel()
        self._configured = configured

    @property
    def default(self) -> str:
        """The model that answers when a conversation chose none."""
        return self.full("")

    def full(self, chosen: str) -> str:
        """The full name of what a conversation chose (empty for nothing), now or long ago."""
        service, model = self._config.locate(chosen or self._configured)
        if service == OFFLINE or not self.services:
            return OFFLINE
        if service not in self.services and not chosen:
            return OFFLINE
        return f"{service}/{model}"

    def find(self, name: str) -> tuple[Model, str]:
        """The service of a full name, and the model's name there.

        Raises:
            ModelNotFound: no such service is configured.
        """
        if name == OFFLINE:
            return self._offline, OFFLINE
        service, _, model = name.partition("/")
        if service not in self.services:
            raise ModelNotFound(f"no service {service!r} is configured")
        return self.services[service], model

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        """Write one reply with the model of that full name.

        Raises:
            ModelError: one of its subclasses for everything that can go wrong.
        """
        model, name = self.find(request.model)
        service = _owner(request.model)
        shown = tuple(_shown_to(service, message) for message in request.messages)
        asked = replace(request, model=name, messages=shown)
        async with aclosing(model.stream(asked)) as events:
            async for event in events:
                yield event if isinstance(event, TextDelta) else _owned(event, service)

    async def window(self, model: str) -> Window:
        """The sizes of a model as its service tells them; never raises."""
        try:
            found, name = self.find(model)
        except ModelNotFound:
            return Window(0, 8_192)
        return await found.window(name)

    def configured_window(self, model: str) -> int:
        """The window that was configured for all models of a model's service; 0 when none was."""
        service = self._config.services.get(model.partition("/")[0])
        return service.window if service is not None else 0

    async def names(self) -> tuple[str, ...]:
        """Every model that can be chosen now."""
        found = [self.default]
        for service, model in self.services.items():
            found += [f"{service}/{name}" for name in await model.names()]
        return tuple(dict.fromkeys((*found, OFFLINE)))

    async def warm_up(self) -> None:
        """Load what the configured services need."""
        for model in self.services.values():
            if isinstance(model, ServiceModel):
                await model.warm_up()

    async def close(self) -> None:
        """Release their connections."""
        for model in (self._offline, *self.services.values()):
            await model.close()


def open_service(kind: str, config: ServiceConfig, store: TextStore) -> Model:
    """The adapter for a service of this kind; it loads nothing before it is used."""
    return _KINDS[kind](config, window_store=store)


def configured(config: ModelsConfig, store: TextStore) -> dict[str, Model]:
    """The services that are set up, by name."""
    return {
        name: open_service(config.kind_of(name), service, store)
        for name, service in config.services.items()
        if service.is_set_up
    }


_KINDS = {ANTHROPIC: AnthropicModel, OPENAI: OpenAIModel}


def _owner(name: str) -> str:
    """Whose blocks a service understands; the anthropic table's have no name, as ever."""
    service = name.partition("/")[0]
    return "" if service == ANTHROPIC else service


def _shown_to(service: str, message: Message) -> Message:
    """A message without what only another service understands."""
    kept = tuple(b for b in message.blocks if not isinstance(b, Opaque) or b.service == service)
    return message if len(kept) == len(message.blocks) else replace(message, blocks=kept)


def _owned(reply: Reply, service: str) -> Reply:
    """A reply whose blocks say which service understands them."""
    if not service:
        return reply
    blocks = (
        replace(block, service=service) if isinstance(block, Opaque) else block
        for block in reply.message.blocks
    )
    return replace(reply, message=replace(reply.message, blocks=tuple(blocks)))
