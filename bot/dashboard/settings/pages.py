"""`/settings`: the options a section offers, what is found in all of them, and the way back."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter
from typing import Final, cast
from zoneinfo import available_timezones

from aiohttp import web
from pydantic import SecretStr

from bot.channel import Trial, reveal
from bot.config import SHORTEST_TOKEN, Config
from bot.dashboard.pages import Pages, Visit, in_menu, route, see
from bot.errors import ConfigError
from bot.i18n import DEFAULT_LANGUAGE, catalog
from bot.settings.changes import Overruled, ServedSettings
from bot.settings.checks import Mistakes, nearest
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
    is_secret = key in {each.key for each in secret_options(config, {})}
    return _HOMES[str(key[0])] if is_secret else ""


@dataclass(frozen=True, slots=True)
class CurrentOption:
    """One option: its value in effect and what set it.

    `waits` when a file says something else by now, which takes effect after the next start.
    """

    option: Option
    held: object
    origin: str
    waits: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """Its place in the configuration."""
        return self.option.key

    @property
    def shape(self) -> Shape:
        """The kind of value it takes."""
        return self.option.shape

    @property
    def name(self) -> str:
        """The option as it is written in sentences and forms."""
        return ".".join(self.key)

    @property
    def help(self) -> str:
        """The description in its declaration."""
        return self.option.field.description or ""

    @property
    def zero(self) -> str:
        """The word for 0, in `settings.zero`; empty if 0 has no special meaning."""
        return _ZERO.get(self.name, "")

    @property
    def is_set(self) -> bool:
        """True for a secret that there is; of its value nothing is shown."""
        return isinstance(self.held, SecretStr) and bool(reveal(self.held))

    @property
    def value(self) -> str:
        """Its value as TOML; empty for none."""
        return "" if self.held is None else toml_value(self.held)

    @property
    def default(self) -> str:
        """The value it has when nothing sets it, as TOML."""
        return toml_value(self.option.field.get_default(call_default_factory=True))

    @property
    def typed(self) -> str:
        """The text in its form field."""
        words = as_typed(self.held)
        return "" if self.zero and words == "0" else words

    @property
    def typed_default(self) -> str:
        """Its default, as it would be typed."""
        return as_typed(self.option.field.get_default(call_default_factory=True))

    def given(self, typed: str) -> str | None:
        """The value for what was typed; None sets nothing here."""
        return typed or ("0" if self.zero else None)


def tables(
    config: Config, origins: Mapping[Key, str], found: Config | None = None
) -> list[tuple[tuple[str, ...], list[CurrentOption]]]:
    """Every option there is, by table; `found` is what the files say by now."""
    later: dict[Key, object] = {
        option.key: getattr(table, option.key[-1])
        for _, table, options in tables_in_effect(found or config)
        for option in options
    }

    def current(option: Option, value: object) -> CurrentOption:
        length = len(option.key)
        sources = [where for place, where in origins.items() if place[:length] == option.key]
        waits = later.get(option.key, value) != value
        return CurrentOption(option, value, ", ".join(dict.fromkeys(sources)), waits)

    return [
        (key, [current(option, getattr(table, option.key[-1])) for option in options])
        for key, table, options in tables_in_effect(config)
        if options
    ]


def offered(config: Config, section: str, origins: Mapping[Key, str]) -> list[CurrentOption]:
    """The options that a section changes."""
    every = {each.key: each for _, rows in tables(config, origins) for each in rows}
    return [every[key] for group in groups(config, section) for key in group.keys]


def secret_options(config: Config, origins: Mapping[Key, str]) -> list[CurrentOption]:
    """The secrets that can be replaced: the page's, those of services and of channels."""
    return [
        each
        for key, rows in tables(config, origins)
        if key[0] in _HOMES
        for each in rows
        if each.shape.kind == "secret"
    ]


def is_at(problem: Key, key: Key) -> bool:
    """True if a mistake at one place is about the option at another."""
    # The only one between options of a form: an end after silence needs its minutes.
    place = ("session", "reset", "idle_minutes") if problem == ("session", "reset") else problem
    return place[: len(key)] == key


def advice(visit: Visit, config: Config, key: Key, typed: str) -> str:
    """Advice on what to enter instead of a wrong value."""
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


def value_at(config: Config, key: Key) -> object:
    """The value of an option."""
    return attrgetter(".".join(map(str, key)))(config)


async def fields(visit: Visit) -> dict[str, str]:
    """The text fields of a form, without spaces around them.

    Raises:
        HTTPBadRequest: it is no form.
    """
    return {name: value.strip() for name, value in (await visit.form()).items()}


def sentences(visit: Visit, error: ConfigError) -> list[str]:
    """The problems, one line each."""
    if isinstance(error, Overruled):
        return [visit.say("settings.overruled", origin=error.origin)]
    return str(error).splitlines()


def told(visit: Visit, key: Key, trial: Trial) -> str:
    """The result of trying a channel's secret: what was checked, and what was not."""
    channel, option = str(key[1]).replace("_", " ").title(), str(key[-1])
    said = {"channel": channel, "name": trial.name, "option": option}
    return visit.say(f"settings.trial.{trial.outcome}", **said)


# --- the pages ------------------------------------------------------------------------------------


PATH: Final = "/settings"
NEWEST: Final = 10  # changes that are shown at once
MOST_FOUND: Final = 50
MOST_MODELS: Final = 200  # in a list of suggestions
MODEL_SECONDS: Final = 2.0  # to ask services which models they have

Models = Callable[[], Awaitable[Sequence[str]]]


@in_menu("/settings", is_owners=True)
class SettingsPages(Pages):
    """The options in effect, and forms that change them."""

    def __init__(self, settings: ServedSettings, models: Models) -> None:
        """`models` says which models there are to choose from."""
        self._settings = settings
        self._models = models
        self._tried: tuple[Key, Trial] | None = None  # the secret that was replaced last

    @route("GET", PATH)
    async def _show(self, visit: Visit) -> web.Response:
        if wanted := visit.query("q").strip():
            return self._found(visit, wanted)
        return await self._page(visit, visit.query("section"))

    @route("POST", f"{PATH}/change")
    async def _change(self, visit: Visit) -> web.Response:
        form = await fields(visit)
        section = form.get("section", "")
        choices = offered(self._settings.config, section, {})
        if not choices:
            raise web.HTTPBadRequest
        wanted: dict[Key, str | None] = {
            each.key: each.given(form[each.name])
            for each in choices
            if each.name in form and form[each.name] != each.typed
        }
        return await self._changed(visit, section, self._settings.change(wanted), form)

    @route("POST", f"{PATH}/unset")
    async def _unset(self, visit: Visit) -> web.Response:
        key = tuple((await fields(visit)).get("option", "").split("."))
        section = section_of(self._settings.config, key)
        if not section:
            raise web.HTTPBadRequest
        self._tried = None
        return await self._changed(visit, section, self._settings.change({key: None}))

    @route("POST", f"{PATH}/secret")
    async def _secret(self, visit: Visit) -> web.Response:
        form = await fields(visit)
        name, value = form.get("option", ""), form.get("value", "")
        known = {each.name: each.key for each in secret_options(self._settings.config, {})}
        if name not in known:
            raise web.HTTPBadRequest
        say, key = visit.say, known[name]

        async def replace() -> None:
            if not value:
                raise ConfigError(say("settings.nothing_entered"))
            if key == PAGE_TOKEN and len(value) < SHORTEST_TOKEN:
                raise ConfigError(say("settings.token.short", least=SHORTEST_TOKEN))
            trial = await self._settings.try_secret(key, value)
            if not trial.may_be_kept:
                unchanged = say("settings.secrets.unchanged")
                raise ConfigError(f"{told(visit, key, trial)}\n{unchanged}")
            self._tried = (key, trial) if key[0] == "channels" else None
            await self._settings.change({key: value})

        section = section_of(self._settings.config, key)
        return await self._changed(visit, section, replace(), {"secret": name})

    @route("POST", f"{PATH}/take-back")
    async def _take_back(self, visit: Visit) -> web.Response:
        id_ = (await fields(visit)).get("change", "")
        return await self._changed(visit, "advanced", self._settings.take_back(id_))

    async def _changed(
        self,
        visit: Visit,
        section: str,
        work: Awaitable[None],
        typed: Mapping[str, str] | None = None,
    ) -> web.Response:
        try:
            await work
        except ConfigError as error:
            return await self._page(visit, section, error, typed or {})
        return see(f"{PATH}?section={section}&done=1")

    # --- as it is shown ---------------------------------------------------------------------------

    async def _names(self) -> Sequence[str]:
        """The models there are, as far as their services say so soon."""
        try:
            async with asyncio.timeout(MODEL_SECONDS):
                return (await self._models())[:MOST_MODELS]
        except TimeoutError:
            return ()

    def _wrong(
        self,
        visit: Visit,
        error: ConfigError | None,
        rows: Sequence[CurrentOption],
        typed: Mapping[str, str],
    ) -> tuple[dict[str, str], list[str]]:
        """The problems by name of the option, and all others."""
        if error is None:
            return {}, []
        keys = error.keys if isinstance(error, Mistakes) else ()
        found: dict[str, str] = {}
        for row in rows if not isinstance(error, Overruled) else ():
            if any(is_at(key, row.key) for key in keys):
                words = typed.get(row.name, row.typed)
                found[row.name] = advice(visit, self._settings.config, row.key, words)
        rest = [key for key in keys if not any(is_at(key, row.key) for row in rows)]
        is_told = found and not rest
        return found, [] if is_told else sentences(visit, error)

    async def _page(
        self,
        visit: Visit,
        section: str,
        error: ConfigError | None = None,
        typed: Mapping[str, str] | None = None,
    ) -> web.Response:
        settings, section = self._settings, section if section in SECTIONS else next(iter(SECTIONS))
        config, typed = settings.config, typed or {}
        rows = offered(config, section, settings.origins)
        await asyncio.to_thread(zones)
        wrong, problems = self._wrong(visit, error, rows, typed)
        is_done = bool(visit.query("done")) and error is None
        tried = self._tried if is_done and section == "channels" else None
        changes = await settings.changes() if section == "advanced" else []
        secret = [
            each
            for each in secret_options(config, settings.origins)
            if section_of(config, each.key) == section
        ]
        by_name = {row.key: row for row in rows}
        return self._drawn(
            visit,
            422 if error is not None else 200,
            section=section,
            groups=[
                (group.name, [by_name[key] for key in group.keys])
                for group in groups(config, section)
            ],
            models=await self._names() if section == "models" else (),
            zones=zones() if section == "general" else (),
            secrets=secret,
            page_token=".".join(PAGE_TOKEN),
            generated=secrets.token_urlsafe(24) if section == "people" else "",
            ours=await settings.ours(),
            tables=(
                tables(config, settings.origins, settings.found) if section == "advanced" else ()
            ),
            changes=[("newest", changes[:NEWEST]), ("earlier", changes[NEWEST:])],
            wrong=wrong,
            problems=problems,
            typed=typed,
            is_done=is_done,
            tried=told(visit, *tried) if tried is not None else "",
        )

    def _found(self, visit: Visit, wanted: str) -> web.Response:
        """Every option that has all the words looked for in its label, its help or its name."""
        config, say = self._settings.config, visit.say
        words = wanted.casefold().split()

        def matches(*said: str) -> bool:
            whole = " ".join(said).casefold()
            return all(word in whole for word in words)

        choices = [(name, row) for name in SECTIONS for row in offered(config, name, {})]
        known = {row.key for _, row in choices}
        found = [
            (section, row)
            for section, row in choices
            if matches(
                row.name,
                *(say(f"settings.{of}.{'_'.join(row.key)}") for of in ("option", "help")),
                say(f"settings.section.{section}"),
            )
        ]
        settings = self._settings
        others = [
            row
            for _, rows in tables(config, settings.origins, settings.found)
            for row in rows
            if row.key not in known and matches(row.name, row.help)
        ]
        return self._drawn(
            visit,
            section="",
            wanted=wanted,
            found=found,
            others=others[:MOST_FOUND],
            more=max(0, len(others) - MOST_FOUND),
            section_of=partial(section_of, config),
        )

    def _drawn(self, visit: Visit, status: int = 200, **values: object) -> web.Response:
        settings, config = self._settings, self._settings.config
        return visit.page(
            "settings.html",
            status,
            **{"wanted": "", **values},
            sections=tuple(SECTIONS),
            is_connected=config.models.is_set_up(config.models.locate(config.agent.model)[0]),
            file=settings.shown_path,
            is_shared=settings.is_shared,
            refused=sorted(".".join(map(str, key)) for key in settings.refused),
        )
