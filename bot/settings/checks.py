"""What a configuration must also hold, across options: pure functions over a valid `Config`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BaseModel

from bot.channel import ChannelConfig, ChannelPlugin, Rule, reveal
from bot.config import ANTHROPIC, OFFLINE, OPENAI, SHORTEST_TOKEN, Config, is_loopback
from bot.settings.fields import Key, env_name
from bot.settings.problems import Problem, nearest, quoted, suggestion, word

_PERSON = re.compile(r"[a-z0-9_]+:\S+")
# Names of people become folders and parts of session keys.
_PERSON_NAME = re.compile(r"\w[\w.-]{0,63}")
_OWNER_NAME = "main"
KINDS = (ANTHROPIC, OPENAI)
_KEY_NAMES = {ANTHROPIC: "ANTHROPIC_API_KEY", OPENAI: "OPENAI_API_KEY"}
_SERVICE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

BUILT_IN_TOOLS = (
    "artifact_get",
    "memory_get",
    "memory_search",
    "memory_write",
    "schedule_message",
    "transcript_search",
    "web_fetch",
    "web_search",
)


def problems(
    config: Config, kinds: Collection[str] = (), *, has_other_tools: bool = False
) -> Iterator[Problem]:
    """Everything that stops the start; `kinds` of services, and tools, come from other packages."""
    yield from _services(config, (*KINDS, *kinds))
    yield from _timezones(config)
    yield from _people(config)
    yield from _endpoints(config)
    yield from _folders(config)
    yield from _retention(config)
    yield from _web(config)
    yield from _rules(config)
    if not has_other_tools:
        yield from unknown_tools(config)


def warnings(config: Config) -> Iterator[Problem]:
    """What is allowed and probably not meant."""
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
    people += [
        (("tools", "rules", index, "person"), rule.person)
        for index, rule in enumerate(config.tools.rules)
        if rule.person
    ]
    for key, person in people:
        if person not in known and not _PERSON.fullmatch(person):
            yield Problem(key, f"{quoted(person)} is nobody{suggestion(person, known)}")
    token = reveal(config.dashboard.token)
    if token and len(token) < SHORTEST_TOKEN and is_loopback(config.dashboard.host):
        advice = f"use {SHORTEST_TOKEN} characters or more"
        yield Problem(("dashboard", "token"), f"this token is short enough to be guessed; {advice}")


def missing(
    config: Config, plugins: Mapping[str, ChannelPlugin], named: Collection[Key]
) -> Iterator[Problem]:
    """What somebody set up that cannot run as it is; `named` are the options that were set."""
    for name, plugin in plugins.items():
        section = config.channels.get(name)
        options = [key for key in named if key[:2] == ("channels", name) and _is_set(section, key)]
        if options and section.enabled and not plugin.ready(section):
            needs = f"set {plugin.needs}" if plugin.needs else "see its documentation"
            message = f"{name} is set up but cannot run, so it stays off: {needs}"
            yield Problem(options[0], message, named=True)
    if ("agent", "model") in named and config.agent.model != OFFLINE:
        yield from _without_key(config)


def _without_key(config: Config) -> Iterator[Problem]:
    """The model that was chosen, if nobody can be asked for it."""
    name = config.models.locate(config.agent.model)[0]
    if not _is_served(config, name):
        said = f"has no key, so the offline model answers: set {key_name(name)}"
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
    named: list[tuple[Key, str]] = [(("agent", "model"), config.agent.model)]
    named += [(("agent", "fallback", n), each) for n, each in enumerate(config.agent.fallback)]
    if config.agent.chores:
        named.append((("agent", "chores"), config.agent.chores))
    for place, model in named:
        name, own_name = config.models.locate(model)
        if name not in services and name != OFFLINE:
            said = f"{quoted(model)}: there is no [models.{word(name)}]"
            yield Problem(place, f"{said}{suggestion(name, list(services))}")
        elif not own_name:
            yield Problem(place, f"{quoted(model)} names no model")
        elif place != ("agent", "model") and not _is_served(config, name):
            said = f"{quoted(model)}: [models.{name}] has neither a key nor an address"
            yield Problem(place, f"{said}: set {key_name(name)}")


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
    for name, service in config.models.services.items():
        if service.base_url and not _is_web_address(service.base_url):
            said = quoted(service.base_url)
            message = f"{said} is not an address: it begins with https:// or http://"
            yield Problem(("models", name, "base_url"), message)
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
    elif len(reveal(config.dashboard.token)) < SHORTEST_TOKEN:
        message = (
            f"other machines can reach the page, and a token of fewer than {SHORTEST_TOKEN} "
            "characters can be guessed: set CONFIDANT_DASHBOARD__TOKEN to a long random text"
        )
        yield Problem(token, message, needs=(host, token))


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
    if web.search_url and not _is_web_address(web.search_url):
        message = f"{quoted(web.search_url)} is not an address: it begins with https:// or http://"
        yield Problem(url, message)
    if web.search == "searxng" and not web.search_url:
        yield Problem(search, '"searxng" needs search_url: where is it?', needs=(search, url))
    if web.search in {"brave", "tavily"} and not reveal(web.search_key):
        message = f'"{web.search}" needs a key: set CONFIDANT_TOOLS__WEB__SEARCH_KEY'
        yield Problem(search, message, needs=(search, ("tools", "web", "search_key")))


def _rules(config: Config) -> Iterator[Problem]:
    """Rules about channels that are not installed: they would never match."""
    installed = list(type(config.channels).model_fields)
    lists: list[tuple[Key, Sequence[Rule]]] = [
        (("scope",), config.scope.rules),
        (("send_policy",), config.send_policy.rules),
        (("tools",), config.tools.rules),
    ]
    lists += [(("channels", n, "scope"), config.channels.get(n).scope.rules) for n in installed]
    for table, rules in lists:
        for index, rule in enumerate(rules):
            if rule.channel and rule.channel.lower() not in installed:
                hint = suggestion(rule.channel, installed)
                message = f"no channel {quoted(rule.channel)} is installed{hint}"
                yield Problem((*table, "rules", index, "channel"), message)


def unknown_tools(config: Config) -> Iterator[Problem]:
    """Rules about tools that are neither built in nor, by their names, of a configured server."""
    servers = [f"{name}_" for name in config.tools.mcp]
    for index, rule in enumerate(config.tools.rules):
        for number, name in enumerate(rule.tools):
            pattern = name.lower()
            start = re.split(r"[*?[]", pattern)[0]
            is_served = any(
                pattern.startswith(each) or (start != pattern and each.startswith(start))
                for each in servers
            )
            if not is_served and not fnmatch.filter(BUILT_IN_TOOLS, pattern):
                hint = suggestion(name, [*BUILT_IN_TOOLS, *(f"{each}*" for each in servers)])
                key = ("tools", "rules", index, "tools", number)
                yield Problem(key, f"no tool is called {quoted(name)}{hint}")


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not close
        return False


def _folders(config: Config) -> Iterator[Problem]:
    folders: dict[Key, Path | None] = {
        ("storage", "dir"): config.storage.dir,
        ("memory", "workspace"): config.memory.workspace,
    }
    for key, folder in folders.items():
        try:
            if folder is not None:
                folder.expanduser()
        except RuntimeError:  # a person this machine does not know, as in ~nobody/data
            yield Problem(key, f"{quoted(str(folder))}: there is no such home folder")
