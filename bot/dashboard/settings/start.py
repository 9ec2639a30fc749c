"""Quick setup: a model, Telegram, names and the time zone; each tried at once, none needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from aiohttp import web

from bot.agent.models import trial
from bot.agent.models.service import TextStore
from bot.agent.turn import Meter
from bot.channel import Finding, Health
from bot.config import ANTHROPIC, LONGEST_NAME, OPENAI
from bot.dashboard.pages import Pages, Visit, route, see
from bot.dashboard.settings import pages
from bot.errors import (
    ConfigError,
    ModelAuth,
    ModelBadReply,
    ModelBilling,
    ModelError,
    ModelNotFound,
    ModelProxy,
    ModelRateLimited,
    ModelRegion,
    ModelTimeout,
    ModelUnreachable,
)
from bot.identity import Conversation
from bot.settings.changes import Overruled, ServedSettings
from bot.settings.checks import Mistakes
from bot.settings.fields import Key
from bot.views.outcomes import told

PATH: Final = "/settings/start"
KEPT_SECONDS: Final = 900.0  # a key that was tried waits so long for a model to be chosen
TELEGRAM: Final = "telegram"
OTHERS: Final = frozenset({"discord", "matrix", "nextcloud_talk", "slack"})  # not just a token
ADDRESS: Final = "address"  # the choice beside the two services that are known by name
SERVICES: Final = (ANTHROPIC, OPENAI, ADDRESS)
WHO: Final[Mapping[str, Key]] = {
    "owner_name": ("session", "owner_name"),
    "name": ("agent", "name"),
    "timezone": ("agent", "timezone"),
    "language": ("agent", "language"),
}
_OLLAMA_PORT = 11434
# First match wins: the particular before the general.
_WHY: Final[tuple[tuple[type[ModelError], str], ...]] = (
    (ModelAuth, "refused"),
    (ModelBilling, "billing"),
    (ModelRegion, "region"),
    (ModelProxy, "proxy"),
    (ModelTimeout, "timeout"),
    (ModelUnreachable, "unreachable"),
    (ModelRateLimited, "busy"),
    (ModelNotFound, "no_list"),
    (ModelBadReply, "no_list"),
)

log = structlog.get_logger(__name__)

Connections = Callable[[], list[tuple[str, str, Health, str]]]
Act = Callable[[Visit, Mapping[str, str]], Awaitable[list[str]]]
"""Does one step with its form, and returns what is wrong."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A service that answered: what has to be set for it, and which models it has."""

    service: str
    wanted: Mapping[Key, str | None]
    names: Sequence[str]
    at: float


class StartPages(Pages):
    """`/settings/start`. A key that was tried is kept in memory until its model is chosen."""

    def __init__(
        self,
        settings: ServedSettings,
        connections: Connections,
        store: TextStore,
        charging: Callable[[Conversation], AbstractAsyncContextManager[Meter]],
    ) -> None:
        """Facts found out about models are kept in the store; whoever tries one is charged."""
        self._settings = settings
        self._connections = connections
        self._store = store
        self._charging = charging
        self._tried: Tried | None = None
        self._can: tuple[str, Sequence[Finding]] = ("", ())  # a model that was tried
        self._bot = ""  # what Telegram calls it
        self._token = ""  # one that Telegram takes, and that could not be written
        # What each form does, and the step below which the page says what came of it.
        self._steps: Mapping[str, tuple[str, Act]] = {
            "model": ("model", self._try_model),
            "use": ("model", self._use_model),
            TELEGRAM: (TELEGRAM, self._telegram),
            "self": ("self", self._self),
        }

    @route("GET", PATH)
    async def _show(self, visit: Visit) -> web.Response:
        await asyncio.to_thread(pages.zones)
        return self._page(visit, {}, {})

    @route("POST", *(f"{PATH}/{step}" for step in ("model", "use", TELEGRAM, "self")))
    async def _step(self, visit: Visit) -> web.Response:
        """Do one step; or say why not, and show what was typed, but no secret."""
        form = await pages.fields(visit)
        step, act = self._steps[visit.request.path.removeprefix(f"{PATH}/")]
        try:
            problems = await act(visit, form)
        except ConfigError as error:
            problems = await self._told(visit, error, form)
        except ModelError as error:
            log.info("settings.model_tried", error=type(error).__name__)
            problems = [_why(visit, error)]
        if problems:
            typed = {name: value for name, value in form.items() if name not in {"key", "token"}}
            return self._page(visit, {step: problems}, typed)
        return see(f"{PATH}{'?saved=self' if step == 'self' else ''}#{step}")

    async def _told(self, visit: Visit, error: ConfigError, form: Mapping[str, str]) -> list[str]:
        """A hint for a wrong field of the form; otherwise the problems."""
        await asyncio.to_thread(pages.zones)
        keys = (
            error.keys if isinstance(error, Mistakes) and not isinstance(error, Overruled) else ()
        )
        found = [
            pages.advice(visit, self._settings.config, key, form[name])
            for name, key in WHO.items()
            if name in form and any(pages.is_at(each, key) for each in keys)
        ]
        return found or pages.sentences(visit, error)

    # --- a model ----------------------------------------------------------------------------------

    async def _try_model(self, visit: Visit, form: Mapping[str, str]) -> list[str]:
        service, key, address = (form.get(name, "") for name in ("service", "key", "address"))
        if lacking := self._lacking(service, key, address):
            return [_say(visit, lacking)]
        name, wanted = _wanted(service, key, address)
        loaded = await self._settings.tried(wanted)
        names = await trial.names_of(loaded.config.models, name)
        log.info("settings.model_tried", service=name, models=len(names))
        if not names:
            return [_say(visit, "no_list")]
        self._tried = Tried(name, wanted, names, time.monotonic())
        return []

    def _lacking(self, service: str, key: str, address: str) -> str:
        """The key of the missing field; empty if there is something to try."""
        if service not in SERVICES:
            return "choose"
        if service == ADDRESS:
            return "" if address else "no_address"
        return "" if key or self._settings.config.models.is_set_up(service) else "no_key"

    async def _use_model(self, visit: Visit, form: Mapping[str, str]) -> list[str]:
        tried = self._waiting()
        if tried is None:
            return [_say(visit, "gone")]
        if form.get("model") not in tried.names:
            return [_say(visit, "choose_model")]
        name = form["model"]
        wanted = {**tried.wanted, ("agent", "model"): f"{tried.service}/{name}"}
        if tried.service not in SERVICES:  # Ollama gives models less than they could take
            loaded = await self._settings.tried(wanted)
            window = await trial.window_to_set(loaded.config.models, tried.service, name)
            if window is None:
                return [_say(visit, "small")]
            wanted |= {("models", tried.service, "window"): str(window)} if window else {}
        loaded = await self._settings.tried(wanted)
        models, store = loaded.config.models, self._store
        async with self._charging(visit.conversation) as meter:
            can = await trial.what_it_can(models, tried.service, name, store, meter=meter)
        await self._settings.change(wanted)
        self._tried, self._can = None, (f"{tried.service}/{name}", can)
        return []

    def _waiting(self) -> Tried | None:
        """The service that was tried lately and waits for a model to be chosen."""
        tried = self._tried
        if tried is not None and time.monotonic() - tried.at > KEPT_SECONDS:
            tried = self._tried = None
        return tried

    # --- Telegram ---------------------------------------------------------------------------------

    async def _telegram(self, visit: Visit, form: Mapping[str, str]) -> list[str]:
        token = form.get("token", "") or self._token
        if not token:
            return [_say(visit, "no_token")]
        key: Key = ("channels", TELEGRAM, "token")
        trial = await self._settings.try_secret(key, token)
        if not trial.may_be_kept:
            return [pages.told(visit, key, trial)]
        self._token = token  # until it is written
        await self._settings.change({key: token})
        self._bot, self._token = trial.name, ""
        return []

    # --- who --------------------------------------------------------------------------------------

    async def _self(self, _visit: Visit, form: Mapping[str, str]) -> list[str]:
        wanted: dict[Key, str | None] = {
            WHO[name]: form[name] or None
            for name, value in self._who().items()
            if form.get(name, value) != value
        }
        await self._settings.change(wanted)
        return []

    def _who(self) -> dict[str, str]:
        """The current names, time zone and language, by form field."""
        config = self._settings.config
        return {name: str(pages.value_at(config, key)) for name, key in WHO.items()}

    # ----------------------------------------------------------------------------------------------

    def _page(
        self, visit: Visit, problems: Mapping[str, list[str]], typed: Mapping[str, str]
    ) -> web.Response:
        config, tried = self._settings.config, self._waiting()
        service, _ = config.models.locate(config.agent.model)
        is_connected = config.models.is_set_up(service)
        shown = {"service": "", "address": "", **self._who(), **typed}
        name, can = self._can
        return visit.page(
            "settings_start.html",
            422 if problems else 200,
            services=SERVICES,
            connected=config.agent.model if is_connected else "",
            can=[told(each, visit.language) for each in can if name == config.agent.model],
            tried=tried,
            preferred=_preferred(tried, config.agent.model) if tried is not None else "",
            has_telegram=TELEGRAM in self._settings.plugins,
            has_others=bool(OTHERS & self._settings.plugins.keys()),
            saved=visit.query("saved") == "self",
            telegram=self._telegram_now(),
            bot=self._bot,
            has_token=bool(self._token),
            problems=problems,
            typed=shown,
            longest_name=LONGEST_NAME,
            zones=pages.zones(),
            file=self._settings.shown_path,
            is_shared=self._settings.is_shared,
        )

    def _telegram_now(self) -> dict[str, Any] | None:
        """The state of Telegram; None while it is not set up."""
        plugin = self._settings.plugins.get(TELEGRAM)
        if plugin is None or plugin.off(self._settings.config.channels.get(TELEGRAM)):
            return None
        found = [each for each in self._connections() if each[0] == TELEGRAM]
        state = found[0][2].value if found else Health.STARTING.value
        return {"health": state, "detail": found[0][3] if found else ""}


def _wanted(service: str, key: str, address: str) -> tuple[str, dict[Key, str | None]]:
    """The name of a service, and the options that make it one."""
    if service != ADDRESS:
        return service, {("models", service, "api_key"): key} if key else {}
    address = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(address)
        is_ollama = parts.port == _OLLAMA_PORT or "ollama" in (parts.hostname or "")
    except ValueError:  # told by the checks of the configuration
        is_ollama = False
    name = "ollama" if is_ollama else "local"
    return name, {
        ("models", name, "kind"): OPENAI,
        ("models", name, "base_url"): address,
        ("models", name, "api_key"): key or None,
    }


def _preferred(tried: Tried, model: str) -> str:
    """The model that is chosen unless somebody chooses another one."""
    own = model.removeprefix(f"{tried.service}/")
    if own in tried.names:
        return own
    return next((name for name in tried.names if "embed" not in name), tried.names[0])


def _why(visit: Visit, error: ModelError) -> str:
    words = _say(visit, next((word for kind, word in _WHY if isinstance(error, kind)), "failed"))
    if not error.told:
        return words
    return f"{words} {visit.say('error.model.told', words=error.told)}"


def _say(visit: Visit, why: str) -> str:
    return visit.say(f"settings_start.problem.{why}")
