"""The settings of OpenClaw as a `confidant.toml` to be read, and taken over by hand. Pure.

Only what means the same here is in it, and no secret: a line says which one goes where.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from bot.importing.openclaw.people import channel_of
from bot.importing.values import items, mapping, words
from bot.unicode import well_formed

NAME = "openclaw-confidant.toml"
_HEAD = """\
# Proposed from the settings of OpenClaw: read it, and put what you want into confidant.toml.
# `confidant config check` tells every mistake. Nothing reads this file.
"""
_TOKENS = {
    "telegram": ("botToken", "TELEGRAM_BOT_TOKEN"),
    "discord": ("token", "DISCORD_BOT_TOKEN"),
    "nextcloud_talk": ("botSecret", "NEXTCLOUD_TALK_BOT_SECRET"),
}
_DM = ("pairing", "allowlist", "open", "disabled")
_GROUP = ("allowlist", "open", "disabled")
_SCOPES = ("main", "per-peer", "per-channel-peer", "per-account-channel-peer")
# What is read, by section.
_READ = {
    "agents": ("defaults", "list", "entries"),
    "commands": ("ownerAllowFrom",),
    "session": ("dmScope", "identityLinks", "reset"),
}
_BARE = re.compile(r"[A-Za-z0-9_-]+")

Value = str | int | bool | Sequence[str]


def proposed(settings: Mapping[str, object]) -> str:
    """The text of the proposal."""
    lines: list[str] = [_HEAD]
    for table, values, notes in (*_general(settings), *_channels(settings)):
        if values or notes:
            lines.append(f"[{table}]")
            lines += [f"# {_one_line(note)}" for note in notes]
            lines += [f"{_key(name)} = {_value(value)}" for name, value in values.items()]
            lines.append("")
    if others := sorted(_others(settings)):
        lines += ["# Settings of OpenClaw without a counterpart here:"]
        lines += [f"# {_one_line(other)[:100]}" for other in others]
    return "\n".join(lines)


def _others(settings: Mapping[str, object]) -> Iterator[str]:
    """The names of the settings that are not proposed, two levels deep, without what they say."""
    for section, value in settings.items():
        for name in mapping(value) or ("",):
            is_channel = section == "channels" and channel_of(name) in _TOKENS
            if name not in _READ.get(section, ()) and not is_channel:
                yield f"{section}.{name}".rstrip(".")


Table = tuple[str, Mapping[str, Value], Sequence[str]]


def _general(settings: Mapping[str, object]) -> Iterator[Table]:
    defaults = mapping(mapping(settings.get("agents")).get("defaults"))
    model = words(mapping(defaults.get("model")).get("primary")) or words(defaults.get("model"))
    zone = words(defaults.get("userTimezone"))
    about = [f"It answered with {model}: docs/models.md says how to name it here."] if model else []
    yield "agent", {"timezone": zone} if zone else {}, about
    session = mapping(settings.get("session"))
    values: dict[str, Value] = {}
    if (scope := words(session.get("dmScope"))) in _SCOPES:
        values["dm_scope"] = scope
    owners = _ids(mapping(settings.get("commands")).get("ownerAllowFrom"))
    named = [owner for owner in owners if ":" in owner and not owner.startswith(":")]
    if named:
        values["owner"] = [f"{channel_of(o.split(':', 1)[0])}:{o.split(':', 1)[1]}" for o in named]
    yield "session", values, [] if named else ['owner = ["telegram:42"] makes an account yours.']
    links = mapping(session.get("identityLinks"))
    joined = {name: [p for p in _ids(places) if ":" in p] for name, places in links.items()}
    yield "session.identity_links", {name: p for name, p in joined.items() if p}, []
    yield "session.reset", _reset(mapping(session.get("reset"))), []


def _reset(reset: Mapping[str, object]) -> Mapping[str, Value]:
    values: dict[str, Value] = {}
    if (mode := words(reset.get("mode"))) in {"daily", "idle", "none"}:
        values["mode"] = mode
    hour, idle = reset.get("atHour"), reset.get("idleMinutes")
    if isinstance(hour, int) and 0 <= hour <= 23:
        values["at_hour"] = int(hour)
    if isinstance(idle, int) and 0 < idle < 1_000_000:
        values["idle_minutes"] = int(idle)
    return values


def _channels(settings: Mapping[str, object]) -> Iterator[Table]:
    for name, value in mapping(settings.get("channels")).items():
        channel, section = channel_of(name), mapping(value)
        if channel not in _TOKENS or not section:
            continue
        option, variable = _TOKENS[channel]
        is_set = bool(words(section.get(option)))
        notes = [f"Its {option} goes into .env as {variable}=…"] if is_set else []
        if section.get("accounts"):
            notes.append("It had more accounts: see accounts in docs/configuration.md.")
        yield f"channels.{channel}", _section(section), notes
        for id_, room in mapping(section.get("groups")).items():
            wanted = mapping(room).get("requireMention")
            values: dict[str, Value] = {}
            if isinstance(wanted, bool):
                values["require_mention"] = wanted
            yield f"channels.{channel}.groups.{_key(id_)}", values, ["A room it listens in."]


def _section(section: Mapping[str, object]) -> Mapping[str, Value]:
    values: dict[str, Value] = {}
    if isinstance(enabled := section.get("enabled"), bool):
        values["enabled"] = enabled
    direct = mapping(section.get("dm"))
    policy = words(section.get("dmPolicy")) or words(direct.get("policy"))
    people = _ids(section.get("allowFrom")) or _ids(direct.get("allowFrom"))
    if policy in _DM and (policy != "open" or "*" in people):
        values["dm_policy"] = policy
    if people and (policy == "open" or "*" not in people):
        values["allow_from"] = people
    if (group := words(section.get("groupPolicy"))) in _GROUP:
        values["group_policy"] = group
    if rooms := _ids(section.get("groupAllowFrom")):
        values["group_allow_from"] = rooms
    return values


def _ids(value: object) -> list[str]:
    """Ids, as texts or numbers; what names a list of people elsewhere is none."""
    found = [str(each).strip() for each in items(value) if isinstance(each, (str, int))]
    return [each for each in found if each and not each.startswith("accessGroup:")]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return _text(value)
        case _:
            return f"[{', '.join(map(_text, value))}]"


def _text(text: str) -> str:
    """A text as TOML writes it, which is as JSON does."""
    return json.dumps(well_formed(text), ensure_ascii=False).replace("\x7f", "\\u007f")


def _one_line(text: str) -> str:
    return " ".join(text.split())
