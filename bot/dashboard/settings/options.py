"""Which options the page offers to change, and how each one stands: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from aiohttp import web
from pydantic import SecretStr

from bot.channel import Trial, reveal
from bot.config import Config
from bot.dashboard import pages
from bot.dashboard.pages import sent
from bot.errors import ConfigError
from bot.i18n import text
from bot.settings.changes import Overruled
from bot.settings.fields import Key, Option, Shape, shape_at
from bot.settings.loader import tables_in_effect, toml_value

_CAPS: Final = ("day_usd", "day_tokens", "month_usd", "month_tokens")


@dataclass(frozen=True, slots=True)
class Group:
    """Options that are changed by one form; `settings.group.<name>` is what it is called."""

    name: str
    keys: tuple[tuple[str, ...], ...]


# Each of them counts at once.
_USUAL: Final = tuple(
    Group(name, tuple(tuple(key.split(".")) for key in keys.split()))
    for name, keys in {
        "bot": "agent.name session.owner_name agent.language agent.timezone",
        "models": "agent.model agent.fallback agent.chores agent.choices agent.max_tokens "
        "agent.max_steps",
        "answers": "agent.turn_timeout session.queue.mode session.queue.debounce",
        "reset": "session.reset.mode session.reset.at_hour session.reset.idle_minutes",
        "window": "context.context_tokens context.notices context.notice_percent",
        "memory": "context.enable_memory_flush memory.max_injected_chars memory.max_results "
        "memory.citations memory.retention_days",
        "in_all": " ".join(f"limits.in_all.{cap}" for cap in _CAPS),
        "each": " ".join((*(f"limits.each.{cap}" for cap in _CAPS), "limits.exempt_owner")),
    }.items()
)
# Where there are months to drop: in a database that nodes share.
_SHARED: Final = Group("months", (("storage", "keep_months"),))


def groups(config: Config) -> tuple[Group, ...]:
    """The groups of what can be changed here."""
    return (*_USUAL, _SHARED) if config.storage.url is not None else _USUAL


def is_offered(config: Config, key: tuple[str, ...]) -> bool:
    """True when an option can be changed here."""
    return any(key in group.keys for group in groups(config))


@dataclass(frozen=True, slots=True)
class Standing:
    """One option: what counts, what would count otherwise, and what set it.

    `waits` when a file says something else by now, which counts after the next start.
    """

    key: tuple[str, ...]
    shape: Shape
    value: str
    default: str
    origin: str
    waits: bool = False

    @property
    def name(self) -> str:
        """The option as it is written in sentences and forms."""
        return ".".join(self.key)


def offered(config: Config, origins: Mapping[Key, str], key: tuple[str, ...]) -> Standing:
    """An option that can be changed, its values as they are typed."""
    shape = shape_at(type(config), key) or Shape("text")
    default = as_typed(_at(type(config)(), key))
    return Standing(key, shape, as_typed(_at(config, key)), default, origins.get(key, ""))


def as_typed(value: object) -> str:
    """A value as it stands in a variable, and in the field of a form."""
    if isinstance(value, list | tuple):
        return ", ".join(map(as_typed, cast("list[object]", value)))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.15g}"
    return "" if value is None else str(value)


def tables(
    config: Config, found: Config, origins: Mapping[Key, str]
) -> list[tuple[tuple[str, ...], list[Standing]]]:
    """Every option there is, by table; of secrets no more than whether they are set."""
    later: dict[Key, object] = {
        option.key: getattr(table, option.key[-1])
        for _, table, options in tables_in_effect(found)
        for option in options
    }
    return [
        (
            key,
            [
                _standing(option, getattr(table, option.key[-1]), later, origins)
                for option in options
            ],
        )
        for key, table, options in tables_in_effect(config)
        if options
    ]


def secrets(config: Config, origins: Mapping[Key, str]) -> list[Standing]:
    """The secrets that can be replaced, "set" or nothing: the page's, of services, of channels."""
    found: list[Standing] = []
    for key, table, options in tables_in_effect(config):
        if key[0] not in {"dashboard", "models", "channels"}:
            continue
        for option in options:
            if option.shape.kind == "secret":
                value = getattr(table, option.key[-1])
                is_set = isinstance(value, SecretStr) and bool(reveal(value))
                origin = origins.get(option.key, "")
                found.append(
                    Standing(option.key, option.shape, "set" if is_set else "", "", origin)
                )
    return found


def _standing(
    option: Option, value: object, later: Mapping[Key, object], origins: Mapping[Key, str]
) -> Standing:
    if option.shape.kind == "secret":
        shown, default = "set" if value is not None else "", ""
    else:
        default = toml_value(option.field.get_default(call_default_factory=True))
        shown = "" if value is None else toml_value(value)
    sources = [where for place, where in origins.items() if place[: len(option.key)] == option.key]
    waits = option.key in later and later[option.key] != value
    origin = ", ".join(dict.fromkeys(sources))
    return Standing(option.key, option.shape, shown, default, origin, waits)


def _at(config: object, key: Key) -> object:
    for name in key:
        config = getattr(config, str(name))
    return config


async def fields(request: web.Request) -> dict[str, str]:
    """The text fields of a form, without spaces around them.

    Raises:
        HTTPBadRequest: it is no form.
    """
    return {name: value.strip() for name, value in (await sent(request)).items()}


def sentences(request: web.Request, error: ConfigError) -> list[str]:
    """What is wrong, a line each."""
    if isinstance(error, Overruled):
        return [text(pages.language(request), "settings.overruled", origin=error.origin)]
    return str(error).splitlines()


def told(request: web.Request, key: Key, trial: Trial) -> str:
    """What came of trying a channel's secret: what was checked, and what was not."""
    channel = str(key[1]).replace("_", " ").title()
    return text(
        pages.language(request),
        f"settings.trial.{trial.outcome}",
        channel=channel,
        name=trial.name,
        option=str(key[-1]),
    )
