"""What a configuration must also hold, across options: pure functions over a valid `Config`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BaseModel

from bot.channel import ChannelConfig, ChannelPlugin, reveal
from bot.config import Config
from bot.settings.fields import Key
from bot.settings.problems import Problem, nearest, quoted, suggestion

_SHORT_TOKEN = 16  # characters; fewer can be guessed by trying
_PERSON = re.compile(r"[a-z0-9_]+:\S+")
# Names of people become folders and parts of session keys.
_PERSON_NAME = re.compile(r"\w[\w.-]{0,63}")
_OWNER_NAME = "main"
OFFLINE = "offline"  # the model that needs no key


def problems(config: Config) -> Iterator[Problem]:
    """Everything that stops the start."""
    yield from _timezones(config)
    yield from _people(config)
    yield from _endpoints(config)
    yield from _folders(config)


def warnings(config: Config) -> Iterator[Problem]:
    """What is allowed and probably not meant."""
    installed = list(type(config.channels).model_fields)
    for name in installed:
        yield from _star_without_open(name, config.channels.get(name))
    for key, person in _all_people(config):
        channel = person.partition(":")[0]
        if channel not in installed:
            hint = suggestion(channel, installed)
            yield Problem(key, f'no channel "{channel}" is installed{hint}')
    reset = config.session.reset
    named = [("by_channel", name, name) for name in reset.by_channel]
    named += [("by_chat", name, name.partition(":")[0]) for name in reset.by_chat]
    for table, name, channel in named:
        if channel not in installed:
            hint = suggestion(channel, installed)
            key = ("session", "reset", table, name)
            yield Problem(key, f'no channel "{channel}" is installed{hint}')
    yield from _unknown_people(config)
    token = reveal(config.dashboard.token)
    if token and len(token) < _SHORT_TOKEN and is_loopback(config.dashboard.host):
        yield Problem(
            ("dashboard", "token"),
            f"this token is short enough to be guessed; use {_SHORT_TOKEN} characters or more",
        )


def missing(
    config: Config, plugins: Mapping[str, ChannelPlugin], named: Collection[Key]
) -> Iterator[Problem]:
    """What somebody set up that cannot run as it is; `named` are the options that were set."""
    for name, plugin in plugins.items():
        section = config.channels.get(name)
        options = [key for key in named if key[:2] == ("channels", name) and _is_set(section, key)]
        if options and section.enabled and not plugin.ready(section):
            needs = f"set {plugin.needs}" if plugin.needs else "see its documentation"
            yield Problem(
                options[0], f"{name} is set up but cannot run, so it stays off: {needs}", named=True
            )
    model, service = config.agent.model, config.models.anthropic
    has_service = bool(reveal(service.api_key)) or bool(service.base_url)
    if ("agent", "model") in named and model != OFFLINE and not has_service:
        yield Problem(
            ("agent", "model"),
            f"{quoted(model)} has no key, so the offline model answers: set ANTHROPIC_API_KEY",
        )


def _is_set(section: ChannelConfig, key: Key) -> bool:
    """True when a place in a channel's section holds a value, and is not just a table's heading."""
    value = getattr(section, str(key[2]), None) if len(key) > 2 else section
    return len(key) > 3 or not isinstance(value, BaseModel)


def _star_without_open(name: str, section: ChannelConfig) -> Iterator[Problem]:
    accounts: Iterable[str] = getattr(section, "accounts", {})
    places: list[tuple[tuple[str, ...], ChannelConfig]] = [((), section)]
    places += [(("accounts", account), section.account(account)) for account in accounts]
    for path, each in places:
        if "*" in each.allow_from and each.dm_policy not in {"open", "disabled"}:
            yield Problem(
                ("channels", name, *path, "allow_from"),
                f'"*" counts only with dm_policy = "open"; "{each.dm_policy}" lets nobody in by it',
            )


def _timezones(config: Config) -> Iterator[Problem]:
    zones: list[tuple[tuple[str, ...], str]] = [
        (("session", "timezones", person), name)
        for person, name in config.session.timezones.items()
    ]
    if config.agent.timezone:
        zones.append((("agent", "timezone"), config.agent.timezone))
    for key, name in zones:
        if not _is_zone(name):
            meant = nearest(name, available_timezones())
            hint = f'; did you mean "{meant}"?' if meant else '; write one such as "Europe/Berlin"'
            yield Problem(key, f"{quoted(name)} is not a time zone{hint}")


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, LookupError):  # unknown, a folder, or no path at all
        return False
    return True


def _unknown_people(config: Config) -> Iterator[Problem]:
    """Time zones of nobody: a slip in a name would go unnoticed for long."""
    known = [_OWNER_NAME, *config.session.identity_links]
    for person in config.session.timezones:
        if person not in known and not _PERSON.fullmatch(person):
            hint = suggestion(person, known)
            yield Problem(("session", "timezones", person), f"{quoted(person)} is nobody{hint}")


def _all_people(config: Config) -> Iterator[tuple[tuple[str | int, ...], str]]:
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
    owners: dict[str, str] = {}
    for name, people in config.session.identity_links.items():
        key = ("session", "identity_links", name)
        if not _PERSON_NAME.fullmatch(name):
            yield Problem(key, f"{quoted(name)} cannot be a name: use letters, digits, - and _")
        elif name.casefold() == _OWNER_NAME:
            yield Problem(
                key,
                f"{quoted(name)} is what the owner's memory is called: choose another name, and "
                "name the owner's places in [session] owner",
            )
        elif names.setdefault(name.casefold(), name) != name:
            twin = names[name.casefold()]
            yield Problem(key, f"{quoted(name)} and {quoted(twin)} are the same name")
        for index, person in enumerate(people):
            twin = owners.setdefault(person.lower(), name)
            if twin != name:
                yield Problem(
                    (*key, index),
                    f"{quoted(person)} is linked to two people, {quoted(twin)} and {quoted(name)}",
                )


def _endpoints(config: Config) -> Iterator[Problem]:
    base_url = config.models.anthropic.base_url
    if base_url and not _is_web_address(base_url):
        yield Problem(
            ("models", "anthropic", "base_url"),
            f"{quoted(base_url)} is not an address: it begins with https:// or http://",
        )
    for index, origin in enumerate(config.dashboard.allowed_origins):
        if not _is_web_address(origin) or urlsplit(origin).path not in {"", "/"}:
            example = '"https://bot.example.org"'
            yield Problem(
                ("dashboard", "allowed_origins", index),
                f"{quoted(origin)} is not an origin: write scheme and host only, e.g. {example}",
            )
    if not is_loopback(config.dashboard.host) and not reveal(config.dashboard.token):
        yield Problem(
            ("dashboard", "host"),
            f"{quoted(config.dashboard.host)} can be reached from other machines, so the page "
            "needs a token: set CONFIDANT_DASHBOARD__TOKEN",
            needs=(("dashboard", "host"), ("dashboard", "token")),
        )
    elif (
        not is_loopback(config.dashboard.host)
        and len(reveal(config.dashboard.token)) < _SHORT_TOKEN
    ):
        yield Problem(
            ("dashboard", "token"),
            f"other machines can reach the page, and a token of fewer than {_SHORT_TOKEN} "
            "characters can be guessed: set CONFIDANT_DASHBOARD__TOKEN to a long random text",
            needs=(("dashboard", "host"), ("dashboard", "token")),
        )


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not close
        return False


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _folders(config: Config) -> Iterator[Problem]:
    folders: list[tuple[tuple[str, ...], Path | None]] = [
        (("storage", "dir"), config.storage.dir),
        (("memory", "workspace"), config.memory.workspace),
    ]
    for key, folder in folders:
        try:
            if folder is not None:
                folder.expanduser()
        except RuntimeError:  # a person this machine does not know, as in ~nobody/data
            yield Problem(key, f"{quoted(str(folder))}: there is no such home folder")
