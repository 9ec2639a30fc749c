"""The models of this program: the services that were configured, and which model is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace

import structlog

from bot.agent.models import UNKNOWN_WINDOW, Model, Reply, Request, TextDelta, Window, Writer
from bot.agent.models.anthropic import AnthropicModel
from bot.agent.models.openai import OpenAIModel
from bot.agent.models.service import ServiceModel, TextStore
from bot.agent.models.speed import Slots, Speed, Stopwatch
from bot.agent.offline import OfflineModel
from bot.config import (
    ANTHROPIC,
    MAIN_AGENT,
    OFFLINE,
    OPENAI,
    SILENCE_SECONDS,
    AgentConfig,
    ModelsConfig,
    ServiceConfig,
    Settings,
)
from bot.context import tokens
from bot.errors import (
    ConfigError,
    ModelBilling,
    ModelBlind,
    ModelError,
    ModelFailed,
    ModelNotFound,
    ModelOverloaded,
    ModelRateLimited,
    ModelTimeout,
    ModelUnreachable,
)
from bot.messages import Message, Opaque, Picture
from bot.plugins import loaded, source_of
from bot.settings import model_kinds

# Whether a model that failed is worth asking again. Pure: times are passed in, in seconds.

FIRST_PAUSE = 30.0  # seconds a model is spared after its first failure; doubles
LONGEST_PAUSE = 600.0
LONGEST_WAIT = 3600.0  # that a service may ask for
PROBE = 60.0  # seconds in which one request alone finds out whether it works again


@dataclass(frozen=True, slots=True)
class Breaker:
    """A model's failures since it last worked, and until when it is not asked.

    `is_probed` says that a request is finding out just now.
    """

    failures: int = 0
    until: float = 0.0
    is_probed: bool = False

    def is_open(self, now: float) -> bool:
        """True while the model is spared."""
        return now < self.until

    def asked(self, now: float) -> Breaker:
        """This, once a request is made: while nobody knows whether it works, the only one."""
        return replace(self, until=now + PROBE, is_probed=True) if self.failures else self

    def failed(self, now: float, wait: float = 0.0) -> Breaker:
        """This, after a failure whose service asked to wait so long.

        What fails while the model is spared was asked before: it tells nothing new.
        """
        if self.is_open(now) and not self.is_probed:
            return replace(self, until=max(self.until, now + min(wait, LONGEST_WAIT)))
        pause = min(FIRST_PAUSE * 2 ** min(self.failures, 10), LONGEST_PAUSE)
        return Breaker(self.failures + 1, now + max(pause, min(wait, LONGEST_WAIT)))


# Models that other packages bring, by entry point: the contract of docs/writing-a-model.md.


@dataclass(frozen=True, slots=True)
class ModelPlugin:
    """The target of an entry point of the group `confidant.models`.

    `create` makes the adapter for one `[models.<name>]`; it loads nothing slow and asks nobody: the
    first request does. Small texts, such as the sizes of models, outlive a restart in the store.
    """

    kind: str
    create: Callable[[ServiceConfig, TextStore], Model]


def installed_models(kind: str) -> ModelPlugin:
    """The plug-in for a kind of service.

    Raises:
        ConfigError: no package brings it, or the one that does cannot be used.
    """
    entry = model_kinds().get(kind)
    if entry is None:
        raise ConfigError(f'no installed package brings models of the kind "{kind}"')
    source = source_of("kind of models", entry)
    plugin = loaded(source, entry)
    if not isinstance(plugin, ModelPlugin):
        raise ConfigError(f"{source} is no plug-in: it names a {type(plugin).__name__}")
    if plugin.kind != kind:
        raise ConfigError(f'{source} calls itself "{plugin.kind}"')
    return plugin


# What another model may do better: a timeout is a way of being unreachable.
PASSES_ON = (ModelFailed, ModelRateLimited, ModelUnreachable, ModelBilling)
LATEST = ":latest"  # to Ollama "qwen3" and "qwen3:latest" are one
PATIENCE = 2.0  # seconds for tries of a model that another one may stand in for

_KINDS = {ANTHROPIC: AnthropicModel, OPENAI: OpenAIModel}

log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class _Service:
    """The adapter to a service, its places, and how many replies are being written."""

    model: Model
    slots: Slots
    writing: int = 0


class Models:
    """Every model by its name, "<service>/<model>", or "offline".

    It is a `Model` itself: a request goes to the service that its model's name begins with.
    """

    name = "models"

    def __init__(
        self,
        settings: Settings,
        services: Mapping[str, Model],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`services` are those that can be asked; without any the offline model answers.

        The models of `[agent] fallback` stand in, in this order, for one that cannot be reached, is
        overloaded, or is not paid for.
        """
        self._settings = settings
        self._offline = _Service(OfflineModel(), Slots(0))
        self._services = {
            name: _Service(model, Slots(self._lanes(name))) for name, model in services.items()
        }
        self._replaced: set[_Service] = set()  # closed once their last reply is written
        self._now = now
        self._breakers: dict[str, Breaker] = {}  # of models that failed
        self.speeds: dict[str, Speed] = {}  # of models, as they were measured

    @property
    def services(self) -> dict[str, Model]:
        """The services that can be asked, by name."""
        return {name: service.model for name, service in self._services.items()}

    async def adopt(self, services: Mapping[str, Model]) -> None:
        """Ask these from now on. What is being written is finished; then its service is closed."""
        before, self._services = self._services, dict[str, _Service]()
        for name, model in services.items():
            service = before.get(name) or _Service(model, Slots(self._lanes(name)))
            service.slots.adopt(self._lanes(name))
            is_kept = service.model is model
            self._services[name] = service if is_kept else _Service(model, service.slots)
        gone = {*before.values()}.difference(self._services.values())
        self._replaced |= gone
        self._breakers.clear()
        for service in [each for each in gone if not each.writing]:
            self._replaced.discard(service)
            await service.model.close()

    @property
    def _agents(self) -> list[AgentConfig]:
        config = self._settings.now
        return [config.of_agent(name).agent for name in (MAIN_AGENT, *config.agents.named)]

    @property
    def _fallback(self) -> tuple[str, ...]:
        """The models that may stand in for one, for any agent."""
        every = (self.full(each) for agent in self._agents for each in agent.fallback)
        return tuple(dict.fromkeys(every))

    @property
    def _defaults(self) -> tuple[str, ...]:
        """The model of each agent."""
        return tuple(self.full("", agent.model) for agent in self._agents)

    @property
    def default(self) -> str:
        """The model that answers when a conversation of `[agent]` chose none."""
        return self.full("")

    def of_agent(self, agent: AgentConfig) -> Writer:
        """These models, with the agent's own `fallback` for each request."""
        return _OfAgent(self, tuple(map(self.full, agent.fallback)))

    def full(self, chosen: str, default: str = "") -> str:
        """The full name of what a conversation chose (empty for nothing), now or long ago.

        `default` is its agent's model, and that of `[agent]` if left out.
        """
        config = self._settings.now
        service, model = config.models.locate(chosen or default or config.agent.model)
        if service == OFFLINE or not self._services:
            return OFFLINE
        return f"{service}/{model}" if chosen or service in self._services else OFFLINE

    def _find(self, name: str) -> tuple[_Service, str]:
        """The service of a full name, and the model's name there.

        Raises:
            ModelNotFound: no such service is configured.
        """
        if name == OFFLINE:
            return self._offline, OFFLINE
        service, _, model = name.partition("/")
        if service not in self._services:
            raise ModelNotFound(f"no service {service!r} is configured")
        return self._services[service], model

    async def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        """Write one reply with the model of that full name, or with one that stands in for it.

        Only before the first word: what was shown is not begun anew by another model.

        Raises:
            ModelError: one of its subclasses for everything that can go wrong, of the first model.
        """
        plan = self._plan(request)
        first: ModelError | None = None
        for name, asked in plan:
            has_begun = False
            if (broken := self._breakers.get(name)) is not None:
                self._breakers[name] = broken.asked(self._now())
            if request.on_asked is not None:
                request.on_asked(name)
            try:
                service, own_name = self._find(name)
                sent = _for_service(asked, name, own_name)
                written = self._timed(service, name, sent)
                async with self._open(service), aclosing(written) as events:
                    async for event in events:
                        has_begun = True
                        yield event if isinstance(event, TextDelta) else _owned(event, name)
            except ModelError as error:
                if self._is_final(name, error, request) or has_begun:
                    raise
                if isinstance(error, ModelBlind):
                    plan += [(name, request)] if plan[-1][1] is not request else []
                else:
                    first = first or error
                log.warning("model.passed_on", model=name, error=type(error).__name__)
            else:
                self._breakers.pop(name, None)
                return
        raise first or ModelUnreachable

    def _is_final(self, name: str, error: ModelError, request: Request) -> bool:
        """True for a failure that another model would have as well; notes that it happened."""
        if isinstance(error, PASSES_ON):
            failed = self._breakers.get(name, Breaker()).failed(self._now(), error.wait)
            if self._fallback:
                self._breakers[name] = failed
            return False
        if name == request.model:
            self._breakers.pop(name, None)  # it is there, and says no
        return name == request.model and not isinstance(error, ModelBlind)

    def _plan(self, request: Request) -> list[tuple[str, Request]]:
        """The models to try in their order, each with what it is asked.

        Those that are spared are left out, unless all are. One that another may stand in for makes
        no long pause between tries.
        """
        fallback, now = request.fallback, self._now()
        if fallback is None:
            fallback = tuple(map(self.full, self._settings.now.agent.fallback))
        every = tuple(dict.fromkeys((request.model, *fallback)))
        spared = {name for name, each in self._breakers.items() if each.is_open(now)}
        *before, last = [name for name in every if name not in spared] or every
        if not before:
            return [(last, request)]
        soon = asyncio.get_running_loop().time() + PATIENCE
        deadline = soon if request.deadline is None else min(soon, request.deadline)
        hasty = replace(request, deadline=deadline)
        mine = (block for each in request.messages[request.begins :] for block in each.blocks)
        if any(isinstance(block, Picture) for block in mine):
            return [(name, replace(hasty, must_see=True)) for name in (*before, last)]
        return [*((name, hasty) for name in before), (last, request)]

    async def _timed(
        self, service: _Service, name: str, request: Request
    ) -> AsyncGenerator[TextDelta | Reply]:
        """Stream a model's reply, once there is a place for it, and learn how fast it is.

        A service that has a place less than was thought is asked again when one is free.

        Raises:
            ModelError: as in `stream`.
        """
        slots, (owner, _, model) = service.slots, name.partition("/")
        section = self._settings.now.models.services.get(owner)
        is_own = section is not None and bool(section.base_url)  # perhaps a single machine
        speed = self.speed(name)
        grows = section is not None and (is_own or bool(speed.prompt))
        timeout = section.of_model(model).timeout if section is not None and grows else 0.0
        is_chore = request.purpose != "chat" and not request.is_awaited  # nobody waits for it
        while True:
            async with slots.taken(chore=is_chore) as call:
                watch = Stopwatch(self._now)
                sent = _watched(request, watch, call.waited, timeout, speed)
                try:
                    async with aclosing(service.model.stream(sent)) as events:
                        async for event in events:
                            if isinstance(event, TextDelta):
                                if watch.hear(tokens.estimate(event.text)):
                                    slots.spoke(call)
                            else:
                                whole = watch.whole(self.speed(name), event.usage, request.tokens)
                                self._learn(name, whole)
                            yield event
                except (ModelTimeout, asyncio.CancelledError):
                    if is_own:  # any other one may be out of order
                        broken = watch.broken_off(self.speed(name), request.tokens)
                        self._learn(name, broken)
                    raise
                except ModelOverloaded:
                    if watch.has_begun or not slots.refused(call):
                        raise
                else:
                    return

    @asynccontextmanager
    async def _open(self, service: _Service) -> AsyncGenerator[None]:
        """Keep a service open while it writes."""
        service.writing += 1
        try:
            yield
        finally:
            service.writing -= 1
            if not service.writing and service in self._replaced:
                self._replaced.discard(service)
                await service.model.close()

    def speed(self, name: str) -> Speed:
        """The measured speed of a model, by its full name."""
        return self.speeds.get(name, Speed())

    def _learn(self, name: str, speed: Speed) -> None:
        if speed != Speed():
            self.speeds[name] = speed

    def _lanes(self, service: str) -> int | None:
        """The number of requests a service answers at once: 0 for any, None if not known yet.

        Only a service at an address of its own may be a single machine.
        """
        section = self._settings.now.models.services.get(service)
        return (
            0
            if section is None or (section.lanes is None and not section.base_url)
            else section.lanes
        )

    async def window(self, model: str) -> Window:
        """The sizes of a model as its service and the configuration tell them; never raises."""
        section = self._settings.now.models.services.get(model.partition("/")[0])
        configured = section.window if section is not None else 0
        try:
            service, name = self._find(model)
        except ModelNotFound:
            return replace(UNKNOWN_WINDOW, configured=configured)
        return replace(await service.model.window(name), configured=configured)

    async def names(self) -> tuple[str, ...]:
        """Every model that can be chosen now."""
        services = self.services
        listed = await asyncio.gather(*(model.names() for model in services.values()))
        owned = zip(services, listed, strict=True)
        found = [f"{service}/{name}" for service, names in owned for name in names]
        every = dict.fromkeys((*self._defaults, *self._fallback, *found, OFFLINE))
        return tuple(n for n in every if not (n.endswith(LATEST) and n[: -len(LATEST)] in every))

    def is_unlisted(self, name: str, known: Collection[str]) -> bool:
        """True for a model that may well be there: its service does not say which it has."""
        service, _, model = name.partition("/")
        named = {*self._defaults, *self._fallback}
        listed = (each for each in known if each not in named)
        is_silent = not any(each.startswith(f"{service}/") for each in listed)
        return bool(model) and service in self._services and is_silent

    async def forget(self, name: str) -> None:
        """Find out anew what a model takes, by its full name."""
        model, own_name = self.services.get(name.partition("/")[0]), name.partition("/")[2]
        if isinstance(model, ServiceModel):
            await model.catalog.forget(own_name)

    async def warm_up(self) -> None:
        """Load what the configured services need."""
        for model in self.services.values():
            if isinstance(model, ServiceModel):
                await model.warm_up()

    async def load_sdks(self) -> None:
        """Load what takes seconds, and requests can do without for as long."""
        for model in self.services.values():
            if isinstance(model, AnthropicModel):
                await model.load_sdk()

    async def close(self) -> None:
        """Release their connections."""
        for service in (*self._services.values(), *self._replaced):
            await service.model.close()


@dataclass(frozen=True, slots=True)
class _OfAgent:
    """The models as one agent asks them."""

    models: Models
    fallback: tuple[str, ...]

    def stream(self, request: Request) -> AsyncGenerator[TextDelta | Reply]:
        """Write one reply; see `Models.stream`."""
        return self.models.stream(replace(request, fallback=self.fallback))


def open_service(kind: str, config: ServiceConfig, store: TextStore) -> Model:
    """The adapter for a service of this kind; it loads nothing before it is used.

    Raises:
        ConfigError: the package that brings it cannot be used.
    """
    if kind in _KINDS:
        return _KINDS[kind](config, window_store=store)
    return installed_models(kind).create(config, store)


def configured(
    config: ModelsConfig,
    store: TextStore,
    before: ModelsConfig | None = None,
    running: Mapping[str, Model] | None = None,
) -> dict[str, Model]:
    """The services that are set up, by name: of those `running`, each that is as `before`.

    Raises:
        ConfigError: a package that brings one cannot be used.
    """
    known = before.services if before is not None and running else dict[str, ServiceConfig]()
    return {
        name: running[name]
        if running and name in running and known.get(name) == service
        else open_service(config.kind_of(name), service, store)
        for name, service in config.services.items()
        if config.is_set_up(name)
    }


def _watched(
    request: Request, watch: Stopwatch, waited: float, timeout: float, speed: Speed
) -> Request:
    """A request that is timed, and whose limits do not count what it `waited`.

    The configured `timeout` grows where a model of this speed needs it; 0 leaves it as it is.
    """
    on_asked, on_thought = request.on_asked, request.on_thought

    def asked(model: str) -> None:
        watch.start()
        if on_asked is not None:
            on_asked(model)

    def thought(words: str) -> None:
        watch.hear(tokens.estimate(words), thought=True)
        if on_thought is not None:
            on_thought(words)

    needs = speed.limit(timeout, SILENCE_SECONDS, prompt=request.tokens, output=0)
    return replace(
        request,
        on_asked=asked,
        on_thought=thought if on_thought is not None else None,
        deadline=request.deadline and request.deadline + waited,
        silence=needs if timeout else None,
    )


def _for_service(request: Request, name: str, own_name: str) -> Request:
    """A request as a model's service is sent it: without what only another model understands."""
    owners = {_owner(name), name}

    def add(shown: list[Message], message: Message) -> list[Message]:
        kept = tuple(b for b in message.blocks if not isinstance(b, Opaque) or b.service in owners)
        is_whole = len(kept) == len(message.blocks)
        shown.append(message if is_whole else replace(message, blocks=kept))
        return shown

    begins, said = request.begins, request.messages
    shown = list(request.folding.of(f"shown to {name}", said[:begins], list[Message], add))
    for message in said[begins:]:
        add(shown, message)
    return replace(request, model=own_name, messages=tuple(shown))


def _owner(name: str) -> str:
    """The owner of the blocks a service understands; those of the anthropic table have no name."""
    service = name.partition("/")[0]
    return "" if service == ANTHROPIC else service


def _owned(reply: Reply, name: str) -> Reply:
    """A reply that says who wrote it, and whose blocks say which service understands them."""
    blocks = (  # what a model thought is of no use to another one
        replace(block, service=name if block.is_thought else _owner(name))
        if isinstance(block, Opaque)
        else block
        for block in reply.message.blocks
    )
    message = replace(reply.message, blocks=tuple(blocks))
    return replace(reply, message=message, model=name)
