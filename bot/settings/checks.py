"""Checks across options, as pure functions over a valid `Config`, and the words of mistakes."""

from __future__ import annotations

import difflib
import fnmatch
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from typing import Any, cast, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BaseModel, ValidationError

from bot.channel import (
    DEFAULT_ACCOUNT,
    ChannelConfig,
    ChannelPlugin,
    Rule,
    ToolRule,
    reveal,
)
from bot.config import (
    ANTHROPIC,
    MAIN_AGENT,
    OFFLINE,
    OPENAI,
    AgentConfig,
    BindRule,
    Config,
    is_loopback,
)
from bot.errors import ConfigError
from bot.i18n import DEFAULT_LANGUAGE, catalog
from bot.settings.fields import Key, Shape, env_name, lookup, shape_at, shape_of
from bot.unicode import well_formed

# Mistakes in the configuration, as sentences a person can act on.

MAX_DEPTH = 12  # of nested tables and lists; the deepest option is at 6
_SHOWN = 60  # characters of a wrong value or name that are repeated in the message

_EXPECTED: dict[str, str] = {
    "table": "a table of options",
    "map": "a table of names and values",
    "list": 'a list such as ["a", "b"]',
    "secret": "text in quotes",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "text": "text in quotes",
}
_LIMITS = {
    "greater_than": "is too small: it must be above {gt}",
    "greater_than_equal": "is too small: it must be at least {ge}",
    "less_than": "is too large: it must be below {lt}",
    "less_than_equal": "is too large: it must be at most {le}",
    "string_too_short": "is too short: it needs {min_length} or more characters",
    "string_too_long": "is too long: it may have {max_length} characters",
    "too_short": "is too short: it needs {min_length} or more entries",
    "too_long": "is too long: it may have {max_length} entries",
}


class Mistakes(ConfigError):
    """Values that cannot be used; `keys` are the places they are at."""

    def __init__(self, message: str, keys: Iterable[Key]) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: the place in the configuration it is about, and a sentence on it.

    `where` is set when it is known already, as for a variable; otherwise the place's origin is
    looked up. `needs` are the options a mistake between options is about: when one of them is wrong
    by itself, that comes first. `named` says that the message names the option.
    """

    key: Key
    message: str
    where: str = ""
    needs: tuple[Key, ...] = ()
    named: bool = False


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, or None."""
    by_folded = {candidate.lower(): candidate for candidate in names}
    found = difflib.get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def suggestion(name: str, names: Sequence[str], form: str = '"{}"') -> str:
    """`; did you mean "x"?`, or the names there are when none comes near."""
    meant = nearest(name, names)
    if meant is not None:
        return f"; did you mean {form.format(meant)}?"
    if not names or len(names) > 12:
        return ""
    return f"; there is {', '.join(form.format(each) for each in sorted(names))}"


def table_name(key: Key) -> str:
    """A table as it is written in the file: `[channels.telegram]`; items by their number."""
    names = [f"{part + 1}" if isinstance(part, int) else word(part) for part in key]
    return f"[{'.'.join(names)}]" if names else "the file's first lines"


def word(name: str) -> str:
    """A name from the file as it may stand in a message: short, on one line, no control codes."""
    text = name if len(name) <= _SHOWN else f"{name[: _SHOWN - 1]}…"
    return text if text.isprintable() else json.dumps(text)[1:-1]


def quoted(value: object) -> str:
    """A wrong value, short and on one line."""
    if isinstance(value, str):
        text = value if len(value) <= _SHOWN else f"{value[: _SHOWN - 1]}…"
        return json.dumps(text, ensure_ascii=not text.isprintable())
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value}".removesuffix(".0")
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else f"{value}"[:_SHOWN]


def not_a(shape: Shape, value: object) -> str:
    """The sentence for a value of the wrong kind, or one that is no choice."""
    if shape.kind == "secret":
        return f"this must be {_EXPECTED['secret']}"  # whatever it is, it may be a secret
    if shape.kind == "choice":
        choices = ", ".join(f'"{choice}"' for choice in shape.choices)
        meant = nearest(value, shape.choices) if isinstance(value, str) else None
        return f"{quoted(value)} is not one of {choices}" + (
            f'; did you mean "{meant}"?' if meant else ""
        )
    sentence = f"{quoted(value)} is not {_EXPECTED[shape.kind]}"
    if shape.kind == "text" and isinstance(value, int | float) and not isinstance(value, bool):
        return f'{sentence}: write "{quoted(value)}"'
    return sentence


def unusable(value: object, key: Key) -> Iterator[tuple[Key, str]]:
    """Yields values that TOML and variables can hold and no option takes: the place, and why."""
    if len(key) > MAX_DEPTH:
        yield key, "this is nested too deeply"
    elif isinstance(value, dict | list):
        held = cast("dict[str | int, object] | list[object]", value)
        for name, inner in held.items() if isinstance(held, dict) else enumerate(held):
            yield from unusable(inner, (*key, name))
    elif isinstance(value, date | time):  # datetimes are dates
        yield key, "dates and times are not used here; if it is text, put it in quotes"
    elif isinstance(value, float) and not math.isfinite(value):
        yield key, "this must be a finite number"
    elif isinstance(value, int) and value.bit_length() > 63:
        yield key, "this number is too large"
    elif isinstance(value, str) and "\0" in value:
        yield key, "this text has a NUL character in it"
    elif isinstance(value, str) and value != well_formed(value):
        yield key, "this text is not valid UTF-8"


def from_validation(model: type[BaseModel], data: object, error: ValidationError) -> list[Problem]:
    """Pydantic's errors, one problem each."""
    errors = error.errors(include_url=False, include_input=False)
    return [_problem(model, data, dict(each)) for each in errors]


def _problem(model: type[BaseModel], data: object, error: dict[str, Any]) -> Problem:
    kind: str = error["type"]
    loc: Key = error["loc"]
    context: dict[str, Any] = error.get("ctx", {})
    if loc and loc[-1] == "[key]":
        return Problem(loc[:-1], _bad_name(model, loc[:-1], kind))
    value, shape = lookup(data, loc), shape_at(model, loc)
    if kind == "extra_forbidden":
        return Problem(loc, _unknown(model, loc, is_table=isinstance(value, dict)), named=True)
    if kind == "missing":
        message = f'{table_name(loc[:-1])} needs "{loc[-1]}"'
        return Problem(loc, message, needs=(loc,), named=True)
    if shape is not None and (kind.endswith("_type") or kind == "literal_error"):
        return Problem(loc, not_a(shape, value))
    if kind in _LIMITS:
        said = "this" if shape is not None and shape.kind == "secret" else quoted(value)
        limits = {name: quoted(each) for name, each in context.items()}
        return Problem(loc, f"{said} {_LIMITS[kind].format(**limits)}")
    message = str(error["msg"]).removeprefix("Value error, ")
    needs = tuple((*loc, *path) for path in context.get("needs", ((),)))
    return Problem((*loc, *context.get("path", ())), message, needs=needs, named=True)


def _unknown(model: type[BaseModel], key: Key, *, is_table: bool) -> str:
    """The sentence for a name the models do not have."""
    parent, name = key[:-1], word(str(key[-1]))
    shape = shape_at(model, parent)
    siblings = list(shape.model.model_fields) if shape is not None and shape.model else []
    if parent == ("channels",):
        installed = ", ".join(sorted(siblings)) or "none"
        meant = nearest(name, siblings)
        hint = f"; did you mean [channels.{meant}]?" if meant else ""
        return f'no channel "{name}" is installed (installed: {installed}){hint}'
    if parent:
        return f'unknown option "{name}" in {table_name(parent)}{suggestion(name, siblings)}'
    if is_table:
        return f"unknown section [{name}]{suggestion(name, siblings, '[{}]')}"
    tables = ((home, shape_at(model, (home,))) for home in siblings)
    homes = (
        f"it belongs to [{home}]"
        for home, table in tables
        if table is not None and table.model is not None and name in table.model.model_fields
    )
    home = next(homes, "options stand below a [section] line")
    return f'unknown option "{name}" before the first section; {home}'


def _bad_name(model: type[BaseModel], key: Key, kind: str) -> str:
    """The sentence for a name in a table of names (an account, a chat type) that cannot be one."""
    said = f"{quoted(str(key[-1]))} cannot be a name in {table_name(key[:-1])}"
    if kind == "string_pattern_mismatch":
        return f"{said}: use small letters, digits, - and _"
    table = shape_at(model, key[:-2])
    field = table.model.model_fields.get(str(key[-2])) if table and table.model else None
    names = shape_of(get_args(field.annotation)[0]).choices if field is not None else ()
    return f"{said}{suggestion(str(key[-1]), names)}"


_PERSON = re.compile(r"[a-z0-9_]+:\S+")
# Names of people become folders and parts of session keys.
_PERSON_NAME = re.compile(r"\w[\w.-]{0,63}")
_OWNER_NAME = "main"
KINDS = (ANTHROPIC, OPENAI)
_KEY_NAMES = {ANTHROPIC: "ANTHROPIC_API_KEY", OPENAI: "OPENAI_API_KEY"}
_SERVICE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_AGENT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


def problems(
    config: Config, kinds: Collection[str] = (), *, has_other_tools: bool = False
) -> Iterator[Problem]:
    """Everything that stops the start; `kinds` of services, and tools, come from other packages."""
    yield from _services(config, (*KINDS, *kinds))
    for check in (_agents, _timezones, _people, _endpoints, _folders, _retention, _web, _rules):
        yield from check(config)
    if not has_other_tools:
        yield from unknown_tools(config)


def warnings(config: Config) -> Iterator[Problem]:
    """Yields what is allowed and probably not meant."""
    installed = list(type(config.channels).model_fields)
    for name in installed:
        yield from _star_without_open(name, config.channels.get(name))
    reset: Key = ("session", "reset")
    channels = [(key, person.partition(":")[0]) for key, person in _all_people(config)]
    channels += [((*reset, "by_channel", name), name) for name in config.session.reset.by_channel]
    channels += [
        ((*reset, "by_chat", chat), chat.partition(":")[0]) for chat in config.session.reset.by_chat
    ]
    for key, channel in channels:
        if channel not in installed:
            hint = suggestion(channel, installed)
            yield Problem(key, f'no channel "{channel}" is installed{hint}')
    known = [_OWNER_NAME, *config.session.identity_links]
    people: list[tuple[Key, str]] = [
        (("session", "timezones", person), person) for person in config.session.timezones
    ]
    people += [(("limits", "people", person), person) for person in config.limits.people]
    for key, person in people:
        if person not in known and not _PERSON.fullmatch(person):
            yield Problem(key, f"{quoted(person)} is nobody{suggestion(person, known)}")


def missing(
    config: Config, plugins: Mapping[str, ChannelPlugin], named: Collection[Key]
) -> Iterator[Problem]:
    """Yields what is set up and cannot run as it is; `named` are the options that were set."""
    for name, plugin in plugins.items():
        section = config.channels.get(name)
        options = [key for key in named if key[:2] == ("channels", name) and _is_set(section, key)]
        if options and section.enabled and not plugin.ready(section):
            needs = f"set {plugin.needs}" if plugin.needs else "see its documentation"
            message = f"{name} is set up but cannot run, so it stays off: {needs}"
            yield Problem(options[0], message, named=True)
    service, _ = config.models.locate(config.agent.model)
    if ("agent", "model") in named and not _is_served(config, service):
        said = f"has no key, so the offline model answers: set {key_name(service)}"
        yield Problem(("agent", "model"), f"{quoted(config.agent.model)} {said}")


def _is_served(config: Config, name: str) -> bool:
    """True when there is somebody to ask for a service's models."""
    return name == OFFLINE or config.models.is_set_up(name)


def key_name(service: str) -> str:
    """The variable that a service's key belongs into."""
    return _KEY_NAMES.get(service, env_name(("models", service, "api_key")))


def _is_set(section: ChannelConfig, key: Key) -> bool:
    """True when a place in a channel's section holds a value, and is not just a table's heading."""
    value = getattr(section, str(key[2]), None) if len(key) > 2 else section
    return len(key) > 3 or not isinstance(value, BaseModel)


def _star_without_open(name: str, section: ChannelConfig) -> Iterator[Problem]:
    accounts: Iterable[str] = getattr(section, "accounts", {})
    places: list[tuple[Key, ChannelConfig]] = [((), section)]
    places += [(("accounts", account), section.account(account)) for account in accounts]
    for path, each in places:
        if "*" in each.allow_from and each.dm_policy not in {"open", "disabled"}:
            yield Problem(
                ("channels", name, *path, "allow_from"),
                f'"*" counts only with dm_policy = "open"; "{each.dm_policy}" lets nobody in by it',
            )


def _services(config: Config, kinds: Sequence[str]) -> Iterator[Problem]:
    """Tables of services that cannot be used, and models of services there are not."""
    services = config.models.services
    for name in services:
        key: Key = ("models", name)
        kind = config.models.kind_of(name)
        if not _SERVICE_NAME.fullmatch(name) or name == OFFLINE:
            advice = "use small letters, digits, - and _"
            yield Problem(key, f"{quoted(name)} cannot be a service's name: {advice}")
        elif kind not in kinds and services[name].kind:
            said = f"{quoted(kind)} is no kind of service{suggestion(kind, kinds)}"
            yield Problem((*key, "kind"), said)
        elif kind not in kinds:
            meant = nearest(name, kinds)
            hint = f"; did you mean [models.{meant}]?" if meant else ""
            choices = " or ".join(f'kind = "{each}"' for each in kinds)
            yield Problem(key, f"[models.{word(name)}] does not say its kind: set {choices}{hint}")
    for place, model in _models_named(config):
        name, own_name = config.models.locate(model)
        if name not in services and name != OFFLINE:
            said = f"{quoted(model)}: there is no [models.{word(name)}]"
            yield Problem(place, f"{said}{suggestion(name, list(services))}")
        elif not own_name:
            yield Problem(place, f"{quoted(model)} names no model")
        elif place != ("agent", "model") and not _is_served(config, name):
            said = f"{quoted(model)}: [models.{name}] has neither a key nor an address"
            yield Problem(place, f"{said}: set {key_name(name)}")


def _models_named(config: Config) -> Iterator[tuple[Key, str]]:
    """Every model that an agent names, with its place."""
    agents: dict[Key, AgentConfig] = {("agent",): config.agent}
    agents |= {("agents", name): agent for name, agent in config.agents.named.items()}
    for key, agent in agents.items():
        if key == ("agent",) or "model" in agent.model_fields_set:
            yield (*key, "model"), agent.model
        yield from (((*key, "fallback", n), each) for n, each in enumerate(agent.fallback))
        if agent.chores:
            yield (*key, "chores"), agent.chores


def _agents(config: Config) -> Iterator[Problem]:
    """Agents that cannot have their name, or that would never answer."""
    for name, agent in config.agents.named.items():
        key: Key = ("agents", name)
        if name == MAIN_AGENT:
            yield Problem(key, f"{quoted(name)} is the agent of [agent]: choose another name")
        elif not _AGENT_NAME.fullmatch(name):
            advice = "use small letters, digits, - and _, 32 at most"
            yield Problem(key, f"{quoted(name)} cannot be an agent's name: {advice}")
        if not agent.bind:
            example = 'bind = [{ channel = "telegram", chat = "-100123" }]'
            yield Problem((*key, "bind"), f"it would never answer: say where, as in {example}")


def _timezones(config: Config) -> Iterator[Problem]:
    zones: list[tuple[Key, str]] = [
        (("session", "timezones", person), name)
        for person, name in config.session.timezones.items()
    ]
    if config.agent.timezone:
        zones.append((("agent", "timezone"), config.agent.timezone))
    for key, name in zones:
        try:
            ZoneInfo(name)
        except (OSError, ValueError, LookupError):  # unknown, a folder, or no path at all
            meant = nearest(name, available_timezones())
            hint = f'did you mean "{meant}"?' if meant else 'write one such as "Europe/Berlin"'
            yield Problem(key, f"{quoted(name)} is not a time zone; {hint}")


def _all_people(config: Config) -> Iterator[tuple[Key, str]]:
    for index, person in enumerate(config.session.owner):
        yield ("session", "owner", index), person
    for name, people in config.session.identity_links.items():
        for index, person in enumerate(people):
            yield ("session", "identity_links", name, index), person


def _people(config: Config) -> Iterator[Problem]:
    for key, person in _all_people(config):
        if not _PERSON.fullmatch(person):
            example = '"<channel>:<id>", e.g. "telegram:42"'
            yield Problem(key, f"{quoted(person)} does not say who: write {example}")
    names: dict[str, str] = {}
    linked: dict[str, str] = {}
    for name, people in config.session.identity_links.items():
        key = ("session", "identity_links", name)
        if not _PERSON_NAME.fullmatch(name):
            yield Problem(key, f"{quoted(name)} cannot be a name: use letters, digits, - and _")
        elif name.casefold() == _OWNER_NAME:
            advice = "choose another name, and name the owner's places in [session] owner"
            yield Problem(key, f"{quoted(name)} is what the owner's memory is called: {advice}")
        elif (twin := names.setdefault(name.casefold(), name)) != name:
            yield Problem(key, f"{quoted(name)} and {quoted(twin)} are the same name")
        for index, person in enumerate(people):
            if (twin := linked.setdefault(person.lower(), name)) != name:
                both = f"{quoted(twin)} and {quoted(name)}"
                yield Problem((*key, index), f"{quoted(person)} is linked to two people, {both}")


def _endpoints(config: Config) -> Iterator[Problem]:
    addresses: dict[Key, str] = {
        ("models", name, "base_url"): service.base_url
        for name, service in config.models.services.items()
    }
    addresses["tools", "web", "search_url"] = config.tools.web.search_url
    for key, url in addresses.items():
        if url and not _is_web_address(url):
            said = "is not an address: it begins with https:// or http://"
            yield Problem(key, f"{quoted(url)} {said}")
    for index, origin in enumerate(config.dashboard.allowed_origins):
        if not _is_web_address(origin) or urlsplit(origin).path not in {"", "/"}:
            advice = 'write scheme and host only, e.g. "https://bot.example.org"'
            key = ("dashboard", "allowed_origins", index)
            yield Problem(key, f"{quoted(origin)} is not an origin: {advice}")
    host, token = ("dashboard", "host"), ("dashboard", "token")
    if is_loopback(config.dashboard.host):
        return
    if not reveal(config.dashboard.token):
        message = (
            f"{quoted(config.dashboard.host)} can be reached from other machines, so the page "
            "needs a token: set CONFIDANT_DASHBOARD__TOKEN"
        )
        yield Problem(host, message, needs=(host, token))


def _retention(config: Config) -> Iterator[Problem]:
    if config.storage.keep_months and config.storage.url is None:
        message = (
            "a storage folder keeps everything: only what is said in the database behind "
            "[storage] url can be dropped by month"
        )
        key = ("storage", "keep_months")
        yield Problem(key, message, needs=(key, ("storage", "url")))


def _web(config: Config) -> Iterator[Problem]:
    web, search, url = config.tools.web, ("tools", "web", "search"), ("tools", "web", "search_url")
    if web.search == "searxng" and not web.search_url:
        yield Problem(search, '"searxng" needs search_url: where is it?', needs=(search, url))
    if web.search in {"brave", "tavily"} and not reveal(web.search_key):
        message = f'"{web.search}" needs a key: set CONFIDANT_TOOLS__WEB__SEARCH_KEY'
        yield Problem(search, message, needs=(search, ("tools", "web", "search_key")))


def rules_of(config: Config) -> Iterator[tuple[Key, Rule]]:
    """Every rule about who sees, uses or is sent something, or who answers, with its place."""
    lists: list[tuple[Key, Sequence[Rule]]] = [
        (("scope", "rules"), config.scope.rules),
        (("send_policy", "rules"), config.send_policy.rules),
        (("tools", "rules"), config.tools.rules),
    ]
    lists += [(("agents", name, "bind"), each.bind) for name, each in config.agents.named.items()]
    for name in type(config.channels).model_fields:
        section = config.channels.get(name)
        lists.append((("channels", name, "scope", "rules"), section.scope.rules))
        for account, own in getattr(section, "accounts", {}).items():
            if "scope" in own.model_fields_set:
                place = ("channels", name, "accounts", account, "scope", "rules")
                lists.append((place, section.account(account).scope.rules))
    for table, rules in lists:
        for index, rule in enumerate(rules):
            yield (*table, index), rule


def _rules(config: Config) -> Iterator[Problem]:
    """Rules that could never match, as what they name does not exist: whom they deny, gets it."""
    installed = list(type(config.channels).model_fields)
    accounts = {
        name: [DEFAULT_ACCOUNT, *getattr(config.channels.get(name), "accounts", {})]
        for name in installed
    }
    people = [_OWNER_NAME, *config.session.identity_links]
    # See the table of session keys in docs/operating.md.
    begins = ("main", "dm:", "import:", *(f"{name}:" for name in installed))
    agents = (MAIN_AGENT, *config.agents.named)
    keys = [f"agent:{agent}:{each}" for agent in agents for each in begins]
    for key, rule in rules_of(config):
        channel, account = rule.channel.lower(), rule.account.lower()
        begin = rule.key_prefix.lower()
        if channel and channel not in installed:
            message = f"no channel {quoted(rule.channel)} is installed"
            yield Problem((*key, "channel"), f"{message}{suggestion(rule.channel, installed)}")
            continue
        known = [each for name in installed if channel in {"", name} for each in accounts[name]]
        if account and account not in known:
            hint = suggestion(rule.account, sorted(set(known)))
            yield Problem((*key, "account"), f"no account is called {quoted(rule.account)}{hint}")
        if not any(each.startswith(begin) or begin.startswith(each) for each in keys):
            hint = suggestion(rule.key_prefix, keys)
            message = f"no session key begins with {quoted(rule.key_prefix)}{hint}"
            yield Problem((*key, "key_prefix"), message)
        for name, id_ in (("chat", rule.chat), ("sender", rule.sender)):
            prefix, _, rest = id_.partition(":")
            if rest and prefix.lower() in installed:
                advice = f"write channel = {quoted(prefix)} and {name} = {quoted(rest)}"
                yield Problem((*key, name), f"{quoted(id_)} is no id in that channel: {advice}")
        person = rule.person.lower() if isinstance(rule, ToolRule | BindRule) else ""
        if not person or person in map(str.lower, people):
            continue
        if not _PERSON.fullmatch(person):
            hint = suggestion(person, people)
            yield Problem((*key, "person"), f"{quoted(person)} is nobody{hint}")
        elif (prefix := person.partition(":")[0]) not in installed:
            hint = suggestion(prefix, installed)
            yield Problem((*key, "person"), f"no channel {quoted(prefix)} is installed{hint}")


def built_in_tools() -> list[str]:
    """The names of the tools that come with the program: those that the catalog has words for."""
    keys = (key.split(".") for key in catalog(DEFAULT_LANGUAGE))
    return sorted(key[1] for key in keys if key[0] == "tool")


def unknown_tools(config: Config) -> Iterator[Problem]:
    """Rules about tools that are neither built in nor, by their names, of a configured server."""
    servers = [f"{name}_" for name in config.tools.mcp]
    own = built_in_tools()
    lists: list[tuple[Key, Sequence[str]]] = [
        (("tools", "rules", index, "tools"), rule.tools)
        for index, rule in enumerate(config.tools.rules)
    ]
    lists += [(("agents", name, "tools"), each.tools) for name, each in config.agents.named.items()]
    for key, number, name in ((key, *each) for key, names in lists for each in enumerate(names)):
        pattern = name.lower()
        start = re.split(r"[*?[]", pattern)[0]
        is_served = any(
            pattern.startswith(each) or (start != pattern and each.startswith(start))
            for each in servers
        )
        if not is_served and not fnmatch.filter(own, pattern):
            hint = suggestion(name, [*own, *(f"{each}*" for each in servers)])
            yield Problem((*key, number), f"no tool is called {quoted(name)}{hint}")


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not close
        return False


def _folders(config: Config) -> Iterator[Problem]:
    for key, folder in (
        (("storage", "dir"), config.storage.dir),
        (("memory", "workspace"), config.memory.workspace),
        *((("memory", "folders", n, "path"), f.path) for n, f in config.memory.folders.items()),
    ):
        try:
            if folder is not None:
                folder.expanduser()
        except RuntimeError:  # a person this machine does not know, as in ~nobody/data
            yield Problem(key, f"{quoted(str(folder))}: there is no such home folder")
