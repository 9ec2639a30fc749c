"""Which options the page offers to change, and how each one stands: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, cast
from zoneinfo import available_timezones

from pydantic import SecretStr

from bot.channel import Trial, reveal
from bot.config import Config
from bot.dashboard.pages import Visit
from bot.errors import ConfigError
from bot.i18n import DEFAULT_LANGUAGE, catalog
from bot.settings.changes import Overruled
from bot.settings.checks import nearest
from bot.settings.fields import Key, Option, Shape, shape_at
from bot.settings.loader import tables_in_effect, toml_value

PAGE_TOKEN: Final = ("dashboard", "token")
EXAMPLE: Final = "Europe/Berlin"
_CAPS: Final = ("day_usd", "day_tokens", "month_usd", "month_tokens")


@dataclass(frozen=True, slots=True)
class Group:
    """Options below one heading, `settings.group.<name>`."""

    name: str
    keys: tuple[tuple[str, ...], ...]


def _grouped(**groups: str) -> tuple[Group, ...]:
    return tuple(
        Group(name, tuple(tuple(key.split(".")) for key in keys.split()))
        for name, keys in groups.items()
    )


# What each section changes with one form; `settings.section.<name>` is what it is called. All of
# it takes effect at once.
SECTIONS: Final[Mapping[str, tuple[Group, ...]]] = {
    "general": _grouped(
        bot="agent.name session.owner_name agent.language agent.timezone",
        reset="session.reset.mode session.reset.at_hour session.reset.idle_minutes",
        answers="agent.turn_timeout session.queue.mode session.queue.debounce",
    ),
    "models": _grouped(
        models="agent.model agent.fallback agent.chores agent.choices agent.max_tokens "
        "agent.max_steps context.context_tokens"
    ),
    "memory": _grouped(
        memory="context.enable_memory_flush memory.max_injected_chars memory.max_results "
        "memory.citations memory.retention_days"
    ),
    "limits": _grouped(
        in_all=" ".join(f"limits.in_all.{cap}" for cap in _CAPS),
        each=" ".join((*(f"limits.each.{cap}" for cap in _CAPS), "limits.exempt_owner")),
    ),
    "channels": (),
    "people": (),
    "notifications": _grouped(window="context.notices context.notice_percent"),
    "advanced": (),
}
# Where there are months to drop: in a database that nodes share.
_SHARED: Final = _grouped(months="storage.keep_months")
# What 0 means, as `settings.zero.<word>`: an empty field says it.
_ZERO: Final[Mapping[str, str]] = {
    **{f"limits.{whose}.{cap}": "no_limit" for whose in ("in_all", "each") for cap in _CAPS},
    "session.reset.idle_minutes": "never",
    "memory.max_injected_chars": "nothing",
    "storage.keep_months": "everything",
}
# Where the secrets of a table are replaced.
_HOMES: Final = {"models": "models", "channels": "channels", "dashboard": "people"}


@cache
def zones() -> tuple[str, ...]:
    """The time zones there are; the first time it looks for them on the disk."""
    return tuple(sorted(available_timezones() - {"localtime"}))


def groups(config: Config, section: str) -> tuple[Group, ...]:
    """The groups of what a section changes; none of one that there is not."""
    more = _SHARED if section == "memory" and config.storage.url is not None else ()
    return (*SECTIONS.get(section, ()), *more)


def section_of(config: Config, key: Key) -> str:
    """The section that changes an option; empty for one that none changes."""
    for section in SECTIONS:
        if any(key in group.keys for group in groups(config, section)):
            return section
    is_secret = key in {each.key for each in secrets(config, {})}
    return _HOMES[str(key[0])] if is_secret else ""


@dataclass(frozen=True, slots=True)
class Standing:
    """One option: what counts, what would count otherwise, and what set it.

    `waits` when a file says something else by now, which counts after the next start; `zero` is
    what 0 means, `help` what the option is declared with.
    """

    key: tuple[str, ...]
    shape: Shape
    value: str
    default: str
    origin: str
    waits: bool = False
    zero: str = ""
    help: str = ""

    @property
    def name(self) -> str:
        """The option as it is written in sentences and forms."""
        return ".".join(self.key)

    @property
    def typed(self) -> str:
        """What its field holds."""
        return "" if self.zero and self.value == "0" else self.value

    def given(self, typed: str) -> str | None:
        """The value for what was typed; None sets nothing here."""
        return typed or ("0" if self.zero else None)


def offered(config: Config, origins: Mapping[Key, str], key: tuple[str, ...]) -> Standing:
    """An option that can be changed, its values as they are typed."""
    shape = shape_at(type(config), key) or Shape("text")
    default = as_typed(_at(type(config)(), key))
    standing = Standing(key, shape, as_typed(_at(config, key)), default, origins.get(key, ""))
    return replace(standing, zero=_ZERO.get(standing.name, ""))


def is_at(problem: Key, key: Key) -> bool:
    """True if a mistake at one place is about the option at another."""
    # The only one between options of a form: an end after silence needs its minutes.
    place = ("session", "reset", "idle_minutes") if problem == ("session", "reset") else problem
    return place[: len(key)] == key


def advice(visit: Visit, config: Config, key: Key, typed: str) -> str:
    """What to enter instead of a wrong value, in the words of the page."""
    say, name = visit.say, "_".join(map(str, key))
    shape = shape_at(type(config), key) or Shape("text")
    if key == ("agent", "timezone"):
        return say("settings.wrong.zone", zone=nearest(typed, zones()) or EXAMPLE)
    if f"settings.wrong.{name}" in catalog(DEFAULT_LANGUAGE):
        return say(f"settings.wrong.{name}")
    if shape.kind in {"int", "float"}:
        low, above, high = _bounds(config, key)
        what = "whole" if shape.kind == "int" else "number"
        if high is not None:
            return say(f"settings.wrong.{what}_between", low=low, high=high)
        return say("settings.wrong.above" if above else f"settings.wrong.{what}", low=low)
    return say("settings.wrong.list" if shape.kind == "list" else "settings.wrong.text")


def _bounds(config: Config, key: Key) -> tuple[str, bool, str | None]:
    """The least a number may be, whether it must be above that, and the most."""
    parent = shape_at(type(config), key[:-1])
    model = parent.model if parent is not None else None
    least, most, above = 0.0, None, False
    for mark in model.model_fields[str(key[-1])].metadata if model is not None else ():
        least = getattr(mark, "ge", getattr(mark, "gt", least))
        above = above or hasattr(mark, "gt")
        most = getattr(mark, "le", most)
    return f"{least:g}", above, None if most is None else f"{most:g}"


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
    about = option.field.description or ""
    return Standing(option.key, option.shape, shown, default, origin, waits, help=about)


def _at(config: object, key: Key) -> object:
    for name in key:
        config = getattr(config, str(name))
    return config


async def fields(visit: Visit) -> dict[str, str]:
    """The text fields of a form, without spaces around them.

    Raises:
        HTTPBadRequest: it is no form.
    """
    return {name: value.strip() for name, value in (await visit.form()).items()}


def sentences(visit: Visit, error: ConfigError) -> list[str]:
    """What is wrong, a line each."""
    if isinstance(error, Overruled):
        return [visit.say("settings.overruled", origin=error.origin)]
    return str(error).splitlines()


def told(visit: Visit, key: Key, trial: Trial) -> str:
    """What came of trying a channel's secret: what was checked, and what was not."""
    channel, option = str(key[1]).replace("_", " ").title(), str(key[-1])
    said = {"channel": channel, "name": trial.name, "option": option}
    return visit.say(f"settings.trial.{trial.outcome}", **said)
